"""Who moved, on simulated maps in which that is known: drifting rows are found, still words are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow import DynamicEmbedding
from undertow.models.dynamic import fit as dynamic_fit

STILL_ROWS, ROWS = 3, 8


def drifting_rows(
    seed: int, *, still: int = STILL_ROWS, n_rows: int = ROWS, n_columns: int = 40, T: int = 12, N: int = 4000,
    present: int | None = None,
) -> list[tuple[int, str, str, int]]:  # fmt: skip
    """Counts by the link function: words and the first rows stay, all other rows walk; every entity is as frequent."""
    rng = np.random.default_rng(seed)
    x, y = 0.7 * rng.standard_normal((n_rows, 2)), 0.7 * rng.standard_normal((n_columns, 2))
    events = []
    for t in range(T):
        x[still:] += 0.25 * rng.standard_normal((n_rows - still, 2))
        there = np.ones(n_rows)
        if present:
            there = np.isin(np.arange(n_rows), rng.choice(n_rows, present, replace=False)).astype(float)
        p = there[:, None] * np.exp(-((x[:, None] - y) ** 2).sum(axis=2))
        counts = rng.multinomial(N, (p / p.sum()).ravel()).reshape(p.shape)
        events += [(t, f"r{i:02}", f"w{j:02}", int(counts[i, j])) for i, j in zip(*counts.nonzero(), strict=True)]
    return events


def found(model: DynamicEmbedding, still: int) -> tuple[int, int]:
    """How many of those listed as movers stayed, and how many moved."""
    names = [m.name for m in model.movers(1000)]
    moved = sum(name[0] == "r" and int(name[1:]) >= still for name in names)
    return len(names) - moved, moved


@pytest.mark.parametrize(
    ("case", "power"),
    [
        ({}, 1 / 3),
        ({"n_rows": 20, "still": 10, "N": 10_000}, 1 / 2),
        ({"n_rows": 4, "still": 1, "n_columns": 60}, 0),  # too few rows to tell; that nothing is made up is enough
        ({"present": 3}, 0),
    ],
)
def test_drifting_rows_are_found_and_still_words_are_not(case: Any, power: float) -> None:
    still, n_rows = case.get("still", STILL_ROWS), case.get("n_rows", ROWS)
    wrong, right, rates = 0, 0, []
    for seed in range(3):
        model = DynamicEmbedding(2, random_state=0).fit(drifting_rows(seed, **case))
        wrong, hit = found(model, still)
        rates.append(wrong / max(wrong + hit, 1))
        right += hit
    # 5 % is promised; in so few lists, one wrong name may be twice that
    assert np.mean(rates) <= 0.1, rates
    assert right >= power * 3 * (n_rows - still), right


def test_a_map_of_which_nothing_moves_says_so() -> None:
    model = DynamicEmbedding(2, random_state=0).fit(drifting_rows(1, still=ROWS, T=6))
    movers = model.movers()
    assert movers == [] and movers.verdict == "None of the 48 entities moved beyond noise between 0 and 5."


def test_one_row_a_step_cannot_show_movement() -> None:
    rng = np.random.default_rng(0)
    events = [(t, f"president {t // 4}", f"w{j}", int(rng.poisson(20)) + 1) for t in range(12) for j in range(30)]
    movers = DynamicEmbedding(2, random_state=0, n_iter=3).fit(events).movers()
    assert movers == [] and "cannot show movement" in movers.verdict and "more than one row" in movers.verdict


def test_the_most_frequent_stand_for_a_large_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_fit, "MAX_FULL", 40)
    model = DynamicEmbedding(2, random_state=0, n_iter=3).fit(drifting_rows(0, T=5))
    assert model.covariance_ == "blocks"
    assert "most frequent entities" in model.movers().verdict
    assert len(model._movement_map().entities.names) <= 20


def test_a_movement_map_is_made_once() -> None:
    model = DynamicEmbedding(2, random_state=0, n_iter=2).fit(drifting_rows(0, T=4, n_columns=10))
    assert model._movement_map() is model._movement_map()


def test_frames_are_those_in_which_everything_moves_least() -> None:
    """No turn or shift of a whole frame brings it nearer to its neighbours, as the drift measures nearness."""
    model = DynamicEmbedding(2, random_state=0, n_iter=3, tol=1e-9).fit(drifting_rows(0, T=5))
    x, drift = model._movement_map().smoothed.means, model._movement_map().noise.drift
    turn = x @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    for common in [turn, *(np.broadcast_to(e, x.shape) for e in np.eye(2))]:
        for t in range(1, len(x) - 1):
            pull = ((x[t + 1] - 2 * x[t] + x[t - 1]) / drift[:, None] * common[t]).sum()
            scale = np.sqrt((common[t] ** 2 / drift[:, None]).sum())
            assert abs(pull / scale) < 0.05, t


def test_bands_of_what_counts_tell_hold_what_they_say() -> None:
    """2 (x_i − x_k)·(y_j − y_l), which neither frequencies nor the frame can change, in maps drawn from the model."""
    inside = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x, y = 0.7 * rng.standard_normal((8, 2)), 0.7 * rng.standard_normal((16, 2))
        events, truth = [], []
        for t in range(4):
            x = x + 0.15 * rng.standard_normal(x.shape)
            p = np.exp(-((x[:, None] - y) ** 2).sum(axis=2))
            counts = rng.multinomial(4000, (p / p.sum()).ravel()).reshape(p.shape)
            events += [(t, f"r{i:02}", f"w{j:02}", int(counts[i, j])) for i, j in zip(*counts.nonzero(), strict=True)]
            truth.append(x)
        model = DynamicEmbedding(2, random_state=0, n_iter=5).fit(events)._movement_map()
        path = model.smoothed
        assert len(model.entities.names) == 24
        for t, means in enumerate(path.means):
            cov = path.covs[t].reshape(24, 2, 24, 2)
            for _ in range(100):
                i, k = rng.choice(8, 2, replace=False)
                j, m = rng.choice(16, 2, replace=False)
                at = [i, k, 8 + j, 8 + m]
                rows, words = means[at[0]] - means[at[1]], means[at[2]] - means[at[3]]
                slope = 2 * np.array([words, -words, rows, -rows])
                sd = np.sqrt(np.einsum("ak,akbl,bl->", slope, cov[at][:, :, at], slope))
                true = 2 * (truth[t][i] - truth[t][k]) @ (y[j] - y[m])
                inside.append(abs(2 * rows @ words - true) <= 1.6449 * sd)
    assert 0.8 < np.mean(inside) < 0.99, np.mean(inside)  # 0.9 is meant
