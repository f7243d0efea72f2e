from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sentences import is_one_sentence
from undertow import Events
from undertow.errors import InputError
from undertow.text.event_documents import events_from_documents
from undertow.text.event_files import write_events
from undertow.text.event_times import order_times
from undertow.text.stop_words import ENGLISH

RECORDS = [(2001, "Ann", "river", 2), (2003, "Bo", "bank", 1.5), (2001, "Ann", "river", 1), (2001, "Bo", "river", 4)]


def as_dict(events: Events) -> dict[Any, float]:
    return {(t, r, c): n for t, r, c, n in events.records()}


EXPECTED = {(2001, "Ann", "river"): 3.0, (2001, "Bo", "river"): 4.0, (2003, "Bo", "bank"): 1.5}


def test_records_are_summed_and_ordered() -> None:
    for given in (RECORDS, RECORDS[::-1], iter(RECORDS), [np.array(r, dtype=object) for r in RECORDS]):
        events = Events.build(given)
        assert as_dict(events) == EXPECTED
        assert events.times == [2001, 2003] and events.gaps == [0, 2]
        assert events.row_names == ["Ann", "Bo"] and events.column_names == ["bank", "river"]
    assert events.n_events == 3 and events.total == 8.5
    assert Events.build(events) is events
    assert as_dict(Events.build([r[:3] for r in RECORDS]))[2001, "Ann", "river"] == 2  # a count may be left out


def test_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not a dependency")
    frame = pandas.DataFrame(RECORDS, columns=["year", "author", "word", "n"])
    events = Events.build(frame)
    assert as_dict(events) == EXPECTED and events.kind_names == ("author", "word")
    named = frame.rename(columns={"year": "time", "author": "row", "word": "column", "n": "count"})[
        ["count", "column", "time", "row"]
    ]
    assert as_dict(Events.build(named.assign(other=1))) == EXPECTED
    dated = frame.assign(year=pandas.to_datetime(frame["year"].astype(str)))
    assert Events.build(dated).times == ["2001-01-01", "2003-01-01"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".jsonl"])
def test_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"events{suffix}"
    if suffix == ".jsonl":
        text = "\n".join(json.dumps(dict(zip(("time", "row", "column", "count"), r, strict=True))) for r in RECORDS)
    else:
        sign = "\t" if suffix == ".tsv" else ","
        text = "\n".join(sign.join(map(str, r)) for r in [("time", "who", "what", "count"), *RECORDS])
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    events = Events.build(path)
    assert as_dict(events) == EXPECTED
    if suffix != ".jsonl":
        assert events.kind_names == ("who", "what")


