"""`undertow view` for the models of text, and a text as they read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import failed, run
from html_page import check_closed, payload
from page_samples import fitted
from undertow.view.reader_data import MOST_TOKENS


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view")
    fitted("hmm-blocks").save(path / "news.hmm")
    fitted("clusters").save(path / "news.clusters")
    (path / "new.txt").write_text("The dog ran. The dog ran to the sea.\n")
    return path


def test_a_page_of_a_model(place: Path, tmp_path: Path) -> None:
    done = run("view", place / "news.hmm", "-o", tmp_path / "a.html", "--title", "Mine", "--json")
    text = (tmp_path / "a.html").read_text()
    assert json.loads(done.stdout) == {"page": str(tmp_path / "a.html"), "bytes": len(text.encode())}
    check_closed(text)
    assert "<title>Mine</title>" in text and len(payload(text)["states"]) == 8
    assert "exists already" in failed(run("view", place / "news.hmm", "-o", tmp_path / "a.html"))


def test_a_text_as_a_model_reads_it(place: Path, tmp_path: Path) -> None:
    done = run("view", place / "news.hmm", place / "new.txt", "--lower", "-o", tmp_path / "r.html", "--json")
    facts = json.loads(done.stdout)
    got = payload((tmp_path / "r.html").read_text())
    words = [[got["strings"][w] for w in s] for s in got["sentences"]]
    assert words == ["the dog ran .".split(), "the dog ran to the sea .".split()]
    assert (facts["sentences"], facts["tokens"]) == (2, 11)


def test_standard_input_is_cut_at_the_limit(place: Path, tmp_path: Path) -> None:
    long = b"the dog ran to the sea\n" * 4000
    done = run("view", place / "news.hmm", "-", "-o", tmp_path / "r.html", "--json", stdin=long)
    assert MOST_TOKENS < json.loads(done.stdout)["tokens"] <= MOST_TOKENS + 6
    text = (tmp_path / "r.html").read_text()
    assert len(payload(text)["surprise"]) == MOST_TOKENS and "the text goes on" in text
    assert len(text) < 5_000_000


def test_what_cannot_be_shown_is_said(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    done = run("view", place / "news.clusters", place / "new.txt", "-o", out)
    assert "does not read text token by token" in failed(done)
    (tmp_path / "empty.txt").write_text("\n")
    assert "no words found" in failed(run("view", place / "news.hmm", tmp_path / "empty.txt", "-o", out))
    assert not out.exists()
