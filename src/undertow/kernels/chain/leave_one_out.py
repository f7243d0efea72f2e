"""The probability of each token given all others of its sequence: left out one at a time, all by two passes.

    p(x_t | x_≠t) = p(x_t | x_<t) · (α_t · β_t) / (α_{t−1} T · β_t),    β_t = T m_{t+1},

with α filtered, and m_t the message of token t and all after it. The last product runs over all states even where a
word has few live ones: without the word there is nothing to say which. In a chain with blocks it is
α_{t−1} (T T)[b, b''] m_{t+1}, where b and b'' are the blocks of the neighbors: pairs of blocks that come often have
their matrix of T T computed once; the tokens of the others go through T from both sides in large products.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.batched import (
    DEFAULT_TILES,
    Batch,
    ChainParams,
    Forward,
    Tiles,
    batches,
    cut_chunks,
    fill_chunk,
)
from undertow.kernels.chain.block_operators import PairSparse
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.lanes import Buffers
from undertow.kernels.types import F32, F64, I64

Array = NDArray[Any]
SLAB_BYTES = 1 << 28  # of T, all states by the states of a slab
# Tokens that go through T from both sides together, by so many states: with fewer tokens the products of a block are
# thin, with more states they leave the cache
TOKENS_AT_A_TIME = 1 << 14
STATES_AT_A_TIME = 768
FEW_TOKENS = 256  # up to so many go through T one by one: a slab takes as long as a thousand of them


def ends(bounds: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(T,) which tokens are the first, and which the last, of their sequence."""
    bounds = np.asarray(bounds)
    first, last = np.zeros((2, int(bounds[-1])), dtype=np.bool_)
    there = np.diff(bounds) > 0
    first[bounds[:-1][there]] = True
    last[bounds[1:][there] - 1] = True
    return first, last


def left_out_logs(norm: F64, with_it: F64, without: F64, bounds: NDArray[Any]) -> F64:
    """log (norm · with_it / without), −inf for all tokens of a sequence that has probability zero."""
    impossible = (~(norm > 0) | ~(with_it > 0) | ~(without > 0)).astype(np.int64)
    before = np.concatenate(([0], np.cumsum(impossible)))
    dead = np.repeat(before[bounds[1:]] > before[bounds[:-1]], np.diff(bounds))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(norm) + np.log(with_it) - np.log(without)
    return np.where(dead, -np.inf, np.minimum(logs, 0.0))  # rounding may lift a certain word above one


# --- chains without blocks ------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _leave_out(
    alpha: Any, pred: Any, beta: Any, emission: Any, word: Any, with_it: Any, without: Any, message: Any
) -> None:
    """with_it = Σ α∘β and without = Σ pred∘β, row by row; message = o ∘ β, the largest entry one.

    States that the filter rules out keep their messages: they may be possible when the token before is left out.
    """
    for r in range(len(beta)):
        a, p, b, m = alpha[r], pred[r], beta[r], message[r]
        one, other, largest = 0.0, 0.0, beta.dtype.type(0)
        for z in range(len(b)):
            one += a[z] * b[z]
            other += p[z] * b[z]
        if word[r] >= 0:
            o = emission[word[r]]
            for z in range(len(b)):
                m[z] = o[z] * b[z]
        else:
            m[:] = b
        for z in range(len(b)):
            largest = max(largest, m[z])
        if largest > 0:
            for z in range(len(b)):
                m[z] /= largest
        with_it[r], without[r] = one, other


def log_both_sides_plain(ids: Array, offsets: I64, params: ChainParams, tiles: Tiles = DEFAULT_TILES) -> F64:
    """(N,) log p(x_t | all other tokens of its sentence); −inf in sentences of probability zero."""
    norm, with_it, without = np.ones((3, len(ids)))
    buffers = Buffers()
    for batch in batches(ids, offsets, len(params.initial), tiles.n_lanes):
        forward, one, other = _leave_out_batch(params, batch, buffers, tiles)
        norm[batch.token], with_it[batch.token], without[batch.token] = forward.normalizer, one, other
    return left_out_logs(norm, with_it, without, offsets)


