from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, random_array

from oracles.letters import dense_ridge
from undertow.kernels.words.ridge import ridge


def problem(seed: int, n: int = 30, m: int = 12, d: int = 3) -> tuple[csr_array, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = csr_array(random_array((n, m), density=0.3, rng=rng).astype(np.float32))
    return X, rng.standard_normal((n, d)).astype(np.float32), rng.uniform(0.1, 1, n).astype(np.float32)


@pytest.mark.parametrize("penalty", [0.1, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_enough_steps_are_the_solution(seed: int, penalty: float) -> None:
    X, Y, weights = problem(seed)
    expected = dense_ridge(X.toarray().astype(float), Y.astype(float), weights.astype(float), penalty)
    for found, known in zip(ridge(X, Y, weights, penalty, 40), expected, strict=True):
        assert found.dtype == np.float32
        assert_allclose(found, known, rtol=1e-3, atol=1e-4)


def test_columns_do_not_know_of_each_other() -> None:
    X, Y, weights = problem(0)
    together, _ = ridge(X, Y, weights, 1.0, 3)
    for j in range(Y.shape[1]):
        alone, _ = ridge(X, np.ascontiguousarray(Y[:, j : j + 1]), weights, 1.0, 3)
        assert_allclose(alone[:, 0], together[:, j], rtol=1e-5, atol=1e-6)


def test_nothing_to_explain_leaves_no_slopes() -> None:
    X, Y, weights = problem(1)
    slopes, mean = ridge(X, np.ones_like(Y), weights, 1.0, 5)
    assert_array_equal(slopes, 0)
    assert_allclose(mean, 1, rtol=1e-6)
    slopes, mean = ridge(X[:0], Y[:0], weights[:0], 1.0, 5)
    assert_array_equal(slopes, 0)
    assert_array_equal(mean, 0)
