"""Whatever stops a command, and wherever: the same command run again gives the bytes of an undisturbed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import interruptions

# two names change places at once, or (where the system cannot) one by one; a first output takes the place of nothing
CASES = [
    (name, how)
    for name in interruptions.trials
    for how in ["exchange", "two steps"]
    if how == "exchange" or not name.startswith("first")
]


@pytest.mark.parametrize(("name", "exchange"), CASES)
def test_a_kill_between_any_two_steps(name: str, exchange: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, interruptions.__file__, name, tmp_path, exchange],
        capture_output=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    kills, wrong = json.loads(done.stdout)
    assert kills > 20 and wrong == []


@pytest.mark.filterwarnings("ignore:.*(could not be removed|could not be flushed)")
@pytest.mark.parametrize(("name", "exchange"), CASES)
def test_an_error_at_any_step(name: str, exchange: str, tmp_path: Path) -> None:
    """It names the target, leaves what was there, and is no error once the new directory is in its place."""
    with interruptions.quick_disk():
        errors, wrong = interruptions.fail_everywhere(name, tmp_path, exchange == "exchange")
    assert errors > 20 and wrong == []
