"""A factorial HMM as what it is: one HMM with ∏ K_m states, written out, and every path of a short sentence counted.

A layer has the states in which the words have a weight above −inf; arrays are as wide as the largest layer.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


def joint_states(sizes: Any) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(k) for k in sizes)))


def sizes_in(theta: Any) -> list[int]:
    return [sum(bool(weight > -np.inf) for weight in layer) for layer in theta[0]]


def flat_hmm(initial: Any, transition: Any, theta: Any) -> tuple[Any, Any, Any]:
    """Initial (J,), transition (J, J) and emission (J, V) of the product chain of J joint states."""
    M = len(initial)
    states = joint_states(sizes_in(theta))
    pi = np.array([np.prod([initial[m, s[m]] for m in range(M)]) for s in states])
    A = np.array([[np.prod([transition[m, a[m], b[m]] for m in range(M)]) for b in states] for a in states])
    scores = np.array([sum(theta[:, m, s[m]] for m in range(M)) for s in states])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return pi, A, weights / weights.sum(axis=1, keepdims=True)


def enumerate_paths(words: list[int | None], initial: Any, transition: Any, theta: Any) -> dict[str, Any]:
    """Log-likelihood, posteriors, expected counts and the best path by all paths; None is a missing word."""
    M, K = initial.shape
    V = len(theta)
    states = joint_states(sizes_in(theta))
    pi, A, B = flat_hmm(initial, transition, theta)
    T = len(words)
    gamma, visits = np.zeros((T, M, K)), np.zeros(len(states))
    first, pairs, counts = np.zeros((M, K)), np.zeros((M, K, K)), np.zeros((V, M, K))
    total, best, best_path = 0.0, -1.0, None
    for path in itertools.product(range(len(states)), repeat=T):
        p = pi[path[0]] * np.prod([A[a, b] for a, b in itertools.pairwise(path)])
        p *= np.prod([1.0 if w is None else B[s, w] for s, w in zip(path, words, strict=True)])
        total += p
        if p > best:
            best, best_path = p, path
        for t, s in enumerate(path):
            if words[t] is not None:
                visits[s] += p
            for m in range(M):
                gamma[t, m, states[s][m]] += p
                if words[t] is not None:
                    counts[words[t], m, states[s][m]] += p
                if t == 0:
                    first[m, states[s][m]] += p
                else:
                    pairs[m, states[path[t - 1]][m], states[s][m]] += p
    return {
        "log_likelihood": np.log(total),
        "gamma": gamma / total,
        "visits": visits / total,
        "first": first / total,
        "pairs": pairs / total,
        "words": counts / total,
        "best_path": np.array([states[s] for s in best_path]),
        "best_log_probability": np.log(best),
    }


def enumerate_token_logs(words: list[int | None], initial: Any, transition: Any, theta: Any) -> Any:
    """log p(word | words before it), by all paths of each prefix; 0 for a missing word."""
    ahead = [enumerate_paths(words[:t], initial, transition, theta)["log_likelihood"] for t in range(1, len(words) + 1)]
    return np.diff([0.0, *ahead])


def forward_log_likelihood(words: list[int | None], initial: Any, transition: Any, theta: Any) -> float:
    """The same log-likelihood by the plain forward recursion over joint states, for sentences too long to enumerate."""
    pi, A, B = flat_hmm(initial, transition, theta)
    alpha, total = pi, 0.0
    for t, w in enumerate(words):
        if t:
            alpha = alpha @ A
        if w is not None:
            alpha = alpha * B[:, w]
        total += np.log(alpha.sum())
        alpha = alpha / alpha.sum()
    return float(total)
