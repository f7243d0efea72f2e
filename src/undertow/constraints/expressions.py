"""Regular expressions over words, as trees; `pattern` reads them from text and `automaton` compiles them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """One word: any of these, or any but these."""

    words: frozenset[str]
    negated: bool = False


@dataclass(frozen=True)
class Sequence:
    """The parts one after the other; without parts, the empty text."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Choice:
    """One of the parts."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Repeat:
    """The part at least `low` and at most `high` times; None for any number."""

    part: Expression
    low: int = 0
    high: int | None = None


Expression = Words | Sequence | Choice | Repeat
ANY = Words(frozenset(), negated=True)
ANYTHING = Repeat(ANY)


def phrase(words: tuple[str, ...]) -> Expression:
    return Sequence(tuple(Words(frozenset([w])) for w in words))


def somewhere(*parts: Expression) -> Expression:
    """The parts in this order with any words before, between and after them."""
    spread: list[Expression] = [ANYTHING]
    for part in parts:
        spread += [part, ANYTHING]
    return Sequence(tuple(spread))


def word_sets(expression: Expression) -> Iterator[frozenset[str]]:
    """The sets of words that an expression tells apart."""
    match expression:
        case Words(words):
            if words:
                yield words
        case Repeat(part):
            yield from word_sets(part)
        case Sequence(parts) | Choice(parts):
            for part in parts:
                yield from word_sets(part)
