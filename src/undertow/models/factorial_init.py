"""Where EM for the factorial HMM starts: each layer from another clustering of the words, so that layers differ.

A layer's clusters come from one view of the words' neighbours: what comes before, what comes after, both (as the
classes of a class bigram model), then the same two places away. From random parameters EM ends much lower, and from
equal layers it never tells them apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from undertow.kernels.exchange import exchange_clusters
from undertow.kernels.factorial import FactorialParams, Floats, bounded
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

VIEWS = (("left", 1), ("right", 1), ("classes", 1), ("left", 2), ("right", 2))
N_CONTEXTS = 500  # most frequent words that a context vector counts
SHARE = 0.1  # of a state's words that come from the whole vocabulary, not from its cluster
NOISE = 0.05  # nats, so that no two states begin alike


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
    theta = np.empty((len(p), n_layers, n_states))
    initial, transition = np.empty((n_layers, n_states)), np.empty((n_layers, n_states, n_states))
    for m in range(n_layers):
        view, lag = VIEWS[m % len(VIEWS)] if n_layers > 1 else ("classes", 1)
        matrix = counts.matrix(lag)
        clusters = word_clusters(matrix, corpus.vocabulary.counts, n_states, view, rng)
        theta[:, m] = _layer_scores(p, clusters, n_states) + np.log(p)[:, None] / n_layers
        steps = _between_clusters(counts.matrix(1), clusters, n_states)
        transition[m] = (steps + 1) / (steps + 1).sum(axis=1, keepdims=True)
        begun = np.bincount(clusters[firsts], minlength=n_states) + 1.0
        initial[m] = begun / begun.sum()
    theta += NOISE * rng.standard_normal(theta.shape)
    return FactorialParams(initial, transition, bounded(theta))


def _frequencies(corpus: Corpus) -> Floats:
    counts = corpus.vocabulary.counts + 0.1
    p: Floats = counts / counts.sum()
    return p


def _layer_scores(p: Floats, clusters: NDArray[np.int64], n_states: int) -> Floats:
    """log p(y | cluster k) / p(y), the cluster's own words mixed with a share of all."""
    mass = np.bincount(clusters, weights=p, minlength=n_states)
    ratio = np.full((len(p), n_states), SHARE)
    ratio[np.arange(len(p)), clusters] += (1 - SHARE) / mass[clusters]
    ratio[:, mass == 0] = 1.0
    out: Floats = np.log(ratio)
    return out


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
    return k_means(np.sqrt(vectors / total), np.sqrt(unigram.astype(np.float64)), n_clusters, rng)


def k_means(
    points: NDArray[np.float32], weights: Floats, n_clusters: int, rng: np.random.Generator, n_iter: int = 15
) -> NDArray[np.int64]:
    """Weighted Lloyd iterations from centres drawn far apart (k-means++)."""
    squares: Any = (points**2).sum(axis=1)
    distance = np.full(len(points), np.inf)
    centres = np.empty((n_clusters, points.shape[1]), dtype=np.float32)
    for c in range(n_clusters):
        mass = weights if c == 0 else weights * distance
        share = mass / mass.sum() if mass.sum() > 0 else None
        chosen = rng.choice(len(points), p=share)
        centres[c] = points[chosen]
        distance = np.minimum(distance, np.maximum(squares - 2 * points @ centres[c] + squares[chosen], 0))
    nearest = np.zeros(len(points), dtype=np.int64)
    for _ in range(n_iter):
        nearest = np.argmin((centres**2).sum(axis=1) - 2 * points @ centres.T, axis=1)
        members = csr_array((weights, (nearest, np.arange(len(points)))), shape=(n_clusters, len(points)))
        mass = np.asarray(members.sum(axis=1)).reshape(-1, 1)
        centres = np.where(mass > 0, members @ points / np.maximum(mass, 1e-12), centres).astype(np.float32)
    return nearest.astype(np.int64)
