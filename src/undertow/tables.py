"""Tables: lists of named tuples that print as tables and become DataFrames."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any, Generic, SupportsIndex, TypeVar, overload

from undertow.errors import InputError, missing_extra, short

Row = TypeVar("Row", bound=tuple[Any, ...])

MOST_ROWS = 40  # printed; a DataFrame has all of them
WIDEST = 60  # characters of a printed cell
LIBRARIES = ("pandas", "polars")


class Table(list[Row], Generic[Row]):
    """A list of named tuples that prints as a table.

    It is a list in every other way. In a notebook it is shown as an HTML table. A row that holds a table of its own,
    such as a gap with its words, is spread over several rows: its class has the methods `spread`, which gives them,
    and `spread_type`, their class.

    Parameters
    ----------
    row_type
        The class of the rows, which names the columns.
    rows
        The rows.
    note
        A sentence to print below the table.

    Examples
    --------
    >>> from undertow.models.answers import Neighbor
    >>> from undertow.tables import Table
    >>> near = Table(Neighbor, [Neighbor("river", 0.9), Neighbor("shore", 0.75)])
    >>> print(near)
    word   cosine
    river     0.9
    shore    0.75
    >>> near[0].word
    'river'
    >>> near.columns()
    {'word': ['river', 'shore'], 'cosine': [0.9, 0.75]}
    """

    def __init__(self, row_type: type[Row], rows: Iterable[Row] = (), *, note: str = "") -> None:
        super().__init__(rows)
        self.row_type = row_type
        self.note = note

    @overload
    def __getitem__(self, key: SupportsIndex) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> Table[Row]: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Row | Table[Row]:
        if isinstance(key, slice):
            return Table(self.row_type, super().__getitem__(key), note=self.note)
        return super().__getitem__(key)

    # --- as other tables ----------------------------------------------------------------------------------

    def columns(self) -> dict[str, list[Any]]:
        """The table by columns.

        Returns
        -------
        dict
            Name → list of values. A column of named tuples becomes one column for each of their fields.
        """
        spread = getattr(self.row_type, "spread", None)
        if spread is not None:
            finer = [part for k, row in enumerate(self) for part in spread(row, k)]
            return _columns(self.row_type.spread_type(), finer)  # type: ignore[attr-defined]
        return _columns(self.row_type, self)

    def to_frame(self, library: str = "pandas") -> Any:
        """The table as a DataFrame.

        Parameters
        ----------
        library
            "pandas" or "polars".

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            A column for each name of `columns`.

        Raises
        ------
        MissingExtraError
            If the library is not installed.
        """
        if library not in LIBRARIES:
            raise InputError(f"library={short(library)} must be one of {', '.join(LIBRARIES)}.")
        return _frame_class(library)(self.columns())

    def to_arrow(self) -> Any:
        """The table as an Arrow table.

        Returns
        -------
        pyarrow.Table
            A column for each name of `columns`.

        Raises
        ------
        MissingExtraError
            If pyarrow is not installed.
        """
        try:
            import pyarrow
        except ImportError as e:
            raise missing_extra("An Arrow table needs pyarrow", "arrow") from e
        return pyarrow.table(self.columns())

    # --- for people ---------------------------------------------------------------------------------------

    def __str__(self) -> str:
        names, cells, is_number = self._shown()
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, is_number, strict=True)
            ).rstrip()
            for row in (names, *cells)
        ]
        return "\n".join([*lines, *self._below()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        names, cells, is_number = self._shown()

        def line(tag: str, row: Sequence[str]) -> str:
            right = ' style="text-align:right"'
            return "".join(
                f"<{tag}{right if number else ''}>{html.escape(cell)}</{tag}>"
                for cell, number in zip(row, is_number, strict=True)
            )

        body = "".join(f"<tr>{line('td', row)}</tr>" for row in cells)
        below = "".join(f"<p>{html.escape(text)}</p>" for text in self._below())
        return f"<table><thead><tr>{line('th', names)}</tr></thead><tbody>{body}</tbody></table>{below}"

    def _shown(self) -> tuple[list[str], list[list[str]], list[bool]]:
        """Names, cells of the first rows as text, and which columns hold numbers."""
        columns = self.columns()
        first = [column[:MOST_ROWS] for column in columns.values()]
        is_number = [any(map(_is_number, c)) and all(v is None or _is_number(v) for v in c) for c in first]
        return list(columns), [[as_text(v) for v in row] for row in zip(*first, strict=True)], is_number

    def _below(self) -> list[str]:
        n_rows = max(map(len, self.columns().values()), default=0)
        more = [f"… {n_rows - MOST_ROWS:,} more rows"] if n_rows > MOST_ROWS else []
        return [*more, *(["(no rows)"] if not n_rows else []), *([self.note] if self.note else [])]


def as_text(value: Any) -> str:
    """A value on one line, for a cell."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return _one_line(", ".join(as_text(v) for v in value))
    if _is_number(value) and not isinstance(value, int):
        return f"{value:.4g}"
    return _one_line(str(value))


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def _is_number(value: Any) -> bool:
    # NumPy's numbers too, without importing it for them
    return hasattr(value, "__float__") and hasattr(value, "__add__") and not isinstance(value, bool)


def _columns(row_type: Any, rows: Sequence[Any]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for k, name in enumerate(row_type._fields):
        column = [row[k] for row in rows]
        inner = type(column[0]) if column else None
        if hasattr(inner, "_fields") and all(type(v) is inner for v in column):
            out |= {(f"{name}_{n}" if n in out else n): c for n, c in _columns(inner, column).items()}
        else:
            out[name] = column
    return out


def _frame_class(library: str) -> Any:
    try:
        if library == "pandas":
            import pandas

            return pandas.DataFrame
        import polars
    except ImportError as e:
        raise missing_extra(f"A DataFrame of {library} needs {library}", "tables") from e
    return polars.DataFrame


__all__ = ["Table"]
