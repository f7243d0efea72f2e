from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from oracles import dynamic_dense as dense
from undertow.kernels.field.beliefs import FORMS
from undertow.kernels.field.cooccurrence import log_likelihood
from undertow.models.dynamic.filter import (
    Belief,
    Noise,
    Path,
    Settings,
    condition,
    filter_path,
    smooth_path,
    update_variance,
)
from undertow.models.dynamic.init import correspondence_analysis, dispersion, static_map
from undertow.models.dynamic.path import linearized_filter, path_mode
from undertow.models.dynamic.tables import damp, make_table

A, W, D = 3, 4, 2
N = A + W


def tables(T: int = 3, seed: int = 0) -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(seed)
    counts = [rng.poisson(4, size=(A, W)).astype(float) + 1 for _ in range(T)]
    return counts, [make_table(sp.csr_array(c), A) for c in counts]


def some_noise(drift: float = 0.05) -> Noise:
    return Noise(np.linspace(drift, 2 * drift, N), np.full(N, 0.3))


def anchor(seed: int = 1) -> Any:
    return 0.6 * np.random.default_rng(seed).standard_normal((N, D))


def tight(covariance: str, **changes: Any) -> Settings:
    return Settings(covariance, tol=1e-13, **changes)


def run_filter(seen: list[Any], gaps: list[float], noise: Noise, settings: Settings) -> Path:
    """From the anchor, with every entity known before."""
    belief = Belief(anchor(), settings.form.isotropic(noise.initial, D))
    return filter_path(seen, gaps, belief, noise, settings, np.ones(N, dtype=bool))


