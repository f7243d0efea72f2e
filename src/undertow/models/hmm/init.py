"""How EM begins: initial parameters from pair counts, or those of an earlier fit to continue with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.band import BandLowRank, BandStats, inside
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks, offsets
from undertow.kernels.chain.operators import Dense, DenseStats, LowRank, LowRankStats
from undertow.kernels.chain.sparse import BlockStats
from undertow.kernels.chain.sparse_low_rank import BlockLowRankStats
from undertow.kernels.types import F64
from undertow.models.hmm.em import BlockMStep, PlainMStep, Shard, unseen_mass
from undertow.models.hmm.initial_counts import InitialCounts, initial_counts
from undertow.models.hmm.params import Params, PlainParams, PlainStats
from undertow.text.lag_counts import LagCounts

STATES_PER_BLOCK = 32
# Share of a word's tokens that is spread over its block. Held-out perplexity on WikiText-2 after nine passes: 325 with
# 0.5, 317 with 0.85, 320 with 1, which is init="random".
SOFTNESS = 0.85
LOW_RANK_SOFTNESS = 0.5  # the factors have less noise, and without the parts EM starts slowly
MIN_STATES_FOR_BLOCKS = 512  # smaller models have no blocks by default


class EMStart(NamedTuple):
    """Initial parameters and the M-step for their layout."""

    params: Params
    m_step: Any


def choose_blocks(n_blocks: int | None, n_states: int, n_words: int) -> int:
    """`n_blocks` if given; by default 1 (no blocks) for small models, else one block per 32 states."""
    if n_blocks is not None:
        if n_blocks > n_words:
            raise InputError(f"n_blocks={n_blocks} is more than the {n_words} words of the text: use fewer blocks.")
        return n_blocks
    return 1 if n_states < MIN_STATES_FOR_BLOCKS else max(1, min(n_states // STATES_PER_BLOCK, n_words))


def choose_init(init: str, n_blocks: int, rank: int | None) -> str:
    """`init` if given; "auto" is what had the best held-out perplexity on WikiText-2 after 12 passes."""
    if init != "auto":
        return init
    return "random" if n_blocks > 1 and rank is None else "clusters"


def initial_params(
    pair_counts: LagCounts,
    chunks: list[list[Shard]],
    n_states: int,
    n_blocks: int,
    rank: int | None,
    band: int,
    init: str,
    smoothing: float,
    rng: np.random.Generator,
    n_threads: int,
) -> EMStart:
    """Parameters from pair counts: one M-step on the expected counts of `initial_counts`."""
    init = choose_init(init, n_blocks, rank)
    softness = SOFTNESS if rank is None else LOW_RANK_SOFTNESS
    word_counts = pair_counts.vocabulary.counts
    in_text = word_counts > 0
    options: dict[str, Any] = {"rank": rank, "init": init, "rng": rng, "softness": softness, "n_threads": n_threads}
    counts = initial_counts(pair_counts, n_states, n_blocks=n_blocks, **options)
    if n_blocks > 1 and len(np.unique(counts.word_block[in_text])) < n_blocks:
        # some block has only words that are not in the text, and its states could emit nothing: drop it
        used, number = np.unique(counts.word_block[in_text], return_inverse=True)
        block = np.zeros(len(word_counts), dtype=np.int32)
        block[in_text] = number
        counts = initial_counts(pair_counts, n_states, n_blocks=len(used), word_block=block, **options)
    if len(counts.first) == 2:
        return _plain_params(counts, word_counts, rank, band, smoothing, rng)
    blocks = Blocks.of(np.where(in_text, counts.word_block, -1), np.diff(counts.first))
    m_step = BlockMStep.from_text(chunks, blocks, word_counts, smoothing)
    emission = _seen_emission(counts, blocks)
    initial = np.zeros(blocks.n_states)
    stats: Any
    if counts.R is not None and counts.E is not None:
        tokens = counts.state_tokens()
        share = tokens / max(tokens.sum(), 1e-300)
        # scale R and E to counts for the M-step: each state is left as often as it is visited
        out = counts.R * tokens[:, None]
        into = (counts.E * (share @ counts.R)[:, None] * tokens.sum()).T
        stats = BlockLowRankStats(0.0, 0, out, np.ascontiguousarray(into), emission, initial)
    else:
        pairs = counts.pair_counts(m_step.layout.before, m_step.layout.after, rng)
        stats = BlockStats(0.0, 0, pairs, emission, initial)
    return EMStart(m_step(stats), m_step)


def _seen_emission(counts: InitialCounts, blocks: Blocks) -> F64:
    """Emission counts in the layout of `blocks`, where a word that is not in the text has a single entry, here 0."""
    out = np.zeros(blocks.starts[-1])
    known = np.repeat(blocks.word_block >= 0, np.diff(counts.starts))
    out[np.repeat(blocks.word_block >= 0, np.diff(blocks.starts))] = counts.emission[known]
    return out


def _plain_params(
    counts: InitialCounts,
    word_counts: NDArray[Any],
    rank: int | None,
    band: int,
    smoothing: float,
    rng: np.random.Generator,
) -> EMStart:
    Z = counts.n_states
    emission = counts.emission.reshape(len(word_counts), Z)
    tokens = counts.state_tokens()
    initial = counts.initial()
    transition: Any
    stats: Any
    if rank is None:
        pairs = counts.dense_pairs(rng)
        transition, stats = Dense(np.eye(Z, dtype=np.float32)), DenseStats(pairs)
    else:
        assert counts.R is not None and counts.E is not None
        R, E = counts.R, counts.E
        zf, fz = counts.factor_counts()
        if band:
            width = 2 * band - 1
            transition = BandLowRank(R.astype(np.float32), E.astype(np.float32), np.zeros((width, Z), np.float32))
            near = inside(width, Z) * rng.uniform(0.5, 1.5, (width, Z)) * (0.2 * tokens / width)
            stats = BandStats(zf, fz, near)
        else:
            transition, stats = LowRank(R.astype(np.float32), E.astype(np.float32)), LowRankStats(zf, fz)
    unseen = unseen_mass(word_counts, smoothing)
    m_step = PlainMStep(word_counts.astype(np.float64), transition, smoothing, unseen)
    return EMStart(m_step(PlainStats(0.0, 0, initial * 1e-3, stats, emission)), m_step)


# --- continuing an earlier fit --------------------------------------------------------------------------


def resume(
    params: Params, chunks: list[list[Shard]], word_counts: NDArray[Any], smoothing: float, words: Sequence[str]
) -> EMStart:
    """Parameters of an earlier fit, in the layout of this text, all of whose words the earlier text must have had."""
    in_text = word_counts > 0
    if isinstance(params, PlainParams):
        unseen = (np.ptp(params.chain.emission, axis=1) == 0) & (params.n_states > 1)
        _refuse_new_words(np.flatnonzero(in_text & unseen), words)
        mass = unseen_mass(word_counts, smoothing)
        return EMStart(params, PlainMStep(word_counts.astype(np.float64), params.transition, smoothing, mass))
    _refuse_new_words(np.flatnonzero(in_text & (params.blocks.word_block < 0)), words)
    if isinstance(params.transition, BlockLowRank):
        return EMStart(params, BlockMStep.from_text(chunks, params.blocks, word_counts, smoothing))
    known_pairs = params.transition.pair >= 0
    m_step = BlockMStep.from_text(chunks, params.blocks, word_counts, smoothing, known_pairs)
    transition = _with_pairs(params.transition, m_step.layout.before, m_step.layout.after)
    return EMStart(params._replace(transition=transition), m_step)


def _refuse_new_words(new: NDArray[Any], words: Sequence[str]) -> None:
    if len(new):
        raise InputError(
            f"The word {words[new[0]]!r} was not in the text the model was fitted to, so EM cannot continue with it: "
            "fit a new model."
        )


def _with_pairs(T: PairSparse, before: NDArray[Any], after: NDArray[Any]) -> PairSparse:
    """The same transition with matrices for more pairs of blocks; those of new pairs are its rank-one part."""
    sizes = np.diff(T.first)
    starts = offsets(sizes[before] * sizes[after])
    pair = np.full_like(T.pair, -1)
    pair[before, after] = np.arange(len(before))
    data = np.empty(starts[-1], dtype=np.float32)
    for p, (b, c) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        old = int(T.pair[b, c])
        if old >= 0:
            data[starts[p] : starts[p + 1]] = T.data[T.starts[old] : T.starts[old + 1]]
        else:
            rows, columns = slice(T.first[b], T.first[b + 1]), slice(T.first[c], T.first[c + 1])
            data[starts[p] : starts[p + 1]] = np.outer(T.leave[rows], T.arrive[columns]).ravel()
    return T._replace(pair=pair, starts=starts, data=data)


__all__ = ["EMStart", "choose_blocks", "choose_init", "initial_params", "resume"]
