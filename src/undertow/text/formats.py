"""What the lines of a file mean: JSON lines, columns (CoNLL, TSV, CoNLL-U) and hard-wrapped paragraphs.

Every reader takes segments, whole lines with the number of the first, and gives records: clean lines and the
place in the file they come from. Readers hold one sentence, paragraph or document at a time, never a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from undertow.errors import InputError
from undertow.text.decompress import shown

Segment = tuple[bytes, int]  # whole lines, each ending in a line feed; the number of the first


class Record(NamedTuple):
    """Clean lines and the number of the source line they begin at."""

    data: bytes
    line: int
    stepping: bool = False  # True: each line of data is a line of the source; False: all are from one place


# str.isspace() beyond ASCII, in UTF-8; U+0085 and its fellow controls included
_WIDE_SPACE = rb"\xc2[\x80-\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
_BLANK_LINES = rb"(?:(?:[\t\x0b\x0c\x1c-\x1f ]|" + _WIDE_SPACE + rb")*+\n)++"

# ---------------------------------------------------------------- paragraphs

_LEADING_BLANKS = re.compile(_BLANK_LINES)
_PARAGRAPH_END = re.compile(rb"\n" + _BLANK_LINES)


def unwrap(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Hard-wrapped lines joined by spaces to pieces of paragraphs, the last piece of each with a line feed.

    A paragraph that goes on in the next segment comes in several pieces, so that it need not be held here;
    each piece has the number of the paragraph's first line.
    """
    is_open = False  # within a paragraph, whose last line feed is not given yet
    start = 1
    for segment, first in segments:
        at, line = 0, first
        while at < len(segment):
            if blanks := _LEADING_BLANKS.match(segment, at):  # only at the start of a segment
                if is_open:
                    yield b"\n", start
                is_open, next_at = False, blanks.end()
            else:
                found = _PARAGRAPH_END.search(segment, at)
                end, next_at = found.span() if found else (len(segment) - 1, len(segment))
                piece = segment[at:end].replace(b"\n", b" ")
                if not is_open:
                    start = line
                yield (b" " if is_open else b"") + piece + (b"\n" if found else b""), start
                is_open = found is None
            line += segment.count(b"\n", at, next_at)
            at = next_at
    if is_open:
        yield b"\n", start


# ---------------------------------------------------------------- JSON lines

_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}


def json_strings(segments: Iterable[Segment], name: str, text_field: str) -> Iterator[tuple[str, int]]:
    """The strings of one field of every JSON object, each with its line number."""
    for segment, first in segments:
        for number, row in enumerate(segment[:-1].split(b"\n"), first):
            if row and not row.isspace():
                value = _field(row, name, number, text_field)
                for text in [value] if isinstance(value, str) else value:
                    yield text, number


def _field(row: bytes, name: str, number: int, text_field: str) -> str | list[str]:
    place = f"{shown(name)}, line {number}"
    try:
        document = json.loads(row.decode())
    except json.JSONDecodeError as e:
        reason = f"{e.msg.lower()} at character {e.colno}"
        raise InputError(f"{place}: this is not JSON ({reason}); every line must be one JSON object.") from None
    except (ValueError, RecursionError) as e:  # a number of too many digits, lists nested too deep
        raise InputError(f"{place}: this JSON cannot be read ({e}).") from None
    if not isinstance(document, dict):
        raise InputError(f"{place}: a JSON object is needed here, not {_json_type(document)}.")
    inner, value = _walk(document, text_field)
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return value
    there = f"the fields are {_names(inner)}" if inner else "the object is empty"
    if value is _MISSING:
        raise InputError(f"{place}: there is no field {text_field!r}; {there}; choose with text_field (--text-field).")
    found = "a list with other things than strings" if isinstance(value, list) else _json_type(value)
    raise InputError(
        f"{place}: the field {text_field!r} is {found} and must be a string or a list of strings; {there}; "
        "choose with text_field (--text-field)."
    )


_MISSING = object()


