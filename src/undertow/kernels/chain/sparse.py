"""Forward–backward of a chain whose states emit only the words of their block.

Words are cut into G blocks and so are the states; state z emits a word only if the word is of z's block. A token then
leaves only the states of its block alive, and a step touches one k×k' matrix of the transition instead of all of it.
A word of block -1 is a missing observation: every state emits it alike, all states stay alive, and the same loops run
over all blocks: slower, and exact.

States are numbered block by block: block b has the states first[b] .. first[b + 1] - 1. Emissions are kept for live
states only: word w has one number for each state of its block, from starts[w] on. The loops take and give flat arrays,
release the GIL, and are the same for one sentence and for a stream: a *sequence* is whatever the state is carried
through.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
FAST = {"contract", "reassoc", "nsz"}  # no "nnan", "ninf": a zero probability must stay one


class Blocks(NamedTuple):
    """Which block a word is of, which states a block has, and where a word's emission numbers begin."""

    word_block: NDArray[np.int32]  # (V,); -1: emitted by every state alike
    first: Ints  # (G + 1,)
    starts: Ints  # (V + 1,)

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
    def sizes(self) -> Ints:
        return np.diff(self.first)

    def state_block(self) -> NDArray[np.int64]:
        """(Z,) the block of each state."""
        return np.repeat(np.arange(self.n_blocks), self.sizes)

    def dense_emission(self, emission: Floats) -> Floats:
        """(Z, V) emission probabilities: for small models and for tests."""
        out = np.zeros((self.n_states, len(self.word_block)), dtype=emission.dtype)
        for w, b in enumerate(self.word_block.tolist()):
            live = slice(None) if b < 0 else slice(self.first[b], self.first[b + 1])
            out[live, w] = emission[self.starts[w] : self.starts[w + 1]]
        return out


def offsets(lengths: Any) -> Ints:
    """Where runs of these lengths begin, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


class PairSparse(NamedTuple):
    """A transition with a matrix for each pair of blocks that was seen, and rank one for all others.

    T[z, z'] = data of the pair (b, b') if pair[b, b'] >= 0, else leave[z] · arrive[z']. Rows sum to one over both.
    """

    first: Ints  # (G + 1,)
    pair: NDArray[np.int32]  # (G, G); -1: not seen
    starts: Ints  # (P + 1,)
    data: Floats  # row-major k×k' for each pair
    leave: Floats  # (Z,)
    arrive: Floats  # (Z,)

    @property
    def n_states(self) -> int:
        return int(self.first[-1])

    def push(self, alpha: NDArray[Any]) -> Floats:
        """T'α: where the states go. (Z,) or (n, Z)."""
        return _each_row(alpha, lambda row, out: _push(self, -1, -1, row, out))

    def pull(self, beta: NDArray[Any]) -> Floats:
        """Tβ: what is to come, seen from one step before. (Z,) or (n, Z)."""
        return _each_row(beta, lambda row, out: _pull(self, -1, -1, row, out))

    def push_from(self, block: int, alpha: NDArray[Any]) -> Floats:
        """(Z,) T'α for α over the states of one block, or over all (-1)."""
        out = np.empty(self.n_states, dtype=np.float32)
        _push(self, block, -1, np.ascontiguousarray(alpha, dtype=np.float32), out)
        return out

    def dense(self) -> Floats:
        """(Z, Z), for small models."""
        out = np.outer(self.leave, self.arrive)
        for b, b_next in zip(*np.nonzero(self.pair >= 0), strict=True):
            p = self.pair[b, b_next]
            rows, columns = slice(self.first[b], self.first[b + 1]), slice(self.first[b_next], self.first[b_next + 1])
            out[rows, columns] = self.data[self.starts[p] : self.starts[p + 1]].reshape(out[rows, columns].shape)
        return out

    def into_block(self, z: Ints, block: Ints) -> tuple[Ints, Ints, Floats]:
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

    def block_masses(self) -> Floats:
        """(Z, G) the probability that a state is followed by one of each block."""
        out = np.empty((self.n_states, len(self.first) - 1), dtype=np.float32)
        _block_masses(self, out)
        return out


