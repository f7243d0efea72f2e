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
from undertow.models.dynamic.filter import Noise, Path, Settings, smooth_path
from undertow.models.dynamic.frame import best_frame, determined_shares, move_precisions


class PathProblem(NamedTuple):
    """The data, prior and search starts of a path; they stay the same while the drift is learned."""

    gaps: Sequence[float]
    tables: list[Table | None]
    n_rows: int
    anchor: F64  # (n, d) prior mean of the first step
    starts: list[F64]  # (T, n, d) initial paths; the best result is kept
    initial_variance: float  # τ², where it is not learned with the drift
    best_frame: bool = False  # move the path to the frame of largest posterior mass; with free frequencies


def infer_path(problem: PathProblem, noise: Noise, settings: Settings, start: F64 | None) -> tuple[Path, F64]:
    """The filtered path and its mode, searched from `start`, or from all starts of the problem if it is None."""
    tables, gaps, anchor = problem.tables, problem.gaps, problem.anchor
    starts = problem.starts if start is None else [start]
    modes = [path_mode(tables, gaps, anchor, noise, settings, x) for x in starts]
    mode = max(modes, key=lambda m: m.value)
    if not problem.best_frame:
        return linearized_filter(tables, gaps, anchor, noise, settings, mode), mode.x
    center = in_best_frame(problem, noise, settings, mode)
    return linearized_filter(tables, gaps, anchor, noise, settings, center, is_mode=False), mode.x


def in_best_frame(problem: PathProblem, noise: Noise, settings: Settings, mode: Maximum) -> Maximum:
    """The mode moved to the frame of largest posterior mass, and the log posterior there; see `frame`."""
    tables, gaps = problem.tables, problem.gaps
    settings = settings._replace(covariance="blocks")
    smoothed, moves = smooth_path(
        linearized_filter(tables, gaps, problem.anchor, noise, settings, mode), gaps, noise, settings.form
    )
    precisions = move_precisions(gaps, noise)
    determined = determined_shares(smoothed.covs[0], moves.variance, precisions, mode.x.shape[2])
    x = best_frame(mode.x, problem.n_rows, precisions, determined.sum(axis=0))
    value = log_posterior(tables, problem.anchor, precisions, settings, x)[0]
    return mode._replace(x=x, value=value)


def path_mode(
    tables: Sequence[Table | None], gaps: Sequence[float], anchor: F64, noise: Noise, settings: Settings, start: F64
) -> Maximum:
    """The most probable path (T, n, d), searched from `start`; `value` is the log posterior up to prior constants.

    `anchor` (n, d) is the prior mean of the first step.
    """
    precisions = move_precisions(gaps, noise)
    tol = settings.tol * sum(len(t.present) for t in tables if t is not None)
    return maximize(
        lambda x: log_posterior(tables, anchor, precisions, settings, x),
        start,
        lambda x: _metric(x, tables, precisions, settings),
        tol=tol,
    )


def log_posterior(
    tables: Sequence[Table | None], anchor: F64, precisions: F64, settings: Settings, x: F64
) -> tuple[float, F64]:
    """The log posterior of a path, up to prior constants, and its gradient."""
    pull = prior_pull(anchor, precisions, x)
    value = -0.5 * float((precisions[:, :, None] * np.diff(x, axis=0, prepend=anchor[None]) ** 2).sum())
    gradient = -pull
    for t, table in enumerate(tables):
        if table is not None:
            one, score = log_likelihood(
                table, x[t, table.rows], x[t, table.columns], beta=settings.beta, n_threads=settings.n_threads
            )
            value += one
            gradient[t, table.present] += score
    return value, gradient


def prior_pull(anchor: F64, precisions: F64, x: F64) -> F64:
    """(T, n, d) minus the gradient of the log prior of a path; at a mode the score of the counts."""
    out = precisions[:, :, None] * np.diff(x, axis=0, prepend=anchor[None])
    out[:-1] -= out[1:]
    return out


def _metric(x: F64, tables: Sequence[Table | None], weights: F64, settings: Settings) -> Callable[[F64], F64]:
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
    is_mode: bool = True,
) -> Path:
    """The filter of the model linearized about its mode, with the Laplace evidence of all tables.

    A path that is not the mode (`is_mode=False`) is taken for one, with a score that equals the pull of the prior: the
    smoother's means are the path itself.
    """
    form, x = settings.form, mode.x
    pulls = prior_pull(anchor, move_precisions(gaps, noise), x)
    mean, cov = anchor, form.isotropic(noise.initial, x.shape[2])
    means, covs, log_ratio = [], [], 0.0
    for t, table in enumerate(tables):
        if t:
            cov = form.diffuse(cov, gaps[t] * noise.drift)
        if table is not None:
            precision, logdet = form.invert(cov)
            information = form.information(table, x[t], settings.beta, settings.n_threads)
            posterior = form.add(precision, information, table.present)
            score = pulls[t, table.present]
            if is_mode:
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
