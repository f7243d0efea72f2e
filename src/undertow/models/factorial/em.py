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
from numpy.typing import NDArray

from undertow.engine import Engine, map_reduce
from undertow.kernels.factorial.words import (
    FactorialParams,
    FactorialStats,
    Floats,
    bounded,
    emission,
    expected_words,
    log_normaliser,
)
from undertow.models.factorial.params import FactorialInference, InferenceSettings, Shard
from undertow.text.corpus import Corpus

SHARD_TOKENS = 8192
MOST_JOINT = 1_000_000  # joint states over which a word's shares are summed up
HELD_BYTES = 1 << 29  # of the counts of all batches; a text that would need more has longer batches
FLOOR = 1e-10  # tokens: the count of a word that has none, where nothing is smoothed
LEAST = 1e-8  # no transition or initial probability falls below this, so that EM can raise it again

Batch = list[tuple[int, int]]  # runs of sentences


class EMSettings(NamedTuple):
    """Settings of EM."""

    inference: InferenceSettings
    n_iter: int
    batch_size: int  # tokens
    smoothing: float
    m_passes: int


class Pass(NamedTuple):
    """What is known after a pass over the text."""

    log_likelihood: float  # or the bound; of a token, under the parameters it was read with
    params: FactorialParams
    state: Callable[[], PassState]


class PassState(NamedTuple):
    """What the passes need to go on after a finished one."""

    n_done: int
    params: FactorialParams
    batches: list[Batch]
    kept: dict[str, Any] | None  # the fields of IncrementalStats


def passes(
    corpus: Corpus,
    params: FactorialParams,
    how: EMSettings,
    rng: np.random.Generator,
    engine: Engine | None,
    resume_from: PassState | None = None,
) -> Iterator[Pass]:
    """Passes of EM over the text, from `params` or from the state after a pass of an earlier run."""
    if resume_from is None:
        shards = corpus.shards(SHARD_TOKENS)
        if corpus.n_tokens > how.batch_size:
            rng.shuffle(shards)  # neighbours in a text are alike; a batch should not be
        batches = cut_batches(shards, corpus, max(how.batch_size, _least_batch(params, corpus.n_tokens)))
    else:
        batches = resume_from.batches
    kept = IncrementalStats(params, corpus, len(batches)) if len(batches) > 1 else None
    n_done = 0
    if resume_from is not None:
        n_done, params = resume_from.n_done, resume_from.params
        if kept is not None and resume_from.kept is not None:
            vars(kept).update(resume_from.kept)
    for number in range(n_done, how.n_iter):
        total = 0.0
        for b, batch in enumerate(batches):
            inference = FactorialInference(params, how.inference)
            stats = map_reduce(inference, _cut(corpus, batch), FactorialStats.plus, engine=engine)
            total += stats.log_likelihood
            if kept is not None:
                stats = kept.replace(b, stats)
            params = m_step(stats, params, smoothing=how.smoothing, n_passes=how.m_passes)
        state = partial(PassState, number + 1, params, batches, None if kept is None else vars(kept))
        yield Pass(total / corpus.n_tokens, params, state)


def held_out(params: FactorialParams, other: Corpus, inference: InferenceSettings, engine: Engine | None) -> float:
    """Log-probability of a token of other text, or the bound on it."""
    run = FactorialInference(params, inference)
    total = map_reduce(partial(_log_likelihood, run), _cut(other, other.shards(SHARD_TOKENS)), _add, engine=engine)
    return float(total) / other.n_tokens


def _log_likelihood(inference: FactorialInference, shard: Shard) -> float:
    if inference.settings.exact:
        return float(inference.exact(*shard, backward=False).log_likelihood.sum())
    return float(inference.chains(*shard).bound.sum())


def _add(a: float, b: float) -> float:
    return a + b


class IncrementalStats:
    """The counts of every batch as it was last read, and their sum."""

    def __init__(self, params: FactorialParams, corpus: Corpus, n_batches: int) -> None:
        self.n_tokens = corpus.n_tokens
        self.parts: list[BatchStats | None] = [None] * n_batches
        self.shares = word_shares(params)
        self.unread: Floats | None = np.array(corpus.vocabulary.counts, dtype=np.float64)  # tokens of each word
        self.total: FactorialStats | None = None

    def replace(self, b: int, stats: FactorialStats) -> FactorialStats:
        """Put the counts of a batch in the place of those it had; the counts of the whole text."""
        part, old = BatchStats.of(stats), self.parts[b]
        self.parts[b] = part
        self.total = part.add_to(stats.scaled(0.0) if self.total is None else self.total, 1.0)
        if old is not None:
            self.total = old.add_to(self.total, -1.0)
        if self.unread is None:
            return self.total
        self.unread[part.rows] -= part.stats.words[:, 0].sum(axis=1)
        if all(p is not None for p in self.parts):
            self.unread = None
            return self.total
        # the rest of the text is taken to go from state to state as what was read; its words are known
        scaled = self.total.scaled(self.n_tokens / self.total.n_tokens)
        return scaled._replace(words=self.total.words + np.maximum(self.unread, 0)[:, None, None] * self.shares)


