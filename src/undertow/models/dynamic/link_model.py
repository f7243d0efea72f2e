"""Choose the drift and the link weights by predicting the last training step.

The evidence of tempered counts favors no movement, even where movement predicts better. So for a map to predict with,
the drift is the candidate with which the steps before the last one give the links of the last step the highest
likelihood; the weights of popularity, nearness and past meetings maximize the same likelihood. Only training steps are
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from undertow.kernels.types import F64, I64
from undertow.models.dynamic.filter import Belief, Settings, make_noise, predict
from undertow.models.dynamic.links import Activity, expected_squares
from undertow.models.dynamic.path import PathProblem, infer_path

CANDIDATE_DRIFTS = (0.003, 0.01, 0.03, 0.1)  # σ² of rows
COLUMN_DRIFT_RATIO = 0.1  # σ² of columns relative to that of rows: words move less than authors
DEFAULT_DRIFT = 0.01  # where there are too few steps to choose
MIN_STEPS = 3
MAX_PAIRS = 1 << 18  # of the most frequent entities: a map of these suffices to learn seven weights
# a, b, c, r of pairs that never met and of pairs that did; about what is learned from ACL and NIPS up to 1990
DEFAULT_LINK_WEIGHTS = ((0.0, 0.8, 0.4, 0.0), (-0.5, 0.8, 0.3, 0.7))
PRIOR_MEAN = (1.0, 1.0, 0.5)  # of b, c, r; the constant a is nearly free
PRIOR_PRECISION = 300.0
MAX_ITER = 100


class LinkModel(NamedTuple):
    """The drift and link weights that predict the last training step best."""

    drift: tuple[float, float]  # σ² of rows and of columns
    weights: F64  # (2, 4), as `links.log_rates` takes them


def last_step(tables: Sequence[Any]) -> int | None:
    """The last step with events, or None if fewer than MIN_STEPS steps have events."""
    steps = [t for t, table in enumerate(tables) if table.nnz]
    return steps[-1] if len(steps) >= MIN_STEPS else None


def most_frequent(tables: Sequence[Any]) -> tuple[I64, I64]:
    """The most frequent rows and columns, the same share of each, so that they form about MAX_PAIRS pairs."""
    pooled = sum(tables)
    share = min(1.0, np.sqrt(MAX_PAIRS / (pooled.shape[0] * pooled.shape[1])))
    counts = pooled.sum(axis=1), pooled.sum(axis=0)
    rows, columns = (np.sort(np.argsort(-c, kind="stable")[: max(1, round(share * len(c)))]) for c in counts)
    return rows, columns


def default_link_model(drifts: Sequence[tuple[float, float]]) -> LinkModel:
    """The link model where there are too few steps to learn one; a single candidate drift is kept."""
    drift = drifts[0] if len(drifts) == 1 else (DEFAULT_DRIFT, COLUMN_DRIFT_RATIO * DEFAULT_DRIFT)
    return LinkModel(drift, np.array(DEFAULT_LINK_WEIGHTS))


def fit_link_model(
    before: PathProblem,
    links: HeldOutLinks,
    gap: float,
    settings: Settings,
    drifts: Sequence[tuple[float, float]],
    scale: float = 1.0,
) -> LinkModel:
    """The candidate drift, with its weights, under which the held-out links are most probable.

    `before` has the steps before the held-out one, which is `gap` later; variances are multiplied by `scale`.
    """
    settings = settings._replace(covariance="blocks")
    n, n_rows = len(before.anchor), before.n_rows
    chosen = np.concatenate((links.rows, links.columns + n_rows))
    best, mode = -np.inf, None
    found = default_link_model(drifts)
    for drift in drifts:
        noise = make_noise(drift, before.initial_variance, n_rows, n)
        path, mode = infer_path(before, noise, settings, mode)
        scaled = make_noise((scale * drift[0], scale * drift[1]), before.initial_variance, n_rows, n)
        belief = predict(Belief(path.means[-1], scale * path.covs[-1]), gap, scaled, settings.form)
        squares = expected_squares(Belief(belief.mean[chosen], belief.cov[chosen]), "blocks", len(links.rows))
        weights, value = fit_link_weights(links, squares)
        if value > best:
            best, found = value, LinkModel(drift, weights)
    return found


class HeldOutLinks(NamedTuple):
    """Which pairs met at a held-out step: rows present then and before, columns present before."""

    rows: I64  # indices into the selected rows
    columns: I64  # and into the selected columns
    meets: NDArray[np.bool_]  # (rows, columns)
    degree: F64  # (rows,) how many of all columns they met
    log_popularity: F64  # (columns,) log q̂
    met: F64  # (rows, columns) m


def held_out_links(activity: Activity, table: Any, rows: I64, columns: I64) -> HeldOutLinks:
    """The links of a table among some rows and columns; `activity` is the forecast from the tables before it."""
    degree = np.diff(sp.csr_array(table).indptr).astype(np.float64)
    i = np.flatnonzero(((degree > 0) & (activity.met.sum(axis=1) > 0))[rows])
    j = np.flatnonzero((activity.met.sum(axis=0) > 0)[columns])
    r, c = rows[i], columns[j]
    met = activity.met[r][:, c].toarray()
    return HeldOutLinks(i, j, table[r][:, c].toarray() > 0, degree[r], activity.log_popularity[c], met)


def fit_link_weights(links: HeldOutLinks, squares: F64) -> tuple[F64, float]:
    """(2, 4) a, b, c, r of pairs that had not met and of pairs that had, and the log-likelihood of the links.

    `squares` (rows, columns) are the expected squared distances.
    """
    shape = links.meets.shape
    popularity = np.broadcast_to(links.log_popularity, shape)
    log_degree = np.broadcast_to(np.log(links.degree)[:, None], shape)
    out, total = np.array(DEFAULT_LINK_WEIGHTS), 0.0
    for kind, among in enumerate((links.met == 0, links.met > 0)):
        features = [popularity[among], -squares[among]] + ([np.log1p(links.met[among])] if kind else [])
        if not len(features[0]):
            continue
        prior = np.array(PRIOR_MEAN)[: len(features)]
        found, value = cloglog_regression(
            np.stack(features, axis=1), links.meets[among], log_degree[among], prior, PRIOR_PRECISION
        )
        out[kind, : len(found)] = found
        total += value
    return out, total


def cloglog_regression(
    X: F64, meets: NDArray[np.bool_], offset: F64, prior_mean: F64, prior_precision: float
) -> tuple[F64, float]:
    """a and w of the regression log λ = offset + a + Xw, P(meets) = 1 − e^{−λ}, and the log-likelihood.

    The posterior mode with w ~ N(prior_mean, I/prior_precision), by Fisher scoring with step halving; a has a weak
    prior at the value that explains the number of meetings with w = prior_mean.
    """
    rest = offset + X @ prior_mean
    shift = float(rest.max())
    intercept = np.log(max(float(meets.sum()), 0.5)) - np.log(np.exp(rest - shift).sum()) - shift
    X = np.column_stack((np.ones(len(X)), X))
    center = np.concatenate(([intercept], prior_mean))
    precision = np.concatenate(([1.0], np.full(len(prior_mean), prior_precision)))
    w = center.copy()
    state = _likelihood(X, meets, offset, w)
    value = state.value
    for _ in range(MAX_ITER):
        gradient = X.T @ state.score - precision * (w - center)
        information = (X * state.weight[:, None]).T @ X + np.diag(precision)
        step = np.linalg.solve(information, gradient)
        size = 1.0
        while size > 1e-6:
            tried = w + size * step
            state = _likelihood(X, meets, offset, tried)
            better = state.value - 0.5 * float(precision @ (tried - center) ** 2)
            if better >= value:
                break
            size /= 2
        else:
            break
        gained, value, w = better - value, better, tried
        if gained < 1e-9 * (1 + abs(value)):
            break
    return w, state.value


class _Likelihood(NamedTuple):
    value: float  # log-likelihood
    score: F64  # (pairs,) its derivative by log λ
    weight: F64  # (pairs,) expected information


def _likelihood(X: F64, meets: NDArray[np.bool_], offset: F64, w: F64) -> _Likelihood:
    rate = np.exp(np.clip(offset + X @ w, -50.0, 5.0))
    odds = rate / np.expm1(rate)  # λ e^{−λ}/(1 − e^{−λ})
    value = float(np.where(meets, np.log(-np.expm1(-rate)), -rate).sum())
    return _Likelihood(value, np.where(meets, odds, -rate), rate * odds)
