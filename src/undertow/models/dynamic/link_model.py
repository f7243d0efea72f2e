"""What the steps before the last one know of it: how much a map to predict drifts, and what links are told by.

The evidence of tempered counts is against all movement, also where prediction is not. So the drift is the one with
which the steps before the last one find the links of the last one most probable, and the weights of popularity,
nearness and memory are those that do so. Only steps that the map is fitted to are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from undertow.models.dynamic.filter import Array, Belief, Settings, predict
from undertow.models.dynamic.learning import Problem, infer, make_noise
from undertow.models.dynamic.links import Outlook, expected_squares

DRIFTS = (0.003, 0.01, 0.03, 0.1)  # σ² of rows that are tried
COLUMNS = 0.1  # of it, for columns: words stay, authors go
USUAL = 0.01  # where there are too few steps to tell
LEAST_STEPS = 3
MOST_PAIRS = 1 << 18  # of the most frequent entities: a map of these is enough to learn seven numbers from
# a, b, c, r: of pairs that never met, of pairs that did; about what is learned from ACL and NIPS up to 1990
USUAL_WEIGHTS = ((0.0, 0.8, 0.4, 0.0), (-0.5, 0.8, 0.3, 0.7))
BELIEF = 300.0  # in b = c = 1 and r = ½, in units of information; the constant a is free
MOST_ROUNDS = 100


class Foresight(NamedTuple):
    drift: tuple[float, float]  # σ² of rows and of columns
    weights: Array  # (2, 4), as `log_rates` takes them


def last_step(tables: Sequence[Any]) -> int | None:
    """The last step with events, if there are enough before it to learn from."""
    there = [t for t, table in enumerate(tables) if table.nnz]
    return there[-1] if len(there) >= LEAST_STEPS else None


def most_frequent(tables: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and columns with the most counts, as large a share of each, so many that there are MOST_PAIRS pairs."""
    pooled = sum(tables)
    share = min(1.0, np.sqrt(MOST_PAIRS / (pooled.shape[0] * pooled.shape[1])))
    counts = pooled.sum(axis=1), pooled.sum(axis=0)
    rows, columns = (np.sort(np.argsort(-c, kind="stable")[: max(1, round(share * len(c)))]) for c in counts)
    return rows, columns


def usual(drifts: Sequence[tuple[float, float]]) -> Foresight:
    """Where there is nothing to learn from."""
    drift = drifts[0] if len(drifts) == 1 else (USUAL, COLUMNS * USUAL)
    return Foresight(drift, np.array(USUAL_WEIGHTS))


def foresee(
    before: Problem,
    links: Links,
    gap: float,
    settings: Settings,
    drifts: Sequence[tuple[float, float]],
    widen: float = 1.0,
) -> Foresight:
    """The best of the drifts, and its weights.

    `before` has the steps before the one with the links, of which it is `gap` away; variances are `widen` times those
    of the drift.
    """
    settings = settings._replace(covariance="blocks")
    n, n_rows = len(before.anchor), before.n_rows
    chosen = np.concatenate((links.rows, links.columns + n_rows))
    best, starts = -np.inf, None
    found = usual(drifts)
    for drift in drifts:
        noise = make_noise(drift, before.start, n_rows, n)
        path, starts = infer(before, noise, settings, starts)
        wide = make_noise((widen * drift[0], widen * drift[1]), before.start, n_rows, n)
        belief = predict(Belief(path.means[-1], widen * path.covs[-1]), gap, wide, settings)
        squares = expected_squares(Belief(belief.mean[chosen], belief.cov[chosen]), "blocks", len(links.rows))
        weights, value = links.weights(squares)
        if value > best:
            best, found = value, Foresight(drift, weights)
    return found


