"""The transition of a discrete chain as an operator: push, pull and expected counts, never T itself.

Row-stochastic T with rows "from" and columns "to". A batch of B distributions is a (B, Z) array, so that a step is a
matrix product. `Dense` and `LowRank` are here, low rank plus a band in band.py, those of chains with blocks in
block_operators.py.

Some operators factor through `width` features. A caller that wants statistics afterwards hands in `route` arrays
(B, width), which keep the feature values of each product, so that nothing is multiplied twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.smoothing import check_rows, smoothed_rows

Array = NDArray[Any]
S = TypeVar("S", bound=tuple[Any, ...])
COPY_STATES = 4096  # 64 MB
ROW_BLOCK = 1024  # rows of expected counts that are made at a time, so that temporaries stay small


@runtime_checkable
class Transition(Protocol):
    """What every transition is: a row-stochastic (Z, Z) matrix T that need not be held as one.

    Dense, LowRank, BandLowRank, PairSparse and BlockLowRank; a test compares each with its dense form.
    """

    @property
    def n_states(self) -> int: ...

    def live(self, block: int, /) -> slice:
        """The states that can emit a word of this block; all for −1, and for operators without blocks."""

    def push(self, alpha: Array, /) -> Array:
        """alpha T: from filtered to predicted. (B, Z) → (B, Z)."""

    def pull(self, message: Array, /) -> Array:
        """message T': from what a state's successor explains to what the state does. (B, Z) → (B, Z)."""

    def rows(self, states: Array, /) -> Array:
        """(n, Z) rows of the matrix."""

    def empty_stats(self) -> Any:
        """Expected counts of nothing: a NamedTuple of float64 arrays with `+`."""

    def accumulate_expected(self, alpha: Array, message: Array, stats: Any, /) -> None:
        """Add Σ_b of alpha_b(i) T_ij message_b(j), split by the routes of the operator.

        The caller scales the messages such that alpha_b T message_b' = 1 for a pair that counts once.
        """

    def dense(self) -> Array:
        """The (Z, Z) matrix, for tests and small models."""

    def check(self) -> None:
        """Raise InputError, with the sums, unless all rows are distributions."""


class TransitionOperator(Transition, Protocol):
    """What the batched forward–backward needs besides: products into given arrays, and an M-step."""

    @property
    def width(self) -> int:
        """Number of features that T factors through, 0 if it does not."""

    def push(self, alpha: Array, /, out: Array | None = None, route: Array | None = None) -> Array:
        """As above; out must not overlap alpha."""

    def pull(self, message: Array, /, out: Array | None = None, route: Array | None = None) -> Array: ...

    def accumulate_expected(
        self, alpha: Array, message: Array, stats: Any, /, pushed: Array | None = None, pulled: Array | None = None
    ) -> None:
        """As above; pushed and pulled are the route arrays of push and pull."""

    def m_step(self, stats: Any, strength: float = 0.0) -> Self:
        """The operator with the most likely parameters given expected counts, `strength` pseudo-counts a row."""


def add_stats(a: S, b: Any) -> S:
    """Field by field; NamedTuples of arrays add by this."""
    return type(a)(*(x + y for x, y in zip(a, b, strict=True)))


def add_into(total: Any, part: Any) -> None:
    """total += part without new arrays."""
    for x, y in zip(total, part, strict=True):
        np.add(x, y, out=x)


@njit(cache=True, nogil=True)
def add_product(counts: Any, a: Any, b: Any) -> None:
    """Equivalent to `counts += a * b` without a temporary, summed in float64."""
    for i in range(counts.shape[0]):
        row, x, y = counts[i], a[i], b[i]
        for j in range(len(row)):
            row[j] += np.float64(x[j]) * np.float64(y[j])


def row_blocks(n: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def add_outer(counts: Array, left: Array, right: Array, factor: Array, row_block: int = ROW_BLOCK) -> None:
    """Equivalent to `counts += factor * (left.T @ right)`, some rows at a time."""
    for some in row_blocks(len(counts), row_block):
        add_product(counts[some], left[:, some].T @ right, factor[some])


class DenseStats(NamedTuple):
    """pairs (Z, Z): expected numbers of transitions."""

    pairs: Array

    def __add__(self, other: Any) -> DenseStats:
        return add_stats(self, other)


@dataclass(frozen=True, eq=False)
class Dense:
    """T itself, (Z, Z)."""

    T: Array
    TT: Array = field(init=False, repr=False)  # T', a copy if that is cheap: BLAS reads it faster than a view

    def __post_init__(self) -> None:
        if self.T.ndim != 2 or self.T.shape[0] != self.T.shape[1]:
            raise InputError(f"the transition has shape {self.T.shape}; give (states, states).")
        object.__setattr__(self, "TT", np.ascontiguousarray(self.T.T) if len(self.T) <= COPY_STATES else self.T.T)

    @property
    def n_states(self) -> int:
        return len(self.T)

    @property
    def width(self) -> int:
        return 0

    def live(self, block: int) -> slice:
        return slice(0, self.n_states)

    def push(self, alpha: Array, out: Array | None = None, route: Array | None = None) -> Array:
        return np.matmul(alpha, self.T, out=out)

    def pull(self, message: Array, out: Array | None = None, route: Array | None = None) -> Array:
        return np.matmul(message, self.TT, out=out)

    def empty_stats(self) -> DenseStats:
        return DenseStats(np.zeros(self.T.shape))

    def accumulate_expected(
        self,
        alpha: Array,
        message: Array,
        stats: DenseStats,
        pushed: Array | None = None,
        pulled: Array | None = None,
        row_block: int = ROW_BLOCK,
    ) -> None:
        add_outer(stats.pairs, alpha, message, self.T, row_block)

    def m_step(self, stats: DenseStats, strength: float = 0.0) -> Dense:
        return Dense(smoothed_rows(stats.pairs, strength, dtype=self.T.dtype))

    def rows(self, states: Array) -> Array:
        """(n, Z) rows of the matrix."""
        return np.asarray(self.T[states])

    def dense(self) -> Array:
        return self.T

    def check(self) -> None:
        check_rows(self.T, "transition")


class LowRankStats(NamedTuple):
    """zf (Z, F): expected numbers of steps z → f; fz (F, Z): of steps f → z'."""

    zf: Array
    fz: Array

    def __add__(self, other: Any) -> LowRankStats:
        return add_stats(self, other)


