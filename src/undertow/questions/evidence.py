"""A partly known text, and what it says about the hidden states.

A position is a word, a gap, a set of allowed words or a weight for some words; besides, its state may be known. All of
this is evidence on states: e_t(z) = Σ_w weight_t(w) p(w | z) for the states that are allowed, 0 for the others, 1 at a
gap. A piece of evidence is to a chain what a word is, a likelihood of each state. So `observe` makes a chain whose
words are the distinct pieces, and its filter, smoother, best path, messages and expected counts are those given the
evidence: nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError, short
from undertow.kernels.types import F64, I64
from undertow.models.hmm.params import HMMParams, Params
from undertow.text.vocabulary import Vocabulary

GAP_SIGN = "?"  # how a gap may be written in `fill`; elsewhere it is the question mark that texts have

Token = str | None | Set[str] | Mapping[str, float]
States = Mapping[int, Any]


@dataclass(frozen=True)
class Evidence:
    """A partly known text.

    Parameters
    ----------
    tokens
        One item a position: a word, None for a gap, a set of allowed words, or a mapping from words to weights (at
        least 0), which multiply the model's probabilities; words it does not name have weight 0.
    states
        Known states by position: a state, or a set of states that are allowed. Models fitted with tags take these too.

    Examples
    --------
    >>> from undertow import HMM, Evidence
    >>> model = HMM(2, n_iter=10, random_state=0).fit([["a", "b", "a", "b"], ["a", "b"]] * 20)
    >>> text = Evidence(["a", {"a", "b"}, None], states={0: {0, 1}})
    >>> [states.shape for states in model.posterior([text])]
    [(3, 2)]
    """

    tokens: Sequence[Token]
    states: States = field(default_factory=dict)


class TextChain(NamedTuple):
    """What questions need of a model: a chain of states that emit words, the words, and the states of each tag."""

    params: HMMParams
    vocabulary: Vocabulary
    tag_states: Mapping[str, I64] = {}
    markers: bool = False  # whether gaps may hold the unknown word, the boundary and classes of unknown words

    @property
    def fillers(self) -> NDArray[np.bool_]:
        """(V,) words that may fill gaps."""
        return self.vocabulary.writable(self.markers)


class Piece(NamedTuple):
    """The evidence at one position, hashable: a word's id, None for a gap, or words with weights; allowed states."""

    words: int | tuple[tuple[int, float], ...] | None
    states: tuple[int, ...] | None = None


class Observed(NamedTuple):
    """Texts as ids of a chain whose words are the distinct pieces of evidence."""

    params: Params
    ids: I64
    bounds: I64  # of the texts
    pieces: list[Piece]  # by id

    def piece(self, position: int) -> Piece:
        return self.pieces[int(self.ids[position])]


def as_evidence(text: Any, states: States | None = None, gap_sign: str | None = None) -> Evidence:
    """The argument of a question as Evidence; `gap_sign` is a word that stands for a gap."""
    if isinstance(text, Evidence):
        if states is not None:
            raise InputError("The text is Evidence, which has its own states: leave out states.")
        return text
    if isinstance(text, str | bytes | Mapping | Set) or not isinstance(text, Iterable):
        raise InputError(
            f"The text is of type {type(text).__name__}: give a list of tokens, with None for a gap, "
            'such as ["the", None, "river"].'
        )
    tokens = [None if gap_sign is not None and token == gap_sign else token for token in text]
    return Evidence(tokens, {} if states is None else states)


def weights_of(chain: TextChain, piece: Piece) -> F64:
    """(V,) weights of the words at a position; at a gap 1 for all words that may fill it."""
    if piece.words is None:
        return chain.fillers.astype(np.float64)
    out = np.zeros(chain.params.n_words)
    for word, weight in ((piece.words, 1.0),) if isinstance(piece.words, int) else piece.words:
        out[word] = weight
    return out


def allowed_states(chain: TextChain, piece: Piece) -> NDArray[np.bool_]:
    """(Z,) the states that are possible by what is known of them."""
    if piece.states is None:
        return np.ones(chain.params.n_states, dtype=np.bool_)
    out = np.zeros(chain.params.n_states, dtype=np.bool_)
    out[list(piece.states)] = True
    return out


def likelihood(chain: TextChain, piece: Piece) -> F64:
    """(Z,) e(z): what the evidence at a position says about its state."""
    if piece.words is None:
        return allowed_states(chain, piece).astype(np.float64)
    emitted = chain.params.weighted_emission(weights_of(chain, piece))
    return np.where(allowed_states(chain, piece), emitted, 0.0)


