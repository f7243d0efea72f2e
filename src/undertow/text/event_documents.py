"""Events from dated documents: every author of a paper is credited with every count of its words."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from undertow.errors import InputError
from undertow.text.event_files import json_lines
from undertow.text.events import Events, EventsBuilder, check_kinds, clean_count, clean_name
from undertow.text.frames import dict_rows, is_frame
from undertow.text.tokenizer import Tokenizer

_MISSING = object()
Documents = str | os.PathLike[str] | Iterable[dict[str, Any]]


def events_from_documents(
    documents: Documents | Sequence[str],
    *,
    time: str = "year",
    rows: str = "authors",
    columns: str = "words",
    tokenizer: Callable[[str], Iterable[Iterable[str]]] | None = None,
    stop_words: Iterable[str] = (),
    kind_names: Sequence[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Events:
    """Count (time, row, column) events in documents.

    A field of rows or columns is a name, a list of names (a name may be a list of its parts, such as ["Last",
    "First"]), or an object name → count. A string as columns is a text, whose words are counted in lower case. Every
    row of a document is counted with each of its columns. Documents without rows or columns are skipped.

    Parameters
    ----------
    documents
        Names of JSON lines files; or a DataFrame of pandas or Polars, an Arrow table, rows of `datasets`, dictionaries.
    time, rows, columns
        The names of the fields.
    tokenizer
        A callable text → sentences of words, instead of the default tokenizer.
    stop_words
        Columns to drop, in lower case.
    kind_names
        What rows and columns are called; by default the names of their fields.
    progress
        Called with the number of documents read.

    Returns
    -------
    Events

    Raises
    ------
    InputError
        If a document has no time, or a field cannot be understood; the message names the file and line.

    Examples
    --------
    >>> from undertow.text.event_documents import events_from_documents
    >>> papers = [{"year": 2001, "authors": ["Ann", "Bob"], "words": {"river": 2}}]
    >>> list(events_from_documents(papers).records())
    [(2001, 'Ann', 'river', 2.0), (2001, 'Bob', 'river', 2.0)]
    """
    builder = EventsBuilder()
    words = _WordCounter(tokenizer, frozenset(stop_words))
    for k, (place, document) in enumerate(_documents(documents)):
        when = _field(document, time, place)
        row_counts = _names(_field(document, rows, place), "row", f"{place}: the field {rows!r}", None)
        column_counts = _names(_field(document, columns, place), "column", f"{place}: the field {columns!r}", words)
        if words.stopped:
            column_counts = {c: n for c, n in column_counts.items() if c.lower() not in words.stopped}
        if row_counts and column_counts:
            t = builder.time_id(when, f"{place}: the field {time!r}")
            i = [builder.name_id(builder.rows, name, "row", place) for name in row_counts]
            j = np.array([builder.name_id(builder.columns, name, "column", place) for name in column_counts])
            builder.add_product(t, i, j, np.array(list(column_counts.values()), dtype=np.float64))
        if progress is not None:
            progress(k + 1)
    kinds = (rows, columns) if rows != columns else (rows, f"{columns} (columns)")
    return builder.finish(times=None, kind_names=check_kinds(kind_names or kinds))


def _documents(documents: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(documents, str | os.PathLike):
        documents = [documents]
    if is_frame(documents):
        documents = dict_rows(documents)
    if not isinstance(documents, Iterable):
        raise InputError(f"Documents cannot be {type(documents).__name__}: give a path or an iterable of dictionaries.")
    for k, item in enumerate(documents):
        if isinstance(item, str | os.PathLike):
            yield from json_lines(os.fspath(item))
        elif isinstance(item, dict):
            yield f"document {k}", item
        else:
            raise InputError(f"document {k} is {type(item).__name__}, and must be a dictionary.")


def _field(document: dict[str, Any], name: str, place: str) -> Any:
    value = document.get(name, _MISSING)
    if value is _MISSING:
        fields = ", ".join(map(str, list(document)[:12])) or "none"
        raise InputError(f"{place}: there is no field {name!r}; the fields are {fields}.")
    return value


def _names(value: Any, kind: str, place: str, words: _WordCounter | None) -> dict[str, float]:
    """Names with their counts, whatever shape the field has."""
    if value is None:
        return {}
    if isinstance(value, str):
        if words is not None:
            return words.count(value)
        return {clean_name(value, kind, place): 1.0} if value.strip() else {}
    if isinstance(value, int) and not isinstance(value, bool):
        return {str(value): 1.0}
    if isinstance(value, dict):
        return {clean_name(name, kind, place): clean_count(count, place) for name, count in value.items()}
    if isinstance(value, list | tuple):
        out: dict[str, float] = {}
        for item in value:
            name = ", ".join(str(p) for p in item if p) if isinstance(item, list | tuple) else item
            name = clean_name(name, kind, place)
            out[name] = out.get(name, 0.0) + 1.0
        return dict.fromkeys(out, 1.0) if kind == "row" else out
    raise InputError(f"{place} is {type(value).__name__}, and must be a string, a list of names, or name → count.")


class _WordCounter:
    """Words of a text in lower case, without numbers, punctuation and single letters."""

    def __init__(self, tokenizer: Callable[[str], Iterable[Iterable[str]]] | None, stopped: frozenset[str]) -> None:
        self.tokenizer = tokenizer or Tokenizer(lower=True, sentences="lines")
        self.stopped = stopped

    def count(self, text: str) -> dict[str, float]:
        # hard-wrapped texts are common: a line end is no more than a space here
        counts: Counter[str] = Counter()
        for sentence in self.tokenizer(" ".join(text.split())):
            counts.update(sentence)
        return {w: float(c) for w, c in counts.items() if len(w) > 1 and w != "NUM" and w[0].isalpha()}
