"""Two kinds of things in one moving map, with uncertainty: a Kalman filter over tables of co-occurrence counts.

Authors and words (or countries and words, actors and directors…) have positions that drift; the nearer two are, the
more often they meet. After Sarkar, Siddiqi and Gordon (2006), with the information of the counts where the paper
has none, a smoother, learned noise, link prediction and a form for large sets. `docs/dynamic.md` tells the story.
"""

from __future__ import annotations

import os
import time as clock
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.models.base import check_choice, check_flag, check_number, check_random_state, check_whole, is_number
from undertow.models.dynamic.filter import (
    LEAST_VARIANCE,
    Belief,
    Settings,
    condition,
    predict,
    smooth_path,
)
from undertow.models.dynamic.forecast import ForecastingMap, Link
from undertow.models.dynamic.geometry import Timeline
from undertow.models.dynamic.init import (
    BURSTINESS,
    PREDICT_VARIANCE,
    TEMPERING,
    correspondence,
    damp,
    dispersion,
    first_paths,
    make_table,
    static_map,
)
from undertow.models.dynamic.learning import Iteration, Problem, improve, make_noise
from undertow.models.dynamic.link_model import (
    COLUMNS,
    DRIFTS,
    Foresight,
    Links,
    foresee,
    last_step,
    most_frequent,
    usual,
)
from undertow.models.dynamic.links import Outlook
from undertow.models.dynamic.names import Names
from undertow.models.dynamic.questions import Mover, Movers, Neighbor
from undertow.models.dynamic.shown import ShownMap
from undertow.models.dynamic.storage import LARGEST_DRIFT
from undertow.models.dynamic.tables import join_later, make_tables, most_frequent_part, newcomers
from undertow.models.fitting import InterruptedFitWarning, TrainingEvent, check_callbacks
from undertow.text.events import Events

Array = npt.NDArray[np.float64]

FULL_UP_TO = 1200  # coordinates (entities times dim) for which "auto" keeps the full covariance
FULL_BYTES = 1 << 30  # of all its steps together
SMALL_FULL = 150  # coordinates up to which it is learned in full


