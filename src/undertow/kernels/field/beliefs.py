"""Gaussian beliefs about the positions of n entities in d dimensions: two covariance forms with one interface.

`FullCovariance` is the joint covariance of all coordinates, (n d, n d), the coordinates of an entity adjacent;
`BlockCovariance` is one (d, d) block per entity, (n, d, d), and takes entities to be independent. Filters pass
covariances from step to step and work with precisions within a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import scipy.linalg

from undertow.kernels.field.cooccurrence import Table, information_blocks, information_matrix
from undertow.kernels.types import F64, I64


class CovarianceForm(Protocol):
    """The operations of a filter and smoother on covariances; positions are (n, d), `variances` one per entity."""

    name: str

    def isotropic(self, variances: F64, d: int) -> F64: ...
    def diffuse(self, cov: F64, variances: F64) -> F64: ...
    def invert(self, cov: F64) -> tuple[F64, float]: ...
    def multiply(self, matrix: F64, v: F64) -> F64: ...
    def information(self, table: Table, x: F64, beta: float, n_threads: int) -> F64: ...
    def add(self, precision: F64, information: F64, present: I64) -> F64: ...
    def solver(self, precision: F64) -> Callable[[F64], F64]: ...
    def smooth(self, cov_filt: F64, cov_pred: F64, cov_next: F64) -> tuple[F64, F64, F64]: ...
    def blocks(self, cov: F64, n: int) -> F64: ...
    def difference(self, cov: F64, i: int, j: int, d: int) -> F64: ...
    def variance(self, cov: F64, at: I64, slope: F64) -> float: ...


class FullCovariance:
    """The joint covariance of all entities: exact up to the Laplace approximation, cubic in n d."""

    name = "full"

    def isotropic(self, variances: F64, d: int) -> F64:
        return np.diag(np.repeat(variances, d))

    def diffuse(self, cov: F64, variances: F64) -> F64:
        out = cov.copy()
        out[np.diag_indices_from(out)] += np.repeat(variances, len(cov) // len(variances))
        return out

    def invert(self, cov: F64) -> tuple[F64, float]:
        """The inverse and its log-determinant."""
        lower = scipy.linalg.cholesky(cov, lower=True, check_finite=False)
        inverse, _ = scipy.linalg.lapack.dpotri(lower, lower=1)
        inverse = np.tril(inverse)
        inverse += np.tril(inverse, -1).T
        return inverse, -2 * float(np.log(np.diag(lower)).sum())

    def multiply(self, matrix: F64, v: F64) -> F64:
        return (matrix @ v.ravel()).reshape(v.shape)

    def information(self, table: Table, x: F64, beta: float, n_threads: int) -> F64:
        return information_matrix(table, x[table.rows], x[table.columns], beta=beta)

    def add(self, precision: F64, information: F64, present: I64) -> F64:
        d = len(information) // len(present)
        at = (present[:, None] * d + np.arange(d)).ravel()
        out = precision.copy()
        out[np.ix_(at, at)] += information
        return out

    def solver(self, precision: F64) -> Callable[[F64], F64]:
        factor = scipy.linalg.cho_factor(precision, lower=True, check_finite=False)
        return lambda v: scipy.linalg.cho_solve(factor, v.ravel(), check_finite=False).reshape(v.shape)

    def smooth(self, cov_filt: F64, cov_pred: F64, cov_next: F64) -> tuple[F64, F64, F64]:
        """Rauch–Tung–Striebel: the gain J, the smoothed covariance, and the covariance of x_{t+1} − x_t."""
        factor = scipy.linalg.cho_factor(cov_pred, lower=True, check_finite=False)
        J = scipy.linalg.cho_solve(factor, cov_filt, check_finite=False).T
        J_next = J @ cov_next
        cov = cov_filt + (J_next - cov_filt) @ J.T  # J cov_pred = cov_filt
        cov = (cov + cov.T) / 2
        return J, cov, cov_next + cov - J_next - J_next.T

    def blocks(self, cov: F64, n: int) -> F64:
        d = len(cov) // n
        i = np.arange(n)
        out: F64 = cov.reshape(n, d, n, d)[i, :, i, :].copy()
        return out

    def difference(self, cov: F64, i: int, j: int, d: int) -> F64:
        """Covariance of x_i − x_j."""
        a, b = slice(i * d, i * d + d), slice(j * d, j * d + d)
        out: F64 = cov[a, a] + cov[b, b] - cov[a, b] - cov[b, a]
        return out

    def variance(self, cov: F64, at: I64, slope: F64) -> float:
        """Variance of Σ slope·x over the entities `at`."""
        full = np.zeros((len(cov) // slope.shape[1], slope.shape[1]))
        full[at] = slope
        return float(full.ravel() @ cov @ full.ravel())


class BlockCovariance:
    """One block per entity: linear in n. Its precision is conditional on the positions of the other entities."""

    name = "blocks"

    def isotropic(self, variances: F64, d: int) -> F64:
        return variances[:, None, None] * np.eye(d)

    def diffuse(self, cov: F64, variances: F64) -> F64:
        return cov + variances[:, None, None] * np.eye(cov.shape[1])

    def invert(self, cov: F64) -> tuple[F64, float]:
        inverse = np.linalg.inv(cov)
        return (inverse + inverse.transpose(0, 2, 1)) / 2, -float(np.linalg.slogdet(cov)[1].sum())

    def multiply(self, matrix: F64, v: F64) -> F64:
        return (matrix @ v[:, :, None])[:, :, 0]

    def information(self, table: Table, x: F64, beta: float, n_threads: int) -> F64:
        return information_blocks(table, x[table.rows], x[table.columns], beta=beta, n_threads=n_threads)

    def add(self, precision: F64, information: F64, present: I64) -> F64:
        out = precision.copy()
        out[present] += information
        return out

    def solver(self, precision: F64) -> Callable[[F64], F64]:
        inverse = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return lambda v: self.multiply(inverse, v)

    def smooth(self, cov_filt: F64, cov_pred: F64, cov_next: F64) -> tuple[F64, F64, F64]:
        """As `FullCovariance.smooth`, entity by entity."""
        J = np.asarray(np.linalg.solve(cov_pred, cov_filt).transpose(0, 2, 1), dtype=np.float64)
        J_next = J @ cov_next
        cov = cov_filt + (J_next - cov_filt) @ J.transpose(0, 2, 1)
        cov = (cov + cov.transpose(0, 2, 1)) / 2
        return J, cov, cov_next + cov - J_next - J_next.transpose(0, 2, 1)

    def blocks(self, cov: F64, n: int) -> F64:
        return cov

    def difference(self, cov: F64, i: int, j: int, d: int) -> F64:
        out: F64 = cov[i] + cov[j]
        return out

    def variance(self, cov: F64, at: I64, slope: F64) -> float:
        return float(np.einsum("ni,nij,nj->", slope, cov[at], slope))


FORMS: dict[str, CovarianceForm] = {"full": FullCovariance(), "blocks": BlockCovariance()}
