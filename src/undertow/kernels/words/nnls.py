"""Non-negative least squares with the unknown in the middle: min over J ≥ 0 of ‖C − A'JB‖²."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.types import F64


def nonnegative_middle(
    C: NDArray[Any], A: NDArray[Any], B: NDArray[Any], n_iter: int = 100, tolerance: float = 1e-6
) -> F64:
    """J (I, K) ≥ 0 with A'JB nearest to C (M, N); A is (I, M), B is (K, N). Leading axes are problems side by side.

    Accelerated projected gradients with restarts (Nesterov; O'Donoghue & Candès): the gradient is AA'J BB' − ACB', and
    its Lipschitz constant the product of the largest eigenvalues.
    """
    AA, BB, target = A @ np.swapaxes(A, -1, -2), B @ np.swapaxes(B, -1, -2), A @ C @ np.swapaxes(B, -1, -2)
    largest = np.linalg.eigvalsh(AA)[..., -1] * np.linalg.eigvalsh(BB)[..., -1]
    step = 1.0 / np.maximum(largest, 1e-300)[..., None, None]
    J = np.maximum(step * target, 0)
    ahead, t = J, 1.0
    for _ in range(n_iter):
        new = np.maximum(ahead - step * (AA @ ahead @ BB - target), 0)
        moved = new - J
        if float(np.vdot((ahead - new) / step, moved)) > 0:
            t = 1.0  # the momentum points uphill
        t_new = (1 + (1 + 4 * t * t) ** 0.5) / 2
        ahead = new + (t - 1) / t_new * moved
        J, t = new, t_new
        if np.abs(moved).max(initial=0.0) <= tolerance * J.max(initial=1e-300):
            break
    return np.asarray(J)
