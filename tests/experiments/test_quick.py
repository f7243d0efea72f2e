"""Every long experiment in its short form, on real data: it ends well, and not so if a claim points the other way."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments"
DATA = Path(os.environ.get("UNDERTOW_DATA", ROOT.parent / "shared" / "data"))
# script -> what it needs beside the core
NEEDS = {
    "dynamic_coverage": (),
    "dynamic_nips": (),
    "fhmm_pos": (),
    "grammar": (),
    "grammar_trees": (),
    "hmm_neural": ("torch",),
    "hmm_perplexity": (),
    "hmm_tied": (),
    "lds_noise": (),
    "lds_pos": (),
    "lds_rnn": ("torch",),
    "lds_start": (),
    "lds_stronger": (),
    "lds_transitions": (),
    "queries": (),
    "steering": ("transformers",),
    "tagging_choices": (),
    "tagging_default": (),
    "tagging_ner": (),
    "tagging_pos": (),
    "tagging_representations": (),
}
NOT_EXPERIMENTS = {"pages", "report", "un_excerpt"}


def test_every_experiment_has_a_short_form() -> None:
    commands = {p.stem for p in FOLDER.glob("*.py") if "__main__" in p.read_text(encoding="utf-8")}
    assert commands - NOT_EXPERIMENTS == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_the_claim_points_the_right_way(name: str, tmp_path: Path) -> None:
    if not (DATA / "MANIFEST.md").exists():
        pytest.skip("the real data is not here: set UNDERTOW_DATA")
    for module in NEEDS[name]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    before = {p: p.read_bytes() for p in (FOLDER / "results").iterdir()}
    script = FOLDER / f"{name}.py"
    kept = ["--work", tmp_path] if '"--work"' in script.read_text(encoding="utf-8") else []
    command = [sys.executable, script, "--quick", *kept]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=1500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert {p: p.read_bytes() for p in (FOLDER / "results").iterdir()} == before, "--quick wrote into results/"