class Links(NamedTuple):
    """Which pairs met at a step, of rows that were there then and before, and of columns that were there before."""

    rows: NDArray[np.int64]  # among those asked for
    columns: NDArray[np.int64]
    meets: NDArray[np.bool_]  # (rows, columns)
    many: Array  # (rows,) how many of all columns they met
    popular: Array  # (columns,) log q̂
    met: Array  # (rows, columns) m

    @classmethod
    def of(cls, outlook: Outlook, table: Any, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Links:
        """Of some rows and columns, the last table's links; the outlook is that of the tables before it."""
        many = np.diff(sp.csr_array(table).indptr).astype(np.float64)
        i = np.flatnonzero(((many > 0) & (outlook.met.sum(axis=1) > 0))[rows])
        j = np.flatnonzero((outlook.met.sum(axis=0) > 0)[columns])
        r, c = rows[i], columns[j]
        met = outlook.met[r][:, c].toarray()
        return cls(i, j, table[r][:, c].toarray() > 0, many[r], outlook.popular[c], met)

    def weights(self, squares: Array) -> tuple[Array, float]:
        """(2, 4) a, b, c, r of pairs that had not met and of those that had, and the log-likelihood of who meets."""
        shape = self.meets.shape
        popular, many = np.broadcast_to(self.popular, shape), np.broadcast_to(np.log(self.many)[:, None], shape)
        out, total = np.array(USUAL_WEIGHTS), 0.0
        for kind, among in enumerate((self.met == 0, self.met > 0)):
            told = [popular[among], -squares[among]] + ([np.log1p(self.met[among])] if kind else [])
            if not len(told[0]):
                continue
            prior = np.array([1.0, 1.0, 0.5])[: len(told)]
            found, value = learn_meetings(np.stack(told, axis=1), self.meets[among], many[among], prior, BELIEF)
            out[kind, : len(found)] = found
            total += value
        return out, total


def learn_meetings(
    X: Array, meets: NDArray[np.bool_], offset: Array, prior: Array, belief: float
) -> tuple[Array, float]:
    """a and w for log λ = offset + a + Xw with P(meets) = 1 − e^{−λ}, and the log-likelihood.

    The mode with w ~ N(prior, I/belief), by Fisher's scoring with halved steps; a is held, barely, where it would
    explain the number of meetings with w = prior.
    """
    rest = offset + X @ prior
    shift = float(rest.max())
    first = np.log(max(float(meets.sum()), 0.5)) - np.log(np.exp(rest - shift).sum()) - shift
    X = np.column_stack((np.ones(len(X)), X))
    centre = np.concatenate(([first], prior))
    firm = np.concatenate(([1.0], np.full(len(prior), belief)))
    w = centre.copy()
    state = _meetings(X, meets, offset, w)
    value = state.value
    for _ in range(MOST_ROUNDS):
        gradient = X.T @ state.score - firm * (w - centre)
        information = (X * state.weight[:, None]).T @ X + np.diag(firm)
        step = np.linalg.solve(information, gradient)
        size = 1.0
        while size > 1e-6:
            tried = w + size * step
            state = _meetings(X, meets, offset, tried)
            better = state.value - 0.5 * float(firm @ (tried - centre) ** 2)
            if better >= value:
                break
            size /= 2
        else:
            break
        gained, value, w = better - value, better, tried
        if gained < 1e-9 * (1 + abs(value)):
            break
    return w, state.value


class _Meetings(NamedTuple):
    value: float  # log-likelihood
    score: Array  # its derivative by log λ, a pair
    weight: Array  # and the expected information


def _meetings(X: Array, meets: NDArray[np.bool_], offset: Array, w: Array) -> _Meetings:
    rate = np.exp(np.clip(offset + X @ w, -50.0, 5.0))
    odds = rate / np.expm1(rate)  # λ e^{−λ}/(1 − e^{−λ})
    value = float(np.where(meets, np.log(-np.expm1(-rate)), -rate).sum())
    return _Meetings(value, np.where(meets, odds, -rate), rate * odds)
