"""Singular values of transitions, and the effective rank that they amount to.

The effective rank is exp(−Σ p log p) with p = σ/Σσ (Roy and Vetterli, 2007): Z for an orthogonal matrix, 1 for a matrix
of rank one, and in between the number of equally strong directions that would spread as much.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    """Effective rank of T from products with T T' alone, by stochastic Lanczos quadrature, and its error.

    Σ f(σ²) is the trace of f(T T'); for a vector x of random signs, x' f(T T') x has this mean, and `n_steps` steps of
    Lanczos give a Gauss quadrature of it. The effective rank needs Σσ and Σ σ log σ. Few steps cannot tell small
    singular values apart and give too large a rank, so the error has two parts: the jackknife over the probes, and
    the difference to the estimate after half of the steps.

    Parameters
    ----------
    gram
        (n, Z) → (n, Z), each row x as x T T' or x T'T.
    probes
        (n, Z) random signs, n ≥ 2.
    n_steps
        Of Lanczos; at most Z.
    """
    diagonal, beside = lanczos(gram, probes, min(n_steps, probes.shape[1]))
    value, spread = _rank_from(diagonal, beside, probes.shape[1])
    half = (diagonal.shape[1] + 1) // 2
    coarse, _ = _rank_from(diagonal[:, :half], beside[:, : half - 1], probes.shape[1])
    return value, float(np.hypot(spread, value - coarse))


def _rank_from(diagonal: F64, beside: F64, Z: int) -> tuple[float, float]:
    """The estimate from the matrices of Lanczos, one a probe, and its standard error by the jackknife."""
    n = len(diagonal)
    sums, products = np.empty(n), np.empty(n)  # each an estimate of Σσ, and of Σ σ log σ
    for i in range(n):
        squares, vectors = eigh_tridiagonal(diagonal[i], beside[i])
        values, weights = np.sqrt(np.maximum(squares, 0)), Z * vectors[0] ** 2
        sums[i] = weights @ values
        products[i] = weights @ (values * np.log(np.where(values > 0, values, 1)))

    def rank(s: Any, e: Any) -> Any:
        return s * np.exp(-e / s)

    without = rank((sums.sum() - sums) / (n - 1), (products.sum() - products) / (n - 1))  # one probe each
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return float(rank(sums.mean(), products.mean())), float(error)


def lanczos(gram: Callable[[F64], F64], probes: F64, n_steps: int) -> tuple[F64, F64]:
    """Diagonals (n, n_steps) and off-diagonals (n, n_steps − 1) of the tridiagonal matrices, one a probe.

    The basis is orthogonalized in full, twice a step: without it Lanczos finds large eigenvalues again and again.
    """
    n, Z = probes.shape
    basis = np.zeros((n, n_steps, Z))
    basis[:, 0] = probes / np.linalg.norm(probes, axis=1, keepdims=True)
    diagonal, beside = np.zeros((n, n_steps)), np.zeros((n, n_steps - 1))
    for j in range(n_steps):
        following = gram(basis[:, j])
        diagonal[:, j] = (following * basis[:, j]).sum(axis=1)
        if j + 1 == n_steps:
            break
        before = basis[:, : j + 1]
        for _ in range(2):
            along = before @ following[:, :, None]  # (n, j + 1, 1)
            following = following - (along.transpose(0, 2, 1) @ before)[:, 0]
        length = np.linalg.norm(following, axis=1)
        alive = length > BREAKDOWN * np.abs(diagonal[:, : j + 1]).max(axis=1)
        beside[:, j] = np.where(alive, length, 0)  # 0: the space is exhausted, and what follows has no weight
        basis[:, j + 1] = np.where(alive, 1 / np.where(alive, length, 1), 0)[:, None] * following
    return diagonal, beside
