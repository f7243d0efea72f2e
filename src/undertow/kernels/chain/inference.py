"""Inference in discrete chains (hidden Markov models): E-step, filtering and smoothing, for any transition operator.

`e_step` is the one function behind fitting, on one machine or many: its statistics add. `forward` gives probabilities
of tokens and filtered posteriors, `posterior` smoothed ones. All run in batches (batched.py).
`forward_backward_logs` and `viterbi_logs` serve small dense chains with any log scores (small.py).

More than one thread takes batches side by side and is meant for a single-threaded BLAS (OMP_NUM_THREADS=1); with one,
BLAS' own threads work. How the text is cut into batches does not depend on the threads, and batches are added in their
order, so the number of threads changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.batched import (
    DEFAULT_TILES,
    Batch,
    ChainParams,
    Forward,
    Tiles,
    add_rows,
    batches,
    run_batch,
)
from undertow.kernels.chain.operators import add_into
from undertow.kernels.chain.small import ChainPosterior, forward_backward_logs, viterbi_logs
from undertow.kernels.chain.smoothing import check_rows
from undertow.kernels.lanes import Buffers, ordered_map, with_buffers
from undertow.kernels.types import F64, I64

__all__ = [
    "ChainParams",
    "ChainPosterior",
    "ForwardResult",
    "Stats",
    "check_params",
    "check_text",
    "e_step",
    "forward",
    "forward_backward_logs",
    "messages",
    "posterior",
    "viterbi_logs",
]

Array = NDArray[Any]
T = TypeVar("T")


class Stats(NamedTuple):
    """Expected counts of a text under some parameters; those of two texts add.

    log_likelihood is −inf if some sentence is impossible; such sentences have no part in the counts, and `impossible`
    holds the position of the first token in each that no reachable state can emit. n_tokens are the observed tokens.
    """

    log_likelihood: float
    n_tokens: int
    initial: F64  # (Z,)
    transition: Any  # as the operator counts
    emission: F64  # (V, Z)
    impossible: I64

    def __add__(self, other: Any) -> Stats:
        return Stats(
            self.log_likelihood + other.log_likelihood,
            self.n_tokens + other.n_tokens,
            self.initial + other.initial,
            self.transition + other.transition,
            self.emission + other.emission,
            np.concatenate([self.impossible, other.impossible]),
        )


class ForwardResult(NamedTuple):
    """log_prob (N,) = log p(x_t | tokens before it in its sentence), 0 for a missing token.

    At a token that no reachable state can emit it is −inf; the rest of that sentence is ignored (0), and its
    position is listed in impossible. filtered (N, Z) if asked for; last (n_sentences, Z) is the filtered posterior at
    the end of each sentence (the initial distribution for an empty one, zeros for an impossible one).
    """

    log_prob: F64
    filtered: Array | None
    last: Array
    impossible: I64


def e_step(
    ids: Array,
    offsets: Array,
    params: ChainParams,
    *,
    n_threads: int = 1,
    tiles: Tiles = DEFAULT_TILES,
) -> Stats:
    """Expected counts of sentences offsets[i]..offsets[i + 1] of ids.

    An id of −1 is a missing observation.
    """
    ids, offsets = check_text(ids, offsets, params)
    V, Z = params.emission.shape
    initial, emission = np.zeros(Z), np.zeros((V, Z))
    transition: Any = None
    log_likelihood, n_tokens, impossible = 0.0, 0, [np.zeros(0, dtype=np.int64)]
    free: list[_Sums] = []  # fresh pages for every batch would cost as much as some of its products

    def one_batch(batch: Batch, buffers: Buffers) -> tuple[Forward, _Sums]:
        try:
            sums = free.pop()
        except IndexError:
            sums = _Sums(params)
        to = sums.start(batch)
        return run_batch(params, batch, buffers, sums.counts, to, sums.transition, sums.initial, tiles), sums

    for done, sums in _map_batches(one_batch, batches(ids, offsets, Z, tiles.n_lanes), n_threads):
        log_likelihood += float(done.log_probs().sum())
        n_tokens += int(np.count_nonzero(done.batch.word >= 0))
        np.add(initial, sums.initial, out=initial)
        if transition is None:  # taken over: those of a dense operator may fill half of the memory
            transition, sums.transition = sums.transition, None
        else:
            add_into(transition, sums.transition)
        add_rows(emission, sums.words, sums.counts)
        impossible.append(done.impossible[done.impossible >= 0])
        free.append(sums)
    if transition is None:
        transition = params.transition.empty_stats()
    dead = np.sort(np.concatenate(impossible))
    return Stats(log_likelihood, n_tokens, initial, transition, emission, dead)


def _map_batches(work: Callable[[Batch, Buffers], T], some: Iterable[Batch], n_threads: int) -> Iterator[T]:
    """work(batch, buffers) for all batches. Few are in flight: what one adds may be as large as the parameters."""
    return ordered_map(with_buffers(work), some, n_threads, in_flight=n_threads + 1)


class _Sums:
    """What one batch adds to the statistics. Posteriors are summed by the words of the batch alone: its memory follows
    its tokens, not the vocabulary."""

    def __init__(self, params: ChainParams) -> None:
        self.operator, self.initial = params.transition, np.zeros(len(params.initial))
        self.transition: Any = None
        self.words, self.counts = np.zeros(0, dtype=np.int64), np.zeros((0, len(params.initial)))
        self.space = np.zeros(0)

    def start(self, batch: Batch) -> I64:
        """Forget the last batch; returns for each row of this one the row of counts that it adds to, or −1."""
        words, to = np.unique(batch.word, return_inverse=True)
        n_missing = int(words[0] == -1)
        self.words = words[n_missing:]
        n_cells = len(self.words) * len(self.initial)
        if len(self.space) < n_cells:
            self.space = np.empty(n_cells)
        self.counts = self.space[:n_cells].reshape(len(self.words), len(self.initial))
        for array in (self.initial, self.counts, *(self.transition or ())):
            array.fill(0)
        self.transition = self.transition or self.operator.empty_stats()
        return to - n_missing


def forward(
    ids: Array,
    offsets: Array,
    params: ChainParams,
    *,
    filtered: bool = False,
    n_threads: int = 1,
    tiles: Tiles = DEFAULT_TILES,
) -> ForwardResult:
    """The forward pass alone: probabilities of tokens and, if asked for, filtered posteriors."""
    ids, offsets = check_text(ids, offsets, params)
    Z = len(params.initial)
    log_prob, dtype = np.zeros(len(ids)), params.emission.dtype
    states = np.empty((len(ids), Z), dtype=dtype) if filtered else None
    last = np.empty((len(offsets) - 1, Z), dtype=dtype)
    last[np.diff(offsets) == 0] = params.initial

    def one_batch(batch: Batch, buffers: Buffers) -> Array:
        forward_pass = Forward(params, batch, buffers)
        previous = None
        n_next = np.append(batch.n_alive[1:], 0)
        for t, n in enumerate(batch.n_alive.tolist()):
            here = buffers.take("even" if t % 2 else "odd", n, Z, dtype)
            forward_pass.step(t, previous, here)
            if states is not None:
                states[batch.token[int(batch.at[t]) : int(batch.at[t + 1])]] = here
            last[batch.lanes[int(n_next[t]) : n]] = here[int(n_next[t]) :]
            previous = here
        log_prob[batch.token] = forward_pass.log_probs()
        return forward_pass.impossible[forward_pass.impossible >= 0]

    dead = list(_map_batches(one_batch, batches(ids, offsets, Z, tiles.n_lanes), n_threads))
    return ForwardResult(log_prob, states, last, np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *dead])))


def posterior(
    ids: Array,
    offsets: Array,
    params: ChainParams,
    *,
    n_threads: int = 1,
    tiles: Tiles = DEFAULT_TILES,
) -> Array:
    """p(z_t | whole sentence), (N, Z) in the precision of the parameters; rows of an impossible sentence are zero."""
    ids, offsets = check_text(ids, offsets, params)
    out = np.zeros((len(ids), len(params.initial)), dtype=params.emission.dtype)

    def one_batch(batch: Batch, buffers: Buffers) -> None:
        run_batch(params, batch, buffers, out, batch.token, None, None, tiles)

    for _ in _map_batches(one_batch, batches(ids, offsets, len(params.initial), tiles.n_lanes), n_threads):
        pass
    return out


def messages(ids: Array, offsets: Array, params: ChainParams) -> tuple[F64, Array]:
    """The backward pass alone: log_scale (N,) and values (N, Z), the largest entry of each row one.

    p(x_t and all after it | z_t) = values[t] · exp(log_scale[t]).
    """
    ids, offsets = check_text(ids, offsets, params)
    log_scale, values = np.zeros(len(ids)), np.ones((len(ids), len(params.initial)), dtype=params.emission.dtype)
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        total = 0.0
        for t in range(stop - 1, start - 1, -1):
            if t + 1 < stop:
                values[t] = params.transition.pull(values[t + 1 : t + 2])[0]
            if ids[t] >= 0:
                values[t] *= params.emission[ids[t]]
            largest = float(values[t].max())
            total += np.log(largest) if largest > 0 else -np.inf
            values[t] /= largest if largest > 0 else 1.0
            log_scale[t] = total
    return log_scale, values


def check_params(params: ChainParams) -> None:
    """Raise InputError, with the sums, unless everything that should be a distribution is one."""
    check_rows(np.asarray(params.initial)[None, :], "initial distribution")
    params.transition.check()
    check_rows(params.emission, "emission (a state each)", axis=0)


def check_text(ids: Array, offsets: Array, params: ChainParams) -> tuple[Array, I64]:
    """ids and offsets as arrays; InputError if they do not fit each other or the model."""
    ids, offsets = np.asarray(ids), np.asarray(offsets, dtype=np.int64)
    V, Z = params.emission.shape
    if params.transition.n_states != Z or np.shape(params.initial) != (Z,):
        raise InputError(
            f"the parameters are of different models: initial {np.shape(params.initial)}, transition between "
            f"{params.transition.n_states} states, emission of {Z} states."
        )
    if (
        offsets.ndim != 1
        or len(offsets) < 1
        or offsets[0] != 0
        or offsets[-1] != len(ids)
        or (np.diff(offsets) < 0).any()
    ):
        raise InputError(f"the offsets must rise from 0 to the number of tokens, {len(ids)}.")
    if len(ids) and (int(ids.max()) >= V or int(ids.min()) < -1):
        wrong = int(np.flatnonzero((ids >= V) | (ids < -1))[0])
        raise InputError(f"word id {int(ids[wrong])} is not among the model's {V} words: mark it as missing (−1).")
    return ids, offsets
