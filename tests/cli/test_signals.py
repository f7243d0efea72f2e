"""Ctrl-C and SIGTERM are answered soon whatever runs; compiling is said once on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import numba
import psutil
import pytest

from undertow.cli import compiling, main, signals
from undertow.cli.common import plain_warnings, progress_bar
from undertow.models.fitting import InterruptedFitWarning
from waiting import wait_for


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
    assert err.startswith("undertow: Interrupted; what is finished is kept"), err
    assert out == "saved\n" and seconds > 2


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The main thread of this process gives no answer to a signal, and soon has had its chance."""
    monkeypatch.setattr(signals, "PATIENCE", 0.2)
    before = {number: signal.signal(number, lambda *_: None) for number in signals.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("deaf")
def test_every_command_of_a_process_is_watched() -> None:
    """Also after one that was interrupted, and nothing is left of any of them."""
    ended: list[int] = []
    n_files, n_threads = psutil.Process().num_fds(), threading.active_count()
    for number in signals.SIGNALS * 2:
        with signals.signals_answered(ended.append, lambda number: pytest.fail(f"waits after {number}")):
            signal.raise_signal(number)
            wait_for(lambda number=number: ended)
        assert ended.pop() == number
    assert psutil.Process().num_fds() == n_files and threading.active_count() == n_threads
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.filterwarnings("always")  # pytest makes errors of them
@pytest.mark.usefixtures("deaf")
def test_any_other_warning_is_no_answer() -> None:
    """It once was: no signal after it ended a busy command."""
    ended: list[int] = []
    with signals.signals_answered(ended.append, ended.append), plain_warnings():
        warnings.warn("Some sentences are left out.", UserWarning, stacklevel=1)
        signal.raise_signal(signal.SIGINT)
        wait_for(lambda: ended)
        assert ended == [signal.SIGINT]


@pytest.mark.filterwarnings("always")  # pytest makes errors of them
@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize("how", ["an error", "a warning"])
def test_a_main_thread_that_answers_is_left_to_end_by_itself(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line answers by the end of the command, or by the warning of a fit that keeps what it has."""
    ended: list[int] = []

    def work(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        if how == "a warning":
            warnings.warn("Interrupted after 1 pass; what was finished is kept.", InterruptedFitWarning, stacklevel=1)
        else:
            monkeypatch.setattr(main, "_interrupted", lambda _: time.sleep(5 * signals.PATIENCE))
            raise KeyboardInterrupt
        time.sleep(5 * signals.PATIENCE)  # saving

    monkeypatch.setattr(main.cli, "make_context", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(main.cli, "invoke", work)
    with signals.signals_answered(ended.append, ended.append):
        main._main([], lambda: False)
    assert ended == []


@pytest.mark.parametrize(("number", "said"), [(signal.SIGINT, "Interrupted"), (signal.SIGTERM, "Terminated")])
def test_what_is_kept_is_said_by_the_name_of_the_signal(number: int, said: str, capsys) -> None:
    main._say_what_is_kept(number)
    assert capsys.readouterr().err.startswith(f"undertow: {said}; what is finished is kept")


def test_a_second_block_of_unsaved_work_ends_with_its_own() -> None:
    def n_blocks() -> int:
        taken = 0
        while signals._own_way.acquire(blocking=False):
            taken += 1
        for _ in range(taken):
            signals._own_way.release()
        return taken

    with signals.unsaved_work() as outer:
        assert n_blocks() == 0  # nothing is finished yet
        outer()
        with signals.unsaved_work() as inner:
            inner()
            inner()
            assert n_blocks() == 2
        assert n_blocks() == 1
    assert n_blocks() == 0
