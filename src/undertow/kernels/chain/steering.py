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
from undertow.kernels.types import F32, I64

Array = NDArray[Any]
TILE = 256  # words at most whose sums are kept in the first cache
FLAT = 1e-5  # look-ahead that differs less between states says nothing about the next token


class Tiles(NamedTuple):
    """Emissions again, in tiles of words that the same states can emit, state by state: loops over words are dense.

    Words that all states emit alike are in no tile: they say nothing about the state.
    """

    words: I64  # those of the first tile, of the second, …
    bounds: I64  # (n + 1,) where the words of each tile begin
    low: I64  # (n,) first state of each tile
    starts: I64  # (n + 1,) where its emissions begin: (states, words)
    emission: F32


class Ahead(NamedTuple):
    """Look-ahead with some tokens to come: automaton state q has β rows[row_of[q]] · exp(log_scale[row_of[q]])."""

    row_of: I64  # (Q,); −1: no text from there is accepted
    rows: F32  # (S, Z), the largest of each about 1
    log_scale: Array  # (S,)


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
    bounds = np.append(begins, len(words)).astype(np.int64)
    block = of[words[begins]]
    sizes = np.where(block < 0, blocks.n_states, blocks.sizes[block])
    low = np.where(block < 0, 0, blocks.first[block]).astype(np.int64)
    starts = offsets(sizes * np.diff(bounds))
    out = np.empty(int(starts[-1]), dtype=np.float32)
    _lay_out(blocks.starts, emission, words, bounds, starts, out)
    return Tiles(words, bounds, low, starts, out)


@njit(cache=True, nogil=True)
def _lay_out(first: Any, emission: Any, words: Any, bounds: Any, starts: Any, out: Any) -> None:
    for t in range(len(bounds) - 1):
        m = bounds[t + 1] - bounds[t]
        k = (starts[t + 1] - starts[t]) // m
        for j in range(m):
            e = first[words[bounds[t] + j]]
            for x in range(k):
                out[starts[t] + x * m + j] = emission[e + x]


class Scratch:
    """Memory for the worth of all words, kept from token to token: fresh pages cost more than the sums."""

    def __init__(self) -> None:
        self.worth, self.with_ahead = np.empty((0, 0), dtype=np.float32), np.empty((0, 0), dtype=np.float32)

    def of(self, n: int, n_words: int, n_states: int) -> tuple[F32, F32]:
        if len(self.worth) < n:
            self.worth = np.empty((n, n_words), dtype=np.float32)
            self.with_ahead = np.empty((n, n_states), dtype=np.float32)
        return self.worth[:n], self.with_ahead[:n]


def worth(
    chain: tuple[Blocks, F32, Tiles],
    asked: Asked,
    ahead: Ahead,
    predicted: F32,
    states: I64,
    texts: I64,
    scratch: Scratch,
) -> tuple[I64, F32, NDArray[np.bool_]]:
    """Those of some texts to which the next word matters, the worth (n, V) of words there, and where all is zero.

    The chain has its emission twice, by words and in tiles. predicted (N, Z) is the distribution of its next state,
    states (N,) are the automaton's. The worth of each row is up to a factor, and overwritten by the next call. A word
    that no live state emits says nothing about the state.
    """
    bound, factor = np.empty(len(texts), np.int64), np.empty((len(texts), asked.step.shape[1]), np.float32)
    n = _bound(ahead, asked.step, states, texts, factor, bound)
    out, with_ahead = scratch.of(n, len(asked.classes), predicted.shape[1])
    nothing = np.empty(n, dtype=np.bool_)
    if n:
        _worth(*chain, asked, ahead, predicted, states, bound, factor, with_ahead, out, nothing)
    return bound[:n], out, nothing


