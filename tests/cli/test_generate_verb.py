"""The verb `generate`, on a model of a few sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import failed, run
from undertow import HMM, LDS, Corpus, load
from undertow.constraints import Contains, Without

TEXT = [s.split() for s in ("the cat sat on the bank", "the wide river runs", "the old river ran on and on")] * 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generate") / "small.hmm"
    HMM(6, n_iter=3, random_state=0).fit(Corpus.from_sentences(TEXT, boundary="<eos>")).save(path)
    LDS(2, n_iter=1, lags=2, init="random", random_state=0).fit(TEXT).save(path.parent / "small.lds")
    return path


def test_texts_satisfy_what_was_asked(model: Path) -> None:
    asked = ["--prefix", "the", "--length", "3:6", "--contains", "river", "--without", "bank", "-n", "4"]
    done = run("generate", model, *asked, "--json")
    texts = json.loads(done.stdout)["texts"]
    assert len(texts) == 4 and all("river" in t and "bank" not in t and 3 <= len(t) <= 6 for t in texts)
    assert run("generate", model, *asked).stdout.splitlines() == [" ".join(t) for t in texts]
    same = load(model).generate(
        prefix=["the"], length=(3, 6), constraint=Contains("river") & Without("bank"), n=4, random_state=0
    )
    assert texts == same


def test_every_option(model: Path) -> None:
    done = run(
        *("generate", model, "--contains", "wide", "--contains", "on", "--ordered", "--phrase", "old river"),
        *("--ends-with", "ran on", "--matches", ".* ran .*", "--suffix", "and", "--temperature", "0.7", "--seed", "3"),
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    for line in lines:
        words = line.split()
        assert len(words) == 12 and line.endswith("ran on") and "old river" in line
        assert words.index("wide") < len(words) - 1 - words[::-1].index("on")
    best = run("generate", model, "--best", "--contains", "river", "--length", "3").stdout.splitlines()
    assert len(best) == 1 and "river" in best[0].split()


def test_the_probability(model: Path) -> None:
    done = run("generate", model, "--probability", "--contains", "river", "--length", "4", "--prefix", "the", "--json")
    expected = load(model).probability(Contains("river"), length=4, prefix=["the"])
    assert json.loads(done.stdout) == {"probability": expected} and 0 < expected < 1
    shown = run("generate", model, "--probability", "--contains", "river", "--length", "4", "--prefix", "the").stdout
    assert float(shown) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (["--contains", "rivr"], 1, "nearest word there is 'river'"),
        (["--contains", "river", "--without", "river"], 1, "contradict"),
        (["--length", "0"], 1, "at least 1"),
        (["--length", "a:b"], 2, "8:12 for a range"),
        (["--matches", "( the"], 1, "not closed"),
        (["--probability"], 2, "needs a constraint"),
        (["--ordered"], 2, "needs --contains"),
        (["--temperature", "0"], 1, "above 0"),
        (["--best", "--temperature", "0.5"], 2, "leave out --temperature"),
        (["--best", "-n", "3"], 2, "leave out -n"),
    ],
)
def test_bad_usage(model: Path, args: list[str], code: int, sentence: str) -> None:
    assert sentence in failed(run("generate", model, *args), code)


def test_a_model_that_cannot(model: Path) -> None:
    assert "fhmm, hmm" in failed(run("generate", model.parent / "small.lds"))


def test_a_corpus_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the river runs to the sea .\n")
    run("corpus", "build", tmp_path / "text.txt", "-o", tmp_path / "text.corpus")
    assert "is a corpus or counts, not a model" in failed(run("generate", tmp_path / "text.corpus"))
