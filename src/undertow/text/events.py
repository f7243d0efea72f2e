"""Events: how often pairs of names occurred together over time, from tables, files or documents.

An event is (time, row, column, count): an author used a word, a country an argument, an actor a director. Rows and
columns are two kinds of things; a name in both means two different things. Order does not matter, duplicates are
added.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from undertow.errors import InputError, short
from undertow.tables import Table
from undertow.text.event_times import Time, clean_time, given_order, order_times
from undertow.text.frames import frame_columns, is_frame

ROW_KIND, COLUMN_KIND = "row", "column"
LARGEST_COUNT = 1e15  # whole numbers up to it are exact, and so are sums of a few of them


class Event(NamedTuple):
    """How often a row and a column occurred together at a time."""

    time: Time
    row: str
    column: str
    count: float  # type: ignore[assignment]  # in the place of tuple.count


@dataclass(frozen=True, eq=False)
class Events:
    """Counts of (row, column) pairs at each time.

    An event is (time, row, column, count): an author used a word, a country a topic. Rows and columns are two kinds of
    entities. Use `Events.build` to make one.

    Parameters
    ----------
    times
        The times in order.
    gaps
        The time since the previous one; 0 for the first.
    row_names, column_names
        The names in sorted order, independent of the order of the input.
    tables
        One sparse (rows, columns) table of float64 counts per time.
    kind_names
        What rows and columns are called.

    Examples
    --------
    >>> from undertow.text.events import Events
    >>> events = Events.build([(2001, "Ann", "river", 2), (2003, "Bob", "bank", 1), (2003, "Ann", "bank", 4)])
    >>> events.times, events.row_names, events.column_names
    ([2001, 2003], ['Ann', 'Bob'], ['bank', 'river'])
    >>> events.at(2003).toarray().tolist()
    [[4.0, 0.0], [1.0, 0.0]]
    """

    times: list[Time]
    gaps: list[float]  # time from each step to the one before; 0 for the first
    row_names: list[str]
    column_names: list[str]
    tables: list[Any]  # one (rows, columns) CSR array of float64 a time
    kind_names: tuple[str, str] = (ROW_KIND, COLUMN_KIND)

    # --- making -----------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls, X: EventSource, *, times: Sequence[Any] | None = None, kind_names: Sequence[str] | None = None
    ) -> Events:
        """Make events from a table in memory or a file.

        Parameters
        ----------
        X
            Events, a DataFrame of pandas or Polars, an Arrow table, the path of a CSV, TSV or JSON lines file, or an
            iterable of (time, row, column, count).
        times
            The order of the times, if it is not that of numbers, dates or text; it may name times without events.
        kind_names
            What rows and columns are called.

        Returns
        -------
        Events

        Raises
        ------
        InputError
            If an event is invalid; the message names its line or position.
        """
        if isinstance(X, Events):
            return X
        kinds = (ROW_KIND, COLUMN_KIND)
        if isinstance(X, str | os.PathLike):
            from undertow.text.event_files import read_events

            records, kinds = read_events(os.fspath(X))
        elif is_frame(X):
            records, kinds = _frame_records(X)
        else:
            records = _given_records(X)
        builder = EventsBuilder()
        for place, time, row, column, count in records:
            builder.add(place, time, row, column, count)
        return builder.finish(times=times, kind_names=check_kinds(kind_names or kinds))

    # --- facts ------------------------------------------------------------------------------------------

    @property
    def n_events(self) -> int:
        """The number of distinct (time, row, column) with a count above 0."""
        return sum(int(t.nnz) for t in self.tables)

    @property
    def total(self) -> float:
        """The sum of all counts."""
        return float(sum(t.sum() for t in self.tables))

    def records(self) -> Iterator[tuple[Time, str, str, float]]:
        """Iterate over all events with a count above 0, in the order of time, row and column.

        Yields
        ------
        (time, str, str, float)
            Time, row name, column name and count.
        """
        for time, table in zip(self.times, self.tables, strict=True):
            entries = table.tocoo()
            for i, j, c in zip(entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True):
                yield time, self.row_names[i], self.column_names[j], c

    def table(self) -> Table[Event]:
        """All events as a table, which prints, and becomes a DataFrame by `to_frame()`.

        Returns
        -------
        Table of Event
            In the order of `records`.
        """
        return Table(Event, (Event(*record) for record in self.records()))

    # --- choosing ---------------------------------------------------------------------------------------

    def select(
        self,
        *,
        n_rows: int | None = None,
        n_columns: int | None = None,
        min_count: float | tuple[float, float] = 0,
        min_times: int | tuple[int, int] = 1,
        stop_words: Iterable[str] = (),
    ) -> Events:
        """Keep the most frequent rows and columns. Ties are broken by name.

        Parameters
        ----------
        n_rows, n_columns
            How many to keep; None keeps all.
        min_count
            Drop rows and columns with a smaller total count; a pair is one number for rows and one for columns.
        min_times
            Drop rows and columns that occur at fewer times; likewise.
        stop_words
            Columns to drop first, in lower case.

        Returns
        -------
        Events

        Raises
        ------
        InputError
            If no row or no column is left.
        """
        stopped = frozenset(stop_words)
        counts = [np.array([t.sum(axis=axis) for t in self.tables]) for axis in (1, 0)]  # (T, rows), (T, columns)
        chosen = []
        least = zip(_pair(min_count, "min_count"), _pair(min_times, "min_times"), strict=True)
        sides = zip((self.row_names, self.column_names), counts, (n_rows, n_columns), least, strict=True)
        for names, count, most, (least_count, least_times) in sides:
            if most is not None and most < 1:
                raise InputError(f"select: {most} rows or columns are too few; give 1 or more.")
            total = count.sum(axis=0)
            ok = (total >= least_count) & (total > 0) & ((count > 0).sum(axis=0) >= least_times)
            if names is self.column_names:
                ok &= np.array([name.lower() not in stopped for name in names], dtype=bool)
            best = np.flatnonzero(ok)[np.argsort(-total[ok], kind="stable")][:most]
            chosen.append(np.sort(best))
        rows, columns = chosen
        if not len(rows) or not len(columns):
            raise InputError("select: no row or no column is left; ask for fewer counts or fewer times.")
        tables = [sp.csr_array(t[rows][:, columns]) for t in self.tables]
        return Events(
            self.times,
            self.gaps,
            [self.row_names[i] for i in rows],
            [self.column_names[j] for j in columns],
            tables,
            self.kind_names,
        )

    def until(self, time: Any) -> Events:
        """The events up to and including a time.

        Parameters
        ----------
        time
            One of `times`.

        Returns
        -------
        Events

        Raises
        ------
        InputError
            If there is no such time.
        """
        last = clean_time(time, "until")
        if last not in self.times:
            raise InputError(f"until: there is no time {last!r}; there are {self.times[0]!r} to {self.times[-1]!r}.")
        n = self.times.index(last) + 1
        return Events(
            self.times[:n], self.gaps[:n], self.row_names, self.column_names, self.tables[:n], self.kind_names
        )

    def at(self, time: Any) -> Any:
        """The counts at one time.

        Parameters
        ----------
        time
            One of `times`.

        Returns
        -------
        scipy.sparse.csr_array
            Of shape (rows, columns).

        Raises
        ------
        InputError
            If there is no such time.
        """
        wanted = clean_time(time, "at")
        if wanted not in self.times:
            raise InputError(f"There is no time {wanted!r}; there are {self.times[0]!r} to {self.times[-1]!r}.")
        return self.tables[self.times.index(wanted)]


EventSource = Events | str | os.PathLike[str] | Iterable[Any]
"""Events, the path of a CSV, TSV or JSON lines file, a DataFrame, or rows of (time, row, column, count)."""


class EventsBuilder:
    """Gathers events one at a time or many at once; numbers in flat arrays, not objects."""

    def __init__(self) -> None:
        self.times: dict[Time, int] = {}
        self.rows: dict[str, int] = {}
        self.columns: dict[str, int] = {}
        self._raw_times: dict[Any, int] = {}  # as given: looked up before it is cleaned
        self._t, self._i, self._j, self._c = array("q"), array("q"), array("q"), array("d")

    def add(self, place: str, time: Any, row: Any, column: Any, count: Any) -> None:
        self._t.append(self.time_id(time, place))
        self._i.append(self.name_id(self.rows, row, "row", place))
        self._j.append(self.name_id(self.columns, column, "column", place))
        self._c.append(clean_count(count, place))

    def add_product(self, t: int, rows: Sequence[int], columns: NDArray[np.int64], counts: NDArray[np.float64]) -> None:
        """Every row with every column: a document with its authors and its words."""
        n = len(columns) * len(rows)
        self._t.frombytes(np.full(n, t, dtype=np.int64).tobytes())
        self._i.frombytes(np.repeat(np.asarray(rows, dtype=np.int64), len(columns)).tobytes())
        self._j.frombytes(np.tile(columns.astype(np.int64), len(rows)).tobytes())
        self._c.frombytes(np.tile(counts, len(rows)).tobytes())

    def time_id(self, time: Any, place: str) -> int:
        try:
            known = self._raw_times.get(time)
        except TypeError:  # not hashable: no time either, says the cleaner
            known = None
        if known is None or isinstance(time, bool):
            clean = clean_time(time, place)
            known = self.times.setdefault(clean, len(self.times))
            self._raw_times[time] = known
        return known

    def name_id(self, names: dict[str, int], name: Any, kind: str, place: str) -> int:
        known = names.get(name) if type(name) is str else None
        if known is not None:
            return known
        return names.setdefault(clean_name(name, kind, place), len(names))

    def finish(self, *, times: Sequence[Any] | None, kind_names: tuple[str, str]) -> Events:
        if not len(self._c) or not max(self._c) > 0:
            raise InputError("There are no events with a count above 0: nothing can be learned from this table.")
        ordered, gaps = order_times(self.times) if times is None else given_order(times, self.times)
        row_names, column_names = sorted(self.rows), sorted(self.columns)
        place = {t: k for k, t in enumerate(ordered)}
        t = np.array([place[x] for x in self.times], dtype=np.int64)[np.array(self._t)]
        i = _renumber(self.rows, row_names)[np.array(self._i)]
        j = _renumber(self.columns, column_names)[np.array(self._j)]
        c = np.array(self._c)
        shape = (len(row_names), len(column_names))
        # sorted first, so that equal tables are equal bits whatever the order of the input
        order = np.lexsort((c, j, i, t))
        t, i, j, c = t[order], i[order], j[order], c[order]
        edges = np.searchsorted(t, np.arange(len(ordered) + 1))
        tables = []
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            table = sp.coo_array((c[a:b], (i[a:b], j[a:b])), shape=shape).tocsr()
            table.sum_duplicates()
            table.eliminate_zeros()
            tables.append(table)
        if not all((table.data <= LARGEST_COUNT).all() for table in tables):
            raise InputError(f"The sum of some counts is above {LARGEST_COUNT:g}: scale all counts down.")
        return Events(ordered, gaps, row_names, column_names, tables, kind_names)


def _renumber(names: dict[str, int], ordered: list[str]) -> NDArray[np.int64]:
    out = np.empty(len(names), dtype=np.int64)
    for new, name in enumerate(ordered):
        out[names[name]] = new
    return out


# --- cleaning -------------------------------------------------------------------------------------------


def clean_name(name: Any, kind: str, place: str) -> str:
    """A name as text; it may hold anything that is text, markup and line ends too."""
    if isinstance(name, bool | np.bool_) or not isinstance(name, str | int | np.integer):
        raise InputError(f"{place}: the {kind} is {short(name)}, and must be a name, as text.")
    text = str(name)
    if not text.strip():
        raise InputError(f"{place}: the {kind} has an empty name; give it one or leave the event out.")
    if any("\ud800" <= ch <= "\udfff" for ch in text):
        raise InputError(f"{place}: the {kind} {short(text)} holds half a surrogate pair and is not text.")
    return text


def clean_count(count: Any, place: str) -> float:
    if isinstance(count, bool | np.bool_) or not isinstance(count, int | float | np.integer | np.floating | str):
        raise InputError(f"{place}: the count is {short(count)}, and must be a number.")
    try:
        number = float(count)
    except (ValueError, OverflowError):
        raise InputError(f"{place}: the count is {short(count)}, and must be a number.") from None
    if not math.isfinite(number):
        raise InputError(f"{place}: the count is {number}, and must be a finite number.")
    if number < 0:
        raise InputError(f"{place}: the count is {number:g}, and counts cannot be negative.")
    if number > LARGEST_COUNT:
        raise InputError(f"{place}: the count is {number:g}, above {LARGEST_COUNT:g}: scale all counts down.")
    return number


def _pair(value: Any, name: str) -> tuple[Any, Any]:
    """A threshold for rows and one for columns."""
    pair = value if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(isinstance(x, int | float | np.number) for x in pair):
        raise InputError(f"select: {name}={short(value)} must be a number, or a pair of them for rows and columns.")
    return pair[0], pair[1]


def check_kinds(kind_names: Sequence[str]) -> tuple[str, str]:
    if isinstance(kind_names, str) or len(kind_names) != 2 or not all(isinstance(k, str) and k for k in kind_names):
        raise InputError(f"kind_names={short(kind_names)} must be two words, for rows and for columns.")
    if kind_names[0] == kind_names[1]:
        raise InputError(f"kind_names={short(kind_names)}: the two kinds need different words.")
    return kind_names[0], kind_names[1]


# --- tables in memory -----------------------------------------------------------------------------------

Record = tuple[str, Any, Any, Any, Any]  # place, time, row, column, count


def _given_records(X: EventSource) -> Iterator[Record]:
    if isinstance(X, bytes | dict) or not isinstance(X, Iterable):
        raise InputError(
            f"Events cannot be made of {type(X).__name__}: give rows of (time, row, column, count), "
            "a DataFrame, or a path."
        )
    for k, event in enumerate(X):
        place = f"event {k}"
        if isinstance(event, str | bytes | dict) or not isinstance(event, Iterable):
            raise InputError(f"{place}: {short(event)} is not a row of (time, row, column, count).")
        parts = tuple(event)
        if len(parts) not in (3, 4):
            raise InputError(f"{place} has {len(parts)} parts; give (time, row, column, count).")
        yield place, parts[0], parts[1], parts[2], parts[3] if len(parts) == 4 else 1.0


def _frame_records(frame: Any) -> tuple[Iterator[Record], tuple[str, str]]:
    columns = frame_columns(frame)
    picked, kinds = pick_columns(list(columns), "the DataFrame")
    arrays = [list(columns.values())[k] for k in picked]
    if len(arrays) == 3:
        arrays.append([1.0] * len(arrays[0]))
    return ((f"row {k} of the DataFrame", *parts) for k, parts in enumerate(zip(*arrays, strict=True))), kinds


def pick_columns(names: Sequence[str], where: str) -> tuple[list[int], tuple[str, str]]:
    """Which columns are time, row, column and count (if there is one), and what rows and columns are called.

    By the names time, row, column, count where they are there; otherwise the first columns in this order.
    """
    lower = [n.strip().lower() for n in names]
    if {"time", "row", "column"} <= set(lower):
        picked = [lower.index(n) for n in ("time", "row", "column")]
        if "count" in lower:
            picked.append(lower.index("count"))
        return picked, (ROW_KIND, COLUMN_KIND)
    if len(names) not in (3, 4):
        raise InputError(
            f"{where} has {len(names)} columns ({', '.join(names[:8])}): name them time, row, column and count, "
            "or have these four alone, in this order."
        )
    kinds = (names[1].strip(), names[2].strip())
    return list(range(len(names))), kinds if all(kinds) and kinds[0] != kinds[1] else (ROW_KIND, COLUMN_KIND)
