"""Initial parameters of a grammar.

"random": all distributions are drawn around their means. "clusters": each preterminal emits mainly the words of one
class of a class bigram model; the rest is random. In both, left children are mostly words and right children mostly
phrases, so that the first trees lean to the right, as English sentences do: EM keeps much of the shape it starts from
(docs/grammar.md compares).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chart.grammar import GrammarParams
from undertow.kernels.types import F64, I64
from undertow.kernels.words.exchange import exchange_clusters
from undertow.models.grammar.em import Fitted, MStep
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

INITS = ("random", "clusters")
CONCENTRATION = 0.1  # of the Dirichlet distributions that rules and children are drawn from: flat ones need more passes
OTHER_WORDS = 0.02  # share of a preterminal's words that are not of its class
LEFT_PHRASES = 0.3  # share of left children that are nonterminals, for long sentences
LEAST_CLASS = 4  # words a class must have on average: with more preterminals than that, they share classes


def initial_params(
    text: Corpus, n: int, m: int, r: int, init: str, m_step: MStep, rng: np.random.Generator, n_threads: int
) -> Fitted:
    """Parameters with the probability of unseen words that the M-step gives, and no counts yet."""
    emission = _random_emission(m_step.word_counts, m, rng)
    if init in ("auto", "clusters"):
        emission = _cluster_emission(text, m, rng, n_threads, emission)
    seen = m_step.word_counts > 0
    emission[seen] *= (1 - m_step.unseen) / emission[seen].sum(axis=0)
    emission[~seen] = m_step.unseen / max(int((~seen).sum()), 1)
    n_phrases, total = phrase_shares(text)
    left_share = min(LEFT_PHRASES, n_phrases)
    params = GrammarParams(
        np.concatenate([total * _rows(1, n, rng)[0], (1 - total) * _rows(1, m, rng)[0]]).astype(np.float32),
        _rows(n, r, rng).astype(np.float32),
        _children(r, n, m, left_share, rng),
        _children(r, n, m, min(2 * n_phrases - left_share, 0.95), rng),
        emission.astype(np.float32),
    )
    return Fitted(params, np.zeros(n + m), 0)


def phrase_shares(text: Corpus) -> tuple[float, float]:
    """The share of children that are phrases, and of sentences, both smoothed: a tree of N words has N − 1 phrases."""
    lengths = np.diff(np.asarray(text.offsets, dtype=np.int64))
    lengths = lengths[lengths > 0]
    long = lengths[lengths > 1]
    inner, children = float((long - 2).sum()), float((2 * long - 2).sum())
    return (inner + 1) / (children + 4), (len(long) + 1) / (len(lengths) + 2)


def _rows(k: int, size: int, rng: np.random.Generator) -> F64:
    return rng.dirichlet(np.full(size, CONCENTRATION), k)


def _children(r: int, n: int, m: int, share: float, rng: np.random.Generator) -> NDArray[np.float32]:
    return np.hstack([share * _rows(r, n, rng), (1 - share) * _rows(r, m, rng)]).astype(np.float32)


def _random_emission(word_counts: F64, m: int, rng: np.random.Generator) -> F64:
    """(V, m) word frequencies times noise, columns not normalized."""
    return word_counts[:, None] * rng.gamma(1.0, size=(len(word_counts), m)) + 1e-9


def _cluster_emission(text: Corpus, m: int, rng: np.random.Generator, n_threads: int, noisy: F64) -> F64:
    """(V, m) mainly the words of a class for each preterminal; `noisy` are the random ones, for the rest."""
    counts = text.vocabulary.counts
    n_clusters = max(1, min(m, int((counts > 0).sum()) // LEAST_CLASS))
    pairs = LagCounts.from_corpus(text, lags=1, n_jobs=n_threads)
    if n_clusters == 1 or pairs.nnz(1) == 0:
        return noisy
    start = rng.integers(0, n_clusters, size=len(counts)) if 10 * n_clusters > len(counts) else None
    classes: I64 = np.asarray(exchange_clusters(pairs.matrix(1), counts, n_clusters, start=start)[0], dtype=np.int64)
    own = classes[:, None] == (np.arange(m) % n_clusters)[None, :]
    inside = np.where(own, noisy, 0.0)
    out: F64 = (1 - OTHER_WORDS) * inside / inside.sum(axis=0) + OTHER_WORDS * noisy / noisy.sum(axis=0)
    return out


__all__ = ["INITS", "initial_params"]
