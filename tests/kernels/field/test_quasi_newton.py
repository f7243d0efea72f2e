from __future__ import annotations

from typing import Any

import numpy as np

from undertow.kernels.field.quasi_newton import maximize


def rosenbrock(x: Any) -> tuple[float, Any]:
    a, b = x
    value = -((1 - a) ** 2 + 100 * (b - a**2) ** 2)
    return value, -np.array([-2 * (1 - a) - 400 * a * (b - a**2), 200 * (b - a**2)])


def test_finds_a_curved_maximum_without_a_metric() -> None:
    found = maximize(rosenbrock, np.array([-1.2, 1.0]), lambda x: lambda v: v / 200, tol=1e-14, n_rounds=40)
    np.testing.assert_allclose(found.x, [1, 1], rtol=1e-4)
    assert found.converged


def test_one_step_with_the_exact_metric() -> None:
    A = np.array([[3.0, 1], [1, 2]])
    centre = np.array([0.5, -2])

    def function(x: Any) -> tuple[float, Any]:
        return -0.5 * float((x - centre) @ A @ (x - centre)), -A @ (x - centre)

    found = maximize(function, np.zeros(2), lambda x: lambda v: np.linalg.solve(A, v), tol=1e-12)
    np.testing.assert_allclose(found.x, centre, rtol=1e-12)
    assert found.n_steps == 1


def test_never_below_the_start_and_not_where_it_is_undefined() -> None:
    def function(x: Any) -> tuple[float, Any]:
        if x[0] > 1:
            return -np.inf, np.zeros(1)
        return float(x[0]), np.ones(1)

    found = maximize(function, np.zeros(1), lambda x: lambda v: 0.7 * v, tol=1e-6)
    assert 0.7 <= found.x[0] <= 1