def test_a_table_without_header_and_a_round_trip(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("2001,Ann,river,3\n2001,Bo,river,4\n2003,Bo,bank,1.5\n")
    events = Events.build(tmp_path / "a.csv")
    assert as_dict(events) == EXPECTED
    names = ['quote " comma ,', "line\nend", "<b>", "=1", "ünï"]
    odd = Events.build([(1, n, "x", 1 + k) for k, n in enumerate(names)], kind_names=("who", "what"))
    write_events(odd, tmp_path / "odd.csv")
    again = Events.build(tmp_path / "odd.csv")
    assert as_dict(again) == as_dict(odd) and again.kind_names == ("who", "what")
    with pytest.raises(InputError, match="exists"):
        write_events(odd, tmp_path / "odd.csv")


@pytest.mark.parametrize(
    ("events", "match"),
    [
        ([(1, "a", "x", -1)], "event 0.*negative"),
        ([(1, "a", "x", 1), (1, "a", "x", "many")], "event 1"),
        ([(1, "a", "x", float("nan"))], "finite"),
        ([(1, "a", "x", True)], "number"),
        ([(None, "a", "x", 1)], "time"),
        ([(float("inf"), "a", "x", 1)], "time"),
        ([([1], "a", "x", 1)], "time"),
        ([(1, None, "x", 1)], "row"),
        ([(1, 2.5, "x", 1)], "row"),
        ([(1, "a", " ", 1)], "empty name"),
        ([(1, "a", "\ud800", 1)], "surrogate"),
        ([(1, "a")], "2 parts"),
        (["1,a,x,1"], "event 0"),
        ([(1, "a", "x", 0)], "no events"),
        ([], "no events"),
        (None, "cannot be made"),
        (5, "cannot be made"),
        ({"a": 1}, "cannot be made"),
        ([(1, "a", "x", 1), ("late", "a", "x", 1)], "numbers"),
        ([(1, "a", "x", 1e18)], "scale all counts down"),
        ([(1, "a", "x", 6e14), (1, "a", "x", 6e14)], "scale all counts down"),
        ([(10**30, "a", "x", 1)], "beyond 1e"),
        ([(1e30, "a", "x", 1)], "beyond 1e"),
        ([("2001-01", "a", "x", 1), ("2001-01-01", "a", "x", 1)], "same moment"),
    ],
)
def test_bad_events_are_refused_with_their_place(events: Any, match: str) -> None:
    with pytest.raises(InputError, match=match) as e:
        Events.build(events)
    assert is_one_sentence(str(e.value))


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("a.csv", "", "empty"),
        ("a.csv", "time,row,column,count\n1,a,x,-2\n", "line 2.*negative"),
        ("a.csv", "time,row,column,count\n1,a,x\n", "line 2.*3 fields"),
        ("a.csv", "a,b\n1,2\n", "2 columns"),
        ("a.jsonl", "{", "line 1.*not JSON"),
        ("a.jsonl", "[1]", "object"),
        ("a.jsonl", '{"time": 1, "row": "a", "column": "x"}\n{"time": 1, "row": "a"}', "line 2.*'column'"),
        ("a.csv", b"\xff\xfe\xfa", "UTF"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path: Path, name: str, text: str | bytes, match: str) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=match) as e:
        Events.build(path)
    assert is_one_sentence(str(e.value))
    with pytest.raises(InputError, match="does not exist"):
        Events.build(tmp_path / "nowhere.csv")


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_documents_are_no_events(tmp_path: Path, suffix: str) -> None:
    """Each document would be an entity seen once, and a map of them means nothing."""
    speech = "We the people " * 100
    if suffix == "jsonl":
        line = {"year": 1790, "speaker": "Washington", "speech": speech}
        (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    else:
        (tmp_path / "a.csv").write_text(f"year,speaker,speech\n1790,Washington,{speech}\n")
    with pytest.raises(InputError, match="undertow events") as e:
        Events.build(tmp_path / f"a.{suffix}")
    assert "line" in str(e.value) and "speech" in str(e.value) and is_one_sentence(str(e.value))
    title = "A very long title of a paper: " * 9  # is a name
    (tmp_path / "b.csv").write_text(f"year,author,title\n1790,Ann,{title}\n")
    assert Events.build(tmp_path / "b.csv").n_events == 1


def test_times() -> None:
    assert order_times([2003, 2001, 2001]) == ([2001, 2003], [0, 2])
    assert order_times([0.5, 1.0, 2.0]) == ([0.5, 1.0, 2.0], [0, 0.5 / 0.75, 1 / 0.75])
    ordered, gaps = order_times(["2001-03-01", "2001-01-01", "2001-02-01", "2001-05-01"])
    assert ordered[0] == "2001-01-01" and gaps[1] == 1 and 1.9 < gaps[3] < 2.2
    assert order_times(["week 10", "week 9"]) == (["week 9", "week 10"], [0, 1])
    day = datetime.date(2001, 5, 1)
    assert Events.build([(day, "a", "x", 1), (np.datetime64("2001-05-02"), "a", "x", 1)]).times == [
        "2001-05-01",
        "2001-05-02",
    ]
    assert Events.build([("b", "a", "x", 1), ("a", "a", "x", 1)], times=["b", "a", "c"]).times == ["b", "a", "c"]
    with pytest.raises(InputError, match="not among"):
        Events.build([("b", "a", "x", 1)], times=["a"])


def test_selection() -> None:
    events = Events.build(
        [(t, r, c, n) for t in (1, 2, 3) for r, n in (("a", 5), ("b", 2), ("c", 1)) for c in ("the", "x", "y")]
        + [(1, "once", "z", 50)]
    )
    assert events.select(n_rows=2).row_names == ["a", "once"]
    chosen = events.select(n_rows=2, min_times=2, stop_words=ENGLISH)
    assert chosen.row_names == ["a", "b"] and chosen.column_names == ["x", "y"]
    assert chosen.at(2).sum() == 2 * (5 + 2)
    assert events.until(2).times == [1, 2]
    for bad in ({"min_count": 1e9}, {"n_rows": 0}, {"min_times": 9}):
        with pytest.raises(InputError) as e:
            events.select(**bad)
        assert is_one_sentence(str(e.value))
    with pytest.raises(InputError):
        events.until(7)


def test_documents(tmp_path: Path) -> None:
    documents = [
        {"year": 2001, "authors": ["Ann", "Bo"], "words": {"river": 2, "bank": 1}},
        {"year": 2002, "authors": [["Lee", "Cy"]], "words": ["sea", "sea", "river"]},
        {"year": 2002, "authors": "Di", "words": "The river -- the RIVER! runs 12 times\nand does n't stop."},
        {"year": 2002, "authors": [], "words": {"x": 1}},
        {"year": 2002, "authors": None, "words": {"x": 1}},
    ]
    events = events_from_documents(documents, stop_words=ENGLISH)
    found = as_dict(events)
    assert found[2001, "Ann", "river"] == found[2001, "Bo", "river"] == 2  # credited to each
    assert found[2002, "Lee, Cy", "sea"] == 2
    assert found[2002, "Di", "river"] == 2 and found[2002, "Di", "runs"] == 1
    assert not any(w in ("the", "NUM", "12", "--", "x") for _, _, w in found)
    assert events.kind_names == ("authors", "words")
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(map(json.dumps, documents)))
    assert as_dict(events_from_documents(path, stop_words=ENGLISH)) == found
    for bad, match in (
        ([{"authors": ["a"], "words": ["x"]}], "'year'"),
        ([{"year": 1, "words": ["x"]}], "'authors'"),
        ([{"year": 1, "authors": ["a"], "words": {"x": -1}}], "negative"),
        ([{"year": 1, "authors": 2.5, "words": ["x"]}], "authors"),
        ([{"year": [], "authors": ["a"], "words": ["x"]}], "time"),
        (["nowhere.jsonl"], "does not exist"),
        ([3], "document 0"),
        (3, "Documents"),
    ):
        with pytest.raises(InputError, match=match) as e:
            events_from_documents(bad)  # type: ignore[arg-type]
        assert is_one_sentence(str(e.value))
