"""The most probable joint path of a factorial HMM: `chain.viterbi` with steps of one layer's transition at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain.viterbi import WIDE, add_evidence, best_paths, best_step, max_plus, origin
from undertow.kernels.factorial.words import Emission, FactorialParams, Sizes
from undertow.kernels.overloads import implement
from undertow.kernels.types import F64, I64


class LayeredScores(NamedTuple):
    """A factorial chain and a text, in logs; states are joint codes, the last layer fastest."""

    words: I64  # (N,) ids, −1 for a missing one
    factors: F64  # (V, M, K)
    log_norm: F64  # (∏ K_m,)
    initial: F64  # (M, K)
    transition: F64  # (M, K, K)
    sizes: I64  # (M,) states of each layer, K_m


def _layered_step(chain: Any, t: Any, score: Any, spare: Any, came: Any, at: Any) -> Any:
    """Layer after layer; the m-th part of `came` says which of layer m's states it came from.

    That part is indexed by the new states of the layers up to m and the old ones of those after it.
    """
    M = len(chain.sizes)
    n_joint = len(chain.log_norm)
    old, new = score, spare
    n_before, n_behind = 1, n_joint
    for m in range(M):
        K = chain.sizes[m]
        n_behind //= K
        if max(K, n_behind) < WIDE:
            to = 0
            for a in range(n_before):
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
            for a in range(n_before):
                here, begin = slice(a * size, (a + 1) * size), at + m * n_joint + a * size
                origins = came[begin : begin + size]
                if n_behind == 1:
                    max_plus(old[here], chain.transition[m], new[here], origins)
                else:
                    by_state, best_scores = old[here].reshape(K, n_behind), new[here]
                    for j in range(K):
                        behind = slice(j * n_behind, (j + 1) * n_behind)
                        max_plus(chain.transition[m, :K, j], by_state, best_scores[behind], origins[behind])
        old, new = new, old
        n_before *= K
    if M % 2:
        score[:] = spare


def _layered_evidence(chain: Any, t: Any, first: Any, score: Any, n: Any) -> Any:
    M = len(chain.sizes)
    y = chain.words[t]
    for s in range(n):
        code = s
        value = -chain.log_norm[s] if y >= 0 else 0.0
        for m in range(M - 1, -1, -1):
            k = code % chain.sizes[m]
            code //= chain.sizes[m]
            if first:
                value += chain.initial[m, k]
            if y >= 0:
                value += chain.factors[y, m, k]
        score[s] += value
    return True


def _layered_origin(chain: Any, came: Any, at: Any, state: Any) -> Any:
    """The layers' old states, from the last layer to the first."""
    n_joint = len(chain.log_norm)
    unit = 1
    for m in range(len(chain.sizes) - 1, -1, -1):
        K = chain.sizes[m]
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
    M, n_joint, widest = len(e.sizes), len(log_norm), max(e.sizes)
    words = np.asarray(ids, dtype=np.int64)
    if missing is not None:
        words = np.where(missing, -1, words)
    with np.errstate(divide="ignore"):
        logs = np.log(e.factors), log_norm, np.log(params.initial), np.log(params.transition)
    chain = LayeredScores(words, *logs, np.array(e.sizes, dtype=np.int64))
    at = M * n_joint * np.arange(len(words) + 1)
    came = np.uint8 if widest <= 256 else np.uint16
    found = best_paths(chain, np.asarray(offsets, dtype=np.int64), at, n_joint, M, came)
    for i, (a, b) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        here = words[a:b]
        found.log_prob[i] += e.log_base[here[here >= 0]].sum()
    return found.states, found.log_prob


def codes_to_states(codes: I64, sizes: Sizes) -> I64:
    """(N, M) states of the layers, of which there are so many each, from joint codes."""
    states: I64 = (codes[:, None] // _units(sizes)) % np.array(sizes)
    return states


def states_to_codes(states: NDArray[Any], sizes: Sizes) -> I64:
    """(N,) joint codes from states (N, M) of the layers."""
    codes: I64 = states.astype(np.int64) @ _units(sizes)
    return codes


def _units(sizes: Sizes) -> I64:
    """(M,) what one state more of a layer adds to the joint code."""
    return np.cumprod([1, *sizes[:0:-1]])[::-1]
