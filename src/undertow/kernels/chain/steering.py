"""How much each next word is worth to a constraint: p(word and constraint) / p(word) for all words of a vocabulary.

With p(z) the predicted distribution of the next state and β(q', z) the look-ahead from the automaton's state q' after
the word (automaton.py), the worth of word w is Σ_z p(z) e_w(z) β(q', z) / Σ_z p(z) e_w(z). Most words lead to the same
q': they share one product of p and β. The words that a constraint names have their own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.blocks import FAST, Blocks, emitted_alike, live_states
from undertow.kernels.types import F32, I64

Array = NDArray[Any]


class Ahead(NamedTuple):
    """Look-ahead of n texts: text i with a word of class c has β rows[successor[i, c]] · factor[i, c]."""

    rows: Array  # (S, Z)
    successor: I64  # (n, C)
    factor: Array  # (n, C)

    def of_class(self, c: int) -> Array:
        """(n, Z) β after a word of one class."""
        return np.asarray(self.rows[self.successor[:, c]] * self.factor[:, c, None])


def worth_blocks(blocks: Blocks, emission: F32, predicted: Array, ahead: Ahead, named: I64, classes: I64) -> F32:
    """(n, V) for a chain with blocks; `named` are the words whose class is not 0.

    A word that no live state emits says nothing about the state.
    """
    n, V = len(predicted), len(blocks.word_block)
    predicted = np.ascontiguousarray(predicted, dtype=np.float32)
    both = np.concatenate([predicted * ahead.of_class(0), predicted])
    total = both.sum(axis=1)
    silent = np.asarray(total[:n] / total[n:], dtype=np.float32)
    out = np.empty((n, V), dtype=np.float32)
    _others(blocks, emission, both, total, silent, out)
    rows = np.asarray(ahead.rows, dtype=np.float32)
    _named(blocks, named, classes, emission, predicted, rows, ahead.successor, ahead.factor.astype(np.float32), out)
    return out


@njit(cache=True, nogil=True, fastmath=FAST)
def _others(B: Any, emission: Any, both: Any, total: Any, silent: Any, out: Any) -> None:
    """Equivalent to `x = both @ dense_emission; out[:] = np.where(x[n:] > 0, x[:n] / x[n:], silent[:, None])`."""
    n = len(out)
    for w in range(out.shape[1]):
        e, (low, k) = B.starts[w], live_states(B.word_block[w], B.first)
        alike = B.word_block[w] < 0 and emitted_alike(B.starts, w)
        for i in range(n):
            a, b = np.float32(0), np.float32(0)
            if alike:
                a, b = total[i] * emission[e], total[n + i] * emission[e]
            else:
                emitted, with_ahead, alone = emission[e : e + k], both[i, low : low + k], both[n + i, low : low + k]
                for x in range(k):
                    a += emitted[x] * with_ahead[x]
                    b += emitted[x] * alone[x]
            out[i, w] = a / b if b > 0 else silent[i]


@njit(cache=True, nogil=True, fastmath=FAST)
def _named(
    B: Any, named: Any, classes: Any, emission: Any, predicted: Any, rows: Any, successor: Any, factor: Any, out: Any
) -> None:
    """Equivalent to the definition at the head of this module, for some words."""
    for w in named:
        c, e, (low, k) = classes[w], B.starts[w], live_states(B.word_block[w], B.first)
        alike = B.word_block[w] < 0 and emitted_alike(B.starts, w)
        for i in range(len(out)):
            p, beta = predicted[i], rows[successor[i, c]]
            live, live_beta = p[low : low + k], beta[low : low + k]
            a, b = np.float32(0), np.float32(0)
            for x in range(k):
                emitted = emission[e] if alike else emission[e + x]
                a += emitted * live[x] * live_beta[x]
                b += emitted * live[x]
            if not b > 0:  # it says nothing about the state
                for z in range(len(p)):
                    a += p[z] * beta[z]
                    b += p[z]
            out[i, w] = factor[i, c] * a / b


def worth_plain(emission: Array, predicted: Array, ahead: Ahead, named: I64, classes: I64) -> F32:
    """(n, V) for a chain without blocks, whose emission is (V, Z)."""
    n, dtype = len(predicted), emission.dtype
    predicted = np.asarray(predicted, dtype=dtype)
    silent = np.einsum("nz,ncz->nc", predicted, ahead.rows[ahead.successor]) * ahead.factor
    silent = silent / predicted.sum(axis=1)[:, None]
    x = np.concatenate([predicted * ahead.of_class(0), predicted]) @ emission.T
    both, alone = x[:n], x[n:]
    if len(named) * n <= len(classes):  # few: word by word
        for i in range(n):
            beta = ahead.rows[ahead.successor[i]]
            for w in named.tolist():
                both[i, w] = (emission[w] * beta[classes[w]]) @ predicted[i] * ahead.factor[i, classes[w]]
    else:
        for c in range(1, ahead.successor.shape[1]):
            mine = named[classes[named] == c]
            both[:, mine] = (predicted * ahead.of_class(c)) @ emission[mine].T
    out = np.empty(both.shape, dtype=np.float32)
    _ratios(both, alone, silent, classes, out)
    return out


@njit(cache=True, nogil=True)
def _ratios(both: Any, alone: Any, silent: Any, classes: Any, out: Any) -> None:
    """Equivalent to `out[:] = np.where(alone > 0, both / alone, silent[:, classes])`."""
    for i in range(len(out)):
        a, b, row = both[i], alone[i], out[i]
        for w in range(len(row)):
            row[w] = a[w] / b[w] if b[w] > 0 else silent[i, classes[w]]


__all__ = ["Ahead", "worth_blocks", "worth_plain"]
