"""LagCounts: how often word i came k tokens after word j, for k = 1..lags, as sparse matrices.

The LDS and the spectral initializations are computed from these counts alone. Counts of two texts over the same
vocabulary can be added. They are in memory or in a directory (`counts_directory`).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from undertow import progress as progress_
from undertow.atomic import READY, install_directory, temporary_staging
from undertow.engine import Engine, Serial, Threads, count_workers
from undertow.errors import FormatError, InputError, short
from undertow.files import DIGEST, reread_if_replaced
from undertow.progress import Progress, ProgressFn
from undertow.recipe import Target, check_target, recipe
from undertow.text import counting
from undertow.text.corpus import MANIFEST, Corpus
from undertow.text.count_shards import Rows, check_rows, narrow, shard_name, write_rows
from undertow.text.counts_directory import (
    COUNTS,
    count_to_directory,
    finish_counts,
    open_counts,
    read_counts_manifest,
)
from undertow.text.vocabulary import Vocabulary


class LagCounts:
    """Counts of word pairs at lags 1 to `lags`, as sparse matrices.

    Pairs are counted within sentences, or with `across=True` in the corpus as one stream. Counts over the same
    vocabulary are additive: `a + b`, `sum(list_of_counts)`, or `LagCounts.merge` for counts that do not fit into
    memory. Use `LagCounts.from_corpus` to count and `LagCounts.open` to map a counts directory.

    Parameters
    ----------
    vocabulary
        The words, with their counts in the same text.
    blocks
        For each lag, the blocks of rows.
    edges
        The first row of each block, and the number of words.
    across
        Whether pairs across sentence boundaries were counted.
    tokenizer
        The description of the tokenizer of the text, if it is known.
    path
        The directory of counts on disk.

    Attributes
    ----------
    vocabulary : Vocabulary
    lags : int
        The largest lag.
    n_tokens : int
        The number of tokens of the text.

    Examples
    --------
    >>> from undertow import Corpus, LagCounts
    >>> corpus = Corpus.from_sentences([["a", "b", "a"], ["b", "a"]])
    >>> counts = LagCounts.from_corpus(corpus, lags=2)
    >>> counts.matrix(1).toarray().tolist()  # [i, j] = how often word i occurs 1 token after word j
    [[0, 0, 0], [0, 0, 2], [0, 1, 0]]
    >>> (counts + counts).n_pairs(1)
    6
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        blocks: Sequence[Sequence[Rows]],
        edges: Sequence[int],
        *,
        across: bool,
        tokenizer: dict[str, Any] | None = None,
        path: Path | None = None,
    ):
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer  # the tokenizer of the text, if it is known
        self.across = across
        self.path = path
        self._blocks = [list(lag) for lag in blocks]
        self._edges = list(edges)
        self._checked = [path is None] * len(self._blocks)  # lags whose entries were checked; not needed in memory

    @property
    def lags(self) -> int:
        """The largest lag."""
        return len(self._blocks)

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the counted text."""
        return int(self.vocabulary.counts.sum())

    def nnz(self, k: int) -> int:
        """The number of distinct pairs at lag k.

        Parameters
        ----------
        k
            The lag, from 1 to `lags`.

        Returns
        -------
        int

        Raises
        ------
        InputError
            If lag k was not counted.
        """
        self._check_lag(k)
        return sum(rows.nnz for rows in self._blocks[k - 1])

    def n_pairs(self, k: int) -> int:
        """The number of pairs at lag k.

        Parameters
        ----------
        k
            The lag, from 1 to `lags`.

        Returns
        -------
        int

        Raises
        ------
        InputError
            If lag k was not counted.
        """
        return sum(int(rows.data.sum(dtype=np.int64)) for rows in self._lag(k))

    def matrix(self, k: int) -> csr_array:
        """The counts at lag k as a sparse matrix.

        Parameters
        ----------
        k
            The lag, from 1 to `lags`.

        Returns
        -------
        scipy.sparse.csr_array
            int64, of shape (words, words); [i, j] is how often word i occurs k tokens after word j.

        Raises
        ------
        InputError
            If lag k was not counted.
        FormatError
            If a file of the counts is damaged.
        """
        lag = self._lag(k)
        nnz = sum(rows.nnz for rows in lag)
        index = np.int32 if max(nnz, len(self.vocabulary)) < 2**31 else np.int64
        indptr = np.zeros(len(self.vocabulary) + 1, dtype=index)
        indices = np.empty(nnz, dtype=index)
        data = np.empty(nnz, dtype=np.int64)
        at = 0
        for rows, start, stop in zip(lag, self._edges[:-1], self._edges[1:], strict=True):
            indptr[start + 1 : stop + 1] = rows.indptr[1:] + at
            indices[at : at + rows.nnz] = rows.indices
            data[at : at + rows.nnz] = rows.data
            at += rows.nnz
        n = len(self.vocabulary)
        matrix = csr_array((data, indices, indptr), shape=(n, n))
        matrix.has_canonical_format = True
        return matrix

    def _check_lag(self, k: int) -> None:
        if not 1 <= k <= self.lags:
            raise InputError(f"Lag {short(k)} was not counted: these counts have lags 1 to {self.lags}.")

    def _lag(self, k: int) -> list[Rows]:
        """The rows of a lag; those of a file are checked when they are first used.

        Compiled loops use the columns as indices, so an invalid one would write outside of an array.
        """
        self._check_lag(k)
        if not self._checked[k - 1]:
            n_words, n_tokens = len(self.vocabulary), self.n_tokens
            for rows in self._blocks[k - 1]:
                wrong = check_rows(rows, n_words, n_tokens)
                if wrong is not None:
                    raise FormatError(f"{self.path}, lag {k}: {wrong}; count again.")
            self._checked[k - 1] = True
        return self._blocks[k - 1]

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        nnz = sum(rows.nnz for lag in self._blocks for rows in lag)
        return f"LagCounts({self.lags} lags, {len(self.vocabulary)} words, {self.n_tokens} tokens, {nnz} pairs{where})"

    def __add__(self, other: object) -> LagCounts:
        if not isinstance(other, LagCounts):
            return NotImplemented
        vocabulary, edges = _check_addable([self, other])
        blocks: list[list[Rows]] = [[] for _ in range(self.lags)]
        for k, _, rows in _summed([self, other], edges):
            blocks[k - 1].append(rows)
        return LagCounts(vocabulary, blocks, edges, across=self.across, tokenizer=_one_rule([self, other]))

    def with_words(self, vocabulary: Vocabulary) -> LagCounts:
        """The same counts over a larger vocabulary, whose new words have no counts.

        Parameters
        ----------
        vocabulary
            The words of these counts, in their order, and more after them.

        Returns
        -------
        LagCounts
            With empty rows and columns for the new words.

        Raises
        ------
        InputError
            If the vocabulary does not begin with the words of these counts.
        """
        n, more = len(self.vocabulary), len(vocabulary) - len(self.vocabulary)
        if vocabulary.words[:n] != self.vocabulary.words:
            raise InputError("The larger vocabulary must begin with the words of the counts, in their order.")
        blocks = [self._lag(k) for k in range(1, self.lags + 1)]
        if more:
            blocks = [[*rows[:-1], _with_empty_rows(rows[-1], more)] for rows in blocks]
        counts = np.concatenate([self.vocabulary.counts, np.zeros(more, dtype=np.int64)])
        edges = [*self._edges[:-1], len(vocabulary)]
        words = vocabulary.with_counts(counts)
        return LagCounts(words, blocks, edges, across=self.across, tokenizer=self.tokenizer)

    def __radd__(self, other: object) -> LagCounts:
        """So that `sum(list_of_counts)` works."""
        return self if other == 0 else NotImplemented

    @classmethod
    def from_corpus(
        cls,
        corpus: Corpus,
        *,
        lags: int = 7,
        across: bool = False,
        n_jobs: int | None = 1,
        engine: Engine | None = None,
        out: str | Path | None = None,
        memory: int | None = None,
        overwrite: bool = False,
        progress: ProgressFn = progress_.ignore,
    ) -> LagCounts:
        """Count the word pairs of a corpus, in memory or to a directory.

        Parameters
        ----------
        corpus
            The corpus to count.
        lags
            The largest lag, up to 255.
        across
            Also count pairs across sentence boundaries.
        n_jobs
            The number of threads; -1 uses all cores.
        engine
            Run on processes or a cluster instead. Its machines must see the corpus directory (and `out`) under the same
            path.
        out
            A directory to count to; an interrupted count is resumed by the same call, and counts of the same corpus
            with the same options are reused.
        memory
            A limit in bytes for all workers together; needs `out`.
        overwrite
            Replace an existing counts directory.
        progress
            Called with a `Progress` after each block.

        Returns
        -------
        LagCounts

        Raises
        ------
        InputError
            If an option is invalid, the memory limit is too small, or `out` exists.
        """
        if not isinstance(corpus, Corpus):
            raise InputError(f"LagCounts.from_corpus takes a Corpus, not {type(corpus).__name__}.")
        if not 1 <= lags <= counting.MAX_LAGS:
            raise InputError(f"lags={lags} must lie between 1 and {counting.MAX_LAGS}.")
        n_workers = count_workers(n_jobs)
        if engine is None:
            engine = Serial() if n_workers == 1 else Threads(n_workers)
        if out is not None:
            kept = count_to_directory(corpus, lags, across, engine, Path(out), memory, overwrite, progress)
            return cls.open(out, verify=kept)
        if memory is not None:
            raise InputError("A memory limit needs a directory to count to: give `out` too.")
        blocks = counting.count_in_memory(corpus, lags, across, engine, progress)
        edges = counting.row_edges(corpus.vocabulary.counts)
        return cls(corpus.vocabulary, blocks, edges, across=across, tokenizer=corpus.manifest.get("tokenizer"))

    @classmethod
    def merge(
        cls,
        parts: Sequence[LagCounts],
        out: str | Path,
        *,
        overwrite: bool = False,
        progress: ProgressFn = progress_.ignore,
    ) -> LagCounts:
        """Sum counts block by block into a directory, without holding them in memory.

        Parameters
        ----------
        parts
            Counts with the same vocabulary, lags and `across`.
        out
            The directory to write.
        overwrite
            Replace an existing counts directory.
        progress
            Called with a `Progress` after each block.

        Returns
        -------
        LagCounts
            The sum, opened from `out`.

        Raises
        ------
        InputError
            If the parts cannot be added, or `out` exists.
        """
        target, out = out, Path(os.path.abspath(out))
        if not parts:
            raise InputError("There are no counts to add: give at least one.")
        vocabulary, edges = _check_addable(parts)
        made = recipe([["counts", _digest_of(part)] for part in parts], {"sum": True})
        if check_target(out, COUNTS, made, overwrite=overwrite) is Target.REUSE:
            return cls.open(target)
        n_files = parts[0].lags * (len(edges) - 1)
        with temporary_staging(out) as staging:
            names: list[list[str]] = [[] for _ in range(parts[0].lags)]
            for done, (k, b, rows) in enumerate(_summed(parts, edges)):
                names[k - 1].append(shard_name(k, b))
                write_rows(staging / READY / names[k - 1][-1], rows)
                progress(Progress("merge", done + 1, n_files, "block"))
            finish_counts(staging / READY, vocabulary, names, edges, parts[0].across, _one_rule(parts), made)
            install_directory(staging, out, COUNTS, overwrite=overwrite)
        return cls.open(target, verify=False)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the counts to a directory, which appears complete or not at all.

        Parameters
        ----------
        path
            The directory to write.
        overwrite
            Replace an existing counts directory.

        Raises
        ------
        InputError
            If the directory exists or cannot be written.
        """
        LagCounts.merge([self], path, overwrite=overwrite)

    @classmethod
    @reread_if_replaced(MANIFEST)
    def open(cls, path: str | Path, *, verify: bool = True) -> LagCounts:
        """Memory-map a counts directory.

        Parameters
        ----------
        path
            A directory of counts.
        verify
            Compare the hashes of the files with the manifest.

        Returns
        -------
        LagCounts

        Raises
        ------
        FormatError
            If the directory is missing, damaged, or of another format version.
        """
        path = Path(path)
        manifest, vocabulary, blocks = open_counts(path, verify)
        across, tokenizer = manifest["across"], manifest["tokenizer"]
        return cls(vocabulary, blocks, manifest["row_edges"], across=across, tokenizer=tokenizer, path=path)


