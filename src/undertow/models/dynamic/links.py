"""Forecast of the next step: which rows will be present, and which pairs will meet.

    P(i meets j) = π_i (1 − e^{−λ_ij}),    log λ_ij = log v_i + a + b log q̂_j − c E|x_i − x_j|² + r log(1 + m_ij)

Row i is present with probability π_i, and then meets v_i columns; both are forecast from its steps so far. (π is the
geometric mean of two forecasts: how often the row was present; and its share of all counts to come, divided by v_i.
Its log-odds are then mapped by α + β log-odds, which is learned by forecasting the last training steps: see
`learn_presence_map`.)
It meets columns that will be frequent (q̂), near (|x_i − x_j|² + tr(Σ_ii + Σ_jj − Σ_ij − Σ_ji), so that uncertain
positions lower the rate), and that it met before (m_ij is the number of past meetings, older ones decayed: a few
coordinates cannot represent every habit of an author). The weights a, b, c and r are learned on the last training step
(`link_model`); pairs that never met have weights of their own, without r. Half of the difference between a row's sum of
1 − e^{−λ} and v_i is corrected: with full calibration, positions could not predict which rows meet few columns.

All probabilities are then multiplied by one factor, so that their sum is the expected number of links,
Σ π_i v_i e^{−κ/n}. Rows are often on the map because they are frequent, and whoever is so thanks to few steps will be
so less: 1/n is the mean over the expected links of one over the number of steps at which their row was present.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.field.cooccurrence import Table as CountTable
from undertow.kernels.field.cooccurrence import meeting_offsets
from undertow.kernels.types import F32, F64
from undertow.models.dynamic.filter import Belief, predict
from undertow.models.dynamic.state import FittedMap
from undertow.models.dynamic.tables import BURSTINESS, align, damp, gap_after, make_table
from undertow.tables import Table
from undertow.text.events import Events

DECAYS = (0.2, 0.4, 0.6, 0.75, 0.9, 1.0)  # candidates, per step
PSEUDO_COUNTS = (0.03, 0.1, 0.3, 1.0, 3.0)  # candidates, per entity
LONG_RUN_WEIGHTS = (0.0, 0.25, 0.5, 0.75)  # candidates, of the shares over all steps
DEFAULT_SHARE_FORECAST = (0.75, 0.3, 0.25)  # decay, pseudo-count and weight where there are too few steps to choose
# The following were chosen on ACL and on NIPS up to 1990. They cannot be learned from the training steps where rows
# were selected for being frequent: among those, a row that is rare early must be present late.
MEETING_DECAY = 0.9  # of a past meeting, per step
PRESENCE_DECAY, PRESENCE_PSEUDO_STEPS = 0.8, (0.1, 0.9)  # of having been present; pseudo-steps present and absent
DEGREE_DECAY, DEGREE_PSEUDO_STEPS = 0.7, 0.5  # of the number of columns met; pseudo-steps with the average number
PRESENCE_MAP_STEPS = 6  # of the last training steps, as many at most teach the map of the log-odds of presence
PRESENCE_MAP_PRECISION = (5.0, 50.0)  # of its prior, α ~ N(0, 1/5) and β ~ N(1, 1/50): few rows leave it as it is
TOTAL_REGRESSION = 0.83  # κ; explains the links of the next steps of LREC, ACL, EMNLP and NIPS up to 1990
MOST_PRESENT = 0.98  # probability of a row's presence
FULL_ROW = 0.95  # share of the columns that a row meets at most
ROW_CALIBRATION = 0.5  # share of a row's difference from v_i that is corrected
PAIRS_PER_BLOCK = 1 << 21  # pairs computed at a time
MAX_LISTED_PAIRS = 1 << 22  # that predict_links lists without n=


class Link(NamedTuple):
    """A pair and the probability that it meets at the next step.

    Attributes
    ----------
    row, column
        The names of the pair.
    probability
        Of at least one count at the next step.
    """

    row: str
    column: str
    probability: float


# --- queries --------------------------------------------------------------------------------------------


def link_probabilities(fitted: FittedMap) -> F32:
    """(rows, columns) probability that a pair meets at the next step, one median gap after the last."""
    events = fitted.events
    out = np.empty((len(events.row_names), len(events.column_names)), dtype=np.float32)
    activity = forecast_activity(events.tables, events.gaps, median_gap(events.gaps))
    for part, presence, rates in next_rates(fitted, median_gap(events.gaps), activity):
        out[part] = presence * -np.expm1(-rates)
    total = float(out.sum(dtype=np.float64))
    if total > 0:
        largest = float(out.max())
        out *= np.float32(min(activity.expected_links / total, MOST_PRESENT / largest))
    return out


def predict_links(fitted: FittedMap, n: int | None, new: bool) -> Table[Link]:
    """The pairs most likely to meet at the next step, most probable first."""
    probabilities = link_probabilities(fitted)
    if n is None and probabilities.size > MAX_LISTED_PAIRS:
        raise InputError(f"There are {probabilities.size:,} pairs: ask for the most probable ones with n=.")
    flat = probabilities.ravel()
    candidates = np.arange(flat.size)
    if new:
        met = sp.csr_array(sum(fitted.events.tables))
        candidates = np.flatnonzero(~(met.toarray() > 0).ravel())
    if n is not None and n < len(candidates):
        cut = np.partition(flat[candidates], len(candidates) - n)[len(candidates) - n] if n > 0 else np.inf
        candidates = candidates[flat[candidates] >= cut]
    order = candidates[np.argsort(-flat[candidates], kind="stable")][:n]
    rows, columns = fitted.events.row_names, fitted.events.column_names
    width = len(columns)
    return Table(Link, (Link(rows[k // width], columns[k % width], float(flat[k])) for k in order.tolist()))


def log_likelihood(fitted: FittedMap, events: Events) -> float:
    """Mean log-probability per count of the pairs at one step, known names only."""
    if len(events.times) != 1:
        raise InputError(f"log_likelihood takes the events of one step, and these are of {len(events.times)}.")
    counts = align(events.tables[0], events, fitted.events)
    total = float(counts.sum())
    if not total > 0:
        raise InputError("None of these events is between names on the map: give events of names it has.")
    time = events.times[0]
    if time in fitted.events.times:
        t = fitted.events.times.index(time)
        table, own = fitted.tables[t], make_table(counts, fitted.entities.n_rows)
        assert own is not None
        if table is not None and set(own.present.tolist()) <= set(table.present.tolist()):
            return mean_log_probability(with_counts(table, own), fitted.smoothed.means[t], fitted.entities.n_rows)
    total_rate, log_rate = 0.0, 0.0
    for part, presence, rates in next_rates(fitted, gap_after(fitted.events, time)):
        expected = presence * rates
        pairs = counts[part].tocoo()
        total_rate += float(expected.sum())
        log_rate += float((pairs.data * np.log(np.maximum(expected[pairs.row, pairs.col], 1e-300))).sum())
    return log_rate / total - float(np.log(total_rate))


def with_counts(table: CountTable, other: CountTable) -> CountTable:
    """A table with the counts of another one whose entities are among its own; its frequencies stay."""
    rows, columns = (np.searchsorted(p, q) for p, q in ((table.rows, other.rows), (table.columns, other.columns)))
    pairs = other.counts.tocoo()
    counts = sp.coo_array((pairs.data, (rows[pairs.row], columns[pairs.col])), shape=table.counts.shape).tocsr()
    return table._replace(counts=counts, transposed=sp.csr_array(counts.T))


def mean_log_probability(table: CountTable, x: F64, n_rows: int) -> float:
    """Mean log p(i, j) of the counts of a table under its own frequencies; x (n, d) of all entities."""
    pairs = table.counts.tocoo()
    i, j = table.rows[pairs.row], table.columns[pairs.col]
    offsets = meeting_offsets(table, x, n_rows)
    log_p = np.log(table.p_rows[pairs.row] * table.p_columns[pairs.col])
    log_p += offsets[i] + offsets[j] - ((x[i] - x[j]) ** 2).sum(axis=1)
    return float((pairs.data * log_p).sum() / pairs.data.sum())


def predict_belief(fitted: FittedMap, gap: float) -> Belief:
    """The belief about positions a time `gap` after the last step."""
    last = Belief(fitted.filtered_means[-1], fitted.filtered_covariances[-1])
    return predict(last, gap, fitted.noise, fitted.form)


def next_rates(fitted: FittedMap, gap: float, activity: Activity | None = None) -> Iterator[tuple[slice, F64, F64]]:
    """Blocks of rows with their π and λ, a time `gap` after the last step; `activity` is the forecast for then."""
    if activity is None:
        activity = forecast_activity(fitted.events.tables, fitted.events.gaps, gap)
    return rates_by_block(activity, predict_belief(fitted, gap), fitted.covariance, fitted.link_weights)


# --- activity: what the counts alone say of a later step ---------------------------------------------------


class Activity(NamedTuple):
    """Forecast of a later step from the counts so far, without the map."""

    presence: F64  # (rows,) π
    degree: F64  # (rows,) v
    log_popularity: F64  # (columns,) log q̂
    met: Any  # (rows, columns) sparse, m
    expected_links: float  # of all pairs together


def forecast_activity(tables: Sequence[Any], gaps: Sequence[float], gap: float) -> Activity:
    """Forecast for a step a time `gap` after the last table; decays are per median gap."""
    unit = median_gap(gaps)
    gaps, gap = [g / unit for g in gaps], gap / unit
    damped = [damp(t, BURSTINESS) for t in tables]
    rows = RowSums(
        np.array([t.sum(axis=1) for t in tables], dtype=np.float64),
        np.array([c.sum(axis=1) for c in damped], dtype=np.float64),
        np.array([np.diff(sp.csr_array(t).indptr) for t in tables], dtype=np.float64),
    )
    presence, degree = forecast_presence(rows, gaps, gap)
    presence = mapped_presence(presence, learn_presence_map(rows, gaps))
    columns = forecast_shares(np.array([c.sum(axis=0) for c in damped]), gaps)
    links = expected_links(presence, np.minimum(degree, FULL_ROW * len(columns)), rows.degrees)
    return Activity(presence, degree, np.log(columns), past_meetings(damped, gaps), links)


def expected_links(presence: F64, degree: F64, degrees: F64) -> float:
    """Σ π v e^{−κ/n}, from the degrees (steps, rows) so far."""
    links = presence * degree
    total = float(links.sum())
    steps = np.maximum((degrees > 0).sum(axis=0), 1)
    return total * float(np.exp(-TOTAL_REGRESSION * float((links / steps).sum()) / max(total, 1e-300)))


class RowSums(NamedTuple):
    """What the steps so far say of each row, (steps, rows)."""

    counts: F64
    damped: F64  # sums of damped counts
    degrees: F64  # numbers of columns met

    def until(self, t: int) -> RowSums:
        return RowSums(self.counts[:t], self.damped[:t], self.degrees[:t])


def forecast_presence(rows: RowSums, gaps: Sequence[float], gap: float) -> tuple[F64, F64]:
    """(rows,) π before its log-odds are mapped, and v, a time `gap` after the last step; gaps in median gaps."""
    present = (rows.degrees > 0).astype(np.float64)
    steps = np.ones_like(present) * (present.sum(axis=1, keepdims=True) > 0)  # steps without events do not count
    n, of = (decayed(x, gaps, DEGREE_DECAY)[-1] for x in (rows.degrees, present))
    average = n.sum() / max(of.sum(), 1e-300)
    degree: F64 = (n + DEGREE_PSEUDO_STEPS * average) / (of + DEGREE_PSEUDO_STEPS)
    n, of = (decayed(x, gaps, PRESENCE_DECAY)[-1] * PRESENCE_DECAY**gap for x in (present, steps))
    visits = (n + PRESENCE_PSEUDO_STEPS[0]) / (of + sum(PRESENCE_PSEUDO_STEPS))
    total = rows.degrees.sum(axis=1)
    pi: F64 = np.sqrt(visits * forecast_shares(rows.damped, gaps) * total[total > 0][-3:].mean() / degree)
    return np.minimum(pi, MOST_PRESENT), degree


def learn_presence_map(rows: RowSums, gaps: Sequence[float]) -> F64:
    """α and β that make the forecasts of the last training steps, each from the steps before it, most probable.

    Rows are often on the map because they are frequent, and one that is frequent thanks to a step was present at it:
    forecasts of that step would seem too low. So a step teaches by the rows alone that were sure to be on the map
    before it: those whose counts and numbers of steps by then reach the least of any row in all steps.
    """
    present = rows.degrees > 0
    least = rows.counts.sum(axis=0).min(), present.sum(axis=0).min()
    forecasts, met = [], []
    for t in range(max(2, len(present) - PRESENCE_MAP_STEPS), len(present)):
        before = rows.until(t)
        sure = (before.counts.sum(axis=0) >= least[0]) & (present[:t].sum(axis=0) >= least[1])
        if present[t].any() and present[:t].any() and sure.any():
            forecasts.append(forecast_presence(before, gaps[:t], gaps[t])[0][sure])
            met.append(present[t, sure])
    if not met:
        return np.array([0.0, 1.0])
    return fit_log_odds(np.concatenate(forecasts), np.concatenate(met))


def fit_log_odds(forecast: F64, happened: NDArray[np.bool_]) -> F64:
    """α and β of logit P = α + β logit(forecast), the posterior mode under the prior, by Newton's method."""
    X = np.stack((np.ones(len(forecast)), log_odds(forecast)), axis=1)
    precision, centre = np.array(PRESENCE_MAP_PRECISION), np.array([0.0, 1.0])
    w = centre.copy()
    for _ in range(50):
        p = 1 / (1 + np.exp(-X @ w))
        gradient = X.T @ (happened - p) - precision * (w - centre)
        step = np.linalg.solve((X * (p * (1 - p))[:, None]).T @ X + np.diag(precision), gradient)
        w += step / max(1.0, float(np.abs(step).max()))  # short steps far from the mode
        if np.abs(step).max() < 1e-10:
            break
    return w


