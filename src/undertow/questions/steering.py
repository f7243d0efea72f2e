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
from undertow.kernels.chain.automaton import look
from undertow.kernels.chain.steering import Ahead, worth_blocks, worth_plain
from undertow.kernels.types import F32, I64
from undertow.models.hmm.params import BlockParams, Params
from undertow.models.hmm.queries import state_after
from undertow.questions.lookahead import Lengths, Plan, compiled, condition, planned, predict
from undertow.text.vocabulary import Vocabulary

FLAT = 1e-5  # look-ahead that differs less between states says nothing about the next token


class Hypotheses(NamedTuple):
    """Texts being written, all with as many tokens."""

    predicted: NDArray[Any]  # (n, Z) distribution of the next token's state
    states: I64  # (n,) of the automaton
    n_written: int

    def take(self, rows: Sequence[int] | I64) -> Hypotheses:
        return self._replace(predicted=self.predicted[rows], states=self.states[rows])


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

    def start(self, prompts: Sequence[I64]) -> Hypotheses:
        """Hypotheses after prompts of word ids."""
        predicted = np.stack([np.asarray(state_after(self.plan.params, ids)) for ids in prompts])
        return Hypotheses(predicted, np.zeros(len(prompts), dtype=np.int64), 0)

    def advance(self, hypotheses: Hypotheses, words: Sequence[int] | I64) -> Hypotheses:
        """Each hypothesis with one more word."""
        plan, words = self.plan, np.asarray(words, dtype=np.int64)
        filtered = [condition(plan.params, w, p) for w, p in zip(words.tolist(), hypotheses.predicted, strict=True)]
        predicted = predict(plan.params, filtered, words.tolist())
        return Hypotheses(
            predicted, plan.product.step[hypotheses.states, plan.classes[words]], hypotheses.n_written + 1
        )

    def log_weights(self, hypotheses: Hypotheses) -> F32:
        """(n, V) log p(constraint | text, next word), each row up to a constant."""
        r = self.length - 1 - hypotheses.n_written
        product = self.plan.product
        after = product.step[hypotheses.states]  # (n, C)
        states, at = np.unique(after, return_inverse=True)
        at = at.reshape(after.shape)
        beta, log_scale = look(self.plan.table, r, states)
        bound = np.flatnonzero(~_free(beta, log_scale, at))
        out = np.zeros((len(after), len(self.plan.classes)), dtype=np.float32)
        if len(bound):
            scales = log_scale[at[bound]]
            largest = np.maximum(scales.max(axis=1, keepdims=True), np.finfo(np.float64).min)
            ahead = Ahead(beta, at[bound], np.exp(scales - largest).astype(beta.dtype))
            worth = self._worth(hypotheses.predicted[bound], ahead)
            none = ~(worth.max(axis=1) > 0)
            with np.errstate(divide="ignore"):
                worth = np.log(worth, out=worth)
            for i in np.flatnonzero(none).tolist():
                worth[i] = self._by_automaton(int(hypotheses.states[bound[i]]), r)
            if len(bound) == len(out):
                return worth
            out[bound] = worth
        return out

    def _worth(self, predicted: NDArray[Any], ahead: Ahead) -> F32:
        """(n, V) p(next word and constraint) / p(next word), each row up to a factor."""
        params, classes = self.plan.params, self.plan.classes
        if isinstance(params, BlockParams):
            return worth_blocks(params.blocks, params.emission, predicted, ahead, self.named, classes)
        return worth_plain(params.chain.emission, predicted, ahead, self.named, classes)

    def _by_automaton(self, state: int, r: int) -> F32:
        """(V,) where the chain holds every way impossible: all words alike from which the automaton can accept."""
        able = self.possible[r][self.plan.product.step[state]][self.plan.classes]
        if not able.any():
            raise InputError("The text can no longer satisfy the constraint: steer it from its first token on.")
        return np.where(able, 0, -np.inf).astype(np.float32)


def _free(beta: NDArray[Any], log_scale: NDArray[Any], at: I64) -> NDArray[np.bool_]:
    """(n,) whether nothing that may follow makes the constraint more or less probable."""
    high, low = beta.max(axis=1), beta.min(axis=1)
    flat = np.isfinite(log_scale) & (high - low <= FLAT * high)
    scales = log_scale[at]
    with np.errstate(invalid="ignore"):
        same = np.ptp(scales, axis=1) <= FLAT  # of rows that each have 1 as their largest number, or all are 1
    return np.asarray(flat[at].all(axis=1) & same)


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
