"""Commands that find their output, or what they need on the way, already there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli_runner import failed, run
from contract.cases import SENTENCES
from tagged_grammar import sentences
from undertow import load

LDS = "fit lds text.txt -o news.lds --components 3 --iterations 2 --lags 3 --ssid-lags 2 --kappa 1 --seed 0 -j 1"
HMM = "fit hmm text.txt -o news.hmm --states 8 --blocks 4 --iterations 2 --seed 0 -j 1"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "text.txt").write_text("".join(" ".join(s) + "\n" for s in SENTENCES))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def here(command: str) -> subprocess.CompletedProcess[str]:
    return run(*command.split())


def test_two_models_of_one_text_share_its_corpus(place: Path) -> None:
    assert here(LDS).returncode == 0
    before = os.stat(place / "news.corpus" / "manifest.json").st_ino
    done = here(HMM)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().endswith(
        "news.corpus is there already, made from the same input with the same options: reused."
    )
    assert os.stat(place / "news.corpus" / "manifest.json").st_ino == before
    names = sorted(p.name for p in place.iterdir())
    assert names == ["news.corpus", "news.counts", "news.hmm", "news.lds", "text.txt"]


def test_other_options_of_reading_name_the_corpus_apart(place: Path) -> None:
    assert here(LDS).returncode == 0
    done = here(f"{HMM} --vocab-size 5 --json")
    assert done.returncode == 0, done.stderr
    assert Path(json.loads(done.stdout)["corpus"]).name.startswith("news-")
    assert len(load("news.hmm").vocabulary_) == 5 < len(load("news.lds").vocabulary_)


def test_a_finished_fit_is_reused_and_another_refused(place: Path) -> None:
    assert here(HMM).returncode == 0
    before = os.stat("news.hmm").st_ino
    again = here(f"{HMM} --json")
    assert again.returncode == 0 and json.loads(again.stdout) == {"model": "news.hmm", "reused": True}
    assert again.stderr.count("\n") == 1 and "reused" in again.stderr and os.stat("news.hmm").st_ino == before
    other = failed(here(HMM.replace("--states 8", "--states 12") + " --lower"))
    for reason in ("--states was 8, now 12", "tokenizer lower was False, now True", "--overwrite"):
        assert reason in other
    (place / "text.txt").write_text("six other words in this text\n" * 9)
    assert "text.txt has changed" in failed(here(HMM))
    assert os.stat("news.hmm").st_ino == before and not list(place.glob("news-*"))  # nothing was built in vain
    assert here(f"{HMM} --overwrite").returncode == 0


def test_the_command_line_says_that_a_corpus_is_reused() -> None:
    command = "corpus build text.txt -o c --json"
    first = here(command)
    again = here(command)
    assert "reused" in again.stderr and json.loads(first.stdout) == json.loads(again.stdout)
    assert "vocab_size was 50000, now 7" in failed(here(f"{command} --vocab-size 7"))


def test_a_count_finds_its_corpus_and_itself(place: Path) -> None:
    command = "count text.txt -o n.counts --lags 2 -j 1"
    assert here(command).returncode == 0
    assert here(command).stderr.count("reused") == 2
    assert "lags was 2, now 3" in failed_last(here(command.replace("--lags 2", "--lags 3")))
    assert sorted(p.name for p in place.iterdir()) == ["n.corpus", "n.counts", "text.txt"]


def failed_last(done: subprocess.CompletedProcess[str]) -> str:
    """The failure behind a line that says what was reused."""
    *_, last = done.stderr.strip().split("\n")
    assert done.returncode == 1
    return last


INTERRUPTED = """
import sys
import undertow.models.checkpoint as checkpoint
from undertow.models import fitting
from undertow.cli.main import main

checkpoint.EVERY_SECONDS = 0
real, left = fitting.log_line, [int(sys.argv[1])]

def log_line(*arguments):
    left[0] -= 1
    if left[0] < 0:  # before the iteration counts
        raise KeyboardInterrupt
    return real(*arguments)

fitting.log_line = log_line
main(sys.argv[2:])
"""


def interrupted(command: str, n: int) -> subprocess.CompletedProcess[str]:
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", INTERRUPTED, str(n), *command.split()]
    return subprocess.run(words, env=paths, check=False, capture_output=True, text=True)


def test_a_fit_that_ctrl_c_ended_goes_on(place: Path) -> None:
    command = HMM.replace("--iterations 2", "--iterations 4")
    first = interrupted(command, 2)
    assert first.returncode == 0 and "Run the same command again to go on." in first.stderr, first.stderr
    assert 2 <= len(load("news.hmm").history_) < 4 and (place / "news.hmm.partial").exists()
    second = interrupted(command, 99)
    assert second.returncode == 0, second.stderr
    whole = {p.name: p.read_bytes() for p in (place / "news.hmm").iterdir()}
    assert len(load("news.hmm").history_) == 4 and not (place / "news.hmm.partial").exists()
    assert interrupted(f"{command} --overwrite", 99).returncode == 0
    assert whole == {p.name: p.read_bytes() for p in (place / "news.hmm").iterdir()}


def test_a_tagger_is_reused_and_another_refused(place: Path) -> None:
    labelled = zip(*sentences(30, seed=1), strict=True)
    rows = ["".join(f"{w}\t{t}\n" for w, t in zip(s, g, strict=True)) for s, g in labelled]
    (place / "gold.tsv").write_text("\n".join(rows) + "\n")
    command = "tag train gold.tsv -o t --seed 0 --iterations 3 -j 1"
    assert here(command).returncode == 0
    assert "reused" in here(command).stderr
    assert "--iterations was 3, now 4" in failed(here(command.replace("--iterations 3", "--iterations 4")))
    (place / "gold.tsv").write_text("\n".join(rows[:-1]) + "\n")
    assert "gold.tsv has changed" in failed(here(command))
