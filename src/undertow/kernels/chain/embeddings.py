"""The parameters of a block chain as inner products of embeddings, and the gradient of its log-likelihood.

Every state has three vectors of width d, for leaving it, arriving at it and emitting; every block of words, every
word and every affix has one. A step first chooses the block of the next word, then a state of that block:

    p(b' | z)      ∝ exp(√d leave_z · block_b' + block_bias_b')         over all blocks b'
    q(z' | z, b')  ∝ exp(√d leave_z · arrive_z' + arrive_bias_z')       over the states z' of block b'
    T(z, z')       = p(b' | z) q(z' | z, b')                            with b' the block of z'
    e(w | z)       ∝ exp(√d emit_z · v_w + word_bias_w)                 over the words of z's block
    v_w            = word_w + Σ_a spelling_wa affix_a                   words of similar spelling share
    initial(z)     ∝ exp(initial_z)

So states with similar vectors share what they learn, and many states need not mean many parameters. Any subset of the
states is a chain of the same form, which is what dropping states at random needs. A batch of text has few of the pairs
of blocks, and q is needed for those alone: the cost grows with the text of the batch, not with the states squared.

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
from scipy.sparse import csr_array

from undertow.kernels.chain.block_operators import PairSparse
from undertow.kernels.chain.blocks import FAST, Blocks, offsets
from undertow.kernels.lanes import ordered_map
from undertow.kernels.types import F32, I64

ROWS_AT_A_TIME = 128  # of the transition, in one piece of work for a thread
BETA_1, BETA_2 = 0.9, 0.99  # of Adam


class Embeddings(NamedTuple):
    """Weights of a chain with Z states, G blocks and V words, or gradients and other sums of the same shapes."""

    leave: F32  # (Z, d)
    block: F32  # (G, d)
    block_bias: F32  # (G,)
    arrive: F32  # (Z, d)
    arrive_bias: F32  # (Z,)
    emit: F32  # (Z, d)
    word: F32  # (V, d), words in the order of their blocks
    affix: F32  # (A, d)
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
        return self._replace(**{name: getattr(self, name)[kept] for name in OF_STATES})

    def zeros(self) -> Embeddings:
        return Embeddings(*(np.zeros_like(x) for x in self))


OF_STATES = ("leave", "arrive", "arrive_bias", "emit", "initial")  # the fields with a row for each state


class ChainLayout(NamedTuple):
    """Where the tables of a chain lie: pairs of blocks that have a matrix, and words in the order of their blocks."""

    blocks: Blocks
    first_word: I64  # (G + 1,) block b has the words first_word[b] .. first_word[b + 1] - 1
    pair: NDArray[np.int32]  # (G, G) the number of a pair of blocks; -1: it has no matrix
    starts: I64  # (P + 1,) where the matrices begin
    spelling: csr_array  # (V, A) how much each affix counts for a word

    @classmethod
    def of(
        cls,
        words_per_block: NDArray[Any],
        states_per_block: NDArray[Any],
        spelling: csr_array,
        seen: NDArray[np.bool_] | None = None,
    ) -> ChainLayout:
        """With a matrix for the pairs marked in `seen` (G, G); None marks all."""
        G, sizes = len(words_per_block), np.asarray(states_per_block, dtype=np.int64)
        before, after = np.nonzero(np.ones((G, G), dtype=bool) if seen is None else seen)
        pair = np.full((G, G), -1, dtype=np.int32)
        pair[before, after] = np.arange(len(before))
        blocks = Blocks.of(np.repeat(np.arange(G), words_per_block), sizes)
        return cls(blocks, offsets(words_per_block), pair, offsets(sizes[before] * sizes[after]), spelling)

    def data_of(self, run: tuple[int, int]) -> tuple[int, int]:
        """Where the matrices of a run of blocks begin and end."""
        pairs = self.pair[run[0] : run[1]]
        pairs = pairs[pairs >= 0]
        return (int(self.starts[pairs.min()]), int(self.starts[pairs.max() + 1])) if len(pairs) else (0, 0)

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
    next_block: F32  # (Z, G) p(b' | z), also for pairs that the transition does not have
    word: F32  # (V, d) the vectors v of the words


def chain_tables(weights: Embeddings, layout: ChainLayout, n_threads: int = 1) -> Tables:
    """All probabilities of the chain of these states, but for pairs of blocks that the layout does not have."""
    first, scale = layout.blocks.first, _scale(weights)
    data = np.empty(layout.starts[-1], dtype=np.float32)
    emission = np.empty(layout.blocks.starts[-1], dtype=np.float32)
    arrive, block, emit = (x * scale for x in (weights.arrive, weights.block, weights.emit))
    next_block = np.empty((weights.n_states, layout.blocks.n_blocks), dtype=np.float32)
    word = weights.word + layout.spelling @ weights.affix

    def fill(run: tuple[int, int]) -> None:
        states = slice(first[run[0]], first[run[1]])
        _softmax(np.matmul(weights.leave[states], block.T, out=next_block[states]), weights.block_bias)
        low, high = layout.data_of(run)
        _pair_logits(weights.leave, arrive, weights.arrive_bias, first, *run, layout.pair, layout.starts, data)
        np.exp(data[low:high], out=data[low:high])
        _scale_pairs(data, next_block, first, *run, layout.pair, layout.starts)
        for b in range(*run):
            words, table = slice(layout.first_word[b], layout.first_word[b + 1]), _emission_of(emission, layout, b)
            np.matmul(word[words], emit[first[b] : first[b + 1]].T, out=table)
            table += weights.word_bias[words, None]
            table -= table.max(axis=0)
            np.exp(table, out=table)
            table /= table.sum(axis=0, dtype=np.float64).astype(np.float32)

    for _ in ordered_map(fill, layout.tiles(), n_threads):
        pass
    none = np.zeros(weights.n_states, dtype=np.float32)
    initial = np.exp(weights.initial.astype(np.float64) - weights.initial.max())
    transition = PairSparse(first, layout.pair, layout.starts, data, none, none)
    return Tables((initial / initial.sum()).astype(np.float32), transition, emission, next_block, word)


class ExpectedCounts(NamedTuple):
    """What an E-step found, in the layouts of the tables."""

    pairs: NDArray[Any]
    emission: NDArray[Any]
    initial: NDArray[Any]


def log_likelihood_gradient(
    weights: Embeddings, layout: ChainLayout, tables: Tables, counts: ExpectedCounts, n_threads: int = 1
) -> Embeddings:
    """The gradient of Σ n log(probability). `counts.pairs`, in float32, is overwritten."""
    first, scale = layout.blocks.first, _scale(weights)
    out, arrive, leave = weights.zeros(), weights.arrive * scale, weights.leave * scale
    residual, pairs = np.zeros_like(tables.next_block), (layout.pair, layout.starts)

    def differentiate(run: tuple[int, int]) -> tuple[F32, F32]:
        states = slice(first[run[0]], first[run[1]])
        _residuals(counts.pairs, tables.transition.data, tables.next_block, residual, first, *run, *pairs)
        np.matmul(residual[states], weights.block * scale, out=out.leave[states])
        _leave_gradient(counts.pairs, arrive, first, *run, *pairs, out.leave)
        for b in range(*run):
            rows, words = slice(first[b], first[b + 1]), slice(layout.first_word[b], layout.first_word[b + 1])
            n, p = _emission_of(counts.emission, layout, b), _emission_of(tables.emission, layout, b)
            part = (n - n.sum(axis=0) * p).astype(np.float32)
            out.emit[rows] = scale * (part.T @ tables.word[words])
            out.word[words] = scale * (part @ weights.emit[rows])
            out.word_bias[words] = part.sum(axis=1)
        return residual[states].T @ leave[states], residual[states].sum(axis=0)

    for block, block_bias in ordered_map(differentiate, layout.tiles(), n_threads):
        out.block[:] += block
        out.block_bias[:] += block_bias
    for _ in ordered_map(
        lambda run: _arrive_gradient(counts.pairs, leave, first, *run, *pairs, out.arrive, out.arrive_bias),
        layout.tiles(),
        n_threads,
    ):
        pass
    out.affix[:] = layout.spelling.T @ out.word
    out.initial[:] = counts.initial - counts.initial.sum() * tables.initial
    return out


def _scale(weights: Embeddings) -> np.float32:
    return np.float32(math.sqrt(weights.width))


def _emission_of(flat: NDArray[Any], layout: ChainLayout, block: int) -> NDArray[Any]:
    """(words, states) of a block, a view."""
    low, high = layout.first_word[block], layout.first_word[block + 1]
    starts = layout.blocks.starts
    return flat[starts[low] : starts[high]].reshape(high - low, -1)


def _softmax(logits: F32, bias: F32) -> None:
    """Turn logits, to which the bias is added, into probabilities in place, row by row."""
    logits += bias
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)


@njit(cache=True, nogil=True, fastmath=FAST)
def _pair_logits(
    leave: Any, arrive: Any, bias: Any, first: Any, low: int, high: int, pair: Any, starts: Any, data: Any
) -> None:
    """leave · arrive' + bias for the pairs of blocks from low to high, less the largest of each row of a pair."""
    for i in range(low, high):
        k = first[i + 1] - first[i]
        for j in range(len(first) - 1):
            p = pair[i, j]
            if p < 0:
                continue
            out = data[starts[p] : starts[p + 1]].reshape(k, first[j + 1] - first[j])
            np.dot(leave[first[i] : first[i + 1]], arrive[first[j] : first[j + 1]].T, out)
            for x in range(k):
                row = out[x]
                largest = np.float32(-np.inf)
                for y in range(len(row)):
                    row[y] += bias[first[j] + y]
                    largest = max(largest, row[y])
                for y in range(len(row)):
                    row[y] -= largest


