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
