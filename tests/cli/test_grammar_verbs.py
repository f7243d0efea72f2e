"""The verbs of the grammar, on a corpus of a few words."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from cli_runner import failed, run
from undertow import load

SMALL = "--nonterminals 4 --preterminals 5 --rank 3 --restarts 2 --iterations 3 --chunks 2 --seed 0 -j 1".split()
LINES = ("The cat sat on the mat.", "They sat on the bank of the river.", "A bank lends money to (some) people.")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grammar")
    draw = random.Random(0)
    (path / "news.txt").write_text("".join(draw.choice(LINES) + "\n" for _ in range(60)))
    (path / "new.txt").write_text("They sat on the Thames.\n\nA (cat) sat.\n")
    done = run("fit", "grammar", path / "news.txt", "-o", path / "news.grammar", *SMALL, "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    facts = json.loads(done.stdout)
    assert facts["sentences"] == 60 and facts["passes"] == 3 and facts["perplexity_in_training"] > 1
    assert Path(facts["corpus"]).is_dir()
    return path


def test_parse(place: Path) -> None:
    model = load(place / "news.grammar")
    tokens = ["They sat on the Thames .".split(), "A ( cat ) sat .".split()]
    done = run("parse", place / "news.grammar", place / "new.txt")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().split("\n")
    assert lines == [tree.penn() for tree in model.trees(tokens)]  # type: ignore[attr-defined]
    assert "-LRB-" in lines[1] and all(line.count("(") == line.count(")") for line in lines)
    done = run("parse", place / "news.grammar", place / "new.txt", "--json", "--method", "viterbi")
    found = [json.loads(line) for line in done.stdout.strip().split("\n")]
    assert found == [tree.to_dict() for tree in model.trees(tokens, "viterbi")]  # type: ignore[attr-defined]


def test_parse_draws_a_page(place: Path, tmp_path: Path) -> None:
    page = tmp_path / "trees.html"
    facts = json.loads(run("parse", place / "news.grammar", place / "new.txt", "--html", page, "--json").stdout)
    assert facts["trees"] == 2 and facts["bytes"] == page.stat().st_size
    assert page.read_text(encoding="utf-8").count("<svg") == 2
    failed(run("parse", place / "news.grammar", place / "new.txt", "--html", page))


def test_perplexity_sample_and_inspect(place: Path) -> None:
    facts = json.loads(run("perplexity", place / "news.grammar", place / "new.txt", "--json").stdout)
    assert facts["tokens"] == 12 and facts["perplexity"] > 1
    drawn = json.loads(run("sample", place / "news.grammar", "-n", "9", "--seed", "3", "--json").stdout)["tokens"]
    assert drawn == load(place / "news.grammar").sample(9, random_state=3)  # type: ignore[attr-defined]
    assert "grammar" in run("inspect", place / "news.grammar").stdout


def test_mistakes_are_one_sentence(place: Path, tmp_path: Path) -> None:
    failed(run("parse", place / "news.corpus", place / "new.txt"))
    failed(run("sample", place / "news.grammar", "--prefix", "the cat"), 2)
    (tmp_path / "long.txt").write_text("word " * 300 + "\n")
    assert "at most 256" in failed(run("parse", place / "news.grammar", tmp_path / "long.txt"))
    failed(run("fit", "grammar", place / "news.txt", "-o", tmp_path / "x.grammar", "--rank", "0"), 2)
