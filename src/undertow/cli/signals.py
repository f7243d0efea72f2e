"""An answer to Ctrl-C and SIGTERM within two seconds, whatever the main thread is busy with.

Python hands a signal to the main thread when it is back from compiled code. LLVM, a long loop, or threads that are
waited for at the end can take many seconds. So another thread waits for signals too. If the main thread has not
answered after PATIENCE, the process ends as after a kill: all that is on disk stays, and the same command goes on from
there. Only where the main thread holds finished work that it alone can save is it left to end in its own way, and a
line says so.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 1.0  # seconds that the main thread has to answer a signal

_received = threading.Event()
_answered = threading.Event()
_own_way = threading.Semaphore(0)  # one for each block of `ends_in_its_own_way`


def signal_answered() -> None:
    """The main thread has received the signal and ends in its own way."""
    _answered.set()


def signal_received() -> bool:
    """Whether a signal came, even if the exception it raised was lost, as in a callback from compiled code."""
    return _received.wait(0.1)  # the watching thread may be about to read it


@contextmanager
def ends_in_its_own_way() -> Iterator[None]:
    """While the block runs, the main thread has as long as it needs: it holds what only it can save or end."""
    _own_way.release()
    try:
        yield
    finally:
        _own_way.acquire()


@contextmanager
def unsaved_work() -> Iterator[Callable[..., None]]:
    """Yield a callback of a fit: from its first finished pass to the end of the block there is something to save."""
    with ExitStack() as stack:
        passes: list[None] = []

        def finished(*_: object) -> None:
            if not passes:
                stack.enter_context(ends_in_its_own_way())
            passes.append(None)

        yield finished


@contextmanager
def signals_answered(end: Callable[[int], None], wait: Callable[[int], None]) -> Iterator[None]:
    """End the process if a signal finds the main thread too busy to do so.

    Parameters
    ----------
    end
        Called with the number of the signal, in another thread, before the process ends with the code it returns by
        raising SystemExit.
    wait
        Called instead if the main thread ends in its own way, to say so.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _received.clear()
    _answered.clear()

    def watch() -> None:
        number = next((n for n in iter(lambda: os.read(reader, 1), b"") if n[0] in SIGNALS), b"")
        if not number:
            return
        _received.set()
        if _answered.wait(PATIENCE):
            return
        if _own_way.acquire(blocking=False):
            _own_way.release()
            wait(number[0])
            return
        try:
            end(number[0])
        except SystemExit as e:
            sys.stderr.flush()
            os._exit(e.code if isinstance(e.code, int) else 1)

    thread = threading.Thread(target=watch, name="undertow-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        _answered.set()
        signal.set_wakeup_fd(before)
        os.close(writer)  # the watch reads the end and returns
        thread.join()
        os.close(reader)
