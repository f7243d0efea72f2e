"""EM for the factorial HMM: passes over a text, batch by batch, with an M-step after each batch.

The total always holds the counts of every batch from the last time it was read (Neal and Hinton's incremental EM), so a
word that occurs once in the text counts once, whichever batch was read last. An average over batches in which the
newest counts most would forget rare words from one pass to the next. A batch that was not read yet is counted with its
words in the states that the initial parameters give each word by itself.

The M-step for θ is closed for one layer at a time. In every joint state exactly one state of a layer is active, so
iterative scaling makes a whole step, θ_ymk += log(observed_ymk / expected_ymk), and never lowers the expected
log-likelihood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from undertow.engine import Engine, map_reduce
from undertow.errors import InputError
from undertow.kernels.factorial.words import (
    FactorialParams,
    FactorialStats,
    Sizes,
    bounded,
    emission,
    expected_words,
    log_normalizer,
    sizes_of,
)
from undertow.kernels.types import F64
from undertow.models.factorial.params import FactorialInference, InferenceSettings, Shard
from undertow.models.incremental import IncrementalStats
from undertow.text.corpus import Corpus

SHARD_TOKENS = 8192
MAX_JOINT = 1_000_000  # joint states up to which `word_shares` sums over them
MAX_STATS_BYTES = 1 << 29  # memory for the counts of all batches; where they would need more, batches are longer
MIN_COUNT = 1e-10  # tokens: the count of a word that has none, where nothing is smoothed
MIN_PROBABILITY = 1e-8  # no transition or initial probability falls below this, so that EM can raise it again

Batch = list[tuple[int, int]]  # runs of sentences


class EMSettings(NamedTuple):
    """Settings of EM."""

    inference: InferenceSettings
    n_iter: int
    batch_size: int  # tokens
    smoothing: float
    m_passes: int


class Pass(NamedTuple):
    """The result of one pass over the text."""

    log_likelihood: float  # mean over the tokens (or the bound), each batch under the parameters before its M-step
    params: FactorialParams
    state: Callable[[], PassState]


class PassState(NamedTuple):
    """What the passes need to go on after a finished one."""

    n_done: int
    params: FactorialParams
    batches: list[Batch]
    text_stats: Any  # of TextStats; None if the text is one batch


def passes(
    corpus: Corpus,
    params: FactorialParams,
    settings: EMSettings,
    rng: np.random.Generator,
    engine: Engine | None,
    resume_from: PassState | None = None,
) -> Iterator[Pass]:
    """Passes of EM over the text, from `params` or from the state after a pass of an earlier run."""
    if resume_from is None:
        shards = corpus.shards(SHARD_TOKENS)
        if corpus.n_tokens > settings.batch_size:
            rng.shuffle(shards)  # so that each batch is a sample of the whole text
        batches = cut_batches(shards, corpus, max(settings.batch_size, _min_batch_size(params, corpus.n_tokens)))
    else:
        batches = resume_from.batches
    text_stats = TextStats(params, corpus, len(batches)) if len(batches) > 1 else None
    n_done = 0
    if resume_from is not None:
        n_done, params = resume_from.n_done, resume_from.params
        if text_stats is not None:
            text_stats.restore(resume_from.text_stats)
    for number in range(n_done, settings.n_iter):
        total = 0.0
        for b, batch in enumerate(batches):
            inference = FactorialInference(params, settings.inference)
            stats = map_reduce(inference, _read_shards(corpus, batch), FactorialStats.plus, engine=engine)
            if not np.isfinite(stats.log_likelihood):
                raise InputError(
                    "The text has no finite probability under the current parameters, so EM cannot continue: use "
                    "smoothing above 0, or another random_state."
                )
            total += stats.log_likelihood
            if text_stats is not None:
                stats = text_stats.replace(b, stats)
            params = m_step(stats, params, smoothing=settings.smoothing, n_passes=settings.m_passes)
        state = partial(PassState, number + 1, params, batches, None if text_stats is None else text_stats.state())
        yield Pass(total / corpus.n_tokens, params, state)


def held_out(params: FactorialParams, other: Corpus, inference: InferenceSettings, engine: Engine | None) -> float:
    """Mean log-probability of a token of held-out text, or the bound on it."""
    run = FactorialInference(params, inference)
    total = map_reduce(
        partial(_log_likelihood, run), _read_shards(other, other.shards(SHARD_TOKENS)), _add, engine=engine
    )
    return float(total) / other.n_tokens


def _log_likelihood(inference: FactorialInference, shard: Shard) -> float:
    if inference.settings.exact:
        return float(inference.exact(*shard, backward=False).log_likelihood.sum())
    return float(inference.chains(*shard).bound.sum())


def _add(a: float, b: float) -> float:
    return a + b


class TextStats:
    """Counts of the whole text from its batches, each as it was last read.

    A batch that was not read yet is counted with its words in the states that `params` give each word by itself.
    """

    def __init__(self, params: FactorialParams, corpus: Corpus, n_batches: int) -> None:
        self.n_tokens = corpus.n_tokens
        self.running = IncrementalStats[FactorialStats](n_batches, by_rows=("words",))
        self.shares = word_shares(params)
        self.unread: F64 | None = np.array(corpus.vocabulary.counts, dtype=np.float64)  # tokens of each word

    def state(self) -> Any:
        """What changes from batch to batch, for a checkpoint."""
        return self.running.state(), self.unread

    def restore(self, state: Any) -> None:
        running, self.unread = state
        self.running.restore(running)

    def replace(self, b: int, stats: FactorialStats) -> FactorialStats:
        """Replace the counts of a batch and return the counts of the whole text."""
        total = self.running.replace(b, stats)
        if self.unread is None:
            return total
        self.unread -= stats.words[:, 0].astype(np.float32).sum(axis=1)  # rounded as the running total rounds
        if self.running.complete:
            self.unread = None
            return total
        # until all batches were read: transitions as in the part that was read, words as in the whole text
        scaled = total.scaled(self.n_tokens / total.n_tokens)
        return scaled._replace(words=total.words + np.maximum(self.unread, 0)[:, None, None] * self.shares)


def word_shares(params: FactorialParams) -> F64:
    """(V, M, K) p(state of a layer | word) for a word without its context."""
    e = emission(params.theta)
    layers = [params.layer(m) for m in range(params.n_layers)]
    stationary = [_stationary_distribution(transition) for _, transition, _ in layers]
    shares = np.zeros(params.theta.shape)
    if e.n_joint <= MAX_JOINT:
        visits = np.ones(1)
        for one in stationary:
            visits = np.multiply.outer(visits, one).reshape(-1)
        log_norm = log_normalizer(e)
        for m, k in enumerate(e.sizes):
            shares[:, m, :k] = expected_words(e, visits, log_norm, m)
    else:
        for m, (_, _, theta) in enumerate(layers):
            weight = np.exp(theta - theta.max(axis=0))
            shares[:, m, : e.sizes[m]] = weight / weight.sum(axis=0) * stationary[m]
    out: F64 = shares / np.maximum(shares.sum(axis=2, keepdims=True), 1e-300)
    return out


def _stationary_distribution(transition: F64) -> F64:
    """The stationary distribution of a chain, by 50 steps of the power method."""
    p = np.full(len(transition), 1.0 / len(transition))
    for _ in range(50):
        p = p @ transition
    out: F64 = p / p.sum()
    return out


def _min_batch_size(params: FactorialParams, n_tokens: int) -> int:
    """Tokens a batch must have so that the counts of all batches fit into MAX_STATS_BYTES."""
    row = 4 * params.theta.shape[1] * params.theta.shape[2]
    return int(-(-n_tokens * row * len(params.theta) // MAX_STATS_BYTES))


def cut_batches(shards: Batch, corpus: Corpus, batch_size: int) -> list[Batch]:
    """Shards in batches of at least batch_size tokens; a short last batch joins the one before it."""
    batches: list[Batch] = [[]]
    n = 0
    for first, stop in shards:
        if n >= batch_size:
            batches.append([])
            n = 0
        batches[-1].append((first, stop))
        n += int(corpus.offsets[stop] - corpus.offsets[first])
    if len(batches) > 1 and n < batch_size / 2:
        last = batches.pop()
        batches[-1] += last
    return batches


def _read_shards(corpus: Corpus, batch: Batch) -> Iterator[Shard]:
    for first, stop in batch:
        offsets = np.asarray(corpus.offsets[first : stop + 1], dtype=np.int64)
        yield np.asarray(corpus.ids[offsets[0] : offsets[-1]]), offsets - offsets[0]


# --- M-step ---------------------------------------------------------------------------------------------


def m_step(
    stats: FactorialStats, params: FactorialParams, *, smoothing: float = 0.0, n_passes: int = 2
) -> FactorialParams:
    """Parameters from expected counts: the chains in closed form, θ by iterative scaling."""
    initial, transition = np.zeros_like(params.initial), np.zeros_like(params.transition)
    for m, k in enumerate(params.sizes):
        initial[m, :k] = _normalize_rows(stats.first[m, :k])
        transition[m, :k, :k] = _normalize_rows(stats.pairs[m, :k, :k])
    if not len(stats.visits):
        theta = scale_by_bound(stats, params.theta, smoothing)
    else:
        theta = scale_layers(stats.words, stats.visits, params.theta, smoothing, n_passes)
    return FactorialParams(initial, transition, theta)


def _normalize_rows(counts: F64) -> F64:
    """Rows as probabilities, none below MIN_PROBABILITY; a row without counts is uniform."""
    total = counts.sum(axis=-1, keepdims=True)
    p = np.divide(counts, total, out=np.full_like(counts, 1.0 / counts.shape[-1]), where=total > 0)
    p = np.maximum(p, MIN_PROBABILITY)
    out: F64 = p / p.sum(axis=-1, keepdims=True)
    return out


def smoothed(words: F64, visits: F64, smoothing: float, sizes: Sizes) -> tuple[F64, F64]:
    """Counts with `smoothing` pseudo-counts per word, spread evenly over the joint states: a prior on p(y | s)."""
    return words + smoothing / np.array(sizes)[:, None], visits + smoothing * len(words) / len(visits)


def scale_layers(words: F64, visits: F64, theta: F64, smoothing: float, n_passes: int) -> F64:
    """Iterative scaling with a full step for one layer after the other; the smoothed objective never falls."""
    sizes = sizes_of(theta)
    words, visits = smoothed(words, visits, smoothing, sizes)
    theta = theta.copy()
    for _ in range(n_passes):
        for m, k in enumerate(sizes):
            e = emission(theta)
            expected = np.maximum(expected_words(e, visits, log_normalizer(e), m), MIN_COUNT * 1e-10)
            theta[:, m, :k] += np.log(np.maximum(words[:, m, :k], MIN_COUNT)) - np.log(expected)
            theta = bounded(theta)
    return theta


def scale_by_bound(stats: FactorialStats, theta: F64, smoothing: float) -> F64:
    """Iterative scaling of all layers at once by 1/M of a step, with the counts expected by the bound; it never falls.

    Full steps one layer after the other would need another pass over the text for each, as the bound has no table of
    joint states.
    """
    sizes = np.array(sizes_of(theta))
    expected = np.exp(theta) * stats.bound_counts
    extra = np.maximum(smoothing / sizes, MIN_COUNT)[:, None]
    return bounded(theta + (np.log(stats.words + extra) - np.log(expected + extra)) / len(sizes))
