"""Maximize a smooth function: L-BFGS preconditioned by the caller's approximate Hessian, with line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from undertow.kernels.types import F64

MEMORY = 10  # pairs of steps and gradient differences kept
ARMIJO = 1e-4  # share of the predicted gain that a step must achieve
MIN_STEP = 1e-9  # step length below which rounding errors dominate


class Maximum(NamedTuple):
    x: F64
    value: float
    n_steps: int
    converged: bool


def maximize(
    function: Callable[[F64], tuple[float, F64]],
    start: F64,
    solver: Callable[[F64], Callable[[F64], F64]],
    *,
    tol: float,
    n_rounds: int = 8,
    n_steps: int = 15,
) -> Maximum:
    """L-BFGS whose initial metric is `solver(x)`, recomputed every `n_steps` steps; the value never falls.

    `function` returns value and gradient (−inf where it is undefined); `solver(x)` returns v ↦ M⁻¹v with M close to the
    negative Hessian at x. Stops when the predicted gain of a full step is below `tol`.
    """
    x = start
    value, gradient = function(x)
    taken = 0
    for _ in range(n_rounds):
        solve = solver(x)
        pairs: list[tuple[F64, F64, float]] = []
        for _ in range(n_steps):
            step = direction(gradient, solve, pairs)
            slope = float((gradient * step).sum())
            if not slope > 2 * tol:
                return Maximum(x, value, taken, True)
            moved = _search(function, x, value, step, slope)
            if moved is None:
                return Maximum(x, value, taken, False)
            x_next, value, gradient_next = moved
            s, y = x_next - x, gradient - gradient_next
            curvature = float((s * y).sum())
            if curvature > 1e-12 * float(np.sqrt((s * s).sum() * (y * y).sum())):
                pairs = [*pairs[-(MEMORY - 1) :], (s, y, 1 / curvature)]
            x, gradient = x_next, gradient_next
            taken += 1
    return Maximum(x, value, taken, False)


def direction(gradient: F64, solve: Callable[[F64], F64], pairs: list[tuple[F64, F64, float]]) -> F64:
    """The two-loop recursion: M⁻¹ times the gradient, corrected by the stored pairs."""
    q = gradient.copy()
    weights = []
    for s, y, rho in reversed(pairs):
        a = rho * float((s * q).sum())
        weights.append(a)
        q -= a * y
    q = solve(q)
    for (s, y, rho), a in zip(pairs, reversed(weights), strict=True):
        q = q + (a - rho * float((y * q).sum())) * s
    return q


def _search(
    function: Callable[[F64], tuple[float, F64]], x: F64, value: float, step: F64, slope: float
) -> tuple[F64, float, F64] | None:
    """Backtracking: the first of step, ½ step, ¼ step… that satisfies the Armijo condition."""
    length = 1.0
    while length > MIN_STEP:
        x_next = x + length * step
        value_next, gradient_next = function(x_next)
        if value_next >= value + ARMIJO * length * slope:
            return x_next, value_next, gradient_next
        length /= 2
    return None
