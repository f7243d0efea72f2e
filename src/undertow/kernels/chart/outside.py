"""The outside chart, and what is expected given the sentences, in the space of the features.

Outside numbers are derivatives of the sentence's probability: of the span's G, and of its L and R as a child. A number
times its derivative, over the probability of the sentence, is a posterior probability.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.operators import add_stats
from undertow.kernels.chart.grammar import GrammarParams, RankSpace, batches_by_length, rank_space
from undertow.kernels.chart.inside import NOTHING, Chart, forbid, inside, normalize_pairs, power_of_two, rows_of_spans
from undertow.kernels.lanes import Buffers
from undertow.kernels.types import F64, I64

BATCH_FLOATS = 1 << 20  # numbers of each of the six tables of a batch
LARGEST_FACTOR = 2.0**96  # of a row: keeps float32 finite where the parameters make a product impossible anyway


class Outside(NamedTuple):
    """Outside numbers of the rows of a `Chart`; `factor` makes them, with those of the chart, posteriors."""

    G: NDArray[Any]  # (rows, r) derivative by the chart's G; unused for single words
    L: NDArray[Any]  # (rows, r) derivative by L; unused for the whole sentence
    R: NDArray[Any]
    factor: F64  # (rows,) such that factor · Σ_f outside.G ∘ chart.G is the posterior probability of the span


def outside(chart: Chart, space: RankSpace, buffers: Buffers | None = None) -> Outside:
    """The outside chart; impossible sentences have factors zero.

    With `buffers` the tables are those of the last call, which are overwritten.
    """
    n, size, first = chart.n, chart.size, chart.first
    keep = Buffers() if buffers is None else buffers
    rows, r = chart.G.shape
    G, L, R = (keep.take(f"outside {name}", rows, r, chart.G.dtype) for name in ("G", "L", "R"))
    exponent = np.zeros(rows, dtype=np.int64)
    G[chart.width(n)] = space.top
    for w in range(n - 1, 0, -1):
        pull(w, n, first, G, chart.L, chart.R, chart.exponent, L, R, exponent)
        if w > 1:
            at = chart.width(w)
            np.matmul(L[at], space.to_left.T, out=G[at])
            G[at] += R[at] @ space.to_right.T
            if chart.allowed is not None:
                forbid(~chart.allowed[at], G[at], exponent[at])
    factor = np.empty(rows)
    _factors(n, size, first, exponent, chart.exponent, chart.z, chart.z_exponent, factor)
    return Outside(G, L, R, factor)


@njit(cache=True, nogil=True)
def pull(w: int, n: int, first: Any, G: Any, cL: Any, cR: Any, inner: Any, L: Any, R: Any, exponent: Any) -> None:
    """Outside L and R of all spans of width w < n, from the outside G of wider spans and the chart of their siblings.

    `inner` are the exponents of the chart (cL, cR), `exponent` those of the outside numbers.
    """
    r = G.shape[1]
    per = n - w + 1
    size = (first[w + 1] - first[w]) // per
    for b in range(size):
        for i in range(per):
            k = i + w
            row = first[w] + b * per + i
            p, q = L[row], R[row]
            p[:] = 0
            q[:] = 0
            largest = 2 * NOTHING
            for j in range(k + 1, n + 1):  # left child of i..j beside k..j
                parent = first[j - i] + b * (n - j + i + 1) + i
                sibling = first[j - k] + b * (n - j + k + 1) + k
                largest = max(largest, exponent[parent] + inner[sibling])
            for h in range(i):  # right child of h..k beside h..i
                parent = first[k - h] + b * (n - k + h + 1) + h
                sibling = first[i - h] + b * (n - i + h + 1) + h
                largest = max(largest, exponent[parent] + inner[sibling])
            if largest < NOTHING // 2:
                exponent[row] = NOTHING
                continue
            for j in range(k + 1, n + 1):
                parent = first[j - i] + b * (n - j + i + 1) + i
                sibling = first[j - k] + b * (n - j + k + 1) + k
                factor = power_of_two(exponent[parent] + inner[sibling] - largest)
                if factor != 0.0:
                    c, x, y = G.dtype.type(factor), G[parent], cR[sibling]
                    for f in range(r):
                        p[f] += c * x[f] * y[f]
            for h in range(i):
                parent = first[k - h] + b * (n - k + h + 1) + h
                sibling = first[i - h] + b * (n - i + h + 1) + h
                factor = power_of_two(exponent[parent] + inner[sibling] - largest)
                if factor != 0.0:
                    c, x, y = G.dtype.type(factor), G[parent], cL[sibling]
                    for f in range(r):
                        q[f] += c * x[f] * y[f]
            exponent[row] = largest
            normalize_pairs(L[row : row + 1], R[row : row + 1], exponent[row : row + 1])


@njit(cache=True, nogil=True)
def _factors(n: int, size: int, first: Any, outer: Any, inner: Any, z: Any, z_exponent: Any, factor: Any) -> None:
    """2^(outer + inner − z_exponent) / z of each row, bounded, and zero for rows or sentences of probability zero."""
    for w in range(1, n + 1):
        per = n - w + 1
        for b in range(size):
            for i in range(per):
                row = first[w] + b * per + i
                e = outer[row] + inner[row] - z_exponent[b]
                if z[b] <= 0 or e < -1074:
                    factor[row] = 0.0
                else:
                    factor[row] = min(math.ldexp(1.0, min(e, 200)) / z[b], LARGEST_FACTOR)


def span_posteriors(chart: Chart, out: Outside) -> F64:
    """(rows,) posterior probability that each span of two words or more is a constituent; one for single words."""
    posterior = np.ones(len(out.factor))
    wide = slice(int(chart.first[2]), None)
    posterior[wide] = out.factor[wide] * np.einsum("xf,xf->x", out.G[wide], chart.G[wide], dtype=np.float64)
    return posterior


# --- expected counts ------------------------------------------------------------------------------------


class RankStats(NamedTuple):
    """Sums over sentences of outside times inside numbers, from which `expected_counts` follow; additive."""

    log_likelihood: float
    n_tokens: int
    n_sentences: int
    to_left: F64  # (r, r) Σ outside L ⊗ G over spans of two words or more
    to_right: F64  # (r, r)
    top: F64  # (r,) Σ G over whole sentences of two words or more
    word_left: F64  # (V, r) Σ outside L over the tokens of each word
    word_right: F64  # (V, r)
    word_top: F64  # (V,) Σ over sentences of one word

    def __add__(self, other: Any) -> RankStats:
        return add_stats(self, other)


def statistics(ids: NDArray[Any], bounds: I64, p: GrammarParams, spans: I64 | None = None) -> RankStats:
    """The E-step on sentences ids[bounds[i] : bounds[i + 1]], in float32 with float64 sums.

    The log-likelihood is −inf if a sentence is impossible. `spans` (k, 2) are the constituents, begin and end, of one
    binary tree a sentence, N − 1 for N words, one sentence after the other: then only the symbols are hidden.
    """
    words, local = np.unique(ids, return_inverse=True)
    space = rank_space(p, words)
    r, lengths = p.rank, np.diff(bounds)
    first_span = tree_starts(lengths)
    total = _zero(len(words), r)
    log_likelihood, buffers = 0.0, Buffers()
    for batch in batches_by_length(lengths, r, BATCH_FLOATS):
        n = int(lengths[batch[0]])
        sentences = local[bounds[batch][:, None] + np.arange(n)]
        allowed = None if spans is None else rows_of_spans(n, spans[first_span[batch][:, None] + np.arange(n - 1)])
        chart = inside(sentences, space, buffers, allowed)
        log_likelihood += float(chart.log_likelihood.sum())
        _accumulate(chart, outside(chart, space, buffers), sentences.reshape(-1), total, buffers)
    left, right, top = (np.zeros((p.n_words, *x.shape[1:])) for x in total[3:])
    left[words], right[words], top[words] = total[3:]
    n_sentences = int(np.count_nonzero(lengths))
    return RankStats(log_likelihood, len(ids), n_sentences, total[0], total[1], total[2], left, right, top)


def tree_starts(lengths: NDArray[Any]) -> I64:
    """Where the constituents of each sentence's tree begin, N − 1 for N words, and their number at the end."""
    return np.concatenate(([0], np.cumsum(np.maximum(lengths - 1, 0)))).astype(np.int64)


