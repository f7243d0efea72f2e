"""Compiling at first use: a line that says so, and a response to Ctrl-C meanwhile.

Numba compiles a loop when it is first called and keeps the result on disk, so a cold start takes up to a minute in
which nothing else would be seen. LLVM does not look for signals: Ctrl-C would wait until it has finished a function.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE = 1.5  # seconds that the main thread has to answer a signal while something is compiled
NOTICE = "compiling loops for this machine, at first use only; this may take a minute …"

_said = False
_answered = threading.Event()


def say_when_compiling(say: Callable[[str], None]) -> None:
    """Print a line when Numba first compiles something, once, if standard error is a terminal."""
    global _said  # noqa: PLW0603  # once a process
    if _said or not sys.stderr.isatty():
        return
    _said = True
    from numba.core import event

    class Listener(event.Listener):  # type: ignore[misc,unused-ignore]
        def on_start(self, event: Any) -> None:
            if self.waiting:
                self.waiting = False
                say(NOTICE)

        def on_end(self, event: Any) -> None:
            pass

        waiting = True

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call,unused-ignore]


def signal_answered() -> None:
    """The main thread has received the signal and ends in its own way."""
    _answered.set()


@contextmanager
def signals_answered_while_compiling(end: Callable[[int], None]) -> Iterator[None]:
    """End the process if a signal finds it busy with compiling; all that is on disk stays, as after a kill.

    Parameters
    ----------
    end
        Called with the number of the signal, in another thread, before the process ends with the code it returns by
        raising SystemExit.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _answered.clear()

    def watch() -> None:
        numbers = os.read(reader, 1)
        if not numbers or numbers[0] not in (signal.SIGINT, signal.SIGTERM):
            return
        began = time.monotonic()
        while not _answered.wait(0.1):
            if time.monotonic() - began > PATIENCE and is_compiling():
                try:
                    end(numbers[0])
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


def is_compiling() -> bool:
    """Whether some thread holds Numba's lock of the compiler."""
    module = sys.modules.get("numba.core.compiler_lock")
    if module is None:
        return False
    lock = module.global_compiler_lock._lock
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True
