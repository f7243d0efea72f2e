"""Which word fits, how surprising each token is, and what another word would change."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from undertow.errors import InputError
from undertow.kernels.chain.sparse import spread_live
from undertow.kernels.types import F64
from undertow.questions.evidence import (
    Evidence,
    Observed,
    TextChain,
    check_possible,
    observe,
    read_position,
    word_id,
)
from undertow.questions.fill import checked_observed, word_distributions
from undertow.tables import Table
from undertow.text.corpus import Corpus


class Comparison(NamedTuple):
    """How well a word fits a position.

    Attributes
    ----------
    word
        The word.
    probability
        Its probability there, given both sides and nothing about the position itself.
    share
        Its probability if it must be one of the words that were given.
    log_odds
        log share / (1 − share): of two words, how much more probable the first is than the second, in nats.
    """

    word: str
    probability: float
    share: float
    log_odds: float


class TokenSurprise(NamedTuple):
    """One token of a `Surprise`, as a row of its table."""

    sentence: int
    position: int
    token: str
    left_to_right: float
    both_sides: float


class Surprise(NamedTuple):
    """How surprising the tokens of a sentence are, in bits: −log2 of their probabilities.

    Attributes
    ----------
    tokens
        The sentence.
    left_to_right
        Given the tokens before; infinite at a word of probability zero.
    both_sides
        Given all other tokens of the sentence.
    """

    tokens: list[str]
    left_to_right: F64
    both_sides: F64

    def spread(self, row: int) -> list[TokenSurprise]:
        """A row for each token.

        Parameters
        ----------
        row
            The number of the sentence.

        Returns
        -------
        list of TokenSurprise
        """
        found = zip(self.tokens, self.left_to_right.tolist(), self.both_sides.tolist(), strict=True)
        return [TokenSurprise(row, t, *values) for t, values in enumerate(found)]

    @staticmethod
    def spread_type() -> type[TokenSurprise]:
        """The class of those rows."""
        return TokenSurprise


class Change(NamedTuple):
    """What another word elsewhere would change at a position.

    Attributes
    ----------
    position, token
        The position, and what is known there.
    total_variation
        Distance of the distributions of its hidden state with either word: 0 (the same) to 1 (nothing in common).
    divergence
        Kullback–Leibler divergence of the new distribution from the old one, in bits.
    surprise
        By how many bits the token becomes more surprising given both sides; 0 at a gap.
    """

    position: int
    token: Any
    total_variation: float
    divergence: float
    surprise: float


def surprises(model: Any, X: Any) -> Table[Surprise]:
    """Surprises of sentences by a model's log-probabilities of tokens, left to right and masked."""
    tokens = X.token_lists() if isinstance(X, Corpus) else X
    logs = zip(tokens, model.log_probabilities(X), model.masked_log_probabilities(X), strict=True)
    return Table(Surprise, (Surprise(list(t), np.abs(a) / np.log(2), np.abs(b) / np.log(2)) for t, a, b in logs))


def masked_score(logs: Sequence[F64]) -> float:
    """Mean of log-probabilities, −inf with a warning that names the first sentence of probability zero."""
    if not sum(map(len, logs)):
        raise InputError("There is no token to score: give at least one.")
    flat = np.concatenate(logs)
    if np.isneginf(flat).any():
        first = next(i for i, part in enumerate(logs) if np.isneginf(part).any())
        warnings.warn(f"Sentence {first} has probability zero under the model.", stacklevel=4)
        return -np.inf
    return float(flat.mean())


def candidates(words: Any) -> list[str]:
    """The words of a comparison, as a list."""
    out = [] if isinstance(words, str | bytes) or not isinstance(words, Iterable) else list(words)
    if not out:
        raise InputError('The words to compare must be a list with at least one word, such as ["bank", "river"].')
    return out


def comparisons(words: Sequence[str], p: F64) -> Table[Comparison]:
    """Comparisons of words with these probabilities, in the order given."""
    total = float(p.sum())
    share = p / total if total > 0 else np.full(len(p), 1 / len(p))
    with np.errstate(divide="ignore"):
        rest = np.array([np.delete(share, i).sum() for i in range(len(share))])
        odds = np.log(share) - np.log(rest)
    found = zip(words, p, share, odds, strict=True)
    return Table(Comparison, (Comparison(w, float(a), float(b), float(c)) for w, a, b, c in found))


def compare(chain: TextChain, text: Evidence, position: Any, words: Any) -> Table[Comparison]:
    """The probabilities of some words at a position given both sides."""
    position = read_position(position, len(text.tokens))
    words = candidates(words)
    ids = [word_id(chain, word, "The comparison") for word in words]
    gap = with_word(text, position, None)
    [p] = word_distributions(chain, checked_observed(chain, gap), [position], gap)
    return comparisons(words, p[ids])


def what_if(chain: TextChain, text: Evidence, position: Any, word: Any) -> Table[Change]:
    """What would change at every other position if this one had another word."""
    position = read_position(position, len(text.tokens))
    other = with_word(text, position, chain.vocabulary.words[word_id(chain, word, "The question")])
    return changes(text, position, *(states_and_logs(chain, t) for t in (text, other)))


def with_word(text: Evidence, position: int, word: str | None) -> Evidence:
    """The same text with another word at a position, or a gap."""
    tokens = list(text.tokens)
    tokens[position] = word
    return Evidence(tokens, text.states)


class StatesAndLogs(NamedTuple):
    """Distributions of the hidden states of a text, and how well each of its positions fits the others."""

    states: F64  # (T, Z)
    logs: F64  # (T,) log p(what is known of a position | the others)


def changes(text: Evidence, position: int, old: StatesAndLogs, new: StatesAndLogs) -> Table[Change]:
    """How the states and surprises of all other positions differ between two versions of one position."""
    out = Table(Change)
    for t, token in enumerate(text.tokens):
        if t == position:
            continue
        p, q = new.states[t], old.states[t]
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(p > 0, p * np.log2(p / q), 0.0)
        surprise = float((old.logs[t] - new.logs[t]) / np.log(2))
        out.append(Change(t, token, float(np.abs(p - q).sum() / 2), max(float(terms.sum()), 0.0), surprise))
    return out


def states_and_logs(chain: TextChain, text: Evidence) -> StatesAndLogs:
    """Those of a chain given evidence."""
    observed: Observed = observe(chain, [text])
    posterior = observed.params.smoothed(observed.ids, observed.bounds)
    check_possible(posterior.log_probabilities, text)
    states = spread_live(posterior, observed.params.first_live(observed.ids), chain.params.n_states)
    rows = states.astype(np.float64)
    logs = observed.params.log_both_sides(observed.ids, observed.bounds)
    return StatesAndLogs(rows / rows.sum(axis=1, keepdims=True), logs)


__all__ = ["Change", "Comparison", "Surprise"]
