"""Questions about an LDS: exact about its Gaussian state, and its word model read at the mean of that state.

An LDS predicts p(i) ∝ max(μ_i + √μ_i C_i·s, δμ_i) at a predicted state s (lds.md). Given both sides, s is the smoothed
mean at a missing token, with the exact gains of its place. Several gaps are filled from left to right, each given all
that is known and the gaps filled before it: p(w_1 | known) p(w_2 | known, w_1) …, a distribution of whole fills that is
drawn from exactly, and whose best fill is searched for. Words to come enter through the state alone; the word model
read from the left has no other tractable answer, as its sum over the words of a gap does not close.

Means are linear in the words that are known, and covariances depend only on which are. So the state at a gap is a
fixed vector plus a fixed matrix times the row of each word filled in before, and changing a word moves the state's
distribution without changing its shape: total variation and divergence have closed forms.

Only words and gaps can be given: a set of words has no exact form as evidence on a Gaussian state.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import erf

from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.kernels.gaussian.gains import posterior_covariances
from undertow.kernels.gaussian.leave_one_out import left_out_means
from undertow.kernels.gaussian.smoother import exact_gains, smooth_exact
from undertow.kernels.types import F32, F64, I64
from undertow.models.answers import Gap, gap_of
from undertow.models.lds import queries
from undertow.questions.best_fill import JointFill, check_expansions, search
from undertow.questions.evidence import Evidence, read_position
from undertow.questions.explain import Change, Comparison, candidates, comparisons, with_word
from undertow.questions.fill import check_number
from undertow.tables import Table

# --- given both sides -----------------------------------------------------------------------------------


@one_blas_thread()
def log_both_sides(model: Any, ids: Any, offsets: I64, missing: Any, gaps: Any = None) -> F64:
    """(T,) log p(token | all other tokens of its sentence); at `gaps`, where nothing is known, it is 0."""
    params, tables = model.params_, model._tables
    gains = exact_gains(params.A, params.Q, tables.steady.N, params.M, tables.stationary)
    states = left_out_means(ids, offsets, missing, tables.rows, gains)
    out = queries.token_log_probabilities(_language_model(model), states, ids)
    return out if gaps is None else np.where(gaps, 0.0, out)


def _smoothed(model: Any, ids: Any, offsets: I64, missing: Any) -> F32:
    return queries.token_states(model.params_, model._tables, ids, offsets, missing, exact=True)


def _language_model(model: Any) -> queries.LinearLM:
    words = model.vocabulary_
    return queries.language_model(model.params_.C, model.params_.mu, words.counts, model.dropped_, words.fallback())


def encode(model: Any, texts: Sequence[Evidence]) -> tuple[Any, I64, Any, Any]:
    """Ids of all tokens, offsets of the texts, which tokens say nothing (gaps and unknown words), and the gaps."""
    words = model.vocabulary_
    tokens = [token for text in texts for token in _words_and_gaps(text)]
    ids = words.encode([words.unknown if t is None else t for t in tokens])
    offsets = np.concatenate(([0], np.cumsum([len(text.tokens) for text in texts]))).astype(np.int64)
    return ids, offsets, ids == words.unknown_id, np.array([t is None for t in tokens], dtype=bool)


def _words_and_gaps(text: Evidence) -> list[str | None]:
    """The tokens of a text; a set of one word is this word, as a question mark is written."""
    if text.states:
        raise InputError("An LDS has no states that could be known: leave out states.")
    out: list[str | None] = []
    for i, given in enumerate(text.tokens):
        token = next(iter(given)) if isinstance(given, Set) and len(given) == 1 else given
        if token is not None and not isinstance(token, str):
            raise InputError(
                f"Position {i} is {short(token)}: an LDS takes words and gaps (None) only; ask an HMM instead."
            )
        out.append(token)
    return out


def _encode_one(model: Any, text: Evidence) -> tuple[Any, Any, Any]:
    if not len(text.tokens):
        raise InputError("The text is empty: give at least one token or gap.")
    ids, _, missing, gaps = encode(model, [text])
    return ids, missing, gaps


def _distributions(model: Any, text: Evidence, where: list[int]) -> list[F64]:
    """(V,) p(word | both sides) of these positions."""
    ids, missing, _ = _encode_one(model, text)
    states = _smoothed(model, ids, np.array([0, len(ids)]), missing)
    return [queries.word_distribution(_language_model(model), states[t]) for t in where]


def fill(model: Any, text: Evidence, n: int, markers: bool) -> Table[Gap]:
    """For each gap the n most probable words given both sides."""
    check_number(n)
    where = [t for t, token in enumerate(text.tokens) if token is None]
    found = _distributions(model, text, where)
    return Table(Gap, (gap_of(model.vocabulary_, t, p, int(n), markers) for t, p in zip(where, found, strict=True)))


def compare(model: Any, text: Evidence, position: Any, words: Any) -> Table[Comparison]:
    """The probabilities of some words at a position given both sides."""
    position = read_position(position, len(text.tokens))
    words = candidates(words)
    ids = [_word_id(model, word, "The comparison") for word in words]
    [p] = _distributions(model, with_word(text, position, None), [position])
    return comparisons(words, p[ids])


def _word_id(model: Any, word: Any, where: str) -> int:
    if not isinstance(word, str) or word not in model.vocabulary_:
        raise InputError(f"{where} names the word {short(word)}, which is not in the vocabulary: leave it out.")
    return int(model.vocabulary_.id(word))


# --- several gaps together ------------------------------------------------------------------------------


class LinearFills:
    """The gaps of a text filled from left to right, each given all that is known and the gaps before it."""

    def __init__(self, model: Any, text: Evidence, markers: bool) -> None:
        self.model, self.text = model, text
        self.ids, missing, gaps = _encode_one(model, text)
        self.missing = missing & ~gaps  # unknown words stay missing
        self.where = np.flatnonzero(gaps).tolist()
        self.allowed = model.vocabulary_.writable(markers)
        if not self.allowed.any():
            raise InputError("The training text had no word that could fill a gap: give markers=True.")
        self.lm = _language_model(model)

    @cached_property
    def _affine(self) -> list[tuple[F64, list[F64]]]:
        """For each gap j: its state if the rows of the gaps before it are zero, and how each of these rows moves it.

        A table whose rows are those of the known words, the unit vectors and zero makes the smoother say both.
        """
        params, tables = self.model.params_, self.model._tables
        gains = exact_gains(params.A, params.Q, tables.steady.N, params.M, tables.stationary)
        h, T, out = len(params.A), len(self.ids), []
        known, place = np.unique(self.ids, return_inverse=True)
        rows = np.concatenate([tables.rows[known], np.eye(h), np.zeros((1, h))]).astype(np.float32)
        zero = len(rows) - 1
        for j, gap in enumerate(self.where):
            before, open_ = self.where[:j], self.where[j:]
            texts = np.full((1 + j * h, T), zero)
            texts[0] = place
            texts[0, before] = zero
            for i, t in enumerate(before):
                texts[1 + i * h : 1 + (i + 1) * h, t] = len(known) + np.arange(h)
            missing = np.broadcast_to(self.missing, texts.shape).copy()
            missing[:, open_] = True
            offsets = np.arange(len(texts) + 1) * T
            smoothed = smooth_exact(texts.ravel(), offsets, missing.ravel(), rows, gains)[1]
            states = smoothed.reshape(len(texts), T, h)[:, gap].astype(np.float64)
            out.append((states[0], [states[1 + i * h : 1 + (i + 1) * h] for i in range(j)]))
        return out

    def distribution(self, prefix: Sequence[int]) -> F64:
        """(V,) p(word of the next gap | all that is known, words of the gaps before it) among words that may fill."""
        base, moves = self._affine[len(prefix)]
        state = base + sum(self.model._tables.rows[w] @ move for w, move in zip(prefix, moves, strict=True))
        p = np.where(self.allowed, queries.word_distribution(self.lm, np.asarray(state, dtype=np.float32)), 0.0)
        return np.asarray(p / p.sum())

    def children(self, prefix: tuple[int, ...]) -> F64:
        """(V,) log p(prefix and word): what follows can only make it less probable."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.distribution(prefix)) + self.log_probability(prefix))

    def log_probability(self, words: Sequence[int]) -> float:
        return float(sum(np.log(self.distribution(words[:j])[w]) for j, w in enumerate(words)))

    def tokens(self, words: Sequence[int]) -> list[str]:
        filled = dict(zip(self.where, words, strict=True))
        spelled: tuple[str, ...] = self.model.vocabulary_.words
        return [spelled[filled[t]] if w is None else w for t, w in enumerate(_words_and_gaps(self.text))]


