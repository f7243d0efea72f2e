"""Events from dated documents: every author of a paper is credited with every count of its words."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from undertow.errors import InputError, short
from undertow.text.event_files import dated_file, json_lines, suffix_of, table_documents, text_lines
from undertow.text.events import Events, EventsBuilder, check_kinds, clean_count, clean_name
from undertow.text.frames import dict_rows, is_frame
from undertow.text.reading import expand_inputs
from undertow.text.tokenizer import Tokenizer

_MISSING = object()
LOOKED_AT = 100  # first documents, which say whether a list holds names or paragraphs
LONGEST_NAME = 200  # characters
Documents = str | os.PathLike[str] | Iterable[dict[str, Any]]


def events_from_documents(
    documents: Documents | Sequence[str],
    *,
    time: str = "year",
    rows: str = "authors",
    columns: str = "words",
    years: int | None = None,
    tokenizer: Callable[[str], Iterable[Iterable[str]]] | None = None,
    stop_words: Iterable[str] = (),
    kind_names: Sequence[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Events:
    """Count (time, row, column) events in documents.

    A field of rows or columns is a name, a list of names (a name may be a list of its parts, such as ["Last",
    "First"]), or an object name → count. A string as columns is a text, whose words are counted in lower case, and so
    is a list of paragraphs, known by a long one in the first documents. Every row of a document is counted with each of
    its columns. Documents without rows or columns are skipped.

    Parameters
    ----------
    documents
        Names of files, or dictionaries. JSON lines; CSV and TSV with a header, where ";" separates the names of a
        field; text files with a date in their names (`1970/ALB_25_1970.txt`), whose rows are the rest of the name, or
        the folder if `rows` is "folder"; folders of these; and patterns; or a
        DataFrame of pandas or Polars, an Arrow table, rows of `datasets`.
    time, rows, columns
        The names of the fields; of text files what they are called.
    years
        Length of a step in years: a year or date becomes the first year of its step, so that 5 makes 1992-07-01 one of
        1990. None takes times as they are.
    tokenizer
        A callable text → sentences of words, instead of the default tokenizer.
    stop_words
        Columns to drop, in lower case.
    kind_names
        What rows and columns are called; by default the names of their fields, and "words" for the words of texts.
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
    if years is not None and (isinstance(years, bool) or not isinstance(years, int) or years < 1):
        raise InputError(f"years={short(years)} must be a whole number, at least 1.")
    builder = EventsBuilder()
    found = _documents(documents, (time, rows, columns))
    first = list(itertools.islice(found, LOOKED_AT))
    is_text = any(_has_long_item(document.get(columns)) for _, document in first)
    words = _WordCounter(tokenizer, frozenset(stop_words), is_text)
    for k, (place, document) in enumerate(itertools.chain(first, found)):
        when = _field(document, time, place)
        if years is not None:
            when = _step_of(when, years, f"{place}: the field {time!r}")
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
    counted = "words" if words.used else columns
    kinds = (rows, counted) if rows != counted else (rows, f"{counted} (columns)")
    return builder.finish(times=None, kind_names=check_kinds(kind_names or kinds))


def _documents(documents: Any, fields: tuple[str, str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(documents, str | os.PathLike):
        documents = [documents]
    if is_frame(documents):
        documents = dict_rows(documents)
    if not isinstance(documents, Iterable):
        raise InputError(f"Documents cannot be {type(documents).__name__}: give a path or an iterable of dictionaries.")
    for k, item in enumerate(documents):
        if isinstance(item, str | os.PathLike):
            for name in _files(os.fspath(item)):
                yield from _file_documents(name, fields)
        elif isinstance(item, dict):
            yield f"document {k}", item
        else:
            raise InputError(f"document {k} is {type(item).__name__}, and must be a dictionary.")


def _files(name: str) -> Iterator[str]:
    """The files that a name stands for: those in a folder, those of a pattern, or the one."""
    if os.path.isdir(name):
        found = [
            os.path.join(folder, file)
            for folder, _, files in os.walk(name)
            for file in files
            if not file.startswith(".")
        ]
        if not found:
            raise InputError(f"{name} is an empty folder: give one with files of dated texts.")
        yield from sorted(found)
    else:
        yield from expand_inputs([name]) if name != "-" else [name]


def _file_documents(name: str, fields: tuple[str, str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    suffix = suffix_of(name)
    if suffix in (".csv", ".tsv", ".tab"):
        for place, document in table_documents(name):
            names = document.get(fields[1], "")
            several = {fields[1]: [n.strip() for n in names.split(";") if n.strip()]} if ";" in names else {}
            yield place, {**document, **several}
    elif suffix in (".txt", ".text"):
        date, title, folder = dated_file(name)
        text = "".join(text_lines(name))
        yield name, {fields[0]: date, fields[1]: folder if fields[1] == "folder" else title, fields[2]: text}
    else:
        yield from json_lines(name)


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
        if words is not None and words.paragraphs and all(isinstance(item, str) for item in value):
            return words.count("\n".join(value))
        if words is not None and _has_long_item(value):
            raise InputError(
                f"{place} is a list with a text of more than {LONGEST_NAME} characters, where those before held names: "
                "give texts, or lists of names, in all documents."
            )
        out: dict[str, float] = {}
        for item in value:
            name = ", ".join(str(p) for p in item if p) if isinstance(item, list | tuple) else item
            name = clean_name(name, kind, place)
            out[name] = out.get(name, 0.0) + 1.0
        return dict.fromkeys(out, 1.0) if kind == "row" else out
    raise InputError(f"{place} is {type(value).__name__}, and must be a string, a list of names, or name → count.")


def _has_long_item(value: Any) -> bool:
    """Whether a list holds a text rather than names."""
    return isinstance(value, list | tuple) and any(isinstance(x, str) and len(x) > LONGEST_NAME for x in value)


def _step_of(when: Any, years: int, place: str) -> int:
    """The first year of the step of a year, a date, or a text that begins with one."""
    year = getattr(when, "year", when)
    if isinstance(year, str):
        begins = re.match(r"\s*(\d{4})(?!\d)", year)
        year = int(begins[1]) if begins else None
    if isinstance(year, bool) or not isinstance(year, int | float | np.integer) or not math.isfinite(year):
        raise InputError(f"{place} is {short(when)}, and years needs a year or a date such as 1992-07-01.")
    return math.floor(year) // years * years


class _WordCounter:
    """Words of a text in lower case, without numbers, punctuation, single letters and initials."""

    def __init__(
        self, tokenizer: Callable[[str], Iterable[Iterable[str]]] | None, stopped: frozenset[str], paragraphs: bool
    ) -> None:
        self.tokenizer = tokenizer or Tokenizer(lower=True, sentences="lines")
        self.stopped = stopped
        self.paragraphs = paragraphs  # lists hold texts, not names
        self.used = False  # the columns are texts

    def count(self, text: str) -> dict[str, float]:
        # hard-wrapped texts are common: a line end is no more than a space here
        self.used = True
        counts: Counter[str] = Counter()
        for sentence in self.tokenizer(" ".join(text.split())):
            counts.update(sentence)
        return {w: float(c) for w, c in counts.items() if len(w.rstrip(".")) > 1 and w != "NUM" and w[0].isalpha()}
