"""Writers of token vectors, batch by batch, so that memory does not depend on the length of the text.

    npz      vectors (n_tokens, d) float32; offsets (n_sentences + 1) int64: sentence i is the rows from offsets[i] to
             offsets[i + 1]; tokens uint8, the UTF-8 of all tokens; token_offsets (n_tokens + 1) int64: token i is
             bytes(tokens[token_offsets[i]:token_offsets[i + 1]]). Nothing in it is pickled.
    parquet  a row a token: sentence int64 and position int32 from 0, token string, vector list of d float32
    jsonl    a line a sentence: {"tokens": [...], "vectors": [[...], ...]}
    text     a line per token: the token, a tab, d numbers; an empty line after every sentence

Numbers in the last two have nine digits, which give back every float32.
"""

from __future__ import annotations

import abc
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from undertow.errors import missing_extra

Floats = NDArray[np.float32]

FORMATS = ("npz", "parquet", "jsonl", "text")


class Writer(abc.ABC):
    """Writes sentences with their vectors, batch by batch.

    The file is complete when its `with` block ends without an error.
    """

    @abc.abstractmethod
    def write(self, sentences: Sequence[Sequence[str]], vectors: Sequence[Floats]) -> None: ...

    @abc.abstractmethod
    def close(self, whole: bool) -> None:
        """Close the files; if everything was written (`whole`), first write what is only known at the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(kind is None)


def open_writer(path: Path, format_: str, dimension: int) -> Writer:
    """Open a writer of token vectors.

    Parameters
    ----------
    path
        The file to write, in an existing directory.
    format_
        One of `FORMATS`.
    dimension
        The dimension of the vectors.

    Returns
    -------
    Writer

    Raises
    ------
    MissingExtraError
        If Parquet is asked for and pyarrow is not installed.
    """
    if format_ == "npz":
        return NpzWriter(path, dimension)
    if format_ == "parquet":
        return ParquetWriter(path, dimension)
    return LinesWriter(open(path, "wb"), format_, dimension)


class LinesWriter(Writer):
    """Writes JSON lines or text to any binary stream."""

    def __init__(self, stream: IO[bytes], format_: str, dimension: int) -> None:
        self._stream = stream
        self._sentence = self._json if format_ == "jsonl" else self._text
        self._numbers = ", ".join(["%.9g"] * dimension) if format_ == "jsonl" else " ".join(["%.9g"] * dimension)

    def write(self, sentences: Sequence[Sequence[str]], vectors: Sequence[Floats]) -> None:
        for tokens, rows in zip(sentences, vectors, strict=True):
            self._stream.write(self._sentence(tokens, [self._numbers % tuple(row) for row in rows.tolist()]).encode())

    @staticmethod
    def _json(tokens: Sequence[str], rows: list[str]) -> str:
        body = ", ".join(f"[{row}]" for row in rows)
        return f'{{"tokens": {json.dumps(list(tokens), ensure_ascii=False)}, "vectors": [{body}]}}\n'

    @staticmethod
    def _text(tokens: Sequence[str], rows: list[str]) -> str:
        return "".join(f"{token}\t{row}\n" for token, row in zip(tokens, rows, strict=True)) + "\n"

    def close(self, whole: bool) -> None:
        self._stream.close()


class NpzWriter(Writer):
    """Writes an npz archive.

    The arrays are collected in files beside it, as their lengths are known at the end only.
    """

    def __init__(self, path: Path, dimension: int) -> None:
        self._path = path
        self._dimension = dimension
        self._open = ExitStack()
        self._parts = {
            name: self._open.enter_context(tempfile.TemporaryFile(dir=path.parent))  # noqa: SIM115 (the stack is one)
            for name in ("vectors", "offsets", "tokens", "token_offsets")
        }
        self._n_tokens = self._n_bytes = 0
        for name in ("offsets", "token_offsets"):
            self._parts[name].write(bytes(8))

    def write(self, sentences: Sequence[Sequence[str]], vectors: Sequence[Floats]) -> None:
        words = [token.encode("utf-8") for tokens in sentences for token in tokens]
        self._parts["vectors"].write(np.concatenate(vectors).astype("<f4", copy=False).tobytes())
        self._parts["tokens"].write(b"".join(words))
        self._n_tokens = self._append("offsets", map(len, sentences), self._n_tokens)
        self._n_bytes = self._append("token_offsets", map(len, words), self._n_bytes)

    def _append(self, name: str, lengths: Iterable[int], start: int) -> int:
        ends = start + np.cumsum(np.fromiter(lengths, dtype="<i8"))
        self._parts[name].write(ends.astype("<i8", copy=False).tobytes())
        return int(ends[-1]) if len(ends) else start

    def close(self, whole: bool) -> None:
        with self._open:
            if whole:
                self._write_archive()

    def _write_archive(self) -> None:
        with zipfile.ZipFile(self._path, "w", zipfile.ZIP_STORED) as archive:
            for name, part in self._parts.items():
                dtype = np.dtype({"vectors": "<f4", "tokens": "|u1"}.get(name, "<i8"))
                n_items = part.seek(0, 2) // dtype.itemsize
                shape = (self._n_tokens, self._dimension) if name == "vectors" else (n_items,)
                part.seek(0)
                # ZipInfo's own date is 1980: the same vectors give the same bytes
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    member.write(_npy_header(dtype, shape))
                    shutil.copyfileobj(part, member, 1 << 20)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    return header.getvalue()


class ParquetWriter(Writer):
    """Writes a Parquet file, one row group per batch."""

    def __init__(self, path: Path, dimension: int) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as e:
            raise missing_extra("Parquet files need Arrow", "arrow") from e
        self._arrow = pyarrow
        vector = pyarrow.list_(pyarrow.float32(), dimension)
        self._schema = pyarrow.schema(
            {"sentence": pyarrow.int64(), "position": pyarrow.int32(), "token": pyarrow.string(), "vector": vector}
        )
        self._dimension = dimension
        self._file = pyarrow.parquet.ParquetWriter(path, self._schema)
        self._n_sentences = 0

    def write(self, sentences: Sequence[Sequence[str]], vectors: Sequence[Floats]) -> None:
        arrow = self._arrow
        lengths = [len(tokens) for tokens in sentences]
        numbers = np.concatenate(vectors).astype(np.float32, copy=False).reshape(-1)
        columns = [
            arrow.array(np.repeat(np.arange(len(lengths), dtype=np.int64) + self._n_sentences, lengths)),
            arrow.array(np.concatenate([np.arange(n, dtype=np.int32) for n in lengths])),
            arrow.array([token for tokens in sentences for token in tokens], type=arrow.string()),
            arrow.FixedSizeListArray.from_arrays(arrow.array(numbers), self._dimension),
        ]
        self._file.write_table(arrow.Table.from_arrays(columns, schema=self._schema))
        self._n_sentences += len(lengths)

    def close(self, whole: bool) -> None:
        self._file.close()
