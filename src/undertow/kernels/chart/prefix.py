"""Prefix probabilities: of all sentences that begin with given words, for every prefix of a sentence.

A nonterminal with feature f at the left edge of the prefix i..k either splits inside it, its left child covering i..j
exactly and its right child beginning with j..k; or its left child reaches beyond k and the right child derives anything
that ends (probability `t_f`). The second case recurs at the same place, which is a geometric series of matrices summed
by (I − diag(t) V̂)^{-1} (Jelinek and Lafferty, 1991), here r × r. The chart has the rows of `inside`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chart.grammar import RankSpace, Termination
from undertow.kernels.chart.inside import Chart, combine, normalize_pairs
from undertow.kernels.types import F64


class PrefixSpace(NamedTuple):
    """What prefix probabilities need beside the `RankSpace`, which must be in float64."""

    tail: F64  # (r,) t: probability that the right child of each feature ends
    close: F64  # (r, r) the sum over left edges: rows are multiplied by it
    total: float  # probability that a sentence ends at all: of the empty prefix


def prefix_space(space: RankSpace, ends: Termination) -> PrefixSpace:
    r = len(ends.right)
    return PrefixSpace(ends.right, np.linalg.inv(np.eye(r) - ends.right[:, None] * space.to_left.T).T, ends.total)


def prefix_log_probabilities(words: NDArray[Any], chart: Chart, space: RankSpace, prefix: PrefixSpace) -> F64:
    """(B, N + 1) log-probability of the first k words of each sentence, k = 0..N, however it goes on.

    `chart` is the inside chart of the same words.
    """
    n, size, first = chart.n, chart.size, chart.first
    P, right = np.zeros_like(chart.G), np.zeros_like(chart.R)
    exponent = np.zeros(len(P), dtype=np.int64)
    tokens = chart.width(1)
    P[tokens] = (prefix.tail * chart.L[tokens]) @ prefix.close
    right[tokens] = P[tokens] @ space.to_right + chart.R[tokens]
    exponent[tokens] = chart.exponent[tokens]
    for w in range(1, n + 1):
        at = chart.width(w)
        if w > 1:
            combine(w, n, first, chart.L, chart.exponent, right, exponent, P, exponent)
            P[at] = P[at] @ prefix.close
            right[at] = P[at] @ space.to_right
        normalize_pairs(P[at], right[at], exponent[at])
    logs = np.empty((size, n + 1))
    with np.errstate(divide="ignore"):
        logs[:, 0] = np.log(prefix.total)
        for k in range(1, n + 1):
            rows = first[k] + np.arange(size) * (n - k + 1)
            # a row of zeros has an exponent below all others, which would be no number times log 2
            logs[:, k] = np.log(P[rows] @ space.top) + np.maximum(exponent[rows], -(1 << 30)) * math.log(2)
        logs[:, 1] = np.logaddexp(logs[:, 1], np.log(space.word_top[words[:, 0]]))
    return logs


__all__ = ["PrefixSpace", "prefix_log_probabilities", "prefix_space"]
