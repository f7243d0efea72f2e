"""Two kinds of things in one moving map, with uncertainty: a Kalman filter over tables of co-occurrence counts.

Authors and words (or countries and words, actors and directors…) have positions that drift; the nearer two are, the
more often they meet. After Sarkar, Siddiqi and Gordon (2006), with the information of the counts where the paper
has none, a smoother, learned noise, link prediction and a form for large sets. `docs/dynamic.md` tells the story.
"""

from __future__ import annotations

import os
import time as clock
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from undertow.engine import count_workers
from undertow.errors import InputError
from undertow.kernels.cooccurrence_field import Table, field_sums
from undertow.models import dynamic_queries as queries
from undertow.models.base import (
    InterruptedFitWarning,
    TrainingEvent,
    check_callbacks,
    check_random_state,
)
from undertow.models.dynamic_filter import (
    LEAST_VARIANCE,
    Belief,
    Noise,
    Path,
    Settings,
    condition,
    predict,
    smooth_path,
)
from undertow.models.dynamic_learning import Iteration, Problem, improve, make_noise
from undertow.models.dynamic_links import expected_squares, forecast_shares, meeting_probabilities, pair_shares
from undertow.models.dynamic_map import MapData, MapPair
from undertow.models.dynamic_names import Names
from undertow.models.dynamic_queries import Timeline
from undertow.models.dynamic_saving import SavedMap
from undertow.models.dynamic_start import (
    correspondence,
    damp,
    dispersion,
    first_paths,
    make_table,
    score_dispersion,
    static_map,
)
from undertow.models.dynamic_tables import gap_after, join_later, make_tables, mean_log_probability, newcomers, onto
from undertow.text.event_times import clean_time
from undertow.text.events import Events

Array = npt.NDArray[np.float64]

FULL_UP_TO = 1200  # coordinates (entities times dim) for which "auto" keeps the full covariance
FULL_BYTES = 1 << 30  # of all its steps together
MOST_PAIRS = 1 << 22  # that predict_links lists unasked
BURSTINESS = 10.0  # to predict: a second mention is worth a third of the first; best on NIPS up to 1993
SMALL_FULL = 150  # coordinates up to which it is learned in full


class Neighbor(NamedTuple):
    name: str
    kind: str
    distance: float  # root of the expected squared distance


class Mover(NamedTuple):
    name: str
    kind: str
    distance: float  # between the two smoothed positions, after the frames are aligned
    wald: float
    p_value: float


class Link(NamedTuple):
    row: str
    column: str
    probability: float


