"""Who will be present at the next step: the map of the log-odds, learned on the last training steps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from undertow.models.dynamic import links
from undertow.models.dynamic.links import (
    PRESENCE_MAP_PRECISION,
    RowSums,
    expected_links,
    fit_log_odds,
    forecast_presence,
    learn_presence_map,
    mapped_presence,
)


def most_frequent(seed: int, n: int = 2000, chosen: int = 120, n_steps: int = 9) -> tuple[RowSums, np.ndarray]:
    """Rows that come by chance, each with a rate of its own: the most frequent of all but the last step, and who is
    present at the last."""
    rng = np.random.default_rng(seed)
    rate = rng.beta(0.6, 4.0, n)
    counts = (rng.random((n_steps, n)) < rate) * (1 + rng.poisson(4.0, (n_steps, n)))
    top = np.argsort(-counts[:-1].sum(axis=0), kind="stable")[:chosen]
    counts = counts[:, top].astype(np.float64)
    return RowSums(counts[:-1], np.log1p(counts[:-1]), np.minimum(counts[:-1], 6)), counts[-1] > 0


def test_the_map_is_the_mode_of_its_posterior() -> None:
    rng = np.random.default_rng(0)
    forecast = rng.uniform(0.02, 0.98, 80)
    happened = rng.random(80) < forecast**2

    def loss(w: np.ndarray) -> float:
        z = w[0] + w[1] * np.log(forecast / (1 - forecast))
        a, b = PRESENCE_MAP_PRECISION
        return float((np.logaddexp(0, z) - happened * z).sum() + (a * w[0] ** 2 + b * (w[1] - 1) ** 2) / 2)

    slow = minimize(loss, [0.0, 1.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 10_000})
    np.testing.assert_allclose(fit_log_odds(forecast, happened), slow.x, rtol=1e-5)


def test_rows_that_were_chosen_for_being_frequent_come_less_often_than_they_did() -> None:
    there = plain = mapped = 0.0
    for seed in range(12):
        rows, present = most_frequent(seed)
        gaps = [1.0] * len(rows.counts)
        forecast, _ = forecast_presence(rows, gaps, 1.0)
        there += present.sum()
        plain += forecast.sum()
        mapped += mapped_presence(forecast, learn_presence_map(rows, gaps)).sum()
    assert plain > 1.2 * there
    assert abs(mapped - there) < 0.5 * (plain - there)


def test_a_step_teaches_by_the_rows_that_were_sure_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 2 has its counts from the last step alone, so that step says nothing about it."""
    counts = np.array([[5.0, 5.0, 0.0], [5.0, 0.0, 1.0], [5.0, 5.0, 0.0], [5.0, 0.0, 7.0]])
    taught: list[tuple[int, list[bool]]] = []

    def remember(forecast: np.ndarray, happened: np.ndarray) -> np.ndarray:
        taught.append((len(forecast), happened.tolist()))
        return np.array([0.0, 1.0])

    monkeypatch.setattr(links, "fit_log_odds", remember)
    learn_presence_map(RowSums(counts, counts, (counts > 0) * 1.0), [1.0] * 4)
    # least: 8 counts at 2 steps; before step 2 row 0 alone has them, before step 3 rows 0 and 1
    assert taught == [(3, [True, True, False])]


def test_few_steps_leave_the_forecast_as_it_is() -> None:
    two = np.array([[1.0, 2.0], [3.0, 0.0]])
    np.testing.assert_array_equal(learn_presence_map(RowSums(two, two, (two > 0) * 1.0), [1.0, 1.0]), [0.0, 1.0])
    p = np.array([0.1, 0.5, 0.97])
    np.testing.assert_allclose(mapped_presence(p, np.array([0.0, 1.0])), p, rtol=1e-12)


def test_whoever_is_frequent_thanks_to_few_steps_is_expected_to_meet_fewer() -> None:
    presence, degree = np.array([0.5, 0.5]), np.array([4.0, 4.0])
    often, once = np.ones((10, 2)), np.zeros((10, 2))
    once[3] = 1
    few, many = (expected_links(presence, degree, degrees) for degrees in (once, often))
    np.testing.assert_allclose([few, many], [4 * np.exp(-0.83), 4 * np.exp(-0.083)], rtol=1e-12)
    assert expected_links(np.zeros(2), degree, once) == 0
