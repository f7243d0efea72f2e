"""`undertow tag train --text`: the one command; killed, run again; parts kept for other taggers of the same text."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli_runner import failed, run, run_logged
from tagged_grammar import sentences
from undertow import load

COMMAND = "tag train labelled.tsv --text *.txt -o t --seed 0 --iterations 10 -j 1"
# The command with its log on standard error, killed by the first line that contains the given words.
KILLED = """
import logging, os, signal, sys
import undertow.models.checkpoint as checkpoint
from undertow.cli.main import main

class Kill(logging.Handler):
    def emit(self, record):
        line = record.getMessage()
        print(line, file=sys.stderr)
        if sys.argv[1] in line:
            os.kill(os.getpid(), signal.SIGKILL)

checkpoint.EVERY_SECONDS = 0
logger = logging.getLogger("undertow")
logger.setLevel(logging.INFO)
logger.addHandler(Kill())
main(sys.argv[2:])
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = sentences(9600, seed=3)[0]
    for name, part in (("a.txt", text[:1000]), ("b.txt", text[1000:])):
        (tmp_path / name).write_text("".join(" ".join(s) + "\n" for s in part))
    labelled = zip(*sentences(60, seed=1, share=0.2), strict=True)
    rows = ["".join(f"{w}\t{t}\n" for w, t in zip(s, g, strict=True)) for s, g in labelled]
    (tmp_path / "labelled.tsv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def killed(command: str, kill_at: str) -> list[str]:
    """Run the command until it is killed; gives its log."""
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", KILLED, kill_at, *command.split()]
    done = subprocess.run(words, env=paths, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stderr.split("\n")


def fitted(log: list[str]) -> list[str]:
    """The models that were fitted, by the log."""
    lines = [line.split("(")[0] for line in log if line.startswith(("fitting", "training"))]
    return [line for line, _ in itertools.groupby(line.split(" on ")[0].removeprefix("fitting ") for line in lines)]


def files(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir())}


def test_killed_training_goes_on(place: Path) -> None:
    """Once while the clusters are fitted, then while the CRF is measured: what was finished is not done again."""
    assert fitted(killed(COMMAND, "words moved")) == ["LDS", "PMIVectors", "ContextVectors", "WordClusters"]
    assert not (place / "t").exists() and list((place / "t.partial").glob("part-lds-*/config.json"))
    assert fitted(killed(COMMAND, "training the CRF")) == ["WordClusters", "HMM", "training the CRF"]
    third, log = run_logged(*COMMAND.split())
    assert third.returncode == 0 and fitted(log) == ["training the CRF"], third.stderr
    assert not (place / "t.partial").exists()
    went_on = files(place / "t")
    assert run(*COMMAND.split(), "--overwrite").returncode == 0
    assert files(place / "t") == went_on


def test_the_directory_of_work_serves_other_taggers(place: Path) -> None:
    done = run(*COMMAND.split(), "--work", "work", "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    facts = json.loads(done.stdout)
    assert facts["features"] == ["lds-vectors", "pmi-vectors", "context-vectors", "clusters-paths", "hmm-posteriors"]
    assert facts["held_out"]["tokens"]["all"] == load(place / "t").held_out_.as_dict()["tokens"]["all"]
    assert not (place / "t.partial").exists() and list((place / "work").glob("corpus-*"))
    again, log = run_logged(*COMMAND.replace("-o t", "-o u").split(), "--work", "work", "--l2", 3)
    assert again.returncode == 0 and fitted(log) == ["training the CRF"], again.stderr
    assert load(place / "u").crf_.l2 == 3.0


def test_little_text_is_said_in_a_sentence(place: Path) -> None:
    (place / "few").write_text("A few words only.\n")
    done = run(*COMMAND.replace("*.txt", "few").split())
    (line,) = done.stderr.strip().split("\n")
    assert done.returncode == 0 and line.startswith("undertow: The text has 5 tokens of ") and line.endswith("without.")


def test_a_failed_command_leaves_the_way_clear(place: Path) -> None:
    assert "none.txt" in failed(run(*COMMAND.replace("*.txt", "none.txt").split()))
    assert not (place / "t").exists()
    (place / "few.txt").write_text("A few words only.\n")
    assert run(*COMMAND.replace("*.txt", "few.txt").split(), "--validation", "0").returncode == 0
