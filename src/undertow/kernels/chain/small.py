"""Forward–backward and Viterbi for small dense chains whose observations are given as log scores.

For the layers of a factorial chain and for taggers: a few states, one transition matrix, and a row of real numbers for
each token, which need not be logs of anything normalized. One sentence after the other, scaled at
each step. The largest score among the states that can be reached is taken out of every row before exponentiating, so
adding any number to a row only adds it to the likelihood. A state some 700 nats below the best at its token counts as
impossible there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.viterbi import LogScores, best_paths
from undertow.kernels.lanes import equal_runs, ordered_map
from undertow.kernels.types import F64, I64

CHUNK_TOKENS = 1 << 13  # a chunk has its own K × K sums; which tokens it holds depends on the text alone
MOST_CHUNKS = 64
TINY = 1e-280  # a product below this has lost its digits: do it again in logs


class ChainPosterior(NamedTuple):
    """log_likelihood (n_sentences,), gamma (N, K), first (K,) = Σ gamma at starts, pairs (K, K) = Σ xi."""

    log_likelihood: F64
    gamma: F64
    first: F64
    pairs: F64


def forward_backward_logs(
    log_obs: NDArray[Any],
    offsets: NDArray[Any],
    initial: NDArray[Any],
    transition: NDArray[Any],
    n_threads: int = 1,
    chunk_tokens: int = CHUNK_TOKENS,
) -> ChainPosterior:
    """Exact posteriors of independent chains: log_obs (N, K) are scores of tokens, offsets (n + 1,) bound sentences.

    A sentence that no state path can explain has log-likelihood −inf, rows of zeros in gamma and no part in the sums.
    An empty one has log-likelihood 0. −inf is a score like any other; NaN and +inf are refused. The number of threads
    changes no bit.
    """
    log_obs, offsets, initial, transition = _checked(log_obs, offsets, initial, transition)
    n, K = len(offsets) - 1, len(initial)
    edges = sentence_chunks(offsets, chunk_tokens)
    log_likelihood, gamma = np.zeros(n), np.empty_like(log_obs)
    first, pairs = np.zeros((len(edges) - 1, K)), np.zeros((len(edges) - 1, K, K))

    def one_chunk(c: int) -> int:
        bounds = offsets[edges[c] : edges[c + 1] + 1]
        out = log_likelihood[edges[c] : edges[c + 1]]
        return int(_forward_backward(log_obs, bounds, initial, transition, out, gamma, first[c], pairs[c]))

    _refuse(max(ordered_map(one_chunk, range(len(edges) - 1), n_threads), default=-1))
    return ChainPosterior(log_likelihood, gamma, first.sum(axis=0), pairs.sum(axis=0) * transition)


def viterbi_logs(
    log_obs: NDArray[Any], offsets: NDArray[Any], initial: NDArray[Any], transition: NDArray[Any]
) -> tuple[NDArray[np.int32], F64]:
    """The likeliest path of each sentence and its joint log score; of equal paths the one with lower states at the end.

    A sentence without a possible path has score −inf and −1 for states.
    """
    log_obs, offsets, initial, transition = _checked(log_obs, offsets, initial, transition)
    with np.errstate(divide="ignore"):
        chain = LogScores(np.log(initial), np.log(transition), log_obs)
    found = best_paths(chain, offsets, len(initial) * np.arange(len(log_obs) + 1), len(initial))
    _refuse(found.bad_token)
    return found.states.astype(np.int32), found.log_prob


def sentence_chunks(offsets: I64, chunk_tokens: int = CHUNK_TOKENS) -> list[int]:
    """Edges of runs of whole sentences with about equal numbers of tokens, whatever the number of threads."""
    n_chunks = min(MOST_CHUNKS, max(1, int(offsets[-1]) // chunk_tokens))
    return [int(e) for e in equal_runs(offsets, n_chunks)]


def _checked(log_obs: Any, offsets: Any, initial: Any, transition: Any) -> tuple[NDArray[Any], ...]:
    log_obs = np.ascontiguousarray(log_obs, dtype=np.float64)
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    initial = np.ascontiguousarray(initial, dtype=np.float64)
    transition = np.ascontiguousarray(transition, dtype=np.float64)
    K = len(initial)
    if log_obs.ndim != 2 or log_obs.shape[1] != K or transition.shape != (K, K):
        raise InputError(
            f"the shapes do not fit: scores {log_obs.shape}, initial {initial.shape}, transition {transition.shape}; "
            "give (tokens, K), (K,) and (K, K)."
        )
    if offsets.ndim != 1 or len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(log_obs):
        raise InputError(f"the offsets must run from 0 to the number of tokens, {len(log_obs)}.")
    if np.any(np.diff(offsets) < 0):
        raise InputError("the offsets must not fall: sentence bounds come in the order of the tokens.")
    for name, values in (("initial", initial), ("transition", transition)):
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise InputError(f"the {name} probabilities must be finite and not negative.")
    return log_obs, offsets, initial, transition


def _refuse(token: int) -> None:
    if token >= 0:
        raise InputError(f"the score of token {token} is NaN or +inf; scores are real numbers or −inf.")


@njit(cache=True, nogil=True)
def _forward_backward(
    log_obs: Any, offsets: Any, initial: Any, transition: Any, log_likelihood: Any, gamma: Any, first: Any, pairs: Any
) -> int:
    """All sentences of a chunk; returns −1, or a token with a score that is NaN or +inf.

    pairs gets Σ alpha_t ⊗ (o_{t+1} ∘ β_{t+1}) / p: times the transition, elementwise, that is Σ xi.
    """
    K = len(initial)
    longest = 0
    for s in range(len(offsets) - 1):
        longest = max(longest, offsets[s + 1] - offsets[s])
    obs = np.empty((longest, K))
    beta, message = np.empty(K), np.empty(K)
    for s in range(len(offsets) - 1):
        start, stop = offsets[s], offsets[s + 1]
        total = 0.0
        for t in range(start, stop):
            alpha, o = gamma[t], obs[t - start]
            if t == start:
                alpha[:] = initial
            else:
                _predict(gamma[t - 1], transition, alpha)
            step = _condition(alpha, log_obs[t], o)
            if np.isnan(step) or step == np.inf:
                return t
            total += step
            if step == -np.inf:
                break
        log_likelihood[s] = total
        if total == -np.inf:
            gamma[start:stop] = 0.0
            continue
        beta[:] = 1.0
        for t in range(stop - 1, start, -1):
            scale = 0.0
            for k in range(K):
                message[k] = obs[t - start, k] * beta[k]
                scale = max(scale, message[k])
            if scale < TINY:
                _product_in_logs(obs[t - start], beta, message)
                scale = 1.0
            for k in range(K):
                message[k] /= scale
            _smooth(gamma[t], beta)
            for i in range(K):
                total_i = 0.0
                for j in range(K):
                    total_i += transition[i, j] * message[j]
                beta[i] = total_i
            _add_pairs(gamma[t - 1], beta, message, pairs)
        if stop > start:
            _smooth(gamma[start], beta)
            first += gamma[start]
    return -1


@njit(cache=True, nogil=True)
def _predict(alpha_prev: Any, transition: Any, out: Any) -> None:
    """Equivalent to `out[:] = alpha_prev @ transition`."""
    K = len(out)
    out[:] = 0.0
    for i in range(K):
        a = alpha_prev[i]
        if a > 0.0:
            for j in range(K):
                out[j] += a * transition[i, j]


@njit(cache=True, nogil=True)
def _condition(alpha: Any, scores: Any, o: Any) -> Any:
    """Turn the prediction into the filtered posterior; o gets exp(score − largest) of the states that can be reached.

    Returns log p(x_t | x_<t), −inf if no reachable state can emit, NaN if a score is NaN or +inf.
    """
    K = len(alpha)
    largest, bad = -np.inf, False
    for k in range(K):
        bad = bad or np.isnan(scores[k]) or scores[k] == np.inf
        if alpha[k] > 0.0:
            largest = max(largest, scores[k])
    if bad:
        return np.nan
    if largest == -np.inf:
        return -np.inf
    total = 0.0
    for k in range(K):
        o[k] = np.exp(scores[k] - largest) if alpha[k] > 0.0 else 0.0
        alpha[k] *= o[k]
        total += alpha[k]
    for k in range(K):
        alpha[k] /= total
    return np.log(total) + largest


@njit(cache=True, nogil=True)
def _product_in_logs(a: Any, b: Any, out: Any) -> None:
    """a ∘ b over its largest entry, for products that would vanish. Equivalent to `exp(log a + log b − max)`."""
    largest = -np.inf
    for k in range(len(out)):
        out[k] = np.log(a[k]) + np.log(b[k]) if a[k] > 0.0 and b[k] > 0.0 else -np.inf
        largest = max(largest, out[k])
    for k in range(len(out)):
        out[k] = np.exp(out[k] - largest)


@njit(cache=True, nogil=True)
def _smooth(alpha: Any, beta: Any) -> None:
    """Equivalent to `alpha *= beta; alpha /= alpha.sum()`."""
    total = 0.0
    for k in range(len(alpha)):
        total += alpha[k] * beta[k]
    if total > TINY:
        for k in range(len(alpha)):
            alpha[k] = alpha[k] * beta[k] / total
    else:
        _product_in_logs(alpha, beta, alpha)
        total = alpha.sum()
        for k in range(len(alpha)):
            alpha[k] /= total


@njit(cache=True, nogil=True)
def _add_pairs(alpha: Any, beta: Any, message: Any, pairs: Any) -> None:
    """Equivalent to `pairs += outer(alpha, message) / (alpha @ beta)`, where beta = transition @ message."""
    K = len(alpha)
    total = 0.0
    for k in range(K):
        total += alpha[k] * beta[k]
    if total > TINY:
        for i in range(K):
            w = alpha[i] / total
            if w > 0.0:
                for j in range(K):
                    pairs[i, j] += w * message[j]
        return
    gamma = alpha.copy()
    _smooth(gamma, beta)
    for i in range(K):
        if beta[i] > TINY:  # the mass of rows below this is lost: they need transitions of 1e-280
            w = gamma[i] / beta[i]
            for j in range(K):
                pairs[i, j] += w * message[j]
