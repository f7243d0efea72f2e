"""The most probable path: one recursion for every kind of chain.

A chain is a NamedTuple with all that its scores need, and three compiled functions chosen by its type:

    best_step(chain, t, score, spare, came, at)   replace the best scores at t − 1 by those of the best way into each
                                                  live state of token t; `came` from `at` on gets where it came from
    add_evidence(chain, t, first, score, n)       add the scores of token t (and of the start, if it is the first) to
                                                  those of its n live states; False if a score is NaN or +inf
    origin(chain, came, at, state)                the state of token t − 1 on the best way into `state`

They are overloads in Numba's sense, so that the loops are compiled together. `spare` is scratch as long as `score`;
the two are not exchanged after a step and `came` is not cut, which with four states took a quarter longer.

Here are a dense chain with any log scores, and block chains with pairs or with features; the layers of a factorial
chain are in factorial/viterbi.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse, live_blocks
from undertow.kernels.chain.blocks import Blocks, emitted_alike, live_firsts, live_offsets, live_states
from undertow.kernels.overloads import borrowed, implement
from undertow.kernels.types import F32, F64, I64


def best_step(chain: Any, t: Any, score: Any, spare: Any, came: Any, at: Any) -> Any:
    raise TypeError(f"{type(chain).__name__} is not a chain that compiled code knows")


def add_evidence(chain: Any, t: Any, first: Any, score: Any, n: Any) -> Any:
    raise TypeError(f"{type(chain).__name__} is not a chain that compiled code knows")


def origin(chain: Any, came: Any, at: Any, state: Any) -> Any:
    raise TypeError(f"{type(chain).__name__} is not a chain that compiled code knows")


class BestPaths(NamedTuple):
    """States of the best path of each sentence, numbered from the first live one, and its joint log score.

    A sentence without a possible path has states −1 and score −inf; an empty one has score 0.
    """

    states: I64  # (N,)
    log_prob: F64  # (n_sentences,)
    bad_token: int  # a token with a score that is NaN or +inf, or −1


def best_paths(
    chain: Any, bounds: I64, at: I64, n_states: int, n_layers: int = 1, came_dtype: Any = np.int32
) -> BestPaths:
    """The best path of each sentence; of equal ones that with the lower states at the end.

    at (N + 1,): where the `came` of each token begins; it has n_layers cells for each live state, of which no token has
    more than n_states.
    """
    states, log_prob = np.full(len(at) - 1, -1, dtype=np.int64), np.zeros(len(bounds) - 1)
    n_cells = int(np.diff(at[bounds]).max(initial=0))
    came = np.empty(n_cells, dtype=came_dtype)
    bad = _best_paths(chain, bounds, at, n_states, n_layers, came, states, log_prob)
    return BestPaths(states, log_prob, int(bad))


@njit(cache=True, nogil=True)
def _best_paths(
    chain: Any, bounds: Any, at: Any, n_states: int, n_layers: int, came: Any, states: Any, log_prob: Any
) -> int:
    score, spare = np.empty(n_states), np.empty(n_states)  # aligned for vectors here, unlike NumPy's own
    return int(_all_paths(chain, bounds, at, n_layers, came, score, spare, states, log_prob))


@njit(cache=True, nogil=True)
def _all_paths(
    chain: Any, bounds: Any, at: Any, n_layers: Any, came: Any, score: Any, spare: Any, states: Any, log_prob: Any
) -> Any:
    chain, came, score, spare = borrowed(chain), borrowed(came), borrowed(score), borrowed(spare)
    for s in range(len(bounds) - 1):
        start, stop = bounds[s], bounds[s + 1]
        if stop == start:
            continue
        base = at[start]
        score[: at[start + 1] - base] = 0.0
        for t in range(start, stop):
            if t > start:
                best_step(chain, t, score, spare, came, at[t] - base)
            n_live = at[t + 1] - at[t]
            if n_layers > 1:
                n_live //= n_layers
            if not add_evidence(chain, t, t == start, score, n_live):
                return t
        state = np.int64(np.argmax(score[:n_live]))
        log_prob[s] = score[state]
        if score[state] > -np.inf:
            for t in range(stop - 1, start, -1):
                states[t] = state
                state = origin(chain, came, at[t] - base, state)
            states[start] = state
    return -1


def _came_itself(chain: Any, came: Any, at: Any, state: Any) -> Any:
    return np.int64(came[at + state])


# --- a dense chain with any log scores ------------------------------------------------------------------


class LogScores(NamedTuple):
    """Scores that need not be normalized."""

    initial: F64  # (K,)
    transition: F64  # (K, K)
    tokens: F64  # (N, K)


WIDE = 16  # from this width on, `max_plus` is faster than a loop of scalars


@njit(cache=True, nogil=True)
def max_plus(score: Any, table: Any, out: Any, came: Any) -> None:
    """out[j] = max_i score[i] + table[i, j]; `came` gets the first such i.

    By itself and stored without branches, because only then the loops run on vectors: inside the recursion they took
    five times as long. Two rows at a time, so that `out` and `came` are read and written half as often.
    """
    n = len(score)
    for j in range(len(out)):
        out[j], came[j] = -np.inf, 0
    for i in range(0, n - 1, 2):
        before, before_next = score[i], score[i + 1]
        for j in range(len(out)):
            value, best, origin_of_best = before + table[i, j], out[j], came[j]
            better = value > best
            best, origin_of_best = value if better else best, came.dtype.type(i) if better else origin_of_best
            value = before_next + table[i + 1, j]
            better = value > best
            out[j], came[j] = value if better else best, came.dtype.type(i + 1) if better else origin_of_best
    if n % 2:
        before = score[n - 1]
        for j in range(len(out)):
            value = before + table[n - 1, j]
            better = value > out[j]
            out[j], came[j] = value if better else out[j], came.dtype.type(n - 1) if better else came[j]


def _dense_step(chain: Any, t: Any, score: Any, spare: Any, came: Any, at: Any) -> Any:
    n = len(score)
    if n >= WIDE:
        max_plus(score, chain.transition, spare, came[at : at + n])
    else:
        for j in range(n):
            best, origin_of_best = -np.inf, 0
            for i in range(n):
                value = score[i] + chain.transition[i, j]
                better = value > best
                best, origin_of_best = value if better else best, i if better else origin_of_best
            spare[j], came[at + j] = best, origin_of_best
    for j in range(n):
        score[j] = spare[j]


def _dense_evidence(chain: Any, t: Any, first: Any, score: Any, n: Any) -> Any:
    for k in range(n):
        if np.isnan(chain.tokens[t, k]) or chain.tokens[t, k] == np.inf:
            return False
        if first:
            score[k] += chain.initial[k]
        score[k] += chain.tokens[t, k]
    return True


implement(LogScores, {best_step: _dense_step, add_evidence: _dense_evidence, origin: _came_itself})


# --- chains with blocks ---------------------------------------------------------------------------------


class PairScores(NamedTuple):
    """A pair-sparse chain and a text; logs are taken of the few numbers that a step needs."""

    ids: NDArray[np.uint32]
    blocks: Blocks
    T: PairSparse
    initial: F32
    emission: F32


def _pair_step(chain: Any, t: Any, score: Any, spare: Any, came: Any, at: Any) -> Any:
    first, pair, starts, data, leave, arrive = chain.T
    low, high = live_blocks(chain.blocks.word_block[chain.ids[t - 1]], len(first) - 1)
    low_next, high_next = live_blocks(chain.blocks.word_block[chain.ids[t]], len(first) - 1)
    base, base_next = first[low], first[low_next]
    n = first[high_next] - base_next
    for y in range(n):
        spare[y], came[at + y] = -np.inf, 0
    for i in range(low, high):
        for j in range(low_next, high_next):
            p, k_next = pair[i, j], first[j + 1] - first[j]
            for x in range(first[i], first[i + 1]):
                for y in range(first[j], first[j + 1]):
                    step = leave[x] * arrive[y] if p < 0 else data[starts[p] + (x - first[i]) * k_next + y - first[j]]
                    value = score[x - base] + np.log(step)
                    if value > spare[y - base_next]:
                        spare[y - base_next] = value
                        came[at + y - base_next] = x - base
    for y in range(n):
        score[y] = spare[y]


def _pair_evidence(chain: Any, t: Any, first: Any, score: Any, n: Any) -> Any:
    word = chain.ids[t]
    low = live_states(chain.blocks.word_block[word], chain.blocks.first)[0]
    alike = emitted_alike(chain.blocks.starts, word)
    for x in range(n):
        if first:
            score[x] += np.log(chain.initial[low + x])
        score[x] += np.log(chain.emission[chain.blocks.starts[word] + (0 if alike else x)])
    return True


implement(PairScores, {best_step: _pair_step, add_evidence: _pair_evidence, origin: _came_itself})


class FeatureScores(NamedTuple):
    """A low-rank chain and a text, all in logs."""

    ids: NDArray[np.uint32]
    blocks: Blocks
    R: F32  # (Z, F)
    ET: F32  # (Z, F)
    initial: F32
    emission: F32


def _feature_step(chain: Any, t: Any, score: Any, spare: Any, came: Any, at: Any) -> Any:
    """The best feature into each state, and the best state into that feature."""
    n_features = chain.R.shape[1]
    best, by = np.full(n_features, -np.inf), np.zeros(n_features, dtype=np.int64)
    low, k = live_states(chain.blocks.word_block[chain.ids[t - 1]], chain.blocks.first)
    for x in range(k):
        for f in range(n_features):
            value = score[x] + chain.R[low + x, f]
            if value > best[f]:
                best[f], by[f] = value, x
    low, k = live_states(chain.blocks.word_block[chain.ids[t]], chain.blocks.first)
    for y in range(k):
        score[y], came[at + y] = -np.inf, by[0]
        for f in range(n_features):
            value = best[f] + chain.ET[low + y, f]
            if value > score[y]:
                score[y], came[at + y] = value, by[f]


def _feature_evidence(chain: Any, t: Any, first: Any, score: Any, n: Any) -> Any:
    word = chain.ids[t]
    low = live_states(chain.blocks.word_block[word], chain.blocks.first)[0]
    alike = emitted_alike(chain.blocks.starts, word)
    for x in range(n):
        if first:
            score[x] += chain.initial[low + x]
        score[x] += chain.emission[chain.blocks.starts[word] + (0 if alike else x)]
    return True


implement(FeatureScores, {best_step: _feature_step, add_evidence: _feature_evidence, origin: _came_itself})


def viterbi_blocks(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: PairSparse | BlockLowRank, initial: F32, emission: F32
) -> I64:
    """(T,) the states of the most probable path of each sequence; −1 where none is possible.

    With a low rank, those of the most probable joint path z_1, f_1, z_2, f_2, …: on T itself the maximum does not
    factor.
    """
    ids, bounds = np.ascontiguousarray(ids, dtype=np.uint32), np.asarray(bounds, dtype=np.int64)
    chain: PairScores | FeatureScores
    if isinstance(T, PairSparse):
        chain = PairScores(ids, blocks, T, initial, emission)
    else:
        with np.errstate(divide="ignore"):
            chain = FeatureScores(ids, blocks, np.log(T.R), np.log(T.ET), np.log(initial), np.log(emission))
    found = best_paths(chain, bounds, live_offsets(blocks, ids), blocks.n_states)
    return np.where(found.states < 0, -1, found.states + live_firsts(blocks, ids))
