"""The command line as a process, for every test that meets it as people do."""

from __future__ import annotations

import os
import subprocess
import sys

from waiting import HANGS


def run(*arguments: object, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "undertow.cli.main", *map(str, arguments)],
        input=stdin, capture_output=True, check=False, timeout=HANGS, env={**os.environ, **(env or {})},
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
