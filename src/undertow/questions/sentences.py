"""The probability that a sentence of a grammar satisfies a constraint: `Grammar.probability`."""

from __future__ import annotations

import numpy as np

from undertow.constraints.kinds import Constraint
from undertow.errors import InputError
from undertow.kernels.chart.automaton import accepted_probability
from undertow.kernels.chart.grammar import GrammarParams, termination
from undertow.questions.lookahead import compiled
from undertow.text.vocabulary import Vocabulary

MOST_STATES = 64  # of the automaton: each step of the sum takes D³ r + D² r² operations for D states and rank r


def probability(params: GrammarParams, vocabulary: Vocabulary, constraint: Constraint) -> float:
    """p(a sentence satisfies the constraint | its derivation ends)."""
    if constraint is None:
        raise InputError("probability needs a constraint, such as Phrase('the river') of undertow.constraints.")
    classes, automaton = compiled(vocabulary, constraint, np.ones(len(vocabulary), dtype=bool))
    if len(automaton.step) > MOST_STATES:
        raise InputError(
            f"The constraint needs an automaton of {len(automaton.step):,} states, and a grammar takes {MOST_STATES}: "
            "ask for fewer words at once."
        )
    found = accepted_probability(params, classes, automaton.step, automaton.accepting)
    return min(found / termination(params).total, 1.0)


__all__ = ["probability"]
