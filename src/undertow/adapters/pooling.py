"""From rows of tokens to rows of documents; document i has the tokens `bounds[i]` to `bounds[i + 1]`, maybe none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from undertow.kernels.types import F32, F64, I64


def weighted_means(rows: F32, bounds: I64, weights: F64 | None = None) -> F32:
    """(n, d) means of each document's rows, weighted if weights (T,) are given; zeros for one without tokens."""
    weights = np.ones(len(rows)) if weights is None else weights
    total = _reduce(np.add, weights[:, None], bounds)
    sums = _reduce(np.add, rows * weights[:, None], bounds)
    means: F32 = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0).astype(np.float32)
    return means


def maxima(rows: F32, bounds: I64) -> F32:
    """(n, d) largest value in each column of each document's rows; zeros for one without tokens."""
    return _reduce(np.maximum, rows, bounds).astype(np.float32)


def last_rows(rows: F32, bounds: I64) -> F32:
    """(n, d) last row of each document; zeros for one without tokens."""
    out = np.zeros((len(bounds) - 1, rows.shape[1]), dtype=np.float32)
    filled = np.diff(bounds) > 0
    out[filled] = rows[bounds[1:][filled] - 1]
    return out


def state_counts(states: I64, bounds: I64, sizes: tuple[int, ...]) -> sparse.csr_matrix:
    """(n, states) how many tokens of each document are in each state; layers of these sizes stand side by side.

    Equivalent to adding 1 at [document, states of the layers before + state] for each token and layer. A state of −1
    is none.
    """
    per_token = states.reshape(len(states), len(sizes))
    columns = per_token + np.cumsum([0, *sizes[:-1]])
    documents = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    at = np.broadcast_to(documents[:, None], columns.shape)
    real = per_token >= 0
    values = np.ones(int(real.sum()), dtype=np.float32)
    size = (len(bounds) - 1, sum(sizes))
    return sparse.csr_matrix((values, (at[real], columns[real])), shape=size)  # equal places are summed


def _reduce(function: Any, rows: NDArray[Any], bounds: I64) -> NDArray[Any]:
    """`function.reduce` over each document's rows; reduceat cannot do empty ones, which get zeros."""
    out = np.zeros((len(bounds) - 1, rows.shape[1]), dtype=rows.dtype)
    filled = np.diff(bounds) > 0
    if filled.any():
        out[filled] = function.reduceat(rows, bounds[:-1][filled], axis=0)
    return out
