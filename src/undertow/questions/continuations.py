"""Probability of a constraint on what follows a text, and texts drawn under it: `HMM.probability`, `HMM.generate`.

The text in question is the continuation: the words after the prefix and before the suffix. Words are drawn left to
right, each from its exact distribution given the words before, the suffix and that the constraint will hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.constraints.kinds import Constraint
from undertow.errors import InputError, short
from undertow.kernels.chain.automaton import NextToken, best_text, log_acceptance, look, next_token
from undertow.models.base import encode_sentences
from undertow.models.hmm.params import BlockParams, Params
from undertow.models.hmm.queries import state_after
from undertow.progress import ProgressFn, ignore
from undertow.questions.lookahead import Lengths, Plan, check_length, condition, counted, precise, predict, prepare
from undertow.text.vocabulary import Vocabulary

METHODS = ("sample", "best")


class Context(NamedTuple):
    """A model as a chain, and the words around the text in question."""

    params: Params
    vocabulary: Vocabulary
    start: NDArray[Any]  # (Z,) distribution of the first state of the text
    following: list[int]  # words after the text

    def possible(self) -> NDArray[np.bool_]:
        """(V,) words that the text may have: all but the boundary."""
        out = np.ones(len(self.vocabulary), dtype=bool)
        if self.vocabulary.boundary_id is not None:
            out[self.vocabulary.boundary_id] = False
        return out

    def writable(self, markers: bool = False, named: Iterable[str] = ()) -> NDArray[np.bool_]:
        """(V,) those of them that are written: seen in training, and no markers but those that are named."""
        out = self.vocabulary.writable(markers)
        for word in named:
            if word in self.vocabulary:
                out[self.vocabulary.id(word)] = self.vocabulary.counts[self.vocabulary.id(word)] > 0
        if isinstance(self.params, BlockParams):
            out &= self.params.blocks.word_block >= 0
        return out & self.possible()


def context(
    params: Params, vocabulary: Vocabulary, prefix: Sequence[str], suffix: Sequence[str], lengths: Lengths
) -> Context:
    """The prefix as a distribution of states; the boundary word follows a text whose length is open."""
    params = precise(params)
    before, after = encode_sentences(vocabulary, [_tokens("prefix", prefix), _tokens("suffix", suffix)])
    following = after.tolist()
    if lengths.vary and vocabulary.boundary_id is not None:
        following.append(vocabulary.boundary_id)
    return Context(params, vocabulary, state_after(params, before), following)


def probability(
    params: Params,
    vocabulary: Vocabulary,
    constraint: Constraint,
    prefix: Sequence[str],
    suffix: Sequence[str],
    length: int | tuple[int, int],
    progress: ProgressFn = ignore,
) -> float:
    """p(constraint | prefix, suffix, length)."""
    lengths = check_length(length)
    if constraint is None:
        raise InputError("probability needs a constraint, such as Contains('river') of undertow.constraints.")
    given = context(params, vocabulary, prefix, suffix, lengths)
    allowed = given.possible()
    logs = [
        log_acceptance(
            prepare(given.params, vocabulary, c, lengths, given.following, allowed, progress).table, given.start
        )
        for c in (constraint, None)
    ]
    if logs[1] == -np.inf:
        raise InputError("The prefix, suffix and length have probability zero under the model: change one of them.")
    return float(min(1.0, np.exp(logs[0] - logs[1])))


def generate(
    params: Params,
    vocabulary: Vocabulary,
    rng: np.random.Generator,
    prefix: Sequence[str],
    suffix: Sequence[str],
    length: int | tuple[int, int],
    constraint: Constraint | None,
    n: int,
    temperature: float,
    method: str,
    *,
    markers: bool = False,
    progress: ProgressFn = ignore,
) -> list[list[str]]:
    """n texts that satisfy the constraint, as ids translated to words."""
    lengths = check_length(length)
    _check_options(n, temperature, method)
    given = context(params, vocabulary, prefix, suffix, lengths)
    named = constraint.words() if isinstance(constraint, Constraint) else ()
    allowed = given.writable(markers, named)
    plan = prepare(given.params, vocabulary, constraint, lengths, given.following, allowed, progress)
    if log_acceptance(plan.table, given.start) == -np.inf:
        raise impossible(plan, constraint, lengths)
    if method == "best":
        texts = [best(plan, given.start, progress)]
    else:
        texts = draw(plan, given.start, n, temperature, rng, progress)
    return [vocabulary.decode(text) for text in texts]


def _check_options(n: Any, temperature: Any, method: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise InputError(f"n={short(n)} must be a whole number of texts, at least 0.")
    if method not in METHODS:
        raise InputError(f"method={short(method)} must be one of {', '.join(METHODS)}.")
    if isinstance(temperature, bool) or not isinstance(temperature, int | float | np.number) or not temperature > 0:
        raise InputError(f"temperature={short(temperature)} must be a number above 0; 1 draws from the model itself.")
    if method == "best" and (n != 1 or temperature != 1):
        raise InputError("method='best' gives the one most probable text: leave n and temperature at 1.")


def _tokens(name: str, given: Any) -> list[str]:
    if isinstance(given, str) or given is None:
        raise InputError(f"{name}={short(given)} must be a list of tokens: split it into words.")
    return list(given)


def impossible(plan: Plan, constraint: Constraint | None, lengths: Lengths) -> InputError:
    """Why no text can be written."""
    most = lengths.high
    asked = f"{lengths.low} to {most}" if lengths.vary else f"{most}"
    shown = short(constraint, 160)
    accepted = plan.automaton.lengths(most)[lengths.low :]
    if accepted.any():
        return InputError(
            f"The model gives {shown} probability zero in {asked} words here: its states cannot follow each other so; "
            "change the prefix, the suffix or the length, or fit with smoothing."
        )
    assert constraint is not None
    soonest = constraint.compiled()[1].distances()[0]
    if np.isinf(soonest):
        return InputError(f"No text satisfies {shown}: its parts contradict each other; drop one of them.")
    if soonest > most:
        return InputError(f"{shown} needs at least {int(soonest)} words, and length is {asked}: allow more.")
    return InputError(f"No text of {asked} words satisfies {shown}, though others do: give another length.")


def best(plan: Plan, start: NDArray[Any], progress: ProgressFn = ignore) -> list[int]:
    """Words of the most probable path of states and words together."""
    n_classes = len(plan.product.emitted)
    largest = [plan.params.largest_emission(plan.classes == c) for c in range(n_classes)]
    emitted = np.maximum(np.stack([p for p, _ in largest]), 0)
    found = best_text(plan.product, emitted, start, plan.n_steps, counted("searching", plan.n_steps, progress))
    return [int(largest[c][1][z]) for c, z in zip(found.classes, found.states, strict=True)]


# --- drawing --------------------------------------------------------------------------------------------


class _Text:
    """A text being written: the automaton's state, and the distribution over the states of the last word."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.state = 0
        self.filtered: tuple[slice, NDArray[Any]] = (slice(0), np.empty(0))


