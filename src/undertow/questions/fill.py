"""Gaps in a text: their words given both sides, one by one and jointly.

A gap is a missing observation, so its smoothed state distribution is that given both sides without it, and
p(w | evidence) = Σ_z p(z | evidence) weight(w) p(w | z) / e(z). Several gaps are drawn together by sampling states
forward, each in proportion to its transition times the message of all that follows, and then the words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError, short
from undertow.kernels.chain.sparse import spread_live
from undertow.kernels.types import F64, I64
from undertow.models.answers import Gap, gap_of
from undertow.questions.evidence import (
    Evidence,
    Observed,
    TextChain,
    allowed_states,
    check_possible,
    likelihood,
    observe,
    observe_pieces,
    weights_of,
)
from undertow.tables import Table


def open_positions(observed: Observed) -> list[int]:
    """Positions that are not one known word."""
    return [t for t in range(len(observed.ids)) if not isinstance(observed.piece(t).words, int)]


def checked_observed(chain: TextChain, text: Evidence) -> Observed:
    """One text as a chain that observes it; InputError if it is empty."""
    if not len(text.tokens):
        raise InputError("The text is empty: give at least one token or gap.")
    return observe(chain, [text])


def check_number(n: Any) -> None:
    """Refuse a number of words or texts that is none."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n={short(n)} must be a whole number, at least 1.")


def fill(chain: TextChain, text: Evidence, n: int) -> Table[Gap]:
    """For each position that is not one known word, its n most probable words given everything else."""
    check_number(n)
    observed = checked_observed(chain, text)
    where = open_positions(observed)
    found = zip(where, word_distributions(chain, observed, where, text), strict=True)
    return Table(
        Gap, (gap_of(chain.vocabulary, t, p, n, chain.markers or observed.piece(t).words is not None) for t, p in found)
    )


def word_distributions(chain: TextChain, observed: Observed, where: list[int], text: Evidence) -> list[F64]:
    """(V,) p(word | evidence) of each of these positions."""
    posterior = observed.params.smoothed(observed.ids, observed.bounds)
    check_possible(posterior.log_probabilities, text)
    states = spread_live(posterior, observed.params.first_live(observed.ids), chain.params.n_states)
    out = []
    for t in where:
        piece, gamma = observed.piece(t), states[t].astype(np.float64)
        if piece.words is None:
            p = chain.params.word_probabilities(gamma)
        else:
            e = likelihood(chain, piece)
            p = chain.params.word_probabilities(np.divide(gamma, e, out=np.zeros_like(e), where=e > 0))
            p = p * weights_of(chain, piece)
        out.append(np.asarray(p / p.sum()))
    return out


def log_evidence(chain: TextChain, text: Evidence) -> float:
    """log of the probability of all that is known, summed over the words and states that are not."""
    observed = checked_observed(chain, text)
    return float(observed.params.filtered(observed.ids, observed.bounds).log_probabilities.sum())


# --- joint draws ----------------------------------------------------------------------------------------


def sample_fill(chain: TextChain, text: Evidence, n: int, rng: np.random.Generator) -> list[list[str]]:
    """n texts drawn exactly from p(text | evidence), over the words that may fill gaps."""
    check_number(n)
    observed, weights = only_fillers(chain, checked_observed(chain, text))
    check_possible(observed.params.filtered(observed.ids, observed.bounds).log_probabilities, text)
    states = draw_states(observed.params, observed.ids, int(n), rng)
    words: Any = np.empty(states.shape, dtype=np.int64)
    for t in range(len(observed.ids)):
        known = observed.piece(t).words
        if isinstance(known, int):
            words[:, t] = known
        else:
            words[:, t] = _draw_words(chain, states[:, t], weights[t], rng)
    tokens = [t if isinstance(t, str) else None for t in text.tokens]
    return [
        [chain.vocabulary.words[w] if token is None else token for w, token in zip(row, tokens, strict=True)]
        for row in words.tolist()
    ]


def only_fillers(chain: TextChain, observed: Observed) -> tuple[Observed, dict[int, NDArray[Any]]]:
    """The same evidence with gaps that hold one of the words that may fill them, and the weights of open positions.

    A model gives some probability to words that no text had, and to the unknown word; nobody wants to see them drawn.
    """
    if not chain.fillers.any():
        raise InputError(
            "The training text had no word that could fill a gap, only unknown ones: fit with a larger vocabulary, or "
            "give markers=True."
        )
    emitted = chain.params.weighted_emission(chain.fillers.astype(np.float64))
    rows = {
        i: np.where(allowed_states(chain, piece), emitted, 0.0)
        for i, piece in enumerate(observed.pieces)
        if piece.words is None
    }
    again = observe_pieces(chain, observed.pieces, observed.ids, observed.bounds, rows)
    return again, {t: weights_of(chain, again.piece(t)) for t in open_positions(again)}


def draw_states(params: Any, ids: I64, n: int, rng: np.random.Generator) -> I64:
    """(n, T) state paths drawn from p(z | all observations) of one sequence."""
    messages = params.messages(ids, np.array([0, len(ids)]))
    low = params.first_live(ids)
    out = np.empty((n, len(ids)), dtype=np.int64)
    for t in range(len(ids)):
        message = messages.values[messages.at[t] : messages.at[t + 1]].astype(np.float64)
        live = slice(int(low[t]), int(low[t]) + len(message))
        if t == 0:
            rows, which = params.initial[None, live] * message, np.zeros(n, dtype=np.int64)
        else:
            before, which = np.unique(out[:, t - 1], return_inverse=True)
            rows = params.transition.rows(before)[:, live] * message
        summed = np.cumsum(rows, axis=1)
        for i in range(len(summed)):
            drawn = np.flatnonzero(which == i)
            points = rng.random(len(drawn)) * summed[i, -1]
            out[drawn, t] = live.start + np.searchsorted(summed[i], points, side="right")
    return out


def _draw_words(chain: TextChain, states: I64, weights: NDArray[Any], rng: np.random.Generator) -> I64:
    """A word of each state, in proportion to weight(w) p(w | z)."""
    out = np.empty(len(states), dtype=np.int64)
    for state in np.unique(states).tolist():
        drawn = np.flatnonzero(states == state)
        words, p = chain.params.emission_of(state)
        summed = np.cumsum(p.astype(np.float64) * weights[words])
        out[drawn] = words[np.searchsorted(summed, rng.random(len(drawn)) * summed[-1], side="right")]
    return out


__all__ = ["Gap"]
