"""Maximise a smooth function from a start: quasi-Newton steps in a metric of the caller's, each line-searched."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MEMORY = 10  # pairs of steps and gradient differences that correct the metric
ENOUGH = 1e-4  # share of the promised gain that a step must bring (Armijo)
SHORTEST = 1e-9  # of a step; below it rounding has the last word


class Maximum(NamedTuple):
    x: Array
    value: float
    n_steps: int
    converged: bool


def maximise(
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    solver: Callable[[Array], Callable[[Array], Array]],
    *,
    tol: float,
    n_rounds: int = 8,
    n_steps: int = 15,
) -> Maximum:
    """L-BFGS whose first metric is `solver(x)`, renewed every `n_steps` steps; never below the start.

    `function` gives value and gradient, −inf where it is not defined; `solver(x)` a function v ↦ M⁻¹v with M near the
    negative Hessian at x. It ends when a full step promises a gain below `tol`.
    """
    x = start
    value, gradient = function(x)
    taken = 0
    for _ in range(n_rounds):
        solve = solver(x)
        pairs: list[tuple[Array, Array, float]] = []
        for _ in range(n_steps):
            step = _direction(gradient, solve, pairs)
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


def _direction(gradient: Array, solve: Callable[[Array], Array], pairs: list[tuple[Array, Array, float]]) -> Array:
    """The two-loop recursion: M⁻¹ times the gradient, corrected by what the last steps taught."""
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
    function: Callable[[Array], tuple[float, Array]], x: Array, value: float, step: Array, slope: float
) -> tuple[Array, float, Array] | None:
    """The first of step, ½ step, ¼ step… that gains enough."""
    length = 1.0
    while length > SHORTEST:
        x_next = x + length * step
        value_next, gradient_next = function(x_next)
        if value_next >= value + ENOUGH * length * slope:
            return x_next, value_next, gradient_next
        length /= 2
    return None
