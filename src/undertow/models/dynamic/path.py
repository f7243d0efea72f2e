"""Inference of the whole path at once: its mode, and the filter and smoother linearized about it.

A filter commits itself at every step before it has seen the next, and falls back on its prior at a step with few
counts. The mode of the whole path avoids both and uses each count once. It is found by quasi-Newton steps
preconditioned with a smoother that treats entities one at a time; the preconditioner does not affect where the search
ends. Linearized about the mode, the smoother's means are the mode in either covariance form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from undertow.kernels.field.cooccurrence import Table, information_blocks, log_likelihood
from undertow.kernels.field.quasi_newton import Maximum, maximize
from undertow.kernels.types import F64
from undertow.models.dynamic.filter import Noise, Path, Settings


class PathProblem(NamedTuple):
    """The data, prior and search starts of a path; they stay the same while the drift is learned."""

    gaps: Sequence[float]
    tables: list[Table | None]
    n_rows: int
    anchor: F64  # (n, d) prior mean of the first step
    starts: list[F64]  # (T, n, d) initial paths; the best result is kept
    initial_variance: float  # τ²


def infer_path(problem: PathProblem, noise: Noise, settings: Settings, start: F64 | None) -> tuple[Path, F64]:
    """The filtered path and its mode, searched from `start`, or from all starts of the problem if it is None."""
    tables, gaps, anchor = problem.tables, problem.gaps, problem.anchor
    starts = problem.starts if start is None else [start]
    modes = [path_mode(tables, gaps, anchor, noise, settings, x) for x in starts]
    mode = max(modes, key=lambda m: m.value)
    return linearized_filter(tables, gaps, anchor, noise, settings, mode), mode.x


def path_mode(
    tables: Sequence[Table | None], gaps: Sequence[float], anchor: F64, noise: Noise, settings: Settings, start: F64
) -> Maximum:
    """The most probable path (T, n, d), searched from `start`; `value` is the log posterior up to prior constants.

    `anchor` (n, d) is the prior mean of the first step.
    """
    weights = [1 / noise.initial, *(1 / (g * noise.drift) for g in gaps[1:])]  # precision of each move

    def log_posterior(x: F64) -> tuple[float, F64]:
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
    return maximize(log_posterior, start, lambda x: _metric(x, tables, weights, settings), tol=tol)


def _metric(x: F64, tables: Sequence[Table | None], weights: Sequence[F64], settings: Settings) -> Callable[[F64], F64]:
    """v ↦ M⁻¹v, M the prior precision plus Fisher blocks: a block-tridiagonal system per entity."""
    T, n, d = x.shape
    eye = np.eye(d)
    inverses: list[F64] = []
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

    def solve(v: F64) -> F64:
        out = v.copy()
        for t in range(1, T):
            out[t] += weights[t][:, None] * (inverses[t - 1] @ out[t - 1][:, :, None])[:, :, 0]
        out[-1] = (inverses[-1] @ out[-1][:, :, None])[:, :, 0]
        for t in range(T - 2, -1, -1):
            carried = out[t] + weights[t + 1][:, None] * out[t + 1]
            out[t] = (inverses[t] @ carried[:, :, None])[:, :, 0]
        return out

    return solve


def linearized_filter(
    tables: Sequence[Table | None],
    gaps: Sequence[float],
    anchor: F64,
    noise: Noise,
    settings: Settings,
    mode: Maximum,
) -> Path:
    """The filter of the model linearized about its mode, with the Laplace evidence of all tables."""
    form, x = settings.form, mode.x
    mean, cov = anchor, form.isotropic(noise.initial, x.shape[2])
    means, covs, log_ratio = [], [], 0.0
    for t, table in enumerate(tables):
        if t:
            cov = form.diffuse(cov, gaps[t] * noise.drift)
        if table is not None:
            precision, logdet = form.invert(cov)
            information = form.information(table, x[t], settings.beta, settings.n_threads)
            posterior = form.add(precision, information, table.present)
            _, score = log_likelihood(table, x[t, table.rows], x[t, table.columns], beta=settings.beta)
            cov, minus_logdet = form.invert(posterior)
            # Λ(x − m) + s, with Λ = posterior − prior precision
            pull = form.multiply(posterior, x[t] - mean) - form.multiply(precision, x[t] - mean)
            pull[table.present] += score
            mean = mean + form.multiply(cov, pull)
            log_ratio += 0.5 * (logdet + minus_logdet)
        means.append(mean)
        covs.append(cov)
    return Path(np.array(means), np.array(covs), mode.value + log_ratio)
