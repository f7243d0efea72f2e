"""From expected counts to a block chain that has seen little: every level backs off to a coarser one.

T(z'|z) = p(b'|z) · q(z'|z, b'), with b' the block of z'. The first backs off to the block bigram, which is counted, not
expected, and smoothed once by Kneser and Ney; the second to the mean of the states of z's block, and that to the mean
of all states. Emissions back off to the word's share of its sub-block, that to the sub-block's share of the block. All
are Dirichlet means, (count + κ·coarser) / (total + κ), so that every κ is a number of pseudo-tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.block_chain import Blocks, PairSparse, offsets


class Smoothing(NamedTuple):
    """Pseudo-tokens of each level; zero is maximum likelihood."""

    block: float = 100.0  # p(b'|z) towards the block bigram
    state: float = 5.0  # q(z'|z, b') towards its mean over the states of z's block
    pair: float = 5.0  # that mean towards the one over all blocks
    word: float = 50.0  # emissions towards the sub-block
    subblock: float = 50.0  # sub-blocks towards the block
    initial: float = 50.0  # starts towards the states' overall shares


class BlockBigram(NamedTuple):
    """Kneser–Ney smoothed p(b'|b): `seen` where a pair was seen, else reserve[b] · lower[b']."""

    seen: NDArray[np.float64]  # (P,) in the order of the pairs
    reserve: NDArray[np.float64]  # (G,)
    lower: NDArray[np.float64]  # (G,)


class PairLayout(NamedTuple):
    """The pairs of blocks a text has, and where the matrix of each begins."""

    pair: NDArray[np.int32]  # (G, G), -1: not seen
    before: NDArray[np.int32]  # (P,)
    after: NDArray[np.int32]
    counts: NDArray[np.int64]
    starts: NDArray[np.int64]  # (P + 1,)


def pair_layout(block_ids: NDArray[Any], bounds: NDArray[Any], sizes: NDArray[np.int64]) -> PairLayout:
    """Pairs of neighbouring blocks within each sequence."""
    G = len(sizes)
    inside = np.ones(len(block_ids), dtype=bool)
    inside[np.asarray(bounds[:-1])[np.diff(bounds) > 0]] = False
    inside[:1] = False
    after = np.flatnonzero(inside)
    before_block, after_block = block_ids[after - 1].astype(np.int64), block_ids[after].astype(np.int64)
    known = (before_block >= 0) & (after_block >= 0)
    keys, counts = np.unique(before_block[known] * G + after_block[known], return_counts=True)
    before, after_ = (keys // G).astype(np.int32), (keys % G).astype(np.int32)
    pair = np.full((G, G), -1, dtype=np.int32)
    pair[before, after_] = np.arange(len(keys))
    return PairLayout(pair, before, after_, counts, offsets(sizes[before] * sizes[after_]))


def block_bigram(layout: PairLayout, discount: float = 0.75) -> BlockBigram:
    """Interpolated Kneser–Ney; the lower order counts in how many contexts a block came, plus one so that none is 0."""
    G = len(layout.pair)
    lower = np.bincount(layout.after, minlength=G) + 1.0
    lower /= lower.sum()
    total = np.bincount(layout.before, weights=layout.counts, minlength=G)
    kinds = np.bincount(layout.before, minlength=G)
    taken = np.minimum(layout.counts, discount)
    reserve = np.ones(G)  # a block that nothing follows knows only the lower order
    np.divide(np.bincount(layout.before, weights=taken, minlength=G), total, out=reserve, where=kinds > 0)
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
    counts: NDArray[np.float64],
    n_states: NDArray[np.float64],
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


def shares(n_states: NDArray[np.float64], first: NDArray[np.int64]) -> NDArray[np.float64]:
    """Each state's share of its block's tokens; equal shares in a block that has none."""
    sizes = np.diff(first)
    total = np.add.reduceat(n_states, first[:-1])
    share = np.repeat(1.0 / sizes, sizes)
    whole = np.repeat(total, sizes)
    return np.divide(n_states, whole, out=share, where=whole > 0)
