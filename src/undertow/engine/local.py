"""The engines inside this process: one after another, or threads for kernels that release the GIL."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from undertow.engine.base import AHEAD, Engine, R, S, check_workers


class Serial(Engine):
    """Run every shard in this thread, one after another."""

    def imap(self, fn: Callable[[S], R], shards: Iterable[S]) -> Generator[R, None, None]:
        """Yield `fn(shard)` for each shard."""
        for shard in shards:
            yield fn(shard)


class Threads(Engine):
    """Run shards in threads, without pickling; only faster if `fn` releases the GIL.

    A thread cannot be stopped: after an error or Ctrl-C, running shards are waited for.

    Parameters
    ----------
    n
        The number of threads; None uses all cores.
    """

    def __init__(self, n: int | None = None) -> None:
        self.n_workers = check_workers(n)

    def imap(self, fn: Callable[[S], R], shards: Iterable[S]) -> Generator[R, None, None]:
        """Yield `fn(shard)` in shard order."""
        source = iter(shards)
        pending: deque[Future[R]] = deque()
        pool = ThreadPoolExecutor(self.n_workers, thread_name_prefix="undertow")
        try:
            while True:
                for shard in islice(source, AHEAD * self.n_workers - len(pending)):
                    pending.append(pool.submit(fn, shard))
                if not pending:
                    return
                yield pending.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
