"""The one rule for directories: the same recipe is reused, an unfinished one continued, another refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from undertow import Corpus, LagCounts
from undertow.errors import InputError
from undertow.recipe import Recipe, Target, check_target, differences, name_apart, read_recipe
from undertow.text.corpus_build import CORPUS, corpus_recipe


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("the river runs . the bank lends .\n" * 20)
    return path


def stamp(path: Path) -> int:
    return (path / "manifest.json").stat().st_mtime_ns


def test_the_same_corpus_is_reused_and_said_so(text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Corpus.build([text], tmp_path / "c")
    before = stamp(tmp_path / "c")
    with caplog.at_level(logging.INFO, "undertow"):
        again, report = Corpus.build_with_report([text], tmp_path / "c", n_jobs=2, memory=1 << 30)
    assert report.existing and report.reading.files == 1 and report.reading.bytes == text.stat().st_size
    assert stamp(tmp_path / "c") == before and again.n_tokens == first.n_tokens
    (line,) = caplog.messages
    assert line.startswith(str(tmp_path / "c")) and line.endswith("reused.")


def test_a_copy_of_the_text_in_another_directory_is_the_same_text(text: Path, tmp_path: Path) -> None:
    Corpus.build([text], tmp_path / "c")
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "a.txt").write_bytes(text.read_bytes())
    assert Corpus.build_with_report([tmp_path / "moved" / "a.txt"], tmp_path / "c")[1].existing


def test_another_corpus_is_refused_with_both_values(text: Path, tmp_path: Path) -> None:
    Corpus.build([text], tmp_path / "c")
    (tmp_path / "b.txt").write_text("other words\n")
    for inputs, options, reasons in [
        ([text], {"vocab_size": 5, "min_count": 2}, ["vocab_size was 50000, now 5", "min_count was 1, now 2"]),
        ([text], {"tokenizer": "spaces"}, ["tokenizer was words, now spaces"]),
        ([text, tmp_path / "b.txt"], {}, ["from a.txt, now a.txt, b.txt"]),
    ]:
        with pytest.raises(InputError) as e:
            Corpus.build(inputs, tmp_path / "c", **options)
        for reason in [*reasons, "overwrite=True", "--overwrite"]:
            assert reason in str(e.value)
    text.write_text("the text of tomorrow\n")
    with pytest.raises(InputError, match=r"a\.txt has changed"):
        Corpus.build([text], tmp_path / "c")


def test_a_function_is_never_taken_for_the_same_tokenizer(text: Path, tmp_path: Path) -> None:
    Corpus.build([text], tmp_path / "c", tokenizer=str.split)
    with pytest.raises(InputError, match=r"exists already.*cannot be compared"):
        Corpus.build([text], tmp_path / "c", tokenizer=str.split)


def test_a_damaged_corpus_is_not_reused(text: Path, tmp_path: Path) -> None:
    Corpus.build([text], tmp_path / "c")
    (tmp_path / "c" / "tokens.bin").write_bytes(b"\1" * (tmp_path / "c" / "tokens.bin").stat().st_size)
    with pytest.raises(ValueError, match="hash"):
        Corpus.build([text], tmp_path / "c")


def test_counts_are_reused_for_the_same_corpus_and_lags(text: Path, tmp_path: Path) -> None:
    corpus = Corpus.build([text], tmp_path / "c")
    LagCounts.from_corpus(corpus, lags=2, out=tmp_path / "n")
    before = stamp(tmp_path / "n")
    assert LagCounts.from_corpus(corpus, lags=2, out=tmp_path / "n").lags == 2
    assert stamp(tmp_path / "n") == before
    with pytest.raises(InputError, match=r"lags was 2, now 3.*overwrite=True"):
        LagCounts.from_corpus(corpus, lags=3, out=tmp_path / "n")
    other = Corpus.from_sentences([["quite", "other", "words"]] * 3)
    with pytest.raises(InputError, match="the corpus has changed"):
        LagCounts.from_corpus(other, lags=2, out=tmp_path / "n")
    counts = LagCounts.open(tmp_path / "n")
    LagCounts.merge([counts, counts], tmp_path / "sum")
    before = stamp(tmp_path / "sum")
    LagCounts.merge([counts, counts], tmp_path / "sum")
    assert stamp(tmp_path / "sum") == before
    with pytest.raises(InputError, match="made differently"):
        LagCounts.merge([counts], tmp_path / "sum")


def test_what_is_needed_on_the_way_is_named_apart(text: Path, tmp_path: Path) -> None:
    place = tmp_path / "news.corpus"
    wanted = corpus_recipe([text])
    assert name_apart(place, CORPUS, wanted) == place
    Corpus.build([text], place)
    assert name_apart(place, CORPUS, wanted) == place
    other = corpus_recipe([text], vocab_size=7)
    apart = name_apart(place, CORPUS, other)
    assert apart.name.startswith("news-") and apart.suffix == ".corpus"
    assert apart == name_apart(place, CORPUS, other)  # so that the same command finds it again
    thesis = tmp_path / "thesis.corpus"
    thesis.write_text("years of work")
    assert name_apart(thesis, CORPUS, wanted) != thesis


def test_differences_are_few_and_short() -> None:
    a = Recipe([["a", "1"]], {f"option {i}": i for i in range(9)})
    b = Recipe([["a", "1"]], {f"option {i}": i + 1 for i in range(9)})
    assert differences(a, a) == [] and differences(a, a._replace(finished=False)) == []
    assert differences(a, b)[-1] == "and 5 more" and differences(a, b)[0] == "option 0 was 0, now 1"
    assert differences(Recipe([["-", None]], {}), Recipe([["-", None]], {})) == ["- cannot be compared"]


@pytest.mark.parametrize("content", ["[]", "{}", '{"inputs": 3, "options": {}}', "not json"])
def test_a_recipe_that_nobody_wrote_is_none(content: str, text: Path, tmp_path: Path) -> None:
    Corpus.build([text], tmp_path / "c")
    (tmp_path / "c" / "recipe.json").write_text(content)
    assert read_recipe(tmp_path / "c") is None
    with pytest.raises(InputError, match="exists already"):
        Corpus.build([text], tmp_path / "c")
    assert check_target(tmp_path / "c", CORPUS, corpus_recipe([text]), overwrite=True) is Target.MAKE
