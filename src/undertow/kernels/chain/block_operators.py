"""Chains with blocks: which states can emit which words, and the transitions between them as operators.

Words are cut into G blocks and so are the states; state z emits a word only if the word is of z's block. A token then
leaves only the states of its block alive, and a step touches one k×k' matrix of the transition instead of all of it.
A word of block -1 leaves all states alive. It has one number, the same for every state, if it is a missing observation,
or one for each state: evidence on words of several blocks.

States are numbered block by block: block b has the states first[b] .. first[b + 1] - 1. Emissions are kept for live
states only: word w has one number for each state of its block, from starts[w] on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.operators import LowRankStats, add_outer, add_stats
from undertow.kernels.chain.smoothing import check_rows, check_sums
from undertow.kernels.types import F32, F64, I64

FAST = {"contract", "reassoc", "nsz"}  # no "nnan", "ninf": a zero probability must stay one


class Blocks(NamedTuple):
    """Which block a word is of, which states a block has, and where a word's emission numbers begin."""

    word_block: NDArray[np.int32]  # (V,); -1: all states may emit it
    first: I64  # (G + 1,)
    starts: I64  # (V + 1,)

    @classmethod
    def of(cls, word_block: NDArray[Any], sizes: NDArray[Any]) -> Blocks:
        """From the block of each word (-1 for none) and the number of states of each block."""
        block = np.asarray(word_block, dtype=np.int32)
        lengths = np.where(block >= 0, np.asarray(sizes, dtype=np.int64)[block], 1)
        return cls(block, offsets(sizes), offsets(lengths))

    @property
    def n_blocks(self) -> int:
        return len(self.first) - 1

    @property
    def n_states(self) -> int:
        return int(self.first[-1])

    @property
    def sizes(self) -> I64:
        return np.diff(self.first)

    def live(self, block: int) -> slice:
        """The states that can emit words of this block; all for -1."""
        return live_slice(self.first, block)

    def state_block(self) -> I64:
        """(Z,) the block of each state."""
        return np.repeat(np.arange(self.n_blocks), self.sizes)

    def dense_emission(self, emission: F32) -> F32:
        """(Z, V) emission probabilities: for small models and for tests."""
        out = np.zeros((self.n_states, len(self.word_block)), dtype=emission.dtype)
        for w, b in enumerate(self.word_block.tolist()):
            out[self.live(b), w] = emission[self.starts[w] : self.starts[w + 1]]
        return out


def live_slice(first: I64, block: int) -> slice:
    return slice(0, int(first[-1])) if block < 0 else slice(int(first[block]), int(first[block + 1]))


