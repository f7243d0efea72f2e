"""Words given both sides under an LDS: its word model read at the state's mean given all other tokens.

An LDS predicts p(i) ∝ max(μ_i + √μ_i C_i·s, δμ_i) at a predicted state s (lds.md). Given both sides, s is the smoothed
mean at a missing token, with the exact gains of its place. Only words and gaps can be given: a set of words has no
exact form as evidence on a Gaussian state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.errors import InputError, short
from undertow.kernels.types import F32, F64, I64
from undertow.models.answers import Gap
from undertow.models.lds import queries
from undertow.questions.evidence import Evidence, read_position
from undertow.questions.explain import Comparison, candidates, comparisons
from undertow.questions.fill import top_words
from undertow.tables import Table

MASKED_TOKENS = 1 << 17  # of copies of sentences, each with one token missing, that are smoothed together


def log_both_sides(model: Any, ids: Any, offsets: I64, missing: Any) -> F64:
    """(T,) log p(token | all other tokens of its sentence): each sentence is smoothed once for each of its tokens."""
    out = np.empty(len(ids))
    lm = _language_model(model)
    lengths = np.diff(offsets)
    copies: list[tuple[int, int, int]] = []  # (start, stop, token left out)
    n = 0
    for start, length in zip(offsets[:-1].tolist(), lengths.tolist(), strict=True):
        for t in range(start, start + length):
            copies.append((start, start + length, t))
            n += length
            if n >= MASKED_TOKENS:
                _score(model, lm, ids, missing, copies, out)
                copies, n = [], 0
    if copies:
        _score(model, lm, ids, missing, copies, out)
    return out


def _score(model: Any, lm: Any, ids: Any, missing: Any, copies: list[tuple[int, int, int]], out: F64) -> None:
    tokens = np.concatenate([np.arange(a, b) for a, b, _ in copies])
    edges = np.concatenate(([0], np.cumsum([b - a for a, b, _ in copies]))).astype(np.int64)
    left_out = np.array([t for *_, t in copies])
    at = edges[:-1] + left_out - np.array([a for a, *_ in copies])
    gone = missing[tokens].copy()
    gone[at] = True
    states = _smoothed(model, ids[tokens], edges, gone)[at]
    out[left_out] = queries.token_log_probabilities(lm, states, ids[left_out])


def _smoothed(model: Any, ids: Any, offsets: I64, missing: Any) -> F32:
    return queries.token_states(model.params_, model._tables, ids, offsets, missing, exact=True)


def _language_model(model: Any) -> queries.LinearLM:
    words = model.vocabulary_
    return queries.language_model(model.params_.C, model.params_.mu, words.counts, model.dropped_, words.fallback())


def _distributions(model: Any, text: Evidence, where: list[int]) -> list[F64]:
    """(V,) p(word | both sides) of these positions."""
    if text.states:
        raise InputError("An LDS has no states that could be known: leave out states.")
    for i, token in enumerate(text.tokens):
        if token is not None and not isinstance(token, str):
            raise InputError(f"Position {i} is {short(token)}: an LDS takes words and gaps (None) only.")
    if not len(text.tokens):
        raise InputError("The text is empty: give at least one token or gap.")
    words = model.vocabulary_
    ids = words.encode([words.unknown if t is None else t for t in text.tokens])
    missing = ids == words.unknown_id
    states = _smoothed(model, ids, np.array([0, len(ids)]), missing)
    return [queries.word_distribution(_language_model(model), states[t]) for t in where]


def fill(model: Any, text: Evidence, n: int) -> Table[Gap]:
    """For each gap the n most probable words given both sides."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n={n!r} must be a whole number, at least 1.")
    where = [t for t, token in enumerate(text.tokens) if token is None]
    found = _distributions(model, text, where)
    return Table(Gap, (Gap(t, top_words(model.vocabulary_, p, int(n))) for t, p in zip(where, found, strict=True)))


def compare(model: Any, text: Evidence, position: Any, words: Any) -> Table[Comparison]:
    """The probabilities of some words at a position given both sides."""
    position = read_position(position, len(text.tokens))
    words = candidates(words)
    for word in words:
        if word not in model.vocabulary_:
            raise InputError(f"The comparison names the word {short(word)}, which is not in the vocabulary.")
    tokens = list(text.tokens)
    tokens[position] = None
    [p] = _distributions(model, Evidence(tokens, text.states), [position])
    return comparisons(words, p[[model.vocabulary_.id(word) for word in words]])


__all__ = ["compare", "fill", "log_both_sides"]
