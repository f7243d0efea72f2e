"""A conditional random field by its definition: all label paths of a sentence, one after the other."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from undertow.kernels.chain.crf import Problem


def scores_by_definition(problem: Problem, flat: Any) -> Any:
    """Scores (N, K): sums over the pairs of each attribute, and over dense numbers."""
    tokens, pairs = problem.tokens, problem.pairs
    weights = problem.split(np.asarray(flat, dtype=np.float64))
    out = tokens.dense.astype(np.float64) @ weights.dense
    for t in range(len(out)):
        for i in range(tokens.row[t], tokens.row[t + 1]):
            value = float(tokens.value[i]) if len(tokens.value) else 1.0
            for p in range(pairs.start[tokens.attribute[i]], pairs.start[tokens.attribute[i] + 1]):
                out[t, pairs.label[p]] += value * weights.sparse[p]
    return out


def path_scores(scores: Any, transition: Any) -> list[tuple[float, tuple[int, ...]]]:
    """The score of every path of one sentence, best first; of equal ones that with lower labels at the end."""
    n, K = scores.shape
    found = []
    for path in product(range(K), repeat=n):
        total = sum(scores[t, k] for t, k in enumerate(path))
        total += sum(transition[j, k] for j, k in zip(path, path[1:], strict=False))
        found.append((float(total), path))
    return sorted(found, key=lambda f: (-f[0], f[1][::-1]))


def log_sum(values: list[float]) -> float:
    top = max(values)
    return top + float(np.log(sum(np.exp(v - top) for v in values)))


def posterior_by_paths(scores: Any, transition: Any) -> tuple[float, Any, Any]:
    """log Z, marginals (n, K) and expected transitions (K, K) of one sentence."""
    found = path_scores(scores, transition)
    log_z = log_sum([value for value, _ in found])
    gamma, pairs = np.zeros(scores.shape), np.zeros(transition.shape)
    for value, path in found:
        p = np.exp(value - log_z)
        for t, k in enumerate(path):
            gamma[t, k] += p
            if t:
                pairs[path[t - 1], k] += p
    return log_z, gamma, pairs


def loss_by_paths(problem: Problem, flat: Any) -> float:
    """Σ weight · (log Z − score of the gold path)."""
    scores, transition = scores_by_definition(problem, flat), problem.split(np.asarray(flat)).transition
    total, bounds = 0.0, problem.tokens.bounds
    for s in range(len(bounds) - 1):
        own, gold = scores[bounds[s] : bounds[s + 1]], tuple(problem.gold[bounds[s] : bounds[s + 1]])
        found = path_scores(own, transition)
        total += problem.weight[s] * (log_sum([v for v, _ in found]) - next(v for v, path in found if path == gold))
    return float(total)


def gradient_by_differences(problem: Problem, flat: Any, step: float = 1e-4) -> Any:
    """Central differences of `loss_by_paths` by each weight."""
    out = np.zeros(len(flat))
    for i in range(len(flat)):
        up, down = np.array(flat), np.array(flat)
        up[i] += step
        down[i] -= step
        out[i] = (loss_by_paths(problem, up) - loss_by_paths(problem, down)) / (2 * step)
    return out
