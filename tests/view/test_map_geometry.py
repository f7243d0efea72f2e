"""The coordinates a map is drawn in: distances stay, axes are the principal ones, bad maps are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from map_samples import sample_map
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.view.map_geometry import (
    balance,
    census,
    chance_offsets,
    check_map,
    extent,
    label_order,
    picture_positions,
    plane,
    time_places,
)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_turning_keeps_distances_and_spread(d: int) -> None:
    data = sample_map(d=d)
    shown = plane(data)
    for t in range(len(data.times)):
        before = np.linalg.norm(data.positions[t, :, None] - data.positions[t, None], axis=-1)
        after = np.linalg.norm(shown.positions[t, :, None] - shown.positions[t, None], axis=-1)
        assert_allclose(after, before, rtol=1e-9, atol=1e-12)
    k = min(d, 2)
    total = np.trace(data.covariances.astype(float), axis1=2, axis2=3)
    assert_allclose(shown.variances.sum(-1), total, rtol=1e-6)
    assert_allclose(np.diagonal(shown.covariances, axis1=2, axis2=3), shown.variances[..., :k], rtol=1e-6, atol=1e-9)
    assert (shown.shown == 1) == (d <= 2)


def test_the_first_axes_hold_most_of_the_spread() -> None:
    data = sample_map(d=4)
    seen = plane(data).positions[data.weights > 0]
    spread = seen.var(axis=0)
    assert (np.diff(spread) <= 0).all()
    off_diagonal = np.cov(seen.T) - np.diag(np.diag(np.cov(seen.T)))
    assert_allclose(off_diagonal, 0, atol=1e-9)
    assert_allclose(plane(data).shown, spread[:2].sum() / spread.sum(), rtol=1e-9)


def test_covariances_turn_with_the_positions() -> None:
    """Along any direction between two entities the variance is what it was."""
    data = sample_map(d=2)
    shown = plane(data)
    for t, i, j in [(0, 0, 1), (3, 2, 9), (5, 7, 19)]:
        before, after = data.positions[t, i] - data.positions[t, j], shown.positions[t, i] - shown.positions[t, j]
        expected = before @ data.covariances[t, i].astype(float) @ before
        assert_allclose(after @ shown.covariances[t, i] @ after, expected, rtol=1e-6)


@pytest.mark.parametrize("d", [1, 3])
def test_chance_distance_is_where_the_model_has_no_opinion(d: int) -> None:
    data = sample_map(n_rows=300, n_columns=5, d=d)  # rows enough for two parts
    for t, offsets in enumerate(chance_offsets(data)):
        x, w = data.positions[t], data.weights[t]
        pairs = ((i, j) for i in range(300) for j in range(300, 305))
        Z = sum(w[i] * w[j] * math.exp(-((x[i] - x[j]) ** 2).sum()) for i, j in pairs)
        assert_allclose(math.exp(-offsets[0] - offsets[-1]) / Z, 1, rtol=1e-9)


def test_chance_distance_is_finite_whatever_the_map() -> None:
    data = sample_map()
    assert np.isfinite(chance_offsets(data._replace(weights=np.zeros_like(data.weights)))).all()
    assert np.isfinite(plane(data._replace(weights=np.zeros_like(data.weights))).positions).all()
    assert np.isfinite(chance_offsets(data._replace(kinds=["authors"] * len(data.names)))).all()
    assert_allclose(chance_offsets(data._replace(positions=np.zeros_like(data.positions))), 0, atol=1e-6)
    far = data._replace(positions=data.positions + 1e3 * (np.array(data.kinds) == "words")[:, None])
    assert_allclose(np.sqrt(2 * chance_offsets(far)), 1e3 * np.sqrt(2), rtol=0.01)  # exp(−10⁶) is 0 to a computer


def test_times_stand_by_their_numbers() -> None:
    assert_allclose(time_places(["1990", "1991", "1994"]), [0, 0.25, 1], rtol=1e-12)
    assert_allclose(time_places(["spring", "summer", "1994"]), [0, 0.5, 1], rtol=1e-12)
    assert_allclose(time_places(["3", "2", "1"]), [0, 0.5, 1], rtol=1e-12)
    assert_allclose(time_places(["nan", "inf"]), [0, 1], rtol=1e-12)
    assert_allclose(time_places(["7"]), [0], atol=0)


def test_one_dimension_is_drawn_against_time() -> None:
    data = sample_map(d=1)
    xy = picture_positions(data, plane(data))
    assert (np.ptp(xy[..., 0], axis=1) == 0).all() and (np.diff(xy[:, 0, 0]) > 0).all()
    assert_allclose(np.diff(xy[0, :, 1]), np.diff(data.positions[0, :, 0]), rtol=1e-9, atol=1e-12)


def test_the_frame_holds_nearly_all_and_has_its_shape() -> None:
    data = sample_map(n_times=10, n_rows=30, n_columns=50)
    xy = plane(data).positions
    (x0, x1), (y0, y1) = extent(xy, data.weights, wide=1.5)
    assert_allclose((x1 - x0) / (y1 - y0), 1.5, rtol=1e-9)
    inside = (xy[..., 0] > x0) & (xy[..., 0] < x1) & (xy[..., 1] > y0) & (xy[..., 1] < y1)
    assert inside[data.weights > 0].mean() > 0.98
    point = np.zeros((2, 1, 2))
    (x0, x1), (y0, y1) = extent(point, np.ones((2, 1)), wide=1.5)
    assert x0 < 0 < x1 and y0 < 0 < y1


def test_labels_go_by_weight_within_the_kind() -> None:
    data = sample_map()
    kind = np.array([data.kind_names.index(k) for k in data.kinds])
    order = label_order(data, kind, 1).tolist()
    assert sorted(order) == list(range(len(data.names)))
    assert {kind[i] for i in order[:2]} == {0, 1}  # both kinds come first
    absent = {i for i in range(len(data.names)) if data.weights[1, i] == 0}
    assert set(order[-len(absent) :]) == absent


def test_how_many_of_what() -> None:
    assert census(sample_map()) == "8 authors and 12 words"
    big = sample_map(1, 1, 2)
    big = big._replace(kinds=["authors"] + ["words"] * 12_345)
    assert census(big) == "1 authors and 12\N{NO-BREAK SPACE}345 words"


BAD: list[tuple[str, dict[str, Any]]] = [
    ("empty", {"times": [], "positions": np.zeros((0, 20, 2))}),
    ("empty", {"positions": np.zeros((6, 20))}),
    ("positions", {"positions": np.zeros((5, 20, 2))}),
    ("covariances", {"covariances": np.zeros((6, 20, 3, 3))}),
    ("weights", {"weights": np.zeros((20, 6))}),
    ("finite", {"positions": np.full((6, 20, 2), np.nan)}),
    ("negative", {"weights": np.full((6, 20), -1.0)}),
    ("kinds", {"kinds": ["authors"] * 19}),
    ("kinds", {"kinds": ["poets"] * 20}),
    ("not there", {"pairs": [sample_map().pairs[0]._replace(j=20)]}),
    ("finite numbers", {"pairs": [sample_map().pairs[0]._replace(mean=np.zeros(5))]}),
]


@pytest.mark.parametrize(("word", "change"), BAD)
def test_a_map_that_cannot_be_drawn_is_refused(word: str, change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=word) as caught:
        check_map(sample_map()._replace(**change))
    assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize("d", [2, 3])
def test_a_balanced_map_keeps_log_odds_ratios_and_spreads_both_kinds_alike(d: int) -> None:
    data = sample_map(d=d, n_rows=9, n_columns=14)
    data = data._replace(positions=data.positions * np.where(np.array(data.kinds) == "words", 0.3, 1.0)[:, None])
    shown = plane(data)
    found = balance(data, shown)
    assert found is not None
    first = np.array(data.kinds) == "authors"
    x, y = ((shown.positions[:, m] - found.centres[:, k, None]) @ found.maps[k] for k, m in enumerate((first, ~first)))
    spread = [v[data.weights[:, m] > 0].T @ v[data.weights[:, m] > 0] / (data.weights[:, m] > 0).sum()
              for v, m in ((x, first), (y, ~first))]  # fmt: skip
    assert_allclose(spread[0], spread[1], rtol=1e-6, atol=1e-12)
    assert_allclose(spread[0] * (1 - np.eye(2)), 0, rtol=0, atol=1e-9)
    if d == 2:  # all axes are shown
        for t in range(len(data.times)):
            before = (shown.positions[t, first] - shown.positions[t, 0]) @ (
                shown.positions[t, ~first] - shown.positions[t, -1]
            ).T
            assert_allclose((x[t] - x[t, 0]) @ (y[t] - y[t, -1]).T, before, rtol=1e-9, atol=1e-12)


def test_nothing_to_balance() -> None:
    line = sample_map(d=1)
    alone = sample_map(n_rows=1)._replace(positions=np.zeros((6, 13, 2)))
    assert balance(line, plane(line)) is None and balance(alone, plane(alone)) is None


def test_what_was_never_seen_does_not_widen_the_picture() -> None:
    positions = np.zeros((1, 3, 2))
    positions[0] = [[-1.0, 0.0], [1.0, 0.0], [50.0, 0.0]]
    (left, right), _ = extent(positions, np.array([[1.0, 1.0, 0.0]]), 1.5)
    assert -2 < left < -1 and 1 < right < 2