class BlockLowRank(NamedTuple):
    """A transition through F features, z → f → z': T = R·E; E is kept by columns, so that a block is a run of rows."""

    first: Ints  # (G + 1,)
    R: Floats  # (Z, F), rows sum to one
    ET: Floats  # (Z, F), columns sum to one: p(z' | f)

    @property
    def n_states(self) -> int:
        return int(self.first[-1])

    def push(self, alpha: NDArray[Any]) -> Floats:
        return np.asarray((np.asarray(alpha, dtype=np.float32) @ self.R) @ self.ET.T)

    def pull(self, beta: NDArray[Any]) -> Floats:
        return np.asarray((np.asarray(beta, dtype=np.float32) @ self.ET) @ self.R.T)

    def push_from(self, block: int, alpha: NDArray[Any]) -> Floats:
        live = slice(None) if block < 0 else slice(self.first[block], self.first[block + 1])
        return np.asarray((np.asarray(alpha, dtype=np.float32) @ self.R[live]) @ self.ET.T)

    def rows(self, states: Ints) -> Floats:
        """(n, Z) rows of the matrix."""
        return np.asarray(self.R[states] @ self.ET.T)

    def dense(self) -> Floats:
        return np.asarray(self.R @ self.ET.T)


def _each_row(x: NDArray[Any], step: Any) -> Floats:
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


# --- steps of the pair-sparse transition ----------------------------------------------------------------


@njit(cache=True, nogil=True, inline="always")
def _range(block: int, n_blocks: int) -> tuple[int, int]:
    """The blocks that are alive: the token's own, or all."""
    return (0, n_blocks) if block < 0 else (block, block + 1)


@njit(cache=True, nogil=True, fastmath=FAST)
def _push(T: Any, b: int, b_next: int, alpha: Any, out: Any) -> None:
    """out = T'α over live states. Equivalent to `out[:] = alpha @ dense[live(b)][:, live(b_next)]`."""
    first, pair, starts, data, leave, arrive = T
    low, high = _range(b, len(first) - 1)
    low_next, high_next = _range(b_next, len(first) - 1)
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
def _pull(T: Any, b: int, b_next: int, beta: Any, out: Any) -> None:
    """out = Tβ over live states. Equivalent to `out[:] = dense[live(b)][:, live(b_next)] @ beta`."""
    first, pair, starts, data, leave, arrive = T
    low, high = _range(b, len(first) - 1)
    low_next, high_next = _range(b_next, len(first) - 1)
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
def _count_pairs(T: Any, b: int, b_next: int, alpha: Any, ahead: Any, scale: float, weights: Any) -> None:
    """Add scale·α·ahead' to the sums of the pairs seen; times T's data, which is done once at the end, these are ξ."""
    first, pair, starts = T[0], T[1], T[2]
    low, high = _range(b, len(first) - 1)
    low_next, high_next = _range(b_next, len(first) - 1)
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


# --- the recursions -------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _live(block: int, first: Any) -> tuple[int, int]:
    """First state and number of states alive under a token of this block."""
    if block < 0:
        return 0, first[-1]
    return first[block], first[block + 1] - first[block]


@njit(cache=True, nogil=True, fastmath=FAST)
def _condition(pred: Any, emission: Any, start: int, missing: bool, out: Any) -> float:
    """out = pred ∘ emission, scaled to sum to one; the sum before scaling. A sum of zero leaves zeros."""
    total = 0.0
    for x in range(len(out)):
        v = pred[x] * emission[start + (0 if missing else x)]
        out[x] = v
        total += v
    if total > 0:
        scale = np.float32(1 / total)
        for x in range(len(out)):
            out[x] *= scale
    return total


@njit(cache=True, nogil=True)
def _forward(ids: Any, bounds: Any, B: Any, T: Any, initial: Any, emission: Any, at: Any, filt: Any, norm: Any) -> None:
    """Filtered distributions and normalisers p(x_t | x_<t) of the tokens bounds[s] .. bounds[s + 1] - 1 for each s.

    The live states of token t are filt[at[t] : at[t + 1]]. After a word of probability zero the chain goes on from
    what was predicted, so that the rest of the sequence still has its numbers.
    """
    word_block, first, starts = B
    pred = np.empty(first[-1], dtype=np.float32)
    for s in range(len(bounds) - 1):
        for t in range(bounds[s], bounds[s + 1]):
            b = word_block[ids[t]]
            low, k = _live(b, first)
            if t == bounds[s]:
                pred[:k] = initial[low : low + k]
            else:
                _push(T, word_block[ids[t - 1]], b, filt[at[t - 1] : at[t]], pred)
            now = filt[at[t] : at[t + 1]]
            norm[t] = _condition(pred, emission, starts[ids[t]], b < 0, now)
            if norm[t] <= 0:
                total = pred[:k].sum()
                if total > 0:
                    now[:] = pred[:k] / total
                else:
                    now[:] = np.float32(1 / k)


