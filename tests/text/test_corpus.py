from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sealing import edit_sealed, reseal
from sentences import is_one_sentence
from undertow import HMM, Corpus, LagCounts, Tokenizer, Vocabulary
from undertow.atomic import exclusive_lock
from undertow.errors import BusyError, FormatError, InputError, UndertowError
from undertow.text import corpus_build
from undertow.text.reading import ReadingOptions
from undertow.text.verify import verify_corpus
from undertow.text.word_counts import WordCounts
from waiting import HANGS, wait_for

TEXT = "The cat sat on the mat. The dog didn't.\nA second line with 3.5 numbers!\n\nThe end.\n"
SMALL = ReadingOptions(chunk_bytes=64)


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT * 40)
    return path


def directory_bytes(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(path.iterdir())}


def test_from_sentences() -> None:
    c = Corpus.from_sentences([["a", "b", "a"], [], ["c"]])
    assert (c.n_tokens, c.n_sentences, len(c.vocabulary)) == (4, 2, 4)
    assert [s.tolist() for s in c.sentences()] == [[1, 2, 1], [3]]
    assert list(c.token_lists()) == [["a", "b", "a"], ["c"]]
    assert c.vocabulary.counts.tolist() == [0, 2, 1, 1]


def test_from_sentences_takes_a_generator_and_a_limit() -> None:
    c = Corpus.from_sentences((s.split() for s in ["a a b", "a c"]), vocab_size=2)
    assert c.vocabulary.words == ("<unk>", "a") and c.ids.tolist() == [1, 1, 0, 1, 0]
    assert c.vocabulary.counts.tolist() == [2, 3]


def test_from_sentences_with_boundary_and_with_a_given_vocabulary() -> None:
    c = Corpus.from_sentences([["a", "b"], ["b"]], boundary="</s>")
    assert list(c.token_lists()) == [["a", "b", "</s>"], ["b", "</s>"]]
    d = Corpus.from_sentences([["b", "new"]], vocabulary=c.vocabulary)
    assert list(d.token_lists()) == [["b", "<unk>", "</s>"]] and d.vocabulary == c.vocabulary
    assert d.vocabulary.counts.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    "sentences",
    [[], [[]], "text", ["text"], [["a b"]], [[1]], [None], None, 3, [["a", None]], [[["a"]]], [b"x"], [[""]]],
)
def test_bad_sentences_are_refused(sentences: object) -> None:
    with pytest.raises(InputError) as e:
        Corpus.from_sentences(sentences)  # type: ignore[arg-type]
    assert is_one_sentence(str(e.value))


def test_build_gives_what_the_tokenizer_gives(text_file: Path, tmp_path: Path) -> None:
    c = Corpus.build([text_file], tmp_path / "c", vocab_size=None, reading=SMALL)
    assert list(c.token_lists()) == Tokenizer()(TEXT * 40)
    d = Corpus.from_sentences(Tokenizer()(TEXT * 40))
    assert c.vocabulary == d.vocabulary and np.array_equal(c.vocabulary.counts, d.vocabulary.counts)
    assert np.array_equal(c.ids, d.ids) and np.array_equal(c.offsets, d.offsets)
    assert not (tmp_path / "c.partial").exists()
    verify_corpus(tmp_path / "c")


