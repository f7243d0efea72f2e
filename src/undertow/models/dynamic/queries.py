"""Queries on a fitted map about its own steps: positions, distances, neighbors and movers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import scipy.stats
from numpy.typing import NDArray

from undertow.kernels.field.cooccurrence import affinity_slope
from undertow.kernels.types import F64
from undertow.models.dynamic.state import FittedMap
from undertow.tables import Table

BAND = (0.05, 0.95)  # quantiles of the 90 % band


class Timeline(NamedTuple):
    """A quantity over time with its 90 % band.

    Attributes
    ----------
    mean
        (T,) expected value at each step.
    low, high
        (T,) lower and upper edge of the band.
    """

    mean: F64
    low: F64
    high: F64


class Neighbor(NamedTuple):
    """An entity near another one.

    Attributes
    ----------
    name, kind
        The entity.
    distance
        Root of the expected squared distance.
    """

    name: str
    kind: str
    distance: float


class Mover(NamedTuple):
    """An entity that moved between two steps.

    Attributes
    ----------
    name, kind
        The entity.
    distance
        Between its two smoothed positions.
    wald, p_value
        Wald's statistic of the movement, and the probability of a statistic as large by chance.
    """

    name: str
    kind: str
    distance: float
    wald: float
    p_value: float


class Movers(Table[Mover]):
    """A table of movers with a summary.

    Attributes
    ----------
    verdict
        A sentence that says how many entities moved, or why none is listed.
    """

    def __init__(self, movers: Iterable[Mover], verdict: str) -> None:
        super().__init__(Mover, movers, note=verdict)
        self.verdict = verdict


# --- positions and distances ----------------------------------------------------------------------------


def position(fitted: FittedMap, name: Any, time: Any, kind: str | None, filtered: bool) -> tuple[F64, F64]:
    """Mean (d,) and covariance (d, d) of an entity at a time."""
    i, t = fitted.entities.find(name, kind), fitted.step(time)
    return fitted.path(filtered).means[t, i].copy(), fitted.entity_covariances(t, filtered)[i].copy()


def distance(fitted: FittedMap, a: Any, b: Any, filtered: bool = False) -> Timeline:
    """Distance of two entities at every step."""
    return distance_band(*_difference(fitted, a, b, filtered))


def affinity(fitted: FittedMap, a: Any, b: Any, filtered: bool = False) -> Timeline:
    """Log of how much more often two entities meet than by chance, at every step."""
    i, j = sorted((fitted.entities.find(a), fitted.entities.find(b)))
    offsets = fitted.offsets(filtered)
    log_chance = offsets[:, i] + offsets[:, j]
    if fitted.free_frequencies and i < fitted.entities.n_rows <= j:
        x = fitted.path(filtered).means
        value = log_chance - ((x[:, i] - x[:, j]) ** 2).sum(axis=1)
        reach = scipy.stats.norm.ppf(BAND[1]) * np.sqrt(affinity_variances(fitted, i, j, filtered))
        return Timeline(value, value - reach, value + reach)
    mean, cov = _difference(fitted, a, b, filtered)
    low, high = squared_quantiles(mean, cov, BAND)
    return Timeline(log_chance - squared_moments(mean, cov)[0], log_chance - high, log_chance - low)


def affinity_variances(fitted: FittedMap, i: int, j: int, filtered: bool) -> F64:
    """(T,) variance, to first order, of o_i + o_j − |x_i − x_j|² for row i and column j with free frequencies.

    The frame changes distances and offsets alike, and this not at all. A step without data has that of the step before.
    """
    path, out = fitted.path(filtered), np.zeros(len(fitted.tables))
    for t, table in enumerate(fitted.tables):
        if table is None:
            out[t] = out[t - 1] if t else 0.0
            continue
        at, slope = affinity_slope(table, path.means[t], i, j)
        out[t] = fitted.form.variance(path.covs[t], at, slope)
    return out


def _difference(fitted: FittedMap, a: Any, b: Any, filtered: bool) -> tuple[F64, F64]:
    """Means (T, d) and covariances (T, d, d) of x_a − x_b."""
    i, j = fitted.entities.find(a), fitted.entities.find(b)
    means = fitted.path(filtered).means
    return means[:, i] - means[:, j], fitted.difference_covariances(i, j, filtered)


def squared_moments(mean: F64, cov: F64) -> tuple[F64, F64]:
    """Mean and variance of |δ|² for δ ~ N(mean, cov), along the first axis."""
    first = (mean**2).sum(axis=1) + np.trace(cov, axis1=1, axis2=2)
    along = np.einsum("ti,tij,tj->t", mean, cov, mean)
    return first, 2 * np.einsum("tij,tij->t", cov, cov) + 4 * along


def squared_quantiles(mean: F64, cov: F64, levels: Sequence[float]) -> list[F64]:
    """Quantiles of |δ|², those of the gamma variable with the same mean and variance.

    Exact in one dimension with mean 0, a good approximation elsewhere.
    """
    first, variance = squared_moments(mean, cov)
    certain = variance <= 1e-16 * first**2
    shape = np.where(certain, 1.0, first**2 / np.where(certain, 1.0, variance))
    scale = np.where(certain, 0.0, variance / np.where(first > 0, first, 1.0))
    return [np.where(certain, first, scipy.special.gammaincinv(shape, q) * scale) for q in levels]


def distance_band(mean: F64, cov: F64) -> Timeline:
    """Expected distance |δ| with its band, for δ ~ N(mean, cov)."""
    first, variance = squared_moments(mean, cov)
    low, high = (np.sqrt(q) for q in squared_quantiles(mean, cov, BAND))
    # E√G of the gamma variable: √scale Γ(k + ½)/Γ(k)
    certain = variance <= 1e-16 * first**2
    shape = np.where(certain, 1.0, first**2 / np.where(certain, 1.0, variance))
    ratio = np.exp(scipy.special.gammaln(shape + 0.5) - scipy.special.gammaln(shape)) / np.sqrt(shape)
    return Timeline(np.sqrt(first) * np.where(certain, 1.0, np.minimum(ratio, 1.0)), low, high)


# --- neighbors ------------------------------------------------------------------------------------------


def nearest(fitted: FittedMap, name: Any, time: Any, n: int, kind: str | None, of: str | None) -> Table[Neighbor]:
    """The n entities nearest to one at a time, among those with events then."""
    entities = fitted.entities
    i, t = entities.find(name, kind), fitted.step(time)
    x, count = fitted.smoothed.means[t], len(entities.names)
    near = nearness(x, np.trace(fitted.entity_covariances(t), axis1=1, axis2=2), i)
    allowed = fitted.shares[t] > 0
    allowed[i] = False
    if of is not None:
        rows = np.arange(count) < entities.n_rows
        allowed &= rows if entities.side(of) == 0 else ~rows
    order = np.flatnonzero(allowed)[np.argsort(near[allowed], kind="stable")][: max(int(n), 0)]
    squares = [((x[j] - x[i]) ** 2).sum() + np.trace(fitted.difference_covariances(i, j)[t]) for j in order]
    found = zip(order, squares, strict=True)
    return Table(
        Neighbor, (Neighbor(entities.names[j], entities.kind(j), float(np.sqrt(max(square, 0)))) for j, square in found)
    )


def nearness(x: F64, traces: F64, i: int) -> F64:
    """(n,) |x_j − x_i|² + tr Σ_j, by which neighbors are ranked; from means (n, d) and covariance traces (n,).

    The part of the expected squared distance that differs between the j, taking entities to be independent: the page
    of the map (`nearest` in data.js) ranks in the same way and has no covariances between entities.
    """
    out: F64 = ((x - x[i]) ** 2).sum(axis=1) + traces
    return out


# --- movement -------------------------------------------------------------------------------------------


def movers(
    fitted: FittedMap, movement_map: Callable[[], FittedMap], n: int, first: Any, last: Any, significance: float
) -> Movers:
    """The entities that moved most between two steps; `movement_map` makes the map on which movement is tested."""
    times = fitted.events.times
    s = 0 if first is None else fitted.step(first)
    t = len(times) - 1 if last is None else fitted.step(last)
    if s >= t:
        return Movers([], "The first step is not before the last one: there is no movement between them.")
    tested_on = movement_map()
    entities = tested_on.entities
    tested = np.flatnonzero(can_show_movement(tested_on.events.tables[s : t + 1]))
    steps = f"between {times[s]} and {times[t]}"
    if not len(tested):
        return Movers(
            [],
            f"The data cannot show movement {steps}: no entity occurs at two steps with more than one row and more "
            f"than one column (here: {entities.kinds[0]} and {entities.kinds[1]}); use longer steps, or divide the "
            "rows more finely.",
        )
    path = tested_on.smoothed
    moved = path.means[t] - path.means[s]
    value, p = wald_test(moved, movement_covariances(tested_on, s, t))
    length = np.sqrt((moved**2).sum(axis=1))
    # Benjamini and Hochberg: at most the share `significance` of those chosen is expected by chance
    chosen = tested[scipy.stats.false_discovery_control(p[tested]) <= significance]
    order = chosen[np.argsort(-length[chosen], kind="stable")][: max(int(n), 0)]
    listed = [Mover(entities.names[i], entities.kind(i), *map(float, (length[i], value[i], p[i]))) for i in order]
    part = "" if len(entities.names) == len(fitted.entities.names) else " most frequent"
    if not len(chosen):
        return Movers(listed, f"None of the {len(tested)}{part} entities moved beyond noise {steps}.")
    return Movers(
        listed,
        f"{len(chosen)} of the {len(tested)}{part} entities moved beyond noise {steps}; at most "
        f"{significance:.0%} of these are expected by chance.",
    )


def can_show_movement(tables: Sequence[Any]) -> NDArray[np.bool_]:
    """(n,) which entities occur at two steps or more whose tables determine positions.

    A table of a single row or a single column is explained by the frequencies of its step alone.
    """
    steps = np.zeros(sum(tables[0].shape), dtype=np.int64)
    for table in tables:
        rows, columns = (np.asarray(table.sum(axis=axis)) > 0 for axis in (1, 0))
        if rows.sum() > 1 and columns.sum() > 1:
            steps += np.concatenate((rows, columns))
    out: NDArray[np.bool_] = steps > 1
    return out


def movement_covariances(fitted: FittedMap, first: int, last: int) -> F64:
    """(n, d, d) covariance of x(last) − x(first) given all data: Cov(x_s, x_t) = J_s … J_{t−1} Σ_t."""
    form, smoothed, covs, gaps = fitted.form, fitted.smoothed, fitted.filtered_covariances, fitted.events.gaps
    n = fitted.filtered_means.shape[1]
    cross = smoothed.covs[last]
    for t in range(last - 1, first - 1, -1):
        cov_pred = form.diffuse(covs[t], gaps[t + 1] * fitted.noise.drift)
        cross = form.smooth(covs[t], cov_pred, smoothed.covs[t + 1])[0] @ cross
    blocks = form.blocks(cross, n)
    out: F64 = (
        form.blocks(smoothed.covs[last], n) + form.blocks(smoothed.covs[first], n) - blocks - blocks.transpose(0, 2, 1)
    )
    return out


def wald_test(moved: F64, cov: F64) -> tuple[F64, F64]:
    """Δ'V⁻¹Δ of each entity, and the probability of one as large by chance."""
    d = moved.shape[1]
    value = np.einsum("ni,ni->n", moved, np.linalg.solve(cov + 1e-300 * np.eye(d), moved[:, :, None])[:, :, 0])
    return value, scipy.stats.chi2.sf(value, d)
