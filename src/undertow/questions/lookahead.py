"""A constraint compiled for one model: the classes of its words, the automaton, and the exact look-ahead.

A `Plan` serves `continuations` (probabilities and texts of the model itself) and the steering of a language model.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.constraints.automaton import Automaton, everything
from undertow.constraints.kinds import Constraint, Length
from undertow.errors import InputError, short
from undertow.kernels.chain.automaton import LookAhead, Product, look_ahead
from undertow.kernels.chain.block_operators import BlockLowRank
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense
from undertow.kernels.types import I64
from undertow.models.hmm.params import BlockParams, Params, PlainParams
from undertow.progress import Progress, ProgressFn, ignore
from undertow.text.vocabulary import Vocabulary

Array = NDArray[Any]
SMALL_STATES = 1024  # models of at most so many states, and
SMALL_NUMBERS = 1 << 22  # so many emission probabilities, are computed with dense float64 matrices


class Plan(NamedTuple):
    """What is needed to look ahead: words of class −1 are never written."""

    params: Params
    classes: I64  # (V,)
    automaton: Automaton
    product: Product
    table: LookAhead
    n_steps: int


class Lengths(NamedTuple):
    """How many words a text may have; a single number if both are equal."""

    low: int
    high: int

    @property
    def vary(self) -> bool:
        return self.low < self.high


def check_length(length: Any) -> Lengths:
    """A number of words, or a pair of the least and the largest."""
    pair = length if isinstance(length, tuple | list) else (length, length)
    whole = [isinstance(x, int | np.integer) and not isinstance(x, bool) for x in pair]
    if len(pair) != 2 or not all(whole) or not 1 <= pair[0] <= pair[1]:
        raise InputError(
            f"length={short(length)} must be a whole number, at least 1, or a pair (least, largest) of such numbers."
        )
    return Lengths(int(pair[0]), int(pair[1]))


def precise(params: Params) -> Params:
    """A small model as a dense chain in float64; a large one as it is."""
    Z, V = params.n_states, params.n_words
    if Z > SMALL_STATES or Z * V > SMALL_NUMBERS:
        return params
    emission = np.ascontiguousarray(params.dense_emission().T, dtype=np.float64)
    transition = Dense(np.asarray(params.transition.dense(), dtype=np.float64))
    return PlainParams(ChainParams(params.initial.astype(np.float64), transition, emission))


def check_words(vocabulary: Vocabulary, constraint: Constraint) -> None:
    """Refuse words that the model does not know: most often they are misspelled."""
    for word in sorted(constraint.words()):
        if word not in vocabulary:
            near = difflib.get_close_matches(word, vocabulary.words, n=1)
            cure = f"the nearest word there is {near[0]!r}." if near else "use words of its training text."
            raise InputError(
                f"The constraint names {short(word)}, which is not in the model's vocabulary of "
                f"{len(vocabulary):,} words: {cure}"
            )


def compiled(
    vocabulary: Vocabulary, constraint: Constraint | None, allowed: NDArray[np.bool_]
) -> tuple[I64, Automaton]:
    """(V,) the class of each word, −1 if it is not allowed, and the automaton over the classes."""
    if constraint is None:
        return np.where(allowed, 0, -1), everything(1)
    if not isinstance(constraint, Constraint):
        raise InputError(
            f"constraint={short(constraint)} must be one of undertow.constraints, such as Contains('river'), or None."
        )
    check_words(vocabulary, constraint)
    alphabet, automaton = constraint.compiled()
    classes = np.zeros(len(vocabulary), dtype=np.int64)
    for word, symbol in alphabet.symbol_of.items():
        classes[vocabulary.id(word)] = symbol
    return np.where(allowed, classes, -1), automaton


def within(constraint: Constraint | None, lengths: Lengths) -> Constraint | None:
    """The constraint with the range of lengths, if it is one."""
    if not lengths.vary:
        return constraint
    range_ = Length(lengths.low, lengths.high)
    return range_ if constraint is None else constraint & range_


def prepare(
    params: Params,
    vocabulary: Vocabulary,
    constraint: Constraint | None,
    lengths: Lengths,
    following: Sequence[int],
    allowed: NDArray[np.bool_],
    progress: ProgressFn = ignore,
) -> Plan:
    """Compile a constraint and look ahead over the texts of these lengths that words `following` come after."""
    classes, automaton = compiled(vocabulary, within(constraint, lengths), allowed)
    return planned(params, classes, automaton, lengths, end_vector(params, following), progress)


def planned(
    params: Params, classes: I64, automaton: Automaton, lengths: Lengths, end: Array, progress: ProgressFn = ignore
) -> Plan:
    """Look ahead over the texts of these lengths; `end` (Z,) is the probability of what follows their last state."""
    emitted = np.stack([params.weighted_emission(classes == c) for c in range(automaton.step.shape[1])])
    emitted = emitted.astype(params.initial.dtype)
    product = Product(params.transition, emitted, automaton.step, automaton.accepting, end, lengths.vary)
    done = counted("looking ahead", lengths.high, progress)
    return Plan(params, classes, automaton, product, look_ahead(product, lengths.high, done), lengths.high)


def counted(stage: str, n_words: int, progress: ProgressFn) -> Callable[[int], None]:
    """What tells how many of the words are done."""
    return lambda done: progress(Progress(stage, done, n_words, " words"))


def end_vector(params: Params, following: Sequence[int]) -> Array:
    """(Z,) probability of the words that follow, given the state before them; the largest number is 1."""
    end: Array = np.ones(params.n_states, dtype=params.initial.dtype)
    for word in reversed(following):
        live, emission = params.live_emission(word)
        end = np.asarray(params.pulled(word, emission * end[live]))
        if not end.max() > 0:
            raise InputError("The words of the suffix have probability zero after any state of the model: change it.")
        end = end / end.max()
    return end


def condition(params: Params, word: int, predicted: Array) -> tuple[slice, Array]:
    """The distribution over the states that can emit a word, from the predicted one; as it was if that is zero."""
    live, emission = params.live_emission(word)
    filtered = predicted[live] * emission
    total = filtered.sum()
    if not total > 0:
        filtered, total = predicted[live], predicted[live].sum()
    if not total > 0:
        filtered, total = np.ones_like(filtered), len(filtered)
    return live, filtered / total


def predict(params: Params, filtered: Sequence[tuple[slice, Array]], words: Sequence[int]) -> Array:
    """(n, Z) distributions of the next state, each from one over the live states of a word."""
    T = params.transition
    if isinstance(params, BlockParams):
        if isinstance(T, BlockLowRank):  # the large product once for all rows
            return np.asarray(np.stack([values @ T.R[live] for live, values in filtered]) @ T.ET.T)
        return np.stack([params.predicted(word, values) for word, (_, values) in zip(words, filtered, strict=True)])
    return np.asarray(T.push(np.stack([values for _, values in filtered])))
