"""What a fitted linear dynamical system answers, as functions of its arrays: next words, transitions, likeness."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.gaussian.linalg import sqrt_and_inverse
from undertow.kernels.types import F32, F64, I64

FLOOR = 0.1  # δ: no word's probability falls below this share of its frequency (lds.md §4)
ESCAPE = 1e-6  # shared by all words, so that none is impossible
BATCH_NUMBERS = 1 << 25  # tokens × words held at once: 128 MB of float32


class LinearLM(NamedTuple):
    """p(i | past) ∝ max(μ_i + √μ_i C_i·p_t, δμ_i) with p_t = A m_{t−1}: a language model read off the linear one.

    That is the text after word dropout; a stand-in's probability is then given back to the words it stands in for.
    """

    loading: F32  # (h, V) √μ_i C_i
    mu: F32  # (V,)
    fallback: I64  # (V,) the stand-in of each word
    share: F32  # (V,) of the stand-in's tokens that are dropped tokens of the word (or the stand-in's own)


def language_model(
    C: F64,
    mu: F64,
    counts: I64,
    dropped: F64,
    fallback: I64,
) -> LinearLM:
    stands_in = np.zeros(len(mu), dtype=bool)
    stands_in[fallback] = True
    gone = np.where(stands_in, 1.0, dropped) * counts  # tokens that show as the stand-in: a stand-in's own all do
    total = np.bincount(fallback, weights=gone, minlength=len(mu))[fallback]
    share = np.divide(gone, total, out=np.zeros(len(mu)), where=total > 0)
    loading = np.ascontiguousarray((np.sqrt(mu)[:, None] * C).T, dtype=np.float32)
    return LinearLM(loading, mu.astype(np.float32), fallback, share.astype(np.float32))


def dropped_probabilities(lm: LinearLM, predicted: F32) -> F32:
    """(B, V) distributions over the text after dropout, for predicted states (B, h)."""
    p = predicted @ lm.loading
    p += lm.mu
    np.maximum(p, FLOOR * lm.mu, out=p)
    p /= p.sum(axis=1, dtype=np.float64, keepdims=True).astype(np.float32)
    return p


def next_word_probabilities(lm: LinearLM, predicted: F32) -> F32:
    """(B, V) distributions of the next word for predicted states (B, h)."""
    p = dropped_probabilities(lm, predicted)
    given_back = p[:, lm.fallback] * lm.share
    p[:, np.unique(lm.fallback)] = 0  # a stand-in's own tokens are in what is given back
    p += given_back
    p *= np.float32(1 - ESCAPE)
    p += np.float32(ESCAPE / p.shape[1])
    return p


def log_probabilities(lm: LinearLM, predicted: F32, ids: NDArray[Any]) -> F64:
    """log p of each token given the state predicted for it, a batch of tokens at a time."""
    out = np.empty(len(ids))
    batch = max(1, BATCH_NUMBERS // len(lm.mu))
    stands_in = np.zeros(len(lm.mu), dtype=bool)
    stands_in[lm.fallback] = True
    for start in range(0, len(ids), batch):
        here = ids[start : start + batch]
        p = dropped_probabilities(lm, predicted[start : start + batch])
        n = np.arange(len(p))
        own = np.where(stands_in[here], 0, p[n, here])
        value = (1 - ESCAPE) * (own + p[n, lm.fallback[here]] * lm.share[here]) + ESCAPE / p.shape[1]
        out[start : start + batch] = np.log(value.astype(np.float64))
    return out


def predicted_states(filtered: F32, offsets: I64, A: F64) -> F32:
    """p_t = A m_{t−1}; 0 at the start of a sentence."""
    previous = np.zeros_like(filtered)
    previous[1:] = filtered[:-1]
    starts = offsets[:-1][np.diff(offsets) > 0]
    previous[starts] = 0
    out: F32 = previous @ A.T.astype(np.float32)
    return out


def transition_loadings(A: F64, C: F64, Pi: F64, N: F64, mu: F64, n: int) -> tuple[F64, F64, F64]:
    """The n strongest transitions: correlations (n,), and how far each word stands out before and after them (V, n).

    Singular pairs of the model's lag-1 moment CAΠC' between whitened words. The paper takes those of A itself; in
    coordinates where E[xx'] = I these are all close to 1 on real text, and their vectors then mean little.
    """
    root, inverse = sqrt_and_inverse(N)
    u, s, vt = np.linalg.svd(root @ A @ Pi @ root)
    lift = np.divide(1.0, np.sqrt(mu), out=np.zeros_like(mu), where=mu > 0)[:, None] * C
    return s[:n], lift @ (inverse @ vt[:n].T), lift @ (inverse @ u[:, :n])


def nearest(vectors: F32, query: F32, n: int, allowed: NDArray[np.bool_]) -> tuple[I64, F32]:
    """The n allowed rows of unit `vectors` with the largest cosine to a unit query, best first."""
    cosines = np.where(allowed, vectors @ query, -np.inf)
    n = min(n, int(allowed.sum()))
    best = np.argsort(-cosines, kind="stable")[:n]
    return best, cosines[best].astype(np.float32)