@njit(cache=True, nogil=True)
def _bound(ahead: Any, step: Any, states: Any, texts: Any, factor: Any, bound: Any) -> int:
    """Find the texts after which classes or states of words matter; factor[n, c] is β's of class c, the largest 1."""
    row_of, rows, log_scale = ahead
    flat = np.empty(len(rows), dtype=np.bool_)
    for s in range(len(rows)):
        low, high = rows[s, 0], rows[s, 0]
        for z in range(rows.shape[1]):
            low, high = min(low, rows[s, z]), max(high, rows[s, z])
        flat[s] = log_scale[s] > -np.inf and high - low <= FLAT * high
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
    bound: Any,
    factor: Any,
    with_ahead: Any,
    out: Any,
    nothing: Any,
) -> None:
    """Equivalent to the definition at the head of this module."""
    row_of, rows, _ = ahead
    for n in range(len(out)):
        s, p, pb = row_of[asked.step[states[bound[n]], 0]], predicted[bound[n]], with_ahead[n]
        a, b = np.float32(0), np.float32(0)
        if factor[n, 0] > 0:
            for z in range(len(p)):
                pb[z] = factor[n, 0] * p[z] * rows[s, z]
                a += pb[z]
                b += p[z]
        out[n, :] = a / b if factor[n, 0] > 0 else np.float32(0)  # of words that say nothing about the state
    _tiles(tiles, predicted, bound, factor, with_ahead, out)
    for n in range(len(out)):
        i = bound[n]
        for w in asked.named:
            c = asked.classes[w]
            s = row_of[asked.step[states[i], c]]
            out[n, w] = 0
            if factor[n, c] > 0:
                out[n, w] = factor[n, c] * _one(B, emission, w, predicted[i], rows[s])
        most = np.float32(0)
        for w in range(out.shape[1]):
            most = max(most, out[n, w])
        nothing[n] = not most > 0


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def _tiles(tiles: Any, predicted: Any, bound: Any, factor: Any, with_ahead: Any, out: Any) -> None:
    """Σ_z p(z) e_w(z) β(z) / Σ_z p(z) e_w(z) of the words that some live state emits; pβ is given as `with_ahead`."""
    words, bounds, first, starts, emission = tiles
    a, b = np.empty(TILE, dtype=np.float32), np.empty(TILE, dtype=np.float32)
    for t in range(len(bounds) - 1):
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
            for j in range(m):
                a[j] /= b[j]
            for j in range(m):
                if b[j] > 0:
                    out[n, words[bounds[t] + j]] = a[j]


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
def condition_all(B: Any, emission: Any, words: Any, predicted: Any, out: Any) -> None:
    """The distributions of the states of a token, zero where the word is not emitted: out[n] = p(z | word)."""
    values = np.empty(predicted.shape[1], dtype=np.float32)
    for n in range(len(words)):
        low, k = _condition(B, emission, words[n], predicted[n], values)
        out[n, :] = 0
        out[n, low : low + k] = values[:k]


@njit(cache=True, nogil=True, fastmath=FAST)
def features_after(B: Any, emission: Any, R: Any, words: Any, predicted: Any, out: Any) -> None:
    """Where the states go in a transition through features: out[n] = p(z | word) @ R."""
    values = np.empty(predicted.shape[1], dtype=np.float32)
    for n in range(len(words)):
        low, k = _condition(B, emission, words[n], predicted[n], values)
        row = out[n]
        row[:] = 0
        for x in range(k):
            v, from_x = values[x], R[low + x]
            for f in range(len(row)):
                row[f] += v * from_x[f]


@njit(cache=True, nogil=True)
def states_after(B: Any, emission: Any, T: Any, words: Any, predicted: Any, out: Any) -> None:
    """Where the states go in a transition by pairs of blocks: out[n] = p(z | word) @ T."""
    values = np.empty(predicted.shape[1], dtype=np.float32)
    for n in range(len(words)):
        _condition(B, emission, words[n], predicted[n], values)
        push_pairs(T, B.word_block[words[n]], -1, values, out[n])


__all__ = ["Ahead", "Asked", "Scratch", "Tiles", "condition_all", "features_after", "states_after", "tiles_of", "worth"]
