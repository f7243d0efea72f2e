"""The likelihood of a linear-chain conditional random field and its gradient, over sparse and dense features.

    score(y | x) = Σ_t s_t(y_t) + Σ_t T[y_{t−1}, y_t],   s_t = Σ_{a of token t} value · W[a] + x_t D
    loss         = Σ_sentences weight · (log Σ_y exp score(y | x) − score(gold | x))

W has weights for the pairs of attribute and label that occur in training alone, D (d, K) and T (K, K) are full. The
chain runs in probabilities that are rescaled at every token, all sentences of a chunk side by side as lanes, so that a
step is one matrix product. Training does that in float32, with losses and gradients summed in float64.

No probability is lost by that: relative to the best label of its token none is below exp(−range), where the range is
the largest difference of two scores of a token plus that of two transitions. If it is too large for float32 a chunk is
done in float64, and beyond that by `small.forward_backward_logs`.

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
Scores = F32 | F64

CHUNK_TOKENS = 1 << 13  # their scores and posteriors stay in the cache; as lanes they still make wide products
MOST_SHARDS = 8  # each has a gradient of its own, which is as long as the weights
SHARD_TOKENS = 1 << 14  # fewer are not worth a gradient of their own
FULL_FROM = 0.3  # share of the labels from which an attribute has weights for all, which one vector loop adds
RANGE = {np.dtype(np.float32): 80.0, np.dtype(np.float64): 600.0}  # nats between probabilities of one token


class Tokens(NamedTuple):
    """A text as a CRF reads it, N tokens in n sentences."""

    bounds: I64  # (n + 1,) of sentences
    row: I64  # (N + 1,) where the attributes of each token begin
    attribute: I32  # (entries,)
    value: F32  # (entries,), or empty if all are 1
    dense: F32  # (N, d)
    more: F32 | None = None  # (N, m) numbers that a network reads beside `dense`; None: there is no network

    def number_parts(self) -> list[F32]:
        """What a network reads, in matrices that stand side by side."""
        return [self.dense] if self.more is None else [self.dense, self.more]

    def numbers(self) -> F32:
        """(N, d + m) what a network reads."""
        return self.dense if self.more is None else np.concatenate(self.number_parts(), axis=1)


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


class Listed(NamedTuple):
    """The pairs of each token one by one, for attributes that have few: one loop adds them all, without a look-up."""

    row: I64  # (N + 1,) where those of each token begin
    pair: I32  # (L,)
    label: I32  # (L,)
    value: F32  # (L,), or empty if all are 1


class Problem(NamedTuple):
    """What a CRF learns from."""

    tokens: Tokens
    gold: I32  # (N,) labels
    weight: F64  # (n,) of sentences
    pairs: Pairs
    n_labels: int
    listed: Listed | None = None  # of the attributes that `tokens` leaves out

    def n_weights(self) -> int:
        return len(self.pairs.label) + (int(self.tokens.dense.shape[1]) + self.n_labels) * self.n_labels

    def split(self, flat: Any) -> Weights:
        """Views of a flat vector of all weights."""
        P, d, K = len(self.pairs.label), self.tokens.dense.shape[1], self.n_labels
        return Weights(flat[:P], flat[P : P + d * K].reshape(d, K), flat[P + d * K :].reshape(K, K))


class Posterior(NamedTuple):
    """log Z of each sentence, marginals (N, K) and expected numbers of transitions (K, K)."""

    log_z: F64
    gamma: Scores
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


def with_listed_pairs(problem: Problem) -> Problem:
    """The same problem with the same weights, in which attributes that are not full are listed pair by pair."""
    if problem.listed is not None:
        return problem
    tokens, pairs, K = problem.tokens, problem.pairs, problem.n_labels
    row, rest_row = np.zeros((2, len(tokens.row)), dtype=np.int64)
    _count_listed(tokens.row, tokens.attribute, pairs.start, K, row, rest_row)
    if not row[-1]:
        return problem
    pair, label = np.empty((2, row[-1]), dtype=np.int32)
    attribute = np.empty(rest_row[-1], dtype=np.int32)
    has_value = len(tokens.value) > 0
    value, rest_value = (np.empty(n if has_value else 0, dtype=np.float32) for n in (row[-1], rest_row[-1]))
    _list_entries(tokens.row, tokens.attribute, tokens.value, *pairs[:2], K, pair, label, value, attribute, rest_value)
    rest = tokens._replace(row=rest_row, attribute=attribute, value=rest_value)
    return problem._replace(tokens=rest, listed=Listed(row, pair, label, value))


@njit(cache=True, nogil=True)
def _count_listed(row: Any, attribute: Any, start: Any, n_labels: int, listed: Any, rest: Any) -> None:
    """Where the listed pairs of each token begin, and its entries of full attributes."""
    for t in range(len(row) - 1):
        n, n_rest = 0, 0
        for i in range(row[t], row[t + 1]):
            width = start[attribute[i] + 1] - start[attribute[i]]
            n += width if width < n_labels else 0
            n_rest += width == n_labels
        listed[t + 1], rest[t + 1] = listed[t] + n, rest[t] + n_rest


@njit(cache=True, nogil=True)
def _list_entries(
    row: Any, attribute: Any, value: Any, start: Any, label: Any, n_labels: int,
    pair: Any, pair_label: Any, pair_value: Any, rest: Any, rest_value: Any,
) -> None:  # fmt: skip
    n, n_rest, has_value = 0, 0, len(value) > 0
    for i in range(row[-1]):
        first, last = start[attribute[i]], start[attribute[i] + 1]
        if last - first == n_labels:
            rest[n_rest] = attribute[i]
            if has_value:
                rest_value[n_rest] = value[i]
            n_rest += 1
        else:
            for p in range(first, last):
                pair[n], pair_label[n] = p, label[p]
                if has_value:
                    pair_value[n] = value[i]
                n += 1


# --- scores ---------------------------------------------------------------------------------------------


def token_scores(tokens: Tokens, low: int, high: int, start: I64, label: I32, weights: Any, out: Any) -> Any:
    """Scores (high − low, K) of tokens low … high − 1 into `out`; weights: sparse, dense (float32) and transitions."""
    if tokens.dense.shape[1]:
        np.matmul(tokens.dense[low:high], weights.dense, out=out)
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
            v = value[i] if len(value) else np.float32(1.0)
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


@njit(cache=True, nogil=True)
def _add_listed_scores(row: Any, pair: Any, label: Any, value: Any, weight: Any, out: Any) -> None:
    """Equivalent to `out[t, label[i]] += value[i] * weight[pair[i]]` for all i of t."""
    for t in range(len(out)):
        s = out[t]
        for i in range(row[t], row[t + 1]):
            v = value[i] if len(value) else np.float32(1.0)
            s[label[i]] += v * weight[pair[i]]


@njit(cache=True, nogil=True)
def _add_listed_gradient(row: Any, pair: Any, label: Any, value: Any, excess: Any, out: Any) -> None:
    """Equivalent to `out[pair[i]] += value[i] * excess[t, label[i]]` for all i of t."""
    for t in range(len(excess)):
        e = excess[t]
        for i in range(row[t], row[t + 1]):
            v = np.float64(value[i]) if len(value) else 1.0
            out[pair[i]] += v * e[label[i]]


# --- the chain ------------------------------------------------------------------------------------------


def chain_posterior(scores: Scores, bounds: I64, transition: Scores, weight: F64 | None = None) -> Posterior:
    """Forward–backward of sentences side by side, in the precision of the scores or, where it must be, in a higher one.

    `bounds` start at 0. The weights of sentences count in `pairs` alone.
    """
    if weight is None:
        weight = np.ones(len(bounds) - 1)
    top = np.empty(len(scores), dtype=scores.dtype)
    apart = float(_top_of_rows(scores, top)) + float(transition.max() - transition.min())
    if apart <= RANGE[scores.dtype]:
        return _chain_in_lanes(scores, top, bounds, transition.astype(scores.dtype, copy=False), weight)
    if apart <= RANGE[np.dtype(np.float64)]:
        return chain_posterior(scores.astype(np.float64), bounds, transition, weight)
    return _chain_in_logs(scores, bounds, transition, weight)  # refuses NaN


def _chain_in_lanes(scores: Any, top: Any, bounds: I64, transition: Any, weight: F64) -> Posterior:
    K, lengths = scores.shape[1], np.diff(bounds)
    order = longest_first(lengths)
    lanes = pack(bounds[:-1][order], lengths[order])
    n_alive, at, row = lanes.n_alive.tolist(), lanes.at.tolist(), lanes.token
    shift = transition.max()
    step = np.exp(transition - shift)
    step_back = np.ascontiguousarray(step.T)
    obs = np.empty_like(scores)
    _below_top(scores, top, row, obs)
    np.exp(obs, out=obs)
    alpha, normalizer = np.empty_like(obs), np.empty(len(obs))
    for t, n in enumerate(n_alive):
        here = slice(at[t], at[t + 1])
        if t == 0:
            alpha[here] = 1.0
        else:
            np.matmul(alpha[at[t - 1] : at[t - 1] + n], step, out=alpha[here])
        _condition(alpha[here], obs[here], normalizer[here])
    gained = np.log(normalizer) + top[row]
    lane_z, lane_weight = np.zeros(len(order)), weight[order].astype(scores.dtype)
    pairs, beta = np.zeros((K, K)), np.empty((len(order), K), dtype=scores.dtype)
    gamma, is_weighted, n_next = np.empty_like(scores), not (weight == 1).all(), 0
    for t in range(len(n_alive) - 1, -1, -1):
        n, here = n_alive[t], slice(at[t], at[t + 1])
        lane_z[:n] += gained[here]
        beta[n_next:n] = 1.0
        if n_next:
            message, before = obs[at[t + 1] : at[t + 1] + n_next], alpha[at[t] : at[t] + n_next]
            np.matmul(message, step_back, out=beta[:n_next])
            pairs += (before * lane_weight[:n_next, None] if is_weighted else before).T @ message
        # obs becomes the message to the token before
        _smooth(alpha[here], beta[:n], obs[here], normalizer[here], row[here], gamma)
        n_next = n
    log_z = shift * np.maximum(lengths - 1, 0).astype(np.float64)
    log_z[order] += lane_z
    return Posterior(log_z, gamma, pairs * step)


def _chain_in_logs(scores: Any, bounds: I64, transition: Any, weight: F64) -> Posterior:
    lengths, shift = np.diff(bounds), transition.max()
    steps = np.exp(transition.astype(np.float64) - shift)
    log_z, gamma, pairs = np.zeros(len(lengths)), np.empty(scores.shape), np.zeros(transition.shape)
    for s in range(len(lengths)):
        rows = slice(bounds[s], bounds[s + 1])
        found = forward_backward_logs(scores[rows], np.array([0, lengths[s]]), np.ones(len(steps)), steps)
        log_z[s] = found.log_likelihood[0] + shift * max(lengths[s] - 1, 0)
        gamma[rows] = found.gamma
        pairs += weight[s] * found.pairs
    return Posterior(log_z, gamma, pairs)


@njit(cache=True, nogil=True)
def _top_of_rows(scores: Any, top: Any) -> Any:
    """Equivalent to `top[:] = scores.max(1); return (top - scores.min(1)).max()`, NaN if a score is NaN."""
    widest = scores.dtype.type(0)
    for t in range(len(scores)):
        low = high = scores[t, 0]
        for k in range(scores.shape[1]):
            s = scores[t, k]
            low = s if s < low else low
            high = s if s > high else high
            if np.isnan(s):
                return s
        top[t] = high
        widest = max(widest, high - low)
    return widest


@njit(cache=True, nogil=True)
def _below_top(scores: Any, top: Any, token: Any, out: Any) -> None:
    """Equivalent to `out[:] = scores[token] - top[token, None]`."""
    for r in range(len(token)):
        s, o, highest = scores[token[r]], out[r], top[token[r]]
        for k in range(len(s)):
            o[k] = s[k] - highest


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _condition(alpha: Any, obs: Any, normalizer: Any) -> None:
    """Equivalent to `alpha *= obs; normalizer[:] = alpha.sum(1); alpha /= normalizer[:, None]`."""
    for r in range(len(alpha)):
        a, o = alpha[r], obs[r]
        total = a[0] * 0
        for k in range(len(a)):
            a[k] *= o[k]
            total += a[k]
        normalizer[r] = total
        inverse = alpha.dtype.type(1.0) / total
        for k in range(len(a)):
            a[k] *= inverse


@njit(cache=True, nogil=True, fastmath={"contract"})
def _smooth(alpha: Any, beta: Any, obs: Any, normalizer: Any, token: Any, gamma: Any) -> None:
    """Equivalent to `obs *= beta / normalizer[:, None]; gamma[token] = alpha * beta`."""
    for r in range(len(alpha)):
        g = gamma[token[r]]
        a, b, o, inverse = alpha[r], beta[r], obs[r], alpha.dtype.type(1.0 / normalizer[r])
        for k in range(len(a)):
            o[k] *= b[k] * inverse
            g[k] = a[k] * b[k]


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
    sparse: F32
    dense: F32
    transition: F32


def _for_scores(weights: Any) -> _ScoreWeights:
    """The weights in the precision in which scores are computed."""
    return _ScoreWeights(*(np.ascontiguousarray(w, dtype=np.float32) for w in weights))


def add_loss_and_gradient(
    problem: Problem, weights: Any, first: int, last: int, gradient: F64, buffers: Buffers
) -> float:
    """The loss of sentences first … last − 1; adds its gradient, also at pairs that are not free."""
    tokens, gold, weight, pairs, K, listed = problem
    total = problem.split(gradient)
    edges = _chunk_edges(tokens.bounds[first : last + 1])
    loss = 0.0
    for i in range(len(edges) - 1):
        bounds = tokens.bounds[first + edges[i] : first + edges[i + 1] + 1]
        low, high = int(bounds[0]), int(bounds[-1])
        scores = buffers.take("scores", high - low, K, np.float32)
        token_scores(tokens, low, high, pairs.start, pairs.label, weights, scores)
        if listed is not None:
            _add_listed_scores(listed.row[low : high + 1], *listed[1:], weights.sparse, scores)
        own = weight[first + edges[i] : first + edges[i + 1]]
        more, excess, steps = loss_of_scores(scores, bounds - low, weights.transition, gold[low:high], own)
        loss += more
        add_weight_gradient(tokens, low, high, pairs, excess, steps, total)
        if listed is not None:
            _add_listed_gradient(listed.row[low : high + 1], *listed[1:], excess, total.sparse)
    return loss


def loss_of_scores(
    scores: Scores, bounds: I64, transition: Scores, gold: I32, weight: F64
) -> tuple[float, Scores, F64]:
    """The loss of sentences whose tokens have these scores; its gradients by the scores and by the transitions."""
    found = chain_posterior(scores, bounds, transition, weight)
    of_gold = _subtract_gold(scores, transition, gold, bounds, weight, found.gamma, found.pairs)
    return float(weight @ found.log_z) - of_gold, found.gamma, found.pairs


def add_weight_gradient(
    tokens: Tokens, low: int, high: int, pairs: Pairs, excess: Scores, steps: F64, total: Weights
) -> None:
    """Add the gradient by all weights, given those by the scores of tokens low … high − 1 and by the transitions."""
    total.transition[:] += steps
    row = tokens.row[low : high + 1]
    _add_gradient(row, tokens.attribute, tokens.value, pairs.start, pairs.label, excess, total.sparse)
    if tokens.dense.shape[1]:
        total.dense[:] += tokens.dense[low:high].T @ excess.astype(np.float32, copy=False)


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
            if weight[s] != 1.0:
                for k in range(gamma.shape[1]):
                    gamma[t, k] *= weight[s]
            if t > bounds[s]:
                own += transition[gold[t - 1], gold[t]]
                pairs[gold[t - 1], gold[t]] -= weight[s]
        total += weight[s] * own
    return total


# --- some of the sentences ------------------------------------------------------------------------------


def take(problem: Problem, sentences: I64) -> Problem:
    """The problem of some sentences, in this order; of one whose pairs are not listed."""
    assert problem.listed is None
    tokens = problem.tokens
    lengths = np.diff(tokens.bounds)[sentences]
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    picked = np.repeat(tokens.bounds[sentences] - bounds[:-1], lengths) + np.arange(bounds[-1])
    counts = tokens.row[picked + 1] - tokens.row[picked]
    row = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    entries = np.repeat(tokens.row[picked] - row[:-1], counts) + np.arange(row[-1])
    value = tokens.value[entries] if len(tokens.value) else tokens.value
    more = None if tokens.more is None else tokens.more[picked]
    some = Tokens(bounds, row, tokens.attribute[entries], value, tokens.dense[picked], more)
    return problem._replace(tokens=some, gold=problem.gold[picked], weight=problem.weight[sentences])


# --- prediction -----------------------------------------------------------------------------------------


def all_scores(tokens: Tokens, weights: Any, n_threads: int = 1) -> F64:
    """Scores (N, K) of all tokens; weights also say where the pairs of each attribute `start`, and their `label`."""
    out = np.empty((len(tokens.row) - 1, len(weights.transition)))
    edges = list(range(0, len(out), CHUNK_TOKENS)) + [len(out)]

    def one_chunk(i: int) -> None:
        low, high = edges[i], edges[i + 1]
        token_scores(tokens, low, high, weights.start, weights.label, weights, out[low:high])

    for _ in ordered_map(one_chunk, range(len(edges) - 1), n_threads):
        pass
    return out


def best_labels(scores: F64, bounds: I64, transition: F32 | F64) -> I64:
    """The labels of the best path of each sentence."""
    K = scores.shape[1]
    chain = LogScores(np.zeros(K), np.ascontiguousarray(transition, dtype=np.float64), scores)
    return best_paths(chain, bounds, K * np.arange(len(scores) + 1), K).states


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
