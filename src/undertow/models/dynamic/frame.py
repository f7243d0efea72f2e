"""The frame of a map with free frequencies: what the counts leave open, and how well the prior closes it.

With free frequencies only x_i·y_j between rows and columns matters, so a step's counts are the same after a shift of
either kind, and after a linear map A of the rows with its inverse transpose on the columns. The prior alone chooses
among these, and the most probable path chooses badly: along x ↦ Ax, y ↦ A⁻ᵀy the posterior mass is e^{−E(A)} |det A|^k,
with E the prior's energy and k the number of places that counts determine, of rows less those of columns, but the mode
ignores the volume |det A|^k. Where rows drift and words stand still the mode shrinks the rows by a third and spreads
the words. `best_frame` moves a path along its orbit to where the mass is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.types import F64
from undertow.models.dynamic.filter import Noise, Path

MIN_RATIO = 1e-6  # of the smallest to the largest energy of an axis; below it an axis says nothing and A is kept at 1


def move_precisions(gaps: Sequence[float], noise: Noise) -> F64:
    """(T, n) prior precision of each move; the first is that of the first position."""
    return np.stack([1 / noise.initial, *(1 / (g * noise.drift) for g in gaps[1:])])


def best_frame(x: F64, n_rows: int, precisions: F64, determined: F64) -> F64:
    """The path (T, n, d) moved along its orbit to the largest posterior mass; `determined` (n,) places of an entity.

    E(A) = ½ tr(MR) + ½ tr(M⁻¹C) with M = A'A, R and C the energies of the moves of rows and of columns. With the
    volume, M solves MRM − kM − C = 0, which is quadratic in R^½MR^½.
    """
    moves = np.diff(x, axis=0, prepend=np.zeros_like(x[:1]))
    energies = []
    for part in (slice(0, n_rows), slice(n_rows, None)):
        energies.append(np.einsum("tn,tnk,tnl->kl", precisions[:, part], moves[:, part], moves[:, part]))
    R, C = energies
    if any(values[0] <= MIN_RATIO * values[-1] for values in map(np.linalg.eigvalsh, energies)):
        return x
    k = float(determined[:n_rows].sum() - determined[n_rows:].sum())
    root, inverse_root = matrix_power(R, 0.5), matrix_power(R, -0.5)
    values, axes = np.linalg.eigh(root @ C @ root)
    half = np.sqrt(k * k / 4 + np.maximum(values, 0))
    # k/2 + √(k²/4 + c), without the cancellation of a large negative k
    solved = np.where(k >= 0, k / 2 + half, values / (half - k / 2))
    A = matrix_power(inverse_root @ (axes * solved) @ axes.T @ inverse_root, 0.5)
    out = np.empty_like(x)
    out[:, :n_rows], out[:, n_rows:] = x[:, :n_rows] @ A, x[:, n_rows:] @ np.linalg.inv(A)
    return out


def matrix_power(S: F64, exponent: float) -> F64:
    """A power of a symmetric positive definite matrix."""
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    out: F64 = (vectors * values**exponent) @ vectors.T
    return out


# --- how uncertain the frame is -------------------------------------------------------------------------


class FrameBelief(NamedTuple):
    """Covariance of what a step's counts leave open, in addition to the covariances of a path.

    The parameters of a step are a shift of the rows (d), one of the columns (d), and a matrix B (d, d): x ↦ x + xB,
    y ↦ y − yB'.
    """

    covs: F64  # (T, r, r) with r = 2d + d²
    means: F64  # (T, n, d) the path
    n_rows: int

    def of_entities(self, t: int) -> F64:
        """(n, d, d) to be added to the covariance of each entity."""
        slopes = frame_slopes(self.means[t], self.n_rows)
        out: F64 = np.einsum("nir,rs,njs->nij", slopes, self.covs[t], slopes, optimize=True)
        return out

    def of_difference(self, i: int, j: int) -> F64:
        """(T, d, d) to be added to the covariance of x_i − x_j."""
        pair = self.means[:, [i, j]]
        kinds = np.array([i >= self.n_rows, j >= self.n_rows])
        a, b = (np.stack([_slopes(x[k : k + 1], kinds[k : k + 1])[0] for x in pair]) for k in (0, 1))
        out: F64 = np.einsum("tir,trs,tjs->tij", a - b, self.covs, a - b, optimize=True)
        return out


def frame_slopes(x: F64, n_rows: int) -> F64:
    """(n, d, r) derivatives of positions (n, d) by the parameters of the frame."""
    return _slopes(x, np.arange(len(x)) >= n_rows)


def _slopes(x: F64, is_column: NDArray[np.bool_]) -> F64:
    n, d = x.shape
    eye = np.eye(d)
    out = np.zeros((n, d, 2 * d + d * d))
    out[~is_column, :, :d] = eye
    out[is_column, :, d : 2 * d] = eye
    linear = out[:, :, 2 * d :].reshape(n, d, d, d)  # coordinate, and row and column of B
    linear[~is_column] = x[~is_column][:, None, :, None] * eye[None, :, None, :]
    linear[is_column] = -x[is_column][:, None, None, :] * eye[None, :, :, None]
    out[:, :, 2 * d :] = linear.reshape(n, d, d * d)
    return out


def believe_frame(
    path: Path, n_rows: int, precisions: F64, determined: F64, *, given_entities: bool, last: bool
) -> FrameBelief:
    """The uncertainty of the frame that the covariances of a path lack.

    Those of the blocks are given all other entities, and so given the frame: `given_entities` adds the covariance of
    the frame under the prior, each move counted by how far the counts determine it (`determined`, (T, n), 0 to 1). In
    either form the drift was learned, and with it the scale of the rows against that of the columns, which only the
    first step tells: both kinds have the same variance there. `last` is for filtered paths, which know no later steps.
    """
    T, n, d = path.means.shape
    scale = np.concatenate((np.zeros(2 * d), np.eye(d).ravel()))
    known = [d * max(float(determined[0, part].sum()), 1e-6) for part in (slice(0, n_rows), slice(n_rows, n))]
    spread = min(sum(1 / k for k in known) / 8, 1.0)
    covs = np.repeat(spread * np.outer(scale, scale)[None], T, axis=0)
    if given_entities:
        covs = covs + _prior_frame(path.means, n_rows, precisions * np.clip(determined, 0, 1), last)
    return FrameBelief(covs, path.means, n_rows)


def _prior_frame(x: F64, n_rows: int, weights: F64, last: bool) -> F64:
    """(T, r, r) covariance of each step's frame given all steps, or given the steps so far if `last`."""
    T = len(x)
    slopes = [frame_slopes(one, n_rows) for one in x]
    r = slopes[0].shape[2]

    def product(t: int, a: F64, b: F64) -> F64:
        out: F64 = np.einsum("nir,n,nis->rs", a, weights[t], b, optimize=True)
        return out

    here = [product(t, slopes[t], slopes[t]) for t in range(T)]  # of the move to t
    cross = [product(t, slopes[t - 1], slopes[t]) for t in range(1, T)]
    before = [product(t, slopes[t - 1], slopes[t - 1]) for t in range(1, T)]
    ridge = 1e-9 * max(float(np.trace(m)) for m in here) / r * np.eye(r)
    if last:
        found = [here[0] + ridge]
        for t in range(1, T):
            passed = np.linalg.solve(found[-1] + before[t - 1], cross[t - 1])
            found.append(here[t] - cross[t - 1].T @ passed + ridge)
        return np.asarray(np.linalg.inv(np.array(found)), dtype=np.float64)
    joint = np.zeros((T, r, T, r))
    for t in range(T):
        joint[t, :, t] += here[t] + ridge
        if t:
            joint[t - 1, :, t - 1] += before[t - 1]
            joint[t - 1, :, t], joint[t, :, t - 1] = -cross[t - 1], -cross[t - 1].T
    inverse = np.asarray(np.linalg.inv(joint.reshape(T * r, T * r)), dtype=np.float64).reshape(T, r, T, r)
    out: F64 = inverse[np.arange(T), :, np.arange(T), :]
    return (out + out.transpose(0, 2, 1)) / 2


def determined_shares(covs: F64, variance: F64, precisions: F64, d: int) -> F64:
    """(T, n) how far the counts determine each move, 0 to 1: 1 less its posterior over its prior variance.

    `covs` (n, d, d) are of the first step, `variance` (T − 1, n) the traces of the later moves.
    """
    traces = np.concatenate((np.trace(covs, axis1=1, axis2=2)[None], variance))
    out: F64 = 1 - precisions * traces / d
    return out
