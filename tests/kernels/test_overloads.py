"""Arrays without reference counts in compiled code: the same numbers, and nothing freed or kept by mistake."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.testing import assert_array_equal

from undertow.kernels.overloads import borrowed


class Inner(NamedTuple):
    matrix: Any
    n: int


class Outer(NamedTuple):
    inner: Inner
    vector: Any


@njit
def doubled(outer: Any, times: int) -> Any:
    outer = borrowed(outer)
    for _ in range(times):
        row = outer.inner.matrix[outer.inner.n]
        row *= 2
        outer.vector[0] += row[0]
    return outer.inner.n


def test_what_is_borrowed_is_the_same_memory_and_stays_with_its_owner() -> None:
    matrix, vector = np.arange(6.0).reshape(2, 3), np.zeros(1)
    assert doubled(Outer(Inner(matrix, 1), vector), 0) == 1  # compiled
    counts = [sys.getrefcount(x) for x in (matrix, vector)]
    for _ in range(100):
        doubled(Outer(Inner(matrix, 1), vector), 1)
        matrix[1] /= 2
    assert_array_equal(matrix, np.arange(6.0).reshape(2, 3))
    assert_array_equal(vector, [600.0])
    assert [sys.getrefcount(x) for x in (matrix, vector)] == counts
