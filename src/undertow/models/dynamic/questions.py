"""What a moving map answers about the steps it has seen: positions, distances, neighbours, who moved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.engine import count_workers
from undertow.errors import InputError
from undertow.kernels.field.cooccurrence import Table, field_sums
from undertow.models.dynamic import geometry as queries
from undertow.models.dynamic.filter import Noise, Path, Settings, smooth_path
from undertow.models.dynamic.geometry import Timeline
from undertow.models.dynamic.learning import make_noise
from undertow.models.dynamic.storage import SavedMap
from undertow.models.dynamic.tables import make_tables
from undertow.text.event_times import clean_time

Array = npt.NDArray[np.float64]


class Neighbor(NamedTuple):
    name: str
    kind: str
    distance: float  # root of the expected squared distance


class Mover(NamedTuple):
    name: str
    kind: str
    distance: float  # between the two smoothed positions
    wald: float
    p_value: float


class Movers(list[Mover]):
    """A list of movers, and a sentence on what was found."""

    def __init__(self, movers: Iterable[Mover], verdict: str) -> None:
        super().__init__(movers)
        self.verdict = verdict


class AskedMap(SavedMap):
    """Questions about the steps so far; a parent of the estimator, whose parameters these are."""

    observation: str
    tol: float
    n_jobs: int | None

    def _settings(self) -> Settings:
        return Settings(self.covariance_, self.observation, self.tempering_, self.tol, count_workers(self.n_jobs))

    def _noise(self) -> Noise:
        return make_noise(tuple(self.drift_), self.start_variance_, self._names.n_rows, len(self._names.all))

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
        """The n entities nearest to one at a time, uncertain ones later; of those that have events at the time.

        Ranked by |x_j − x_i|² + tr Σ_j, as on the page of the map; `distance` is the root of the expected squared
        distance. of: only rows, or only columns.
        """
        self._check_fitted()
        i, t = self._names.find(name, kind), self._time(time)
        path, form = self._smoothed(), self._settings().form
        x, count, d = path.means[t], len(self._names.all), path.means.shape[2]
        near = queries.nearness(x, np.trace(form.blocks(path.covs[t], count), axis1=1, axis2=2), i)
        allowed = self._weights()[t] > 0
        allowed[i] = False
        if of is not None:
            first_kind = np.arange(count) < self._names.n_rows
            allowed &= first_kind if self._names.side(of) == 0 else ~first_kind
        order = np.flatnonzero(allowed)[np.argsort(near[allowed], kind="stable")][: max(int(n), 0)]
        squares = [((x[j] - x[i]) ** 2).sum() + np.trace(form.between(path.covs[t], i, j, d)) for j in order]
        return [
            Neighbor(self._names.all[j], self._names.kind(j), float(np.sqrt(max(square, 0))))
            for j, square in zip(order, squares, strict=True)
        ]

    def movers(self, n: int = 10, *, first: Any = None, last: Any = None, significance: float = 0.05) -> Movers:
        """Who moved most between two steps (the first and the last if not given), of those whose movement is no chance.

        Wald's statistic of the smoothed difference and its covariance, both as the model has them: the frame is the
        one in which everything together moves least, and the covariance holds what is not known of it. At most the
        share `significance` of those listed is expected by chance. The answer's `verdict` says in a sentence how many
        moved, or why none is listed.

        Movement is tested on a map of its own (see docs/dynamic.md), made when it is first asked for: its frequencies
        are free, as a step's sums would move words that stay; its covariance is full; and where that is too large, the
        most frequent entities stand for the rest.
        """
        self._check_fitted()
        s = 0 if first is None else self._time(first)
        t = len(self.times_) - 1 if last is None else self._time(last)
        if s >= t:
            return Movers([], "One step, or the later one first: there is no movement between them.")
        model = self._movement_map()
        names, tables = model._names, model.events_.tables
        tested = np.flatnonzero(queries.show_movement(tables[s : t + 1]))
        steps = f"between {self.times_[s]} and {self.times_[t]}"
        if not len(tested):
            return Movers(
                [],
                f"The data cannot show movement {steps}: no entity is at two steps that have more than one row and "
                f"more than one column (here: {names.kinds[0]} and {names.kinds[1]}); join steps to longer ones, or "
                "divide the rows more finely.",
            )
        path = model._smoothed()
        moved = path.means[t] - path.means[s]
        cov = queries.travel_covariances(
            model._filtered(), path, model.events_.gaps, model._noise(), model._settings(), s, t
        )
        value, p = queries.wald(moved, cov)
        length = np.sqrt((moved**2).sum(axis=1))
        chosen = tested[queries.discoveries(p[tested], significance)]
        order = chosen[np.argsort(-length[chosen], kind="stable")][: max(int(n), 0)]
        listed = [Mover(names.all[i], names.kind(i), *map(float, (length[i], value[i], p[i]))) for i in order]
        whole = "" if len(names.all) == len(self._names.all) else " most frequent"
        if not len(chosen):
            return Movers(listed, f"None of the {len(tested)}{whole} entities moved beyond noise {steps}.")
        return Movers(
            listed,
            f"{len(chosen)} of the {len(tested)}{whole} entities moved beyond noise {steps}; at most "
            f"{significance:.0%} of these are expected by chance.",
        )

    def _movement_map(self) -> AskedMap:
        """The map on which movement is tested."""
        raise NotImplementedError
