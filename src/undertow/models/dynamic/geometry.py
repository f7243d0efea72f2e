"""What a moving map answers, as functions of arrays: distances with bands, who is near, who moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import scipy.stats
from numpy.typing import NDArray

from undertow.models.dynamic.filter import Array, Noise, Path, Settings

BAND = (0.05, 0.95)


class Timeline(NamedTuple):
    """A quantity over time with its 90 % band."""

    mean: Array  # (T,)
    low: Array
    high: Array


def squared_moments(mean: Array, cov: Array) -> tuple[Array, Array]:
    """Mean and variance of |δ|² for δ ~ N(mean, cov), along the first axis."""
    first = (mean**2).sum(axis=1) + np.trace(cov, axis1=1, axis2=2)
    along = np.einsum("ti,tij,tj->t", mean, cov, mean)
    return first, 2 * np.einsum("tij,tij->t", cov, cov) + 4 * along


def squared_quantiles(mean: Array, cov: Array, levels: Sequence[float]) -> list[Array]:
    """Quantiles of |δ|², as of the gamma variable with its mean and variance: exact for one direction at 0, good
    elsewhere.
    """
    first, variance = squared_moments(mean, cov)
    certain = variance <= 1e-16 * first**2
    shape = np.where(certain, 1.0, first**2 / np.where(certain, 1.0, variance))
    scale = np.where(certain, 0.0, variance / np.where(first > 0, first, 1.0))
    return [np.where(certain, first, scipy.special.gammaincinv(shape, q) * scale) for q in levels]


def distances(mean: Array, cov: Array) -> Timeline:
    """Expected distance |δ| with its band, for δ ~ N(mean, cov)."""
    first, variance = squared_moments(mean, cov)
    low, high = (np.sqrt(q) for q in squared_quantiles(mean, cov, BAND))
    # E√G of the gamma variable: √scale Γ(k + ½)/Γ(k)
    certain = variance <= 1e-16 * first**2
    shape = np.where(certain, 1.0, first**2 / np.where(certain, 1.0, variance))
    ratio = np.exp(scipy.special.gammaln(shape + 0.5) - scipy.special.gammaln(shape)) / np.sqrt(shape)
    return Timeline(np.sqrt(first) * np.where(certain, 1.0, np.minimum(ratio, 1.0)), low, high)


# --- who is near ------------------------------------------------------------------------------------------


def nearness(x: Array, traces: Array, i: int) -> Array:
    """(n,) |x_j − x_i|² + tr Σ_j: what entities are ranked by, from means (n, d) and traces (n,) of covariances.

    The expected squared distance as far as it differs between the j, were the errors of two entities independent:
    the one definition of near, here and on the page (`nearest` in data.js), which has no covariances between entities.
    """
    out: Array = ((x - x[i]) ** 2).sum(axis=1) + traces
    return out


# --- movement -------------------------------------------------------------------------------------------


def show_movement(tables: Sequence[Any]) -> NDArray[np.bool_]:
    """(n,) which entities were at two steps or more in a table that can tell where they are.

    Against the frequencies of its step, a table of a single row or a single column is what chance would give.
    """
    times = np.zeros(sum(tables[0].shape), dtype=np.int64)
    for table in tables:
        rows, columns = (np.asarray(table.sum(axis=axis)) > 0 for axis in (1, 0))
        if rows.sum() > 1 and columns.sum() > 1:
            times += np.concatenate((rows, columns))
    shown: NDArray[np.bool_] = times > 1
    return shown


def travel_covariances(
    filtered: Path, smoothed: Path, gaps: Sequence[float], noise: Noise, settings: Settings, first: int, last: int
) -> Array:
    """(n, d, d) covariance of x(last) − x(first) given all data: Cov(x_s, x_t) = J_s … J_{t−1} Σ_t."""
    form = settings.form
    n = filtered.means.shape[1]
    cross = smoothed.covs[last]
    for t in range(last - 1, first - 1, -1):
        cov_pred = form.diffuse(filtered.covs[t], gaps[t + 1] * noise.drift)
        J = form.smooth(filtered.covs[t], cov_pred, smoothed.covs[t + 1])[0]
        cross = J @ cross
    blocks = form.blocks(cross, n)
    out: Array = (
        form.blocks(smoothed.covs[last], n) + form.blocks(smoothed.covs[first], n) - blocks - blocks.transpose(0, 2, 1)
    )
    return out


def wald(moved: Array, cov: Array) -> tuple[Array, Array]:
    """Δ'V⁻¹Δ of each entity, and the probability of as much by chance."""
    d = moved.shape[1]
    value = np.einsum("ni,ni->n", moved, np.linalg.solve(cov + 1e-300 * np.eye(d), moved[:, :, None])[:, :, 0])
    return value, scipy.stats.chi2.sf(value, d)


def discoveries(p_values: Array, rate: float) -> NDArray[np.bool_]:
    """Benjamini and Hochberg: at most this rate of the ones chosen is expected to be chance."""
    order = np.argsort(p_values, kind="stable")
    ok = p_values[order] <= rate * np.arange(1, len(order) + 1) / len(order)
    chosen = np.zeros(len(order), dtype=bool)
    if ok.any():
        chosen[order[: int(np.flatnonzero(ok)[-1]) + 1]] = True
    return chosen