def _zero(n_words: int, r: int) -> tuple[F64, ...]:
    return (
        np.zeros((r, r)), np.zeros((r, r)), np.zeros(r), np.zeros((n_words, r)), np.zeros((n_words, r)),
        np.zeros(n_words),
    )  # fmt: skip


def _accumulate(chart: Chart, out: Outside, flat: I64, total: tuple[F64, ...], buffers: Buffers) -> None:
    to_left, to_right, top, word_left, word_right, word_top = total
    if chart.n == 1:
        np.add.at(word_top, flat, np.divide(1.0, chart.z, out=np.zeros_like(chart.z), where=chart.z > 0))
        return
    tokens, root = chart.width(1), chart.width(chart.n)
    # the words' own tables are not scaled, unlike their rows of the chart
    factor = np.ldexp(out.factor[tokens], -np.maximum(chart.exponent[tokens], -1000).astype(np.int32))
    _add_rows(word_left, flat, out.L[tokens], factor)
    _add_rows(word_right, flat, out.R[tokens], factor)
    top += out.factor[root] @ chart.G[root].astype(np.float64)
    between = slice(int(chart.first[2]), int(chart.first[chart.n]))
    if between.stop > between.start:
        _scale_rows(chart.G[between], out.factor[between])  # the chart is not used after this
        to_left += out.L[between].T @ chart.G[between]
        to_right += out.R[between].T @ chart.G[between]


