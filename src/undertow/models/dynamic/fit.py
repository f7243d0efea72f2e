"""Fitting a moving map: alternate path inference and drift updates, then choose the link model.

`fit_map` is the whole fit as a function of events and options; `extend_map` continues the filter over later steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import InputError
from undertow.kernels.types import F64
from undertow.models.dynamic.filter import (
    MIN_VARIANCE,
    Belief,
    Noise,
    Path,
    Settings,
    filter_path,
    make_noise,
    smooth_path,
    update_variance,
)
from undertow.models.dynamic.init import (
    MIN_WIDTH,
    PREDICT_VARIANCE,
    TEMPERING,
    correspondence_analysis,
    dispersion,
    initial_paths,
    static_map,
)
from undertow.models.dynamic.link_model import (
    CANDIDATE_DRIFTS,
    COLUMN_DRIFT_RATIO,
    LinkModel,
    default_link_model,
    fit_link_model,
    held_out_links,
    last_step,
    most_frequent,
)
from undertow.models.dynamic.links import forecast_activity
from undertow.models.dynamic.path import PathProblem, infer_path
from undertow.models.dynamic.state import EntityIndex, FittedMap
from undertow.models.dynamic.tables import BURSTINESS, append_steps, damp, make_table, make_tables, most_frequent_part
from undertow.models.fitting import (
    LOGGER,
    Callback,
    Iteration,
    OpenCheckpoint,
    run_iterations,
    run_last_step,
    shown_log,
)
from undertow.text.events import Events

MAX_FULL = 1200  # coordinates (entities times dim) up to which "auto" keeps the full covariance
MAX_FULL_BYTES = 1 << 30  # of the full covariances of all steps
MAX_FULL_LEARNING = 300  # coordinates up to which the drift is learned with the full covariance
MIN_FREE = 4  # rows and columns of a median step from which frequencies are free by default
MAX_FREE_PAIRS = 1 << 20  # of a step, up to which they are: larger ones were not timed
VARIANCE_TOL = 0.02  # relative change of the variances at which learning stops
MAX_WORSE = 1  # iterations in a row that may lower the evidence while τ² is learned too
MAX_SCALE = 2.0  # factor by which the variances of rows and of columns may be rescaled in one iteration
INITIAL_DRIFT = 0.1  # of a map to look at, relative to its initial variance


class FitOptions(NamedTuple):
    """The constructor's parameters, checked, with "auto" resolved where the events are not needed for it."""

    dim: int
    look: bool  # the purpose: to look at (True) or to predict with
    free: bool | None  # frequencies fitted with the positions, or the sums of each step; None: chosen by the events
    n_iter: int
    drift: tuple[float, float] | None  # σ² of rows and of columns; None learns them
    tempering: float | None
    burstiness: float | None
    covariance: str  # "auto", "full" or "blocks"
    tol: float
    n_threads: int
    movement: bool = False  # the map on which movement is tested


class Variances(NamedTuple):
    """σ² of rows and of columns, and τ²."""

    rows: float
    columns: float
    initial: float

    @property
    def drift(self) -> tuple[float, float]:
        return self.rows, self.columns


class Estimate(NamedTuple):
    """One iteration: the filtered path and what it was inferred with."""

    variances: Variances
    path: Path
    mode: F64  # (T, n, d) most probable path; the next search starts here
    covariance: str  # form of the path's covariances


class Finished(NamedTuple):
    """The last finished iteration, from which the next ones follow."""

    stage: int
    n_done: int  # iterations of this stage
    estimate: Estimate


