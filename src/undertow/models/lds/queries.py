"""Queries on a fitted linear dynamical system, as functions of its parameters and of tables derived from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.engine.blas import one_blas_thread
from undertow.kernels.gaussian.gains import gain_at_missing
from undertow.kernels.gaussian.linalg import doubling_powers, solve_lyapunov, sqrt_and_inverse, symmetrize
from undertow.kernels.gaussian.smoother import exact_gains, filter_only, smooth, smooth_exact, whiten_and_normalize
from undertow.kernels.gaussian.stream import ChainStream
from undertow.kernels.types import F32, F64, I64
from undertow.models.answers import Transition
from undertow.models.lds.params import LDSParams, SteadyState, steady_state
from undertow.models.similar_words import frequent_words
from undertow.tables import Table
from undertow.text.vocabulary import Vocabulary

VIEWS = ("type", "filter", "smooth", "features")
FLOOR = 0.1  # δ: no word's probability falls below this share of its frequency (lds.md §4)
ESCAPE = 1e-6  # shared by all words, so that none is impossible
BATCH_NUMBERS = 1 << 25  # tokens × words held at once: 128 MB of float32


class Recurrence(NamedTuple):
    """m_t = transition·m_{t−1} + inputs[x_t]; to first order log p(x_{t+1} = i) ≈ log frequency_i + outputs_i·m_t."""

    transition: F64  # (h, h)
    inputs: F64  # (V, h)
    outputs: F64  # (V, h)
    frequency: F64  # (V,)
    spread: F64  # (h,) standard deviation of each coordinate of m_t under the model


class LDSTables(NamedTuple):
    """What every query needs, derived once from the parameters."""

    steady: SteadyState
    J_missing: F64  # (h, h) smoother gain at a missing token
    stationary: F64  # (h, h) Π, covariance of the state before any token
    rows: F32  # (V, h) C_i/√μ_i, mixed with the stand-in's row by the share of dropped tokens
    inputs: F32  # (V, h) what an observed word adds to the filtered state
    whiten: F64  # (h, h) E[ss']^{-½} of the smoothed states
    word_vectors: F32  # (V, h) whitened unit vectors of the words

    @classmethod
    @one_blas_thread()
    def of(cls, params: LDSParams, state_moment: F64, dropped: F64, fallback: I64) -> LDSTables:
        """Tables for text in which a share `dropped` of a word's tokens shows as its stand-in `fallback`."""
        A, C, Q, M, mu = params
        steady = steady_state(params)
        J_missing = gain_at_missing(A, Q, steady.Sigma1, steady.V_s)
        scale = np.divide(1.0, np.sqrt(mu), out=np.zeros_like(mu), where=mu > 0)
        rows = (scale[:, None] * C).astype(np.float32)  # C_i/√μ_i
        # the model was fitted to text after dropout: what a token of word i looks like there, on average
        share = dropped[:, None].astype(np.float32)
        rows = (1 - share) * rows + share * rows[fallback]
        inputs = rows @ steady.K_c.T.astype(np.float32)
        whiten = sqrt_and_inverse(state_moment)[1]
        # at EM's fixed point M C_i/√μ_i is the mean state of word i; taggers do better with it than with `inputs`
        word_vectors = whiten_and_normalize(rows @ M.T.astype(np.float32), whiten)
        stationary = symmetrize(solve_lyapunov(doubling_powers(A), Q))
        return cls(steady, J_missing, stationary, rows, inputs, whiten, word_vectors)


# --- token vectors --------------------------------------------------------------------------------------


def token_states(
    params: LDSParams,
    tables: LDSTables,
    ids: NDArray[Any],
    offsets: I64,
    missing: NDArray[np.bool_],
    *,
    filtered: bool = False,
    exact: bool = False,
    n_threads: int = 1,
) -> F32:
    """Filtered or smoothed means (T, h) of the state; `exact` takes each place's own gains, not the steady ones."""
    A, s = params.A, tables.steady
    with one_blas_thread():
        if exact:
            gains = exact_gains(A, params.Q, s.N, params.M, tables.stationary)
            both = smooth_exact(ids, offsets, missing, tables.rows, gains, n_threads=n_threads)
            return both[0] if filtered else both[1]
        if filtered:
            return filter_only(ids, offsets, missing, tables.inputs, A, s.H, n_threads=n_threads)
        return smooth(ids, offsets, missing, tables.inputs, A, s.H, s.J, tables.J_missing, n_threads=n_threads)[1]


@one_blas_thread()
def token_vectors(
    params: LDSParams,
    tables: LDSTables,
    ids: NDArray[Any],
    offsets: I64,
    missing: NDArray[np.bool_],
    view: str,
    *,
    exact: bool = False,
    n_threads: int = 1,
) -> F32:
    """(T, d) whitened unit vectors of the tokens in one of the `VIEWS`."""
    parts = []
    if view in ("type", "features"):
        parts.append(tables.word_vectors[ids])
    if view in ("filter", "smooth", "features"):
        states = token_states(
            params, tables, ids, offsets, missing, filtered=view == "filter", exact=exact, n_threads=n_threads
        )
        parts.append(whiten_and_normalize(states, tables.whiten))
    return np.concatenate(parts, axis=1)


