"""Parts of classes: the words of a class are cut into parts that say most about the classes of their neighbors.

The exchange algorithm with the neighbors' classes held still (the sequential information bottleneck of Slonim et al.
2002, one class at a time). With N(z, y) the number of times a word of part z has feature y (such as "a word of class c
came before"), and N(z) its tokens, each word goes to the part of its class where

    Σ N(z, y) log N(z, y) − m Σ N(z) log N(z)

is largest, m being the number of features a token has. The table is parts × features, so many parts cost little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array, hstack

from undertow.kernels.types import I64
from undertow.kernels.words.exchange import CHUNK, MIN_GAIN, TABLE, _rise, _xlogx


@njit(cache=True, nogil=True)
def _refine(
    order: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    weight: Any,
    lowest: Any,
    highest: Any,
    kinds: Any,
    table: Any,
    parts: Any,
    counts: Any,
    size: Any,
    members: Any,
) -> int:
    """Move each word of `order` to its best part among lowest[w] .. highest[w] - 1; the last four change in place."""
    moves = 0
    for w in order:
        a = parts[w]
        if members[a] == 1:
            continue
        start, stop, n = indptr[w], indptr[w + 1], weight[w]
        for e in range(start, stop):
            counts[a, indices[e]] -= data[e]
        size[a] -= n
        best, most, here = a, -np.inf, -np.inf
        for z in range(lowest[w], highest[w]):
            gain = 0.0
            row = counts[z]
            for e in range(start, stop):
                gain += _rise(table, row[indices[e]], data[e])
            if n > 0:
                gain -= kinds * _rise(table, size[z], n)
            if z == a:
                here = gain
            if gain > most:
                best, most = z, gain
        if most <= here + MIN_GAIN:
            best = a
        else:
            moves += 1
            members[a] -= 1
            members[best] += 1
            parts[w] = best
        for e in range(start, stop):
            counts[best, indices[e]] += data[e]
        size[best] += n
    return moves


def neighbor_features(counts: csr_array, classes: ArrayLike, n_classes: int) -> csr_array:
    """(V, 2G) times a word of each class came before a word (first G columns) and after it; counts[i, j]: i after j."""
    columns = np.asarray(classes)
    V = len(columns)
    member = csr_array((np.ones(V, dtype=np.int64), (np.arange(V), columns)), shape=(V, n_classes))
    return csr_array(hstack([counts @ member, counts.T @ member]))


def refine_classes(
    features: csr_array,
    unigram: ArrayLike,
    classes: ArrayLike,
    first: ArrayLike,
    *,
    kinds: int = 2,
    n_passes: int = 10,
    min_moved: float = 0.001,
) -> tuple[NDArray[np.int32], list[float]]:
    """The part of each word, and the objective before the first pass and after each.

    Class c has the parts first[c] .. first[c + 1] - 1; `features` (V, Y) are integer counts, `kinds` of them a token.
    Words begin dealt out by frequency. A class with fewer words than parts leaves the last of its parts empty.
    """
    group, edges, weight = np.asarray(classes), np.asarray(first, dtype=np.int64), np.asarray(unigram, dtype=np.int64)
    lowest, highest = edges[group], edges[group + 1]
    order = np.argsort(-weight, kind="stable")
    parts = _deal_out(order, group, lowest, highest - lowest)
    Z, Y = int(edges[-1]), features.shape[1]
    entries = features.tocoo()
    table_of_parts = coo_array((entries.data, (parts[entries.row], entries.col)), shape=(Z, Y)).toarray()
    counts = np.ascontiguousarray(table_of_parts, dtype=np.int64)
    size = np.bincount(parts, weights=weight, minlength=Z).astype(np.int64)
    members = np.bincount(parts, minlength=Z).astype(np.int64)
    table = _xlogx(np.arange(TABLE))
    indptr, indices = features.indptr.astype(np.int64), features.indices.astype(np.int64)
    data = features.data.astype(np.int64)
    history = [_objective(counts, size, kinds)]
    order = order[(highest - lowest)[order] > 1]
    for _ in range(n_passes if len(order) else 0):
        moves = 0
        for begin in range(0, len(order), CHUNK):
            moves += _refine(
                order[begin : begin + CHUNK],
                indptr,
                indices,
                data,
                weight,
                lowest,
                highest,
                kinds,
                table,
                parts,
                counts,
                size,
                members,
            )
        history.append(_objective(counts, size, kinds))
        if moves < max(1.0, min_moved * len(order)):
            break
    return parts, history


def _deal_out(order: I64, group: NDArray[Any], lowest: I64, n_parts: I64) -> NDArray[np.int32]:
    """Words dealt out to the parts of their class, the most frequent first."""
    by_group = order[np.argsort(group[order], kind="stable")]
    _, begin, inverse = np.unique(group[by_group], return_index=True, return_inverse=True)
    rank = np.arange(len(by_group)) - begin[inverse]
    parts = np.empty(len(order), dtype=np.int32)
    parts[by_group] = lowest[by_group] + rank % n_parts[by_group]
    return parts


def _objective(counts: I64, size: I64, kinds: int) -> float:
    return float(_xlogx(counts).sum() - kinds * _xlogx(size).sum())
