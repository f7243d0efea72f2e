"""The pages of all models as text: closed to the network, no word is ever markup, and they say what the model says."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from html_page import HOSTILE, HOSTILE_WORD, Page, check_closed, payload
from page_samples import KINDS, TEXT, fitted
from undertow import HMM, Tagger
from undertow.errors import InputError
from undertow.view import lds_page
from undertow.view.charts import bar_chart, curve_chart, eigenvalue_chart, half_life, rank_chart, round_ticks
from undertow.view.document import document, save_page
from undertow.view.index_page import PageCard, index_page, preview_of_lists, preview_of_reading
from undertow.view.lds_page import distinct_transitions, first_words, packed_words
from undertow.view.pages import page
from undertow.view.reader_data import read_text


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_has_a_page_that_is_closed(kind: str) -> None:
    text = page(fitted(kind))
    check_closed(text)
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n") and len(text) < 200_000
    assert page(fitted(kind)) == text
    assert "<title>My &lt;b&gt;title</title>" in page(fitted(kind), title="My <b>title")


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("tagger", "grammar")])
def test_hostile_words_are_data_and_never_markup(kind: str) -> None:
    text = page(fitted(kind, True), title=HOSTILE)
    assert (
        HOSTILE not in text
        and HOSTILE_WORD not in text
        and "<img" not in text
        and "\u2028" not in text.split('id="data"')[1]
    )
    assert not {"img"} & set(Page(text).tags)
    strings = payload(text).get("strings") or payload(text).get("words") or payload(text)["names"]
    assert HOSTILE_WORD in strings
    check_closed(text)


@pytest.mark.parametrize("kind", ["hmm-blocks", "fhmm", "lds"])
def test_a_reader_of_hostile_words(kind: str) -> None:
    text = page(fitted(kind, True), [["the", HOSTILE_WORD, "</p>", "<script>alert(1)</script>"]])
    check_closed(text)
    got = payload(text)
    assert [got["strings"][w] for w in got["sentences"][0]] == [
        "the",
        HOSTILE_WORD,
        "</p>",
        "<script>alert(1)</script>",
    ]
    assert got["unknown"] == [2, 3]


def test_the_reader_has_the_numbers_of_the_model() -> None:
    model = fitted("hmm-blocks")
    got = payload(page(model, TEXT))
    bits = -np.concatenate(model.log_probabilities(TEXT)) / np.log(2)
    assert_allclose(got["surprise"], bits, rtol=0, atol=0.051)
    both = np.concatenate([s.both_sides for s in model.surprise(TEXT)])
    assert_allclose(got["both"], both, rtol=0, atol=0.051)
    assert f"{2 ** both.mean():,.0f}</b>perplexity given both sides" in page(model, TEXT)
    states = np.concatenate(model.decode(TEXT, "posterior"))
    assert [got["states"][token[0][0]]["name"] for token in got["posterior"][0]] == [str(z) for z in states]


def test_impossible_tokens_in_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HMM, "masked_log_probabilities", lambda _, X: [np.full(len(s), -np.inf) for s in X])
    text = page(fitted("hmm-dense"), TEXT)
    assert set(payload(text)["both"]) == {None} and "perplexity given both sides" not in text


def test_the_page_of_an_hmm_says_what_the_model_says() -> None:
    model = fitted("hmm-blocks")
    text = page(model)
    got = payload(text)
    assert f"{np.exp(-model.history_[-1]):,.1f}</b>perplexity in training" in text
    assert f"{np.exp(-max(model.validation_history_)):,.1f}</b>perplexity held out" in text
    assert text.count('class="curve ') == 2  # training and held-out text
    assert " ".join(model.sample(120, random_state=0)) in text
    diagnosis = model.diagnose()
    assert all(f"<td>{name}</td><td>{value}</td>" in text for name, value in diagnosis.facts())
    for b in diagnosis.blocks:
        assert f"<td>{b.block}</td><td>{b.words:,}</td><td>{b.states:,}</td><td>{b.token_share:.2%}</td>" in text
    first = got["states"][0]
    words = [got["strings"][w] for w in first["words"][0]]
    assert words == [w.word for w in model.top_words(int(first["name"]), 50) if w.probability >= 1e-3][:10]


def test_packed_vectors_keep_the_cosines() -> None:
    model = fitted("lds")
    packed = packed_words(model)
    vectors = packed.codes * packed.steps[:, None].astype(float)
    exact = model.word_vectors()[packed.ids]
    assert_allclose(vectors, exact, rtol=0, atol=np.abs(exact).max() / 250)
    counts = model.vocabulary_.counts[packed.ids]
    assert (np.diff(counts) <= 0).all()


def test_vectors_are_limited_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lds_page, "WORDS", 5)
    assert len(packed_words(fitted("lds")).ids) == 5


def test_transitions_do_not_repeat_their_words() -> None:
    model = fitted("lds")
    kept = distinct_transitions(model, n=4, n_words=3)
    every = model.transitions(4, n_words=3)
    assert kept[0] == every[0] and all(t in every for t in kept)
    for k, t in enumerate(kept[1:], 1):
        before = {w for other in kept[:k] for w in other.before}
        after = {w for other in kept[:k] for w in other.after}
        assert len(before & set(t.before)) + len(after & set(t.after)) <= lds_page.SAME * 6


def test_words_to_begin_with() -> None:
    packed = packed_words(fitted("lds"))
    words = [fitted("lds").vocabulary_.words[i] for i in packed.ids]
    assert len(set(first_words(packed, words, 2))) == 2
    assert first_words(packed, ["."] * len(words), 2) == [0, 1]


def test_the_index() -> None:
    preview = preview_of_reading(read_text(fitted("hmm-blocks", True), [["the", HOSTILE_WORD]]))
    assert preview.count("<span class=") == 2 and "<img" not in preview
    cards = [PageCard("a.html", "A", "Says <b>.", preview + preview_of_lists([("x:", [HOSTILE_WORD])]))]
    text = index_page("Title", "Lead.", cards, [("Do:", "undertow view 'a b' && ls")])
    check_closed(text)
    assert 'href="a.html"' in text and "Says &lt;b&gt;." in text and "&amp;&amp; ls" in text and "<img" not in text


def test_charts() -> None:
    chart = curve_chart([("a", [3.0, 2.0]), ("none", []), ("b", [2.0])], x_label="pass", y_label="bits")
    assert chart.count("<polyline") == 2 and "none" not in chart
    assert curve_chart([("a", [])], x_label="", y_label="") == ""
    assert curve_chart([("a", [1.0])], x_label="x", y_label="y").count("<circle") == 1
    dots = re.findall(r'class="eigenvalue" cx="([\d.]+)" cy="([\d.]+)"', eigenvalue_chart([0.5 + 0j, 0.5j]))
    assert dots == [("230.0", "160.0"), ("160.0", "90.0")]
    heights = [float(h) for h in re.findall(r'height="([\d.]+)" />', bar_chart([1.0, 0.5], y_label="y"))]
    assert_allclose(heights[0], 2 * heights[1], rtol=1e-2)
    assert rank_chart([0, 0]) == "" and "100" in rank_chart([100, 10, 1])
    assert round_ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1.0] and round_ticks(5, 5)[0] <= 5
    assert_allclose(half_life(np.array([0.5, 2**-0.1])), [1, 10], rtol=1e-9)


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    text = document("T", "<p>x</p>")
    assert "script" not in text
    save_page(text, tmp_path / "a.html")
    assert (tmp_path / "a.html").read_text() == text
    with pytest.raises(InputError, match="exists already"):
        save_page(text, tmp_path / "a.html")
    with pytest.raises(InputError, match="title is empty"):
        document(" ", "")


def test_the_page_of_a_grammar_shows_kinds_and_rules_and_a_text_its_trees() -> None:
    model = fitted("grammar", True)
    text = page(model)
    assert Page(text).tags.count("table") == 4  # words, phrases, rules, parameters
    most = int(np.argmax(model.symbol_counts_[3:]))
    words = " ".join(w.word for w in model.top_words(3 + most, 8))
    assert text.index(f"<td>P{most}</td><td>{escape(words)}</td>") < text.index("Kinds of phrases")
    rule = model.top_rules(1)[0]
    assert f"<td>{rule.probability:.1%}</td>" in text.split("<h2>Rules</h2>")[1]
    trees = page(model, TEXT * 400, title="Trees <b>")
    check_closed(text)
    assert HOSTILE_WORD not in text + trees and "<img" not in text + trees and "<script" not in trees
    n_tokens = sum(map(len, TEXT))
    assert trees.count("<svg") == 2 * (2_000 // n_tokens) + 2  # whole sentences until there are so many tokens


def test_the_page_of_a_tagger_shows_what_it_got_right() -> None:
    words = [["the", "dog", "ran"], ["a", "cat", "sleeps"]] * 20
    tagger = Tagger(n_iter=3, random_state=0).fit(words, [["B-X", "I-X", "O"], ["O", "B-X", "O"]] * 20)
    assert tagger.held_out_ is not None
    text = page(tagger)
    check_closed(text)
    every, spans = tagger.held_out_.tokens["all"], tagger.held_out_.spans
    assert spans is not None
    assert f"<td>all tokens</td><td>{every.total}</td><td>{every.right}</td>" in text
    assert (
        f"<td>spans: X</td><td>{spans['X'].gold}</td><td>{spans['X'].correct}</td><td>{spans['X'].f1:.1%}</td>" in text
    )
    assert "held out" not in page(fitted("tagger"))
