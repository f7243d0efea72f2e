"""Where work runs: serially, in threads, in processes, or on a Dask cluster. The one interface is `map_reduce`.

The result is the left fold over the shards in their order, for every engine and number of workers, so floating-point
sums are equal to the bit.
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
    """Apply `fn` to each shard and fold the results from the left, in the order of the shards.

    Parameters
    ----------
    fn
        A function of one shard; a function of a module if the engine uses processes.
    shards
        The shards; may be lazy, as only about 2 × workers of them are held at once.
    combine
        A function (total, result) → total.
    initial
        The initial total; None starts from the first result.
    engine
        Where `fn` runs; by default `Serial()`.

    Returns
    -------
    The folded total; the same bits for every engine and number of workers.

    Raises
    ------
    InputError
        If there are no shards and no `initial`.
    EngineError
        If a shard ends its worker process three times.

    Examples
    --------
    >>> from undertow.engine import Threads, map_reduce
    >>> map_reduce(len, ["a", "bcd", "ef"], lambda total, n: total + n, initial=0, engine=Threads(2))
    6
    """
    engine = Serial() if engine is None else engine
    with closing(engine.imap(fn, shards)) as results:
        if initial is None:
            try:
                total = cast(A, next(results))
            except StopIteration:
                raise InputError("there is no work: the input has no shards.") from None
        else:
            total = initial
        for result in results:
            total = combine(total, result)
    return total


def count_workers(n_jobs: int | None) -> int:
    """The number of workers for `n_jobs`.

    Parameters
    ----------
    n_jobs
        None is 1, -1 is the number of cores that this process may use.

    Returns
    -------
    int

    Raises
    ------
    InputError
        If `n_jobs` is not a valid number.
    """
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
    """Open the engine for `n_jobs` and the options of the command line; use it in a `with` statement.

    Parameters
    ----------
    spec
        None (processes, or serial for one job), "threads", "dask" for a local cluster, or the `tcp://` or `tls://`
        address of a Dask scheduler.
    n_jobs
        The number of workers; -1 uses all cores.
    tls_ca, tls_cert, tls_key
        Files for a `tls://` address.

    Returns
    -------
    Engine

    Raises
    ------
    InputError
        If `spec` is unknown.
    MissingExtraError
        If Dask is needed and not installed.
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
