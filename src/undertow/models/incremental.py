"""Running totals for incremental EM (Neal and Hinton, 1998)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.types import I64

Stats = TypeVar("Stats", bound=tuple[Any, ...])


class NonzeroRows(NamedTuple):
    """The rows of an array that are not all zero."""

    rows: I64
    values: NDArray[Any]

    @classmethod
    def of(cls, array: NDArray[Any]) -> NonzeroRows:
        rows = np.flatnonzero(array.reshape(len(array), -1).any(axis=1))
        return cls(rows, array[rows])


class IncrementalStats(Generic[Stats]):
    """The sum of the statistics of all batches, each as it was when the batch was last read.

    Statistics are NamedTuples of arrays, numbers and further NamedTuples. The total is kept in float64; the copy of
    each batch is kept in float32, which takes half the memory. What is added to the total is that rounded copy, so
    subtracting it later removes exactly what was added and no rounding error builds up over the passes. A single batch
    is its own total and is not copied.

    Parameters
    ----------
    n_batches
        How many batches the data are cut into.
    by_rows
        Fields of the statistics with a row for each word: of these a batch keeps only the rows of its own words.
    """

    def __init__(self, n_batches: int, by_rows: tuple[str, ...] = ()) -> None:
        self._by_rows = by_rows
        self._batches: list[Stats | None] = [None] * n_batches
        self._total: Stats | None = None

    def state(self) -> Any:
        """All of it, for a checkpoint."""
        return self._batches, self._total

    def restore(self, state: Any) -> None:
        """Take over what `state` returned."""
        self._batches, self._total = state

    @property
    def complete(self) -> bool:
        """Whether every batch has been read at least once."""
        return all(batch is not None for batch in self._batches)

    def replace(self, batch: int, stats: Stats) -> Stats:
        """Replace the statistics of one batch.

        Parameters
        ----------
        batch
            Number of the batch, from 0.
        stats
            Its new statistics; they are not changed.

        Returns
        -------
        total
            The sum over all batches read so far. The next call changes its arrays in place.
        """
        if len(self._batches) == 1:
            self._batches[0] = self._total = stats
            return stats
        new, old = self._rounded(stats), self._batches[batch]
        self._batches[batch] = new
        if self._total is None:
            self._total = _map(_zero, stats)
        self._total = _map(_exchange, self._total, new) if old is None else _map(_exchange, self._total, new, old)
        return self._total

    def _rounded(self, stats: Stats) -> Stats:
        if self._by_rows:
            fields: Any = stats
            stats = fields._replace(**{name: NonzeroRows.of(getattr(fields, name)) for name in self._by_rows})
        rounded: Stats = _map(_as_float32, stats)
        return rounded


def _map(function: Callable[..., Any], *stats: Any) -> Any:
    """Apply a function to corresponding arrays and numbers of nested tuples."""
    if isinstance(stats[0], tuple):
        return type(stats[0])(*(_map(function, *parts) for parts in zip(*stats, strict=True)))
    return function(*stats)


def _as_float32(x: Any) -> Any:
    return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def _zero(x: Any) -> Any:
    return np.zeros_like(x, dtype=np.float64) if isinstance(x, np.ndarray) else x * 0


def _exchange(total: Any, new: Any, old: Any = 0) -> Any:
    """total + new − old, in place for arrays, which hold counts and stay non-negative."""
    if not isinstance(total, np.ndarray):
        return total + new - old
    if isinstance(new, NonzeroRows):
        total[new.rows] += new.values
        if isinstance(old, NonzeroRows):
            total[old.rows] = np.maximum(total[old.rows] - old.values, 0)
        return total
    total += new
    total -= old
    return np.maximum(total, 0, out=total)  # rounding leaves −1e-12 where nothing is


__all__ = ["IncrementalStats", "NonzeroRows"]