def mapped_presence(presence: F64, weights: F64) -> F64:
    """Probabilities whose log-odds are α + β times those given."""
    out: F64 = np.minimum(1 / (1 + np.exp(-weights[0] - weights[1] * log_odds(presence))), MOST_PRESENT)
    return out


def log_odds(p: F64) -> F64:
    p = np.clip(p, 1e-9, 1 - 1e-9)
    out: F64 = np.log(p) - np.log1p(-p)
    return out


def forecast_shares(counts: F64, gaps: Sequence[float]) -> F64:
    """(m,) expected shares at the next step from counts (T, m): recent shares mixed with those of all steps.

    Decay, pseudo-count and weight are those that best predict each step so far from the steps before it.
    """
    counts = np.asarray(counts, dtype=np.float64)
    best, chosen = -np.inf, DEFAULT_SHARE_FORECAST
    if len(counts) >= 3:
        for decay, pseudo in product(DECAYS, PSEUDO_COUNTS):
            recent, ever = (_shares(decayed(counts, gaps, rate)[:-1], pseudo) for rate in (decay, 1.0))
            for weight in LONG_RUN_WEIGHTS:
                value = float((counts[1:] * np.log((1 - weight) * recent + weight * ever)).sum())
                if value > best:
                    best, chosen = value, (decay, pseudo, weight)
    decay, pseudo, weight = chosen
    recent, ever = (_shares(decayed(counts, gaps, rate)[-1:], pseudo) for rate in (decay, 1.0))
    out: F64 = ((1 - weight) * recent + weight * ever)[0]
    return out


