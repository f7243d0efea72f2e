"""From documents to a moving map and its links, as people do it."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest

from cli_runner import failed, run
from undertow import Events, load
from undertow.models.dynamic.queries import Mover, Movers


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
    assert facts["steps"] == 3 and facts["authors"] == 3 and isinstance(facts["counts"], int)
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

    done = run("movers", place / "m", "--json")
    assert json.loads(done.stdout)["verdict"] == model.movers().verdict  # type: ignore[attr-defined]
    assert "--first 1999: the map has no such time; it has 2001 to 2003" in failed(
        run("movers", place / "m", "--first", "1999")
    )


class Moved:
    """A map on which two entities moved; it keeps what it was asked."""

    kind = "dynamic"
    times_ = (1946, 1979, 1997)

    def movers(self, n: int, **asked: Any) -> Movers:
        self.asked = {"n": n} | asked
        found = [Mover("China\t(PRC)", "countries", 1.234, 30.0, 3e-7), Mover("détente", "words", 0.5, 9.0, 0.0123)]
        return Movers(found, "2 of the 130 entities moved beyond noise between 1979 and 1997.")


def test_movers_are_a_table_with_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Moved()
    monkeypatch.setattr("undertow.storage.load_model", lambda path: model)
    done = run("movers", "m", "-n", "7", "--first", "1979", "--last", "1997", "--significance", "0.1")
    assert model.asked == {"n": 7, "first": 1979, "last": 1997, "significance": 0.1}
    assert done.stdout == (
        "name         kind       distance  p\n"
        "China\N{REPLACEMENT CHARACTER}(PRC)  countries      1.23  < 0.0001\n"
        "détente      words          0.50  0.0123\n"
        "2 of the 130 entities moved beyond noise between 1979 and 1997.\n"
    )
    assert done.stderr.startswith("undertow: fitting the map on which movement is tested")
    done = run("movers", "m", "--json")
    found = json.loads(done.stdout)
    assert found["verdict"].startswith("2 of the 130") and not done.stderr
    assert found["movers"] == [mover._asdict() for mover in model.movers(20)]
    assert found["movers"][0]["name"] == "China\t(PRC)"


HOSTILE = ["</script><img src=x onerror=alert(1)>", 'a "quoted", name', "tab\there", "line\nend", "=1+1", "ü ✓ 漢 שלום"]


def test_the_whole_way_with_hostile_names(tmp_path: Path) -> None:
    """events, fit, links, view and export with the real model: names come out as they went in, and as text only."""
    words = ["river", "bank", "<b>bold</b>", "comma, word"]
    papers = [
        {"when": year, "who": [name], "what": {w: 1 + (k + j + year) % 3 for j, w in enumerate(words)}}
        for year in (2001, 2002, 2004)
        for k, name in enumerate(HOSTILE)
    ]
    (tmp_path / "papers.jsonl").write_text("\n".join(map(json.dumps, papers)))
    events, model, page, table = (tmp_path / n for n in ("events.csv", "m", "map.html", "map.csv"))
    fields = ("--time", "when", "--rows", "who", "--columns", "what")
    steps: list[tuple[object, ...]] = [
        ("events", tmp_path / "papers.jsonl", "-o", events, *fields),
        ("fit", "dynamic", events, "-o", model, "--iterations", "2", "--seed", "0", "-j", "1"),
        ("links", model, "-n", "24"),
        ("view", model, "-o", page, "--title", HOSTILE[0]),
        ("export", model, "-o", table),
    ]
    if importlib.util.find_spec("matplotlib"):
        steps.append(("export", model, "-o", tmp_path / "map.svg"))
    printed = {}
    for step in steps:
        done = run(*step)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (step, done.stderr)
        printed[step[0]] = done.stdout
    assert Events.build(events).row_names == sorted(HOSTILE)
    assert printed["links"].count("\n") == 24 and "\t" not in printed["links"]  # a name is one line on a terminal

    found = json.loads(run("links", model, "-n", "24", "--json").stdout)["links"]
    assert {x["row"] for x in found} == set(HOSTILE) and {x["column"] for x in found} == set(words)
    assert all(0 < x["probability"] < 1 for x in found)

    text = page.read_text(encoding="utf-8")
    assert "<img" not in text and "<b>bold" not in text and text.count("<script") == text.count("</script>") == 2
    data = json.loads(text.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    assert data["names"] == sorted(HOSTILE) + sorted(words)

    rows = list(csv.DictReader(io.StringIO(table.read_text(encoding="utf-8"), newline="")))
    assert [r["name"] for r in rows[: len(HOSTILE)]] == sorted(HOSTILE) and len(rows) == 3 * (len(HOSTILE) + len(words))
    assert {r["kind"] for r in rows} == {"who", "what"} and [r["time"] for r in rows[::10]] == ["2001", "2002", "2004"]
    if importlib.util.find_spec("matplotlib"):
        assert "<img" not in (tmp_path / "map.svg").read_text(encoding="utf-8")


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
