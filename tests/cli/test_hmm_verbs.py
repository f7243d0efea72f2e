"""The verbs of the hidden Markov model, on a corpus of a few words."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from cli_runner import failed, run
from undertow import load

SMALL = "--states 8 --blocks 4 --iterations 3 --chunks 2 --seed 0 -j 1".split()
LINES = (
    "The cat sat on the mat.",
    "They sat on the bank of the river. The river flows to the sea.",
    "A bank lends money to the people.",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hmm")
    draw = random.Random(0)
    (path / "news.txt").write_text("".join(draw.choice(LINES) + "\n" for _ in range(100)))
    (path / "new.txt").write_text("They sat on the bank of the Thames.\n\nA cat flows to the bank.\n")
    done = run(
        *("fit", "hmm", path / "news.txt", "-o", path / "news.hmm", *SMALL, "--validation", "0.1"),
        *("--boundary", "<eos>", "--json"),
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    (path / "facts.json").write_text(done.stdout)
    return path


def test_fit_says_what_it_did(place: Path) -> None:
    facts = json.loads((place / "facts.json").read_text())
    assert facts["states"] == 8 and 1 <= facts["passes"] <= 3 and facts["perplexity_held_out"] > 1
    assert Path(facts["corpus"]).is_dir()
    model = load(place / "news.hmm")
    assert model.tokenizer_ and model.validation_history_ and model.vocabulary_.boundary == "<eos>"


def test_perplexity(place: Path) -> None:
    done = run("perplexity", place / "news.hmm", place / "new.txt", "--json")
    facts = json.loads(done.stdout)
    tokens = [
        "They sat on the bank of the Thames . <eos>".split(),
        "A cat flows to the bank . <eos>".split(),
    ]
    assert facts["tokens"] == 18 and facts["perplexity"] == pytest.approx(
        load(place / "news.hmm").perplexity(tokens), rel=1e-9
    )


def test_sample(place: Path) -> None:
    done = run("sample", place / "news.hmm", "-n", "12", "--seed", "3", "--prefix", "They sat", "--json")
    drawn = json.loads(done.stdout)["tokens"]
    assert drawn == load(place / "news.hmm").sample(12, random_state=3, prefix=["They", "sat"])
    plain = run("sample", place / "news.hmm", "-n", "60")
    assert plain.returncode == 0 and len(plain.stdout.strip().split("\n")) > 1 and "<eos>" not in plain.stdout


@pytest.mark.parametrize("method", ["posterior", "viterbi"])
def test_decode(place: Path, method: str) -> None:
    lines = (
        run("decode", place / "news.hmm", place / "new.txt", "--method", method, "--json").stdout.strip().split("\n")
    )
    first = json.loads(lines[0])
    assert first["tokens"][:2] == ["They", "sat"] and len(lines) == 2
    plain = run("decode", place / "news.hmm", place / "new.txt", "--method", method).stdout
    assert plain.startswith(f"They\t{first['states'][0]}\n") and "\n\n" in plain


def test_transitions_and_inspect(place: Path) -> None:
    found = json.loads(run("transitions", place / "news.hmm", "-n", "3", "--json").stdout)["transitions"]
    assert len(found) == 3 and found[0]["before"]
    model = load(place / "news.hmm")
    diagnosis = model.diagnose()
    lines = run("inspect", place / "news.hmm").stdout.split("\n")
    for name, value in diagnosis.facts():
        assert any(line.split("  ")[0] == name and line.endswith(value) for line in lines), name
    facts = json.loads(run("inspect", place / "news.hmm", "--json").stdout)
    assert facts["kind"] == "hmm" and facts["diagnostics"] == diagnosis.to_dict()
    assert "diagnostics" not in json.loads(run("inspect", place / "news.hmm", "--json", "--quick").stdout)


def test_export_in_8_bits(place: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.hmm"
    facts = json.loads(run("export", place / "news.hmm", "-o", small, "--format", "8-bit", "--json").stdout)
    assert facts["bytes"] == sum(p.stat().st_size for p in small.iterdir())
    assert json.loads(run("inspect", small, "--json", "--quick").stdout)["bits"] == 8
    assert run("verify", small).returncode == 0
    load(place / "news.hmm").save(tmp_path / "same.hmm", bits=8)
    assert (tmp_path / "same.hmm" / "model.safetensors").read_bytes() == (small / "model.safetensors").read_bytes()
    again = ("export", place / "news.hmm", "-o", small, "--format", "8-bit")
    assert "exists already" in failed(run(*again))
    assert run(*again, "--overwrite").returncode == 0
    failed(run("export", place / "news.hmm", "-o", "-", "--format", "8-bit"), code=2)
    failed(run("export", place / "news.hmm", "-o", tmp_path / "x", "--format", "8-bit", "--fps", "3"), code=2)


def test_mistakes_are_one_sentence(place: Path, tmp_path: Path) -> None:
    text = place / "news.txt"
    assert "rank" in failed(run("fit", "hmm", text, "-o", tmp_path / "m", "--states", "4", "--rank", "5"))
    wrong = run("fit", "hmm", text, "-o", tmp_path / "m", "--states", "600", "--blocks", "500", "-j", "1")
    assert "words" in failed(wrong)
    failed(run("fit", "hmm", text, "-o", tmp_path / "m", "--states", "0"), code=2)
    failed(run("sample", place / "news.txt"))
    failed(run("decode", place / "news.hmm", tmp_path / "nothing.txt"))
