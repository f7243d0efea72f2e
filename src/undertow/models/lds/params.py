"""The linear dynamical system of text: its parameters, and its Kalman filter and smoother in the steady state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from undertow.errors import InputError
from undertow.kernels.gaussian.linalg import (
    check_covariance,
    check_finite,
    doubling_powers,
    solve_lyapunov,
    solve_riccati,
    sqrt_and_inverse,
    symmetrize,
)
from undertow.kernels.types import F64

ROUNDING = 1e-6  # what may be lost of an identity that a fit keeps up to rounding


class LDSParams(NamedTuple):
    """A hidden state moves linearly and emits whitened words.

    Word i has probability μ_i; the whitened one-hot of the token at t is w_t = diag(μ)^{-½}(e_{x_t} − μ), which lies in
    the complement of u = √μ. The story:

        x_{t+1} = A x_t + η_t,  η_t ~ N(0, Q)
        w_t     = C x_t + ε_t,  ε_t ~ N(0, D),  D = I − uu' − C M C'

    so that the noise is what the state leaves unexplained of the known covariance I − uu', and D needs no storage.
    """

    A: F64  # (h, h) transition, spectral radius below 1
    C: F64  # (V, h) emission in whitened coordinates, C'u = 0
    Q: F64  # (h, h) covariance of the state's innovation η
    M: F64  # (h, h) second moment of the state that the emission noise D is computed with
    mu: F64  # (V,) word probabilities μ of the smoothed text

    @property
    def n_components(self) -> int:
        return len(self.A)


def check_params(params: LDSParams) -> None:
    """Raise InputError unless the parameters tell the story above."""
    A, C, Q, M, mu = params
    if not mu.min() >= 0:
        raise InputError("the word probabilities hold a negative number.")
    if not abs(mu.sum() - 1) <= ROUNDING:
        raise InputError(f"the word probabilities sum to {mu.sum():.6g}, not to one.")
    radius = float(np.abs(np.linalg.eigvals(A)).max())
    if not radius < 1 + ROUNDING:
        raise InputError(f"the transition has the spectral radius {radius:.6g}, not below 1.")
    check_covariance(Q, "covariance of the innovation", ROUNDING)
    check_covariance(M, "second moment of the state", ROUNDING)
    if not np.abs(C.T @ np.sqrt(mu)).max() <= ROUNDING * max(1.0, float(np.abs(C).max())):
        raise InputError("the emission does not lie in the complement of the word frequencies.")
    root, _ = sqrt_and_inverse(symmetrize(C.T @ C))
    explained = float(np.linalg.eigvalsh(symmetrize(root @ M @ root))[-1])
    if not explained <= 1 + ROUNDING:
        raise InputError("the state explains more variance than the words have: the noise would be negative.")


class SteadyState(NamedTuple):
    """Gains and covariances of the filter m_t = H m_{t−1} + K w_t and the smoother s_t = J s_{t+1} + P m_t."""

    Sigma1: F64  # Σ1, covariance of x_t given w_{<t}
    Sigma0: F64  # Σ0, covariance of x_t given w_{≤t}
    K_c: F64  # the gain is K = K_c C', so a word adds K_c C_i/√μ_i to the state
    H: F64  # A − K C A
    J: F64  # smoother gain Σ0 A' Σ1^{-1}
    P: F64  # I − J A
    V_s: F64  # covariance of x_t given all words
    N: F64  # C'C
    E: F64  # (I + N(Σ1 − M))^{-1}: C'S⁺ = E C' for the innovation covariance S = I − uu' + C(Σ1 − M)C'
    logdet: float  # log det S on the complement of u


def steady_state(params: LDSParams) -> SteadyState:
    """The filter and smoother after many tokens, when their gains no longer change (lds.md §2)."""
    A, C, Q, M, _ = params
    h = len(A)
    check_finite(A, C, Q, M)
    N = symmetrize(np.asarray(C.T @ C, dtype=np.float64))
    root, _ = sqrt_and_inverse(N)
    # C'D⁺C = (N^{-1} − M)^{-1} without an inverse of N
    information = symmetrize(root @ np.linalg.solve(np.eye(h) - root @ M @ root, root))
    Sigma1 = solve_riccati(A, information, Q)
    inner = np.eye(h) + N @ (Sigma1 - M)
    sign, logdet = np.linalg.slogdet(inner)
    if not sign > 0:
        raise np.linalg.LinAlgError("the innovation covariance is not positive definite")
    E: F64 = np.linalg.inv(inner).astype(np.float64)
    K_c = Sigma1 @ E
    Sigma0 = symmetrize(Sigma1 - K_c @ N @ Sigma1)
    J: F64 = np.linalg.solve(Sigma1, A @ Sigma0).T.astype(np.float64)
    V_s = symmetrize(solve_lyapunov(doubling_powers(J), symmetrize(Sigma0 - J @ Sigma1 @ J.T)))
    H = A - K_c @ N @ A
    return SteadyState(Sigma1, Sigma0, K_c, H, J, np.eye(h) - J @ A, V_s, N, E, float(logdet))
