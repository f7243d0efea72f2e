"""What comes next: who will be there, and which pairs will meet.

    P(i meets j) = π_i (1 − e^{−λ_ij}),    log λ_ij = log v_i + a + b log q̂_j − c E|x_i − x_j|² + r log(1 + m_ij)

Row i is there with probability π_i, and then meets v_i columns: both from its steps so far. (There are two forecasts
of π, and their geometric mean is taken: how often it was there; its share of all counts to come, divided by v_i.)
Which columns: those that will be frequent (q̂), near (|μ_i − μ_j|² + tr(Σ_ii + Σ_jj − Σ_ij − Σ_ji), so that entities
whose place is uncertain promise less), and known to it (m_ij is how often the two have met, old meetings worth less: a
few coordinates cannot hold every habit of an author, and who used a word will use it again). The weights a, b, c and r
are learned from the last step, in `dynamic_foresight`; pairs that never met have their own, and no r. Half of what a
row's sum of 1 − e^{−λ} is short of v_i, or above it, is made good: with all of it, places could not say who meets few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from undertow.models.dynamic.filter import Array, Belief
from undertow.models.dynamic.init import BURSTINESS, damp

DECAYS = (0.2, 0.4, 0.6, 0.75, 0.9, 1.0)  # a step
PSEUDO_COUNTS = (0.03, 0.1, 0.3, 1.0, 3.0)  # an entity
LONG_RUN = (0.0, 0.25, 0.5, 0.75)  # weight of the shares over all steps
DEFAULT = (0.75, 0.3, 0.25)  # where there are too few steps to choose
# chosen on ACL and on NIPS up to 1990; they can not be learned from steps by which the rows were chosen, as frequent
# rows are: who is rare early must then be there late
FADING = 0.9  # what is left of a meeting after a step
HERE, HERE_PSEUDO = 0.8, (0.1, 0.9)  # the same of having been there; pseudo-steps there and away
MANY, MANY_PSEUDO = 0.7, 0.5  # the same of how many columns a row met; pseudo-steps with the usual number
MADE_GOOD = 0.5  # of a row's difference from v_i
BLOCK = 1 << 21  # pairs looked at at once


class Outlook(NamedTuple):
    """What the steps so far say of a later one, without the map."""

    there: Array  # (rows,) π
    many: Array  # (rows,) v
    popular: Array  # (columns,) log q̂
    met: Any  # (rows, columns) sparse, m

    @classmethod
    def of(cls, tables: Sequence[Any], gaps: Sequence[float], gap: float) -> Outlook:
        """`gap` is the time from the last of the tables of counts to that later step; what fades, fades by steps."""
        unit = usual_gap(gaps)
        gaps, gap = [g / unit for g in gaps], gap / unit
        met = np.array([np.diff(sp.csr_array(t).indptr) for t in tables], dtype=np.float64)  # how many columns
        there = (met > 0).astype(np.float64)
        steps = np.ones_like(there) * (there.sum(axis=1, keepdims=True) > 0)  # a step without events tells nothing
        n, of = (decayed(x, gaps, MANY)[-1] for x in (met, there))
        usual = n.sum() / max(of.sum(), 1e-300)
        many = (n + MANY_PSEUDO * usual) / (of + MANY_PSEUDO)
        damped = [damp(t, BURSTINESS) for t in tables]
        rows, columns = (forecast_shares(np.array([c.sum(axis=axis) for c in damped]), gaps) for axis in (1, 0))
        n, of = (decayed(x, gaps, HERE)[-1] * HERE**gap for x in (there, steps))
        visits = (n + HERE_PSEUDO[0]) / (of + sum(HERE_PSEUDO))
        total = met.sum(axis=1)
        pi = np.sqrt(visits * rows * total[total > 0][-3:].mean() / many)
        return cls(np.minimum(pi, 0.98), many, np.log(columns), met_before(damped, gaps))


def forecast_shares(counts: Array, gaps: Sequence[float]) -> Array:
    """(m,) expected shares at the next step from counts (T, m): recent shares mixed with those of all steps.

    Decay, pseudo-counts and weight are those that would have predicted the steps so far best, each from those before.
    """
    counts = np.asarray(counts, dtype=np.float64)
    best, chosen = -np.inf, DEFAULT
    if len(counts) >= 3:
        for decay, pseudo in product(DECAYS, PSEUDO_COUNTS):
            recent, ever = (_shares(decayed(counts, gaps, rate)[:-1], pseudo) for rate in (decay, 1.0))
            for weight in LONG_RUN:
                value = float((counts[1:] * np.log((1 - weight) * recent + weight * ever)).sum())
                if value > best:
                    best, chosen = value, (decay, pseudo, weight)
    decay, pseudo, weight = chosen
    recent, ever = (_shares(decayed(counts, gaps, rate)[-1:], pseudo) for rate in (decay, 1.0))
    out: Array = ((1 - weight) * recent + weight * ever)[0]
    return out


def _shares(sums: Array, pseudo: float) -> Array:
    out: Array = (sums + pseudo) / (sums + pseudo).sum(axis=1, keepdims=True)
    return out


def decayed(counts: Array, gaps: Sequence[float], decay: float) -> Array:
    """(T, m) sums of the steps so far, each older one worth `decay` less a unit of time."""
    out = np.empty_like(counts)
    held = np.zeros_like(counts[0])
    for t, row in enumerate(counts):
        held = held * decay ** (gaps[t] if t else 0.0) + row
        out[t] = held
    return out


def usual_gap(gaps: Sequence[float]) -> float:
    """The middle distance between steps; 1 where there is one step."""
    return float(np.median(gaps[1:])) if len(gaps) > 1 else 1.0


def met_before(damped: Sequence[Any], gaps: Sequence[float]) -> Any:
    """(rows, columns) sparse m_ij: Σ over the steps of what a pair's count was worth, fading."""
    held = damped[0]
    for table, gap in zip(damped[1:], gaps[1:], strict=True):
        held = held * FADING**gap + table
    return sp.csr_array(held)


