"""From documents to a moving map and its links, as people do it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import failed, run
from undertow import Events, load


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents") / "papers.jsonl"
    topics = {"ann": "river water sea", "bo": "bank money loan", "cy": "river bank bridge"}
    rows = [
        {"year": year, "authors": [name], "words": f"The {text}. {text.split()[year % 3]} {text.split()[0]}."}
        for year in (2001, 2002, 2003)
        for name, text in topics.items()
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_documents_to_links(documents: Path) -> None:
    place = documents.parent
    done = run("events", documents, "-o", place / "events.csv", "--stop-words", "--min-times", "2", "--json")
    facts = json.loads(done.stdout)
    assert facts["steps"] == 3 and facts["authors"] == 3
    events = Events.build(place / "events.csv")
    assert "the" not in events.column_names and events.kind_names == ("authors", "words")

    done = run("fit", "dynamic", place / "events.csv", "-o", place / "m", "--iterations", "2", "--seed", "0", "-j", "1")
    assert done.returncode == 0, done.stderr
    assert "full (6" in done.stdout or "few enough" in done.stdout
    model = load(place / "m")
    assert model.times_ == [2001, 2002, 2003]  # type: ignore[attr-defined]

    done = run("links", place / "m", "-n", "4", "--json")
    found = json.loads(done.stdout)["links"]
    assert len(found) == 4 and set(found[0]) == {"row", "column", "probability"}
    assert run("links", place / "m", "-n", "2").stdout.count("\n") == 2
    assert run("inspect", place / "m").returncode == 0


def test_events_to_standard_output(documents: Path) -> None:
    done = run("events", documents, "-o", "-", "--n-rows", "1", "--n-columns", "2")
    assert done.stdout.startswith("time,authors,words,count\n") and done.stdout.count("\n") > 2


def test_failures_are_sentences(documents: Path, tmp_path: Path) -> None:
    assert "no field 'when'" in failed(run("events", documents, "-o", tmp_path / "e.csv", "--time", "when"))
    (tmp_path / "bad.csv").write_text("time,row,column,count\n1,a,x,-1\n")
    assert "line 2" in failed(run("fit", "dynamic", tmp_path / "bad.csv", "-o", tmp_path / "m"))
    assert "does not exist" in failed(run("links", tmp_path / "nothing"))
    (tmp_path / "e.csv").write_text("taken")
    assert "exists" in failed(run("events", documents, "-o", tmp_path / "e.csv"))