@njit(cache=True, nogil=True, fastmath=FAST)
def _ahead(beta: Any, emission: Any, start: int, missing: bool, out: Any) -> None:
    """out ∝ emission ∘ β: what a token and all after it say of its states, the largest entry one.

    The usual scale 1/p(x_t | x_<t) lets entries grow without bound where the text surprises; this one never overflows.
    """
    largest = np.float32(0)
    for x in range(len(beta)):
        v = beta[x] * emission[start + (0 if missing else x)]
        out[x] = v
        largest = max(largest, v)
    if largest > 0:
        scale = np.float32(1) / largest
        for x in range(len(beta)):
            out[x] *= scale


@njit(cache=True, nogil=True)
def _backward(
    ids: Any,
    bounds: Any,
    B: Any,
    T: Any,
    emission: Any,
    at: Any,
    filt: Any,
    weights: Any,
    n_emission: Any,
    n_initial: Any,
) -> None:
    """Turn `filt` into smoothed distributions in place; unless `weights` is empty, add up what the M-step needs."""
    word_block, first, starts = B
    count = len(weights) > 0
    beta = np.empty(first[-1], dtype=np.float32)
    ahead = np.empty(first[-1], dtype=np.float32)
    for s in range(len(bounds) - 1):
        for t in range(bounds[s + 1] - 1, bounds[s] - 1, -1):
            b = word_block[ids[t]]
            low, k = _live(b, first)
            now = filt[at[t] : at[t + 1]]
            last = t == bounds[s + 1] - 1
            if last:
                beta[:k] = 1
            else:
                word = ids[t + 1]
                b_next = word_block[word]
                _ahead(beta[: at[t + 2] - at[t + 1]], emission, starts[word], b_next < 0, ahead)
                _pull(T, b, b_next, ahead, beta)
            total = 0.0
            for x in range(k):
                total += now[x] * beta[x]
            if total > 0:
                if count and not last:
                    _count_pairs(T, b, b_next, now, ahead, 1 / total, weights)
                scale = np.float32(1 / total)
                for x in range(k):
                    now[x] *= beta[x] * scale
            if count:
                for x in range(k):
                    n_emission[starts[ids[t]] + (0 if b < 0 else x)] += now[x]
                if t == bounds[s]:
                    for x in range(k):
                        n_initial[low + x] += now[x]


# --- what others call -----------------------------------------------------------------------------------


def word_probabilities(blocks: Blocks, states: NDArray[Any], emission: Floats) -> NDArray[np.float64]:
    """(V,) p(word) from a distribution over all states."""
    states, out = np.asarray(states, dtype=np.float64), np.empty(len(blocks.word_block))
    _word_probabilities(blocks, states, states.sum(), emission, out)
    return out


@njit(cache=True, nogil=True)
def _word_probabilities(B: Any, states: Any, total: float, emission: Any, out: Any) -> None:
    """Equivalent to `out[:] = states @ dense_emission`."""
    for w in range(len(out)):
        b, e = B.word_block[w], B.starts[w]
        if b < 0:
            out[w] = total * emission[e]
        else:
            p = 0.0
            for x in range(B.first[b + 1] - B.first[b]):
                p += states[B.first[b] + x] * emission[e + x]
            out[w] = p


class BlockPosterior(NamedTuple):
    """Distributions over the live states of each token: token t has values[at[t] : at[t + 1]]."""

    log_probabilities: NDArray[np.float64]  # (T,) log p(x_t | x_<t); -inf for a word of probability zero
    at: Ints  # (T + 1,)
    values: Floats


def project_live(posterior: BlockPosterior, low: Ints, table: Floats) -> Floats:
    """(T, d) each token's distribution times the rows of a (Z, d) table; `low` is the first live state of each."""
    out = np.zeros((len(low), table.shape[1]), dtype=np.float32)
    _project_live(posterior.at, posterior.values, low, np.ascontiguousarray(table, dtype=np.float32), out)
    return out


def spread_live(posterior: BlockPosterior, low: Ints, n_states: int) -> Floats:
    """(T, Z) each token's distribution, zero for states that are not alive."""
    out = np.zeros((len(low), n_states), dtype=np.float32)
    _spread_live(posterior.at, posterior.values, low, out)
    return out


def best_live(posterior: BlockPosterior, low: Ints) -> NDArray[np.int64]:
    """(T,) each token's most probable state, the first of equals."""
    out = np.empty(len(low), dtype=np.int64)
    _best_live(posterior.at, posterior.values, low, out)
    return out