def fit_map(
    events: Events,
    options: FitOptions,
    rng: np.random.Generator,
    *,
    callbacks: Sequence[Callback] | None = None,
    verbose: bool = False,
    checkpoint: OpenCheckpoint | None = None,
) -> tuple[FittedMap, list[float]]:
    """Fit a map to events; returns it with the log evidence after each iteration."""
    look = options.look
    if options.free is None:
        options = options._replace(free=look and can_free_frequencies(events))
    covariance, reason = choose_covariance(events, options)
    burstiness = float(options.burstiness if options.burstiness is not None else 0.0 if look else BURSTINESS)
    beta = float(options.tempering or (1.0 if look else TEMPERING))
    settings = Settings("blocks", beta, options.tol, options.n_threads)
    with shown_log(verbose):
        LOGGER.info("covariance: %s, %s; burstiness %.3g, tempering %.3g", covariance, reason, burstiness, beta)
        counts = [damp(t, burstiness) for t in events.tables]
        problem = make_problem(events.gaps, counts, options, settings, rng)
        drifts = [options.drift] if options.drift else [(s, COLUMN_DRIFT_RATIO * s) for s in CANDIDATE_DRIFTS]
        link_model = default_link_model(drifts)
        if not look:
            link_model = choose_link_model(events, counts, options, settings, drifts, rng)
        drift = options.drift or link_model.drift
        if look and options.drift is None:
            drift = (INITIAL_DRIFT * problem.initial_variance, INITIAL_DRIFT * problem.initial_variance)
        first = Variances(*drift, problem.initial_variance)
        learned = Learned(
            drift=look and options.drift is None, initial=look and bool(options.free) and not options.movement
        )
        stages = plan_stages(problem, covariance, options.n_iter if any(learned) else 1, any(learned))
        result = run_iterations(
            iterate(problem, first, settings, stages, learned, None if checkpoint is None else checkpoint.state),
            n_iter=sum(n for _, n in stages),
            callbacks=callbacks,
            verbose=verbose,
            checkpoint=checkpoint,
            stacklevel=5,  # run_iterations, fit_map, fit, its BLAS decorator, the caller
        )
        estimate = result.params
        scale = variance_scale(problem, estimate) if look and options.tempering is None else 1.0
        if look and not options.movement:  # the drift of a map to look at is known only now
            link_model = run_last_step(
                lambda: choose_link_model(events, counts, options, settings, [estimate.variances.drift], rng, scale),
                result,
                default=link_model,
                stacklevel=5,
            )
    if estimate.covariance != covariance:
        covariance, reason = estimate.covariance, "interrupted before the full covariance was made"
    fitted = FittedMap(
        events=events,
        filtered_means=estimate.path.means,
        filtered_covariances=estimate.path.covs * scale if scale != 1 else estimate.path.covs,
        covariance=covariance,
        covariance_reason=reason,
        drift=scale * np.array(estimate.variances.drift),
        start_variance=float(scale * estimate.variances.initial),
        tempering=beta / scale,
        burstiness=burstiness,
        free_frequencies=bool(options.free),
        link_weights=link_model.weights,
    )
    return fitted, result.history


def fit_movement_map(events: Events, options: FitOptions, *, verbose: bool = False) -> FittedMap:
    """The map on which movement is tested: free frequencies, full covariance, at most 3 dimensions.

    Of sets too large for a full covariance the most frequent entities are kept.
    """
    dim = min(options.dim, 3)
    options = options._replace(dim=dim, look=True, free=True, covariance="full", movement=True)
    max_entities = min(MAX_FULL, int(np.sqrt(MAX_FULL_BYTES / (8 * len(events.times))))) // dim
    part = most_frequent_part(events, max_entities)
    return fit_map(part, options, np.random.default_rng(0), verbose=verbose)[0]


def can_free_frequencies(events: Events) -> bool:
    """Whether the tables are large enough to tell positions from frequencies, and small enough to hold."""
    shapes = [tuple(int((t.sum(axis=k) > 0).sum()) for k in (1, 0)) for t in events.tables if t.nnz]
    least = float(np.median([min(shape) for shape in shapes]))
    return least >= MIN_FREE and max(rows * columns for rows, columns in shapes) <= MAX_FREE_PAIRS


def choose_covariance(events: Events, options: FitOptions) -> tuple[str, str]:
    """The covariance form, "full" or "blocks", and the reason in a few words."""
    n, T, dim = len(events.row_names) + len(events.column_names), len(events.times), options.dim
    size = n * dim
    if options.covariance != "auto":
        return options.covariance, "as asked"
    if size > MAX_FULL:
        return "blocks", f"{n} entities in {dim} dimensions are more than {MAX_FULL} coordinates"
    if 8 * T * size**2 > MAX_FULL_BYTES:
        return "blocks", f"{T} full covariances of {size} coordinates need more than a gigabyte"
    return "full", f"{n} entities in {dim} dimensions are few enough"


def make_problem(
    gaps: Sequence[float], counts: list[Any], options: FitOptions, settings: Settings, rng: np.random.Generator
) -> PathProblem:
    """Tables, prior and search starts from damped counts."""
    n_rows, n = counts[0].shape[0], sum(counts[0].shape)
    tables = [make_table(c, n_rows, bool(options.free)) for c in counts]
    pooled = make_table(sum(counts), n_rows, bool(options.free))
    assert pooled is not None  # Events have counts
    variance = None if options.look else PREDICT_VARIANCE
    start = correspondence_analysis(pooled, n, options.dim, rng)
    # a search with tempered counts starts at the map of untempered ones
    static, initial_variance = static_map(pooled, start, settings._replace(beta=1.0), variance)
    if settings.beta != 1:
        static, initial_variance = static_map(pooled, static.mean, settings, variance)
    # a prior about the static map uses the counts twice: harmless for moves, but not for what the prior alone decides
    best_frame = bool(options.free) and not options.movement
    starts = initial_paths(counts, n_rows, static.mean, settings, rng, variance, best_frame)
    anchor = static.mean if options.look and not best_frame else np.zeros_like(static.mean)
    return PathProblem(gaps, tables, n_rows, anchor, starts, initial_variance, best_frame)


