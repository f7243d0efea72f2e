"""Learning the noise of a moving map: infer the path, look how far entities moved, and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from undertow.kernels.field.cooccurrence import Table
from undertow.models.dynamic.filter import (
    Array,
    Noise,
    Path,
    Settings,
    filter_path,
    smooth_path,
    update_variance,
)
from undertow.models.dynamic.path import expanded_filter, path_mode

SETTLED = 0.02  # relative change of the variances that ends the learning


class Problem(NamedTuple):
    """What stays the same during a fit."""

    gaps: Sequence[float]
    tables: list[Table | None]
    n_rows: int
    anchor: Array  # (n, d) mean of the first step's prior
    searches: list[Array]  # (T, n, d) where the first searches begin; the best end is kept
    start: float  # τ²
    inference: str  # "path" or "filter"


class Iteration(NamedTuple):
    drift: tuple[float, float]  # σ² of rows, of columns, that the path was inferred with
    path: Path  # filtered
    starts: Array  # (T, n, d) where the next search begins


def make_noise(drift: Sequence[float], start: float, n_rows: int, n: int) -> Noise:
    rows = np.arange(n) < n_rows
    return Noise(np.where(rows, drift[0], drift[1]).astype(np.float64), np.full(n, float(start)))


def infer(problem: Problem, noise: Noise, settings: Settings, starts: Array | None) -> tuple[Path, Array]:
    """The filtered path, and where another search would begin."""
    tables, gaps = problem.tables, problem.gaps
    if problem.inference == "filter":
        path = filter_path(tables, gaps, problem.anchor, noise, settings, starts)
        return path, path.means
    begins = problem.searches if starts is None else [starts]
    modes = [path_mode(tables, gaps, problem.anchor, noise, settings, begin) for begin in begins]
    mode = max(modes, key=lambda m: m.value)
    return expanded_filter(tables, gaps, problem.anchor, noise, settings, mode), mode.x


def improve(
    problem: Problem, drift: tuple[float, float], settings: Settings, n_iter: int, starts: Array | None, learned: bool
) -> Iterator[Iteration]:
    """Iterations of rising evidence, each finished one; the first whose evidence is lower is dropped and ends it."""
    best = -np.inf
    for k in range(n_iter):
        noise = make_noise(drift, problem.start, problem.n_rows, len(problem.anchor))
        path, starts = infer(problem, noise, settings, starts)
        if not path.log_evidence > best:
            return
        best = path.log_evidence
        yield Iteration(drift, path, starts)
        if not learned or k == n_iter - 1 or len(problem.tables) == 1:
            return
        old, drift = drift, _better(problem, drift, path, noise, settings)
        if np.abs(np.log(np.divide(drift, old))).max() < SETTLED:
            return


def _better(
    problem: Problem, old: tuple[float, float], path: Path, noise: Noise, settings: Settings
) -> tuple[float, float]:
    _, moves = smooth_path(path, problem.gaps, noise, settings)
    n, d = problem.anchor.shape
    gaps = np.array(problem.gaps[1:])[:, None]
    rows, columns = (
        update_variance(v, moves.squared[:, part], moves.variance[:, part], gaps, d)
        for v, part in zip(old, (slice(0, problem.n_rows), slice(problem.n_rows, n)), strict=True)
    )
    return rows, columns