@njit(cache=True, nogil=True, fastmath=FAST)
def _scale_pairs(data: Any, next_block: Any, first: Any, low: int, high: int, pair: Any, starts: Any) -> None:
    """Scale the rows of each pair of blocks to sum to the probability of the next block."""
    for i in range(low, high):
        for j in range(len(first) - 1):
            if pair[i, j] < 0:
                continue
            e, k = starts[pair[i, j]], first[j + 1] - first[j]
            for z in range(first[i], first[i + 1]):
                total = np.float32(0)
                for y in range(k):
                    total += data[e + y]
                scale = next_block[z, j] / total
                for y in range(k):
                    data[e + y] *= scale
                e += k


@njit(cache=True, nogil=True, fastmath=FAST)
def _residuals(
    counts: Any, T: Any, next_block: Any, residual: Any, first: Any, low: int, high: int, pair: Any, starts: Any
) -> None:
    """n − (Σ n) p of both softmaxes: `residual` (Z, G) for the blocks, `counts` in place for the states of a block."""
    for i in range(low, high):
        for z in range(first[i], first[i + 1]):
            row, p = residual[z], next_block[z]
            total = np.float32(0)
            for j in range(len(row)):
                if pair[i, j] < 0:
                    continue
                k = first[j + 1] - first[j]
                e = starts[pair[i, j]] + (z - first[i]) * k
                n = np.float32(0)
                for y in range(k):
                    n += counts[e + y]
                share = n / p[j] if p[j] > 0 else np.float32(0)
                for y in range(k):
                    counts[e + y] -= share * T[e + y]
                row[j] = n
                total += n
            for j in range(len(row)):
                row[j] -= total * p[j]


