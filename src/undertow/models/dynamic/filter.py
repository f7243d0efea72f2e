"""Filter and smoother for drifting positions observed through tables of counts.

    x_i(1) ~ N(a_i, τ²I)    x_i(t+1) = x_i(t) + N(0, g σ²I)    counts at t as in `kernels.field.cooccurrence`

with g the time between the steps and one σ² for each kind of entity. Conditioning on a table is a Laplace
approximation: the mode of the posterior, and there the precision of the prior plus the Fisher information of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.field.beliefs import FORMS, CovarianceForm
from undertow.kernels.field.cooccurrence import Table, log_likelihood
from undertow.kernels.field.quasi_newton import maximize
from undertow.kernels.types import F64

MAX_CHANGE = 8.0  # factor by which a variance may change in one iteration
MIN_VARIANCE = 1e-8


class Noise(NamedTuple):
    """The variances of the model, one per entity."""

    drift: F64  # (n,) σ² per unit of time
    initial: F64  # (n,) τ² at the first step


class Settings(NamedTuple):
    """Settings of inference; the same at every step."""

    covariance: str  # "full" or "blocks"
    beta: float = 1.0  # tempering of the counts
    tol: float = 1e-4  # of the log posterior, per entity
    n_threads: int = 1

    @property
    def form(self) -> CovarianceForm:
        return FORMS[self.covariance]


class Belief(NamedTuple):
    """A Gaussian over the positions at one step."""

    mean: F64  # (n, d)
    cov: F64  # (n d, n d) or (n, d, d), depending on the covariance form


class Path(NamedTuple):
    """Filtered or smoothed beliefs of all steps."""

    means: F64  # (T, n, d)
    covs: F64  # (T, …)
    log_evidence: float = 0.0  # of all tables, by Laplace's approximation; tempered like them


def make_noise(drift: Sequence[float], initial: float, n_rows: int, n: int) -> Noise:
    """Variances of n entities from the drift of rows and of columns, and the initial variance."""
    rows = np.arange(n) < n_rows
    return Noise(np.where(rows, drift[0], drift[1]).astype(np.float64), np.full(n, float(initial)))


def predict(belief: Belief, gap: float, noise: Noise, form: CovarianceForm) -> Belief:
    """The belief a time `gap` later, before any data."""
    return Belief(belief.mean, form.diffuse(belief.cov, gap * noise.drift))


def condition(prior: Belief, table: Table, start: F64, settings: Settings) -> tuple[Belief, float]:
    """The belief after a table, and the log evidence of the table; the search for the mode begins at `start`."""
    form, beta = settings.form, settings.beta
    precision, logdet_prior = form.invert(prior.cov)

    def log_posterior(x: F64) -> tuple[float, F64]:
        value, score = log_likelihood(table, x[table.rows], x[table.columns], beta=beta, n_threads=settings.n_threads)
        away = x - prior.mean
        pull = form.multiply(precision, away)
        gradient = -pull
        gradient[table.present] += score
        return value - 0.5 * float((away * pull).sum()), gradient

    def posterior_precision(x: F64) -> F64:
        return form.add(precision, form.information(table, x, beta, settings.n_threads), table.present)

    mode = maximize(
        log_posterior,
        start,
        lambda x: form.solver(posterior_precision(x)),
        tol=settings.tol * len(table.present),
    )
    cov, minus_logdet = form.invert(posterior_precision(mode.x))
    return Belief(mode.x, cov), mode.value + 0.5 * (logdet_prior + minus_logdet)


def filter_path(
    tables: Sequence[Table | None],
    gaps: Sequence[float],
    belief: Belief,
    noise: Noise,
    settings: Settings,
    seen: NDArray[np.bool_],
    log_evidence: float = 0.0,
) -> Path:
    """Predict and condition through the steps, from the belief before the first of them.

    `gaps[t]` is the time from the step before t; `seen` (n,) says which entities had events before; `log_evidence` is
    that of the steps before. A table None is a step without data: the belief only diffuses.
    """
    seen = seen.copy()
    means, covs = [], []
    for table, gap in zip(tables, gaps, strict=True):
        belief = predict(belief, gap, noise, settings.form)
        if table is not None:
            start = _place_newcomers(table, belief.mean, seen)
            belief, evidence = condition(belief, table, start, settings)
            seen[table.present] = True
            log_evidence += evidence
        means.append(belief.mean)
        covs.append(belief.cov)
    return Path(np.array(means), np.array(covs), float(log_evidence))


def _place_newcomers(table: Table, mean: F64, seen: NDArray[np.bool_]) -> F64:
    """Where the search begins: entities never seen before start among their partners, not at the prior mean."""
    start = mean.copy()
    for rows, counts, partners in (
        (table.rows, table.counts, table.columns),
        (table.columns, table.transposed, table.rows),
    ):
        new = ~seen[rows]
        if new.any():
            known = seen[partners].astype(np.float64)
            weight = counts @ known
            center = counts @ (known[:, None] * mean[partners]) / np.maximum(weight, 1e-300)[:, None]
            start[rows[new]] = center[new]
    return start


class Moves(NamedTuple):
    """Posterior second moments of the moves between steps; the drift is learned from them."""

    squared: F64  # (T − 1, n) |smoothed mean of x_{t+1} − x_t|²
    variance: F64  # (T − 1, n) trace of its covariance


def smooth_path(filtered: Path, gaps: Sequence[float], noise: Noise, form: CovarianceForm) -> tuple[Path, Moves]:
    """Rauch–Tung–Striebel, backward over the filtered path."""
    T, n, _ = filtered.means.shape
    means, covs = filtered.means.copy(), filtered.covs.copy()
    squared, variance = np.zeros((max(T - 1, 0), n)), np.zeros((max(T - 1, 0), n))
    for t in range(T - 2, -1, -1):
        cov_pred = form.diffuse(filtered.covs[t], gaps[t + 1] * noise.drift)
        J, covs[t], cov_move = form.smooth(filtered.covs[t], cov_pred, covs[t + 1])
        means[t] = filtered.means[t] + form.multiply(J, means[t + 1] - filtered.means[t])
        squared[t] = ((means[t + 1] - means[t]) ** 2).sum(axis=1)
        variance[t] = np.trace(form.blocks(cov_move, n), axis1=1, axis2=2)
    return Path(means, covs, filtered.log_evidence), Moves(squared, variance)


def update_variance(old: float, squared: F64, variance: F64, gaps: F64, d: int) -> float:
    """A new σ² from moves over `gaps`: MacKay's fixed-point iteration for a stationary point of the evidence.

    EM's σ² = mean (|Δ|² + tr V)/(g d) has the same fixed points but converges slowly where the data say little: there
    tr V = g σ² d, and EM returns its input. MacKay's update divides by the number of well-determined directions,
    d − tr V/(g σ²), instead.
    """
    determined = float((d - variance / (gaps * old)).sum())
    if not determined > 1e-6 * squared.size:
        return old
    new = float((squared / gaps).sum()) / determined
    return max(MIN_VARIANCE, min(max(new, old / MAX_CHANGE), old * MAX_CHANGE))
