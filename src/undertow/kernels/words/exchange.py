"""Word classes by the exchange algorithm: each word in turn goes to the class where the text becomes most probable.

The model is the class bigram p(w | w') = p(c | c') p(w | c). With N(c', c) the number of times a word of class c came
right after one of class c', and N(c) the number of tokens of class c, its log-likelihood is, up to a sum over words
that no clustering changes,

    F = Σ N(c', c) log N(c', c) − 2 Σ N(c) log N(c)

(Kneser & Ney 1993; Martin, Liermann & Ney 1998). Moving word w changes the rows and columns of two classes alone, and
there only the entries of the classes that w has neighbors in: a candidate costs as many terms as these. F never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from undertow.errors import InputError
from undertow.kernels.types import F64, I64

TABLE = 1 << 16  # x log x is looked up below this and computed above; half a megabyte, the busy part of it in cache
MIN_GAIN = 1e-6  # nats a move must win: above the rounding of the sums, so that the algorithm cannot cycle
CHUNK = 512  # words between two looks at Ctrl-C

OnPass = Callable[[int, float, int], object]


@njit(cache=True, nogil=True)
def _rise(table: Any, x: Any, more: Any) -> Any:
    """f(x + more) − f(x) for f(x) = x log x and integers x ≥ 0, more > 0."""
    if x + more < len(table):
        return table[x + more] - table[x]
    if x == 0:
        return more * np.log(more)
    return more * np.log(x + more) + x * np.log1p(more / x)


@njit(cache=True, nogil=True)
def _add_rises(table: Any, row: Any, more: Any, largest: Any, gain: Any) -> None:
    """Equivalent to `gain += f(row + more) - f(row)`; no entry of row is above `largest`."""
    if largest + more < len(table):  # no branch inside: this loop is where the time goes
        shifted = table[more:]
        for b in range(len(row)):
            gain[b] += shifted[row[b]] - table[row[b]]
    else:
        for b in range(len(row)):
            gain[b] += _rise(table, row[b], more)


@njit(cache=True, nogil=True)
def _sum_by_class(
    indices: Any, data: Any, start: Any, stop: Any, word: Any, classes: Any, total: Any, seen: Any
) -> Any:
    """total[c] += counts of the neighbors of `word` in class c; lists those classes and returns their number.

    `total` is zero on entry. The word itself is left out: where it goes, its pairs with itself go too.
    """
    n = 0
    for e in range(start, stop):
        if indices[e] != word and data[e] > 0:
            c = classes[indices[e]]
            if total[c] == 0:
                seen[n] = c
                n += 1
            total[c] += data[e]
    return n


@njit(cache=True, nogil=True)
def _shift_word(
    after: Any,
    before: Any,
    c: Any,
    left: Any,
    right: Any,
    n_left: Any,
    n_right: Any,
    own: Any,
    sign: Any,
    seen_left: Any,
    seen_right: Any,
) -> None:
    """Add the pairs of a word to class c (sign +1) or take them away (−1): after[c', c] = N(c', c) = before[c, c']."""
    for k in range(n_left):
        other = seen_left[k]
        after[other, c] += sign * left[other]
        before[c, other] += sign * left[other]
    for k in range(n_right):
        other = seen_right[k]
        after[c, other] += sign * right[other]
        before[other, c] += sign * right[other]
    after[c, c] += sign * own
    before[c, c] += sign * own


@njit(cache=True, nogil=True)
def _exchange(
    order: Any,
    indptr: Any,
    indices: Any,
    data: Any,
    indptr_t: Any,
    indices_t: Any,
    data_t: Any,
    unigram: Any,
    open_: Any,
    table: Any,
    classes: Any,
    after: Any,
    before: Any,
    size: Any,
    members: Any,
) -> int:
    """Move each word of `order` to its best class; the last six arguments are changed in place. Returns the moves.

    Rows of the CSR matrix are what came before a word, rows of its transpose what came after.
    """
    G = len(size)
    left, right = np.zeros(G, dtype=np.int64), np.zeros(G, dtype=np.int64)
    seen_left, seen_right = np.empty(G, dtype=np.int64), np.empty(G, dtype=np.int64)
    gain = np.empty(G, dtype=np.float64)
    moves = 0
    for w in order:
        a = classes[w]
        if members[a] == 1:
            continue  # leaving would only empty a class, which never helps
        n_left = _sum_by_class(indices, data, indptr[w], indptr[w + 1], w, classes, left, seen_left)
        n_right = _sum_by_class(indices_t, data_t, indptr_t[w], indptr_t[w + 1], w, classes, right, seen_right)
        own = 0
        for e in range(indptr[w], indptr[w + 1]):
            if indices[e] == w:
                own += data[e]
        n = unigram[w]
        _shift_word(after, before, a, left, right, n_left, n_right, own, -1, seen_left, seen_right)
        size[a] -= n
        gain[:] = 0.0
        for k in range(n_right):  # N(b, c) grows by right[c]: a column of `after`, contiguous in `before`
            c = seen_right[k]
            _add_rises(table, before[c], right[c], size[c] + right[c], gain)
        for k in range(n_left):
            c = seen_left[k]
            _add_rises(table, after[c], left[c], size[c] + left[c], gain)
        for b in range(G):
            inside = after[b, b]  # N(b, b) grows once, by all three
            if right[b] > 0:
                gain[b] -= _rise(table, inside, right[b])
            if left[b] > 0:
                gain[b] -= _rise(table, inside, left[b])
            if left[b] + right[b] + own > 0:
                gain[b] += _rise(table, inside, left[b] + right[b] + own)
            if n > 0:
                gain[b] -= 2 * _rise(table, size[b], n)
        best = a
        for b in range(G):
            if open_[b] and gain[b] > gain[best]:
                best = b
        if gain[best] > gain[a] + MIN_GAIN:
            classes[w] = best
            members[a] -= 1
            members[best] += 1
            moves += 1
        else:
            best = a
        _shift_word(after, before, best, left, right, n_left, n_right, own, 1, seen_left, seen_right)
        size[best] += n
        left[:] = 0
        right[:] = 0
    return moves


def class_counts(counts: csr_array, classes: NDArray[np.int32], n_clusters: int) -> I64:
    """N(c', c): times a word of class c came right after one of class c', as a dense [c', c] matrix."""
    entries = counts.tocoo()
    flat = classes[entries.col].astype(np.int64) * n_clusters + classes[entries.row]
    out = np.zeros(n_clusters * n_clusters, dtype=np.int64)
    np.add.at(out, flat, entries.data)
    return out.reshape(n_clusters, n_clusters)


def objective(pairs: NDArray[Any], sizes: NDArray[Any]) -> float:
    """F = Σ N(c', c) log N(c', c) − 2 Σ N(c) log N(c), in nats."""
    return float(_xlogx(pairs).sum() - 2 * _xlogx(sizes).sum())


class Pass(NamedTuple):
    """Where the algorithm stands after a pass; pass 0 is the start."""

    classes: NDArray[np.int32]  # (V,)
    objective: float  # F
    moves: int


def exchange_passes(
    counts: csr_array,
    unigram: ArrayLike,
    n_clusters: int,
    *,
    start: ArrayLike | None = None,
    fixed: ArrayLike | None = None,
    n_passes: int = 20,
    min_moved: float = 0.001,
    table_size: int = TABLE,
) -> Iterator[Pass]:
    """The start, and then the state after every pass of the algorithm; `exchange_clusters` says what the rest means."""
    counts, unigram = _checked(counts, unigram, n_clusters)
    order = np.argsort(-unigram, kind="stable")
    fixed_words = _checked_fixed(fixed, len(unigram), n_clusters)
    free = order[~np.isin(order, fixed_words)]
    if start is None:
        classes = _rank_modulo(free, fixed_words, n_clusters)
    else:
        classes = _checked_start(start, len(unigram), n_clusters, fixed_words)
    open_ = np.ones(n_clusters, dtype=np.bool_)
    open_[classes[fixed_words]] = False
    after = class_counts(counts, classes, n_clusters)
    sizes = np.bincount(classes, weights=unigram, minlength=n_clusters).astype(np.int64)
    members = np.bincount(classes, minlength=n_clusters).astype(np.int64)
    before, transposed = after.T.copy(), counts.T.tocsr()
    table = _xlogx(np.arange(table_size))
    yield Pass(classes.copy(), objective(after, sizes), 0)
    for _ in range(n_passes):
        moves = 0
        for first in range(0, len(free), CHUNK):
            moves += _exchange(
                free[first : first + CHUNK],
                counts.indptr,
                counts.indices,
                counts.data,
                transposed.indptr,
                transposed.indices,
                transposed.data,
                unigram,
                open_,
                table,
                classes,
                after,
                before,
                sizes,
                members,
            )
        yield Pass(classes.copy(), objective(after, sizes), moves)
        if moves < max(1.0, min_moved * len(free)):
            break


def exchange_clusters(
    counts: csr_array,
    unigram: ArrayLike,
    n_clusters: int,
    *,
    start: ArrayLike | None = None,
    fixed: ArrayLike | None = None,
    n_passes: int = 20,
    min_moved: float = 0.001,
    on_pass: OnPass | None = None,
    table_size: int = TABLE,
) -> tuple[NDArray[np.int32], list[float]]:
    """The class of every word, and F before the first pass and after each.

    `counts[i, j]`: times word i came right after word j; `unigram`: times each word came at all. Words begin in class
    rank modulo `n_clusters`, the most frequent first, or as `start` has it; they are visited in order of frequency.
    Each of the `fixed` words has a class of its own, 0, 1, … in the order given, which no other word enters. Ends when
    a pass moves fewer than the share `min_moved` of the words, or after `n_passes`. No class becomes empty.
    `on_pass(pass, F, moves)` is called after each pass. The same input gives the same classes.
    """
    history = []
    how: dict[str, Any] = {"start": start, "fixed": fixed, "n_passes": n_passes, "min_moved": min_moved}
    for n, now in enumerate(exchange_passes(counts, unigram, n_clusters, **how, table_size=table_size)):
        history.append(now.objective)
        if on_pass is not None and n > 0:
            on_pass(n, now.objective, now.moves)
    return now.classes, history


def _rank_modulo(free: I64, fixed: I64, n_clusters: int) -> NDArray[np.int32]:
    """Words dealt out to the open classes in order of frequency; the fixed ones have the first classes."""
    classes = np.empty(len(free) + len(fixed), dtype=np.int32)
    classes[fixed] = np.arange(len(fixed))
    if len(free):
        classes[free] = len(fixed) + np.arange(len(free)) % (n_clusters - len(fixed))
    return classes


def _xlogx(x: NDArray[Any]) -> F64:
    x = np.asarray(x, dtype=np.float64)
    return x * np.log(np.where(x > 0, x, 1.0))


def _checked(counts: Any, unigram: ArrayLike, n_clusters: int) -> tuple[csr_array, I64]:
    """Counts and word counts as the kernel wants them: one index type, so that it is compiled once."""
    words = np.asarray(unigram)
    if words.ndim != 1 or counts.shape != (len(words), len(words)):
        raise InputError(
            f"Counts of shape {counts.shape} and {words.shape} do not belong together: give (V, V) and (V,)."
        )
    if not 1 <= n_clusters <= len(words):
        raise InputError(f"{n_clusters} clusters cannot be made of {len(words)} words: choose from 1 to {len(words)}.")
    counts = csr_array(counts)
    if (len(counts.data) and counts.data.min() < 0) or words.min() < 0:
        raise InputError("Some counts are negative: word classes are made of counts of pairs and words.")
    index = np.int64
    whole = csr_array(
        (counts.data.astype(np.int64), counts.indices.astype(index), counts.indptr.astype(index)), shape=counts.shape
    )
    return whole, words.astype(np.int64)


def _checked_fixed(fixed: ArrayLike | None, V: int, n_clusters: int) -> I64:
    words = np.asarray([] if fixed is None else fixed, dtype=np.int64).ravel()
    if len(np.unique(words)) != len(words) or (len(words) and not 0 <= words.min() <= words.max() < V):
        raise InputError(f"The fixed words must be different ids from 0 to {V - 1}: check them.")
    if len(words) > n_clusters or (len(words) == n_clusters and n_clusters < V):
        raise InputError(f"{len(words)} fixed words leave no cluster for the others among {n_clusters}: ask for more.")
    return words


def _checked_start(start: ArrayLike, V: int, n_clusters: int, fixed: I64) -> NDArray[np.int32]:
    given = np.asarray(start)
    if (
        given.shape != (V,)
        or not np.issubdtype(given.dtype, np.integer)
        or not 0 <= given.min() <= given.max() < n_clusters
    ):
        raise InputError(f"The start must give each of the {V} words a cluster from 0 to {n_clusters - 1}.")
    if np.any(np.bincount(given, minlength=n_clusters)[given[fixed]] != 1):
        raise InputError("A fixed word shares its cluster in the start: give it one of its own there.")
    return given.astype(np.int32)
