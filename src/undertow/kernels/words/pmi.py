"""Positive pointwise mutual information of words and their contexts, and the leading singular vectors of it.

    M[w, c] = max(0, log p(w, c) / (p(w) q(c))),   q(c) ∝ n(c)^power

n(c) is how often context c was counted. A power below 1 makes rare contexts count less (Levy, Goldberg and Dagan 2015).
The singular vectors come from subspace iterations, of which each is a product with M and one with its transpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from undertow.kernels.gaussian.linalg import orthonormal
from undertow.kernels.gaussian.spmm import spmm
from undertow.kernels.types import F32


class Subspace(NamedTuple):
    """A low-rank approximation of a matrix, basis · loadings'."""

    basis: F32  # (V, m) orthonormal columns
    loadings: F32  # (C, m) the transpose of the matrix times the basis

    def explained(self) -> float:
        """The part of the matrix's sum of squares that is in the approximation."""
        return float(np.einsum("ij,ij->", self.loadings, self.loadings, dtype=np.float64))


def positive_pmi(counts: csr_array, power: float) -> csr_array:
    """The positive pointwise mutual information (V, C) of counts; zeros are not stored."""
    table = counts.tocoo()
    n = table.data.astype(np.float64)
    of_word = np.bincount(table.row, weights=n, minlength=counts.shape[0])
    of_context = np.bincount(table.col, weights=n, minlength=counts.shape[1])
    weight = np.where(of_context > 0, of_context, 1.0) ** power * (of_context > 0)
    share = weight / max(weight.sum(), 1e-300)
    value = np.log(n / (of_word[table.row] * share[table.col]))
    kept = value > 0
    entries = (value[kept].astype(np.float32), (table.row[kept], table.col[kept]))
    out = csr_array(entries, shape=counts.shape)
    out.sort_indices()
    return out


def subspace_iterations(matrix: csr_array, loadings: F32, n_iter: int, n_threads: int = 1) -> Iterator[Subspace]:
    """Subspaces that come nearer to the leading singular vectors; `loadings` (C, m) may be random to start with."""
    back = matrix.T.tocsr()
    for _ in range(n_iter):
        basis = orthonormal(_times(matrix, loadings, n_threads))
        loadings = _times(back, basis, n_threads)
        yield Subspace(basis, loadings)


def principal_scores(found: Subspace, n: int) -> F32:
    """U S of the n leading singular values of the approximation, largest first, padded by zeros if it has fewer.

    The sign of a singular vector means nothing: the largest entry of each column is made positive.
    """
    moment = found.loadings.astype(np.float64)
    values, vectors = np.linalg.eigh(moment.T @ moment)
    order = np.argsort(-values, kind="stable")[:n]
    scale = np.sqrt(np.maximum(values[order], 0.0))
    scores = found.basis @ (vectors[:, order] * scale).astype(np.float32)
    out = np.zeros((len(scores), n), dtype=np.float32)
    if scores.size:
        sign = np.sign(scores[np.abs(scores).argmax(axis=0), np.arange(scores.shape[1])])
        out[:, : scores.shape[1]] = scores * np.where(sign == 0, 1, sign)
    return out


def _times(matrix: csr_array, X: F32, n_threads: int) -> F32:
    return spmm(matrix.indptr, matrix.indices, matrix.data, X, n_threads)
