import importlib.resources
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array

from oracles.lds_dense import circular_counts, circular_pass, hmm_pairs, hmm_text, joint_gaussian, kalman_rts, whitened
from undertow import Corpus, LagCounts
from undertow.errors import InputError
from undertow.kernels.gaussian import linalg
from undertow.kernels.gaussian.moments import reduce_moments, text_moments
from undertow.models.lds import em as asos
from undertow.models.lds.em import (
    LikelihoodWarning,
    e_step,
    em_iterations,
    evaluate,
    from_basis,
    into_basis,
    m_step,
    reduced_basis,
    staged_iterations,
)
from undertow.models.lds.init import identify, random_start
from undertow.models.lds.params import steady_state

V, MAX_LAGS = 8, 24
TRANSITION = np.array([[0.85, 0.10, 0.05], [0.05, 0.90, 0.05], [0.10, 0.10, 0.80]])


def run_em(moments, start, n_iter, **options):
    """The best parameters, and the likelihoods from the start on."""
    steps = list(em_iterations(moments, start, n_iter, **options))
    return steps[-1].params, [step.objective for step in steps]


@pytest.fixture(scope="module")
def text():
    """A circular text of a hidden Markov chain: its empirical moments are exactly those of a stationary process."""
    rng = np.random.default_rng(0)
    return hmm_text(TRANSITION, rng.dirichlet(np.full(V, 0.5), 3), 4000, rng)


def moments_of(tokens, n_lags, kappa=0.0):
    counts, pairs = circular_counts(tokens, V, n_lags)
    return text_moments(counts, [csr_array(p) for p in pairs], kappa=kappa, dtype=np.float64)


@pytest.fixture(scope="module")
def params(text):
    """Parameters halfway through EM, so that nothing in them is special."""
    moments = moments_of(text, 7)
    params = identify(moments, 2, np.random.default_rng(1))
    return run_em(moments, params, 3)[0]


@pytest.fixture(scope="module")
def brute(text, params):
    return circular_pass(params, text)