@njit(cache=True, nogil=True)
def _leave_gradient(
    residual: Any, arrive: Any, first: Any, low: int, high: int, pair: Any, starts: Any, out: Any
) -> None:
    """Add residual · arrive of each pair of blocks."""
    for i in range(low, high):
        k = first[i + 1] - first[i]
        part = np.empty((k, arrive.shape[1]), dtype=np.float32)
        for j in range(len(first) - 1):
            p = pair[i, j]
            if p >= 0:
                rows = residual[starts[p] : starts[p + 1]].reshape(k, first[j + 1] - first[j])
                np.dot(rows, arrive[first[j] : first[j + 1]], part)
                out[first[i] : first[i + 1]] += part


@njit(cache=True, nogil=True)
def _arrive_gradient(
    residual: Any, leave: Any, first: Any, low: int, high: int, pair: Any, starts: Any, out: Any, out_bias: Any
) -> None:
    """Add residual' · leave of each pair of blocks whose second block is one of low to high."""
    for j in range(low, high):
        k = first[j + 1] - first[j]
        part = np.empty((k, leave.shape[1]), dtype=np.float32)
        for i in range(len(first) - 1):
            p = pair[i, j]
            if p >= 0:
                rows = residual[starts[p] : starts[p + 1]].reshape(first[i + 1] - first[i], k)
                np.dot(rows.T, leave[first[i] : first[i + 1]], part)
                out[first[j] : first[j + 1]] += part
                for x in range(len(rows)):
                    for y in range(k):
                        out_bias[first[j] + y] += rows[x, y]


