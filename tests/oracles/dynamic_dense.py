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


def forecast_shares(counts: Any, gaps: Sequence[float]) -> Any:
    """Shares at the next step: of all ways to weigh recent and long-gone steps, the one that served best so far."""

    def ahead(t: int, decay: float, pseudo: float, weight: float) -> Any:
        """From the steps before t."""
        out = 0.0
        for rate, share in ((decay, 1 - weight), (1.0, weight)):
            sums = pseudo + sum(rate ** sum(gaps[s + 1 : t]) * counts[s] for s in range(t))
            out = out + share * sums / sums.sum()
        return out

    ways = [
        (d, p, w)
        for d in (0.2, 0.4, 0.6, 0.75, 0.9, 1.0) for p in (0.03, 0.1, 0.3, 1.0, 3.0) for w in (0.0, 0.25, 0.5, 0.75)
    ]  # fmt: skip
    if len(counts) < 3:
        return ahead(len(counts), 0.75, 0.3, 0.25)
    served = [sum((counts[t] * np.log(ahead(t, *way))).sum() for t in range(1, len(counts))) for way in ways]
    return ahead(len(counts), *ways[int(np.argmax(served))])


def presence(tables: Sequence[Any], gaps: Sequence[float], gap: float) -> tuple[Any, Any]:
    """π of the rows before it is mapped, and how many columns they meet; one row after the other."""
    a = len(tables[0])
    ages = [gap + sum(gaps[t + 1 :]) for t in range(len(tables))]
    shares = forecast_shares(np.array([np.log1p(10 * t).sum(axis=1) / np.log(11) for t in tables]), gaps)
    there, many = np.zeros(a), np.zeros(a)
    some = [t.sum() > 0 for t in tables]
    visits = [[float((t[i] > 0).any()) for t in tables] for i in range(a)]
    sizes = [[float((t[i] > 0).sum()) for t in tables] for i in range(a)]
    old = [0.7 ** (age - gap) for age in ages]
    usual = sum(w * s for row in sizes for w, s in zip(old, row, strict=True))
    usual /= sum(w * v for row in visits for w, v in zip(old, row, strict=True))
    pairs = np.mean([(t > 0).sum() for t in tables if t.sum() > 0][-3:])
    for i in range(a):
        n = sum(w * s for w, s in zip(old, sizes[i], strict=True))
        many[i] = (n + 0.5 * usual) / (sum(w * v for w, v in zip(old, visits[i], strict=True)) + 0.5)
        n = sum(0.8**age * v for age, v in zip(ages, visits[i], strict=True))
        by_visits = (n + 0.1) / (sum(0.8**age for age, s in zip(ages, some, strict=True) if s) + 1.0)
        there[i] = min(np.sqrt(by_visits * pairs * shares[i] / many[i]), 0.98)
    return there, many


def presence_map(tables: Sequence[Any], gaps: Sequence[float]) -> Any:
    """α and β by forecasts of the last six steps, of rows that were sure to be on the map; by Nelder and Mead."""
    least = min(sum(t[i].sum() for t in tables) for i in range(len(tables[0])))
    fewest = min(sum(t[i].any() for t in tables) for i in range(len(tables[0])))
    odds, came = [], []
    for s in range(max(2, len(tables) - 6), len(tables)):
        if not tables[s].any() or not any(t.any() for t in tables[:s]):
            continue
        told, _ = presence(tables[:s], gaps[:s], gaps[s])
        for i in range(len(told)):
            if sum(t[i].sum() for t in tables[:s]) >= least and sum(t[i].any() for t in tables[:s]) >= fewest:
                odds.append(np.log(told[i] / (1 - told[i])))
                came.append(float(tables[s][i].any()))
    if not odds:
        return np.array([0.0, 1.0])

    def loss(w: Any) -> float:
        z = w[0] + w[1] * np.array(odds)
        return float((np.logaddexp(0, z) - np.array(came) * z).sum() + (5 * w[0] ** 2 + 50 * (w[1] - 1) ** 2) / 2)

    options = {"xatol": 1e-10, "fatol": 1e-14, "maxiter": 10_000}
    return scipy.optimize.minimize(loss, [0.0, 1.0], method="Nelder-Mead", options=options).x


