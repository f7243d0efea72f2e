"""The co-occurrence model and its filter, slowly: sums over all pairs one at a time, dense joint Gaussians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.optimize


def log_likelihood(counts: Any, x: Any, beta: float = 1.0) -> float:
    """β Σ c_ij log p(i, j) with the table's own frequencies, and the pull to one centre; x is (rows + columns, d)."""
    a = len(counts)
    total = counts.sum()
    p, q = counts.sum(axis=1) / total, counts.sum(axis=0) / total
    weight = np.array(
        [[p[i] * q[j] * np.exp(-((x[i] - x[a + j]) ** 2).sum()) for j in range(len(q))] for i in range(a)]
    )
    apart = p @ x[:a] - q @ x[a:]
    return float(beta * ((counts * np.log(weight / weight.sum())).sum() - 0.5 * total * (apart**2).sum()))


def centring(counts: Any, d: int) -> Any:
    """The Hessian of ½|Σ p̄_i x_i − Σ p̄_j x_j|²."""
    w = np.concatenate((counts.sum(axis=1), -counts.sum(axis=0))) / counts.sum()
    return np.kron(np.outer(w, w), np.eye(d))


def gradient(function: Callable[[Any], float], x: Any, step: float = 1e-5) -> Any:
    out = np.zeros(x.size)
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = step
        out[k] = (function(x + e.reshape(x.shape)) - function(x - e.reshape(x.shape))) / (2 * step)
    return out.reshape(x.shape)


def hessian(function: Callable[[Any], float], x: Any, step: float = 1e-4) -> Any:
    columns = []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = step
        e = e.reshape(x.shape)
        columns.append((gradient(function, x + e, step) - gradient(function, x - e, step)).ravel() / (2 * step))
    return np.array(columns)


def probabilities(counts: Any, x: Any) -> Any:
    a = len(counts)
    p, q = counts.sum(axis=1) / counts.sum(), counts.sum(axis=0) / counts.sum()
    weight = np.outer(p, q) * np.exp(-((x[:a, None] - x[None, a:]) ** 2).sum(axis=2))
    return weight / weight.sum()


def fisher(counts: Any, x: Any, beta: float = 1.0) -> Any:
    """N times the covariance of the score of one count, pair by pair: −2(v_ij − E v)."""
    (n, d), a = x.shape, len(counts)
    q = probabilities(counts, x)
    mean, square = np.zeros(n * d), np.zeros((n * d, n * d))
    for i in range(a):
        for j in range(n - a):
            v = np.zeros((n, d))
            v[i], v[a + j] = x[i] - x[a + j], x[a + j] - x[i]
            mean += q[i, j] * v.ravel()
            square += q[i, j] * np.outer(v.ravel(), v.ravel())
    return beta * counts.sum() * (4 * (square - np.outer(mean, mean)) + centring(counts, d))


def taylor(counts: Any, x: Any, beta: float = 1.0) -> Any:
    """N (2B + λ Λ̄) of the paper's appendix with H22 = H11, block by block, and the pull to one centre."""
    (n, d), a = x.shape, len(counts)
    total = counts.sum()
    joint, p, q = counts / total, counts.sum(axis=1) / total, counts.sum(axis=0) / total
    B, bar, Z = np.zeros((n, d, n, d)), np.zeros((n, d, n, d)), 0.0
    for i in range(a):
        for j in range(n - a):
            k, delta = a + j, x[i] - x[a + j]
            g = np.exp(-(delta**2).sum())
            H11 = 2 * g * (2 * np.outer(delta, delta) - np.eye(d))
            Z += p[i] * q[j] * g
            for r, c, sign in ((i, i, 1), (k, k, 1), (i, k, -1), (k, i, -1)):
                bar[r, :, c, :] += sign * p[i] * q[j] * H11
                B[r, :, c, :] += sign * joint[i, j] * np.eye(d)
    return beta * total * ((2 * B + bar / Z).reshape(n * d, n * d) + centring(counts, d))


def laplace(counts: Any, mean: Any, cov: Any, start: Any, beta: float = 1.0) -> tuple[Any, Any]:
    """Mode of the posterior by a general optimiser, and the inverse of prior precision plus Fisher's matrix there."""
    precision = np.linalg.inv(cov)

    def loss(flat: Any) -> float:
        away = flat - mean.ravel()
        return -log_likelihood(counts, flat.reshape(mean.shape), beta) + 0.5 * float(away @ precision @ away)

    found = scipy.optimize.minimize(loss, start.ravel(), method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    x = found.x.reshape(mean.shape)
    return x, np.linalg.inv(precision + fisher(counts, x, beta))


def path_posterior(
    informations: Sequence[Any], linear: Sequence[Any], anchor: Any, start: Any, steps: Sequence[Any]
) -> tuple[Any, Any]:
    """All steps as one Gaussian: observations with precision Λ_t and Λ_t y_t = linear_t, a random walk between.

    start: covariance of the first step about the anchor; steps[t]: covariance of x_t − x_{t−1}, for t ≥ 1.
    """
    T, m = len(informations), len(anchor)
    big, rhs = np.zeros((T * m, T * m)), np.zeros(T * m)
    big[:m, :m] += np.linalg.inv(start)
    rhs[:m] += np.linalg.solve(start, anchor)
    for t in range(T):
        here = slice(t * m, (t + 1) * m)
        big[here, here] += informations[t]
        rhs[here] += linear[t]
        if t:
            before, W = slice((t - 1) * m, t * m), np.linalg.inv(steps[t])
            big[here, here] += W
            big[before, before] += W
            big[here, before] -= W
            big[before, here] -= W
    cov = np.linalg.inv(big)
    return (cov @ rhs).reshape(T, m), cov
