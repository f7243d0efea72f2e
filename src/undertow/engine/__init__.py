"""Where work runs: here, in threads, in processes, or on a Dask cluster. One seam: `map_reduce`.

The result is the left fold over the shards in their order, whatever the engine and however many its workers,
so floating point sums come out bit-equal everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from operator import index
from typing import TypeVar, cast

from undertow.engine.base import Engine, available_cores
from undertow.engine.dask_cluster import DaskCluster
from undertow.engine.local import Serial, Threads
from undertow.engine.processes import Processes
from undertow.errors import InputError, short

__all__ = [
    "DaskCluster",
    "Engine",
    "Processes",
    "Serial",
    "Threads",
    "count_workers",
    "map_reduce",
    "open_engine",
]

MOST_WORKERS = 10_000

A = TypeVar("A")
S = TypeVar("S")
R = TypeVar("R")


def map_reduce(
    fn: Callable[[S], R],
    shards: Iterable[S],
    combine: Callable[[A, R], A],
    *,
    initial: A | None = None,
    engine: Engine | None = None,
) -> A:
    """Fold `combine` from the left over `fn(shard)` in shard order, as the results arrive.

    `shards` may be lazy: about 2 × workers of them are held at once. Without `initial` the fold starts from
    the first result, so there must be one.
    """
    engine = Serial() if engine is None else engine
    with closing(engine.imap(fn, shards)) as results:
        if initial is None:
            try:
                total = cast(A, next(results))
            except StopIteration:
                raise InputError("there is nothing to work on: the input has no shards.") from None
        else:
            total = initial
        for result in results:
            total = combine(total, result)
    return total


def count_workers(n_jobs: int | None) -> int:
    """The number of workers `n_jobs` asks for: None is 1, -1 is every core this process may use."""
    try:
        n = 1 if n_jobs is None else index(n_jobs)
    except TypeError:
        n = 0
    if n < -1 or n == 0 or n > MOST_WORKERS:
        raise InputError(
            f"n_jobs must be a positive number up to {MOST_WORKERS:,}, or -1 for all cores, not {short(n_jobs)}."
        )
    return available_cores() if n == -1 else n


def open_engine(
    spec: str | None = None,
    n_jobs: int | None = None,
    *,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
) -> Engine:
    """The engine that `n_jobs=` and the command line ask for, to be used in a `with`.

    `spec` is None (processes, or serial for one job), "threads", "dask" for a cluster of this machine, or the
    `tcp://` or `tls://` address of a Dask scheduler.
    """
    n = count_workers(n_jobs)
    if spec is not None and spec.startswith(("tcp://", "tls://")):
        return DaskCluster(spec, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key)
    if spec == "dask":
        return DaskCluster(n_workers=None if n_jobs is None else n)
    if spec not in (None, "threads"):
        raise InputError(f"no engine is called {spec!r}: use threads, dask, or tcp://host:port of a scheduler.")
    if n == 1:
        return Serial()
    return Threads(n) if spec == "threads" else Processes(n)