def _walk(document: dict[str, Any], path: str) -> tuple[dict[str, Any], Any]:
    """The innermost object that was reached along a dotted path, and the value at its end or `_MISSING`."""
    if path in document:  # a key that itself holds a dot
        return document, document[path]
    inner = document
    value: Any = document
    for part in path.split("."):
        if not isinstance(value, dict):
            return inner, _MISSING
        inner, value = value, value.get(part, _MISSING)
    return inner, value


def _json_type(value: object) -> str:
    return _JSON_TYPES.get(type(value), "a number")


def _names(fields: dict[str, Any], most: int = 12) -> str:
    names = [ascii(key if len(key) <= 40 else key[:40] + "…") for key in list(fields)[:most]]
    return ", ".join(names) + (f" and {len(fields) - most} more" if len(fields) > most else "")


def encode_text(text: str, on_bad: str) -> tuple[bytes, int]:
    """UTF-8 of a string with only line feeds in it, and the number of lone surrogates replaced or dropped.

    Raises UnicodeEncodeError for the first one when `on_bad` is "strict".
    """
    n_bad = 0
    if on_bad != "strict":
        text, n_bad = _SURROGATE.subn("\ufffd" if on_bad == "replace" else "", text)
    data = text.encode()
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data if not data or data.endswith(b"\n") else data + b"\n", n_bad


# ---------------------------------------------------------------- columns

_SPECIAL = frozenset((b"", b"#", b"-", b" ", b"\t", b"\x0b", b"\x0c"))  # rows that begin so are looked at twice
_DOCSTART = b"-DOCSTART-"
_MOST_HELD = 1000  # rows kept while no row has shown the columns yet; what is dropped were comments
_RANGE_OR_EMPTY_NODE = re.compile(rb"\d+(?:-|\.)\d+")
# first bytes of all that could pass for white space within a word: one character class, so the search is fast
_MAYBE_SPACE = re.compile(rb"[\x00-\x1f\x7f\xc2\xe1\xe2\xe3]")
_SPACE = re.compile(rb"[\x00-\x20\x7f]|" + _WIDE_SPACE)


class _Table(NamedTuple):
    """How the rows of one file are laid out; every row must have `n_columns`, the words are in `column`."""

    name: str
    style: str  # "tab", "conllu" (tabs as well), or "white": separated by runs of white space
    column: int
    n_columns: int
    tag_column: int | None = None

    def refuse(self, number: int, why: str) -> NoReturn:
        raise InputError(f"{shown(self.name)}, row {number}: {why}.")

    def refuse_ragged(self, number: int, n_found: int) -> NoReturn:
        model = "CoNLL-U" if self.style == "conllu" else "the first row"
        hint = "" if self.style == "white" else " (columns are separated by tabs)"
        found = f"{n_found} column{'s' * (n_found != 1)}"
        self.refuse(number, f"{found} here where {model} has {self.n_columns}{hint}")

    def is_comment(self, row: bytes) -> bool:
        if self.style == "conllu":
            return row.startswith(b"#")
        if self.style == "tab":
            return row.startswith(b"# ") and b"\t" not in row
        return row.startswith(b"#") and len(row.split()) != self.n_columns

    def ends_sentence(self, row: bytes) -> bool:
        return not row.strip() or (self.style != "conllu" and row.startswith(_DOCSTART))

    def with_tags(self, column: int | None, number: int) -> _Table:
        """The same table with tags in `column`, which counts from 1 or, negative, from the end."""
        if column is None:
            return self
        found = column if column > 0 else self.n_columns + 1 + column
        if self.n_columns == 1:
            hint = "" if self.style == "white" else ", separated by tabs (if by spaces, give --format conll)"
            self.refuse(number, f"there is one column here: words and tags must be in two{hint}")
        if not 1 <= found <= self.n_columns or found == self.column:
            why = "holds the words" if found == self.column else f"is not among the {self.n_columns} of this row"
            self.refuse(number, f"column {column} for the tags {why}; choose with tags (--tags)")
        return self._replace(tag_column=found)

    def tag(self, number: int, cell: bytes) -> bytes:
        tag = cell.strip(b" ")
        if not tag or _SPACE.search(tag):
            what = "has white space in it" if tag else "is empty"
            self.refuse(number, f"the tag in column {self.tag_column} {what}; choose the column with tags (--tags)")
        return tag

    def check_size(self, words: list[bytes], start: int, max_bytes: int) -> None:
        if sum(map(len, words)) + len(words) - 1 > max_bytes:
            why = f"the sentence that begins here is above {max_bytes:,} bytes; a blank line ends a sentence"
            self.refuse(start, why)

    def sentence(self, words: list[bytes], start: int, max_bytes: int) -> Record:
        self.check_size(words, start, max_bytes)
        data = b" ".join(words)
        if data.count(b" ") != len(words) - 1 or _MAYBE_SPACE.search(data):
            data = b" ".join([_SPACE.sub(b"_", word.strip(b" ")) or b"_" for word in words])
        return Record(data + b"\n", start)


