"""Where EM for the factorial HMM starts: each layer from another clustering of the words, so that layers differ.

A layer's clusters come from one view of the words' neighbours: what comes before, what comes after, both (as the
classes of a class bigram model), then the same two places away. From random parameters EM ends much lower, and from
equal layers it never tells them apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from undertow.kernels.exchange import exchange_clusters
from undertow.kernels.factorial import Emission, FactorialParams, Floats, bounded, log_normaliser
from undertow.kernels.kmeans import kmeans, spread_centres
from undertow.models.factorial_em import scale_layers
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

VIEWS = (("left", 1), ("right", 1), ("classes", 1), ("left", 2), ("right", 2))
N_CONTEXTS = 500  # most frequent words that a context vector counts
DOUBT = 0.2  # share of a word's tokens that may be in other states than its cluster's
N_PASSES = 3  # of the M-step that the start is made with
MOST_VISITS = 1_000_000


def random_start(corpus: Corpus, n_layers: int, n_states: int, rng: np.random.Generator) -> FactorialParams:
    p = _frequencies(corpus)
    theta = np.log(p)[:, None, None] / n_layers + 0.5 * rng.standard_normal((len(p), n_layers, n_states))
    initial = rng.dirichlet(np.full(n_states, 5.0), n_layers)
    return FactorialParams(initial, rng.dirichlet(np.full(n_states, 5.0), (n_layers, n_states)), bounded(theta))


def cluster_start(
    corpus: Corpus, n_layers: int, n_states: int, rng: np.random.Generator, n_jobs: int | None
) -> FactorialParams:
    """Parameters that follow one clustering a layer, chains and words alike."""
    counts = LagCounts.from_corpus(corpus, lags=2 if n_layers > 3 else 1, n_jobs=n_jobs)
    p = _frequencies(corpus)
    firsts = np.asarray(corpus.ids[corpus.offsets[:-1][np.diff(corpus.offsets) > 0]])
    believed = np.empty((len(p), n_layers, n_states))
    initial, transition = np.empty((n_layers, n_states)), np.empty((n_layers, n_states, n_states))
    for m in range(n_layers):
        view, lag = VIEWS[m % len(VIEWS)] if n_layers > 1 else ("classes", 1)
        clusters = word_clusters(counts.matrix(lag), corpus.vocabulary.counts, n_states, view, rng)
        believed[:, m] = _beliefs(clusters, n_states, rng)
        steps = _between_clusters(counts.matrix(1), clusters, n_states)
        transition[m] = (steps + 1) / (steps + 1).sum(axis=1, keepdims=True)
        begun = np.bincount(clusters[firsts], minlength=n_states) + 1.0
        initial[m] = begun / begun.sum()
    return FactorialParams(initial, transition, _fit_beliefs(p * corpus.n_tokens, believed))


def _beliefs(clusters: NDArray[np.int64], n_states: int, rng: np.random.Generator) -> Floats:
    """(V, K) how likely each state is said to be for each word: its cluster, with a share of doubt, a little uneven."""
    doubt = rng.dirichlet(np.full(n_states, 10.0), len(clusters)) if n_states > 1 else np.ones((len(clusters), 1))
    out: Floats = DOUBT * doubt
    out[np.arange(len(clusters)), clusters] += 1 - DOUBT
    return out


def _fit_beliefs(counts: Floats, believed: Floats) -> Floats:
    """θ as the M-step would have it if the words' tokens were in their states as believed.

    Where there are too many joint states for that, each layer alone, tempered: their clusters tell much the same twice.
    """
    _, M, K = believed.shape
    words = counts[:, None, None] * believed
    mass = words.sum(axis=0)
    alone = np.log(words) - np.log(mass) - np.log(counts / counts.sum())[:, None, None]
    theta = bounded(alone / np.sqrt(M) + np.log(counts)[:, None, None] / M)
    if K**M > MOST_VISITS:
        return theta
    visits = np.exp(log_normaliser(Emission(np.log(counts), believed)))
    return scale_layers(words, visits, theta, 0.0, N_PASSES)


def _frequencies(corpus: Corpus) -> Floats:
    counts = corpus.vocabulary.counts + 0.1
    p: Floats = counts / counts.sum()
    return p


def _between_clusters(matrix: csr_array, clusters: NDArray[np.int64], n_states: int) -> Floats:
    """[i, j] = times a word of cluster j came right after one of cluster i."""
    one_hot = csr_array((np.ones(len(clusters)), (np.arange(len(clusters)), clusters)), shape=(len(clusters), n_states))
    return np.asarray((one_hot.T @ (matrix @ one_hot)).todense(), dtype=np.float64).T  # counts are [after, before]


def word_clusters(
    matrix: csr_array, unigram: NDArray[np.int64], n_clusters: int, view: str, rng: np.random.Generator
) -> NDArray[np.int64]:
    """A cluster for every word from one view of the pair counts ([i, j] = i after j)."""
    V = len(unigram)
    if n_clusters == 1:
        return np.zeros(V, dtype=np.int64)
    if n_clusters >= V:
        return rng.permutation(n_clusters)[:V].astype(np.int64)
    if view == "classes":
        start = rng.integers(0, n_clusters, size=V) if 10 * n_clusters > V else None
        assignment, _ = exchange_clusters(matrix, unigram, n_clusters, start=start)
        return np.asarray(assignment, dtype=np.int64)
    frequent = np.sort(np.argsort(-unigram, kind="stable")[:N_CONTEXTS])
    rows = csr_array(matrix) if view == "left" else csr_array(matrix.T)
    vectors = np.asarray(rows[:, frequent].todense(), dtype=np.float32)
    total = np.maximum(vectors.sum(axis=1, keepdims=True), 1)
    points, weights = np.sqrt(vectors / total), np.sqrt(unigram.astype(np.float64))
    centres = points[spread_centres(points, weights, rng.random(n_clusters))]
    return kmeans(points, weights, centres)[0].astype(np.int64)
