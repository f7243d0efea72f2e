"""Tables and events of a moving map: one onto another's names, later ones behind earlier ones, what they are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from undertow.errors import InputError
from undertow.kernels.field.cooccurrence import Table, field_sums
from undertow.models.dynamic.filter import Array
from undertow.models.dynamic.init import damp, make_table
from undertow.text.event_times import order_times
from undertow.text.events import Events


def make_tables(events: Events, burstiness: float) -> list[Table | None]:
    return [make_table(damp(t, burstiness), len(events.row_names)) for t in events.tables]


def newcomers(table: Table, mean: Array, seen: npt.NDArray[np.bool_]) -> Array:
    """Where the search begins: entities never seen before start among their partners, not at the prior's centre."""
    start = mean.copy()
    for rows, counts, partners in (
        (table.rows, table.counts, table.columns),
        (table.columns, table.transposed, table.rows),
    ):
        new = ~seen[rows]
        if new.any():
            known = seen[partners].astype(np.float64)
            weight = counts @ known
            centre = counts @ (known[:, None] * mean[partners]) / np.maximum(weight, 1e-300)[:, None]
            start[rows[new]] = centre[new]
    return start


def gap_after(events: Events, time: Any) -> float:
    """Time from the last step to a later one; 1 for labels and for steps that are not later."""
    last = events.times[-1]
    if isinstance(time, str) != isinstance(last, str):
        return 1.0
    ordered, gaps = order_times([*events.times, time])
    k = ordered.index(time)
    if k < len(ordered) - 1:
        raise InputError(f"The step {time!r} comes before the last one, {last!r}, and is not one of this map's.")
    return float(gaps[k])


def onto(table: Any, source: Events, target: Events) -> Any:
    """A table in the order of another's names; what the other does not know is dropped."""
    rows, columns = ({name: k for k, name in enumerate(x)} for x in (target.row_names, target.column_names))
    r = np.array([rows.get(x, -1) for x in source.row_names])
    c = np.array([columns.get(x, -1) for x in source.column_names])
    pairs = table.tocoo()
    i, j = r[pairs.row], c[pairs.col]
    ok = (i >= 0) & (j >= 0)
    shape = (len(target.row_names), len(target.column_names))
    return sp.coo_array((pairs.data[ok], (i[ok], j[ok])), shape=shape).tocsr()


def most_frequent_part(events: Events, most: int) -> Events:
    """The events of at most so many entities, those with the most counts: as large a share of the rows as of the
    columns. All of them where there are no more.
    """
    n = len(events.row_names) + len(events.column_names)
    if n <= most:
        return events
    pooled = sp.csr_array(sum(events.tables))
    kept = []
    for axis, names in ((1, events.row_names), (0, events.column_names)):
        size = max(1, most * len(names) // n)
        kept.append(np.sort(np.argsort(-np.asarray(pooled.sum(axis=axis)), kind="stable")[:size]))
    rows, columns = kept
    return Events(
        events.times, events.gaps, [events.row_names[i] for i in rows], [events.column_names[j] for j in columns],
        [sp.csr_array(t[rows][:, columns]) for t in events.tables], events.kind_names,
    )  # fmt: skip


def join_later(old: Events, new: Events) -> Events:
    """The events of later steps behind those of a map."""
    texts = {isinstance(t, str) for t in [*old.times, *new.times]}
    if len(texts) > 1:
        raise InputError("The new steps and the map's are not alike: one has numbers and the other text.")
    overlap = [t for t in new.times if t in old.times]
    ordered, gaps = order_times([*old.times, *new.times])
    if overlap or ordered[: len(old.times)] != old.times:
        late = overlap[0] if overlap else next(t for t in ordered if t in new.times)
        raise InputError(f"partial_fit takes later steps only, and {late!r} is not after {old.times[-1]!r}.")
    row_names = sorted({*old.row_names, *new.row_names})
    column_names = sorted({*old.column_names, *new.column_names})
    shell = Events(ordered, gaps, row_names, column_names, [], old.kind_names)
    tables = [onto(t, old, shell) for t in old.tables] + [onto(t, new, shell) for t in new.tables]
    # distances in time are measured anew; those of the map stay as they were
    return Events(ordered, [*old.gaps, *gaps[len(old.times) :]], row_names, column_names, tables, old.kind_names)


def mean_log_probability(table: Table, x: Array) -> float:
    """Mean log p(i, j) of the counts of a table under its own frequencies."""
    pairs = table.counts.tocoo()
    X, Y = x[table.rows], x[table.columns]
    Z = field_sums(X, Y, table.p_rows, table.p_columns).Z
    log_p = np.log(table.p_rows[pairs.row] * table.p_columns[pairs.col] / Z) - ((X[pairs.row] - Y[pairs.col]) ** 2).sum(
        1
    )
    return float((pairs.data * log_p).sum() / pairs.data.sum())
