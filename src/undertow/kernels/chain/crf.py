"""The likelihood of a linear-chain conditional random field and its gradient, over sparse and dense features.

    score(y | x) = Σ_t s_t(y_t) + Σ_t T[y_{t−1}, y_t],   s_t = Σ_{a of token t} value · W[a] + x_t D
    loss         = Σ_sentences weight · (log Σ_y exp score(y | x) − score(gold | x))

W has weights for the pairs of attribute and label that occur in training alone, D (d, K) and T (K, K) are full. The
chain runs in probabilities that are rescaled at every token, all sentences of a chunk side by side as lanes, so that a
step is one matrix product. Chunks whose numbers leave the range of that (scores hundreds of nats apart) are done again
by `small.forward_backward_logs`.

What is summed in which order depends on the text alone, never on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.small import forward_backward_logs
from undertow.kernels.chain.viterbi import LogScores, best_paths
from undertow.kernels.lanes import Buffers, equal_runs, longest_first, ordered_map, pack, with_buffers
from undertow.kernels.types import F32, F64, I64

I32 = NDArray[np.int32]

CHUNK_TOKENS = 1 << 12  # their scores and posteriors stay in the cache; as lanes they still make wide products
MOST_SHARDS = 8  # each has a gradient of its own, which is as long as the weights
SHARD_TOKENS = 1 << 14  # fewer are not worth a gradient of their own
FULL_FROM = 0.3  # share of the labels from which an attribute has weights for all, which one vector loop adds
LEAST = 1e-100  # normalizers below this: do the chunk in logs


class Tokens(NamedTuple):
    """A text as a CRF reads it, N tokens in n sentences."""

    bounds: I64  # (n + 1,) of sentences
    row: I64  # (N + 1,) where the attributes of each token begin
    attribute: I32  # (entries,)
    value: F32  # (entries,), or empty if all are 1
    dense: F32  # (N, d)


class Pairs(NamedTuple):
    """The labels that each attribute has weights for, rising. Full attributes have all, some of them held at 0."""

    start: I64  # (A + 1,)
    label: I32  # (P,)
    free: NDArray[np.bool_]  # (P,) False: the pair did not occur, its weight stays 0


class Weights(NamedTuple):
    """Weights of pairs (P,), of dense numbers (d, K) and of transitions (K, K)."""

    sparse: F64
    dense: F64
    transition: F64


class Problem(NamedTuple):
    """What a CRF learns from."""

    tokens: Tokens
    gold: I32  # (N,) labels
    weight: F64  # (n,) of sentences
    pairs: Pairs
    n_labels: int

    def n_weights(self) -> int:
        return len(self.pairs.label) + (self.tokens.dense.shape[1] + self.n_labels) * self.n_labels

    def split(self, flat: F64) -> Weights:
        """Views of a flat vector of all weights."""
        P, d, K = len(self.pairs.label), self.tokens.dense.shape[1], self.n_labels
        return Weights(flat[:P], flat[P : P + d * K].reshape(d, K), flat[P + d * K :].reshape(K, K))


class Posterior(NamedTuple):
    """log Z of each sentence, marginals (N, K) and expected numbers of transitions (K, K)."""

    log_z: F64
    gamma: F64
    pairs: F64


# --- which weights there are ----------------------------------------------------------------------------


def observed_pairs(tokens: Tokens, gold: I32, n_attributes: int, n_labels: int, kept: Pairs | None = None) -> Pairs:
    """The pairs that occur; attributes with many labels become full. `kept` (over the same ids) are added."""
    seen = np.zeros((n_attributes, -(-n_labels // 64)), dtype=np.uint64)
    _mark(tokens.row, tokens.attribute, gold, seen)
    if kept is not None:
        _mark_kept(kept.start, kept.label, kept.free, seen)
    count = np.bitwise_count(seen).sum(axis=1, dtype=np.int64)
    full = count >= max(FULL_FROM * n_labels, 1)
    start = np.concatenate(([0], np.cumsum(np.where(full, n_labels, count)))).astype(np.int64)
    label, free = np.empty(start[-1], dtype=np.int32), np.empty(start[-1], dtype=np.bool_)
    _list_pairs(seen, full, start, n_labels, label, free)
    return Pairs(start, label, free)


@njit(cache=True, nogil=True)
def _mark(row: Any, attribute: Any, gold: Any, seen: Any) -> None:
    for t in range(len(row) - 1):
        word, bit = gold[t] >> 6, np.uint64(1) << np.uint64(gold[t] & 63)
        for i in range(row[t], row[t + 1]):
            seen[attribute[i], word] |= bit


@njit(cache=True, nogil=True)
def _mark_kept(start: Any, label: Any, free: Any, seen: Any) -> None:
    for a in range(len(start) - 1):
        for p in range(start[a], start[a + 1]):
            if free[p]:
                seen[a, label[p] >> 6] |= np.uint64(1) << np.uint64(label[p] & 63)


@njit(cache=True, nogil=True)
def _list_pairs(seen: Any, full: Any, start: Any, n_labels: int, label: Any, free: Any) -> None:
    for a in range(len(full)):
        p = start[a]
        for k in range(n_labels):
            is_there = (seen[a, k >> 6] >> np.uint64(k & 63)) & np.uint64(1) != 0
            if is_there or full[a]:
                label[p], free[p] = k, is_there
                p += 1


# --- scores ---------------------------------------------------------------------------------------------


def token_scores(tokens: Tokens, low: int, high: int, start: I64, label: I32, weights: Any, out: F64) -> F64:
    """Scores (high − low, K) of tokens low … high − 1 into `out`; weights: sparse, dense (float32) and transitions."""
    if tokens.dense.shape[1]:
        out[:] = tokens.dense[low:high] @ weights.dense
    else:
        out[:] = 0.0
    _add_scores(tokens.row[low : high + 1], tokens.attribute, tokens.value, start, label, weights.sparse, out)
    return out


@njit(cache=True, nogil=True)
def _add_scores(row: Any, attribute: Any, value: Any, start: Any, label: Any, weight: Any, out: Any) -> None:
    """Equivalent to `out[t, label[p]] += value[i] * weight[p]` for all entries i of t and pairs p of attribute[i]."""
    K = out.shape[1]
    for t in range(len(out)):
        s = out[t]
        for i in range(row[t], row[t + 1]):
            first, last = start[attribute[i]], start[attribute[i] + 1]
            v = np.float64(value[i]) if len(value) else 1.0
            if last - first == K:
                w = weight[first:last]
                for k in range(K):
                    s[k] += v * w[k]
            else:
                for p in range(first, last):
                    s[label[p]] += v * weight[p]


@njit(cache=True, nogil=True)
def _add_gradient(row: Any, attribute: Any, value: Any, start: Any, label: Any, excess: Any, out: Any) -> None:
    """Equivalent to `out[p] += value[i] * excess[t, label[p]]` for all entries i of t and pairs p of attribute[i]."""
    K = excess.shape[1]
    for t in range(len(excess)):
        e = excess[t]
        for i in range(row[t], row[t + 1]):
            first, last = start[attribute[i]], start[attribute[i] + 1]
            v = np.float64(value[i]) if len(value) else 1.0
            if last - first == K:
                g = out[first:last]
                for k in range(K):
                    g[k] += v * e[k]
            else:
                for p in range(first, last):
                    out[p] += v * e[label[p]]


# --- the chain ------------------------------------------------------------------------------------------


def chain_posterior(scores: F64, bounds: I64, transition: F64, weight: F64 | None = None) -> Posterior:
    """Forward–backward of sentences side by side; `bounds` start at 0. Sentence weights count in `pairs` alone."""
    lengths = np.diff(bounds)
    if weight is None:
        weight = np.ones(len(lengths))
    found = _chain_in_lanes(scores, bounds, lengths, transition, weight)
    return _chain_in_logs(scores, bounds, lengths, transition, weight) if found is None else found


def _chain_in_lanes(scores: F64, bounds: I64, lengths: I64, transition: F64, weight: F64) -> Posterior | None:
    """None if a number leaves the range in which the scaled recursion is exact."""
    K = scores.shape[1]
    order = longest_first(lengths)
    lanes = pack(bounds[:-1][order], lengths[order])
    n_alive, at = lanes.n_alive, lanes.at
    shift = transition.max()
    step = np.exp(transition - shift)
    obs = scores[lanes.token]
    top = obs.max(axis=1)
    obs -= top[:, None]
    np.exp(obs, out=obs)
    alpha, normalizer = np.empty_like(obs), np.empty(len(obs))
    for t in range(len(n_alive)):
        here = alpha[at[t] : at[t + 1]]
        if t == 0:
            here[:] = 1.0
        else:
            np.matmul(alpha[at[t - 1] : at[t - 1] + n_alive[t]], step, out=here)
        _condition(here, obs[at[t] : at[t + 1]], normalizer[at[t] : at[t + 1]])
    if not normalizer.min(initial=1.0) > LEAST:
        return None
    log_z = np.zeros(len(lengths))
    gained = np.log(normalizer) + top
    pairs, beta, beta_next = np.zeros((K, K)), np.empty((len(order), K)), np.empty((len(order), K))
    lane_weight = weight[order]
    for t in range(len(n_alive) - 1, -1, -1):
        n, n_next = int(n_alive[t]), int(n_alive[t + 1]) if t + 1 < len(n_alive) else 0
        log_z[order[:n]] += gained[at[t] : at[t + 1]]
        beta[n_next:n] = 1.0
        if n_next:
            message = obs[at[t + 1] : at[t + 1] + n_next]  # _smooth left o ∘ β / normalizer there
            np.matmul(message, step.T, out=beta[:n_next])
            previous = alpha[at[t] : at[t] + n_next] * lane_weight[:n_next, None]
            pairs += previous.T @ message
        _smooth(alpha[at[t] : at[t + 1]], beta[:n], obs[at[t] : at[t + 1]], normalizer[at[t] : at[t + 1]])
        beta, beta_next = beta_next, beta
    log_z += shift * np.maximum(lengths - 1, 0)
    gamma = np.empty_like(scores)
    gamma[lanes.token] = alpha
    if not (np.abs(alpha.sum(axis=1) - 1) < 1e-8).all() or not np.isfinite(pairs).all():  # NaN fails it too
        return None
    return Posterior(log_z, gamma, pairs * step)


def _chain_in_logs(scores: F64, bounds: I64, lengths: I64, transition: F64, weight: F64) -> Posterior:
    shift = transition.max()
    log_z, gamma = np.zeros(len(lengths)), np.empty_like(scores)
    pairs = np.zeros_like(transition)
    for s in range(len(lengths)):
        rows = slice(bounds[s], bounds[s + 1])
        found = forward_backward_logs(
            scores[rows], np.array([0, lengths[s]]), np.ones(len(transition)), np.exp(transition - shift)
        )
        log_z[s] = found.log_likelihood[0] + shift * max(lengths[s] - 1, 0)
        gamma[rows] = found.gamma
        pairs += weight[s] * found.pairs
    return Posterior(log_z, gamma, pairs)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _condition(alpha: Any, obs: Any, normalizer: Any) -> None:
    """Equivalent to `alpha *= obs; normalizer[:] = alpha.sum(1); alpha /= normalizer[:, None]`."""
    for r in range(len(alpha)):
        a, o, total = alpha[r], obs[r], 0.0
        for k in range(len(a)):
            a[k] *= o[k]
            total += a[k]
        normalizer[r] = total
        inverse = 1.0 / total if total > 0.0 else 0.0
        for k in range(len(a)):
            a[k] *= inverse


@njit(cache=True, nogil=True, fastmath={"contract"})
def _smooth(alpha: Any, beta: Any, obs: Any, normalizer: Any) -> None:
    """Equivalent to `obs *= beta / normalizer[:, None]; alpha *= beta`."""
    for r in range(len(alpha)):
        a, b, o, inverse = alpha[r], beta[r], obs[r], 1.0 / normalizer[r]
        for k in range(len(a)):
            o[k] *= b[k] * inverse
            a[k] *= b[k]


# --- loss and gradient ----------------------------------------------------------------------------------


def loss_and_gradient(problem: Problem, flat: F64, n_threads: int = 1) -> tuple[float, F64]:
    """The loss without penalties and its gradient by all weights, in their flat order."""
    bounds = problem.tokens.bounds
    weights = _for_scores(problem.split(flat))
    n_shards = min(MOST_SHARDS, max(1, int(bounds[-1]) // SHARD_TOKENS))
    edges = equal_runs(bounds, n_shards)

    def one_shard(s: int, buffers: Buffers) -> tuple[float, F64]:
        # a copy of the gradient would cost as much as adding it up: a shard has its own as long as it is needed
        gradient = np.zeros(len(flat))
        loss = add_loss_and_gradient(problem, weights, int(edges[s]), int(edges[s + 1]), gradient, buffers)
        return loss, gradient

    total, gradient = 0.0, None
    for loss, part in ordered_map(with_buffers(one_shard), range(len(edges) - 1), n_threads, n_threads):
        total += loss
        gradient = part if gradient is None else np.add(gradient, part, out=gradient)
    assert gradient is not None
    gradient[: len(problem.pairs.label)] *= problem.pairs.free
    return total, gradient


class _ScoreWeights(NamedTuple):
    sparse: F64
    dense: F32
    transition: F64


def _for_scores(weights: Any) -> _ScoreWeights:
    """The weights in the precisions in which scores are computed."""
    return _ScoreWeights(
        weights.sparse,
        np.ascontiguousarray(weights.dense, dtype=np.float32),
        np.ascontiguousarray(weights.transition, dtype=np.float64),
    )


def add_loss_and_gradient(
    problem: Problem, weights: Any, first: int, last: int, gradient: F64, buffers: Buffers
) -> float:
    """The loss of sentences first … last − 1; adds its gradient, also at pairs that are not free."""
    tokens, gold, weight, pairs, K = problem
    total = problem.split(gradient)
    edges = _chunk_edges(tokens.bounds[first : last + 1])
    loss = 0.0
    for i in range(len(edges) - 1):
        bounds = tokens.bounds[first + edges[i] : first + edges[i + 1] + 1]
        low, high = int(bounds[0]), int(bounds[-1])
        scores = buffers.take("scores", high - low, K, np.float64)
        token_scores(tokens, low, high, pairs.start, pairs.label, weights, scores)
        own = weight[first + edges[i] : first + edges[i + 1]]
        found = chain_posterior(scores, bounds - low, weights.transition, own)
        loss += float(own @ found.log_z) - _subtract_gold(
            scores, weights.transition, gold[low:high], bounds - low, own, found.gamma, found.pairs
        )
        total.transition[:] += found.pairs
        row = tokens.row[low : high + 1]
        _add_gradient(row, tokens.attribute, tokens.value, pairs.start, pairs.label, found.gamma, total.sparse)
        if tokens.dense.shape[1]:
            total.dense[:] += tokens.dense[low:high].T @ found.gamma.astype(np.float32)
    return loss


def _chunk_edges(bounds: I64) -> list[int]:
    cost = bounds - bounds[0]
    return [int(e) for e in equal_runs(cost, max(1, int(cost[-1]) // CHUNK_TOKENS))]


@njit(cache=True, nogil=True)
def _subtract_gold(scores: Any, transition: Any, gold: Any, bounds: Any, weight: Any, gamma: Any, pairs: Any) -> float:
    """Expectations minus what was observed, both times the weight of the sentence; returns Σ weight · score(gold)."""
    total = 0.0
    for s in range(len(bounds) - 1):
        own = 0.0
        for t in range(bounds[s], bounds[s + 1]):
            own += scores[t, gold[t]]
            gamma[t, gold[t]] -= 1.0
            for k in range(gamma.shape[1]):
                gamma[t, k] *= weight[s]
            if t > bounds[s]:
                own += transition[gold[t - 1], gold[t]]
                pairs[gold[t - 1], gold[t]] -= weight[s]
        total += weight[s] * own
    return total


# --- prediction -----------------------------------------------------------------------------------------


def all_scores(tokens: Tokens, start: I64, label: I32, weights: Any, n_threads: int = 1) -> F64:
    """Scores (N, K) of all tokens."""
    weights = _for_scores(weights)
    out = np.empty((len(tokens.row) - 1, len(weights.transition)))
    edges = list(range(0, len(out), CHUNK_TOKENS)) + [len(out)]

    def one_chunk(i: int) -> None:
        low, high = edges[i], edges[i + 1]
        token_scores(tokens, low, high, start, label, weights, out[low:high])

    for _ in ordered_map(one_chunk, range(len(edges) - 1), n_threads):
        pass
    return out


def best_labels(scores: F64, bounds: I64, transition: F32 | F64) -> I64:
    """The labels of the best path of each sentence."""
    K = scores.shape[1]
    chain = LogScores(np.zeros(K), np.ascontiguousarray(transition, dtype=np.float64), scores)
    return best_paths(chain, bounds, K * np.arange(len(scores) + 1)).states


def marginals(scores: F64, bounds: I64, transition: F32 | F64, n_threads: int = 1) -> tuple[F64, F64]:
    """Marginal probabilities (N, K) of the labels, and log Z of the sentences."""
    steps = np.ascontiguousarray(transition, dtype=np.float64)
    edges, out, log_z = _chunk_edges(bounds), np.empty_like(scores), np.empty(len(bounds) - 1)

    def one_chunk(i: int) -> None:
        own = bounds[edges[i] : edges[i + 1] + 1]
        found = chain_posterior(scores[own[0] : own[-1]], own - own[0], steps)
        out[own[0] : own[-1]] = found.gamma
        log_z[edges[i] : edges[i + 1]] = found.log_z

    for _ in ordered_map(one_chunk, range(len(edges) - 1), n_threads):
        pass
    return out, log_z
