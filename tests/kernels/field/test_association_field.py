from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from oracles import dynamic_dense as dense
from undertow.kernels.field import association
from undertow.kernels.field import cooccurrence as field
from undertow.models.dynamic.init import dispersion
from undertow.models.dynamic.tables import make_table


def example(a: int = 4, w: int = 5, d: int = 2, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(3, size=(a, w)) + 1.0
    return counts, free_table(counts), 0.7 * rng.standard_normal((a + w, d))


def free_table(counts: Any) -> field.Table:
    table = make_table(sp.csr_array(counts), len(counts))
    assert table is not None
    return table._replace(free_frequencies=True)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_likelihood_and_score_are_those_of_the_best_frequencies(d: int) -> None:
    counts, table, x = example(d=d)
    value, score = field.log_likelihood(table, x[:4], x[4:], beta=0.3)
    np.testing.assert_allclose(value, dense.free_log_likelihood(counts, x, 0.3), rtol=1e-9)
    expected = dense.gradient(lambda y: dense.free_log_likelihood(counts, y, 0.3), x)
    np.testing.assert_allclose(score, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("d", [1, 2])
def test_information_is_the_curvature_where_counts_are_as_expected(d: int) -> None:
    counts, _, x = example(d=d)
    expected = counts.sum() * dense.free_probabilities(counts, x)
    table = free_table(expected)
    matrix = field.information_matrix(table, x[:4], x[4:])
    hessian = dense.hessian(lambda y: dense.free_log_likelihood(expected, y), x)
    np.testing.assert_allclose(matrix, -hessian, rtol=1e-4, atol=1e-3)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9


def test_a_block_is_the_information_of_one_entity_and_its_own_frequency() -> None:
    counts, table, x = example()
    q = dense.free_probabilities(counts, x)
    blocks = field.information_blocks(table, x[:4], x[4:], beta=0.5)
    for i in range(4):
        partners = q[i] / q[i].sum()
        centred = x[4:] - partners @ x[4:]
        expected = 4 * 0.5 * counts[i].sum() * (partners[:, None] * centred).T @ centred
        np.testing.assert_allclose(blocks[i], expected, rtol=1e-6, atol=1e-9)


def test_frequencies_and_linear_maps_that_undo_each_other_change_nothing() -> None:
    _, table, x = example()
    value = field.log_likelihood(table, x[:4], x[4:])[0]
    A = np.array([[1.3, 0.4], [-0.2, 0.7]])
    moved = field.log_likelihood(table, x[:4] @ A + [0.3, 0.1], x[4:] @ np.linalg.inv(A).T - [0.2, 0.4])[0]
    np.testing.assert_allclose(moved, value, rtol=1e-9)


@pytest.mark.parametrize("shape", [(1, 6), (6, 1)])
def test_a_single_row_or_column_tells_nothing(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    table, x = free_table(rng.poisson(5, size=shape) + 1.0), rng.standard_normal((7, 2))
    X, Y = x[: shape[0]], x[shape[0] :]
    assert np.abs(field.log_likelihood(table, X, Y)[1]).max() < 1e-6
    assert np.abs(field.information_matrix(table, X, Y)).max() < 1e-6


def test_sums_are_kept_however_far_apart_everything_is() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(7))
    log_a, log_b, joint = association.balance(30 * rng.standard_normal((5, 2)), 30 * rng.standard_normal((7, 2)), p, q)
    assert np.isfinite(log_a).all() and np.isfinite(log_b).all() and (joint >= 0).all()
    np.testing.assert_allclose(joint.sum(axis=0), q, rtol=1e-6)


def test_dispersion_is_that_of_all_pairs() -> None:
    counts, table, x = example()
    mu = counts.sum() * dense.free_probabilities(counts, x)
    expected = ((counts - mu) ** 2).sum() / counts.sum()
    np.testing.assert_allclose(dispersion([table, None], np.array([x, x])).pearson, expected, rtol=1e-7)


def test_tables_in_parts_are_balanced_too() -> None:
    """Two groups that hardly meet: scaling by turns alone would take thousands of rounds."""
    rng = np.random.default_rng(0)
    for a, w in ((4, 9), (9, 4)):
        X, Y = (rng.standard_normal((n, 2)) + 2.5 * (np.arange(n) % 2)[:, None] for n in (a, w))
        p, r = rng.dirichlet(np.full(a, 3.0)), rng.dirichlet(np.full(w, 3.0))
        log_a, log_b, q = association.balance(X, Y, p, r)
        np.testing.assert_allclose(q.sum(axis=1), p, rtol=1e-7)
        np.testing.assert_allclose(q.sum(axis=0), r, rtol=1e-7)
        squares = ((X[:, None] - Y) ** 2).sum(axis=2)
        np.testing.assert_allclose(q, np.exp(log_a[:, None] + log_b - squares), rtol=1e-7, atol=1e-12)


def test_the_slope_of_a_log_ratio_is_its_derivative() -> None:
    rng = np.random.default_rng(0)
    for a, w in ((5, 7), (7, 5)):
        x = rng.standard_normal((a + w, 2))
        p, r = rng.dirichlet(np.full(a, 3.0)), rng.dirichlet(np.full(w, 3.0))
        slope = association.log_ratio_slope(x[:a], x[a:], p, r, 1, 2)
        for k in np.ndindex(x.shape):
            step = np.zeros_like(x)
            step[k] = 1e-5
            up, down = (np.log(association.balance(z[:a], z[a:], p, r)[2][1, 2]) for z in (x + step, x - step))
            np.testing.assert_allclose(slope[k], (up - down) / 2e-5, atol=1e-6)
