"""Transitions between states in blocks (`blocks.py`), as operators.

A token leaves only the states of its block alive, so a step touches one k×k' matrix of the transition instead of all
of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.blocks import FAST, live_slice
from undertow.kernels.chain.operators import LowRankStats, add_outer, add_stats
from undertow.kernels.chain.smoothing import check_rows, check_sums
from undertow.kernels.types import F32, F64, I64

MANY_ROWS = 2  # from so many on, whole rows of the matrix are copied and multiplied, instead of pair by pair


class PairStats(NamedTuple):
    """Expected numbers of steps between the states of pairs of blocks that were seen, as PairSparse.data."""

    data: F64

    def __add__(self, other: Any) -> PairStats:
        return add_stats(self, other)


class PairSparse(NamedTuple):
    """A transition with a matrix for each pair of blocks that was seen, and rank one for all others.

    T[z, z'] = data of the pair (b, b') if pair[b, b'] >= 0, else leave[z] · arrive[z']. Rows sum to one over both.
    """

    first: I64  # (G + 1,)
    pair: NDArray[np.int32]  # (G, G); -1: not seen
    starts: I64  # (P + 1,)
    data: F32  # row-major k×k' for each pair
    leave: F32  # (Z,)
    arrive: F32  # (Z,)

    @property
    def n_states(self) -> int:
        return int(self.first[-1])

    def push(self, alpha: NDArray[Any]) -> F32:
        """T'α: where the states go. (Z,) or (n, Z)."""
        return _each_row(alpha, lambda row, out: push_pairs(self, -1, -1, row, out))

    def pull(self, beta: NDArray[Any]) -> F32:
        """Tβ: what is to come, seen from one step before. (Z,) or (n, Z)."""
        if np.ndim(beta) == 1 or len(beta) < MANY_ROWS:
            return _each_row(beta, lambda row, out: pull_pairs(self, -1, -1, row, out))
        rows = np.asarray(beta, dtype=np.float32)
        return np.concatenate([rows @ self.block_rows(b).T for b in range(len(self.first) - 1)], axis=1)

    def push_from(self, block: int, alpha: NDArray[Any]) -> F32:
        """(Z,) T'α for α over the states of one block, or over all (-1)."""
        out = np.empty(self.n_states, dtype=np.float32)
        push_pairs(self, block, -1, np.ascontiguousarray(alpha, dtype=np.float32), out)
        return out

    def pull_to(self, block: int, beta: NDArray[Any]) -> F32:
        """(Z,) Tβ for β over the states of one block, or over all (-1)."""
        out = np.empty(self.n_states, dtype=np.float32)
        pull_pairs(self, -1, block, np.ascontiguousarray(beta, dtype=np.float32), out)
        return out

    def live(self, block: int) -> slice:
        return live_slice(self.first, block)

    def rows(self, states: NDArray[Any]) -> F32:
        """(n, Z) rows of the matrix."""
        n_blocks = len(self.first) - 1
        z, block = np.repeat(np.asarray(states, dtype=np.int64), n_blocks), np.tile(np.arange(n_blocks), len(states))
        return self.into_block(z, block)[2].reshape(len(states), self.n_states)

    def empty_stats(self) -> PairStats:
        return PairStats(np.zeros(len(self.data)))

    def accumulate_expected(self, alpha: NDArray[Any], message: NDArray[Any], stats: PairStats) -> None:
        """Steps between pairs of blocks that were not seen are not counted: they have no parameters of their own."""
        counts = np.zeros(len(self.data))
        for a, m in zip(np.asarray(alpha, dtype=np.float32), np.asarray(message, dtype=np.float32), strict=True):
            count_pairs(self, -1, -1, a, m, 1.0, counts)
        np.add(stats.data, counts * self.data, out=stats.data)

    def check(self) -> None:
        """Raise InputError, with the sums, unless all rows are distributions."""
        least = min(x.min(initial=0.0) for x in (self.data, self.leave, self.arrive))
        sums = self.pull(np.ones(self.n_states, dtype=np.float32))
        check_sums(np.where(least < 0, np.nan, sums), "transition")

    def dense(self) -> F32:
        """(Z, Z), for small models."""
        return np.concatenate([self.block_rows(b) for b in range(len(self.first) - 1)])

    def block_rows(self, block: int) -> F32:
        """(k, Z) rows of the matrix for the states of one block; copies of whole matrices, so faster than `rows`."""
        out = np.empty((int(self.first[block + 1] - self.first[block]), self.n_states), dtype=np.float32)
        _block_rows(self, block, out)
        return out

    def into_block(self, z: I64, block: I64) -> tuple[I64, I64, F32]:
        """(i, z', T[z[i], z']) of all steps from the states z[i] into the blocks block[i]."""
        sizes, of_state = np.diff(self.first), np.searchsorted(self.first, z, side="right") - 1
        k = sizes[block]
        i = np.repeat(np.arange(len(z)), k)
        offset = np.arange(len(i)) - np.repeat(np.cumsum(k) - k, k)
        z_next = self.first[block][i] + offset
        pair = self.pair[of_state, block]
        begin = self.starts[pair] + (z - self.first[of_state]) * k
        seen = (pair >= 0)[i]
        value = self.leave[z][i] * self.arrive[z_next]
        value[seen] = self.data[(begin[i] + offset)[seen]]
        return i, z_next, value

    def block_masses(self) -> F32:
        """(Z, G) the probability that a state is followed by one of each block."""
        out = np.empty((self.n_states, len(self.first) - 1), dtype=np.float32)
        _block_masses(self, out)
        return out


