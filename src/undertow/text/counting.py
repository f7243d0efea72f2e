"""Counting pairs within a memory budget, on any engine, resumable after a kill.

The vocabulary is cut into blocks of rows whose sparse rows cannot exceed `BLOCK_ENTRIES` a lag; where the cuts are
depends on the counts of the words alone. A shard of work is one block of rows over one run of tokens. When one run
holds the whole corpus its rows are final; otherwise each run's rows are spilled and the spills of a block are added.
Counts are integers and every block is made by one worker at a time, so the files do not depend on the engine, the
number of workers, or the memory.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.engine import Engine, Serial, Threads, map_reduce
from undertow.errors import FormatError, InputError
from undertow.files import read_json
from undertow.kernels.words.pair_counts import FIRST, count_rows, positions_by_word, row_room, sum_rows
from undertow.progress import Progress, ProgressFn
from undertow.text.corpus import MANIFEST, OFFSETS, TOKENS, Corpus
from undertow.text.count_shards import Rows, RowsFile, narrow, shard_name, write_rows

MAX_LAGS = 255
BLOCK_ENTRIES = 1 << 21
MERGE_ENTRIES = 1 << 20  # entries of all spills held at once while a block is added up
SMALLEST_RUN = 1 << 16
WORKER_BYTES = 220 << 20  # a fresh interpreter with NumPy, Numba and the compiled loops


class TokenSource(NamedTuple):
    """Where a worker reads the tokens: a corpus directory that it can see too, or the arrays themselves."""

    key: str  # what the tokens are
    directory: str | None
    ids: NDArray[np.uint32] | None
    offsets: NDArray[np.int64] | None

    @classmethod
    def of(cls, corpus: Corpus) -> TokenSource:
        if corpus.path is not None:
            return cls(corpus_key(corpus), str(corpus.path.resolve()), None, None)
        return cls(corpus_key(corpus), None, corpus.ids, corpus.offsets)


class CountShard(NamedTuple):
    """One block of rows over one run of tokens."""

    source: TokenSource
    start: int
    stop: int
    row_start: int
    row_stop: int
    n_words: int
    lags: int
    across: bool
    at_once: int  # lags counted in one go: fewer need less memory and more passes
    files: tuple[str, ...] | None  # one for each lag, or None to hand the rows back


class MergeShard(NamedTuple):
    """The spills of one block at one lag, and the file their sum goes to."""

    spills: tuple[str, ...]
    n_words: int
    file: str


class Plan(NamedTuple):
    """How a count is cut up to fit the memory: tokens in a run, lags at once, workers at once."""

    run: int
    at_once: int
    n_workers: int


def row_edges(word_counts: NDArray[np.int64]) -> list[int]:
    """Cut the rows into blocks of at most BLOCK_ENTRIES possible entries (a row has at most one a column)."""
    bound = np.minimum(word_counts, len(word_counts))
    edges = [0]
    room = 0
    for row, entries in enumerate(bound.tolist()):
        if room + entries > BLOCK_ENTRIES and room:
            edges.append(row)
            room = 0
        room += entries
    edges.append(len(word_counts))
    return edges


def plan(corpus: Corpus, lags: int, edges: list[int], engine: Engine, memory: int | None) -> Plan:
    """The fastest cut that fits: first fewer lags at once, then shorter runs, then fewer workers."""
    n_tokens, n_workers = corpus.n_tokens, engine.n_workers
    longest = min(n_tokens, 2**31)  # positions within a run are kept in 4 bytes
    if memory is None:
        return Plan(longest, lags, n_workers)
    counts = corpus.vocabulary.counts
    n_words = len(counts)
    in_process = isinstance(engine, (Serial, Threads))
    entries = min(BLOCK_ENTRIES + n_words, n_tokens)
    base = resident_bytes()
    groups = sorted({lags, -(-lags // 2), -(-lags // 4), 1}, reverse=True)

    def need(run: int, at_once: int, workers: int) -> int:
        segment = 8 * run + 16 * n_words  # the tokens, and where each word stands
        rows = at_once * (8 * min(entries, run) + 6 * n_words)
        merge = 2 * 16 * MERGE_ENTRIES + 16 * n_words + 12 * BLOCK_ENTRIES if run < n_tokens else 0
        work = max(rows, merge)
        if in_process:
            return base + segment + workers * work
        return base + workers * (WORKER_BYTES + segment + work)

    run = longest
    while True:
        for at_once in groups:
            if need(run, at_once, n_workers) <= memory:
                return Plan(run, at_once, n_workers)
        if run <= SMALLEST_RUN:
            break
        run = max(run // 2, SMALLEST_RUN)
    if n_workers > 1 and in_process:
        return plan(corpus, lags, edges, Serial(), memory)
    least = need(min(SMALLEST_RUN, longest), 1, n_workers)
    raise InputError(
        f"Counting needs at least {-(-least >> 20)} MB here and {memory >> 20} MB were allowed: "
        "allow more memory, use fewer jobs or a smaller vocabulary."
    )


def count_in_memory(corpus: Corpus, lags: int, across: bool, engine: Engine, progress: ProgressFn) -> list[list[Rows]]:
    """The blocks of rows of every lag, held in memory."""
    warm_up()
    edges = row_edges(corpus.vocabulary.counts)
    if corpus.n_tokens > 2**31:
        raise InputError("A corpus of more than 2^31 tokens is counted to a directory: give `out`.")
    source = TokenSource.of(corpus)
    shards = [
        CountShard(source, 0, corpus.n_tokens, a, b, len(corpus.vocabulary), lags, across, lags, None)
        for a, b in itertools.pairwise(edges)
    ]

    def fold(total: list[list[Rows]], blocks: list[Rows]) -> list[list[Rows]]:
        for per_lag, rows in zip(total, blocks, strict=True):
            per_lag.append(rows)
        progress(Progress("count", len(total[0]), len(shards), "block"))
        return total

    empty: list[list[Rows]] = [[] for _ in range(lags)]
    result = map_reduce(count_shard, shards, fold, initial=empty, engine=engine)
    forget_run()
    return result


def count_to_files(
    corpus: Corpus,
    lags: int,
    across: bool,
    directory: Path,
    engine: Engine,
    cut: Plan,
    progress: ProgressFn,
) -> list[list[str]]:
    """Write one file for each lag and block into `directory`, taking over those that are there; returns their names."""
    edges = row_edges(corpus.vocabulary.counts)
    n_words, n_blocks = len(corpus.vocabulary), len(edges) - 1
    source = TokenSource.of(corpus)
    runs = [(a, min(a + cut.run, corpus.n_tokens)) for a in range(0, corpus.n_tokens, cut.run)]
    final = [[shard_name(k, b) for b in range(n_blocks)] for k in range(1, lags + 1)]

    def spill(run: int, k: int, b: int) -> Path:
        name = final[k - 1][b]
        return directory / (name if len(runs) == 1 else f"spill{run:05d}-{name}")

    def count_shards() -> Iterator[CountShard]:
        for r, (start, stop) in enumerate(runs):
            for b in range(n_blocks):
                files = [spill(r, k, b) for k in range(1, lags + 1)]
                if all(_whole(f) or _whole(directory / final[k][b]) for k, f in enumerate(files)):
                    continue
                yield CountShard(
                    source, start, stop, edges[b], edges[b + 1], n_words, lags, across, cut.at_once,
                    tuple(str(f) for f in files),
                )  # fmt: skip

    waiting = list(count_shards())
    total = len(runs) * n_blocks

    def report(done: int, _: object) -> int:
        progress(Progress("count", done + 1, total, "block"))
        return done + 1

    map_reduce(count_shard, waiting, report, initial=total - len(waiting), engine=engine)
    forget_run()
    if len(runs) > 1:
        merges = [
            MergeShard(
                tuple(str(spill(r, k, b)) for r in range(len(runs))),
                n_words,
                str(directory / final[k - 1][b]),
            )
            for b in range(n_blocks)
            for k in range(1, lags + 1)
        ]

        def report_merge(done: int, _: object) -> int:
            progress(Progress("merge", done + 1, len(merges), "block"))
            return done + 1

        map_reduce(merge_shard, merges, report_merge, initial=0, engine=engine)
    return final


def count_shard(shard: CountShard) -> list[Rows]:
    """Count one block over one run; runs in a worker. With `files`, writes them and hands nothing back."""
    tokens, bounds, positions = _run(shard)
    bounds = bounds[shard.row_start : shard.row_stop + 1]
    blocks: list[Rows] = []
    indices, data = _scratch(shard.at_once, row_room(bounds, shard.n_words))
    for low in range(1, shard.lags + 1, shard.at_once):
        high = min(low + shard.at_once, shard.lags + 1)
        indptr = count_rows(tokens, bounds, positions, shard.n_words, low, high, indices, data)
        for i in range(high - low):
            n = indptr[i, -1]
            if shard.files is None:
                blocks.append(Rows(indptr[i].copy(), indices[i, :n].copy(), data[i, :n].copy()))
            else:
                write_rows(Path(shard.files[low - 1 + i]), Rows(indptr[i], indices[i, :n], data[i, :n]))
    return blocks


def merge_shard(shard: MergeShard) -> None:
    """Add the spills of a block, some rows at a time, and remove them; runs in a worker."""
    target = Path(shard.file)
    if not _whole(target):
        write_rows(target, add_rows([RowsFile(Path(s)) for s in shard.spills], shard.n_words))
    for s in shard.spills:
        Path(s).unlink(missing_ok=True)


def add_rows(parts: list[RowsFile], n_words: int) -> Rows:
    """The sum of equally many rows from several files, holding about MERGE_ENTRIES of them at once."""
    bounds = np.stack([p.indptr() for p in parts])
    total = bounds.sum(axis=0)
    n_rows = bounds.shape[1] - 1
    indptr = [np.zeros(1, dtype=np.int64)]
    indices: list[NDArray[np.uint32]] = []
    data: list[NDArray[np.int64]] = []
    row = 0
    while row < n_rows:
        stop = max(row + 1, int(np.searchsorted(total, total[row] + MERGE_ENTRIES, side="right")) - 1)
        pieces = [p.piece(int(b[row]), int(b[stop])) for p, b in zip(parts, bounds, strict=True)]
        for part, (columns, _) in zip(parts, pieces, strict=True):
            if int(columns.max(initial=0)) >= n_words:  # the loop below uses columns as indices
                raise FormatError(f"{part.path}: a column lies outside the vocabulary; remove it and count again.")
        shift = np.concatenate(([0], np.cumsum([len(i) for i, _ in pieces])[:-1]))[:, None] - bounds[:, row : row + 1]
        part_indptr, part_indices, part_data = sum_rows(
            bounds[:, row:stop] + shift,
            bounds[:, row + 1 : stop + 1] + shift,
            np.concatenate([i for i, _ in pieces]),
            np.concatenate([d.astype(np.int64, copy=False) for _, d in pieces]),
            n_words,
        )
        indptr.append(part_indptr[1:] + indptr[-1][-1])
        indices.append(part_indices)
        data.append(narrow(part_data))
        row = stop
    return Rows(
        np.concatenate(indptr),
        np.concatenate(indices) if indices else np.empty(0, dtype=np.uint32),
        np.concatenate(data) if data else np.empty(0, dtype=np.uint32),
    )


def corpus_key(corpus: Corpus) -> str:
    """What the tokens are, to tell whether half-finished counts belong to this corpus."""
    if corpus.manifest.get("files"):
        return _manifest_key(corpus.manifest)
    h = hashlib.sha256(np.ascontiguousarray(corpus.ids).data)
    h.update(np.ascontiguousarray(corpus.offsets).data)
    return h.hexdigest()


def _manifest_key(manifest: dict[str, Any]) -> str:
    files = manifest["files"]
    return f"{files[TOKENS]['sha256']} {files[OFFSETS]['sha256']}"


def resident_bytes() -> int:
    """Memory this process holds now; an estimate where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return WORKER_BYTES
    import resource

    return pages * resource.getpagesize()