def test_conditioning_is_laplaces_approximation() -> None:
    counts, (table, *_) = tables(1)
    root = np.random.default_rng(2).standard_normal((N * D, N * D))
    cov = 0.02 * root @ root.T + 0.1 * np.eye(N * D)
    belief, _ = condition(Belief(anchor(), cov), table, anchor(), tight("full", beta=0.5))
    mean, expected = dense.laplace(counts[0], anchor(), cov, anchor(), beta=0.5)
    np.testing.assert_allclose(belief.mean, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(belief.cov, expected, rtol=1e-3, atol=1e-6)


def test_blocks_find_the_same_mode_from_the_same_prior() -> None:
    _, (table, *_) = tables(1)
    noise = some_noise()
    full, blocks = (
        condition(Belief(anchor(), FORMS[c].isotropic(noise.initial, D)), table, anchor(), tight(c))[0]
        for c in ("full", "blocks")
    )
    np.testing.assert_allclose(blocks.mean, full.mean, rtol=1e-5, atol=1e-6)
    # a block is conditional on all others, so never wider
    wide = FORMS["full"].blocks(full.cov, N)
    assert np.linalg.eigvalsh(wide - blocks.cov).min() > -1e-9


def test_evidence_is_laplaces() -> None:
    counts, (table, *_) = tables(1)
    cov = 0.2 * np.eye(N * D)
    belief, evidence = condition(Belief(anchor(), cov), table, anchor(), tight("full"))
    away = (belief.mean - anchor()).ravel()
    precision = np.linalg.inv(cov) + dense.fisher(counts[0], belief.mean)
    expected = dense.log_likelihood(counts[0], belief.mean) - 0.5 * away @ np.linalg.solve(cov, away)
    expected -= 0.5 * (np.linalg.slogdet(cov)[1] + np.linalg.slogdet(precision)[1])
    np.testing.assert_allclose(evidence, expected, rtol=1e-9)


@pytest.mark.parametrize("covariance", ["full", "blocks"])
def test_smoother_is_the_posterior_of_the_whole_path(covariance: str) -> None:
    """Given the expansions the filter made, the smoother solves the block-tridiagonal system of the path."""
    _, seen = tables(4)
    noise, gaps, settings = some_noise(), [0.0, 1.0, 3.0, 1.0], tight(covariance)
    form = settings.form
    path = run_filter(seen, gaps, noise, settings)
    smoothed, moves = smooth_path(path, gaps, noise, form)

    def dense_cov(cov: Any) -> Any:
        if covariance == "full":
            return cov
        out = np.zeros((N, D, N, D))
        out[np.arange(N), :, np.arange(N), :] = cov
        return out.reshape(N * D, N * D)

    informations, linear = [], []
    mean, cov = anchor().ravel(), dense_cov(form.isotropic(noise.initial, D))
    for t in range(4):
        if t:
            cov = cov + gaps[t] * np.diag(np.repeat(noise.drift, D))
        precision = np.linalg.inv(dense_cov(path.covs[t]))
        informations.append(precision - np.linalg.inv(cov))
        linear.append(precision @ path.means[t].ravel() - np.linalg.solve(cov, mean))
        mean, cov = path.means[t].ravel(), dense_cov(path.covs[t])
    steps = [np.zeros(0), *(g * np.diag(np.repeat(noise.drift, D)) for g in gaps[1:])]
    start = dense_cov(form.isotropic(noise.initial, D))
    means, joint = dense.path_posterior(informations, linear, anchor().ravel(), start, steps)
    np.testing.assert_allclose(smoothed.means.reshape(4, -1), means, rtol=1e-6, atol=1e-7)
    m = N * D
    for t in range(4):
        np.testing.assert_allclose(
            dense_cov(smoothed.covs[t]), joint[t * m : (t + 1) * m, t * m : (t + 1) * m], rtol=1e-6, atol=1e-8
        )
    lift = np.zeros((m, 4 * m))
    lift[:, m : 2 * m], lift[:, :m] = np.eye(m), -np.eye(m)
    move = (lift @ joint @ lift.T).diagonal().reshape(N, D).sum(axis=1)
    np.testing.assert_allclose(moves.variance[0], move, rtol=1e-6)
    np.testing.assert_allclose(moves.squared[0], ((means[1] - means[0]).reshape(N, D) ** 2).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("covariance", ["full", "blocks"])
def test_an_absent_entity_waits(covariance: str) -> None:
    """Its filtered mean stays and its variance grows by gσ² a step, while nothing it is correlated with tells of it."""
    counts, _ = tables(4)
    for c in counts[1:]:
        c[0] = 0
    seen = [make_table(sp.csr_array(c), A) for c in counts]
    noise, gaps = some_noise(), [0.0, 1.0, 2.0, 1.0]
    path = run_filter(seen, gaps, noise, tight(covariance))
    variances = [FORMS[covariance].blocks(c, N)[0] for c in path.covs]
    if covariance == "blocks":
        np.testing.assert_allclose(path.means[1:, 0], np.repeat(path.means[:1, 0], 3, axis=0), rtol=1e-12)
        for t, elapsed in ((1, 1.0), (2, 3.0), (3, 4.0)):
            expected = variances[0] + elapsed * noise.drift[0] * np.eye(D)
            np.testing.assert_allclose(variances[t], expected, rtol=1e-10)
    else:
        assert (np.diff([np.trace(v) for v in variances]) > 0).all()


@pytest.mark.parametrize("covariance", ["full", "blocks"])
def test_a_step_without_data_only_diffuses(covariance: str) -> None:
    _, seen = tables(3)
    noise = some_noise()
    path = run_filter([seen[0], None, seen[2]], [0.0, 1.0, 1.0], noise, tight(covariance))
    np.testing.assert_allclose(path.means[1], path.means[0], rtol=0, atol=0)
    np.testing.assert_allclose(path.covs[1], FORMS[covariance].diffuse(path.covs[0], noise.drift), rtol=1e-12)
    # and is the same as a gap of two
    gap = run_filter([seen[0], seen[2]], [0.0, 2.0], noise, tight(covariance))
    np.testing.assert_allclose(gap.means[1], path.means[2], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(gap.log_evidence, path.log_evidence, rtol=1e-12)


def test_learned_variance_is_a_maximum_of_the_evidence() -> None:
    """Where MacKay's iteration rests, the evidence of a linear chain does not rise in any direction."""
    rng = np.random.default_rng(3)
    d, n, T, r = 2, 200, 12, 0.3
    x = np.cumsum(np.sqrt(0.04) * rng.standard_normal((T, n, d)), axis=0)
    y = x + np.sqrt(r) * rng.standard_normal(x.shape)

    def run(q: float) -> tuple[float, Any, Any]:
        """The evidence of a random walk seen with noise, and its smoothed moves, coordinate by coordinate."""
        m, v, value = np.zeros((n, d)), 1.0, 0.0
        ms, vs = [], []
        for t in range(T):
            v = v + q if t else v
            value += float(-0.5 * ((y[t] - m) ** 2 / (v + r) + np.log(v + r)).sum())
            k = v / (v + r)
            m, v = m + k * (y[t] - m), (1 - k) * v
            ms.append(m)
            vs.append(v)
        s, sv, squared, variance = ms[-1], vs[-1], [], []
        for t in range(T - 2, -1, -1):
            j = vs[t] / (vs[t] + q)
            s_new, sv_new = ms[t] + j * (s - ms[t]), vs[t] + j * j * (sv - vs[t] - q)
            squared.append(((s - s_new) ** 2).sum(axis=1))
            variance.append(np.full(n, d * (sv + sv_new - 2 * j * sv)))
            s, sv = s_new, sv_new
        return value, np.array(squared), np.array(variance)

    q = 1.0
    for _ in range(60):
        _, squared, variance = run(q)
        q = update_variance(q, squared, variance, np.ones((T - 1, 1)), d)
    assert run(q)[0] > max(run(0.97 * q)[0], run(1.03 * q)[0])
    np.testing.assert_allclose(q, 0.04, rtol=0.25)


def test_static_map_separates_what_never_meets() -> None:
    counts = np.kron(np.eye(2), np.full((3, 4), 6.0)) + 0.1
    table = make_table(sp.csr_array(counts), 6)
    rng = np.random.default_rng(0)
    belief, tau2 = static_map(table, correspondence_analysis(table, 14, 2, rng), Settings("blocks"))
    gap = ((belief.mean[:6, None] - belief.mean[None, 6:]) ** 2).sum(axis=2)
    assert gap[counts > 1].max() < gap[counts < 1].min() and 0.05 < tau2 < 20


def test_a_static_map_keeps_the_width_it_is_given() -> None:
    """Few counts an entity: the evidence has all in one place, a given width does not; it is the prior's mode."""
    rng = np.random.default_rng(2)
    counts = (rng.random((20, 40)) < 0.12).astype(float)
    table = make_table(sp.csr_array(counts), 20)
    assert table is not None
    start = correspondence_analysis(table, 60, 4, np.random.default_rng(0))
    settings = Settings("blocks", beta=0.5, tol=1e-9)
    shrunk, _ = static_map(table, start, settings)
    kept, tau2 = static_map(table, start, settings, 0.5)
    assert tau2 == 0.5 and np.square(kept.mean).mean() > 4 * np.square(shrunk.mean).mean()
    value, score = log_likelihood(table, kept.mean[table.rows], kept.mean[table.columns], beta=0.5)
    pull = kept.mean[table.present] / 0.5
    assert np.isfinite(value) and np.abs(score - pull).max() < 0.01 * np.abs(pull).max()


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1), (2, 2)])
def test_a_start_exists_for_the_smallest_tables(shape: tuple[int, int]) -> None:
    table = make_table(sp.csr_array(np.ones(shape)), shape[0])
    x = correspondence_analysis(table, sum(shape), 3, np.random.default_rng(0))
    belief, _ = static_map(table, x, Settings("blocks"))
    assert np.isfinite(belief.mean).all() and np.isfinite(belief.cov).all()


