"""The inside chart of a batch of sentences of equal length, in the space of the features.

A span of width w that begins at token i of sentence b is row first[w] + b (N − w + 1) + i, so that the spans of one
width are adjacent and their products with V̂ and Ŵ are two matrix products. Every row has a power of two as its scale:
the probabilities of a row are its numbers times 2^exponent. Scaling by powers of two rounds nothing, and no product of
probabilities leaves the range of floating-point numbers, however long the sentence.

With `allowed`, only the marked spans may be constituents: sums are then over the trees that have no other. If these are
the spans of one binary tree, the tree is given and only its symbols are hidden.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chart.grammar import RankSpace
from undertow.kernels.lanes import Buffers
from undertow.kernels.types import F64, I64

NOTHING = -(1 << 40)  # the exponent of a row of zeros


class Chart(NamedTuple):
    """Inside probabilities of B sentences of N words; rows as in the module's docstring."""

    n: int  # N
    size: int  # B
    first: I64  # (N + 2,) the first row of each width
    G: NDArray[Any]  # (rows, r) given the feature of the span's root; unused for single words
    L: NDArray[Any]  # (rows, r) as the left child of each feature
    R: NDArray[Any]  # (rows, r) as the right child
    exponent: I64  # (rows,)
    z: F64  # (B,) probability of the sentence, over 2^z_exponent
    z_exponent: I64  # (B,)
    allowed: NDArray[np.bool_] | None = None  # (rows,) the spans that may be constituents; None for all

    @property
    def log_likelihood(self) -> F64:
        """(B,) log-probability of each sentence; −inf for an impossible one."""
        with np.errstate(divide="ignore"):
            logs: F64 = np.log(self.z) + np.where(self.z > 0, self.z_exponent, 0) * math.log(2)
        return logs

    def width(self, w: int) -> slice:
        return slice(int(self.first[w]), int(self.first[w + 1]))

    def row(self, b: int, i: int, j: int) -> int:
        """The row of words i..j−1 of sentence b."""
        return int(self.first[j - i]) + b * (self.n - (j - i) + 1) + i


def width_starts(n: int, size: int) -> I64:
    """(n + 2,) the first row of each width, from width 0, which has none, to the number of all rows."""
    counts = size * (n + 1 - np.arange(1, n + 1))
    return np.concatenate(([0, 0], np.cumsum(counts))).astype(np.int64)


