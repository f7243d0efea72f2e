"""Subspace identification: a linear dynamical system straight from lagged moments, by one singular value decomposition.

Ψ_k = C A^{k−1} G with G = A Π C' and Π = E[xx'], so the block Hankel matrix with blocks Ψ_{r+i−j} is the product of
Γ (blocks CA^{i−1}) and Δ (blocks A^{r−j}G). Its SVD gives both up to a change of coordinates. Equations: lds.md §5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.linalg import (
    RANK_TOLERANCE,
    Matrix,
    clip_explained,
    gram,
    orthonormal,
    project_psd,
    shrink_radius,
    symmetrize,
)
from undertow.kernels.moments import Array, LagOperator
from undertow.models.asos import EPSILON_D
from undertow.models.lds_params import LDSParams


class HankelSVD(NamedTuple):
    """Leading singular triplets of the block Hankel matrix; block i of `left` is left[i]."""

    left: Array  # (r, V, h)
    values: NDArray[np.float64]  # (h,)
    right: Array  # (r, V, h)


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
    svd = hankel_svd(operator, n_components, rng, r=ssid_lags, oversample=oversample, n_power=n_power)
    return realise(operator, svd, epsilon=epsilon)


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


def apply_hankel(operator: LagOperator, X: Array, *, transposed: bool = False) -> Array:
    """The block Hankel matrix times X, or its transpose times X; blocks are stacked, (r, V, n) → (r, V, n).

    Block (i, j) is Ψ_{r+i−j}. Each Ψ_k is applied once, to all the blocks that meet it side by side, so that the sparse
    matrices are read once a pass and not r² times.
    """
    r, _, n = X.shape
    out = np.zeros_like(X)
    for k in range(1, 2 * r):
        pairs = [(i, r + i - k) for i in range(r) if 0 <= r + i - k < r]
        if transposed:
            wide = operator.backward(k, np.concatenate([X[i] for i, _ in pairs], axis=1))
        else:
            wide = operator.forward(k, np.concatenate([X[j] for _, j in pairs], axis=1))
        for place, (i, j) in enumerate(pairs):
            out[j if transposed else i] += wide[:, place * n : (place + 1) * n]
    return out


def hankel_svd(
    operator: LagOperator, h: int, rng: np.random.Generator, *, r: int, oversample: int = 10, n_power: int = 1
) -> HankelSVD:
    """Randomised block-Krylov SVD: the blocks of every pass stay in the basis, so one power step already suffices."""
    V = operator.n_rows
    b = min(h + oversample, operator.dimension, V)
    block = rng.standard_normal((r, V, b)).astype(operator.dtype)
    flat = orthonormal(_flat(apply_hankel(operator, block)))
    if flat.shape[1] < h:
        # a text of fewer states than were asked for: the others begin as faint random directions
        flat = np.concatenate([flat, orthonormal(_flat(block[..., : h - flat.shape[1]]), against=[flat])], axis=1)
    left, images = [flat], []
    for step in range(n_power + 1):
        images.append(_flat(apply_hankel(operator, flat.reshape(r, V, -1), transposed=True)))
        if step == n_power:
            break
        turned = orthonormal(images[-1])
        flat = orthonormal(_flat(apply_hankel(operator, turned.reshape(r, V, -1))), against=left)
        if flat.shape[1] == 0:
            break
        left.append(flat)
    basis, image = np.concatenate(left, axis=1), np.concatenate(images, axis=1)
    # H ≈ basis image', so the SVD of the narrow image is the rest
    squares, turn = np.linalg.eigh(gram(image))
    values = np.sqrt(np.maximum(squares[::-1][:h], 0))
    if not values[0] > 64 * np.finfo(operator.dtype).eps:
        raise InputError("Every word of the text is independent of its neighbours, so there are no states to find.")
    turn = turn[:, ::-1][:, :h]
    right = image @ (turn / np.maximum(values, RANK_TOLERANCE * values[0])).astype(image.dtype)
    return HankelSVD((basis @ turn.astype(basis.dtype)).reshape(r, V, h), values, right.reshape(r, V, h))


def realise(operator: LagOperator, svd: HankelSVD, *, epsilon: float = EPSILON_D) -> LDSParams:
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


def _flat(X: Array) -> Array:
    return X.reshape(-1, X.shape[-1])


def _shift(before: Array, after: Array) -> tuple[Matrix, float]:
    """The matrix A with after ≈ before A by least squares, and the share of `after` that is missed."""
    before, after = _flat(before), _flat(after)
    A = _ridge_solve((before.T @ before).astype(np.float64), (before.T @ after).astype(np.float64))
    missed, size = (float(np.linalg.norm(x)) for x in (after - before @ A.astype(before.dtype), after))
    return A, missed / max(size, 1e-300)


def _ridge_solve(X: Matrix, Y: Matrix, ridge: float = 1e-6) -> Matrix:
    """argmin_Z ‖XZ − Y‖² + (ridge·‖X‖)²‖Z‖², which is X^{-1}Y where X is well-conditioned."""
    u, s, vt = np.linalg.svd(X)
    solution: Matrix = vt.T @ ((s / (s**2 + (ridge * max(s[0], 1e-300)) ** 2))[:, None] * (u.T @ Y))
    return solution
