"""Initial parameters of a factorial HMM: each layer from another clustering of the words, so that the layers differ.

"clusters": each layer clusters the words by another view of their neighbors: both sides (the classes of a class bigram
model), the word before, the word after, then the same at distance two. "lds": the words are embedded by a linear
dynamical system, by the SVD of the whitened moment at lag 1, and each layer clusters them in another subspace. EM from
random parameters ends at a much lower likelihood, and EM from equal layers keeps them equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from scipy.sparse import csr_array

from undertow.engine import Engine
from undertow.kernels.factorial.words import (
    Emission,
    FactorialParams,
    Sizes,
    bounded,
    existing,
    log_normalizer,
    widened,
)
from undertow.kernels.gaussian.hankel import hankel_svd
from undertow.kernels.gaussian.moments import text_moments
from undertow.kernels.types import F64, I64
from undertow.kernels.words.exchange import exchange_clusters
from undertow.kernels.words.kmeans import kmeans, spread_centers
from undertow.models.factorial.em import EMSettings, passes, scale_layers, word_shares
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

VIEWS = (("classes", 1), ("left", 1), ("right", 1), ("left", 2), ("right", 2))
N_CONTEXTS = 500  # most frequent words that a context vector counts
OTHER_STATES = 0.2  # share of a word's probability that is spread over the states that are not its cluster's
M_PASSES = 3  # of the M-step that makes θ from the clusters
MAX_JOINT = 1_000_000  # joint states of which a table is made
MAX_EXACT = 1000  # joint states up to which inference is exact while layers are added
GROWING_PASSES = 5  # passes over the text between two layers
N_DIRECTIONS = 8  # of the linear dynamical system, for each layer
INITS = ("clusters", "lds", "random")


def random_start(corpus: Corpus, sizes: Sizes, rng: np.random.Generator) -> FactorialParams:
    p, exists = _frequencies(corpus), existing(sizes)
    M, K = exists.shape
    theta = np.log(p)[:, None, None] / M + 0.5 * rng.standard_normal((len(p), M, K))
    theta[:, ~exists] = -np.inf
    initial = np.stack([widened(rng.dirichlet(np.full(k, 5.0)), (K,)) for k in sizes])
    transition = np.stack([widened(rng.dirichlet(np.full(k, 5.0), k), (K, K)) for k in sizes])
    return FactorialParams(initial, transition, bounded(theta))


def with_new_words(params: FactorialParams, old_counts: I64, counts: I64) -> FactorialParams:
    """The parameters with rows for words that joined the vocabulary at its end, which no state prefers yet.

    A row that is the mean of the known words' rows, weighted by their frequencies μ, makes log p(word | states) the
    mean of those of the known words in every joint state, Σ_y μ_y log p(y | states); the constant added to it puts that
    near the word's frequency in the text, as Σ_y μ_y log μ_y is what a known word has on average.
    """
    n = len(counts) - len(params.theta)
    if n == 0:
        return params
    mu = old_counts / old_counts.sum()
    exists = existing(params.sizes)
    mean = np.tensordot(mu, np.where(exists, params.theta, 0.0), axes=1)  # (M, K)
    average = float((mu[mu > 0] * np.log(mu[mu > 0])).sum())
    own = np.log(np.maximum(counts[-n:], 0.1) / counts.sum())
    new = np.where(exists, mean + (own - average)[:, None, None] / params.n_layers, -np.inf)
    return params._replace(theta=bounded(np.concatenate([params.theta, new])))


def cluster_start(
    corpus: Corpus, sizes: Sizes, rng: np.random.Generator, settings: EMSettings,
    init: str = "clusters", engine: Engine | None = None, n_threads: int = 1,
) -> FactorialParams:  # fmt: skip
    """Parameters built layer by layer: a layer is added from a clustering of the words, then all so far are fitted.

    The last layer is added to layers that are fitted already; with fewer layers there are few joint states, so that
    these fits cost little.
    """
    n_layers = len(sizes)
    counts = LagCounts.from_corpus(corpus, lags=2 if n_layers > 3 and init == "clusters" else 1, n_jobs=n_threads)
    first_words = np.asarray(corpus.ids[corpus.offsets[:-1][np.diff(corpus.offsets) > 0]])
    by_lds = init == "lds"
    layers = subspace_clusters(counts, sizes, rng, n_threads) if by_lds else _view_clusters(counts, sizes, rng)
    params: FactorialParams | None = None
    for m, (n_states, clusters) in enumerate(zip(sizes, layers, strict=True)):
        steps = _between_clusters(counts.matrix(1), clusters, n_states) + 1
        first = np.bincount(clusters[first_words], minlength=n_states) + 1.0
        new = FactorialParams(
            first[None] / first.sum(),
            (steps / steps.sum(axis=1, keepdims=True))[None],
            _state_probabilities(clusters, n_states, rng)[:, None],
        )
        params = _add_layer(params, new, _frequencies(corpus) * corpus.n_tokens)
        if m < n_layers - 1 and params.n_joint > 1:
            for done in passes(corpus, params, _stage_settings(settings, params.n_joint), rng, engine):
                params = done.params
    assert params is not None
    return params


def _stage_settings(settings: EMSettings, n_joint: int) -> EMSettings:
    """Settings for fitting the layers so far: by tables of joint states, while these are not too many."""
    if n_joint <= MAX_EXACT:
        return settings._replace(inference=settings.inference._replace(exact=True), n_iter=GROWING_PASSES)
    bound = "mean_field" if n_joint <= MAX_JOINT else settings.inference.bound
    return settings._replace(inference=settings.inference._replace(exact=False, bound=bound), n_iter=GROWING_PASSES)


def _add_layer(old: FactorialParams | None, new: FactorialParams, counts: F64) -> FactorialParams:
    """Add a layer; `new.theta` holds p(state | word) instead of θ."""
    if old is None:
        return new._replace(theta=_fit_theta(counts, new.theta, (new.n_states,)))
    V, M, K = len(counts), old.n_layers, max(old.n_states, new.n_states)

    def beside(of_old: F64, of_new: F64, missing: float = 0.0) -> F64:
        sides = [widened(x, (V, x.shape[1], K), missing) for x in (of_old, of_new)]
        return np.concatenate(sides, axis=1)

    return FactorialParams(
        np.concatenate([widened(old.initial, (M, K)), widened(new.initial, (1, K))]),
        np.concatenate([widened(old.transition, (M, K, K)), widened(new.transition, (1, K, K))]),
        _fit_theta(
            counts,
            beside(word_shares(old), new.theta),
            (*old.sizes, new.n_states),
            beside(old.theta, np.zeros_like(new.theta), -np.inf),
        ),
    )


def _view_clusters(counts: LagCounts, sizes: Sizes, rng: np.random.Generator) -> Iterator[I64]:
    for m, n_states in enumerate(sizes):
        view, lag = VIEWS[m % len(VIEWS)]
        yield word_clusters(counts.matrix(lag), counts.vocabulary.counts, n_states, view, rng)


def subspace_clusters(counts: LagCounts, sizes: Sizes, rng: np.random.Generator, n_threads: int = 1) -> Iterator[I64]:
    """Clusters of the words for each layer, by directions dealt out so that each layer has strong and weak ones."""
    unigram, n_layers = counts.vocabulary.counts, len(sizes)
    V = len(unigram)
    if not any(1 < n_states < V for n_states in sizes) or counts.nnz(1) == 0:
        for n_states in sizes:
            yield _any_clusters(V, n_states, rng)
        return
    moments = text_moments(unigram, [counts.matrix(1)], kappa=float(unigram.sum()) / V, n_threads=n_threads)
    h = min(n_layers * N_DIRECTIONS, moments.dimension)
    svd = hankel_svd(moments, h, rng.standard_normal, r=1)
    scale = np.divide(1.0, np.sqrt(moments.mu), out=np.zeros_like(moments.mu), where=moments.mu > 0)
    after, before = (side[0] * svd.values * scale[:, None] for side in (svd.left, svd.right))
    weights = np.sqrt(unigram + 1.0)
    for m, n_states in enumerate(sizes):
        if not 1 < n_states < V:
            yield _any_clusters(V, n_states, rng)
            continue
        own = np.arange(m % h, h, n_layers)
        X = np.concatenate([after[:, own], before[:, own]], axis=1)
        length = np.linalg.norm(X, axis=1, keepdims=True)
        X = (X / np.where(length > 0, length, 1.0)).astype(np.float32)
        yield kmeans(X, weights, X[spread_centers(X, weights, rng.random(n_states))])[0].astype(np.int64)


def _any_clusters(n_words: int, n_states: int, rng: np.random.Generator) -> I64:
    """Where there is nothing to cluster by, or a state for each word."""
    clusters: I64 = rng.permutation(max(n_states, n_words))[:n_words] % n_states
    return clusters


def _state_probabilities(clusters: I64, n_states: int, rng: np.random.Generator) -> F64:
    """(V, K) p(state | word): mostly the word's cluster, the rest spread over all states with some noise."""
    spread = rng.dirichlet(np.full(n_states, 10.0), len(clusters)) if n_states > 1 else np.ones((len(clusters), 1))
    out: F64 = OTHER_STATES * spread
    out[np.arange(len(clusters)), clusters] += 1 - OTHER_STATES
    return out