@njit(cache=True, nogil=True, fastmath={"contract"})
def _project_live(at: Any, values: Any, low: Any, table: Any, out: Any) -> None:
    """Equivalent to `out[t] = values[at[t] : at[t + 1]] @ table[low[t] : low[t] + k]`: a token's row is the same in
    any company, which a matrix product of many tokens does not promise."""
    for t in range(len(low)):
        row = out[t]
        for x in range(at[t + 1] - at[t]):
            p, line = values[at[t] + x], table[low[t] + x]
            if p > 0:
                for d in range(len(row)):
                    row[d] += p * line[d]


@njit(cache=True, nogil=True)
def _spread_live(at: Any, values: Any, low: Any, out: Any) -> None:
    for t in range(len(low)):
        out[t, low[t] : low[t] + at[t + 1] - at[t]] = values[at[t] : at[t + 1]]


@njit(cache=True, nogil=True)
def _best_live(at: Any, values: Any, low: Any, out: Any) -> None:
    for t in range(len(low)):
        out[t] = low[t] + np.argmax(values[at[t] : at[t + 1]])


class BlockStats(NamedTuple):
    """Expected counts of a text; additive."""

    log_likelihood: float
    n_tokens: int
    pairs: NDArray[np.float64]  # as PairSparse.data
    emission: NDArray[np.float64]  # as the emissions
    initial: NDArray[np.float64]  # (Z,)

    def __add__(self, other: BlockStats) -> BlockStats:  # type: ignore[override]
        return BlockStats(*(a + b for a, b in zip(self, other, strict=True)))  # type: ignore[operator]

    def __sub__(self, other: BlockStats) -> BlockStats:
        return BlockStats(*(a - b for a, b in zip(self, other, strict=True)))  # type: ignore[operator]


def live_offsets(blocks: Blocks, ids: NDArray[Any]) -> Ints:
    """Where the live states of each token begin when they are laid out one token after the other."""
    block = blocks.word_block[ids]
    return offsets(np.where(block >= 0, blocks.sizes[block], blocks.n_states))


def live_firsts(blocks: Blocks, ids: NDArray[Any]) -> Ints:
    """The first live state of each token."""
    block = blocks.word_block[ids]
    return np.where(block >= 0, blocks.first[block], 0).astype(np.int64)


def filter_blocks(
    ids: NDArray[Any], bounds: Ints, blocks: Blocks, T: PairSparse, initial: Floats, emission: Floats
) -> BlockPosterior:
    """Filtered distributions p(z_t | x_≤t); `bounds` are the edges of independent sequences."""
    ids, bounds = _tokens(ids), np.asarray(bounds, dtype=np.int64)
    at = live_offsets(blocks, ids)
    values, norm = np.empty(at[-1], dtype=np.float32), np.empty(len(ids))
    _forward(ids, bounds, blocks, T, initial, emission, at, values, norm)
    return BlockPosterior(_log(norm), at, values)


def smooth_blocks(
    ids: NDArray[Any], bounds: Ints, blocks: Blocks, T: PairSparse, initial: Floats, emission: Floats
) -> BlockPosterior:
    """Smoothed distributions p(z_t | x)."""
    posterior = filter_blocks(ids, bounds, blocks, T, initial, emission)
    none = np.empty(0)
    bounds = np.asarray(bounds, dtype=np.int64)
    _backward(_tokens(ids), bounds, blocks, T, emission, posterior.at, posterior.values, none, none, none)
    return posterior


def block_statistics(
    ids: NDArray[Any], bounds: Ints, blocks: Blocks, T: PairSparse, initial: Floats, emission: Floats
) -> BlockStats:
    """The E-step: expected counts of transitions within the pairs seen, emissions and starts."""
    ids, bounds = _tokens(ids), np.asarray(bounds, dtype=np.int64)
    posterior = filter_blocks(ids, bounds, blocks, T, initial, emission)
    pairs, n_emission, n_initial = np.zeros(len(T.data)), np.zeros(len(emission)), np.zeros(blocks.n_states)
    _backward(ids, bounds, blocks, T, emission, posterior.at, posterior.values, pairs, n_emission, n_initial)
    pairs *= T.data
    return BlockStats(float(posterior.log_probabilities.sum()), len(ids), pairs, n_emission, n_initial)


def _tokens(ids: NDArray[Any]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(ids, dtype=np.uint32)


def _log(norm: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return np.log(norm)
