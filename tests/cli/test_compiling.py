"""Compiling at first use: it is said once on a terminal, and Ctrl-C does not wait for LLVM."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time

import numba
import pytest

from undertow.cli import compiling
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


# The main thread is busy in code that looks for no signal, with the lock of the compiler, as in LLVM.
BUSY = """
import threading, time
import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock
from undertow.cli import main as cli

@numba.njit(nogil=True)
def endless(n, entered):
    entered[0] = n
    total = 0
    while n > 0:
        total += n
        n = (n * 7 + total) % 1000003 + 1
    return total

entered = np.zeros(1, dtype=np.int64)
endless(0, entered)

def tell():  # from another thread, when the main one is inside and cannot answer by itself any more
    while not entered[0]:
        time.sleep(0.01)
    print("busy", flush=True)

def busy(args, is_terminated):
    with global_compiler_lock:
        threading.Thread(target=tell, daemon=True).start()
        endless(1, entered)

cli._main = busy
cli.main([])
"""


@pytest.mark.parametrize(("number", "code", "said"), [(signal.SIGINT, 1, "Interrupted"), (signal.SIGTERM, 143, "Term")])
def test_a_signal_is_answered_while_something_is_compiled(number: int, code: int, said: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", BUSY]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "busy\n"
        began = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)  # without an answer it never ends
    assert process.returncode == code and err.startswith(f"undertow: {said}"), err
    assert time.monotonic() - began > 1  # the main thread has its chance first
