"""The drift of a map to predict: that with which the steps before the last one know the last one's links best.

The evidence of tempered counts is against all movement, also where prediction is not; and a map is asked for an order
of pairs, so that is what it is chosen by. Only steps that the map is fitted to are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.models.dynamic_filter import Array, Belief, Settings, predict
from undertow.models.dynamic_learning import Problem, infer, make_noise
from undertow.models.dynamic_links import expected_squares, forecast_shares

DRIFTS = (0.003, 0.01, 0.03, 0.1)  # σ² of rows that are tried
COLUMNS = 0.1  # of it, for columns: words stay, authors go
USUAL = 0.01  # where there are too few steps to tell
LEAST_STEPS = 4
MOST_PAIRS = 1 << 21  # that links are judged on


def foresee(problem: Problem, counts: Sequence[Any], settings: Settings) -> tuple[float, float]:
    """σ² of rows and of columns; `counts` (rows, columns) are those of the tables, names and all."""
    there = [t for t, table in enumerate(problem.tables) if table is not None]
    if len(there) < LEAST_STEPS:
        return USUAL, COLUMNS * USUAL
    last = there[-1]
    before = problem._replace(
        gaps=problem.gaps[:last], tables=problem.tables[:last], searches=[s[:last] for s in problem.searches]
    )
    margins = [np.array([c.sum(axis=axis) for c in counts[:last]]) for axis in (1, 0)]
    rows, columns = (np.flatnonzero(m.sum(axis=0) > 0) for m in margins)
    columns = columns[:: 1 + len(rows) * len(columns) // MOST_PAIRS]
    p_rows, p_columns = (np.log(forecast_shares(m, before.gaps)) for m in margins)
    popular = p_rows[rows, None] + p_columns[columns]
    meets = counts[last][rows][:, columns].toarray() > 0
    settings = settings._replace(covariance="blocks")
    n = len(problem.anchor)
    chosen = np.concatenate((rows, columns + problem.n_rows))
    best, drift, starts = -np.inf, USUAL, None
    for tried in DRIFTS:
        noise = make_noise((tried, COLUMNS * tried), problem.start, problem.n_rows, n)
        path, starts = infer(before, noise, settings, starts)
        belief = predict(Belief(path.means[-1], path.covs[-1]), problem.gaps[last], noise, settings)
        small = Belief(belief.mean[chosen], belief.cov[chosen])
        value = right_order(popular - expected_squares(small, "blocks", len(rows)), meets)
        if value > best:
            best, drift = value, tried
    return drift, COLUMNS * drift


def right_order(scores: Array, meets: NDArray[np.bool_]) -> float:
    """Share of (pair that meets, pair that does not) that scores have in this order: the area under the ROC curve."""
    n = int(meets.sum())
    others = meets.size - n
    if not n or not others:
        return 0.5
    ranks = np.empty(meets.size)
    ranks[np.argsort(scores, axis=None, kind="stable")] = np.arange(1, meets.size + 1)
    return float((ranks[meets.ravel()].sum() - n * (n + 1) / 2) / (n * others))
