"""Sequences of unequal length side by side, and work in threads whose results keep their order.

*Packing*: sequences are lanes, sorted by falling length and packed by time step. At step t the lanes that are still
alive are the first n_alive[t], so that a step is one product over adjacent rows.

*Threads*: Python's, over kernels that release the GIL: Numba's own threading aborts when it is entered from several
Python threads. How work is cut must not depend on their number; results come in the order of the items, so that what is
added up from them does not depend on it either.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.types import I64

Item = TypeVar("Item")
Result = TypeVar("Result")

_worker = threading.local()


# --- packing --------------------------------------------------------------------------------------------


class Lanes(NamedTuple):
    """Sequences of falling length, packed by time step: token t of lane r is packed row at[t] + r, r < n_alive[t]."""

    begin: I64  # (lanes,) the first token of each
    length: I64  # (lanes,) positive and falling
    n_alive: I64  # (steps,) lanes longer than t
    at: I64  # (steps + 1,) the first packed row of each step
    token: I64  # (rows,) packed row → token

    def step(self, t: int) -> I64:
        """The tokens of step t, one a lane."""
        return self.token[self.at[t] : self.at[t + 1]]


def longest_first(lengths: NDArray[Any]) -> I64:
    """Indices of the sequences that are not empty, by falling length; equal lengths stay in their order."""
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    return order[: np.count_nonzero(lengths)].astype(np.int64, copy=False)


def groups_of_lanes(lengths: NDArray[Any], n_lanes: int) -> list[I64]:
    """Sequences that are not empty, longest first, n_lanes at a time: those of one group have like lengths."""
    order = longest_first(lengths)
    return [order[start : start + n_lanes] for start in range(0, len(order), n_lanes)]


def pack(begin: NDArray[Any], length: NDArray[Any]) -> Lanes:
    """Pack sequences that begin at these tokens and have these lengths, positive and falling."""
    begin, length = np.asarray(begin, dtype=np.int64), np.asarray(length, dtype=np.int64)
    n_steps = int(length[0]) if len(length) else 0
    n_alive = np.searchsorted(-length, -np.arange(n_steps), side="left").astype(np.int64)
    at = np.concatenate(([0], np.cumsum(n_alive))).astype(np.int64)
    return Lanes(begin, length, n_alive, at, _packed_tokens(begin, n_alive, at))


@njit(cache=True, nogil=True)
def _packed_tokens(begin: Any, n_alive: Any, at: Any) -> Any:
    """Equivalent to concatenating `begin[: n_alive[t]] + t` over all t."""
    out = np.empty(at[-1], dtype=np.int64)
    for t in range(len(n_alive)):
        for r in range(n_alive[t]):
            out[at[t] + r] = begin[r] + t
    return out


def equal_runs(cost: NDArray[Any], n_runs: int) -> I64:
    """Edges of at most n_runs runs of items with about equal cost; cost (n + 1,) is cumulative and starts at 0."""
    inner = np.searchsorted(cost, cost[-1] * np.arange(1, n_runs) / n_runs)
    return np.unique(np.concatenate(([0], inner, [len(cost) - 1]))).astype(np.int64)


# --- threads --------------------------------------------------------------------------------------------


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], n_threads: int, in_flight: int | None = None
) -> Iterator[Result]:
    """`map(function, items)` by threads: results in the order of the items, an exception where its result would be.

    At most `in_flight` items (two a thread by default) are under way or wait to be taken, so that memory is bounded.
    One thread, or a call from inside another ordered_map, starts none. Whoever stops early finds nothing running
    any more.
    """
    if n_threads <= 1 or getattr(_worker, "busy", False):
        yield from map(function, items)
        return
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from map(function, first)
        return
    pool, most = _pool(n_threads, os.getpid()), 2 * n_threads if in_flight is None else in_flight
    waiting: deque[Future[Result]] = deque()
    try:
        for item in chain(first, rest):
            waiting.append(pool.submit(function, item))
            if len(waiting) >= most:
                result = waiting[0].result()
                waiting.popleft()
                yield result
        while waiting:
            result = waiting[0].result()
            waiting.popleft()
            yield result
    finally:
        for future in waiting:
            future.cancel()
        wait(waiting)


@cache
def _pool(n_threads: int, process: int) -> ThreadPoolExecutor:
    """Kept between calls: starting threads took a fifth of the time of short ones. One a process: forks copy none."""
    return ThreadPoolExecutor(n_threads, "undertow-kernel", initializer=_mark_worker)


def _mark_worker() -> None:
    _worker.busy = True  # waiting for others of its own pool could wait for ever


class Buffers:
    """Arrays one thread works in; they grow and are kept: fresh pages cost as much as the products written to them."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}

    def take(self, name: str, n_rows: int, n_columns: int, dtype: Any) -> NDArray[Any]:
        """An (n_rows, n_columns) array whose values are what the last use left in it."""
        held = self.arrays.get(name)
        if held is None or held.size < n_rows * n_columns or held.dtype != dtype:
            held = self.arrays[name] = np.empty(n_rows * n_columns, dtype=dtype)
        return held[: n_rows * n_columns].reshape(n_rows, n_columns)


def with_buffers(work: Callable[[Item, Buffers], Result]) -> Callable[[Item], Result]:
    """`work` as a function of the item alone: each call is lent buffers that no other call has at the time."""
    free: list[Buffers] = []

    def lend(item: Item) -> Result:
        try:
            buffers = free.pop()
        except IndexError:
            buffers = Buffers()
        try:
            return work(item, buffers)
        finally:
            free.append(buffers)

    return lend
