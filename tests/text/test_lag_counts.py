from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oracles.naive_pairs import dense, naive_pairs
from sealing import edit_sealed, reseal
from sentences import is_one_sentence
from undertow import LDS, Corpus, LagCounts
from undertow.atomic import exclusive_lock
from undertow.engine import DaskCluster, Processes, Serial, Threads
from undertow.errors import BusyError, FormatError, InputError
from undertow.tensor_file import write_tensors
from undertow.text import counting
from undertow.text.count_shards import Rows, RowsFile, write_rows
from undertow.text.verify import verify_counts

WORDS = "abcdefgh"
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=10), min_size=1, max_size=8)


def text(n_sentences: int, seed: int = 0, n_words: int = 60) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[f"w{int(x)}" for x in rng.zipf(1.5, rng.integers(1, 30)) % n_words] for _ in range(n_sentences)]


def directory_bytes(path: Path) -> dict[str, bytes]:
    """All files but the recipe, which says what the counts were made from."""
    return {p.name: p.read_bytes() for p in sorted(path.iterdir()) if p.name != "recipe.json"}


def same(a: LagCounts, b: LagCounts) -> bool:
    return a.lags == b.lags and all(
        np.array_equal(x, y)
        for k in range(1, a.lags + 1)
        for x, y in zip(
            (a.matrix(k).indptr, a.matrix(k).indices, a.matrix(k).data),
            (b.matrix(k).indptr, b.matrix(k).indices, b.matrix(k).data),
            strict=True,
        )
    )


@pytest.fixture
def small_blocks(monkeypatch):
    """So small that a little text has many blocks, runs and merge steps."""
    monkeypatch.setattr(counting, "BLOCK_ENTRIES", 200)
    monkeypatch.setattr(counting, "MERGE_ENTRIES", 50)
    monkeypatch.setattr(counting, "SMALLEST_RUN", 64)


@pytest.fixture
def corpus_dir(tmp_path: Path) -> Path:
    (tmp_path / "t.txt").write_text("\n".join(" ".join(s) for s in text(200)))
    Corpus.build([tmp_path / "t.txt"], tmp_path / "c", tokenizer="spaces")
    return tmp_path / "c"


@given(SENTENCES, st.integers(1, 5), st.booleans())
def test_counts_equal_the_definition(sentences: list[list[str]], lags: int, across: bool) -> None:
    corpus = Corpus.from_sentences(sentences)
    counts = LagCounts.from_corpus(corpus, lags=lags, across=across)
    truth = naive_pairs(corpus.sentences(), lags, across=across)
    for k in range(1, lags + 1):
        m = counts.matrix(k)
        assert m.dtype == np.int64 and m.has_sorted_indices
        assert_array_equal(m.toarray(), dense(truth[k - 1], len(corpus.vocabulary)))
        assert counts.n_pairs(k) == truth[k - 1].total() and counts.nnz(k) == len(truth[k - 1])


def test_the_rule_of_the_text_goes_along(corpus_dir: Path, tmp_path: Path) -> None:
    counts = LagCounts.from_corpus(Corpus.open(corpus_dir), lags=1, out=tmp_path / "n")
    assert counts.tokenizer and counts.tokenizer["rule"] == "spaces"
    assert (counts + counts).tokenizer == counts.tokenizer
    edit_sealed(tmp_path / "n" / "manifest.json", lambda c: c.update(tokenizer=None))
    assert LagCounts.open(tmp_path / "n").tokenizer is None
    other = LagCounts.from_corpus(Corpus.from_sentences([["a"]], vocabulary=counts.vocabulary), lags=1)
    assert other.tokenizer is None and (counts + other).tokenizer is None


