"""Forward–backward of a block chain whose transition passes through F features, z → f → z'.

A step costs O(k·F) for the k live states, whatever the number of states in all. Sequences run side by side, one *lane*
each; at every step the lanes whose tokens are of the same block go through one matrix product together. The
M-step's counts are products of what the recursions keep, multiplied block by block at the end, with long inner sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain.block_operators import BlockLowRank
from undertow.kernels.chain.blocks import Blocks, live_offsets
from undertow.kernels.chain.leave_one_out import ends, left_out_logs
from undertow.kernels.chain.operators import add_stats
from undertow.kernels.chain.sparse import BlockPosterior, Messages, log_or_minus_inf
from undertow.kernels.lanes import longest_first, pack
from undertow.kernels.types import F32, F64, I64

MISSING, FULL_ROW = -1, -2  # tokens that leave all states alive: with one emission number, or one for each state


class BlockLowRankStats(NamedTuple):
    """Expected counts of a text; additive."""

    log_likelihood: float
    n_tokens: int
    out: F64  # (Z, F) n(z, f)
    into: F64  # (Z, F) n(f, z'), by z'
    emission: F64
    initial: F64  # (Z,)

    def __add__(self, other: Any) -> BlockLowRankStats:
        return add_stats(self, other)


class _Text:
    """Token places cut into steps: the n-th step has the n-th token of every sequence that is so long."""

    def __init__(self, ids: NDArray[Any], bounds: I64, blocks: Blocks) -> None:
        self.ids = np.asarray(ids, dtype=np.int64)
        alike = np.diff(blocks.starts)[self.ids] == 1
        self.block = np.where((blocks.word_block[self.ids] < 0) & ~alike, FULL_ROW, blocks.word_block[self.ids])
        self.at = live_offsets(blocks, self.ids)
        self.blocks = blocks
        lengths = np.diff(bounds)
        order = longest_first(lengths)
        self.lanes = pack(np.asarray(bounds)[order], lengths[order])

    def steps(self, backwards: bool = False) -> Iterator[tuple[int, I64]]:
        numbers = range(len(self.lanes.n_alive))
        for n in reversed(numbers) if backwards else numbers:
            yield n, self.lanes.step(n)

    def n_going_on(self, n: int) -> int:
        """How many lanes have a token after step n."""
        return int(self.lanes.n_alive[n + 1]) if n + 1 < len(self.lanes.n_alive) else 0

    def groups(self, places: I64) -> Iterator[tuple[I64, slice, I64]]:
        """(lanes, their live states, where these lie in flat arrays) for each block among the tokens at `places`."""
        block = self.block[places]
        order = np.argsort(block, kind="stable")
        cuts = np.flatnonzero(np.diff(block[order])) + 1
        for lanes in np.split(order, cuts):
            live = self.blocks.live(int(block[lanes[0]]))
            yield lanes, live, self.at[places[lanes], None] + np.arange(live.stop - live.start)

    def emitted(self, emission: F32, places: I64, k: int) -> F32:
        """(n, k or 1) emission numbers of the tokens at `places`, which are of one block."""
        width = 1 if self.block[places[0]] == MISSING else k
        return np.asarray(emission[self.blocks.starts[self.ids[places], None] + np.arange(width)])


class _Forward(NamedTuple):
    values: F32  # filtered
    features: F32  # (T, F): α_{t-1}'R, from which token t was predicted
    norm: F64


def _forward(text: _Text, T: BlockLowRank, initial: F32, emission: F32) -> _Forward:
    values = np.empty(text.at[-1], dtype=np.float32)
    features = np.zeros((len(text.ids), T.R.shape[1]), dtype=np.float32)
    norm = np.empty(len(text.ids))
    for n, places in text.steps():
        for lanes, live, where in text.groups(places):
            here = places[lanes]
            pred = features[here] @ T.ET[live].T if n else np.broadcast_to(initial[live], where.shape)
            now = pred * text.emitted(emission, here, where.shape[1])
            total = now.sum(axis=1, dtype=np.float64)
            norm[here] = total
            nothing = ~(total > 0)
            if nothing.any():  # a word of probability zero: continue from the prediction
                now[nothing] = pred[nothing]
                total[nothing] = now[nothing].sum(axis=1)
                now[~(total > 0)] = 1.0
                total = now.sum(axis=1, dtype=np.float64)
            now *= (1 / total[:, None]).astype(np.float32)
            values[where] = now
            going_on = lanes < text.n_going_on(n)
            if going_on.any():
                features[here[going_on] + 1] = now[going_on] @ T.R[live]
    return _Forward(values, features, norm)


class _Backward(NamedTuple):
    ahead: F32  # like values: emission ∘ β, scaled so that ξ = α R E ahead
    behind: F32  # (T, F): E·ahead of token t, on the scale of ahead


def _backward(text: _Text, T: BlockLowRank, forward: _Forward, emission: F32) -> tuple[F32, _Backward]:
    """Smoothed distributions, and the messages that the counts need."""
    smooth = forward.values.copy()
    ahead = np.zeros_like(smooth)
    behind = np.zeros_like(forward.features)
    for n, places in text.steps(backwards=True):
        for lanes, live, where in text.groups(places):
            here = places[lanes]
            beta = np.ones(where.shape, dtype=np.float32)
            going_on = lanes < text.n_going_on(n)
            if going_on.any():
                beta[going_on] = behind[here[going_on] + 1] @ T.R[live].T
                now = smooth[where[going_on]] * beta[going_on]
                total = now.sum(axis=1)
                fine = total > 0
                smooth[where[going_on][fine]] = now[fine] / total[fine, None]
            if n:
                after = beta * text.emitted(emission, here, where.shape[1])
                largest = after.max(axis=1)
                after /= np.where(largest > 0, largest, 1)[:, None]
                product = after @ T.ET[live]
                # one scale for ahead and behind, so that u'·behind = 1 and the counts of a step sum to one
                total = np.einsum("nf,nf->n", forward.features[here], product)
                scale = np.divide(1, total, out=np.zeros_like(total), where=total > 0)[:, None]
                ahead[where] = after * scale
                behind[here] = product * scale
    return smooth, _Backward(ahead, behind)


class _SentBack(NamedTuple):
    messages: Messages
    behind: F32  # (T, F): E·message of token t


def _send_back(text: _Text, T: BlockLowRank, emission: F32) -> _SentBack:
    """The messages of all tokens to the tokens before them, the largest entry one."""
    values, log_scale = np.zeros(text.at[-1], dtype=np.float32), np.zeros(len(text.ids))
    behind = np.zeros((len(text.ids), T.R.shape[1]), dtype=np.float32)
    for n, places in text.steps(backwards=True):
        for lanes, live, where in text.groups(places):
            here = places[lanes]
            beta = np.ones(where.shape, dtype=np.float32)
            on = lanes < text.n_going_on(n)
            beta[on] = behind[here[on] + 1] @ T.R[live].T
            after = beta * text.emitted(emission, here, where.shape[1])
            largest = after.max(axis=1)
            after /= np.where(largest > 0, largest, 1)[:, None]
            values[where], behind[here] = after, after @ T.ET[live]
            log_scale[here] = log_or_minus_inf(largest.astype(np.float64))
            log_scale[here[on]] += log_scale[here[on] + 1]
    return _SentBack(Messages(log_scale, text.at, values), behind)


def messages_low_rank(ids: NDArray[Any], bounds: I64, blocks: Blocks, T: BlockLowRank, emission: F32) -> Messages:
    """The backward pass alone."""
    return _send_back(_Text(ids, bounds, blocks), T, emission).messages


def log_both_sides_low_rank(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: BlockLowRank, initial: F32, emission: F32
) -> F64:
    """(T,) log p(x_t | all other tokens): a token that is left out is a step through E·R, F × F."""
    text = _Text(ids, bounds, blocks)
    forward, behind = _forward(text, T, initial, emission), _send_back(text, T, emission).behind
    first, last = ends(bounds)
    into = forward.features @ (T.ET.T @ T.R)
    into[first] = initial @ T.R
    after = np.flatnonzero(~last) + 1
    with_it, without = np.ones(len(text.ids)), np.ones(len(text.ids))
    with_it[after - 1] = np.einsum("nf,nf->n", forward.features[after], behind[after], dtype=np.float64)
    without[after - 1] = np.einsum("nf,nf->n", into[after - 1], behind[after], dtype=np.float64)
    return left_out_logs(forward.norm, with_it, without, np.asarray(bounds))


def filter_low_rank(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: BlockLowRank, initial: F32, emission: F32
) -> BlockPosterior:
    """Filtered distributions p(z_t | x_≤t); `bounds` are the edges of independent sequences."""
    text = _Text(ids, bounds, blocks)
    forward = _forward(text, T, initial, emission)
    return BlockPosterior(log_or_minus_inf(forward.norm), text.at, forward.values)


def smooth_low_rank(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: BlockLowRank, initial: F32, emission: F32
) -> BlockPosterior:
    """Smoothed distributions p(z_t | x)."""
    text = _Text(ids, bounds, blocks)
    forward = _forward(text, T, initial, emission)
    return BlockPosterior(log_or_minus_inf(forward.norm), text.at, _backward(text, T, forward, emission)[0])


def low_rank_statistics(
    ids: NDArray[Any], bounds: I64, blocks: Blocks, T: BlockLowRank, initial: F32, emission: F32
) -> BlockLowRankStats:
    """The E-step: expected counts of z → f, f → z', emissions and starts."""
    text = _Text(ids, bounds, blocks)
    forward = _forward(text, T, initial, emission)
    smooth, backward = _backward(text, T, forward, emission)
    zf, fz = T.empty_stats()
    out, into = zf, fz.T
    n_emission, n_initial = np.zeros(len(emission)), np.zeros(blocks.n_states)
    begins = np.asarray(bounds)[:-1][np.diff(bounds) > 0]
    is_first = np.zeros(len(text.ids) + 1, dtype=bool)
    is_first[begins] = is_first[-1] = True
    for lanes, live, where in text.groups(np.arange(len(text.ids))) if len(text.ids) else ():
        on, later = lanes[~is_first[lanes + 1]], ~is_first[lanes]
        out[live] += forward.values[where[~is_first[lanes + 1]]].T @ backward.behind[on + 1]
        into[live] += backward.ahead[where[later]].T @ forward.features[lanes[later]]
        n_initial[live] += smooth[where[~later]].sum(axis=0, dtype=np.float64)
        _add_words(n_emission, blocks, text.ids[lanes], smooth[where], missing=bool(text.block[lanes[0]] == MISSING))
    out *= T.R
    into *= T.ET
    return BlockLowRankStats(
        float(log_or_minus_inf(forward.norm).sum()), len(text.ids), out, into, n_emission, n_initial
    )


def _add_words(total: F64, blocks: Blocks, ids: I64, mass: F32, missing: bool) -> None:
    """Add the distributions of tokens of one block to the counts of their words."""
    order = np.argsort(ids, kind="stable")
    begins = np.flatnonzero(np.diff(ids[order], prepend=-1))
    sums = np.add.reduceat(mass[order], begins, axis=0, dtype=np.float64)
    words = ids[order[begins]]
    if missing:
        sums = sums.sum(axis=1, keepdims=True)
    total[blocks.starts[words, None] + np.arange(sums.shape[1])] += sums
