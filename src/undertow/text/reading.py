"""From files to chunks of clean UTF-8: compressed or not, any line end, any of the formats, in bounded memory.

A file goes through small stages, each an iterator over blocks of bytes: uncompress (`decompress`), check
UTF-8, make line ends line feeds, bound the lines, understand the format (`formats`), pack into chunks.
Running text is never looked at line by line. Nothing here knows of tokens; column files bring their own.
"""

from __future__ import annotations

import codecs
import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from undertow.errors import InputError
from undertow.text.decompress import Source, compression_suffix, open_source, shown, uncompressed_blocks, why_unopened
from undertow.text.formats import Record, Segment, column_sentences, encode_text, json_strings, unwrap

FORMATS = ("auto", "text", "jsonl", "conll", "conllu", "tsv")
BAD_UTF8_POLICIES = ("strict", "replace", "skip")
_BY_SUFFIX = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".conllu": "conllu",
    ".conll": "conll",
    ".iob": "conll",
    ".tsv": "tsv",
}
_REPLACEMENT = "\ufffd"


class Chunk(NamedTuple):
    """Some whole lines of one source as valid UTF-8 with line feeds only; the last line has one too."""

    data: bytes
    tokenized: bool  # True: a sentence a line, tokens separated by single spaces; False: running text
    source: str  # the file name as given, "-" for standard input
    line: int  # the number of the source line this chunk begins at, counted from 1
    bytes_read: int  # bytes of the source, as stored, that were read so far


@dataclass
class ReadingReport:
    """What was read so far; it is kept up to date while chunks are taken."""

    files: int = 0
    bytes: int = 0  # after decompression
    lines: int = 0  # of the files, before cutting and joining
    cut_lines: int = 0  # lines (or joined paragraphs) above `max_line_bytes`, each counted once
    bad_utf8: int = 0  # invalid sequences and lone surrogates that were replaced or skipped


class ReadingOptions(NamedTuple):
    """How files are understood; `_asdict()` goes into manifests as it is."""

    format: str = "auto"  # one of FORMATS; auto goes by the file name
    text_field: str = "text"  # of JSON lines; "a.b" is the field b of the object a
    column: int = 1  # of the words in CoNLL and TSV files, counted from 1
    on_bad_utf8: str = "strict"  # one of BAD_UTF8_POLICIES
    wrapped: bool = False  # lines are hard-wrapped: a blank line ends a paragraph, other line ends are spaces
    max_line_bytes: int = 16 << 20
    chunk_bytes: int = 4 << 20  # a chunk ends with the first line that fills it


_DEFAULT_OPTIONS = ReadingOptions()


def check_options(options: ReadingOptions) -> None:
    """Refuse options no file could be read with."""
    if options.format not in FORMATS:
        raise InputError(f"format {options.format!r} is unknown: choose one of {', '.join(FORMATS)}.")
    if options.on_bad_utf8 not in BAD_UTF8_POLICIES:
        policies = ", ".join(BAD_UTF8_POLICIES)
        raise InputError(f"on_bad_utf8 {options.on_bad_utf8!r} is unknown: choose one of {policies}.")
    if not options.text_field:
        raise InputError("text_field is empty: name the field of the JSON objects that holds the text.")
    for name in ("column", "max_line_bytes", "chunk_bytes"):
        if getattr(options, name) < 1:
            raise InputError(f"{name} is {getattr(options, name)} and must be 1 or more.")


def expand_inputs(patterns: Sequence[str | Path]) -> list[str]:
    """The files that names and globs (`**` included) stand for, each once; matches are sorted."""
    if isinstance(patterns, str | Path):  # a string is a sequence of strings too
        patterns = [patterns]
    names: dict[str, None] = {}
    for given in patterns:
        pattern = os.fspath(given)
        if pattern == "-" and pattern in names:
            raise InputError("standard input (-) is given twice: it can be read once.")
        names.update(dict.fromkeys([pattern] if pattern == "-" else _matches(pattern)))
    if not names:
        raise InputError("no input is given: name at least one file, or - for standard input.")
    return list(names)


def _matches(pattern: str) -> list[str]:
    if os.path.exists(pattern) or not glob.has_magic(pattern):  # "notes[1].txt" may be a file's name
        found = [pattern]
    else:
        found = sorted(match for match in glob.glob(pattern, recursive=True) if not os.path.isdir(match))
        if not found:
            raise InputError(f"no file matches {shown(pattern)}: check the pattern.")
    for name in found:
        if not os.path.exists(name):
            raise InputError(why_unopened(name, FileNotFoundError()))
        if os.path.isdir(name):
            raise InputError(why_unopened(name, IsADirectoryError()))
        if not os.access(name, os.R_OK):  # not by opening: a named pipe can be opened once
            raise InputError(why_unopened(name, PermissionError()))
    return found