def test_row_is_the_later_word() -> None:
    corpus = Corpus.from_sentences([["a", "b"]])
    m = LagCounts.from_corpus(corpus, lags=1).matrix(1)
    assert m[corpus.vocabulary.id("b"), corpus.vocabulary.id("a")] == 1 and m.sum() == 1


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(0, 1000), st.booleans(), st.integers(1, 4), st.integers(5, 400))
def test_blocks_runs_and_lag_groups_change_nothing(
    tmp_path_factory, lags: int, seed: int, across: bool, at_once: int, run: int
) -> None:
    corpus = Corpus.from_sentences(text(12, seed))
    truth = naive_pairs(corpus.sentences(), lags, across=across)
    directory = tmp_path_factory.mktemp("work")
    cut = counting.Plan(run, min(at_once, lags), 1)
    names = counting.count_to_files(corpus, lags, across, directory, Serial(), cut, lambda _: None)
    assert sorted(os.listdir(directory)) == sorted(itertools.chain(*names))  # spills are gone
    edges = counting.row_edges(corpus.vocabulary.counts)
    blocks = [[RowsFile(directory / n).map() for n in lag] for lag in names]
    counts = LagCounts(corpus.vocabulary, blocks, edges, across=across)
    for k in range(1, lags + 1):
        assert_array_equal(counts.matrix(k).toarray(), dense(truth[k - 1], len(corpus.vocabulary)))


@settings(max_examples=40)
@given(SENTENCES, SENTENCES, st.integers(1, 4))
def test_addition_is_counting_both_texts(first: list[list[str]], second: list[list[str]], lags: int) -> None:
    whole = Corpus.from_sentences(first + second)
    a, b = (Corpus.from_sentences(s, vocabulary=whole.vocabulary) for s in (first, second))
    counted = LagCounts.from_corpus(whole, lags=lags)
    added = LagCounts.from_corpus(a, lags=lags) + LagCounts.from_corpus(b, lags=lags)
    assert same(added, counted) and added.n_tokens == counted.n_tokens
    assert added.vocabulary.counts.tolist() == counted.vocabulary.counts.tolist()


@pytest.mark.usefixtures("small_blocks")
def test_sum_merge_and_save_agree_to_the_byte(tmp_path: Path) -> None:
    whole = Corpus.from_sentences(text(90))
    parts = [
        LagCounts.from_corpus(Corpus.from_sentences(text(90)[i : i + 30], vocabulary=whole.vocabulary), lags=3)
        for i in (0, 30, 60)
    ]
    LagCounts.from_corpus(whole, lags=3).save(tmp_path / "whole")
    sum(parts).save(tmp_path / "sum")  # type: ignore[union-attr]
    LagCounts.merge(parts, tmp_path / "merged")
    LagCounts.from_corpus(whole, lags=3, out=tmp_path / "out")
    expected = directory_bytes(tmp_path / "whole")
    assert len(expected) > 10
    for name in ("sum", "merged", "out"):
        assert directory_bytes(tmp_path / name) == expected
    assert same(LagCounts.open(tmp_path / "whole"), LagCounts.from_corpus(whole, lags=3))
    verify_counts(tmp_path / "whole")


def test_counts_beyond_four_bytes(tmp_path: Path) -> None:
    big = 2**33
    rows = Rows(np.array([0, 1, 2]), np.array([0, 1], dtype=np.uint32), np.array([big, 1]))
    vocabulary = Corpus.from_sentences([["a"]]).vocabulary.with_counts([big, big])
    counts = LagCounts(vocabulary, [[rows]], [0, 2], across=False)
    twice = counts + counts
    assert twice.matrix(1)[0, 0] == 2 * big and twice.n_pairs(1) == 2 * big + 2
    twice.save(tmp_path / "c")
    assert LagCounts.open(tmp_path / "c").matrix(1)[0, 0] == 2 * big


def test_adding_crosses_into_eight_bytes() -> None:
    rows = Rows(np.array([0, 0, 1]), np.array([1], dtype=np.uint32), np.array([2**32 - 1], dtype=np.uint32))
    counts = LagCounts(Corpus.from_sentences([["a"]]).vocabulary, [[rows]], [0, 2], across=False)
    assert (counts + counts).matrix(1)[1, 1] == 2**33 - 2


