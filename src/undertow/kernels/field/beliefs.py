"""Gaussian beliefs about the positions of n entities in d dimensions, in two forms under one set of verbs.

`Full` keeps the covariance of everything with everything, (n d, n d), an entity's coordinates side by side;
`Blocks` keeps one (d, d) covariance an entity, (n, d, d), and takes entities for independent. Both forms hold
covariances between steps and precisions within one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from undertow.kernels.field.cooccurrence import Table, clip_eigenvalues, information_blocks, information_matrix

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Form(Protocol):
    """What a filter and a smoother ask of a form; positions are (n, d), `variances` one number an entity."""

    name: str

    def isotropic(self, variances: Array, d: int) -> Array: ...
    def diffuse(self, cov: Array, variances: Array) -> Array: ...
    def invert(self, cov: Array) -> tuple[Array, float]: ...
    def times(self, matrix: Array, v: Array) -> Array: ...
    def information(self, table: Table, x: Array, form: str, beta: float, n_threads: int) -> Array: ...
    def add(self, precision: Array, information: Array, present: Indices) -> Array: ...
    def solver(self, precision: Array) -> Callable[[Array], Array]: ...
    def smooth(self, cov_filt: Array, cov_pred: Array, cov_next: Array) -> tuple[Array, Array, Array]: ...
    def blocks(self, cov: Array, n: int) -> Array: ...
    def between(self, cov: Array, i: int, j: int, d: int) -> Array: ...


class Full:
    """Everything with everything: exact up to the expansion, cubic in n d."""

    name = "full"

    def isotropic(self, variances: Array, d: int) -> Array:
        return np.diag(np.repeat(variances, d))

    def diffuse(self, cov: Array, variances: Array) -> Array:
        out = cov.copy()
        out[np.diag_indices_from(out)] += np.repeat(variances, len(cov) // len(variances))
        return out

    def invert(self, cov: Array) -> tuple[Array, float]:
        """The inverse and its log determinant."""
        lower = scipy.linalg.cholesky(cov, lower=True, check_finite=False)
        inverse, _ = scipy.linalg.lapack.dpotri(lower, lower=1)
        inverse = np.tril(inverse)
        inverse += np.tril(inverse, -1).T
        return inverse, -2 * float(np.log(np.diag(lower)).sum())

    def times(self, matrix: Array, v: Array) -> Array:
        return (matrix @ v.ravel()).reshape(v.shape)

    def information(self, table: Table, x: Array, form: str, beta: float, n_threads: int) -> Array:
        matrix = information_matrix(table, x[table.rows], x[table.columns], form=form, beta=beta)
        return matrix if form == "fisher" else clip_eigenvalues(matrix)

    def add(self, precision: Array, information: Array, present: Indices) -> Array:
        d = len(information) // len(present)
        at = (present[:, None] * d + np.arange(d)).ravel()
        out = precision.copy()
        out[np.ix_(at, at)] += information
        return out

    def solver(self, precision: Array) -> Callable[[Array], Array]:
        factor = scipy.linalg.cho_factor(precision, lower=True, check_finite=False)
        return lambda v: scipy.linalg.cho_solve(factor, v.ravel(), check_finite=False).reshape(v.shape)

    def smooth(self, cov_filt: Array, cov_pred: Array, cov_next: Array) -> tuple[Array, Array, Array]:
        """Rauch–Tung–Striebel: the gain J, the smoothed covariance, and the blocks of that of x_{t+1} − x_t."""
        factor = scipy.linalg.cho_factor(cov_pred, lower=True, check_finite=False)
        J = scipy.linalg.cho_solve(factor, cov_filt, check_finite=False).T
        J_next = J @ cov_next
        cov = cov_filt + (J_next - cov_filt) @ J.T  # J cov_pred = cov_filt
        cov = (cov + cov.T) / 2
        return J, cov, cov_next + cov - J_next - J_next.T

    def blocks(self, cov: Array, n: int) -> Array:
        d = len(cov) // n
        i = np.arange(n)
        out: Array = cov.reshape(n, d, n, d)[i, :, i, :].copy()
        return out

    def between(self, cov: Array, i: int, j: int, d: int) -> Array:
        """Covariance of x_i − x_j."""
        a, b = slice(i * d, i * d + d), slice(j * d, j * d + d)
        out: Array = cov[a, a] + cov[b, b] - cov[a, b] - cov[b, a]
        return out


class Blocks:
    """One block an entity: linear in n. The precision is conditional on the other entities' positions."""

    name = "blocks"

    def isotropic(self, variances: Array, d: int) -> Array:
        return variances[:, None, None] * np.eye(d)

    def diffuse(self, cov: Array, variances: Array) -> Array:
        return cov + variances[:, None, None] * np.eye(cov.shape[1])

    def invert(self, cov: Array) -> tuple[Array, float]:
        inverse = np.linalg.inv(cov)
        return (inverse + inverse.transpose(0, 2, 1)) / 2, -float(np.linalg.slogdet(cov)[1].sum())

    def times(self, matrix: Array, v: Array) -> Array:
        return (matrix @ v[:, :, None])[:, :, 0]

    def information(self, table: Table, x: Array, form: str, beta: float, n_threads: int) -> Array:
        return information_blocks(table, x[table.rows], x[table.columns], form=form, beta=beta, n_threads=n_threads)

    def add(self, precision: Array, information: Array, present: Indices) -> Array:
        out = precision.copy()
        out[present] += information
        return out

    def solver(self, precision: Array) -> Callable[[Array], Array]:
        inverse = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return lambda v: self.times(inverse, v)

    def smooth(self, cov_filt: Array, cov_pred: Array, cov_next: Array) -> tuple[Array, Array, Array]:
        """As `Full.smooth`, entity by entity."""
        J = np.asarray(np.linalg.solve(cov_pred, cov_filt).transpose(0, 2, 1), dtype=np.float64)
        J_next = J @ cov_next
        cov = cov_filt + (J_next - cov_filt) @ J.transpose(0, 2, 1)
        cov = (cov + cov.transpose(0, 2, 1)) / 2
        return J, cov, cov_next + cov - J_next - J_next.transpose(0, 2, 1)

    def blocks(self, cov: Array, n: int) -> Array:
        return cov

    def between(self, cov: Array, i: int, j: int, d: int) -> Array:
        out: Array = cov[i] + cov[j]
        return out


FORMS: dict[str, Form] = {"full": Full(), "blocks": Blocks()}
