"""Forward–backward of a pair-sparse chain over the live states of each token, one sequence after the other.

The loops take and give flat arrays, release the GIL, and are the same for one sentence and for a stream: a sequence is
whatever the state is carried through. A missing observation leaves all states alive, and the same loops run over all
blocks: slower, and exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.block_operators import PairSparse, count_pairs, pull_pairs, push_pairs
from undertow.kernels.chain.blocks import FAST, Blocks, emitted_alike, live_offsets, live_states
from undertow.kernels.chain.leave_one_out import left_out_logs, without_words
from undertow.kernels.chain.operators import add_stats
from undertow.kernels.types import F32, F64, I64


@njit(cache=True, nogil=True, fastmath=FAST)
def _condition(pred: Any, emission: Any, start: int, alike: bool, out: Any) -> float:
    """out = pred ∘ emission, scaled to sum to one; the sum before scaling. A sum of zero leaves zeros."""
    total = 0.0
    for x in range(len(out)):
        v = pred[x] * emission[start + (0 if alike else x)]
        out[x] = v
        total += v
    if total > 0:
        scale = np.float32(1 / total)
        for x in range(len(out)):
            out[x] *= scale
    return total


@njit(cache=True, nogil=True)
def _forward(ids: Any, bounds: Any, B: Any, T: Any, initial: Any, emission: Any, at: Any, filt: Any, norm: Any) -> None:
    """Filtered distributions and normalizers p(x_t | x_<t) of the tokens bounds[s] .. bounds[s + 1] - 1 for each s.

    The live states of token t are filt[at[t] : at[t + 1]]. After a word of probability zero the chain continues
    from the prediction, so that the rest of the sequence still has probabilities.
    """
    word_block, first, starts = B
    pred = np.empty(first[-1], dtype=np.float32)
    for s in range(len(bounds) - 1):
        for t in range(bounds[s], bounds[s + 1]):
            b = word_block[ids[t]]
            low, k = live_states(b, first)
            if t == bounds[s]:
                pred[:k] = initial[low : low + k]
            else:
                push_pairs(T, word_block[ids[t - 1]], b, filt[at[t - 1] : at[t]], pred)
            now = filt[at[t] : at[t + 1]]
            norm[t] = _condition(pred, emission, starts[ids[t]], emitted_alike(starts, ids[t]), now)
            if norm[t] <= 0:
                total = pred[:k].sum()
                if total > 0:
                    now[:] = pred[:k] / total
                else:
                    now[:] = np.float32(1 / k)


@njit(cache=True, nogil=True, fastmath=FAST)
def _ahead(beta: Any, emission: Any, start: int, alike: bool, out: Any) -> Any:
    """out ∝ emission ∘ β: the likelihood of a token and all after it given its state, the largest entry one.

    Returns what the largest entry was.

    The usual scale 1/p(x_t | x_<t) lets entries grow without bound at surprising words; this one never overflows.
    """
    largest = np.float32(0)
    for x in range(len(beta)):
        v = beta[x] * emission[start + (0 if alike else x)]
        out[x] = v
        largest = max(largest, v)
    if largest > 0:
        scale = np.float32(1) / largest
        for x in range(len(beta)):
            out[x] *= scale
    return largest


@njit(cache=True, nogil=True)
def _backward(
    ids: Any,
    bounds: Any,
    B: Any,
    T: Any,
    emission: Any,
    at: Any,
    filt: Any,
    weights: Any,
    n_emission: Any,
    n_initial: Any,
) -> None:
    """Turn `filt` into smoothed distributions in place; unless `weights` is empty, add up what the M-step needs."""
    word_block, first, starts = B
    count = len(weights) > 0
    beta = np.empty(first[-1], dtype=np.float32)
    ahead = np.empty(first[-1], dtype=np.float32)
    for s in range(len(bounds) - 1):
        for t in range(bounds[s + 1] - 1, bounds[s] - 1, -1):
            b = word_block[ids[t]]
            low, k = live_states(b, first)
            now = filt[at[t] : at[t + 1]]
            last = t == bounds[s + 1] - 1
            if last:
                beta[:k] = 1
            else:
                word = ids[t + 1]
                b_next = word_block[word]
                _ahead(beta[: at[t + 2] - at[t + 1]], emission, starts[word], emitted_alike(starts, word), ahead)
                pull_pairs(T, b, b_next, ahead, beta)
            total = 0.0
            for x in range(k):
                total += now[x] * beta[x]
            if total > 0:
                if count and not last:
                    count_pairs(T, b, b_next, now, ahead, 1 / total, weights)
                scale = np.float32(1 / total)
                for x in range(k):
                    now[x] *= beta[x] * scale
            if count:
                alike = emitted_alike(starts, ids[t])
                for x in range(k):
                    n_emission[starts[ids[t]] + (0 if alike else x)] += now[x]
                if t == bounds[s]:
                    for x in range(k):
                        n_initial[low + x] += now[x]


@njit(cache=True, nogil=True)
def _send_back(
    ids: Any,
    bounds: Any,
    B: Any,
    T: Any,
    emission: Any,
    at: Any,
    ahead: Any,
    log_scale: Any,
    filt: Any,
    agreement: Any,
) -> None:
    """The messages of all tokens to the tokens before them, the largest entry one; log_scale has what it was.

    Unless `filt` is empty, agreement[t] becomes Σ filt_t ∘ (T · message of t + 1), 1 at the end of a sequence.
    """
    word_block, first, starts = B
    beta = np.empty(first[-1], dtype=np.float32)
    for s in range(len(bounds) - 1):
        total = 0.0
        for t in range(bounds[s + 1] - 1, bounds[s] - 1, -1):
            k = at[t + 1] - at[t]
            if t == bounds[s + 1] - 1:
                beta[:k] = 1
            else:
                pull_pairs(T, word_block[ids[t]], word_block[ids[t + 1]], ahead[at[t + 1] : at[t + 2]], beta)
                if len(filt):
                    agreement[t] = 0
                    for x in range(k):
                        agreement[t] += filt[at[t] + x] * beta[x]
            alike = emitted_alike(starts, ids[t])
            total += np.log(_ahead(beta[:k], emission, starts[ids[t]], alike, ahead[at[t] : at[t + 1]]))
            log_scale[t] = total


class Messages(NamedTuple):
    """What each token and all after it say about the token's state, over its live states.

    p(x_t, x_t+1, … | z_t) = values[at[t] : at[t + 1]] · exp(log_scale[t]).
    """

    log_scale: F64  # (T,)
    at: I64  # (T + 1,)
    values: F32


class BlockPosterior(NamedTuple):
    """Distributions over the live states of each token: token t has values[at[t] : at[t + 1]]."""

    log_probabilities: F64  # (T,) log p(x_t | x_<t); -inf for a word of probability zero
    at: I64  # (T + 1,)
    values: F32


def project_live(posterior: BlockPosterior, low: I64, table: F32) -> F32:
    """(T, d) each token's distribution times the rows of a (Z, d) table; `low` is the first live state of each."""
    out = np.zeros((len(low), table.shape[1]), dtype=np.float32)
    _project_live(posterior.at, posterior.values, low, np.ascontiguousarray(table, dtype=np.float32), out)
    return out