@dataclass(frozen=True, eq=False)
class LowRank:
    """T = R E: a chain that goes z → f → z', R (Z, F) and E (F, Z) both row-stochastic.

    Baum–Welch has a closed form for it, and a step costs 2 Z F multiply-adds instead of Z².
    """

    R: Array
    E: Array
    # BLAS reads these faster than transposed views when the batch is thin
    RT: Array = field(init=False, repr=False)
    ET: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.R.ndim != 2 or self.E.shape != self.R.shape[::-1]:
            raise InputError(
                f"R {self.R.shape} and E {self.E.shape} do not fit: give (states, rank) and (rank, states)."
            )
        object.__setattr__(self, "RT", np.ascontiguousarray(self.R.T))
        object.__setattr__(self, "ET", np.ascontiguousarray(self.E.T))

    @property
    def n_states(self) -> int:
        return len(self.R)

    @property
    def width(self) -> int:
        return int(self.R.shape[1])

    def live(self, block: int) -> slice:
        return slice(0, self.n_states)

    def push(self, alpha: Array, out: Array | None = None, route: Array | None = None) -> Array:
        return np.matmul(np.matmul(alpha, self.R, out=route), self.E, out=out)

    def pull(self, message: Array, out: Array | None = None, route: Array | None = None) -> Array:
        return np.matmul(np.matmul(message, self.ET, out=route), self.RT, out=out)

    def empty_stats(self) -> LowRankStats:
        return LowRankStats(np.zeros(self.R.shape), np.zeros(self.E.shape))

    def accumulate_expected(
        self,
        alpha: Array,
        message: Array,
        stats: LowRankStats,
        pushed: Array | None = None,
        pulled: Array | None = None,
        row_block: int = ROW_BLOCK,
    ) -> None:
        add_outer(stats.zf, alpha, message @ self.ET if pulled is None else pulled, self.R, row_block)
        # in blocks of columns: the rows of E are few and long
        pushed = alpha @ self.R if pushed is None else pushed
        for some in row_blocks(self.n_states, row_block):
            add_product(stats.fz[:, some], pushed.T @ message[:, some], self.E[:, some])

    def m_step(self, stats: LowRankStats, strength: float = 0.0) -> LowRank:
        """`strength` pseudo-counts for each row of R and, spread likewise over all rows together, for those of E."""
        per_feature = strength * self.n_states / self.width
        return LowRank(
            smoothed_rows(stats.zf, strength, dtype=self.R.dtype),
            smoothed_rows(stats.fz, per_feature, dtype=self.E.dtype),
        )

    def rows(self, states: Array) -> Array:
        """(n, Z) rows of the matrix."""
        return np.asarray(self.R[states] @ self.E)

    def dense(self) -> Array:
        return self.R @ self.E

    def check(self) -> None:
        check_rows(self.R, "transition from states to features")
        check_rows(self.E, "transition from features to states")
