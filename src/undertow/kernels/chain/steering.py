"""How much each next word is worth to a constraint: p(word and constraint) / p(word) for all words of a vocabulary.

With p(z) the predicted distribution of the next state and β(q', z) the look-ahead from the automaton's state q' after
the word (automaton.py), the worth of word w is Σ_z p(z) e_w(z) β(q', z) / Σ_z p(z) e_w(z). Most words lead to the same
q': they share one product of p and β. The words that a constraint names have their own.

All of it is done in one compiled call for each token, because it stands beside language models of which a token costs
a millisecond. A chain without blocks is one with a single block here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.block_operators import push_pairs
from undertow.kernels.chain.blocks import FAST, Blocks, emitted_alike, live_states, offsets
from undertow.kernels.fast_logs import exp32, log32
from undertow.kernels.types import F32, I64

Array = NDArray[Any]
TILE = 256  # words at most whose sums are kept in the first cache
LINE = 16  # float32 numbers in a cache line
SPREAD = 64  # states that the features of a text are spread over at a time: 128 features of them fill the first cache
LANES = 32  # numbers that are compared at a time
FLAT = 1e-5  # look-ahead that differs less between states says nothing about the next token


class Tiles(NamedTuple):
    """Emissions again, in tiles of words that the same states can emit, state by state: loops over words are dense.

    Each word has a *slot*: those of the first tile come first. Words that all states emit alike say nothing about the
    state; they are in no tile, and their slots are the last ones. Tiles are filled up with words of probability zero
    to whole cache lines, as loops that read across lines take twice as long.
    """

    slots: I64  # (V,)
    n_slots: int
    bounds: I64  # (n + 1,) where the slots of each tile begin; the last ones begin where the tiles end
    low: I64  # (n,) first state of each tile
    starts: I64  # (n + 1,) where its emissions begin: (states, slots)
    emission: F32


class Ahead(NamedTuple):
    """Look-ahead with some tokens to come: automaton state q has β rows[row_of[q]] · exp(log_scale[row_of[q]])."""

    row_of: I64  # (Q,); −1: no text from there is accepted
    rows: F32  # (S, Z), the largest of each about 1
    log_scale: Array  # (S,)
    flat: NDArray[np.bool_]  # (S,) whether a row is the same for all states, and so says nothing about the next token

    @classmethod
    def of(cls, row_of: I64, rows: Array, log_scale: Array) -> Ahead:
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        high = rows.max(axis=1)
        flat = (log_scale > -np.inf) & (high - rows.min(axis=1) <= FLAT * high)
        return cls(row_of, rows, log_scale, flat)


class Asked(NamedTuple):
    """What a constraint asks of words: their classes, and the automaton that reads those."""

    classes: I64  # (V,)
    named: I64  # the words whose class is not 0
    step: I64  # (Q, C)


def tiles_of(blocks: Blocks, emission: F32) -> Tiles:
    """Cut the words of each block, and those that all states emit differently, into tiles."""
    of = blocks.word_block.astype(np.int64)
    alike = (of < 0) & (np.diff(blocks.starts) == 1)
    words = np.flatnonzero(~alike)
    words = words[np.argsort(of[words], kind="stable")]
    new = np.flatnonzero(np.diff(of[words], prepend=-2))  # where the words of another block begin
    within = np.arange(len(words)) - np.repeat(new, np.diff(np.append(new, len(words))))
    begins = np.flatnonzero(within % TILE == 0)
    n_words = np.diff(np.append(begins, len(words)))
    bounds = offsets(-(-n_words // LINE) * LINE)
    n_slots = int(bounds[-1]) + int(alike.sum())
    slots = np.empty(len(of), dtype=np.int64)
    slots[words] = np.repeat(bounds[:-1] - begins, n_words) + np.arange(len(words))
    slots[alike] = np.arange(bounds[-1], n_slots)
    block = of[words[begins]]
    sizes = np.where(block < 0, blocks.n_states, blocks.sizes[block])
    low = np.where(block < 0, 0, blocks.first[block]).astype(np.int64)
    starts = offsets(sizes * np.diff(bounds))
    out = aligned(1, int(starts[-1]))[0]
    out[:] = 0
    _lay_out(blocks.starts, emission, words, slots, np.repeat(np.arange(len(begins)), n_words), bounds, starts, out)
    return Tiles(slots, n_slots, bounds, low, starts, out)


@njit(cache=True, nogil=True)
def _lay_out(first: Any, emission: Any, words: Any, slots: Any, tiles: Any, bounds: Any, starts: Any, out: Any) -> None:
    for i in range(len(words)):
        w, t = words[i], tiles[i]
        m = bounds[t + 1] - bounds[t]
        k = (starts[t + 1] - starts[t]) // m
        at = starts[t] + slots[w] - bounds[t]
        for x in range(k):
            out[at + x * m] = emission[first[w] + x]


def aligned(n: int, width: int) -> F32:
    """(n, width) numbers, each row of which begins with a cache line."""
    whole = -(-width // LINE) * LINE
    raw = np.empty(n * whole + LINE, dtype=np.float32)
    skipped = -raw.ctypes.data % (4 * LINE) // 4
    return raw[skipped : skipped + n * whole].reshape(n, whole)[:, :width]


class Scratch:
    """Memory for the worth of all words, kept from token to token: fresh pages cost more than the sums."""

    def __init__(self) -> None:
        self.n = 0
        self.sums = aligned(2, TILE)

    def reserve(self, n: int, n_slots: int, n_states: int, n_classes: int) -> None:
        """Have room for n texts."""
        if self.n < n:
            self.n, self.worth = n, aligned(n, n_slots)
            self.with_ahead = np.empty((n, n_states), dtype=np.float32)
            self.factor = np.empty((n, n_classes), dtype=np.float32)
            self.bound, self.nothing = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.bool_)


def worth(
    chain: tuple[Blocks, F32, Tiles],
    asked: Asked,
    ahead: Ahead,
    predicted: F32,
    states: I64,
    texts: I64,
    scratch: Scratch,
) -> tuple[I64, F32, NDArray[np.bool_]]:
    """Those of some texts to which the next word matters, the worth of words there, and where all is zero.

    The chain has its emission twice, by words and in tiles; the worth (n, n_slots) of each text is in the order of
    their slots, up to a factor, and overwritten by the next call. predicted (N, Z) is the distribution of its next
    state, states (N,) are the automaton's. A word that no live state emits says nothing about the state.
    """
    scratch.reserve(len(texts), chain[2].n_slots, predicted.shape[1], asked.step.shape[1])
    bound, out, nothing = scratch.bound, scratch.worth, scratch.nothing
    room = bound, scratch.factor, scratch.with_ahead, scratch.sums
    n = _worth(*chain, asked, ahead, predicted, states, texts, *room, out, nothing)
    return bound[:n], out[:n], nothing[:n]


@njit(cache=True, nogil=True)
def _bound(ahead: Any, step: Any, states: Any, texts: Any, factor: Any, bound: Any) -> int:
    """Find the texts after which classes or states of words matter; factor[n, c] is β's of class c, the largest 1."""
    row_of, flat, log_scale = ahead.row_of, ahead.flat, ahead.log_scale
    n = 0
    for i in texts:
        after = step[states[i]]
        least, largest, free = np.inf, -np.inf, True
        for c in range(len(after)):
            s = row_of[after[c]]
            scale = log_scale[s] if s >= 0 else -np.inf
            free = free and s >= 0 and flat[s]
            least, largest = min(least, scale), max(largest, scale)
        if free and largest - least <= FLAT:  # of rows that each have 1 as their largest number, or all are 1
            continue
        for c in range(len(after)):
            s = row_of[after[c]]
            factor[n, c] = np.exp(log_scale[s] - largest) if s >= 0 and log_scale[s] > -np.inf else 0.0
        bound[n] = i
        n += 1
    return n


