"""The progress bar on a terminal."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from undertow.cli.common import progress_bar
from undertow.progress import Progress
from waiting import wait_for


def test_a_stage_is_one_bar_that_shows_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    with progress_bar() as progress:
        progress(Progress("read", 5, 5, "B"))
        for done in range(4):
            progress(Progress("fit", done, 3, "iteration"))
    lines = terminal.getvalue().strip().split("\n")
    assert len(lines) == 2 and "read" in lines[0]
    last = lines[1].split("\r")[-1]
    assert re.search(r"fit: 100%.*3/3 \[00:\d\d<00:00", last), last


def test_the_clock_of_a_bar_goes_on_while_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("undertow.cli.common.TICK", 0.02)
    with progress_bar() as progress:
        progress(Progress("fit", 0, 3, "pass"))
        wait_for(lambda: "0/3 [00:01<" in terminal.getvalue())
        progress(Progress("fit", 3, 3, "pass"))
    ended = terminal.getvalue()
    assert re.search(r"3/3 \[00:\d\d<00:00.*\n$", ended)
    time.sleep(0.1)
    assert terminal.getvalue() == ended  # the clock has stopped
