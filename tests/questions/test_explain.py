"""Comparing words, surprise, and what another word would change, against all texts and paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sentences import is_one_sentence
from tiny_hmms import all_texts, forms, made, one_hot
from undertow import Corpus
from undertow.errors import InputError


@forms
def test_compare_is_bayes_rule(form: str) -> None:
    model = made(form)
    V, words = len(model.vocabulary_), ["b", "c", "d"]
    p = all_texts(model, 3).given({0: one_hot(model, "a"), 2: one_hot(model, "d")}).word(1, V)
    p = p[[model.vocabulary_.id(w) for w in words]]
    for text in (["a", None, "d"], ["a", "b", "d"]):  # what stands there is not looked at
        found = model.compare(text, 1, words)
        assert [f.word for f in found] == words
        np.testing.assert_allclose([f.probability for f in found], p, rtol=1e-4)
        np.testing.assert_allclose([f.share for f in found], p / p.sum(), rtol=1e-4)
        np.testing.assert_allclose([f.log_odds for f in found], np.log(p / (p.sum() - p)), rtol=1e-3, atol=1e-4)
    two = model.compare(["a", None], 1, ["b", "c"])
    assert two[0].log_odds == pytest.approx(np.log(two[0].probability / two[1].probability))


@forms
def test_surprise_is_minus_log2_of_both_probabilities(form: str) -> None:
    model, sentences = made(form), [["a", "b", "c"], ["d"]]
    for X in (sentences, Corpus.from_sentences(sentences, vocabulary=model.vocabulary_), iter(sentences)):
        found = model.surprise(X)
        assert [s.tokens for s in found] == sentences
        for i, s in enumerate(found):
            np.testing.assert_allclose(s.left_to_right, -model.log_probabilities(sentences)[i] / np.log(2))
            np.testing.assert_allclose(s.both_sides, -model.masked_log_probabilities(sentences)[i] / np.log(2))


@forms
def test_what_if_is_the_difference_of_two_posteriors(form: str) -> None:
    model = made(form)
    texts, Z, V = all_texts(model, 3), model.params_.n_states, len(model.vocabulary_)
    old_words, new_words = ["a", "b", "d"], ["a", "c", "d"]
    found = model.what_if(old_words, 1, "c")
    assert [(c.position, c.token) for c in found] == [(0, "a"), (2, "d")]
    for change in found:
        t = change.position
        q, p = (
            texts.given({i: one_hot(model, w) for i, w in enumerate(words)}).state(t, Z)
            for words in (old_words, new_words)
        )
        alone = [
            texts.given({i: one_hot(model, w) for i, w in enumerate(words) if i != t}).word(t, V)
            for words in (old_words, new_words)
        ]
        bits = [-np.log2(a[model.vocabulary_.id(old_words[t])]) for a in alone]
        both = (p > 0) & (q > 0)
        np.testing.assert_allclose(change.total_variation, np.abs(p - q).sum() / 2, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(
            change.divergence, (p[both] * np.log2(p[both] / q[both])).sum(), rtol=1e-2, atol=1e-5
        )
        np.testing.assert_allclose(change.surprise, bits[1] - bits[0], rtol=1e-2, atol=1e-4)
    assert model.what_if(["a", None], 0, "b")[0].surprise == pytest.approx(0, abs=1e-5)  # a gap cannot be surprising


BAD: list[tuple[str, tuple[Any, ...], str]] = [
    ("compare", (["a", None], 2, ["a"]), "0 to 1"),
    ("compare", (["a", None], -1, ["a"]), "0 to 1"),
    ("compare", (["a", None], 1, []), "at least one word"),
    ("compare", (["a", None], 1, "ab"), "at least one word"),
    ("compare", (["a", None], 1, ["a", "nowhere"]), "'nowhere'"),
    ("compare", ([], 0, ["a"]), "0 tokens"),
    ("what_if", (["a", "b"], 5, "a"), "0 to 1"),
    ("what_if", (["a", "b"], 1, "nowhere"), "'nowhere'"),
    ("what_if", (["a", "b"], 1, None), "give strings"),
]


@pytest.mark.parametrize(("method", "arguments", "part"), BAD, ids=[f"{b[0]} {b[2]}" for b in BAD])
def test_bad_questions_are_refused(method: str, arguments: tuple[Any, ...], part: str) -> None:
    with pytest.raises(InputError) as e:
        getattr(made("dense"), method)(*arguments)
    assert part in str(e.value) and is_one_sentence(str(e.value))
