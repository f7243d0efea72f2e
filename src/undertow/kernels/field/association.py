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

MAX_ROUNDS = 2000  # of balancing; a few dozen are typical
BALANCE_TOL = 1e-9  # relative error of the sums
MIN_EXPONENT = -600.0  # exponents are clipped here, so that e^{−d²} does not underflow to 0


def balance(X: F64, Y: F64, p_rows: F64, p_columns: F64) -> tuple[F64, F64, F64]:
    """log a, log b and p(i, j) with sums p_rows and p_columns, by alternately scaling rows and columns (Sinkhorn)."""
    exponent = -((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=2)
    nearest = exponent.max(axis=1)  # subtracted, or a row far from every column would underflow to 0
    K = np.exp(np.maximum(exponent - nearest[:, None], MIN_EXPONENT))
    b = p_columns
    for _ in range(MAX_ROUNDS):
        a = p_rows / (K @ b)
        sums = K.T @ a
        done = float(np.abs(b * sums / p_columns - 1).max()) < BALANCE_TOL
        b = p_columns / sums
        if done:
            break
    return np.log(a) - nearest, np.log(b), a[:, None] * K * b


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
        second = np.einsum("ij,jk,jl->ikl", p, partners, partners, optimize=True)
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
