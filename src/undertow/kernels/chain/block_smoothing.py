"""The smoothed M-step of a block chain: every level backs off to a coarser one.

T(z'|z) = p(b'|z) · q(z'|z, b'), with b' the block of z'. The first backs off to the block bigram, which is counted, not
expected, and smoothed once by Kneser and Ney; the second to the mean of the states of z's block, and that to the mean
of all states. Emissions back off to the word's share of its block. All are Dirichlet means,
(count + κ·coarser) / (total + κ), so that every κ is a number of pseudo-tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks, offsets
from undertow.kernels.types import F32, F64, I64

DISCOUNT = 0.75  # of Kneser and Ney


class Smoothing(NamedTuple):
    """Pseudo-tokens of each level; zero is maximum likelihood. Chosen on the last tenth of WikiText-2's training text,
    where the perplexity moves by less than one per cent when any of them is halved or doubled."""

    block: float = 200.0  # p(b'|z) towards the block bigram
    state: float = 2.0  # q(z'|z, b') towards its mean over the states of z's block
    pair: float = 50.0  # that mean towards the one over all blocks
    word: float = 20.0  # emissions towards the block's words
    initial: float = 20.0  # starts towards the states' shares of the text
    feature: float = 20.0  # R of a low-rank transition, towards its mean over the block
    arrival: float = 50.0  # E of a low-rank transition, towards the states' shares of the text

    def times(self, factor: float) -> Smoothing:
        return Smoothing(*(factor * x for x in self))


class BlockBigram(NamedTuple):
    """Kneser–Ney smoothed p(b'|b): `seen` where a pair was seen, else reserve[b] · lower[b']."""

    seen: F64  # (P,) in the order of the pairs
    reserve: F64  # (G,)
    lower: F64  # (G,)


class PairLayout(NamedTuple):
    """The pairs of blocks a text has, and where the matrix of each begins."""

    pair: NDArray[np.int32]  # (G, G), -1: not seen
    before: NDArray[np.int32]  # (P,)
    after: NDArray[np.int32]
    counts: I64
    starts: I64  # (P + 1,)


def pair_layout(
    block_ids: NDArray[Any], bounds: NDArray[Any], sizes: I64, also: NDArray[np.bool_] | None = None
) -> PairLayout:
    """Pairs of neighboring blocks within each sequence, and those marked in `also` (G, G) even if the text has none."""
    G = len(sizes)
    inside = np.ones(len(block_ids), dtype=bool)
    inside[np.asarray(bounds[:-1])[np.diff(bounds) > 0]] = False
    inside[:1] = False
    after = np.flatnonzero(inside)
    before_block, after_block = block_ids[after - 1].astype(np.int64), block_ids[after].astype(np.int64)
    known = (before_block >= 0) & (after_block >= 0)
    keys, counts = np.unique(before_block[known] * G + after_block[known], return_counts=True)
    if also is not None:
        extra = np.setdiff1d(np.flatnonzero(also), keys)
        order = np.argsort(np.concatenate([keys, extra]), kind="stable")
        keys, counts = np.concatenate([keys, extra])[order], np.concatenate([counts, 0 * extra])[order]
    before, after_ = (keys // G).astype(np.int32), (keys % G).astype(np.int32)
    pair = np.full((G, G), -1, dtype=np.int32)
    pair[before, after_] = np.arange(len(keys))
    return PairLayout(pair, before, after_, counts, offsets(sizes[before] * sizes[after_]))


def block_bigram(layout: PairLayout, discount: float = DISCOUNT) -> BlockBigram:
    """Interpolated Kneser–Ney; the lower order counts in how many contexts a block came, plus one so that none is 0."""
    G = len(layout.pair)
    there = layout.counts > 0
    lower: F64 = np.bincount(layout.after[there], minlength=G) + np.ones(G)
    lower /= lower.sum()
    total = np.bincount(layout.before, weights=layout.counts, minlength=G)
    taken = np.minimum(layout.counts, discount)
    reserve = np.ones(G)  # a block that nothing follows has only the lower order
    np.divide(np.bincount(layout.before, weights=taken, minlength=G), total, out=reserve, where=total > 0)
    total[total == 0] = 1
    seen = (layout.counts - taken) / total[layout.before] + reserve[layout.before] * lower[layout.after]
    return BlockBigram(seen, reserve, lower)


@njit(cache=True, nogil=True)
def _smooth_pairs(
    counts: Any,
    first: Any,
    before: Any,
    after: Any,
    starts: Any,
    seen: Any,
    reserve: Any,
    n_out: Any,
    mean_in: Any,
    k_block: float,
    k_state: float,
    k_pair: float,
    data: Any,
    leave: Any,
) -> None:
    """Fill data and leave. `n_out` is Σ_z' n(z, z'), `mean_in` the share of a state among those of its block."""
    widest = 0
    for b in range(len(first) - 1):
        widest = max(widest, first[b + 1] - first[b])
    column = np.empty(widest)
    for p in range(len(before)):
        i, j = before[p], after[p]
        k, k_next, e = first[i + 1] - first[i], first[j + 1] - first[j], starts[p]
        column[:k_next] = 0
        for x in range(k):
            for y in range(k_next):
                column[y] += counts[e + x * k_next + y]
        total = column[:k_next].sum()
        for y in range(k_next):
            m = mean_in[first[j] + y]
            column[y] = (column[y] + k_pair * m) / (total + k_pair) if total + k_pair > 0 else m
        for x in range(k):
            row, z = e + x * k_next, first[i] + x
            n = 0.0
            for y in range(k_next):
                n += counts[row + y]
            to_block = (n + k_block * seen[p]) / (n_out[z] + k_block) if n_out[z] + k_block > 0 else seen[p]
            for y in range(k_next):
                q = (counts[row + y] + k_state * column[y]) / (n + k_state) if n + k_state > 0 else column[y]
                data[row + y] = to_block * q
    for i in range(len(first) - 1):
        for z in range(first[i], first[i + 1]):
            rest = k_block / (n_out[z] + k_block) if n_out[z] + k_block > 0 else 1.0
            leave[z] = rest * reserve[i]


def smooth_transitions(
    counts: F64,
    n_states: F64,
    blocks: Blocks,
    layout: PairLayout,
    bigram: BlockBigram,
    smoothing: Smoothing,
) -> PairSparse:
    """The transition from expected pair counts and the expected number of tokens of each state."""
    state_block = blocks.state_block()
    share = shares(n_states, blocks.first)
    rows = np.repeat(blocks.sizes[layout.after], blocks.sizes[layout.before])  # length of each row of each pair
    state_of_row = np.concatenate([np.arange(blocks.first[b], blocks.first[b + 1]) for b in layout.before.tolist()])
    row_sums = np.add.reduceat(counts, offsets(rows)[:-1]) if len(rows) else np.empty(0)
    n_out = np.bincount(state_of_row, weights=row_sums, minlength=blocks.n_states)
    data, leave = np.empty(len(counts), dtype=np.float32), np.empty(blocks.n_states, dtype=np.float32)
    _smooth_pairs(
        counts,
        blocks.first,
        layout.before,
        layout.after,
        layout.starts,
        bigram.seen,
        bigram.reserve,
        n_out,
        share,
        smoothing.block,
        smoothing.state,
        smoothing.pair,
        data,
        leave,
    )
    arrive = (bigram.lower[state_block] * share).astype(np.float32)
    return PairSparse(blocks.first, layout.pair, layout.starts, data, leave, arrive)


def shares(n_states: F64, first: I64) -> F64:
    """Each state's share of its block's tokens; equal shares in a block that has none."""
    sizes = np.diff(first)
    total = np.add.reduceat(n_states, first[:-1])
    share = np.repeat(1.0 / sizes, sizes)
    whole = np.repeat(total, sizes)
    return np.asarray(np.divide(n_states, whole, out=share, where=whole > 0))


def smooth_low_rank_transition(
    out: F64,
    into: F64,
    share: F64,
    blocks: Blocks,
    smoothing: Smoothing,
) -> BlockLowRank:
    """R from n(z, f), backing off to the mean row of the block; E from n(f, z'), backing off to the states' shares."""
    k, edges = smoothing.feature, blocks.first[:-1]
    overall = distribution(out.sum(axis=0))
    of_block = np.add.reduceat(out, edges, axis=0)
    of_block = (of_block + k * overall) / _not_zero(of_block.sum(axis=1, keepdims=True) + k)
    total = out.sum(axis=1, keepdims=True)
    R = (out + k * of_block[blocks.state_block()]) / _not_zero(total + k)
    R[total[:, 0] + k <= 0] = overall
    k = smoothing.arrival
    total = into.sum(axis=0)
    ET = (into + k * share[:, None]) / _not_zero(total + k)
    ET[:, total + k <= 0] = share[:, None]
    # counts may be float32 sums: normalize once more
    R /= R.sum(axis=1, keepdims=True)
    ET /= ET.sum(axis=0)
    return BlockLowRank(blocks.first, R.astype(np.float32), ET.astype(np.float32))


def smooth_emission(counts: F64, words: NDArray[Any], blocks: Blocks, smoothing: Smoothing, unseen: float) -> F32:
    """Emission numbers from expected counts and the words' own counts; words of block -1 share the mass `unseen`."""
    block, first, starts = blocks
    known = block >= 0
    lengths = np.diff(starts)
    of_block = np.bincount(block[known], weights=words[known], minlength=blocks.n_blocks)
    lower = np.divide(words, of_block[block], out=np.zeros(len(words)), where=known & (of_block[block] > 0))
    word = np.repeat(np.arange(len(words)), lengths)
    state = np.where(known, first[block], 0)[word] + np.arange(len(word)) - starts[word]
    total = np.bincount(state, weights=np.where(known[word], counts, 0.0), minlength=blocks.n_states)[state]
    k = smoothing.word
    out = np.where(total + k > 0, (counts + k * lower[word]) / _not_zero(total + k), lower[word])
    out *= 1 - unseen
    out[~known[word]] = unseen / max(int((~known).sum()), 1)
    return np.asarray(out, dtype=np.float32)


def state_tokens(counts: F64, blocks: Blocks) -> F64:
    """(Z,) expected tokens of each state."""
    block, first, starts = blocks
    known = block >= 0
    word = np.repeat(np.arange(len(block)), np.diff(starts))
    state = np.where(known, first[block], 0)[word] + np.arange(len(word)) - starts[word]
    found = np.bincount(state, weights=np.where(known[word], counts, 0.0), minlength=blocks.n_states)
    return np.asarray(found, dtype=np.float64)


def state_shares(tokens: F64, words: NDArray[Any], blocks: Blocks) -> F64:
    """(Z,) share of each state in the text: its block's, which is counted, times its own in the block.

    Every block has a share, even if no chunk with its words has been read yet.
    """
    known = blocks.word_block >= 0
    of_block = np.bincount(blocks.word_block[known], weights=words[known], minlength=blocks.n_blocks).astype(np.float64)
    return distribution(distribution(of_block)[blocks.state_block()] * shares(tokens, blocks.first))


def smooth_initial(counts: F64, share: F64, smoothing: Smoothing) -> F32:
    """Starts, backing off to the states' shares of the whole text."""
    return distribution(counts + smoothing.initial * share).astype(np.float32)


def distribution(x: F64) -> F64:
    """x scaled to sum to one; uniform if all entries are 0."""
    total = x.sum()
    return np.asarray(x / total) if total > 0 else np.full(len(x), 1.0 / len(x))


def _not_zero(x: F64) -> F64:
    return np.where(x > 0, x, 1.0)