@njit(cache=True, nogil=True)
def _add_rows(total: Any, rows: Any, values: Any, factor: Any) -> None:
    """Equivalent to np.add.at(total, rows, factor[:, None] * values)."""
    for x in range(len(rows)):
        to, row = total[rows[x]], values[x]
        for f in range(len(row)):
            to[f] += factor[x] * row[f]


@njit(cache=True, nogil=True)
def _scale_rows(values: Any, factor: Any) -> None:
    """Equivalent to values *= factor[:, None]."""
    for x in range(len(factor)):
        row, c = values[x], values.dtype.type(factor[x])
        for f in range(len(row)):
            row[f] *= c


class GrammarCounts(NamedTuple):
    """Expected counts of all that a grammar draws, and what they were read from; additive."""

    log_likelihood: float
    n_tokens: int
    n_sentences: int
    start: F64  # (n + m,)
    rules: F64  # (n, r)
    left: F64  # (r, n + m)
    right: F64  # (r, n + m)
    emission: F64  # (V, m)

    def __add__(self, other: Any) -> GrammarCounts:
        return add_stats(self, other)


def expected_counts(s: RankStats, p: GrammarParams) -> GrammarCounts:
    """Expected counts of the symbols from sums over features; p are the parameters the statistics were taken with."""
    n = p.n_nonterminals
    start, u, v, w, emission = (np.asarray(x, dtype=np.float64) for x in p)
    rules = u * (v[:, :n].T @ s.to_left + w[:, :n].T @ s.to_right + start[:n, None] * s.top)
    left, right = np.empty_like(v), np.empty_like(w)
    left[:, :n], right[:, :n] = v[:, :n] * (s.to_left @ u.T), w[:, :n] * (s.to_right @ u.T)
    left[:, n:], right[:, n:] = v[:, n:] * (s.word_left.T @ emission), w[:, n:] * (s.word_right.T @ emission)
    words = s.word_left @ v[:, n:]
    words += s.word_right @ w[:, n:]
    words += s.word_top[:, None] * start[n:]
    words *= emission
    first = start * np.concatenate([u @ s.top, s.word_top @ emission])
    return GrammarCounts(s.log_likelihood, s.n_tokens, s.n_sentences, first, rules, left, right, words)


__all__ = [
    "GrammarCounts",
    "Outside",
    "RankStats",
    "expected_counts",
    "outside",
    "span_posteriors",
    "statistics",
    "tree_starts",
]
