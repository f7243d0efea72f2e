"""From a file name to blocks of uncompressed bytes. The first bytes of a file decide how it is read, not its name.

The standard library decompresses, block by block with bounded output, so a small file that unpacks to a huge one costs
time and no memory. Its decompressor objects are used and not its file objects: `bz2.open` and `lzma.open` stop without
an error at a second member (as pbzip2 and `xz -T` write them) that is damaged or follows padding, and the rest of the
text would be missing; here it is an error that says how many bytes of text came before. The speed is the same: 0.25 s
of processor time for 20 MB of English in xz by either. Nothing here seeks: standard input and named pipes are read like
files.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple, Protocol

from undertow.errors import InputError, missing_extra

READ_BYTES = 1 << 18
"""Bytes asked of a file, and at most got from a decompressor, at a time: small enough to stay in cache."""

_HEAD_BYTES = 262  # the longest signature looked for: tar's "ustar", at byte 257


class _Decompressor(Protocol):
    """What `bz2`, `lzma` and `compression.zstd` agree on."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gunzip:
    """`zlib` with the interface of its siblings: it keeps the input that did not fit the output itself."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)  # 31: gzip header and checksum

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


class _DamagedError(Exception):
    """A compressed stream holds what it should not."""


try:
    from compression import zstd  # Python 3.14
except ImportError:
    _make_zstd: Callable[[], _Decompressor] | None = None  # pyarrow reads it: see _arrow_zstd_blocks
    _ZstdError: type[Exception] = _DamagedError
else:
    _make_zstd, _ZstdError = zstd.ZstdDecompressor, zstd.ZstdError


class _Compression(NamedTuple):
    """A way files are compressed: what it is called, how its files are named, how they begin and what reads them."""

    title: str
    suffix: str
    magic: re.Pattern[bytes]
    make: Callable[[], _Decompressor] | None


_COMPRESSIONS = (
    _Compression("gzip", ".gz", re.compile(rb"\x1f\x8b\x08"), _Gunzip),
    # "BZh9" alone could begin a text: the block or end mark must follow
    _Compression("bzip2", ".bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)"), bz2.BZ2Decompressor),
    _Compression("xz", ".xz", re.compile(rb"\xfd7zXZ\x00"), lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ)),
    # the second is a skippable frame, with which parallel zstd writers begin
    _Compression("zstd", ".zst", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), _make_zstd),
)

_NOT_TEXT = (
    (re.compile(rb"PK\x03\x04"), "is a zip archive: unpack it and give the files inside"),
    # "PAR1" is also the name of a protein: the header of the first page must follow
    (re.compile(rb"PAR1\x15"), "is a Parquet file: export its text column as JSON lines"),
    (re.compile(rb"%PDF-\d"), "is a PDF: convert it to text first, for example with pdftotext"),
    (re.compile(rb"(?s).{257}ustar"), "is a tar archive: unpack it and give the files inside"),
    (re.compile(rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff"), "is UTF-32: convert it, iconv -f UTF-32 -t UTF-8"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "is UTF-16: convert it, iconv -f UTF-16 -t UTF-8"),
)


def shown(name: str) -> str:
    """A file name as an error message can carry it: on one line, whatever is in it."""
    if name == "-":
        return "standard input"
    return name if name.isprintable() else repr(name)


def compression_suffix(name: str) -> str:
    """The compression suffix a file name ends in, or nothing."""
    return next((p.suffix for p in _COMPRESSIONS if name.lower().endswith(p.suffix)), "")


class Source:
    """The raw bytes of one input, counted as they are read; the first few can be looked at beforehand."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self.name = name
        self.bytes_read = 0
        self.closed = False  # for pyarrow, as is `close`
        self._file = file
        self._head = b""

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end, without reading them; pipes may bring them singly."""
        while len(self._head) < size and (more := self._fetch(size - len(self._head))):
            self._head += more
        return self._head[:size]

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, nothing only at the end."""
        data, self._head = self._head[:size], self._head[size:]
        data = data or self._fetch(size)
        self.bytes_read += len(data)
        return data

    def close(self) -> None:
        """Nothing: who opened the file closes it."""

    def _fetch(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except OSError as e:
            raise InputError(f"{shown(self.name)} cannot be read further ({e.strerror or e}).") from None


@contextlib.contextmanager
def open_source(name: str) -> Iterator[Source]:
    """Open a file by name, or standard input for `-`, and close what was opened."""
    if name == "-":
        stdin = getattr(sys.stdin, "buffer", None)
        if stdin is None:
            raise InputError("standard input is closed: give a file name or pipe text in.")
        yield Source(name, stdin)
        return
    try:
        # unbuffered: blocks are large already, and a buffer would copy each once more
        file = open(name, "rb", buffering=0)  # noqa: SIM115 (closed below; only the opening is guarded)
    except OSError as e:
        raise InputError(why_unopened(name, e)) from None
    with file:
        yield Source(name, file)


def why_unopened(name: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{shown(name)} does not exist: check the path."
    if isinstance(error, IsADirectoryError):
        example = shown(os.path.join(name, "*.txt"))
        return f"{shown(name)} is a directory: name the files in it, for example '{example}'."
    if isinstance(error, PermissionError):
        return f"{shown(name)} may not be read by this user: change its permissions."
    return f"{shown(name)} cannot be opened ({error.strerror or error})."


def uncompressed_blocks(source: Source) -> Iterator[bytes]:
    """The blocks of a source, decompressed if its first bytes say so; refuses what is plainly no UTF-8."""
    compression = _compression_of(source)
    blocks = _plain(source) if compression is None else _unpack(source, compression)
    first: list[bytes] = []
    for block in blocks:
        first.append(block)
        if sum(map(len, first)) >= _HEAD_BYTES:
            break
    head = b"".join(first)
    for signature, cure in _NOT_TEXT:
        if signature.match(head):
            raise InputError(f"{shown(source.name)} {cure}.")
    yield from first
    yield from blocks


def _compression_of(source: Source) -> _Compression | None:
    head = source.peek(16)
    found = next((p for p in _COMPRESSIONS if p.magic.match(head)), None)
    named = compression_suffix(source.name)
    if found is None and named:
        title = next(p.title for p in _COMPRESSIONS if p.suffix == named)
        what = "is empty: fetch it again" if not head else f"is not {title}: rename it or fetch it again"
        raise InputError(f"{shown(source.name)} is named {named} but {what}.")
    return found


def _plain(source: Source) -> Iterator[bytes]:
    while block := source.read(READ_BYTES):
        yield block


def _unpack(source: Source, compression: _Compression) -> Iterator[bytes]:
    """Decompress a source, all its members one after another, and tell where it breaks off."""
    n_out = 0
    try:
        make = compression.make
        blocks = _arrow_zstd_blocks(source) if make is None else _members(source, compression, make)
        for block in blocks:
            n_out += len(block)
            yield block
    except EOFError:
        raise InputError(
            f"{shown(source.name)} ends in the middle of its {compression.title} stream after {n_out:,} bytes of "
            "text: fetch it again."
        ) from None
    except (zlib.error, lzma.LZMAError, OSError, _ZstdError, _DamagedError) as e:
        reason = " ".join(str(e).split()).rstrip(".")
        raise InputError(
            f"{shown(source.name)} is damaged, its {compression.title} stream breaks after {n_out:,} bytes of "
            f"text ({reason}): fetch it again."
        ) from None


def _members(source: Source, compression: _Compression, make: Callable[[], _Decompressor]) -> Iterator[bytes]:
    """The text of every member of a stream; raises EOFError when the source ends within one."""
    data = source.read(READ_BYTES)
    while data:
        decompressor = make()
        while not decompressor.eof:
            block = decompressor.decompress(data, READ_BYTES)
            data = b""
            if block:
                yield block
            elif not decompressor.eof and not (data := source.read(READ_BYTES)):
                raise EOFError
        data = _next_member(source, compression, decompressor.unused_data)


def _next_member(source: Source, compression: _Compression, data: bytes) -> bytes:
    """The start of the next member, or nothing at the end; zeros between and after members are padding."""
    data = data.lstrip(b"\0")
    while len(data) < 16 and (more := source.read(READ_BYTES)):
        data = (data + more).lstrip(b"\0")
    if data and not compression.magic.match(data):
        raise _DamagedError("other bytes follow its end")
    return data


def _arrow_zstd_blocks(source: Source) -> Iterator[bytes]:
    """The text of a zstd stream by pyarrow, for a Python that cannot read it itself."""
    try:
        import pyarrow
    except ImportError as e:
        raise missing_extra(f"{shown(source.name)} is compressed with zstd and needs Arrow", "arrow") from e
    stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(source, mode="r"), "zstd")
    try:
        while block := stream.read(READ_BYTES):
            yield block
    except OSError as e:
        if "Truncated" in str(e):  # Arrow has no class of its own for this
            raise EOFError from None
        raise
