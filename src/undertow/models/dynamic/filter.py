"""Positions that drift, seen through tables of counts: filter, smoother, and the noise learned from both.

    x_i(1) ~ N(a_i, τ²I)    x_i(t+1) = x_i(t) + N(0, g σ²I)    counts at t as in `cooccurrence_field`

with g the time between the steps and one σ² for each kind of entity. Conditioning on a table is a Laplace step: the
mode of the posterior, and there the precision of the prior plus the observation's information (Fisher's by
default).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.field.beliefs import FORMS, Form
from undertow.kernels.field.cooccurrence import Table, log_likelihood
from undertow.kernels.field.quasi_newton import maximise

Array = NDArray[np.float64]


class Noise(NamedTuple):
    """The variances of the model, each (n,): one number an entity."""

    drift: Array  # σ² a unit of time
    start: Array  # τ²


class Settings(NamedTuple):
    """How a table is looked at; the same at every step."""

    covariance: str  # "full" or "blocks"
    observation: str = "fisher"  # or "taylor"
    beta: float = 1.0  # tempering of the counts
    tol: float = 1e-4  # of the log posterior, an entity
    n_threads: int = 1

    @property
    def form(self) -> Form:
        return FORMS[self.covariance]


class Belief(NamedTuple):
    mean: Array  # (n, d)
    cov: Array  # (n d, n d) or (n, d, d), as the form has it


class Path(NamedTuple):
    """What a filter or smoother knows at every step."""

    means: Array  # (T, n, d)
    covs: Array  # (T, …)
    log_evidence: float = 0.0  # of all tables, by Laplace's approximation; tempered like them


def condition(prior: Belief, table: Table, start: Array, settings: Settings) -> tuple[Belief, float]:
    """The belief after a table, and the table's log evidence; the search for the mode begins at `start`."""
    form, beta = settings.form, settings.beta
    precision, logdet_prior = form.invert(prior.cov)

    def log_posterior(x: Array) -> tuple[float, Array]:
        value, score = log_likelihood(table, x[table.rows], x[table.columns], beta=beta, n_threads=settings.n_threads)
        away = x - prior.mean
        pull = form.times(precision, away)
        gradient = -pull
        gradient[table.present] += score
        return value - 0.5 * float((away * pull).sum()), gradient

    def posterior_precision(x: Array, observation: str) -> Array:
        information = form.information(table, x, observation, beta, settings.n_threads)
        return form.add(precision, information, table.present)

    # the search always goes by Fisher's matrix: where it ends does not depend on the metric
    mode = maximise(
        log_posterior,
        start,
        lambda x: form.solver(posterior_precision(x, "fisher")),
        tol=settings.tol * len(table.present),
    )
    cov, minus_logdet = form.invert(posterior_precision(mode.x, settings.observation))
    return Belief(mode.x, cov), mode.value + 0.5 * (logdet_prior + minus_logdet)


def predict(belief: Belief, gap: float, noise: Noise, settings: Settings) -> Belief:
    return Belief(belief.mean, settings.form.diffuse(belief.cov, gap * noise.drift))


def filter_path(
    tables: Sequence[Table | None],
    gaps: Sequence[float],
    anchor: Array,
    noise: Noise,
    settings: Settings,
    starts: Array | None = None,
) -> Path:
    """Forward through all steps; `gaps[t]` is the time from step t−1 to t, `starts` (T, n, d) where the searches begin.

    A table None is a step without data: the belief only diffuses.
    """
    belief = Belief(anchor, settings.form.isotropic(noise.start, anchor.shape[1]))
    means, covs, total = [], [], 0.0
    for t, table in enumerate(tables):
        if t:
            belief = predict(belief, gaps[t], noise, settings)
        if table is not None:
            belief, evidence = condition(belief, table, belief.mean if starts is None else starts[t], settings)
            total += evidence
        means.append(belief.mean)
        covs.append(belief.cov)
    return Path(np.array(means), np.array(covs), total)


class Moves(NamedTuple):
    """Second moments of the steps entities took, from the smoother: what the noise is learned from."""

    squared: Array  # (T − 1, n) |smoothed mean of x_{t+1} − x_t|²
    variance: Array  # (T − 1, n) trace of its covariance


def smooth_path(filtered: Path, gaps: Sequence[float], noise: Noise, settings: Settings) -> tuple[Path, Moves]:
    """Rauch–Tung–Striebel, backward over the filtered path."""
    form = settings.form
    T, n, _ = filtered.means.shape
    means, covs = filtered.means.copy(), filtered.covs.copy()
    squared, variance = np.zeros((max(T - 1, 0), n)), np.zeros((max(T - 1, 0), n))
    for t in range(T - 2, -1, -1):
        cov_pred = form.diffuse(filtered.covs[t], gaps[t + 1] * noise.drift)
        J, covs[t], cov_move = form.smooth(filtered.covs[t], cov_pred, covs[t + 1])
        means[t] = filtered.means[t] + form.times(J, means[t + 1] - filtered.means[t])
        squared[t] = ((means[t + 1] - means[t]) ** 2).sum(axis=1)
        variance[t] = np.trace(form.blocks(cov_move, n), axis1=1, axis2=2)
    return Path(means, covs, filtered.log_evidence), Moves(squared, variance)


# --- learning the noise ---------------------------------------------------------------------------------

MOST_CHANGE = 8.0  # factor by which a variance may change in one iteration
LEAST_VARIANCE = 1e-8


def update_variance(old: float, squared: Array, variance: Array, gaps: Array, d: int) -> float:
    """A new σ² from moves over `gaps`: the stationary point of the evidence, by MacKay's iteration.

    EM's σ² = mean (|Δ|² + tr V)/(g d) has the same fixed points, but crawls where the data say little: there tr V =
    g σ² d, and EM gives back what it was given. Counting the well-determined directions instead, d − tr V/(g σ²),
    it does not.
    """
    determined = float((d - variance / (gaps * old)).sum())
    if not determined > 1e-6 * squared.size:
        return old
    new = float((squared / gaps).sum()) / determined
    return max(LEAST_VARIANCE, min(max(new, old / MOST_CHANGE), old * MOST_CHANGE))
