"""Moving maps for tests: random walks with covariances, absences and pairs."""

from __future__ import annotations

import numpy as np

from undertow.models.dynamic.map_data import MapData, MapPair


def sample_map(n_times: int = 6, n_rows: int = 8, n_columns: int = 12, d: int = 2, seed: int = 0) -> MapData:
    """Authors 0..n_rows-1, words behind them; author 1 is absent at the second time and word 0 at all odd ones."""
    rng = np.random.default_rng(seed)
    n = n_rows + n_columns
    start = rng.normal(size=(1, n, d))
    positions = start + 0.3 * rng.normal(size=(n_times, n, d)).cumsum(0)
    factors = 0.15 * rng.normal(size=(n_times, n, d, d)) + 0.1 * np.eye(d)
    covariances = (factors @ factors.swapaxes(2, 3)).astype(np.float32)
    weights = rng.gamma(0.5, size=(n_times, n)) + 1e-3
    if n_times > 1 and n > 2:
        weights[1, 1] = 0
        weights[1::2, n_rows : n_rows + 1] = 0
    weights[:, :n_rows] /= np.maximum(weights[:, :n_rows].sum(1, keepdims=True), 1e-9)
    weights[:, n_rows:] /= np.maximum(weights[:, n_rows:].sum(1, keepdims=True), 1e-9)
    names = [f"author {i}" for i in range(n_rows)] + [f"word {j}" for j in range(n_columns)]
    pairs = []
    if n_rows and n_columns:
        distance = np.linalg.norm(positions[:, 0] - positions[:, -1], axis=1)
        share = rng.uniform(0, 0.4, size=n_times)
        pairs.append(MapPair(0, n - 1, distance, distance * 0.8, distance * 1.3, share))
    return MapData(
        times=[str(1990 + t) for t in range(n_times)],
        names=names,
        kinds=["authors"] * n_rows + ["words"] * n_columns,
        kind_names=["authors", "words"],
        positions=positions,
        covariances=covariances,
        weights=weights,
        pairs=pairs,
    )
