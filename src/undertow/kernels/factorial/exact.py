"""Exact inference in a factorial HMM: forward–backward over the joint states, one layer's transition at a time.

With J = ∏ K_m joint states a step through all layers costs J Σ K_m multiply-adds instead of J², and only the observed
word is read: Z(s) is a table. LANES sentences of similar length run side by side, one in each lane of the vectors;
after its end a sentence is padded with missing words, which leaves β = 1.

The expected transitions of layer m combine layers before m at the new token with layers after m at the old one:
ξ^m(i, j) = A^m_ij Σ_rest L_m(…, i, …) R_m(…, j, …), where L_m is α pushed through the layers before m and R_m is
p(y|·)β pulled through the layers after m. Both are intermediate results of push and pull.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.factorial.row_products import VECTOR_BYTES, dots, flush_tiny, mix, set_control_word
from undertow.kernels.factorial.words import Emission, FactorialParams
from undertow.kernels.lanes import groups_of_lanes
from undertow.kernels.types import F64, I64

MEMORY = 1 << 27  # bytes of α stored for a group of sentences; longer ones go in segments whose α is recomputed
MISSING, ENDED = -1, -2
TINY = {np.dtype(np.float32): 1e-25, np.dtype(np.float64): 1e-250}  # a scale below this has lost too many digits


class Work(NamedTuple):
    """Scratch of one group of sentences, and how the joint states lie in it: J of them, J/K_1 for each of layer 1."""

    sizes: I64  # (M,) states of each layer, K_m
    behind: I64  # (M,) joint states of the layers after it
    outer: NDArray[Any]  # (K_1, lanes) the words' factors of the first layer
    inner: NDArray[Any]  # (J/K_1, lanes) products of the others
    pushed: NDArray[Any]  # (J · lanes,)
    slabs: NDArray[Any]  # (2, J/K_1 · lanes)
    pulled: NDArray[Any]  # (M, J/K_1 · lanes) R_m within a slab
    step: NDArray[Any]  # (M, K, K)
    marginal: NDArray[Any]  # (M, K, lanes)


class ExactPosterior(NamedTuple):
    """Exact posteriors and expected counts of some sentences."""

    log_likelihood: F64  # (n_sentences,)
    token_logs: F64  # (N,) log p(y_t | y_<t); 0 for a missing token
    gamma: NDArray[Any]  # (N, M, K) p(s^m_t = k | sentence)
    visits: F64  # (J,) Σ over observed tokens of the joint posterior
    first: F64  # (M, K)
    pairs: F64  # (M, K, K)


LANES = 16  # sentences side by side


@njit(cache=True, nogil=True)
def _apply(
    source: Any, s0: Any, target: Any, t0: Any, A: Any, m: Any, transposed: Any, n_before: Any, K: Any, n_behind: Any
) -> None:
    """One layer's transition, applied to an axis of K between n_before and n_behind others (and the lanes).

    Equivalent to `target[a, j, b] = Σ_i A[m, i, j] source[a, i, b]`; `transposed` exchanges i and j in A.
    """
    vector = VECTOR_BYTES // source.itemsize
    row = LANES * n_behind
    width = A.shape[2]
    W, w_row, w_in = A.reshape(-1), 1, width
    if transposed:
        w_row, w_in = width, 1
    w0 = m * width * width
    if n_behind == 1:  # the vectors of all a at once
        for h in range(0, LANES, vector):
            mix(W, w0, w_row, w_in, source, s0 + h, row, K * row, target, t0 + h, row, K * row, K, K, n_before)
    else:
        for a in range(n_before):
            x, o = s0 + a * K * row, t0 + a * K * row
            mix(W, w0, w_row, w_in, source, x, row, vector, target, o, row, vector, K, K, row // vector)


@njit(cache=True, nogil=True)
def _look_up(words: Any, factors: Any, sizes: Any, outer: Any, inner: Any) -> None:
    """Factors of the words: outer[k, l] of the first layer, inner[r, l] of the others; missing 1, ended 0."""
    for l in range(LANES):
        y = words[l]
        for k in range(sizes[0]):
            outer[k, l] = factors[y, 0, k] if y >= 0 else (1.0 if y == MISSING else 0.0)
        inner[0, l] = 1.0
    size = 1
    for m in range(1, len(sizes)):
        K = sizes[m]
        for s in range(size - 1, -1, -1):  # backwards, as the result overwrites the input
            for k in range(K - 1, -1, -1):
                for l in range(LANES):
                    y = words[l]
                    inner[s * K + k, l] = inner[s, l] * (factors[y, m, k] if y >= 0 else 1.0)
        size *= K


@njit(cache=True, nogil=True)
def _weigh(
    source: Any, target: Any, words: Any, outer: Any, inner: Any, inverse_norm: Any, k0: Any, total: Any
) -> None:
    """target = source · p(y | s) for state k0 of the first layer; the sum over the states is added to total[l]."""
    n = len(inner)
    seen = np.empty(LANES, dtype=source.dtype)
    sums = np.zeros(LANES, dtype=source.dtype)
    for l in range(LANES):
        seen[l] = 1.0 if words[l] >= 0 else 0.0
    for r in range(n):
        z = inverse_norm[k0 * n + r]
        for l in range(LANES):
            norm = seen[l] * z + (1 - seen[l])
            value = source[r * LANES + l] * outer[k0, l] * inner[r, l] * norm
            target[r * LANES + l] = value
            sums[l] += value
    for l in range(LANES):
        total[l] += sums[l]


@njit(cache=True, nogil=True)
def _start(initial: Any, sizes: Any, alpha: Any) -> None:
    """alpha[s, l] = Π_m initial[m, s_m]."""
    for s in range(len(alpha) // LANES):
        p = 1.0
        code = s
        for m in range(len(sizes) - 1, -1, -1):
            p *= initial[m, code % sizes[m]]
            code //= sizes[m]
        for l in range(LANES):
            alpha[s * LANES + l] = p


@njit(cache=True, nogil=True)
def _forward(
    words: Any,
    start: Any,
    stop: Any,
    factors: Any,
    inverse_norm: Any,
    initial: Any,
    A: Any,
    alpha: Any,
    work: Any,
    log_c: Any,
    scale: Any,
) -> Any:
    """α̂ of tokens start…stop−1 into alpha[1:], with that of token start−1 in alpha[0]; returns the smallest sum.

    α = α̂ · scale is the filtered distribution; the scale of a token is applied with the emission of the next.
    """
    sizes, behind = work.sizes, work.behind
    K, n = sizes[0], behind[0]
    slab = n * LANES
    outer, inner = work.outer, work.inner
    least = 1.0
    for t in range(start, stop):
        here = alpha[t - start + 1]
        if t == 0:
            _start(initial, sizes, here)
        else:
            _apply(alpha[t - start], 0, work.pushed, 0, A, 0, False, 1, K, n)
        _look_up(words[t], factors, sizes, outer, inner)
        if t > 0:
            for k in range(K):
                for l in range(LANES):
                    outer[k, l] *= scale[t - 1, l]
        total = np.zeros(LANES)
        for k in range(K):
            target = here[k * slab : (k + 1) * slab]
            if t == 0:
                _weigh(target, target, words[t], outer, inner, inverse_norm, k, total)
            else:
                source = work.pushed[k * slab : (k + 1) * slab]
                for m in range(1, len(sizes)):
                    other = work.slabs[m % 2]
                    _apply(source, 0, other, 0, A, m, False, n // (sizes[m] * behind[m]), sizes[m], behind[m])
                    source = other
                _weigh(source, target, words[t], outer, inner, inverse_norm, k, total)
        for l in range(LANES):
            scale[t, l] = 1.0
            if words[t, l] != ENDED:
                least = min(least, total[l])
                c = max(total[l], 1e-300)
                scale[t, l] = 1.0 / c
                log_c[t, l] = np.log(c)
    return least


@njit(cache=True, nogil=True)
def _count_place(alpha: Any, beta: Any, words: Any, work: Any, visits: Any) -> None:
    """The posterior of one token: the joint one is added to visits, that of each layer written to work.marginal."""
    sizes, n = work.sizes, work.behind[0]
    marginal, inner = work.marginal, work.inner
    marginal[:] = 0
    inner[:] = 0
    seen = np.empty(LANES, dtype=alpha.dtype)
    for l in range(LANES):
        seen[l] = 1.0 if words[l] >= 0 else 0.0
    for k in range(sizes[0]):
        for r in range(n):
            place = (k * n + r) * LANES
            for l in range(LANES):
                p = alpha[place + l] * beta[place + l]
                inner[r, l] += p
                marginal[0, k, l] += p
                visits[place + l] += seen[l] * p
    size = n
    for m in range(len(sizes) - 1, 0, -1):
        K = sizes[m]
        size //= K
        for s in range(size):
            for k in range(K):
                for l in range(LANES):
                    marginal[m, k, l] += inner[s * K + k, l]
            for l in range(LANES):
                total = inner[s * K, l]
                for k in range(1, K):
                    total += inner[s * K + k, l]
                inner[s, l] = total


@njit(cache=True, nogil=True)
def _step_back(
    t: Any,
    words: Any,
    alpha: Any,
    beta: Any,
    factors: Any,
    inverse_norm: Any,
    A: Any,
    work: Any,
    scale: Any,
    pairs: Any,
) -> None:
    """β' of token t − 1 from that of token t (β' = scale · β), and the expected transitions between them.

    For each state of the first layer: R_{M−1} = p(y|·) β', pulled to R_0; L_1 = α̂ pushed through the first layer.
    """
    sizes, behind = work.sizes, work.behind
    M, K, n, width = len(sizes), sizes[0], behind[0], A.shape[2]
    slab = n * LANES
    vector = VECTOR_BYTES // alpha.itemsize
    outer, inner, step = work.outer, work.inner, work.step
    _look_up(words[t], factors, sizes, outer, inner)
    for k in range(K):
        for l in range(LANES):
            outer[k, l] *= scale[t - 1, l]
    if M > 1:
        _apply(alpha, 0, work.pushed, 0, A, 0, False, 1, K, n)
    step[:] = 0
    unused = np.zeros(LANES)
    for k in range(K):
        here = beta[k * slab : (k + 1) * slab]
        _weigh(here, work.pulled[M - 1], words[t], outer, inner, inverse_norm, k, unused)
        for m in range(M - 1, 0, -1):
            before = n // (sizes[m] * behind[m])
            _apply(work.pulled[m], 0, work.pulled[m - 1], 0, A, m, True, before, sizes[m], behind[m])
        here[:] = work.pulled[0]  # R_0: β is no longer needed in this slab
        left = work.pushed[k * slab : (k + 1) * slab]
        for m in range(1, M):
            size, row = sizes[m], LANES * behind[m]
            before = n // (size * behind[m])
            dots(left, 0, row, work.pulled[m], 0, row, step.reshape(-1), m * width * width, width, size, size,
                 before, size * row, row // vector)  # fmt: skip
            if m < M - 1:
                other = work.slabs[m % 2]
                _apply(left, 0, other, 0, A, m, False, before, size, behind[m])
                left = other
    dots(alpha, 0, slab, beta, 0, slab, step.reshape(-1), 0, width, K, K, 1, 0, slab // vector)
    for m in range(M):
        for i in range(sizes[m]):
            for j in range(sizes[m]):
                pairs[m, i, j] += A[m, i, j] * step[m, i, j]
    work.pushed[:] = beta
    _apply(work.pushed, 0, beta, 0, A, 0, True, 1, K, n)


@njit(cache=True, nogil=True)
def _group(
    words: Any,
    lengths: Any,
    rows: Any,
    factors: Any,
    inverse_norm: Any,
    initial: Any,
    A: Any,
    alpha: Any,
    keep: Any,
    work: Any,
    gamma: Any,
    visits: Any,
    first: Any,
    pairs: Any,
    log_lik: Any,
    token_logs: Any,
    backward: Any,
) -> Any:
    """Forward and optionally backward over sentences, one in each lane; statistics are added, gamma is written.

    words (T, lanes) ids, MISSING or ENDED; rows (lanes,) first row of each sentence in gamma; alpha (segment + 1,
    J · lanes); keep (n_segments, J · lanes) the α̂ before each segment. Returns the smallest sum.
    """
    sizes = work.sizes
    T = len(words)
    n_joint = len(visits)
    segment = len(alpha) - 1
    n_segments = len(keep)
    beta = np.zeros(n_joint * LANES, dtype=alpha.dtype)
    seen = np.zeros(n_joint * LANES, dtype=alpha.dtype)
    log_c, scale = np.zeros((T, LANES)), np.empty((T, LANES), dtype=alpha.dtype)
    before = flush_tiny()
    least = 1.0
    for g in range(n_segments):
        keep[g] = alpha[0]
        stop = min((g + 1) * segment, T)
        low = _forward(words, g * segment, stop, factors, inverse_norm, initial, A, alpha, work, log_c, scale)
        least = min(least, low)
        if g < n_segments - 1:
            alpha[0] = alpha[stop - g * segment]
    for l in range(LANES):
        for t in range(lengths[l]):
            log_lik[l] += log_c[t, l]
            token_logs[rows[l] + t] = log_c[t, l]
    for g in range(n_segments - 1 if backward else -1, -1, -1):
        start, stop = g * segment, min((g + 1) * segment, T)
        if g < n_segments - 1:
            alpha[0] = keep[g]
            _forward(words, start, stop, factors, inverse_norm, initial, A, alpha, work, log_c, scale)
        for t in range(stop - 1, start - 1, -1):
            for l in range(LANES):
                if lengths[l] == t + 1:  # the sentence's last word: β = 1
                    for s in range(n_joint):
                        beta[s * LANES + l] = scale[t, l]
            _count_place(alpha[t - start + 1], beta, words[t], work, seen)
            for l in range(LANES):
                if t < lengths[l]:
                    for m in range(len(sizes)):
                        for k in range(sizes[m]):
                            gamma[rows[l] + t, m, k] = work.marginal[m, k, l]
                            if t == 0:
                                first[m, k] += work.marginal[m, k, l]
            if t > 0:
                _step_back(t, words, alpha[t - start], beta, factors, inverse_norm, A, work, scale, pairs)
        for s in range(n_joint):  # in float64 after every segment
            for l in range(LANES):
                visits[s] += seen[s * LANES + l]
        seen[:] = 0
    set_control_word(before)
    return least


def exact_posterior(
    ids: NDArray[Any],
    offsets: I64,
    missing: NDArray[np.bool_] | None,
    params: FactorialParams,
    e: Emission,
    log_norm: F64,
    *,
    dtype: Any = np.float32,
    backward: bool = True,
    memory: int = MEMORY,
) -> ExactPosterior:
    """Exact posteriors and expected counts of sentences (flat ids, offsets), some of whose tokens may be missing.

    Computes in `dtype` with float64 sums; a group of sentences in which the probability of a step comes near the end
    of float32's range, or a backward message passes it, is computed again in float64. Without `backward` only the
    log-probabilities are computed.
    """
    M, K = params.initial.shape
    lengths = np.diff(offsets)
    words = np.asarray(ids, dtype=np.int64)
    if missing is not None:
        words = np.where(missing, -1, words)
    out = ExactPosterior(
        np.zeros(len(lengths)),
        np.zeros(len(words)),
        np.zeros((len(words) if backward else 0, M, K), dtype=dtype),
        np.zeros(len(log_norm)),
        np.zeros((M, K)),
        np.zeros((M, K, K)),
    )
    # scaled so that the smallest Z is 1: p(y|s) then stays within float64
    inverse_norm = np.exp(log_norm.min() - log_norm)
    constant = e.log_base[words] - log_norm.min()
    constant[words < 0] = 0.0
    sums = np.concatenate(([0.0], np.cumsum(constant)))
    out.log_likelihood[:] = sums[offsets[1:]] - sums[offsets[:-1]]
    for group in groups_of_lanes(lengths, LANES):
        for precision in (np.dtype(dtype), np.dtype(np.float64)):
            part, least = _run_group(
                words,
                offsets,
                group,
                params,
                e,
                inverse_norm,
                out.token_logs,
                out.gamma,
                precision,
                backward,
                memory,
            )
            # β of a state that the past all but rules out can pass float32's range too; α · β is then not finite
            if precision == np.float64 or (least > TINY[precision] and np.isfinite(part.visits).all()):
                break
        out.log_likelihood[group] += part.log_likelihood[: len(group)]
        for name in ("visits", "first", "pairs"):
            getattr(out, name)[:] += getattr(part, name)
    out.token_logs[:] += constant
    return out


def _run_group(
    words: I64,
    offsets: I64,
    group: I64,
    params: FactorialParams,
    e: Emission,
    inverse_norm: F64,
    token_logs: F64,
    gamma: NDArray[Any],
    dtype: np.dtype[Any],
    backward: bool,
    memory: int,
) -> tuple[ExactPosterior, float]:
    M, K = params.initial.shape
    rows, lengths = np.zeros(LANES, dtype=np.int64), np.zeros(LANES, dtype=np.int64)
    rows[: len(group)] = offsets[group]
    lengths[: len(group)] = offsets[group + 1] - offsets[group]
    T = int(lengths.max())
    table = np.full((T, LANES), ENDED, dtype=np.int64)  # padded, not packed: a vector has all lanes in every step
    for l in range(len(group)):
        table[: lengths[l], l] = words[rows[l] : rows[l] + lengths[l]]
    sizes = np.array(e.sizes, dtype=np.int64)
    behind = np.array([prod(e.sizes[m + 1 :]) for m in range(M)], dtype=np.int64)
    size, slab = e.n_joint * LANES, int(behind[0]) * LANES
    segment = int(np.clip(memory // (size * dtype.itemsize), 8, max(8, T)))
    shapes = ((e.sizes[0], LANES), (slab // LANES, LANES), (size,), (2, slab), (M, slab), (M, K, K), (M, K, LANES))
    work = Work(sizes, behind, *(np.empty(shape, dtype=dtype) for shape in shapes))
    sums = np.zeros(e.n_joint), np.zeros((M, K)), np.zeros((M, K, K))
    part = ExactPosterior(np.zeros(LANES), token_logs, gamma, *sums)
    least = _group(
        table, lengths, rows, e.factors, inverse_norm.astype(dtype), params.initial, params.transition.astype(dtype),
        np.zeros((segment + 1, size), dtype=dtype), np.empty((-(-T // segment), size), dtype=dtype), work,
        gamma, part.visits, part.first, part.pairs, part.log_likelihood, token_logs, backward,
    )  # fmt: skip
    return part, float(least)
