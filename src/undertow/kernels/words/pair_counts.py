"""Pair counts of a token stream as sparse rows: pure loops over arrays.

For a block of words the positions of each word are listed, and the words 1..L tokens before each position are
counted in one dense counter a lag, which stays in the cache. A two-level bitmap remembers which counters were
touched, so that emitting a sorted sparse row costs its non-zeros and not the vocabulary, and nothing is sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

FIRST = np.uint32(1 << 31)  # marks the first token of a sentence
WORD_MASK = np.uint32((1 << 31) - 1)

# a row's bitmap: bit j of `touched` stands for column j, bit w of `summary` for the word w of `touched`


@intrinsic
def _trailing_zeros(typing_context: Any, value: Any) -> Any:
    """Index of the lowest set bit of a non-zero uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@njit(cache=True, nogil=True, inline="always")
def _lowest_bit(value: Any) -> Any:
    return _trailing_zeros(value)  # type: ignore[call-arg]  # the typing context is passed by Numba


@njit(cache=True, nogil=True)
def positions_by_word(tokens: Any, first: Any, n_words: Any) -> Any:
    """Where each word stands in tokens[first:], a counting sort: word w at positions[bounds[w]:bounds[w + 1]]."""
    bounds = np.zeros(n_words + 1, dtype=np.int64)
    for p in range(first, len(tokens)):
        bounds[np.int64(tokens[p] & WORD_MASK) + 1] += 1
    for i in range(n_words):
        bounds[i + 1] += bounds[i]
    cursor = bounds[:-1].copy()
    positions = np.empty(bounds[n_words], dtype=np.uint32)
    for p in range(first, len(tokens)):
        w = np.int64(tokens[p] & WORD_MASK)
        positions[cursor[w]] = p
        cursor[w] += 1
    return bounds, positions


@njit(cache=True, nogil=True, inline="always")
def _emit(counter: Any, touched: Any, summary: Any, indices: Any, data: Any, at: Any) -> Any:
    """Write the touched counters in column order, clear them, and return the position after them."""
    for s in range(len(summary)):
        high = summary[s]
        if high == 0:
            continue
        summary[s] = 0
        while high != 0:
            w = np.int64(s * 64) + np.int64(_lowest_bit(high))
            high &= high - np.uint64(1)
            low = touched[w]
            touched[w] = 0
            while low != 0:
                j = w * 64 + np.int64(_lowest_bit(low))
                low &= low - np.uint64(1)
                indices[at] = j
                data[at] = counter[j]
                counter[j] = 0
                at += 1
    return at


@njit(cache=True, nogil=True)
def count_rows(
    tokens: Any, bounds: Any, positions: Any, n_words: Any, lag_start: Any, lag_stop: Any, indices: Any, data: Any
) -> Any:
    """Sparse rows of the pair counts for lags lag_start..lag_stop-1, from the positions of the rows' words.

    Row r's word stands at positions[bounds[r]:bounds[r + 1]]; a token with FIRST set has no pair before it. Row r of
    lag k goes to indices/data[k, indptr[k, r]:indptr[k, r + 1]], which need `row_room` columns; returns indptr.
    Equivalent to `coo_array((ones, (tokens[p], tokens[p - k]))).tocsr()` over all p and p - k in one sentence.
    """
    n_rows = len(bounds) - 1
    n_lags = lag_stop - lag_start
    indptr = np.zeros((n_lags, n_rows + 1), dtype=np.int64)
    n_low = (n_words + 63) // 64
    counter = np.zeros((n_lags, n_words), dtype=np.uint32)
    touched = np.zeros((n_lags, n_low), dtype=np.uint64)
    summary = np.zeros((n_lags, (n_low + 63) // 64), dtype=np.uint64)
    # contexts are copied together first: plain loads from far places overlap, loads between branches do not
    contexts = np.empty((64, lag_stop), dtype=np.uint32)
    one = np.uint64(1)
    for r in range(n_rows):
        for x in range(bounds[r], bounds[r + 1], 64):
            n = min(64, bounds[r + 1] - x)
            for y in range(n):
                p = np.int64(positions[x + y])
                for k in range(min(lag_stop, p + 1)):
                    contexts[y, k] = tokens[p - k]
            for y in range(n):
                for k in range(1, lag_stop):
                    if contexts[y, k - 1] & FIRST:
                        break
                    i = k - lag_start
                    if i < 0:
                        continue
                    j = np.int64(contexts[y, k] & WORD_MASK)
                    if counter[i, j] == 0:
                        w = j >> 6
                        touched[i, w] |= one << np.uint64(j & 63)
                        summary[i, w >> 6] |= one << np.uint64(w & 63)
                    counter[i, j] += np.uint32(1)
        for i in range(n_lags):
            indptr[i, r + 1] = _emit(counter[i], touched[i], summary[i], indices[i], data[i], indptr[i, r])
    return indptr


@njit(cache=True, nogil=True)
def row_room(bounds: Any, n_words: Any) -> Any:
    """The most entries the rows can have: one for each occurrence, at most one for each column."""
    room = 0
    for r in range(len(bounds) - 1):
        room += min(bounds[r + 1] - bounds[r], n_words)
    return room


@njit(cache=True, nogil=True)
def sum_rows(starts: Any, stops: Any, indices: Any, data: Any, n_words: Any) -> Any:
    """Add sparse rows: row r of the sum is made of the pieces indices/data[starts[q, r]:stops[q, r]] for all q.

    Returns (indptr, indices, data) with int64 data, columns in order. Equivalent to adding CSR matrices.
    """
    n_parts, n_rows = starts.shape
    room = 0
    for r in range(n_rows):
        here = 0
        for q in range(n_parts):
            here += stops[q, r] - starts[q, r]
        room += min(here, n_words)
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    out_indices = np.empty(room, dtype=np.uint32)
    out_data = np.empty(room, dtype=np.int64)
    n_low = (n_words + 63) // 64
    counter = np.zeros(n_words, dtype=np.int64)
    touched = np.zeros(n_low, dtype=np.uint64)
    summary = np.zeros((n_low + 63) // 64, dtype=np.uint64)
    one = np.uint64(1)
    for r in range(n_rows):
        for q in range(n_parts):
            for e in range(starts[q, r], stops[q, r]):
                j = np.int64(indices[e])
                w = j >> 6
                touched[w] |= one << np.uint64(j & 63)
                summary[w >> 6] |= one << np.uint64(w & 63)
                counter[j] += np.int64(data[e])
        indptr[r + 1] = _emit(counter, touched, summary, out_indices, out_data, indptr[r])
    return indptr, out_indices[: indptr[n_rows]].copy(), out_data[: indptr[n_rows]].copy()
