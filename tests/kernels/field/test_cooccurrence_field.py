from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from oracles import dynamic_dense as dense
from undertow.kernels.field import cooccurrence as field
from undertow.kernels.lanes import ordered_map
from undertow.models.dynamic.tables import make_table
from waiting import HANGS


def example(a: int = 4, w: int = 5, d: int = 2, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(3, size=(a, w)) + 0.5 * (rng.random((a, w)) < 0.3)
    counts[:, 0] += 1
    counts[0] += 1
    return counts, make_table(sp.csr_array(counts), a), 0.7 * rng.standard_normal((a + w, d))


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_likelihood_and_score_are_those_of_all_pairs(d: int, beta: float) -> None:
    counts, table, x = example(d=d)
    value, score = field.log_likelihood(table, x[:4], x[4:], beta=beta)
    np.testing.assert_allclose(value, dense.log_likelihood(counts, x, beta), rtol=1e-12)
    expected = dense.gradient(lambda y: dense.log_likelihood(counts, y, beta), x)
    np.testing.assert_allclose(score, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_fisher_matrix_is_the_covariance_of_the_score(d: int) -> None:
    counts, table, x = example(d=d)
    matrix = field.information_matrix(table, x[:4], x[4:], beta=0.4)
    np.testing.assert_allclose(matrix, dense.fisher(counts, x, 0.4), rtol=1e-10, atol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > -1e-10


def test_minus_hessian_is_fisher_plus_the_laplacian_of_the_misfit() -> None:
    counts, table, x = example()
    hessian = dense.hessian(lambda y: dense.log_likelihood(counts, y), x)
    excess = np.zeros((9, 9))
    excess[:4, 4:] = counts / counts.sum() - dense.probabilities(counts, x)
    excess += excess.T
    laplacian = np.kron(np.diag(excess.sum(axis=1)) - excess, np.eye(2))
    fisher = field.information_matrix(table, x[:4], x[4:])
    np.testing.assert_allclose(-hessian, fisher + 2 * counts.sum() * laplacian, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_blocks_are_the_diagonal_of_the_matrix(d: int) -> None:
    _, table, x = example(d=d)
    matrix = field.information_matrix(table, x[:4], x[4:], beta=0.7)
    expected = np.array([matrix[i * d : (i + 1) * d, i * d : (i + 1) * d] for i in range(9)])
    blocks = field.information_blocks(table, x[:4], x[4:], beta=0.7)
    np.testing.assert_allclose(blocks, field.clip_eigenvalues(expected), rtol=1e-9, atol=1e-11)


def test_tiles_add_up_and_threads_change_no_bit() -> None:
    rng = np.random.default_rng(1)
    a, w, d = 3 * field.TILE_ROWS - 5, 2 * field.TILE_COLUMNS + 7, 2
    X, Y = rng.standard_normal((a, d)), rng.standard_normal((w, d))
    p, q = rng.random(a), rng.random(w)
    one = field.field_sums(X, Y, p, q, order=2)
    K = np.outer(p, q) * np.exp(-((X[:, None] - Y[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(one.Z, K.sum(), rtol=1e-12)
    np.testing.assert_allclose(one.rows, K @ field.features(Y, 2), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.columns, K.T @ field.features(X, 2), rtol=1e-9, atol=1e-12)
    three = field.field_sums(X, Y, p, q, order=2, n_threads=3, serial_below=0)
    assert three.rows.tobytes() == one.rows.tobytes() and three.columns.tobytes() == one.columns.tobytes()
    # threads do not come along into a forked process: it must not wait for those of its parent
    all_at_work = threading.Barrier(3)
    list(ordered_map(lambda _: all_at_work.wait(HANGS), range(3), 3))
    with multiprocessing.get_context("fork").Pool(1) as forked:
        there = forked.apply_async(field.field_sums, (X, Y, p, q, 2, 3, 0)).get(timeout=HANGS)
    assert there.rows.tobytes() == one.rows.tobytes()


def test_positions_too_far_apart_are_refused_not_nan() -> None:
    _, table, x = example()
    x[4:] += 1e3
    value, score = field.log_likelihood(table, x[:4], x[4:])
    assert value == -np.inf and np.isfinite(score).all()


def test_rows_and_columns_permute() -> None:
    counts, table, x = example()
    r, c = np.array([2, 0, 3, 1]), np.array([4, 1, 0, 3, 2])
    other = make_table(sp.csr_array(counts[r][:, c]), 4)
    y = np.concatenate((x[:4][r], x[4:][c]))
    one, two = field.log_likelihood(table, x[:4], x[4:]), field.log_likelihood(other, y[:4], y[4:])
    np.testing.assert_allclose(two[0], one[0], rtol=1e-12)
    np.testing.assert_allclose(two[1], one[1][np.concatenate((r, 4 + c))], rtol=1e-9, atol=1e-9)
