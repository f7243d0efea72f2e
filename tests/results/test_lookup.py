"""Words of labelled text in the vocabulary of a model: other casings and spellings."""

from __future__ import annotations

import numpy as np
import pytest

from undertow import WordClusters, load
from undertow.errors import InputError
from undertow.results.tagging import CRFTagger, Paths
from undertow.results.tagging.lookup import known_spelling
from undertow.text.vocabulary import Vocabulary

COUNTS = {"great": 9, "Great": 2, "Smith": 5, "smith": 1, "NASA": 3, "so": 8, "London": 4, "Us": 1, "US": 7, "us": 7}
VOCABULARY = Vocabulary.from_counts(COUNTS)


@pytest.mark.parametrize(
    ("word", "known", "frequent"),
    [
        ("great", "great", "great"),
        ("Great", "Great", "great"),  # in the vocabulary, but rarer so
        ("GREAT", "great", "great"),
        ("#GREAT", "great", "great"),
        ("Smith", "Smith", "Smith"),
        ("SMITH", "smith", "Smith"),  # known in lower case, more frequent with one capital
        ("smith", "smith", "smith"),  # what begins with a small letter stays as it is
        ("nasa", "NASA", "NASA"),
        ("@london", "London", "London"),
        ("soooo", "so", "so"),
        ("greaaat", "great", "great"),
        ("US", "US", "US"),  # the first of equally frequent ones
        ("zebra", "zebra", "zebra"),
        ("###", "###", "###"),
    ],
)
def test_spellings(word: str, known: str, frequent: str) -> None:
    assert known_spelling(word, VOCABULARY, "known") == known
    assert known_spelling(word, VOCABULARY, "frequent") == frequent


def clusters() -> WordClusters:
    draw = np.random.default_rng(0)
    nouns, verbs = ["cat", "dog", "Bird"], ["sleeps", "runs"]
    text = [["the", str(draw.choice(nouns)), str(draw.choice(verbs))] for _ in range(200)]
    return WordClusters(3).fit(text)


def test_adapters_read_the_known_spelling() -> None:
    model = clusters()
    sentence = [["THE", "bird", "Runs"]]
    read = Paths(model, prefixes=[4], casing="known").features(sentence)
    assert read == Paths(model, prefixes=[4]).features([["the", "Bird", "runs"]])
    assert read != Paths(model, prefixes=[4]).features(sentence)


def test_a_saved_tagger_looks_words_up_as_before(tmp_path) -> None:  # type: ignore[no-untyped-def]
    words, tags = [["the", "cat", "sleeps"], ["the", "dog", "runs"]], [["D", "N", "V"]] * 2
    tagger = CRFTagger(Paths(clusters(), window=0, casing="frequent"), n_iter=20).fit(words, tags)
    tagger.save(tmp_path / "tagger")
    again = load(tmp_path / "tagger")
    assert again.features_[0].casing == "frequent"
    np.testing.assert_array_equal(again.predict_proba([["BIRD"]])[0], tagger.predict_proba([["BIRD"]])[0])


def test_other_casings_are_refused() -> None:
    with pytest.raises(InputError, match="casing='lower' must be"):
        Paths(clusters(), casing="lower")
