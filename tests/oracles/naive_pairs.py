"""Pair counts by the definition: every pair of positions, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def naive_pairs(
    sentences: Iterable[Sequence[int]], lags: int, *, across: bool = False
) -> list[Counter[tuple[int, int]]]:
    """For each lag k a Counter of (word at t + k, word at t)."""
    streams: list[list[int]] = [list(map(int, s)) for s in sentences]
    if across:
        streams = [[w for s in streams for w in s]]
    counts: list[Counter[tuple[int, int]]] = [Counter() for _ in range(lags)]
    for s in streams:
        for t in range(len(s)):
            for k in range(1, lags + 1):
                if t + k < len(s):
                    counts[k - 1][s[t + k], s[t]] += 1
    return counts


def dense(counter: Counter[tuple[int, int]], n: int) -> Any:
    out = np.zeros((n, n), dtype=np.int64)
    for (i, j), c in counter.items():
        out[i, j] = c
    return out