def column_sentences(
    segments: Iterable[Segment], name: str, style: str, column: int, max_bytes: int
) -> Iterator[Record]:
    """The sentences of a file with one word a row: the words joined by single spaces."""
    return (record for record, _ in tagged_column_sentences(segments, name, style, column, None, max_bytes))


def tagged_column_sentences(
    segments: Iterable[Segment], name: str, style: str, column: int, tag_column: int | None, max_bytes: int
) -> Iterator[tuple[Record, list[bytes]]]:
    """The sentences as `column_sentences` gives them, each with the cells of the column of the tags.

    `tag_column` counts from 1, or from the end as -1, -2, ...; None reads no tags.
    """
    table: _Table | None = None
    held: list[bytes] = []
    words: list[bytes] = []
    tags: list[bytes] = []
    start = 1  # the row after the last sentence: where the open one begins, with its comments
    for segment, line in segments:
        rows, first = segment[:-1].split(b"\n"), line
        if table is None:
            # Whether a first "# NN O" is a comment or a word is known once a row has shown the columns.
            rows, first = held + rows, line - len(held)
            table = _layout(rows, first, name, style, column, tag_column)
            if table is None:
                held = rows[-_MOST_HELD:]
                continue
        n_columns, index = table.n_columns, table.column - 1
        tag_index = None if table.tag_column is None else table.tag_column - 1
        is_conllu = table.style == "conllu"
        separator = None if table.style == "white" else b"\t"
        for number, row in enumerate(rows, first):
            if row[:1] in _SPECIAL:
                if table.ends_sentence(row):
                    if words:
                        yield table.sentence(words, start, max_bytes), tags
                        words, tags = [], []
                    start = number + 1
                    continue
                if table.is_comment(row):
                    continue
            cells = row.split(separator)
            if len(cells) != n_columns:
                table.refuse_ragged(number, len(cells))
            if is_conllu and not cells[0].isdigit():
                if not _RANGE_OR_EMPTY_NODE.fullmatch(cells[0]):
                    found = ascii(cells[0][:40].decode(errors="replace"))
                    table.refuse(number, f"{found} in the first column is not a word number")
                continue
            word = cells[index]
            if not word:
                table.refuse(number, f"the word in column {table.column} is empty")
            words.append(word)
            if tag_index is not None:
                tags.append(table.tag(number, cells[tag_index]))
        table.check_size(words, start, max_bytes)  # or a file without blank lines would be held whole
    if words and table is not None:
        yield table.sentence(words, start, max_bytes), tags


def _layout(rows: list[bytes], line: int, name: str, style: str, column: int, tag_column: int | None) -> _Table | None:
    """The layout that the first row with words in it shows, or None when there is no such row yet."""
    if style == "conllu":
        return _Table(name, style, 2, 10).with_tags(tag_column, line)
    for number, row in enumerate(rows, line):
        n_tabs = row.count(b"\t")
        maybe_comment = not n_tabs and row.startswith(b"# " if style == "tsv" else b"#")
        if maybe_comment or not row.strip() or row.startswith(_DOCSTART):
            continue
        is_tab = n_tabs > 0 or style == "tsv"
        n_columns = n_tabs + 1 if is_tab else len(row.split())
        table = _Table(name, "tab" if is_tab else "white", column, n_columns)
        if column > n_columns:
            why = f"there is no column {column} for the words, the row has {n_columns}; choose with column (--column)"
            table.refuse(number, why)
        return table.with_tags(tag_column, number)
    return None
