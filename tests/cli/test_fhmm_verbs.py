"""The verbs of the factorial HMM, on a corpus of a few words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli_runner import failed, run
from undertow import Corpus, FactorialHMM, load
from undertow.cli.fit_fhmm import OPTIONS

SMALL = "--layers 2 --states 3 --iterations 3 --seed 0 -j 1".split()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fhmm")
    lines = ("The cat sat on the mat.", "A bank lends money to the people.", "The river flows to the sea.")
    (path / "news.txt").write_text("".join(lines[i * i % 3] + "\n" for i in range(90)))
    (path / "new.txt").write_text("The cat sat on the Thames.\n\nA bank flows.\n")
    done = run("fit", "fhmm", path / "news.txt", "-o", path / "news.fhmm", *SMALL, "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    (path / "facts.json").write_text(done.stdout)
    return path


def test_fit_says_what_it_did_and_is_what_the_class_does(place: Path) -> None:
    facts = json.loads((place / "facts.json").read_text())
    assert (facts["layers"], facts["states"], facts["passes"], facts["inference"]) == (2, 3, 3, "exact")
    assert facts["corpus"] == str(place / "news.corpus")
    direct = FactorialHMM(2, n_states=3, n_iter=3, random_state=0).fit(Corpus.open(place / "news.corpus"))
    np.testing.assert_array_equal(direct.theta_, load(place / "news.fhmm").theta_)
    assert set(parameter for parameter, _, _ in OPTIONS.values()) <= set(FactorialHMM.param_defaults())


@pytest.mark.parametrize("view", ["posterior", "viterbi"])
def test_embed(place: Path, tmp_path: Path, view: str) -> None:
    out = tmp_path / "vectors.npz"
    done = run("embed", place / "news.fhmm", place / "new.txt", "-o", out, "--view", view)
    assert done.returncode == 0, done.stderr
    model = load(place / "news.fhmm")
    wanted = model.transform(["The cat sat on the Thames .".split(), "A bank flows .".split()], view)
    with np.load(out) as z:
        [vectors] = [z[name] for name in z.files if z[name].ndim == 2]
    np.testing.assert_allclose(vectors, np.concatenate(wanted), rtol=1e-5, atol=1e-6)


def test_decode_sample_perplexity_and_inspect(place: Path) -> None:
    done = run("decode", place / "news.fhmm", place / "new.txt", "--method", "viterbi")
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.split("\n") if line]
    assert [word for word, _ in rows] == "The cat sat on the Thames . A bank flows .".split()
    assert all(len(states.split()) == 2 and set(states) <= set("012 ") for _, states in rows)
    as_json = run("decode", place / "news.fhmm", place / "new.txt", "--json").stdout
    sentences = [json.loads(line) for line in as_json.split("\n") if line]
    assert np.shape(sentences[0]["states"]) == (7, 2)
    assert len(run("sample", place / "news.fhmm", "-n", 5).stdout.split()) == 5
    assert json.loads(run("perplexity", place / "news.fhmm", place / "new.txt", "--json").stdout)["perplexity"] > 1
    assert "fhmm" in run("inspect", place / "news.fhmm").stdout


def test_layers_of_different_sizes(place: Path, tmp_path: Path) -> None:
    made = tmp_path / "sizes.fhmm"
    options = "--layers 2 --states 4,2 --iterations 3 --seed 0 -j 1 --json".split()
    done = run("fit", "fhmm", place / "news.corpus", "-o", made, *options)
    assert done.returncode == 0 and json.loads(done.stdout)["states"] == [4, 2], done.stderr
    direct = FactorialHMM(2, n_states=[4, 2], n_iter=3, random_state=0).fit(Corpus.open(place / "news.corpus"))
    model = load(made)
    assert model.params_.sizes == (4, 2) and model.n_states == [4, 2]
    np.testing.assert_array_equal(direct.theta_, model.theta_)
    again = run("fit", "fhmm", place / "news.corpus", "-o", made, *options)  # the same recipe: reused
    assert json.loads(again.stdout)["reused"] is True
    rows = [line.split("\t")[1].split() for line in run("decode", made, place / "new.txt").stdout.split("\n") if line]
    assert rows and all(int(a) < 4 and int(b) < 2 for a, b in rows)
    for bad in ("4,", "0", "4,0", "a", "4;2", "-1", "1.5"):
        done = run("fit", "fhmm", place / "news.corpus", "-o", tmp_path / "n", "--states", bad)
        assert done.returncode == 2 and "'--states'" in done.stderr and "60,15" in done.stderr, bad
    sentence = failed(run("fit", "fhmm", place / "news.corpus", "-o", tmp_path / "n", "--states", "4,2,3"))
    assert "n_layers=2" in sentence


def test_mistakes_are_one_sentence(place: Path, tmp_path: Path) -> None:
    for arguments in (
        ("fit", "fhmm", place / "news.corpus", "-o", place / "news.fhmm", *SMALL),
        ("fit", "fhmm", place / "news.corpus", "-o", tmp_path / "m", "--layers", 9, "--inference", "exact"),
        ("embed", place / "news.fhmm", place / "new.txt", "--view", "smooth"),
    ):
        failed(run(*arguments))
    assert not (tmp_path / "m").exists()
