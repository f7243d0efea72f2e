"""E log Z(s) under independent layers, from a table of log Z over the joint states.

With a table of J = ∏ K_m numbers, Σ_s log Z(s) Π_m γ_m(s_m) costs J multiply-adds per token, whatever the vocabulary.
LANES tokens are processed side by side; the first contraction, nearly all of the work, is a product of the table with
their posteriors.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.factorial.row_products import VECTOR_BYTES, dots, mix
from undertow.kernels.factorial.words import Sizes
from undertow.kernels.types import F32, F64

LANES = 64  # four vectors: each number of the table is loaded once for all of them


@njit(cache=True, nogil=True)
def _into_lanes(gamma: Any, t: Any, lanes: Any) -> None:
    """lanes[m, k, l] = gamma[t + l, m, k], and 0 after the last token."""
    N, M, K = gamma.shape
    for l in range(LANES):
        for m in range(M):
            for k in range(K):
                lanes[m, k, l] = gamma[t + l, m, k] if t + l < N else 0.0


@njit(cache=True, nogil=True)
def _contract(source: Any, target: Any, n_before: Any, K: Any, n_behind: Any, weights: Any) -> None:
    """Equivalent to `target[a, b, l] = Σ_k source[a, k, b, l] weights[k, l]`; target may be the start of source."""
    total = np.empty(LANES, dtype=source.dtype)
    for a in range(n_before):
        for b in range(n_behind):
            total[:] = 0
            for k in range(K):
                at = ((a * K + k) * n_behind + b) * LANES
                for l in range(LANES):
                    total[l] += source[at + l] * weights[k, l]
            to = (a * n_behind + b) * LANES
            for l in range(LANES):
                target[to + l] = total[l]


@njit(cache=True, nogil=True)
def expect_log_norm(gamma: Any, sizes: Any, table: Any, layer: Any, out: Any) -> None:
    """E[log Z | state of a layer] with the other layers, of these sizes, distributed as gamma (N, M, K).

    Equivalent to `out[t, k] = Σ_{s: s_layer = k} table[s] Π_{m≠layer} gamma[t, m, s_m]`.
    """
    N, M, width = gamma.shape
    if M == 1:
        for t in range(N):
            out[t] = table
        return
    whole = layer < M - 1  # contract the last layer first, or the first one if `layer` is the last
    contracted = M - 1 if whole else 0
    K = sizes[contracted]
    n = len(table) // K
    vector = VECTOR_BYTES // table.itemsize
    lanes = np.empty((M, width, LANES), dtype=table.dtype)
    work = np.empty(n * LANES, dtype=table.dtype)
    for t in range(0, N, LANES):
        _into_lanes(gamma, t, lanes)
        w_row, w_in = (K, 1) if whole else (1, n)
        mix(table, 0, w_row, w_in, lanes.reshape(-1), contracted * width * LANES, LANES, vector,
            work, 0, LANES, vector, n, K, LANES // vector)  # fmt: skip
        behind = n
        for m in range(M - 2, layer, -1):
            behind //= sizes[m]
            _contract(work, work, behind, sizes[m], 1, lanes[m])
        first = 0 if whole else 1
        for m in range(first, layer):
            behind //= sizes[m]
            _contract(work, work, 1, sizes[m], behind, lanes[m])
        for l in range(min(LANES, N - t)):
            for k in range(sizes[layer]):
                out[t + l, k] = work[k * LANES + l]


@njit(cache=True, nogil=True)
def _add_visits(gamma: Any, sizes: Any, visits: Any) -> None:
    """Equivalent to `visits[s] += Σ_t Π_m gamma[t, m, s_m]`."""
    N, M, width = gamma.shape
    last = sizes[M - 1]
    n = len(visits) // last
    vector = VECTOR_BYTES // gamma.itemsize
    lanes = np.empty((M, width, LANES), dtype=gamma.dtype)
    left = np.empty((n, LANES), dtype=gamma.dtype)
    some = np.zeros(n * last, dtype=gamma.dtype)
    for t in range(0, N, LANES):
        _into_lanes(gamma, t, lanes)
        left[0] = 1.0
        size = 1
        for m in range(M - 1):
            K = sizes[m]
            for s in range(size - 1, -1, -1):
                for k in range(K - 1, -1, -1):
                    for l in range(LANES):
                        left[s * K + k, l] = left[s, l] * lanes[m, k, l]
            size *= K
        dots(left.reshape(-1), 0, LANES, lanes.reshape(-1), (M - 1) * width * LANES, LANES, some, 0, last, n, last,
             1, 0, LANES // vector)  # fmt: skip
        if t % (16 * LANES) == 15 * LANES or t + LANES >= N:  # float32 sums of at most 1,024 tokens
            for s in range(n * last):
                visits[s] += some[s]
                some[s] = 0.0


def joint_visits(gamma: F32, sizes: Sizes) -> F64:
    """(∏ K_m,) expected visits of the joint states, for tokens with independent layers gamma (N, M, K)."""
    visits: NDArray[Any] = np.zeros(prod(sizes))
    _add_visits(np.ascontiguousarray(gamma, dtype=np.float32), np.array(sizes, dtype=np.int64), visits)
    return visits
