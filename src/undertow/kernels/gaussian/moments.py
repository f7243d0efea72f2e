"""Second moments of smoothed text as an operator: Ψ_k = E[w_{t+k} w_t'] applied to a few columns, never formed.

w_t = W(e_{x_t} − μ) with W = diag(μ)^{-½} is the whitened one-hot of the token at t, so Ψ_0 = I − uu' with u = √μ, and
Ψ_{−k} = Ψ_k'. Adding pseudo-counts to μ alone would leave lagged covariances that belong to no process, and EM diverges
on those; here each token is changed by a random channel, independently, and the moments are exactly those of the
changed text:

- "uniform": with probability ε = κV/(T + κV) the token becomes a uniformly drawn word, which shrinks every covariance
  by (1 − ε)²;
- "dropout": word i stays with probability c_i/(c_i + κ) and becomes the unknown word otherwise, so that frequent words
  keep their strength and the unknown word is trained.

Sentences end, so a pair at lag k is counted for only a share of the tokens; beyond the end w is taken as 0. That is the
autocovariance of sentences padded by zeros, a true stationary process: the block Toeplitz matrix of all Ψ_k is positive
semi-definite. Pairs centred and scaled by themselves, as if there were no ends, have no such process behind them, and
EM then loses positive-definiteness on real text where smoothing is weak.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from undertow.errors import InputError
from undertow.kernels.gaussian.spmm import spmm
from undertow.kernels.types import F64

Noise = Literal["uniform", "dropout"]


class LagOperator(Protocol):
    """All that subspace identification and EM know of text: products with Ψ_k, in full or within a basis."""

    @property
    def mu(self) -> F64: ...  # (V,) word probabilities of the smoothed text

    @property
    def n_lags(self) -> int: ...  # Ψ_1..Ψ_{n_lags} are known

    @property
    def n_rows(self) -> int: ...  # rows of the arrays that the operator acts on

    @property
    def dimension(self) -> int: ...  # rank of Ψ_0 in full: words that occur, less one for u

    @property
    def dtype(self) -> np.dtype[Any]: ...  # precision of the products

    def forward(self, k: int, X: NDArray[Any]) -> NDArray[Any]: ...  # Ψ_k X

    def backward(self, k: int, X: NDArray[Any]) -> NDArray[Any]: ...  # Ψ_k' X

    def project(self, X: NDArray[Any]) -> NDArray[Any]: ...  # Ψ_0 X


class LagMatrix(NamedTuple):
    """Ψ_k = S + left right' with S sparse, kept by rows and (as `t_…`) by columns, so that both products gather."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    t_indptr: NDArray[Any]
    t_indices: NDArray[Any]
    t_data: NDArray[Any]
    left: NDArray[Any]  # (V, few)
    right: NDArray[Any]  # (V, few)


class Moments(NamedTuple):
    """The operator over the whole vocabulary."""

    mu: F64  # (V,) word probabilities μ of the smoothed text
    u: F64  # (V,) √μ, a unit vector
    lags: tuple[LagMatrix, ...]
    n_threads: int

    @property
    def n_lags(self) -> int:
        return len(self.lags)

    @property
    def n_rows(self) -> int:
        return len(self.u)

    @property
    def dimension(self) -> int:
        return int(np.count_nonzero(self.u)) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.lags[0].data.dtype

    def forward(self, k: int, X: NDArray[Any]) -> NDArray[Any]:
        return apply_lag(self, k, X)

    def backward(self, k: int, X: NDArray[Any]) -> NDArray[Any]:
        return apply_lag_transposed(self, k, X)

    def project(self, X: NDArray[Any]) -> NDArray[Any]:
        return apply_lag_zero(self, X)


