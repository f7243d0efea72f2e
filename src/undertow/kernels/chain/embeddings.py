"""The parameters of a block chain as inner products of embeddings, and the gradient of its log-likelihood.

Every state has three vectors of width d, for leaving it, arriving at it and emitting, and every word has one:

    T(z, z')   ∝ exp(√d leave_z · arrive_z' + arrive_bias_z')          over all states z'
    e(w | z)   ∝ exp(√d emit_z · word_w + word_bias_w)                 over the words of z's block
    initial(z) ∝ exp(initial_z)

So states with similar vectors share what they learn, and many states need not mean many parameters. Any subset of the
states is a chain of the same form, which is what dropping states at random needs.

By Fisher's identity the gradient of log p(text) is that of Σ n log(probability) with the expected counts n held fixed.
For a softmax with logits l and probabilities p it is ∂/∂l = n − (Σ n) p, so that no recursion is differentiated.

Words are numbered block by block here, so that the words of a block are adjacent rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.block_operators import PairSparse
from undertow.kernels.chain.blocks import FAST, Blocks, offsets
from undertow.kernels.lanes import ordered_map
from undertow.kernels.types import F32, I64

ROWS_AT_A_TIME = 128  # of the transition: such a tile of 4,096 columns stays in the cache
BETA_1, BETA_2 = 0.9, 0.99  # of Adam


class Embeddings(NamedTuple):
    """Weights of a chain with Z states and V words, or gradients and other sums of the same shapes."""

    leave: F32  # (Z, d)
    arrive: F32  # (Z, d)
    arrive_bias: F32  # (Z,)
    emit: F32  # (Z, d)
    word: F32  # (V, d), words in the order of their blocks
    word_bias: F32  # (V,)
    initial: F32  # (Z,)

    @property
    def width(self) -> int:
        return int(self.leave.shape[1])

    @property
    def n_states(self) -> int:
        return len(self.leave)

    def of_states(self, kept: I64) -> Embeddings:
        """The weights of some of the states."""
        return self._replace(
            leave=self.leave[kept],
            arrive=self.arrive[kept],
            arrive_bias=self.arrive_bias[kept],
            emit=self.emit[kept],
            initial=self.initial[kept],
        )

    def zeros(self) -> Embeddings:
        return Embeddings(*(np.zeros_like(x) for x in self))


class ChainLayout(NamedTuple):
    """Where the tables of a chain lie: pairs of blocks that have a matrix, and words in the order of their blocks."""

    blocks: Blocks
    first_word: I64  # (G + 1,) block b has the words first_word[b] .. first_word[b + 1] - 1
    pair: NDArray[np.int32]  # (G, G) the number of a pair of blocks; -1: it has no matrix
    starts: I64  # (P + 1,) where the matrices begin

    @classmethod
    def of(
        cls, words_per_block: NDArray[Any], states_per_block: NDArray[Any], seen: NDArray[np.bool_] | None = None
    ) -> ChainLayout:
        """With a matrix for the pairs marked in `seen` (G, G); None marks all."""
        G, sizes = len(words_per_block), np.asarray(states_per_block, dtype=np.int64)
        before, after = np.nonzero(np.ones((G, G), dtype=bool) if seen is None else seen)
        pair = np.full((G, G), -1, dtype=np.int32)
        pair[before, after] = np.arange(len(before))
        blocks = Blocks.of(np.repeat(np.arange(G), words_per_block), sizes)
        return cls(blocks, offsets(words_per_block), pair, offsets(sizes[before] * sizes[after]))

    def tiles(self) -> Iterator[tuple[int, int]]:
        """Runs of blocks with about `ROWS_AT_A_TIME` states."""
        first, low = self.blocks.first, 0
        while low < self.blocks.n_blocks:
            high = int(np.searchsorted(first, first[low] + ROWS_AT_A_TIME, side="right")) - 1
            high = max(high, low + 1)
            yield low, high
            low = high


class Tables(NamedTuple):
    """The probabilities of a chain, in the form that the forward–backward takes.

    The transition has only the pairs of blocks that the layout has: enough for a text with these pairs.
    """

    initial: F32
    transition: PairSparse
    emission: F32


def chain_tables(weights: Embeddings, layout: ChainLayout, n_threads: int = 1, rows: F32 | None = None) -> Tables:
    """All probabilities of the chain of these states; `rows` (Z, Z) is filled with the whole transition."""
    first, n_states = layout.blocks.first, weights.n_states
    data = np.empty(layout.starts[-1], dtype=np.float32)
    emission = np.empty(layout.blocks.starts[-1], dtype=np.float32)
    arrive = _with_column(weights.arrive * _scale(weights), weights.arrive_bias)
    emit = weights.emit * _scale(weights)

    def fill(run: tuple[int, int]) -> None:
        low, high = int(first[run[0]]), int(first[run[1]])
        tile = np.empty((high - low, n_states), dtype=np.float32) if rows is None else rows[low:high]
        np.matmul(_with_column(weights.leave[low:high], np.ones(high - low, dtype=np.float32)), arrive.T, out=tile)
        tile -= tile.max(axis=1, keepdims=True)
        np.exp(tile, out=tile)
        _normalize_and_copy(tile, first, run[0], run[1], layout.pair, layout.starts, data)
        for b in range(*run):
            words, table = slice(layout.first_word[b], layout.first_word[b + 1]), _emission_of(emission, layout, b)
            np.matmul(weights.word[words], emit[first[b] : first[b + 1]].T, out=table)
            table += weights.word_bias[words, None]
            table -= table.max(axis=0)
            np.exp(table, out=table)
            table /= table.sum(axis=0, dtype=np.float64).astype(np.float32)

    for _ in ordered_map(fill, layout.tiles(), n_threads):
        pass
    none = np.zeros(n_states, dtype=np.float32)
    initial = np.exp(weights.initial.astype(np.float64) - weights.initial.max())
    transition = PairSparse(first, layout.pair, layout.starts, data, none, none)
    return Tables((initial / initial.sum()).astype(np.float32), transition, emission)


class ExpectedCounts(NamedTuple):
    """What an E-step found, in the layouts of the tables."""

    pairs: NDArray[Any]
    emission: NDArray[Any]
    initial: NDArray[Any]


def log_likelihood_gradient(
    weights: Embeddings, layout: ChainLayout, tables: Tables, rows: F32, counts: ExpectedCounts, n_threads: int = 1
) -> Embeddings:
    """The gradient of Σ n log(probability). `rows` is the whole transition by `chain_tables`; it is overwritten."""
    first, scale = layout.blocks.first, _scale(weights)
    out = weights.zeros()
    arrive = weights.arrive * scale

    def differentiate(run: tuple[int, int]) -> F32:
        low, high = int(first[run[0]]), int(first[run[1]])
        residual = rows[low:high]
        _residual(residual, counts.pairs, first, run[0], run[1], layout.pair, layout.starts)
        np.matmul(residual, arrive, out=out.leave[low:high])
        for b in range(*run):
            states, words = slice(first[b], first[b + 1]), slice(layout.first_word[b], layout.first_word[b + 1])
            n, p = _emission_of(counts.emission, layout, b), _emission_of(tables.emission, layout, b)
            part = (n - n.sum(axis=0) * p).astype(np.float32)
            out.emit[states] = scale * (part.T @ weights.word[words])
            out.word[words] = scale * (part @ weights.emit[states])
            out.word_bias[words] = part.sum(axis=1)
        ones = np.ones(high - low, dtype=np.float32)
        return np.asarray(residual.T @ _with_column(scale * weights.leave[low:high], ones))

    arriving = np.zeros((weights.n_states, weights.width + 1), dtype=np.float32)
    for part in ordered_map(differentiate, layout.tiles(), n_threads):
        arriving += part
    out.arrive[:], out.arrive_bias[:] = arriving[:, :-1], arriving[:, -1]
    out.initial[:] = counts.initial - counts.initial.sum() * tables.initial
    return out


def _scale(weights: Embeddings) -> np.float32:
    return np.float32(math.sqrt(weights.width))


def _with_column(x: F32, column: F32) -> F32:
    return np.concatenate([x, column[:, None]], axis=1)


def _emission_of(flat: NDArray[Any], layout: ChainLayout, block: int) -> NDArray[Any]:
    """(words, states) of a block, a view."""
    low, high = layout.first_word[block], layout.first_word[block + 1]
    starts = layout.blocks.starts
    return flat[starts[low] : starts[high]].reshape(high - low, -1)


@njit(cache=True, nogil=True, fastmath=FAST)
def _normalize_and_copy(tile: Any, first: Any, low: int, high: int, pair: Any, starts: Any, data: Any) -> None:
    """Scale rows of positive numbers to sum to one, and copy them to the matrices of the pairs of blocks."""
    G, base = len(first) - 1, first[low]
    for i in range(low, high):
        for z in range(first[i], first[i + 1]):
            row = tile[z - base]
            total = 0.0
            for y in range(len(row)):
                total += row[y]
            scale = np.float32(1 / total)
            for y in range(len(row)):
                row[y] *= scale
            for j in range(G):
                if pair[i, j] >= 0:
                    k = first[j + 1] - first[j]
                    e = starts[pair[i, j]] + (z - first[i]) * k
                    for y in range(k):
                        data[e + y] = row[first[j] + y]


@njit(cache=True, nogil=True, fastmath=FAST)
def _residual(tile: Any, counts: Any, first: Any, low: int, high: int, pair: Any, starts: Any) -> None:
    """Turn rows of T into n − (Σ n) T. Equivalent to `tile[:] = N - N.sum(axis=1, keepdims=True) * tile`."""
    G, base = len(first) - 1, first[low]
    for i in range(low, high):
        for z in range(first[i], first[i + 1]):
            row = tile[z - base]
            total = 0.0
            for j in range(G):
                if pair[i, j] >= 0:
                    k = first[j + 1] - first[j]
                    e = starts[pair[i, j]] + (z - first[i]) * k
                    for y in range(k):
                        total += counts[e + y]
            n = np.float32(total)
            for y in range(len(row)):
                row[y] *= -n
            for j in range(G):
                if pair[i, j] >= 0:
                    k = first[j + 1] - first[j]
                    e = starts[pair[i, j]] + (z - first[i]) * k
                    for y in range(k):
                        row[first[j] + y] += counts[e + y]


@njit(cache=True, nogil=True, fastmath=FAST)
def _adam(
    weight: Any, gradient: Any, mean: Any, square: Any, rate: float, decay: float, bias_1: float, bias_2: float
) -> None:
    for i in range(len(weight)):
        g = gradient[i]
        m = np.float32(BETA_1) * mean[i] + np.float32(1 - BETA_1) * g
        v = np.float32(BETA_2) * square[i] + np.float32(1 - BETA_2) * g * g
        mean[i], square[i] = m, v
        step = m * np.float32(bias_1) / (np.sqrt(v * np.float32(bias_2)) + np.float32(1e-8))
        weight[i] += np.float32(rate) * (step - np.float32(decay) * weight[i])


class Adam(NamedTuple):
    """Running means of the gradient and of its square (AdamW, ascending)."""

    n_steps: int
    mean: Embeddings
    square: Embeddings

    @classmethod
    def start(cls, weights: Embeddings) -> Adam:
        return cls(0, weights.zeros(), weights.zeros())

    def ascend(self, weights: Embeddings, gradient: Embeddings, rate: float, decay: float) -> Adam:
        """Change the weights in place by one step up the gradient; only vectors, not biases, decay."""
        n = self.n_steps + 1
        bias_1, bias_2 = 1 / (1 - BETA_1**n), 1 / (1 - BETA_2**n)
        for w, g, m, v in zip(weights, gradient, self.mean, self.square, strict=True):
            _adam(w.ravel(), g.ravel(), m.ravel(), v.ravel(), rate, decay if w.ndim > 1 else 0.0, bias_1, bias_2)
        return self._replace(n_steps=n)
