"""Similarity search among the vectors of documents or tokens.

By default every query is compared with every vector, a block at a time, so the answer is exact and memory stays
bounded. That is one product of matrices: up to a million vectors it takes a fraction of a second for a query, and less
for each of many. Beyond that `approximate=True` searches a graph of neighbors (HNSW, by the extra `usearch`) and ranks
what it finds by exact cosines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, missing_extra, short
from undertow.kernels.types import F32, I64
from undertow.models.constraints import Whole
from undertow.tables import Table
from undertow.text.tokenizer import checked_sentences

BLOCK_NUMBERS = 1 << 22  # cosines held at once: 16 MB of float32
CANDIDATES = (
    4  # of an approximate search, for each vector that is asked for; the best of them by exact cosine are given
)


class Match(NamedTuple):
    """What a search found.

    Attributes
    ----------
    label
        What the vector stands for.
    cosine
        Of the vector with the query.
    """

    label: Any
    cosine: float


class TokenPlace(NamedTuple):
    """Where a token is.

    Attributes
    ----------
    sentence
        Number of its sentence, from 0.
    position
        Its place there, from 0.
    word
        The token itself.
    """

    sentence: int
    position: int
    word: str


class VectorIndex:
    """Vectors that can be searched by cosine.

    Parameters
    ----------
    vectors
        One row for each thing; a row of zeros has the cosine 0 with everything.
    labels
        What the rows stand for; None numbers them from 0.
    approximate
        Search a graph of neighbors instead of all vectors: for millions of them. It may miss some of the nearest; the
        cosines of what it finds are exact. Needs the extra `usearch`.

    Raises
    ------
    InputError
        If the vectors are not a table of finite numbers, or the labels are not as many.
    MissingExtraError
        If `approximate` needs a package that is not installed.

    Examples
    --------
    >>> from undertow.index import VectorIndex
    >>> index = VectorIndex([[1, 0], [0, 2], [3, 3]], labels=["east", "north", "north-east"])
    >>> [match.label for match in index.search([0, 1], n=2)]
    ['north', 'north-east']
    """

    def __init__(self, vectors: Any, labels: Sequence[Any] | None = None, *, approximate: bool = False) -> None:
        self._vectors = unit_rows(vectors)
        if labels is not None and len(labels) != len(self._vectors):
            raise InputError(f"{len(self._vectors)} vectors need as many labels, not {len(labels)}.")
        self._labels = labels
        self._graph = neighbor_graph(self._vectors) if approximate else None

    def __len__(self) -> int:
        return len(self._vectors)

    def search(self, vector: Any, n: int = 10) -> Table[Match]:
        """The vectors most similar to one.

        Parameters
        ----------
        vector
            Its numbers.
        n
            How many.

        Returns
        -------
        Table of Match
            Best first; of equals the earlier row.
        """
        rows, cosines = self.search_all(np.asarray(vector, dtype=np.float32)[None], n)
        labels = [i if self._labels is None else self._labels[i] for i in rows[0].tolist()]
        found = zip(labels, cosines[0].tolist(), strict=True)
        return Table(Match, (Match(label, cosine) for label, cosine in found))

    def search_all(self, vectors: Any, n: int = 10) -> tuple[I64, F32]:
        """The vectors most similar to each of many.

        Parameters
        ----------
        vectors
            One row for each query.
        n
            How many.

        Returns
        -------
        rows : array (queries, n)
            Numbers of the rows, best first; of equals the earlier one.
        cosines : array (queries, n), float32
            Their cosines.

        Raises
        ------
        InputError
            If the vectors are of another width, or `n` is no whole number.
        """
        Whole(0).check("VectorIndex", "n", n)
        queries = unit_rows(vectors)
        if queries.shape[1] != self._vectors.shape[1]:
            raise InputError(
                f"The vectors have {queries.shape[1]} numbers each, those of the index {self._vectors.shape[1]}."
            )
        n = min(int(n), len(self))
        with one_blas_thread():
            if self._graph is None or not n or not len(queries):
                return nearest_rows(self._vectors, queries, n)
            return nearest_candidates(self._vectors, queries, graph_candidates(self._graph, queries, n, len(self)), n)


def index_tokens(model: Any, X: Iterable[Any], view: str | None = None, *, approximate: bool = False) -> VectorIndex:
    """An index of all tokens of a text in their contexts, labelled with their places.

    Parameters
    ----------
    model
        A fitted model with vectors of tokens.
    X
        Token lists.
    view
        A view of the model's `transform`; None for its default.
    approximate
        As of `VectorIndex`.

    Returns
    -------
    VectorIndex
        Its labels are `TokenPlace`.

    Raises
    ------
    InputError
        If the model has no vectors, or there is no token.

    Examples
    --------
    >>> from undertow import HMM
    >>> from undertow.index import index_tokens
    >>> text = [["a", "b", "a"], ["b", "a"]]
    >>> model = HMM(2, n_iter=5, random_state=0).fit(text)
    >>> index_tokens(model, text).search(model.transform(text)[0][1], n=1)[0].label
    TokenPlace(sentence=0, position=1, word='b')
    """
    if not hasattr(model, "transform"):
        raise InputError(f"{type(model).__name__} has no vectors of tokens: take another model.")
    sentences = list(checked_sentences(X))
    if not any(sentences):
        raise InputError("There is no token to index: give at least one.")
    vectors = model.transform(sentences, **({} if view is None else {"view": view}))
    places = [TokenPlace(s, i, word) for s, words in enumerate(sentences) for i, word in enumerate(words)]
    return VectorIndex(np.concatenate(vectors), places, approximate=approximate)


def unit_rows(vectors: Any) -> F32:
    """The rows as float32, each divided by its length; rows of zeros stay."""
    try:
        table = np.array(vectors, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{short(vectors)} is not a table of numbers: give one row for each vector.") from None
    if table.ndim != 2 or table.shape[1] == 0 or not np.isfinite(table).all():
        raise InputError(
            f"Vectors must be a table of finite numbers, one row each; these have the shape {table.shape}."
        )
    lengths = np.linalg.norm(table.astype(np.float64), axis=1, keepdims=True)
    units: F32 = np.divide(table, lengths, out=np.zeros_like(table), where=lengths > 0, casting="same_kind")
    return units


def neighbor_graph(vectors: F32) -> Any:
    """A graph of neighbors of unit vectors, as usearch builds it, in one thread so that it is the same every time."""
    try:
        from usearch.index import Index
    except ImportError:
        raise missing_extra("An approximate index needs usearch", "usearch") from None
    graph = Index(ndim=vectors.shape[1], metric="ip", dtype="f32")
    graph.add(np.arange(len(vectors)), vectors, threads=1)
    return graph


def graph_candidates(graph: Any, queries: F32, n: int, n_rows: int) -> I64:
    """(q, m) rows that the graph holds near each query, m ≥ n; −1 where it found fewer."""
    m = min(CANDIDATES * n, n_rows)
    found = graph.search(queries, m, threads=1)
    keys, counts = np.atleast_2d(found.keys), np.atleast_1d(getattr(found, "counts", m))
    return np.where(np.arange(m) < np.reshape(counts, (-1, 1)), keys.astype(np.int64), -1)


def nearest_candidates(vectors: F32, queries: F32, candidates: I64, n: int) -> tuple[I64, F32]:
    """As `nearest_rows`, among the candidates of each query; where they are fewer than n, among all rows."""
    rows, values = np.empty((len(queries), n), dtype=np.int64), np.empty((len(queries), n), dtype=np.float32)
    for i, (query, found) in enumerate(zip(queries, candidates, strict=True)):
        among = np.unique(found[found >= 0])
        if len(among) < n:
            rows[i], values[i] = (x[0] for x in nearest_rows(vectors, query[None], n))
            continue
        at, here = _top(among[None], (vectors[among] @ query)[None], n)
        rows[i], values[i] = at[0], here[0]
    return rows, values


def nearest_rows(vectors: F32, queries: F32, n: int) -> tuple[I64, F32]:
    """Rows (q, n) of `vectors` with the largest products with each query, best first, and the products.

    Equivalent to a stable argsort of −queries @ vectors.T, one block of queries and rows at a time.
    """
    block = max(1, min(len(queries), 64))
    width = max(n, BLOCK_NUMBERS // block)
    rows, values = np.empty((len(queries), n), dtype=np.int64), np.empty((len(queries), n), dtype=np.float32)
    for start in range(0, len(queries), block):
        asked = queries[start : start + block]
        best: tuple[NDArray[Any], NDArray[Any]] | None = None
        for first in range(0, len(vectors), width):
            here = asked @ vectors[first : first + width].T
            at = np.broadcast_to(np.arange(first, first + here.shape[1]), here.shape)
            if best is not None:  # earlier rows stay in front, so that a stable sort prefers them
                at, here = np.concatenate((best[0], at), axis=1), np.concatenate((best[1], here), axis=1)
            best = _top(at, here, n)
        assert best is not None
        rows[start : start + block], values[start : start + block] = best
    return rows, values


def _top(at: NDArray[Any], values: NDArray[Any], n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The n largest of each row, best first, of equals the first; only those as large as the n-th are sorted."""
    if n == 0:
        return at[:, :0], values[:, :0]
    chosen = np.empty((len(values), n), dtype=np.int64)
    for i, row in enumerate(values):
        least = np.partition(row, -n)[-n]
        candidates = np.flatnonzero(row >= least)
        chosen[i] = candidates[np.argsort(-row[candidates], kind="stable")[:n]]
    return np.take_along_axis(at, chosen, axis=1), np.take_along_axis(values, chosen, axis=1)


__all__ = ["Match", "TokenPlace", "VectorIndex", "index_tokens"]
