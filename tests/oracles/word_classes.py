"""Word classes the slow way: every candidate's objective from scratch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def class_objective(counts: np.ndarray, unigram: Sequence[int], classes: Sequence[int], n_clusters: int) -> float:
    """F = Σ N(c', c) log N(c', c) − 2 Σ N(c) log N(c); counts[i, j]: word i came right after word j."""
    pairs = np.zeros((n_clusters, n_clusters))
    sizes = np.zeros(n_clusters)
    for i in range(len(classes)):
        sizes[classes[i]] += unigram[i]
        for j in range(len(classes)):
            pairs[classes[j], classes[i]] += counts[i, j]
    return sum(x * math.log(x) for x in pairs.ravel() if x > 0) - 2 * sum(x * math.log(x) for x in sizes if x > 0)


def exchange_pass(
    counts: np.ndarray, unigram: Sequence[int], classes: list[int], n_clusters: int, closed: Sequence[int] = ()
) -> int:
    """One visit to every word, the most frequent first; `closed` classes are neither left nor entered."""
    moves = 0
    for w in sorted(range(len(classes)), key=lambda i: (-unigram[i], i)):
        a = classes[w]
        if a in closed or classes.count(a) == 1:
            continue
        tried = {}
        for b in range(n_clusters):
            if b not in closed:
                tried[b] = class_objective(counts, unigram, [*classes[:w], b, *classes[w + 1 :]], n_clusters)
        best = max(tried, key=lambda b: (tried[b], -b))
        if tried[best] > tried[a] + 1e-6:
            classes[w] = best
            moves += 1
    return moves


def mutual_information(pairs: np.ndarray) -> float:
    """Σ p(c', c) log p(c', c) / (p(c') p(c))."""
    p = pairs / pairs.sum()
    left, right = p.sum(axis=1), p.sum(axis=0)
    return sum(
        p[i, j] * math.log(p[i, j] / (left[i] * right[j])) for i in range(len(p)) for j in range(len(p)) if p[i, j] > 0
    )


def merged(pairs: np.ndarray, i: int, j: int) -> np.ndarray:
    """Counts between the classes when j has become part of i; j's own row and column are empty."""
    out = pairs.astype(float)
    out[i] += out[j]
    out[j] = 0
    out[:, i] += out[:, j]
    out[:, j] = 0
    return out


def brown_merges(pairs: np.ndarray) -> list[tuple[int, int, float]]:
    """All merges (i, j, loss of mutual information), the cheapest first, each by trying every pair."""
    alive = list(range(len(pairs)))
    now, out = pairs.astype(float), []
    while len(alive) > 1:
        before = mutual_information(now)
        tried = {(i, j): before - mutual_information(merged(now, i, j)) for i in alive for j in alive if i < j}
        i, j = min(tried, key=lambda pair: (tried[pair], pair))
        out.append((i, j, tried[i, j]))
        now = merged(now, i, j)
        alive.remove(j)
    return out


def random_text(seed: int, V: int = 12, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Pair and word counts of a random text in which words prefer some successors."""
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.full(V, 0.2), size=V)
    words = [0]
    for _ in range(n):
        words.append(int(rng.choice(V, p=T[words[-1]])))
    counts = np.zeros((V, V), dtype=np.int64)
    np.add.at(counts, (words[1:], words[:-1]), 1)
    return counts, np.bincount(words, minlength=V)
