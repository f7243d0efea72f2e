"""How probable each span of labels is in a linear chain, and the spans that are right most often.

A span begins at a token whose label does not go on from the one before, and lasts as long as each label goes on from
the one before it (`goes_on[j, k]`: label k goes on a span of label j). All paths count, well-formed or not, as reading
tags from left to right would count them. The chain is read backwards in logs, so that no probability is lost, and then
forwards as a Markov chain: P(k at t + 1 | j at t) is the share of k among all that may follow j.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.types import F64, I64

Bools = NDArray[np.bool_]


class SpanProbabilities(NamedTuple):
    """Spans that are probable enough, in the order of their last tokens; spans of a sentence may overlap.

    Attributes
    ----------
    start, end
        (n,) the first token of each span, and the one after its last, counted over all sentences.
    kind
        (n,) the type of its labels.
    probability
        (n,) that the text has this span.
    """

    start: I64
    end: I64
    kind: I64
    probability: F64


def span_probabilities(
    scores: F64, bounds: I64, transition: F64, goes_on: Bools, kinds: I64, least: float
) -> SpanProbabilities:
    """All spans of a probability of at least `least` > 0.

    Parameters
    ----------
    scores
        (N, K) of the labels of all tokens.
    bounds
        (n + 1,) of sentences.
    transition
        (K, K) scores of a label after another one.
    goes_on
        (K, K) whether a label goes on the span of the one before it; both are then of one type.
    kinds
        (K,) the type of each label; negative outside spans.
    least
        Spans of less are left out.
    """
    found = _all_spans(scores, bounds, np.ascontiguousarray(transition, dtype=np.float64), goes_on, kinds, least)
    return SpanProbabilities(*found)


@njit(cache=True, nogil=True)
def _all_spans(scores: Any, bounds: Any, transition: Any, goes_on: Any, kinds: Any, least: float) -> Any:
    K, capacity, n = len(transition), max(len(scores), 16), 0
    start, end, kind = np.empty(capacity, np.int64), np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    probability = np.empty(capacity)
    longest = 0
    for s in range(len(bounds) - 1):
        longest = max(longest, bounds[s + 1] - bounds[s])
    ahead = np.empty((longest, K))  # log of what follows a label, up to a constant of the token
    follow, gamma, gamma_next, begun = np.empty((K, K)), np.empty(K), np.empty(K), np.empty(K)
    ends, n_kinds = np.ones(K), kinds.max() + 1
    for s in range(len(bounds) - 1):
        low, high = bounds[s], bounds[s + 1]
        if high == low:
            continue
        _look_ahead(scores[low:high], transition, ahead)
        _normalized(scores[low] + ahead[0], gamma)
        begun[:] = gamma
        open_start = np.empty(0, np.int64)
        open_mass = np.empty((0, K))
        for t in range(low, high):
            # spans that begin here join those that are open
            total_begun = 0.0
            for k in range(K):
                total_begun += begun[k] if kinds[k] >= 0 else 0.0
            if total_begun >= least:
                wider, masses = np.empty(len(open_start) + 1, np.int64), np.zeros((len(open_start) + 1, K))
                wider[:-1], masses[:-1] = open_start, open_mass
                wider[-1] = t
                for k in range(K):
                    masses[-1, k] = begun[k] if kinds[k] >= 0 else 0.0
                open_start, open_mass = wider, masses
            last = t == high - 1
            if not last:
                _followers(gamma, scores[t + 1] + ahead[t + 1 - low], transition, follow)
                gamma_next[:] = 0.0
                begun[:] = 0.0
                for j in range(K):
                    stays = 0.0
                    for k in range(K):
                        gamma_next[k] += gamma[j] * follow[j, k]
                        if goes_on[j, k]:
                            stays += follow[j, k]
                        else:
                            begun[k] += gamma[j] * follow[j, k]
                    ends[j] = 1.0 - stays
            else:
                ends[:] = 1.0
            n_open = 0
            for i in range(len(open_start)):
                mass = open_mass[i]
                for type_ in range(n_kinds):
                    ended = 0.0
                    for j in range(K):
                        if kinds[j] == type_:
                            ended += mass[j] * ends[j]
                    if ended >= least:
                        if n == capacity:
                            start, end, kind = _longer(start), _longer(end), _longer(kind)
                            probability = _longer(probability)
                            capacity = len(start)
                        start[n], end[n], kind[n], probability[n] = open_start[i], t + 1, type_, ended
                        n += 1
                if last:
                    continue
                passed, total = np.zeros(K), 0.0
                for j in range(K):
                    if mass[j] > 0.0:
                        for k in range(K):
                            if goes_on[j, k]:
                                passed[k] += mass[j] * follow[j, k]
                for k in range(K):
                    total += passed[k]
                if total >= least:
                    open_start[n_open] = open_start[i]
                    open_mass[n_open] = passed
                    n_open += 1
            open_start, open_mass = open_start[:n_open].copy(), open_mass[:n_open].copy()
            gamma[:] = gamma_next
    return start[:n], end[:n], kind[:n], probability[:n]


@njit(cache=True, nogil=True)
def _look_ahead(scores: Any, transition: Any, ahead: Any) -> None:
    """ahead[t, j] = log Σ_k exp(transition[j, k] + scores[t + 1, k] + ahead[t + 1, k]), less the largest of its row."""
    n, K = scores.shape
    ahead[n - 1] = 0.0
    for t in range(n - 2, -1, -1):
        best = -np.inf
        for j in range(K):
            top = -np.inf
            for k in range(K):
                top = max(top, transition[j, k] + scores[t + 1, k] + ahead[t + 1, k])
            total = 0.0
            for k in range(K):
                total += np.exp(transition[j, k] + scores[t + 1, k] + ahead[t + 1, k] - top)
            ahead[t, j] = top + np.log(total)
            best = max(best, ahead[t, j])
        ahead[t] -= best


@njit(cache=True, nogil=True)
def _followers(gamma: Any, after: Any, transition: Any, out: Any) -> None:
    """P(k at t + 1 | j at t) for the labels j that are possible at t; 0 for the others."""
    for j in range(len(out)):
        if gamma[j] > 0.0:
            _normalized(transition[j] + after, out[j])
        else:
            out[j] = 0.0


@njit(cache=True, nogil=True)
def _normalized(logs: Any, out: Any) -> None:
    top = logs.max()
    total = 0.0
    for k in range(len(out)):
        out[k] = np.exp(logs[k] - top)
        total += out[k]
    for k in range(len(out)):
        out[k] /= total


@njit(cache=True, nogil=True)
def _longer(array: Any) -> Any:
    out = np.empty(2 * len(array), array.dtype)
    out[: len(array)] = array
    return out


@njit(cache=True, nogil=True)
def best_spans(start: Any, end: Any, gain: Any, bounds: Any) -> Any:
    """Which spans to take so that none overlap and their gains sum to the most; those that gain nothing are left out.

    The spans are in the order of their ends, and none crosses a bound of a sentence. Sums begin anew at each sentence,
    so that what is taken there does not depend on the others.
    """
    taken = np.zeros(len(start), np.bool_)
    first, n = bounds[0], bounds[-1] - bounds[0]
    best, by = np.zeros(n + 1), np.full(n + 1, -1)
    i = 0
    for s in range(len(bounds) - 1):
        best[bounds[s] - first] = 0.0
        for t in range(bounds[s] - first + 1, bounds[s + 1] - first + 1):
            best[t] = best[t - 1]
            while i < len(end) and end[i] - first == t:
                total = best[start[i] - first] + gain[i]
                if gain[i] > 0.0 and total > best[t]:
                    best[t], by[t] = total, i
                i += 1
    t = n
    while t > 0:
        if by[t] < 0:
            t -= 1
        else:
            taken[by[t]] = True
            t = start[by[t]] - first
    return taken
