from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from undertow.kernels.words.nmf import aggregate_markov


def some_counts(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(0.5, 4, size=(7, 9))) * (rng.random((7, 9)) < 0.7)
    return counts, rng.dirichlet(np.ones(3), 7), rng.dirichlet(np.ones(9), 3)


def test_a_step_is_em_with_the_shares_written_out() -> None:
    counts, R, E = some_counts()
    share = R[:, :, None] * E[None]  # (I, F, J)
    share = share / share.sum(axis=1, keepdims=True) * counts[:, None, :]
    n_R, n_E = share.sum(axis=2), share.sum(axis=0)
    mean = (counts * np.log(R @ E)).sum() / counts.sum()
    new_R, new_E, history = aggregate_markov(csr_array(counts), R, E, 1, floor=0)
    assert_allclose(new_R, n_R / n_R.sum(axis=1, keepdims=True), rtol=1e-10)
    assert_allclose(new_E, n_E / n_E.sum(axis=1, keepdims=True), rtol=1e-10)
    assert_allclose(history, [mean], rtol=1e-12)


def test_the_likelihood_never_falls_and_full_rank_fits_everything() -> None:
    counts, _, _ = some_counts(1)
    rng = np.random.default_rng(2)
    R, E, history = aggregate_markov(
        csr_array(counts), 0.9 * np.eye(7) + 0.1 * rng.dirichlet(np.ones(7), 7), rng.dirichlet(np.ones(9), 7), 500
    )
    assert (np.diff(history) > -1e-9).all()
    rows = counts / counts.sum(axis=1, keepdims=True)
    assert_allclose(R @ E, rows, rtol=0, atol=0.02)
    assert_allclose(R.sum(axis=1), 1, rtol=1e-12)
    assert_allclose(E.sum(axis=1), 1, rtol=1e-12)


def test_rows_and_features_without_pairs_stay_distributions() -> None:
    counts, R, E = some_counts(3)
    counts[2] = 0
    counts[:, 4] = 0
    new_R, new_E, _ = aggregate_markov(csr_array(counts), R, E, 5)
    assert_allclose(new_R[2], R[2], rtol=1e-9)
    assert np.isfinite(new_R).all() and np.isfinite(new_E).all()
    assert_allclose(new_E.sum(axis=1), 1, rtol=1e-12)
    assert new_E[:, 4].max() < 1e-9