def test_oracles_agree_with_each_other(text, params):
    W = whitened(text[:6], params.mu)
    smoothed = joint_gaussian(params, np.eye(2), W)
    _, _, _, rts = kalman_rts(params, np.eye(2), W)
    np.testing.assert_allclose(rts.mean, smoothed.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(rts.cov, smoothed.cov, rtol=1e-6, atol=1e-9)


def test_steady_state_is_the_limit_of_the_dense_filter_and_smoother(text, params):
    steady = steady_state(params)
    cov_pred, gains, filtered, smoothed = kalman_rts(params, np.eye(2), whitened(text[:400], params.mu))
    np.testing.assert_allclose(steady.Sigma1, cov_pred[-1], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(steady.Sigma0, filtered.cov[-1], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(steady.K_c @ params.C.T, gains[-1], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(steady.H, params.A - gains[-1] @ params.C @ params.A, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(steady.V_s, smoothed.cov[200], rtol=1e-7, atol=1e-10)
    # the smoother as a recurrence gives the same means
    for t in (200, 201):
        mean = steady.J @ smoothed.mean[t + 1] + steady.P @ filtered.mean[t]
        np.testing.assert_allclose(mean, smoothed.mean[t], rtol=1e-6, atol=1e-9)


def statistics_error(text, params, brute, L):
    steady = steady_state(params)
    stats = e_step(moments_of(text, L), params)
    pairs = [
        (stats.E_xxT - steady.V_s, brute.E_ssT),
        (stats.E_xnextxT - steady.V_s @ steady.J.T, brute.E_snextsT),
        (stats.E_wxT, brute.E_wsT),
    ]
    return [float(np.abs(ours - true).max() / np.abs(true).max()) for ours, true in pairs]


def test_statistics_are_those_of_a_pass_over_the_text(text, params, brute):
    errors = np.array([statistics_error(text, params, brute, L) for L in (8, 16, 24)])
    assert np.all(errors[1:] < errors[:-1]), errors  # every statistic gains with every step of the horizon
    assert np.all(errors[0] < 1e-2) and np.all(errors[-1] < 1e-4), errors


def test_filter_moments_are_those_of_a_pass_over_the_text(text, params, brute):
    moments = moments_of(text, MAX_LAGS)
    Phi = [params.C.T @ moments.forward(k, params.C) for k in range(1, MAX_LAGS + 1)]
    filtered = asos.filter_moments(steady_state(params), params.A, Phi)
    np.testing.assert_allclose(filtered.X[0], brute.E_mmT, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(filtered.r1, params.C.T @ brute.E_wnextmT, rtol=1e-4, atol=1e-8)


def test_likelihood_is_that_of_the_innovations(text, params, brute):
    errors = [abs(evaluate(moments_of(text, L), params) - brute.log_likelihood) for L in (4, 8, 16, 24)]
    assert errors[0] > errors[1] > errors[2] > errors[3], errors
    assert errors[-1] < 1e-6
    assert e_step(moments_of(text, 7), params).log_likelihood == evaluate(moments_of(text, 7), params)


def test_the_horizon_is_exact_for_text_that_follows_the_model():
    """There the model's prediction beyond the horizon is the truth, so one lag says as much as many."""
    mu, pairs = hmm_pairs(TRANSITION, np.random.default_rng(0).dirichlet(np.full(V, 0.5), 3), MAX_LAGS)

    def moments(L):
        return text_moments(mu, [csr_array(p) for p in pairs[:L]], kappa=0, dtype=np.float64)

    exact = identify(moments(7), 2, np.random.default_rng(0))
    value = evaluate(moments(MAX_LAGS), exact)
    for L in (1, 2, 5):
        assert evaluate(moments(L), exact) == pytest.approx(value, abs=1e-6)


def test_the_m_step_is_the_best_of_its_neighbours(text, params):
    """The expected complete-data likelihood, written out, is highest at the M-step's parameters."""
    moments = moments_of(text, 16)
    stats = e_step(moments, params)
    best = m_step(moments, stats, params)
    u_perp = np.linalg.svd(moments.u[None])[2][1:].T

    def expected(A, C, Q, D):
        state = stats.E_xxT - A @ stats.E_xnextxT.T - stats.E_xnextxT @ A.T + A @ stats.E_xxT @ A.T
        words = np.eye(V - 1) - C @ stats.E_wxT.T @ u_perp - u_perp.T @ stats.E_wxT @ C.T + C @ stats.E_xxT @ C.T
        terms = [np.linalg.slogdet(Q)[1], np.trace(np.linalg.solve(Q, state))]
        return -0.5 * sum([*terms, np.linalg.slogdet(D)[1], np.trace(np.linalg.solve(D, words))])

    C = u_perp.T @ best.C
    D = np.eye(V - 1) - C @ best.M @ C.T
    top = expected(best.A, C, best.Q, D)
    rng = np.random.default_rng(2)
    for size in (1e-2, 1e-3):
        for _ in range(20):
            dA, dC, dQ, dD = (size * rng.standard_normal(x.shape) for x in (best.A, C, best.Q, D))
            assert expected(best.A + dA, C, best.Q, D) < top
            assert expected(best.A, C + dC, best.Q, D) < top
            assert expected(best.A, C, best.Q + dQ @ best.Q @ dQ.T + 0.1 * size * best.Q, D) < top
            assert expected(best.A, C, best.Q, D + 0.1 * (dD @ D + D @ dD.T)) < top


@pytest.mark.parametrize("update_Q", [True, False])
def test_em_climbs_from_a_random_start(text, update_Q):
    moments = moments_of(text, 16)
    start = random_start(moments, 2, np.random.default_rng(3))
    params, history = run_em(moments, start, 60, update_Q=update_Q)
    values = np.array(history)
    assert len(history) == 61
    assert np.diff(values).min() > -1e-6
    assert values[-1] > values[0] + 0.05
    assert np.array_equal(params.Q, start.Q) != update_Q
    np.testing.assert_allclose(params.mu @ (params.C / np.sqrt(params.mu)[:, None]), 0, atol=1e-12)  # C'u = 0
    # subspace identification begins better and ends no worse
    other = run_em(moments, identify(moments, 2, np.random.default_rng(0)), 60)[1]
    assert other[0] > values[0] and other[-1] > values[-1] - 1e-6


def test_reduced_with_a_full_basis_is_the_full_em(text):
    moments = moments_of(text, 7, kappa=2.0)
    start = identify(moments, 3, np.random.default_rng(0))
    basis = reduced_basis(moments, start, V)
    assert basis.shape == (V, V - 1)
    np.testing.assert_allclose(basis.T @ basis, np.eye(V - 1), rtol=0, atol=1e-12)
    full, history = run_em(moments, start, 10)
    small, reduced_history = run_em(reduce_moments(moments, basis), into_basis(start, basis), 10)
    small = from_basis(small, basis)
    for ours, theirs in zip(reduced_history, history, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-10)
    for name in ("A", "C", "Q", "M"):
        np.testing.assert_allclose(getattr(small, name), getattr(full, name), rtol=1e-6, atol=1e-8)


@pytest.fixture(scope="module")
def book_counts(tmp_path_factory):
    path = importlib.resources.files("undertow") / "data" / "books.txt.xz"
    corpus = Corpus.build([str(path)], tmp_path_factory.mktemp("books") / "corpus", vocab_size=2000)
    return LagCounts.from_corpus(corpus, lags=7)


def book_moments(counts, kappa, noise):
    matrices = (counts.matrix(k) for k in range(1, 8))
    return text_moments(counts.vocabulary.counts, matrices, kappa=kappa, noise=noise, n_threads=2)


@pytest.mark.parametrize("noise", ["uniform", "dropout"])
@pytest.mark.parametrize("kappa", [10, 100, 1000])
def test_em_is_monotone_on_real_text(book_counts, kappa, noise):
    moments = book_moments(book_counts, kappa, noise)
    start = identify(moments, 10, np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params, history = run_em(moments, start, 20, tolerance=1e-4)
    values = np.array(history)
    # the tolerance is float32's: a density of 2,000 dimensions, of which nats in the thousands are constant
    assert len(values) == 21 and np.diff(values).min() > -1e-4
    assert values[-1] > values[0] + 0.01
    assert all(np.isfinite(x).all() for x in params)
    assert linalg.spectral_radius(params.A) < 1


def test_reduced_em_comes_close_to_full_em_on_real_text(book_counts):
    moments = book_moments(book_counts, 100, "uniform")
    start = identify(moments, 10, np.random.default_rng(0))
    _, history = run_em(moments, start, 20)
    basis = reduced_basis(moments, start, 60)
    small, reduced_history = run_em(reduce_moments(moments, basis), into_basis(start, basis), 20)
    reduced = from_basis(small, basis)
    gain = history[-1] - history[0]
    reduced_gain = reduced_history[-1] - history[0]
    assert 0.95 * gain < reduced_gain < 1.001 * gain
    lifted = evaluate(moments, reduced)
    assert lifted == pytest.approx(reduced_history[-1], abs=2e-3)


def test_a_fall_stops_with_the_best(text, params, monkeypatch):
    moments = moments_of(text, 8)
    good = asos.m_step
    calls = []

    def bad_m_step(operator, stats, params, **options):
        """Good for two iterations, then noise in the dynamics."""
        calls.append(stats.log_likelihood)
        new = good(operator, stats, params, **options)
        return new if len(calls) <= 2 else new._replace(A=-new.A)

    monkeypatch.setattr(asos, "m_step", bad_m_step)
    with pytest.warns(LikelihoodWarning, match="iteration 2 with the best parameters so far: the likelihood fell"):
        best, history = run_em(moments, params, 20)
    assert len(history) == 3
    assert evaluate(moments, best) == history[-1] == max(history)


def test_every_iteration_holds_the_best_parameters_so_far(text, params, monkeypatch):
    """A fall within the tolerance goes on, but Ctrl-C behind it would keep the parameters before it."""
    moments = moments_of(text, 8)
    good = asos.m_step
    calls = []

    def bad_m_step(operator, stats, params, **options):
        calls.append(None)
        new = good(operator, stats, params, **options)
        return new if len(calls) != 2 else new._replace(A=0.5 * new.A)

    monkeypatch.setattr(asos, "m_step", bad_m_step)
    steps = list(em_iterations(moments, params, 3, tolerance=np.inf))
    assert steps[2].objective < steps[1].objective
    assert steps[2].params is steps[1].params
    for n in (1, 3):
        assert evaluate(moments, steps[n].params) == max(s.objective for s in steps[: n + 1])


def test_stages_follow_each_other(text):
    moments = moments_of(text, 7, kappa=2.0)
    start = identify(moments, 2, np.random.default_rng(0))
    steps = list(staged_iterations(moments, start, n_iter=3, n_full=2, n_extra=2))
    assert [s.params.basis is None for s in steps] == [False] * 3 + [True] * 2
    assert all(s.params.lifted().C.shape == (V, 2) for s in steps)
    only = list(staged_iterations(moments, start, n_iter=0, n_full=0, n_extra=2))
    assert [s.objective for s in only] == [evaluate(moments, start)] and only[0].params.lifted() is start


def test_a_fit_whose_first_step_fails_yields_its_start(text, params, monkeypatch):
    moments = moments_of(text, 4)
    monkeypatch.setattr(asos, "m_step", lambda *_, **__: params._replace(A=np.full_like(params.A, np.nan)))
    with pytest.warns(LikelihoodWarning, match="not finite"):
        steps = list(staged_iterations(moments, params, n_iter=3, n_full=0, n_extra=2))
    assert len(steps) == 1 and np.isfinite(steps[0].objective)


def test_a_step_that_fails_never_leaves_nan(text, params, monkeypatch):
    moments = moments_of(text, 4)

    def nan_m_step(operator, stats, params, **options):
        return params._replace(A=np.full_like(params.A, np.nan))

    monkeypatch.setattr(asos, "m_step", nan_m_step)
    with pytest.warns(LikelihoodWarning, match="not finite"):
        best, history = run_em(moments, params, 5)
    assert best is params and len(history) == 1


def test_statistics_that_no_text_has_are_refused(text, params):
    moments = moments_of(text, 4)
    wrong = moments._replace(lags=tuple(lag._replace(data=-3 * lag.data, left=-3 * lag.left) for lag in moments.lags))
    with pytest.raises(InputError, match="EM cannot start"):
        run_em(wrong, params, 3)
