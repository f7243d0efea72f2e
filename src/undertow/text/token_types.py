"""The distinct tokens of a piece of text, numbered by first appearance: a compiled hash table over their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _hash(data: Any, start: Any, stop: Any) -> Any:
    """FNV-1a over bytes with a final mix, because the low bits choose the slot."""
    h = np.uint64(0xCBF29CE484222325)
    for i in range(start, stop):
        h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    h ^= h >> np.uint64(32)
    h *= np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@njit(cache=True, nogil=True)
def intern_tokens(out: Any, bounds: Any) -> Any:
    """Number the distinct tokens in order of first appearance.

    Returns (ids of the tokens, the types' bytes one after the other, their bounds, count of each type). Equivalent
    to `np.unique(tokens, return_inverse=True, return_counts=True)` reordered by first appearance.
    """
    n = len(bounds) - 1
    ids = np.empty(n, dtype=np.uint32)
    capacity = 1 << 14
    slots = np.full(capacity, -1, dtype=np.int32)
    hashes = np.empty(capacity // 2, dtype=np.uint64)
    counts = np.empty(capacity // 2, dtype=np.int64)
    # the types' bytes are copied together: comparing with the first occurrence in `out` would miss the cache
    pool = np.empty(1 << 16, dtype=np.uint8)
    ends = np.zeros(capacity // 2 + 1, dtype=np.int64)
    n_types = 0
    for t in range(n):
        a = bounds[t]
        size = bounds[t + 1] - a
        h = _hash(out, a, a + size)
        slot = np.int64(h & np.uint64(capacity - 1))
        while True:
            k = np.int64(slots[slot])
            if k < 0:
                break
            if hashes[k] == h:
                o = ends[k]
                same = ends[k + 1] - o == size
                x = 0
                while same and x < size:
                    same = pool[o + x] == out[a + x]
                    x += 1
                if same:
                    break
            slot = (slot + 1) & (capacity - 1)
        if k < 0:
            k = np.int64(n_types)
            slots[slot] = k
            hashes[k] = h
            counts[k] = 0
            o = ends[k]
            while o + size > len(pool):
                pool = np.append(pool, np.empty_like(pool))
            pool[o : o + size] = out[a : a + size]
            ends[k + 1] = o + size
            n_types += 1
            if n_types == capacity // 2:
                capacity *= 2
                slots = np.full(capacity, -1, dtype=np.int32)
                hashes = np.append(hashes, np.empty_like(hashes))
                counts = np.append(counts, np.empty_like(counts))
                ends = np.append(ends, np.empty(n_types, dtype=np.int64))
                for j in range(n_types):
                    s = np.int64(hashes[j] & np.uint64(capacity - 1))
                    while slots[s] >= 0:
                        s = (s + 1) & (capacity - 1)
                    slots[s] = j
        counts[k] += 1
        ids[t] = k
    return ids, pool[: ends[n_types]].copy(), ends[: n_types + 1].copy(), counts[:n_types].copy()