def spread_live(posterior: BlockPosterior, low: I64, n_states: int) -> F32:
    """(T, Z) each token's distribution, zero for states that are not alive."""
    out = np.zeros((len(low), n_states), dtype=np.float32)
    _spread_live(posterior.at, posterior.values, low, out)
    return out


def best_live(posterior: BlockPosterior, low: I64) -> I64:
    """(T,) each token's most probable state, the first of equals."""
    out = np.empty(len(low), dtype=np.int64)
    _best_live(posterior.at, posterior.values, low, out)
    return out


@njit(cache=True, nogil=True, fastmath={"contract"})
def _project_live(at: Any, values: Any, low: Any, table: Any, out: Any) -> None:
    """Equivalent to `out[t] = values[at[t] : at[t + 1]] @ table[low[t] : low[t] + k]`: a token's row is the same in
    any company, which a matrix product of many tokens does not promise."""
    for t in range(len(low)):
        row = out[t]
        for x in range(at[t + 1] - at[t]):
            p, line = values[at[t] + x], table[low[t] + x]
            if p > 0:
                for d in range(len(row)):
                    row[d] += p * line[d]


@njit(cache=True, nogil=True)
def _spread_live(at: Any, values: Any, low: Any, out: Any) -> None:
    for t in range(len(low)):
        out[t, low[t] : low[t] + at[t + 1] - at[t]] = values[at[t] : at[t + 1]]


