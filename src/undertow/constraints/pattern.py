"""The syntax of `Matches`: a regular expression whose letters are words.

    pattern  = sequence ( "|" sequence )*
    sequence = ( atom times? )*
    atom     = word                  itself
             | "."                   any one word
             | "{" word "|" … "}"    one of these words
             | "{^" word "|" … "}"   any word but these
             | "(" pattern ")"
    times    = "*" | "+" | "?" | "{" number "}" | "{" number "," number? "}"     directly after the atom

Words are separated by spaces. `( ) { } | * + ? \\` are signs, and a full stop that stands alone; a backslash makes any
character part of a word, so that `\\.` is the full stop as a word and `U.S.` needs none.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from undertow.constraints.expressions import ANY, Choice, Expression, Repeat, Sequence, Words
from undertow.errors import InputError, short

_TOKEN = re.compile(r"(?P<space>\s+)|(?P<sign>[(){}|*+?])|(?P<word>(?:\\.|[^\s(){}|*+?\\])+)", re.DOTALL)
_TIMES = re.compile(r"\{(\d{1,6})(?:(,)(\d{1,6})?)?\}")
MOST_DEPTH = 100  # groups within groups


class _Token(NamedTuple):
    text: str
    at: int
    is_sign: bool


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.depth = pattern, 0, 0

    def fail(self, what: str, at: int | None = None) -> InputError:
        at = self.at if at is None else at
        shown = self.pattern[:at] + "⟨here⟩" + self.pattern[at:]
        return InputError(f"Matches: {what} in {short(shown, 120)}; write \\ before a sign that is meant as a word.")

    def peek(self) -> _Token | None:
        """The next token; spaces are skipped."""
        at = self.at
        while at < len(self.pattern):
            found = _TOKEN.match(self.pattern, at)
            if found is None:
                raise self.fail("a backslash with nothing after it", at)
            if found.lastgroup != "space":
                return _Token(found[0], at, found.lastgroup == "sign")
            at = found.end()
        return None

    def take(self, token: _Token) -> None:
        self.at = token.at + len(token.text)

    def choice(self) -> Expression:
        parts = [self.sequence()]
        while (token := self.peek()) is not None and token.text == "|" and token.is_sign:
            self.take(token)
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def sequence(self) -> Expression:
        parts: list[Expression] = []
        while (token := self.peek()) is not None and not (token.is_sign and token.text in "|)"):
            self.take(token)
            atom = self.atom(token)
            while (repeated := self.times(atom)) is not None:
                atom = repeated
            parts.append(atom)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def atom(self, token: _Token) -> Expression:
        if not token.is_sign:
            return ANY if token.text == "." else Words(frozenset([unescaped(token.text)]))
        if token.text == "{":
            return self.word_set(token)
        if token.text == "(":
            self.depth += 1
            if self.depth > MOST_DEPTH:
                raise self.fail(f"more than {MOST_DEPTH} brackets within brackets", token.at)
            inner = self.choice()
            closing = self.peek()
            if closing is None:
                raise self.fail("a ( that is not closed", token.at)
            self.take(closing)
            self.depth -= 1
            return inner
        raise self.fail(f"a {token.text} with nothing before it", token.at)

    def word_set(self, opening: _Token) -> Expression:
        negated, words = self.pattern.startswith("^", self.at), []
        self.at += negated
        while True:
            token = self.peek()
            if token is None or token.is_sign:
                raise self.fail("a { without words like {river|sea}", opening.at)
            words.append(unescaped(token.text))
            self.take(token)
            token = self.peek()
            if token is None or not token.is_sign or token.text not in "|}":
                raise self.fail("a { whose words are not separated by | and closed by }", opening.at)
            self.take(token)
            if token.text == "}":
                return Words(frozenset(words), negated)

    def times(self, atom: Expression) -> Expression | None:
        sign = self.pattern[self.at : self.at + 1]
        if sign in ("*", "+", "?"):
            self.at += 1
            return Repeat(atom, 1 if sign == "+" else 0, 1 if sign == "?" else None)
        found = _TIMES.match(self.pattern, self.at)
        if found is None:
            return None
        low = int(found[1])
        high = int(found[3]) if found[3] is not None else (None if found[2] else low)
        if high is not None and high < low:
            raise self.fail(f"{found[0]}, whose second number is less than the first,")
        self.at = found.end()
        return Repeat(atom, low, high)


def unescaped(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL)


def parse(pattern: str) -> Expression:
    """The expression that a pattern stands for."""
    reader = _Reader(pattern)
    found = reader.choice()
    left = reader.peek()
    if left is not None:
        raise reader.fail("a ) that was not opened", left.at)
    return found