class DynamicEmbedding(ForecastingMap, ShownMap):
    """Positions of rows and columns that drift over time, from counts of how often they meet.

    dim: coordinates of the map. purpose: "look" takes counts at face value, so that the map follows them, and
    widens the uncertainty by their dispersion; "predict" damps repetitions, takes a count for a tenth and leaves the
    prior wide, for a stiller map that knows the next step better; "auto" looks up to dim 3. n_iter: iterations that
    learn the drift of a map to look at. drift: variance of a step, one number or (rows, columns); None learns it, from
    the evidence to look, from how well earlier steps knew the last one to predict. tempering: β, the worth of a count
    as evidence; None is 1 to look and 0.1 to predict. burstiness: k for counts whose variance is μ + k μ²; c
    repetitions count as log(1 + k c)/log(1 + k); None is 0 to look and 10 to predict. covariance: "full",
    "blocks" (one block an entity) or "auto". observation: "fisher", or "taylor" for the paper's expansion with its
    negative eigenvalues at 0. inference: "path" expands about the most probable path; "filter" is the paper's, one
    step after the other.
    """

    kind = "dynamic"
    _free_frequencies = False  # of the map on which movement is tested

    def __init__(
        self,
        dim: int = 2,
        *,
        purpose: str = "auto",
        n_iter: int = 10,
        drift: Any = None,
        tempering: float | None = None,
        burstiness: float | None = None,
        covariance: str = "auto",
        observation: str = "fisher",
        inference: str = "path",
        tol: float = 1e-4,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.dim = dim
        self.purpose = purpose
        self.n_iter = n_iter
        self.drift = drift
        self.tempering = tempering
        self.burstiness = burstiness
        self.covariance = covariance
        self.observation = observation
        self.inference = inference
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _check_params(self) -> None:
        super()._check_params()
        check_whole("DynamicEmbedding", "dim", self.dim, 1, 1000)
        check_whole("DynamicEmbedding", "n_iter", self.n_iter, 1)
        for name, choices in {
            "covariance": ("auto", "full", "blocks"),
            "observation": ("fisher", "taylor"),
            "inference": ("path", "filter"),
            "purpose": ("auto", "look", "predict"),
        }.items():
            check_choice("DynamicEmbedding", name, getattr(self, name), choices)
        for name, low in {"tempering": 1e-9, "burstiness": 0, "tol": 1e-15}.items():
            value = getattr(self, name)
            if value is not None or name == "tol":
                check_number("DynamicEmbedding", name, value, low, 1e9)
        check_flag("DynamicEmbedding", "verbose", self.verbose)
        _drift_pair(self.drift)
        count_workers(self.n_jobs)

    # --- fitting ----------------------------------------------------------------------------------------

    @one_blas_thread()
    def fit(self, X: Any, y: Any = None, *, times: Sequence[Any] | None = None) -> Self:
        """Fit to Events, a DataFrame, rows of (time, row, column, count), or the path of a CSV, TSV or JSON lines file.

        times: the order of the steps, where numbers, dates or text do not give it; it may name steps without events.
        """
        self._check_params()
        rng = check_random_state(self.random_state)
        callbacks = check_callbacks(self.callbacks)
        events = Events.build(X, times=times)
        began = clock.perf_counter()
        covariance, reason = self._choose(len(events.row_names) + len(events.column_names), len(events.times))
        look = self.purpose == "look" or (self.purpose == "auto" and self.dim <= 3)
        burstiness = float(self.burstiness if self.burstiness is not None else 0.0 if look else BURSTINESS)
        beta = float(self.tempering or (1.0 if look else TEMPERING))
        self._say(f"covariance: {covariance}, {reason}; burstiness {burstiness:.3g}, tempering {beta:.3g}")
        settings = Settings("blocks", self.observation, beta, self.tol, count_workers(self.n_jobs))
        counts = [damp(t, burstiness) for t in events.tables]
        problem = self._problem(events.gaps, counts, look, settings, rng)

        drifts = [pair] if (pair := _drift_pair(self.drift)) else [(s, COLUMNS * s) for s in DRIFTS]
        foresight = usual(drifts) if look else self._foresee(events, counts, look, settings, drifts, rng)

        history: list[float] = []
        latest: Iteration | None = None
        whole = True
        try:
            first = pair or ((0.1 * problem.start, 0.1 * problem.start) if look else foresight.drift)
            learned = look and pair is None
            for iteration, form, most in self._iterations(problem, first, learned, covariance, settings):
                latest, settings = iteration, settings._replace(covariance=form)
                history.append(float(iteration.path.log_evidence))
                drift = iteration.drift
                self._say(
                    f"iteration {len(history)}: log evidence {history[-1]:.1f}, drift {drift[0]:.3g} {drift[1]:.3g}"
                )
                event = TrainingEvent(len(history), most, history[-1], clock.perf_counter() - began)
                for callback in callbacks:
                    callback(event)
        except KeyboardInterrupt:
            if latest is None or not history:
                raise
            whole = False
        if latest is None or not np.isfinite(history).all():
            raise InputError(
                "DynamicEmbedding: the evidence is not finite: the counts, the times or the drift are too large or too "
                "unequal; rescale them."
            )
        widen = self._dispersion(problem, latest, settings) if look else 1.0
        try:
            if look and whole and not self._free_frequencies:  # its drift is known only now
                foresight = self._foresee(events, counts, look, settings, [latest.drift], rng, widen)
        except KeyboardInterrupt:
            whole = False
        if not whole:
            warnings.warn(
                f"Interrupted after {len(history)} iterations; the last finished one is kept.",
                InterruptedFitWarning,
                stacklevel=2,
            )
        if settings.covariance != covariance:
            covariance, reason = settings.covariance, "interrupted before the full covariance was made"
        self.events_ = events
        self.burstiness_ = burstiness
        self.covariance_ = covariance
        self.covariance_reason_ = reason
        self.history_ = history
        self.link_weights_ = foresight.weights
        self._keep(problem, latest, settings, widen)
        self._prepare()
        return self

    def _problem(
        self, gaps: Sequence[float], counts: list[Any], look: bool, settings: Settings, rng: np.random.Generator
    ) -> Problem:
        """What a fit begins with: tables, the prior, and where to search."""
        n_rows, n = counts[0].shape[0], sum(counts[0].shape)
        tables = [
            table and table._replace(free=self._free_frequencies) for table in (make_table(c, n_rows) for c in counts)
        ]
        pooled = make_table(sum(counts), n_rows)
        assert pooled is not None  # Events have counts
        pooled = pooled._replace(free=self._free_frequencies)
        width = None if look else PREDICT_VARIANCE
        first = correspondence(pooled, n, int(self.dim), rng)
        # the map of untempered counts is where the search for a tempered one begins
        static, tau2 = static_map(pooled, first, settings._replace(beta=1.0), width)
        if settings.beta != 1:
            static, tau2 = static_map(pooled, static.mean, settings, width)
        anchor = static.mean if look or self.inference == "filter" else np.zeros_like(static.mean)
        searches = first_paths(counts, n_rows, static.mean, settings, rng, width)
        return Problem(gaps, tables, n_rows, anchor, searches, tau2, self.inference)

    def _foresee(
        self,
        events: Events,
        counts: list[Any],
        look: bool,
        settings: Settings,
        drifts: list[tuple[float, float]],
        rng: np.random.Generator,
        widen: float = 1.0,
    ) -> Foresight:
        """What is learned from how well the steps before the last know it; the last one is hidden from all of it."""
        last = last_step(events.tables)
        if last is None:
            return usual(drifts)
        tables, gaps = events.tables[:last], events.gaps[:last]
        rows, columns = most_frequent(tables)
        links = Links.of(Outlook.of(tables, gaps, events.gaps[last]), events.tables[last], rows, columns)
        self._say(f"learning what links of {events.times[last]} are told by, on {len(rows)} × {len(columns)} entities")
        counts = [c[rows][:, columns] for c in counts[:last]]
        before = self._problem(gaps, counts, look, settings, rng)
        return foresee(before, links, events.gaps[last], settings, drifts, widen)

    def _iterations(
        self, problem: Problem, drift: tuple[float, float], learned: bool, covariance: str, settings: Settings
    ) -> Iterator[tuple[Iteration, str, int]]:
        """Each finished iteration, the form of its covariances, and how many there may be."""
        n_iter = int(self.n_iter) if learned else 1
        stages = [(covariance, n_iter)]
        if covariance == "full" and problem.anchor.size > SMALL_FULL and learned:
            # the noise is learned where that is cheap, and the full covariance made once
            stages = [("blocks", n_iter), ("full", 1)]
        starts: Array | None = None
        for form, most in stages:
            for iteration in improve(problem, drift, settings._replace(covariance=form), most, starts, learned):
                drift, starts = iteration.drift, iteration.starts
                yield iteration, form, sum(k for _, k in stages)

    def _dispersion(self, problem: Problem, latest: Iteration, settings: Settings) -> float:
        """φ: the log posterior divided by it has the same path, with variances and covariances φ times as large."""
        if self.tempering is not None:
            return 1.0
        noise = make_noise(latest.drift, problem.start, problem.n_rows, len(problem.anchor))
        means = smooth_path(latest.path, problem.gaps, noise, settings)[0].means
        return max(1.0, dispersion(problem.tables, means).pearson)

    def _keep(self, problem: Problem, latest: Iteration, settings: Settings, widen: float) -> None:
        self.drift_ = widen * np.array(latest.drift)
        self.start_variance_ = float(widen * problem.start)
        self.tempering_ = float(settings.beta) / widen
        self.filtered_means_ = latest.path.means
        self.filtered_covariances_ = latest.path.covs * widen if widen != 1 else latest.path.covs

    def _choose(self, n: int, T: int) -> tuple[str, str]:
        size = n * int(self.dim)
        if self.covariance != "auto":
            return self.covariance, "as asked"
        if size > FULL_UP_TO:
            return "blocks", f"{n} entities in {self.dim} dimensions are more than {FULL_UP_TO} coordinates"
        if 8 * T * size**2 > FULL_BYTES:
            return "blocks", f"{T} full covariances of {size} coordinates need more than a gigabyte"
        return "full", f"{n} entities in {self.dim} dimensions are few enough"

    def _say(self, line: str) -> None:
        if self.verbose:
            print(line, flush=True)

    @one_blas_thread()
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Take in the events of later steps: the filter goes on from where it is, and nothing before is fitted again.

        New names join the map, with the prior of the first fit.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        self._check_params()
        new = Events.build(X)
        joined = join_later(self.events_, new)
        means, covs = self._extended(joined)
        n_rows = len(joined.row_names)
        settings = self._settings()
        n = means.shape[1]
        noise = make_noise(tuple(self.drift_), self.start_variance_, n_rows, n)
        tables = make_tables(joined, self.burstiness_)
        belief, total = Belief(means[-1], covs[-1]), self.history_[-1]
        new_means, new_covs = [], []
        seen = np.zeros(n, dtype=bool)
        for table in tables[: len(means)]:
            if table is not None:
                seen[table.present] = True
        for t in range(len(means), len(tables)):
            belief = predict(belief, joined.gaps[t], noise, settings)
            table = tables[t]
            if table is not None:
                start = newcomers(table, belief.mean, seen)
                belief, evidence = condition(belief, table, start, settings)
                seen[table.present] = True
                total += evidence
            new_means.append(belief.mean)
            new_covs.append(belief.cov)
        self.events_ = joined
        self.filtered_means_ = np.concatenate((means, new_means))
        self.filtered_covariances_ = np.concatenate((covs, new_covs))
        self.history_ = [*self.history_, float(total)]
        self._prepare()
        return self

    def _extended(self, joined: Events) -> tuple[Array, Array]:
        """Means and covariances with room for the new names."""
        old = self._names
        names = Names(joined.row_names, joined.column_names, joined.kind_names)
        place = np.array([names.find(old.all[i], old.kinds[int(i >= old.n_rows)]) for i in range(len(old.all))])
        (T, _, d), n = self.filtered_means_.shape, len(names.all)
        if n == len(old.all):
            return self.filtered_means_, self.filtered_covariances_
        means = np.zeros((T, n, d))
        means[:, place] = self.filtered_means_
        form = self._settings().form
        fresh = form.isotropic(np.full(n, self.start_variance_), d)
        covs = np.repeat(fresh[None], T, axis=0)
        if self.covariance_ == "blocks":
            covs[:, place] = self.filtered_covariances_
        else:
            at = (place[:, None] * d + np.arange(d)).ravel()
            covs[np.ix_(np.arange(T), at, at)] = self.filtered_covariances_
        return means, covs

    # --- movement ---------------------------------------------------------------------------------------

    def _movement_map(self) -> DynamicEmbedding:
        """A map to look at of the same events, with free frequencies and the full covariance; made once."""
        if "movement" not in self._cache:
            dim = min(int(self.dim), 3)
            model = type(self)(
                dim, purpose="look", n_iter=self.n_iter, drift=self.drift, tempering=self.tempering,
                burstiness=self.burstiness, covariance="full", tol=self.tol, random_state=0, n_jobs=self.n_jobs,
                verbose=self.verbose,
            )  # fmt: skip
            model._free_frequencies = True
            most = min(FULL_UP_TO, int(np.sqrt(FULL_BYTES / (8 * len(self.times_))))) // dim
            model.fit(most_frequent_part(self.events_, most))
            self._cache["movement"] = model
        out: DynamicEmbedding = self._cache["movement"]
        return out

    # --- looking at it ----------------------------------------------------------------------------------

    def save_html(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the map as one page that needs no network."""
        self._check_fitted()
        from undertow.view import map_page  # type: ignore[attr-defined,unused-ignore]

        map_page.save_html(self.map_data(), path, overwrite=overwrite)


# --- small parts ----------------------------------------------------------------------------------------


def _drift_pair(drift: Any) -> tuple[float, float] | None:
    if drift is None:
        return None
    pair = (drift, drift) if is_number(drift) else tuple(drift) if isinstance(drift, list | tuple) else ()
    if len(pair) != 2 or not all(is_number(v) and 0 <= v <= LARGEST_DRIFT for v in pair):
        raise InputError(
            f"DynamicEmbedding: drift={short(drift)} must be a variance up to {LARGEST_DRIFT:g}, a pair (rows, "
            "columns) of them, or None."
        )
    return max(float(pair[0]), LEAST_VARIANCE), max(float(pair[1]), LEAST_VARIANCE)


__all__ = ["DynamicEmbedding", "Link", "Mover", "Movers", "Neighbor", "Timeline"]