# --- engines ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    with DaskCluster(n_workers=2) as engine:
        yield engine


@pytest.mark.parametrize("place", ["threads", "processes", "dask"])
@pytest.mark.parametrize("memory", [None, 1 << 34])
def test_every_engine_writes_the_same_bytes(
    corpus_dir: Path, tmp_path: Path, place: str, memory, cluster, monkeypatch
) -> None:
    monkeypatch.setattr(counting, "BLOCK_ENTRIES", 500)  # in the parent: it cuts the work
    corpus = Corpus.open(corpus_dir)
    LagCounts.from_corpus(corpus, lags=4, out=tmp_path / "serial")
    engine = cluster if place == "dask" else Threads(3) if place == "threads" else Processes(2)
    try:
        LagCounts.from_corpus(corpus, lags=4, out=tmp_path / place, engine=engine, memory=memory)
        in_memory = LagCounts.from_corpus(corpus, lags=4, engine=engine)
    finally:
        if place == "processes":
            engine.close()
    assert directory_bytes(tmp_path / place) == directory_bytes(tmp_path / "serial")
    assert len(directory_bytes(tmp_path / "serial")) > 4 * 2 + 2
    assert same(in_memory, LagCounts.open(tmp_path / "serial"))


def deadly_count(shard: counting.CountShard) -> list[Rows]:
    """Kills its worker the first time it meets the second block."""
    assert shard.files
    marker = Path(shard.files[0]).parents[2] / "killed-once"
    if shard.row_start > 0 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return REAL_COUNT(shard)


REAL_COUNT = counting.count_shard


@pytest.mark.parametrize("place", ["processes", "dask"])
def test_a_killed_worker_changes_nothing(corpus_dir: Path, tmp_path: Path, place: str, cluster, monkeypatch) -> None:
    monkeypatch.setattr(counting, "BLOCK_ENTRIES", 500)
    corpus = Corpus.open(corpus_dir)
    LagCounts.from_corpus(corpus, lags=4, out=tmp_path / "serial")
    monkeypatch.setattr(counting, "count_shard", deadly_count)
    engine = cluster if place == "dask" else Processes(2)
    try:
        LagCounts.from_corpus(corpus, lags=4, out=tmp_path / "killed", engine=engine)
    finally:
        if place == "processes":
            engine.close()
    assert (tmp_path / "killed-once").exists()
    assert directory_bytes(tmp_path / "killed") == directory_bytes(tmp_path / "serial")


# --- memory and kills ------------------------------------------------------------------------------------


def test_the_plan_takes_what_fits(corpus_dir: Path) -> None:
    corpus = Corpus.open(corpus_dir)
    edges = counting.row_edges(corpus.vocabulary.counts)
    base = counting.resident_bytes()
    roomy = counting.plan(corpus, 7, edges, Threads(2), base + (1 << 30))
    assert roomy == counting.Plan(corpus.n_tokens, 7, 2)
    assert counting.plan(corpus, 7, edges, Threads(2), None) == roomy
    with pytest.raises(InputError, match="needs at least") as e:
        counting.plan(corpus, 7, edges, Serial(), 1 << 20)
    assert is_one_sentence(str(e.value))


@pytest.mark.usefixtures("small_blocks")
def test_little_memory_means_shorter_runs_and_the_same_bytes(corpus_dir: Path, tmp_path: Path, monkeypatch) -> None:
    corpus = Corpus.open(corpus_dir)
    LagCounts.from_corpus(corpus, lags=5, out=tmp_path / "roomy")
    monkeypatch.setattr(counting, "resident_bytes", lambda: 0)
    edges = counting.row_edges(corpus.vocabulary.counts)
    for memory in range(2_000, 60_000, 1_000):
        try:
            cut = counting.plan(corpus, 5, edges, Serial(), memory)
        except InputError:
            continue
        break
    assert cut.run < corpus.n_tokens and cut.at_once < 5
    LagCounts.from_corpus(corpus, lags=5, out=tmp_path / "tight", memory=memory)
    assert directory_bytes(tmp_path / "tight") == directory_bytes(tmp_path / "roomy")


