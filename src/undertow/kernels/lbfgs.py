"""L-BFGS for a sum of many terms, one iteration at a time, with an optional penalty on absolute weights (OWL-QN).

Without that penalty a step satisfies the weak Wolfe conditions, so that the value falls and the curvature pairs are
positive. With it the steps stay within the orthant that the pseudo-gradient points to, and weights that would change
their sign become 0 (Andrew and Gao, 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from undertow.kernels.field.quasi_newton import ARMIJO, MIN_STEP, direction
from undertow.kernels.types import F64

MEMORY = 6  # pairs kept: each is two vectors as long as the weights
WOLFE = 0.9  # the slope after a step is at most this share of the slope before it
MOST_TRIALS = 40  # evaluations of one line search

Function = Callable[[F64], tuple[float, F64]]


class Descent(NamedTuple):
    """Where a minimization is: all that its next iterations need."""

    x: F64
    value: float  # the penalty on absolute weights included
    gradient: F64  # of the smooth part
    pairs: list[tuple[F64, F64, float]]  # steps, differences of gradients, and one over their products


def start_descent(function: Function, x: F64, l1: float = 0.0) -> Descent:
    value, gradient = function(x)
    return Descent(x, value + l1 * float(np.abs(x).sum()), gradient, [])


def descend(function: Function, state: Descent, l1: float = 0.0, tol: float = 1e-5) -> Iterator[Descent]:
    """Iterations until the gradient vanishes (‖g‖ ≤ tol · max(1, ‖x‖)) or rounding hides any further progress."""
    while True:
        x, _, gradient, pairs = state
        slope_by = _pseudo_gradient(x, gradient, l1) if l1 else gradient
        norm = float(np.sqrt(slope_by @ slope_by))
        if norm <= tol * max(1.0, float(np.sqrt(x @ x))):
            return
        scale = pairs[-1][2] * float(pairs[-1][1] @ pairs[-1][1]) if pairs else norm
        step = direction(-slope_by, partial(np.multiply, 1 / scale), pairs)
        if l1:
            step[step * slope_by >= 0] = 0.0
        slope = float(slope_by @ step)
        if not slope < 0:
            return
        moved = _search_orthant(function, state, step, slope_by, l1) if l1 else _search(function, state, step, slope)
        if moved is None and pairs:  # the pairs mislead: once more down the gradient
            state = state._replace(pairs=[])
            continue
        if moved is None:
            return
        x_next, value_next, gradient_next = moved
        s, y = x_next - x, gradient_next - gradient
        curvature = float(s @ y)
        if curvature > 1e-12 * float(np.sqrt((s @ s) * (y @ y))):
            pairs = [*pairs[-(MEMORY - 1) :], (s, y, 1 / curvature)]
        state = Descent(x_next, value_next, gradient_next, pairs)
        yield state


def _search(function: Function, state: Descent, step: F64, slope: float) -> tuple[F64, float, F64] | None:
    """A step length with the weak Wolfe conditions, by growing, interpolation and bisection."""
    low, high, length = 0.0, np.inf, 1.0
    best = None
    for _ in range(MOST_TRIALS):
        x = state.x + length * step
        value, gradient = function(x)
        if not value <= state.value + ARMIJO * length * slope:
            high = length
        else:
            best = (x, value, gradient)
            if float(gradient @ step) >= WOLFE * slope:
                break
            low = length
        if not np.isfinite(high):
            length *= 4
        elif length == high and low == 0.0:  # the parabola through both values and the first slope
            length = min(max(-slope * length**2 / (2 * (value - state.value - slope * length)), 0.1 * high), 0.5 * high)
        else:
            length = (low + high) / 2
        if length < MIN_STEP or high - low < 1e-3 * high:
            break
    return best


def _search_orthant(
    function: Function, state: Descent, step: F64, slope_by: F64, l1: float
) -> tuple[F64, float, F64] | None:
    """The first of step, ½ step, ¼ step… within the orthant that lowers the value enough."""
    orthant = np.where(state.x != 0, np.sign(state.x), -np.sign(slope_by))
    length = 1.0
    while length > MIN_STEP:
        x = state.x + length * step
        x[x * orthant <= 0] = 0.0
        smooth, gradient = function(x)
        value = smooth + l1 * float(np.abs(x).sum())
        if value <= state.value + ARMIJO * float(slope_by @ (x - state.x)):
            return x, value, gradient
        length /= 2
    return None


def _pseudo_gradient(x: F64, gradient: F64, l1: float) -> F64:
    """The gradient of the penalized value where it exists; at 0 the one-sided slope if a step lowers the value."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - l1, 0.0)
    return np.where(x != 0, gradient + l1 * np.sign(x), at_zero)
