"""Count tables of a moving map, and operations on its events: align names, append later steps, select a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from undertow.errors import InputError
from undertow.kernels.field.cooccurrence import Table
from undertow.text.event_times import Time, order_times
from undertow.text.events import Events

BURSTINESS = 10.0  # to predict: a second mention counts for a third of the first; best on NIPS up to 1993


def make_table(counts: Any, n_rows: int, free_frequencies: bool = False) -> Table | None:
    """The table of the entities that are present; columns are numbered after the n_rows rows. None without counts."""
    rows, columns = (np.flatnonzero(counts.sum(axis=axis) > 0) for axis in (1, 0))
    if not len(rows):
        return None
    small = sp.csr_array(counts[rows][:, columns], dtype=np.float64)
    total = float(small.sum())
    p_rows, p_columns = (np.asarray(small.sum(axis=axis), dtype=np.float64) / total for axis in (1, 0))
    transposed = sp.csr_array(small.T)
    return Table(small, transposed, rows, columns + n_rows, total, p_rows, p_columns, free_frequencies)


def damp(counts: Any, burstiness: float) -> Any:
    """log(1 + k c)/log(1 + k): what c repetitions are worth when a count has variance μ + kμ²; k = 0 leaves c."""
    if burstiness == 0:
        return counts
    out = counts.copy()
    out.data = np.log1p(burstiness * out.data) / np.log1p(burstiness)
    return out


def make_tables(events: Events, burstiness: float, free_frequencies: bool = False) -> list[Table | None]:
    """One table per step, with repetitions damped."""
    return [make_table(damp(t, burstiness), len(events.row_names), free_frequencies) for t in events.tables]


# --- events ---------------------------------------------------------------------------------------------


def gap_after(events: Events, time: Time) -> float:
    """Time from the last step to a later one; 1 where one of them is a label and the other a number."""
    last = events.times[-1]
    if isinstance(time, str) != isinstance(last, str):
        return 1.0
    ordered, gaps = order_times([*events.times, time])
    k = ordered.index(time)
    if k < len(ordered) - 1:
        raise InputError(
            f"The step {time!r} is not on this map and comes before its last step {last!r}: give a step of the map or "
            "a later one."
        )
    return float(gaps[k])


def align(table: Any, source: Events, target: Events) -> Any:
    """A table of `source` in the order of the names of `target`; names that `target` lacks are dropped."""
    rows, columns = ({name: k for k, name in enumerate(x)} for x in (target.row_names, target.column_names))
    r = np.array([rows.get(x, -1) for x in source.row_names])
    c = np.array([columns.get(x, -1) for x in source.column_names])
    pairs = table.tocoo()
    i, j = r[pairs.row], c[pairs.col]
    ok = (i >= 0) & (j >= 0)
    shape = (len(target.row_names), len(target.column_names))
    return sp.coo_array((pairs.data[ok], (i[ok], j[ok])), shape=shape).tocsr()


def most_frequent_part(events: Events, max_entities: int) -> Events:
    """The events of the most frequent entities, the same share of rows as of columns; all events if these are few."""
    n = len(events.row_names) + len(events.column_names)
    if n <= max_entities:
        return events
    pooled = sp.csr_array(sum(events.tables))
    kept = []
    for axis, names in ((1, events.row_names), (0, events.column_names)):
        size = max(1, max_entities * len(names) // n)
        kept.append(np.sort(np.argsort(-np.asarray(pooled.sum(axis=axis)), kind="stable")[:size]))
    rows, columns = kept
    return Events(
        events.times, events.gaps, [events.row_names[i] for i in rows], [events.column_names[j] for j in columns],
        [sp.csr_array(t[rows][:, columns]) for t in events.tables], events.kind_names,
    )  # fmt: skip


def append_steps(old: Events, new: Events) -> Events:
    """The events of later steps after those of a map, over the union of their names."""
    texts = {isinstance(t, str) for t in [*old.times, *new.times]}
    if len(texts) > 1:
        raise InputError(
            "The times of the map and of the new events are of different types, numbers and text: give the new events "
            "times of the map's type."
        )
    overlap = [t for t in new.times if t in old.times]
    ordered, gaps = order_times([*old.times, *new.times])
    if overlap or ordered[: len(old.times)] != old.times:
        late = overlap[0] if overlap else next(t for t in ordered if t in new.times)
        raise InputError(f"partial_fit takes later steps only, and {late!r} is not after {old.times[-1]!r}.")
    row_names = sorted({*old.row_names, *new.row_names})
    column_names = sorted({*old.column_names, *new.column_names})
    shell = Events(ordered, gaps, row_names, column_names, [], old.kind_names)
    tables = [align(t, old, shell) for t in old.tables] + [align(t, new, shell) for t in new.tables]
    # order_times may scale gaps differently now; the gaps of the fitted steps stay as they were
    return Events(ordered, [*old.gaps, *gaps[len(old.times) :]], row_names, column_names, tables, old.kind_names)