def _check_addable(parts: Sequence[LagCounts]) -> tuple[Vocabulary, list[int]]:
    """The vocabulary with summed counts and the row blocks of the sum."""
    first = parts[0]
    for other in parts[1:]:
        if other.vocabulary != first.vocabulary:
            raise InputError(
                "Counts over different vocabularies cannot be added: "
                "build the second corpus with the vocabulary of the first."
            )
        if other.lags != first.lags or other.across != first.across:
            raise InputError(
                f"Counts of {first.lags} lags (across={first.across}) and {other.lags} lags (across={other.across}) "
                "cannot be added: use the same options for both."
            )
    total = np.sum([p.vocabulary.counts for p in parts], axis=0)
    return first.vocabulary.with_counts(total), counting.row_edges(total)


def _summed(parts: Sequence[LagCounts], edges: Sequence[int]) -> Iterator[tuple[int, int, Rows]]:
    """(lag, block, rows of the sum), one block of one lag in memory at a time."""
    from undertow.kernels.words.pair_counts import sum_rows

    n_words = len(parts[0].vocabulary)
    for k in range(1, parts[0].lags + 1):
        for b, (start, stop) in enumerate(itertools.pairwise(edges)):
            pieces = [_slice_rows(p, k, start, stop) for p in parts]
            if len(pieces) == 1:
                yield k, b, pieces[0]
                continue
            shifts = np.concatenate(([0], np.cumsum([p.nnz for p in pieces])[:-1]))
            bounds = np.stack([p.indptr + shift for p, shift in zip(pieces, shifts, strict=True)])
            indptr, indices, data = sum_rows(
                bounds[:, :-1].copy(),
                bounds[:, 1:].copy(),
                np.concatenate([p.indices for p in pieces]),
                np.concatenate([p.data.astype(np.int64, copy=False) for p in pieces]),
                n_words,
            )
            yield k, b, Rows(indptr, indices, narrow(data))


