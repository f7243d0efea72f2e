from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import nnls

from undertow.kernels.words.nnls import nonnegative_middle


def test_it_is_scipys_answer_to_the_problem_written_out() -> None:
    rng = np.random.default_rng(0)
    A, B = 0.5 * np.eye(4) + 0.5 * rng.dirichlet(np.ones(4), 4), 0.6 * np.eye(3) + 0.4 * rng.dirichlet(np.ones(3), 3)
    C = rng.poisson(3.0, size=(4, 3)) * (rng.random((4, 3)) < 0.5)
    J = nonnegative_middle(C, A, B, n_iter=2000, tolerance=1e-12)
    expected, _ = nnls(np.kron(A.T, B.T), C.ravel().astype(float))
    assert (J >= 0).all() and (expected == 0).any()
    assert_allclose(J.ravel(), expected, rtol=0, atol=1e-6)


def test_problems_side_by_side_are_each_solved() -> None:
    rng = np.random.default_rng(1)
    A, B = np.eye(3) + 0.3 * rng.random((3, 3)), np.eye(3) + 0.3 * rng.random((5, 3, 3))
    C = rng.poisson(2.0, size=(5, 3, 3))
    together = nonnegative_middle(C, A, B, n_iter=3000, tolerance=1e-12)
    for c, b, J in zip(C, B, together, strict=True):
        assert_allclose(J, nonnegative_middle(c, A, b, n_iter=3000, tolerance=1e-12), rtol=0, atol=1e-6)
    assert_allclose(nonnegative_middle(np.zeros((3, 3)), A, B[0]), 0, rtol=0, atol=0)
