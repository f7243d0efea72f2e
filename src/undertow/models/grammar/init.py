"""Initial parameters of a grammar.

"random": all distributions are drawn around their means. "clusters": each preterminal emits mainly the words of one
class of a class bigram model; the rest is random. In both the first trees lean to one side, to the right unless told
otherwise, as English sentences do: left children are mostly words and right children mostly phrases. EM keeps much of
the shape it starts from (docs/grammar.md compares). "agreement" begins with trees that several short fits agree on
(agreement.py), "chain" with a hidden Markov model (chain_start.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chart.grammar import GrammarParams
from undertow.kernels.types import F64, I64
from undertow.kernels.words.exchange import exchange_clusters
from undertow.models.grammar.em import Fitted, MStep
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

INITS = ("agreement", "chain", "clusters", "random")
CONCENTRATION = 0.1  # of the Dirichlet distributions that rules and children are drawn from: flat ones need more passes
OTHER_WORDS = 0.02  # share of a preterminal's words that are not of its class
LEANS = ("right", "left", "none")
FEW_PHRASES = 0.12  # share of phrases among the left children of trees that lean to the right, for long sentences
LEAST_CLASS = 4  # words a class must have on average: with more preterminals than that, they share classes


class Sizes(NamedTuple):
    """How many of each a grammar has."""

    n_nonterminals: int
    n_preterminals: int
    rank: int


def random_start(
    sizes: Sizes,
    lengths: I64,
    m_step: MStep,
    rng: np.random.Generator,
    classes: I64 | None = None,
    lean: str = "right",
) -> Fitted:
    """Parameters drawn around their means, for sentences of these lengths, and no counts yet.

    `classes` (V,) are the classes of the words that the preterminals mainly emit; None for random emissions.
    """
    n, m, r = sizes
    n_phrases, total = phrase_shares(lengths)
    few = min(FEW_PHRASES, n_phrases)
    many = min(2 * n_phrases - few, 0.95)
    left_share, right_share = {"right": (few, many), "left": (many, few), "none": (n_phrases, n_phrases)}[lean]
    params = GrammarParams(
        np.concatenate([total * _rows(1, n, rng)[0], (1 - total) * _rows(1, m, rng)[0]]).astype(np.float32),
        _rows(n, r, rng).astype(np.float32),
        random_children(r, n, m, left_share, rng),
        random_children(r, n, m, right_share, rng),
        random_emission(m, m_step, rng, classes),
    )
    return Fitted(params, np.zeros(n + m), 0)


def sentence_lengths(text: Corpus) -> I64:
    """(sentences,) numbers of tokens."""
    edges: I64 = np.asarray(text.offsets, dtype=np.int64)
    return edges[1:] - edges[:-1]


def phrase_shares(lengths: I64) -> tuple[float, float]:
    """The share of children that are phrases, and of sentences, both smoothed: a tree of N words has N − 1 phrases."""
    lengths = lengths[lengths > 0]
    long = lengths[lengths > 1]
    inner, children = float((long - 2).sum()), float((2 * long - 2).sum())
    return (inner + 1) / (children + 4), (len(long) + 1) / (len(lengths) + 2)


def _rows(k: int, size: int, rng: np.random.Generator) -> F64:
    return rng.dirichlet(np.full(size, CONCENTRATION), k)


def random_rules(n: int, r: int, rng: np.random.Generator) -> F64:
    """(n, r) sparse distributions over features."""
    return _rows(n, r, rng)


def random_children(r: int, n: int, m: int, share: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """(r, n + m) sparse distributions over children, of which nonterminals have this share."""
    return np.hstack([share * _rows(r, n, rng), (1 - share) * _rows(r, m, rng)]).astype(np.float32)


def random_emission(m: int, m_step: MStep, rng: np.random.Generator, classes: I64 | None) -> NDArray[np.float32]:
    """(V, m) word frequencies times noise, mainly those of one class, with the probability of unseen words kept."""
    counts = m_step.word_counts
    noisy = counts[:, None] * rng.gamma(1.0, size=(len(counts), m)) + 1e-9
    emission = noisy
    if classes is not None:
        own = classes[:, None] == (np.arange(m) % (int(classes.max()) + 1))[None, :]
        inside = np.where(own, noisy, 0.0)
        emission = (1 - OTHER_WORDS) * inside / inside.sum(axis=0) + OTHER_WORDS * noisy / noisy.sum(axis=0)
    return with_unseen(emission, m_step)


def with_unseen(emission: F64, m_step: MStep) -> NDArray[np.float32]:
    """Weights of words (V, m) as distributions in which the words that the text lacks have their probability."""
    seen = m_step.word_counts > 0
    emission[seen] *= (1 - m_step.unseen) / emission[seen].sum(axis=0)
    emission[~seen] = m_step.unseen / max(int((~seen).sum()), 1)
    return emission.astype(np.float32)


def word_classes(text: Corpus, m: int, rng: np.random.Generator, n_threads: int) -> I64 | None:
    """(V,) the class of every word in a class bigram model of at most m classes; None if there is too little text."""
    counts = text.vocabulary.counts
    n_clusters = max(1, min(m, int((counts > 0).sum()) // LEAST_CLASS))
    pairs = LagCounts.from_corpus(text, lags=1, n_jobs=n_threads)
    if n_clusters == 1 or pairs.nnz(1) == 0:
        return None
    start: Any = rng.integers(0, n_clusters, size=len(counts)) if 10 * n_clusters > len(counts) else None
    return np.asarray(exchange_clusters(pairs.matrix(1), counts, n_clusters, start=start)[0], dtype=np.int64)


__all__ = [
    "INITS",
    "LEANS",
    "Sizes",
    "phrase_shares",
    "random_children",
    "random_emission",
    "random_rules",
    "random_start",
    "sentence_lengths",
    "with_unseen",
    "word_classes",
]
