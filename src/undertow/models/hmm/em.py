"""EM for hidden Markov models of text: passes over the text in chunks, statistics that add, smoothing in the M-step.

With one chunk a pass is plain Baum–Welch. With more, the parameters are renewed after each chunk from the statistics of
all chunks, each as it was last seen (Neal and Hinton's incremental EM); this needs about half the passes. Chunks and
their shards depend on the text alone and are added in order, so that any number of workers gives the same bits.
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
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.smoothing import smoothed_columns
from undertow.kernels.chain.sparse import Blocks, BlockStats, Ints
from undertow.kernels.chain.sparse_low_rank import LowRankStats
from undertow.models.hmm.params import BlockParams, Params, PlainParams, PlainStats
from undertow.text.corpus import Corpus

SHARD_TOKENS = 1 << 17  # each shard has sums of its own, as large as the parameters: few large shards
MOST_SHARDS = 64  # a chunk of a large corpus is cut into so many, however large they become


class Shard(NamedTuple):
    ids: NDArray[np.uint32]
    bounds: Ints


def cut(corpus: Corpus, n_chunks: int, carry: bool) -> list[list[Shard]]:
    """Chunks of whole sentences, each in shards. With `carry` a shard is one sequence, else each sentence is."""
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
    """Parameters from expected counts, with all that the text says of blocks and words by counting."""

    blocks: Blocks
    words: NDArray[np.float64]  # (V,) counts of the words
    layout: PairLayout
    bigram: BlockBigram
    smoothing: Smoothing
    unseen: float  # probability of all words together that the text does not have

    @classmethod
    def of(
        cls,
        chunks: list[list[Shard]],
        blocks: Blocks,
        words: NDArray[Any],
        smoothing: float,
        also: NDArray[np.bool_] | None = None,
    ) -> BlockMStep:
        """From the text; `also` marks pairs of blocks to have matrices though the text lacks them."""
        ids = np.concatenate([shard.ids for chunk in chunks for shard in chunk])
        lengths = np.concatenate([np.diff(shard.bounds) for chunk in chunks for shard in chunk])
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        layout = block_smoothing.pair_layout(blocks.word_block[ids], bounds, blocks.sizes, also)
        bigram = block_smoothing.block_bigram(layout, discount=block_smoothing.DISCOUNT if smoothing else 0.0)
        constants = Smoothing().times(smoothing)
        return cls(blocks, words.astype(np.float64), layout, bigram, constants, unseen_mass(words, smoothing))

    def __call__(self, stats: BlockStats | LowRankStats) -> BlockParams:
        tokens = block_smoothing.state_tokens(stats.emission, self.blocks)
        share = block_smoothing.state_shares(tokens, self.words, self.blocks)
        transition: Any
        if isinstance(stats, LowRankStats):
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
            block_smoothing.smooth_emission(stats.emission, self.words, self.blocks, self.smoothing, self.unseen),
        )


class PlainMStep(NamedTuple):
    """The same without blocks: rows of the transition back off to uniform, emissions to the words' frequencies."""

    words: NDArray[np.float64]
    start: ChainParams  # for the form of its transition
    smoothing: float
    unseen: float

    def __call__(self, stats: PlainStats) -> PlainParams:
        constants = Smoothing().times(self.smoothing)
        tokens = stats.emission.sum(axis=0)
        seen = self.words > 0
        mean = block_smoothing.distribution(self.words)
        emission = smoothed_columns(stats.emission, constants.word, mean, dtype=np.float32)
        emission *= np.float32(1 - self.unseen)
        emission[~seen] = self.unseen / max(int((~seen).sum()), 1)
        transition = self.start.transition.m_step(stats.transition, 0.5 * self.smoothing)
        initial = block_smoothing.smooth_initial(stats.initial, block_smoothing.distribution(tokens), constants)
        return PlainParams(ChainParams(initial, transition, emission))


