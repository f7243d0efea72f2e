"""One file of sparse rows: a header, then row bounds, columns and counts as flat arrays that can be mapped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import FormatError
from undertow.files import write_array

MAGIC = b"utCSR\x00\x00\x01"
SCAN = 1 << 20  # entries looked at in one go
HEADER = 32  # magic, rows, non-zeros, bytes a count: 8 bytes each


class Rows(NamedTuple):
    """Some rows of a sparse count matrix; columns ascend within a row."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.uint32]
    data: NDArray[Any]  # uint32 where every count fits, else int64

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1])


def narrow(data: NDArray[Any]) -> NDArray[Any]:
    """Counts in 4 bytes where they fit: a pure function of the values, so equal counts give equal files."""
    if len(data) and int(data.max()) >= 2**32:
        return data.astype(np.int64, copy=False)
    return data.astype(np.uint32, copy=False)


def write_rows(path: Path, rows: Rows) -> None:
    """Write so that the file is either absent or whole."""
    data = narrow(rows.data)
    header = np.array([len(rows.indptr) - 1, rows.nnz, data.itemsize], dtype="<i8")
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(tmp, "wb") as f:
        f.write(MAGIC)
        write_array(f, header)
        write_array(f, rows.indptr.astype("<i8", copy=False))
        write_array(f, rows.indices.astype("<u4", copy=False))
        write_array(f, data.astype(data.dtype.newbyteorder("<"), copy=False))
        f.flush()
        os.fsync(f.fileno())
    os.replace(tmp, path)


def check_rows(rows: Rows, n_words: int, most: int) -> str | None:
    """What is wrong with the columns and counts of rows whose bounds are in order; None if nothing is.

    Columns lie below `n_words` and ascend within a row; counts lie between 1 and `most`. In pieces, and vectorised: an
    entry takes about 2 ns.
    """
    for start in range(0, rows.nnz, SCAN):
        # one entry before the piece too, so that its first column has its neighbour
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
    """An open file of rows: its sizes are checked against the header, pieces are read on demand."""

    def __init__(self, path: Path):
        self.path = path
        try:
            size = path.stat().st_size
            with open(path, "rb") as f:
                magic = f.read(8)
                header = np.frombuffer(f.read(24), dtype="<i8")
        except OSError as e:
            raise FormatError(f"{path} cannot be read ({e.strerror}): count again.") from None
        if magic != MAGIC or len(header) != 3 or header.min() < 0 or header[2] not in (4, 8):
            raise FormatError(f"{path} is not a file of counts: count again.")
        self.n_rows, self.nnz, self.itemsize = (int(x) for x in header)
        expected = HEADER + 8 * (self.n_rows + 1) + (4 + self.itemsize) * self.nnz
        if size != expected:
            raise FormatError(f"{path} has {size} bytes instead of {expected}: it was cut; count again.")
        self._indices_at = HEADER + 8 * (self.n_rows + 1)
        self._data_at = self._indices_at + 4 * self.nnz
        self._dtype = np.dtype("<u4") if self.itemsize == 4 else np.dtype("<i8")

    def indptr(self) -> NDArray[np.int64]:
        """The bounds of the rows, which never run backwards."""
        return self._checked(np.fromfile(self.path, dtype="<i8", count=self.n_rows + 1, offset=HEADER))

    def _checked(self, indptr: NDArray[np.int64]) -> NDArray[np.int64]:
        if indptr[0] != 0 or indptr[-1] != self.nnz or (indptr[1:] < indptr[:-1]).any():
            raise FormatError(f"{self.path}: the bounds of its rows run backwards or beyond its end; count again.")
        return indptr

    def piece(self, start: int, stop: int) -> tuple[NDArray[np.uint32], NDArray[Any]]:
        """Columns and counts of the entries start..stop-1, read into memory."""
        n = stop - start
        indices = np.fromfile(self.path, dtype="<u4", count=n, offset=self._indices_at + 4 * start)
        data = np.fromfile(self.path, dtype=self._dtype, count=n, offset=self._data_at + self.itemsize * start)
        return indices, data

    def total(self) -> int:
        """The sum of the counts, read a piece at a time: what is mapped would count as our memory."""
        step = 1 << 20
        return sum(int(self.piece(a, min(a + step, self.nnz))[1].sum(dtype=np.int64)) for a in range(0, self.nnz, step))

    def map(self) -> Rows:
        """The rows as views of the file."""
        whole = np.memmap(self.path, dtype=np.uint8, mode="r")
        return Rows(
            self._checked(whole[HEADER : self._indices_at].view("<i8")),
            whole[self._indices_at : self._data_at].view("<u4"),
            whole[self._data_at :].view(self._dtype),
        )
