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
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.chain import steering as kernel
from undertow.kernels.chain import steering_call
from undertow.kernels.chain.automaton import KEPT_NUMBERS, look
from undertow.kernels.chain.block_operators import BlockLowRank
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.types import F32, I32, I64
from undertow.models.hmm.params import BlockParams, Params
from undertow.questions.lookahead import Lengths, Plan, compiled, planned
from undertow.text.vocabulary import Vocabulary


class Hypotheses(NamedTuple):
    """Texts being written, all with as many tokens."""

    predicted: F32  # (n, Z) distribution of the next token's state; not kept up where the constraint holds for good
    states: I64  # (n,) of the automaton
    n_written: int

    def take(self, rows: Sequence[int] | I64) -> Hypotheses:
        return self._replace(predicted=self.predicted[rows], states=self.states[rows])


class Worth(NamedTuple):
    """What the next word is worth to the constraint of some texts; to the others all words are worth the same."""

    texts: I64  # (n,) their places among the hypotheses
    values: F32  # (n, slots) p(constraint | text, next word), each row up to a factor, in the order of the tiles


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
        with one_blas_thread():
            self.plan: Plan = planned(params, classes, automaton, Lengths(length, length), ones)
        self.possible = _possible(automaton, length)
        if not self.possible[length][0]:
            raise InputError(f"No text of {length} tokens satisfies {constraint!r}: allow more, or ask for less.")
        self.settled = _settled(automaton)
        self.blocks, self.emission = _blocks(params)
        self.tiles = kernel.tiles_of(self.blocks, self.emission)
        self.chain = self.blocks, self.emission, self.tiles
        T = params.transition
        self.features = kernel.features_of(T.R, T.ET) if isinstance(T, BlockLowRank) else None
        self.scratch = kernel.Scratch()
        self.asked = kernel.Asked(classes, np.flatnonzero(classes > 0), automaton.step)
        with one_blas_thread():
            self.ahead = self._kept()
        self.addresses = self._addresses()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy has its own arrays, in other places."""
        self.__dict__.update(state)
        self.addresses = self._addresses()

    def start(self, prompts: Sequence[I64]) -> Hypotheses:
        """Hypotheses after prompts of word ids."""
        predicted = np.empty((len(prompts), self.plan.params.n_states), dtype=np.float32)
        predicted[:] = self.plan.params.initial
        lengths = np.array([len(ids) for ids in prompts])
        for t in range(int(lengths.max())):
            here = np.flatnonzero(lengths > t)
            words = np.array([ids[min(t, len(ids) - 1)] if len(ids) else 0 for ids in prompts], dtype=np.int64)
            predicted = self._predict(words, predicted, here)
        return Hypotheses(predicted, np.zeros(len(prompts), dtype=np.int64), 0)

    def advance(self, hypotheses: Hypotheses, words: Sequence[int] | I64) -> Hypotheses:
        """Each hypothesis with one more word."""
        words = np.asarray(words, dtype=np.int64)
        states = self.asked.step[hypotheses.states, self.asked.classes[words]]
        open_ = np.flatnonzero(~self.settled[states])
        predicted = hypotheses.predicted
        if len(open_):
            predicted = self._predict(words, predicted, open_)
        return Hypotheses(predicted, states, hypotheses.n_written + 1)

    def worth(self, hypotheses: Hypotheses) -> Worth:
        """What the next word is worth, in the texts where that depends on the word; the next call overwrites it."""
        predicted, states, n_written = hypotheses
        r = self.length - 1 - n_written
        open_ = np.flatnonzero(~self.settled[states])
        if not len(open_):
            return Worth(open_, np.empty((0, self.tiles.n_slots), dtype=np.float32))
        ahead = self.ahead[r] if r in self.ahead else self._look(r, states[open_])
        texts, values, nothing = kernel.worth(self.chain, self.asked, ahead, predicted, states, open_, self.scratch)
        for i in np.flatnonzero(nothing).tolist():
            values[i, self.tiles.slots] = self._by_automaton(int(states[texts[i]]), r)
        return Worth(texts, values)

    def reweigh(self, hypotheses: Hypotheses, scores: F32, slots: I32, out: F32) -> int:
        """Log-probabilities of the next token under scores of a language model, whose tokens have `slots`.

        They are written to `out`; the first row in which no token is possible is returned, or −1.
        """
        return kernel.reweigh(scores, *self.worth(hypotheses), slots, out)

    def step(self, before: Hypotheses, words: I64, scores: F32, slots: I32, out: F32) -> tuple[Hypotheses, int]:
        """`advance` and `reweigh`, in one compiled call where it can be."""
        ahead = self.ahead.get(self.length - 2 - before.n_written)
        if self.features is not None and ahead is not None:
            predicted, states, n_written = before
            now = Hypotheses(np.empty_like(predicted), np.empty_like(states), n_written + 1)
            Z, n_classes = predicted.shape[1], self.asked.step.shape[1]
            room = self.scratch.reserved(len(words), self.tiles.n_slots, Z, n_classes)
            given = self.features, self.asked, self.settled, ahead, words, predicted, states, scores, slots, room
            dead = kernel.step(self.chain, *given, now.predicted, now.states, out)
            if dead >= -1:
                return now, dead
        now = self.advance(before, words)
        return now, self.reweigh(now, scores, slots, out)

    def writing(self, words: I64, slots: I32, n: int, n_prompt: int) -> Writing | None:
        """A place for n texts after prompts of so many tokens, whose words and slots these are; None if it has none.

        There is none for a transition that does not go through features, or look-ahead that was too much to keep.
        """
        if self.addresses is None:
            return None
        return Writing(self, words, slots, n, n_prompt)

    def log_weights(self, hypotheses: Hypotheses) -> F32:
        """(n, V) log p(constraint | text, next word), each row up to a constant."""
        texts, values = self.worth(hypotheses)
        out = np.zeros((len(hypotheses.states), len(self.asked.classes)), dtype=np.float32)
        with np.errstate(divide="ignore"):
            out[texts] = np.log(values[:, self.tiles.slots])
        return out

    def _predict(self, words: I64, predicted: F32, texts: I64) -> F32:
        """(n, Z) distributions of the next state from those of this one given its word, in some texts."""
        params, T = self.plan.params, self.plan.params.transition
        out = np.empty_like(predicted) if len(texts) == len(predicted) else predicted.copy()
        if self.features is not None:
            kernel.features_after(self.blocks, self.emission, self.features, words, predicted, texts, out)
        elif isinstance(params, BlockParams):
            kernel.states_after(self.blocks, self.emission, T, words, predicted, texts, out)
        else:
            kernel.condition_all(self.blocks, self.emission, words, predicted, texts, out)
            with one_blas_thread():
                out[texts] = T.push(out[texts])
        return out

    def _kept(self) -> dict[int, kernel.Ahead]:
        """By the number r of tokens to come, the look-ahead for all that a text can come to, unless it is much."""
        out, here, n_numbers = {}, np.zeros(1, dtype=np.int64), 0
        for r in range(self.length - 1, -1, -1):
            here = np.unique(self.asked.step[here])
            states, rows, log_scale = self.plan.table.kept.get(r, (here[:0], None, None))
            if not np.isin(here, states).all():
                n_numbers += len(here) * self.plan.params.n_states
                if n_numbers > KEPT_NUMBERS:
                    continue
                states, (rows, log_scale) = here, look(self.plan.table, r, here)
            out[r] = self._placed(states, rows, log_scale)
        return out

    def _addresses(self) -> tuple[I64, I64] | None:
        """Where the arrays of the model, and of the look-ahead with r tokens to come, are for `Writing`."""
        if self.features is None or len(self.ahead) < self.length:
            return None
        initial = np.asarray(self.plan.params.initial, dtype=np.float32)
        self._arrays = steering_call.model_arrays(self.chain, self.features, self.asked, self.settled, initial)
        ahead = [steering_call.addresses(self.ahead[r], steering_call.AHEAD_TYPES) for r in range(self.length)]
        return steering_call.addresses(self._arrays, steering_call.MODEL_TYPES), np.stack(ahead)

    def _look(self, r: int, states: I64) -> kernel.Ahead:
        """β with r tokens to come, of all states that can follow some states of the automaton."""
        known = np.unique(self.asked.step[states])
        with one_blas_thread():
            return self._placed(known, *look(self.plan.table, r, known))

    def _placed(self, states: I64, rows: Any, log_scale: Any) -> kernel.Ahead:
        row_of = np.full(len(self.asked.step), -1)
        row_of[states] = np.arange(len(states))
        return kernel.Ahead.of(row_of, rows, log_scale)

    def _by_automaton(self, state: int, r: int) -> F32:
        """(V,) where the chain holds every way impossible: all words alike from which the automaton can accept."""
        able = self.possible[r][self.asked.step[state]][self.asked.classes]
        if not able.any():
            raise InputError("The text can no longer satisfy the constraint: steer it from its first token on.")
        return np.asarray(able, dtype=np.float32)


class Writing:
    """Texts that are written together, a token of each at a time, by one compiled call that is given addresses.

    `begin` and `follow` give what `Steering.step` does, and −3 for texts that are not those of the last call with one
    token more; −2 and −3 change nothing, and are for `Steering` itself to answer. The calls are given the addresses of
    token ids (n, n_ids) int64, of scores (n, tokens) float32 and of where to write, all contiguous.
    """

    def __init__(self, steering: Steering, words: I64, slots: I32, n: int, n_prompt: int) -> None:
        assert steering.addresses is not None
        Z, length = steering.plan.params.n_states, steering.length
        room = kernel.Scratch().reserved(n, steering.tiles.n_slots, Z, steering.asked.step.shape[1])
        self.texts = steering_call.Texts(
            np.empty((n, n_prompt + length), dtype=np.int64),
            (np.empty((n, Z), dtype=np.float32), np.empty((n, Z), dtype=np.float32)),
            (np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)),
        )
        self._arrays = steering_call.text_arrays(words, slots, room, self.texts)
        self._steering = steering  # its arrays are read too
        at, self._ahead = steering.addresses
        self._at = np.concatenate([at, steering_call.addresses(self._arrays, steering_call.TEXT_TYPES)])
        self.n, self.n_ids, self.n_tokens, self.left = n, n_prompt, len(words), length - 1
        self._turn = 0

    def begin(self, pad: int, ids: int, scores: int, out: int) -> int:
        """Read the prompts, and reweigh the scores of the first token; `pad` (−1: none) is skipped at the beginning."""
        return int(steering_call.begin(self._at, self._ahead, self.left, self.n_ids, pad, ids, scores, out))

    def follow(self, ids: int, scores: int, out: int) -> int:
        """One more token of each text, and the scores of the next one."""
        left, n_ids, turn = self.left - 1, self.n_ids + 1, self._turn
        done = int(steering_call.follow(self._at, self._ahead, left, n_ids, turn, ids, scores, out))
        if done > -2:
            self.left, self.n_ids, self._turn = left, n_ids, 1 - turn
        return done

    def hypotheses(self) -> Hypotheses:
        """What is known of the texts now."""
        _, predicted, states = self.texts
        return Hypotheses(predicted[self._turn], states[self._turn], self._steering.length - 1 - self.left)

    def read(self) -> I64:
        """(n, tokens) the texts so far."""
        return self.texts.read[:, : self.n_ids]


def _blocks(params: Params) -> tuple[Blocks, F32]:
    """The words and emissions of a chain; without blocks, as one block."""
    if isinstance(params, BlockParams):
        return params.blocks, params.emission
    sizes = np.array([params.n_states])
    emission = np.ascontiguousarray(params.chain.emission, dtype=np.float32).ravel()
    return Blocks.of(np.zeros(params.n_words, dtype=np.int32), sizes), emission


def _settled(automaton: Automaton) -> NDArray[np.bool_]:
    """(Q,) states from which every text is accepted, whatever follows."""
    out = automaton.accepting.copy()
    while True:
        still = out & out[automaton.step].all(axis=1)
        if (still == out).all():
            return out
        out = still


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
