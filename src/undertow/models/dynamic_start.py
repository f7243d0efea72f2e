"""Where a moving map begins: what counts are worth, and a static map of all of them.

The search for positions has traps: with all entities in one place the score is 0, and far from everything e^{−d²}
is. So the prior mean of the first step is not 0 but a static map of the pooled counts, and that one begins at a
correspondence analysis, which is linear and has no traps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

from undertow.kernels.cooccurrence_field import Table, field_sums, information_blocks, log_likelihood
from undertow.models.dynamic_filter import Array, Belief, Settings, condition, update_variance

DENSE = 400  # rows or columns up to which the decomposition is done in full
JITTER = 0.01  # of the start, so that coordinates without any signal are not stuck in a symmetric place
WIDTH = 0.5  # root mean square of the first coordinates
ROUNDS = 6  # of the static fit, each with a better prior variance


def make_table(counts: Any, n_rows: int) -> Table | None:
    """A table of the entities that are there; columns are numbered after the n_rows rows. None without counts."""
    rows, columns = (np.flatnonzero(counts.sum(axis=axis) > 0) for axis in (1, 0))
    if not len(rows):
        return None
    small = sp.csr_array(counts[rows][:, columns], dtype=np.float64)
    total = float(small.sum())
    p_rows, p_columns = (np.asarray(small.sum(axis=axis), dtype=np.float64) / total for axis in (1, 0))
    return Table(small, sp.csr_array(small.T), rows, columns + n_rows, total, p_rows, p_columns)


# --- what a count is worth ------------------------------------------------------------------------------


def damp(counts: Any, burstiness: float) -> Any:
    """log(1 + k c)/log(1 + k): what c repetitions are worth beside one, when a count varies by μ + kμ²; k = 0 is c."""
    if burstiness == 0:
        return counts
    out = counts.copy()
    out.data = np.log1p(burstiness * out.data) / np.log1p(burstiness)
    return out


class Dispersion(NamedTuple):
    """Sums over all pairs of all steps, of counts c and their expectations μ; additive."""

    squares: float  # Σ (c − μ)²
    mu: float  # Σ μ

    @property
    def pearson(self) -> float:
        """(c − μ)²/μ, averaged with weights μ: rare pairs, whose μ may be anything, cannot take it over."""
        return self.squares / self.mu


def dispersion(tables: list[Table | None], means: Array) -> Dispersion:
    """How far counts are from what positions (T, n, d) expect, without a table of all pairs."""
    total = Dispersion(0.0, 0.0)
    for table, x in zip(tables, means, strict=True):
        if table is None:
            continue
        X, Y = x[table.rows], x[table.columns]
        Z = field_sums(X, Y, table.p_rows, table.p_columns).Z
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


def score_dispersion(tables: list[Table | None], means: Array) -> tuple[float, float]:
    """s'F⁻¹s/d of rows and of columns, s the score of an entity at a step and F its Fisher block: 1 if counts are
    independent.

    Pairs may be no more dispersed than independent counts and yet come in clumps: all words of an author's year are
    from a paper or two. This sees it, as a pair by itself does not.
    """
    sums, numbers = np.zeros(2), np.zeros(2)
    for table, x in zip(tables, means, strict=True):
        if table is None:
            continue
        X, Y = x[table.rows], x[table.columns]
        score, blocks = log_likelihood(table, X, Y)[1], information_blocks(table, X, Y)
        d = x.shape[1]
        floor = 1e-9 * np.trace(blocks, axis1=1, axis2=2)[:, None, None] + 1e-12
        worth = np.linalg.solve(blocks + floor * np.eye(d), score[:, :, None])[:, :, 0]
        value = (score * worth).sum(axis=1) / d
        first = np.arange(len(value)) < len(table.rows)
        sums += [value[first].sum(), value[~first].sum()]
        numbers += [first.sum(), (~first).sum()]
    return float(sums[0] / numbers[0]), float(sums[1] / numbers[1])


# --- a static map ---------------------------------------------------------------------------------------


def correspondence(table: Table, n: int, d: int, rng: np.random.Generator) -> Array:
    """(n, d) positions from the leading singular vectors of (p̄_ij − p̄_i p̄_j)/√(p̄_i p̄_j); absent entities near 0."""
    r, c = np.sqrt(table.p_rows), np.sqrt(table.p_columns)
    scaled = sp.csr_array(sp.diags_array(1 / r) @ (table.counts / table.total) @ sp.diags_array(1 / c))
    k = min(d, min(scaled.shape) - 1)
    out = np.zeros((n, d))
    if k > 0:
        u, s, vt = _leading(scaled, r, c, k, rng)
        sign = np.where(
            np.abs(u).max(axis=0) == u.max(axis=0), 1.0, -1.0
        )  # of a singular pair; fixed for repeatability
        out[table.rows, :k] = sign * u * np.sqrt(s) / r[:, None]
        out[table.columns, :k] = sign * vt.T * np.sqrt(s) / c[:, None]
    # rare entities lie far out; what matters is the direction
    length = np.sqrt((out**2).sum(axis=1, keepdims=True))
    typical = np.sqrt((out**2).sum() / max(int((length > 0).sum()), 1)) or 1.0
    out *= WIDTH / typical / np.maximum(1.0, length / typical)
    return out + JITTER * rng.standard_normal((n, d))


def _leading(scaled: Any, r: Array, c: Array, k: int, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    if min(scaled.shape) <= DENSE:
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


def static_map(table: Table, start: Array, settings: Settings) -> tuple[Belief, float]:
    """Positions that explain one table, under x ~ N(0, τ²I) with τ² learned; the belief in blocks, and τ²."""
    settings = settings._replace(covariance="blocks", observation="fisher")
    n, d = start.shape
    tau2 = float((start**2).mean()) or 1.0
    x = start
    for _ in range(ROUNDS):
        prior = Belief(np.zeros((n, d)), settings.form.isotropic(np.full(n, tau2), d))
        belief, _ = condition(prior, table, x, settings)
        x = belief.mean
        there = table.present
        tau2 = update_variance(
            tau2, (x[there] ** 2).sum(axis=1), np.trace(belief.cov[there], axis1=1, axis2=2), np.ones(len(there)), d
        )
    return belief, tau2
