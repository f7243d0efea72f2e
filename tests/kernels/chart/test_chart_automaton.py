"""Sentences of a grammar that an automaton accepts, against all sentences written down."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from oracles.grammar_trees import GAP, dense_inside
from tiny_grammars import chart_of, grammar
from undertow.constraints import Contains, EndsWith, Length, Phrase, StartsWith, Without
from undertow.errors import InputError
from undertow.kernels.chart import automaton
from undertow.kernels.chart.automaton import accepted_probability
from undertow.kernels.chart.grammar import GrammarParams, termination
from undertow.kernels.chart.prefix import prefix_log_probabilities, prefix_space

WORDS = ["a", "b", "c"]


def probability(p: GrammarParams, constraint: Any) -> float:
    alphabet, compiled = constraint.compiled()
    return accepted_probability(p, np.array(alphabet.encode(WORDS)), compiled.step, compiled.accepting)


@pytest.mark.parametrize(
    "constraint",
    [
        Phrase("a b"), Phrase("a a b"), Contains("a", "c"), Without("b"), StartsWith("b"), EndsWith("c a"),
        Phrase("b") & ~Phrase("b c"),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_sum_over_all_sentences(constraint: Any, seed: int) -> None:
    p = grammar(seed, zeros=seed == 1, deep=0.4)
    texts = [s for k in range(1, 6) for s in product(range(3), repeat=k)]
    expected = sum(dense_inside(p, list(s)) for s in texts if constraint.holds([WORDS[i] for i in s]))
    np.testing.assert_allclose(probability(p, constraint & Length(1, 5)), expected, rtol=1e-10)
    unbounded = probability(p, constraint)
    missing = termination(p).total - sum(dense_inside(p, [GAP] * k) for k in range(1, 6))
    assert expected - 1e-12 <= unbounded <= expected + missing + 1e-12


def test_a_prefix_is_one_of_its_automata() -> None:
    p = grammar(6, deep=0.45)
    words = [0, 2, 1, 1]
    space, chart, rows = chart_of(p, words)
    prefixes = prefix_log_probabilities(rows, chart, space, prefix_space(space, termination(p)))
    for k in range(1, 5):
        found = probability(p, StartsWith([WORDS[i] for i in words[:k]]))
        np.testing.assert_allclose(math.log(found), prefixes[0, k], rtol=1e-9)


def test_all_sentences_that_end_are_accepted_by_what_accepts_everything() -> None:
    for deep in (0.2, 0.45, 0.7):  # with the last, some derivations never end
        p = grammar(3, deep=deep)
        found = probability(p, Length(1, 3) | ~Length(1, 3))
        np.testing.assert_allclose(found, termination(p).total, rtol=1e-5)


def test_words_of_no_class_are_in_no_sentence() -> None:
    p = grammar(2)
    everything = np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=bool)
    found = accepted_probability(p, np.array([0, -1, 0]), *everything)
    np.testing.assert_allclose(found, probability(p, Without("b")), rtol=1e-10)


def test_a_sum_that_does_not_converge_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MOST_STEPS", 500)
    with pytest.raises(InputError, match="no finite mean length"):
        probability(grammar(2, deep=0.5), Phrase("a"))  # critical
