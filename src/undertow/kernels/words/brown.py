"""A binary tree over word classes: the two that lose least mutual information are merged, until one is left.

Brown's criterion (Brown et al. 1992): I = Σ p(c', c) log p(c', c) / (p(c') p(c)) over neighboring classes. In counts,
with f(x) = x log x and left(c'), right(c) the margins of N(c', c),

    T·I = Σ f(N(c', c)) − Σ f(left(c')) − Σ f(right(c)) + f(T)

so a merge of i and j loses Σ g over the entries that fall together, g(x, y) = f(x) + f(y) − f(x + y), less the same of
the margins. A merge changes one entry in each row and column of the others, so the table of losses is brought up to
date with a constant number of terms a pair: O(G³) in all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.types import F64, I64

TABLE = 1 << 16  # x log x is looked up below this


@njit(cache=True, nogil=True)
def _f(table: Any, x: Any) -> Any:
    """x log x of an integer."""
    return table[x] if x < len(table) else x * np.log(x)


@njit(cache=True, nogil=True)
def _g(table: Any, x: Any, y: Any) -> Any:
    """f(x) + f(y) − f(x + y)."""
    if x == 0 or y == 0:
        return 0.0
    return _f(table, x) + _f(table, y) - _f(table, x + y)


@njit(cache=True, nogil=True)
def _loss(table: Any, N: Any, NT: Any, left: Any, right: Any, alive: Any, i: Any, j: Any) -> Any:
    """What merging i and j loses, from scratch in O(G); NT is the transpose of N."""
    loss = 0.0
    for k in alive:
        if k not in (i, j):
            loss += _g(table, N[i, k], N[j, k]) + _g(table, NT[i, k], NT[j, k])
    block = N[i, i] + N[i, j] + N[j, i] + N[j, j]
    loss += _f(table, N[i, i]) + _f(table, N[i, j]) + _f(table, N[j, i]) + _f(table, N[j, j]) - _f(table, block)
    return loss - _g(table, left[i], left[j]) - _g(table, right[i], right[j])


@njit(cache=True, nogil=True)
def _all_losses(table: Any, N: Any, NT: Any, left: Any, right: Any, first: Any, stop: Any, L: Any) -> None:
    """Rows first..stop-1 of the upper triangle of L; the rest of these rows becomes infinite."""
    G = len(N)
    alive = np.arange(G)
    for i in range(first, stop):
        for j in range(G):
            L[i, j] = _loss(table, N, NT, left, right, alive, i, j) if i < j else np.inf


@njit(cache=True, nogil=True)
def _fold(N: Any, a: Any, b: Any) -> None:
    """Row and column b are added to row and column a."""
    N[a] += N[b]
    N[b] = 0
    N[:, a] += N[:, b]
    N[:, b] = 0


@njit(cache=True, nogil=True)
def _merge_best(table: Any, N: Any, NT: Any, left: Any, right: Any, L: Any, alive: Any) -> Any:
    """Merge the cheapest pair a < b into a, all arrays in place; returns a, b and the loss. Ties: the first pair."""
    a, b, least = -1, -1, np.inf
    for i in alive:
        for j in alive:
            if i < j and (L[i, j] < least or a < 0):
                a, b, least = i, j, L[i, j]
    rest = alive[(alive != a) & (alive != b)]
    # what each other class has with a and b: from it (in NT) and to it (in N)
    fa, fb, ta, tb = NT[a].copy(), NT[b].copy(), N[a].copy(), N[b].copy()
    own = np.empty(len(N))  # Σ f over these four less f of the two sums: the part of every pair's change that is i's
    for i in rest:
        own[i] = _f(table, fa[i] + fb[i]) + _f(table, ta[i] + tb[i])
        own[i] -= _f(table, fa[i]) + _f(table, fb[i]) + _f(table, ta[i]) + _f(table, tb[i])
    for p in range(len(rest)):
        i = rest[p]
        if fa[i] + fb[i] + ta[i] + tb[i] == 0:
            continue
        for q in range(p + 1, len(rest)):
            j = rest[q]
            if fa[j] + fb[j] + ta[j] + tb[j] > 0:
                f_a, f_b, t_a, t_b = fa[i] + fa[j], fb[i] + fb[j], ta[i] + ta[j], tb[i] + tb[j]
                change = own[i] + own[j] - _f(table, f_a + f_b) - _f(table, t_a + t_b)
                L[i, j] += change + _f(table, f_a) + _f(table, f_b) + _f(table, t_a) + _f(table, t_b)
    _fold(N, a, b)
    _fold(NT, a, b)
    left[a] += left[b]
    right[a] += right[b]
    left[b] = right[b] = 0
    now = alive[alive != b]
    for k in rest:
        L[min(a, k), max(a, k)] = _loss(table, N, NT, left, right, now, min(a, k), max(a, k))
    return a, b, least


def merge_classes(pairs: I64, table_size: int = TABLE) -> tuple[NDArray[np.int32], F64]:
    """The G − 1 merges (a, b), b going into a < b, in order, and the nats each loses over the whole text.

    `pairs[c', c]`: times class c came right after class c'. Divide the losses by `pairs.sum()` for Brown's average.
    """
    G = len(pairs)
    N = np.array(pairs, dtype=np.int64, order="C")
    NT = N.T.copy()
    left, right = N.sum(axis=1), N.sum(axis=0)
    x = np.arange(table_size, dtype=np.float64)
    table = x * np.log(np.maximum(x, 1))
    L = np.empty((G, G))
    for i in range(G):  # row by row, so that Ctrl-C is heard
        _all_losses(table, N, NT, left, right, i, i + 1, L)
    merges, losses = np.empty((G - 1, 2), dtype=np.int32), np.empty(G - 1)
    alive = np.arange(G)
    for n in range(G - 1):
        a, b, losses[n] = _merge_best(table, N, NT, left, right, L, alive)
        merges[n] = a, b
        alive = alive[alive != b]
    return merges, losses


def bit_paths(merges: NDArray[np.int32], sizes: NDArray[Any]) -> list[str]:
    """For each class the turns from the root to it, "0" towards the larger side of a merge and "1" to the smaller.

    Classes with a common beginning were merged before they met the others. A class that is alone has the path "0".
    """
    G = len(merges) + 1
    if G == 1:
        return ["0"]
    members: list[list[int]] = [[c] for c in range(G)]
    mass = [int(s) for s in sizes]
    turns: list[list[str]] = [[] for _ in range(G)]
    for a, b in merges.tolist():
        bits = "01" if mass[a] >= mass[b] else "10"
        for side, bit in zip((a, b), bits, strict=True):
            for c in members[side]:
                turns[c].append(bit)
        members[a] += members[b]
        mass[a] += mass[b]
    return ["".join(reversed(t)) for t in turns]
