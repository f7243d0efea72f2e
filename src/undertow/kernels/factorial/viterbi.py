"""The most probable joint path of a factorial HMM: `chain.viterbi` with steps of one layer's transition at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain.viterbi import WIDE, add_evidence, best_paths, best_step, max_plus, origin
from undertow.kernels.factorial.words import Emission, FactorialParams
from undertow.kernels.overloads import implement
from undertow.kernels.types import F64, I64


class LayeredScores(NamedTuple):
    """A factorial chain and a text, in logs; states are joint codes, the last layer fastest."""

    words: I64  # (N,) ids, −1 for a missing one
    factors: F64  # (V, M, K)
    log_norm: F64  # (K^M,)
    initial: F64  # (M, K)
    transition: F64  # (M, K, K)


def _layered_step(chain: Any, t: Any, score: Any, spare: Any, came: Any, at: Any) -> Any:
    """Layer after layer; the m-th part of `came` says which of layer m's states it came from.

    That part is indexed by the new states of the layers up to m and the old ones of those after it.
    """
    M, K, _ = chain.transition.shape
    n_joint = len(chain.log_norm)
    old, new = score, spare
    for m in range(M):
        n_behind = K ** (M - 1 - m)
        if max(K, n_behind) < WIDE:
            to = 0
            for a in range(K**m):
                for j in range(K):
                    for b in range(n_behind):
                        best, origin_of_best = -np.inf, 0
                        for i in range(K):
                            value = old[(a * K + i) * n_behind + b] + chain.transition[m, i, j]
                            if value > best:
                                best, origin_of_best = value, i
                        new[to], came[at + m * n_joint + to] = best, origin_of_best
                        to += 1
        else:
            size = K * n_behind
            for a in range(K**m):
                here, begin = slice(a * size, (a + 1) * size), at + m * n_joint + a * size
                origins = came[begin : begin + size]
                if n_behind == 1:
                    max_plus(old[here], chain.transition[m], new[here], origins)
                else:
                    by_state, best_scores = old[here].reshape(K, n_behind), new[here]
                    for j in range(K):
                        behind = slice(j * n_behind, (j + 1) * n_behind)
                        max_plus(chain.transition[m, :, j], by_state, best_scores[behind], origins[behind])
        old, new = new, old
    if M % 2:
        score[:] = spare


def _layered_evidence(chain: Any, t: Any, first: Any, score: Any, n: Any) -> Any:
    M, K, _ = chain.transition.shape
    y = chain.words[t]
    for s in range(n):
        code = s
        value = -chain.log_norm[s] if y >= 0 else 0.0
        for m in range(M - 1, -1, -1):
            k = code % K
            code //= K
            if first:
                value += chain.initial[m, k]
            if y >= 0:
                value += chain.factors[y, m, k]
        score[s] += value
    return True


def _layered_origin(chain: Any, came: Any, at: Any, state: Any) -> Any:
    """The layers' old states, from the last layer to the first."""
    M, K, _ = chain.transition.shape
    n_joint = len(chain.log_norm)
    unit = 1
    for m in range(M - 1, -1, -1):
        now = (state // unit) % K
        state += (np.int64(came[at + m * n_joint + state]) - now) * unit
        unit *= K
    return state


implement(LayeredScores, {best_step: _layered_step, add_evidence: _layered_evidence, origin: _layered_origin})


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
    chain = LayeredScores(words, np.log(e.factors), log_norm, log_initial, log_A)
    at = M * K**M * np.arange(len(words) + 1)
    found = best_paths(chain, np.asarray(offsets, dtype=np.int64), at, K**M, M, np.uint8 if K <= 256 else np.uint16)
    for i, (a, b) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        here = words[a:b]
        found.log_prob[i] += e.log_base[here[here >= 0]].sum()
    return found.states, found.log_prob


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
