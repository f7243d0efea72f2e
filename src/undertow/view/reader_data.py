"""What a model makes of a text, token by token: surprise, states, expected words, nearest words in context."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import InputError
from undertow.kernels.types import F32, F64
from undertow.kernels.words.kmeans import kmeans, spread_centers
from undertow.models.answers import Neighbor, WordProbability
from undertow.models.factorial.model import FactorialHMM
from undertow.models.hmm.model import HMM
from undertow.models.hmm.queries import Derived
from undertow.models.lds.model import LDS
from undertow.models.similar_words import frequent_words
from undertow.questions.evidence import Evidence
from undertow.view.state_tables import layer_tokens, layer_words, typical_words

MOST_TOKENS = 10_000  # a page of some megabytes; the rest of a text is left out
EXPECTED_TOKENS = 600  # first tokens that have the words expected at their places: some milliseconds each
BATCH_NUMBERS = 1 << 24  # tokens × states, or tokens × words, held at once
STATES = 4  # most probable states kept of each token
NEAR = 8  # nearest words kept of each token
EXPECTED = 6  # most probable words kept at each token

COLORS = 8  # --c0 to --c7 of page/shared.css

StateKey = tuple[int, int]  # layer (0 where there are none), state


class Reading(NamedTuple):
    """A text as a model reads it; lists of tokens run over all sentences. What a model does not offer is empty."""

    sentences: list[list[str]]
    is_cut: bool  # whether the text goes on
    unknown: list[bool]
    surprise: list[float]  # bits, given the tokens before; inf for an impossible token
    both_sides: list[float]  # bits, given all other tokens of the sentence
    states: list[list[list[tuple[int, float]]]]  # by layer, then token: (state, probability), most probable first
    state_words: dict[StateKey, list[WordProbability]]  # of all states that occur in `states`
    groups: dict[StateKey, int]  # the color of the states, from 0; a state without one is not there
    expected: list[list[WordProbability]]  # most probable words given the tokens before, of the first tokens
    between: list[list[WordProbability]]  # most probable words given both sides, of the first tokens
    near: list[list[Neighbor]]  # words nearest to the token in its context

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return len(self.unknown)


def read_text(model: Any, sentences: Sequence[Sequence[str]]) -> Reading:
    """What an HMM, a factorial HMM or an LDS makes of sentences."""
    if not isinstance(model, HMM | FactorialHMM | LDS):
        raise InputError(
            f"A {type(model).__name__} does not read text token by token: give an HMM, a FactorialHMM or an LDS, or "
            "leave out the text."
        )
    shown = shortened(sentences, MOST_TOKENS)
    is_cut = sum(map(len, sentences)) > sum(map(len, shown))
    if not shown:
        raise InputError("The text has no words: give some to read.")
    vocabulary = model.vocabulary_
    unknown = [w not in vocabulary for s in shown for w in s]
    exact = not isinstance(model, FactorialHMM) or model.scores_exactly
    surprise, both = _bits(model.log_probabilities(shown)) if exact else [], _given_both_sides(model, shown)
    if isinstance(model, LDS):
        return Reading(shown, is_cut, unknown, surprise, both, [], {}, {}, [], [], nearest_in_context(model, shown))
    states = list(zip(*(_layers(block) for block in _posteriors(model, shown)), strict=True))
    by_layer = [[token for block in layer for token in block] for layer in states]
    keys = {(m, z) for m, layer in enumerate(by_layer) for token in layer for z, _ in token}
    groups = color_groups(model, by_layer)
    words, expected, between = _words(model, keys), _expected(model, shown), _between(model, shown)
    return Reading(shown, is_cut, unknown, surprise, both, by_layer, words, groups, expected, between, [])


def _bits(logs: Sequence[F64]) -> list[float]:
    return [abs(x) / math.log(2) for x in np.concatenate(logs).tolist()]


def _given_both_sides(model: HMM | FactorialHMM | LDS, sentences: list[list[str]]) -> list[float]:
    try:
        return _bits(model.masked_log_probabilities(sentences))
    except InputError:
        if isinstance(model, FactorialHMM):  # too many joint states for the table that this needs
            return []
        raise


def shortened(sentences: Sequence[Sequence[str]], most: int) -> list[list[str]]:
    """The first sentences that are not empty, with at most so many tokens in all."""
    out: list[list[str]] = []
    left = most
    for sentence in sentences:
        if sentence and left > 0:
            out.append(list(sentence[:left]))
            left -= len(out[-1])
    return out


def _posteriors(model: HMM | FactorialHMM, sentences: list[list[str]]) -> Iterator[F32]:
    """(n_tokens, layers, states) posteriors, a few sentences at a time unless one depends on those before it."""
    carry = isinstance(model, HMM) and model.carry
    most = max(1, BATCH_NUMBERS // model.params_.n_states)
    batch: list[list[str]] = []
    for sentence in [*sentences, None]:
        if batch and (sentence is None or (not carry and sum(map(len, batch)) + len(sentence) > most)):
            p = np.concatenate(model.posterior(batch))
            yield p if p.ndim == 3 else p[:, None, :]
            batch = []
        if sentence is not None:
            batch.append(sentence)


def _layers(posterior: F32) -> list[list[list[tuple[int, float]]]]:
    """The most probable states of each token, layer by layer; those of a probability below 1 % are left out."""
    n = min(STATES, posterior.shape[2])
    best = np.argsort(-posterior, axis=2, kind="stable")[:, :, :n]
    p = np.take_along_axis(posterior, best, 2)
    return [
        [
            [(z, q) for k, (z, q) in enumerate(zip(zs, qs, strict=True)) if k == 0 or q >= 0.01]
            for zs, qs in zip(best[:, m].tolist(), p[:, m].tolist(), strict=True)
        ]
        for m in range(posterior.shape[1])
    ]


def _words(model: HMM | FactorialHMM, keys: set[StateKey]) -> dict[StateKey, list[WordProbability]]:
    if isinstance(model, HMM):
        return {(m, z): typical_words(model.top_words(z, 5 * EXPECTED), EXPECTED) for m, z in sorted(keys)}
    tokens = [layer_tokens(model, m) for m in range(model.params_.n_layers)]
    return {(m, z): layer_words(model, m, z, EXPECTED, float(tokens[m][z])) for m, z in sorted(keys)}


def color_groups(model: HMM | FactorialHMM, by_layer: list[list[list[tuple[int, float]]]]) -> dict[StateKey, int]:
    """A color for each state that is the most probable one of some token; the most frequent color is 0.

    Up to as many states as colors have one each. More states of an HMM are grouped by what follows them: k-means of
    the square roots of p(next feature or block | state), or of the rows of the transition. Of a layer's states the
    most frequent have a color each, and the others none.
    """
    groups: dict[StateKey, int] = {}
    for m, layer in enumerate(by_layer):
        ranked = Counter(token[0][0] for token in layer).most_common()
        if isinstance(model, HMM) and len(ranked) > COLORS:
            states = np.array([z for z, _ in ranked])
            weights = np.array([n for _, n in ranked], dtype=np.float64)
            points = np.sqrt(Derived(model.params_).profile[states].astype(np.float64))
            draws = np.random.default_rng(0).random(COLORS)
            label, _ = kmeans(points, weights, points[spread_centers(points, weights, draws)])
            order = np.argsort(-np.bincount(label, weights=weights, minlength=COLORS), kind="stable")
            groups |= {(m, int(z)): int(np.flatnonzero(order == c)[0]) for z, c in zip(states, label, strict=True)}
        else:
            groups |= {(m, z): k for k, (z, _) in enumerate(ranked[:COLORS])}
    return groups


def _expected(model: HMM | FactorialHMM, sentences: list[list[str]]) -> list[list[WordProbability]]:
    if isinstance(model, FactorialHMM) or model.carry:
        return []
    return [model.next_words(s[:t], EXPECTED) for s, t in _first_places(sentences)]


def _between(model: HMM | FactorialHMM, sentences: list[list[str]]) -> list[list[WordProbability]]:
    """The words of each place as a gap; empty for a token whose sentence is impossible without it."""
    if isinstance(model, HMM) and model.carry:
        return []
    out = []
    for sentence, t in _first_places(sentences):
        try:
            out.append(list(model.fill(Evidence([*sentence[:t], None, *sentence[t + 1 :]]), EXPECTED)[0].words))
        except InputError:
            out.append([])
    return out if any(out) else []  # a factorial HMM with too many joint states refuses all of them


def _first_places(sentences: list[list[str]]) -> list[tuple[list[str], int]]:
    """Sentence and position of the first tokens of a text."""
    return [(s, t) for s in sentences for t in range(len(s))][:EXPECTED_TOKENS]


def nearest_in_context(model: LDS, sentences: list[list[str]], n: int = NEAR) -> list[list[Neighbor]]:
    """`model.neighbors(sentence, n, position=t)` for every token, many at a time."""
    vocabulary, vectors = model.vocabulary_, model.word_vectors()
    allowed = np.flatnonzero(frequent_words(vocabulary, model.min_count))
    tokens = np.concatenate(model.transform(sentences, "smooth"))
    itself = [vocabulary.id(w) for s in sentences for w in s]
    place = {int(w): k for k, w in enumerate(allowed.tolist())}
    out: list[list[Neighbor]] = []
    batch = max(1, BATCH_NUMBERS // max(len(allowed), 1))
    n = min(n, len(allowed))
    for start in range(0, len(tokens), batch):
        cosines = tokens[start : start + batch] @ vectors[allowed].T
        for row, word in zip(cosines, itself[start : start + batch], strict=True):
            if word in place:
                row[place[word]] = -np.inf
            some = np.argpartition(-row, n - 1)[:n] if n else np.empty(0, dtype=np.int64)
            best = some[np.argsort(-row[some], kind="stable")]
            near = [(allowed[k], row[k]) for k in best if np.isfinite(row[k])]
            out.append([Neighbor(vocabulary.words[w], float(c)) for w, c in near])
    return out