class BlockLowRank(NamedTuple):
    """A transition through F features, z → f → z': T = R·E; E is kept by columns, so that a block is a run of rows."""

    first: I64  # (G + 1,)
    R: F32  # (Z, F), rows sum to one
    ET: F32  # (Z, F), columns sum to one: p(z' | f)

    @property
    def n_states(self) -> int:
        return int(self.first[-1])

    def push(self, alpha: NDArray[Any]) -> F32:
        return np.asarray((np.asarray(alpha, dtype=np.float32) @ self.R) @ self.ET.T)

    def pull(self, beta: NDArray[Any]) -> F32:
        return np.asarray((np.asarray(beta, dtype=np.float32) @ self.ET) @ self.R.T)

    def push_from(self, block: int, alpha: NDArray[Any]) -> F32:
        live = live_slice(self.first, block)
        return np.asarray((np.asarray(alpha, dtype=np.float32) @ self.R[live]) @ self.ET.T)

    def pull_to(self, block: int, beta: NDArray[Any]) -> F32:
        live = live_slice(self.first, block)
        return np.asarray((np.asarray(beta, dtype=np.float32) @ self.ET[live]) @ self.R.T)

    def live(self, block: int) -> slice:
        return live_slice(self.first, block)

    def rows(self, states: NDArray[Any]) -> F32:
        """(n, Z) rows of the matrix."""
        return np.asarray(self.R[states] @ self.ET.T)

    def empty_stats(self) -> LowRankStats:
        return LowRankStats(np.zeros(self.R.shape), np.zeros(self.ET.shape).T)  # fz by columns, as E is kept

    def accumulate_expected(self, alpha: NDArray[Any], message: NDArray[Any], stats: LowRankStats) -> None:
        add_outer(stats.zf, alpha, message @ self.ET, self.R)
        add_outer(stats.fz.T, message, alpha @ self.R, self.ET)

    def check(self) -> None:
        check_rows(self.R, "transition from states to features")
        check_rows(self.ET, "transition from features to states", axis=0)

    def dense(self) -> F32:
        return np.asarray(self.R @ self.ET.T)


def _each_row(x: NDArray[Any], step: Any) -> F32:
    rows = np.ascontiguousarray(np.atleast_2d(x), dtype=np.float32)
    out = np.empty_like(rows)
    for row, result in zip(rows, out, strict=True):
        step(row, result)
    return out.reshape(np.shape(x))


@njit(cache=True, nogil=True)
def _block_rows(T: Any, block: int, out: Any) -> None:
    """Equivalent to `out[:] = dense[live(block)]`."""
    first, pair, starts, data, leave, arrive = T
    for x in range(len(out)):
        for j in range(len(first) - 1):
            p, k_next = pair[block, j], first[j + 1] - first[j]
            to = out[x, first[j] : first[j + 1]]
            if p < 0:
                for y in range(k_next):
                    to[y] = leave[first[block] + x] * arrive[first[j] + y]
            else:
                to[:] = data[starts[p] + x * k_next : starts[p] + (x + 1) * k_next]


@njit(cache=True, nogil=True, fastmath=FAST)
def _block_masses(T: Any, out: Any) -> None:
    """Equivalent to `out[:] = np.add.reduceat(dense, first[:-1], axis=1)`, reading each matrix once."""
    first, pair, starts, data, leave, arrive = T
    for j in range(len(first) - 1):
        k_next = first[j + 1] - first[j]
        arriving = np.float32(0)
        for y in range(first[j], first[j + 1]):
            arriving += arrive[y]
        for i in range(len(first) - 1):
            e = starts[pair[i, j]]
            for z in range(first[i], first[i + 1]):
                if pair[i, j] < 0:
                    out[z, j] = leave[z] * arriving
                else:
                    mass = np.float32(0)
                    for y in range(k_next):
                        mass += data[e + y]
                    out[z, j] = mass
                    e += k_next


