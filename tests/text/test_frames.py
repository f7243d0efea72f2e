"""Rows of DataFrames, Arrow tables and Hugging Face data sets, read alike."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sentences import is_one_sentence
from undertow import HMM, Corpus, DocumentEncoder, Events
from undertow.errors import InputError
from undertow.text.event_documents import events_from_documents

ROWS = [
    {"text": "The river is wide.\nWe sat.", "id": 1},
    {"text": None, "id": 2},
    {"text": "A bank of the sea.", "id": 3},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ("text", "id")}
EVENTS = [(2001, "Ann", "river", 2.0), (2001, "Bob", "bank", 1.0), (2003, "Ann", "bank", 4.0)]


def of_hugging_face(stream: bool) -> Any:
    datasets = pytest.importorskip("datasets", reason="datasets of Hugging Face is not installed")
    data = datasets.Dataset.from_list(ROWS)
    return data.to_iterable_dataset() if stream else data


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS,
        lambda: iter(ROWS),
        lambda: pd.DataFrame(ROWS),
        lambda: pd.DataFrame(ROWS)["text"],
        lambda: pl.DataFrame(COLUMNS),
        lambda: pl.DataFrame(COLUMNS)["text"],
        lambda: pa.table(COLUMNS),
        lambda: pa.array([t for t in COLUMNS["text"] if t]),
        lambda: [t for t in COLUMNS["text"] if t],
        lambda: of_hugging_face(False),
        lambda: of_hugging_face(True),
        lambda: of_hugging_face(False)["text"],
    ],
)
def test_documents_become_a_corpus(make: Any) -> None:
    corpus = Corpus.from_documents(make())
    assert list(corpus.token_lists()) == [
        ["The", "river", "is", "wide", "."], ["We", "sat", "."], ["A", "bank", "of", "the", "sea", "."],
    ]  # fmt: skip


def test_a_model_of_documents_knows_their_tokenizer() -> None:
    corpus = Corpus.from_documents([{"body": "Don't stop."}] * 9, "body", tokenizer="spaces", vocab_size=9)
    assert next(corpus.token_lists()) == ["Don't", "stop."]
    model = HMM(2, n_iter=1, random_state=0).fit(corpus)
    assert DocumentEncoder(model, "states").fit_transform(["Don't stop."]).sum() == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("a text", "single string"),
        ([{"body": "a"}], "no field 'text'"),
        ([{"text": 3}], "type int"),
        (["a", 3], "type int"),
        ([3], "not a dictionary"),
        ([], "no token"),
        (pd.DataFrame([[1, 2]], columns=["text", "text"]), "two columns"),
    ],
)
def test_what_is_no_document(given: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as e:
        Corpus.from_documents(given)
    assert is_one_sentence(str(e.value))


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_events_and_their_documents_from_any_table(library: Any) -> None:
    names = ("time", "row", "column", "count")
    frame = library({name: [e[k] for e in EVENTS] for k, name in enumerate(names)})
    assert list(Events.build(frame).records()) == EVENTS
    assert Events.build(EVENTS).table() == EVENTS
    papers = library({"year": [2001, 2003], "who": ["Ann", "Bob"], "text": ["A river.", "A bank, a bank."]})
    events = events_from_documents(papers, rows="who", columns="text")
    assert list(events.records()) == [(2001, "Ann", "river", 1.0), (2003, "Bob", "bank", 2.0)]


def test_tables_go_out_and_come_back() -> None:
    events = Events.build(EVENTS)
    for table in (events.table().to_frame(), events.table().to_frame("polars"), events.table().to_arrow()):
        assert list(Events.build(table).records()) == EVENTS
