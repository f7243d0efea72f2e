"""EM for low-rank grammars of text.

The text is read in chunks, and the parameters are updated after each from the latest expected counts of all chunks
(incremental EM). Chunks and shards depend on the text alone and their statistics are added in order, so any number of
workers gives the same bits. Shards give sums over features, which are turned into counts of symbols once a chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.engine import Engine, map_reduce
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.chain.smoothing import smoothed_emission, smoothed_rows, unseen_mass
from undertow.kernels.chart.grammar import GrammarParams, batches_by_length, rank_space
from undertow.kernels.chart.inside import inside
from undertow.kernels.chart.outside import BATCH_FLOATS, GrammarCounts, RankStats, expected_counts, statistics
from undertow.kernels.lanes import Buffers
from undertow.kernels.types import F64, I64
from undertow.models.fitting import Iteration, perplexity_remark
from undertow.models.incremental import IncrementalStats
from undertow.text.corpus import Corpus

SHARD_TOKENS = 1 << 14  # the statistics of a shard have as many numbers as two tables of words and features
MOST_SHARDS = 64  # of a chunk; in a large corpus the shards grow instead


class Smoothing(NamedTuple):
    """Pseudo-counts of each row, spread like its mean over all rows; zero is maximum likelihood."""

    start: float = 5.0  # start symbols, towards uniform
    rules: float = 5.0  # features of a nonterminal
    children: float = 20.0  # left and right children of a feature
    mean: float = 1.0  # those means themselves, towards uniform, for each of their entries
    word: float = 5.0  # words of a preterminal, towards the word frequencies


class Anchor(NamedTuple):
    """Pseudo-counts of each row for its anchor, as a multiple of its own counts."""

    rules: float = 4.0  # of features, children and start symbols
    word: float = 1.0


class Shard(NamedTuple):
    """The unit of work of an E-step: sentence i is ids[bounds[i] : bounds[i + 1]]."""

    ids: NDArray[np.uint32]
    bounds: I64
    spans: I64 | None = None  # (k, 2) constituents of their trees, one sentence after the other, where trees are given


def split_chunks(corpus: Corpus, n_chunks: int) -> list[list[Shard]]:
    """Chunks of whole sentences with about as many tokens, each cut into shards."""
    per_chunk = -(-corpus.n_tokens // n_chunks)
    chunks: dict[int, list[Shard]] = {}
    for first, last in corpus.shards(max(min(SHARD_TOKENS, per_chunk), -(-per_chunk // MOST_SHARDS))):
        edges = np.asarray(corpus.offsets[first : last + 1], dtype=np.int64)
        if edges[-1] > edges[0]:
            shard = Shard(np.array(corpus.ids[edges[0] : edges[-1]]), edges - edges[0])
            chunks.setdefault(int(edges[0]) // per_chunk, []).append(shard)
    return [chunks[c] for c in sorted(chunks)]


# --- M-step ---------------------------------------------------------------------------------------------


class MStep(NamedTuple):
    """From expected counts to smoothed parameters."""

    word_counts: F64  # (V,) of the text
    smoothing: float  # multiplies all pseudo-counts
    unseen: float  # total probability of the words that are not in the text
    anchor: GrammarParams | None = None  # parameters near which EM stays; None for none

    @classmethod
    def of(cls, word_counts: NDArray[Any], smoothing: float) -> MStep:
        return cls(word_counts.astype(np.float64), smoothing, unseen_mass(word_counts, smoothing))

    def __call__(self, counts: GrammarCounts) -> GrammarParams:
        found = self.smoothed(counts)
        if self.anchor is None:
            return found
        near = Anchor(*(self.smoothing * x / (1 + self.smoothing * x) for x in Anchor()))
        shares = (near.rules, near.rules, near.rules, near.rules, near.word)
        pairs = zip(self.anchor, found, shares, strict=True)
        return GrammarParams(*((w * a + (1 - w) * b).astype(np.float32) for a, b, w in pairs))

    def smoothed(self, counts: GrammarCounts) -> GrammarParams:
        """Each row smoothed towards its mean over all rows."""
        k = Smoothing(*(self.smoothing * x for x in Smoothing()))
        return GrammarParams(
            smoothed_rows(counts.start[None], k.start)[0],
            smoothed_to_mean(counts.rules, k.rules, k.mean),
            smoothed_to_mean(counts.left, k.children, k.mean),
            smoothed_to_mean(counts.right, k.children, k.mean),
            self.emission(counts.emission),
        )

    def emission(self, counts: F64) -> NDArray[np.float32]:
        """(V, m) p(word | preterminal) from expected counts."""
        return smoothed_emission(counts, self.smoothing * Smoothing().word, self.word_counts, self.unseen)


def smoothed_to_mean(counts: F64, strength: float, of_mean: float) -> NDArray[np.float32]:
    """Rows of counts as distributions, smoothed towards their sum, which is smoothed towards uniform."""
    total = counts.sum(axis=0, keepdims=True)
    mean = smoothed_rows(total, of_mean * total.shape[1], dtype=np.float64)
    return smoothed_rows(counts, strength, mean)


# --- iterations -----------------------------------------------------------------------------------------


class Fitted(NamedTuple):
    """Parameters, and how often each symbol was used in the text they were estimated from."""

    params: GrammarParams
    symbol_counts: F64  # (n + m,)
    n_sentences: int

    @classmethod
    def of(cls, counts: GrammarCounts, params: GrammarParams) -> Fitted:
        used = np.concatenate([counts.rules.sum(axis=1), counts.emission.sum(axis=0)])
        return cls(params, used, counts.n_sentences)

    def with_words(self, word_counts: NDArray[Any]) -> GrammarCounts:
        """Expected counts that stand for the text in which the words have these counts; new words are at their end.

        An M-step without smoothing gives the parameters of the words seen back.
        """
        p = self.params
        n = p.n_nonterminals
        start, rules, left, right, emission = (np.asarray(x, dtype=np.float64) for x in p)
        used = rules * self.symbol_counts[:n, None]
        features = used.sum(axis=0)[:, None]
        words = np.zeros((len(word_counts), p.n_preterminals))
        words[: len(emission)] = emission
        words[word_counts == 0] = 0.0
        words *= self.symbol_counts[n:] / words.sum(axis=0)
        return GrammarCounts(
            0.0, 0, self.n_sentences, self.n_sentences * start, used, features * left, features * right, words
        )  # fmt: skip


class EMState(NamedTuple):
    """What EM needs to go on after a finished pass."""

    n_done: int
    fit: Fitted
    running: Any
    anchor: GrammarParams | None

    @classmethod
    def of(
        cls, n_done: int, fit: Fitted, running: IncrementalStats[GrammarCounts], anchor: GrammarParams | None
    ) -> EMState:
        return cls(n_done, fit, running.state(), anchor)


def em_iterations(
    start: Fitted,
    m_step: MStep,
    chunks: list[list[Shard]],
    n_iter: int,
    engine: Engine | None = None,
    *,
    validation: Sequence[Shard] = (),
    delay_first: bool = False,
    earlier: GrammarCounts | None = None,
    resume_from: EMState | None = None,
) -> Iterator[Iteration[Fitted]]:
    """Passes over the text. The objective is the log-likelihood of a token under the parameters it was read with.

    With `delay_first` the first pass updates the parameters only at its end: what a good start knows of the words of
    chunks not read yet would be lost, and without smoothing they would get probability zero and keep it. `earlier` are
    counts of other text, which stay part of the total.
    """
    running: IncrementalStats[GrammarCounts] = IncrementalStats(len(chunks) + (earlier is not None), ("emission",))
    if earlier is not None:
        running.replace(len(chunks), earlier)
    fit, n_done = start, 0
    if resume_from is not None:
        n_done, fit = resume_from.n_done, resume_from.fit
        running.restore(resume_from.running)
        m_step = m_step._replace(anchor=resume_from.anchor)
    for number in range(n_done, n_iter):
        log_likelihood, n_tokens = 0.0, 0
        for c, shards in enumerate(chunks):
            sums = map_reduce(partial(_statistics, fit.params), shards, _add, engine=engine)
            if not np.isfinite(sums.log_likelihood):
                raise InputError(
                    "The text has probability zero under the current parameters, so EM cannot continue: "
                    "use smoothing above 0."
                )
            log_likelihood, n_tokens = log_likelihood + sums.log_likelihood, n_tokens + sums.n_tokens
            total = running.replace(c, expected_counts(sums, fit.params))
            if running.complete or not delay_first:
                fit = Fitted.of(total, m_step(total))
        mean = log_likelihood / n_tokens
        score = mean_log_likelihood(fit.params, validation, engine) if validation else None
        remark = perplexity_remark(mean, score)
        yield Iteration(mean, fit, score, remark, partial(EMState.of, number + 1, fit, running, m_step.anchor))


@one_blas_thread()  # in worker processes too, whose BLAS may use any number of threads
def _statistics(params: GrammarParams, shard: Shard) -> RankStats:
    return statistics(shard.ids, shard.bounds, params, shard.spans)


def _add(a: Any, b: Any) -> Any:
    return a + b


def mean_log_likelihood(params: GrammarParams, shards: Sequence[Shard], engine: Engine | None = None) -> float:
    """Mean log-likelihood of a token, the ends of the sentences included."""
    total, n = map_reduce(partial(_log_likelihood, params), shards, _add_pairs, engine=engine)
    return total / max(n, 1)


@one_blas_thread()
def _log_likelihood(params: GrammarParams, shard: Shard) -> tuple[float, int]:
    return float(sentence_log_likelihoods(params, shard.ids, shard.bounds).sum()), len(shard.ids)


def _add_pairs(a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
    return a[0] + b[0], a[1] + b[1]


def sentence_log_likelihoods(
    params: GrammarParams, ids: NDArray[Any], bounds: I64, dtype: Any = np.float32
) -> NDArray[np.float64]:
    """(sentences,) log-probability of each; zero for an empty one, which says nothing."""
    words, local = np.unique(ids, return_inverse=True)
    space, lengths = rank_space(params, words, dtype=dtype), np.diff(bounds)
    logs, buffers = np.zeros(len(lengths)), Buffers()
    for batch in batches_by_length(lengths, params.rank, BATCH_FLOATS):
        sentences = local[bounds[batch][:, None] + np.arange(lengths[batch[0]])]
        logs[batch] = inside(sentences, space, buffers).log_likelihood
    return logs


__all__ = [
    "EMState",
    "Fitted",
    "MStep",
    "Shard",
    "Smoothing",
    "em_iterations",
    "mean_log_likelihood",
    "sentence_log_likelihoods",
    "split_chunks",
]
