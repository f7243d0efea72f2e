"""Factors of pair counts: p(j | i) = Σ_f R[i, f] E[f, j], the aggregate Markov model (Saul & Pereira 1997).

EM in closed form, which is also the multiplicative update for the Kullback–Leibler divergence: the share of a pair
(i, j) that went through f is R[i, f] E[f, j] / Σ_f, and the M-step normalizes the sums of these shares. Only pairs that
were counted are touched, so a step costs (their number) × F.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from undertow.kernels.types import F64


@njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})
def _shares(indptr: Any, indices: Any, data: Any, R: Any, ET: Any, n_R: Any, n_ET: Any) -> float:
    """n_R += and n_ET += what each factor must be multiplied by; returns Σ counts · log p."""
    total = 0.0
    F = R.shape[1]
    for i in range(len(indptr) - 1):
        r, n_r = R[i], n_R[i]
        for e in range(indptr[i], indptr[i + 1]):
            x = data[e]
            if x <= 0:
                continue
            t, n_t = ET[indices[e]], n_ET[indices[e]]
            p = 0.0
            for f in range(F):
                p += r[f] * t[f]
            if p <= 0:
                return -np.inf
            total += x * np.log(p)
            ratio = x / p
            for f in range(F):
                n_r[f] += ratio * t[f]
                n_t[f] += ratio * r[f]
    return total


def aggregate_markov(
    counts: csr_array, R: NDArray[Any], E: NDArray[Any], n_iter: int, *, floor: float = 1e-12
) -> tuple[F64, F64, list[float]]:
    """R (I, F) and E (F, J) after n_iter steps from those given, and the mean log-probability of a pair before each.

    `counts[i, j]` ≥ 0: times j followed i. Rows without pairs keep what they have. `floor` keeps probabilities off
    zero, which EM could never leave again.
    """
    counts = csr_array(counts)
    data = counts.data.astype(np.float64)
    indptr, indices = counts.indptr.astype(np.int64), counts.indices.astype(np.int64)
    R, ET = np.array(R, dtype=np.float64, order="C"), np.array(np.asarray(E).T, dtype=np.float64, order="C")
    history = []
    for _ in range(n_iter):
        n_R, n_ET = np.zeros_like(R), np.zeros_like(ET)
        log_likelihood = _shares(indptr, indices, data, R, ET, n_R, n_ET)
        history.append(log_likelihood / max(float(data.sum()), 1e-300))
        R = _rows(n_R * R, R, floor)
        ET = _rows((n_ET * ET).T, ET.T, floor).T.copy()
    return R, ET.T.copy(), history


def _rows(counts: F64, before: F64, floor: float) -> F64:
    """Counts as distributions, row by row; a row without any stays what it was."""
    total = counts.sum(axis=1, keepdims=True)
    out = np.where(total > 0, counts / np.where(total > 0, total, 1.0), before) + floor
    return np.asarray(out / out.sum(axis=1, keepdims=True))