def _fit_theta(counts: F64, probabilities: F64, sizes: Sizes, theta: F64 | None = None) -> F64:
    """θ by the M-step, for tokens that are in the states with these probabilities (V, M, K).

    With too many joint states for that, each layer by itself, divided by √M: the clusterings overlap in what they say.
    """
    M, many = len(sizes), prod(sizes) > MAX_JOINT
    words = counts[:, None, None] * probabilities
    if theta is None or many:
        mass = np.where(existing(sizes), words.sum(axis=0), 1.0)
        alone = np.log(np.maximum(words, 1e-300)) - np.log(mass) - np.log(counts / counts.sum())[:, None, None]
        theta = alone / np.sqrt(M) + np.log(counts)[:, None, None] / M
        theta = bounded(np.where(existing(sizes), theta, -np.inf))
    if many:
        return theta
    visits = np.exp(log_normalizer(Emission(np.log(counts), probabilities, sizes)))
    return scale_layers(words, visits, theta, 0.0, M_PASSES)


def _frequencies(corpus: Corpus) -> F64:
    counts = corpus.vocabulary.counts + 0.1
    p: F64 = counts / counts.sum()
    return p


def _between_clusters(matrix: csr_array, clusters: I64, n_states: int) -> F64:
    """[i, j] = times a word of cluster j came right after one of cluster i."""
    one_hot = csr_array((np.ones(len(clusters)), (np.arange(len(clusters)), clusters)), shape=(len(clusters), n_states))
    return np.asarray((one_hot.T @ (matrix @ one_hot)).todense(), dtype=np.float64).T  # counts are [after, before]


def word_clusters(matrix: csr_array, unigram: I64, n_clusters: int, view: str, rng: np.random.Generator) -> I64:
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
    centres = points[spread_centers(points, weights, rng.random(n_clusters))]
    return kmeans(points, weights, centres)[0].astype(np.int64)
