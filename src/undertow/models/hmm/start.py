"""From pair counts to the first parameters, and from saved parameters to go on with; blocks or none."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.band import BandLowRank, BandStats, inside
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense, DenseStats, LowRank
from undertow.kernels.chain.operators import LowRankStats as PlainLowRankStats
from undertow.kernels.chain.sparse import BlockLowRank, Blocks, BlockStats, PairSparse, offsets
from undertow.kernels.chain.sparse_low_rank import LowRankStats
from undertow.models.hmm.em import BlockMStep, PlainMStep, Shard, unseen_mass
from undertow.models.hmm.init import HMMStart, hmm_start
from undertow.models.hmm.params import Params, PlainParams, PlainStats
from undertow.text.lag_counts import LagCounts

STATES_PER_BLOCK = 32
# Share of a word's tokens that the start spreads over its block: on held-out text of WikiText-2 the perplexity after
# nine passes is 325 from 0.5, 317 from 0.85 and 320 from 1, which is init="random"
SOFTNESS = 0.85
LOW_RANK_SOFTNESS = 0.5  # the factors carry less noise, and from none of what the parts say they start slowly
LARGE = 512  # models of so many states have blocks unless told otherwise


class Start(NamedTuple):
    """Parameters to begin with, and the M-step that goes with them."""

    params: Params
    m_step: Any


def choose_blocks(n_blocks: int | None, n_states: int, n_words: int) -> int:
    """As asked for; by default none for small models, and else one for every 32 states."""
    if n_blocks is not None:
        if n_blocks > n_words:
            raise InputError(f"n_blocks={n_blocks} are more than the {n_words} words of the text: ask for fewer.")
        return n_blocks
    return 1 if n_states < LARGE else max(1, min(n_states // STATES_PER_BLOCK, n_words))


def choose_init(init: str, n_blocks: int, rank: int | None) -> str:
    """As asked for; "auto" is what did best after the default number of passes, on text held out of WikiText-2's."""
    if init != "auto":
        return init
    return "random" if n_blocks > 1 and rank is None else "clusters"


def begin(
    counts: LagCounts,
    chunks: list[list[Shard]],
    n_states: int,
    n_blocks: int,
    rank: int | None,
    band: int,
    init: str,
    smoothing: float,
    rng: np.random.Generator,
    n_threads: int,
) -> Start:
    """Parameters from pair counts, by one M-step from the expected counts that `hmm_start` imagines."""
    init = choose_init(init, n_blocks, rank)
    softness = SOFTNESS if rank is None else LOW_RANK_SOFTNESS
    words = counts.vocabulary.counts
    options: dict[str, Any] = {"rank": rank, "init": init, "rng": rng, "softness": softness, "n_threads": n_threads}
    start = hmm_start(counts, n_states, n_blocks=n_blocks, **options)
    if n_blocks > 1 and len(np.unique(start.word_block[words > 0])) < n_blocks:
        # a block had only words that the text has not, and its states could emit nothing
        used, seen = np.unique(start.word_block[words > 0], return_inverse=True)
        block = np.zeros(len(words), dtype=np.int32)
        block[words > 0] = seen
        start = hmm_start(counts, n_states, n_blocks=len(used), word_block=block, **options)
    if len(start.first) == 2:
        return _begin_plain(start, words, rank, band, smoothing, rng)
    blocks = Blocks.of(np.where(words > 0, start.word_block, -1), np.diff(start.first))
    m_step = BlockMStep.of(chunks, blocks, words, smoothing)
    emission = _of_seen(start, blocks)
    initial = np.zeros(blocks.n_states)
    stats: Any
    if start.R is not None and start.E is not None:
        tokens = start.state_tokens()
        share = tokens / max(tokens.sum(), 1e-300)
        # as if every state had been left as often as it was there: the M-step sees R and E as counts
        out = start.R * tokens[:, None]
        into = (start.E * (share @ start.R)[:, None] * tokens.sum()).T
        stats = LowRankStats(0.0, 0, out, np.ascontiguousarray(into), emission, initial)
    else:
        pairs = start.pair_counts(m_step.layout.before, m_step.layout.after, rng)
        stats = BlockStats(0.0, 0, pairs, emission, initial)
    return Start(m_step(stats), m_step)