def draw(
    plan: Plan,
    start: NDArray[Any],
    n: int,
    temperature: float,
    rng: np.random.Generator,
    progress: ProgressFn = ignore,
) -> list[list[int]]:
    """Exact draws; all texts are written together, so that each step looks ahead once for all."""
    texts = [_Text() for _ in range(n)]
    going, predicted = texts, np.broadcast_to(start, (n, len(start)))
    step, done = plan.product.step, counted("writing", plan.n_steps, progress)
    for r in range(plan.n_steps - 1, -1, -1):
        if not going:
            break
        done(plan.n_steps - 1 - r)
        states = np.unique(step[[text.state for text in going]])
        ahead = (*look(plan.table, r, states), states)
        kept = []
        for text, belief in zip(going, predicted, strict=True):
            token = next_token(plan.table, r, text.state, belief, ahead)
            word = _draw_word(plan, token, _end_weight(plan, text, token), temperature, rng)
            if word is not None:
                text.state = int(step[text.state, plan.classes[word]])
                text.words.append(word)
                text.filtered = condition(plan.params, word, belief)
                kept.append(text)
        going = kept
        if r and going:
            predicted = predict(plan.params, [text.filtered for text in going], [text.words[-1] for text in going])
    return [text.words for text in texts]


def _end_weight(plan: Plan, text: _Text, token: NextToken) -> float:
    """Weight of ending here, on the scale of the next token's weights."""
    if not text.words or not plan.product.any_length or not plan.product.accepting[text.state]:
        return 0.0
    live, filtered = text.filtered
    return float(np.dot(filtered, plan.product.end[live])) * float(np.exp(-max(token.log_scale, -700.0)))


def _draw_word(plan: Plan, token: NextToken, end: float, temperature: float, rng: np.random.Generator) -> int | None:
    """The next word, or None to end the text."""
    if temperature != 1:
        weights = np.append(word_weights(plan, token), end)
        return _choose((weights / weights.max()) ** (1 / temperature), rng, end_at=len(weights) - 1)
    weights = token.weights(plan.product.emitted).ravel()
    at = _choose(np.append(weights, end), rng, end_at=len(weights))
    if at is None:
        return None
    # the state is drawn with the class and forgotten: so the word has its marginal distribution
    c, z = divmod(at, len(weights) // len(plan.product.emitted))
    words, p = plan.params.emission_of(z)
    chosen = _choose(np.where(plan.classes[words] == c, p, 0), rng)
    assert chosen is not None
    return int(words[chosen])


def word_weights(plan: Plan, token: NextToken) -> NDArray[np.float64]:
    """(V,) weight of each next word, up to a factor: its probability given what came before and the constraint."""
    rows = plan.params.word_rows(token.successors)
    weights = rows[token.successor[plan.classes], np.arange(len(plan.classes))].astype(np.float64)
    weights[plan.classes < 0] = 0
    return weights


def _choose(weights: NDArray[Any], rng: np.random.Generator, end_at: int = -1) -> int | None:
    """An index drawn by weight; None for `end_at`."""
    edges = np.cumsum(weights, dtype=np.float64)
    at = int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
    while at >= len(weights) or not weights[at] > 0:  # rounding at the upper edge
        at -= 1
    return None if at == end_at else at
