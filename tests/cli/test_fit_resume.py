"""`undertow fit` that is killed: the same command goes on, with the text it has read and the iterations it finished."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli_runner import failed, run, run_logged
from contract.cases import EVENTS, SENTENCES

# The command, killed when its log says once more than n times that an iteration is finished. The line of an iteration
# comes before its checkpoint.
KILLED = """
import logging, os, signal, sys
import undertow.models.checkpoint as checkpoint
from undertow.cli.main import main

class Kill(logging.Handler):
    left = int(sys.argv[1])
    def emit(self, record):
        if " of " in record.getMessage():
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

checkpoint.EVERY_SECONDS = 0
logger = logging.getLogger("undertow")
logger.setLevel(logging.INFO)
logger.addHandler(Kill())
main(sys.argv[2:])
"""
FITS = {
    "hmm": "hmm text.txt -o m --states 8 --blocks 4 --iterations 4 --chunks 2 --seed 0",
    "fhmm": "fhmm text.txt -o m --layers 2 --states 2 --iterations 3 --seed 0",
    "lds": "lds text.txt -o m --components 3 --iterations 3 --lags 3 --ssid-lags 2 --kappa 1 --seed 0",
    "dynamic": "dynamic events.csv -o m --iterations 3 --seed 0",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "text.txt").write_text("".join(" ".join(s) + "\n" for s in SENTENCES))
    rows = "".join(f"{t},{r},{c},{n}\n" for t, r, c, n in EVENTS)
    (tmp_path / "events.csv").write_text("time,row,column,count\n" + rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def killed(command: str, n: int) -> None:
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", KILLED, str(n), *command.split()]
    done = subprocess.run(words, env=paths, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def model_bytes(place: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((place / "m").iterdir())}


@pytest.mark.parametrize("name", FITS)
def test_a_killed_fit_goes_on(name: str, place: Path) -> None:
    command = f"fit {FITS[name]} -j 1"
    killed(command, 1)
    assert not (place / "m").exists() and list((place / "m.partial").glob(f"{name}-*/state.safetensors"))
    done, log = run_logged(*command.split())
    assert done.returncode == 0, done.stderr
    assert any("continuing after 1 " in line for line in log)
    assert not (place / "m.partial").exists()
    went_on = model_bytes(place)
    assert run(*command.split(), "--overwrite").returncode == 0
    assert went_on == model_bytes(place)


def test_other_text_is_not_taken_for_what_was_read(place: Path) -> None:
    command = f"fit {FITS['hmm']} -j 1"
    killed(command, 0)
    (place / "text.txt").write_text("quite another text with other words\n" * 9)
    done = run(*command.split(), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["words"] < 20, done.stderr
    assert len(list(place.glob("m*.corpus"))) == 2  # what the killed command read is left alone


def test_a_fit_that_failed_does_not_block_the_corrected_command(place: Path) -> None:
    wrong = run(*"fit hmm text.txt -o m --states 40 --blocks 40 --iterations 1 -j 1".split())
    assert "blocks" in failed(wrong)
    assert run(*f"fit {FITS['hmm']} -j 1".split()).returncode == 0
    assert not (place / "m.partial").exists()
