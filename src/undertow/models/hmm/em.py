"""EM for hidden Markov models of text.

With one chunk, a pass over the text is plain Baum–Welch. With several, the parameters are updated after each chunk from
the latest statistics of all chunks (Neal and Hinton's incremental EM), which needs about half the passes. Chunks and
shards depend on the text alone and their statistics are added in order, so any number of workers gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.engine import Engine, map_reduce
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.chain import block_smoothing
from undertow.kernels.chain.block_smoothing import BlockBigram, PairLayout, Smoothing
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.smoothing import smoothed_emission, unseen_mass
from undertow.kernels.chain.sparse import BlockStats
from undertow.kernels.chain.sparse_low_rank import BlockLowRankStats
from undertow.kernels.types import F64, I64
from undertow.models.fitting import Iteration, perplexity_remark
from undertow.models.hmm.params import BlockParams, Params, PlainParams, PlainStats
from undertow.models.incremental import IncrementalStats
from undertow.text.corpus import Corpus

SHARD_TOKENS = 1 << 17  # few large shards: the statistics of each are as large as the parameters
MOST_SHARDS = 64  # per chunk; in a large corpus the shards grow instead


class Shard(NamedTuple):
    """The unit of work of an E-step: sequence i is ids[bounds[i] : bounds[i + 1]]."""

    ids: NDArray[np.uint32]
    bounds: I64

    def statistics(self, params: Params) -> Any:
        """The expected counts of the E-step."""
        return params.statistics(self.ids, self.bounds)


def split_chunks(corpus: Corpus, n_chunks: int, carry: bool) -> list[list[Shard]]:
    """Chunks of whole sentences, each cut into shards. With `carry` a shard is one sequence; else each sentence is."""
    per_chunk = -(-corpus.n_tokens // n_chunks)
    chunks: dict[int, list[Shard]] = {}
    for first, last in corpus.shards(max(min(SHARD_TOKENS, per_chunk), -(-per_chunk // MOST_SHARDS))):
        edges = np.asarray(corpus.offsets[first : last + 1], dtype=np.int64)
        bounds = np.array([0, edges[-1] - edges[0]]) if carry else edges - edges[0]
        shard = Shard(np.array(corpus.ids[edges[0] : edges[-1]]), bounds)
        chunks.setdefault(int(edges[0]) // per_chunk, []).append(shard)
    return [chunks[c] for c in sorted(chunks)]


# --- M-steps --------------------------------------------------------------------------------------------


class BlockMStep(NamedTuple):
    """The smoothed M-step of a model with blocks, and the counts of words and block pairs that it backs off to."""

    blocks: Blocks
    word_counts: F64  # (V,)
    layout: PairLayout
    bigram: BlockBigram
    smoothing: Smoothing
    unseen: float  # total probability of the words that are not in the text

    @classmethod
    def from_text(
        cls,
        chunks: list[list[Shard]],
        blocks: Blocks,
        word_counts: NDArray[Any],
        smoothing: float,
        extra_pairs: NDArray[np.bool_] | None = None,
    ) -> BlockMStep:
        """Count block pairs in the text. `extra_pairs` (G, G) marks pairs that get a matrix even if it lacks them."""
        ids = np.concatenate([shard.ids for chunk in chunks for shard in chunk])
        lengths = np.concatenate([np.diff(shard.bounds) for chunk in chunks for shard in chunk])
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        layout = block_smoothing.pair_layout(blocks.word_block[ids], bounds, blocks.sizes, extra_pairs)
        bigram = block_smoothing.block_bigram(layout, discount=block_smoothing.DISCOUNT if smoothing else 0.0)
        constants = Smoothing().times(smoothing)
        unseen = unseen_mass(word_counts, smoothing)
        return cls(blocks, word_counts.astype(np.float64), layout, bigram, constants, unseen)

    def __call__(self, stats: BlockStats | BlockLowRankStats) -> BlockParams:
        tokens = block_smoothing.state_tokens(stats.emission, self.blocks)
        share = block_smoothing.state_shares(tokens, self.word_counts, self.blocks)
        transition: Any
        if isinstance(stats, BlockLowRankStats):
            transition = block_smoothing.smooth_low_rank_transition(
                stats.out, stats.into, share, self.blocks, self.smoothing
            )
        else:
            transition = block_smoothing.smooth_transitions(
                stats.pairs, tokens, self.blocks, self.layout, self.bigram, self.smoothing
            )
        return BlockParams(
            self.blocks,
            block_smoothing.smooth_initial(stats.initial, share, self.smoothing),
            transition,
            block_smoothing.smooth_emission(stats.emission, self.word_counts, self.blocks, self.smoothing, self.unseen),
        )


class PlainMStep(NamedTuple):
    """The smoothed M-step without blocks: transitions back off to uniform, emissions to word frequencies."""

    word_counts: F64  # (V,)
    transition: Any  # an operator of the form to estimate
    smoothing: float
    unseen: float  # total probability of the words that are not in the text

    def __call__(self, stats: PlainStats) -> PlainParams:
        constants = Smoothing().times(self.smoothing)
        tokens = stats.emission.sum(axis=0)
        emission = smoothed_emission(stats.emission, constants.word, self.word_counts, self.unseen)
        transition = self.transition.m_step(stats.transition, 0.5 * self.smoothing)
        initial = block_smoothing.smooth_initial(stats.initial, block_smoothing.distribution(tokens), constants)
        return PlainParams(ChainParams(initial, transition, emission))


# --- iterations -----------------------------------------------------------------------------------------


class EMState(NamedTuple):
    """What EM needs to go on after a finished pass."""

    n_done: int
    params: Params
    m_step: Any
    running: Any

    @classmethod
    def of(cls, n_done: int, params: Params, m_step: Any, running: IncrementalStats[Any]) -> EMState:
        return cls(n_done, params, m_step, running.state())


def em_iterations(
    params: Params,
    m_step: Callable[[Any], Params],
    chunks: Sequence[Sequence[Any]],
    n_iter: int,
    engine: Engine | None = None,
    *,
    validation: Sequence[Shard] = (),
    delay_first: bool = False,
    earlier: Any = None,
    resume_from: EMState | None = None,
) -> Iterator[Iteration[Params]]:
    """Passes over the text. The objective is the log-likelihood of a token under the parameters it was read with.

    With `delay_first` the first pass updates the parameters only at its end: without smoothing, words of chunks that
    have not been read yet would get probability zero and keep it. `earlier` are statistics of other text, which stay
    part of the total as they are. `resume_from` is the state of an earlier run, whose iterations are not repeated.
    """
    running: IncrementalStats[Any] = IncrementalStats(len(chunks) + (earlier is not None))
    if earlier is not None:
        running.replace(len(chunks), earlier)
    n_done = 0
    if resume_from is not None:
        n_done, params = resume_from.n_done, resume_from.params
        running.restore(resume_from.running)
    for number in range(n_done, n_iter):
        log_likelihood, n_tokens = 0.0, 0
        for c, shards in enumerate(chunks):
            stats = map_reduce(partial(_statistics, params), shards, _add, engine=engine)
            log_likelihood, n_tokens = log_likelihood + stats.log_likelihood, n_tokens + stats.n_tokens
            total = running.replace(c, stats)
            if running.complete or not delay_first:
                params = m_step(total)
        if not np.isfinite(log_likelihood):
            raise InputError(
                "The text has probability zero under the current parameters, so EM cannot continue: "
                "use smoothing above 0."
            )
        mean = log_likelihood / n_tokens
        score = mean_log_probability(params, validation, engine) if validation else None
        remark = perplexity_remark(mean, score)
        yield Iteration(mean, params, score, remark, partial(EMState.of, number + 1, params, m_step, running))


@one_blas_thread()  # in worker processes too, whose BLAS may use any number of threads
def _statistics(params: Params, shard: Any) -> Any:
    return shard.statistics(params)


def _add(a: Any, b: Any) -> Any:
    return a + b


def mean_log_probability(params: Params, shards: Sequence[Shard], engine: Engine | None = None) -> float:
    """Mean log-probability of a token."""
    total, n = map_reduce(partial(_log_probability, params), shards, _add_pairs, engine=engine)
    return total / max(n, 1)


@one_blas_thread()
def _log_probability(params: Params, shard: Shard) -> tuple[float, int]:
    return float(params.filtered(shard.ids, shard.bounds).log_probabilities.sum()), len(shard.ids)


def _add_pairs(a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
    return a[0] + b[0], a[1] + b[1]


__all__ = [
    "BlockMStep",
    "EMState",
    "PlainMStep",
    "Shard",
    "em_iterations",
    "mean_log_probability",
    "perplexity_remark",
    "split_chunks",
    "unseen_mass",
]