def test_the_bytes_do_not_depend_on_the_number_of_processes(text_file: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("undertow.text.corpus_build.SMALL_INPUT", 0)
    for n in (1, 2, 3):
        Corpus.build([text_file], tmp_path / f"c{n}", vocab_size=12, reading=SMALL, n_jobs=n)
    first = directory_bytes(tmp_path / "c1")
    assert directory_bytes(tmp_path / "c2") == first and directory_bytes(tmp_path / "c3") == first


def test_several_files_and_globs_and_packing(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second file.\n")
    with gzip.open(tmp_path / "a.txt.gz", "wt") as f:
        f.write("first file.\n")
    c = Corpus.build([tmp_path / "*.txt*"], tmp_path / "c")
    assert list(c.token_lists()) == [["first", "file", "."], ["second", "file", "."]]


def test_pretokenized_with_boundary_and_empty_lines(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(" = Title = \n\n a <unk> b \n")
    c = Corpus.build([tmp_path / "t.txt"], tmp_path / "c", tokenizer="spaces", boundary="<eos>", keep_empty=True)
    assert list(c.token_lists()) == [["=", "Title", "=", "<eos>"], ["<eos>"], ["a", "<unk>", "b", "<eos>"]]
    assert c.vocabulary.counts[:2].tolist() == [1, 3]


def test_wikitext_has_the_size_everybody_reports(data_dir: Path, tmp_path: Path) -> None:
    c = Corpus.build(
        [data_dir / "text" / "wikitext2.train.txt.xz"], tmp_path / "c", vocab_size=None, tokenizer="spaces",
        boundary="<eos>", keep_empty=True,
    )  # fmt: skip
    assert (len(c.vocabulary), c.n_tokens) == (33_278, 2_088_628)
    v = Corpus.build(
        [data_dir / "text" / "wikitext2.valid.txt.xz"], tmp_path / "v", vocabulary=c.vocabulary, tokenizer="spaces",
        keep_empty=True,
    )  # fmt: skip
    assert v.n_tokens == 217_646 and v.vocabulary == c.vocabulary


def test_a_conllu_file_keeps_its_own_tokens(tmp_path: Path) -> None:
    row = "{}\t{}\t_\t_\t_\t_\t_\t_\t_\t_\n"
    (tmp_path / "x.conllu").write_text(row.format("1-2", "don't") + row.format(1, "do") + row.format(2, "n't") + "\n")
    c = Corpus.build([tmp_path / "x.conllu"], tmp_path / "c")
    assert list(c.token_lists()) == [["do", "n't"]]


def test_a_callable_tokenizer(text_file: Path, tmp_path: Path) -> None:
    c = Corpus.build([text_file], tmp_path / "c", tokenizer=str.split, vocab_size=None)
    assert list(c.token_lists()) == [line.split() for line in (TEXT * 40).split("\n") if line]


def test_shards_cover_all_sentences_in_order() -> None:
    c = Corpus.from_sentences([["a"] * n for n in (3, 1, 4, 1, 5, 9, 2, 6)])
    for size in (1, 2, 5, 10, 100):
        shards = c.shards(size)
        assert [a for a, _ in shards] == [0, *(b for _, b in shards[:-1])] and shards[-1][1] == c.n_sentences
        assert all(a < b for a, b in shards)
    with pytest.raises(InputError):
        c.shards(0)


BAD_TEXTS = {"empty": "", "blanks": " \n\t\n", "empty_lines": "\n" * 10**6, "nul": "\x00\x00", "separator": "\u2028"}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_text_without_words_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(BAD_TEXTS[name])
    with pytest.raises(InputError, match="no word in") as e:
        Corpus.build([tmp_path / "t.txt"], tmp_path / "c")
    assert is_one_sentence(str(e.value)) and not (tmp_path / "c").exists()
    if name == "empty":
        assert not (tmp_path / "c.partial").exists()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("one", [["one"]]),
        ("\ufeffbom first\n", [["bom", "first"]]),
        ("a\rb\r", [["a"], ["b"]]),
        ("a\x00b\n", [["a", "b"]]),
        ("x\u2028y", [["x", "y"]]),
    ],
)
def test_odd_but_readable_text(text: str, sentences: list[list[str]], tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(text.encode())
    assert list(Corpus.build([tmp_path / "t.txt"], tmp_path / "c", vocab_size=100_000).token_lists()) == sentences


def test_an_existing_corpus_is_kept_unless_told(text_file: Path, tmp_path: Path) -> None:
    Corpus.build([text_file], tmp_path / "c")
    before = directory_bytes(tmp_path / "c")
    with pytest.raises(InputError, match="exists already"):
        Corpus.build([text_file], tmp_path / "c", vocab_size=5)
    assert directory_bytes(tmp_path / "c") == before
    assert len(Corpus.build([text_file], tmp_path / "c", vocab_size=5, overwrite=True).vocabulary) == 5
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_failed_overwrite_leaves_the_old_corpus(text_file: Path, tmp_path: Path) -> None:
    Corpus.build([text_file], tmp_path / "c")
    before = directory_bytes(tmp_path / "c")
    (tmp_path / "bad.txt").write_bytes(b"ok\n\xff\n")
    with pytest.raises(UndertowError):
        Corpus.build([text_file, tmp_path / "bad.txt"], tmp_path / "c", overwrite=True)
    assert directory_bytes(tmp_path / "c") == before


def test_two_builds_into_one_directory(text_file: Path, tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "c.partial", "building a corpus"), pytest.raises(BusyError) as e:
        Corpus.build([text_file], tmp_path / "c")
    assert is_one_sentence(str(e.value))
    assert Corpus.build([text_file], tmp_path / "c").n_tokens  # the lock is gone with its holder


def test_a_partial_directory_of_somebody_else_is_not_touched(text_file: Path, tmp_path: Path) -> None:
    (tmp_path / "c.partial").mkdir()
    (tmp_path / "c.partial" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="did not write"):
        Corpus.build([text_file], tmp_path / "c")
    assert (tmp_path / "c.partial" / "thesis.tex").read_text() == "precious"


KILLED = """
import sys, os, signal
from undertow.text import corpus_build
from undertow.text.reading import ReadingOptions
make = corpus_build.make_part
done = 0
def stop_after_five(job, **options):
    global done
    done += 1
    if done == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return make(job, **options)
corpus_build.make_part = stop_after_five
from pathlib import Path
corpus_build.build_corpus(sys.argv[1], Path(sys.argv[2]), reading=ReadingOptions(chunk_bytes=64))
"""


def test_a_killed_build_goes_on_and_gives_the_same_bytes(text_file: Path, tmp_path: Path) -> None:
    Corpus.build([text_file], tmp_path / "whole", reading=SMALL)
    run = subprocess.run([sys.executable, "-c", KILLED, text_file, tmp_path / "c"], check=False)
    assert run.returncode == -signal.SIGKILL and not (tmp_path / "c").exists()
    _, report = Corpus.build_with_report([text_file], tmp_path / "c", reading=SMALL)
    assert report.reused == 5 and report.parts > 6
    assert directory_bytes(tmp_path / "c") == directory_bytes(tmp_path / "whole")


def test_parts_of_another_text_or_rule_are_not_taken_over(text_file: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, text_file, tmp_path / "c"], check=False)
    _, report = Corpus.build_with_report([text_file], tmp_path / "c", reading=SMALL, tokenizer=Tokenizer(lower=True))
    assert report.reused == 0 and "the" in Corpus.open(tmp_path / "c").vocabulary
    assert "The" not in Corpus.open(tmp_path / "c").vocabulary


def test_a_damaged_part_is_made_again(text_file: Path, tmp_path: Path) -> None:
    Corpus.build([text_file], tmp_path / "whole", reading=SMALL)
    subprocess.run([sys.executable, "-c", KILLED, text_file, tmp_path / "c"], check=False)
    part = sorted((tmp_path / "c.partial").glob("part-*"))[2]
    part.write_bytes(part.read_bytes()[:-40])
    _, report = Corpus.build_with_report([text_file], tmp_path / "c", reading=SMALL)
    assert report.reused == 4
    assert directory_bytes(tmp_path / "c") == directory_bytes(tmp_path / "whole")


def test_a_killed_build_in_processes_leaves_no_children(text_file: Path, tmp_path: Path) -> None:
    import psutil

    script = (
        "import sys\nfrom pathlib import Path\nimport undertow.text.corpus_build as b\nb.SMALL_INPUT = 0\n"
        "from undertow.text.reading import ReadingOptions\n"
        "b.build_corpus('-', Path(sys.argv[1]), n_jobs=2, reading=ReadingOptions(chunk_bytes=4096))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, tmp_path / "c"], stdin=subprocess.PIPE) as process:
        assert process.stdin
        process.stdin.write((TEXT * 8000).encode())
        process.stdin.flush()
        wait_for(lambda: list((tmp_path / "c.partial").glob("part-*")))
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert list((tmp_path / "c.partial").glob("part-*"))
    _, alive = psutil.wait_procs(children, timeout=HANGS)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


# --- memory ----------------------------------------------------------------------------------------------

MEASURED = """
import re, sys
from pathlib import Path
from undertow.text.corpus_build import build_corpus
from undertow.text.counting import resident_bytes
from undertow.text.reading import ReadingOptions
place, text, limited = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "limited"
small = ReadingOptions(chunk_bytes=1 << 19)
(place / "warm.txt").write_text(Path(text).read_text()[:1_000_000])
build_corpus(place / "warm.txt", place / "warm", reading=small, overwrite=True)  # loads and compiles what it takes
memory = resident_bytes() + (32 << 20)
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
build_corpus(text, place / sys.argv[3], reading=small, vocab_size=2000, memory=memory if limited else None)
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
print(peak / memory)
"""


def test_words_are_counted_within_the_memory(tmp_path: Path) -> None:
    """Unique words fill the memory fastest. Without a limit the same build goes beyond it, to the same bytes."""
    letters = str.maketrans("0123456789", "ghijklmnop")
    words = [f"{i * 2654435761 % 2**32:08x}".translate(letters) for i in range(600_000)]
    lines = (" ".join(words[i : i + 20]) + "\n" for i in range(0, len(words), 20))
    (tmp_path / "t.txt").write_text("".join(lines))
    share = {}
    for how in ("limited", "free"):
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, tmp_path, tmp_path / "t.txt", how],
            capture_output=True, check=True, text=True,
        )  # fmt: skip
        share[how] = float(done.stdout)
    assert share["limited"] <= 1.0 < share["free"]
    assert directory_bytes(tmp_path / "limited") == directory_bytes(tmp_path / "free")


