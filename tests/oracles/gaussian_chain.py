"""Slow truth for linear Gaussian chains over whitened one-hot words, in float64 and with explicit V-vectors.

x_1 ~ N(0, Π), x_{t+1} = A x_t + N(0, Q), w_t = C x_t + N(0, D) with D = I − uu' − CMC', where word i is observed as
w = e_i/√μ_i − u. D is singular along u, and so is w; everything is written in an orthonormal basis B of u^⊥.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag, null_space, solve_discrete_are, solve_discrete_lyapunov, sqrtm


class Model(NamedTuple):
    A: np.ndarray
    C: np.ndarray
    Q: np.ndarray
    M: np.ndarray
    Pi: np.ndarray
    mu: np.ndarray

    @property
    def N(self):
        return self.C.T @ self.C

    @property
    def basis(self):
        return null_space(np.sqrt(self.mu)[None])

    @property
    def words(self):
        """(V, V − 1): the observation of each word in the basis of u^⊥."""
        return (np.diag(self.mu**-0.5) - np.sqrt(self.mu)) @ self.basis

    @property
    def loading(self):
        return self.basis.T @ self.C

    @property
    def noise(self):
        u = np.sqrt(self.mu)
        D = np.eye(len(u)) - np.outer(u, u) - self.C @ self.M @ self.C.T
        return self.basis.T @ D @ self.basis

    @property
    def statistics(self):
        """(V, h): C_i/√μ_i, the table of `smooth_exact`."""
        return self.C / np.sqrt(self.mu)[:, None]


def random_model(h, V, seed, radius=0.9):
    """A valid model: ρ(A) = radius, C'u = 0, Q positive definite, M the stationary covariance clipped so that D ⪰ 0."""
    rng = np.random.default_rng(seed)
    mu = rng.dirichlet(np.ones(V)) * 0.7 + 0.3 / V
    u = np.sqrt(mu)
    A = rng.standard_normal((h, h))
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    root = rng.standard_normal((h, h))
    Q = root @ root.T / h + 0.1 * np.eye(h)
    Pi = solve_discrete_lyapunov(A, Q)
    C = rng.standard_normal((V, h))
    C -= np.outer(u, u @ C)
    C *= np.sqrt(0.8 / np.linalg.norm(C @ Pi @ C.T, 2)) * 2  # some directions of M will have to be clipped
    N_root = np.real(sqrtm(C.T @ C))
    values, vectors = np.linalg.eigh(N_root @ Pi @ N_root)
    inverse = np.linalg.inv(N_root)
    M = inverse @ (vectors * np.clip(values, 1e-6, 0.9)) @ vectors.T @ inverse
    return Model(A, C, Q, (M + M.T) / 2, Pi, mu)


class Steady(NamedTuple):
    A: np.ndarray
    H: np.ndarray
    J: np.ndarray
    J_missing: np.ndarray
    table: np.ndarray


def steady_state(model):
    """Steady gains through the V − 1 dimensional Riccati equation; the table is K w_i, word by word."""
    A, C, D = model.A, model.loading, model.noise
    Sigma1 = solve_discrete_are(A.T, C.T, model.Q, D)
    K = Sigma1 @ C.T @ np.linalg.inv(C @ Sigma1 @ C.T + D)
    Sigma0 = Sigma1 - K @ C @ Sigma1
    J = Sigma0 @ A.T @ np.linalg.inv(Sigma1)
    V_s = solve_discrete_lyapunov(J, Sigma0 - J @ Sigma1 @ J.T)
    # a missing token leaves Σ2 for the next one, which the steady filter takes with Σ1; Ω is what the future tells
    Sigma2 = A @ Sigma1 @ A.T + model.Q
    Omega = np.linalg.inv(V_s) - np.linalg.inv(Sigma1)
    right_share = np.linalg.inv(np.linalg.inv(Sigma2) + Omega) @ np.linalg.inv(V_s)
    J_missing = Sigma1 @ A.T @ np.linalg.inv(Sigma2) @ right_share
    return Steady(A, A - K @ C @ A, J, J_missing, model.words @ K.T)


