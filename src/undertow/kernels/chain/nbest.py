"""The n best paths of a dense chain with log scores: Viterbi with a sorted list of paths into every state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from undertow.kernels.types import F64, I64


def n_best_paths(scores: F64, transition: F64, n: int) -> tuple[I64, F64]:
    """States (m, T) and scores (m,) of the best paths through tokens with scores (T, K), m = min(n, K**T).

    Falling scores; of equal ones first that with the lower states at the end, as in `viterbi.best_paths`.
    """
    T, K = scores.shape
    if T == 0:
        return np.zeros((1, 0), dtype=np.int64), np.zeros(1)
    came = np.empty((T, K, n), dtype=np.int64)
    states, total = np.empty((n, T), dtype=np.int64), np.empty(n)
    m = _n_best(np.ascontiguousarray(scores), np.ascontiguousarray(transition), came, states, total)
    return states[:m], total[:m]


@njit(cache=True, nogil=True)
def _insert(values: Any, origins: Any, m: int, value: float, origin: int) -> int:
    """Put a value into a falling list of at most len(values), behind equal ones; returns how many there are now."""
    n = len(values)
    if m == n and not value > values[n - 1]:
        return m
    i = m if m < n else n - 1
    while i > 0 and value > values[i - 1]:
        values[i], origins[i] = values[i - 1], origins[i - 1]
        i -= 1
    values[i], origins[i] = value, origin
    return min(m + 1, n)


@njit(cache=True, nogil=True)
def _n_best(scores: Any, transition: Any, came: Any, states: Any, total: Any) -> int:
    """An origin is state · n + rank of the path before; how many paths there are depends on t alone."""
    T, K = scores.shape
    n = len(total)
    best, spare, m = np.empty((K, n)), np.empty((K, n)), 1
    best[:, 0] = scores[0]
    for t in range(1, T):
        m_next = 0
        for k in range(K):
            count = 0
            for j in range(K):
                for i in range(m):
                    value = best[j, i] + transition[j, k]
                    if count == n and not value > spare[k, n - 1]:
                        break  # those behind it are lower still
                    count = _insert(spare[k], came[t, k], count, value, j * n + i)
            for i in range(count):
                spare[k, i] += scores[t, k]
            m_next = count
        best, spare, m = spare, best, m_next
    origins, count = np.empty(n, dtype=np.int64), 0
    for k in range(K):
        for i in range(m):
            count = _insert(total, origins, count, best[k, i], k * n + i)
    for r in range(count):
        at = origins[r]
        for t in range(T - 1, -1, -1):
            states[r, t] = at // n
            at = came[t, at // n, at % n]
    return count
