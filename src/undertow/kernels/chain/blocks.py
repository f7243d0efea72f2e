"""Words and states in blocks: which states can emit which words, and what follows from that for emissions.

Words are cut into G blocks and so are the states; state z emits a word only if the word is of z's block. A token then
leaves only the states of its block alive. A word of block -1 leaves all states alive. It has one number, the same for
every state, if it is a missing observation, or one for each state: evidence on words of several blocks.

States are numbered block by block: block b has the states first[b] .. first[b + 1] - 1. Emissions are kept for live
states only: word w has one number for each state of its block, from starts[w] on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
