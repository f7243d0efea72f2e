"""Tables of probabilities with one byte a number: eight steps an octave, relative to the largest number of the row.

Code 0 is zero; code c stands for scale · 2^((c − 255)/8), where the row's largest number has 255. The scale is such
that the row keeps its sum, so a distribution stays one. Rounding moves a number by at most 4.4 %, and the scale all
numbers of a row by as much again; one below 2^-31.75 of the largest is raised to that, so none but zero becomes zero.
Coded once more, decoded tables have the same codes and scales to the last bit.

A table is flat, in any order that `Runs` describes: a run is a piece of one row, or has one number of each of several
rows in succession.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.types import F32, F64, I64

Codes = NDArray[np.uint8]
LARGEST = 255
STEPS = 8  # an octave
LEVELS = np.exp2((np.arange(LARGEST + 1) - LARGEST) / STEPS).astype(np.float32)
LEVELS[0] = 0
LEVELS.flags.writeable = False


class Runs(NamedTuple):
    """Which row each number of a flat table belongs to: number i of run r to row[r] + i · step."""

    starts: I64  # (n + 1,)
    row: I64  # (n,)
    step: int  # 0: a run is of one row; 1: of as many rows as it has numbers
    n_rows: int


def rows(n: int, m: int) -> Runs:
    """The rows of an (n, m) table."""
    return Runs(np.arange(n + 1, dtype=np.int64) * m, np.arange(n, dtype=np.int64), 0, n)


def columns(n: int, m: int) -> Runs:
    """The columns of an (n, m) table."""
    return Runs(np.arange(n + 1, dtype=np.int64) * m, np.zeros(n, dtype=np.int64), 1, m)


def encode(table: F32, runs: Runs) -> tuple[Codes, F32]:
    """The codes of a table of numbers that are not negative, in its shape, and the scale of each row."""
    flat = np.ascontiguousarray(table, dtype=np.float32).reshape(-1)
    largest, codes = np.zeros(runs.n_rows, dtype=np.float32), np.zeros(len(flat), dtype=np.uint8)
    _largest(flat, runs.starts, runs.row, runs.step, largest)
    _encode(flat, runs.starts, runs.row, runs.step, largest, codes)
    sums, levels = np.zeros(runs.n_rows), np.zeros(runs.n_rows)
    _sums(flat, runs.starts, runs.row, runs.step, sums)
    _sums(LEVELS[codes], runs.starts, runs.row, runs.step, levels)
    return codes.reshape(table.shape), _scales(largest, sums, levels)


def _scales(largest: F32, sums: F64, levels: F64) -> F32:
    """sums / levels; where that is the largest number but for rounding, as in a decoded table, the number itself."""
    scales = np.divide(sums, levels, out=np.zeros_like(sums), where=levels > 0)
    same = np.abs(largest * levels - sums) <= 2.0**-22 * sums
    return np.where(same, largest, scales.astype(np.float32))


def decode(codes: Codes, scale: F32, runs: Runs) -> F32:
    """The table again, in the shape of its codes."""
    out = np.empty(codes.size, dtype=np.float32)
    flat = np.ascontiguousarray(codes).reshape(-1)
    _decode(flat, np.ascontiguousarray(scale), LEVELS, runs.starts, runs.row, runs.step, out)
    return out.reshape(codes.shape)


def largest_codes(codes: Codes, runs: Runs) -> Codes:
    """The largest code of each row: 255, or 0 in a row of zeros; `encode` gives no other."""
    out = np.zeros(runs.n_rows, dtype=np.uint8)
    _largest(np.ascontiguousarray(codes).reshape(-1), runs.starts, runs.row, runs.step, out)
    return out


@njit(cache=True, nogil=True)
def _largest(values: Any, starts: Any, row: Any, step: int, out: Any) -> None:
    """Equivalent to `np.maximum.at(out, row of each value, values)`."""
    for r in range(len(row)):
        z = row[r]
        for i in range(starts[r], starts[r + 1]):
            out[z] = max(out[z], values[i])
            z += step


@njit(cache=True, nogil=True)
def _sums(values: Any, starts: Any, row: Any, step: int, out: Any) -> None:
    """Equivalent to `np.add.at(out, row of each value, values)`."""
    for r in range(len(row)):
        z = row[r]
        for i in range(starts[r], starts[r + 1]):
            out[z] += values[i]
            z += step


@njit(cache=True, nogil=True)
def _encode(values: Any, starts: Any, row: Any, step: int, largest: Any, codes: Any) -> None:
    """Equivalent to `codes[:] = np.maximum(np.rint(255 + 8 * np.log2(values / largest)), 1)` where values > 0."""
    for r in range(len(row)):
        z = row[r]
        for i in range(starts[r], starts[r + 1]):
            if values[i] > 0:
                place = np.rint(LARGEST + STEPS * np.log2(np.float64(values[i]) / np.float64(largest[z])))
                codes[i] = np.uint8(max(place, 1.0))
            z += step


@njit(cache=True, nogil=True)
def _decode(codes: Any, scale: Any, levels: Any, starts: Any, row: Any, step: int, out: Any) -> None:
    """Equivalent to `out[:] = scale[row of each code] * levels[codes]`."""
    for r in range(len(row)):
        z = row[r]
        for i in range(starts[r], starts[r + 1]):
            out[i] = scale[z] * levels[codes[i]]
            z += step
