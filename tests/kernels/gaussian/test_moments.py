import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from undertow.errors import InputError
from undertow.kernels.gaussian.moments import ReducedMoments, reduce_moments, text_moments

SENTENCES = [[1, 2, 3], [2, 2, 1, 3, 1], [3, 1, 0, 2], [1, 2, 3, 3], [2], [1, 3]]
V = 4
FALLBACK = np.array([0, 1, 1, 0])  # word 1 is a class that stands in for word 2


def counts_of(sentences, n_lags):
    pairs = [np.zeros((V, V)) for _ in range(n_lags)]
    for s in sentences:
        for k in range(1, n_lags + 1):
            for t in range(len(s) - k):
                pairs[k - 1][s[t + k], s[t]] += 1
    return np.bincount(np.concatenate(sentences), minlength=V).astype(float), [csr_array(p) for p in pairs]


def channel(kind, kappa, counts):
    """G[i, j] = probability that a token j becomes i."""
    G = np.zeros((V, V))
    for j in range(V):
        if kind == "uniform":
            epsilon = kappa * V / (counts.sum() + kappa * V)
            G[:, j] = epsilon / V
            G[j, j] += 1 - epsilon
        else:
            c = FALLBACK[j] if kind == "classes" else 0
            stay = 1 if j in (c, 0) else counts[j] / (counts[j] + kappa)
            G[j, j] += stay
            G[c, j] += 1 - stay
    return G


def enumerated(kind, kappa, k):
    """E[w_{t+k}w_t'] by going through every pair of tokens and everything that noise can make of it.

    Beyond its end a sentence goes on with w = 0, so that only pairs within sentences add to the mean over tokens.
    """
    counts, _ = counts_of(SENTENCES, 1)
    G = channel(kind, kappa, counts)
    mu = G @ counts / counts.sum()
    W = (np.eye(V) - mu) / np.sqrt(mu)  # row i is w of word i
    Psi = np.zeros((V, V))
    for s in SENTENCES:
        for t in range(len(s) - k):
            for i, j in itertools.product(range(V), repeat=2):
                Psi += G[i, s[t + k]] * G[j, s[t]] * np.outer(W[i], W[j]) / counts.sum()
    return mu, Psi


@pytest.mark.parametrize("kappa", [0.5, 3.0])
@pytest.mark.parametrize("noise", ["uniform", "dropout", "classes"])
def test_moments_are_those_of_noised_text(noise, kappa):
    counts, pairs = counts_of(SENTENCES, 3)
    how = {"noise": "dropout", "fallback": FALLBACK} if noise == "classes" else {"noise": noise}
    moments = text_moments(counts, pairs, kappa=kappa, dtype=np.float64, **how)
    assert moments.n_lags == 3 and moments.dimension == V - 1
    u = moments.u
    for k in (1, 2, 3):
        mu, Psi = enumerated(noise, kappa, k)
        np.testing.assert_allclose(moments.mu, mu, rtol=1e-12)
        np.testing.assert_allclose(moments.forward(k, np.eye(V)), Psi, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(moments.backward(k, np.eye(V)), Psi.T, rtol=1e-10, atol=1e-13)
        # constants are in the null space on both sides
        np.testing.assert_allclose(u @ moments.forward(k, np.eye(V)), 0, atol=1e-13)
        np.testing.assert_allclose(moments.forward(k, u[:, None]), 0, atol=1e-13)
        np.testing.assert_allclose(moments.backward(k, u[:, None]), 0, atol=1e-13)
    np.testing.assert_allclose(moments.project(np.eye(V)), np.eye(V) - np.outer(u, u), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("noise", ["uniform", "dropout"])
def test_all_lags_together_belong_to_a_process(noise):
    """The block Toeplitz matrix is positive semi-definite, however many blocks it has."""
    counts, pairs = counts_of(SENTENCES, 4)  # no sentence has a fifth lag
    moments = text_moments(counts, pairs, kappa=0.1, noise=noise, dtype=np.float64)
    eye = np.eye(V)
    Psi = {k: moments.forward(k, eye) for k in range(1, 5)}
    Psi |= {-k: X.T for k, X in Psi.items()} | {0: moments.project(eye)}
    n = 9
    toeplitz = np.block([[Psi.get(i - j, 0 * eye) for j in range(n)] for i in range(n)])
    assert np.linalg.eigvalsh(toeplitz)[0] > -1e-12


@pytest.mark.parametrize("noise", ["uniform", "dropout"])
def test_float32_and_threads_agree_with_float64(noise):
    rng = np.random.default_rng(1)
    n = 300
    pairs = [csr_array(rng.poisson(0.3 / (1 + np.arange(n) / 20)[:, None], (n, n))) for _ in range(2)]
    counts = pairs[0].sum(axis=1) + 3
    X = rng.standard_normal((n, 30))
    exact = text_moments(counts, pairs, kappa=2, noise=noise, dtype=np.float64)
    fast = text_moments(counts, pairs, kappa=2, noise=noise, n_threads=2)
    for k in (1, 2):
        assert fast.forward(k, X).dtype == np.float32
        np.testing.assert_allclose(fast.forward(k, X), exact.forward(k, X), rtol=1e-3, atol=2e-5)
        np.testing.assert_allclose(fast.backward(k, X), exact.backward(k, X), rtol=1e-3, atol=2e-5)


def test_words_that_never_occur_are_outside_the_space():
    counts, pairs = counts_of([[1, 2, 1, 2, 2, 1]], 1)
    moments = text_moments(counts, pairs, kappa=0, dtype=np.float64)
    assert moments.dimension == 1
    assert np.isfinite(moments.forward(1, np.eye(V))).all()
    assert np.array_equal(moments.project(np.ones((V, 1)))[[0, 3]], np.zeros((2, 1)))


def test_reduced_to_a_full_basis_is_the_same_operator():
    counts, pairs = counts_of(SENTENCES, 2)
    moments = text_moments(counts, pairs, kappa=1, dtype=np.float64)
    basis = np.linalg.svd(moments.u[None])[2][1:].T
    reduced = reduce_moments(moments, basis)
    assert isinstance(reduced, ReducedMoments) and reduced.dimension == V - 1 and reduced.n_rows == V - 1
    X = np.random.default_rng(2).standard_normal((V - 1, 2))
    for k in (1, 2):
        np.testing.assert_allclose(basis @ reduced.forward(k, X), moments.forward(k, basis @ X), rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(
            basis @ reduced.backward(k, X), moments.backward(k, basis @ X), rtol=1e-10, atol=1e-13
        )


def test_bad_input_is_told_in_one_sentence():
    counts, pairs = counts_of(SENTENCES, 5)
    with pytest.raises(InputError, match="no pairs at lag 5"):
        text_moments(counts, pairs, kappa=1)
    with pytest.raises(InputError, match="no words"):
        text_moments(np.zeros(V), pairs[:1], kappa=1)
    with pytest.raises(InputError, match="19 words: are both counts of the same text"):
        text_moments(counts, [20 * pairs[0]], kappa=1)
    with pytest.raises(InputError, match="noise='loud'"):
        text_moments(counts, pairs[:1], kappa=1, noise="loud")
    with pytest.raises(InputError, match="kappa=-1"):
        text_moments(counts, pairs[:1], kappa=-1)
    with pytest.raises(InputError, match="at least one"):
        text_moments(counts, [], kappa=1)
