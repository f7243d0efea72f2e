"""Exact gains of the Kalman filter and smoother from the first token on, also around missing tokens.

The covariances do not depend on the words, only on which tokens are missing. They are kept as a graph: a node is a
predicted covariance Σ_{t|t−1}, and from it leads one edge for an observed token and one for a missing one. Every
sentence starts at node 0 (the stationary covariance Π); a covariance within the tolerance of the steady one becomes
the steady node, so sentences share their edges, and a token missing in the middle of a text costs new ones only once.

In whitened coordinates with N = C'C and D = I − uu' − CMC' everything is h×h (lds.md §2): conditioning on w takes
K_c = Σ (I + N(Σ − M))^{-1} and sends the mean p to p + K_c (C'w − N p), where C'w = C_i/√μ_i for word i.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.gaussian.linalg import solve_riccati, symmetrize
from undertow.kernels.gaussian.recursions import Steps, memory_of
from undertow.kernels.types import F32, F64, I64


class Gains(NamedTuple):
    """The graph of covariances with the gains on its edges, and the model they belong to."""

    A: F64
    Q: F64
    N: F64
    M: F64
    tol: float
    predicted: tuple[F64, ...]  # Σ_{t|t−1} of each node; node 0 is Π
    edge: I64  # (nodes, 2): the edge for an observed and for a missing token, −1 where not yet tabulated
    target: I64  # (edges,): the node behind each edge
    gain: tuple[F32, ...]  # K_c of each edge, zero where the token is missing
    backward: tuple[F32, ...]  # J = Σ_{t|t} A' Σ_{t+1|t}^{-1} of each edge
    steady: int  # the steady node
    gap: float  # relative distance of the last tabulated covariance before the steady one from it

    @property
    def n_edges(self) -> int:
        return len(self.gain)


def condition(Sigma: F64, N: F64, M: F64) -> tuple[F64, F64]:
    """K_c and the filtered covariance, given the predicted one."""
    K_c = _solve((np.eye(len(N)) + N @ (Sigma - M)).T, Sigma).T
    return K_c, symmetrize(Sigma - K_c @ N @ Sigma)


def predict(Sigma_filt: F64, A: F64, Q: F64) -> tuple[F64, F64]:
    """The next predicted covariance and the smoother's gain J that leads back from it."""
    Sigma_pred = symmetrize(A @ Sigma_filt @ A.T + Q)
    return Sigma_pred, _solve(Sigma_pred, A @ Sigma_filt).T


def gain_at_missing(A: F64, Q: F64, Sigma1: F64, V_s: F64) -> F64:
    """The steady smoother's J at a missing token, given the steady predicted and smoothed covariances.

    The filtered covariance of a missing token is the predicted Σ1, so the token after it is predicted with
    Σ2 = A Σ1 A' + Q, and RTS asks for Σ1 A' Σ2^{-1}. But the steady filter weighs that token as if it had been
    predicted with Σ1, which pulls its smoothed mean too little: s − p = V_s r where (Σ2^{-1} + Ω)^{-1} r is right, with
    Ω = V_s^{-1} − Σ1^{-1} the information in all that follows. The factor between the two belongs in the gain, and
    Σ1 A' Σ2^{-1} (Σ2^{-1} + Ω)^{-1} V_s^{-1} = Σ1 A' (Σ2 − V_s Σ1^{-1} (Σ2 − Σ1))^{-1}. So the missing token and all
    before it get their exact smoothed means if the next missing token and the end are far. It is stable: with
    Y = Ω^{-1} + Σ1 and X = Ω^{-1} + Σ2 it is similar to A'X^{-1}Y, and AYA' ⪯ X because Ω ⪰ A'(Q + Ω^{-1})^{-1}A.
    """
    Sigma2 = symmetrize(A @ Sigma1 @ A.T + Q)
    right = Sigma2 - V_s @ _solve(Sigma1, Sigma2 - Sigma1)
    return _solve(right.T, A @ Sigma1).T


def exact_gains(A: F64, Q: F64, N: F64, M: F64, Pi: F64, tol: float = 1e-6, most: int = 64) -> Gains:
    """Gains of the first steps from Σ_{1|0} = Π until the covariance is steady within tol, at most `most` of them."""
    A, Q, N, M, Pi = (np.asarray(X, dtype=np.float64) for X in (A, Q, N, M, Pi))
    information: F64 = _solve(np.eye(len(N)) - N @ M, N)  # (N^{-1} − M)^{-1}, also for singular N
    Sigma1 = solve_riccati(A, symmetrize(information), Q)
    path = [Pi]
    while len(path) < most and distance(path[-1], Sigma1) > tol:
        path.append(predict(condition(path[-1], N, M)[1], A, Q)[0])
    gap = distance(path[-1], Sigma1)
    if gap <= tol:
        path.pop()
    nodes = (*path, Sigma1)
    steady = len(path)
    none = np.empty(0, dtype=np.int64)
    empty = Gains(A, Q, N, M, tol, nodes, np.full((steady + 1, 2), -1), none, (), (), steady, gap)
    grown = _Growth(empty)
    for node in range(steady + 1):
        grown.add(node, 0, min(node + 1, steady))
    return grown.gains()


