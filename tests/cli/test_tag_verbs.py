"""undertow tag: train, eval and predict, on a few hand-written sentences."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_runner import failed, run
from undertow import CRFTagger, load
from undertow.text import sentences as batches_of_sentences
from waiting import HANGS

LINES = ("The old bank lends money .", "The river runs to the sea .", "A bank of the river sleeps .")
TAGS = {
    "The": "DT", "the": "DT", "A": "DT", "old": "JJ", "lends": "VBZ", "runs": "VBZ", "sleeps": "VBZ", "to": "TO",
    "of": "IN", ".": ".", "bank": "NN", "money": "NN", "river": "NN", "sea": "NN",
}  # fmt: skip
NAMES = "Ann\tB-per\nLee\tI-per\nleft\tO\nRome\tB-loc\n\nRome\tB-loc\nfell\tO\n\n"


def conllu(lines: list[str]) -> str:
    out = []
    for line in lines:
        out += [f"{i}\t{w}\t_\tX\t{TAGS[w]}\t_\t_\t_\t_\t_\n" for i, w in enumerate(line.split(), 1)]
        out.append("\n")
    return "".join(out)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, labelled text, an LDS of the text, a tagger that reads both, and a CRF alone."""
    path = tmp_path_factory.mktemp("tag")
    draw = random.Random(0)
    text = [draw.choice(LINES) for _ in range(60)]
    (path / "news.txt").write_text("\n".join(text) + "\n")
    (path / "train.conllu").write_text(conllu(text[:30]))
    (path / "dev.conllu").write_text(conllu(list(LINES)))
    (path / "names.tsv").write_text(NAMES * 10)
    small = "--components 3 --iterations 2 --lags 3 --ssid-lags 2 --kappa 1 --seed 0 -j 1".split()
    assert run("fit", "lds", path / "news.txt", "-o", path / "news.lds", *small).returncode == 0
    done = run(
        *("tag", "train", path / "train.conllu", "--tags", "xpos", "--model", path / "news.lds", "--view", "smooth"),
        *("-o", path / "crf", "--json"),
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    plain = ("--tags", "xpos", "--kind", "crf", "-o", path / "plain")
    assert run("tag", "train", path / "train.conllu", *plain).returncode == 0
    (path / "facts.json").write_text(done.stdout)
    return path


def test_train(place: Path) -> None:
    facts = json.loads((place / "facts.json").read_text())
    assert facts["sentences"] == 30 and facts["tags"] == 7 and facts["spans"] is None
    assert facts["features"] == ["lds-vectors"] and facts["iterations"] > 1
    assert facts["held_out"]["tokens"]["all"]["total"] == 20
    tagger: Any = load(place / "crf")
    assert tagger.kind == "tagger" and load(place / "plain").kind == "crf-tagger"
    assert tagger.features_[0].view == "smooth" and tagger.labels_ == sorted(set(TAGS.values()))


def test_each_model_is_read_as_the_options_say(place: Path, tmp_path: Path) -> None:
    """What the rows of the tagging tables need: clusters and an HMM as models, views, scale, window, pieces, casing."""
    for verb in (
        "hmm {t}/c -o {t}/news.hmm --states 3 --iterations 2",
        "clusters {t}/c -o {t}/news.clusters --clusters 4",
    ):
        if "hmm" in verb:
            assert run("corpus", "build", place / "news.txt", "-o", tmp_path / "c").returncode == 0
        made = run("fit", *verb.format(t=tmp_path).split(), "--seed", 0, "-j", 1)
        assert made.returncode == 0, made.stderr
    assert "clusters" in made.stdout and load(tmp_path / "news.clusters").n_clusters == 4
    models = [place / "news.lds", tmp_path / "news.clusters", tmp_path / "news.hmm", tmp_path / "news.hmm"]
    done = run(
        *("tag", "train", place / "train.conllu", "--tags", "xpos", "-o", tmp_path / "t", "--pieces"),
        *(x for scale in (3, 0.5, 2, 1) for x in ("--scale", scale)),
        *(x for model in models for x in ("--model", model)),
        *("--view", "type", "--view", "path", "--view", "posterior", "--view", "states"),
        *(x for window in (0, 0, 0, 1) for x in ("--model-window", window)),
        *(x for casing in ("frequent", "known", "known", "spelled") for x in ("--casing", casing)),
    )
    assert done.returncode == 0, done.stderr
    tagger: Any = load(tmp_path / "t")
    assert [(f.name, f.window, f.pieces) for f in tagger.features_] == [
        ("lds-vectors", 0, True), ("clusters-paths", 0, True), ("hmm-posteriors", 0, True), ("hmm-states", 1, True),
    ]  # fmt: skip
    assert tagger.features_[0].view == "type" and [f.scale for f in tagger.features_] == [3.0, 0.5, 2.0, 1.0]
    assert [f.casing for f in tagger.features_] == ["frequent", "known", "known", None]
    default = run(
        "tag", "train", place / "train.conllu", "--model", models[2], "--model", models[2], "-o", tmp_path / "d"
    )
    assert "hmm-posteriors-1, hmm-posteriors-2" in default.stdout, "an HMM is read by its posteriors"


def test_held_out_files_and_probabilities(place: Path, tmp_path: Path) -> None:
    labelled = ("tag", "train", place / "train.conllu", "--tags", "xpos", "--seed", 0)
    done = run(*labelled, "--held-out", place / "dev.conllu", "-o", tmp_path / "t")
    assert "On sentences that were held out:" in done.stdout and "all tokens" in done.stdout, done
    none = run(*labelled, "--validation", 0, "-o", tmp_path / "none")
    assert none.returncode == 0 and "held out" not in none.stdout and load(tmp_path / "none").held_out_ is None
    rows = run("tag", "predict", "--probabilities", tmp_path / "t", place / "dev.conllu").stdout.split("\n")
    word, tag, probability = rows[0].split("\t")
    assert (word, tag) == ("The", "DT") and 0.5 < float(probability) <= 1
    shown = run("inspect", tmp_path / "t").stdout
    assert "held_out 100.00% of the tokens" in shown and len(shown) < 2500


def test_eval(place: Path) -> None:
    done = run("tag", "eval", place / "crf", place / "dev.conllu", "--tags", "xpos")
    assert done.returncode == 0, done.stderr
    rows = [line.rsplit(maxsplit=3) for line in done.stdout.strip().split("\n")]
    assert rows[0] == ["tokens", "right", "accuracy"] and rows[1] == ["all tokens", "20", "20", "100.00%"]
    assert rows[2] == ["unseen words", "0", "0", "-"]
    report = json.loads(run("tag", "eval", place / "crf", place / "dev.conllu", "--tags", "5", "--json").stdout)
    assert report["tokens"]["all"] == {"accuracy": 1.0, "right": 20, "total": 20} and "spans" not in report


def test_eval_reads_the_columns_the_tagger_was_trained_on(place: Path) -> None:
    """README's two lines: `tag train --tags xpos`, then `tag eval` without it."""
    assert load(place / "crf").columns_ == {"tags": "xpos", "column": 1, "format": "auto"}
    report = json.loads(run("tag", "eval", place / "crf", place / "dev.conllu", "--json").stdout)
    assert report["tokens"]["all"] == {"accuracy": 1.0, "right": 20, "total": 20}


def test_words_behind_another_column_are_found_again(place: Path, tmp_path: Path) -> None:
    """Tag, number, word: the columns and the format of the training serve eval; predict takes the column of words."""
    rows = "\n".join("\n".join(f"{TAGS[w]}\t{i}\t{w}" for i, w in enumerate(line.split())) + "\n" for line in LINES)
    for name in ("train.data", "dev.data", "dev.tsv"):
        (tmp_path / name).write_text(rows * 10)
    columns = ("--format", "tsv", "--column", 3, "--tags", 1)
    made = run("tag", "train", tmp_path / "train.data", *columns, "-o", tmp_path / "t")
    assert made.returncode == 0, made.stderr
    for name in ("dev.data", "dev.tsv"):
        done = run("tag", "eval", tmp_path / "t", tmp_path / name, "--json")
        assert json.loads(done.stdout)["tokens"]["all"]["accuracy"] == 1.0
    assert run("tag", "predict", tmp_path / "t", tmp_path / "dev.tsv").stdout.startswith("The\tDT\nold\tJJ\n")
    (tmp_path / "running.txt").write_text("The river runs .\n")  # the format of the labels is not that of the text
    assert run("tag", "predict", tmp_path / "t", tmp_path / "running.txt").stdout.startswith("The\tDT\nriver")


def test_an_option_that_is_given_goes_before_what_the_tagger_remembers(place: Path) -> None:
    message = failed(run("tag", "eval", place / "crf", place / "dev.conllu", "--tags", "upos"))
    assert "(X)" in message and "(., DT, IN, JJ, NN, …)" in message and "--tags" in message


def test_predict_running_text(place: Path, tmp_path: Path) -> None:
    """The words rule cuts it, and words and numbers stay as they are written."""
    (tmp_path / "new.txt").write_text("The bank didn't lend 3.5 dollars. The river runs.\n")
    out = tmp_path / "out.tsv"
    done = run("tag", "predict", place / "crf", tmp_path / "new.txt", "-o", out, "--json")
    assert json.loads(done.stdout) == {"tags": str(out), "sentences": 2, "tokens": 12}
    words, tags = zip(*(row.split("\t") for row in out.read_text().split("\n") if row), strict=True)
    assert " ".join(words) == "The bank did n't lend 3.5 dollars . The river runs ."
    assert tags[-4:] == ("DT", "NN", "VBZ", ".")
    assert out.read_text().endswith("\n\n")
    refused = run("tag", "predict", place / "crf", tmp_path / "new.txt", "-o", out)
    assert "exists already" in failed(refused)


def test_predict_columns_and_standard_input(place: Path) -> None:
    done = run("tag", "predict", place / "crf", place / "dev.conllu")
    sentences = [block.split("\n") for block in done.stdout.strip().split("\n\n")]
    assert sentences == [[f"{w}\t{TAGS[w]}" for w in line.split()] for line in LINES]
    piped = run("tag", "predict", place / "crf", "-", stdin=b"The sea sleeps.\n")
    assert piped.stdout == "The\tDT\nsea\tNN\nsleeps\tVBZ\n.\t.\n\n"


@pytest.mark.parametrize(("kind", "hidden", "expected"), [("tagger", [], 128), ("tagger", [0], 0), ("crf", [5], 5)])
def test_hidden_units(place: Path, tmp_path: Path, kind: str, hidden: list[int], expected: int) -> None:
    option = ("--hidden", hidden[0]) if hidden else ()
    done = run(
        *("tag", "train", place / "train.conllu", "--tags", "xpos", "--kind", kind, "--model", place / "news.lds"),
        *("--iterations", 2, "--seed", 1, *option, "-o", tmp_path / "tagger"),
    )
    assert done.returncode == 0, done
    tagger: Any = load(tmp_path / "tagger")
    crf = tagger if kind == "crf" else tagger.crf_
    assert tagger.n_hidden == expected == (0 if crf.network_ is None else len(crf.network_.input_bias))


def test_a_local_tagger(place: Path, tmp_path: Path) -> None:
    done = run(
        *("tag", "train", place / "train.conllu", "--tags", "xpos", "--kind", "local", "--model", place / "news.lds"),
        *("--hidden", 7, "--iterations", 2, "--seed", 1, "-o", tmp_path / "local"),
    )
    assert done.returncode == 0 and "iterations  2" in done.stdout, done
    tagger: Any = load(tmp_path / "local")
    assert tagger.n_hidden == 7 and tagger.random_state == 1 and tagger.callbacks is None
    shown = run("inspect", tmp_path / "local").stdout
    assert "local-tagger" in shown and "models lds" in shown and len(shown) < 2500
    assert run("verify", tmp_path / "local").stdout == f"{tmp_path / 'local'}: whole (local-tagger model)\n"
    assert "--spans needs a CRF" in failed(
        run("tag", "predict", tmp_path / "local", place / "news.txt", "--spans", 0.5)
    )


def test_spans(place: Path, tmp_path: Path) -> None:
    made = run("tag", "train", place / "names.tsv", "-o", tmp_path / "names", "--iterations", 20)
    assert made.returncode == 0 and "spans       IOB2" in made.stdout, made
    done = run("tag", "eval", tmp_path / "names", place / "names.tsv")
    rows = [line.split() for line in done.stdout.strip().split("\n")]
    assert rows[-3:] == [
        ["all", "spans", "30", "30", "30", "100.00%", "100.00%", "100.00%"],
        ["loc", "20", "20", "20", "100.00%", "100.00%", "100.00%"],
        ["per", "10", "10", "10", "100.00%", "100.00%", "100.00%"],
    ]
    report = json.loads(run("tag", "eval", tmp_path / "names", place / "names.tsv", "--json").stdout)
    assert report["spans"]["all"]["f1"] == 1.0 and set(report["spans"]["types"]) == {"loc", "per"}


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ("train {p}/news.txt -o {t}", 1, "not named like a file of columns"),
        ("train {p}/train.conllu -o {t} --tags lemma", 1, "all _"),
        ("train {p}/train.conllu -o {t} --tags 12", 1, "row 1: column 12"),
        ("train {p}/train.conllu -o {p}/crf", 1, "exists already"),
        ("train {p}/none.tsv -o {t}", 1, "none.tsv"),
        ("train {p}/train.conllu -o {t} --model {p}/none", 1, "does not exist"),
        ("train {p}/train.conllu -o {t} --model {p}/crf", 1, "needs a model with the method transform"),
        ("train {p}/train.conllu --tags xpos -o {t} --model {p}/news.lds --view sideways", 1, "must be one of type"),
        ("train {p}/train.conllu -o {t} --text {p}/none.txt", 1, "none.txt"),
        ("train {p}/train.conllu -o {t} --text {p}/news.txt --model {p}/news.lds", 2, "give one of them"),
        (
            "train {p}/train.conllu -o {t} --text {p}/news.txt --kind crf",
            2,
            "--text can only be used with --kind tagger",
        ),
        ("train {p}/train.conllu -o {t} --kind crf --validation 0.5", 2, "can only be used with --kind tagger"),
        ("train {p}/train.conllu -o {t} --scale 3", 2, "--scale is given 1 times for 0 models"),
        ("train {p}/train.conllu -o {t} --casing known", 2, "--casing is given 1 times for 0 models"),
        ("train {p}/train.conllu -o {t} --pieces", 2, "give one with --model"),
        ("train {p}/train.conllu -o {t} --validation 1", 2, "0<=x<1"),
        ("train {p}/train.conllu -o {t} --held-out {p}/none.tsv", 1, "none.tsv"),
        ("train {p}/train.conllu -o {t} --kind local", 2, "give one with --model"),
        ("train {p}/train.conllu -o {t} --hidden -3", 2, "x>=0"),
        ("train {p}/train.conllu -o {t} --kind local --l2 3", 2, "can only be used with --kind tagger or crf"),
        ("train {p}/train.conllu -o {t} --view smooth", 2, "more --view than --model"),
        ("eval {p}/news.lds {p}/dev.conllu", 1, "which has no evaluate"),
        ("eval {p}/crf {p}/news.txt", 1, "not named like a file of columns"),
        ("predict {p}/news.lds {p}/news.txt", 1, "which has no"),
        ("predict {p}/crf {p}/news.txt --json", 2, "give a file with -o"),
    ],
)
def test_what_is_wrong_is_said(place: Path, tmp_path: Path, arguments: str, code: int, expected: str) -> None:
    done = run("tag", *arguments.format(p=place, t=tmp_path / "t").split())
    assert expected in failed(done, code)
    assert not (tmp_path / "t").exists()