# --- steps of the pair-sparse transition ----------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def live_blocks(block: int, n_blocks: int) -> tuple[int, int]:
    """The blocks that are alive: the token's own, or all."""
    return (0, n_blocks) if block < 0 else (block, block + 1)


@njit(cache=True, nogil=True, fastmath=FAST)
def push_pairs(T: Any, b: int, b_next: int, alpha: Any, out: Any) -> None:
    """out = T'α over live states. Equivalent to `out[:] = alpha @ dense[live(b)][:, live(b_next)]`."""
    first, pair, starts, data, leave, arrive = T
    low, high = live_blocks(b, len(first) - 1)
    low_next, high_next = live_blocks(b_next, len(first) - 1)
    base, base_next = first[low], first[low_next]
    out[: first[high_next] - base_next] = 0
    for i in range(low, high):
        for j in range(low_next, high_next):
            p = pair[i, j]
            s, k = first[i] - base, first[i + 1] - first[i]
            o, k_next = first[j] - base_next, first[j + 1] - first[j]
            if p < 0:
                mass = np.float32(0)
                for x in range(k):
                    mass += alpha[s + x] * leave[base + s + x]
                for y in range(k_next):
                    out[o + y] += mass * arrive[base_next + o + y]
                continue
            e, x = starts[p], 0
            while x + 4 <= k:  # four rows at a time: `out` is read and written once for four
                a0, a1, a2, a3 = alpha[s + x], alpha[s + x + 1], alpha[s + x + 2], alpha[s + x + 3]
                f, g, h = e + k_next, e + 2 * k_next, e + 3 * k_next
                for y in range(k_next):
                    out[o + y] += a0 * data[e + y] + a1 * data[f + y] + a2 * data[g + y] + a3 * data[h + y]
                e += 4 * k_next
                x += 4
            while x < k:
                a0 = alpha[s + x]
                for y in range(k_next):
                    out[o + y] += a0 * data[e + y]
                e += k_next
                x += 1


@njit(cache=True, nogil=True, fastmath=FAST)
def pull_pairs(T: Any, b: int, b_next: int, beta: Any, out: Any) -> None:
    """out = Tβ over live states. Equivalent to `out[:] = dense[live(b)][:, live(b_next)] @ beta`."""
    first, pair, starts, data, leave, arrive = T
    low, high = live_blocks(b, len(first) - 1)
    low_next, high_next = live_blocks(b_next, len(first) - 1)
    base, base_next = first[low], first[low_next]
    out[: first[high] - base] = 0
    for i in range(low, high):
        for j in range(low_next, high_next):
            p = pair[i, j]
            s, k = first[i] - base, first[i + 1] - first[i]
            o, k_next = first[j] - base_next, first[j + 1] - first[j]
            if p < 0:
                mass = np.float32(0)
                for y in range(k_next):
                    mass += beta[o + y] * arrive[base_next + o + y]
                for x in range(k):
                    out[s + x] += mass * leave[base + s + x]
                continue
            e, x = starts[p], 0
            while x + 4 <= k:
                m0, m1, m2, m3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
                f, g, h = e + k_next, e + 2 * k_next, e + 3 * k_next
                for y in range(k_next):
                    v = beta[o + y]
                    m0 += data[e + y] * v
                    m1 += data[f + y] * v
                    m2 += data[g + y] * v
                    m3 += data[h + y] * v
                out[s + x] += m0
                out[s + x + 1] += m1
                out[s + x + 2] += m2
                out[s + x + 3] += m3
                e += 4 * k_next
                x += 4
            while x < k:
                m0 = np.float32(0)
                for y in range(k_next):
                    m0 += data[e + y] * beta[o + y]
                out[s + x] += m0
                e += k_next
                x += 1


@njit(cache=True, nogil=True, fastmath=FAST)
def count_pairs(T: Any, b: int, b_next: int, alpha: Any, ahead: Any, scale: float, weights: Any) -> None:
    """Add scale·α·ahead' to the sums of the pairs seen; times T's data, which is done once at the end, these are ξ."""
    first, pair, starts = T[0], T[1], T[2]
    low, high = live_blocks(b, len(first) - 1)
    low_next, high_next = live_blocks(b_next, len(first) - 1)
    for i in range(low, high):
        for j in range(low_next, high_next):
            p = pair[i, j]
            if p < 0:
                continue
            s, k = first[i] - first[low], first[i + 1] - first[i]
            o, k_next = first[j] - first[low_next], first[j + 1] - first[j]
            e = starts[p]
            for x in range(k):
                a = scale * alpha[s + x]
                for y in range(k_next):
                    weights[e + y] += a * ahead[o + y]
                e += k_next
