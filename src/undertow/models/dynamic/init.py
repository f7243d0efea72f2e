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

from undertow.errors import InputError
from undertow.kernels.field.association import balance
from undertow.kernels.field.cooccurrence import Table, field_sums
from undertow.models.dynamic.filter import Array, Belief, Settings, condition, update_variance

BURSTINESS = 10.0  # to predict: a second mention is worth a third of the first; best on NIPS up to 1993
TEMPERING, PREDICT_VARIANCE = 0.1, 0.5  # to predict: β and τ², chosen together on ACL and on NIPS up to 1990
DENSE = 400  # rows or columns up to which the decomposition is done in full
JITTER = 0.01  # of the start, so that coordinates without any signal are not stuck in a symmetric place
WIDTH = 0.5  # root mean square of the first coordinates
LEAST_WIDTH = 0.3  # τ of a map, where pooled counts show nothing: what moves may still be somewhere
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


LEAST_MEETING = 1e-100  # Z, the chance that any pair meets: its square must still be a number


def dispersion(tables: list[Table | None], means: Array) -> Dispersion:
    """How far counts are from what positions (T, n, d) expect, without a table of all pairs."""
    total = Dispersion(0.0, 0.0)
    for table, x in zip(tables, means, strict=True):
        if table is None:
            continue
        X, Y = x[table.rows], x[table.columns]
        if table.free:
            mu_free = table.total * balance(X, Y, table.p_rows, table.p_columns)[2]
            squares_free = float(((table.counts.toarray() - mu_free) ** 2).sum())
            total = Dispersion(total.squares + squares_free, total.mu + table.total)
            continue
        Z = field_sums(X, Y, table.p_rows, table.p_columns).Z
        if not Z > LEAST_MEETING:
            raise InputError(
                "DynamicEmbedding: the entities fly so far apart that no two would ever meet: give a smaller drift, or "
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


def static_map(table: Table, start: Array, settings: Settings, variance: float | None = None) -> tuple[Belief, float]:
    """Positions that explain one table, under x ~ N(0, τ²I), τ² = `variance` or learned; belief in blocks, and τ².

    The τ² of the evidence is one for maps that fit: with many dimensions and few counts an entity it shrinks, and
    all places with it, until the map says nothing.
    """
    settings = settings._replace(covariance="blocks", observation="fisher")
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
    return belief, max(tau2, LEAST_WIDTH**2)


def first_paths(
    counts: list[Any],
    n_rows: int,
    static: Array,
    settings: Settings,
    rng: np.random.Generator,
    variance: float | None = None,
) -> list[Array]:
    """Where the search for a path may begin: at rest on the static map, and with a change of maps half-way.

    What turns round half-way is nowhere on a static map, and a path that begins there finds no way off.
    """
    T = len(counts)
    out = [np.repeat(static[None], T, axis=0)]
    halves = []
    for part in (counts[: T // 2], counts[T // 2 :]):
        table = make_table(sum(part), n_rows) if part else None
        if table is None:
            return out
        start = correspondence(table, static.shape[0], static.shape[1], rng)
        halves.append(static_map(table, start, settings, variance)[0].mean)
    first, second = halves
    u, _, vt = np.linalg.svd(second.T @ first)
    second = second @ (u @ vt)
    out.append(np.concatenate([np.repeat(x[None], k, axis=0) for x, k in ((first, T // 2), (second, T - T // 2))]))
    return out