def _of_seen(start: HMMStart, blocks: Blocks) -> NDArray[np.float64]:
    """The start's emission counts without the entries of words the text does not have; those get one entry each."""
    out = np.zeros(blocks.starts[-1])
    known = np.repeat(blocks.word_block >= 0, np.diff(start.starts))
    out[np.repeat(blocks.word_block >= 0, np.diff(blocks.starts))] = start.emission[known]
    return out


def _begin_plain(
    start: HMMStart, words: NDArray[Any], rank: int | None, band: int, smoothing: float, rng: np.random.Generator
) -> Start:
    Z = start.n_states
    emission = start.emission.reshape(len(words), Z)
    tokens = start.state_tokens()
    initial = start.initial()
    transition: Any
    counts: Any
    if rank is None:
        pairs = start.dense_pairs(rng)
        transition, counts = Dense(np.eye(Z, dtype=np.float32)), DenseStats(pairs)
    else:
        assert start.R is not None and start.E is not None
        R, E = start.R, start.E
        zf = R * tokens[:, None]
        fz = E * zf.sum(axis=0)[:, None]
        if band:
            width = 2 * band - 1
            transition = BandLowRank(R.astype(np.float32), E.astype(np.float32), np.zeros((width, Z), np.float32))
            near = inside(width, Z) * rng.uniform(0.5, 1.5, (width, Z)) * (0.2 * tokens / width)
            counts = BandStats(zf, fz, near)
        else:
            transition, counts = LowRank(R.astype(np.float32), E.astype(np.float32)), PlainLowRankStats(zf, fz)
    shape = ChainParams(initial.astype(np.float32), transition, np.empty((0, Z), np.float32))
    m_step = PlainMStep(words.astype(np.float64), shape, smoothing, unseen_mass(words, smoothing))
    return Start(m_step(PlainStats(0.0, 0, initial * 1e-3, counts, emission)), m_step)


# --- going on -------------------------------------------------------------------------------------------


def resume(params: Params, chunks: list[list[Shard]], words: NDArray[Any], smoothing: float, spelling: Any) -> Start:
    """Parameters of an earlier fit, in the layout of the text at hand, whose words must all have been seen then."""
    if isinstance(params, PlainParams):
        alike = (np.ptp(params.chain.emission, axis=1) == 0) & (params.n_states > 1)
        _refuse(np.flatnonzero((words > 0) & alike), spelling)
        m_step = PlainMStep(words.astype(np.float64), params.chain, smoothing, unseen_mass(words, smoothing))
        return Start(params, m_step)
    block = params.blocks.word_block
    _refuse(np.flatnonzero((words > 0) & (block < 0)), spelling)
    if isinstance(params.transition, BlockLowRank):
        return Start(params, BlockMStep.of(chunks, params.blocks, words, smoothing))
    also = params.transition.pair >= 0
    block_m_step = BlockMStep.of(chunks, params.blocks, words, smoothing, also)
    transition = _relaid(params.transition, block_m_step.layout.before, block_m_step.layout.after)
    return Start(params._replace(transition=transition), block_m_step)


def _refuse(new: Any, spelling: Any) -> None:
    if len(new):
        raise InputError(
            f"The word {spelling[new[0]]!r} was not in the text the model was fitted to, so EM cannot go on with it: "
            "fit a new model."
        )


def _relaid(T: PairSparse, before: NDArray[Any], after: NDArray[Any]) -> PairSparse:
    """The same transition with matrices for more pairs; new ones are what rank one says."""
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


__all__ = ["Start", "begin", "choose_blocks", "choose_init", "resume"]
