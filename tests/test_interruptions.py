"""Whatever stops a command, and wherever: the same command run again gives the bytes of an undisturbed run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import interruptions
from cli_runner import run

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


KILLED_FIT = """
import os, signal, sys
real = os.replace
def deadly(a, b):
    if os.path.basename(b) == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(a, b)
os.replace = deadly
from undertow.cli.main import main
main(sys.argv[2:])
"""


def test_a_killed_fit_of_text_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    """Killed while it wrote rows, it once left the unfinished file in the counts that the next run completed."""
    (tmp_path / "here").mkdir()
    (tmp_path / "whole").mkdir()
    options = ["--components", "2", "--iterations", "2", "--full-iterations", "0", "--lags", "3", "--ssid-lags", "2"]
    text = interruptions.text(tmp_path, 1)

    def fit(place: str) -> list[object]:
        return ["fit", "lds", text, "-o", tmp_path / place / "m.lds", *options, "--seed", "0", "--overwrite"]

    command = [sys.executable, "-c", KILLED_FIT, "lag002-rows00000.safetensors", *map(str, fit("here"))]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert list((tmp_path / "here").glob("m.counts.partial/work*/.lag002*.tmp")), "nothing was being written"
    for place in ("here", "whole"):
        done = run(*fit(place))
        assert done.returncode == 0, done.stderr
    assert interruptions.contents(tmp_path / "here") == interruptions.contents(tmp_path / "whole")
