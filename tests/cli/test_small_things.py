"""What strangers stumbled over, one by one."""

from __future__ import annotations

import csv
import datetime
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runner import failed, run
from undertow import HMM, LDS, Grammar
from undertow.cli.common import time_range
from undertow.errors import InputError
from undertow.models.base import LittleTextWarning
from undertow.results.tagging.scores import Accuracy, Report, span_scores
from undertow.text.event_documents import events_from_documents
from undertow.text.event_files import dated_file
from undertow.text.events import Events
from undertow.text.reading import ReadingOptions, read_chunks
from undertow.text.tagged import multiword_example


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["neighbours"], "neighbors"),
        (["fti", "hmm"], "fit"),
        (["tag", "trian"], "train"),
        (["fit", "hhm"], "hmm"),
        (["corpus", "biuld"], "build"),
    ],
)
def test_a_mistyped_command_is_corrected(given: list[str], expected: str) -> None:
    done = run(*given, "x")
    assert done.returncode == 2 and f"did you mean {expected}" in done.stderr
    assert "--help lists them" in run("qqqqqq").stderr


@pytest.mark.parametrize("group", [[], ["corpus"], ["fit"], ["tag"]])
def test_a_group_without_a_command_shows_its_help_whole(group: list[str]) -> None:
    done = run(*group)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == run(*group, "--help").stdout and "Commands:" in done.stderr