def observe(chain: TextChain, texts: Sequence[Evidence]) -> Observed:
    """The texts as ids of a chain that observes their evidence."""
    numbers: dict[Piece, int] = {}
    ids = [numbers.setdefault(p, len(numbers)) for text in texts for p in read_pieces(chain, text)]
    bounds = np.concatenate(([0], np.cumsum([len(text.tokens) for text in texts]))).astype(np.int64)
    return observe_pieces(chain, list(numbers), np.array(ids, dtype=np.int64), bounds)


def observe_pieces(
    chain: TextChain, pieces: list[Piece], ids: I64, bounds: I64, rows: Mapping[int, NDArray[Any]] | None = None
) -> Observed:
    """The same from the distinct pieces; `rows` are likelihoods of some of them that differ from their own."""
    rows = rows or {}
    plain = [i for i, p in enumerate(pieces) if isinstance(p.words, int) and p.states is None and i not in rows]
    others = [i for i in range(len(pieces)) if i not in set(plain)]
    number = np.empty(len(pieces), dtype=np.int64)
    number[plain + others] = np.arange(len(pieces))
    words = np.array([pieces[i].words for i in plain], dtype=np.int64)
    given = [rows[i] if i in rows else likelihood(chain, pieces[i]) for i in others]
    return Observed(chain.params.observing(words, given), number[ids], bounds, [pieces[i] for i in plain + others])


def read_pieces(chain: TextChain, text: Evidence) -> list[Piece]:
    """The evidence of each position; InputError if it does not fit the model."""
    states = {read_position(at, len(text.tokens)): _read_states(chain, at, s) for at, s in text.states.items()}
    return [Piece(_read_words(chain, i, token), states.get(i)) for i, token in enumerate(text.tokens)]


def read_position(position: Any, n_tokens: int) -> int:
    if isinstance(position, bool) or not isinstance(position, int | np.integer) or not 0 <= position < n_tokens:
        raise InputError(
            f"Position {short(position)} is not in the text of {n_tokens} tokens: give one of 0 to {n_tokens - 1}."
        )
    return int(position)


def word_id(chain: TextChain, word: Any, where: str) -> int:
    """The id of a word that must be known."""
    if not isinstance(word, str):
        raise InputError(f"{where} has the word {short(word)} of type {type(word).__name__}: give strings.")
    if word not in chain.vocabulary:
        raise InputError(f"{where} names the word {short(word)}, which is not in the vocabulary: leave it out.")
    return chain.vocabulary.id(word)


def _read_words(chain: TextChain, position: int, token: Any) -> Any:
    where = f"Position {position}"
    if token is None:
        return None
    if isinstance(token, str):
        return chain.vocabulary.id(token)
    if not isinstance(token, Set | Mapping):
        raise InputError(
            f"{where} is {short(token)} of type {type(token).__name__}: give a word, None for a gap, a set of words, "
            "or a mapping from words to weights."
        )
    weights = dict(token) if isinstance(token, Mapping) else dict.fromkeys(token, 1.0)
    out = []
    for word, weight in weights.items():
        number = word_id(chain, word, where)
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 <= weight < np.inf:
            raise InputError(f"{where} weighs {short(word)} by {short(weight)}: give a finite number, at least 0.")
        out.append((number, float(weight)))
    out = sorted(pair for pair in out if pair[1] > 0)
    if not out:
        raise InputError(f"{where} allows no word: give at least one with a weight above 0, or None for any word.")
    return out[0][0] if len(out) == 1 and out[0][1] == 1.0 else tuple(out)


def _read_states(chain: TextChain, position: Any, states: Any) -> tuple[int, ...]:
    Z, out = chain.params.n_states, []
    several = isinstance(states, Iterable) and not isinstance(states, str | bytes)
    for state in states if several else [states]:
        if isinstance(state, str) and state in chain.tag_states:
            out += chain.tag_states[state].tolist()
        elif isinstance(state, bool) or not isinstance(state, int | np.integer) or not 0 <= state < Z:
            tags = f", or a tag: {', '.join(chain.tag_states)}" if chain.tag_states else ""
            raise InputError(f"Position {position} has the state {short(state)}: give one of 0 to {Z - 1}{tags}.")
        else:
            out.append(int(state))
    if not out:
        raise InputError(f"Position {position} allows no state: give at least one, or leave the position out.")
    return tuple(sorted(set(out)))


def check_possible(log_probabilities: F64, text: Evidence) -> None:
    """Raise InputError, with the first position that cannot be, if the evidence has probability zero."""
    impossible = np.flatnonzero(np.isneginf(log_probabilities))
    if len(impossible):
        at = int(impossible[0])
        raise InputError(
            f"The evidence contradicts itself: what is known of position {at} ({short(text.tokens[at])}) has "
            "probability zero after the positions before it; allow more words or states there, or leave a gap."
        )


__all__ = ["Evidence", "TextChain"]
