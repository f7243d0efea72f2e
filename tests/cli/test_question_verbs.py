"""fill, surprise and ask, as people meet them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from cli_runner import failed, run
from html_page import payload
from undertow import HMM, Corpus, load

LINES = (
    "The cat sat on the mat .",
    "They sat on the bank of the river .",
    "A bank lends money to the people .",
    "Who sat on the mat ?",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("questions")
    draw = random.Random(0)
    text = [[*draw.choice(LINES).split(), "<eos>"] for _ in range(80)]
    corpus = Corpus.from_sentences(text, boundary="<eos>")
    HMM(8, n_blocks=4, n_iter=4, smoothing=0.1, random_state=0).fit(corpus).save(path / "news.hmm")
    (path / "new.txt").write_text("They sat on the bank of the Thames.\n\nA <b>cat</b> sat on the bank.\n")
    return path


def test_fill(place: Path) -> None:
    model = load(place / "news.hmm")
    text = "They sat on the ? of the ?."
    with_gaps = ["They", "sat", "on", "the", None, "of", "the", None, "<eos>"]
    done = run(
        "fill", place / "news.hmm", "They sat on the ? of the ?", "-n", "3", "--joint", "--samples", "2", "--json"
    )
    facts = json.loads(done.stdout)
    truth = model.fill(with_gaps, 3)
    assert [g["position"] for g in facts["gaps"]] == [5, 8]
    for ours, gap in zip(facts["gaps"], truth, strict=True):
        assert [(w["word"], pytest.approx(w["probability"], rel=1e-6)) for w in ours["words"]] == [*gap.words]
    assert facts["joint"]["tokens"] == model.best_fill(with_gaps).tokens and facts["joint"]["proven"] is True
    assert facts["samples"] == model.sample_fill(with_gaps, 2, random_state=0)
    plain = run("fill", place / "news.hmm", text, "-n", "3").stdout
    first = plain.split("\n")[0].split("\t")
    assert first[:2] == ["5", truth[0].words[0].word]  # "?." is a word and no gap
    literal = run("fill", place / "news.hmm", "Who sat on the ? \\?", "--json")
    assert [g["position"] for g in json.loads(literal.stdout)["gaps"]] == [5]


def test_fill_says_what_is_no_word(tmp_path: Path) -> None:
    text = [["a", "<unk>", "b"], ["<unk>", "a"], ["b", "<unk>", "a", "c"]] * 6
    model = HMM(3, n_iter=3, random_state=0).fit(text)
    model.save(tmp_path / "unknown.hmm")
    *rows, last = run("fill", tmp_path / "unknown.hmm", "a ?").stdout.rstrip("\n").split("\n")
    [gap] = model.fill(["a", None])
    assert [row.split("\t")[1] for row in rows] == [w.word for w in gap.words]
    assert last.split("\t") == ["2", "(unknown word or end)", f"{gap.markers:.4g}"]
    facts = json.loads(run("fill", tmp_path / "unknown.hmm", "a ?", "--markers", "--json").stdout)
    assert "<unk>" in [w["word"] for w in facts["gaps"][0]["words"]] and facts["gaps"][0]["markers"] == 0
    assert "<unk>" not in run("generate", tmp_path / "unknown.hmm", "-n", "20", "--length", "4").stdout
    assert "<unk>" in run("generate", tmp_path / "unknown.hmm", "-n", "20", "--length", "4", "--markers").stdout
    assert "between spaces" in failed(run("fill", tmp_path / "unknown.hmm", "a b?"))


def test_ask(place: Path) -> None:
    model = load(place / "news.hmm")
    tokens = ["They", "sat", "on", "the", None, "<eos>"]
    found = json.loads(run("ask", place / "news.hmm", "They sat on the ?", "--words", "mat,bank", "--json").stdout)
    assert found["position"] == 5
    for ours, truth in zip(found["words"], model.compare(tokens, 4, ["mat", "bank"]), strict=True):
        assert ours == {k: pytest.approx(v, rel=1e-6) if k != "word" else v for k, v in truth._asdict().items()}
    assert run("ask", place / "news.hmm", "They sat on the ?", "--words", "mat,bank").stdout.startswith(
        "word  probability    share  log-odds\nmat "
    )
    known = "They sat on the bank".split()
    done = run("ask", place / "news.hmm", " ".join(known), "--what-if", "mat", "--position", "5", "--json")
    changes = json.loads(done.stdout)["changes"]
    truth = model.what_if([*known, "<eos>"], 4, "mat")
    assert [c["position"] for c in changes] == [1, 2, 3, 4, 6]
    np.testing.assert_allclose([c["total_variation"] for c in changes], [c.total_variation for c in truth], atol=1e-6)
    table = run("ask", place / "news.hmm", " ".join(known), "--what-if", "mat", "--position", "5").stdout
    header, *rows = table.strip().split("\n")
    assert header == "position  token  state moves  more bits" and len(rows) == 5
    assert {len(row) for row in rows} == {len(header)}


def test_surprise(place: Path) -> None:
    model = load(place / "news.hmm")
    lines = run("surprise", place / "news.hmm", place / "new.txt", "--json").stdout.strip().split("\n")
    records = [json.loads(line) for line in lines]
    assert records[0]["tokens"] == [*"They sat on the bank of the Thames .".split(), "<eos>"]
    truth = model.surprise([r["tokens"] for r in records])
    for ours, s in zip(records, truth, strict=True):
        np.testing.assert_allclose(ours["left_to_right"], s.left_to_right, rtol=1e-6)
        np.testing.assert_allclose(ours["both_sides"], s.both_sides, rtol=1e-5)
    header, *rows = run("surprise", place / "news.hmm", place / "new.txt", "--tsv").stdout.strip().split("\n")
    assert header.split("\t") == ["sentence", "token", "word", "left_to_right", "both_sides"]
    assert rows[0].split("\t")[:3] == ["1", "1", "They"] and len(rows) == sum(len(r["tokens"]) for r in records)
    plain = run("surprise", place / "news.hmm", place / "new.txt").stdout
    assert plain.split("\n")[0].split()[0] == "They" and "\n\n" in plain


def test_the_page_of_surprise(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = run("surprise", place / "news.hmm", place / "new.txt", "-o", out, "--title", "<b>bold</b>")
    assert done.returncode == 0 and "<b>bold" not in out.read_text()
    assert done.stdout.startswith(f"page       {out}\nbytes ") and "sentences  2" in done.stdout
    shown = payload(out.read_text())
    words = [[shown["strings"][w] for w in s] for s in shown["sentences"]]
    assert words[0] == [*"They sat on the bank of the Thames .".split(), "<eos>"], "with the boundary of the corpus"
    truth = load(place / "news.hmm").surprise(words)
    np.testing.assert_allclose(shown["surprise"], np.concatenate([s.left_to_right for s in truth]), atol=0.051)
    np.testing.assert_allclose(shown["both"], np.concatenate([s.both_sides for s in truth]), atol=0.051)
    failed(run("surprise", place / "news.hmm", place / "new.txt", "-o", out))
    assert run("surprise", place / "news.hmm", place / "new.txt", "-o", out, "--overwrite").returncode == 0


def test_mistakes_are_one_sentence(place: Path) -> None:
    model = place / "news.hmm"
    failed(run("fill", model, ""))
    failed(run("ask", model, "They sat", "--words", "mat"))
    failed(run("ask", model, "? sat ?", "--words", "mat"))
    failed(run("ask", model, "They sat", "--words", "nowhere", "--position", "1"))
    failed(run("ask", model, "They sat", "--words", "mat", "--position", "9"))
    failed(run("ask", model, "They sat"), code=2)
    failed(run("surprise", model, place / "new.txt", "--json", "--tsv"), code=2)