def recurrence(params: LDSParams, tables: LDSTables, counts: I64) -> Recurrence:
    """The filter written as a linear recurrent network, given the words' counts."""
    smoothed = counts + 1.0  # a word that never occurred gets a finite logarithm
    spread = np.sqrt(np.diag(tables.stationary - tables.steady.Sigma0))
    inputs, outputs = tables.inputs.astype(np.float64), tables.rows @ params.A
    return Recurrence(tables.steady.H, inputs, outputs, smoothed / smoothed.sum(), spread)


class TokenStream:
    """An LDS fed one token at a time: filtered vectors at once, smoothed ones `delay` tokens later.

    Vectors are in the coordinates of `LDS.transform`, and a word outside the vocabulary is treated as there.
    """

    def __init__(self, params: LDSParams, tables: LDSTables, vocabulary: Vocabulary, delay: int) -> None:
        s = tables.steady
        self._chain = ChainStream(params.A, s.H, s.J, tables.J_missing, tables.inputs, delay=delay)
        self._vocabulary = vocabulary
        self._whiten = tables.whiten

    def push(self, token: str) -> tuple[F32, F32 | None]:
        """Take the next token of the sentence.

        Parameters
        ----------
        token
            The word.

        Returns
        -------
        filtered : array (h,)
            Vector of this token given the tokens so far.
        smoothed : array (h,) or None
            Vector of the token `delay` tokens before, given the tokens so far; None if there is no such token yet.
        """
        token_id = self._vocabulary.id(token)
        filtered, smoothed = self._chain.push(None if token_id == self._vocabulary.unknown_id else token_id)
        first = whiten_and_normalize(filtered[None], self._whiten)[0]
        return first, None if smoothed is None else whiten_and_normalize(smoothed[None], self._whiten)[0]

    def flush(self) -> F32:
        """End the sentence.

        Returns
        -------
        array (n, h)
            The smoothed vectors of the last tokens, at most `delay`.
        """
        return whiten_and_normalize(self._chain.flush(), self._whiten)


# --- as a language model --------------------------------------------------------------------------------


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
    """The language model of the parameters; `dropped` is the share of each word's tokens that dropout removed."""
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


def word_distribution(lm: LinearLM, state: F32) -> F64:
    """(V,) p(word) at one state, given back to the words that dropout removed."""
    p = dropped_probabilities(lm, state[None])[0].astype(np.float64)
    own = p.copy()
    own[lm.fallback] = 0
    value = (1 - ESCAPE) * (own + p[lm.fallback] * lm.share) + ESCAPE / len(p)
    return np.asarray(value / value.sum())


@one_blas_thread()
def token_log_probabilities(lm: LinearLM, predicted: F32, ids: NDArray[Any]) -> F64:
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


@one_blas_thread()
def log_probabilities(
    params: LDSParams, dropped: F64, vocabulary: Vocabulary, ids: NDArray[Any], offsets: I64, filtered: F32
) -> F64:
    """log p(token | tokens before it in its sentence) of all tokens, given their filtered states."""
    lm = language_model(params.C, params.mu, vocabulary.counts, dropped, vocabulary.fallback())
    return token_log_probabilities(lm, predicted_states(filtered, offsets, params.A), ids)


def predicted_states(filtered: F32, offsets: I64, A: F64) -> F32:
    """p_t = A m_{t−1}; 0 at the start of a sentence."""
    previous = np.zeros_like(filtered)
    previous[1:] = filtered[:-1]
    starts = offsets[:-1][np.diff(offsets) > 0]
    previous[starts] = 0
    out: F32 = previous @ A.T.astype(np.float32)
    return out


# --- words ----------------------------------------------------------------------------------------------


def transition_loadings(A: F64, C: F64, Pi: F64, N: F64, mu: F64, n: int) -> tuple[F64, F64, F64]:
    """The n strongest transitions: correlations (n,), and how far each word stands out before and after them (V, n).

    Singular pairs of the model's lag-1 moment CAΠC' between whitened words. The paper takes those of A itself; in
    coordinates where E[xx'] = I these are all close to 1 on real text, and their vectors then mean little.
    """
    root, inverse = sqrt_and_inverse(N)
    u, s, vt = np.linalg.svd(root @ A @ Pi @ root)
    lift = np.divide(1.0, np.sqrt(mu), out=np.zeros_like(mu), where=mu > 0)[:, None] * C
    return s[:n], lift @ (inverse @ vt[:n].T), lift @ (inverse @ u[:, :n])


def transitions(
    params: LDSParams, tables: LDSTables, vocabulary: Vocabulary, n: int, n_words: int, min_count: int
) -> Table[Transition]:
    """The n strongest transitions, each as the frequent words that stand out most before and after it."""
    A, C, _, _, mu = params
    strengths, *sides = transition_loadings(A, C, tables.stationary, tables.steady.N, mu, n)
    rare = ~frequent_words(vocabulary, min_count)
    out = Table(Transition)
    for d, strength in enumerate(strengths.tolist()):
        poles = []
        for sign in (1, -1):  # a singular pair has no sign: of its two poles take the one that stands out more
            scores = [np.where(rare, -np.inf, sign * side[:, d]) for side in sides]
            ends = [np.argsort(-x, kind="stable")[:n_words] for x in scores]
            poles.append((float(np.prod([x[e].mean() for x, e in zip(scores, ends, strict=True)])), ends))
        _, ends = max(poles, key=lambda pole: pole[0])
        out.append(Transition(strength, *([vocabulary.words[i] for i in end] for end in ends)))
    return out
