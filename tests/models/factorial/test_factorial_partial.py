"""New words of a factorial HMM: the row they start with, checked in every joint state."""

from __future__ import annotations

import itertools
import math

import numpy as np

from contract.cases import OTHER_SENTENCES, SENTENCES
from undertow import FactorialHMM
from undertow.models.factorial.init import with_new_words


def test_a_new_word_starts_as_the_average_word_of_every_joint_state() -> None:
    model = FactorialHMM(2, n_states=3, n_iter=2, random_state=0).fit(SENTENCES)
    old, counts = model.params_, model.vocabulary_.counts
    new_counts = np.concatenate([counts, [2, 5]])
    start = with_new_words(old, counts, new_counts)
    mu = counts / counts.sum()
    average = sum(p * math.log(p) for p in mu if p)
    for states in itertools.product(range(3), repeat=2):
        before = sum(old.theta[:, m, k] for m, k in enumerate(states))
        after = sum(start.theta[:, m, k] for m, k in enumerate(states))
        log_p = before - np.log(np.exp(before).sum())
        # against any known word, as the normalizer of the extended model differs
        odds = after[len(counts) :] - after[5] + log_p[5]
        expected = [(mu * log_p).sum() + math.log(n / new_counts.sum()) - average for n in (2, 5)]
        np.testing.assert_allclose(odds, expected, rtol=1e-6, atol=1e-8)


def test_nothing_changes_without_new_words() -> None:
    model = FactorialHMM(2, n_states=2, n_iter=1, random_state=0).fit(SENTENCES)
    assert with_new_words(model.params_, model.vocabulary_.counts, model.vocabulary_.counts) is model.params_


def test_a_new_word_learns_where_it_stands() -> None:
    model = FactorialHMM(2, n_states=3, n_iter=4, random_state=0).fit(SENTENCES * 4)
    model.partial_fit((SENTENCES + OTHER_SENTENCES) * 4)
    assert model.score([["rain", "fell", "on", "the", "town"]]) > model.score([["fell", "the", "rain", "town", "on"]])