# --- events ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Session 25 - 1970/ALB_25_1970.txt", ("1970", "ALB", "Session 25 - 1970")),
        ("1790-Washington.txt.gz", ("1790", "Washington", "here")),
        ("1989-11-09_press talk.txt", ("1989-11-09", "press talk", "here")),
        ("1989/speech.txt", ("1989", "speech", "1989")),
        ("USA/1999.txt", ("1999", "USA", "USA")),
    ],
)
def test_dates_in_the_names_of_files(name: str, expected: tuple[str, str, str], tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert dated_file(name) == expected
    with pytest.raises(InputError, match="no date in the name"):
        dated_file("speech12.txt")


def test_events_of_a_folder_of_dated_files(tmp_path: Path) -> None:
    for year, name, text in [(1946, "FRA", "Peace and\npeace"), (1946, "USA", "Trade"), (2012, "FRA", "Climate peace")]:
        (tmp_path / "talks" / str(year)).mkdir(parents=True, exist_ok=True)
        (tmp_path / "talks" / str(year) / f"{name}_{year}.txt").write_text(text)
    out = tmp_path / "e.csv"
    done = run("events", tmp_path / "talks", "-o", out, "--row-name", "countries")
    assert done.returncode == 0 and "1946–2012" in done.stdout, done.stderr
    header, *rows = csv.reader(out.read_text().splitlines())
    assert header == ["time", "countries", "words", "count"]
    assert ["1946", "FRA", "peace", "2"] in rows and ["2012", "FRA", "climate", "1"] in rows
    by_folder = events_from_documents(str(tmp_path / "talks"), rows="folder")
    assert by_folder.row_names == ["1946", "2012"]


def test_events_of_a_table_with_text(tmp_path: Path) -> None:
    path = tmp_path / "papers.csv"
    path.write_text('year,authors,abstract\n1999,"Ann; Bob","Rivers, and\nrivers"\n2000,Ann,Banks\n')
    events = events_from_documents([str(path)], columns="abstract")
    assert list(events.records()) == [
        (1999, "Ann", "and", 1.0), (1999, "Ann", "rivers", 2.0), (1999, "Bob", "and", 1.0),
        (1999, "Bob", "rivers", 2.0), (2000, "Ann", "banks", 1.0),
    ]  # fmt: skip
    assert events.kind_names == ("authors", "words"), (
        "the columns are words, whatever the field of their texts is called"
    )
    path.write_text("year,authors,abstract\n1999,Ann\n")
    with pytest.raises(InputError, match="line 2: 2 fields where the first line has 3"):
        events_from_documents([str(path)], columns="abstract")


def test_rows_and_columns_have_thresholds_of_their_own(tmp_path: Path) -> None:
    events = Events.build([(1, "a", "x", 5), (2, "a", "y", 1), (1, "b", "x", 2)])
    assert events.select(min_count=(6, 0)).row_names == ["a"]
    assert events.select(min_count=(0, 2)).column_names == ["x"] and events.select(min_count=(0, 2)).row_names == [
        "a",
        "b",
    ]
    assert events.select(min_times=(2, 1)).column_names == ["x", "y"]
    with pytest.raises(InputError, match="min_count"):
        events.select(min_count=(1, 2, 3))  # type: ignore[arg-type]
    (tmp_path / "d.jsonl").write_text(
        "".join(json.dumps({"year": t, "authors": r, "words": {c: n}}) + "\n" for t, r, c, n in events.records())
    )
    command = ["events", tmp_path / "d.jsonl", "-o", tmp_path / "e.csv", "--json", "--min-column-count", 2]
    facts = json.loads(run(*command).stdout)
    assert facts["authors"] == 2 and facts["words"] == 1


def test_the_times_that_are_told_are_those_of_the_file(tmp_path: Path) -> None:
    records = [(1990, "Ann", 1), (1995, "Bob", 5), (1996, "Bob", 5), (1999, "Eve", 1)]
    (tmp_path / "d.jsonl").write_text(
        "".join(json.dumps({"year": t, "authors": r, "words": {"river": n}}) + "\n" for t, r, n in records)
    )
    done = run("events", tmp_path / "d.jsonl", "-o", tmp_path / "e.csv", "--n-rows", 1, "--json")
    facts = json.loads(done.stdout)
    assert facts["times"] == ["1995", "1996"] and facts["steps"] == 2
    assert Events.build(tmp_path / "e.csv").times == [1995, 1996]


def test_dates_are_put_into_steps_of_years(tmp_path: Path) -> None:
    dated = ["1989-12-31", "1990-01-01", 1994, "1994", " 1995-07", datetime.date(2001, 5, 1), 1999.5]
    documents = [{"date": when, "authors": [str(i)], "words": {"river": 1}} for i, when in enumerate(dated)]
    made = events_from_documents(documents, time="date", years=5)
    assert [(t, r) for t, r, *_ in made.records()] == [
        (1985, "0"), (1990, "1"), (1990, "2"), (1990, "3"), (1995, "4"), (1995, "6"), (2000, "5")
    ]  # fmt: skip
    for bad in ("spring", 12345678901234567890123.0 * 1e300, None, "19951"):
        with pytest.raises(InputError, match=r"document 0: the field 'date' is .* years needs a year or a date"):
            events_from_documents([{**documents[0], "date": bad}], time="date", years=5)
    with pytest.raises(InputError, match="years=0 must be"):
        events_from_documents(documents, time="date", years=0)
    lines = [json.dumps({**d, "date": str(d["date"])}) + "\n" for d in documents]
    (tmp_path / "d.jsonl").write_text("".join(lines))
    command = ["events", tmp_path / "d.jsonl", "-o", tmp_path / "e.csv", "--overwrite", "--time", "date"]
    alone = run(*command, "--years", 1)
    assert "have one of the authors alone" in alone.stderr and "(--years)" in alone.stderr
    assert alone.returncode == 0 and "1989–2001" in alone.stdout
    together = run(*command, "--years", 20)
    assert together.stderr == "" and "1980–2000" in together.stdout


def test_a_list_of_paragraphs_is_a_text_and_not_names() -> None:
    long = "the river " * 30
    documents = [
        {"year": 1, "authors": "Ann", "text": ["Affirmed by J. Doe at the river, 347 U. S. 483.", "Rivers!"]},
        {"year": 1, "authors": "Bob", "text": [long, "the bank"]},
    ]
    made = events_from_documents(documents, columns="text", stop_words=["the", "at", "by"])
    assert made.column_names == ["affirmed", "bank", "doe", "river", "rivers"] and made.kind_names[1] == "words"
    assert (1, "Bob", "river", 30.0) in list(made.records())
    names = [{"year": 1, "authors": "Ann", "text": ["machine learning"]}] * 200
    assert events_from_documents(names, columns="text").column_names == ["machine learning"]
    with pytest.raises(InputError, match="document 200: the field 'text' is a list with a text of more than 200 char"):
        events_from_documents([*names, documents[1]], columns="text")


def test_documents_are_not_fitted_as_events(tmp_path: Path) -> None:
    speech = {"year": 1946, "country": "FRA", "text": "peace and trade " * 40}
    (tmp_path / "speeches.jsonl").write_text(json.dumps(speech) + "\n")
    done = run("fit", "dynamic", tmp_path / "speeches.jsonl", "-o", tmp_path / "m")
    assert "count its words first, with undertow events" in failed(done)
    assert [p.name for p in tmp_path.iterdir()] == ["speeches.jsonl"]


def test_a_map_is_called_as_it_is_told(tmp_path: Path) -> None:
    rows = [
        (t, r, c, 3 + (t + i) % 4) for t in (1, 2, 3) for i, (r, c) in enumerate([("a", "x"), ("a", "y"), ("b", "x")])
    ]
    (tmp_path / "e.csv").write_text("time,row,column,count\n" + "".join(",".join(map(str, r)) + "\n" for r in rows))
    fit = [
        "fit",
        "dynamic",
        tmp_path / "e.csv",
        "-o",
        tmp_path / "m",
        "--iterations",
        1,
        "--seed",
        0,
        "-j",
        1,
        "--json",
    ]
    facts = json.loads(run(*fit, "--row-name", "countries").stdout)
    assert facts["countries"] == 2 and facts["times"] == "1–3"
    page = tmp_path / "p.html"
    view = ["view", tmp_path / "m", "-o", page, "--title", "T", "--column-name", "topics", "--overwrite"]
    assert run(*view).returncode == 0
    assert "countries" in page.read_text() and "topics" in page.read_text()
    assert "different words" in failed(run(*view, "--row-name", "topics"))


def test_ranges_of_times() -> None:
    assert time_range([1946, 2012]) == "1946–2012" and time_range([7]) == "7"
    assert time_range(["1946-01", "2012-10"]) == "1946-01 – 2012-10"


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (HMM(6144, n_iter=1, random_state=0), "n_states"),
        (Grammar(n_nonterminals=40, n_preterminals=80, n_iter=1), "n_preterminals"),
    ],
)
def test_more_states_than_tokens_are_warned_of(model: Any, named: str) -> None:
    text = [["the", "river", "runs"], ["the", "bank", "lends"]] * 5
    with pytest.warns(LittleTextWarning, match=rf"for 30 tokens.* a smaller {named}, such as 5"):
        model.fit(text)


