"""Low rank plus a band: states near each other in their order may follow each other in ways of their own.

A band means something only if the order of the states does, so order them by cluster. It is kept by diagonals:
`band[d, i]` belongs to the step from i to i + d − (δ − 1), |i − j| < δ, 2δ − 1 diagonals, zero where j is no state.

`BandLowRank` is the sum form T = R E + B, the default. `BandComplement` has the band's entries instead of the low-rank
ones: exact to the draft it comes from (with its index set right), but the low-rank part inside the band has to be
subtracted from every product, which cancels digits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.operators import LowRank, add_stats
from undertow.kernels.chain.smoothing import check_rows, check_sums, smoothed_rows

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


def dense_to_band(matrix: Array, half_width: int) -> Array:
    """The entries with |i − j| < half_width of a (Z, Z) matrix, by diagonals."""
    Z = len(matrix)
    out = np.zeros((2 * half_width - 1, Z), dtype=matrix.dtype)
    for d in range(len(out)):
        i = np.arange(max(0, half_width - 1 - d), min(Z, Z + half_width - 1 - d))
        out[d, i] = matrix[i, i + d - half_width + 1]
    return out


def inside(n_diagonals: int, n_states: int) -> NDArray[np.bool_]:
    """Which cells of a band belong to a state."""
    i, shift = np.arange(n_states), np.arange(n_diagonals)[:, None] - n_diagonals // 2
    return (i + shift >= 0) & (i + shift < n_states)


def window_sums(table: Array, half: int) -> Array:
    """out[i] = Σ of rows j of the table with |i − j| ≤ half, by prefix sums in float64."""
    n = len(table)
    prefix = np.zeros((n + 1, *table.shape[1:]))
    np.cumsum(table, axis=0, dtype=np.float64, out=prefix[1:])
    i = np.arange(n)
    return np.asarray(prefix[np.minimum(i + half + 1, n)] - prefix[np.maximum(i - half, 0)])


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
        self, alpha: Array, message: Array, stats: BandStats, pushed: Array | None = None, pulled: Array | None = None
    ) -> None:
        self.low_rank.accumulate_expected(alpha, message, stats, pushed, pulled)  # type: ignore[arg-type]
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


@dataclass(frozen=True, eq=False)
class BandComplement:
    """T_ij = B_ij inside the band and scale_i (R E)_ij outside; R and E row-stochastic, rows of T sum to one.

    The features of the draft, φ(u_i)·φ(v_j) outside and θ_ij inside, are this with `from_features`. What has to be
    subtracted inside the band makes small probabilities inexact (in float32 by about 1e-7 of the largest), and the
    products are clipped at zero.
    """

    R: Array
    E: Array
    band: Array
    low_rank: LowRank = field(init=False, repr=False)
    outside: Array = field(init=False, repr=False)  # (Z,) the share of a row of R E that lies outside the band
    scale: Array = field(init=False, repr=False)  # (Z,) what that share is multiplied by to make rows sum to one
    correction: Array = field(init=False, repr=False)  # (2δ − 1, Z) band − scale · (R E inside the band)

    def __post_init__(self) -> None:
        low_rank = LowRank(self.R, self.E)
        _check_band(self.band, len(self.R))
        in_band = _low_rank_in_band(self.R, self.E, len(self.band))
        # exactly nothing is outside if the band covers the row, whatever rounding says
        half, i = len(self.band) // 2, np.arange(len(self.R))
        covered = (i - half <= 0) & (i + half >= len(self.R) - 1)
        outside = np.where(covered, 0.0, np.maximum(1.0 - in_band.sum(axis=0), 0.0))
        free = np.maximum(1.0 - self.band.sum(axis=0, dtype=np.float64), 0.0)
        scale = np.divide(free, outside, out=np.zeros_like(free), where=outside > 0)
        object.__setattr__(self, "low_rank", low_rank)
        object.__setattr__(self, "outside", outside)
        object.__setattr__(self, "scale", scale.astype(self.R.dtype))
        object.__setattr__(self, "correction", (self.band - scale * in_band).astype(self.band.dtype))

    @classmethod
    def from_features(cls, phi_u: Array, phi_v: Array, theta: Array) -> BandComplement:
        """T_ij ∝ θ_ij for |i − j| < δ, φ(u_i)·φ(v_j) otherwise; theta by diagonals, all non-negative.

        Z_i = Σ_{|i−j|<δ} θ_ij + φ(u_i)'[Σ_j φ(v_j) − Σ_{|i−j|<δ} φ(v_j)], the windows by prefix sums.
        """
        u, v = np.asarray(phi_u, dtype=np.float64), np.asarray(phi_v, dtype=np.float64)
        _check_band(theta, len(u))
        far = np.maximum(v.sum(axis=0) - window_sums(v, len(theta) // 2), 0.0)
        normaliser = theta.sum(axis=0, dtype=np.float64) + (u * far).sum(axis=1)
        dtype = np.asarray(phi_u).dtype
        R = smoothed_rows(u * v.sum(axis=0), dtype=dtype)
        return cls(R, smoothed_rows(v.T, dtype=dtype), (theta / normaliser).astype(dtype))

    @property
    def n_states(self) -> int:
        return len(self.R)

    @property
    def width(self) -> int:
        return int(self.R.shape[1])

    def push(self, alpha: Array, out: Array | None = None, route: Array | None = None) -> Array:
        out = self.low_rank.push(alpha * self.scale, out, route)
        band_push(alpha, self.correction, out)
        return np.maximum(out, 0, out=out)

    def pull(self, message: Array, out: Array | None = None, route: Array | None = None) -> Array:
        out = self.low_rank.pull(message, out, route)
        out *= self.scale
        band_pull(message, self.correction, out)
        return np.maximum(out, 0, out=out)

    def empty_stats(self) -> BandStats:
        return BandStats(*self.low_rank.empty_stats(), np.zeros(self.band.shape))

    def accumulate_expected(
        self, alpha: Array, message: Array, stats: BandStats, pushed: Array | None = None, pulled: Array | None = None
    ) -> None:
        """Here stats.band holds Σ alpha_i message_j without B, and zf, fz the low-rank steps as if there was no band.

        What they hold too much is known from stats.band, and is taken away once, in the M-step.
        """
        scaled = alpha * self.scale
        self.low_rank.accumulate_expected(scaled, message, stats, pushed, pulled)  # type: ignore[arg-type]
        band_outer(alpha, message, stats.band)

    def m_step(self, stats: BandStats, strength: float = 0.0) -> BandComplement:
        """Exact EM with one more hidden thing: steps z → f → z' that fell inside the band and were drawn again.

        Their number is geometric, so that a state with n steps outside is expected to have had n (1 − o) / o such
        rejected ones, o being the share of its row of R E that lies outside; they are distributed as R E is in there.
        """
        in_zf, in_fz = _inside_counts(self.R, self.E, stats.band * self.scale)
        zf, fz = np.maximum(stats.zf - in_zf, 0.0), np.maximum(stats.fz - in_fz, 0.0)
        n_outside = zf.sum(axis=1)
        rejected = np.divide(n_outside, self.outside, out=np.zeros_like(n_outside), where=self.outside > 0)
        half = len(self.band) // 2
        R, E = self.R.astype(np.float64), self.E.astype(np.float64)
        zf += rejected[:, None] * R * window_sums(E.T, half)
        fz += E * window_sums(rejected[:, None] * R, half).T
        cells = inside(*self.band.shape).T
        mean = np.concatenate([np.ones((self.n_states, 1)) * self.width, cells], axis=1)
        mean /= mean.sum(axis=1, keepdims=True)
        ways = np.concatenate([n_outside[:, None], (stats.band * self.band).T], axis=1)
        B = smoothed_rows(ways, strength, mean, dtype=self.band.dtype)[:, 1:].T
        return BandComplement(
            smoothed_rows(zf, strength, dtype=self.R.dtype),
            smoothed_rows(fz, strength * self.n_states / self.width, dtype=self.E.dtype),
            np.ascontiguousarray(B),
        )

    def dense(self) -> Array:
        in_band = inside(*self.band.shape)
        full = self.scale[:, None] * (self.R @ self.E)
        return np.where(band_to_dense(in_band), band_to_dense(self.band), full)

    def check(self) -> None:
        check_rows(self.R, "transition from states to features")
        check_rows(self.E, "transition from features to states")
        check_sums(self.band.sum(axis=0, dtype=np.float64) + self.scale * self.outside, "transition")


@njit(cache=True, nogil=True)
def _low_rank_in_band(R: Any, E: Any, n_diagonals: int) -> Any:
    """out[d, i] = (R E)_ij for j = i + d − half, in float64."""
    Z, F = R.shape
    half = n_diagonals // 2
    out = np.zeros((n_diagonals, Z))
    for d in range(n_diagonals):
        shift = d - half
        for f in range(F):
            for i in range(max(0, -shift), min(Z, Z - shift)):
                out[d, i] += np.float64(R[i, f]) * np.float64(E[f, i + shift])
    return out


@njit(cache=True, nogil=True)
def _inside_counts(R: Any, E: Any, weight: Any) -> Any:
    """Σ over the band of weight_ij R_if E_fj, by (i, f) and by (f, j)."""
    Z, F = R.shape
    n_diagonals = len(weight)
    half = n_diagonals // 2
    zf, fz = np.zeros((Z, F)), np.zeros((F, Z))
    for d in range(n_diagonals):
        shift = d - half
        for f in range(F):
            for i in range(max(0, -shift), min(Z, Z - shift)):
                count = weight[d, i] * R[i, f] * E[f, i + shift]
                zf[i, f] += count
                fz[f, i + shift] += count
    return zf, fz
