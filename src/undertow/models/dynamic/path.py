"""The whole path at once: its most probable course, and the filter and smoother expanded about it.

A filter alone commits itself at every step before it has seen the next, and a step with little data falls back on its
prior. The path's mode has neither fault and uses each count once. It is found by quasi-Newton steps in the metric of a
smoother that takes entities one at a time; where it ends does not depend on that metric. Expanded about the mode, the
model is linear, and the smoother's means are the mode whatever form the covariances have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from undertow.kernels.field.cooccurrence import Table, information_blocks, log_likelihood
from undertow.kernels.field.quasi_newton import Maximum, maximise
from undertow.models.dynamic.filter import Array, Noise, Path, Settings


def path_mode(
    tables: Sequence[Table | None], gaps: Sequence[float], anchor: Array, noise: Noise, settings: Settings, start: Array
) -> Maximum:
    """The most probable path (T, n, d), searched from `start`; `value` lacks only the prior's constants.

    The first step has the mean `anchor` (n, d)."""
    weights = [
        1 / noise.start,
        *(1 / (g * noise.drift) for g in gaps[1:]),
    ]  # precision of each step from the one before

    def log_posterior(x: Array) -> tuple[float, Array]:
        steps = np.diff(x, axis=0, prepend=anchor[None])
        pull = np.stack([w[:, None] * s for w, s in zip(weights, steps, strict=True)])
        value = -0.5 * float((pull * steps).sum())
        gradient = -pull
        gradient[:-1] += pull[1:]
        for t, table in enumerate(tables):
            if table is not None:
                one, score = log_likelihood(
                    table, x[t, table.rows], x[t, table.columns], beta=settings.beta, n_threads=settings.n_threads
                )
                value += one
                gradient[t, table.present] += score
        return value, gradient

    tol = settings.tol * sum(len(t.present) for t in tables if t is not None)
    return maximise(log_posterior, start, lambda x: _metric(x, tables, weights, settings), tol=tol)


def _metric(
    x: Array, tables: Sequence[Table | None], weights: Sequence[Array], settings: Settings
) -> Callable[[Array], Array]:
    """v ↦ M⁻¹v for M the prior's precision plus Fisher's blocks: a tridiagonal system for every entity."""
    T, n, d = x.shape
    eye = np.eye(d)
    inverses: list[Array] = []
    for t, table in enumerate(tables):
        ahead = weights[t + 1] if t + 1 < T else np.zeros(n)
        block = (weights[t] + ahead)[:, None, None] * eye
        if t:
            block -= (weights[t] ** 2)[:, None, None] * inverses[-1]
        if table is not None:
            block[table.present] += information_blocks(
                table, x[t, table.rows], x[t, table.columns], beta=settings.beta, n_threads=settings.n_threads
            )
        inverses.append(np.asarray(np.linalg.inv(block), dtype=np.float64))

    def solve(v: Array) -> Array:
        out = v.copy()
        for t in range(1, T):
            out[t] += weights[t][:, None] * (inverses[t - 1] @ out[t - 1][:, :, None])[:, :, 0]
        out[-1] = (inverses[-1] @ out[-1][:, :, None])[:, :, 0]
        for t in range(T - 2, -1, -1):
            carried = out[t] + weights[t + 1][:, None] * out[t + 1]
            out[t] = (inverses[t] @ carried[:, :, None])[:, :, 0]
        return out

    return solve


def expanded_filter(
    tables: Sequence[Table | None],
    gaps: Sequence[float],
    anchor: Array,
    noise: Noise,
    settings: Settings,
    mode: Maximum,
) -> Path:
    """The filter of the model made linear about a path, with Laplace's evidence of all tables."""
    form, x = settings.form, mode.x
    mean, cov = anchor, form.isotropic(noise.start, x.shape[2])
    means, covs, log_ratio = [], [], 0.0
    for t, table in enumerate(tables):
        if t:
            cov = form.diffuse(cov, gaps[t] * noise.drift)
        if table is not None:
            precision, logdet = form.invert(cov)
            information = form.information(table, x[t], settings.observation, settings.beta, settings.n_threads)
            posterior = form.add(precision, information, table.present)
            _, score = log_likelihood(table, x[t, table.rows], x[t, table.columns], beta=settings.beta)
            cov, minus_logdet = form.invert(posterior)
            # Λ(x − m) + s, with Λ = posterior − prior precision
            pull = form.times(posterior, x[t] - mean) - form.times(precision, x[t] - mean)
            pull[table.present] += score
            mean = mean + form.times(cov, pull)
            log_ratio += 0.5 * (logdet + minus_logdet)
        means.append(mean)
        covs.append(cov)
    return Path(np.array(means), np.array(covs), mode.value + log_ratio)
