"""Reading against a slow obvious truth, and every bad file with the sentence people get for it."""

from __future__ import annotations

import builtins
import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import re
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow.errors import InputError, MissingExtraError
from undertow.text import decompress
from undertow.text.reading import Chunk, ReadingOptions, ReadingReport, expand_inputs, format_of, read_chunks

DATA = Path(os.environ.get("UNDERTOW_DATA", Path(__file__).parents[3] / "shared" / "data"))


class Dribble(io.RawIOBase):
    """A pipe that brings at most `size` bytes a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file = io.BytesIO(data)
        self._size = size

    def read(self, size: int = -1) -> bytes:
        return self._file.read(self._size if size < 0 else min(size, self._size))


def from_stdin(
    data: bytes | io.RawIOBase,
    report: ReadingReport | None = None,
    read_size: int = 1 << 18,
    **options: object,
) -> list[Chunk]:
    """All chunks of standard input, brought `read_size` bytes at a time; no file is needed."""
    pipe = Dribble(data, read_size) if isinstance(data, bytes) else data
    with (
        mock.patch.object(sys, "stdin", SimpleNamespace(buffer=pipe)),
        mock.patch.object(decompress, "READ_BYTES", read_size),
    ):
        return list(read_chunks(["-"], ReadingOptions(**options), report))  # type: ignore[arg-type]


def text_of(chunks: Iterable[Chunk]) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


def read(path: Path, **options: object) -> bytes:
    return text_of(read_chunks([path], ReadingOptions(**options)))  # type: ignore[arg-type]


def refused(act: Callable[[], object]) -> str:
    """The sentence an input is refused with: one line, one period at its end."""
    with pytest.raises(InputError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".") and not message.endswith(".."), message
    assert caught.value.__cause__ is None
    return message


def zstd(data: bytes) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return bytes(sink.getvalue())


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}
TITLES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}

# ---------------------------------------------------------------- the oracle


def plain_truth(data: bytes, on_bad: str = "strict") -> list[str]:
    """The lines of a text, the whole of it in memory."""
    text = data.removeprefix(codecs.BOM_UTF8).decode(
        "utf-8", {"strict": "strict", "replace": "replace", "skip": "ignore"}[on_bad]
    )
    lines = re.split("\r\n|\r|\n", text)
    return lines if lines[-1] else lines[:-1]


def chunk_truth(lines: list[bytes], chunk_bytes: int) -> list[tuple[bytes, int]]:
    chunks, held, first = [], b"", 1
    for number, line in enumerate(lines, 1):
        held += line + b"\n"
        if len(held) >= chunk_bytes:
            chunks.append((held, first))
            held, first = b"", number + 1
    return [*chunks, (held, first)] if held else chunks


def cut_truth(line: bytes, limit: int) -> list[bytes] | None:
    """A line cut at the last space within the limit, again and again; None when there is none."""
    pieces = []
    while len(line) > limit:
        at = line[: limit + 1].rfind(b" ")
        if at < 0:
            return None
        pieces.append(line[:at])
        line = line[at + 1 :]
    return [*pieces, line]


texts = st.text(st.sampled_from("ab \r\n\t\0é€😀\u2028\x85\x0b\x0c\ufeff\ufffd"), max_size=60)
sizes = st.integers(1, 9)
BAD_AND_GOOD = [
    *(b"a", b"\n", b"\r", b"\xc3", b"\xa9", b"\xf0\x9f", b"\x98\x80", b"\xed\xa0\x80", b"\xe2\x82"),
    *(b"\xef\xbf\xbd", b"\xef\xbb\xbf", b"\xc0\xaf", b"\xf4\x90"),
]


@given(texts, st.integers(1, 30), sizes)
@settings(max_examples=300)
def test_chunks_are_the_lines_of_the_text(text: str, chunk_bytes: int, read_size: int) -> None:
    report = ReadingReport()
    chunks = from_stdin(text.encode(), report, read_size, chunk_bytes=chunk_bytes)
    lines = [line.encode() for line in plain_truth(text.encode())]
    assert [(c.data, c.line) for c in chunks] == chunk_truth(lines, chunk_bytes)
    assert report == ReadingReport(1, len(text.encode()), len(lines), 0, 0)


@given(
    st.lists(
        st.sampled_from(BAD_AND_GOOD),
        max_size=25,
    ),
    sizes,
    st.sampled_from(["replace", "skip", "strict"]),
)  # fmt: skip
@settings(max_examples=400)
def test_invalid_utf8_is_treated_as_if_the_file_were_decoded_whole(
    pieces: list[bytes], read_size: int, on_bad: str
) -> None:
    data, report = b"".join(pieces), ReadingReport()
    try:
        data.decode()
        error = None
    except UnicodeDecodeError as e:
        error = e
    if error is not None and on_bad == "strict":
        assert f"at byte {error.start} " in refused(lambda: from_stdin(data, read_size=read_size))
        return
    got = text_of(from_stdin(data, report, read_size, on_bad_utf8=on_bad))
    assert got.decode() == "".join(line + "\n" for line in plain_truth(data, on_bad))
    assert report.bad_utf8 == data.decode(errors="replace").count("\ufffd") - data.count(b"\xef\xbf\xbd")


@given(st.text("ab \n", max_size=60).map(str.encode), st.integers(1, 12), sizes, st.integers(1, 12))
@settings(max_examples=400)
def test_long_lines_are_cut_at_spaces(data: bytes, limit: int, read_size: int, chunk_bytes: int) -> None:
    def act() -> list[Chunk]:
        return from_stdin(data, report, read_size, max_line_bytes=limit, chunk_bytes=chunk_bytes)

    report = ReadingReport()
    lines = [line.encode() for line in plain_truth(data)]
    cut = [cut_truth(line, limit) for line in lines]
    if None in cut:
        assert f"standard input, line {cut.index(None) + 1}: " in (message := refused(act))
        assert "is this a text file?" in message
        return
    chunks = act()
    origin = [number for number, pieces in enumerate(cut, 1) for _ in pieces or ()]
    expected = chunk_truth([piece for pieces in cut for piece in pieces or ()], chunk_bytes)
    assert [(c.data, c.line) for c in chunks] == [(data, origin[first - 1]) for data, first in expected]
    assert report.cut_lines == sum(len(line) > limit for line in lines)
    assert report.lines == len(lines)


@given(st.text("ab \t\n\u3000\r", max_size=60), sizes, st.integers(1, 12))
@settings(max_examples=400)
def test_wrapped_lines_become_paragraphs(text: str, read_size: int, chunk_bytes: int) -> None:
    paragraphs: list[tuple[str, int]] = []
    after_blank = True
    for number, line in enumerate(plain_truth(text.encode()), 1):
        if line.strip() and after_blank:
            paragraphs.append((line, number))
        elif line.strip():
            paragraphs[-1] = (paragraphs[-1][0] + " " + line, paragraphs[-1][1])
        after_blank = not line.strip()
    chunks = from_stdin(text.encode(), read_size=read_size, chunk_bytes=chunk_bytes, wrapped=True)
    expected = chunk_truth([p.encode() for p, _ in paragraphs], chunk_bytes)
    assert [(c.data, c.line) for c in chunks] == [(data, paragraphs[first - 1][1]) for data, first in expected]
    row = json.dumps({"text": text}).encode()
    assert text_of(from_stdin(row, read_size=read_size, format="jsonl", wrapped=True)) == text_of(chunks)


@given(st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=30), st.integers(5, 12), sizes)
def test_long_wrapped_paragraphs_are_cut_like_lines(words: list[str], limit: int, read_size: int) -> None:
    report = ReadingReport()
    twice = "\n\n".join(["\n".join(words)] * 2).encode()
    got = text_of(from_stdin(twice, report, read_size, max_line_bytes=limit, wrapped=True))
    pieces = cut_truth(" ".join(words).encode(), limit)
    assert pieces is not None
    assert got == b"".join(piece + b"\n" for piece in pieces * 2)
    assert report.cut_lines == 2 * (len(pieces) > 1)


# ---------------------------------------------------------------- plain text

PLAIN = {
    "empty": (b"", b""),
    "only blanks": (b"  \t \n \n", b"  \t \n \n"),
    "one word": (b"word", b"word\n"),
    "NUL": (b"a\0b\n", b"a\0b\n"),
    "BOM": (codecs.BOM_UTF8 + b"a\n" + codecs.BOM_UTF8, b"a\n" + codecs.BOM_UTF8 + b"\n"),
    "only a BOM": (codecs.BOM_UTF8, b""),
    "CR only": (b"a\rb\r\rc\r", b"a\nb\n\nc\n"),
    "CR LF": (b"a\r\nb\r\n\r\n\rc", b"a\nb\n\n\nc\n"),
    "separators that end no line": (
        "a\u2028b\x85c\x0bd\x0ce\n".encode(),
        "a\u2028b\x85c\x0bd\x0ce\n".encode(),
    ),
    "PAR1 is a protein": (b"PAR1 binds\n", b"PAR1 binds\n"),
}


@pytest.mark.parametrize("case", PLAIN)
@pytest.mark.parametrize("read_size", [1, 2, 3, 1000])
def test_plain_text(case: str, read_size: int, tmp_path: Path) -> None:
    data, expected = PLAIN[case]
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    assert text_of(from_stdin(data, read_size=read_size)) == expected
    with mock.patch.object(decompress, "READ_BYTES", read_size):
        assert read(path) == expected


def test_a_million_empty_lines() -> None:
    for wrapped, expected in ((False, b"\n" * 10**6), (True, b"")):
        report = ReadingReport()
        assert text_of(from_stdin(b"\n" * 10**6, report, wrapped=wrapped)) == expected
        assert report.lines == 10**6


def test_a_chunk_tells_where_it_is_from_and_never_spans_two_files(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.txt", "b.conll", "c.txt"))
    a.write_bytes(b"one\ntwo")
    b.write_bytes(b"three O\nfour O\n")
    c.write_bytes(b"")
    report = ReadingReport()
    chunks = list(read_chunks([a, b, c], report=report))
    assert chunks == [
        Chunk(b"one\ntwo\n", False, str(a), 1, 7),
        Chunk(b"three four\n", True, str(b), 1, 15),
    ]
    assert report == ReadingReport(files=3, bytes=22, lines=4)
    assert json.loads(json.dumps(ReadingOptions()._asdict())) == ReadingOptions()._asdict()


class Endless(io.RawIOBase):
    """`n_bytes` of one line, never in memory."""

    def __init__(self, unit: bytes, n_bytes: int) -> None:
        self._block = unit * ((1 << 18) // len(unit))
        self._left = n_bytes

    def read(self, size: int = -1) -> bytes:
        n = min(size, self._left, len(self._block))
        self._left -= n
        return self._block[:n]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("unit", [b"abc ", b"abc\n", b"\n"])
def test_memory_is_bounded_by_the_options_not_the_line(unit: bytes, wrapped: bool) -> None:
    n_bytes, report = 64 << 20, ReadingReport()
    options = ReadingOptions(max_line_bytes=1 << 20, chunk_bytes=1 << 20, wrapped=wrapped)
    with mock.patch.object(sys, "stdin", SimpleNamespace(buffer=Endless(unit, n_bytes))):
        tracemalloc.start()
        n_out = sum(len(chunk.data) for chunk in read_chunks(["-"], options, report))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert report.bytes == n_bytes
    assert n_out == (0 if wrapped and unit == b"\n" else n_bytes + (unit == b"abc " and n_out > n_bytes))
    assert report.cut_lines == (unit == b"abc " or (wrapped and unit == b"abc\n"))
    assert peak < 12 << 20


def test_a_line_without_a_space_is_refused_before_it_is_held() -> None:
    pipe = Endless(b"x", 1 << 30)
    message = refused(lambda: from_stdin(pipe, max_line_bytes=1 << 20))
    assert "standard input, line 1: more than 1,048,576 bytes without a space (is this a text file?)" in message
    assert pipe._left > 1 << 29


def test_a_column_file_without_blank_lines_is_refused_before_it_is_held() -> None:
    pipe = Endless(b"a\tO\n", 1 << 28)
    message = refused(lambda: from_stdin(pipe, format="tsv", max_line_bytes=1 << 20))
    assert "row 1: the sentence that begins here is above 1,048,576 bytes" in message
    assert pipe._left > 1 << 27


# ---------------------------------------------------------------- files and packings


def test_expand_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "deep/er/c.txt", "x[1].txt"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    assert expand_inputs(["b.txt", "*.txt", "-"]) == ["b.txt", "a.txt", "x[1].txt", "-"]
    assert expand_inputs(["**/*.txt"]) == ["a.txt", "b.txt", "deep/er/c.txt", "x[1].txt"]
    assert expand_inputs(["x[1].txt"]) == ["x[1].txt"]
    assert expand_inputs("a.txt") == [*expand_inputs([Path("a.txt")])] == ["a.txt"]
    assert "gone.txt does not exist" in refused(lambda: expand_inputs(["gone.txt"]))
    assert "no file matches *.jsonl" in refused(lambda: expand_inputs(["*.jsonl"]))
    assert "no file matches de*" in refused(lambda: expand_inputs(["de*"]))
    assert "deep is a directory" in refused(lambda: expand_inputs(["deep"]))
    assert "given twice" in refused(lambda: expand_inputs(["-", "-"]))
    assert "no input" in refused(lambda: expand_inputs([]))
    assert "'a\\nb.txt' does not exist" in refused(lambda: expand_inputs(["a\nb.txt"]))
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "a.txt may not be read" in refused(lambda: expand_inputs(["a.txt"]))


def test_names_and_options_are_checked_before_anything_is_read() -> None:
    refused(lambda: read_chunks(["gone.txt"]))  # no chunk was asked for
    for bad in (
        {"format": "xml"},
        {"on_bad_utf8": "ignore"},
        {"column": 0},
        {"chunk_bytes": 0},
        {"text_field": ""},
    ):
        assert next(iter(bad)) in refused(lambda bad=bad: read_chunks(["-"], ReadingOptions(**bad)))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(13, "x"), "may not be read"),
        (OSError(5, "I/O error"), "cannot be opened (I/O error)"),
    ],
)
def test_files_that_do_not_open(error: OSError, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.touch()

    def fail(*_: object, **__: object) -> None:
        raise error

    chunks = read_chunks([path])
    monkeypatch.setattr(builtins, "open", fail)
    message = refused(lambda: list(chunks))
    monkeypatch.undo()
    assert f"{path} {expected}" in message


def test_a_device_that_fails_and_a_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = mock.Mock()
    pipe.read.side_effect = OSError(5, "Input/output error")
    assert "cannot be read further (Input/output error)" in refused(lambda: from_stdin(pipe))
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refused(lambda: list(read_chunks(["-"])))


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("read_size", [1, 7, 1 << 18])
def test_packed_files_by_their_first_bytes(suffix: str, read_size: int, tmp_path: Path) -> None:
    text = "".join(f"line {i} é\n" for i in range(300)).encode()
    packed = PACKERS[suffix](text)
    several = packed + PACKERS[suffix](b"more\n") + PACKERS[suffix](b"")
    padding = b"" if suffix == ".zst" else b"\0" * 64
    for name in ("a.txt" + suffix, "A.TXT" + suffix.upper(), "plain.txt"):
        path = tmp_path / name
        path.write_bytes(several + padding)
        with mock.patch.object(decompress, "READ_BYTES", read_size):
            assert read(path) == text + b"more\n"
    assert text_of(from_stdin(packed, read_size=read_size)) == text


@pytest.mark.parametrize("suffix", PACKERS)
def test_every_truncation_is_told(suffix: str, tmp_path: Path) -> None:
    packed = PACKERS[suffix](b"".join(b"%d " % (i * i) for i in range(300)) + b"\n")
    path = tmp_path / f"a.txt{suffix}"
    for n in range(len(packed)):
        path.write_bytes(packed[:n])
        message = refused(lambda: read(path))
        assert str(path) in message and "fetch it again" in message
        if n >= 16:
            assert f"ends in the middle of its {TITLES[suffix]} stream after " in message
            assert f"standard input ends in the middle of its {TITLES[suffix]} " in refused(
                lambda n=n: from_stdin(packed[:n])
            )


@pytest.mark.parametrize("suffix", PACKERS)
def test_damage_and_wrong_names(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(b"just text\n")
    assert f"is named {suffix} but is not {TITLES[suffix]}: rename it or fetch it again" in refused(lambda: read(path))
    path.write_bytes(b"")
    assert f"is named {suffix} but is empty" in refused(lambda: read(path))
    packed = PACKERS[suffix](os.urandom(3000).hex().encode())
    path.write_bytes(packed + b"something else, long enough")
    assert "is damaged" in refused(lambda: read(path))
    path.write_bytes(packed + bytes([packed[0] ^ 1]) + packed[1:])  # a second member
    assert "breaks after 6,000 bytes of text" in refused(lambda: read(path)) or suffix == ".zst"
    middle = len(packed) // 2
    path.write_bytes(packed[:middle] + bytes(b ^ 255 for b in packed[middle : middle + 40]) + packed[middle + 40 :])
    if suffix != ".zst":  # Arrow writes zstd without a checksum: changed letters cannot be told
        assert "fetch it again" in refused(lambda: read(path))


def test_zstd_without_anything_to_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.zst"
    path.write_bytes(zstd(b"text\n"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    packings = [p._replace(make=None) if p.title == "zstd" else p for p in decompress._COMPRESSIONS]
    monkeypatch.setattr(decompress, "_COMPRESSIONS", packings)
    with pytest.raises(MissingExtraError, match=r"pip install 'undertow\[arrow\]' "):
        read(path)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"PK\x03\x04\x14\0", "is a zip archive: unpack it"),
        (b"PAR1\x15\x04", "is a Parquet file: export"),
        (b"%PDF-1.7\n", "is a PDF: convert"),
        (b"a.txt" + b"\0" * 252 + b"ustar\x0000", "is a tar archive: unpack it"),
        ("héllo".encode("utf-16"), "is UTF-16: convert it, iconv"),
        (codecs.BOM_UTF16_BE + b"\0a", "is UTF-16: convert it, iconv"),
        ("héllo".encode("utf-32"), "is UTF-32: convert it, iconv"),
        (codecs.BOM_UTF32_BE + b"\0\0\0a", "is UTF-32: convert it, iconv"),
    ],
)
def test_what_is_not_text_is_named(head: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    for data in (head, gzip.compress(head)):
        path.write_bytes(data)
        assert f"{path} {expected}" in refused(lambda: read(path, on_bad_utf8="replace"))
        assert expected in refused(lambda data=data: from_stdin(data, read_size=1))


def test_formats_by_name() -> None:
    names = [
        "a.txt",
        "a.jsonl.gz",
        "a.NDJSON",
        "a.conllu.xz",
        "a.conll.zst",
        "a.iob",
        "a.tsv.bz2",
        "a",
        "-",
        "b.x.gz",
    ]
    formats = ["text", "jsonl", "jsonl", "conllu", "conll", "conll", "tsv", "text", "text", "text"]
    assert [format_of(name) for name in names] == formats


# ---------------------------------------------------------------- JSON lines


def test_json_lines() -> None:
    rows = [{"text": "one\r\ntwo"}, {"text": ["three", "", "fo\rur\n"]}, {"text": ""}, {"text": "é\u2028😀"}]
    data = "\r\n\n".join(json.dumps(row) for row in rows).encode()
    expected = "one\ntwo\nthree\nfo\nur\né\u2028😀\n".encode()
    for read_size in (1, 5, 1000):
        chunks = from_stdin(data, read_size=read_size, format="jsonl", chunk_bytes=1)
        assert text_of(chunks) == expected
        assert [c.line for c in chunks] == [1, 1, 3, 3, 3, 7]
        assert not any(c.tokenized for c in chunks)
    nested = b'{"a": {"b": "in"}, "a.c": "flat"}'
    assert text_of(from_stdin(nested, format="jsonl", text_field="a.b")) == b"in\n"
    assert text_of(from_stdin(nested, format="jsonl", text_field="a.c")) == b"flat\n"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            b'{"id": 1, "body": "x"}',
            "there is no field 'text'; the fields are 'id', 'body'; choose with text_field (--text-field)",
        ),
        (b"{}", "the object is empty"),
        (b"not JSON", "this is not JSON (expecting value at character 1)"),
        (b'{"text": "cut of', "this is not JSON"),
        (b'["text"]', "a JSON object is needed here, not a list"),
        (b"12", "not a number"),
        (b'{"text": 3}', "the field 'text' is a number and must be a string or a list of strings"),
        (b'{"text": null}', "the field 'text' is null"),
        (b'{"text": ["a", 3]}', "is a list with other things than strings"),
        (b'{"te\\nxt": 1}', "the fields are 'te\\nxt'"),
        (b"[" * 100_000, "this JSON cannot be read"),
        (b'{"text": "\\ud800"}', "the text holds half a surrogate pair (\\ud800)"),
        (b'{"text": "' + b"x" * 200_000 + b'"}', "longer than 150,000 bytes"),
    ],
)
def test_json_lines_that_are_refused(row: bytes, expected: str) -> None:
    data = b'{"text": "good"}\n\n' + row + b"\n"
    for read_size in (7, 1 << 18):
        message = refused(lambda n=read_size: from_stdin(data, read_size=n, format="jsonl", max_line_bytes=150_000))
        assert message.startswith("standard input, line 3: ") and expected in message
    assert "the fields are 'b'" in refused(lambda: from_stdin(b'{"a": {"b": ""}}', format="jsonl", text_field="a.c"))


def test_json_surrogates_and_bad_bytes_follow_the_policy() -> None:
    data = b'{"text": "a\\ud800b\\ud83d\\ude00c\xff"}'
    for on_bad, expected in (("replace", "a\ufffdb😀c\ufffd\n"), ("skip", "ab😀c\n")):
        report = ReadingReport()
        assert text_of(from_stdin(data, report, format="jsonl", on_bad_utf8=on_bad)).decode() == expected
        assert report.bad_utf8 == 2
    assert "not valid UTF-8 at byte 31 (0xff" in refused(lambda: from_stdin(data, format="jsonl"))


# ---------------------------------------------------------------- columns

COLUMNS = {
    "CoNLL-2003": (
        "conll",
        1,
        "-DOCSTART- -X- O\n\nEU NNP B-NP I-ORG\n# # # O\n#x comment\n-DOCSTART- x\n. . O O\n",
        "EU #\n.\n",
    ),
    "white space, first word is #": ("conll", 1, "# NN\n\n# a comment here\nb NN\n", "#\nb\n"),
    "tabs": ("conll", 2, "# article = 1\n\nO\ta\nO\t#\n \t\nO\tb", "a #\nb\n"),
    "TSV": ("tsv", 1, "# c\n#\tX\na\tO\r\n\n\n\n- b\tO\nc d\tO\n", "# a\n-_b c_d\n"),
    "TSV of one column": ("tsv", 1, "# c\na\n b \n\nc", "a b\nc\n"),
    "odd spaces": ("tsv", 1, "a\xa0b\u2009c\u2028d\0\tO\n\x0be\tO\né\tO\n", "a_b_c_d_ _e é\n"),
    "nothing": ("conll", 1, "\n\n", ""),
    "comments only": ("conll", 1, "# a\n#b\n", ""),
    "CoNLL-U": (
        "conllu",
        7,
        re.sub("/(.*)", r"\t\1" + r"\t_" * 8, "#\n1-2/du\n1/de\n2/le\n2.1/x\n3/20 000\n\n#c\n1/#"),
        "de le 20_000\n#\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", COLUMNS)
@pytest.mark.parametrize("read_size", [1, 4, 1000])
def test_columns(case: str, read_size: int) -> None:
    style, column, data, expected = COLUMNS[case]
    chunks = from_stdin(data.encode(), read_size=read_size, format=style, column=column)
    assert text_of(chunks).decode() == expected
    assert all(c.tokenized for c in chunks)


def test_column_chunks_know_their_rows() -> None:
    chunks = from_stdin(b"# c\na\tO\nb\tO\n\n\n# d\nc\tO\n\nd\tO\n", format="tsv", chunk_bytes=1, read_size=3)
    assert [(c.data, c.line) for c in chunks] == [(b"a b\n", 1), (b"c\n", 6), (b"d\n", 9)]


@pytest.mark.parametrize(
    ("style", "column", "data", "expected"),
    [
        ("conll", 1, "a b O\n\nc O\n", "row 3: 2 columns here where the first row has 3."),
        (
            "conll",
            1,
            "a\tO\nb O\n",
            "row 2: 1 column here where the first row has 2 (columns are separated by tabs).",
        ),
        ("tsv", 1, "# c\n\na\tO\nb\tO\tx\n", "row 4: 3 columns here where the first row has 2"),
        ("tsv", 1, "a\tO\n#no comment\n", "row 2: 1 column here"),
        ("conllu", 1, "# c\n1\ta\n", "row 2: 2 columns here where CoNLL-U has 10"),
        ("conllu", 1, "x\ta" + "\t_" * 8, "row 1: 'x' in the first column is not a word number"),
        (
            "tsv",
            3,
            "# c\na\tO\n",
            "row 2: there is no column 3 for the words, the row has 2; choose with column (--column)",
        ),
        ("tsv", 1, "a\tO\n\tO\n", "row 2: the word in column 1 is empty"),
        ("conllu", 1, "1\t" + "\t_" * 8, "row 1: the word in column 2 is empty"),
        ("tsv", 1, "a\tO\n\n" + "b\tO\n" * 51, "row 3: the sentence that begins here is above 100 bytes"),
        ("tsv", 1, "a\tO\nb\t" + "x" * 100 + "\n", "line 2: longer than 100 bytes"),
        ("conll", 1, "a b O\n\nc \udcff O\n", "is not valid UTF-8 at byte 9 "),
    ],
)
def test_columns_that_are_refused(style: str, column: int, data: str, expected: str) -> None:
    raw = data.encode(errors="surrogateescape")
    for read_size in (1, 1000):
        message = refused(
            lambda n=read_size: from_stdin(raw, read_size=n, format=style, column=column, max_line_bytes=100)
        )
        assert message.startswith("standard input") and expected in message


def test_a_sentence_of_exactly_the_limit_is_read() -> None:
    assert text_of(from_stdin(b"b\tO\n" * 50, format="tsv", max_line_bytes=99)) == b"b " * 49 + b"b\n"


# ---------------------------------------------------------------- real files

REAL = {
    "labelled/ud-en-ewt.train.conllu.xz": (12_544, 204_577),
    "labelled/ud-en-ewt.dev.conllu.xz": (2_001, 25_147),
    "labelled/ud-fr-sequoia.train.conllu.xz": (None, 50_502),
    "labelled/wnut17-ner.train.tsv.xz": (None, 62_730),
    "labelled/wnut17-ner.dev.tsv.xz": (None, 15_733),
    "text/wikitext2.valid.txt.xz": (None, 217_646),  # with one <eos> a line
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_have_the_counts_of_their_manifest(name: str) -> None:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not here: set UNDERTOW_DATA to the folder with the real data")
    n_sentences, n_words = REAL[name]
    chunks = list(read_chunks([path]))
    data = text_of(chunks)
    if chunks[0].tokenized:
        assert len(re.split(b"[ \n]", data)) - 1 == n_words  # single spaces: no empty word hides
        assert data.count(b"\n") == (n_sentences or data.count(b"\n"))
    else:
        assert len(data.split()) + data.count(b"\n") == n_words
        assert data == lzma.decompress(path.read_bytes())
