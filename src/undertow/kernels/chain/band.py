"""Low rank plus a band: transitions between states that are near each other in their order have own parameters.

A band is useful only if the order of the states means something, so order them by cluster. It is kept by diagonals:
`band[d, i]` belongs to the step from i to i + d − (δ − 1), |i − j| < δ, 2δ − 1 diagonals, zero where j is not a state.

The band is added, T = R E + B. The draft this comes from replaces the low-rank entries by the band; the low-rank part
inside the band must then be subtracted from every product, which cancels digits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.operators import ROW_BLOCK, LowRank, add_stats
from undertow.kernels.chain.smoothing import check_rows, smoothed_rows

Array = NDArray[Any]


@njit(cache=True, nogil=True, fastmath={"contract"})
def band_push(alpha: Any, band: Any, out: Any) -> None:
    """Equivalent to `out += alpha @ B` for the banded matrix B."""
    n_diagonals, Z = band.shape
    half = n_diagonals // 2
    for b in range(len(alpha)):
        a, o = alpha[b], out[b]
        for d in range(n_diagonals):
            shift, diagonal = d - half, band[d]
            for i in range(max(0, -shift), min(Z, Z - shift)):
                o[i + shift] += a[i] * diagonal[i]


@njit(cache=True, nogil=True, fastmath={"contract"})
def band_pull(message: Any, band: Any, out: Any) -> None:
    """Equivalent to `out += message @ B.T` for the banded matrix B."""
    n_diagonals, Z = band.shape
    half = n_diagonals // 2
    for b in range(len(message)):
        m, o = message[b], out[b]
        for d in range(n_diagonals):
            shift, diagonal = d - half, band[d]
            for i in range(max(0, -shift), min(Z, Z - shift)):
                o[i] += diagonal[i] * m[i + shift]


@njit(cache=True, nogil=True)
def band_outer(alpha: Any, message: Any, out: Any) -> None:
    """out[d, i] += Σ_b alpha[b, i] · message[b, i + d − half], in float64."""
    n_diagonals, Z = out.shape
    half = n_diagonals // 2
    for b in range(len(alpha)):
        a, m = alpha[b], message[b]
        for d in range(n_diagonals):
            shift, o = d - half, out[d]
            for i in range(max(0, -shift), min(Z, Z - shift)):
                o[i] += np.float64(a[i]) * np.float64(m[i + shift])


def band_to_dense(band: Array) -> Array:
    Z, half = band.shape[1], len(band) // 2
    out = np.zeros((Z, Z), dtype=band.dtype)
    for d in range(len(band)):
        i = np.arange(max(0, half - d), min(Z, Z + half - d))
        out[i, i + d - half] = band[d, i]
    return out


def inside(n_diagonals: int, n_states: int) -> NDArray[np.bool_]:
    """(2δ − 1, Z) True for the cells of a band whose target is a state."""
    i, shift = np.arange(n_states), np.arange(n_diagonals)[:, None] - n_diagonals // 2
    return (i + shift >= 0) & (i + shift < n_states)


def _check_band(band: Array, n_states: int) -> None:
    if band.ndim != 2 or len(band) % 2 == 0 or band.shape[1] != n_states:
        raise InputError(f"the band has shape {band.shape}; give (2·half_width − 1, {n_states}).")
    if (~inside(*band.shape) & (band != 0)).any() or not (band >= 0).all():
        raise InputError("the band must be zero beyond the first and the last state, and nowhere negative or NaN.")


class BandStats(NamedTuple):
    """Expected numbers of steps z → f (Z, F), f → z' (F, Z), and along the band (2δ − 1, Z)."""

    zf: Array
    fz: Array
    band: Array

    def __add__(self, other: Any) -> BandStats:
        return add_stats(self, other)


@dataclass(frozen=True, eq=False)
class BandLowRank:
    """T = R E + B: a state either goes through a feature, as in LowRank, or along the band.

    A row of R and the row of B beside it sum to one together: which way is taken is one more hidden choice, and Baum–
    Welch stays in closed form. E is row-stochastic.
    """

    R: Array
    E: Array
    band: Array
    low_rank: LowRank = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "low_rank", LowRank(self.R, self.E))
        _check_band(self.band, len(self.R))

    @property
    def n_states(self) -> int:
        return len(self.R)

    @property
    def width(self) -> int:
        return int(self.R.shape[1])

    def live(self, block: int) -> slice:
        return slice(0, self.n_states)

    def push(self, alpha: Array, out: Array | None = None, route: Array | None = None) -> Array:
        out = self.low_rank.push(alpha, out, route)
        band_push(alpha, self.band, out)
        return out

    def pull(self, message: Array, out: Array | None = None, route: Array | None = None) -> Array:
        out = self.low_rank.pull(message, out, route)
        band_pull(message, self.band, out)
        return out

    def empty_stats(self) -> BandStats:
        return BandStats(*self.low_rank.empty_stats(), np.zeros(self.band.shape))

    def accumulate_expected(
        self,
        alpha: Array,
        message: Array,
        stats: BandStats,
        pushed: Array | None = None,
        pulled: Array | None = None,
        row_block: int = ROW_BLOCK,
    ) -> None:
        self.low_rank.accumulate_expected(alpha, message, stats, pushed, pulled, row_block)  # type: ignore[arg-type]
        counts = np.zeros(self.band.shape)
        band_outer(alpha, message, counts)
        np.add(stats.band, counts * self.band, out=stats.band)

    def m_step(self, stats: BandStats, strength: float = 0.0) -> BandLowRank:
        """`strength` pseudo-counts a state are spread evenly over its features and its part of the band."""
        cells = inside(*self.band.shape).T
        mean = np.concatenate([np.ones(self.R.shape), cells], axis=1)
        mean /= mean.sum(axis=1, keepdims=True)
        rows = smoothed_rows(np.concatenate([stats.zf, stats.band.T], axis=1), strength, mean, dtype=self.R.dtype)
        E = smoothed_rows(stats.fz, strength * self.n_states / self.width, dtype=self.E.dtype)
        F = self.width
        return BandLowRank(np.ascontiguousarray(rows[:, :F]), E, np.ascontiguousarray(rows[:, F:].T))

    def rows(self, states: Array) -> Array:
        """(n, Z) rows of the matrix."""
        out = self.low_rank.rows(states)
        to = np.asarray(states)[:, None] + np.arange(len(self.band)) - len(self.band) // 2
        row, d = np.nonzero((to >= 0) & (to < self.n_states))
        out[row, to[row, d]] += self.band[d, np.asarray(states)[row]]
        return out

    def dense(self) -> Array:
        return self.R @ self.E + band_to_dense(self.band)

    def check(self) -> None:
        check_rows(self.E, "transition from features to states")
        check_rows(np.concatenate([self.R, self.band.T], axis=1), "transition from states to features and band")