def link_rates(
    tables: Sequence[Any], gaps: Sequence[float], gap: float, mean: Any, cov: Any, weights: Any
) -> tuple[Any, Any]:
    """λ of all pairs at a step after the last, and π of the rows: one pair after the other; row sums by bisection."""
    (a, b), d = tables[0].shape, mean.shape[1]
    unit = float(np.median(gaps[1:]))
    gaps, gap = [g / unit for g in gaps], gap / unit
    ages = [gap + sum(gaps[t + 1 :]) for t in range(len(tables))]
    full = cov.ndim == 2

    def block(i: int, j: int) -> Any:
        if full:
            return cov[i * d : (i + 1) * d, j * d : (j + 1) * d]
        return cov[i] if i == j else np.zeros((d, d))

    popular = np.log(forecast_shares(np.array([np.log1p(10 * t).sum(axis=0) / np.log(11) for t in tables]), gaps))
    there, many = presence(tables, gaps, gap)
    odds = np.log(there / (1 - there))
    alpha, beta = presence_map(tables, gaps)
    there = np.minimum(1 / (1 + np.exp(-alpha - beta * odds)), 0.98)
    logs = np.zeros((a, b))
    for i in range(a):
        for j in range(b):
            apart = ((mean[i] - mean[a + j]) ** 2).sum()
            apart += np.trace(block(i, i) + block(a + j, a + j) - block(i, a + j) - block(a + j, i))
            m = sum(
                0.9 ** (age - gap) * np.log1p(10 * t[i, j]) / np.log(11) for age, t in zip(ages, tables, strict=True)
            )
            w = weights[int(m > 0)]
            logs[i, j] = w[0] + w[1] * popular[j] - w[2] * apart + w[3] * np.log1p(m)
        v = min(many[i], 0.95 * b)
        c = scipy.optimize.brentq(lambda c, i=i, v=v: -np.expm1(-np.exp(logs[i] + c)).sum() - v, -50, 50, xtol=1e-13)
        logs[i] += 0.5 * c + 0.5 * np.log(v)
    return np.exp(logs), there


def link_probabilities(
    tables: Sequence[Any], gaps: Sequence[float], gap: float, mean: Any, cov: Any, weights: Any
) -> Any:
    """π (1 − e^{−λ}) times one factor, by which all together are Σ π v e^{−κ/n}, n the steps a row was present at."""
    rates, there = link_rates(tables, gaps, gap, mean, cov, weights)
    out = there[:, None] * -np.expm1(-rates)
    unit = float(np.median(gaps[1:]))
    many = np.minimum(presence(tables, [g / unit for g in gaps], gap / unit)[1], 0.95 * out.shape[1])
    links, few = 0.0, 0.0
    for i, (p, v) in enumerate(zip(there, many, strict=True)):
        links += p * v
        few += p * v / sum(t[i].sum() > 0 for t in tables)
    factor = links * np.exp(-0.83 * few / links) / out.sum()
    return out * min(factor, 0.98 / out.max())


def free_probabilities(counts: Any, x: Any) -> Any:
    """p(i, j) = a_i b_j e^{−|x_i − x_j|²} with the table's sums, scaled by turns, slowly."""
    a = len(counts)
    q = np.array([[np.exp(-((x[i] - x[a + j]) ** 2).sum()) for j in range(counts.shape[1])] for i in range(a)])
    for _ in range(120):  # on tables of a few entities
        q = q * (counts.sum(axis=1) / counts.sum() / q.sum(axis=1))[:, None]
        q = q * (counts.sum(axis=0) / counts.sum() / q.sum(axis=0))
    return q


def free_log_likelihood(counts: Any, x: Any, beta: float = 1.0) -> float:
    """β Σ c_ij log p(i, j) with the best frequencies for these positions; x is (rows + columns, d)."""
    return float(beta * (counts * np.log(free_probabilities(counts, x))).sum())