def loop_smoother(sentence, missing, steady):
    """m_t = H m_{t−1} + E[w_t], s_t = m_t + J (s_{t+1} − A m_t), one token after the other; A for H where missing."""
    A, H, J, J_missing, table = steady
    T, h = len(sentence), len(A)
    filtered, smoothed = np.zeros((T, h)), np.zeros((T, h))
    m = np.zeros(h)
    for t in range(T):
        m = A @ m if missing[t] else H @ m + table[sentence[t]]
        filtered[t] = m
    for t in range(T - 1, -1, -1):
        back = J_missing if missing[t] else J
        smoothed[t] = filtered[t] if t == T - 1 else filtered[t] + back @ (smoothed[t + 1] - A @ filtered[t])
    return filtered, smoothed


def dense_kalman(sentence, missing, model):
    """Time-varying Kalman filter and RTS smoother: means and covariances, filtered and smoothed."""
    A, C, D, words = model.A, model.loading, model.noise, model.words
    T, h = len(sentence), len(A)
    means, covs, pred_means, pred_covs = [], [], [], []
    p, S = np.zeros(h), model.Pi
    for t in range(T):
        pred_means.append(p)
        pred_covs.append(S)
        if not missing[t]:
            K = S @ C.T @ np.linalg.inv(C @ S @ C.T + D)
            p, S = p + K @ (words[sentence[t]] - C @ p), S - K @ C @ S
        means.append(p)
        covs.append(S)
        p, S = A @ p, A @ S @ A.T + model.Q
    s_means, s_covs = list(means), list(covs)
    for t in range(T - 2, -1, -1):
        J = covs[t] @ A.T @ np.linalg.inv(pred_covs[t + 1])
        s_means[t] = means[t] + J @ (s_means[t + 1] - pred_means[t + 1])
        s_covs[t] = covs[t] + J @ (s_covs[t + 1] - pred_covs[t + 1]) @ J.T
    shape = (T, h, h)
    vectors = np.reshape(means, (T, h)), np.reshape(s_means, (T, h))
    return *vectors, np.reshape(covs, shape), np.reshape(s_covs, shape)


def joint_gaussian(sentence, missing, model):
    """The same four, by conditioning the joint Gaussian of all states on all (or all earlier) observations."""
    A, C, words = model.A, model.loading, model.words
    T, h = len(sentence), len(A)
    prior = np.zeros((T * h, T * h))
    for a in range(T):
        for b in range(a + 1):
            block = np.linalg.matrix_power(A, a - b) @ model.Pi
            prior[a * h : a * h + h, b * h : b * h + h] = block
            prior[b * h : b * h + h, a * h : a * h + h] = block.T

    def condition(seen):
        if not seen:
            return np.zeros((T, h)), [prior[t * h : t * h + h, t * h : t * h + h] for t in range(T)]
        G = np.zeros((len(seen) * len(C), T * h))
        for row, t in enumerate(seen):
            G[row * len(C) : (row + 1) * len(C), t * h : t * h + h] = C
        y = np.concatenate([words[sentence[t]] for t in seen])
        gain = np.linalg.solve(G @ prior @ G.T + block_diag(*[model.noise] * len(seen)), G @ prior).T
        posterior = prior - gain @ G @ prior
        return (gain @ y).reshape(T, h), [posterior[t * h : t * h + h, t * h : t * h + h] for t in range(T)]

    seen = [t for t in range(T) if not missing[t]]
    until = [condition([s for s in seen if s <= t]) for t in range(T)]
    filtered = np.reshape([until[t][0][t] for t in range(T)], (T, h))
    filtered_cov = np.reshape([until[t][1][t] for t in range(T)], (T, h, h))
    smoothed, smoothed_cov = condition(seen)
    return filtered, smoothed, filtered_cov, np.reshape(smoothed_cov, (T, h, h))