def offsets(lengths: Any) -> I64:
    """Where runs of these lengths begin, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def live_offsets(blocks: Blocks, ids: NDArray[Any]) -> I64:
    """Where the live states of each token begin when they are laid out one token after the other."""
    block = blocks.word_block[ids]
    return offsets(np.where(block >= 0, blocks.sizes[block], blocks.n_states))


def live_firsts(blocks: Blocks, ids: NDArray[Any]) -> I64:
    """The first live state of each token."""
    block = blocks.word_block[ids]
    return np.where(block >= 0, blocks.first[block], 0).astype(np.int64)


def word_probabilities(blocks: Blocks, states: NDArray[Any], emission: F32) -> F64:
    """(V,) p(word) from a distribution over all states."""
    states, out = np.asarray(states, dtype=np.float64), np.empty(len(blocks.word_block))
    _word_probabilities(blocks, states, states.sum(), emission, out)
    return out


@njit(cache=True, nogil=True)
def _word_probabilities(B: Any, states: Any, total: float, emission: Any, out: Any) -> None:
    """Equivalent to `out[:] = states @ dense_emission`."""
    for w in range(len(out)):
        b, e = B.word_block[w], B.starts[w]
        low, k = live_states(b, B.first)
        if b < 0 and emitted_alike(B.starts, w):
            out[w] = total * emission[e]
        else:
            p = 0.0
            for x in range(k):
                p += states[low + x] * emission[e + x]
            out[w] = p


def word_probability_rows(blocks: Blocks, states: NDArray[Any], emission: F32) -> F32:
    """(n, V) the same for several distributions (n, Z), in float32."""
    columns = np.ascontiguousarray(np.asarray(states, dtype=np.float32).T)
    out = np.zeros((len(blocks.word_block), columns.shape[1]), dtype=np.float32)
    _word_probability_rows(blocks, columns, columns.sum(axis=0), emission, out)
    return out.T


@njit(cache=True, nogil=True, fastmath=FAST)
def _word_probability_rows(B: Any, columns: Any, total: Any, emission: Any, out: Any) -> None:
    """Equivalent to `out[:] = (columns.T @ dense_emission).T`; the inner loop is over the distributions."""
    for w in range(len(out)):
        b, e, row = B.word_block[w], B.starts[w], out[w]
        if b < 0 and emitted_alike(B.starts, w):
            for i in range(len(row)):
                row[i] = total[i] * emission[e]
            continue
        low, k = live_states(b, B.first)
        for x in range(k):
            p, states = emission[e + x], columns[low + x]
            for i in range(len(row)):
                row[i] += p * states[i]


def weighted_emission(blocks: Blocks, emission: F32, weights: NDArray[Any]) -> F64:
    """(Z,) Σ_w weight_w p(w | z)."""
    out = np.zeros(blocks.n_states)
    _weighted_emission(blocks, emission, np.asarray(weights, dtype=np.float64), out)
    return out


@njit(cache=True, nogil=True)
def _weighted_emission(B: Any, emission: Any, weights: Any, out: Any) -> None:
    """Equivalent to `out[:] = dense_emission @ weights`."""
    everywhere = 0.0
    for w in range(len(weights)):
        if weights[w] == 0:
            continue
        b, e = B.word_block[w], B.starts[w]
        low, k = live_states(b, B.first)
        if b < 0 and emitted_alike(B.starts, w):
            everywhere += weights[w] * emission[e]
        else:
            for x in range(k):
                out[low + x] += weights[w] * emission[e + x]
    out += everywhere


def largest_emission(blocks: Blocks, emission: F32, weights: NDArray[Any]) -> tuple[F64, I64]:
    """(Z,) the largest weight_w p(w | z), and the first word that has it."""
    best, word = np.full(blocks.n_states, -1.0), np.zeros(blocks.n_states, dtype=np.int64)
    _largest_emission(blocks, emission, np.asarray(weights, dtype=np.float64), best, word)
    return best, word


@njit(cache=True, nogil=True)
def _largest_emission(B: Any, emission: Any, weights: Any, best: Any, word: Any) -> None:
    """Equivalent to the maximum and argmax of `dense_emission * weights` over the words."""
    for w in range(len(weights)):
        b, alike = B.word_block[w], emitted_alike(B.starts, w)
        low, k = live_states(b, B.first)
        for x in range(k):
            p = weights[w] * emission[B.starts[w] + (0 if alike else x)]
            if p > best[low + x]:
                best[low + x], word[low + x] = p, w


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
        return _each_row(beta, lambda row, out: pull_pairs(self, -1, -1, row, out))

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
        out = np.outer(self.leave, self.arrive)
        for b, b_next in zip(*np.nonzero(self.pair >= 0), strict=True):
            p = self.pair[b, b_next]
            rows, columns = slice(self.first[b], self.first[b + 1]), slice(self.first[b_next], self.first[b_next + 1])
            out[rows, columns] = self.data[self.starts[p] : self.starts[p + 1]].reshape(out[rows, columns].shape)
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


@njit(cache=True, nogil=True)
def live_states(block: int, first: Any) -> tuple[int, int]:
    """First state and number of states alive under a token of this block."""
    if block < 0:
        return 0, first[-1]
    return first[block], first[block + 1] - first[block]


@njit(cache=True, nogil=True)
def emitted_alike(starts: Any, word: int) -> bool:
    """Whether a word has one emission number for all live states."""
    return bool(starts[word + 1] - starts[word] == 1)


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