def test_sparse_and_dense_decompositions_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    table = make_table(sp.csr_array(rng.poisson(2, size=(30, 40)).astype(float)), 30)
    one = correspondence_analysis(table, 70, 2, np.random.default_rng(0))
    monkeypatch.setattr("undertow.models.dynamic.init.MAX_DENSE", 3)
    two = correspondence_analysis(table, 70, 2, np.random.default_rng(0))
    # the jitter comes from the same generator after another draw: compare what is not jitter
    np.testing.assert_allclose(np.abs(two), np.abs(one), rtol=0, atol=0.12)
    assert np.corrcoef(np.abs(one).ravel(), np.abs(two).ravel())[0, 1] > 0.95


def test_dispersion_is_that_of_all_pairs() -> None:
    counts, seen = tables(2)
    counts[1][0] = 0
    seen[1] = make_table(sp.csr_array(counts[1]), A)
    x = np.stack([anchor(3), anchor(4)])
    squares = total = 0.0
    for c, y in zip(counts, x, strict=True):
        mu = c.sum() * dense.probabilities(c, y)
        squares += ((c - mu) ** 2).sum()
        total += c.sum()
    np.testing.assert_allclose(dispersion(seen, x).pearson, squares / total, rtol=1e-10)


def test_the_path_is_the_most_probable_one() -> None:
    """Its mode is a stationary point of all steps together, and the smoother about it gives it back in both forms."""
    counts, seen = tables(3)
    noise, gaps = some_noise(), [0.0, 1.0, 2.0]
    start = np.repeat(anchor()[None], 3, axis=0)
    mode = path_mode(seen, gaps, anchor(), noise, tight("blocks", beta=0.7), start)

    def log_posterior(x: Any) -> float:
        value = -0.5 * float((((x[0] - anchor()) ** 2).sum(axis=1) / noise.initial).sum())
        for t in range(3):
            value += dense.log_likelihood(counts[t], x[t], 0.7)
            if t:
                value -= 0.5 * float((((x[t] - x[t - 1]) ** 2).sum(axis=1) / (gaps[t] * noise.drift)).sum())
        return value

    np.testing.assert_allclose(mode.value, log_posterior(mode.x), rtol=1e-10)
    np.testing.assert_allclose(dense.gradient(log_posterior, mode.x), 0, rtol=0, atol=1e-4)
    for covariance in ("full", "blocks"):
        settings = tight(covariance, beta=0.7)
        filtered = linearized_filter(seen, gaps, anchor(), noise, settings, mode)
        smoothed, _ = smooth_path(filtered, gaps, noise, settings.form)
        np.testing.assert_allclose(smoothed.means, mode.x, rtol=1e-5, atol=1e-6)
    # the evidence: the mode's height, and the determinant of the whole path's precision against its prior's
    settings = tight("full", beta=0.7)
    m = N * D
    prior = np.zeros((3 * m, 3 * m))
    prior[:m, :m] = np.diag(1 / np.repeat(noise.initial, D))
    for t in (1, 2):
        link = np.zeros((m, 3 * m))
        link[:, t * m : (t + 1) * m], link[:, (t - 1) * m : t * m] = np.eye(m), -np.eye(m)
        prior += link.T @ np.diag(1 / np.repeat(gaps[t] * noise.drift, D)) @ link
    posterior = prior.copy()
    for t in range(3):
        posterior[t * m : (t + 1) * m, t * m : (t + 1) * m] += dense.fisher(counts[t], mode.x[t], 0.7)
    expected = mode.value + 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(posterior)[1])
    found = linearized_filter(seen, gaps, anchor(), noise, settings, mode).log_evidence
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_damping_is_gentle_at_one_and_nothing_at_zero() -> None:
    counts = sp.csr_array(np.array([[1.0, 0, 4]]))
    assert damp(counts, 0.0) is counts
    np.testing.assert_allclose(damp(counts, 1e-9).toarray(), counts.toarray(), rtol=1e-6)
    np.testing.assert_allclose(damp(counts, 2.0).toarray(), [[1, 0, 2]], rtol=1e-12)
