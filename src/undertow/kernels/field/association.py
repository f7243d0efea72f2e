"""The co-occurrence model of one time step with free frequencies: likelihood, score and information of positions.

p(i, j) = a_i b_j e^{−|δ_ij|²} with a and b such that p has the row and column sums of the table: their
maximum-likelihood values, recomputed for every set of positions. A change of frequencies alone then moves no entity.
With the sums themselves as frequencies, as in `cooccurrence`, a word whose neighbors leave would have to move, because
its sum changes. Positions are identified up to more than a rotation: only x_i·x_j between the two kinds matters, so a
linear map of one kind is undone by its inverse on the other. Directions that the table does not determine have no
information, and a table with one row or one column determines none.

Everything here is a dense table of all pairs: for a few hundred entities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.kernels.types import F64

SCALING_ROUNDS = 20  # of balancing by turns, enough where every row meets every column
NEWTON_ROUNDS = 50  # for tables that fall into parts
BALANCE_TOL = 1e-9  # relative error of the sums
MIN_EXPONENT = -600.0  # exponents are clipped here, so that e^{−d²} does not underflow to 0


def balance(X: F64, Y: F64, p_rows: F64, p_columns: F64) -> tuple[F64, F64, F64]:
    """log a, log b and p(i, j) with sums p_rows and p_columns.

    Rows and columns are scaled by turns (Sinkhorn). Where positions fall into parts that hardly meet this takes
    thousands of rounds, so after a few Newton's method goes on.
    """
    exponent = 2 * X @ Y.T
    exponent -= (X**2).sum(axis=1)[:, None]
    exponent -= (Y**2).sum(axis=1)
    nearest = exponent.max(axis=1)  # subtracted, or a row far from every column would underflow to 0
    exponent -= nearest[:, None]
    K = np.exp(np.maximum(exponent, MIN_EXPONENT, out=exponent), out=exponent)
    b = p_columns
    for _ in range(SCALING_ROUNDS):
        a = p_rows / (K @ b)
        sums = K.T @ a
        done = float(np.abs(b * sums / p_columns - 1).max()) < BALANCE_TOL
        b = p_columns / sums
        if done:
            break
    else:
        if len(p_rows) <= len(p_columns):
            a, b = _newton_balance(K, a, p_rows, p_columns)
        else:
            b, a = _newton_balance(K.T, b, p_columns, p_rows)
    log_a, log_b = np.log(a) - nearest, np.log(b)
    K *= a[:, None]
    K *= b
    return log_a, log_b, K


def _newton_balance(K: F64, a: F64, p: F64, p_other: F64) -> tuple[F64, F64]:
    """a and b with sums p and p_other: the minimum of Σ p_other log(K'a) − Σ p log a, convex in log a."""

    def state(a: F64) -> tuple[float, F64]:
        sums = K.T @ a
        return float(p_other @ np.log(sums) - p @ np.log(a)), sums

    value, sums = state(a)
    for _ in range(NEWTON_ROUNDS):
        q = a[:, None] * K * (p_other / sums)
        gradient = q.sum(axis=1) - p
        if float(np.abs(gradient / p).max()) < BALANCE_TOL:
            break
        root = np.sqrt(p)
        hessian = (np.diag(gradient + p) - (q / p_other) @ q.T) / np.outer(root, root)
        hessian += np.outer(root, root) + 1e-12 * np.eye(len(p))  # the common factor of a is free
        step = -np.linalg.solve(hessian, gradient / root) / root
        size = min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-300))
        while size > 1e-6:
            tried = a * np.exp(size * step)
            better, sums_tried = state(tried)
            if better <= value + 1e-4 * size * float(gradient @ step):
                break
            size /= 2
        else:
            break
        a, value, sums = tried, better, sums_tried
    return a, p_other / sums


def log_partners(X: F64, Y: F64, log_b: F64) -> F64:
    """−log Σ_j b_j e^{−|x_i − y_j|²} of each x_i."""
    exponent = log_b - (Y**2).sum(axis=1) + 2 * X @ Y.T
    top = exponent.max(axis=1)
    out: F64 = (X**2).sum(axis=1) - top - np.log(np.exp(exponent - top[:, None]).sum(axis=1))
    return out


def log_likelihood(counts: Any, p_rows: F64, p_columns: F64, X: F64, Y: F64, *, beta: float) -> tuple[float, F64]:
    """The tempered log-likelihood and its score (a + w, d), rows first.

    The frequencies are at their optimum, so the score does not involve their derivative.
    """
    total = float(counts.sum())
    log_a, log_b, q = balance(X, Y, p_rows, p_columns)
    pulled = counts @ Y / total  # Σ_j p̄_ij x_j
    stress = p_rows @ (X**2).sum(axis=1) + p_columns @ (Y**2).sum(axis=1) - 2 * float((pulled * X).sum())
    score = 2 * np.concatenate((pulled - q @ Y, counts.T @ X / total - q.T @ X))
    scale = beta * total
    return scale * float(p_rows @ log_a + p_columns @ log_b - stress), scale * score