@njit(cache=True, nogil=True, fastmath=FAST)
def _worth(
    B: Any,
    emission: Any,
    tiles: Any,
    asked: Any,
    ahead: Any,
    predicted: Any,
    states: Any,
    texts: Any,
    bound: Any,
    factor: Any,
    with_ahead: Any,
    sums: Any,
    room: Any,
    nothing: Any,
) -> int:
    """Equivalent to the definition at the head of this module; the number of texts to which the next word matters."""
    row_of, rows = ahead.row_of, ahead.rows
    out = room[: _bound(ahead, asked.step, states, texts, factor, bound)]
    free = np.zeros(len(out), dtype=np.float32)  # the worth of words that say nothing about the state
    for n in range(len(out)):
        s, p, pb = row_of[asked.step[states[bound[n]], 0]], predicted[bound[n]], with_ahead[n]
        a, b = np.float32(0), np.float32(0)
        if factor[n, 0] > 0:
            for z in range(len(p)):
                pb[z] = factor[n, 0] * p[z] * rows[s, z]
                a += pb[z]
                b += p[z]
            free[n] = a / b
            out[n, tiles.bounds[-1] :] = free[n]
        else:
            out[n, :] = 0
    _tiles(tiles, predicted, bound, factor, with_ahead, free, sums, out)
    for n in range(len(out)):
        i = bound[n]
        for w in asked.named:
            c = asked.classes[w]
            s = row_of[asked.step[states[i], c]]
            out[n, tiles.slots[w]] = 0
            if factor[n, c] > 0:
                out[n, tiles.slots[w]] = factor[n, c] * _one(B, emission, w, predicted[i], rows[s])
        nothing[n] = True
        for x in out[n]:
            if x > 0:
                nothing[n] = False
                break
    return len(out)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _tiles(
    tiles: Any, predicted: Any, bound: Any, factor: Any, with_ahead: Any, free: Any, sums: Any, out: Any
) -> None:
    """Σ_z p(z) e_w(z) β(z) / Σ_z p(z) e_w(z), `free` of words that no live state emits; pβ is given as `with_ahead`."""
    bounds, first, starts, emission = tiles.bounds, tiles.low, tiles.starts, tiles.emission
    a, b = sums[0], sums[1]
    for t in range(len(first)):
        m, low = bounds[t + 1] - bounds[t], first[t]
        k = (starts[t + 1] - starts[t]) // m
        for n in range(len(out)):
            if not factor[n, 0] > 0:
                continue
            p, pb = predicted[bound[n]], with_ahead[n]
            a[:m], b[:m] = 0, 0
            x, e = low, starts[t]
            while x + 4 <= low + k:  # four states at a time: the sums are read and written once for four
                p0, p1, p2, p3 = p[x], p[x + 1], p[x + 2], p[x + 3]
                q0, q1, q2, q3 = pb[x], pb[x + 1], pb[x + 2], pb[x + 3]
                e0, e1 = emission[e : e + m], emission[e + m : e + 2 * m]
                e2, e3 = emission[e + 2 * m : e + 3 * m], emission[e + 3 * m : e + 4 * m]
                for j in range(m):
                    a[j] += e0[j] * q0 + e1[j] * q1 + e2[j] * q2 + e3[j] * q3
                    b[j] += e0[j] * p0 + e1[j] * p1 + e2[j] * p2 + e3[j] * p3
                x += 4
                e += 4 * m
            while x < low + k:
                p0, q0, e0 = p[x], pb[x], emission[e : e + m]
                for j in range(m):
                    a[j] += e0[j] * q0
                    b[j] += e0[j] * p0
                x += 1
                e += m
            row, otherwise = out[n, bounds[t] : bounds[t + 1]], free[n]
            for j in range(m):
                row[j] = a[j] / b[j] if b[j] > 0 else otherwise