def choose_link_model(
    events: Events,
    counts: list[Any],
    options: FitOptions,
    settings: Settings,
    drifts: list[tuple[float, float]],
    rng: np.random.Generator,
    scale: float = 1.0,
) -> LinkModel:
    """The link model that best predicts the last step from a map of the steps before it."""
    last = last_step(events.tables)
    if last is None:
        return default_link_model(drifts)
    tables, gaps = events.tables[:last], events.gaps[:last]
    rows, columns = most_frequent(tables)
    links = held_out_links(forecast_activity(tables, gaps, events.gaps[last]), events.tables[last], rows, columns)
    LOGGER.info("fitting the link model to step %s, %d × %d entities", events.times[last], len(rows), len(columns))
    counts = [c[rows][:, columns] for c in counts[:last]]
    before = make_problem(gaps, counts, options, settings, rng)
    return fit_link_model(before, links, events.gaps[last], settings, drifts, scale)


# --- learning the drift ---------------------------------------------------------------------------------


class Learned(NamedTuple):
    """Which variances are learned."""

    drift: bool
    initial: bool


def plan_stages(problem: PathProblem, covariance: str, n_iter: int, learned: bool) -> list[tuple[str, int]]:
    """Covariance forms and how many iterations each may take.

    A large full covariance is computed once, after the variances were learned with the cheaper blocks.
    """
    if covariance == "full" and problem.anchor.size > MAX_FULL_LEARNING and learned:
        return [("blocks", n_iter), ("full", 1)]
    return [(covariance, n_iter)]


def iterate(
    problem: PathProblem,
    variances: Variances,
    settings: Settings,
    stages: list[tuple[str, int]],
    learned: Learned,
    resume_from: Finished | None = None,
) -> Iterator[Iteration[Estimate]]:
    """The finished iterations of all stages, or those after the last one of an earlier run."""
    mode: F64 | None = None
    for stage, (covariance, n_iter) in enumerate(stages):
        done = None
        if resume_from is not None:
            variances, mode = resume_from.estimate.variances, resume_from.estimate.mode
            if stage < resume_from.stage:
                continue
            done = resume_from if stage == resume_from.stage else None
        form = settings._replace(covariance=covariance)
        for number, estimate in learn_variances(problem, variances, form, n_iter, mode, learned, done):
            variances, mode, evidence = estimate.variances, estimate.mode, estimate.path.log_evidence
            if not np.isfinite(evidence):
                raise _not_finite()
            remark = f"drift {variances.rows:.3g} {variances.columns:.3g}"
            state = partial(Finished, stage, number, estimate)
            yield Iteration(float(evidence), estimate, remark=remark, state=state)
        resume_from = None
    if mode is None:
        raise _not_finite()


def learn_variances(
    problem: PathProblem,
    variances: Variances,
    settings: Settings,
    n_iter: int,
    mode: F64 | None,
    learned: Learned,
    resume_from: Finished | None = None,
) -> Iterator[tuple[int, Estimate]]:
    """Alternate path inference and updates of variances while the evidence rises; one that lowers it is dropped."""
    best, worse = -np.inf, 0
    for k in range(0 if resume_from is None else resume_from.n_done - 1, n_iter):
        noise = make_noise(variances.drift, variances.initial, problem.n_rows, len(problem.anchor))
        if resume_from is None:
            path, mode = infer_path(problem, noise, settings, mode)
            worse = 0 if path.log_evidence > best else worse + 1
            if worse > (MAX_WORSE if learned.initial else 0):
                return
            if not worse:
                best = path.log_evidence
                yield k + 1, Estimate(variances, path, mode, settings.covariance)
        else:  # this iteration is finished; only its update of the variances is not
            path, resume_from = resume_from.estimate.path, None
            best = path.log_evidence
        if not any(learned) or k == n_iter - 1:
            return
        old, variances = variances, _updated_variances(problem, variances, path, noise, settings, learned)
        if np.abs(np.log(np.divide(variances, old))).max() < VARIANCE_TOL:
            return


