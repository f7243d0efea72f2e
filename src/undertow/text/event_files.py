"""Events in files: reading CSV, TSV and JSON lines, compressed or not, with errors that name the line; writing."""

from __future__ import annotations

import codecs
import csv
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undertow.atomic import finished_file
from undertow.errors import InputError
from undertow.text.decompress import compression_suffix, open_source, shown, uncompressed_blocks
from undertow.text.events import Events, Record, pick_columns

MAX_FIELD = 1 << 20
MAX_TEXT = 64 << 20  # of a document in a table
LONGEST_NAME = 300  # characters: titles of papers are names too, but a longer one is a text


def text_lines(name: str) -> Iterator[str]:
    """The lines of a file, with their ends, decompressed if needed."""
    decode = codecs.getincrementaldecoder("utf-8")("strict").decode
    rest = ""
    with open_source(name) as source:
        try:
            for block in uncompressed_blocks(source):
                *lines, rest = (rest + decode(block)).split("\n")
                for line in lines:
                    yield line.removesuffix("\r") + "\n"
            rest += decode(b"", True)
        except UnicodeDecodeError as e:
            raise InputError(f"{shown(name)} is not valid UTF-8 ({e.reason}): convert it to UTF-8.") from None
    if rest:
        yield rest


def json_lines(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place."""
    for number, line in enumerate(text_lines(name), 1):
        if not line.strip():
            continue
        place = f"{shown(name)}, line {number}"
        try:
            document = json.loads(line.removeprefix("\ufeff"))
        except (ValueError, RecursionError) as e:
            reason = e.msg.lower() if isinstance(e, json.JSONDecodeError) else "too long or too deep"
            raise InputError(f"{place}: this is not JSON ({reason}); every line must be one JSON object.") from None
        if not isinstance(document, dict):
            raise InputError(f"{place}: a JSON object is needed here, not {type(document).__name__}.")
        yield place, document


def table_documents(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a CSV or TSV file with a header as documents, each with its place; `;` separates names."""
    rows = _rows(name, "\t" if suffix_of(name) in (".tsv", ".tab") else ",", MAX_TEXT)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{shown(name)} is empty: give a table with a line that names its columns.")
    header = [field.strip() for field in first[1]]
    for place, row in rows:
        if len(row) != len(header):
            raise InputError(f"{place}: {len(row)} fields where the first line has {len(header)}.")
        yield place, dict(zip(header, row, strict=True))


_DATES = (re.compile(r"(?<!\d)\d{4}-\d{2}(?:-\d{2})?(?!\d)"), re.compile(r"(?<!\d)[12]\d{3}(?!\d)"))


def dated_file(name: str) -> tuple[str, str, str]:
    """The date, the name and the folder of a text file: 1970/ALB_25_1970.txt is ("1970", "ALB", "1970").

    The date is the first one in the file's name, or else in its folder's: 1989-11-09, 1989-11 or 1989. What else is in
    the file's name, without numbers, is the name; the folder's, if that is nothing.
    """
    path = Path(name[: len(name) - len(compression_suffix(name))])
    folder = Path(os.path.abspath(path)).parent.name
    for place in (path.stem, folder):
        for pattern in _DATES:
            if found := pattern.search(place):
                rest = place.replace(found.group(), " ", 1) if place is path.stem else path.stem
                words = [w for w in re.split(r"[\s_.\-]+", rest) if w and not w.isdigit()]
                return found.group(), " ".join(words) or folder, folder
    raise InputError(
        f"{shown(name)}: there is no date in the name of the file: name it like 1989-11-09-title.txt or 1989_name.txt, "
        "or give JSON lines or a table with a field for the time."
    )


def suffix_of(name: str) -> str:
    """The suffix without that of the compression, such as .csv of events.csv.gz."""
    return os.path.splitext(name[: len(name) - len(compression_suffix(name))])[1].lower()


def read_events(name: str) -> tuple[Iterator[Record], tuple[str, str]]:
    """The records of an events file and the names of its two kinds; a file of documents is refused."""
    if suffix_of(name) in (".jsonl", ".ndjson"):
        records, kinds = _read_json(name)
    else:
        records, kinds = _read_table(name, "\t" if suffix_of(name) in (".tsv", ".tab") else ",")
    return _with_names(records, kinds), kinds


def _with_names(records: Iterator[Record], kinds: tuple[str, str]) -> Iterator[Record]:
    """The records; an error where a whole text is in the place of a name, which would be an entity seen once."""
    for record in records:
        place, _, *names, _ = record
        for kind, given in zip(kinds, names, strict=True):
            if isinstance(given, str) and len(given) > LONGEST_NAME:
                raise InputError(
                    f"{place}: {kind} holds a text of {len(given):,} characters where an event has a name: count its "
                    f"words first, with undertow events --time ... --rows ... --columns {kind}."
                )
        yield record


def _read_json(name: str) -> tuple[Iterator[Record], tuple[str, str]]:
    lines = json_lines(name)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{shown(name)} is empty: give a table of events.")
    keys = list(first[1])
    picked, kinds = pick_columns(keys, f"{first[0]}: the object")
    fields = [keys[k] for k in picked]

    def records() -> Iterator[Record]:
        for place, document in _chain(first, lines):
            for field in fields:
                if field not in document:
                    raise InputError(f"{place}: there is no field {field!r}.")
            time, row, column = (document[f] for f in fields[:3])
            yield place, time, row, column, document[fields[3]] if len(fields) == 4 else 1.0

    return records(), kinds


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _read_table(name: str, delimiter: str) -> tuple[Iterator[Record], tuple[str, str]]:
    rows = _rows(name, delimiter)
    first = next(rows, None)
    if first is None:
        raise InputError(f"{shown(name)} is empty: give a table of events.")
    header = first[1]
    if _is_header(header):
        picked, kinds = pick_columns(header, shown(name))
    else:
        picked, kinds = pick_columns(["time", "row", "column", "count"][: len(header)], shown(name))
        rows = _chain(first, rows)

    def records() -> Iterator[Record]:
        for place, row in rows:
            if len(row) != len(header):
                raise InputError(f"{place}: {len(row)} fields where the first line has {len(header)}.")
            time, i, j = (row[k] for k in picked[:3])
            yield place, time, i, j, row[picked[3]] if len(picked) == 4 else 1.0

    return records(), kinds


def _is_header(row: list[str]) -> bool:
    """A first line whose last field is no number, or that names the columns."""
    if {"time", "row", "column"} <= {f.strip().lower() for f in row}:
        return True
    if len(row) == 3:
        return row[0].strip().lower() in ("time", "year", "date")
    try:
        float(row[-1])
    except (ValueError, IndexError):
        return True
    return False


def _rows(name: str, delimiter: str, most: int = MAX_FIELD) -> Iterator[tuple[str, list[str]]]:
    reader = csv.reader(text_lines(name), delimiter=delimiter, strict=True)
    before = csv.field_size_limit(most)
    try:
        for k, row in enumerate(reader):
            if row and k == 0:
                row[0] = row[0].removeprefix("\ufeff")
            if row:
                yield f"{shown(name)}, line {reader.line_num}", row
    except csv.Error as e:
        raise InputError(f"{shown(name)}, line {reader.line_num}: this is not a table ({e}).") from None
    finally:
        csv.field_size_limit(before)


def write_events(events: Events, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write events as CSV, or TSV by the file suffix.

    Parameters
    ----------
    events
        The events.
    path
        The file to write, with a header that names the kinds and rows of time, row, column, count.
    overwrite
        Replace an existing file.

    Raises
    ------
    InputError
        If the file exists or cannot be written.
    """
    target = Path(path)
    with finished_file(target, overwrite=overwrite) as ready, open(ready, "w", encoding="utf-8", newline="") as f:
        for line in event_lines(events, "\t" if suffix_of(str(target)) in (".tsv", ".tab") else ","):
            f.write(line)


class _Line:
    """What csv.writer writes to: keeps the line for whoever asks."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def event_lines(events: Events, delimiter: str = ",") -> Iterator[str]:
    line = _Line()
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\n")
    writer.writerow(["time", *events.kind_names, "count"])
    yield line.text
    for time, row, column, count in events.records():
        writer.writerow([time, row, column, int(count) if count.is_integer() else repr(count)])
        yield line.text