@njit(cache=True, nogil=True, fastmath=FAST)
def _one(B: Any, emission: Any, w: int, p: Any, beta: Any) -> Any:
    """The worth of one word that leads to look-ahead β."""
    e, (low, k) = B.starts[w], live_states(B.word_block[w], B.first)
    alike = B.word_block[w] < 0 and emitted_alike(B.starts, w)
    a, b = np.float32(0), np.float32(0)
    if not alike:
        for x in range(k):
            a += emission[e + x] * p[low + x] * beta[low + x]
            b += emission[e + x] * p[low + x]
    if not b > 0:  # it says nothing about the state
        for z in range(len(p)):
            a += p[z] * beta[z]
            b += p[z]
    return a / b


# --- the scores of a language model ----------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=FAST)
def reweigh(scores: Any, texts: Any, values: Any, slots: Any, out: Any) -> int:
    """Multiply the probabilities of a language model by the worth of the words, and normalize them.

    Equivalent to `log_softmax(scores + log(values[:, slots]))` in the rows `texts` of scores (N, tokens), and to
    `log_softmax(scores)` in the others; slots (tokens,) are those of the words. The first row in which no token is
    possible is returned, or −1.
    """
    place = np.full(len(scores), -1)
    for n in range(len(texts)):
        place[texts[n]] = n
    V = scores.shape[1]
    for i in range(len(scores)):  # short loops: LLVM vectorizes each of them
        row, to = scores[i], out[i]
        if place[i] < 0:
            for v in range(V):
                to[v] = row[v]
        else:
            worth_of = values[place[i]]
            for v in range(V):
                to[v] = worth_of[slots[v]]
            for v in range(V):
                to[v] = row[v] + log32(to[v])
        most = _largest(to)
        if not most > -np.inf:
            return i
        total = np.float32(0)
        for v in range(V):
            total += exp32(to[v] - most)
        most += np.float32(np.log(total))
        for v in range(V):
            to[v] -= most
    return -1


@njit(cache=True, nogil=True)
def _largest(row: Any) -> Any:
    """Equivalent to `row.max()`; the numbers of each column of LANES are compared first, many columns at a time."""
    lanes = np.full(LANES, np.float32(-np.inf), dtype=np.float32)
    n = len(row) // LANES
    for k in range(n):
        part = row[k * LANES : (k + 1) * LANES]
        for j in range(LANES):
            lanes[j] = part[j] if part[j] > lanes[j] else lanes[j]
    most = np.float32(-np.inf)
    for x in lanes:
        most = max(most, x)
    for v in range(n * LANES, len(row)):
        most = max(most, row[v])
    return most


