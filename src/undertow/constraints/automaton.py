"""Deterministic automata over a small alphabet of word classes: built from expressions, combined, minimized.

An own module, because the libraries for this (interegular, greenery) read regular expressions over characters, and
automata-lib or pyfoma would be a new dependency of the core for what are few lines here: the alphabet is small, as all
words that a constraint does not tell apart are one symbol. `tests/oracles/texts.py` enumerates what each must accept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.constraints.expressions import Choice, Expression, Repeat, Sequence, Words
from undertow.errors import InputError

MAX_STATES = 4096  # the look-ahead of a chain costs as much for each of them as a pass over a sentence
MAX_PIECES = 50_000  # states of the nondeterministic automaton that an expression is read into


class Alphabet:
    """Classes of words that no constraint tells apart; symbol 0 is every word that none names."""

    def __init__(self, word_sets: Iterable[frozenset[str]]) -> None:
        members: dict[str, list[int]] = {}
        for number, words in enumerate(dict.fromkeys(word_sets)):
            for word in words:
                members.setdefault(word, []).append(number)
        signatures = {tuple(sets): 0 for sets in members.values()}
        for symbol, signature in enumerate(sorted(signatures), start=1):
            signatures[signature] = symbol
        self.symbol_of = {word: signatures[tuple(sets)] for word, sets in members.items()}
        self.n_symbols = 1 + len(signatures)

    def symbols(self, words: Words) -> frozenset[int]:
        """The symbols of a set of words, which must be among those that the alphabet was made from."""
        named = frozenset(self.symbol_of[w] for w in words.words)
        return frozenset(range(self.n_symbols)) - named if words.negated else named

    def encode(self, tokens: Iterable[str]) -> list[int]:
        return [self.symbol_of.get(token, 0) for token in tokens]


class Automaton(NamedTuple):
    """A complete deterministic automaton; the first state is the start.

    Attributes
    ----------
    step
        (states, symbols) the state after each symbol.
    accepting
        (states,) whether a text may end there.
    """

    step: NDArray[np.int64]
    accepting: NDArray[np.bool_]

    def accepts(self, symbols: Iterable[int]) -> bool:
        state = 0
        for symbol in symbols:
            state = int(self.step[state, symbol])
        return bool(self.accepting[state])

    def complement(self) -> Automaton:
        return Automaton(self.step, ~self.accepting)

    def intersection(self, other: Automaton) -> Automaton:
        return _product(self, other, both=True)

    def union(self, other: Automaton) -> Automaton:
        return _product(self, other, both=False)

    def distances(self) -> NDArray[np.float64]:
        """(states,) number of further words with which a text can end soonest; inf where it never can."""
        found = np.where(self.accepting, 0.0, np.inf)
        while True:
            nearer = np.minimum(found, found[self.step].min(axis=1) + 1)
            if np.array_equal(nearer, found):
                return found
            found = nearer

    def lengths(self, most: int) -> NDArray[np.bool_]:
        """(most + 1,) whether a text of so many words is accepted."""
        here = np.zeros(len(self.step), dtype=bool)
        here[0] = True
        out = np.zeros(most + 1, dtype=bool)
        for n in range(most + 1):
            out[n] = (here & self.accepting).any()
            here = _reached(self.step, here)
        return out


def _reached(step: NDArray[np.int64], here: NDArray[np.bool_]) -> NDArray[np.bool_]:
    after = np.zeros(len(step), dtype=bool)
    after[step[here].ravel()] = True
    return after


def everything(n_symbols: int) -> Automaton:
    """Accepts every text."""
    return Automaton(np.zeros((1, n_symbols), dtype=np.int64), np.ones(1, dtype=bool))


def too_large(what: str) -> InputError:
    return InputError(
        f"The constraint {what}, more than {MAX_STATES:,} states: ask for fewer words at once, shorter counts, or "
        "an order of the words (ordered=True)."
    )


def _numbered(start: object, successors: object, n_symbols: int) -> tuple[list[object], NDArray[np.int64]]:
    """Number all that can be reached from `start`; `successors(node)` gives one node for each symbol."""
    assert callable(successors)
    nodes, number = [start], {start: 0}
    rows: list[list[int]] = []
    for node in nodes:  # grows while it is read
        row = []
        for after in successors(node):
            if after not in number:
                number[after] = len(nodes)
                nodes.append(after)
                if len(nodes) > MAX_STATES:
                    raise too_large("needs too large an automaton")
            row.append(number[after])
        rows.append(row)
    return nodes, np.array(rows, dtype=np.int64).reshape(len(nodes), n_symbols)


def _product(a: Automaton, b: Automaton, both: bool) -> Automaton:
    width = len(b.step)

    def successors(pair: int) -> list[int]:
        p, q = divmod(pair, width)
        return (a.step[p] * width + b.step[q]).tolist()  # type: ignore[no-any-return]

    pairs, step = _numbered(0, successors, a.step.shape[1])
    p, q = np.divmod(np.array(pairs, dtype=np.int64), width)
    accepting = (a.accepting[p] & b.accepting[q]) if both else (a.accepting[p] | b.accepting[q])
    return minimized(Automaton(step, accepting))


def minimized(automaton: Automaton) -> Automaton:
    """The smallest automaton that accepts the same texts: states are split until none can be told apart (Moore)."""
    step, accepting = automaton
    group = accepting.astype(np.int64)
    while True:
        signature = np.concatenate([group[:, None], group[step]], axis=1)
        _, first, new = np.unique(signature, axis=0, return_index=True, return_inverse=True)
        new = new.ravel()
        if len(first) == len(np.unique(group)):
            break
        group = new
    order = np.argsort(np.where(np.arange(len(first)) == new[0], -1, first))  # the start comes first
    rank = np.argsort(order)
    return Automaton(rank[new[step[first[order]]]], accepting[first[order]])


# --- from expressions -----------------------------------------------------------------------------------


class _Pieces:
    """A nondeterministic automaton: moves by symbols, and moves that read nothing."""

    def __init__(self, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.free: list[list[int]] = []
        self.moves: list[tuple[frozenset[int], int] | None] = []

    def new(self) -> int:
        if len(self.free) >= MAX_PIECES:
            raise too_large("repeats its parts too often")
        self.free.append([])
        self.moves.append(None)
        return len(self.free) - 1

    def add(self, expression: Expression, start: int) -> int:
        """Read an expression from `start` on; the state where it ends."""
        match expression:
            case Words():
                end = self.new()
                here = self.new()
                self.free[start].append(here)
                self.moves[here] = (self.alphabet.symbols(expression), end)
                return end
            case Sequence(parts):
                for part in parts:
                    start = self.add(part, start)
                return start
            case Choice(parts):
                end = self.new()
                for part in parts:
                    begin = self.new()
                    self.free[start].append(begin)
                    self.free[self.add(part, begin)].append(end)
                return end
            case Repeat(part, low, high):
                return self._repeat(part, low, high, start)
        raise TypeError(expression)

    def _repeat(self, part: Expression, low: int, high: int | None, start: int) -> int:
        for _ in range(low):
            start = self.add(part, start)
        end = self.new()
        self.free[start].append(end)
        if high is None:
            begin = self.new()
            self.free[end].append(begin)
            self.free[self.add(part, begin)].append(end)
            return end
        for _ in range(high - low):
            start = self.add(part, start)
            self.free[start].append(end)
        return end

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """The states with those that are reached without reading, of which only those that matter are kept."""
        found, waiting = set(states), list(states)
        while waiting:
            for after in self.free[waiting.pop()]:
                if after not in found:
                    found.add(after)
                    waiting.append(after)
        return frozenset(s for s in found if self.moves[s] is not None or not self.free[s])

    def successors(self, states: frozenset[int]) -> Iterator[frozenset[int]]:
        moves = [move for s in states if (move := self.moves[s]) is not None]
        for symbol in range(self.alphabet.n_symbols):
            yield self.closure({after for symbols, after in moves if symbol in symbols})


def from_expression(expression: Expression, alphabet: Alphabet) -> Automaton:
    """The automaton that accepts the texts an expression describes, by the subset construction."""
    pieces = _Pieces(alphabet)
    start = pieces.new()
    end = pieces.new()
    pieces.free[pieces.add(expression, start)].append(end)
    sets, step = _numbered(pieces.closure([start]), pieces.successors, alphabet.n_symbols)
    accepting = np.array([end in states for states in sets])  # type: ignore[operator]
    return minimized(Automaton(step, accepting))