def test_help_waits_for_nothing() -> None:
    code = (
        "import sys; from undertow.cli.main import cli; "
        "cli(['tag', '--help'], standalone_mode=False); print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANGS)
    assert done.stdout.strip().endswith("False")


def test_perplexity_of_a_tagger_is_refused_with_the_kinds_that_have_one(place: Path) -> None:
    sentence = failed(run("perplexity", place / "crf", place / "news.txt"))
    assert "'tagger', which has no perplexity" in sentence and "fhmm, grammar, hmm, lds" in sentence


def test_spans_with_their_probabilities(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "Ann\tB-per\nLee\tI-per\nleft\tO\n\nwe\tO\nsaw\tO\nRome\tB-loc\n\n"
    (tmp_path / "names.tsv").write_text(rows * 8)
    assert run("tag", "train", "--kind", "crf", tmp_path / "names.tsv", "-o", tmp_path / "names").returncode == 0
    asked = ("tag", "predict", tmp_path / "names", tmp_path / "names.tsv", "--spans")
    lines = [line.split("\t") for line in run(*asked, 0.5).stdout.splitlines()]
    assert [(*cells[:4], cells[5]) for cells in lines[:2]] == [
        ("1", "0", "2", "per", "Ann Lee"),
        ("2", "2", "3", "loc", "Rome"),
    ]
    assert len(lines) == 16 and lines[-1][0] == "16" and all(0.5 < float(cells[4]) <= 1 for cells in lines)
    facts = json.loads(run(*asked, 0.001, "-o", tmp_path / "s.tsv", "--json").stdout)
    assert facts == {"sentences": 16, "spans": str(tmp_path / "s.tsv"), "tokens": 48}
    assert len((tmp_path / "s.tsv").read_text().splitlines()) > 16
    every = [line.split("\t")[4] for line in run(*asked, 1e-6).stdout.splitlines()]
    assert 1e-6 <= min(map(float, every)) < 1e-4, "small probabilities are not written as 0"
    monkeypatch.setattr(batches_of_sentences, "BATCH_TOKENS", 10)
    assert [line.split("\t") for line in run(*asked, 0.5).stdout.splitlines()] == lines, "sentences are counted on"
    for wrong, why in (
        ("0", "not in the range"),
        ("1.5", "not in the range"),
        ("nan", "from 1e-06 to 1"),
        ("x", "valid"),
    ):
        assert why in failed(run(*asked, wrong), 1 if wrong == "nan" else 2)
    both = run(*asked, 0.5, "--probabilities")
    assert both.returncode == 2 and "leave --probabilities out" in both.stderr
    none = run("tag", "predict", place / "crf", tmp_path / "names.tsv", "--spans", 0.5)
    assert none.returncode != 0 and "mark no spans" in none.stderr and "Traceback" not in none.stderr


def test_spans_that_are_taken_by_their_probabilities(tmp_path: Path) -> None:
    """A name beside another of its type has a tag that was never learned here; all others have their probabilities."""
    X, y = [["Ann", "Lee"]] * 6, [["I-per", "O"], ["O", "I-per"]] * 3
    tagger = CRFTagger(l2=0.1).fit(X, y)
    tagger.span_threshold_ = 0.2
    tagger.save(tmp_path / "names")
    (tmp_path / "names.txt").write_text("Ann Lee")
    printed = run("tag", "predict", tmp_path / "names", tmp_path / "names.txt", "--probabilities")
    [first, second] = [line.split("\t") for line in printed.stdout.strip().splitlines()]
    assert first[:2] == ["Ann", "I-per"] and second == ["Lee", "B-per", "0.0000"], printed.stderr
    p = tagger.predict_proba([["Ann", "Lee"]])[0][0, tagger.labels_.index("I-per")]
    assert first[2] == f"{p:.4f}" and 0.4 < p < 0.6
    rows = "Ann\tI-per\nLee\tO\n\n"
    (tmp_path / "gold.tsv").write_text(rows)
    report = json.loads(run("tag", "eval", tmp_path / "names", tmp_path / "gold.tsv", "--json").stdout)
    assert report["spans"]["all"]["predicted"] == 2 and report["spans"]["all"]["correct"] == 1
    assert "span_threshold" in run("inspect", tmp_path / "names").stdout
