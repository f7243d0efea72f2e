"""Draws from fixed distributions in constant time: Walker's alias tables, built by Vose's method.

A table of n cells is built in O(n); cell i keeps the share `threshold` of its column for i and gives the rest to the
cell `other`, which is counted from 1: 0 says that the table is not built yet. A draw takes one uniform number and reads
one cell. Tables of the rows of a matrix are built when a row is first drawn from, so that a model with many states
pays, in time and in memory, for those it visits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

CELL = np.dtype([("threshold", np.float32), ("other", np.int32)])


class AliasRows(NamedTuple):
    """Tables of the rows of `weights` (rows, n), which need not be normalized.

    The `cells` (rows · n,) follow each other row by row.
    """

    weights: NDArray[Any]
    cells: NDArray[Any]  # CELL
    n: int


def alias_rows(weights: NDArray[Any]) -> AliasRows:
    """Unbuilt tables for all rows; memory is committed by the system only for those that are built."""
    n_rows, n = weights.shape
    return AliasRows(weights, np.zeros(n_rows * n, dtype=CELL), n)


@njit(cache=True, nogil=True)
def build_row(weights: Any, cells: Any) -> None:
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
        cells[i].threshold, cells[i].other = level[i], j + 1
        level[j] -= 1.0 - level[i]
        if level[j] < 1.0:
            n_large -= 1
            small[n_small] = j
            n_small += 1
    # the rest equals the mean but for rounding; a cell of weight 0 must not be drawn
    for k in range(n_large):
        cells[large[k]].threshold, cells[large[k]].other = 1.0, large[k] + 1
    for k in range(n_small):
        i = small[k]
        cells[i].threshold, cells[i].other = 1.0, i + 1
        if weights[i] <= 0.0:
            cells[i].threshold, cells[i].other = 0.0, np.argmax(weights) + 1


@njit(cache=True, nogil=True, inline="always")
def draw_row(tables: Any, row: Any, u: Any) -> Any:
    """The cell of a row, from 0 on, that the uniform number u in [0, 1) falls on; an unbuilt row is built first.

    Inlined and without views of the table, as each would be counted in and out by atomic operations.
    """
    n, cells = tables.n, tables.cells
    x = u * n
    i = min(int(x), n - 1)
    at = row * n + i
    if cells[at].other == 0:
        _build(tables, row)
    return i if x - i < cells[at].threshold else cells[at].other - 1


@njit(cache=True, nogil=True, inline="always")
def draw_cell(cells: Any, begin: Any, n: Any, u: Any) -> Any:
    """As `draw_row`, of the n cells from `begin` on, which are built."""
    x = u * n
    i = min(int(x), n - 1)
    return i if x - i < cells[begin + i].threshold else cells[begin + i].other - 1


@njit(cache=True, nogil=True)
def _build(tables: Any, row: Any) -> None:
    build_row(tables.weights[row], tables.cells[row * tables.n : (row + 1) * tables.n])


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