KILLED = """
import os, signal, sys
import undertow.text.counting as counting
counting.BLOCK_ENTRIES = 200
from undertow import Corpus, LagCounts
name, nth = sys.argv[3], int(sys.argv[4])
real, calls = getattr(counting, name), 0
def deadly(shard):
    global calls
    calls += 1
    if calls == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(shard)
setattr(counting, name, deadly)
counting.plan = lambda *a: counting.Plan(int(sys.argv[5]), 2, 1)
LagCounts.from_corpus(Corpus.open(sys.argv[1]), lags=4, out=sys.argv[2])
"""


@pytest.mark.parametrize(
    ("where", "nth", "run"), [("count_shard", 4, 10**9), ("count_shard", 7, 900), ("merge_shard", 5, 900)]
)
def test_a_killed_count_goes_on(corpus_dir: Path, tmp_path: Path, where: str, nth: int, run: int, monkeypatch) -> None:
    arguments = [sys.executable, "-c", KILLED, corpus_dir, tmp_path / "n", where, str(nth), str(run)]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "n").exists()
    (work,) = (tmp_path / "n.partial").glob("work-*")
    kept = {p: p.stat().st_mtime_ns for p in work.glob("*.safetensors")}
    assert kept
    monkeypatch.setattr(counting, "BLOCK_ENTRIES", 200)
    monkeypatch.setattr(counting, "plan", lambda *a: counting.Plan(run, 2, 1))
    calls = []
    monkeypatch.setattr(counting, "count_shard", lambda s: calls.append(s) or REAL_COUNT(s))
    corpus = Corpus.open(corpus_dir)
    LagCounts.from_corpus(corpus, lags=4, out=tmp_path / "n")
    n_shards = (len(counting.row_edges(corpus.vocabulary.counts)) - 1) * -(-corpus.n_tokens // run)
    assert len(calls) == (n_shards - nth + 1 if where == "count_shard" else 0)
    monkeypatch.undo()
    monkeypatch.setattr(counting, "BLOCK_ENTRIES", 200)
    LagCounts.from_corpus(corpus, lags=4, out=tmp_path / "whole")
    assert directory_bytes(tmp_path / "n") == directory_bytes(tmp_path / "whole")
    assert not (tmp_path / "n.partial").exists()


def test_leftovers_of_another_corpus_are_not_taken_over(corpus_dir: Path, tmp_path: Path, monkeypatch) -> None:
    subprocess.run(
        [sys.executable, "-c", KILLED, corpus_dir, tmp_path / "n", "count_shard", "4", "1000000"], check=False
    )
    monkeypatch.setattr(counting, "BLOCK_ENTRIES", 200)
    other = Corpus.from_sentences(text(50, seed=7))
    assert same(LagCounts.from_corpus(other, lags=4, out=tmp_path / "n"), LagCounts.from_corpus(other, lags=4))


# --- bad input -------------------------------------------------------------------------------------------


def test_refusals(tmp_path: Path) -> None:
    corpus = Corpus.from_sentences([["a", "b", "c"]])
    counts = LagCounts.from_corpus(corpus, lags=2)
    other = LagCounts.from_corpus(Corpus.from_sentences([["x"]]), lags=2)
    longer = LagCounts.from_corpus(corpus, lags=3)
    across = LagCounts.from_corpus(corpus, lags=2, across=True)
    counts.save(tmp_path / "there")
    attempts = [
        lambda: LagCounts.from_corpus([["a"]]),  # type: ignore[arg-type]
        lambda: LagCounts.from_corpus(corpus, lags=0),
        lambda: LagCounts.from_corpus(corpus, lags=256),
        lambda: LagCounts.from_corpus(corpus, n_jobs=0),
        lambda: LagCounts.from_corpus(corpus, memory=1 << 30),
        lambda: counts.matrix(0),
        lambda: counts.matrix(3),
        lambda: counts + other,
        lambda: counts + longer,
        lambda: counts + across,
        lambda: counts.save(tmp_path / "there"),
        lambda: LagCounts.from_corpus(corpus, out=tmp_path / "there"),
        lambda: LagCounts.merge([], tmp_path / "none"),
    ]
    for attempt in attempts:
        with pytest.raises(InputError) as e:
            attempt()
        assert is_one_sentence(str(e.value))
    with pytest.raises(TypeError):
        counts + 3  # type: ignore[operator]


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    good = Corpus.from_sentences([["a", "b"]])
    bad = Corpus(np.array([1, 9], dtype=np.uint32), good.offsets, good.vocabulary)
    with pytest.raises(InputError, match="outside the vocabulary") as e:
        LagCounts.from_corpus(bad)
    assert is_one_sentence(str(e.value))


def test_lags_longer_than_every_sentence_give_empty_matrices() -> None:
    counts = LagCounts.from_corpus(Corpus.from_sentences([["a", "b"], ["c"]]), lags=200)
    assert [counts.nnz(k) for k in (1, 2, 200)] == [1, 0, 0] and counts.matrix(200).shape == (4, 4)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    corpus = Corpus.from_sentences([["a", "b"]])
    with exclusive_lock(tmp_path / "n.partial", "counting"), pytest.raises(BusyError):
        LagCounts.from_corpus(corpus, out=tmp_path / "n")


def damage(directory: Path, how: str) -> None:
    manifest = directory / "manifest.json"
    content = json.loads(manifest.read_text())
    shard = directory / "lag001-rows00000.safetensors"
    if how == "no manifest":
        manifest.unlink()
    elif how == "flipped byte":
        raw = bytearray(shard.read_bytes())
        raw[-1] ^= 1
        shard.write_bytes(raw)
    elif how == "cut shard":
        shard.write_bytes(shard.read_bytes()[:-4])
    elif how == "no shard":
        shard.unlink()
    elif how == "edges":
        edit_sealed(manifest, lambda c: c.update(row_edges=[0, 1]))
    elif how == "edges of text":
        edit_sealed(manifest, lambda c: c.update(row_edges=["0"]))
    elif how == "more lags":
        edit_sealed(manifest, lambda c: c.update(n_lags=9))
    elif how == "no edges":
        edit_sealed(manifest, lambda c: c.update(row_edges=[]))
    elif how == "a corpus":
        manifest.write_text(json.dumps({**content, "format": "undertow corpus"}))
    elif how == "unknown key":
        edit_sealed(manifest, lambda c: c.update(surprise=1))
    elif how == "no key":
        edit_sealed(manifest, lambda c: c.pop("tokenizer"))
    elif how == "no rule":
        edit_sealed(manifest, lambda c: c.update(tokenizer={"rule": "words"}))
    elif how == "unsealed change":
        manifest.write_text(json.dumps({**content, "across": True}))
    elif how == "nnz":
        edit_sealed(manifest, lambda c: c["nnz"].append(c["nnz"].pop() + 1))


@pytest.mark.parametrize(
    "how",
    [
        "no manifest",
        "flipped byte",
        "cut shard",
        "no shard",
        "edges",
        "edges of text",
        "more lags",
        "no edges",
        "a corpus",
        "unknown key",
        "no key",
        "no rule",
        "unsealed change",
        "nnz",
    ],
)
def test_damaged_directories_are_refused(tmp_path: Path, how: str) -> None:
    LagCounts.from_corpus(Corpus.from_sentences(text(10)), lags=2, out=tmp_path / "c")
    damage(tmp_path / "c", how)
    with pytest.raises(FormatError) as e:
        LagCounts.open(tmp_path / "c")
    assert is_one_sentence(str(e.value))


def spoilt_rows(path: Path, how: str) -> None:
    """Write over a file of rows, keeping its size."""
    file = RowsFile(path)
    indptr, (indices, data) = file.indptr(), file.piece(0, file.nnz)
    if how == "columns":
        indices[3] = 4_000_000_000
    elif how == "last column":
        indices[-1] = file.n_rows
    elif how == "order":
        indices[:2] = indices[1], indices[0]
    elif how == "same column":
        indices[1] = indices[0]
    elif how == "zero":
        data[2] = 0
    elif how == "more than there are":
        data[2] = 10**6
    elif how == "bounds beyond":
        indptr[3] = 2**40
    elif how == "bounds backwards":
        indptr[3] = indptr[2] - 1
    elif how == "bounds begin late":
        indptr[0] = 1
    size = path.stat().st_size
    write_tensors(path, {"indptr": indptr, "indices": indices, "data": data})
    assert path.stat().st_size == size


@pytest.mark.parametrize(
    "how", ["columns", "last column", "order", "same column", "zero", "more than there are", "bounds beyond",
            "bounds backwards", "bounds begin late"],
)  # fmt: skip
def test_rows_that_lead_out_of_the_matrix_reach_no_compiled_loop(tmp_path: Path, how: str) -> None:
    corpus = Corpus.from_sentences(text(40))
    LagCounts.from_corpus(corpus, lags=3, out=tmp_path / "c")
    spoilt_rows(tmp_path / "c" / "lag002-rows00000.safetensors", how)
    reseal(tmp_path / "c" / "manifest.json")

    def opened() -> LagCounts:
        return LagCounts.open(tmp_path / "c", verify=False)

    uses: list[Callable[[], object]] = [
        lambda: opened().matrix(2),
        lambda: opened().n_pairs(2),
        lambda: opened() + opened(),
        lambda: LagCounts.merge([opened(), opened()], tmp_path / "sum"),
        lambda: LDS(2, lags=3, ssid_lags=2).fit(opened()),
        lambda: verify_counts(tmp_path / "c"),
    ]
    for use in uses:
        with pytest.raises(FormatError, match="count again") as e:
            use()
        assert is_one_sentence(str(e.value)) and str(tmp_path / "c") in str(e.value)


def test_a_spilled_run_with_foreign_columns_is_not_added(tmp_path: Path) -> None:
    rows = Rows(np.array([0, 1]), np.array([7], dtype=np.uint32), np.array([1], dtype=np.uint32))
    for name in ("a.safetensors", "b.safetensors"):
        write_rows(tmp_path / name, rows)
    with pytest.raises(FormatError, match="outside the vocabulary"):
        counting.add_rows([RowsFile(tmp_path / "a.safetensors"), RowsFile(tmp_path / "b.safetensors")], 7)


@pytest.mark.parametrize("data", [b"", b"\x02\0\0\0\0\0\0\0[]", b"x" * 64, b"\xff" * 24, b"\x02\0\0\0\0\0\0\0{}"])
def test_a_file_that_is_not_safetensors_is_no_shard(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(FormatError, match="count again") as e:
        RowsFile(tmp_path / "x.safetensors")
    assert is_one_sentence(str(e.value))


GOOD_SHARD = {"indptr": np.array([0, 1, 2]), "indices": np.zeros(2, np.uint32), "data": np.ones(2, np.uint32)}


@pytest.mark.parametrize(
    "change",
    [
        {"more": np.zeros(1)},
        {"indptr": np.array([0, 1, 2], np.int32)},
        {"indices": np.zeros(2, np.int64)},
        {"data": np.ones(2)},
        {"data": np.ones(3, np.uint32)},
        {"indptr": np.zeros((1, 3), np.int64)},
        {"indptr": np.zeros(0, np.int64)},
        {"indices": np.zeros((2, 1), np.uint32), "data": np.ones((2, 1), np.uint32)},
    ],
)
def test_other_tensors_are_no_shard(tmp_path: Path, change: dict[str, np.ndarray]) -> None:
    write_tensors(tmp_path / "x.safetensors", GOOD_SHARD)
    assert RowsFile(tmp_path / "x.safetensors").map().data.tolist() == [1, 1]
    write_tensors(tmp_path / "x.safetensors", GOOD_SHARD | change)
    with pytest.raises(FormatError, match="count again") as e:
        RowsFile(tmp_path / "x.safetensors")
    assert is_one_sentence(str(e.value))


def test_counts_of_format_1_are_refused_with_the_cure_and_may_be_overwritten(corpus_dir: Path, tmp_path: Path) -> None:
    corpus = Corpus.open(corpus_dir)
    LagCounts.from_corpus(corpus, lags=1, out=tmp_path / "n")
    shard = tmp_path / "n" / "lag001-rows00000.safetensors"
    shard.rename(shard.with_suffix(".csr"))
    edit_sealed(
        tmp_path / "n" / "manifest.json",
        lambda c: (c.update(version=1), c["files"].update({"lag001-rows00000.csr": c["files"].pop(shard.name)})),
    )
    with pytest.raises(FormatError, match="version 1, this undertow reads version 2: write it again") as e:
        LagCounts.open(tmp_path / "n")
    assert is_one_sentence(str(e.value))
    assert LagCounts.from_corpus(corpus, lags=1, out=tmp_path / "n", overwrite=True).nnz(1)


def test_a_shard_may_be_read_by_whoever_may_read_new_files(corpus_dir: Path, tmp_path: Path) -> None:
    LagCounts.from_corpus(Corpus.open(corpus_dir), lags=1, out=tmp_path / "n")
    modes = {p.stat().st_mode & 0o777 for p in (tmp_path / "n").iterdir()}
    (tmp_path / "new").touch()
    assert modes == {(tmp_path / "new").stat().st_mode & 0o777}


def test_verify_counts_sees_columns_out_of_order(tmp_path: Path) -> None:
    rows = Rows(np.array([0, 0, 2]), np.array([1, 0], dtype=np.uint32), np.array([1, 1], dtype=np.uint32))
    LagCounts(Corpus.from_sentences([["a"] * 9]).vocabulary, [[rows]], [0, 2], across=False).save(tmp_path / "c")
    with pytest.raises(FormatError, match="out of order"):
        verify_counts(tmp_path / "c")
    write_rows(tmp_path / "again.safetensors", rows)
    assert RowsFile(tmp_path / "again.safetensors").map().indices.tolist() == [1, 0]


def test_the_first_200k_tokens_of_elife_equal_a_naive_count(data_dir: Path, tmp_path: Path) -> None:
    import lzma

    with lzma.open(data_dir / "text" / "elife.txt.xz") as f:
        (tmp_path / "elife.txt").write_bytes(f.read(1_200_000).rsplit(b"\n", 1)[0])
    corpus = Corpus.build([tmp_path / "elife.txt"], tmp_path / "c")
    assert corpus.n_tokens > 200_000
    n = int(np.searchsorted(corpus.offsets, 200_000))
    sentences = list(itertools.islice(corpus.token_lists(), n))
    small = Corpus.from_sentences(sentences, vocabulary=corpus.vocabulary)
    counts = LagCounts.from_corpus(small, lags=7, n_jobs=2)
    truth = naive_pairs(small.sentences(), 7)
    for k in range(1, 8):
        m = counts.matrix(k).tocoo()
        assert dict(zip(zip(m.row.tolist(), m.col.tolist(), strict=True), m.data.tolist(), strict=True)) == truth[k - 1]
