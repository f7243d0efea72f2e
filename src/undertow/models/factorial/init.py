"""Where EM for the factorial HMM starts: each layer from another clustering of the words, so that layers differ.

"clusters": a layer's clusters come from one view of the words' neighbours: what comes before, what comes after, both
(as the classes of a class bigram model), then the same two places away. "lds": the words are put into the space of a
linear dynamical system, by the SVD of the whitened moment at lag 1 (`ssid`), and each layer clusters them in a subspace
of its own. From random parameters EM ends much lower, and from equal layers it never tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from undertow.engine import Engine
from undertow.kernels.factorial.words import Emission, FactorialParams, Floats, bounded, log_normaliser
from undertow.kernels.gaussian.hankel import hankel_svd
from undertow.kernels.gaussian.moments import text_moments
from undertow.kernels.words.exchange import exchange_clusters
from undertow.kernels.words.kmeans import kmeans, spread_centers
from undertow.models.factorial.em import scale_layers
from undertow.models.factorial.learning import Learning, passes, word_shares
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

VIEWS = (("classes", 1), ("left", 1), ("right", 1), ("left", 2), ("right", 2))
N_CONTEXTS = 500  # most frequent words that a context vector counts
DOUBT = 0.2  # share of a word's tokens that may be in other states than its cluster's
N_PASSES = 3  # of the M-step that the start is made with
MOST_VISITS = 1_000_000
MOST_EXACT = 1000  # joint states that are fitted exactly while layers are added
N_GROWING = 5  # passes over the text between two layers
N_DIRECTIONS = 8  # of the linear dynamical system, for each layer
INITS = ("clusters", "lds", "random")


def random_start(corpus: Corpus, n_layers: int, n_states: int, rng: np.random.Generator) -> FactorialParams:
    p = _frequencies(corpus)
    theta = np.log(p)[:, None, None] / n_layers + 0.5 * rng.standard_normal((len(p), n_layers, n_states))
    initial = rng.dirichlet(np.full(n_states, 5.0), n_layers)
    return FactorialParams(initial, rng.dirichlet(np.full(n_states, 5.0), (n_layers, n_states)), bounded(theta))


def cluster_start(
    corpus: Corpus, n_layers: int, n_states: int, rng: np.random.Generator, how: Learning, init: str = "clusters",
    engine: Engine | None = None, n_threads: int = 1,
) -> FactorialParams:  # fmt: skip
    """Parameters that grew layer by layer: each is added as a clustering of the words says, then all are fitted.

    The layers before it are fitted when the next one comes, and over so few joint states that it costs little.
    """
    counts = LagCounts.from_corpus(corpus, lags=2 if n_layers > 3 and init == "clusters" else 1, n_jobs=n_threads)
    firsts = np.asarray(corpus.ids[corpus.offsets[:-1][np.diff(corpus.offsets) > 0]])
    if init == "lds":
        layers = subspace_clusters(counts, n_layers, n_states, rng, n_threads)
    else:
        layers = _view_clusters(counts, n_layers, n_states, rng)
    params: FactorialParams | None = None
    for m, clusters in enumerate(layers):
        steps = _between_clusters(counts.matrix(1), clusters, n_states) + 1
        begun = np.bincount(clusters[firsts], minlength=n_states) + 1.0
        new = FactorialParams(
            begun[None] / begun.sum(),
            (steps / steps.sum(axis=1, keepdims=True))[None],
            _beliefs(clusters, n_states, rng)[:, None],
        )
        params = _with_layer(params, new, _frequencies(corpus) * corpus.n_tokens)
        if m < n_layers - 1 and n_states > 1:
            for done in passes(corpus, params, _stage(how, n_states ** (m + 1)), rng, engine):
                params = done.params
    assert params is not None
    return params


def _stage(how: Learning, n_joint: int) -> Learning:
    """How fewer layers than the model will have are fitted: by tables of joint states, while there are not too many."""
    if n_joint <= MOST_EXACT:
        return how._replace(inference=how.inference._replace(exact=True), n_iter=N_GROWING)
    bound = "mean_field" if n_joint <= MOST_VISITS else how.inference.bound
    return how._replace(inference=how.inference._replace(exact=False, bound=bound), n_iter=N_GROWING)


def _with_layer(old: FactorialParams | None, new: FactorialParams, counts: Floats) -> FactorialParams:
    """One layer more; `new.theta` has how likely each of its states is for each word, instead of θ."""
    if old is None:
        return new._replace(theta=_fit_beliefs(counts, new.theta))
    believed = np.concatenate([word_shares(old), new.theta], axis=1)
    blank = np.zeros_like(new.theta)
    return FactorialParams(
        np.concatenate([old.initial, new.initial]),
        np.concatenate([old.transition, new.transition]),
        _fit_beliefs(counts, believed, np.concatenate([old.theta, blank], axis=1)),
    )


def _view_clusters(
    counts: LagCounts, n_layers: int, n_states: int, rng: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    for m in range(n_layers):
        view, lag = VIEWS[m % len(VIEWS)]
        yield word_clusters(counts.matrix(lag), counts.vocabulary.counts, n_states, view, rng)


def subspace_clusters(
    counts: LagCounts, n_layers: int, n_states: int, rng: np.random.Generator, n_threads: int = 1
) -> Iterator[NDArray[np.int64]]:
    """For each layer the words' clusters by its own directions, dealt out so that each has strong and weak ones."""
    unigram = counts.vocabulary.counts
    V = len(unigram)
    if n_states == 1 or n_states >= V or counts.nnz(1) == 0:
        for _ in range(n_layers):
            yield rng.permutation(max(n_states, V))[:V] % n_states
        return
    moments = text_moments(unigram, [counts.matrix(1)], kappa=float(unigram.sum()) / V, n_threads=n_threads)
    h = min(n_layers * N_DIRECTIONS, moments.dimension)
    svd = hankel_svd(moments, h, rng.standard_normal, r=1)
    scale = np.divide(1.0, np.sqrt(moments.mu), out=np.zeros_like(moments.mu), where=moments.mu > 0)
    after, before = (side[0] * svd.values * scale[:, None] for side in (svd.left, svd.right))
    weights = np.sqrt(unigram + 1.0)
    for m in range(n_layers):
        own = np.arange(m % h, h, n_layers)
        X = np.concatenate([after[:, own], before[:, own]], axis=1)
        length = np.linalg.norm(X, axis=1, keepdims=True)
        X = (X / np.where(length > 0, length, 1.0)).astype(np.float32)
        yield kmeans(X, weights, X[spread_centers(X, weights, rng.random(n_states))])[0].astype(np.int64)


def _beliefs(clusters: NDArray[np.int64], n_states: int, rng: np.random.Generator) -> Floats:
    """(V, K) how likely each state is said to be for each word: its cluster, with a share of doubt, a little uneven."""
    doubt = rng.dirichlet(np.full(n_states, 10.0), len(clusters)) if n_states > 1 else np.ones((len(clusters), 1))
    out: Floats = DOUBT * doubt
    out[np.arange(len(clusters)), clusters] += 1 - DOUBT
    return out


def _fit_beliefs(counts: Floats, believed: Floats, theta: Floats | None = None) -> Floats:
    """θ as the M-step would have it if the words' tokens were in their states as believed.

    Where there are too many joint states for that, each layer alone, tempered: their clusters tell much the same twice.
    """
    _, M, K = believed.shape
    words = counts[:, None, None] * believed
    if theta is None or K**M > MOST_VISITS:
        mass = words.sum(axis=0)
        alone = np.log(np.maximum(words, 1e-300)) - np.log(mass) - np.log(counts / counts.sum())[:, None, None]
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
    centres = points[spread_centers(points, weights, rng.random(n_clusters))]
    return kmeans(points, weights, centres)[0].astype(np.int64)
