"""Weights that steer another language model: the exact probability, under a chain, that a constraint will hold.

Given a text so far, the language model's next token v is weighed by p(constraint | text, v) under an HMM over the same
tokens (LTLA, Ctrl-G). The chain has read everything before; a token that it holds impossible says nothing about its
state, but still moves the automaton.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.constraints.automaton import Automaton
from undertow.constraints.kinds import Constraint
from undertow.errors import InputError
from undertow.kernels.chain.automaton import NextToken, look, next_token
from undertow.kernels.types import F32, I64
from undertow.models.hmm.params import Params
from undertow.models.hmm.queries import state_after
from undertow.questions.lookahead import Lengths, Plan, compiled, condition, planned, predict
from undertow.text.vocabulary import Vocabulary

FLAT = 1e-5  # look-ahead that differs less between states says nothing about the next token
MOST_NAMED = 64  # words of a constraint up to which their weights are computed one by one


class Hypothesis(NamedTuple):
    """A text being written: the distribution of the next token's state, the automaton's state, the tokens written."""

    predicted: NDArray[Any]  # (Z,)
    state: int
    n_written: int


class Steering:
    """Weights of the next token under a constraint on `length` tokens, for any number of hypotheses."""

    def __init__(
        self, params: Params, vocabulary: Vocabulary, constraint: Constraint, length: int, end_word: int | None = None
    ) -> None:
        classes, automaton = compiled(vocabulary, constraint, np.ones(len(vocabulary), dtype=bool))
        if end_word is not None:
            classes, automaton = ended(classes, automaton, end_word)
        ones = np.ones(params.n_states, dtype=params.initial.dtype)
        self.length = length
        self.plan: Plan = planned(params, classes, automaton, Lengths(length, length), ones)
        self.possible = _possible(automaton, length)
        if not self.possible[length][0]:
            raise InputError(f"No text of {length} tokens satisfies {constraint!r}: allow more, or ask for less.")
        self.named = np.flatnonzero(classes > 0)
        self.named_emission = np.zeros((len(self.named), params.n_states), dtype=params.initial.dtype)
        if len(self.named) <= MOST_NAMED:
            for row, word in zip(self.named_emission, self.named.tolist(), strict=True):
                live, emission = params.live_emission(word)
                row[live] = emission

    def start(self, prompts: Sequence[I64]) -> list[Hypothesis]:
        """Hypotheses after prompts of word ids."""
        return [Hypothesis(np.asarray(state_after(self.plan.params, ids)), 0, 0) for ids in prompts]

    def advance(self, hypotheses: Sequence[Hypothesis], words: Sequence[int]) -> list[Hypothesis]:
        """Each hypothesis with one more word."""
        plan = self.plan
        filtered = [condition(plan.params, w, h.predicted) for h, w in zip(hypotheses, words, strict=True)]
        rows = predict(plan.params, filtered, words)
        return [
            Hypothesis(row, int(plan.product.step[h.state, plan.classes[w]]), h.n_written + 1)
            for h, w, row in zip(hypotheses, words, rows, strict=True)
        ]

    def log_weights(self, hypotheses: Sequence[Hypothesis]) -> F32:
        """(n, V) log p(constraint | text, next word) for hypotheses with the same number of tokens."""
        r = self.length - 1 - hypotheses[0].n_written
        table, step = self.plan.table, self.plan.product.step
        states = np.unique(step[[h.state for h in hypotheses]])
        ahead = (*look(table, r, states), states)
        out = np.zeros((len(hypotheses), len(self.plan.classes)), dtype=np.float32)
        free = {q: _free(*ahead[:2], np.searchsorted(states, step[q])) for q in {h.state for h in hypotheses}}
        bound = [i for i, h in enumerate(hypotheses) if not free[h.state]]
        if bound:
            steered = [hypotheses[i] for i in bound]
            tokens = [next_token(table, r, h.state, h.predicted, ahead) for h in steered]
            out[bound] = self._ratios(tokens, np.stack([h.predicted for h in steered]))
            for i in bound:
                if not (out[i] > -np.inf).any():
                    out[i] = self._by_automaton(hypotheses[i].state, r)
        return out

    def _ratios(self, tokens: list[NextToken], predicted: NDArray[Any]) -> F32:
        """(n, V) log of p(next word and constraint) / p(next word)."""
        params, classes, n = self.plan.params, self.plan.classes, len(tokens)
        other = np.stack([token.successors[token.successor[0]] for token in tokens])
        rows = params.word_rows(np.concatenate([other, predicted]))
        both, alone = np.array(rows[:n]), rows[n:]
        for i, token in enumerate(tokens):
            silent = token.successors.sum(axis=1) / predicted[i].sum()  # for words that say nothing about the state
            if len(self.named) > MOST_NAMED:
                every = params.word_rows(token.successors)
                both[i] = every[token.successor[classes], np.arange(len(classes))]
            else:
                at = token.successor[classes[self.named]]
                both[i, self.named] = np.einsum("nz,nz->n", self.named_emission, token.successors[at])
            zero = ~(alone[i] > 0)
            if zero.any():
                both[i, zero] = silent[token.successor[classes[zero]]]
        np.divide(both, alone, out=both, where=alone > 0)
        with np.errstate(divide="ignore"):
            logs = np.log(both, out=both)
        logs += np.array([token.log_scale for token in tokens], dtype=logs.dtype)[:, None]
        return np.asarray(logs, dtype=np.float32)

    def _by_automaton(self, state: int, r: int) -> F32:
        """(V,) where the chain holds every way impossible: all words alike from which the automaton can accept."""
        able = self.possible[r][self.plan.product.step[state]][self.plan.classes]
        if not able.any():
            raise InputError("The text can no longer satisfy the constraint: steer it from its first token on.")
        return np.where(able, 0, -np.inf).astype(np.float32)


def _free(beta: NDArray[Any], log_scale: NDArray[Any], at: NDArray[Any]) -> bool:
    """Whether nothing that may follow makes the constraint more or less probable."""
    at = np.unique(at)
    rows, scales = beta[at], log_scale[at]
    if not np.isfinite(scales).all() or np.ptp(scales) > FLAT:
        return False
    return float(rows.max()) - float(rows.min()) <= FLAT * float(rows.max())


def _possible(automaton: Automaton, length: int) -> NDArray[np.bool_]:
    """(length + 1, Q) whether some r further symbols are accepted."""
    out = [automaton.accepting]
    for _ in range(length):
        out.append(np.asarray(out[-1][automaton.step].any(axis=1)))
    return np.stack(out)


def ended(classes: I64, automaton: Automaton, end_word: int) -> tuple[I64, Automaton]:
    """Let a word end the text early: accepted if the text before it was, whatever follows."""
    Q, C = automaton.step.shape
    done, dead = Q, Q + 1
    step = np.empty((Q + 2, C + 1), dtype=np.int64)
    step[:Q, :C] = automaton.step
    step[:Q, C] = np.where(automaton.accepting, done, dead)
    step[done], step[dead] = done, dead
    classes = classes.copy()
    classes[end_word] = C
    return classes, Automaton(step, np.concatenate([automaton.accepting, [True, False]]))
