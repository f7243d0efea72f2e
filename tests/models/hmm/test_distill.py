"""Fitting to the texts of another language model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from undertow import HMM
from undertow.errors import InputError

IDS = [[3, 1, 2], [3, 2], [3, 1]] * 10


def test_ids_and_strings_give_the_same_model() -> None:
    fits = [
        HMM(2, n_iter=2, random_state=0).distill(texts, n_tokens=None)
        for texts in (IDS, [np.array(t) for t in IDS], [[str(i) for i in t] for t in IDS])
    ]
    for other in fits[1:]:
        assert other.vocabulary_ == fits[0].vocabulary_ and other.history_ == fits[0].history_


def test_a_sampler_is_called_until_there_are_enough_tokens() -> None:
    calls = []

    def sampler():
        calls.append(1)
        return IDS

    model = HMM(2, n_iter=1, random_state=0).distill(sampler, n_tokens=200)
    assert len(calls) == 3 and 200 <= model.vocabulary_.counts.sum() <= 202


def test_ids_that_were_never_drawn_are_words() -> None:
    model = HMM(2, n_iter=2, random_state=0).distill(IDS, n_tokens=None, vocab_size=50)
    assert len(model.vocabulary_) == 51
    p = model.next_distribution(["3"])
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-6)
    assert p[model.vocabulary_.id("49")] > 0


@pytest.mark.parametrize(
    ("source", "given", "sentence"),
    [
        (lambda: [], {}, "returned no text"),
        (lambda: [[]], {"n_tokens": 5}, "empty texts"),
        (lambda: IDS, {"n_tokens": None}, "never ends"),
        (["abc"], {}, "lists of tokens"),
        ([[1.5]], {}, "whole numbers"),
        (IDS, {"n_tokens": 0}, "at least 1"),
        (IDS, {"vocab_size": -1}, "at least 1"),
        ([3], {}, "lists of tokens"),
    ],
)
def test_bad_input(source, given, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        HMM(2, n_iter=1).distill(source, **given)


def test_an_endless_iterable_is_cut() -> None:
    model = HMM(2, n_iter=1, random_state=0).distill(itertools.cycle(IDS), n_tokens=100)
    assert 100 <= model.vocabulary_.counts.sum() <= 102
