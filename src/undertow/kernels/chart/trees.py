"""Trees of sentences from their charts: minimum Bayes risk, the most probable derivation, and draws from the posterior.

A tree of N words is an array of its N − 1 constituents (begin, split, end) in preorder, each before its left and then
its right part. A derivation has a symbol for each constituent and each word beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chart.grammar import GrammarParams, RankSpace
from undertow.kernels.chart.inside import Chart
from undertow.kernels.types import F64, I64


class Derivation(NamedTuple):
    """A tree with its symbols: nonterminals from 0, preterminals from n on."""

    spans: I64  # (N − 1, 3) begin, split, end
    symbols: I64  # (N − 1,) nonterminal of each constituent
    tags: I64  # (N,) preterminal of each word


# --- minimum Bayes risk ---------------------------------------------------------------------------------


def posterior_table(chart: Chart, posteriors: F64, b: int) -> F64:
    """(N, N + 1) posterior probability of words i..j−1 of sentence b at [i, j]; zero where j ≤ i."""
    n = chart.n
    table = np.zeros((n, n + 1))
    for w in range(1, n + 1):
        at = chart.row(b, 0, w)
        begin = np.arange(n - w + 1)
        table[begin, begin + w] = posteriors[at : at + n - w + 1]
    return table


@njit(cache=True, nogil=True)
def best_tree(score: Any) -> Any:
    """(N − 1, 3) the tree with the largest sum of score[i, j] over its constituents; of equal ones, the left split.

    With posterior probabilities as scores, it has the most correct constituents in expectation.
    """
    n = score.shape[0]
    best = np.zeros((n, n + 1))
    split = np.zeros((n, n + 1), dtype=np.int64)
    for w in range(2, n + 1):
        for i in range(n - w + 1):
            j = i + w
            top, at = -np.inf, i + 1
            for k in range(i + 1, j):
                x = best[i, k] + best[k, j]
                if x > top:
                    top, at = x, k
            best[i, j] = top + score[i, j]
            split[i, j] = at
    return preorder(split)


@njit(cache=True, nogil=True)
def preorder(split: Any) -> Any:
    """(N − 1, 3) constituents of the tree whose root is 0..N and whose span i..j is split at split[i, j]."""
    n = split.shape[0]
    out = np.empty((max(n - 1, 0), 3), dtype=np.int64)
    stack = np.empty((n + 1, 2), dtype=np.int64)
    stack[0, 0], stack[0, 1] = 0, n
    depth, at = 1, 0
    while depth:
        depth -= 1
        i, j = stack[depth, 0], stack[depth, 1]
        if j - i < 2:
            continue
        k = split[i, j]
        out[at, 0], out[at, 1], out[at, 2] = i, k, j
        at += 1
        stack[depth, 0], stack[depth, 1] = k, j
        stack[depth + 1, 0], stack[depth + 1, 1] = i, k
        depth += 2
    return out


# --- the most probable derivation -----------------------------------------------------------------------


class MaxSpace(NamedTuple):
    """The grammar for the most probable derivation of symbols and features: log-scores of the best symbol between."""

    to_left: F64  # (r, r) [f', f]: the best nonterminal A with feature f as the left child of f'
    to_right: F64  # (r, r)
    top: F64  # (r,)
    left_symbol: I64  # (r, r) that nonterminal
    right_symbol: I64
    top_symbol: I64  # (r,)


def max_space(p: GrammarParams) -> MaxSpace:
    with np.errstate(divide="ignore"):
        start, u, v, w = (np.log(np.asarray(x, dtype=np.float64)) for x in p[:4])
    n, r = p.rules.shape
    scores, symbols = np.empty((2, r, r)), np.empty((2, r, r), dtype=np.int64)
    for side, table in enumerate((v, w)):
        for f in range(r):
            through = table[f, :n, None] + u  # (n, r)
            symbols[side, f] = through.argmax(axis=0)
            scores[side, f] = through.max(axis=0)
    root = start[:n, None] + u
    return MaxSpace(scores[0], scores[1], root.max(axis=0), symbols[0], symbols[1], root.argmax(axis=0))


def best_derivation(p: GrammarParams, space: MaxSpace, words: NDArray[Any]) -> tuple[Derivation, float]:
    """The most probable joint choice of tree, symbols and features of one sentence, and its log-probability.

    The sum over features is replaced by its largest term like the sums over trees and symbols, so that the chart stays
    in the space of the features.
    """
    n, N = p.n_nonterminals, len(words)
    with np.errstate(divide="ignore"):
        emission = np.log(np.asarray(p.emission[words], dtype=np.float64))
        v, w = (np.log(np.asarray(x[:, n:], dtype=np.float64)) for x in (p.left, p.right))
        start = np.log(np.asarray(p.start[n:], dtype=np.float64))
    if N == 1:
        scores = start + emission[0]
        tags = np.array([n + int(scores.argmax())])
        return Derivation(np.empty((0, 3), dtype=np.int64), np.empty(0, dtype=np.int64), tags), float(scores.max())
    leaf_left, leaf_right = (np.max(t[None] + emission[:, None], axis=2) for t in (v, w))  # (N, r)
    G, L, R = _max_chart(leaf_left, leaf_right, space.to_left, space.to_right)
    roots = space.top + G[0, N]
    f = int(roots.argmax())
    spans, symbols, parents = _trace_best(G, L, R, f, space)
    tags = np.array(
        [n + int(((v if left else w)[g] + e).argmax()) for (left, g), e in zip(parents, emission, strict=True)]
    )
    symbols[0] = space.top_symbol[f]
    return Derivation(spans, symbols, tags), float(roots.max())


@njit(cache=True, nogil=True)
def _max_chart(leaf_left: Any, leaf_right: Any, to_left: Any, to_right: Any) -> Any:
    """Tables [i, j, f] of the best log-scores: inside with maxima for sums."""
    n, r = leaf_left.shape
    G = np.full((n, n + 1, r), -np.inf)
    L, R = G.copy(), G.copy()
    for i in range(n):
        L[i, i + 1], R[i, i + 1] = leaf_left[i], leaf_right[i]
    for w in range(2, n + 1):
        for i in range(n - w + 1):
            j = i + w
            g = G[i, j]
            for k in range(i + 1, j):
                p, q = L[i, k], R[k, j]
                for f in range(r):
                    g[f] = max(g[f], p[f] + q[f])
            for f in range(r):
                a, b = -np.inf, -np.inf
                x, y = to_left[f], to_right[f]
                for h in range(r):
                    a = max(a, x[h] + g[h])
                    b = max(b, y[h] + g[h])
                L[i, j, f], R[i, j, f] = a, b
    return G, L, R


def _trace_best(G: F64, L: F64, R: F64, f: int, space: MaxSpace) -> tuple[I64, I64, list[tuple[bool, int]]]:
    """Constituents in preorder with their symbols, and for each word its side and its parent's feature.

    An impossible sentence, all of whose scores are −inf, gets some tree.
    """
    n = len(G)
    spans, symbols = [], []
    parents: list[tuple[bool, int]] = [(True, 0)] * n
    stack = [(0, n, f, 0)]
    while stack:
        i, j, f, symbol = stack.pop()
        if j - i == 1:
            continue
        k = i + 1 + int((L[i, i + 1 : j, f] + R[i + 1 : j, j, f]).argmax())
        spans.append((i, k, j))
        symbols.append(symbol)
        for begin, end, scores, names, left in (
            (k, j, space.to_right, space.right_symbol, False),
            (i, k, space.to_left, space.left_symbol, True),
        ):
            if end - begin == 1:
                parents[begin] = (left, f)
            else:
                g = int((scores[f] + G[begin, end]).argmax())
                stack.append((begin, end, g, int(names[f, g])))
    return np.array(spans, dtype=np.int64), np.array(symbols, dtype=np.int64), parents


# --- draws from the posterior ---------------------------------------------------------------------------


def draw_derivation(p: GrammarParams, space: RankSpace, chart: Chart, words: NDArray[Any], uniforms: F64) -> Derivation:
    """A derivation of sentence 0 of the chart, drawn from the posterior; `words` are its rows of p.emission.

    Uses at most 5 N uniform numbers in [0, 1).
    """
    n, N = p.n_nonterminals, chart.n
    numbers = iter(uniforms.tolist())

    def draw(weights: NDArray[Any]) -> int:
        total = np.cumsum(weights, dtype=np.float64)
        return min(int(np.searchsorted(total, next(numbers) * total[-1], side="right")), len(total) - 1)

    tags = np.empty(N, dtype=np.int64)
    if N == 1:
        tags[0] = n + draw(p.start[n:] * p.emission[words[0]])
        return Derivation(np.empty((0, 3), dtype=np.int64), np.empty(0, dtype=np.int64), tags)
    f = draw(space.top * chart.G[chart.row(0, 0, N)])
    spans, symbols = [], []
    stack = [(0, N, f, draw(p.start[:n] * p.rules[:, f]))]
    while stack:
        i, j, f, symbol = stack.pop()
        splits = range(i + 1, j)
        left, right = [chart.row(0, i, k) for k in splits], [chart.row(0, k, j) for k in splits]
        exponents = chart.exponent[left] + chart.exponent[right]
        weights = chart.L[left, f] * chart.R[right, f]
        k = i + 1 + draw(np.ldexp(weights, np.maximum(exponents - exponents.max(), -2000).astype(np.int32)))
        spans.append((i, k, j))
        symbols.append(symbol)
        for begin, end, table, step in ((k, j, p.right, space.to_right), (i, k, p.left, space.to_left)):
            if end - begin == 1:
                tags[begin] = n + draw(table[f, n:] * p.emission[words[begin]])
            else:
                g = draw(step[:, f] * chart.G[chart.row(0, begin, end)])
                stack.append((begin, end, g, draw(table[f, :n] * p.rules[:, g])))
    return Derivation(np.array(spans, dtype=np.int64), np.array(symbols, dtype=np.int64), tags)


__all__ = [
    "Derivation",
    "MaxSpace",
    "best_derivation",
    "best_tree",
    "draw_derivation",
    "max_space",
    "posterior_table",
    "preorder",
]
