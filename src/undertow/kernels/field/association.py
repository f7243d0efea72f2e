"""The co-occurrence model of one time step with free frequencies: likelihood, score and information of positions.

p(i, j) = a_i b_j e^{−|δ_ij|²} with a and b such that p has the table's row and column sums: their maximum-likelihood
values, found anew for every set of positions. A change of frequencies alone then moves nobody. With the sums as
frequencies instead, as in `cooccurrence_field`, a word that stays where it is has to move when the rows around it go,
because its sum changes. Positions are known up to more than rotation: x_i·x_j between the kinds is all that is seen, so
that a linear map of one kind can be undone by its inverse on the other. What the table does not tell, the information
does not contain, and a table with one row or one column tells nothing.

Everything here is a dense table of all pairs: for a few hundred entities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_ROUNDS = 2000  # of the balancing; a few dozen are usual
BALANCED = 1e-9  # relative error of the sums
LEAST_EXPONENT = -600.0  # pairs that are farther apart than any other count as this: e^{−d²} is no zero


def balance(X: Array, Y: Array, p_rows: Array, p_columns: Array) -> tuple[Array, Array, Array]:
    """log a, log b and p(i, j), whose sums are p_rows and p_columns, by turns of scaling rows and columns."""
    exponent = -((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=2)
    nearest = exponent.max(axis=1)  # a row far from everything would be 0
    K = np.exp(np.maximum(exponent - nearest[:, None], LEAST_EXPONENT))
    b = p_columns
    for _ in range(MOST_ROUNDS):
        a = p_rows / (K @ b)
        sums = K.T @ a
        done = float(np.abs(b * sums / p_columns - 1).max()) < BALANCED
        b = p_columns / sums
        if done:
            break
    return np.log(a) - nearest, np.log(b), a[:, None] * K * b


def log_likelihood(
    counts: Any, p_rows: Array, p_columns: Array, X: Array, Y: Array, *, beta: float
) -> tuple[float, Array]:
    """The tempered log-likelihood and its score (a + w, d), rows first.

    The frequencies are at their best values, so that the score needs no derivative of them."""
    total = float(counts.sum())
    log_a, log_b, q = balance(X, Y, p_rows, p_columns)
    pulled = counts @ Y / total  # Σ_j p̄_ij x_j
    stress = p_rows @ (X**2).sum(axis=1) + p_columns @ (Y**2).sum(axis=1) - 2 * float((pulled * X).sum())
    score = 2 * np.concatenate((pulled - q @ Y, counts.T @ X / total - q.T @ X))
    scale = beta * total
    return scale * float(p_rows @ log_a + p_columns @ log_b - stress), scale * score


def information_blocks(
    total: float, p_rows: Array, p_columns: Array, X: Array, Y: Array, *, beta: float = 1.0
) -> Array:
    """(a + w, d, d) blocks: 4βN times an entity's sum times the variance of its partners' positions."""
    q = balance(X, Y, p_rows, p_columns)[2]
    out = []
    for p, mass, partners in ((q, p_rows, Y), (q.T, p_columns, X)):
        first = p @ partners
        second = np.einsum("ij,jk,jl->ikl", p, partners, partners, optimize=True)
        out.append(second - first[:, :, None] * first[:, None, :] / mass[:, None, None])
    blocks: Array = 4 * beta * total * np.concatenate(out)
    return blocks


def information_matrix(
    total: float, p_rows: Array, p_columns: Array, X: Array, Y: Array, *, beta: float = 1.0
) -> Array:
    """((a + w) d, (a + w) d) Fisher matrix of the positions, less what the free frequencies take of it.

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
    # scaled by the frequencies, which may differ by many orders; its one null vector is e of rows minus e of columns
    root = np.sqrt(np.diag(ff))
    taken = (
        (flat_vf / root) @ np.linalg.pinv(ff / np.outer(root, root), rcond=1e-12, hermitian=True) @ (flat_vf / root).T
    )
    out: Array = 4 * beta * total * (vv.reshape(n * d, n * d) - taken)
    return (out + out.T) / 2