def _leave_out_batch(params: ChainParams, batch: Batch, buffers: Buffers, tiles: Tiles) -> tuple[Forward, F64, F64]:
    forward = Forward(params, batch, buffers)
    Z, dtype, n_rows = len(params.initial), params.emission.dtype, len(batch.token)
    with_it, without = np.ones((2, n_rows))
    chunks = cut_chunks(batch, Z * dtype.itemsize, tiles.chunk_bytes)
    checkpoints: list[Array | None] = [None]
    alpha, _ = fill_chunk(forward, chunks[0], None)
    for chunk in chunks[1:]:
        checkpoints.append(alpha[len(alpha) - int(batch.n_alive[chunk.start - 1]) :].copy())
        alpha, _ = fill_chunk(forward, chunk, checkpoints[-1])
    beta = buffers.take("beta", int(batch.n_alive[0]), Z, dtype)
    beta[:] = 1
    for i in range(len(chunks) - 1, -1, -1):
        chunk = chunks[i]
        if i < len(chunks) - 1:
            alpha, _ = fill_chunk(forward, chunk, checkpoints[i])
        for t in range(chunk.stop - 1, chunk.start - 1, -1):
            n, rows = int(batch.n_alive[t]), slice(int(batch.at[t]), int(batch.at[t + 1]))
            here = alpha[rows.start - chunk.base : rows.stop - chunk.base]
            pred = buffers.take("pred", n, Z, dtype)
            if t:
                before = int(batch.at[t - 1]) - chunk.base
                params.transition.push(alpha[before : before + n], pred)
            else:
                pred[:] = params.initial
            message = buffers.take("message", n, Z, dtype)
            _leave_out(here, pred, beta[:n], params.emission, batch.word[rows], with_it[rows], without[rows], message)
            if t:
                params.transition.pull(message, beta[:n])
    return forward, with_it, without


# --- chains with blocks and a matrix for each pair ------------------------------------------------------


@njit(cache=True, nogil=True)
def _part(T: Any, low: int, high: int, low_next: int, high_next: int, out: Any) -> None:
    """Equivalent to `out[:] = dense[states of blocks low..high − 1][:, those of blocks low_next..high_next − 1]`."""
    first, pair, starts, data, leave, arrive = T
    for i in range(low, high):
        for j in range(low_next, high_next):
            p, k_next, column = pair[i, j], first[j + 1] - first[j], first[j] - first[low_next]
            for x in range(first[i + 1] - first[i]):
                row = out[first[i] - first[low] + x]
                if p < 0:
                    for y in range(k_next):
                        row[column + y] = leave[first[i] + x] * arrive[first[j] + y]
                else:
                    e = starts[p] + x * k_next
                    for y in range(k_next):
                        row[column + y] = data[e + y]


class _Neighbors:
    """The distributions before and the messages after the tokens that have both neighbors, ordered by their blocks."""

    def __init__(self, block: NDArray[Any], inner: I64, at: I64, filt: F32, ahead: F32) -> None:
        before, after = block[inner - 1].astype(np.int64), block[inner + 1].astype(np.int64)
        order = np.lexsort((after, before))
        self.token, self.before, self.after = inner[order], before[order], after[order]
        self.at, self.filt, self.ahead = at, filt, ahead
        cut = (np.diff(self.before) != 0) | (np.diff(self.after) != 0)
        self.edges = np.concatenate(([0], np.flatnonzero(cut) + 1, [len(inner)])) if len(inner) else np.zeros(1, int)

    def rows(self, which: Any, k: int, side: int) -> F32:
        """(n, k) distributions of the tokens before (side −1) or messages of those after (+1)."""
        values = self.filt if side < 0 else self.ahead
        return np.asarray(values[self.at[self.token[which] + side, None] + np.arange(k)])

    def often(self, sizes: I64) -> NDArray[np.bool_]:
        """Pairs of blocks with so many tokens that the matrix of T T is cheaper than the tokens' own products."""
        b, b_next, n = self.before[self.edges[:-1]], self.after[self.edges[:-1]], np.diff(self.edges)
        k, k_next = sizes[b], sizes[b_next]
        return np.asarray((b >= 0) & (b_next >= 0) & (n * (k + k_next) > k * k_next))


def without_words(
    bounds: I64, blocks: Blocks, block: NDArray[Any], T: PairSparse, initial: F32, at: I64, filt: F32, ahead: F32
) -> F64:
    """(T,) α_{t−1} T · T m_{t+1}: how well the two sides of a token agree when its own word is not looked at.

    `block` is the block of each token; filt and ahead are laid out by live states as `at` says.
    """
    first, last = ends(bounds)
    out = np.ones(len(block))
    starts = np.flatnonzero(first & ~last)
    if len(starts):
        second = T.push(initial)
        for t in starts.tolist():
            live = blocks.live(int(block[t + 1]))
            out[t] = float(second[live].astype(np.float64) @ ahead[at[t + 1] : at[t + 2]])
    near = _Neighbors(block, np.flatnonzero(~first & ~last), at, filt, ahead)
    if not len(near.token):
        return out
    if len(near.token) <= FEW_TOKENS:
        for t in near.token.tolist():
            pred = T.push_from(int(block[t - 1]), filt[at[t - 1] : at[t]]).astype(np.float64)
            out[t] = float(pred @ T.pull_to(int(block[t + 1]), ahead[at[t + 1] : at[t + 2]]))
        return out
    total = np.zeros(len(near.token))
    often = near.often(blocks.sizes)
    pairs = [slice(int(a), int(b)) for a, b in zip(near.edges[:-1][often], near.edges[1:][often], strict=True)]
    rare = np.flatnonzero(np.repeat(~often, np.diff(near.edges)))
    for slab_in, slab_out in _slabs(blocks, T):
        _add_often(near, pairs, blocks, slab_in, slab_out, total)
        for start in range(0, len(rare), TOKENS_AT_A_TIME):
            _add_rare(near, rare[start : start + TOKENS_AT_A_TIME], blocks, slab_in, slab_out, total)
    out[near.token] = total
    return out


