"""`LDS.partial_fit`: counts given again to a loaded model, and new words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from contract.cases import OTHER_SENTENCES, SENTENCES
from undertow import LDS, LagCounts, load
from undertow.errors import InputError
from undertow.kernels.gaussian.moments import text_moments
from undertow.models.base import extend_corpus
from undertow.models.lds.init import extended_start
from undertow.text.corpus import Corpus

SMALL: dict[str, Any] = {
    "n_components": 3, "n_iter": 3, "n_full": 1, "lags": 3, "ssid_lags": 2, "kappa": 1.0, "random_state": 0,
}  # fmt: skip


def test_counts_of_a_directory(tmp_path: Path) -> None:
    counts = LagCounts.from_corpus(Corpus.from_sentences(SENTENCES), lags=3)
    counts.save(tmp_path / "counts")
    model = LDS(**SMALL).fit(counts)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, LDS)
    with pytest.raises(InputError, match="counts="):
        loaded.partial_fit(OTHER_SENTENCES)
    loaded.partial_fit(OTHER_SENTENCES, counts=tmp_path / "counts")
    assert_array_equal(loaded.params_.C, model.partial_fit(OTHER_SENTENCES).params_.C)


def test_counts_of_another_text_are_refused() -> None:
    model = LDS(**SMALL).fit(SENTENCES)
    for text in (OTHER_SENTENCES, SENTENCES + SENTENCES[:1]):
        other = LagCounts.from_corpus(Corpus.from_sentences(text), lags=3)
        with pytest.raises(InputError, match="not those of the text"):
            model.partial_fit(SENTENCES, counts=other)


def test_more_lags_and_pairs_across_sentences_are_counted_as_before() -> None:
    counts = LagCounts.from_corpus(Corpus.from_sentences(SENTENCES), lags=5, across=True)
    model = LDS(**SMALL).fit(counts).partial_fit(OTHER_SENTENCES)
    assert model._counts.lags == 5 and model._counts.across


def test_counts_with_new_words_are_those_of_the_whole_text() -> None:
    """Old text over the old words and new text over all of them: the sum of two texts that are read one by one."""
    first = Corpus.from_sentences(SENTENCES)
    model = LDS(**SMALL).fit(first).partial_fit(OTHER_SENTENCES)
    words = model.vocabulary_
    both = Corpus.from_sentences(SENTENCES + OTHER_SENTENCES, vocabulary=words)
    assert_array_equal(words.counts, both.vocabulary.counts)
    whole = LagCounts.from_corpus(both, lags=3)
    for k in (1, 2, 3):
        assert (model._counts.matrix(k) != whole.matrix(k)).nnz == 0


def test_a_new_word_starts_as_a_share_of_what_it_was_read_as() -> None:
    """p(n | x) = (μ_n / μ_f) p(f | x) for every state x, up to the projection that keeps Σ_i √μ_i C_i = 0."""
    text = [[*s, "odd"] for s in SENTENCES]
    first = Corpus.from_sentences(text, min_count=2)  # words that came once are unknown
    model = LDS(**SMALL).fit(first)
    more = extend_corpus(first.vocabulary, [["odd", "new", "river"], ["new", "river"]], 1)
    counts = model._counts.with_words(more.vocabulary) + LagCounts.from_corpus(more, lags=3)
    moments = text_moments(counts.vocabulary.counts, (counts.matrix(k) for k in (1, 2, 3)), kappa=1.0)
    start = extended_start(model.params_, moments, counts.vocabulary.fallback())
    new, unknown = counts.vocabulary.id("new"), counts.vocabulary.unknown_id
    assert new == len(first.vocabulary)
    mu, old = moments.mu, model.params_
    in_words = np.sqrt(mu)[:, None] * start.C  # p(word | x) − μ, for each direction of x
    expected = np.zeros_like(in_words)
    expected[: len(old.mu)] = np.sqrt(old.mu)[:, None] * old.C
    expected[new] = mu[new] / mu[unknown] * expected[unknown]
    drift = expected.sum(axis=0)  # what the new words add to the sum, which the projection takes away along μ
    assert_allclose(in_words, expected - mu[:, None] * drift, rtol=1e-6, atol=1e-9)
    assert np.abs(in_words[new]).max() > 1e-6


def test_with_words_needs_the_same_words_first() -> None:
    counts = LagCounts.from_corpus(Corpus.from_sentences(SENTENCES), lags=1)
    with pytest.raises(InputError, match="must begin with the words"):
        counts.with_words(Corpus.from_sentences(OTHER_SENTENCES).vocabulary)
