"""Forward–backward over ragged batches of sentences, whatever the transition operator.

Sentences of like length are lanes of a batch, longest first, packed by time step: at step t the first n_t lanes are
alive, and a step is one product of the operator over them. Rows of step t stand behind those of step t − 1 ("slabs"),
so that expected transition counts are large products over many steps at once.

Per-step scaling: alpha_t sums to one, its normalizer is p(x_t | x_<t). The message of token t to its predecessor is
o_t ∘ β_t / p(x_t | x_<t), and β is rescaled at each step such that Σ alpha ∘ β = 1, so nothing drifts in float32.
Anything below `floor_of` counts as zero in the forward pass and sends no message back, so that messages stay finite.

Memory: alpha of at most Tiles.chunk_bytes is kept. A batch that has more is cut into chunks of steps; the forward
pass keeps one slab a chunk, and the backward pass computes each chunk once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.chain.operators import TransitionOperator
from undertow.kernels.lanes import Buffers, groups_of_lanes, pack
from undertow.kernels.types import F64, I64

Array = NDArray[Any]

SCALE = 2.0**60  # of products on their way to float32, so that tiny emission probabilities do not vanish there


class Tiles(NamedTuple):
    """How a text is cut. Results are the same to rounding whatever it says."""

    n_lanes: int | None = None  # sentences of a batch; None: by the size of the model and of the text
    chunk_bytes: int = 1 << 29  # of alpha that is kept, for each thread
    flush_bytes: int = 1 << 27  # of messages that wait to be multiplied with their alphas


DEFAULT_TILES = Tiles()


class ChainParams(NamedTuple):
    """z_1 ~ initial, z_t ~ row z_{t−1} of the transition, x_t ~ column z_t of the emission.

    initial (Z,), emission (V, Z): row x holds p(x | z) for all z. Both in the operator's precision, float32 or float64.
    """

    initial: Array
    transition: TransitionOperator
    emission: Array


class Batch(NamedTuple):
    """Lanes of falling length: row at[t] + r is token t of lane r."""

    lanes: I64  # which sentences these are
    n_alive: I64  # (steps,)
    at: I64  # (steps + 1,)
    token: I64  # (rows,) position in the text
    word: I64  # (rows,) id, or −1 if the observation is missing


class Chunk(NamedTuple):
    """Steps start..stop−1 of a batch and, before them, the last step of the chunk before (none if start is 0)."""

    start: int
    stop: int
    base: int  # the batch's row of the buffer's row 0


def floor_of(dtype: Any) -> Any:
    """The least probability of a state that is kept; no message exceeds one over it."""
    return np.dtype(dtype).type(1e-30 if dtype == np.float32 else 1e-280)


def n_lanes(n_states: int, n_sentences: int) -> int:
    """Lanes of a batch: thin products waste the processor, wide ones the memory, and few batches the other threads.

    It depends on the model and the text alone.
    """
    least, most = (64, 128) if n_states >= 1024 else (32, 256)
    return min(max(-(-n_sentences // 4), least), most)


def batches(ids: Array, offsets: I64, n_states: int, lanes: int | None = None) -> Iterator[Batch]:
    """Sentences by falling length, as many as there are lanes at a time; empty ones are left out."""
    length = np.diff(offsets)
    if lanes is None:
        lanes = n_lanes(n_states, int(np.count_nonzero(length)))
    for some in groups_of_lanes(length, lanes):
        packed = pack(offsets[some], length[some])
        yield Batch(some, packed.n_alive, packed.at, packed.token, ids[packed.token].astype(np.int64))


@njit(cache=True, nogil=True)
def add_rows(table: Any, rows: Any, values: Any) -> None:
    """Equivalent to `table[rows] += values` for different rows, without temporaries."""
    for i in range(len(rows)):
        to, source = table[rows[i]], values[i]
        for c in range(len(to)):
            to[c] += source[c]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def condition_rows(rows: Any, emission: Any, word: Any, floor: Any, normalizer: Any) -> None:
    """Predictions become filtered posteriors in place; normalizer gets p(x_t | x_<t), 0 if nothing can emit the word.

    Equivalent to `rows *= emission[word]; normalizer = rows.sum(1); rows /= normalizer` but for the floor.
    """
    zero, scale = floor * 0, rows.dtype.type(SCALE)
    for r in range(len(rows)):
        row = rows[r]
        total = 0.0
        if word[r] >= 0:
            o = emission[word[r]]
            for z in range(len(row)):
                p = row[z] * scale * o[z] if row[z] >= floor else zero
                row[z] = p
                total += p
            normalizer[r] = total / SCALE
        else:
            for z in range(len(row)):
                total += row[z]
            normalizer[r] = 1.0 if total > 0.0 else 0.0
        inverse = 1.0 / total if total > 0.0 else 0.0
        for z in range(len(row)):
            a = rows.dtype.type(row[z] * inverse)
            row[z] = a if a >= floor else zero


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def smooth_rows(
    alpha: Any, beta: Any, emission: Any, word: Any, normalizer: Any, counts: Any, to: Any, message: Any
) -> None:
    """Add posteriors alpha ∘ β / Σ to rows `to` of counts (−1: to none), and make the messages of these tokens.

    A token that nothing can emit has alpha = 0: it sends nothing, and nothing in its sentence counts. message may be
    empty.
    """
    for r in range(len(alpha)):
        a, b = alpha[r], beta[r]
        total = 0.0
        for z in range(len(a)):
            total += a[z] * b[z]
        if not total > 0.0:
            if len(message):
                message[r] = 0
            continue
        if to[r] >= 0:
            c, inverse = counts[to[r]], 1.0 / total
            for z in range(len(a)):
                c[z] += a[z] * b[z] * inverse
        if not len(message):
            continue
        m, factor, zero = message[r], 1.0 / (total * normalizer[r]), a[0] * 0
        if word[r] >= 0:
            o = emission[word[r]]
            for z in range(len(a)):
                m[z] = o[z] * b[z] * factor if a[z] > zero else zero
        else:
            for z in range(len(a)):
                m[z] = b[z] * factor if a[z] > zero else zero


class Forward:
    """The forward pass over a batch, one step at a time."""

    def __init__(self, params: ChainParams, batch: Batch, buffers: Buffers) -> None:
        self.params, self.batch, self.buffers = params, batch, buffers
        self.normalizer, self.floor = np.empty(len(batch.token)), floor_of(params.emission.dtype)
        self.alive = np.ones(len(batch.lanes), dtype=np.bool_)
        self.impossible = np.full(len(batch.lanes), -1, dtype=np.int64)  # the first token nothing can emit

    def step(self, t: int, alpha_prev: Array | None, out: Array, route: Array | None = None) -> None:
        """Filtered posteriors of step t into out, (n_t, Z)."""
        batch, n = self.batch, int(self.batch.n_alive[t])
        if alpha_prev is None:
            out[:] = self.params.initial
        else:
            self.params.transition.push(alpha_prev[:n], out, route)
        here = slice(int(batch.at[t]), int(batch.at[t + 1]))
        condition_rows(out, self.params.emission, batch.word[here], self.floor, self.normalizer[here])
        dead = np.flatnonzero(self.alive[:n] & ~(self.normalizer[here] > 0))
        self.alive[dead] = False
        self.impossible[dead] = batch.token[here][dead]

    def log_probs(self) -> F64:
        """log p(x_t | x_<t) of all rows; −inf at an impossible token, and 0 after it."""
        with np.errstate(divide="ignore"):
            out = np.log(self.normalizer)
        if not self.alive.all():
            lane = np.concatenate([np.arange(n) for n in self.batch.n_alive])
            behind = ~self.alive[lane] & (self.batch.token > self.impossible[lane])
            out[behind] = 0.0
        return out


def cut_chunks(batch: Batch, row_bytes: int, chunk_bytes: int) -> list[Chunk]:
    """Chunks of whole steps with at most chunk_bytes of alpha (but at least one step)."""
    most = max(1, chunk_bytes // row_bytes)
    chunks, start, n_steps = [], 0, len(batch.n_alive)
    while start < n_steps:
        before = max(start - 1, 0)
        stop = int(np.searchsorted(batch.at, batch.at[before] + most, side="right")) - 1
        stop = min(max(stop, start + 1), n_steps)
        chunks.append(Chunk(start, stop, int(batch.at[before])))
        start = stop
    return chunks


def fill_chunk(forward: Forward, chunk: Chunk, first: Array | None) -> tuple[Array, Array]:
    """alpha of the chunk's slabs, (rows, Z), and the operator's features, (rows, width).

    `first` is the slab before the chunk; it is put in front. Rows of routes without a successor are zero.
    """
    params, batch = forward.params, forward.batch
    Z, width, dtype = len(params.initial), params.transition.width, params.emission.dtype
    n_rows = int(batch.at[chunk.stop]) - chunk.base
    alpha = forward.buffers.take("alpha", n_rows, Z, dtype)
    routes = forward.buffers.take("routes", n_rows, width, dtype)
    routes[:] = 0
    previous: Array | None = None
    if first is not None:
        previous = alpha[: len(first)]
        previous[:] = first
    for t in range(chunk.start, chunk.stop):
        here = alpha[int(batch.at[t]) - chunk.base : int(batch.at[t + 1]) - chunk.base]
        route = None
        if previous is not None and width:
            at = int(batch.at[t - 1]) - chunk.base
            route = routes[at : at + len(here)]
        forward.step(t, previous, here, route)
        previous = here
    return alpha, routes


def run_batch(
    params: ChainParams,
    batch: Batch,
    buffers: Buffers,
    counts: Array,
    to: I64,
    transition_stats: Any | None,
    initial: F64 | None,
    tiles: Tiles = DEFAULT_TILES,
) -> Forward:
    """Forward and backward pass over a batch.

    Adds posteriors of rows to counts[to[row]], expected steps to transition_stats (None: not wanted) and the posteriors
    of first tokens to initial.
    """
    forward = Forward(params, batch, buffers)
    dtype, Z = params.emission.dtype, len(params.initial)
    chunks = cut_chunks(batch, Z * dtype.itemsize, tiles.chunk_bytes)
    checkpoints: list[Array | None] = [None]
    alpha, routes = fill_chunk(forward, chunks[0], None)
    for chunk in chunks[1:]:
        checkpoints.append(alpha[len(alpha) - int(batch.n_alive[chunk.start - 1]) :].copy())
        alpha, routes = fill_chunk(forward, chunk, checkpoints[-1])
    beta = buffers.take("beta", int(batch.n_alive[0]), Z, dtype)
    beta[:] = 1  # of lanes that end earlier: their last token has not been reached yet
    for i in range(len(chunks) - 1, -1, -1):
        if i < len(chunks) - 1:
            alpha, routes = fill_chunk(forward, chunks[i], checkpoints[i])
        _back(forward, chunks[i], alpha, routes, beta, counts, to, transition_stats, tiles.flush_bytes)
    if initial is not None:
        first = np.zeros((1, Z))
        n = int(batch.n_alive[0])
        here = slice(0, n)
        smooth_rows(
            *(alpha[here], beta[here], params.emission, batch.word[here], forward.normalizer[here]),
            *(first, np.zeros(n, dtype=np.int64), beta[:0]),
        )
        initial += first[0]
    return forward


def _back(
    forward: Forward,
    chunk: Chunk,
    alpha: Array,
    routes: Array,
    beta: Array,
    counts: Array,
    to: I64,
    transition_stats: Any | None,
    flush_bytes: int,
) -> None:
    """The backward pass over one chunk; beta holds β of its last step and, in the end, of the step before it.

    Messages of tokens wait beside the alphas of their predecessors until there are enough for a large product.
    """
    params, batch, buffers = forward.params, forward.batch, forward.buffers
    operator, Z, dtype = params.transition, len(params.initial), params.emission.dtype
    at, n_alive = batch.at - chunk.base, batch.n_alive
    most = max(int(n_alive[0]), flush_bytes // (Z * dtype.itemsize))
    top = chunk.stop - 1  # predecessors of steps ≤ top are yet to be flushed
    while top >= chunk.start:
        # as many slabs of predecessors as fit
        low = top
        while low - 1 >= max(chunk.start, 1) and at[top] - at[low - 2] <= most:
            low -= 1
        base = int(at[low - 1]) if low else 0
        n_rows = int(at[top]) - base
        messages = buffers.take("messages", n_rows, Z, dtype)
        pulled = buffers.take("pulled", n_rows, operator.width, dtype)
        for t in range(top, low - 1, -1):
            n = int(n_alive[t])
            here, rows = slice(int(at[t]), int(at[t]) + n), slice(int(batch.at[t]), int(batch.at[t + 1]))
            before = int(at[t - 1]) - base if t else 0
            message = messages[before : before + n] if t else messages[:0]
            smooth_rows(
                *(alpha[here], beta[:n], params.emission, batch.word[rows], forward.normalizer[rows]),
                *(counts, to[rows], message),
            )
            if t:
                route = pulled[before : before + n]
                operator.pull(message, beta[:n], route if operator.width else None)
                messages[before + n : before + int(n_alive[t - 1])] = 0
                pulled[before + n : before + int(n_alive[t - 1])] = 0
        if transition_stats is not None and n_rows:
            some = slice(base, base + n_rows)
            features = (routes[some], pulled) if operator.width else (None, None)
            operator.accumulate_expected(alpha[some], messages, transition_stats, *features)
        top = low - 1
