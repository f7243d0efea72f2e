"""Starting points of a moving map: a static map of the pooled counts, initial paths, and the dispersion of counts.

The log posterior has poor stationary points: the score is 0 with all entities in one place, and e^{−d²} vanishes far
from everything. So the prior mean of the first step is not 0 but a static map of the pooled counts, and that one starts
at a correspondence analysis, which is linear and has no local optima.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

from undertow.errors import InputError
from undertow.kernels.field.association import balance
from undertow.kernels.field.cooccurrence import Table, field_sums
from undertow.kernels.types import F64
from undertow.models.dynamic.filter import Belief, Settings, condition, update_variance
from undertow.models.dynamic.tables import make_table

TEMPERING, PREDICT_VARIANCE = 0.1, 0.5  # to predict: β and τ², chosen together on ACL and on NIPS up to 1990
MAX_DENSE = 400  # rows or columns up to which the singular value decomposition is dense
JITTER = 0.01  # added to the start, so that coordinates without signal do not stay at a symmetric point
INITIAL_RMS = 0.5  # root mean square of the initial coordinates
MIN_WIDTH = 0.3  # lower bound of τ: pooled counts may show nothing although entities move
ROUNDS = 6  # of the static fit, each with an updated prior variance
MIN_NORMALIZER = 1e-100  # lower bound of Z, the probability that a pair meets: its square must not underflow


class Dispersion(NamedTuple):
    """Additive sums over all pairs of all steps, of counts c and their expectations μ."""

    squares: float  # Σ (c − μ)²
    mu: float  # Σ μ

    @property
    def pearson(self) -> float:
        """Pearson's (c − μ)²/μ averaged with weights μ, so that pairs with tiny μ do not dominate."""
        return self.squares / self.mu


def dispersion(tables: list[Table | None], means: F64) -> Dispersion:
    """Squared deviations of the counts from their expectations at positions (T, n, d), without a table of all pairs."""
    total = Dispersion(0.0, 0.0)
    for table, x in zip(tables, means, strict=True):
        if table is None:
            continue
        X, Y = x[table.rows], x[table.columns]
        if table.free_frequencies:
            mu_free = table.total * balance(X, Y, table.p_rows, table.p_columns)[2]
            squares_free = float(((table.counts.toarray() - mu_free) ** 2).sum())
            total = Dispersion(total.squares + squares_free, total.mu + table.total)
            continue
        Z = field_sums(X, Y, table.p_rows, table.p_columns).Z
        if not Z > MIN_NORMALIZER:
            raise InputError(
                "DynamicEmbedding: the positions diverged so far that no pair can meet: give a smaller drift, or "
                "drift=None."
            )
        # Σ (p̄_i p̄_j g)² is the same sum with p̄² and distances stretched by √2
        root = np.sqrt(2.0)
        squares = field_sums(root * X, root * Y, table.p_rows**2, table.p_columns**2).Z
        pairs = table.counts.tocoo()
        i, j, c = pairs.row, pairs.col, pairs.data
        mu = table.total / Z * table.p_rows[i] * table.p_columns[j] * np.exp(-((X[i] - Y[j]) ** 2).sum(axis=1))
        mu_squares = squares * (table.total / Z) ** 2
        misfit = float((c**2 - 2 * c * mu).sum()) + mu_squares
        total = Dispersion(*(a + b for a, b in zip(total, (misfit, table.total), strict=True)))
    return total


# --- a static map ---------------------------------------------------------------------------------------


