"""The fitted state of a moving map, what is derived from it on demand, and the index of its entities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from undertow.errors import InputError
from undertow.kernels.field.beliefs import FORMS, CovarianceForm
from undertow.kernels.field.cooccurrence import Table, meeting_offsets
from undertow.kernels.types import F64
from undertow.models.dynamic.filter import Moves, Noise, Path, make_noise, smooth_path
from undertow.models.dynamic.frame import FrameBelief, believe_frame, determined_shares, move_precisions
from undertow.models.dynamic.tables import make_tables
from undertow.text.event_times import clean_time
from undertow.text.events import Events


class EntityIndex:
    """The entities of a map: rows first, then columns; a name may be in both kinds."""

    def __init__(self, rows: Sequence[str], columns: Sequence[str], kinds: tuple[str, str]) -> None:
        self.kinds = kinds
        self.names = [*rows, *columns]
        self.n_rows = len(rows)
        self._ids = [{name: k for k, name in enumerate(part)} for part in (rows, columns)]

    @classmethod
    def of(cls, events: Events) -> EntityIndex:
        return cls(events.row_names, events.column_names, events.kind_names)

    def kind(self, i: int) -> str:
        return self.kinds[0 if i < self.n_rows else 1]

    def side(self, kind: Any) -> int:
        """0 for rows, 1 for columns; given as "row" or "column", or by the name of the kind."""
        for side, words in enumerate((("row", self.kinds[0]), ("column", self.kinds[1]))):
            if kind in words:
                return side
        raise InputError(
            f"The kind {kind!r} is unknown: use 'row' or 'column', or {' or '.join(map(repr, self.kinds))}."
        )

    def find(self, name: Any, kind: Any = None) -> int:
        """The index of an entity given by its name, or by (kind, name)."""
        if isinstance(name, tuple) and len(name) == 2:
            kind, name = name
        if not isinstance(name, str):
            raise InputError(f"{name!r} is not a name: give text, or a tuple such as ('row', 'name').")
        sides = (0, 1) if kind is None else (self.side(kind),)
        found = [self._ids[s][name] + s * self.n_rows for s in sides if name in self._ids[s]]
        if not found:
            where = "" if kind is None else f" of the kind {self.kinds[sides[0]]!r}"
            raise InputError(f"There is no {name!r}{where} on this map.")
        if len(found) > 1:
            raise InputError(
                f"{name!r} is both a {self.kinds[0]} and a {self.kinds[1]}: say which, as in "
                f"('row', {name!r}) or ('column', {name!r})."
            )
        return found[0]


@dataclass(frozen=True, eq=False)
class FittedMap:
    """A fitted moving map; queries are functions of it. Derived values are computed once, when first needed."""

    events: Events
    filtered_means: F64  # (T, n, d)
    filtered_covariances: F64  # (T, n d, n d) or (T, n, d, d)
    covariance: str  # "full" or "blocks"
    covariance_reason: str
    drift: F64  # (2,) σ² of rows, of columns
    start_variance: float  # τ² at the first step
    tempering: float  # β
    burstiness: float  # k
    free_frequencies: bool  # fitted with the positions, or the sums of each step
    link_weights: F64  # (2, 4), as `links.log_rates` takes them

    @property
    def form(self) -> CovarianceForm:
        return FORMS[self.covariance]

    @property
    def filtered(self) -> Path:
        return Path(self.filtered_means, self.filtered_covariances)

    @cached_property
    def entities(self) -> EntityIndex:
        return EntityIndex.of(self.events)

    @cached_property
    def noise(self) -> Noise:
        return make_noise(tuple(self.drift), self.start_variance, self.entities.n_rows, len(self.entities.names))

    @cached_property
    def _smoothed(self) -> tuple[Path, Moves]:
        return smooth_path(self.filtered, self.events.gaps, self.noise, self.form)

    @cached_property
    def smoothed(self) -> Path:
        return self._smoothed[0]

    def path(self, filtered: bool) -> Path:
        return self.filtered if filtered else self.smoothed

    def frame(self, filtered: bool) -> FrameBelief | None:
        """What the covariances of the path lack; None where frequencies are sums, which leave no frame open."""
        if not self.free_frequencies:
            return None
        if filtered not in self._frames:
            n, d = self.filtered_means.shape[1:]
            precisions = move_precisions(self.events.gaps, self.noise)
            path, moves = self._smoothed
            shares = determined_shares(self.form.blocks(path.covs[0], n), moves.variance, precisions, d)
            self._frames[filtered] = believe_frame(
                self.path(filtered), self.entities.n_rows, precisions, shares,
                given_entities=self.covariance == "blocks", last=filtered,
            )  # fmt: skip
        return self._frames[filtered]

    @cached_property
    def _frames(self) -> dict[bool, FrameBelief]:
        return {}

    def entity_covariances(self, t: int, filtered: bool = False) -> F64:
        """(n, d, d) covariances of the positions at a step, the frame's uncertainty among them."""
        cov, frame = self.path(filtered).covs[t], self.frame(filtered)
        out = self.form.blocks(cov, len(self.entities.names))
        return out if frame is None else out + frame.of_entities(t)

    def difference_covariances(self, i: int, j: int, filtered: bool = False) -> F64:
        """(T, d, d) covariances of x_i − x_j."""
        path, frame = self.path(filtered), self.frame(filtered)
        d = path.means.shape[2]
        if i == j:
            return np.zeros((len(path.covs), d, d))
        out = np.array([self.form.difference(c, i, j, d) for c in path.covs])
        return out if frame is None else out + frame.of_difference(i, j)

    @cached_property
    def tables(self) -> list[Table | None]:
        """One table per step, with repetitions damped."""
        return make_tables(self.events, self.burstiness, self.free_frequencies)

    @cached_property
    def shares(self) -> F64:
        """(T, n) share of an entity in the damped counts of its kind at each step."""
        out = np.zeros((len(self.events.times), len(self.entities.names)))
        for t, table in enumerate(self.tables):
            if table is not None:
                out[t, table.rows], out[t, table.columns] = table.p_rows, table.p_columns
        return out

    @cached_property
    def _offsets(self) -> dict[bool, F64]:
        return {}

    def offsets(self, filtered: bool) -> F64:
        """(T, n) o at the filtered or smoothed means: log p(i, j)/(p̄_i p̄_j) = o_i + o_j − |x_i − x_j|².

        An absent entity has the o that it would have if it were there; a step without data that of the step before.
        """
        if filtered not in self._offsets:
            means = self.path(filtered).means
            out = np.zeros(means.shape[:2])
            for t, (table, x) in enumerate(zip(self.tables, means, strict=True)):
                if table is not None:
                    out[t] = meeting_offsets(table, x, self.entities.n_rows)
                elif t:
                    out[t] = out[t - 1]
            self._offsets[filtered] = out
        return self._offsets[filtered]

    def step(self, time: Any) -> int:
        """The index of a time."""
        wanted = clean_time(time, "time")
        times = self.events.times
        if wanted not in times:
            raise InputError(f"There is no step {wanted!r} on this map; there are {times[0]!r} to {times[-1]!r}.")
        return times.index(wanted)
