"""Rows of tables that other libraries hold: DataFrames of pandas and Polars, Arrow tables, `datasets` of Hugging Face.

None of these libraries is imported here: a table says by its methods what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from undertow.errors import InputError, missing_extra, short


def is_frame(value: Any) -> bool:
    """Whether this is a DataFrame of pandas or Polars, or whatever gives itself as an Arrow table."""
    return not isinstance(value, type) and (
        (hasattr(value, "columns") and hasattr(value, "to_numpy")) or hasattr(value, "__arrow_c_stream__")
    )


def frame_columns(frame: Any) -> dict[str, list[Any]]:
    """The columns of a table as lists; missing values of pandas are None."""
    if hasattr(frame, "iloc"):
        names = [str(name) for name in frame.columns]
        lists = [_values(frame.iloc[:, k]) for k in range(len(names))]
    elif hasattr(frame, "get_columns"):
        names, lists = [str(name) for name in frame.columns], [_values(column) for column in frame.get_columns()]
    else:
        table = _arrow_table(frame)
        names, lists = table.column_names, [_values(column) for column in table.columns]
    if len(set(names)) < len(names):
        raise InputError(f"The table has two columns of one name ({', '.join(names[:8])}): rename one.")
    return dict(zip(names, lists, strict=True))


def _values(column: Any) -> list[Any]:
    """A column of pandas, Polars or Arrow as a list; what is missing is None."""
    if hasattr(column, "notna"):
        return [v if there else None for v, there in zip(column.tolist(), column.notna(), strict=True)]
    return list(column.to_list() if hasattr(column, "to_list") else column.to_pylist())


def _arrow_table(frame: Any) -> Any:
    try:
        import pyarrow
    except ImportError as e:
        raise missing_extra(f"A table of type {type(frame).__name__} needs pyarrow", "arrow") from e
    return pyarrow.table(frame)


def dict_rows(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Rows as mappings name → value: those of a table, or of any iterable of mappings (`datasets` has such rows)."""
    if is_frame(rows):
        columns = frame_columns(rows)
        yield from (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        return
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise InputError(
            f"Rows cannot be made of {type(rows).__name__}: give a DataFrame, an Arrow table, or an iterable of "
            "dictionaries."
        )
    for k, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(f"Row {k} is {short(row)}, not a dictionary of its fields.")
        yield row


def text_rows(rows: Any, field: str) -> Iterator[str]:
    """The texts of rows: of a field of each, or the rows themselves where they are strings; empty ones are left out."""
    if isinstance(rows, str | bytes):
        raise InputError("The documents are a single string: give a list of them, or name files in Corpus.build.")
    is_table = hasattr(rows, "columns") or hasattr(rows, "column_names")
    if not is_table and (hasattr(rows, "to_list") or hasattr(rows, "to_pylist")):
        rows = _values(rows)  # a single column
    if not is_frame(rows) and isinstance(rows, Iterable):
        rows = iter(rows)
        first = next(rows, None)
        if first is None:
            return
        rows = _chain(first, rows)
        if isinstance(first, str):
            yield from (text for k, text in enumerate(rows) if _checked(text, f"Document {k}"))
            return
    for k, row in enumerate(dict_rows(rows)):
        if field not in row:
            raise InputError(f"Row {k} has no field {field!r}: its fields are {', '.join(map(str, row))[:200]}.")
        if _checked(row[field], f"The field {field!r} of row {k}"):
            yield row[field]


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _checked(text: Any, place: str) -> bool:
    """Whether there is a text; InputError if it is something else."""
    if text is None:
        return False
    if not isinstance(text, str):
        raise InputError(f"{place} is of type {type(text).__name__}, and must be a string.")
    return bool(text.strip())