class ReducedMoments(NamedTuple):
    """The operator within an orthonormal basis B of u^⊥: dense B'Ψ_kB, and Ψ_0 = I."""

    mu: F64  # (V,), as in full
    psi: F64  # (n_lags, b, b)
    dimension: int  # as in full: what lies outside the basis is noise of variance 1

    @property
    def n_lags(self) -> int:
        return len(self.psi)

    @property
    def n_rows(self) -> int:
        return int(self.psi.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.psi.dtype

    def forward(self, k: int, X: NDArray[Any]) -> NDArray[Any]:
        product: NDArray[Any] = self.psi[k - 1] @ X
        return product

    def backward(self, k: int, X: NDArray[Any]) -> NDArray[Any]:
        product: NDArray[Any] = self.psi[k - 1].T @ X
        return product

    def project(self, X: NDArray[Any]) -> NDArray[Any]:
        return X


def apply_lag(moments: Moments, k: int, X: NDArray[Any]) -> NDArray[Any]:
    """Ψ_k X."""
    lag = moments.lags[k - 1]
    X = np.ascontiguousarray(X, dtype=lag.data.dtype)
    out = spmm(lag.indptr, lag.indices, lag.data, X, moments.n_threads)
    out += lag.left @ (lag.right.T @ X)
    return out


def apply_lag_transposed(moments: Moments, k: int, X: NDArray[Any]) -> NDArray[Any]:
    """Ψ_k' X = Ψ_{−k} X."""
    lag = moments.lags[k - 1]
    X = np.ascontiguousarray(X, dtype=lag.data.dtype)
    out = spmm(lag.t_indptr, lag.t_indices, lag.t_data, X, moments.n_threads)
    out += lag.right @ (lag.left.T @ X)
    return out


def apply_lag_zero(moments: Moments, X: NDArray[Any]) -> NDArray[Any]:
    """Ψ_0 X = X − u(u'X), and 0 in the rows of words that never occur."""
    u = moments.u
    out: NDArray[Any] = X - np.outer(u, u @ X).astype(X.dtype, copy=False)
    out[u == 0] = 0
    return out


def reduce_moments(moments: LagOperator, basis: NDArray[Any]) -> ReducedMoments:
    """The operator within the columns of `basis` (orthonormal, in u^⊥): one wide product for each lag."""
    narrow = np.ascontiguousarray(basis, dtype=moments.dtype)
    psi = np.stack([narrow.T @ moments.forward(k, narrow) for k in range(1, moments.n_lags + 1)])
    return ReducedMoments(moments.mu, psi.astype(np.float64), moments.dimension)


class WordDropout(NamedTuple):
    """Word dropout: a token of word i becomes its stand-in (the unknown word, or a class) with probability share_i.

    The channel is G = diag(1 − share) + E Λ' with E the one-hot columns of the stand-ins and Λ_{ic} = share_i where c
    stands in for i. A word seen c times keeps c/(c + κ) of its tokens; stand-ins keep all of theirs.
    """

    share: F64  # (V,)
    column: NDArray[Any]  # (V,) which of the stand-ins
    stands_in: NDArray[Any]  # ids of the stand-ins

    @classmethod
    def of(cls, word_counts: NDArray[Any], kappa: float, fallback: NDArray[Any]) -> WordDropout:
        c = np.asarray(word_counts, dtype=np.float64)
        stands_in, column = np.unique(fallback, return_inverse=True)
        share = 1 - np.divide(c, c + kappa, out=np.zeros(len(c)), where=c > 0)
        share[stands_in] = 0
        return cls(share, column, stands_in)

    def drop(self, x: NDArray[Any]) -> NDArray[Any]:
        """G x for a vector or for columns."""
        out: NDArray[Any] = ((1 - self.share) * x.T).T
        np.add.at(out, self.stands_in[self.column], (self.share * x.T).T)
        return out

    def dropped(self, P: csr_array, left: NDArray[Any], right: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(left, right) of G(P + left right')G' − diag(q) P diag(q) with q = 1 − share: two columns a stand-in more."""
        V, K = len(self.share), len(self.stands_in)
        Lambda = np.zeros((V, K))
        Lambda[np.arange(V), self.column] = self.share
        E = np.zeros((V, K))
        E[self.stands_in, np.arange(K)] = 1
        q = (1 - self.share)[:, None]
        after, before = P @ Lambda, P.T @ Lambda
        return (
            np.hstack([self.drop(left), E, q * after + E @ (Lambda.T @ after)]),
            np.hstack([self.drop(right), q * before, E]),
        )


def text_moments(
    word_counts: NDArray[Any],
    pair_counts: Iterable[csr_array],
    *,
    kappa: float,
    noise: Noise = "uniform",
    fallback: NDArray[Any] | None = None,
    dtype: DTypeLike = np.float32,
    n_threads: int = 1,
) -> Moments:
    """Moments of text from its counts, smoothed by `kappa` pseudo-counts a word.

    pair_counts: for k = 1, 2, … the V×V counts whose [i, j] is how often word i came k tokens after word j. They are
    taken one at a time, so a generator keeps only one of them in memory. fallback: for each word the id that stands in
    for it when it is dropped (default: word 0 for all).
    """
    if noise not in ("uniform", "dropout"):
        raise InputError(f"noise={noise!r} is not known: choose 'uniform' or 'dropout'.")
    if not (np.isfinite(kappa) and kappa >= 0):
        raise InputError(f"kappa={kappa} must be a number of pseudo-counts, 0 or more.")
    c = np.asarray(word_counts, dtype=np.float64)
    V, T = len(c), float(c.sum())
    if T <= 0:
        raise InputError("The text has no words: there is nothing to take moments of.")

    p = c / T
    dropout = WordDropout.of(c, kappa, np.zeros(V, dtype=np.int64) if fallback is None else fallback)
    if noise == "uniform":
        epsilon = kappa * V / (T + kappa * V)
        q = np.full(V, 1 - epsilon)
        mu = (1 - epsilon) * p + epsilon / V
    else:
        q = 1 - dropout.share
        mu = dropout.drop(p)
    u = np.sqrt(mu / mu.sum())
    w = np.divide(1.0, u, out=np.zeros(V), where=u > 0)

    lags = []
    for k, pairs in enumerate(pair_counts, start=1):
        counts = csr_array(pairs)
        n = float(counts.sum())
        if n <= 0:
            raise InputError(f"No sentence has more than {k} tokens, so there are no pairs at lag {k}: use fewer lags.")
        if n > T * (1 + 1e-9):
            raise InputError(
                f"There are {n:g} pairs at lag {k} but only {T:g} words: are both counts of the same text?"
            )
        P = csr_array((counts.data / T, counts.indices, counts.indptr), shape=(V, V))
        # Σ (e_i − p)(e_j − p)' over the pairs is P − ap' − pb' + (n/T)pp' = P + left right'
        a, b = np.asarray(P.sum(axis=1)), np.asarray(P.sum(axis=0))
        left, right = np.stack([n / T * p - a, -p], axis=1), np.stack([p, b], axis=1)
        if noise == "uniform":
            # the channel adds only constants along rows or columns, which centring takes away again
            left, right = q[:, None] * left, q[:, None] * right
        else:
            left, right = dropout.dropped(P, left, right)
        lags.append(_lag_matrix(P, w * q, w[:, None] * left, w[:, None] * right, dtype))
    if not lags:
        raise InputError("Moments need the pair counts of at least one lag.")
    return Moments(mu, u, tuple(lags), n_threads)


def _lag_matrix(P: csr_array, scale: F64, left: NDArray[Any], right: NDArray[Any], dtype: DTypeLike) -> LagMatrix:
    rows = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    S = csr_array(((scale[rows] * P.data * scale[P.indices]).astype(dtype), P.indices, P.indptr), shape=P.shape)
    t = S.T.tocsr()
    return LagMatrix(S.indptr, S.indices, S.data, t.indptr, t.indices, t.data, left.astype(dtype), right.astype(dtype))