def sample_fill(model: Any, text: Evidence, n: int, rng: np.random.Generator, markers: bool) -> list[list[str]]:
    """n texts with the gaps filled from left to right by draws."""
    check_number(n)
    fills, out = LinearFills(model, text, markers), []
    known: dict[tuple[int, ...], F64] = {}  # texts drawn so far share their first words
    for _ in range(int(n)):
        words: tuple[int, ...] = ()
        for _ in fills.where:
            if words not in known:
                known[words] = np.cumsum(fills.distribution(words))
            edges = known[words]
            words = (*words, int(np.searchsorted(edges, rng.random() * edges[-1], side="right")))
        out.append(fills.tokens(words))
    return out


def best_fill(model: Any, text: Evidence, max_expansions: int, markers: bool) -> JointFill:
    """The most probable words of all gaps together."""
    check_expansions(max_expansions)
    fills = LinearFills(model, text, markers)
    words, value, proven = search(fills, int(max_expansions))
    return JointFill(fills.tokens(words), min(value, 0.0), proven)


# --- another word ---------------------------------------------------------------------------------------


def what_if(model: Any, text: Evidence, position: Any, word: Any) -> Table[Change]:
    """What would change at every other position if this one had another word.

    Both states are Gaussian with one covariance P, so with Δ² = (m' − m)·P⁻¹(m' − m) their total variation is
    erf(Δ / √8) and their divergence Δ²/2 nats.
    """
    position = read_position(position, len(text.tokens))
    new_id = _word_id(model, word, "The question")
    ids, missing, gaps = _encode_one(model, text)
    unknown = model.vocabulary_.unknown_id
    if missing[position] or new_id == unknown:
        raise InputError(
            f"Position {position} is {'a gap' if gaps[position] else 'unknown'} in one of the two texts, which an LDS "
            "cannot compare in closed form: give words of the vocabulary for both."
        )
    changed = ids.copy()
    changed[position] = new_id
    p, tables, ends = model.params_, model._tables, np.array([0, len(ids)])
    _, P = posterior_covariances(missing, p.A, p.Q, tables.steady.N, p.M, tables.stationary)
    old, new = (_smoothed(model, x, ends, missing).astype(np.float64) for x in (ids, changed))
    logs, new_logs = (log_both_sides(model, x, ends, missing, gaps) for x in (ids, changed))
    out = Table(Change)
    for t, token in enumerate(text.tokens):
        if t != position:
            move = new[t] - old[t]
            distance2 = max(float(move @ np.linalg.solve(P[t], move)), 0.0)
            variation = float(erf(np.sqrt(distance2 / 8)))
            surprise = float((logs[t] - new_logs[t]) / np.log(2))
            out.append(Change(t, token, variation, distance2 / (2 * float(np.log(2))), surprise))
    return out


__all__ = ["best_fill", "compare", "encode", "fill", "log_both_sides", "sample_fill", "what_if"]
