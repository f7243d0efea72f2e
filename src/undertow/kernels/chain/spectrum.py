"""Singular values of transitions, and the effective rank that they amount to.

The effective rank is exp(−Σ p log p) with p = σ/Σσ (Roy and Vetterli, 2007): Z for an orthogonal matrix, 1 for a matrix
of rank one, and in between the number of equally strong directions that would spread as much.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal, qr, svdvals

from undertow.kernels.types import F64

BREAKDOWN = 1e-6  # relative to the largest entry of the recursion: no direction is left that float32 products can tell


def entropy(p: NDArray[np.floating]) -> float:
    """−Σ p log p of a distribution, in nats."""
    p = np.asarray(p, dtype=np.float64)
    kept = p[p > 0]
    return float(-(kept * np.log(kept)).sum())


def row_entropies(rows: NDArray[np.floating]) -> F64:
    """(n,) entropies of the rows of (n, m) distributions, in nats."""
    logs = np.log(np.where(rows > 0, rows, 1))
    return np.asarray(-np.einsum("ij,ij->i", rows, logs, dtype=np.float64))


def effective_rank(singular_values: F64) -> float:
    """exp of the entropy of the singular values, divided by their sum."""
    return float(np.exp(entropy(singular_values / singular_values.sum())))


def product_singular_values(left: NDArray[np.floating], right: NDArray[np.floating]) -> F64:
    """The F largest singular values of left · right for (Z, F) and (F, Z); all others are zero. Costs Z F²."""
    small = qr(left.astype(np.float64), mode="r")[0][: left.shape[1]]
    other = qr(right.T.astype(np.float64), mode="r")[0][: left.shape[1]]
    return np.asarray(svdvals(small @ other.T))


def estimated_effective_rank(gram: Callable[[F64], F64], probes: F64, n_steps: int) -> tuple[float, float]:
    """Effective rank of T from products with T T' alone, by stochastic Lanczos quadrature, and its standard error.

    Σ f(σ²) is the trace of f(T T'); for a vector x of random signs, x' f(T T') x has this mean, and `n_steps` steps of
    Lanczos give a Gauss quadrature of it. The effective rank needs Σσ and Σ σ log σ.

    Parameters
    ----------
    gram
        (n, Z) → (n, Z), each row x as x T T'.
    probes
        (n, Z) random signs.
    n_steps
        Of Lanczos; at most Z.
    """
    n, Z = probes.shape
    squares, weights = lanczos_quadrature(gram, probes, min(n_steps, Z))
    values = np.sqrt(np.maximum(squares, 0))
    logs = np.log(np.where(values > 0, values, 1))
    sums = Z * (weights * values).sum(axis=1)  # (n,) each an estimate of Σσ
    products = Z * (weights * values * logs).sum(axis=1)  # and of Σ σ log σ

    def rank(s: NDArray[np.floating], e: NDArray[np.floating]) -> NDArray[np.floating]:
        return np.asarray(s * np.exp(-e / s))

    if n == 1:
        return float(rank(sums, products)[0]), float("inf")
    # the jackknife: the estimates without one probe each
    without = rank((sums.sum() - sums) / (n - 1), (products.sum() - products) / (n - 1))
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return float(rank(sums.mean(), products.mean())), float(error)


def lanczos_quadrature(gram: Callable[[F64], F64], probes: F64, n_steps: int) -> tuple[F64, F64]:
    """Nodes and weights (n, n_steps) such that Σ weights · f(nodes) ≈ x' f(A) x/x'x for each probe x.

    The basis is orthogonalized in full, twice a step, as without it Lanczos finds large eigenvalues again and again.
    """
    n, Z = probes.shape
    basis = np.zeros((n_steps, n, Z))
    basis[0] = probes / np.linalg.norm(probes, axis=1, keepdims=True)
    diagonal, beside = np.zeros((n, n_steps)), np.zeros((n, n_steps - 1))
    for j in range(n_steps):
        following = gram(basis[j])
        diagonal[:, j] = np.einsum("nz,nz->n", following, basis[j])
        if j + 1 == n_steps:
            break
        for _ in range(2):
            along = np.einsum("jnz,nz->jn", basis[: j + 1], following)
            following = following - np.einsum("jn,jnz->nz", along, basis[: j + 1])
        length = np.linalg.norm(following, axis=1)
        alive = length > BREAKDOWN * np.abs(diagonal[:, : j + 1]).max(axis=1)
        beside[:, j] = np.where(alive, length, 0)  # 0: the space is exhausted, and all later weights are zero
        basis[j + 1] = np.where(alive, 1 / np.where(alive, length, 1), 0)[:, None] * following
    nodes, weights = np.empty((n, n_steps)), np.empty((n, n_steps))
    for i in range(n):
        nodes[i], vectors = eigh_tridiagonal(diagonal[i], beside[i])
        weights[i] = vectors[0] ** 2
    return nodes, weights