class BatchStats(NamedTuple):
    """Counts of a batch in half the memory: the rows of its words alone, in float32."""

    rows: NDArray[np.int64]
    stats: FactorialStats

    @classmethod
    def of(cls, stats: FactorialStats) -> BatchStats:
        rows = np.flatnonzero(stats.words[:, 0].any(axis=1))
        short = [x if isinstance(x, float) else x.astype(np.float32) for x in stats._replace(words=stats.words[rows])]
        return cls(rows, FactorialStats._make(short))

    def add_to(self, total: FactorialStats, sign: float) -> FactorialStats:
        """The total, changed in place, with this part more or less. What is taken away is what was added."""
        words, part = total.words, self.stats
        words[self.rows] = np.maximum(words[self.rows] + sign * part.words, 0.0)
        return FactorialStats(
            total.log_likelihood + sign * part.log_likelihood,
            total.n_tokens + sign * part.n_tokens,
            words,
            *(
                np.maximum(getattr(total, name) + sign * getattr(part, name), 0.0)  # rounding leaves −1e-12 of nothing
                for name in ("visits", "rest", "first", "pairs")
            ),
        )


def word_shares(params: FactorialParams) -> Floats:
    """(V, M, K) how the tokens of a word fall on the states of each layer, judged by the word alone."""
    p, e = params, emission(params.theta)
    M, K = p.initial.shape
    usual = np.stack([_stationary(p.transition[m]) for m in range(M)])
    shares = np.empty(p.theta.shape)
    if K**M <= MOST_JOINT:
        visits = np.ones(1)
        for m in range(M):
            visits = np.multiply.outer(visits, usual[m]).reshape(-1)
        log_norm = log_normaliser(e)
        for m in range(M):
            shares[:, m] = expected_words(e, visits, log_norm, m)
    else:
        weight = np.exp(p.theta - p.theta.max(axis=0))
        shares[:] = weight / weight.sum(axis=0) * usual
    out: Floats = shares / np.maximum(shares.sum(axis=2, keepdims=True), 1e-300)
    return out


def _stationary(transition: Floats) -> Floats:
    """How often a chain is in each state, near enough."""
    p = np.full(len(transition), 1.0 / len(transition))
    for _ in range(50):
        p = p @ transition
    out: Floats = p / p.sum()
    return out


def _least_batch(params: FactorialParams, n_tokens: int) -> int:
    """Tokens of a batch so that the counts of all of them can be held."""
    row = 4 * params.theta.shape[1] * params.theta.shape[2]
    return int(-(-n_tokens * row * len(params.theta) // HELD_BYTES))


def cut_batches(shards: Batch, corpus: Corpus, batch_size: int) -> list[Batch]:
    """Shards put together until a batch has batch_size tokens; the rest of the text joins the last one."""
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


def _cut(corpus: Corpus, batch: Batch) -> Iterator[Shard]:
    for first, stop in batch:
        offsets = np.asarray(corpus.offsets[first : stop + 1], dtype=np.int64)
        yield np.asarray(corpus.ids[offsets[0] : offsets[-1]]), offsets - offsets[0]


# --- M-step ---------------------------------------------------------------------------------------------


def m_step(
    stats: FactorialStats, params: FactorialParams, *, smoothing: float = 0.0, n_passes: int = 2
) -> FactorialParams:
    """Parameters from expected counts: the chains in closed form, θ by iterative scaling."""
    initial, transition = _normalised(stats.first), _normalised(stats.pairs)
    if not len(stats.visits):
        theta = scale_by_bound(stats, params.theta, smoothing)
    else:
        theta = scale_layers(stats.words, stats.visits, params.theta, smoothing, n_passes)
    return FactorialParams(initial, transition, theta)


def _normalised(counts: Floats) -> Floats:
    """Rows as probabilities, none below LEAST; a row without counts is uniform."""
    total = counts.sum(axis=-1, keepdims=True)
    p = np.divide(counts, total, out=np.full_like(counts, 1.0 / counts.shape[-1]), where=total > 0)
    p = np.maximum(p, LEAST)
    out: Floats = p / p.sum(axis=-1, keepdims=True)
    return out


def smoothed(words: Floats, visits: Floats, smoothing: float) -> tuple[Floats, Floats]:
    """Counts with every word seen `smoothing` more times, in all joint states alike: a prior on p(y | s)."""
    V, _, K = words.shape
    return words + smoothing / K, visits + smoothing * V / len(visits)


def scale_layers(words: Floats, visits: Floats, theta: Floats, smoothing: float, n_passes: int) -> Floats:
    """Iterative scaling, a whole step for one layer after the other; the smoothed objective never falls."""
    words, visits = smoothed(words, visits, smoothing)
    theta = theta.copy()
    for _ in range(n_passes):
        for m in range(theta.shape[1]):
            e = emission(theta)
            expected = expected_words(e, visits, log_normaliser(e), m)
            theta[:, m] += np.log(np.maximum(words[:, m], FLOOR)) - np.log(np.maximum(expected, FLOOR * 1e-10))
            theta = bounded(theta)
    return theta


def scale_by_bound(stats: FactorialStats, theta: Floats, smoothing: float) -> Floats:
    """Iterative scaling of all layers at once by 1/M of a step, against what the bound expects; it never falls.

    Another layer's step would need the text again: the bound has no table of joint states to ask instead.
    """
    M, K = theta.shape[1:]
    expected = np.exp(theta) * stats.rest
    extra = max(smoothing / K, FLOOR)
    return bounded(theta + (np.log(stats.words + extra) - np.log(expected + extra)) / M)