@njit(cache=True, nogil=True)
def _best_live(at: Any, values: Any, low: Any, out: Any) -> None:
    for t in range(len(low)):
        out[t] = low[t] + np.argmax(values[at[t] : at[t + 1]])


class BlockStats(NamedTuple):
    """Expected counts of a text; additive."""

    log_likelihood: float
    n_tokens: int
    pairs: F64  # as PairSparse.data
    emission: F64  # as the emissions
    initial: F64  # (Z,)

    def __add__(self, other: Any) -> BlockStats:
        return add_stats(self, other)


def filter_blocks(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: PairSparse, initial: F32, emission: F32
) -> BlockPosterior:
    """Filtered distributions p(z_t | x_≤t); `bounds` are the edges of independent sequences."""
    ids, bounds = _tokens(ids), np.asarray(bounds, dtype=np.int64)
    at = live_offsets(blocks, ids)
    values, norm = np.empty(at[-1], dtype=np.float32), np.empty(len(ids))
    _forward(ids, bounds, blocks, T, initial, emission, at, values, norm)
    return BlockPosterior(log_or_minus_inf(norm), at, values)


def smooth_blocks(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: PairSparse, initial: F32, emission: F32
) -> BlockPosterior:
    """Smoothed distributions p(z_t | x)."""
    posterior = filter_blocks(ids, bounds, blocks, T, initial, emission)
    none = np.empty(0)
    bounds = np.asarray(bounds, dtype=np.int64)
    _backward(_tokens(ids), bounds, blocks, T, emission, posterior.at, posterior.values, none, none, none)
    return posterior


def messages_blocks(ids: NDArray[Any], bounds: I64, blocks: Blocks, T: PairSparse, emission: F32) -> Messages:
    """The backward pass alone."""
    ids, bounds = _tokens(ids), np.asarray(bounds, dtype=np.int64)
    at = live_offsets(blocks, ids)
    values, log_scale, none = np.empty(at[-1], dtype=np.float32), np.empty(len(ids)), np.empty(0)
    _send_back(ids, bounds, blocks, T, emission, at, values, log_scale, none.astype(np.float32), none)
    return Messages(log_scale, at, values)


def log_both_sides_blocks(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: PairSparse, initial: F32, emission: F32
) -> F64:
    """(T,) log p(x_t | all other tokens of its sequence)."""
    ids, bounds = _tokens(ids), np.asarray(bounds, dtype=np.int64)
    at = live_offsets(blocks, ids)
    filt, ahead, (norm, log_scale) = *np.empty((2, at[-1]), dtype=np.float32), np.empty((2, len(ids)))
    _forward(ids, bounds, blocks, T, initial, emission, at, filt, norm)
    agreement = np.ones(len(ids))
    _send_back(ids, bounds, blocks, T, emission, at, ahead, log_scale, filt, agreement)
    without = without_words(bounds, blocks, blocks.word_block[ids], T, initial, at, filt, ahead)
    return left_out_logs(norm, agreement, without, bounds)


def block_statistics(
    ids: NDArray[Any],
    bounds: I64,
    blocks: Blocks,
    T: PairSparse,
    initial: F32,
    emission: F32,
    pair_type: type[np.floating[Any]] = np.float64,
) -> BlockStats:
    """The E-step: expected counts of transitions within the pairs seen, emissions and starts.

    float32 for the pairs takes half the memory, and is good enough for the sums of a small batch of text.
    """
    ids, bounds = _tokens(ids), np.asarray(bounds, dtype=np.int64)
    posterior = filter_blocks(ids, bounds, blocks, T, initial, emission)
    pairs, n_emission = np.zeros(len(T.data), dtype=pair_type), np.zeros(len(emission))
    n_initial = np.zeros(blocks.n_states)
    _backward(ids, bounds, blocks, T, emission, posterior.at, posterior.values, pairs, n_emission, n_initial)
    pairs *= T.data
    return BlockStats(float(posterior.log_probabilities.sum()), len(ids), pairs, n_emission, n_initial)


def _tokens(ids: NDArray[Any]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(ids, dtype=np.uint32)


def log_or_minus_inf(norm: F64) -> F64:
    with np.errstate(divide="ignore"):
        return np.log(norm)