def read_chunks(
    inputs: Sequence[str | Path],
    options: ReadingOptions = _DEFAULT_OPTIONS,
    report: ReadingReport | None = None,
) -> Iterator[Chunk]:
    """Chunks of all inputs in order; where they begin and end depends on the bytes and the options alone.

    Options and names are checked at once, contents as they are read.
    """
    check_options(options)
    names = expand_inputs(inputs)
    return _read_all(names, options, report if report is not None else ReadingReport())


def line_segments(source: Source, options: ReadingOptions, report: ReadingReport, may_cut: bool) -> Iterator[Segment]:
    """The whole lines of an open source, uncompressed, valid UTF-8 with line feeds only, in runs with their numbers."""
    blocks = _line_feeds(_valid_utf8(uncompressed_blocks(source), source.name, options.on_bad_utf8, report))
    # Cuts within wrapped text are undone when its lines are joined: only those of the paragraphs count.
    lines = _Lines(source.name, options.max_line_bytes, report, may_cut=may_cut, count_cuts=not options.wrapped)
    return lines.whole(blocks)


def _read_all(names: list[str], options: ReadingOptions, report: ReadingReport) -> Iterator[Chunk]:
    for name in names:
        format_ = format_of(name) if options.format == "auto" else options.format
        is_tokenized = format_ in ("conll", "conllu", "tsv")
        with open_source(name) as source:
            for data, line in _pack(_records(source, format_, options, report), options.chunk_bytes):
                yield Chunk(data, is_tokenized, name, line, source.bytes_read)
        report.files += 1


def format_of(name: str) -> str:
    """The format that a file name shows, below its compression suffix."""
    suffix = compression_suffix(name)
    return _BY_SUFFIX.get(os.path.splitext(name[: len(name) - len(suffix)])[1].lower(), "text")


def _records(source: Source, format_: str, options: ReadingOptions, report: ReadingReport) -> Iterator[Record]:
    limit = options.max_line_bytes
    segments = line_segments(source, options, report, may_cut=format_ == "text")
    if format_ == "jsonl":
        return _json_records(segments, source.name, options, report)
    if format_ != "text":
        return column_sentences(segments, source.name, format_, options.column, limit)
    if options.wrapped:
        return _paragraphs(segments, limit, report)
    return (Record(data, line, stepping=True) for data, line in segments)


# ---------------------------------------------------------------- bytes


def _valid_utf8(blocks: Iterator[bytes], name: str, on_bad: str, report: ReadingReport) -> Iterator[bytes]:
    """Blocks that are valid UTF-8 each for itself, without a byte order mark at the start."""
    offset = 0  # of `block` in the uncompressed stream
    rest = b""  # the start of a character whose end is in the next block
    for piece in blocks:
        report.bytes += len(piece)
        block = rest + piece
        if not offset and block.startswith(codecs.BOM_UTF8):  # in parts it waits in `rest`
            block, offset = block[3:], 3
        if block.isascii():  # many times faster than decoding
            n_done = len(block)
            yield block
        else:
            valid, n_done = _repair(block, offset, name, on_bad, report, final=False)
            yield valid
        offset += n_done
        rest = block[n_done:]
    if rest:
        yield _repair(rest, offset, name, on_bad, report, final=True)[0]


def _repair(
    block: bytes, offset: int, name: str, on_bad: str, report: ReadingReport, *, final: bool
) -> tuple[bytes, int]:
    """The valid UTF-8 of a block and how many of its bytes that is; a last character may be incomplete."""
    try:
        n_done = codecs.utf_8_decode(block, "strict", final)[1]
        return block[:n_done], n_done
    except UnicodeDecodeError as e:
        if on_bad == "strict":
            found = f"0x{block[e.start]:02x}, {e.reason}"
            raise InputError(
                f"{shown(name)} is not valid UTF-8 at byte {offset + e.start} ({found}): "
                "convert it to UTF-8, or use on_bad_utf8='replace' or 'skip' (--on-bad-utf8)."
            ) from None
    text, n_done = codecs.utf_8_decode(block, "replace", final)
    # a replacement character that was in the text already is always these three bytes
    report.bad_utf8 += text.count(_REPLACEMENT) - block.count(_REPLACEMENT.encode())
    if on_bad == "skip":
        text = codecs.utf_8_decode(block, "ignore", final)[0]
    return text.encode(), n_done


