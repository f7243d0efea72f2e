"""What the reader shows of each token is what the model itself answers about it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from page_samples import TEXT, fitted, sentences
from undertow import HMM, Evidence, FactorialHMM
from undertow.errors import InputError
from undertow.questions import factorial
from undertow.view import reader_data
from undertow.view.reader_data import COLORS, nearest_in_context, read_text, shortened


@pytest.mark.parametrize("kind", ["hmm-blocks", "hmm-dense", "fhmm", "lds"])
def test_surprise_and_unknown_words(kind: str) -> None:
    model = fitted(kind)
    reading = read_text(model, TEXT)
    assert reading.sentences == TEXT and not reading.is_cut
    bits = -np.concatenate(model.log_probabilities(TEXT)) / math.log(2)
    assert_allclose(reading.surprise, bits, rtol=1e-12)
    both = np.concatenate([s.both_sides for s in model.surprise(TEXT)])
    assert_allclose(reading.both_sides, both, rtol=1e-12)
    assert not np.allclose(both, bits, rtol=0.01)
    assert [w for s in TEXT for w in s if w == "unheard"] == ["unheard"]
    assert np.flatnonzero(reading.unknown).tolist() == [[w for s in TEXT for w in s].index("unheard")]


@pytest.mark.parametrize("kind", ["hmm-blocks", "hmm-dense", "hmm-low-rank"])
def test_states_words_and_expected_words_of_an_hmm(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_data, "BATCH_NUMBERS", 10)  # a sentence at a time
    model = fitted(kind)
    reading = read_text(model, TEXT)
    (tokens,) = reading.states
    assert [token[0][0] for token in tokens] == np.concatenate(model.decode(TEXT, "posterior")).tolist()
    for token, p in zip(tokens, np.concatenate(model.posterior(TEXT)), strict=True):
        assert_allclose([q for _, q in token], [p[z] for z, _ in token], rtol=1e-6)
        assert_allclose(token[0][1], p.max(), rtol=1e-6)
        assert len(token) == min(reader_data.STATES, max(1, int((p >= 0.01).sum())))
    for (layer, z), words in reading.state_words.items():
        assert layer == 0 and words[0].word in {w.word for w in model.top_words(z, 30)}
    place = iter(reading.expected)
    for sentence in TEXT:
        for t in range(len(sentence)):
            assert next(place) == model.next_words(sentence[:t], reader_data.EXPECTED)


@pytest.mark.parametrize("kind", ["hmm-blocks", "hmm-dense", "fhmm"])
def test_words_that_both_sides_expect_are_those_of_fill(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_data, "EXPECTED_TOKENS", 5)  # within a sentence, which is read whole all the same
    model = fitted(kind)
    first = [*TEXT[0][:3], "?", *TEXT[0][3:]]  # a question mark is a word here, not a gap
    between = read_text(model, [first, *TEXT[1:]]).between
    assert len(between) == 5 < len(first)
    for t, words in enumerate(between):
        (gap,) = model.fill(Evidence([*first[:t], None, *first[t + 1 :]]), reader_data.EXPECTED)
        assert words == list(gap.words) and 1 <= len(words) <= reader_data.EXPECTED


def test_states_of_layers() -> None:
    model = fitted("fhmm")
    reading = read_text(model, TEXT)
    p = np.concatenate(model.posterior(TEXT))
    for layer in range(2):
        assert [token[0][0] for token in reading.states[layer]] == p[:, layer].argmax(axis=1).tolist()
    assert {m for m, _ in reading.state_words} == {0, 1} and reading.expected == []


def test_nearest_words_in_context_are_the_neighbors_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("lds")
    for numbers in (1, 1 << 20):
        monkeypatch.setattr(reader_data, "BATCH_NUMBERS", numbers)
        found = iter(nearest_in_context(model, TEXT, 4))
        for sentence in TEXT:
            for position in range(len(sentence)):
                want = model.neighbors(sentence, 4, position=position)
                got = next(found)
                assert_allclose([x.cosine for x in got], [x.cosine for x in want], rtol=1e-4, atol=1e-5)
                assert {x.word for x in got} == {x.word for x in want}


def test_colors_follow_the_states() -> None:
    model = HMM(40, n_blocks=10, n_iter=2, random_state=0).fit(sentences(False))
    reading = read_text(model, sentences(False)[:5])
    shown = {(0, token[0][0]) for token in reading.states[0]}
    assert len(shown) > COLORS and set(reading.groups) == shown
    assert set(reading.groups.values()) <= set(range(COLORS))
    count = np.bincount([reading.groups[0, token[0][0]] for token in reading.states[0]], minlength=COLORS)
    assert (np.diff(count) <= 0).all()  # the most frequent color is the first
    few = read_text(fitted("hmm-dense"), TEXT)
    assert sorted(few.groups.values()) == list(range(len(few.groups)))  # a color for each of at most eight states


def test_carried_states_are_read_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_data, "BATCH_NUMBERS", 1)
    model = HMM(5, n_blocks=1, n_iter=2, carry=True, random_state=0).fit(sentences(False))
    reading = read_text(model, TEXT)
    together, apart = (
        np.concatenate(x).max(axis=1) for x in (model.posterior(TEXT), [model.posterior([s])[0] for s in TEXT])
    )
    assert_allclose([t[0][1] for t in reading.states[0]], together, rtol=1e-6)
    assert not np.allclose(together, apart, rtol=1e-4) and reading.expected == reading.between == []


def test_a_long_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shortened([["a", "b"], [], ["c", "d"], ["e"]], 3) == [["a", "b"], ["c"]]
    monkeypatch.setattr(reader_data, "MOST_TOKENS", 4)
    monkeypatch.setattr(reader_data, "EXPECTED_TOKENS", 3)
    reading = read_text(fitted("hmm-dense"), TEXT)
    assert reading.is_cut and reading.n_tokens == 4 == len(reading.surprise)
    assert len(reading.expected) == len(reading.between) == 3


def test_what_cannot_be_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="A WordClusters does not read text token by token"):
        read_text(fitted("clusters"), TEXT)
    with pytest.raises(InputError, match="The text has no words"):
        read_text(fitted("lds"), [[]])
    monkeypatch.setattr(FactorialHMM, "scores_exactly", False)
    assert read_text(fitted("fhmm"), TEXT).surprise == []


def test_a_product_too_large_for_both_sides_leaves_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorial, "MOST_STATES", 3)
    reading = read_text(fitted.__wrapped__("fhmm"), TEXT)  # not one that has its chain already
    assert reading.both_sides == reading.between == [] and len(reading.surprise) == reading.n_tokens
