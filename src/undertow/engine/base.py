"""The interface of engines: run `fn` over shards and return the results in the order of the shards."""

from __future__ import annotations

import os
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Self, TypeVar

from undertow.errors import InputError

S = TypeVar("S")
R = TypeVar("R")

# Shards in flight per worker: one running and one finished or waiting.
AHEAD = 2


class Engine(ABC):
    """A place where work runs; a context manager that frees what it started.

    Attributes
    ----------
    n_workers : int
        The number of shards that are worked on at once.
    """

    n_workers: int = 1
    """How many shards are worked on at once."""

    @abstractmethod
    def imap(self, fn: Callable[[S], R], shards: Iterable[S]) -> Generator[R, None, None]:
        """Yield `fn(shard)` in shard order, at most about 2 × workers shards ahead of the consumer."""

    def close(self) -> None:
        """Free what was started; the engine can be used again afterwards."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def available_cores() -> int:
    """The number of cores that this process may use; in a container often fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    count: Callable[[], int | None] = getattr(os, "process_cpu_count", os.cpu_count)
    return count() or 1


def check_workers(n: int | None) -> int:
    """The number of workers for an argument: None means all cores."""
    if n is None:
        return available_cores()
    if n < 1:
        raise InputError(f"an engine needs at least 1 worker, not {n}.")
    return n


def label(shard: object, width: int = 80) -> str:
    """A short repr of a shard for messages, never building the long one (a shard can be 100 MB of bytes)."""
    if isinstance(shard, str | bytes | bytearray):
        shard = shard[:width]
    short = reprlib.Repr()
    short.maxstring = short.maxother = width
    text = short.repr(shard)
    return text if len(text) <= width else text[: width - 1] + "…"
