"""Continuing EM with more text: what the model knows of the text it has read, as expected counts.

That text is not kept. Under the model, with N tokens in S sequences (so that a sequence ends after a token with
probability ρ = S / N), the state of a token has the distribution

    ω = ρ π + (1 − ρ) ω T,                                                                               (1)

and the expected counts are

    initial N ρ π_z,    transitions N (1 − ρ) ω_z T_zz',    emissions N ω_z B_zw.                        (2)

They are consistent (each state is entered as often as it emits), and the M-step without smoothing gives π, T and B
back. Incremental EM then treats them as one more part of the text whose statistics stay as they are; the share of the
old text in each estimate follows from the numbers of tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain import block_smoothing
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.chain.sparse import BlockStats
from undertow.kernels.chain.sparse_low_rank import BlockLowRankStats
from undertow.kernels.types import F64, I64
from undertow.models.hmm.em import BlockMStep, PlainMStep, Shard, unseen_mass
from undertow.models.hmm.params import BlockParams, Params, PlainParams, PlainStats

HMMStats = PlainStats | BlockStats | BlockLowRankStats  # expected counts; additive

MOST_STEPS = 1000  # of the fixed point (1)
SETTLED = 1e-7  # it ends when a step moves no more probability than this
PERIODIC_AFTER = 15  # steps without settling: the chain may have a period, and half steps still converge
LEAST_SHARE = 1e-6  # of the pairs of two blocks, when a new word is assigned to a block


class SeenText(NamedTuple):
    """How much text a model has learned from."""

    n_tokens: int
    n_sequences: int  # within each of which the state is carried along

    @classmethod
    def of(cls, chunks: list[list[Shard]]) -> SeenText:
        shards = [shard for chunk in chunks for shard in chunk]
        n_sequences = sum(int((np.diff(s.bounds) > 0).sum()) for s in shards)
        return cls(sum(len(s.ids) for s in shards), n_sequences)

    def __add__(self, other: Any) -> SeenText:
        return SeenText(self.n_tokens + other.n_tokens, self.n_sequences + other.n_sequences)


class Continuation(NamedTuple):
    """What EM over more text starts from."""

    params: Params
    m_step: Any
    earlier: HMMStats  # expected counts of the text read before


def occupancy(params: Params, seen: SeenText) -> F64:
    """(Z,) distribution of the state of any token, eq. (1)."""
    rho = seen.n_sequences / seen.n_tokens
    start = np.asarray(params.initial, dtype=np.float64)
    p = start
    for step in range(MOST_STEPS):
        pushed = params.transition.push(p[None, :].astype(np.float32))[0].astype(np.float64)
        moved = rho * start + (1 - rho) * pushed - p
        p = p + (moved if step < PERIODIC_AFTER else moved / 2)
        p /= p.sum()
        if np.abs(moved).sum() < SETTLED:
            break
    return p


def continuation(
    params: Params,
    seen: SeenText,
    chunks: list[list[Shard]],
    old_counts: I64,
    new_counts: I64,
    fallback: I64,
    smoothing: float,
) -> Continuation:
    """Parameters, M-step and earlier statistics for EM over `chunks`, whose ids may go beyond the model's words.

    Parameters
    ----------
    params, seen
        Of the model so far.
    chunks
        The new text.
    old_counts, new_counts
        (V,) counts of all words, new ones last, in the earlier text and in the new one.
    fallback
        (V,) for each word the one that it was read as before it was known: its class, or the unknown word.
    smoothing
        Multiplies all pseudo-counts.
    """
    share = occupancy(params, seen)
    word_counts = old_counts + new_counts
    if isinstance(params, PlainParams):
        return _plain(params, seen, share, new_counts, word_counts, fallback, smoothing)
    return _blocks(params, seen, share, chunks, new_counts, word_counts, fallback, smoothing)


# --- without blocks -------------------------------------------------------------------------------------


def _plain(
    params: PlainParams,
    seen: SeenText,
    share: F64,
    new_counts: I64,
    word_counts: I64,
    fallback: I64,
    smoothing: float,
) -> Continuation:
    old, Z, V = params.n_words, params.n_states, len(word_counts)
    B = np.zeros((V, Z))
    B[:old] = params.chain.emission
    flat = np.ptp(B, axis=1) == 0  # words that no state has learned: the mass of unseen words is shared by them
    unread = flat if Z > 1 else np.arange(V) >= old
    B[unread] = 0
    B /= np.maximum(B.sum(axis=0), 1e-300)
    emission = seen.n_tokens * share * B
    steps = params.transition.empty_stats()
    weight = (seen.n_tokens - seen.n_sequences) * share
    # Σ_z' T_zz' = 1, so with a message of ones these are the expected transitions themselves
    params.transition.accumulate_expected(weight[None, :], np.ones((1, Z)), steps)
    initial = seen.n_sequences * np.asarray(params.initial, dtype=np.float64)
    earlier = PlainStats(0.0, 0, initial, steps, emission)

    learning = np.flatnonzero(unread & (new_counts > 0))
    like = emission[fallback[learning]]
    total = like.sum(axis=1, keepdims=True)
    prior = np.where(total > 0, like / np.where(total > 0, total, 1), share)
    start = emission.copy()
    start[learning] = new_counts[learning, None] * prior
    mass = unseen_mass(word_counts, smoothing)
    m_step = PlainMStep(word_counts.astype(np.float64), params.transition, smoothing, mass)
    return Continuation(m_step(earlier._replace(emission=start)), m_step, earlier)


# --- with blocks ----------------------------------------------------------------------------------------


def _blocks(
    params: BlockParams,
    seen: SeenText,
    share: F64,
    chunks: list[list[Shard]],
    new_counts: I64,
    word_counts: I64,
    fallback: I64,
    smoothing: float,
) -> Continuation:
    old, sizes = params.blocks, params.blocks.sizes
    V, V_old = len(word_counts), len(old.word_block)
    pair_counts = _block_pairs(params, seen, share)
    known = np.full(V, -1, dtype=np.int32)
    known[:V_old] = old.word_block
    block = known.copy()
    learning = np.flatnonzero((known < 0) & (new_counts > 0))
    block[learning] = _choose_blocks(learning, chunks, known, fallback, pair_counts)
    blocks = Blocks.of(block, sizes)
    emission = _expected_emission(params, blocks, seen.n_tokens * share)
    start = emission.copy()
    for w in learning.tolist():
        states = slice(old.first[block[w]], old.first[block[w] + 1])
        f, at = int(fallback[w]), slice(blocks.starts[w], blocks.starts[w + 1])
        like = emission[blocks.starts[f] : blocks.starts[f + 1]] if block[f] == block[w] else share[states]
        start[at] = new_counts[w] * block_smoothing.distribution(np.asarray(like, dtype=np.float64))

    initial = seen.n_sequences * np.asarray(params.initial, dtype=np.float64)
    weight = (seen.n_tokens - seen.n_sequences) * share
    T = params.transition
    earlier: BlockStats | BlockLowRankStats
    if isinstance(T, BlockLowRank):
        m_step = BlockMStep.from_text(chunks, blocks, word_counts, smoothing)
        out = weight[:, None] * T.R
        earlier = BlockLowRankStats(0.0, 0, out, out.sum(axis=0) * T.ET, emission, initial)
    else:
        m_step = BlockMStep.from_text(chunks, blocks, word_counts, smoothing, T.pair >= 0)
        layout = m_step.layout
        counts = layout.counts + np.rint(pair_counts[layout.before, layout.after]).astype(np.int64)
        layout = layout._replace(counts=counts)
        bigram = block_smoothing.block_bigram(layout, discount=block_smoothing.DISCOUNT if smoothing else 0.0)
        m_step = m_step._replace(layout=layout, bigram=bigram)
        earlier = BlockStats(0.0, 0, _expected_pairs(T, layout, sizes, weight), emission, initial)
    return Continuation(m_step(earlier._replace(emission=start)), m_step, earlier)


def _expected_emission(params: BlockParams, blocks: Blocks, tokens: F64) -> F64:
    """Expected emissions in the layout of `blocks`, which has more words, some of them in no block before."""
    old, V_old = params.blocks, params.n_words
    word = np.repeat(np.arange(V_old), np.diff(old.starts))
    known = (old.word_block >= 0)[word]
    state = np.where(known, old.first[old.word_block[word]] + np.arange(len(word)) - old.starts[word], 0)
    B = np.where(known, params.emission, 0).astype(np.float64)
    total = np.bincount(state, weights=B, minlength=old.n_states)
    out = np.zeros(blocks.starts[-1])
    at = blocks.starts[word] + np.arange(len(word)) - old.starts[word]
    out[at[known]] = (tokens / np.maximum(total, 1e-300))[state[known]] * B[known]
    return out


def _expected_pairs(T: PairSparse, layout: Any, sizes: I64, weight: F64) -> F64:
    """Expected transitions in the layout of a text with more pairs of blocks; steps outside of all matrices are lost:
    only smoothing gave them a probability."""
    out = np.zeros(layout.starts[-1])
    for p, (b, c) in enumerate(zip(layout.before.tolist(), layout.after.tolist(), strict=True)):
        old = int(T.pair[b, c])
        if old >= 0:
            block = T.data[T.starts[old] : T.starts[old + 1]].reshape(sizes[b], sizes[c])
            rows = weight[T.first[b] : T.first[b + 1], None]
            out[layout.starts[p] : layout.starts[p + 1]] = (rows * block).ravel()
    return out


def _block_pairs(params: BlockParams, seen: SeenText, share: F64) -> F64:
    """(G, G) expected number of steps from block to block."""
    T, edges = params.transition, params.blocks.first[:-1]
    weight = (seen.n_tokens - seen.n_sequences) * share
    if isinstance(T, PairSparse):
        return np.asarray(np.add.reduceat(weight[:, None] * T.block_masses(), edges, axis=0), dtype=np.float64)
    left = np.add.reduceat(weight[:, None] * T.R, edges, axis=0)
    return np.asarray(left @ np.add.reduceat(T.ET, edges, axis=0).T, dtype=np.float64)


def _choose_blocks(
    words: I64, chunks: list[list[Shard]], word_block: NDArray[np.int32], fallback: I64, pairs: F64
) -> NDArray[np.int32]:
    """The block of each new word: the one that makes its neighbors in the text most probable.

    log p of the blocks beside it under the bigram of blocks, Σ log p(b | left) + Σ log p(right | b) over its tokens,
    as the exchange algorithm scores a move; neighbors that are new themselves do not count. A word without known
    neighbors joins the block of its class or of the unknown word, and if that has none, the largest.
    """
    G = len(pairs)
    left, right = np.zeros((len(words), G)), np.zeros((len(words), G))
    number = np.full(len(word_block), -1, dtype=np.int64)
    number[words] = np.arange(len(words))
    for shard in (shard for chunk in chunks for shard in chunk):
        inside = np.ones(len(shard.ids), dtype=bool)
        inside[shard.bounds[:-1][np.diff(shard.bounds) > 0]] = False
        after = np.flatnonzero(inside)
        for here, beside, counts in ((after, after - 1, left), (after - 1, after, right)):
            new, block = number[shard.ids[here]], word_block[shard.ids[beside]]
            both = (new >= 0) & (block >= 0)
            np.add.at(counts, (new[both], block[both]), 1.0)
    joint = pairs / max(pairs.sum(), 1e-300) + LEAST_SHARE / G**2
    p_next = np.log(joint / joint.sum(axis=1, keepdims=True))  # log p(after | before)
    best = np.argmax(left @ p_next + right @ p_next.T + np.log(joint.sum(axis=0)), axis=1)
    alone = (left.sum(axis=1) + right.sum(axis=1)) == 0
    usual = word_block[fallback[words]]
    best[alone] = np.where(usual >= 0, usual, int(joint.sum(axis=0).argmax()))[alone]
    return np.asarray(best, dtype=np.int32)


__all__ = ["Continuation", "HMMStats", "SeenText", "continuation", "occupancy"]
