"""Worker processes on this machine; a killed worker is replaced and its shard is run again.

Needed for the promise in docs/design.md (Engines) that a worker that dies costs its shard and not the run, and that a
shard that kills three workers is named: `concurrent.futures.ProcessPoolExecutor` gives up all work when one process
dies, and cannot say which shard it held.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

from undertow.engine import wire
from undertow.engine.base import Engine, R, S, check_workers
from undertow.engine.dispatch import MAX_FAILED_STARTS, Job, Outcome, in_order
from undertow.errors import EngineError

PATIENCE = 5.0  # seconds a worker gets to obey SIGTERM before SIGKILL


class Processes(Engine):
    """Run shards in spawned processes, which are kept between calls until `close`.

    Parameters
    ----------
    n
        The number of processes; None uses all cores.
    """

    def __init__(self, n: int | None = None) -> None:
        self.n_workers = check_workers(n)
        self._workers: list[_Worker] = []
        self._versions = count(1)
        self._running = False

    def imap(self, fn: Callable[[S], R], shards: Iterable[S]) -> Generator[R, None, None]:
        """Yield `fn(shard)` in shard order."""
        if self._running:
            raise EngineError("this engine is already running a map: finish that one or use a second engine.")
        crew = _Crew(self._workers, self.n_workers, wire.pack_task(fn), next(self._versions))
        self._running = True
        try:
            yield from in_order(crew, shards)
        except BaseException:
            # An error, Ctrl-C or a consumer that walked away: what the workers still do is of no use.
            self.close()
            raise
        finally:
            self._running = False

    def close(self) -> None:
        """End and reap every worker."""
        for worker in self._workers:
            worker.process.terminate()
        while self._workers:
            self._workers.pop().bury()


class _Worker:
    """One child process, the pipe to it, and the job it holds."""

    def __init__(self, needs_main: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=_work, args=(far_end,), name="undertow-worker", daemon=True)
        self.needs_main = needs_main
        self.ready = False
        self.version = 0  # of the task it has loaded
        self.job: Job | None = None
        try:
            with _sigint_held(), _main_hidden(not needs_main):
                self.process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            far_end.close()  # else the pipe would not end when the child does

    def give(self, job: Job, task: bytes, version: int) -> None:
        """Send a job, and the task before it unless the worker has it (it can hold a model)."""
        self.job = job
        try:
            self.pipe.send_bytes(b"" if self.version == version else task)
            self.version = version
            self.pipe.send_bytes(job.shard)
        except OSError:
            # It died while reading, perhaps of this shard's size: `collect` sees the end and counts it.
            self.process.terminate()

    def bury(self) -> None:
        """Terminate the process, wait for it, and free its handles."""
        self.process.terminate()
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self.pipe.close()
        with suppress(ValueError):  # the program reaps its own children: multiprocessing waits for it in vain
            self.process.close()


class _Crew:
    """The workers of one `imap`, started when there is a job for them."""

    def __init__(self, workers: list[_Worker], n: int, task: bytes, version: int) -> None:
        self.workers, self.n, self.task, self.version = workers, n, task, version
        # Only a function of the user's script, such as a tokenizer, needs the script: see _main_hidden.
        self.needs_main = b"__main__" in task
        self.failed_starts = 0

    def size(self) -> int:
        return self.n

    def offer(self, job: Job) -> bool:
        for worker in [worker for worker in self.workers if worker.job is None]:
            if worker.process.is_alive() and worker.needs_main >= self.needs_main:
                worker.give(job, self.task, self.version)
                return True
            self._drop(worker)
        if len(self.workers) >= self.n:
            return False
        worker = _Worker(self.needs_main)
        worker.job = job  # sent when it greets: a large job sent now would hold up the start of the others
        self.workers.append(worker)
        return True

    def collect(self) -> list[Outcome]:
        while True:
            handles: dict[Any, _Worker] = {}
            for worker in self.workers:
                handles[worker.pipe] = handles[worker.process.sentinel] = worker
            touched = dict.fromkeys(handles[handle] for handle in wait(list(handles)))
            outcomes = [outcome for worker in touched for outcome in self._hear(worker)]
            if outcomes:
                return outcomes

    def _hear(self, worker: _Worker) -> Iterator[Outcome]:
        """Receive one message of a worker, or notice that it has ended."""
        try:
            # A reply finished before the end still counts, so the pipe is asked before the sentinel.
            message = worker.pipe.recv_bytes() if worker.pipe.poll() else None
        except (EOFError, OSError):
            message = None
        job = worker.job
        if message is not None and not worker.ready:
            worker.ready = True  # the first message is the greeting
            self.failed_starts = 0
            if job is not None:
                worker.give(job, self.task, self.version)
        elif message is not None:
            worker.job = None
            assert job is not None
            yield Outcome(job, message)
        else:
            started = worker.ready
            self._drop(worker)
            if not started:
                self._count_failed_start()
            if job is not None:
                yield Outcome(job, None, deaths=int(started))

    def _count_failed_start(self) -> None:
        self.failed_starts += 1
        if self.failed_starts >= MAX_FAILED_STARTS:
            raise EngineError(
                "worker processes end while they start: in a script, put the call under "
                "`if __name__ == '__main__':` or move the function to a module, and check the free memory."
            )

    def _drop(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.bury()


def _work(pipe: Connection) -> None:
    """Main function of a worker: report that it is ready, then answer jobs until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    fn: Callable[[Any], Any] | None = None
    try:
        pipe.send_bytes(b"ready")
        while True:
            task = pipe.recv_bytes()
            if task:
                fn = wire.load_task(task)
                del task
            assert fn is not None
            pipe.send_bytes(wire.run(fn, pipe.recv_bytes()))
    except (EOFError, OSError):
        return


def _leave_with_parent() -> None:
    """Exit at once when the parent is gone, as a job may run for hours before it reads the pipe."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _sigint_held() -> Iterator[None]:
    """Block Ctrl-C while a child starts, until the child ignores it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_main_lock = threading.Lock()


@contextmanager
def _main_hidden(hide: bool) -> Iterator[None]:
    """Keep a spawned child from running the user's script again, which multiprocessing does to find functions in it.

    Without this, `n_jobs=2` in a script with no `if __name__ == "__main__":` would fail (docs/design.md, Engines).
    """
    if not hide:
        yield
        return
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main
