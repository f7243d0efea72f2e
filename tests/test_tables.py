"""Tables of results: lists as before, that print, are shown in notebooks and become DataFrames."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from undertow import HMM, LDS, DynamicEmbedding, Events, FactorialHMM, Grammar, Interpolation, LagCounts
from undertow.errors import InputError
from undertow.index import Match, TokenPlace, VectorIndex
from undertow.models.answers import Gap, Neighbor, Transition, WordProbability
from undertow.questions.explain import Surprise
from undertow.results.pairs import strongest_pairs
from undertow.results.tagging import Accuracy, Report, SpanScore
from undertow.results.tagging.scores import ALL_TYPES
from undertow.tables import MOST_ROWS, Table
from undertow.text.corpus import Corpus

TEXT = [s.split() for s in ("the river runs to the sea", "we sat on the bank of the river", "the sea is wide")] * 6


def gaps() -> Table[Gap]:
    words = Table(WordProbability, [WordProbability("<b>", 0.25), WordProbability("sea", 1 / 3)])
    return Table(Gap, [Gap(2, words), Gap(4, words[:1])])


def test_a_table_is_a_list() -> None:
    rows = [Neighbor("a", 0.5), Neighbor("b", 0.25)]
    table = Table(Neighbor, rows)
    assert table == rows and isinstance(table, list) and repr(table) == repr(rows)
    assert table[0].word == "a" and type(table[1:]) is Table and table[1:] == rows[1:]
    again = copy.deepcopy(table)
    assert again == rows and str(again) == str(table)


def test_it_prints_as_columns() -> None:
    table = Table(
        Transition, [Transition(0.123456, ["a", "bb"], ["c"]), Transition(1e-9, ["d"], [])], note="Two of them."
    )
    assert str(table).splitlines() == [
        "strength  before  after",
        "  0.1235  a, bb   c",
        "   1e-09  d",
        "Two of them.",
    ]
    assert str(Table(Neighbor)).splitlines() == ["word  cosine", "(no rows)"]
    many = Table(Neighbor, [Neighbor(f"w{k}", k / 7) for k in range(MOST_ROWS + 1005)])
    assert len(str(many).splitlines()) == MOST_ROWS + 2 and str(many).endswith("… 1,005 more rows")
    assert str(Table(Neighbor, [Neighbor("a\nb\t" + "c" * 100, 1.0)])).count("\n") == 1


def test_rows_that_hold_tables_are_spread() -> None:
    assert gaps().columns() == {
        "position": [2, 2, 4],
        "word": ["<b>", "sea", "<b>"],
        "probability": [0.25, 1 / 3, 0.25],
    }
    surprise = Table(Surprise, [Surprise(["a", "b"], np.array([1.0, 2.0]), np.array([0.5, np.inf]))])
    assert list(surprise.columns()) == ["sentence", "position", "token", "left_to_right", "both_sides"]
    assert surprise.columns()["both_sides"] == [0.5, np.inf] and "inf" in str(surprise)
    assert list(Table(Gap).columns()) == ["position", "word", "probability"]  # also without a row
    places = Table(Match, [Match(TokenPlace(0, 3, "sea"), 0.5), Match(TokenPlace(1, 0, "bank"), 0.25)])
    assert places.columns()["word"] == ["sea", "bank"] and list(places.columns())[-1] == "cosine"


def test_notebooks_get_escaped_html() -> None:
    shown = gaps()._repr_html_()
    assert "&lt;b&gt;" in shown and "<b>" not in shown and shown.count("<tr>") == 4
    assert "&lt;i&gt;" in Table(Neighbor, note="<i>")._repr_html_()


def test_frames_of_three_libraries() -> None:
    table = Table(Transition, [Transition(0.5, ["a", "b"], ["c"]), Transition(0.25, ["d"], ["e"])])
    frame, other, arrow = table.to_frame(), table.to_frame("polars"), table.to_arrow()
    assert isinstance(frame, pd.DataFrame) and isinstance(other, pl.DataFrame) and isinstance(arrow, pa.Table)
    for columns in (frame.to_dict("list"), other.to_dict(as_series=False), arrow.to_pydict()):
        assert columns == {"strength": [0.5, 0.25], "before": [["a", "b"], ["d"]], "after": [["c"], ["e"]]}
    with pytest.raises(InputError, match="pandas, polars"):
        table.to_frame("excel")


def test_a_report_of_a_tagger() -> None:
    spans = {ALL_TYPES: SpanScore(2, 4, 5), "loc": SpanScore(2, 4, 5)}
    report = Report({"all": Accuracy(3, 4), "oov": Accuracy(0, 0)}, spans)
    frame = report.to_frame()
    assert frame["of"].tolist() == ["tokens", "tokens", "spans", "spans"]
    assert frame["group"].tolist() == ["all", "oov", "all", "loc"] and frame["accuracy"].tolist()[0] == 0.75
    assert frame["f1"].tolist()[2] == pytest.approx(4 / 9) and "\0" not in str(report)
    assert report._repr_html_().count("<tr>") == 5 and report == Report(*report)


def answers() -> dict[str, Any]:
    corpus = Corpus.from_sentences(TEXT)
    lds = LDS(3, n_iter=2, lags=3, ssid_lags=2, min_count=1, random_state=0).fit(corpus)
    hmm = HMM(4, n_iter=2, random_state=0).fit(corpus)
    layers = FactorialHMM(2, n_states=2, n_iter=2, random_state=0).fit(corpus)
    grammar = Grammar(3, n_preterminals=4, rank=3, n_iter=2, random_state=0).fit(corpus)
    rows = [
        (t, r, c, 1 + (len(r + c) + t) % 3)
        for t in (1, 2, 3)
        for r in ("Ann", "Bob", "Cy")
        for c in ("sea", "bank", "tax")
    ]
    moving = DynamicEmbedding(2, n_iter=2, random_state=0).fit(rows)
    gap, sentence = ["the", None, "runs"], ["the", "river", "runs"]
    return {
        "neighbors": lds.neighbors("river", 2), "most_similar": lds.most_similar("river", topn=2),
        "transitions of an LDS": lds.transitions(2), "fill of an LDS": lds.fill(gap, 2),
        "transitions": hmm.transitions(2), "top words": hmm.top_words(0, 2), "next words": hmm.next_words(["the"], 2),
        "fill": hmm.fill(gap, 2), "words of a gap": hmm.fill(gap, 2)[0].words,
        "compare": hmm.compare(sentence, 1, ["sea", "bank"]), "surprise": hmm.surprise([sentence]),
        "what if": hmm.what_if(sentence, 1, "sea"), "words of a layer": layers.top_words(0, 0, 2, min_count=1),
        "fill of layers": layers.fill(gap, 2), "fill of a grammar": grammar.fill(gap, 2),
        "rules": grammar.top_rules(2), "fill of a mixture": Interpolation([hmm, layers]).fill(gap, 2),
        "nearest": moving.nearest("sea", 2, 2), "movers": moving.movers(2), "links": moving.predict_links(2),
        "events": Events.build(rows).table(), "pairs": strongest_pairs(LagCounts.from_corpus(corpus, lags=1), 1, 3),
        "search": VectorIndex(lds.transform(TEXT[:1])[0]).search(lds["river"].repeat(2), 2),
    }  # fmt: skip


def test_whatever_lists_results_is_a_table() -> None:
    for name, table in answers().items():
        assert isinstance(table, Table), name
        frame = table.to_frame()
        assert list(frame.columns) == list(table.columns()) and len(frame) >= (name != "movers"), name
        assert len(table.to_frame("polars")) == len(frame) and str(table).count("\n") >= len(frame.head(MOST_ROWS)), (
            name
        )