def _updated_variances(
    problem: PathProblem, old: Variances, path: Path, noise: Noise, settings: Settings, learned: Learned
) -> Variances:
    """MacKay's updates. τ² is one for both kinds, which alone sets the scale of rows against that of columns.

    Positions of rows times s and of columns divided by s, with drifts to match, explain the counts as well. The updates
    would creep along this orbit; so they are taken at the s that gives both kinds the same variance at the first step.
    """
    smoothed, moves = smooth_path(path, problem.gaps, noise, settings.form)
    n, d = problem.anchor.shape
    kinds = slice(0, problem.n_rows), slice(problem.n_rows, n)
    rows, columns = old.drift
    if learned.drift and len(problem.tables) > 1:
        gaps = np.array(problem.gaps[1:])[:, None]
        rows, columns = (
            update_variance(v, moves.squared[:, part], moves.variance[:, part], gaps, d)
            for v, part in zip(old.drift, kinds, strict=True)
        )
    if not learned.initial:
        return Variances(rows, columns, old.initial)
    squared = (smoothed.means[0] ** 2).sum(axis=1)
    variance = np.trace(settings.form.blocks(smoothed.covs[0], n), axis1=1, axis2=2)
    if learned.drift:
        found = [update_variance(old.initial, squared[part], variance[part], np.ones(1), d) for part in kinds]
        scale = float(np.clip(np.sqrt(found[1] / found[0]), 1 / MAX_SCALE, MAX_SCALE))
        rows, columns = max(rows * scale, MIN_VARIANCE), max(columns / scale, MIN_VARIANCE)
        squared[kinds[0]] *= scale
        squared[kinds[1]] /= scale
    initial = update_variance(old.initial, squared, variance, np.ones(1), d)
    return Variances(rows, columns, max(initial, MIN_WIDTH**2))


def _not_finite() -> InputError:
    return InputError(
        "DynamicEmbedding: the evidence is not finite: the counts, the times or the drift are too large or too "
        "unequal; rescale them."
    )


def variance_scale(problem: PathProblem, estimate: Estimate) -> float:
    """The dispersion φ ≥ 1 of the counts: dividing the log posterior by φ keeps the path and scales variances by φ."""
    variances = estimate.variances
    noise = make_noise(variances.drift, variances.initial, problem.n_rows, len(problem.anchor))
    form = Settings(estimate.covariance).form
    means = smooth_path(estimate.path, problem.gaps, noise, form)[0].means
    return max(1.0, dispersion(problem.tables, means).pearson)


# --- later steps ----------------------------------------------------------------------------------------


def extend_map(
    fitted: FittedMap, new: Events, log_evidence: float, *, tol: float, n_threads: int
) -> tuple[FittedMap, float]:
    """Continue the filter over later steps, and return the log evidence of all steps; earlier ones are not refitted."""
    events = append_steps(fitted.events, new)
    means, covs = _with_new_names(fitted, events)
    T, n = means.shape[:2]
    settings = Settings(fitted.covariance, fitted.tempering, tol, n_threads)
    noise = make_noise(tuple(fitted.drift), fitted.start_variance, len(events.row_names), n)
    tables = make_tables(events, fitted.burstiness, fitted.free_frequencies)
    seen = np.zeros(n, dtype=bool)
    for table in tables[:T]:
        if table is not None:
            seen[table.present] = True
    path = filter_path(tables[T:], events.gaps[T:], Belief(means[-1], covs[-1]), noise, settings, seen, log_evidence)
    extended = replace(
        fitted,
        events=events,
        filtered_means=np.concatenate((means, path.means)),
        filtered_covariances=np.concatenate((covs, path.covs)),
    )
    return extended, path.log_evidence


def _with_new_names(fitted: FittedMap, events: Events) -> tuple[F64, F64]:
    """Filtered means and covariances with room for the entities that join; these have the initial prior."""
    old, entities = fitted.entities, EntityIndex.of(events)
    T, n_old, d = fitted.filtered_means.shape
    n = len(entities.names)
    if n == n_old:
        return fitted.filtered_means, fitted.filtered_covariances
    place = np.array([entities.find(name, old.kind(i)) for i, name in enumerate(old.names)])
    means = np.zeros((T, n, d))
    means[:, place] = fitted.filtered_means
    covs = np.repeat(fitted.form.isotropic(np.full(n, fitted.start_variance), d)[None], T, axis=0)
    if fitted.covariance == "blocks":
        covs[:, place] = fitted.filtered_covariances
    else:
        at = (place[:, None] * d + np.arange(d)).ravel()
        covs[np.ix_(np.arange(T), at, at)] = fitted.filtered_covariances
    return means, covs
