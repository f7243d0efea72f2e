"""Ctrl-C and SIGTERM are answered soon whatever runs; compiling is said once on a terminal."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time

import numba
import pytest

from undertow.cli import compiling, signals
from undertow.cli.common import progress_bar


@pytest.mark.parametrize("on_terminal", [True, False])
def test_compiling_is_said_once_and_on_a_terminal_only(on_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_said", False)
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: on_terminal, raising=False)
    with progress_bar():
        for factor in (2, 3):
            assert numba.njit(lambda x, factor=factor: x * factor)(4) == 4 * factor
    assert terminal.getvalue().count("at first use only") == on_terminal


# The main thread is busy in code that looks for no signal, as LLVM and long loops do.
BUSY = """
import contextlib, sys, threading, time
import numba
import numpy as np
from undertow.cli import main as cli
from undertow.cli.common import show_warning
from undertow.cli.signals import unsaved_work

@numba.njit(nogil=True)
def busy_loop(n, rounds, entered):
    entered[0] = n
    total = 0
    while n > 0 and rounds != 0:
        total += n
        n = (n * 7 + total) % 1000003 + 1
        rounds -= 1
    return total

entered = np.zeros(1, dtype=np.int64)
busy_loop(0, -1, entered)

def tell():  # from another thread, when the main one is inside and cannot answer by itself any more
    while not entered[0]:
        time.sleep(0.01)
    print("busy", flush=True)

def busy(args, is_terminated):
    show_warning("Long sentences are left out.")  # a warning is no answer to a signal that comes later
    with unsaved_work() as finished:
        for event in range(2 * unsaved):
            finished(event)
        threading.Thread(target=tell, daemon=True).start()
        try:
            busy_loop(1, 500_000_000 if unsaved else -1, entered)  # seconds, or without end
        finally:
            time.sleep(cleaning)
            print("saved", flush=True)

unsaved, cleaning = int(sys.argv[1]), float(sys.argv[2])
cli._main = busy
cli.main([])
"""


# The exception of the signal is lost in a callback, and the code that called it fails for want of what it was to bring.
LOST = """
import contextlib, os, sys, time
from undertow.cli import main as cli

def lose_it(context):
    with contextlib.suppress(KeyboardInterrupt):
        print("busy", flush=True)
        while True:
            time.sleep(0.01)
    raise RuntimeError("no compiled object yet")

cli.cli.invoke = lose_it
cli.main(["inspect", "x"])
"""


@pytest.mark.parametrize(("number", "code", "said"), [(signal.SIGINT, 1, "Interrupted"), (signal.SIGTERM, 143, "Term")])
def test_an_error_that_a_signal_caused_is_no_bug(number: int, code: int, said: str) -> None:
    ended, _, _, err = signalled(number, program=LOST)
    assert ended == code and err.startswith(f"undertow: {said}"), err


def signalled(number: int, *arguments: str, program: str = BUSY) -> tuple[int, float, str, str]:
    """Exit code, seconds to the end, and what was printed."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "busy\n"
        began = time.monotonic()
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()  # without an answer it never ends
    return process.returncode, time.monotonic() - began, out, err


@pytest.mark.parametrize(("number", "code", "said"), [(signal.SIGINT, 1, "Interrupted"), (signal.SIGTERM, 143, "Term")])
def test_a_signal_is_answered_while_compiled_code_runs(number: int, code: int, said: str) -> None:
    ended, seconds, out, err = signalled(number, "0", "0")
    last = err.splitlines()[-1]
    assert ended == code and last.startswith(f"undertow: {said}") and "run it again" in last, err
    assert seconds > 0.8 and "saved" not in out  # the main thread has its chance first


def test_finished_work_is_saved_however_long_it_takes() -> None:
    """The main thread is waited for, through the end of its step and its cleaning up, and a line says so."""
    _, seconds, out, err = signalled(signal.SIGINT, "1", "1")
    assert err.splitlines()[1].startswith("undertow: Interrupted; what is finished is kept"), err
    assert out == "saved\n" and seconds > 2


def test_a_second_block_of_unsaved_work_ends_with_its_own() -> None:
    with signals.unsaved_work() as outer:
        outer()
        with signals.unsaved_work() as inner:
            inner()
            inner()
        assert signals._own_way.acquire(blocking=False)  # the outer one still
        signals._own_way.release()
    assert not signals._own_way.acquire(blocking=False)