def warm_up() -> None:
    """Compile the loops on a tiny input, so that threads do not race to and the memory it takes is known."""
    tokens = np.array([FIRST, 1, 0], dtype=np.uint32)
    bounds, positions = positions_by_word(tokens, 0, 2)
    indices, data = np.empty((2, 1, 3), dtype=np.uint32)
    row_room(bounds, 2)
    indptr = count_rows(tokens, bounds, positions, 2, 1, 2, indices, data)
    sum_rows(indptr[:, :-1].copy(), indptr[:, 1:].copy(), indices[0], data[0].astype(np.int64), 2)


def _whole(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        RowsFile(path)
    except FormatError:
        return False
    return True


class Run(NamedTuple):
    """A run of tokens, with FIRST set where a sentence begins, and where each word stands in it."""

    tokens: NDArray[np.uint32]
    bounds: NDArray[np.int64]
    positions: NDArray[np.uint32]


# The run this process works on: blocks follow each other on the same run, so one is kept; and each thread's space for
# rows, because the system takes its time to hand out fresh pages.
_lock = threading.Lock()
_kept: list[tuple[tuple[object, ...], Run]] = []
_local = threading.local()


def _run(shard: CountShard) -> Run:
    key = (shard.source.key, shard.start, shard.stop, shard.lags, shard.across)
    with _lock:
        if not _kept or _kept[0][0] != key:
            _kept.clear()  # before the next run is read: two would not fit the memory
            _kept.append((key, _read_run(shard)))
        return _kept[0][1]


def _scratch(n_lags: int, room: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    buffer = getattr(_local, "buffer", None)
    size = 2 * n_lags * room
    if buffer is None or len(buffer) < size:
        buffer = _local.buffer = None
        buffer = _local.buffer = np.empty(size, dtype=np.uint32)
    halves = buffer[:size].reshape(2, n_lags, room)
    return halves[0], halves[1]


def forget_run() -> None:
    """Give the memory back."""
    with _lock:
        _kept.clear()
    _local.buffer = None


def _read_run(shard: CountShard) -> Run:
    """The tokens of a run with up to `lags` tokens before it, which are context only."""
    source, lags = shard.source, shard.lags
    first = min(lags, shard.start)
    begin = shard.start - first
    if source.directory is not None:
        directory = Path(source.directory)
        try:
            # read, not mapped: mapped pages would count against the memory limit
            tokens = np.fromfile(directory / TOKENS, dtype="<u4", count=shard.stop - begin, offset=4 * begin)
            offsets: NDArray[np.int64] = np.memmap(directory / OFFSETS, dtype="<i8", mode="r")
        except OSError as e:
            raise FormatError(f"{directory} cannot be read here ({e.strerror}): workers must see the corpus.") from None
        # after both were opened: directories are replaced in one step, so that they are of this corpus too
        if _manifest_key(read_json(directory / MANIFEST)) != source.key:
            raise FormatError(f"{directory} was replaced while it was counted: count it again.")
    else:
        assert source.ids is not None and source.offsets is not None
        tokens, offsets = np.array(source.ids[begin : shard.stop]), source.offsets
    if len(tokens) and int(tokens.max()) >= shard.n_words:
        raise FormatError(
            "A token of the corpus has an id outside its vocabulary: verify the corpus and build it again."
        )
    if shard.across:
        starts = np.zeros(1 if begin == 0 else 0, dtype=np.int64)
    else:
        low, high = np.searchsorted(offsets, [begin, shard.stop])
        starts = offsets[low:high] - begin
    tokens[starts] |= FIRST
    return Run(tokens, *positions_by_word(tokens, first, shard.n_words))
