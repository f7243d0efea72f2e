"""Runs of letters, and a ridge regression, by their definitions."""

from __future__ import annotations

import math
from typing import Any
from zlib import crc32

import numpy as np


def runs_of(word: str, n_places: int) -> dict[int, float]:
    """The place and the value of each run of a word."""
    marked = "<" + word.lower() + ">"
    runs = [marked[a:b] for a in range(len(marked)) for b in range(a + 2, a + 6) if b <= len(marked)]
    places = {crc32(run.encode()) % n_places for run in runs}
    return {place: 1 / math.sqrt(len(places)) for place in places}


def dense_ridge(X: Any, Y: Any, weights: Any, penalty: float) -> tuple[Any, Any]:
    """The minimum of Σ w_i |mean + X_i slopes − Y_i|² + penalty |slopes|², with the weighted mean of Y as it is."""
    mean = weights @ Y / weights.sum()
    W = np.diag(weights)
    return np.linalg.solve(X.T @ W @ X + penalty * np.eye(X.shape[1]), X.T @ W @ (Y - mean)), mean
