"""The co-occurrence model of one time step: likelihood, score and information of positions given a table of counts.

p(i, j) = p̄_i p̄_j g_ij / Z with g_ij = e^{−|δ_ij|²}, δ_ij = x_i − x_j, for rows i and columns j; N counts,
tempered by β. With q_ij = p(i, j) and v_ij = (e_i − e_j) ⊗ δ_ij:

    log-likelihood   βN [Σ p̄_ij (log p̄_i + log p̄_j − |δ_ij|²) − log Z]
    score            −2βN Σ (p̄_ij − q_ij) v_ij
    Fisher           4βN [Σ q vv' − (Σ q v)(Σ q v)']                       positive semi-definite

Adding a constant to all |δ|² hardly changes the likelihood, so rows and columns could drift apart without limit. A
penalty −½βN |c|², c = Σ p̄_i x_i − Σ p̄_j x_j, keeps their centers together: it is part of the log-likelihood here, its
gradient of the score, and βN ww' ⊗ I, w = (p̄_i, −p̄_j), of the Fisher matrix.

Observed pairs stay sparse. The sums over all pairs run in tiles: one product for the exponents, NumPy's vectorized exp,
two products for the sums of rows and columns. This is four times as fast as a compiled loop over pairs (scalar exp).
Tiles are added in a fixed order, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from undertow.kernels.field import association
from undertow.kernels.lanes import ordered_map
from undertow.kernels.types import F64, I64

TILE_ROWS, TILE_COLUMNS = 64, 1024  # half a megabyte: a tile stays in the cache for its three uses
SMALL = 1 << 20  # pairs below which threads cost more than they save: at 150 × 1000 two took three times as long


class Table(NamedTuple):
    """Counts of one time step, of the entities present then: every row and every column has a positive sum."""

    counts: Any  # (a, w) CSR, float64
    transposed: Any  # (w, a) CSR, the same counts
    rows: I64  # (a,) which entities the rows are
    columns: I64  # (w,) which entities the columns are
    total: float  # N
    p_rows: F64  # (a,) p̄_i
    p_columns: F64  # (w,) p̄_j
    free_frequencies: bool = False  # fitted with the positions, as in `association`; p̄ are only the sums

    @property
    def present(self) -> I64:
        return np.concatenate((self.rows, self.columns))


class FieldSums(NamedTuple):
    """Sums over all pairs of the unnormalized p̄_i p̄_j g_ij (1, x, xx'): for a row over its columns, and the reverse."""

    Z: float
    rows: F64  # (a, 1 + d + d²) mass, first and second moments of the columns' positions; (a, 1 + d) to first order
    columns: F64  # (w, …) of the rows' positions


def features(X: F64, order: int) -> F64:
    """1, x and, to second order, xx' of each position, side by side."""
    parts = [np.ones((len(X), 1)), X]
    if order == 2:
        parts.append((X[:, :, None] * X[:, None, :]).reshape(len(X), -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def field_sums(
    X: F64,
    Y: F64,
    p_rows: F64,
    p_columns: F64,
    order: int = 1,
    n_threads: int = 1,
    serial_below: int = SMALL,
) -> FieldSums:
    """Equivalent to `K = np.outer(p_rows, p_columns) * np.exp(-cdist(X, Y)**2)`, `K @ features(Y)`, `K.T @
    features(X)`.
    """
    # log(p̄_i p̄_j g_ij) = 2 x_i·x_j − h_i − h_j as one product
    h_rows, h_columns = (X**2).sum(axis=1) - np.log(p_rows), (Y**2).sum(axis=1) - np.log(p_columns)
    left = np.column_stack((2 * X, -h_rows, -np.ones(len(X))))
    right = np.column_stack((Y, np.ones(len(Y)), h_columns))
    of_rows, of_columns = features(X, order), features(Y, order)

    def strip(start: int) -> tuple[F64, F64]:
        stop = start + TILE_ROWS
        rows = np.zeros((len(left[start:stop]), of_columns.shape[1]))
        columns = np.empty((len(Y), of_rows.shape[1]))
        for c in range(0, len(Y), TILE_COLUMNS):
            K = left[start:stop] @ right[c : c + TILE_COLUMNS].T
            np.exp(K, out=K)
            rows += K @ of_columns[c : c + TILE_COLUMNS]
            np.matmul(K.T, of_rows[start:stop], out=columns[c : c + TILE_COLUMNS])
        return rows, columns

    row_parts, columns = [], np.zeros((len(Y), of_rows.shape[1]))
    for part, add in ordered_map(
        strip, range(0, len(X), TILE_ROWS), n_threads if len(X) * len(Y) > serial_below else 1
    ):
        row_parts.append(part)
        columns += add
    rows = np.concatenate(row_parts)
    return FieldSums(float(rows[:, 0].sum()), rows, columns)


# --- likelihood and score -------------------------------------------------------------------------------


def log_likelihood(table: Table, X: F64, Y: F64, *, beta: float = 1.0, n_threads: int = 1) -> tuple[float, F64]:
    """The tempered log-likelihood and its score (a + w, d), rows first, both with the centering penalty."""
    if table.free_frequencies:
        return association.log_likelihood(table.counts, table.p_rows, table.p_columns, X, Y, beta=beta)
    sums = field_sums(X, Y, table.p_rows, table.p_columns, 1, n_threads)
    pulled = table.counts @ Y / table.total  # Σ_j p̄_ij x_j
    stress = table.p_rows @ (X**2).sum(axis=1) + table.p_columns @ (Y**2).sum(axis=1) - 2 * float((pulled * X).sum())
    if not sums.Z > 0:  # positions so far apart that every e^{−d²} is 0
        return -np.inf, np.zeros((len(X) + len(Y), X.shape[1]))
    # Σ_j (p̄_ij − q_ij)(x_i − x_j)
    rows = table.p_rows[:, None] * X - pulled - (sums.rows[:, :1] * X - sums.rows[:, 1:]) / sums.Z
    columns = (
        table.p_columns[:, None] * Y
        - table.transposed @ X / table.total
        - (sums.columns[:, :1] * Y - sums.columns[:, 1:]) / sums.Z
    )
    scale = beta * table.total
    offset = table.p_rows @ X - table.p_columns @ Y  # between the centers of rows and columns
    value = scale * (base_rate(table) - float(stress) - np.log(sums.Z) - 0.5 * float(offset @ offset))
    weights = np.concatenate((table.p_rows, -table.p_columns))
    return float(value), -scale * (2 * np.concatenate((rows, columns)) + np.outer(weights, offset))


def meeting_offsets(table: Table, x: F64, n_rows: int) -> F64:
    """(n,) o of log p(i, j)/(p̄_i p̄_j) = o_i + o_j − |x_i − x_j|², from the positions (n, d) of all entities.

    With the sums as frequencies half of −log Z each. With free ones o_i = log a_i/p̄_i = −log Σ_j b_j e^{−|x_i − x_j|²},
    which is defined for entities without counts as well.
    """
    X, Y = x[table.rows], x[table.columns]
    if not table.free_frequencies:
        return np.full(len(x), -0.5 * float(np.log(field_sums(X, Y, table.p_rows, table.p_columns).Z)))
    log_a, log_b, _ = association.balance(X, Y, table.p_rows, table.p_columns)
    # between rows and columns a constant is free: both kinds have the same mean o
    constant = 0.5 * float(table.p_columns @ (log_b - np.log(table.p_columns)))
    constant -= 0.5 * float(table.p_rows @ (log_a - np.log(table.p_rows)))
    rows, columns = association.log_partners(x[:n_rows], Y, log_b), association.log_partners(x[n_rows:], X, log_a)
    return np.concatenate((rows + constant, columns - constant))


UNSEEN = 1e-6  # share of an entity without counts, for the derivative of how often it would meet another


def affinity_slope(table: Table, x: F64, i: int, j: int) -> tuple[I64, F64]:
    """Entities, and derivatives (entities, d) of log p(i, j)/(p̄_i p̄_j) by their positions, with free frequencies."""
    (rows, p_rows), (columns, p_columns) = (
        (present, p) if k in present else (np.append(present, k), np.append(p, UNSEEN))
        for k, present, p in ((i, table.rows, table.p_rows), (j, table.columns, table.p_columns))
    )
    p_rows, p_columns = p_rows / p_rows.sum(), p_columns / p_columns.sum()
    row, column = int(np.flatnonzero(rows == i)[0]), int(np.flatnonzero(columns == j)[0])
    slope = association.log_ratio_slope(x[rows], x[columns], p_rows, p_columns, row, column)
    return np.concatenate((rows, columns)), slope


def base_rate(table: Table) -> float:
    """Σ p̄_ij (log p̄_i + log p̄_j): the part of the log-likelihood due to the marginals alone."""
    return float(table.p_rows @ np.log(table.p_rows) + table.p_columns @ np.log(table.p_columns))


# --- information, one d×d block an entity ---------------------------------------------------------------


class _Spread(NamedTuple):
    mass: F64  # (n,) Σ q over the partners
    first: F64  # (n, d) Σ q δ, δ from the partner to the entity
    second: F64  # (n, d, d) Σ q δδ'


def _spread(sums: F64, X: F64, Z: float) -> _Spread:
    d = X.shape[1]
    mass, first, second = sums[:, 0] / Z, sums[:, 1 : 1 + d] / Z, sums[:, 1 + d :].reshape(-1, d, d) / Z
    cross = X[:, :, None] * first[:, None, :]
    square = mass[:, None, None] * X[:, :, None] * X[:, None, :] - cross - cross.transpose(0, 2, 1) + second
    return _Spread(mass, mass[:, None] * X - first, square)


def information_blocks(table: Table, X: F64, Y: F64, *, beta: float = 1.0, n_threads: int = 1) -> F64:
    """(a + w, d, d) diagonal blocks of the Fisher matrix."""
    if table.free_frequencies:
        blocks = association.information_blocks(table.total, table.p_rows, table.p_columns, X, Y, beta=beta)
        return clip_eigenvalues(blocks)
    sums = field_sums(X, Y, table.p_rows, table.p_columns, 2, n_threads)
    parts = []
    for part, P, p in ((sums.rows, X, table.p_rows), (sums.columns, Y, table.p_columns)):
        spread = _spread(part, P, sums.Z)
        block = 4 * spread.second
        block -= 4 * spread.first[:, :, None] * spread.first[:, None, :]
        block += (p**2)[:, None, None] * np.eye(P.shape[1])
        parts.append(block)
    return clip_eigenvalues(beta * table.total * np.concatenate(parts))


def clip_eigenvalues(matrices: F64) -> F64:
    """The nearest positive semi-definite matrices: eigenvalues made negative by rounding are set to 0."""
    values, vectors = np.linalg.eigh((matrices + np.swapaxes(matrices, -1, -2)) / 2)
    clipped: F64 = (vectors * np.maximum(values, 0)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return (clipped + np.swapaxes(clipped, -1, -2)) / 2


# --- information, the whole matrix ----------------------------------------------------------------------


def information_matrix(table: Table, X: F64, Y: F64, *, beta: float = 1.0) -> F64:
    """((a + w) d, (a + w) d) Fisher matrix; the coordinates of an entity are adjacent."""
    if table.free_frequencies:
        return association.information_matrix(table.total, table.p_rows, table.p_columns, X, Y, beta=beta)
    (a, d), w = X.shape, len(Y)
    n = a + w
    delta = X[:, None, :] - Y[None, :, :]
    q = np.outer(table.p_rows, table.p_columns) * np.exp(-(delta**2).sum(axis=2))
    q /= q.sum()
    qd = q[:, :, None] * delta
    # Σ q vv': −q δδ' between a row and a column, their sums on the diagonal
    between = np.einsum("ijk,ijl->ikjl", qd, delta)
    out = np.zeros((n, d, n, d))
    out[:a, :, a:, :] = -between
    out[a:, :, :a, :] = -between.transpose(2, 3, 0, 1)
    index = np.arange(n)
    out[index, :, index, :] = np.concatenate((between.sum(axis=2), between.sum(axis=0).transpose(1, 0, 2)))
    out *= 4
    flat = out.reshape(n * d, n * d)
    u = np.concatenate((qd.sum(axis=1), -qd.sum(axis=0))).ravel()
    flat -= 4 * np.outer(u, u)
    weights = np.concatenate((table.p_rows, -table.p_columns))
    for k in range(d):
        flat[k::d, k::d] += np.outer(weights, weights)
    flat *= beta * table.total
    return flat