def unseen_mass(words: NDArray[Any], smoothing: float) -> float:
    """Good and Turing's share of words to come that were never seen: those seen once among the tokens, plus them."""
    if smoothing <= 0 or (words > 0).all():
        return 0.0
    once = max(int((words == 1).sum()), 1)
    return once / (float(words.sum()) + once)


# --- passes ---------------------------------------------------------------------------------------------


class Pass(NamedTuple):
    """What is known after a pass over the text."""

    log_likelihood: float  # of a token, under the parameters it was read with
    params: Any


def passes(
    params: Params,
    m_step: Callable[[Any], Params],
    chunks: list[list[Shard]],
    n_iter: int,
    engine: Engine | None = None,
    *,
    wait: bool = False,
) -> Iterator[Pass]:
    """EM without end conditions; the caller takes as many passes as it likes, at most n_iter.

    With `wait` the first pass renews the parameters at its end only: without smoothing, the words of chunks not read
    yet would get probability zero for ever.
    """
    held: list[Any] = [None] * len(chunks)
    total: Any = None
    for _ in range(n_iter):
        log_likelihood, n_tokens = 0.0, 0
        for c, shards in enumerate(chunks):
            stats = map_reduce(partial(_statistics, params), shards, _add, engine=engine)
            log_likelihood, n_tokens = log_likelihood + stats.log_likelihood, n_tokens + stats.n_tokens
            if len(chunks) == 1:
                total = stats
            else:
                stats = _short(stats)
                total = _long(stats) if total is None else _replace(total, stats, held[c])
                held[c] = stats
            if not wait or held[-1] is not None or len(chunks) == 1:
                params = m_step(total)
        if not np.isfinite(log_likelihood):
            raise InputError(
                "The text has probability zero under the model at hand, so EM cannot go on: use smoothing above 0."
            )
        yield Pass(log_likelihood / n_tokens, params)


@one_blas_thread()  # in workers too, whose BLAS may have any number
def _statistics(params: Params, shard: Shard) -> Any:
    return params.statistics(shard.ids, shard.bounds)


def _add(a: Any, b: Any) -> Any:
    return a + b


def _map(fn: Callable[..., Any], *trees: Any) -> Any:
    """Statistics are tuples of arrays and numbers, one within the other."""
    if isinstance(trees[0], tuple):
        return type(trees[0])(*(_map(fn, *parts) for parts in zip(*trees, strict=True)))
    return fn(*trees)


def _short(stats: Any) -> Any:
    """Kept for each chunk: half the memory. What is added is what will be taken away, so no error stays."""
    return _map(lambda x: x.astype(np.float32) if isinstance(x, np.ndarray) else x, stats)


def _long(stats: Any) -> Any:
    return _map(lambda x: x.astype(np.float64) if isinstance(x, np.ndarray) else x, stats)


def _replace(total: Any, new: Any, old: Any) -> Any:
    def one(t: Any, n: Any, o: Any = 0) -> Any:
        if not isinstance(t, np.ndarray):
            return t + n - o
        t += n
        t -= o
        return np.maximum(t, 0, out=t)  # rounding leaves −1e-12 where nothing is

    return _map(one, total, new) if old is None else _map(one, total, new, old)


def held_out(params: Params, shards: Sequence[Shard], engine: Engine | None = None) -> float:
    """Log-probability of a token of other text."""
    total, n = map_reduce(partial(_log_probability, params), shards, _add_pairs, engine=engine)
    return total / max(n, 1)


@one_blas_thread()
def _log_probability(params: Params, shard: Shard) -> tuple[float, int]:
    return float(params.filtered(shard.ids, shard.bounds).log_probabilities.sum()), len(shard.ids)


def _add_pairs(a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
    return a[0] + b[0], a[1] + b[1]


__all__ = ["BlockMStep", "Pass", "PlainMStep", "Shard", "cut", "held_out", "passes", "unseen_mass"]
