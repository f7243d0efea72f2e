"""Sparse times dense in threads: chunks of rows with equal numbers of non-zeros, pulled by whoever is free.

Zipf's law puts most non-zeros into few rows, so equal numbers of rows would leave one thread with nearly all the
work. A row is summed by one thread in one order, so the number of threads changes no bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.lanes import equal_runs, ordered_map
from undertow.kernels.types import I64

CHUNKS_PER_THREAD = 8  # few enough to cost nothing, many enough that the last one is short
SMALL = 1 << 16  # multiply-adds below which starting threads costs more than it saves


@njit(cache=True, nogil=True, fastmath={"contract"})
def _multiply_rows(indptr: Any, indices: Any, data: Any, X: Any, out: Any, start: Any, stop: Any) -> None:
    """Rows start..stop-1 of the product. Equivalent to `out[start:stop] = csr[start:stop] @ X`.

    Four non-zeros are taken at a time, so that a row of `out` is read and written once for four rows of X.
    """
    n_columns = X.shape[1]
    for i in range(start, stop):
        row = out[i]
        row[:] = 0
        e, end = indptr[i], indptr[i + 1]
        while e + 4 <= end:
            x0, x1, x2, x3 = X[indices[e]], X[indices[e + 1]], X[indices[e + 2]], X[indices[e + 3]]
            v0, v1, v2, v3 = data[e], data[e + 1], data[e + 2], data[e + 3]
            for c in range(n_columns):
                row[c] += v0 * x0[c] + v1 * x1[c] + v2 * x2[c] + v3 * x3[c]
            e += 4
        while e < end:
            x0, v0 = X[indices[e]], data[e]
            for c in range(n_columns):
                row[c] += v0 * x0[c]
            e += 1


def row_chunks(indptr: NDArray[Any], n_chunks: int) -> I64:
    """Edges of at most n_chunks runs of rows with about equal cost, a row costing its non-zeros plus one."""
    return equal_runs(indptr - indptr[0] + np.arange(len(indptr)), n_chunks)


def spmm(
    indptr: NDArray[Any],
    indices: NDArray[Any],
    data: NDArray[Any],
    X: NDArray[Any],
    n_threads: int = 1,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """CSR times dense, in the precision of X. Equivalent to `csr_array((data, indices, indptr)) @ X`.

    For a transposed product give the CSR arrays of the transpose: gathering rows of X is threadable, scattering not.
    """
    X = np.ascontiguousarray(X)
    n_rows = len(indptr) - 1
    if out is None:
        out = np.empty((n_rows, X.shape[1]), dtype=X.dtype)
    elif out.shape != (n_rows, X.shape[1]) or out.dtype != X.dtype or not out.flags.c_contiguous:
        raise ValueError(f"out must be a C-contiguous {(n_rows, X.shape[1])} array of {X.dtype}")
    if n_threads == 1 or int(indptr[-1]) * X.shape[1] < SMALL:
        _multiply_rows(indptr, indices, data, X, out, 0, n_rows)
        return out
    edges = row_chunks(indptr, CHUNKS_PER_THREAD * n_threads)

    def one_chunk(c: int) -> None:
        _multiply_rows(indptr, indices, data, X, out, edges[c], edges[c + 1])

    for _ in ordered_map(one_chunk, range(len(edges) - 1), n_threads):
        pass
    return out