def _line_feeds(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks in which CR LF and lone CR have become LF, also when the pair was split between two blocks."""
    after_cr = False
    for block in blocks:
        if not block:
            continue
        # the CR before this LF has been given as a line feed already
        data = block[1:] if after_cr and block.startswith(b"\n") else block
        after_cr = block.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if data:
            yield data


# ---------------------------------------------------------------- lines


class _Lines:
    """Gathers blocks to whole lines, none longer than the limit, and counts them."""

    def __init__(self, name: str, limit: int, report: ReadingReport, *, may_cut: bool, count_cuts: bool) -> None:
        self.name = name
        self.limit = limit
        self.report = report
        self.may_cut = may_cut
        self.count_cuts = count_cuts
        self.line = 1
        self._is_cut = False  # the open line has been cut before

    def whole(self, blocks: Iterator[bytes]) -> Iterator[Segment]:
        """Segments of whole lines with the number of their first; a last line feed is added if it lacks."""
        held: list[bytes] = []  # the open line, in pieces, so that a long one is joined once
        n_held = 0
        for block in blocks:
            held.append(block)
            n_held += len(block)
            if n_held <= self.limit and b"\n" not in block:
                continue
            data = held[0] if len(held) == 1 else b"".join(held)
            start = 0
            for cut in self._cuts(data):
                yield self._segment(data[start:cut] + b"\n", n_made=1)
                start = cut + 1
            end = data.rfind(b"\n", start) + 1
            if end > start:
                yield self._segment(data[start:end])
                start = end
            held, n_held = [data[start:]], len(data) - start
        last = b"".join(held)
        if last or self._is_cut:  # what follows a cut is a line even when it is empty
            yield self._segment(last + b"\n")

    def _segment(self, data: bytes, n_made: int = 0) -> Segment:
        """Lines with their number; `n_made` of their line feeds were made by a cut and count for nothing."""
        first = self.line
        n_lines = data.count(b"\n") - n_made
        self.line += n_lines
        self.report.lines += n_lines
        return data, first

    def _cuts(self, data: bytes) -> Iterator[int]:
        """The spaces at which lines above the limit are cut, found in strides of the limit."""
        at = since = 0
        while len(data) - at > self.limit:
            end = data.rfind(b"\n", at, at + self.limit + 1)
            if end >= 0:
                self._is_cut = False
            else:
                end = data.rfind(b" ", at, at + self.limit + 1) if self.may_cut else -1
                if end < 0:
                    self._refuse(self.line + data.count(b"\n", since, at))
                self.report.cut_lines += self.count_cuts and not self._is_cut
                self._is_cut = True
                yield end
                since = end + 1
            at = end + 1
        if b"\n" in data[at:]:
            self._is_cut = False

    def _refuse(self, number: int) -> NoReturn:
        place = f"{shown(self.name)}, line {number}"
        if self.may_cut:
            raise InputError(f"{place}: more than {self.limit:,} bytes without a space (is this a text file?).")
        raise InputError(f"{place}: longer than {self.limit:,} bytes: raise max_line_bytes if this is meant.")


def _paragraphs(segments: Iterator[Segment], limit: int, report: ReadingReport) -> Iterator[Record]:
    """The paragraphs of hard-wrapped text, one a line; those above the limit are cut at spaces like lines.

    There always is a space to cut at: every wrapped line is within the limit, and a space follows it.
    """
    held: list[bytes] = []
    n_held = 0
    is_cut = False
    for piece, line in unwrap(segments):
        held.append(piece)
        n_held += len(piece)
        is_whole = piece.endswith(b"\n")
        if not is_whole and n_held <= limit:
            continue
        data = b"".join(held)
        start = 0
        while len(data) - is_whole - start > limit:
            cut = data.rfind(b" ", start, start + limit + 1)
            yield Record(data[start:cut] + b"\n", line)
            report.cut_lines += not is_cut
            is_cut, start = True, cut + 1
        held, n_held = [data[start:]], len(data) - start
        if is_whole:
            yield Record(held[0], line)
            held, n_held, is_cut = [], 0, False


def _json_records(
    segments: Iterator[Segment], name: str, options: ReadingOptions, report: ReadingReport
) -> Iterator[Record]:
    """The lines of every string in the text field; an empty string gives none, as an empty file does."""
    for text, number in json_strings(segments, name, options.text_field):
        try:
            data, n_bad = encode_text(text, options.on_bad_utf8)
        except UnicodeEncodeError as e:
            found = f"\\u{ord(text[e.start]):04x}"
            raise InputError(
                f"{shown(name)}, line {number}: the text holds half a surrogate pair ({found}): correct it, "
                "or use on_bad_utf8='replace' or 'skip' (--on-bad-utf8)."
            ) from None
        report.bad_utf8 += n_bad
        if options.wrapped:
            data = b"".join(piece for piece, _ in unwrap([(data, number)]))
        if data:
            yield Record(data, number)


def _pack(records: Iterable[Record], chunk_bytes: int) -> Iterator[Segment]:
    """Records put together until they fill a chunk, and cut after the first line that does."""
    held: list[bytes] = []
    n_held = 0
    first = 1
    for data, number, is_stepping in records:
        at, line = 0, number
        while at < len(data):
            if not held:
                first = line
            end = len(data)
            if is_full := n_held + end - at >= chunk_bytes:
                end = data.find(b"\n", at + max(chunk_bytes - n_held - 1, 0)) + 1
            held.append(data[at:end])
            n_held += end - at
            if is_full:
                yield b"".join(held), first
                held, n_held = [], 0
                line += data.count(b"\n", at, end) if is_stepping else 0
            at = end
    if held:
        yield b"".join(held), first