@njit(cache=True, nogil=True, fastmath=FAST)
def _adam(
    weight: Any,
    gradient: Any,
    rows: Any,
    mean: Any,
    square: Any,
    scale: float,
    rate: float,
    decay: float,
    bias_1: float,
    bias_2: float,
) -> None:
    """A step of all rows of the weights. The gradient has those of `rows`, which are sorted; the others have none."""
    at = 0
    for x in range(len(weight)):
        has_gradient = at < len(rows) and rows[at] == x
        for y in range(weight.shape[1]):
            g = gradient[at, y] * np.float32(scale) if has_gradient else np.float32(0)
            m = np.float32(BETA_1) * mean[x, y] + np.float32(1 - BETA_1) * g
            v = np.float32(BETA_2) * square[x, y] + np.float32(1 - BETA_2) * g * g
            mean[x, y], square[x, y] = m, v
            step = m * np.float32(bias_1) / (np.sqrt(v * np.float32(bias_2)) + np.float32(1e-8))
            weight[x, y] += np.float32(rate) * (step - np.float32(decay) * weight[x, y])
        at += has_gradient


class Adam(NamedTuple):
    """Running means of the gradient and of its square (AdamW, ascending)."""

    n_steps: int
    mean: Embeddings
    square: Embeddings

    @classmethod
    def start(cls, weights: Embeddings) -> Adam:
        return cls(0, weights.zeros(), weights.zeros())

    def ascend(
        self,
        weights: Embeddings,
        gradient: Embeddings,
        kept: I64,
        scale: float,
        rate: float,
        decay: float,
        n_threads: int = 1,
    ) -> Adam:
        """Change the weights in place by one step up `scale` times the gradient; only vectors, not biases, decay.

        The gradient is that of the kept states; the other states have none.
        """
        n = self.n_steps + 1
        bias_1, bias_2 = 1 / (1 - BETA_1**n), 1 / (1 - BETA_2**n)

        def step(field: int) -> None:
            w, g, m, v = (x[field].reshape(len(x[field]), -1) for x in (weights, gradient, self.mean, self.square))
            rows = kept if Embeddings._fields[field] in OF_STATES else np.arange(len(w))
            _adam(w, g, rows, m, v, scale, rate, decay if weights[field].ndim > 1 else 0.0, bias_1, bias_2)

        for _ in ordered_map(step, range(len(weights)), n_threads):
            pass
        return self._replace(n_steps=n)
