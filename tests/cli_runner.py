"""The command line for tests: within this process, which is quick, or as a process of its own, as people meet it."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from undertow.cli.main import main
from waiting import HANGS

UNSEEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)  # Python's own default


def run(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """`undertow …` within this process: saves the start of a process, and is open to monkeypatching."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    code: Any = 0
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    with patch.object(sys, "stdin", given), redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.resetwarnings()  # pytest makes errors of them
        for kind in UNSEEN:
            warnings.simplefilter("ignore", kind)
        try:
            main([str(a) for a in arguments])
        except SystemExit as e:
            code = e.code
        out.flush()
        err.flush()
    return subprocess.CompletedProcess(
        ["undertow", *map(str, arguments)], code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()
    )


def run_logged(*arguments: object) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """`run`, and the lines of the log."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("undertow")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        return run(*arguments), lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def run_process(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """The same as a process of its own: where starting, ending or logging is what is tested."""
    done = subprocess.run(
        [sys.executable, "-m", "undertow", *map(str, arguments)],
        input=stdin, capture_output=True, check=False, timeout=HANGS,
    )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def failed(done: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """The one sentence of a failure; no traceback, nothing on standard output."""
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr and "bug in undertow" not in done.stderr and done.stdout == ""
    if code == 1:
        (line,) = done.stderr.strip().split("\n")
        assert line.startswith("undertow: ") and line.endswith(".")
    return done.stderr
