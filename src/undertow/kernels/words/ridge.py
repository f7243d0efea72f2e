"""Ridge regression on sparse rows, by conjugate gradients for all columns side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from undertow.kernels.types import F32

TINY = 1e-30


def ridge(X: csr_array, Y: F32, weights: F32, penalty: float, n_steps: int) -> tuple[F32, F32]:
    """Slopes and means: row i of Y is near mean + X_i slopes.

    With enough steps equivalent to `mean = weights @ Y / weights.sum()` and
    `slopes = solve(Xᵀ W X + penalty I, Xᵀ W (Y − mean))`, W the diagonal of the weights. Fewer steps are a little more
    penalty.

    Parameters
    ----------
    X
        (n, m) float32.
    Y
        (n, d).
    weights
        (n,) how much each row counts.
    penalty
        On the squares of the slopes, above 0.
    n_steps
        Of conjugate gradients, for each column of Y.

    Returns
    -------
    slopes, mean
        (m, d) and (d,).
    """
    w = weights[:, None]
    mean = (np.einsum("i,ij->j", weights, Y, dtype=np.float64) / max(float(weights.sum()), TINY)).astype(np.float32)
    transposed = csr_array(X.T)
    residual: Any = transposed @ (w * (Y - mean))
    slopes = np.zeros_like(residual)
    direction, size = residual.copy(), np.square(residual).sum(axis=0)
    for _ in range(n_steps):
        image = transposed @ (w * (X @ direction)) + np.float32(penalty) * direction
        step = size / np.maximum((direction * image).sum(axis=0), TINY)
        slopes += step * direction
        residual -= step * image
        before, size = size, np.square(residual).sum(axis=0)
        direction = residual + size / np.maximum(before, TINY) * direction
    return slopes, mean
