"""What comes next: how popular each entity will be, and which pairs will meet.

p̂(i, j) ∝ p̂_i p̂_j e^{−E|x_i − x_j|²} (1 + m_ij)^ρ, with the expected squared distance |μ_i − μ_j|² + tr(Σ_ii + Σ_jj −
Σ_ij − Σ_ji): entities whose place is uncertain promise less. m_ij is how often the two have met, old meetings worth
less: a few coordinates cannot hold every habit of an author, and who used a word will use it again. Pairs that never
met have m = 0. A pair meets with probability 1 − e^{−M p̂(i, j)}, M such that the expected number of pairs is that of
recent steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.models.dynamic_filter import Array, Belief
from undertow.models.dynamic_start import BURSTINESS, damp

DECAYS = (0.2, 0.4, 0.6, 0.75, 0.9, 1.0)  # a step
PSEUDO_COUNTS = (0.03, 0.1, 0.3, 1.0, 3.0)  # an entity
LONG_RUN = (0.0, 0.25, 0.5, 0.75)  # weight of the shares over all steps
DEFAULT = (0.75, 0.3, 0.25)  # where there are too few steps to choose
MEMORY, FADING = 0.5, 0.9  # ρ, and what is left of a meeting after a unit of time; chosen on ACL and on NIPS up to 1990


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


def expected_squares(belief: Belief, covariance: str, n_rows: int) -> Array:
    """(rows, columns) expected squared distances."""
    n, d = belief.mean.shape
    X, Y = belief.mean[:n_rows], belief.mean[n_rows:]
    out: Array = (X**2).sum(axis=1)[:, None] + (Y**2).sum(axis=1) - 2 * X @ Y.T
    np.maximum(out, 0, out=out)
    if covariance == "blocks":
        trace = np.trace(belief.cov, axis1=1, axis2=2)
    else:
        traces = np.einsum("ikjk->ij", belief.cov.reshape(n, d, n, d))
        trace = np.diag(traces)
        out -= 2 * traces[:n_rows, n_rows:]
    out += trace[:n_rows, None]
    out += trace[n_rows:]
    return out


def pair_shares(squares: Array, p_rows: Array, p_columns: Array) -> Array:
    """p̂(i, j), which sum to 1; `squares` is used up."""
    shift = float(squares.min())
    np.subtract(shift, squares, out=squares)
    np.exp(squares, out=squares)
    squares *= p_rows[:, None]
    squares *= p_columns
    squares /= squares.sum()
    return squares


def met_before(tables: Sequence[Any], gaps: Sequence[float]) -> Any:
    """(rows, columns) sparse m_ij: Σ over the steps of what a pair's count was worth, repetitions damped, fading."""
    held = damp(tables[0], BURSTINESS)
    for table, gap in zip(tables[1:], gaps[1:], strict=True):
        held = held * FADING**gap + damp(table, BURSTINESS)
    return held.tocoo()


def remember(shares: Array, met: Any) -> Array:
    """p̂ times (1 + m)^ρ, which again sum to 1; `shares` is used up."""
    shares[met.row, met.col] *= (1 + met.data) ** MEMORY
    shares /= shares.sum()
    return shares


SAMPLE = 1 << 19  # pairs that M is found from


def meeting_probabilities(shares: Array, n_pairs: float) -> NDArray[np.float32]:
    """1 − e^{−M p̂} with M such that they sum to `n_pairs`."""
    flat = shares.ravel()[:: max(1, shares.size // SAMPLE)]
    wanted = min(max(n_pairs, 1e-9) / shares.size, 0.999)
    low, high = 1e-12, 1.0
    while float(-np.expm1(-high * flat).mean()) < wanted and high < 1e300:
        low, high = high, high * 8
    for _ in range(50):
        M = float(np.sqrt(low * high))
        low, high = (M, high) if float(-np.expm1(-M * flat).mean()) < wanted else (low, M)
        if high / low < 1 + 1e-9:
            break
    return (-np.expm1(-high * shares)).astype(np.float32)
