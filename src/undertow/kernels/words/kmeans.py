"""k-means of weighted points, by matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from undertow.kernels.types import F64, I64

ROWS = 4096  # points whose distances to all centers are held at a time


def spread_centers(X: NDArray[Any], weights: NDArray[Any], uniforms: NDArray[Any]) -> I64:
    """Points to begin from (k-means++): each drawn with probability weight × squared distance to those before it.

    One draw from [0, 1) for each center is given. Where all points are taken, the heaviest are named again.
    """
    X = np.asarray(X)
    distance = np.full(len(X), np.inf)
    chosen = np.empty(len(uniforms), dtype=np.int64)
    squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    for n, u in enumerate(np.asarray(uniforms)):
        mass = np.asarray(weights, dtype=np.float64) * (1.0 if n == 0 else distance)
        edges = np.cumsum(mass)
        if edges[-1] > 0:
            chosen[n] = min(int(np.searchsorted(edges, u * edges[-1], side="right")), len(X) - 1)
        else:
            chosen[n] = int(np.argsort(-np.asarray(weights), kind="stable")[n % len(X)])
        x = X[chosen[n]]
        distance = np.minimum(distance, np.maximum(squares - 2 * (X @ x) + squares[chosen[n]], 0))
        distance[chosen[n]] = 0
    return chosen


def nearest_center(X: NDArray[Any], centers: NDArray[Any]) -> tuple[NDArray[np.int32], F64]:
    """For each point its nearest center, the first of equals, and the squared distance."""
    label, distance = np.empty(len(X), dtype=np.int32), np.empty(len(X))
    squares = np.einsum("ij,ij->i", centers, centers)
    for start in range(0, len(X), ROWS):
        x = X[start : start + ROWS]
        score = squares - 2 * (x @ centers.T)
        here = np.argmin(score, axis=1)
        label[start : start + ROWS] = here
        least = score[np.arange(len(x)), here] + np.einsum("ij,ij->i", x, x)
        distance[start : start + ROWS] = np.maximum(least, 0)
    return label, distance


def kmeans(
    X: NDArray[Any], weights: NDArray[Any], start: NDArray[Any], n_iter: int = 20, tolerance: float = 1e-3
) -> tuple[NDArray[np.int32], list[float]]:
    """The cluster of each point and Σ weight × squared distance to the center after each step; it never rises.

    `start` (k, d) are the first centers. A cluster that lost its last point takes the one that is farthest from its own
    center, so with at least as many different points as centers none ends empty.
    """
    X, weights = np.asarray(X), np.asarray(weights, dtype=np.float64)
    centers = np.array(start, dtype=X.dtype)
    label, distance = nearest_center(X, centers)
    history: list[float] = []
    for _ in range(n_iter):
        for empty in np.flatnonzero(np.bincount(label, minlength=len(centers)) == 0):
            farthest = int(np.argmax(distance))
            if distance[farthest] <= 0:
                break
            label[farthest], distance[farthest] = empty, 0.0
        mass = np.bincount(label, weights=weights, minlength=len(centers))
        share = weights / np.where(mass > 0, mass, 1.0)[label]
        member = csr_array((share.astype(X.dtype), (label, np.arange(len(X)))), shape=(len(centers), len(X)))
        centers = np.where(mass[:, None] > 0, member @ X, centers)
        label, distance = nearest_center(X, centers)
        history.append(float(weights @ distance))
        if len(history) > 1 and history[-1] >= history[-2] * (1 - tolerance):
            break
    return label, history
