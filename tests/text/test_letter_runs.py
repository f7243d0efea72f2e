from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from oracles.letters import runs_of
from undertow.text.letters import N_PLACES, has_letter, letter_runs


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=5))
def test_runs_are_those_of_the_definition(words: list[str]) -> None:
    words = [word for word in words if not any(0xD800 <= ord(c) <= 0xDFFF for c in word)]
    found = letter_runs(words)
    assert found.shape == (len(words), N_PLACES) and found.dtype == np.float32
    for i, word in enumerate(words):
        expected = runs_of(word, N_PLACES)
        row = found[[i]]
        assert row.indices.tolist() == sorted(expected)
        assert_allclose(row.data, [expected[place] for place in sorted(expected)], rtol=1e-6)


def test_words_of_similar_spelling_share_runs_and_casings_share_all() -> None:
    first, other, far, capital = letter_runs(["walking", "talking", "cup", "Walking"]).toarray()
    assert first @ other > 0.5
    assert first @ far < 0.1
    assert_allclose(first, capital, rtol=1e-6)
    assert_allclose(first @ first, 1, rtol=1e-5)


def test_half_of_a_pair_of_surrogates_is_no_error() -> None:
    assert letter_runs(["a\ud800b"]).nnz > 0


def test_which_words_have_letters() -> None:
    assert all(map(has_letter, ("word", "B12", "é", "語")))
    assert not any(map(has_letter, ("12", "...", "")))
