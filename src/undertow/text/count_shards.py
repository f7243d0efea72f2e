"""A shard of counts: some sparse rows of one lag in a safetensors file, as row bounds, columns and counts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import FormatError
from undertow.tensor_file import damaged, read_header, write_tensors

CURE = "count again"
SCAN = 1 << 20  # entries checked or added in one go


class Rows(NamedTuple):
    """Some rows of a sparse count matrix; columns ascend within a row."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.uint32]
    data: NDArray[Any]  # uint32 where every count fits, else int64

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1])


def shard_name(lag: int, block: int) -> str:
    """The file of one lag and block of rows."""
    return f"lag{lag:03d}-rows{block:05d}.safetensors"


def narrow(data: NDArray[Any]) -> NDArray[Any]:
    """Counts in 4 bytes where they fit: a pure function of the values, so equal counts give equal files."""
    if len(data) and int(data.max()) >= 2**32:
        return data.astype(np.int64, copy=False)
    return data.astype(np.uint32, copy=False)


def write_rows(path: Path, rows: Rows) -> None:
    """Write so that the file is either absent or whole; the arrays are written without a copy."""
    data = narrow(rows.data)
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    write_tensors(
        tmp,
        {
            "indptr": np.ascontiguousarray(rows.indptr, dtype="<i8"),
            "indices": np.ascontiguousarray(rows.indices, dtype="<u4"),
            "data": np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("<")),
        },
    )
    fd = os.open(tmp, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(tmp, path)


def check_rows(rows: Rows, n_words: int, most: int) -> str | None:
    """What is wrong with the columns and counts of rows whose bounds are in order; None if nothing is.

    Columns lie below `n_words` and ascend within a row; counts lie between 1 and `most`. In pieces, and vectorized: an
    entry takes about 2 ns.
    """
    for start in range(0, rows.nnz, SCAN):
        # one entry before the piece too, so that its first column has its neighbor
        columns = np.asarray(rows.indices[max(start - 1, 0) : start + SCAN])
        counts = rows.data[start : start + SCAN]
        if int(columns.max()) >= n_words:
            return "a column lies outside the vocabulary"
        if int(counts.min()) < 1 or int(counts.max()) > most:
            return f"a count is not between 1 and the {most} tokens of the text"
        falls = np.flatnonzero(columns[1:] <= columns[:-1]) + max(start - 1, 0) + 1
        if len(falls) and (rows.indptr[np.searchsorted(rows.indptr, falls)] != falls).any():
            return "the columns of a row are out of order"
    return None


class RowsFile:
    """An open shard: its header is checked, and slices of its arrays are read on demand."""

    def __init__(self, path: Path):
        self.path = path
        try:
            header = read_header(path, CURE)
        except OSError as e:
            raise FormatError(f"{path} cannot be read ({e.strerror}): {CURE}.") from None
        if set(header) != {"indptr", "indices", "data"}:
            raise damaged(path, "it does not hold the tensors indptr, indices and data", CURE)
        self._indptr, self._indices, self._data = (header[name] for name in ("indptr", "indices", "data"))
        dtypes = (self._indptr.dtype, self._indices.dtype, self._data.dtype)
        if dtypes not in {("int64", "uint32", "uint32"), ("int64", "uint32", "int64")}:
            raise damaged(path, f"its tensors are {', '.join(dtypes)}", CURE)
        if len(self._indptr.shape) != 1 or self._indptr.shape == (0,) or len(self._indices.shape) != 1:
            raise damaged(path, "its tensors are not flat", CURE)
        if self._data.shape != self._indices.shape:
            raise damaged(path, "it has another number of columns than of counts", CURE)
        self.n_rows, self.nnz = self._indptr.shape[0] - 1, self._indices.shape[0]

    def indptr(self) -> NDArray[np.int64]:
        """The bounds of the rows, which never run backwards."""
        return self._checked(np.fromfile(self.path, dtype="<i8", count=self.n_rows + 1, offset=self._indptr.begin))

    def _checked(self, indptr: NDArray[np.int64]) -> NDArray[np.int64]:
        if indptr[0] != 0 or indptr[-1] != self.nnz or (indptr[1:] < indptr[:-1]).any():
            raise FormatError(f"{self.path}: the bounds of its rows run backwards or beyond its end; {CURE}.")
        return indptr

    def piece(self, start: int, stop: int) -> tuple[NDArray[np.uint32], NDArray[Any]]:
        """Columns and counts of the entries start..stop-1, read into memory."""
        n, dtype = stop - start, np.dtype(self._data.dtype).newbyteorder("<")
        indices = np.fromfile(self.path, dtype="<u4", count=n, offset=self._indices.begin + 4 * start)
        data = np.fromfile(self.path, dtype=dtype, count=n, offset=self._data.begin + dtype.itemsize * start)
        return indices, data

    def total(self) -> int:
        """The sum of the counts, read a piece at a time: what is mapped would count as our memory."""
        return sum(int(self.piece(a, min(a + SCAN, self.nnz))[1].sum(dtype=np.int64)) for a in range(0, self.nnz, SCAN))

    def map(self) -> Rows:
        """The rows as views of the file."""
        whole = np.memmap(self.path, dtype=np.uint8, mode="r")
        indptr, indices, data = (
            whole[t.begin : t.end].view(np.dtype(t.dtype).newbyteorder("<"))
            for t in (self._indptr, self._indices, self._data)
        )
        return Rows(self._checked(indptr), indices, data)
