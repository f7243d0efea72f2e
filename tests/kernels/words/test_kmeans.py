from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from undertow.kernels.words.kmeans import kmeans, nearest_center, spread_centers


def clouds(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centers = np.array([[0.0, 0], [10, 0], [0, 10], [10, 10]])
    true = np.repeat(np.arange(4), 30)
    return 20 * centers[true] + rng.standard_normal((120, 2)), rng.random(120) + 0.1, true


def test_the_nearest_center_is_the_nearest() -> None:
    X, _, _ = clouds()
    centers = np.random.default_rng(1).standard_normal((5, 2)) * 200
    label, distance = nearest_center(X, centers)
    all_ = ((X[:, None] - centers[None]) ** 2).sum(axis=2)
    assert_array_equal(label, all_.argmin(axis=1))
    assert_allclose(distance, all_.min(axis=1), rtol=1e-9, atol=1e-12)


def test_one_step_is_lloyds() -> None:
    X, weights, _ = clouds()
    start = X[[0, 40, 80]]
    label = ((X[:, None] - start[None]) ** 2).sum(axis=2).argmin(axis=1)
    centers = np.array([np.average(X[label == c], axis=0, weights=weights[label == c]) for c in range(3)])
    expected = ((X[:, None] - centers[None]) ** 2).sum(axis=2)
    found, history = kmeans(X, weights, start, n_iter=1)
    assert_array_equal(found, expected.argmin(axis=1))
    assert_allclose(history, [weights @ expected.min(axis=1)], rtol=1e-9)


def test_clouds_are_found_from_spread_centers_and_the_sum_never_rises() -> None:
    X, weights, true = clouds()
    uniforms = np.random.default_rng(0).random(4)
    chosen = spread_centers(X, weights, uniforms)
    assert len(np.unique(true[chosen])) == 4
    label, history = kmeans(X, weights, X[chosen])
    assert len({(a, b) for a, b in zip(true, label, strict=True)}) == 4
    _, history = kmeans(X, weights, X[:4], tolerance=0)
    assert (np.diff(history) <= 1e-9).all()


def test_no_cluster_stays_empty_while_there_are_points() -> None:
    X, weights, _ = clouds()
    label, _ = kmeans(X, weights, np.array([[0.0, 0], [1e6, 0], [1e6, 1]]))
    assert len(np.unique(label)) == 3
    same = np.ones((6, 2))
    label, history = kmeans(same, np.ones(6), same[spread_centers(same, np.ones(6), np.full(3, 0.5))])
    assert history[-1] == 0 and set(label) == {0}