def test_words_in_files_are_the_same_counts(tmp_path: Path) -> None:
    texts = [[b"a", b"bb", "ä".encode()], [b"bb", b"c"], [b"a", b"bb", b"zz"]]
    whole, spilled = WordCounts(tmp_path, None), WordCounts(tmp_path, 450)
    for counts in (whole, spilled):
        assert not counts
        for n, words in enumerate(texts, 1):
            counts.add(words, [n] * len(words))
        assert counts
    assert len(list(tmp_path.iterdir())) >= 2
    expected = {"a": 4, "bb": 6, "ä": 1, "c": 2, "zz": 3}
    assert dict(whole.pairs()) == dict(spilled.pairs()) == expected


def test_too_little_memory_is_refused(text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_build, "resident_bytes", lambda: 100 << 20)
    with pytest.raises(InputError, match="needs at least 116 MB here and 115 MB were allowed") as e:
        Corpus.build([text_file], tmp_path / "c", memory=115 << 20)
    assert is_one_sentence(str(e.value))
    monkeypatch.setattr(corpus_build, "VOCABULARY_BYTES", 8 << 20)
    for options, fits in [({"vocab_size": None}, False), ({"vocab_size": 2}, True)]:
        if fits:
            Corpus.build([text_file], tmp_path / "c", memory=120 << 20, **options)
            continue
        with pytest.raises(InputError, match="more than 2 words does not fit into 120 MB") as e:
            Corpus.build([text_file], tmp_path / "c", memory=120 << 20, **options)
        assert is_one_sentence(str(e.value))
    assert not (tmp_path / "c.partial").exists()