def _slice_rows(counts: LagCounts, k: int, start: int, stop: int) -> Rows:
    """Rows start..stop-1 at lag k, wherever the blocks are cut."""
    indptr = [np.zeros(1, dtype=np.int64)]
    indices: list[NDArray[np.uint32]] = []
    data: list[NDArray[Any]] = []
    edges = counts._edges
    for rows, a, b in zip(counts._lag(k), edges[:-1], edges[1:], strict=True):
        low, high = max(start, a) - a, min(stop, b) - a
        if low >= high:
            continue
        p = np.asarray(rows.indptr[low : high + 1])
        indptr.append(p[1:] - p[0] + indptr[-1][-1])
        indices.append(np.asarray(rows.indices[p[0] : p[-1]]))
        data.append(np.asarray(rows.data[p[0] : p[-1]]))
    return Rows(np.concatenate(indptr), np.concatenate(indices), np.concatenate(data))


def _with_empty_rows(rows: Rows, n: int) -> Rows:
    return rows._replace(indptr=np.concatenate([rows.indptr, np.repeat(rows.indptr[-1:], n)]))


def _one_rule(parts: Sequence[LagCounts]) -> dict[str, Any] | None:
    """The tokenizer, if all texts have the same."""
    first = parts[0].tokenizer
    return first if all(p.tokenizer == first for p in parts) else None


def _digest_of(counts: LagCounts) -> str | None:
    """The digest of a counts directory; None for counts in memory."""
    return None if counts.path is None else str(read_counts_manifest(counts.path)[DIGEST])
