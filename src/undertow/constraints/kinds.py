"""The constraints that people write; each is an expression over words, or a combination of such."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from undertow.constraints.automaton import Alphabet, Automaton, from_expression
from undertow.constraints.expressions import (
    ANY,
    ANYTHING,
    Choice,
    Expression,
    Repeat,
    Sequence,
    Words,
    phrase,
    somewhere,
    word_sets,
)
from undertow.constraints.pattern import parse
from undertow.errors import InputError, short


class Constraint(abc.ABC):
    """A condition on a text: `a & b` is both, `a | b` at least one, `~a` the opposite.

    Examples
    --------
    >>> from undertow.constraints import Contains, Without
    >>> constraint = Contains("river") & ~Contains("bank")
    >>> constraint.holds(["the", "wide", "river"]), constraint.holds(["the", "river", "bank"])
    (True, False)
    """

    _compiled: tuple[Alphabet, Automaton] | None = None

    @abc.abstractmethod
    def _word_sets(self) -> Iterator[frozenset[str]]:
        """The sets of words that the constraint tells apart."""

    @abc.abstractmethod
    def _automaton(self, alphabet: Alphabet) -> Automaton:
        """The automaton over the symbols of an alphabet that was made from `_word_sets`."""

    def __and__(self, other: Constraint) -> Constraint:
        return _Both(self, other) if isinstance(other, Constraint) else NotImplemented

    def __or__(self, other: Constraint) -> Constraint:
        return _Either(self, other) if isinstance(other, Constraint) else NotImplemented

    def __invert__(self) -> Constraint:
        return _Not(self)

    def __bool__(self) -> bool:
        raise InputError(
            "A constraint is neither true nor false by itself: combine them by &, | and ~, not and/or/not."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraint) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def words(self) -> set[str]:
        """The words that the constraint names.

        Returns
        -------
        set of str
        """
        return {word for words in self._word_sets() for word in words}

    def compiled(self) -> tuple[Alphabet, Automaton]:
        """The constraint as a deterministic automaton over classes of words.

        Returns
        -------
        Alphabet, Automaton
            Which class each named word is of, and the smallest automaton over the classes.

        Raises
        ------
        InputError
            If the automaton has more than 4,096 states.
        """
        if self._compiled is None:
            alphabet = Alphabet(self._word_sets())
            self._compiled = alphabet, self._automaton(alphabet)
        return self._compiled

    def holds(self, tokens: Iterable[str]) -> bool:
        """Whether a text satisfies the constraint.

        Parameters
        ----------
        tokens
            The words of the text.

        Returns
        -------
        bool
        """
        alphabet, automaton = self.compiled()
        return automaton.accepts(alphabet.encode(tokens))


class _Both(Constraint):
    def __init__(self, first: Constraint, second: Constraint) -> None:
        self.first, self.second = first, second

    def _word_sets(self) -> Iterator[frozenset[str]]:
        yield from self.first._word_sets()
        yield from self.second._word_sets()

    def _automaton(self, alphabet: Alphabet) -> Automaton:
        return self.first._automaton(alphabet).intersection(self.second._automaton(alphabet))

    def __repr__(self) -> str:
        return f"({self.first!r} & {self.second!r})"


class _Either(_Both):
    def _automaton(self, alphabet: Alphabet) -> Automaton:
        return self.first._automaton(alphabet).union(self.second._automaton(alphabet))

    def __repr__(self) -> str:
        return f"({self.first!r} | {self.second!r})"


class _Not(Constraint):
    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint

    def _word_sets(self) -> Iterator[frozenset[str]]:
        return self.constraint._word_sets()

    def _automaton(self, alphabet: Alphabet) -> Automaton:
        return self.constraint._automaton(alphabet).complement()

    def __repr__(self) -> str:
        return f"~{self.constraint!r}"


class _Described(Constraint):
    """A constraint that is one or several expressions, all of which must hold."""

    def __init__(self, shown: str, *expressions: Expression) -> None:
        self._shown, self._expressions = shown, expressions

    def _word_sets(self) -> Iterator[frozenset[str]]:
        for expression in self._expressions:
            yield from word_sets(expression)

    def _automaton(self, alphabet: Alphabet) -> Automaton:
        found = from_expression(self._expressions[0], alphabet)
        for expression in self._expressions[1:]:
            found = found.intersection(from_expression(expression, alphabet))
        return found

    def __repr__(self) -> str:
        return self._shown


class Contains(_Described):
    """All of these words occur.

    Parameters
    ----------
    *words
        Words, or phrases with spaces between their words; lists of them are taken apart.
    ordered
        Whether they must occur in this order, without overlap; otherwise in any order.

    Examples
    --------
    >>> from undertow.constraints import Contains
    >>> Contains("sea", "river").holds(["river", "and", "sea"])
    True
    >>> Contains("sea", "river", ordered=True).holds(["river", "and", "sea"])
    False
    """

    def __init__(self, *words: str | Iterable[str], ordered: bool = False) -> None:
        items = _items("Contains", words)
        parts = [phrase(item) for item in dict.fromkeys(items)] if not ordered else [phrase(item) for item in items]
        shown = f"Contains({_shown(items)}{', ordered=True' if ordered else ''})"
        super().__init__(shown, *([somewhere(*parts)] if ordered else [somewhere(part) for part in parts]))


class Without(_Described):
    """None of these words occurs.

    Parameters
    ----------
    *words
        Words, or phrases with spaces between their words; lists of them are taken apart.

    Examples
    --------
    >>> from undertow.constraints import Without
    >>> Without("bank", "of the").holds(["the", "bank"]), Without("bank", "of the").holds(["of", "all", "the"])
    (False, True)
    """

    def __init__(self, *words: str | Iterable[str]) -> None:
        items = _items("Without", words)
        single = frozenset(item[0] for item in items if len(item) == 1)
        parts = [phrase(item) for item in dict.fromkeys(items) if len(item) > 1]
        if single:
            parts.append(Words(single))
        super().__init__(f"Without({_shown(items)})", somewhere(Choice(tuple(parts))))

    def _automaton(self, alphabet: Alphabet) -> Automaton:
        return super()._automaton(alphabet).complement()


class Phrase(_Described):
    """These words occur one directly after the other.

    Parameters
    ----------
    *words
        The words of the phrase, separately or with spaces between them.

    Examples
    --------
    >>> from undertow.constraints import Phrase
    >>> Phrase("wide river").holds(["the", "wide", "river"])
    True
    """

    def __init__(self, *words: str | Iterable[str]) -> None:
        joined = _joined("Phrase", words)
        super().__init__(f"Phrase({' '.join(joined)!r})", somewhere(phrase(joined)))


class StartsWith(_Described):
    """The text begins with these words.

    Parameters
    ----------
    *words
        The words, separately or with spaces between them.

    Examples
    --------
    >>> from undertow.constraints import StartsWith
    >>> StartsWith("the wide").holds(["the", "wide", "river"])
    True
    """

    def __init__(self, *words: str | Iterable[str]) -> None:
        joined = _joined("StartsWith", words)
        super().__init__(f"StartsWith({' '.join(joined)!r})", Sequence((phrase(joined), ANYTHING)))


class EndsWith(_Described):
    """The text ends with these words.

    Parameters
    ----------
    *words
        The words, separately or with spaces between them.

    Examples
    --------
    >>> from undertow.constraints import EndsWith
    >>> EndsWith("river").holds(["the", "wide", "river"])
    True
    """

    def __init__(self, *words: str | Iterable[str]) -> None:
        joined = _joined("EndsWith", words)
        super().__init__(f"EndsWith({' '.join(joined)!r})", Sequence((ANYTHING, phrase(joined))))


class Length(_Described):
    """The text has so many words; of use where `generate` is given a range of lengths.

    Parameters
    ----------
    min, max
        The least and the largest number of words; None for no limit.

    Examples
    --------
    >>> from undertow.constraints import Length
    >>> Length(2, 4).holds(["the", "wide", "river"])
    True
    """

    def __init__(self, min: int = 0, max: int | None = None) -> None:
        low, high = _range("Length", min, max)
        super().__init__(f"Length({low}, {high})", Repeat(ANY, low, high))


class Count(_Described):
    """Words of a set occur so many times, counted together.

    Parameters
    ----------
    words
        A word, or several.
    min, max
        The least and the largest number of times; None for no limit.

    Examples
    --------
    >>> from undertow.constraints import Count
    >>> Count(["sea", "river"], min=2, max=2).holds(["river", "and", "sea"])
    True
    """

    def __init__(self, words: str | Iterable[str], min: int = 1, max: int | None = None) -> None:
        low, high = _range("Count", min, max)
        chosen = _single_words("Count", words)
        others = Repeat(Words(chosen, negated=True))
        counted = Repeat(Sequence((others, Words(chosen))), low, high)
        super().__init__(f"Count({sorted(chosen)!r}, min={low}, max={high})", Sequence((counted, others)))


class OneOf(_Described):
    """The word at a position is one of these.

    Parameters
    ----------
    words
        A word, or several.
    position
        From 0 at the beginning of the text, or from −1 at its end backwards.

    Examples
    --------
    >>> from undertow.constraints import OneOf
    >>> OneOf(["sea", "river"], position=-1).holds(["the", "wide", "river"])
    True
    """

    def __init__(self, words: str | Iterable[str], position: int) -> None:
        chosen = _single_words("OneOf", words)
        if isinstance(position, bool) or not isinstance(position, int | np.integer):
            raise InputError(f"OneOf: position={short(position)} must be a whole number, 0 for the first word.")
        before = Repeat(ANY, int(position), int(position)) if position >= 0 else ANYTHING
        after = ANYTHING if position >= 0 else Repeat(ANY, -1 - int(position), -1 - int(position))
        shown = f"OneOf({sorted(chosen)!r}, position={position})"
        super().__init__(shown, Sequence((before, Words(chosen), after)))


class Matches(_Described):
    r"""The whole text matches a regular expression over words.

    Parameters
    ----------
    pattern
        Words separated by spaces; `.` is any word, `{river|sea}` one of these and `{^river|sea}` any but these, `( | )`
        groups and alternatives, and `*`, `+`, `?`, `{2}`, `{2,4}` directly after one of them repeat it. A backslash
        before a sign makes it part of a word: `\.` is the full stop.

    Examples
    --------
    >>> from undertow.constraints import Matches
    >>> Matches("the ( old | wide )* {river|sea} .*").holds("the old wide sea is deep".split())
    True
    """

    def __init__(self, pattern: str) -> None:
        if not isinstance(pattern, str):
            raise InputError(f"Matches: the pattern is {short(pattern)}: give a string of words and signs.")
        super().__init__(f"Matches({pattern!r})", parse(pattern))


# --- checks of what was given ---------------------------------------------------------------------------


def _items(who: str, given: tuple[Any, ...]) -> list[tuple[str, ...]]:
    """Words and phrases as tuples of words; lists and sets of them are taken apart."""
    items: list[tuple[str, ...]] = []
    for item in given:
        if isinstance(item, str):
            if not item.split():
                raise InputError(f"{who}: {short(item)} holds no word: give at least one.")
            items.append(tuple(item.split()))
        elif isinstance(item, Iterable) and not isinstance(item, bytes):
            inner = sorted(item) if isinstance(item, set | frozenset) else item
            items += _items(who, tuple(inner))
        else:
            raise InputError(f"{who}: {short(item)} is not a word: give strings.")
    if not items:
        raise InputError(f"{who} names no word: give at least one.")
    return items


def _joined(who: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(word for item in _items(who, given) for word in item)


def _single_words(who: str, given: Any) -> frozenset[str]:
    items = _items(who, (given,))
    for item in items:
        if len(item) > 1:
            raise InputError(f"{who}: {' '.join(item)!r} is a phrase: give single words.")
    return frozenset(item[0] for item in items)


def _range(who: str, low: Any, high: Any) -> tuple[int, int | None]:
    for value in (low,) if high is None else (low, high):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
            raise InputError(f"{who}: {short(value)} must be a whole number, at least 0.")
    if high is not None and high < low:
        raise InputError(f"{who}: the largest number {high} is less than the least, {low}: exchange them.")
    return int(low), None if high is None else int(high)


def _shown(items: list[tuple[str, ...]]) -> str:
    return ", ".join(repr(" ".join(item)) for item in items)