@pytest.fixture
def corpus_dir(text_file: Path, tmp_path: Path) -> Path:
    Corpus.build([text_file], tmp_path / "c")
    return tmp_path / "c"


def damage(directory: Path, how: str) -> None:
    manifest = directory / "manifest.json"
    content = json.loads(manifest.read_text())
    if how == "no manifest":
        manifest.unlink()
    elif how == "flipped byte":
        raw = bytearray((directory / "tokens.bin").read_bytes())
        raw[5] ^= 1
        (directory / "tokens.bin").write_bytes(raw)
    elif how == "cut file":
        (directory / "offsets.bin").write_bytes((directory / "offsets.bin").read_bytes()[:-8])
    elif how == "no vocabulary":
        (directory / "vocabulary.txt").unlink()
    elif how == "duplicate key":
        manifest.write_text(manifest.read_text().replace('"n_tokens"', '"n_tokens": 1, "n_tokens"', 1))
    elif how == "not json":
        manifest.write_text("{")
    elif how == "list":
        manifest.write_text("[]")
    elif how == "version":
        manifest.write_text(json.dumps({**content, "version": 99}))
    elif how == "kind":
        manifest.write_text(json.dumps({**content, "format": "undertow counts"}))
    elif how == "size":
        edit_sealed(manifest, lambda c: c.update(n_tokens=c["n_tokens"] + 1))
    elif how == "text for number":
        edit_sealed(manifest, lambda c: c.update(n_tokens="many"))
    elif how == "path":
        edit_sealed(manifest, lambda c: c.update(files={"../x": {"bytes": 1, "sha256": ""}}))
    elif how == "lowes":
        edit_sealed(manifest, lambda c: c["tokenizer"].update(lowes=c["tokenizer"].pop("lower")))
    elif how == "rule of another type":
        edit_sealed(manifest, lambda c: c["tokenizer"].update(lower=1))
    elif how == "newer rule":
        edit_sealed(manifest, lambda c: c["tokenizer"].update(version=3))
    elif how == "unknown key":
        edit_sealed(manifest, lambda c: c.update(surprise=1))
    elif how == "unknown key in a record":
        edit_sealed(manifest, lambda c: c["files"]["tokens.bin"].update(surprise=1))
    elif how == "unknown key in reading":
        edit_sealed(manifest, lambda c: c["reading"].update(surprise=1))
    elif how == "no digest":
        manifest.write_text(json.dumps({k: v for k, v in content.items() if k != "digest"}))
    elif how == "unsealed change":
        manifest.write_text(json.dumps({**content, "text_bytes": 5}))
    elif how == "link":
        shutil.move(directory / "tokens.bin", directory.parent / "elsewhere.bin")
        (directory / "tokens.bin").symlink_to(directory.parent / "elsewhere.bin")
    elif how == "backward offsets":
        offsets = np.fromfile(directory / "offsets.bin", dtype="<i8")
        offsets[2] = offsets[1] - 1
        offsets.tofile(directory / "offsets.bin")
        reseal(manifest)
    elif how == "nan":
        manifest.write_text(manifest.read_text().replace('"n_tokens": ', '"x": NaN, "n_tokens": '))