def _slabs(blocks: Blocks, T: PairSparse) -> Iterator[tuple[F32, F32]]:
    """(T[:, slab] (Z, S), T[slab, :] (S, Z)) for runs of blocks that cover all states."""
    most = max(1, SLAB_BYTES // (4 * blocks.n_states))
    low = 0
    while low < blocks.n_blocks:
        high = int(np.searchsorted(blocks.first, blocks.first[low] + most, side="right")) - 1
        high = min(max(high, low + 1), blocks.n_blocks)
        S = int(blocks.first[high] - blocks.first[low])
        slab_in = np.empty((blocks.n_states, S), dtype=np.float32)
        _part(T, 0, blocks.n_blocks, low, high, slab_in)
        slab_out = slab_in
        if blocks.n_states > S:
            slab_out = np.empty((S, blocks.n_states), dtype=np.float32)
            _part(T, low, high, 0, blocks.n_blocks, slab_out)
        yield slab_in, slab_out
        low = high


def _add_often(near: _Neighbors, pairs: list[slice], blocks: Blocks, slab_in: F32, slab_out: F32, total: F64) -> None:
    packed, of = slab_out, None  # the columns of one block, side by side in memory
    for some in sorted(pairs, key=lambda some: int(near.after[some.start])):
        before, after = blocks.live(int(near.before[some.start])), blocks.live(int(near.after[some.start]))
        if of != after:
            packed, of = np.ascontiguousarray(slab_out[:, after]), after
        both = slab_in[before] @ packed
        come, go = near.rows(some, len(both), -1), near.rows(some, both.shape[1], +1)
        total[some] += np.einsum("nk,nk->n", come @ both, go)


def _add_rare(near: _Neighbors, some: I64, blocks: Blocks, slab_in: F32, slab_out: F32, total: F64) -> None:
    """α T, all states, from the blocks before; then what of it arrives at the block after: few numbers a token."""
    some = some[np.argsort(near.after[some], kind="stable")]
    come = [(part, *_live_rows(near, some[part], blocks, -1)) for part in _runs(near.before[some])]
    cuts = [0, *(np.flatnonzero(np.diff(near.after[some])) + 1).tolist(), len(some)]
    go = [(slice(a, b), *_live_rows(near, some[a:b], blocks, +1)) for a, b in pairwise(cuts)]
    found = np.zeros(len(some))
    arrived = [np.zeros(rows.shape if _few(live) else (0, 0), dtype=np.float32) for _, live, rows in go]
    for low in range(0, len(slab_out), STATES_AT_A_TIME):
        here = slice(low, low + STATES_AT_A_TIME)
        pred = np.empty((len(some), len(slab_out[here])), dtype=np.float32)
        for part, live, rows in come:
            pred[part] = rows @ slab_in[live, here]
        for (run, live, rows), arriving in zip(go, arrived, strict=True):
            if _few(live):
                np.add(arriving, pred[run] @ slab_out[here, live], out=arriving)
            else:  # a gap after the token: all states are alive
                found[run] += np.einsum("nz,nz->n", pred[run], rows @ slab_out[here, live].T)
    for (run, live, rows), arriving in zip(go, arrived, strict=True):
        if _few(live):
            found[run] += np.einsum("nk,nk->n", arriving, rows)
    total[some] += found


def _few(live: slice) -> bool:
    return bool(live.stop - live.start <= STATES_AT_A_TIME)


def _live_rows(near: _Neighbors, some: I64, blocks: Blocks, side: int) -> tuple[slice, F32]:
    """The live states of tokens of one block before or after these, and their distributions or messages."""
    live = blocks.live(int((near.before if side < 0 else near.after)[some[0]]))
    return live, near.rows(some, live.stop - live.start, side)


def _runs(keys: I64) -> list[I64]:
    """Indices of equal keys together."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)


__all__ = ["ends", "left_out_logs", "log_both_sides_plain", "without_words"]