def cover(gains: Gains, missing: NDArray[np.bool_], begin: I64, length: I64, most_edges: int) -> tuple[Gains, I64, int]:
    """Gains for the missing patterns of these sentences, the edge of each of their tokens, and how many are covered.

    Sentences are taken in order until the graph has most_edges edges; the first is always covered.
    """
    grown = _Growth(gains)
    edges = np.empty(int(length.sum()), dtype=np.int64)
    done = at = 0
    for start, n in zip(begin.tolist(), length.tolist(), strict=True):
        if done and grown.n_edges >= most_edges:
            break
        t = node = 0
        while True:
            t, node = _walk(missing[start : start + n], grown.edge, grown.target, edges[at : at + n], t, node)
            if t == n:
                break
            grown.add(node, int(missing[start + t]))
        at += n
        done += 1
    return grown.gains(), edges[:at], done


def steps_of(gains: Gains) -> Steps:
    """The matrices of the recursions, a kind of step for each edge."""
    A, N = gains.A, gains.N
    eye = np.eye(len(A))
    h = len(A)
    forward = np.empty((gains.n_edges, h, h), dtype=np.float32)
    backward = np.empty((gains.n_edges, 2 * h, h), dtype=np.float32)
    NA = N @ A
    for e, (K_c, J) in enumerate(zip(gains.gain, gains.backward, strict=True)):
        forward[e] = (A - K_c @ NA).T
        backward[e, :h] = (eye - J @ A).T
        backward[e, h:] = J.T
    K_c = gains.gain[gains.edge[gains.steady, 0]]
    J = gains.backward[gains.edge[gains.steady, 0]]
    gain = np.stack([K.T for K in gains.gain])
    return Steps(forward, backward, gain, max(memory_of(A - K_c @ NA), memory_of(J)))


def posterior_covariances(missing: NDArray[np.bool_], A: F64, Q: F64, N: F64, M: F64, Pi: F64) -> tuple[F64, F64]:
    """Filtered and smoothed covariances (T, h, h) of the states of one sentence, given which tokens are missing."""
    n, h = len(missing), len(A)
    filtered, predicted, back = np.empty((n, h, h)), np.empty((n + 1, h, h)), np.empty((n, h, h))
    predicted[0] = Pi
    for t in range(n):
        filtered[t] = predicted[t] if missing[t] else condition(predicted[t], N, M)[1]
        predicted[t + 1], back[t] = predict(filtered[t], A, Q)
    smoothed = filtered.copy()
    for t in range(n - 2, -1, -1):
        smoothed[t] += symmetrize(back[t] @ (smoothed[t + 1] - predicted[t + 1]) @ back[t].T)
    return filtered, smoothed


def _solve(X: F64, Y: F64) -> F64:
    """`np.linalg.solve`, whose result NumPy types as any float."""
    return np.asarray(np.linalg.solve(X, Y), dtype=np.float64)


def distance(X: F64, Y: F64) -> float:
    """Relative to Y, in the Frobenius norm."""
    return float(np.linalg.norm(X - Y) / np.linalg.norm(Y))


class _Growth:
    """A graph while it grows, in lists and in arrays with room to spare."""

    def __init__(self, gains: Gains) -> None:
        self.start = gains
        self.predicted, self.gain, self.backward = list(gains.predicted), list(gains.gain), list(gains.backward)
        self.edge = np.concatenate([gains.edge, np.full((len(gains.edge) + 64, 2), -1)])
        self.target = np.concatenate([gains.target, np.full(len(gains.edge) + 64, -1)])

    @property
    def n_edges(self) -> int:
        return len(self.gain)

    def add(self, node: int, is_missing: int, target: int | None = None) -> None:
        """The edge from a node; a covariance near that of the target, Π or the steady one does not make a new node."""
        g = self.start
        Sigma = self.predicted[node]
        K_c, Sigma_filt = (np.zeros_like(Sigma), Sigma) if is_missing else condition(Sigma, g.N, g.M)
        Sigma_next, J = predict(Sigma_filt, g.A, g.Q)
        if target is None:
            near = [k for k in (g.steady, 0) if distance(Sigma_next, self.predicted[k]) <= g.tol]
            target = near[0] if near else len(self.predicted)
        if target == len(self.predicted):
            self.predicted.append(Sigma_next)
        e = self.n_edges
        self.gain.append(K_c.astype(np.float32))
        self.backward.append(J.astype(np.float32))
        if max(len(self.predicted), e + 1) >= min(len(self.edge), len(self.target)):
            self.edge = np.concatenate([self.edge, np.full_like(self.edge, -1)])
            self.target = np.concatenate([self.target, np.full_like(self.target, -1)])
        self.edge[node, is_missing] = e
        self.target[e] = target

    def gains(self) -> Gains:
        return self.start._replace(
            predicted=tuple(self.predicted),
            edge=self.edge[: len(self.predicted)].copy(),
            target=self.target[: self.n_edges].copy(),
            gain=tuple(self.gain),
            backward=tuple(self.backward),
        )


@njit(cache=True, nogil=True)
def _walk(missing: Any, edge: Any, target: Any, out: Any, t: Any, node: Any) -> Any:
    """Write the edge of each token from t on, until the end or an edge that is not in the graph: (t, node) there."""
    while t < len(missing):
        e = edge[node, 1 if missing[t] else 0]
        if e < 0:
            break
        out[t] = e
        node = target[e]
        t += 1
    return t, node