def _shares(sums: F64, pseudo: float) -> F64:
    out: F64 = (sums + pseudo) / (sums + pseudo).sum(axis=1, keepdims=True)
    return out


def decayed(counts: F64, gaps: Sequence[float], decay: float) -> F64:
    """(T, m) sums of the steps so far, each multiplied by `decay` per unit of time since."""
    out = np.empty_like(counts)
    held = np.zeros_like(counts[0])
    for t, row in enumerate(counts):
        held = held * decay ** (gaps[t] if t else 0.0) + row
        out[t] = held
    return out


def median_gap(gaps: Sequence[float]) -> float:
    """The median time between steps; 1 if there is one step."""
    return float(np.median(gaps[1:])) if len(gaps) > 1 else 1.0


def past_meetings(damped: Sequence[Any], gaps: Sequence[float]) -> Any:
    """(rows, columns) sparse m_ij: the decayed sum of a pair's damped counts."""
    held = damped[0]
    for table, gap in zip(damped[1:], gaps[1:], strict=True):
        held = held * MEETING_DECAY**gap + table
    return sp.csr_array(held)


def expected_squares(belief: Belief, covariance: str, n_rows: int, part: slice = slice(None)) -> F64:
    """(rows, columns) expected squared distances of some of the rows."""
    n, d = belief.mean.shape
    rows = np.arange(n_rows)[part]
    X, Y = belief.mean[rows], belief.mean[n_rows:]
    out: F64 = (X**2).sum(axis=1)[:, None] + (Y**2).sum(axis=1) - 2 * X @ Y.T
    np.maximum(out, 0, out=out)
    if covariance == "blocks":
        trace = np.trace(belief.cov, axis1=1, axis2=2)
    else:
        cov = belief.cov.reshape(n, d, n, d)
        trace = np.einsum("ikik->i", cov)
        out -= 2 * np.einsum("ikjk->ij", cov[rows][:, :, n_rows:])
    out += trace[rows, None]
    out += trace[n_rows:]
    return out