@pytest.mark.parametrize(
    "how",
    ["no manifest", "flipped byte", "cut file", "no vocabulary", "duplicate key", "not json", "list", "version", "kind",
     "size", "text for number", "path", "nan", "lowes", "rule of another type", "newer rule", "unknown key",
     "unknown key in a record", "unknown key in reading", "no digest", "unsealed change", "link", "backward offsets"],
)  # fmt: skip
def test_damaged_directories_are_refused(corpus_dir: Path, how: str) -> None:
    damage(corpus_dir, how)
    with pytest.raises(FormatError) as e:
        Corpus.open(corpus_dir)
    assert is_one_sentence(str(e.value)) and str(corpus_dir) in str(e.value)


def test_no_directory_and_a_file(tmp_path: Path, text_file: Path) -> None:
    for path in (tmp_path / "nowhere", text_file):
        with pytest.raises(FormatError) as e:
            Corpus.open(path)
        assert is_one_sentence(str(e.value))


def test_verify_finds_what_hashes_cannot(corpus_dir: Path) -> None:
    raw = np.fromfile(corpus_dir / "tokens.bin", dtype="<u4")
    raw[3] = raw[3] % (len(Vocabulary.read(corpus_dir / "vocabulary.txt")) - 1) + 1
    raw[3] = raw[4]
    raw.tofile(corpus_dir / "tokens.bin")
    reseal(corpus_dir / "manifest.json")
    Corpus.open(corpus_dir)  # the hashes were made to fit
    with pytest.raises(FormatError, match="counts in the vocabulary"):
        verify_corpus(corpus_dir)


def test_ids_outside_the_vocabulary_are_refused_before_they_are_indices(corpus_dir: Path) -> None:
    raw = np.fromfile(corpus_dir / "tokens.bin", dtype="<u4")
    raw[3] = 4_000_000_000
    raw.tofile(corpus_dir / "tokens.bin")
    reseal(corpus_dir / "manifest.json")
    corpus = Corpus.open(corpus_dir)  # quick, whatever its size: the ids are looked at when they are first used
    uses: list[Callable[[], object]] = [
        lambda: corpus.ids,
        lambda: list(corpus.sentences()),
        lambda: LagCounts.from_corpus(corpus, lags=1),
        lambda: HMM(2, n_iter=1).fit(corpus),
        lambda: verify_corpus(corpus_dir),
    ]
    for use in uses:
        with pytest.raises(FormatError, match="outside") as e:
            use()
        assert is_one_sentence(str(e.value))


def test_a_corpus_made_by_hand_is_checked_too() -> None:
    good = Corpus.from_sentences([["a", "b"]])
    for offsets in ([0, 3], [1, 2], [0, 2, 1, 2], []):
        with pytest.raises(InputError, match="offsets"):
            Corpus(good.ids, np.array(offsets, dtype=np.int64), good.vocabulary)


@pytest.mark.parametrize(
    "options",
    [
        {"vocabulary": Vocabulary.from_counts({"a": 1}), "min_count": 3},
        {"vocabulary": Vocabulary.from_counts({"a": 1}), "boundary": "</s>"},
        {"keep_empty": True},
        {"tokenizer": 3},
        {"tokenizer": "bpe"},
        {"vocab_size": 1},
        {"n_jobs": 0},
    ],
)
def test_options_that_contradict_each_other(text_file: Path, tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(InputError) as e:
        Corpus.build([text_file], tmp_path / "c", **options)
    assert is_one_sentence(str(e.value))


def test_it_is_a_map_not_a_copy(corpus_dir: Path) -> None:
    c = Corpus.open(corpus_dir)
    assert isinstance(c.ids, np.memmap) and isinstance(next(c.sentences()), np.memmap)
    with pytest.raises(ValueError):
        c.ids[0] = 1
    shutil.rmtree(corpus_dir)
    assert os.path.exists(corpus_dir) is False and c.n_tokens == len(c.ids)