def information_blocks(total: float, p_rows: F64, p_columns: F64, X: F64, Y: F64, *, beta: float = 1.0) -> F64:
    """(a + w, d, d) blocks: 4βN times an entity's sum times the variance of its partners' positions."""
    q = balance(X, Y, p_rows, p_columns)[2]
    out = []
    for p, mass, partners in ((q, p_rows, Y), (q.T, p_columns, X)):
        first = p @ partners
        d = partners.shape[1]
        second = (p @ (partners[:, :, None] * partners[:, None, :]).reshape(-1, d * d)).reshape(-1, d, d)
        out.append(second - first[:, :, None] * first[:, None, :] / mass[:, None, None])
    blocks: F64 = 4 * beta * total * np.concatenate(out)
    return blocks


def information_matrix(total: float, p_rows: F64, p_columns: F64, X: F64, Y: F64, *, beta: float = 1.0) -> F64:
    """((a + w) d, (a + w) d) Fisher matrix of the positions, with the free frequencies profiled out (Schur complement).

    With v_ij = (e_i − e_j) ⊗ δ_ij and f_ij = (e_i, e_j): 4βN [Σ q vv' − Σ q vf' (Σ q ff')⁺ Σ q fv'].
    """
    (a, d), w = X.shape, len(Y)
    n = a + w
    q = balance(X, Y, p_rows, p_columns)[2]
    delta = X[:, None, :] - Y[None, :, :]
    qd = q[:, :, None] * delta
    between = np.einsum("ijk,ijl->ikjl", qd, delta)
    vv = np.zeros((n, d, n, d))
    vv[:a, :, a:, :] = -between
    vv[a:, :, :a, :] = -between.transpose(2, 3, 0, 1)
    index = np.arange(n)
    vv[index, :, index, :] = np.concatenate((between.sum(axis=2), between.sum(axis=0).transpose(1, 0, 2)))
    vf = np.zeros((n, d, n))
    vf[:a, :, a:] = qd.transpose(0, 2, 1)
    vf[a:, :, :a] = -qd.transpose(1, 2, 0)
    vf[index, :, index] = np.concatenate((qd.sum(axis=1), -qd.sum(axis=0)))
    ff = np.zeros((n, n))
    ff[:a, a:], ff[a:, :a] = q, q.T
    ff[index, index] = np.concatenate((q.sum(axis=1), q.sum(axis=0)))
    flat_vf = vf.reshape(n * d, n)
    # scaled by the frequencies, which may differ by orders of magnitude; the null vector is 1 on rows and −1 on columns
    root = np.sqrt(np.diag(ff))
    profiled = (
        (flat_vf / root) @ np.linalg.pinv(ff / np.outer(root, root), rcond=1e-12, hermitian=True) @ (flat_vf / root).T
    )
    out: F64 = 4 * beta * total * (vv.reshape(n * d, n * d) - profiled)
    return (out + out.T) / 2


def log_ratio_slope(X: F64, Y: F64, p_rows: F64, p_columns: F64, i: int, j: int) -> F64:
    """(a + w, d) derivatives of log p(i, j), the sums being given, by all positions.

    −2 (v_ij − Σ q vf' (Σ q ff')⁺ f_ij): the frequencies answer a change of positions so that all sums stay.
    """
    q = balance(X, Y, p_rows, p_columns)[2]
    u_rows, u_columns = _share_out(q, p_rows, p_columns, i, j)
    weights = q * (u_rows[:, None] + u_columns)
    out = np.concatenate((
        weights.sum(axis=1)[:, None] * X - weights @ Y, weights.sum(axis=0)[:, None] * Y - weights.T @ X,
    ))  # fmt: skip
    delta = X[i] - Y[j]
    out[i] -= delta
    out[len(X) + j] += delta
    return 2 * out


def _share_out(q: F64, p_rows: F64, p_columns: F64, i: int, j: int) -> tuple[F64, F64]:
    """u with (Σ q ff') u = f_ij, by eliminating the longer side."""
    if len(p_rows) > len(p_columns):
        u_columns, u_rows = _share_out(q.T, p_columns, p_rows, j, i)
        return u_rows, u_columns
    right = np.zeros(len(p_rows))
    right[i] = 1
    right -= q[:, j] / p_columns[j]
    root = np.sqrt(p_rows)
    matrix = np.diag(q.sum(axis=1)) - (q / p_columns) @ q.T
    matrix = matrix / np.outer(root, root) + np.outer(root, root) + 1e-12 * np.eye(len(root))
    u_rows = np.linalg.solve(matrix, right / root) / root
    u_columns = -(q.T @ u_rows) / p_columns
    u_columns[j] += 1 / p_columns[j]
    return u_rows, u_columns