def log_rates(activity: Activity, squares: F64, weights: F64, part: slice = slice(None)) -> F64:
    """log λ of some of the rows; `weights` (2, 4) are a, b, c, r of pairs that never met and of pairs that did."""
    met = activity.met[part].tocoo()
    new, old = weights
    out: F64 = new[0] + new[1] * activity.log_popularity - new[2] * squares
    i, j = met.row, met.col
    out[i, j] = old[0] + old[1] * activity.log_popularity[j] - old[2] * squares[i, j] + old[3] * np.log1p(met.data)
    degree = np.minimum(activity.degree[part], FULL_ROW * out.shape[1])
    out += (ROW_CALIBRATION * _row_offsets(out, degree) + (1 - ROW_CALIBRATION) * np.log(degree))[:, None]
    return out


def _row_offsets(logs: F64, degree: F64) -> F64:
    """(rows,) c with Σ_j 1 − exp(−e^{logs + c}) = degree, by Newton's method on the log of the sum, concave in c."""
    top = logs.max(axis=1, keepdims=True)
    c: F64 = (
        np.log(degree) - np.log(np.exp(logs - top).sum(axis=1)) - top[:, 0]
    )  # below the root; Newton's steps stay below it
    for _ in range(100):
        rates = np.exp(np.minimum(logs + c[:, None], 50.0))
        total = -np.expm1(-rates).sum(axis=1)
        gap = np.log(degree) - np.log(total)
        if gap.max() < 1e-9:
            break
        slope = (rates * np.exp(-rates)).sum(axis=1) / total
        c += gap / np.maximum(slope, 1e-3)
    return c


def rates_by_block(
    activity: Activity, belief: Belief, covariance: str, weights: F64
) -> Iterator[tuple[slice, F64, F64]]:
    """Blocks of rows with their π and λ, so that no table of all pairs is held."""
    n_rows, n_columns = len(activity.presence), len(activity.log_popularity)
    step = max(1, PAIRS_PER_BLOCK // n_columns)
    for k in range(0, n_rows, step):
        part = slice(k, min(k + step, n_rows))
        logs = log_rates(activity, expected_squares(belief, covariance, n_rows, part), weights, part)
        yield part, activity.presence[part, None], np.exp(np.minimum(logs, 50.0))
