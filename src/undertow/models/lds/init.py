"""Subspace identification: a linear dynamical system straight from lagged moments, by one singular value decomposition.

Ψ_k = C A^{k−1} G with G = A Π C' and Π = E[xx'], so the block Hankel matrix with blocks Ψ_{r+i−j} is the product of
Γ (blocks CA^{i−1}) and Δ (blocks A^{r−j}G). Its SVD gives both up to a change of coordinates. Equations: lds.md §5.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.gaussian.hankel import HankelSVD, hankel_svd, stacked
from undertow.kernels.gaussian.linalg import (
    RANK_TOLERANCE,
    clip_explained,
    orthonormal,
    project_psd,
    shrink_radius,
    symmetrize,
)
from undertow.kernels.gaussian.moments import LagOperator
from undertow.kernels.types import F64
from undertow.models.lds.em import EPSILON_D
from undertow.models.lds.params import LDSParams


def identify(
    operator: LagOperator,
    n_components: int,
    rng: np.random.Generator,
    *,
    ssid_lags: int = 4,
    oversample: int = 10,
    n_power: int = 1,
    epsilon: float = EPSILON_D,
) -> LDSParams:
    """Start parameters for EM from lags 1..2·ssid_lags − 1; `n_power` more passes sharpen the singular vectors."""
    check_size(operator, n_components)
    check_lags(ssid_lags)
    if 2 * ssid_lags - 1 > operator.n_lags:
        raise InputError(
            f"Subspace identification with ssid_lags={ssid_lags} needs lags 1 to {2 * ssid_lags - 1}, "
            f"but only {operator.n_lags} were counted."
        )
    svd = hankel_svd(operator, n_components, rng.standard_normal, r=ssid_lags, oversample=oversample, n_power=n_power)
    return realize(operator, svd, epsilon=epsilon)


def check_lags(ssid_lags: int) -> None:
    """Refuse one lag: Ψ_1 = C(AΠ)C' holds A only in a product, and there is no second block to shift to."""
    if ssid_lags < 2:
        raise InputError(
            f"Subspace identification with ssid_lags={ssid_lags} sees the transition only in a product with the "
            "covariance of the state: it needs ssid_lags=2 (lags 1 to 3) or more, or init='random'."
        )


def check_size(operator: LagOperator, n_components: int) -> None:
    """Refuse a state that is wider than the space of the words."""
    if not 1 <= n_components <= min(operator.dimension, operator.n_rows):
        raise InputError(
            f"{n_components} components need at least {n_components + 1} different words, but the text has "
            f"{operator.dimension + 1}: use fewer components or more text."
        )


def realize(operator: LagOperator, svd: HankelSVD, *, epsilon: float = EPSILON_D) -> LDSParams:
    """The system of a Hankel SVD: A from the shift of Γ or Δ, C and G from their ends, and Π, Q, M that fit them."""
    root = np.sqrt(np.maximum(svd.values, RANK_TOLERANCE * svd.values[0]))
    Gamma, Delta = svd.left * root.astype(svd.left.dtype), svd.right * root.astype(svd.right.dtype)
    C = operator.project(Gamma[0].astype(np.float64))
    GT = operator.project(Delta[-1].astype(np.float64))  # G = A Π C', so G' is V×h
    # Γ_{i+1} = Γ_i A, and Δ_j' = Δ_{j+1}' A' for the transposed blocks kept here
    A_after, error_after = _shift(Gamma[:-1], Gamma[1:])
    AT_before, error_before = _shift(Delta[1:], Delta[:-1])
    A = shrink_radius(A_after if error_after <= error_before else AT_before.T, 0.999)
    N = symmetrize(C.T @ C)
    Pi = project_psd(_ridge_solve(A, _ridge_solve(N, C.T @ GT).T), floor=1e-6)
    M = clip_explained(Pi, N, epsilon)
    Q = project_psd(M - A @ M @ A.T, floor=1e-6)
    return LDSParams(A, C, Q, M, operator.mu)


def random_start(operator: LagOperator, n_components: int, rng: np.random.Generator) -> LDSParams:
    """Parameters that know nothing of the text: random directions, a slow random rotation, unit innovations."""
    check_size(operator, n_components)
    h = n_components
    C = operator.project(rng.standard_normal((operator.n_rows, h)))
    C = orthonormal(C)
    A = 0.7 * np.linalg.qr(rng.standard_normal((h, h)))[0]
    # AA' = 0.49 I, so the stationary covariance is I/0.51; the state explains half of its directions' variance
    Pi = np.eye(h) / 0.51
    return LDSParams(A, operator.project(C) * np.sqrt(0.5 * 0.51), np.eye(h), Pi, operator.mu)


def extended_start(old: LDSParams, operator: LagOperator, fallback: NDArray[Any]) -> LDSParams:
    """Parameters of an earlier fit as the start under new frequencies, with rows for words that joined at the end.

    p(word i | state x) = μ_i + √μ_i C_i x, so √μ_i C_i stays what it was. A new word n is a share of what it was read
    as before, its class or the unknown word f: p(n | x) = (μ_n / μ_f) p(f | x), so C_n = √(μ_n / μ_f) C_f; where that
    was never read either, C_n = 0 and the word says nothing of the state until EM has seen its neighbors.
    """
    mu, n = operator.mu, len(old.mu)
    scale = np.sqrt(np.divide(old.mu, mu[:n], out=np.zeros_like(old.mu), where=mu[:n] > 0))
    C = np.zeros((len(mu), old.C.shape[1]))
    C[:n] = scale[:, None] * old.C
    f = fallback[n:]
    share = np.divide(mu[n:], mu[f], out=np.zeros(len(f)), where=mu[f] > 0)
    C[n:] = np.sqrt(np.minimum(share, 1))[:, None] * C[f]
    return old._replace(C=operator.project(C), mu=mu)


def _shift(before: NDArray[Any], after: NDArray[Any]) -> tuple[F64, float]:
    """The matrix A with after ≈ before A by least squares, and the share of `after` that is missed."""
    before, after = stacked(before), stacked(after)
    A = _ridge_solve((before.T @ before).astype(np.float64), (before.T @ after).astype(np.float64))
    missed, size = (float(np.linalg.norm(x)) for x in (after - before @ A.astype(before.dtype), after))
    return A, missed / max(size, 1e-300)


def _ridge_solve(X: F64, Y: F64, ridge: float = 1e-6) -> F64:
    """argmin_Z ‖XZ − Y‖² + (ridge·‖X‖)²‖Z‖², which is X^{-1}Y where X is well-conditioned."""
    u, s, vt = np.linalg.svd(X)
    solution: F64 = vt.T @ ((s / (s**2 + (ridge * max(s[0], 1e-300)) ** 2))[:, None] * (u.T @ Y))
    return solution
