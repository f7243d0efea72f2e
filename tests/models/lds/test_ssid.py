import numpy as np
import pytest
from scipy.sparse import csr_array

from oracles.lds_dense import circular_counts, hmm_pairs, hmm_text
from undertow import Corpus, LagCounts
from undertow.errors import InputError
from undertow.kernels.gaussian.hankel import apply_hankel, hankel_svd
from undertow.kernels.gaussian.moments import text_moments
from undertow.models.lds.init import identify, random_start
from undertow.models.lds.params import steady_state

V = 12
TRANSITION = np.array([[0.9, 0.05, 0.05, 0], [0, 0.6, 0.2, 0.2], [0.3, 0, 0.5, 0.2], [0.1, 0.2, 0, 0.7]])
EMISSION = np.random.default_rng(0).dirichlet(np.full(V, 0.3), 4)
# without the eigenvalue 1 of the constant
EIGENVALUES = np.sort_complex(np.linalg.eigvals(TRANSITION))[:3]


def exact_moments(n_lags=7):
    mu, pairs = hmm_pairs(TRANSITION, EMISSION, n_lags)
    return text_moments(mu, [csr_array(p) for p in pairs], kappa=0, dtype=np.float64)


def dense_hankel(moments, r):
    eye = np.eye(moments.n_rows)
    return np.block([[moments.forward(r + i - j, eye) for j in range(r)] for i in range(r)])


def test_hankel_products_equal_the_dense_matrix():
    moments, r = exact_moments(), 3
    H = dense_hankel(moments, r)
    X = np.random.default_rng(1).standard_normal((r, V, 5))
    flat = X.reshape(r * V, 5)
    np.testing.assert_allclose(apply_hankel(moments, X).reshape(-1, 5), H @ flat, rtol=1e-9, atol=1e-12)
    out = apply_hankel(moments, X, transposed=True)
    np.testing.assert_allclose(out.reshape(-1, 5), H.T @ flat, rtol=1e-9, atol=1e-12)


def test_randomized_svd_equals_the_dense_one():
    rng = np.random.default_rng(2)
    tokens = hmm_text(TRANSITION, EMISSION, 3000, rng)
    counts, pairs = circular_counts(tokens, V, 7)
    moments = text_moments(counts, [csr_array(p) for p in pairs], kappa=5, dtype=np.float64)
    left, values, right = hankel_svd(moments, 3, rng.standard_normal, r=4, oversample=5, n_power=3)
    H = dense_hankel(moments, 4)
    np.testing.assert_allclose(values, np.linalg.svd(H)[1][:3], rtol=1e-6)
    left, right = left.reshape(-1, 3), right.reshape(-1, 3)
    np.testing.assert_allclose(left.T @ left, np.eye(3), rtol=0, atol=1e-8)
    np.testing.assert_allclose(left.T @ H @ right, np.diag(values), rtol=0, atol=1e-6)


def test_exact_moments_give_back_the_dynamics_and_the_moments():
    moments = exact_moments()
    params = identify(moments, 3, np.random.default_rng(0))
    np.testing.assert_allclose(np.sort_complex(np.linalg.eigvals(params.A)), EIGENVALUES, rtol=1e-4)
    A, C, Pi = params.A, params.C, params.M
    np.testing.assert_allclose(moments.u @ C, 0, atol=1e-12)
    for k in range(1, 8):
        Psi = moments.forward(k, np.eye(V))
        np.testing.assert_allclose(C @ np.linalg.matrix_power(A, k) @ Pi @ C.T, Psi, rtol=0, atol=1e-4)
    np.testing.assert_allclose(A @ Pi @ A.T + params.Q, Pi, rtol=1e-3, atol=1e-4)


def test_long_simulated_text_gives_back_the_dynamics():
    rng = np.random.default_rng(4)
    tokens = hmm_text(TRANSITION, EMISSION, 300_000, rng)
    counts, pairs = circular_counts(tokens, V, 7)
    moments = text_moments(counts, [csr_array(p) for p in pairs], kappa=1, n_threads=2)
    params = identify(moments, 3, rng)
    np.testing.assert_allclose(np.sort_complex(np.linalg.eigvals(params.A)), EIGENVALUES, rtol=0, atol=0.05)


def test_more_components_than_the_text_has_states_do_no_harm():
    params = identify(exact_moments(), 6, np.random.default_rng(0))
    assert params.A.shape == (6, 6) and params.C.shape == (V, 6)
    assert all(np.isfinite(x).all() for x in params)
    assert np.abs(np.linalg.eigvals(params.A)).max() < 1


def moments_of_sentences(sentences, lags):
    counts = LagCounts.from_corpus(Corpus.from_sentences(sentences), lags=lags)
    matrices = (counts.matrix(k) for k in range(1, lags + 1))
    return text_moments(counts.vocabulary.counts, matrices, kappa=1)


def test_fewer_words_than_components():
    moments = moments_of_sentences([["a", "b", "c", "a", "b", "a", "c", "b"]] * 3, 3)
    with pytest.raises(InputError, match="10 components need at least 11 different words, but the text has 4"):
        identify(moments, 10, np.random.default_rng(0), ssid_lags=2)
    with pytest.raises(InputError, match="10 components"):
        random_start(moments, 10, np.random.default_rng(0))


def test_one_repeated_word():
    moments = moments_of_sentences([["a"] * 20], 3)
    with pytest.raises(InputError, match="independent of its neighbors"):
        identify(moments, 1, np.random.default_rng(0), ssid_lags=2)


def test_lags_longer_than_every_sentence():
    with pytest.raises(InputError, match="No sentence has more than 3 tokens"):
        moments_of_sentences([["a", "b", "c"], ["b", "c"]], 7)


def test_one_lag_does_not_tell_the_transition_from_the_covariance():
    """Ψ_1 = C(AΠ)C' knows A and Π by their product alone; at two blocks the shift between them is A."""
    with pytest.raises(InputError, match=r"ssid_lags=1 .*ssid_lags=2"):
        identify(exact_moments(3), 2, np.random.default_rng(0), ssid_lags=1)
    identify(exact_moments(3), 2, np.random.default_rng(0), ssid_lags=2)


@pytest.mark.parametrize("ssid_lags", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_any_number_of_lags_and_more_components_than_the_rank(ssid_lags, n_components):
    """Three words in a cycle: the Hankel matrix has rank 2, and three components are one too many for it."""
    sentences = [list("abcabcabcabcabc"), list("bcabcabcabcabca")] * 3
    moments = moments_of_sentences(sentences, 2 * ssid_lags - 1)
    params = identify(moments, n_components, np.random.default_rng(0), ssid_lags=ssid_lags)
    assert all(np.isfinite(x).all() for x in params)
    assert np.abs(np.linalg.eigvals(params.A)).max() < 1
    assert np.isfinite(steady_state(params).logdet)


def test_too_few_lags_for_the_horizon():
    with pytest.raises(InputError, match=r"ssid_lags=4 needs lags 1 to 7, but only 3"):
        identify(exact_moments(3), 2, np.random.default_rng(0))
