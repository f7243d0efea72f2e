"""Fitting an HMM whose parameters are tied through embeddings, by gradients with states dropped at random.

Tables of thousands of states overfit a text of a few million tokens: each state has numbers of its own for every state
that may follow. Here they are inner products of short vectors (`kernels.chain.embeddings`), and every batch of text is
read by some of the states only, drawn at random, so that no state can rely on a certain other one. Three steps:

1. A few passes of EM on tables with few states: from noise, gradients take much longer to get as far.
2. Gradient steps towards the expected counts of that EM, with dropped states. Then every state is copied, with a little
   noise, until there are as many as wanted: the copies part where the text wants them to.
3. Epochs over batches of text: the tables of the kept states, an E-step of the batch, one step of Adam by Fisher's
   identity.

New text has more unknown words than the text that the vocabulary was taken from, and rare words are rarer there. So in
step 3 some tokens of rare words, drawn at random, are read as the unknown word, as many as the text itself says when
parts of it are left out (`unknown_shares`). Without that the model gives unknown words half of their probability.

The result is ordinary tables: queries, saving and loading are those of any other HMM.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from undertow.engine import Engine, map_reduce
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.chain.block_operators import PairSparse
from undertow.kernels.chain.blocks import Blocks, offsets
from undertow.kernels.chain.embeddings import (
    Adam,
    ChainLayout,
    Embeddings,
    ExpectedCounts,
    chain_tables,
    log_likelihood_gradient,
)
from undertow.kernels.chain.sparse import BlockStats, block_statistics
from undertow.kernels.types import F32, F64, I64
from undertow.models.fitting import Iteration, perplexity_remark
from undertow.models.hmm.em import Shard, em_iterations, mean_log_probability, split_chunks, unseen_mass
from undertow.models.hmm.init import choose_blocks, initial_params
from undertow.models.hmm.params import BlockParams, Params
from undertow.models.hmm.spelling import affixes
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

FIRST_STATES = 2048  # EM begins with at most so many
EM_PASSES = 4
IMITATION_DRAWS, STEPS_PER_DRAW = 20, 4  # gradient steps towards the counts of EM
RATE, LAST_RATE = 5e-3, 1e-4  # of Adam; it falls along a cosine
DECAY = 1.0
SPLIT_NOISE = 0.1  # of the vectors' standard deviation
LEFT_OUT_PARTS = 10  # of the text, each left out in turn to see how often words are new
MOST_UNKNOWN = 0.9  # of the tokens of a word: the rest still teaches the word itself
PARTS = 2  # of a batch, for two threads; fixed, so that the bits do not depend on the number of threads


DROPOUT = 0.15
BATCH_TOKENS = 1 << 13


class Options(NamedTuple):
    """What the constructor of `HMM` says about training."""

    n_states: int
    n_blocks: int
    width: int
    dropout: float
    batch_tokens: int
    n_iter: int
    n_chunks: int
    smoothing: float
    carry: bool


def options_of(hmm: Any, text: Corpus) -> Options:
    """The options of an `HMM` for this text."""
    words = int((text.vocabulary.counts > 0).sum())
    return Options(
        n_states=hmm.n_states,
        n_blocks=choose_blocks(hmm.n_blocks, hmm.n_states, words),
        width=hmm.width,
        dropout=DROPOUT if hmm.dropout is None else hmm.dropout,
        batch_tokens=BATCH_TOKENS if hmm.batch_tokens is None else hmm.batch_tokens,
        n_iter=hmm.n_iter,
        n_chunks=hmm.n_chunks,
        smoothing=hmm.smoothing,
        carry=hmm.carry,
    )


class EmbeddedState(NamedTuple):
    """What training needs to go on after an epoch."""

    n_done: int
    word_block: NDArray[np.int32]  # (V,); −1 for a word that the text does not have
    first: I64  # (G + 1,) where the states of each block begin
    weights: Embeddings
    adam: Adam


# --- states and words -----------------------------------------------------------------------------------


class WordOrder(NamedTuple):
    """Words of the text in the order of their blocks."""

    ids: I64  # (rows,) the word of each row
    row: NDArray[np.uint32]  # (V,) the row of each word; 0 for words that the text does not have
    per_block: I64  # (G,)
    spelling: csr_array  # (rows, A) the affixes of each row

    @classmethod
    def of(cls, word_block: NDArray[np.int32], words: Sequence[str]) -> WordOrder:
        ids = np.argsort(word_block, kind="stable")
        ids = ids[word_block[ids] >= 0]
        row = np.zeros(len(word_block), dtype=np.uint32)
        row[ids] = np.arange(len(ids))
        return cls(ids, row, np.bincount(word_block[ids]), affixes([words[i] for i in ids.tolist()]))

    def layout(self, sizes: I64, seen: NDArray[np.bool_] | None = None) -> ChainLayout:
        """Of blocks with so many states each, and the pairs of blocks in `seen`; None: all."""
        return ChainLayout.of(self.per_block, sizes, self.spelling, seen)


def final_sizes(sizes: I64, tokens: F64, n_states: int) -> I64:
    """(G,) states of each block at the end: as the square root of its tokens; a block that begins with one keeps it."""
    share = np.sqrt(np.where(sizes > 1, tokens, 0.0))
    more = np.rint((n_states - len(sizes)) * np.cumsum(share) / max(share.sum(), 1e-300)).astype(np.int64)
    return np.asarray(1 + np.diff(more, prepend=0))


def split_states(state: EmbeddedState, sizes: I64, rng: np.random.Generator) -> EmbeddedState:
    """Copy states, with noise, until each block has as many as wanted; together copies are as probable as before."""
    old = np.diff(state.first)
    parent = np.concatenate([state.first[b] + np.arange(n) * old[b] // n for b, n in enumerate(sizes.tolist())]).astype(
        np.int64
    )
    copies = np.bincount(parent, minlength=state.first[-1])[parent]
    weights = state.weights.of_states(parent)
    less = np.log(copies).astype(np.float32)
    noisy = [_noisy(x, copies > 1, rng) for x in (weights.leave, weights.arrive, weights.emit)]
    weights = weights._replace(
        leave=noisy[0],
        arrive=noisy[1],
        emit=noisy[2],
        arrive_bias=weights.arrive_bias - less,
        initial=weights.initial - less,
    )
    adam = state.adam._replace(mean=state.adam.mean.of_states(parent), square=state.adam.square.of_states(parent))
    return state._replace(first=offsets(sizes), weights=weights, adam=adam)


def _noisy(x: F32, which: NDArray[np.bool_], rng: np.random.Generator) -> F32:
    noise = rng.standard_normal(x.shape, dtype=np.float32) * np.float32(SPLIT_NOISE * x.std())
    return np.asarray(x + noise * which[:, None], dtype=np.float32)


def n_kept(first: I64, dropout: float) -> I64:
    """(G,) how many states of each block are kept: the share 1 − dropout, at least one."""
    return np.maximum(1, np.rint(np.diff(first) * (1 - dropout))).astype(np.int64)


def draw_states(first: I64, dropout: float, rng: np.random.Generator) -> I64:
    """The states that are kept, sorted."""
    if not dropout:
        return np.arange(first[-1])
    low, sizes, kept = first[:-1].tolist(), np.diff(first).tolist(), n_kept(first, dropout).tolist()
    draws = [a + np.sort(rng.permutation(k)[:n]) for a, k, n in zip(low, sizes, kept, strict=True)]
    return np.concatenate(draws)


# --- unknown words --------------------------------------------------------------------------------------


class UnknownWords(NamedTuple):
    """How tokens of known words are read as unknown ones, by rows of words."""

    share: F64  # (rows,) of the tokens of each word
    instead: NDArray[np.uint32]  # (rows,) the row of the unknown word, or of the class of unknown words

    @classmethod
    def of(cls, corpus: Corpus, order: WordOrder, word_block: NDArray[np.int32]) -> UnknownWords:
        instead = corpus.vocabulary.fallback()
        share = np.where(word_block[instead] >= 0, unknown_shares(corpus), 0.0)  # the text must have unknown words
        return cls(share[order.ids], order.row[instead[order.ids]])

    def read(self, ids: NDArray[np.uint32], rng: np.random.Generator) -> NDArray[np.uint32]:
        """Rows of words, some of them replaced."""
        return np.where(rng.random(len(ids)) < self.share[ids], self.instead[ids], ids)


def unknown_shares(corpus: Corpus) -> F64:
    """(V,) the share of each word's tokens that should have been unknown words, for new text to be as expected.

    By deleted estimation: each of ten parts of the text is left out in turn. Words that j of the other parts have, c
    times in all, should come c / 9 times in it. They come less often; what they lack in all such parts is the share of
    words that j of ten parts have (one more token is added to both, for little text). A word is known to the other
    parts if they have it as often as the rarest word of the vocabulary.
    """
    K, vocabulary = LEFT_OUT_PARTS, corpus.vocabulary
    edges = np.linspace(0, corpus.n_tokens, K + 1).astype(np.int64)
    inside = np.stack([np.bincount(ids, minlength=len(vocabulary)) for ids in np.split(corpus.ids, edges[1:-1])])
    inside[:, : vocabulary.n_special] = 0
    total, n_parts = inside.sum(axis=0), (inside > 0).sum(axis=0)
    least = total[total > 0].min(initial=corpus.n_tokens)
    found, expected = np.zeros(K), np.zeros(K)
    for part in inside:
        others = total - part
        known = others >= least
        group = (n_parts - (part > 0))[known]
        found += np.bincount(group, weights=part[known], minlength=K)
        expected += np.bincount(group, weights=others[known] / (K - 1), minlength=K)
    lacking = np.clip(1 - (found + 1) / (expected + 1), 0, MOST_UNKNOWN)
    return np.where(total > 0, lacking[np.minimum(n_parts, K - 1)], 0.0)


# --- text -----------------------------------------------------------------------------------------------


Batch = list[Shard]  # sentences over rows of words, in parts for the threads


def text_batches(corpus: Corpus, batch_tokens: int, carry: bool, order: WordOrder) -> list[Batch]:
    """The text in batches of whole sentences; with `carry`, of sequences that are cut anywhere."""
    chunks = split_chunks(corpus, max(1, round(corpus.n_tokens / batch_tokens)), carry)
    return [[part for shard in chunk for part in _parts(shard, order.row)] for chunk in chunks]


def pairs_in(batch: Batch, order: WordOrder) -> NDArray[np.bool_]:
    """(G, G) which blocks follow each other in a batch."""
    G = len(order.per_block)
    block, seen = np.repeat(np.arange(G), order.per_block), np.zeros((G, G), dtype=bool)
    for part in batch:  # pairs across two sentences too, which do no harm
        seen[block[part.ids[:-1]], block[part.ids[1:]]] = True
    return seen


def _parts(shard: Shard, row: NDArray[np.uint32]) -> Iterator[Shard]:
    ids, bounds = row[shard.ids], shard.bounds
    if len(bounds) == 2:  # one sequence, whose state is carried: cut it anywhere
        bounds = np.unique(np.linspace(0, len(ids), PARTS + 1).astype(np.int64))
    edges = np.unique(np.searchsorted(bounds, np.linspace(0, bounds[-1], PARTS + 1)))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield Shard(ids[bounds[low] : bounds[high]], bounds[low : high + 1] - bounds[low])


@one_blas_thread()
def _statistics(initial: F32, transition: PairSparse, emission: F32, blocks: Blocks, shard: Shard) -> BlockStats:
    return block_statistics(shard.ids, shard.bounds, blocks, transition, initial, emission, np.float32)


def _add(a: BlockStats, b: BlockStats) -> BlockStats:
    a.pairs[:] += b.pairs
    return BlockStats(
        a.log_likelihood + b.log_likelihood,
        a.n_tokens + b.n_tokens,
        a.pairs,
        a.emission + b.emission,
        a.initial + b.initial,
    )


# --- the start ------------------------------------------------------------------------------------------


def embedded_start(
    corpus: Corpus, options: Options, rng: np.random.Generator, engine: Engine | None, n_threads: int
) -> EmbeddedState:
    """A few passes of EM on tables with few states, embeddings that imitate its expected counts, then all states."""
    chunks = split_chunks(corpus, min(options.n_chunks, corpus.n_sentences), options.carry)
    n_first = min(options.n_states, max(2 * options.n_blocks, FIRST_STATES))
    counts = LagCounts.from_corpus(corpus, lags=1)
    params, m_step = initial_params(
        counts, chunks, n_first, options.n_blocks, None, 0, "random", options.smoothing or 1.0, rng, n_threads
    )
    for iteration in em_iterations(params, m_step, chunks, EM_PASSES, engine):
        params = iteration.params
    if not isinstance(params, BlockParams) or not isinstance(params.transition, PairSparse):
        raise InputError("HMM: the text has too few words for two blocks: use parameterization='table'.")
    stats = map_reduce(partial(_table_statistics, params), [s for c in chunks for s in c], _add, engine=engine)
    blocks, word_counts = params.blocks, corpus.vocabulary.counts
    order = WordOrder.of(blocks.word_block, corpus.vocabulary.words)
    Z, V, d = blocks.n_states, len(order.ids), options.width

    def normal(n: int) -> F32:
        return rng.standard_normal((n, d), dtype=np.float32) / np.float32(math.sqrt(d))

    emission = stats.emission[_places(blocks, order)]
    layout = order.layout(blocks.sizes)
    tokens = np.zeros(Z)
    for b in range(blocks.n_blocks):
        low, high = layout.blocks.starts[layout.first_word[[b, b + 1]]]
        tokens[blocks.first[b] : blocks.first[b + 1]] = emission[low:high].reshape(-1, blocks.sizes[b]).sum(axis=0)
    per_block = np.maximum(np.bincount(blocks.word_block[order.ids], weights=word_counts[order.ids]), 0.01)
    weights = Embeddings(
        normal(Z),
        normal(blocks.n_blocks),
        np.log(per_block).astype(np.float32),
        normal(Z),
        np.log(np.maximum(tokens, 0.01)).astype(np.float32),
        normal(Z),
        normal(V),
        np.zeros((order.spelling.shape[1], d), dtype=np.float32),
        np.log(word_counts[order.ids]).astype(np.float32),
        np.log(stats.initial + 1e-3 * tokens / tokens.sum() + 1e-9).astype(np.float32),
    )
    state = EmbeddedState(0, blocks.word_block, blocks.first, weights, Adam.start(weights))
    for _ in range(IMITATION_DRAWS):
        state = _imitate(state, order, params.transition, stats, emission, options, rng, n_threads)
    return split_states(state, final_sizes(blocks.sizes, per_block, options.n_states), rng)


def _table_statistics(params: BlockParams, shard: Shard) -> BlockStats:
    return params.statistics(shard.ids, shard.bounds)  # type: ignore[no-any-return]


def _places(blocks: Blocks, order: WordOrder) -> I64:
    """Where the emission numbers of the words lie, listed in the order of their blocks."""
    lengths = np.diff(blocks.starts)[order.ids]
    begin = np.repeat(blocks.starts[order.ids] - (np.cumsum(lengths) - lengths), lengths)
    return np.asarray(begin + np.arange(len(begin)))


def _imitate(
    state: EmbeddedState,
    order: WordOrder,
    T: PairSparse,
    stats: BlockStats,
    emission: NDArray[Any],
    options: Options,
    rng: np.random.Generator,
    n_threads: int,
) -> EmbeddedState:
    """A few steps up Σ n log(probability) for the counts n of some of the states."""
    kept = draw_states(state.first, options.dropout, rng)
    first = np.searchsorted(kept, state.first)
    layout = order.layout(np.diff(first), T.pair >= 0)
    pairs = np.empty(layout.starts[-1], dtype=np.float32)
    _gather_pairs(stats.pairs, T.first, T.pair, T.starts, kept, first, layout.pair, layout.starts, pairs)
    full = order.layout(np.diff(state.first))
    some = [
        emission[full.blocks.starts[full.first_word[b]] : full.blocks.starts[full.first_word[b + 1]]]
        .reshape(order.per_block[b], -1)[:, kept[first[b] : first[b + 1]] - state.first[b]]
        .ravel()
        for b in range(len(first) - 1)
    ]
    counts = ExpectedCounts(pairs, np.concatenate(some), stats.initial[kept])
    weights, adam = state.weights, state.adam
    n = float(pairs.sum(dtype=np.float64))
    for _ in range(STEPS_PER_DRAW):
        part = weights.of_states(kept)
        tables = chain_tables(part, layout, n_threads)
        again = counts._replace(pairs=pairs.copy())  # it is overwritten
        gradient = log_likelihood_gradient(part, layout, tables, again, n_threads)
        adam = adam.ascend(weights, gradient, kept, 1 / max(n, 1.0), RATE, DECAY, n_threads)
    return state._replace(adam=adam)


@njit(cache=True, nogil=True)
def _gather_pairs(
    data: Any,
    first: Any,
    pair: Any,
    starts: Any,
    kept: Any,
    kept_first: Any,
    kept_pair: Any,
    kept_starts: Any,
    out: Any,
) -> None:
    """The rows and columns of the kept states, pair of blocks by pair of blocks."""
    G = len(first) - 1
    for i in range(G):
        for j in range(G):
            if pair[i, j] < 0:
                continue
            k, e = first[j + 1] - first[j], kept_starts[kept_pair[i, j]]
            for x in range(kept_first[i], kept_first[i + 1]):
                row = starts[pair[i, j]] + (kept[x] - first[i]) * k
                for y in range(kept_first[j], kept_first[j + 1]):
                    out[e] = data[row + kept[y] - first[j]]
                    e += 1


# --- training -------------------------------------------------------------------------------------------


def rate_at(progress: float) -> float:
    """The learning rate after this share of all steps."""
    return LAST_RATE + (RATE - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * progress))


def gradient_step(
    state: EmbeddedState,
    order: WordOrder,
    batch: Batch,
    kept: I64,
    rate: float,
    engine: Engine | None,
    n_threads: int,
) -> tuple[EmbeddedState, BlockStats]:
    """One step by the gradient of a batch under the kept states."""
    layout = order.layout(np.diff(np.searchsorted(kept, state.first)), pairs_in(batch, order))
    part = state.weights.of_states(kept)
    tables = chain_tables(part, layout, n_threads)
    stats = map_reduce(partial(_statistics, *tables[:3], layout.blocks), batch, _add, engine=engine)
    counts = ExpectedCounts(stats.pairs, stats.emission, stats.initial)
    gradient = log_likelihood_gradient(part, layout, tables, counts, n_threads)
    adam = state.adam.ascend(state.weights, gradient, kept, 1 / stats.n_tokens, rate, DECAY, n_threads)
    return state._replace(adam=adam), stats


def as_params(state: EmbeddedState, order: WordOrder, unseen: float, n_threads: int = 1) -> BlockParams:
    """The tables of all states; words that are not in the text are emitted by all alike, in total `unseen`."""
    sizes = np.diff(state.first)
    tables = chain_tables(state.weights, order.layout(sizes), n_threads)
    blocks = Blocks.of(state.word_block, sizes)
    each = unseen / max(int((state.word_block < 0).sum()), 1)
    emission = np.full(blocks.starts[-1], each, dtype=np.float32)
    emission[_places(blocks, order)] = tables.emission * np.float32(1 - unseen)
    return BlockParams(blocks, tables.initial, tables.transition, emission)


def embedded_epochs(
    state: EmbeddedState,
    corpus: Corpus,
    options: Options,
    rng: np.random.Generator,
    engine: Engine | None,
    n_threads: int,
    validation: Sequence[Shard] = (),
) -> Iterator[Iteration[Params]]:
    """Epochs over the batches in random order.

    The objective is the log-likelihood of a token with dropped states, some rare words being read as unknown ones.
    """
    order = WordOrder.of(state.word_block, corpus.vocabulary.words)
    unseen = unseen_mass(corpus.vocabulary.counts, options.smoothing)
    batches = text_batches(corpus, options.batch_tokens, options.carry, order)
    unknown = UnknownWords.of(corpus, order, state.word_block)
    n_steps = options.n_iter * len(batches)
    for epoch in range(state.n_done, options.n_iter):
        log_likelihood, n_tokens = 0.0, 0
        for i, b in enumerate(rng.permutation(len(batches)).tolist()):
            rate = rate_at((epoch * len(batches) + i) / n_steps)
            kept = draw_states(state.first, options.dropout, rng)
            batch = [part._replace(ids=unknown.read(part.ids, rng)) for part in batches[b]]
            state, stats = gradient_step(state, order, batch, kept, rate, engine, n_threads)
            log_likelihood, n_tokens = log_likelihood + stats.log_likelihood, n_tokens + stats.n_tokens
        state = state._replace(n_done=epoch + 1)
        params = as_params(state, order, unseen, n_threads)
        mean = log_likelihood / n_tokens
        held = mean_log_probability(params, validation, engine) if validation else None
        yield Iteration(mean, params, held, perplexity_remark(mean, held), partial(_same, state))


def _same(state: EmbeddedState) -> EmbeddedState:
    return state