def test_more_components_than_a_text_can_tell_apart_are_warned_of() -> None:
    rng = np.random.default_rng(0)
    text = [[f"w{i}" for i in rng.integers(0, 90, 12)] for _ in range(400)]
    small = LDS(60, n_iter=1, n_full=1, lags=3, ssid_lags=2, min_count=1, random_state=0)
    with pytest.warns(LittleTextWarning, match="60 components for 4,800 tokens: .* such as 4") as told:
        small.fit(text)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", LittleTextWarning)
        small.set_params(n_components=48).fit(text)


# --- tagging --------------------------------------------------------------------------------------------


def test_the_overall_scores_have_names() -> None:
    spans = span_scores([["B-A", "O", "B-B"]], [["B-A", "O", "O"]])
    report = Report({"all": Accuracy(2, 3)}, spans)
    assert report.f1 == pytest.approx(2 / 3, rel=1e-12) and report.accuracy == pytest.approx(2 / 3, rel=1e-12)
    assert Report({"all": Accuracy(2, 3)}, None).f1 is None


FRENCH = """1\tIl\t_\tPRON\t_\t_\t_\t_\t_\t_
2\tparle\t_\tVERB\t_\t_\t_\t_\t_\t_
3-4\tdu\t_\t_\t_\t_\t_\t_\t_\t_
3\tde\t_\tADP\t_\t_\t_\t_\t_\t_
4\tle\t_\tDET\t_\t_\t_\t_\t_\t_
5\tlac\t_\tNOUN\t_\t_\t_\t_\t_\t_

"""


def test_multiword_tokens_and_running_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("fr.conllu").write_text(FRENCH * 30)
    english = FRENCH.replace("du", "don't").replace("\tde\t", "\tdo\t").replace("\tle\t", "\tn't\t")
    Path("en.conllu").write_text(english)
    assert multiword_example(["fr.conllu"]) == "du = de le" and multiword_example(["en.conllu"]) is None
    Path("new.txt").write_text("Il parle du lac .\n")
    assert run(*"tag train fr.conllu -o t --iterations 3 --seed 0 -j 1".split()).returncode == 0
    done = run("tag", "predict", "t", "new.txt")
    assert done.returncode == 0 and "(du = de le), and new.txt is running text" in done.stderr
    assert run("tag", "predict", "t", "fr.conllu").stderr == ""


# --- Python errors name Python's parameters -------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "options", "named"),
    [
        (b"\xff\n", {}, "on_bad_utf8="),
        (b'{"body": "x"}\n', {"format": "jsonl"}, "text_field"),
        (b"a\tb\n", {"format": "tsv", "column": 3}, "column ("),
    ],
)
def test_errors_name_the_parameter_and_the_option(content: bytes, options: Any, named: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(InputError) as e:
        list(read_chunks([str(tmp_path / "f")], ReadingOptions(**options)))
    assert named in str(e.value) and "(--" in str(e.value)