# --- one more word --------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, fastmath=FAST)
def _condition(B: Any, emission: Any, word: int, p: Any, out: Any) -> tuple[int, int]:
    """out = the distribution over the states that can emit a word, p if none can; first such state and their number."""
    e, (low, k) = B.starts[word], live_states(B.word_block[word], B.first)
    alike = B.word_block[word] < 0 and emitted_alike(B.starts, word)
    total, before = np.float32(0), np.float32(0)
    for x in range(k):
        out[x] = p[low + x] * (np.float32(1) if alike else emission[e + x])
        total += out[x]
        before += p[low + x]
    if not total > 0:
        for x in range(k):
            out[x] = p[low + x] if before > 0 else np.float32(1)
        total = before if before > 0 else np.float32(k)
    for x in range(k):
        out[x] /= total
    return low, k


@njit(cache=True, nogil=True)
def condition_all(B: Any, emission: Any, words: Any, predicted: Any, texts: Any, out: Any) -> None:
    """The distributions of the states of a token in some texts, zero where the word is not emitted: p(z | word)."""
    values = np.empty(predicted.shape[1], dtype=np.float32)
    for n in texts:
        low, k = _condition(B, emission, words[n], predicted[n], values)
        out[n, :] = 0
        out[n, low : low + k] = values[:k]


class Features(NamedTuple):
    """A transition through features, T = R·E, with E cut into chunks of SPREAD states: chunk, feature, state."""

    R: F32  # (Z, F)
    chunks: F32  # (n, F, SPREAD); the features are filled up to a multiple of four, the states with zeros


def features_of(R: F32, ET: F32) -> Features:
    """Lay out a transition from its two factors (Z, F)."""
    Z, F = ET.shape
    n, whole = -(-Z // SPREAD), -(-F // 4) * 4
    chunks = aligned(n * whole, SPREAD).reshape(n, whole, SPREAD)
    chunks[:] = 0
    for c in range(n):
        some = ET[c * SPREAD : (c + 1) * SPREAD]
        chunks[c, :F, : len(some)] = some.T
    return Features(R, chunks)


@njit(cache=True, nogil=True, fastmath=FAST)
def features_after(B: Any, emission: Any, T: Any, words: Any, predicted: Any, texts: Any, sums: Any, out: Any) -> None:
    """Where the states of some texts go in a transition through features: out[n] = p(z | word) @ R @ E."""
    Z = predicted.shape[1]
    values = np.empty(Z, dtype=np.float32)
    features = np.zeros((len(texts), T.chunks.shape[1]), dtype=np.float32)
    for i in range(len(texts)):
        low, k = _condition(B, emission, words[texts[i]], predicted[texts[i]], values)
        row = features[i, : T.R.shape[1]]
        for x in range(k):
            v, from_x = values[x], T.R[low + x]
            for f in range(len(row)):
                row[f] += v * from_x[f]
    some = sums[0, :SPREAD]
    for c in range(len(T.chunks)):
        low, high = c * SPREAD, min((c + 1) * SPREAD, Z)
        for i in range(len(texts)):
            some[:] = 0
            for f in range(0, T.chunks.shape[1], 4):
                f0, f1, f2, f3 = features[i, f], features[i, f + 1], features[i, f + 2], features[i, f + 3]
                e0, e1, e2, e3 = T.chunks[c, f], T.chunks[c, f + 1], T.chunks[c, f + 2], T.chunks[c, f + 3]
                for j in range(SPREAD):
                    some[j] += e0[j] * f0 + e1[j] * f1 + e2[j] * f2 + e3[j] * f3
            to = out[texts[i], low:high]
            for j in range(high - low):
                to[j] = some[j]


@njit(cache=True, nogil=True)
def states_after(B: Any, emission: Any, T: Any, words: Any, predicted: Any, texts: Any, out: Any) -> None:
    """Where the states of some texts go in a transition by pairs of blocks: out[n] = p(z | word) @ T."""
    values = np.empty(predicted.shape[1], dtype=np.float32)
    for n in texts:
        _condition(B, emission, words[n], predicted[n], values)
        push_pairs(T, B.word_block[words[n]], -1, values, out[n])


__all__ = [
    "Ahead",
    "Asked",
    "Features",
    "Scratch",
    "Tiles",
    "aligned",
    "condition_all",
    "features_after",
    "features_of",
    "reweigh",
    "states_after",
    "tiles_of",
    "worth",
]