class DynamicEmbedding(SavedMap):
    """Positions of rows and columns that drift over time, from counts of how often they meet.

    dim: coordinates of the map. purpose: "look" takes counts at face value, so that the map follows them, and
    widens the uncertainty by their dispersion; "predict" damps repetitions and tempers counts that come in clumps,
    for a stiller map that knows the next step better; "auto" looks up to dim 3. n_iter: iterations that learn the
    drift. drift: variance of a step, one number or (rows, columns); None learns it. tempering: β, the worth of a
    count as evidence; None takes it from dispersion. burstiness: k for counts whose variance is μ + k μ²; c
    repetitions count as log(1 + k c)/log(1 + k); None is 0 to look and 10 to predict. covariance: "full",
    "blocks" (one block an entity) or "auto". observation: "fisher", or "taylor" for the paper's expansion with its
    negative eigenvalues at 0. inference: "path" expands about the most probable path; "filter" is the paper's, one
    step after the other.
    """

    kind = "dynamic"

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
        for name, low in {"dim": 1, "n_iter": 1}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < low:
                raise InputError(f"DynamicEmbedding: {name}={value!r} must be a whole number, at least {low}.")
        for name, choices in {
            "covariance": ("auto", "full", "blocks"),
            "observation": ("fisher", "taylor"),
            "inference": ("path", "filter"),
            "purpose": ("auto", "look", "predict"),
        }.items():
            if getattr(self, name) not in choices:
                raise InputError(
                    f"DynamicEmbedding: {name}={getattr(self, name)!r} must be {' or '.join(map(str, choices))}."
                )
        for name in ("tempering", "burstiness", "tol"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value) or value < 0 or (value == 0 and name != "burstiness")):
                raise InputError(f"DynamicEmbedding: {name}={value!r} must be a positive number.")
        _drift_pair(self.drift)
        count_workers(self.n_jobs)

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, times: Sequence[Any] | None = None) -> Self:
        """Fit to Events, a DataFrame, rows of (time, row, column, count), or the path of a CSV, TSV or JSON lines file.

        times: the order of the steps, where numbers, dates or text do not give it; it may name steps without events.
        """
        self._check_params()
        rng = check_random_state(self.random_state)
        callbacks = check_callbacks(self.callbacks)
        events = Events.build(X, times=times)
        began = clock.perf_counter()
        n_rows, n = len(events.row_names), len(events.row_names) + len(events.column_names)
        covariance, reason = self._choose(n, len(events.times))
        settings = Settings("blocks", self.observation, 1.0, self.tol, count_workers(self.n_jobs))
        look = self.purpose == "look" or (self.purpose == "auto" and self.dim <= 3)

        burstiness = float(self.burstiness if self.burstiness is not None else 0.0 if look else BURSTINESS)
        tables = make_tables(events, burstiness)
        pooled = make_table(sum(damp(t, burstiness) for t in events.tables), n_rows)
        assert pooled is not None  # Events have counts
        static, tau2 = static_map(pooled, correspondence(pooled, n, int(self.dim), rng), settings)
        beta = 1.0 if self.tempering is None else float(self.tempering)
        if self.tempering is None and not look:
            still = np.broadcast_to(static.mean, (len(tables), *static.mean.shape))
            beta = 1 / max(1.0, dispersion(tables, still).pearson, *score_dispersion(tables, static.mean))
        settings = settings._replace(beta=float(beta))
        if beta != 1:
            static, tau2 = static_map(pooled, static.mean, settings)
        self._say(f"covariance: {covariance}, {reason}; burstiness {burstiness:.3g}, tempering {beta:.3g}")

        anchor = static.mean if look or self.inference == "filter" else np.zeros_like(static.mean)
        searches = first_paths(events.tables, burstiness, n_rows, static.mean, settings, rng)
        problem = Problem(events.gaps, tables, n_rows, anchor, searches, tau2, self.inference)
        drift = _drift_pair(self.drift) or (0.1 * tau2, 0.1 * tau2)
        learned = self.drift is None
        n_iter = int(self.n_iter) if learned else 1
        stages = [(covariance, n_iter)]
        if covariance == "full" and n * self.dim > SMALL_FULL and learned:
            # the noise is learned where that is cheap, and the full covariance made once
            stages = [("blocks", n_iter), ("full", 1)]
        history: list[float] = []
        latest: Iteration | None = None
        starts: Array | None = None
        try:
            for form, most in stages:
                for iteration in improve(problem, drift, settings._replace(covariance=form), most, starts, learned):
                    latest, settings = iteration, settings._replace(covariance=form)
                    drift, starts = iteration.drift, iteration.starts
                    history.append(float(iteration.path.log_evidence))
                    self._say(
                        f"iteration {len(history)}: log evidence {history[-1]:.1f}, drift {drift[0]:.3g} {drift[1]:.3g}"
                    )
                    seconds = clock.perf_counter() - began
                    event = TrainingEvent(len(history), sum(k for _, k in stages), history[-1], seconds)
                    for callback in callbacks:
                        callback(event)
        except KeyboardInterrupt:
            if latest is None or not history:
                raise
            warnings.warn(
                f"Interrupted after {len(history)} iterations; the last finished one is kept.",
                InterruptedFitWarning,
                stacklevel=2,
            )
        assert latest is not None
        if settings.covariance != covariance:
            covariance, reason = settings.covariance, "interrupted before the full covariance was made"
        path, widen = latest.path, 1.0
        if self.tempering is None and look:
            # the log posterior divided by φ: the same path, with variances and covariances φ times as large
            noise = make_noise(latest.drift, tau2, n_rows, n)
            means = smooth_path(path, events.gaps, noise, settings)[0].means
            widen = max(1.0, dispersion(tables, means).pearson)
            path = path._replace(covs=path.covs * widen)
        self.events_ = events
        self.drift_ = widen * np.array(latest.drift)
        self.start_variance_ = float(widen * tau2)
        self.tempering_ = float(beta) / widen
        self.burstiness_ = float(burstiness)
        self.covariance_ = covariance
        self.covariance_reason_ = reason
        self.filtered_means_ = path.means
        self.filtered_covariances_ = path.covs
        self.history_ = history
        self._prepare()
        return self

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

    def _settings(self) -> Settings:
        return Settings(self.covariance_, self.observation, self.tempering_, self.tol, count_workers(self.n_jobs))

    def _noise(self) -> Noise:
        return make_noise(tuple(self.drift_), self.start_variance_, self._names.n_rows, len(self._names.all))

    # --- what was learned -------------------------------------------------------------------------------

    @property
    def times_(self) -> list[Any]:
        """The steps, in order."""
        self._check_fitted()
        return self.events_.times

    @property
    def names_(self) -> list[str]:
        """All entities, rows first."""
        self._check_fitted()
        return self._names.all

    def _filtered(self) -> Path:
        return Path(self.filtered_means_, self.filtered_covariances_)

    def _smoothed(self) -> Path:
        self._check_fitted()
        if "smoothed" not in self._cache:
            self._cache["smoothed"] = smooth_path(self._filtered(), self.events_.gaps, self._noise(), self._settings())[
                0
            ]
        path: Path = self._cache["smoothed"]
        return path

    def _time(self, time: Any) -> int:
        wanted = clean_time(time, "time")
        times = self.events_.times
        if wanted not in times:
            raise InputError(f"There is no step {wanted!r} on this map; there are {times[0]!r} to {times[-1]!r}.")
        return times.index(wanted)

    def position(self, name: Any, time: Any, *, kind: str | None = None, filtered: bool = False) -> tuple[Array, Array]:
        """Mean (d,) and covariance (d, d) of an entity at a time, given all data; `filtered`: given those up to the
        time.

        A name that is both a row and a column is given as ("row", name) or ("column", name), or with kind=.
        """
        self._check_fitted()
        i, t = self._names.find(name, kind), self._time(time)
        path = self._filtered() if filtered else self._smoothed()
        return path.means[t, i].copy(), self._settings().form.blocks(path.covs[t], len(self._names.all))[i].copy()

    def _difference(self, a: Any, b: Any, filtered: bool) -> tuple[Array, Array]:
        """Means (T, d) and covariances (T, d, d) of x_a − x_b."""
        self._check_fitted()
        i, j = self._names.find(a), self._names.find(b)
        path, form = self._filtered() if filtered else self._smoothed(), self._settings().form
        d = path.means.shape[2]
        cov = np.array([form.between(c, i, j, d) if i != j else np.zeros((d, d)) for c in path.covs])
        return path.means[:, i] - path.means[:, j], cov

    def distance(self, a: Any, b: Any, *, filtered: bool = False) -> Timeline:
        """Distance of two entities at every step: expected, and the edges of its 90 % band."""
        return queries.distances(*self._difference(a, b, filtered))

    def affinity(self, a: Any, b: Any, *, filtered: bool = False) -> Timeline:
        """−E|x_a − x_b|² − log Z with its 90 % band: by how much more the two meet than their frequencies say, as a
        log.

        Distances alone can all grow at little cost; this cannot. NaN never: a step without data has the Z of the
        one before.
        """
        mean, cov = self._difference(a, b, filtered)
        log_Z = self._log_Z(filtered)
        low, high = queries.squared_quantiles(mean, cov, queries.BAND)
        return Timeline(-queries.squared_moments(mean, cov)[0] - log_Z, -high - log_Z, -low - log_Z)

    def _log_Z(self, filtered: bool) -> Array:
        key = f"log_Z {filtered}"
        if key not in self._cache:
            path = self._filtered() if filtered else self._smoothed()
            out, last = [], 0.0
            for table, x in zip(self._tables(), path.means, strict=True):
                if table is not None:
                    last = float(np.log(field_sums(x[table.rows], x[table.columns], table.p_rows, table.p_columns).Z))
                out.append(last)
            self._cache[key] = np.array(out)
        values: Array = self._cache[key]
        return values

    def _tables(self) -> list[Table | None]:
        if "tables" not in self._cache:
            self._cache["tables"] = make_tables(self.events_, self.burstiness_)
        tables: list[Table | None] = self._cache["tables"]
        return tables

    def _weights(self) -> Array:
        """(T, n) share of an entity in its kind's counts at each step, repetitions damped."""
        if "weights" not in self._cache:
            out = np.zeros((len(self.times_), len(self._names.all)))
            for t, table in enumerate(self._tables()):
                if table is not None:
                    out[t, table.rows], out[t, table.columns] = table.p_rows, table.p_columns
            self._cache["weights"] = out
        weights: Array = self._cache["weights"]
        return weights

    def nearest(
        self, name: Any, time: Any, n: int = 10, *, kind: str | None = None, of: str | None = None
    ) -> list[Neighbor]:
        """The n entities nearest to one at a time, by expected squared distance, so that uncertain ones come later.

        of: only rows, or only columns. Entities without any event are left out.
        """
        self._check_fitted()
        i, t = self._names.find(name, kind), self._time(time)
        path, form = self._smoothed(), self._settings().form
        x, count = path.means[t], len(self._names.all)
        squares = ((x - x[i]) ** 2).sum(axis=1)
        if self.covariance_ == "full":
            d = x.shape[1]
            traces = np.einsum("jkk->j", path.covs[t].reshape(count, d, count, d)[i].transpose(1, 0, 2))
            squares = squares - 2 * traces
        trace = np.trace(form.blocks(path.covs[t], count), axis1=1, axis2=2)
        squares = squares + trace + trace[i]
        allowed = self._weights().sum(axis=0) > 0
        allowed[i] = False
        if of is not None:
            first_kind = np.arange(count) < self._names.n_rows
            allowed &= first_kind if self._names.side(of) == 0 else ~first_kind
        order = np.flatnonzero(allowed)[np.argsort(squares[allowed], kind="stable")][: max(int(n), 0)]
        return [Neighbor(self._names.all[j], self._names.kind(j), float(np.sqrt(max(squares[j], 0)))) for j in order]

    def movers(self, n: int = 10, *, first: Any = None, last: Any = None, significance: float = 0.05) -> list[Mover]:
        """Who moved most between two steps (the first and the last if not given), of those whose movement is no chance.

        Wald's statistic of the smoothed difference; at most the share `significance` of those listed is expected by
        chance.
        """
        self._check_fitted()
        s = 0 if first is None else self._time(first)
        t = len(self.times_) - 1 if last is None else self._time(last)
        if s >= t:
            return []
        path = self._smoothed()
        frames, turns = self._frames()
        moved = frames[t] - frames[s]
        cov = queries.travel_covariances(
            self._filtered(), path, self.events_.gaps, self._noise(), self._settings(), s, t
        )
        cov = turns[t].T @ cov @ turns[t]
        value, p = queries.wald(moved, cov)
        length = np.sqrt((moved**2).sum(axis=1))
        seen = np.flatnonzero(self._weights().sum(axis=0) > 0)
        chosen = seen[queries.discoveries(p[seen], significance)]
        order = chosen[np.argsort(-length[chosen], kind="stable")][: max(int(n), 0)]
        return [
            Mover(self._names.all[i], self._names.kind(i), float(length[i]), float(value[i]), float(p[i]))
            for i in order
        ]

    # --- what comes next --------------------------------------------------------------------------------

    def _predicted(self, gap: float = 1.0) -> Belief:
        last = Belief(self.filtered_means_[-1], self.filtered_covariances_[-1])
        return predict(last, gap, self._noise(), self._settings())

    def link_probabilities(self) -> npt.NDArray[np.float32]:
        """(rows, columns) probability that a pair meets at the next step, in the order of the events' names."""
        self._check_fitted()
        shares, n_pairs = self._next_shares()
        return meeting_probabilities(shares, n_pairs)

    def _next_shares(self, gap: float = 1.0) -> tuple[Array, float]:
        n_rows, gaps = self._names.n_rows, self.events_.gaps
        counts = [damp(t, self.burstiness_) for t in self.events_.tables]
        p_rows, p_columns = (forecast_shares(np.array([c.sum(axis=axis) for c in counts]), gaps) for axis in (1, 0))
        shares = pair_shares(expected_squares(self._predicted(gap), self.covariance_, n_rows), p_rows, p_columns)
        recent = [float(c.nnz) for c in counts if c.nnz][-3:]
        return shares, float(np.mean(recent))

    def predict_links(self, n: int | None = None, *, new: bool = False) -> list[Link]:
        """Pairs with the probability that they meet at the next step, the likeliest first.

        n: only so many; needed where there are more than four million pairs. new: only pairs that have never met.
        """
        probabilities = self.link_probabilities()
        if n is None and probabilities.size > MOST_PAIRS:
            raise InputError(f"There are {probabilities.size:,} pairs: ask for the likeliest, with n=.")
        flat = probabilities.ravel()
        candidates = np.arange(flat.size)
        if new:
            met = sp.csr_array(sum(self.events_.tables))
            candidates = np.flatnonzero(~(met.toarray() > 0).ravel())
        if n is not None and n < len(candidates):
            cut = np.partition(flat[candidates], len(candidates) - n)[len(candidates) - n] if n > 0 else np.inf
            candidates = candidates[flat[candidates] >= cut]
        order = candidates[np.argsort(-flat[candidates], kind="stable")][:n]
        width = len(self.events_.column_names)
        rows, columns = self.events_.row_names, self.events_.column_names
        return [Link(rows[k // width], columns[k % width], float(flat[k])) for k in order.tolist()]

    def log_likelihood(self, X: Any) -> float:
        """Mean log-probability of a count of the events of one step: what pair it is.

        A step the model was fitted to is judged by the smoothed map and its own frequencies; a later one by what
        the model expects then. Names the model does not know are passed over.
        """
        self._check_fitted()
        events = Events.build(X)
        if len(events.times) != 1:
            raise InputError(f"log_likelihood takes the events of one step, and these are of {len(events.times)}.")
        counts = onto(events.tables[0], events, self.events_)
        total = float(counts.sum())
        if not total > 0:
            raise InputError("None of these events is between names on the map: there is nothing to judge.")
        time = events.times[0]
        if time in self.times_:
            t = self.times_.index(time)
            table, x = self._tables()[t], self._smoothed().means[t]
            own = make_table(counts, self._names.n_rows)
            assert own is not None
            if table is not None and set(own.present.tolist()) <= set(table.present.tolist()):
                where = [np.searchsorted(p, q) for p, q in ((table.rows, own.rows), (table.columns, own.columns))]
                spread = sp.coo_array(
                    (own.counts.tocoo().data, (where[0][own.counts.tocoo().row], where[1][own.counts.tocoo().col])),
                    shape=table.counts.shape,
                ).tocsr()
                judged = table._replace(counts=spread, transposed=sp.csr_array(spread.T))
                return mean_log_probability(judged, x)
        gap = gap_after(self.events_, time)
        shares, _ = self._next_shares(gap)
        pairs = counts.tocoo()
        return float((pairs.data * np.log(np.maximum(shares[pairs.row, pairs.col], 1e-300))).sum() / total)

    # --- looking at it ----------------------------------------------------------------------------------

    def _frames(self) -> tuple[Array, Array]:
        if "frames" not in self._cache:
            self._cache["frames"] = queries.align_frames(self._smoothed().means, self._weights())
        frames: tuple[Array, Array] = self._cache["frames"]
        return frames

    def map_data(self, n_pairs: int = 12) -> MapData:
        """The smoothed map with its frames aligned, and pairs whose meetings changed most, for pages and pictures."""
        self._check_fitted()
        path, form, names = self._smoothed(), self._settings().form, self._names
        frames, turns = self._frames()
        n = len(names.all)
        blocks = np.stack([form.blocks(c, n) for c in path.covs])
        return MapData(
            [str(t) for t in self.times_],
            list(names.all),
            [names.kind(i) for i in range(n)],
            list(names.kinds),
            frames,
            queries.turn_covariances(blocks, turns),
            self._weights(),
            [self._map_pair(i, j) for i, j in self._telling_pairs(n_pairs)],
        )

    def _telling_pairs(self, n_pairs: int) -> list[tuple[int, int]]:
        """Frequent pairs whose share of the column's counts changed most over the steps; each name once."""
        columns = np.array([t.sum(axis=0) for t in self.events_.tables])
        total = sp.csr_array(sum(self.events_.tables)).tocoo()
        often = np.argsort(-total.data, kind="stable")[: 50 * max(n_pairs, 0)]
        ranked = []
        for k in often.tolist():
            i, j = int(total.row[k]), int(total.col[k])
            p = np.array([t[i, j] for t in self.events_.tables]) / np.maximum(columns[:, j], 1e-300)
            ranked.append((-float(p.std()), i, j))
        out: list[tuple[int, int]] = []
        for _, i, j in sorted(ranked):
            if len(out) < n_pairs and all(i != a and j != b for a, b in out):
                out.append((i, j))
        return out

    def empirical(self, row: Any, column: Any) -> Array:
        """(T,) share of a column's counts at each step that are with a row; 0 where it has none."""
        self._check_fitted()
        i, j = self._names.find(row, "row"), self._names.find(column, "column") - self._names.n_rows
        return np.array([float(t[i, j]) / max(float(t[:, [j]].sum()), 1e-300) for t in self.events_.tables])

    def _map_pair(self, i: int, j: int) -> MapPair:
        row, column = ("row", self._names.all[i]), ("column", self._names.all[j + self._names.n_rows])
        return MapPair(i, j + self._names.n_rows, *self.distance(row, column), self.empirical(row[1], column[1]))

    def save_html(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the map as one page that needs no network."""
        self._check_fitted()
        from undertow.view import map_page  # type: ignore[attr-defined,unused-ignore]

        map_page.save_html(self.map_data(), path, overwrite=overwrite)


# --- small parts ----------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _drift_pair(drift: Any) -> tuple[float, float] | None:
    if drift is None:
        return None
    pair = (drift, drift) if _is_number(drift) else tuple(drift) if isinstance(drift, list | tuple) else ()
    if len(pair) != 2 or not all(_is_number(v) and 0 <= v < np.inf for v in pair):
        raise InputError(
            f"DynamicEmbedding: drift={drift!r} must be a variance, a pair (rows, columns) of them, or None."
        )
    return max(float(pair[0]), LEAST_VARIANCE), max(float(pair[1]), LEAST_VARIANCE)


__all__ = ["DynamicEmbedding", "Link", "Mover", "Neighbor", "Timeline"]
