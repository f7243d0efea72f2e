"""How much each next word is worth to a constraint: p(word and constraint) / p(word) for all words of a vocabulary.

With p(z) the predicted distribution of the next state and β(q', z) the look-ahead from the automaton's state q' after
the word (automaton.py), the worth of word w is Σ_z p(z) e_w(z) β(q', z) / Σ_z p(z) e_w(z). Most words lead to the same
q': they share one product of p and β. The words that a constraint names have their own.

All of it is done in one compiled call for each token, because it stands beside language models of which a token costs
a millisecond (steering_call.py hands it its arrays by their addresses). A chain without blocks is one with a single
block here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.block_operators import push_pairs
from undertow.kernels.chain.blocks import FAST, Blocks, emitted_alike, live_states, offsets
from undertow.kernels.fast_logs import exp32, log32
from undertow.kernels.strips import SCALE, WIDTH, Strips, multiply, shortened
from undertow.kernels.types import F32, I32, I64

Array = NDArray[Any]
TOGETHER = 8  # texts whose sums are kept in the second cache
LANES = 32  # numbers that are compared at a time
FLAT = 1e-5  # look-ahead that differs less between states says nothing about the next token


class Tiles(NamedTuple):
    """Emissions again, in strips of words that the same states can emit, each word's up to a factor.

    Each word has a *slot*: those of the first strip come first. Words that all states emit alike say nothing about the
    state; they are in no strip, and their slots are the last ones. Strips are filled up with words of probability zero.
    """

    slots: I32  # (V,)
    n_slots: int
    strips: Strips  # (Z, slots but the last ones)


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
    """Cut the words of each block, and those that all states emit differently, into strips."""
    of = blocks.word_block.astype(np.int64)
    alike = (of < 0) & (np.diff(blocks.starts) == 1)
    words = np.flatnonzero(~alike)
    words = words[np.argsort(of[words], kind="stable")]
    new = np.flatnonzero(np.diff(of[words], prepend=-2))  # where the words of another block begin
    within = np.arange(len(words)) - np.repeat(new, np.diff(np.append(new, len(words))))
    begins = np.flatnonzero(within % WIDTH == 0)
    strip = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(words))))
    slots = np.empty(len(of), dtype=np.int32)
    slots[words] = strip * WIDTH + within % WIDTH
    slots[alike] = len(begins) * WIDTH + np.arange(alike.sum())
    block = of[words[begins]]
    sizes = np.where(block < 0, blocks.n_states, blocks.sizes[block])
    low = np.where(block < 0, 0, blocks.first[block]).astype(np.int64)
    starts = offsets(sizes * WIDTH)
    laid = np.zeros(int(starts[-1]), dtype=np.float32)
    _lay_out(blocks.starts, emission, words, slots, starts, laid)
    return Tiles(slots, len(begins) * WIDTH + int(alike.sum()), Strips(low, starts, shortened(laid)))


@njit(cache=True, nogil=True)
def _lay_out(first: Any, emission: Any, words: Any, slots: Any, starts: Any, out: Any) -> None:
    """Put the emissions of each word, divided by the largest of them, into its column."""
    for w in words:
        t = slots[w] // WIDTH
        at, k = starts[t] + slots[w] % WIDTH, (starts[t + 1] - starts[t]) // WIDTH
        most = np.float32(0)
        for x in range(k):
            most = max(most, emission[first[w] + x])
        for x in range(k):
            out[at + x * WIDTH] = emission[first[w] + x] / most if most > 0 else np.float32(0)


class Room(NamedTuple):
    """Memory for the worth of all words in n texts."""

    worth: F32  # (n, slots)
    factor: F32  # (n, C)
    bound: I64  # (n,)
    nothing: NDArray[np.bool_]  # (n,)
    left: F32  # (2·TOGETHER, Z) p and pβ
    sums: F32  # (2·TOGETHER, slots)


class Scratch:
    """Room that is kept from token to token: fresh pages cost more than the sums."""

    def __init__(self) -> None:
        self.room: Room | None = None

    def reserved(self, n: int, n_slots: int, n_states: int, n_classes: int) -> Room:
        """Room for n texts."""
        if self.room is None or len(self.room.bound) < n:
            both = 2 * min(n, TOGETHER)
            shapes = (n, n_slots), (n, n_classes), (both, n_states), (both, n_slots)
            worth, factor, left, sums = (np.empty(shape, dtype=np.float32) for shape in shapes)
            self.room = Room(worth, factor, np.empty(n, dtype=np.int64), np.empty(n, dtype=np.bool_), left, sums)
        return self.room


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
    room = scratch.reserved(len(texts), chain[2].n_slots, predicted.shape[1], asked.step.shape[1])
    n = fill_worth(chain, asked, ahead, predicted, states, texts, room)
    return room.bound[:n], room.worth[:n], room.nothing[:n]


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
def fill_worth(chain: Any, asked: Any, ahead: Any, predicted: Any, states: Any, texts: Any, room: Any) -> int:
    """Equivalent to the definition at the head of this module; the number of texts to which the next word matters."""
    (B, emission, tiles), bound, factor, nothing = chain, room.bound, room.factor, room.nothing
    out = room.worth[: _bound(ahead, asked.step, states, texts, factor, bound)]
    for n in range(0, len(out), TOGETHER):
        _of_class_0(tiles, asked, ahead, predicted, states, room, out, n)
    for n in range(len(out)):
        i = bound[n]
        for w in asked.named:
            c = asked.classes[w]
            s = ahead.row_of[asked.step[states[i], c]]
            out[n, tiles.slots[w]] = 0
            if factor[n, c] > 0:
                out[n, tiles.slots[w]] = factor[n, c] * _one(B, emission, w, predicted[i], ahead.rows[s])
        nothing[n] = True
        for x in out[n]:
            if x > 0:
                nothing[n] = False
                break
    return len(out)


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _of_class_0(
    tiles: Any, asked: Any, ahead: Any, predicted: Any, states: Any, room: Any, out: Any, begin: int
) -> None:
    """Σ_z p(z) e_w(z) β(z) / Σ_z p(z) e_w(z) in the texts from `begin` on, as if no word were named.

    Words that no live state emits have Σ_z p(z) β(z) / Σ_z p(z).
    """
    end, n_rows = min(begin + TOGETHER, len(out)), 0
    bound, factor, left, sums = room.bound, room.factor, room.left, room.sums
    free = np.zeros(TOGETHER, dtype=np.float32)
    for n in range(begin, end):
        if not factor[n, 0] > 0:
            continue
        beta, p = ahead.rows[ahead.row_of[asked.step[states[bound[n]], 0]]], predicted[bound[n]]
        plain, with_ahead = left[n_rows], left[n_rows + 1]
        a, b = np.float32(0), np.float32(0)
        for z in range(len(p)):
            plain[z] = p[z] * SCALE
            with_ahead[z] = plain[z] * (factor[n, 0] * beta[z])
            a += with_ahead[z]
            b += plain[z]
        free[n - begin] = a / b
        n_rows += 2
    multiply(left, n_rows, tiles.strips, sums)
    row, in_strips = 0, len(tiles.strips.low) * WIDTH
    for n in range(begin, end):
        to, otherwise = out[n], free[n - begin]
        if not factor[n, 0] > 0:
            to[:] = 0
            continue
        plain, with_ahead = sums[row], sums[row + 1]
        for j in range(in_strips):
            to[j] = with_ahead[j] / plain[j] if plain[j] > 0 else otherwise
        to[in_strips:] = otherwise
        row += 2


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
    """A transition through features, T = R·E."""

    R: F32  # (Z, F)
    strips: Strips  # (F, Z): E, divided by its largest number
    largest: np.float32


def features_of(R: F32, ET: F32) -> Features:
    """Lay out a transition from its two factors (Z, F)."""
    Z, F = ET.shape
    n, largest = -(-Z // WIDTH), np.float32(ET.max())
    filled = np.zeros((n * WIDTH, F), dtype=np.float32)
    filled[:Z] = ET / largest
    laid = np.ascontiguousarray(filled.reshape(n, WIDTH, F).transpose(0, 2, 1))
    strips = Strips(np.zeros(n, dtype=np.int64), np.arange(n + 1) * (F * WIDTH), shortened(laid).ravel())
    return Features(R, strips, largest)


@njit(cache=True, nogil=True, fastmath=FAST)
def features_after(B: Any, emission: Any, T: Any, words: Any, predicted: Any, texts: Any, out: Any) -> None:
    """Where the states of some texts go in a transition through features: out[n] = p(z | word) @ R @ E."""
    Z, factor = predicted.shape[1], T.largest * SCALE
    values = np.empty(Z, dtype=np.float32)
    features = np.zeros((len(texts), T.R.shape[1]), dtype=np.float32)
    for i in range(len(texts)):
        low, k = _condition(B, emission, words[texts[i]], predicted[texts[i]], values)
        row = features[i]
        for x in range(k):
            v, from_x = values[x] * factor, T.R[low + x]
            for f in range(len(row)):
                row[f] += v * from_x[f]
    sums = np.empty((len(texts), len(T.strips.low) * WIDTH), dtype=np.float32)
    multiply(features, len(texts), T.strips, sums)
    for i in range(len(texts)):
        out[texts[i]] = sums[i, :Z]


@njit(cache=True, nogil=True)
def states_after(B: Any, emission: Any, T: Any, words: Any, predicted: Any, texts: Any, out: Any) -> None:
    """Where the states of some texts go in a transition by pairs of blocks: out[n] = p(z | word) @ T."""
    values = np.empty(predicted.shape[1], dtype=np.float32)
    for n in texts:
        _condition(B, emission, words[n], predicted[n], values)
        push_pairs(T, B.word_block[words[n]], -1, values, out[n])


# --- all of it ------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def step(
    chain: Any,
    T: Any,
    asked: Any,
    settled: Any,
    ahead: Any,
    words: Any,
    predicted: Any,
    states: Any,
    scores: Any,
    slots: Any,
    room: Any,
    predicted_next: Any,
    states_next: Any,
    out: Any,
) -> int:
    """One more word of each text, then the scores of the next one, in a transition through features.

    Equivalent to `features_after`, `worth` and `reweigh` one after the other. The first row in which no token is
    possible is returned, or −1; −2 if for some text the worth of all words is zero.
    """
    B, emission, _ = chain
    n = 0
    texts = np.empty(len(words), dtype=np.int64)
    for i in range(len(words)):
        states_next[i] = asked.step[states[i], asked.classes[words[i]]]
        if settled[states_next[i]]:
            predicted_next[i] = predicted[i]
        else:
            texts[n] = i
            n += 1
    if n == 0:
        return reweigh(scores, texts[:0], room.worth[:0], slots, out)
    features_after(B, emission, T, words, predicted, texts[:n], predicted_next)
    n = fill_worth(chain, asked, ahead, predicted_next, states_next, texts[:n], room)
    if room.nothing[:n].any():
        return -2
    return reweigh(scores, room.bound[:n], room.worth[:n], slots, out)


__all__ = [
    "Ahead",
    "Asked",
    "Features",
    "Room",
    "Scratch",
    "Tiles",
    "condition_all",
    "features_after",
    "features_of",
    "fill_worth",
    "reweigh",
    "states_after",
    "step",
    "tiles_of",
    "worth",
]
