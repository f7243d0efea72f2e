"""Languages without spaces: words by the real libraries, remembered by name; a warning where clauses stay whole."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from cli_runner import run
from undertow import HMM, Corpus, Tokenizer, load
from undertow.cli.main import main
from undertow.errors import MissingExtraError
from undertow.text import segmenters
from undertow.text.segmenters import UnsplitTextWarning
from undertow.text.tokenizer import TokenizerWarning, tokenizer_from

CHINESE = "我们坐在河岸上看着流水。银行明天开门吗？那条河有3.5公里长！"
THAI = "เรานั่งอยู่ริมแม่น้ำและมองดูสายน้ำที่ไหลผ่าน"


@pytest.mark.parametrize(
    ("rule", "module", "text", "words"),
    [
        ("jieba", "jieba", CHINESE, {"我们", "银行", "明天", "公里", "NUM", "。"}),
        ("icu", "icu", CHINESE, {"我们", "银行", "明天", "公里", "NUM", "。"}),
        ("pythainlp", "pythainlp", THAI, {"เรา", "นั่ง", "อยู่", "และ"}),
        ("icu", "icu", THAI, {"เรา", "นั่ง", "แม่น้ำ", "และ"}),
    ],
)
def test_words_of_languages_without_spaces(rule: str, module: str, text: str, words: set[str]) -> None:
    pytest.importorskip(module)
    tokenizer = Tokenizer(rule=rule)
    sentences = tokenizer(text)
    assert words <= {word for s in sentences for word in s}
    assert "".join(w for s in sentences for w in s).replace("NUM", "3.5") == text
    assert len(sentences) == (3 if text == CHINESE else 1)
    assert len(Tokenizer(rule=rule, sentences="lines")(f"{text}\n{text}")) == 2
    numbered = tokenizer.tokenize(text.encode())
    assert [numbered.types[i].decode() for i in numbered.ids] == [w for s in sentences for w in s]


def test_a_model_splits_new_text_by_the_library_of_its_corpus(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("jieba")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.txt").write_text(f"{CHINESE}\n" * 20)
    main("fit hmm t.txt -o m --states 4 --blocks 2 --iterations 1 --tokenizer jieba --seed 0 -j 1".split())
    model = load("m")
    assert "银行" in model.vocabulary_.words and model.tokenizer_["library"].startswith("jieba ")
    capsys.readouterr()
    main(["surprise", "m", "t.txt", "--json"])
    out, err = capsys.readouterr()
    assert "银行" in out and err == ""
    monkeypatch.setattr(segmenters, "library_of", lambda rule: "jieba 99")
    monkeypatch.setattr("undertow.text.tokenizer.library_of", lambda rule: "jieba 99")
    with pytest.warns(TokenizerWarning, match=r"split by jieba 0.*jieba 99 is installed"):
        tokenizer_from(model.tokenizer_)


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(segmenters.LIBRARIES, "icu", ("no_such_module", "PyICU", "Thai"))
    with pytest.raises(MissingExtraError, match=r"undertow\[icu\]"):
        Tokenizer(rule="icu").describe()


@pytest.mark.parametrize("text", [CHINESE, f"She said: {THAI}"])
def test_clauses_taken_for_words_are_warned_of(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(text)
    with pytest.warns(UnsplitTextWarning, match="tokenizer='jieba', 'pythainlp' or 'icu'"):
        Corpus.build([tmp_path / "t.txt"], tmp_path / "c")
    for name, other in {
        "korean": "우리는 강둑에 앉아 흐르는 물을 바라보았다",
        "a name": "He lives in 北京市朝阳区建国门",
    }.items():
        (tmp_path / "t.txt").write_text("word " * 60 + other if name == "a name" else other)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Corpus.build([tmp_path / "t.txt"], tmp_path / name)


def test_a_function_that_is_not_saved_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("the river runs\n" * 9)
    corpus = Corpus.build([tmp_path / "t.txt"], tmp_path / "c", tokenizer=str.split)
    HMM(2, n_blocks=1, n_iter=1, random_state=0).fit(corpus).save(tmp_path / "m")
    assert "split by the function" in run("surprise", tmp_path / "m", tmp_path / "t.txt").stderr
    assert run("surprise", tmp_path / "m", tmp_path / "t.txt", "--tokenizer", "spaces").stderr == ""