def inside(
    words: NDArray[Any],
    space: RankSpace,
    buffers: Buffers | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> Chart:
    """The chart of sentences (B, N), N ≥ 1, given as rows of the word tables of `space`.

    With `buffers` the tables are those of the last call, which are overwritten.
    """
    size, n = words.shape
    dtype, r = space.word_left.dtype, space.word_left.shape[1]
    keep = Buffers() if buffers is None else buffers
    first = width_starts(n, size)
    rows = int(first[-1])
    G, L, R = (keep.take(name, rows, r, dtype) for name in ("G", "L", "R"))
    exponent = np.zeros(rows, dtype=np.int64)
    flat = words.reshape(-1)
    np.take(space.word_left, flat, axis=0, out=L[: len(flat)])
    np.take(space.word_right, flat, axis=0, out=R[: len(flat)])
    normalize_pairs(L[: len(flat)], R[: len(flat)], exponent[: len(flat)])
    for w in range(2, n + 1):
        combine(w, n, first, L, exponent, R, exponent, G, exponent)
        at = slice(int(first[w]), int(first[w + 1]))
        if allowed is not None:
            forbid(~allowed[at], G[at], exponent[at])
        if w < n:  # the root is no child
            np.matmul(G[at], space.to_left, out=L[at])
            np.matmul(G[at], space.to_right, out=R[at])
    if n == 1:
        z, z_exponent = np.asarray(space.word_top[flat], dtype=np.float64), np.zeros(size, dtype=np.int64)
    else:
        root = slice(int(first[n]), rows)
        z = G[root].astype(np.float64) @ space.top.astype(np.float64)
        z_exponent = exponent[root].copy()
    return Chart(n, size, first, G, L, R, exponent, z, z_exponent, allowed)


def forbid(rows: NDArray[np.bool_], G: NDArray[Any], exponent: I64) -> None:
    """Set rows of a table to probability zero."""
    G[rows] = 0
    exponent[rows] = NOTHING


def rows_of_spans(n: int, spans: NDArray[Any]) -> NDArray[np.bool_]:
    """(rows,) of a chart, true for single words and for the spans (B, k, 2) of its sentences of n words."""
    size = len(spans)
    first = width_starts(n, size)
    width = spans[:, :, 1] - spans[:, :, 0]
    found = np.zeros(int(first[-1]), dtype=bool)
    found[: n * size] = True
    found[first[width] + np.arange(size)[:, None] * (n - width + 1) + spans[:, :, 0]] = True
    return found


@njit(cache=True, nogil=True)
def combine(w: int, n: int, first: Any, L: Any, left: Any, R: Any, right: Any, G: Any, exponent: Any) -> None:
    """G of all spans of width w: Σ over split points of L[left part] ∘ R[right part], each row scaled to maximum < 1.

    `left`, `right` and `exponent` are the exponents of L, R and G.
    """
    r = G.shape[1]
    per = n - w + 1
    size = (first[w + 1] - first[w]) // per
    for b in range(size):
        for i in range(per):
            row = first[w] + b * per + i
            g = G[row]
            g[:] = 0
            largest = 2 * NOTHING
            for a in range(1, w):
                x = first[a] + b * (n - a + 1) + i
                y = first[w - a] + b * (n - w + a + 1) + i + a
                largest = max(largest, left[x] + right[y])
            if largest < NOTHING // 2:
                exponent[row] = NOTHING
                continue
            for a in range(1, w):
                x = first[a] + b * (n - a + 1) + i
                y = first[w - a] + b * (n - w + a + 1) + i + a
                factor = power_of_two(left[x] + right[y] - largest)
                if factor == 0.0:
                    continue
                c = G.dtype.type(factor)
                p, q = L[x], R[y]
                for f in range(r):
                    g[f] += c * p[f] * q[f]
            exponent[row] = largest + scale_row(g)


@njit(cache=True, nogil=True)
def power_of_two(e: int) -> float:
    """Equivalent to 2.0 ** e, zero below the range of float64."""
    if e < -1074:
        return 0.0
    return math.ldexp(1.0, e)


@njit(cache=True, nogil=True)
def scale_row(g: Any) -> int:
    """Divide a row by a power of two so that its maximum is in [½, 1); the exponent, NOTHING for a row of zeros."""
    top = g[0]
    for f in range(len(g)):
        top = max(top, g[f])
    if top <= 0:
        return NOTHING
    e = math.frexp(np.float64(top))[1]
    c = g.dtype.type(math.ldexp(1.0, -max(e, -126)))  # the reciprocal of a subnormal number would overflow
    for f in range(len(g)):
        g[f] *= c
    return max(e, -126)


@njit(cache=True, nogil=True)
def normalize_pairs(L: Any, R: Any, exponent: Any) -> None:
    """Divide row x of both tables by one power of two, added to exponent[x]: their common maximum is then in [½, 1)."""
    for x in range(L.shape[0]):
        p, q = L[x], R[x]
        top = np.float64(0.0)
        for f in range(len(p)):
            top = max(top, np.float64(p[f]), np.float64(q[f]))
        if top <= 0:
            exponent[x] = NOTHING
            continue
        e = max(math.frexp(top)[1], -126)
        c = L.dtype.type(math.ldexp(1.0, -e))
        for f in range(len(p)):
            p[f] *= c
            q[f] *= c
        exponent[x] += e


__all__ = [
    "NOTHING",
    "Chart",
    "combine",
    "forbid",
    "inside",
    "normalize_pairs",
    "power_of_two",
    "rows_of_spans",
    "scale_row",
    "width_starts",
]
