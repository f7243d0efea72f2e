"""The most probable path through a block chain: max in place of sum, over live states alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.block_operators import (
    BlockLowRank,
    Blocks,
    PairSparse,
    live_blocks,
    live_offsets,
    live_states,
)
from undertow.kernels.types import F32, I64


@njit(cache=True, nogil=True)
def _best_from(T: Any, b: int, b_next: int, score: Any, out: Any, came: Any) -> None:
    """out[z'] = max_z score[z] + log T[z, z'] over live states, `came` the z that reaches it (from 0 within b)."""
    first, pair, starts, data, leave, arrive = T
    low, high = live_blocks(b, len(first) - 1)
    low_next, high_next = live_blocks(b_next, len(first) - 1)
    base, base_next = first[low], first[low_next]
    out[: first[high_next] - base_next] = -np.inf
    came[: first[high_next] - base_next] = 0
    for i in range(low, high):
        for j in range(low_next, high_next):
            p, k_next = pair[i, j], first[j + 1] - first[j]
            for x in range(first[i], first[i + 1]):
                for y in range(first[j], first[j + 1]):
                    step = leave[x] * arrive[y] if p < 0 else data[starts[p] + (x - first[i]) * k_next + y - first[j]]
                    s = score[x - base] + np.log(step)
                    if s > out[y - base_next]:
                        out[y - base_next] = s
                        came[y - base_next] = x - base


@njit(cache=True, nogil=True)
def _viterbi(ids: Any, bounds: Any, B: Any, T: Any, initial: Any, emission: Any, at: Any, came: Any, path: Any) -> None:
    word_block, first, starts = B
    score, following = np.empty(first[-1]), np.empty(first[-1])
    for s in range(len(bounds) - 1):
        for t in range(bounds[s], bounds[s + 1]):
            b = word_block[ids[t]]
            low, k = live_states(b, first)
            if t == bounds[s]:
                for x in range(k):
                    following[x] = np.log(initial[low + x])
            else:
                _best_from(T, word_block[ids[t - 1]], b, score, following, came[at[t] : at[t + 1]])
            for x in range(k):
                score[x] = following[x] + np.log(emission[starts[ids[t]] + (0 if b < 0 else x)])
        for t in range(bounds[s + 1] - 1, bounds[s] - 1, -1):
            if t == bounds[s + 1] - 1:
                path[t] = np.argmax(score[: at[t + 1] - at[t]])
            else:
                path[t] = came[at[t + 1] + path[t + 1]]
    for t in range(len(ids)):
        path[t] += live_states(word_block[ids[t]], first)[0]


def viterbi_blocks(ids: NDArray[Any], bounds: I64, blocks: Blocks, T: PairSparse, initial: F32, emission: F32) -> I64:
    """(T,) the states of the most probable path of each sequence; the first of equals."""
    ids, bounds = np.ascontiguousarray(ids, dtype=np.uint32), np.asarray(bounds, dtype=np.int64)
    at = live_offsets(blocks, ids)
    path = np.zeros(len(ids), dtype=np.int64)
    _viterbi(ids, bounds, blocks, T, initial, emission, at, np.empty(at[-1], dtype=np.int32), path)
    return path


def viterbi_low_rank(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: BlockLowRank, initial: F32, emission: F32
) -> I64:
    """The states of the most probable joint path z_1, f_1, z_2, f_2, …: on T itself the maximum does not factor."""
    path = np.zeros(len(ids), dtype=np.int64)
    with np.errstate(divide="ignore"):
        log_R, log_ET, log_initial, log_emission = (np.log(x) for x in (T.R, T.ET, initial, emission))
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        came, lows, score, before = [], [], np.empty(0), slice(None)
        for t in range(start, stop):
            b = blocks.word_block[ids[t]]
            live = slice(None) if b < 0 else slice(blocks.first[b], blocks.first[b + 1])
            lows.append(0 if b < 0 else int(blocks.first[b]))
            if t == start:
                score = log_initial[live].astype(np.float64)
            else:
                to_feature = score[:, None] + log_R[before]  # (k, F)
                best, by = to_feature.argmax(axis=0), to_feature.max(axis=0)
                onward = by + log_ET[live]  # (k', F)
                came.append(best[onward.argmax(axis=1)])
                score = onward.max(axis=1)
            score = score + log_emission[blocks.starts[ids[t]] : blocks.starts[ids[t] + 1]]
            before = live
        if stop > start:
            path[stop - 1] = score.argmax()
            for t in range(stop - 2, start - 1, -1):
                path[t] = came[t - start][path[t + 1]]
            path[start:stop] += lows
    return path
