"""Draws from fixed distributions in constant time: Walker's alias tables, built by Vose's method.

A table of n cells is built in O(n); cell i keeps the share `threshold[i]` of its column for i and gives the rest to
`other[i]`. A draw takes one uniform number. Tables of the rows of a matrix are built when a row is first drawn from, so
that a model with many states pays, in time and in memory, for those it visits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.types import F32


class AliasRows(NamedTuple):
    """Tables of the rows of `weights` (rows, n), which need not be normalized; `built` says which are ready.

    The cells of `threshold` and `other` (rows · n,) follow each other row by row.
    """

    weights: NDArray[Any]
    threshold: F32
    other: NDArray[np.int32]
    built: NDArray[np.bool_]


def alias_rows(weights: NDArray[Any]) -> AliasRows:
    """Unbuilt tables for all rows; memory is committed by the system only for those that are built."""
    n_rows, n = weights.shape
    cells = n_rows * n
    return AliasRows(
        weights, np.empty(cells, dtype=np.float32), np.empty(cells, dtype=np.int32), np.zeros(n_rows, dtype=np.bool_)
    )


@njit(cache=True, nogil=True)
def build_row(weights: Any, threshold: Any, other: Any) -> None:
    """Vose's method: cells below the mean are filled up from cells above it."""
    n = len(weights)
    total = 0.0
    for i in range(n):
        total += weights[i]
    level = np.empty(n)
    small, large = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    n_small, n_large = 0, 0
    for i in range(n):
        level[i] = weights[i] * n / total
        if level[i] < 1.0:
            small[n_small] = i
            n_small += 1
        else:
            large[n_large] = i
            n_large += 1
    while n_small > 0 and n_large > 0:
        n_small -= 1
        i, j = small[n_small], large[n_large - 1]
        threshold[i], other[i] = level[i], j
        level[j] -= 1.0 - level[i]
        if level[j] < 1.0:
            n_large -= 1
            small[n_small] = j
            n_small += 1
    # the rest equals the mean but for rounding; a cell of weight 0 must not be drawn
    for k in range(n_large):
        threshold[large[k]], other[large[k]] = 1.0, large[k]
    for k in range(n_small):
        i = small[k]
        threshold[i], other[i] = 1.0, i
        if weights[i] <= 0.0:
            threshold[i], other[i] = 0.0, np.argmax(weights)


@njit(cache=True, nogil=True, inline="always")
def draw_alias(threshold: Any, other: Any, begin: Any, n: Any, u: Any) -> Any:
    """The cell, from 0 on, that the uniform number u in [0, 1) falls on; the table has n cells from `begin` on.

    Inlined and without views of the table, as each would be counted in and out by atomic operations.
    """
    x = u * n
    i = min(int(x), n - 1)
    return i if x - i < threshold[begin + i] else other[begin + i]


@njit(cache=True, nogil=True, inline="always")
def draw_row(tables: Any, row: Any, u: Any) -> Any:
    """A draw from one row of AliasRows, which is built if this is the first one."""
    if not tables.built[row]:
        _build(tables, row)
    n = tables.weights.shape[1]
    return draw_alias(tables.threshold, tables.other, row * n, n, u)


@njit(cache=True, nogil=True)
def _build(tables: Any, row: Any) -> None:
    n = tables.weights.shape[1]
    begin = row * n
    build_row(tables.weights[row], tables.threshold[begin : begin + n], tables.other[begin : begin + n])
    tables.built[row] = True


@njit(cache=True, nogil=True)
def draw_weights(weights: Any, u: Any) -> Any:
    """One draw in O(n), for weights that are used once; −1 if they are all zero."""
    total = 0.0
    for i in range(len(weights)):
        total += weights[i]
    if not total > 0.0:
        return -1
    x, last = u * total, -1
    for i in range(len(weights)):
        if weights[i] > 0.0:
            last = i
            x -= weights[i]
            if x < 0.0:
                return i
    return last