def expected_squares(belief: Belief, covariance: str, n_rows: int, part: slice = slice(None)) -> Array:
    """(rows, columns) expected squared distances, of a part of the rows."""
    n, d = belief.mean.shape
    rows = np.arange(n_rows)[part]
    X, Y = belief.mean[rows], belief.mean[n_rows:]
    out: Array = (X**2).sum(axis=1)[:, None] + (Y**2).sum(axis=1) - 2 * X @ Y.T
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


def log_rates(outlook: Outlook, squares: Array, weights: Array, part: slice = slice(None)) -> Array:
    """log λ of a part of the rows; `weights` (2, 4) are a, b, c, r of pairs that never met and of those that did."""
    met = outlook.met[part].tocoo()
    new, old = weights
    out: Array = new[0] + new[1] * outlook.popular - new[2] * squares
    i, j = met.row, met.col
    out[i, j] = old[0] + old[1] * outlook.popular[j] - old[2] * squares[i, j] + old[3] * np.log1p(met.data)
    many = np.minimum(outlook.many[part], 0.95 * out.shape[1])
    out += (MADE_GOOD * _shortfall(out, many) + (1 - MADE_GOOD) * np.log(many))[:, None]
    return out


def _shortfall(logs: Array, many: Array) -> Array:
    """(rows,) c with Σ_j 1 − exp(−e^{logs + c}) = many: Newton's steps on the log of the sum, which is concave in c."""
    top = logs.max(axis=1, keepdims=True)
    c: Array = np.log(many) - np.log(np.exp(logs - top).sum(axis=1)) - top[:, 0]  # below the root, and stays there
    for _ in range(100):
        rates = np.exp(np.minimum(logs + c[:, None], 50.0))
        total = -np.expm1(-rates).sum(axis=1)
        gap = np.log(many) - np.log(total)
        if gap.max() < 1e-9:
            break
        slope = (rates * np.exp(-rates)).sum(axis=1) / total
        c += gap / np.maximum(slope, 1e-3)
    return c


def rates_of_rows(
    outlook: Outlook, belief: Belief, covariance: str, weights: Array
) -> Iterator[tuple[slice, Array, Array]]:
    """Parts of the rows, with their π and λ: no table of all pairs is made."""
    n_rows, n_columns = len(outlook.there), len(outlook.popular)
    step = max(1, BLOCK // n_columns)
    for k in range(0, n_rows, step):
        part = slice(k, min(k + step, n_rows))
        logs = log_rates(outlook, expected_squares(belief, covariance, n_rows, part), weights, part)
        yield part, outlook.there[part, None], np.exp(np.minimum(logs, 50.0))
