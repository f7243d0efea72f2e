"""The likeliest joint path of a factorial HMM: max-product over the joint states, one layer's transition at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.factorial.words import Emission, FactorialParams
from undertow.kernels.types import F64, I64


@njit(cache=True, nogil=True)
def _step(score: Any, other: Any, log_A: Any, back: Any, M: Any, K: Any) -> Any:
    """The best way into every joint state, layer after layer; back[m] says which of layer m's states it came from.

    back[m] is indexed by the new states of the layers up to m and the old ones of those behind it.
    """
    for m in range(M):
        n_behind = K ** (M - 1 - m)
        for a in range(K**m):
            for j in range(K):
                to = (a * K + j) * n_behind
                for b in range(n_behind):
                    other[to + b] = -np.inf
                for i in range(K):
                    step = log_A[m, i, j]
                    source = (a * K + i) * n_behind
                    for b in range(n_behind):
                        value = score[source + b] + step
                        if value > other[to + b]:
                            other[to + b] = value
                            back[m, to + b] = i
        score, other = other, score
    return score, other


@njit(cache=True, nogil=True)
def _before(code: Any, back: Any, M: Any, K: Any) -> Any:
    """The joint state that the best way into `code` came from: the layers' old states, from the last to the first."""
    unit = 1
    for m in range(M - 1, -1, -1):
        now = (code // unit) % K
        code += (np.int64(back[m, code]) - now) * unit
        unit *= K
    return code


@njit(cache=True, nogil=True)
def _path(words: Any, log_factors: Any, log_norm: Any, log_initial: Any, log_A: Any, back: Any, out: Any) -> Any:
    """The best joint path of a sentence into out (codes); returns its log-probability, the words' weights left out."""
    _, M, K = log_factors.shape
    n_joint = len(log_norm)
    score, other = np.zeros(n_joint), np.empty(n_joint)
    for t in range(len(words)):
        if t > 0:
            score, other = _step(score, other, log_A, back[t], M, K)
        y = words[t]
        for s in range(n_joint):
            code = s
            value = -log_norm[s] if y >= 0 else 0.0
            for m in range(M - 1, -1, -1):
                k = code % K
                code //= K
                if t == 0:
                    value += log_initial[m, k]
                if y >= 0:
                    value += log_factors[y, m, k]
            score[s] += value
    best = 0
    for s in range(n_joint):
        if score[s] > score[best]:
            best = s
    out[len(words) - 1] = best
    for t in range(len(words) - 1, 0, -1):
        out[t - 1] = _before(out[t], back[t], M, K)
    return score[best]


def joint_viterbi(
    ids: NDArray[Any],
    offsets: I64,
    missing: NDArray[np.bool_] | None,
    params: FactorialParams,
    e: Emission,
    log_norm: F64,
) -> tuple[I64, F64]:
    """The best joint states (N,) as codes, the last layer fastest, and each sentence's log-probability with them."""
    M, K = params.initial.shape
    words = np.asarray(ids, dtype=np.int64)
    if missing is not None:
        words = np.where(missing, -1, words)
    with np.errstate(divide="ignore"):
        log_initial, log_A = np.log(params.initial), np.log(params.transition)
    log_factors = np.log(e.factors)
    codes, log_prob = np.empty(len(words), dtype=np.int64), np.zeros(len(offsets) - 1)
    for i, (a, b) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        if b > a:
            back = np.zeros((b - a, M, K**M), dtype=np.uint8 if K <= 256 else np.uint16)
            log_prob[i] = _path(words[a:b], log_factors, log_norm, log_initial, log_A, back, codes[a:b])
            here = words[a:b]
            log_prob[i] += e.log_base[here[here >= 0]].sum()
    return codes, log_prob


def codes_to_states(codes: I64, n_layers: int, n_states: int) -> I64:
    """(N, M) states of the layers from joint codes."""
    units = n_states ** np.arange(n_layers - 1, -1, -1)
    states: I64 = (codes[:, None] // units) % n_states
    return states


def states_to_codes(states: NDArray[Any], n_states: int) -> I64:
    """(N,) joint codes from states (N, M) of the layers."""
    units = n_states ** np.arange(states.shape[1] - 1, -1, -1)
    codes: I64 = states.astype(np.int64) @ units
    return codes