def correspondence_analysis(table: Table, n: int, d: int, rng: np.random.Generator) -> F64:
    """(n, d) positions from the leading singular vectors of (p̄_ij − p̄_i p̄_j)/√(p̄_i p̄_j); absent entities near 0."""
    r, c = np.sqrt(table.p_rows), np.sqrt(table.p_columns)
    scaled = sp.csr_array(sp.diags_array(1 / r) @ (table.counts / table.total) @ sp.diags_array(1 / c))
    k = min(d, min(scaled.shape) - 1)
    out = np.zeros((n, d))
    if k > 0:
        u, s, vt = _leading(scaled, r, c, k, rng)
        # the sign of a singular pair is arbitrary: fix it for repeatability
        sign = np.where(np.abs(u).max(axis=0) == u.max(axis=0), 1.0, -1.0)
        out[table.rows, :k] = sign * u * np.sqrt(s) / r[:, None]
        out[table.columns, :k] = sign * vt.T * np.sqrt(s) / c[:, None]
    # rare entities lie far out: keep their direction and bound their length
    length = np.sqrt((out**2).sum(axis=1, keepdims=True))
    typical = np.sqrt((out**2).sum() / max(int((length > 0).sum()), 1)) or 1.0
    out *= INITIAL_RMS / typical / np.maximum(1.0, length / typical)
    return out + JITTER * rng.standard_normal((n, d))


def _leading(scaled: Any, r: F64, c: F64, k: int, rng: np.random.Generator) -> tuple[F64, F64, F64]:
    if min(scaled.shape) <= MAX_DENSE:
        u, s, vt = np.linalg.svd(scaled.toarray() - np.outer(r, c), full_matrices=False)
        return u[:, :k], s[:k], vt[:k]
    operator = scipy.sparse.linalg.LinearOperator(
        scaled.shape,
        matvec=lambda x: scaled @ x.ravel() - r * float(c @ x.ravel()),
        rmatvec=lambda y: scaled.T @ y.ravel() - c * float(r @ y.ravel()),
        dtype=np.float64,
    )
    start = rng.standard_normal(min(scaled.shape))
    u, s, vt = scipy.sparse.linalg.svds(operator, k=k, v0=start)
    order = np.argsort(-s)
    return u[:, order], s[order], vt[order]


def static_map(table: Table, start: F64, settings: Settings, variance: float | None = None) -> tuple[Belief, float]:
    """The block-form belief about positions given one table under x ~ N(0, τ²I), and τ²: `variance`, or learned.

    The evidence suits maps with many counts per entity: with many dimensions and few counts it shrinks τ², and all
    positions with it, until the map says nothing.
    """
    settings = settings._replace(covariance="blocks")
    n, d = start.shape
    tau2 = variance or float((start**2).mean()) or 1.0
    x = start
    for _ in range(ROUNDS):
        prior = Belief(np.zeros((n, d)), settings.form.isotropic(np.full(n, tau2), d))
        belief, _ = condition(prior, table, x, settings)
        if variance is not None:
            return belief, variance
        x = belief.mean
        there = table.present
        tau2 = update_variance(
            tau2, (x[there] ** 2).sum(axis=1), np.trace(belief.cov[there], axis1=1, axis2=2), np.ones(len(there)), d
        )
    return belief, max(tau2, MIN_WIDTH**2)


def initial_paths(
    counts: list[Any],
    n_rows: int,
    static: F64,
    settings: Settings,
    rng: np.random.Generator,
    variance: float | None = None,
    free_frequencies: bool = False,
) -> list[F64]:
    """Initial paths: the static map at every step, and a map of each half of the steps, rotated onto each other.

    Entities that change sides half-way are in the middle of a static map, and a search from there does not move them.
    """
    T = len(counts)
    out = [np.repeat(static[None], T, axis=0)]
    halves = []
    for part in (counts[: T // 2], counts[T // 2 :]):
        table = make_table(sum(part), n_rows, free_frequencies) if part else None
        if table is None:
            return out
        start = correspondence_analysis(table, static.shape[0], static.shape[1], rng)
        halves.append(static_map(table, start, settings, variance)[0].mean)
    first, second = halves
    u, _, vt = np.linalg.svd(second.T @ first)
    second = second @ (u @ vt)
    out.append(np.concatenate([np.repeat(x[None], k, axis=0) for x, k in ((first, T // 2), (second, T - T // 2))]))
    return out
