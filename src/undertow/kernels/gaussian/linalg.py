"""Small dense linear algebra of stationary linear systems: all is h×h but the orthonormal bases at the end.

Doubling replaces the fixed-point iterations: each step squares the contraction, so about ten products give what a
fixed point needs a thousand for. Everything raises `numpy.linalg.LinAlgError` rather than return NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.types import F64

MAX_DOUBLINGS = 50  # 2^50 steps of the recursion: a radius of 1 - 1e-14 would still have converged
RANK_TOLERANCE = 1e-6  # singular values below this share of the largest are rounding of float32
HUGE = 1e60  # powers beyond it only grow, and their products would overflow


def symmetrize(X: F64) -> F64:
    """(X + X') / 2: takes away the rounding that makes a symmetric matrix a little asymmetric."""
    return 0.5 * (X + X.T)


def check_finite(*matrices: NDArray[np.floating]) -> None:
    """Raise LinAlgError if any entry is NaN or infinite."""
    if not all(np.isfinite(X).all() for X in matrices):
        raise LinAlgError("a matrix has entries that are not finite")


def check_covariance(X: NDArray[np.floating], what: str, tolerance: float) -> None:
    """Raise InputError unless X, or each matrix of a stack of them, is symmetric and positive semidefinite.

    `tolerance` is how far below zero, as a share of its largest variance, an eigenvalue may come out by rounding.
    """
    stack = np.asarray(X, dtype=np.float64).reshape(-1, *X.shape[-2:])
    step = max(1, (1 << 20) // max(1, stack[:1].size))  # a copy of that many numbers at a time
    for start in range(0, len(stack), step):
        some = stack[start : start + step]
        largest = np.diagonal(some, axis1=1, axis2=2).max(axis=1)
        if not (largest > 0).all():
            raise InputError(f"the {what} has no positive variance.")
        if not (np.abs(some - some.swapaxes(1, 2)).max(axis=(1, 2)) <= 1e-6 * largest).all():
            raise InputError(f"the {what} is not symmetric.")
        try:
            np.linalg.cholesky(some + (tolerance * largest)[:, None, None] * np.eye(some.shape[-1]))
        except LinAlgError:
            raise InputError(f"the {what} has a negative eigenvalue: it is not a covariance.") from None


def project_psd(X: F64, floor: float = 0.0) -> F64:
    """The nearest symmetric matrix whose eigenvalues are at least `floor` times the largest (and 0)."""
    values, vectors = _eigh(X)
    low = floor * max(float(values[-1]), 0.0)
    if values[0] >= low:
        return symmetrize(X)
    return symmetrize((vectors * np.maximum(values, low)) @ vectors.T)


def sqrt_and_inverse(N: F64, floor: float = 1e-13) -> tuple[F64, F64]:
    """N^½ and N^{-½} of a psd matrix; eigenvalues below `floor` times the largest are raised to it."""
    values, vectors = _eigh(N)
    if values[-1] <= 0:
        raise LinAlgError("the square root of a matrix without a positive eigenvalue was asked for")
    root = np.sqrt(np.maximum(values, floor * values[-1]))
    return symmetrize((vectors * root) @ vectors.T), symmetrize((vectors / root) @ vectors.T)


def clip_explained(M: F64, N: F64, epsilon: float, tiny: float = 1e-10) -> F64:
    """M with the eigenvalues of N^½MN^½ clipped to [tiny, 1 − epsilon], direction by direction.

    They are the shares of the variance that the state explains: at 1 the noise covariance I − CMC' is singular.
    """
    root, inverse = sqrt_and_inverse(N)
    values, vectors = _eigh(root @ M @ root)
    if values[0] >= tiny and values[-1] <= 1 - epsilon:
        return symmetrize(M)
    inner = (vectors * np.clip(values, tiny, 1 - epsilon)) @ vectors.T
    return symmetrize(inverse @ inner @ inverse)


def spectral_radius(A: F64) -> float:
    check_finite(A)
    return float(np.abs(np.linalg.eigvals(A)).max())


def shrink_radius(A: F64, limit: float) -> F64:
    """A, scaled down if its spectral radius is above `limit`."""
    radius = spectral_radius(A)
    return A if radius <= limit else A * (limit / radius)


def solve_riccati(A: F64, G: F64, Q: F64) -> F64:
    """X = A X (I + G X)^{-1} A' + Q for psd G and Q, by structure-preserving doubling.

    With G = C'D⁺C it is the predicted covariance of the steady Kalman filter. Equivalent to
    `scipy.linalg.solve_discrete_are(A.T, F.T, Q, I)` with F'F = G.
    """
    check_finite(A, G, Q)
    h = len(A)
    F, G, X = A.T, symmetrize(G), symmetrize(Q)
    for _ in range(MAX_DOUBLINGS):
        half = np.linalg.solve(np.eye(h) + G @ X, np.hstack([F, G]))
        step = symmetrize(F.T @ X @ half[:, :h])
        F, G, X = F @ half[:, :h], symmetrize(G + F @ half[:, h:] @ F.T), X + step
        check_finite(F, G, X)
        if np.abs(F).max() > HUGE:
            break
        if np.abs(step).max() <= 1e-15 * np.abs(X).max():
            return X
    raise LinAlgError("the Riccati equation did not converge: is the pair (A, C) detectable?")


def doubling_powers(F: F64) -> list[F64]:
    """F, F², F⁴, … until they vanish: what `solve_lyapunov` needs of F, to share between right-hand sides."""
    check_finite(F)
    powers = [F]
    for _ in range(MAX_DOUBLINGS):
        size = np.abs(powers[-1]).max()
        if size <= 1e-10:  # its square times X is beyond double precision
            return powers
        if size > HUGE:
            break
        powers.append(powers[-1] @ powers[-1])
    raise LinAlgError("the Lyapunov equation has no stationary solution: the spectral radius is not below 1")


def solve_lyapunov(powers: Sequence[F64], W: F64) -> F64:
    """X = F X F' + W, given `doubling_powers(F)`. Equivalent to `scipy.linalg.solve_discrete_lyapunov(F, W)`."""
    X = W
    for F in powers:
        X = X + F @ X @ F.T
    check_finite(X)
    return X


def gram(X: NDArray[Any]) -> F64:
    """X'X in double precision, a slice of rows at a time."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, len(X), 8192):
        part = X[start : start + 8192].astype(np.float64)
        total += part.T @ part
    return total


def orthonormal(X: NDArray[Any], against: Sequence[NDArray[Any]] = ()) -> NDArray[Any]:
    """Orthonormal columns with the numerical range of a tall X, outside the ranges of `against`.

    By the Gram matrix, which is many times faster than Householder's QR on tall matrices; twice, as once leaves
    rounding. Directions that are rounding beside the largest are left out, so the result may be narrower than X.
    """
    size = float(np.linalg.norm(X))
    for _ in range(2):
        for done in against:
            X = X - done @ (done.T @ X)
        values, vectors = np.linalg.eigh(gram(X))
        lengths = np.sqrt(np.maximum(values, 0))
        keep = lengths > max(RANK_TOLERANCE * size, 1e-12)
        X = X @ (vectors[:, keep] / lengths[keep]).astype(X.dtype)
        size = 1.0
    return X


def leading_range(X: NDArray[Any], n: int) -> NDArray[Any]:
    """The n leading left singular directions of a tall X, each scaled by its singular value."""
    _, vectors = np.linalg.eigh((X.T @ X).astype(np.float64))
    out: NDArray[Any] = X @ vectors[:, ::-1][:, :n].astype(X.dtype)
    return out


def _eigh(X: F64) -> tuple[F64, F64]:
    check_finite(X)
    values, vectors = np.linalg.eigh(symmetrize(X))
    return values, vectors
