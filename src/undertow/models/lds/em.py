"""EM for the linear dynamical system from lagged moments alone (ASOS): an iteration costs nothing in tokens.

The second-order statistics of the steady filter and smoother obey recursions over the lag, in which text appears only
through the products Ψ_kC; beyond the horizon of L lags the model's own prediction stands in. One implementation serves
the whole vocabulary and a reduced basis: both are a `LagOperator`. Equations: lds.md §3 and §4.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.gaussian.linalg import (
    check_finite,
    clip_explained,
    doubling_powers,
    leading_range,
    orthonormal,
    project_psd,
    shrink_radius,
    solve_lyapunov,
    symmetrize,
)
from undertow.kernels.gaussian.moments import LagOperator, reduce_moments
from undertow.kernels.types import F64
from undertow.models.fitting import Iteration
from undertow.models.lds.params import LDSParams, SteadyState, steady_state

# Least share of variance left to the noise in any direction. EM crawls where there is nearly none: on the bundled books
# (5,000 words, 50 components) 0.2 ends better after 400 iterations than 0.01, and better after 100 than 0.01 after 400.
EPSILON_D = 0.2
MAX_RADIUS = 1 - 1e-6  # of A; closer to 1 the stationary covariances lose all digits
FIT_CALLER = 6  # frames from em_iterations to the line that called `fit`: two generators, the loop, _run_em and fit
HORIZON_ROUNDS = 60  # of the fixed point that joins E[mm'] and the horizon; 2 to 6 are usual


class LikelihoodWarning(UserWarning):
    """EM stopped early because the likelihood fell; the best parameters were kept."""


class FilterMoments(NamedTuple):
    """What the filtered means say of each other and of words, all h×h."""

    X: list[F64]  # X_k = E[m_{t+k} m_t'], k = 0..L
    r1: F64  # C'R_1 with R_1 = E[w_{t+1} m_t']


class Statistics(NamedTuple):
    """Expected second moments of a stationary sequence: what the M-step needs, and the likelihood at hand."""

    E_xxT: F64  # (h, h) E[x_t x_t']
    E_xnextxT: F64  # (h, h) E[x_{t+1} x_t']
    E_wxT: F64  # (V or b, h) E[w_t x_t']
    log_likelihood: float  # per token, of the parameters that the statistics were computed with


def filter_moments(steady: SteadyState, A: F64, Phi: list[F64]) -> FilterMoments:
    """Moments of the filtered means from Φ_k = C'Ψ_kC, k = 1..L.

    Beyond the horizon the model predicts from the present, R_{L+1} = E[w_{t+L+1} m_t'] = C A^{L+1} X_0. Predicting from
    the horizon itself, CA·X_L, is sharper for fixed parameters, but X_L then feeds on itself: on real text EM drives
    the slowest state to ρ(A) = 1 and the likelihood to nonsense within 60 iterations, where this form is stable.
    """
    K_c, H, N = steady.K_c, steady.H, steady.N
    L = len(Phi)
    driven = [F @ K_c.T for F in Phi]  # C'Ψ_kK'
    powers = doubling_powers(H)
    known = np.zeros_like(A)  # C'R_1 as far as it does not depend on the horizon
    for term in reversed(driven):
        known = known @ H.T + term
    ahead = N @ np.linalg.matrix_power(A, L + 1)
    H_L = np.linalg.matrix_power(H, L)
    noise = K_c @ N @ K_c.T

    def stationary(X_0: F64) -> F64:  # X_0 = HX_0H' + KR_1H' + HR_1'K' + KΨ_0K'
        cross = K_c @ (known + ahead @ X_0 @ H_L.T) @ H.T
        return symmetrize(solve_lyapunov(powers, cross + cross.T + noise))

    X_0 = stationary(np.zeros_like(A))
    for _ in range(HORIZON_ROUNDS):
        new = stationary(X_0)
        change = float(np.abs(new - X_0).max()) / float(np.abs(new).max())
        X_0 = new
        if change <= 1e-12:
            break
    else:
        if change > 1e-6:
            raise LinAlgError("the moments of the filter did not settle: the horizon is too short for these parameters")
    check_positive(X_0, "filtered")

    r = ahead @ X_0
    Kr = []
    for term in reversed(driven):  # R_k = R_{k+1}H' + Ψ_kK'
        r = r @ H.T + term
        Kr.append(K_c @ r)
    X = [X_0]
    for term in reversed(Kr):  # X_k = H X_{k−1} + K R_k
        X.append(H @ X[-1] + term)
    return FilterMoments(X, r)


def check_positive(X: F64, name: str) -> None:
    """Raise LinAlgError for a second moment that no sequence has: what follows from it would be nonsense."""
    values = np.linalg.eigvalsh(X)
    if not values[0] >= -1e-6 * values[-1]:
        raise LinAlgError(f"the second moment of the {name} states is not positive, as the horizon is too short")


def smoother_coefficients(steady: SteadyState, L: int) -> tuple[list[F64], F64]:
    """T_{−L}..T_L with E[w_t s_t'] = Σ_k Ψ_kC T_k + R_{L+1} Z, and Z.

    Unrolls E[w_{t+k}s_t'] = E[w_{t+k−1}s_t']J' + R_kP', started at k = −L by R_{−L}, and R_k = R_{k+1}H' + Ψ_kK'.
    """
    K_c, H, J, P = steady.K_c, steady.H, steady.J, steady.P
    JT_power = [np.eye(len(J))]
    for _ in range(L):
        JT_power.append(JT_power[-1] @ J.T)
    Z = JT_power[L]
    T = [K_c.T @ Z]
    for k in range(-L + 1, L + 1):
        Z = H.T @ Z
        if k <= 0:
            Z = Z + P.T @ JT_power[-k]
        T.append(K_c.T @ Z)
    return T, H.T @ Z


def log_likelihood(steady: SteadyState, A: F64, filtered: FilterMoments, dimension: int) -> float:
    """Mean log density of the innovations w_t − CAm_{t−1} on the complement of u, per token (lds.md §4)."""
    N, E = steady.N, steady.E
    h = len(A)
    trace_noise = dimension - h + np.trace(E)  # tr(S⁺Ψ_0), as tr(I − E) is what the state explains
    trace_cross = np.sum(A * (E @ filtered.r1))  # tr(S⁺CAR_1')
    trace_state = np.sum((E @ N @ A @ filtered.X[0]) * A)  # tr(S⁺CAX_0A'C')
    return float(
        -0.5 * (dimension * math.log(2 * math.pi) + steady.logdet + trace_noise - 2 * trace_cross + trace_state)
    )


def e_step(operator: LagOperator, params: LDSParams) -> Statistics:
    """Statistics of the smoothed states with the operator's lags as horizon: two products a lag are the whole cost."""
    A, L = params.A, operator.n_lags
    steady = steady_state(params)
    J, P = steady.J, steady.P
    T, Z = smoother_coefficients(steady, L)
    C = np.ascontiguousarray(params.C, dtype=operator.dtype)
    T_ = [t.astype(operator.dtype) for t in T]  # T_[L + k] belongs to Ψ_k
    Phi = []
    E_wsT = C @ T_[L]
    for k in range(1, L + 1):
        B = operator.forward(k, C)
        Phi.append((C.T @ B).astype(np.float64))
        E_wsT += B @ T_[L + k]
        E_wsT += operator.backward(k, C) @ T_[L - k]
    filtered = filter_moments(steady, A, Phi)
    X = filtered.X
    E_wsT += C @ (np.linalg.matrix_power(A, L + 1) @ X[0] @ Z).astype(operator.dtype)

    G = X[L]  # G_k = E[s_{t+k} m_t'] = J G_{k+1} + P X_k
    for k in range(L - 1, 0, -1):
        G = J @ G + P @ X[k]
    cross = J @ G @ P.T
    S0 = symmetrize(solve_lyapunov(doubling_powers(J), cross + cross.T + P @ X[0] @ P.T))
    check_positive(S0, "smoothed")
    S1 = S0 @ J.T + G @ P.T
    return Statistics(
        E_xxT=S0 + steady.V_s,
        E_xnextxT=S1 + steady.V_s @ J.T,
        E_wxT=E_wsT.astype(np.float64),
        log_likelihood=log_likelihood(steady, A, filtered, operator.dimension),
    )


def evaluate(operator: LagOperator, params: LDSParams) -> float:
    """The likelihood alone, at half the cost of an E-step."""
    steady = steady_state(params)
    C = np.ascontiguousarray(params.C, dtype=operator.dtype)
    Phi = [(C.T @ operator.forward(k, C)).astype(np.float64) for k in range(1, operator.n_lags + 1)]
    return log_likelihood(steady, params.A, filter_moments(steady, params.A, Phi), operator.dimension)


def m_step(
    operator: LagOperator,
    stats: Statistics,
    params: LDSParams,
    *,
    update_Q: bool = True,
    epsilon: float = EPSILON_D,
) -> LDSParams:
    """The parameters that fit the statistics best; `update_Q=False` keeps the innovation covariance as it is."""
    E_xxT = project_psd(stats.E_xxT, floor=1e-12)
    inverse = np.linalg.inv(E_xxT)
    A = shrink_radius(stats.E_xnextxT @ inverse, MAX_RADIUS)
    C = operator.project(stats.E_wxT @ inverse)
    Q = params.Q
    if update_Q:
        # the form that also holds for an A that was shrunk
        cross = A @ stats.E_xnextxT.T
        Q = project_psd(E_xxT - cross - cross.T + A @ E_xxT @ A.T, floor=1e-10)
    M = clip_explained(E_xxT, C.T @ C, epsilon)
    check_finite(A, C, Q, M)
    return LDSParams(A, C, Q, M, params.mu)


class EMState(NamedTuple):
    """What EM needs to go on after an iteration."""

    number: int
    params: LDSParams
    best: LDSParams
    best_value: float
    stats: Statistics | None


class StagedState(NamedTuple):
    """What `staged_iterations` need to go on: those of a stage, and the basis if it is the first."""

    n_done: int
    basis: NDArray[Any] | None
    em: EMState


def em_iterations(
    operator: LagOperator,
    params: LDSParams,
    n_iter: int,
    *,
    update_Q: bool = True,
    epsilon: float = EPSILON_D,
    tolerance: float = 1e-3,
    resume_from: EMState | None = None,
) -> Iterator[Iteration[LDSParams]]:
    """EM from `params`: the start first, then each iteration with its likelihood and the best parameters so far.

    The horizon makes EM approximate. When the likelihood falls by more than `tolerance` nats per token, or a step
    fails, EM ends with a `LikelihoodWarning`. `resume_from` is the state after an iteration of an earlier run.

    Raises
    ------
    InputError
        If the likelihood of the start cannot be computed.
    """
    best, best_value = params, -math.inf
    stats: Statistics | None = None
    first = 0
    if resume_from is not None:
        number, params, best, best_value, stats = resume_from
        first = number + 1
    for number in range(first, n_iter + 1):
        try:
            if stats is not None:
                params = m_step(operator, stats, params, update_Q=update_Q, epsilon=epsilon)
            if number < n_iter:
                stats = e_step(operator, params)
                value = stats.log_likelihood
            else:
                value = evaluate(operator, params)  # half the cost of an E-step that nothing would use
            fell = not value >= best_value - tolerance  # also for NaN
            trouble = f"the likelihood fell from {best_value:.4f} to {value:.4f}" if fell else ""
        except LinAlgError as error:
            trouble = str(error)
        if trouble and number == 0:
            raise InputError(f"EM cannot start from these parameters: {trouble}.")
        if trouble:
            message = f"EM stopped after iteration {number - 1} with the best parameters so far: {trouble}."
            warnings.warn(message, LikelihoodWarning, stacklevel=FIT_CALLER)
            return
        if value >= best_value:
            best, best_value = params, value
        yield Iteration(value, best, state=partial(EMState, number, params, best, best_value, stats))


class BasisParams(NamedTuple):
    """Parameters whose C may be in the coordinates of a reduced basis.

    Lifting C to the vocabulary costs more than an iteration within the basis, so it is done once, after the last one.
    """

    params: LDSParams
    basis: NDArray[Any] | None  # None: C is over the vocabulary

    def lifted(self) -> LDSParams:
        """The parameters over the vocabulary."""
        return self.params if self.basis is None else from_basis(self.params, self.basis)


def staged_iterations(
    moments: LagOperator,
    params: LDSParams,
    *,
    n_iter: int,
    n_full: int,
    n_extra: int,
    update_Q: bool = True,
    resume_from: StagedState | None = None,
) -> Iterator[Iteration[BasisParams]]:
    """`n_iter` EM iterations within a reduced basis with `n_extra` directions beside C, then `n_full` over all words.

    The start is yielded only if no iteration follows, so that there is always one.
    """
    n_done, at = (0, None) if resume_from is None else (resume_from.n_done, resume_from.em)
    if n_iter and (resume_from is None or resume_from.basis is not None):
        if resume_from is None or resume_from.basis is None:
            basis = reduced_basis(moments, params, n_extra)
            params = into_basis(params, basis)
        else:
            basis = resume_from.basis
        steps = em_iterations(reduce_moments(moments, basis), params, n_iter, update_Q=update_Q, resume_from=at)
        best = next(steps).params if at is None else at.best
        for step in steps:
            best = step.params
            n_done += 1
            yield Iteration(step.objective, BasisParams(best, basis), state=_staged(n_done, basis, step))
        params, at = from_basis(best, basis), None
    if n_full or not n_done:
        steps = em_iterations(moments, params, n_full, update_Q=update_Q, resume_from=at)
        start = next(steps) if at is None else None
        for step in steps:
            n_done += 1
            yield Iteration(step.objective, BasisParams(step.params, None), state=_staged(n_done, None, step))
        if not n_done:
            assert start is not None
            yield Iteration(start.objective, BasisParams(start.params, None))


def _staged(n_done: int, basis: NDArray[Any] | None, step: Iteration[LDSParams]) -> Callable[[], StagedState]:
    assert step.state is not None
    em = step.state
    return lambda: StagedState(n_done, basis, em())


def reduced_basis(operator: LagOperator, params: LDSParams, n_extra: int) -> NDArray[Any]:
    """An orthonormal basis of C and of the n_extra leading directions of all Ψ_kC and Ψ_k'C: where EM would take C.

    It costs the products of one full iteration, and holds far more of EM's path than as many columns of the leading
    range of the Ψ_k themselves.
    """
    C = orthonormal(np.ascontiguousarray(params.C, dtype=operator.dtype))
    n_extra = min(n_extra, operator.dimension - C.shape[1])
    if n_extra <= 0:
        return C
    steps = []
    for k in range(1, operator.n_lags + 1):
        for product in (operator.forward(k, C), operator.backward(k, C)):
            steps.append(product - C @ (C.T @ product))
    extra = leading_range(np.concatenate(steps, axis=1), n_extra)
    return np.concatenate([C, orthonormal(operator.project(extra), against=[C])], axis=1)


def into_basis(params: LDSParams, basis: NDArray[Any]) -> LDSParams:
    """The parameters in the coordinates of an orthonormal basis, which must hold the columns of C."""
    return params._replace(C=np.asarray(basis.T @ params.C, dtype=np.float64))


def from_basis(params: LDSParams, basis: NDArray[Any]) -> LDSParams:
    """The parameters over the vocabulary again."""
    return params._replace(C=np.asarray(basis @ params.C, dtype=np.float64))
