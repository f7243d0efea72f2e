"""Spelling features of a word and its neighbours, as lexicalized taggers use them.

Of the word itself: the word, its lower case, its shape (`Xxxx`, `dd-d`) in full and with runs cut to one, its first and
last 1 to 4 letters, and whether it has a digit, a hyphen, a capital at the start or inside, or no letter. Of the words
within the window: the lower case, the short shape and the last three letters. A position outside the sentence has a
feature of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_RUNS = re.compile(r"(.)\1+")
MAX_CACHED = 500_000


class WordFeatures:
    """Feature names of tokens with a window of so many words to each side; the features of a word are cached."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._own: dict[str, list[str]] = {}
        self._neighbour: dict[str, list[str]] = {}

    def __call__(self, tokens: Sequence[str]) -> list[list[str]]:
        """For each token the names of its features; their value is 1."""
        if len(self._own) > MAX_CACHED:  # the cache must not grow without limit
            self._own.clear()
            self._neighbour.clear()
        out = []
        for i, token in enumerate(tokens):
            names = ["bias", *self._of(token)]
            for offset in range(-self.window, self.window + 1):
                if offset:
                    at = i + offset
                    names += [f"{offset}:{name}" for name in self._near(tokens[at] if 0 <= at < len(tokens) else "")]
            out.append(names)
        return out

    def _of(self, word: str) -> list[str]:
        found = self._own.get(word)
        if found is None:
            found = self._own[word] = own_features(word)
        return found

    def _near(self, word: str) -> list[str]:
        found = self._neighbour.get(word)
        if found is None:
            found = self._neighbour[word] = neighbour_features(word)
        return found


def own_features(word: str) -> list[str]:
    full = shape(word)
    names = [f"w={word}", f"l={word.lower()}", f"shape={full}", f"short={shorten(full)}"]
    # a word of three letters has no prefix of four: the whole word is a feature already
    for n in range(1, min(4, len(word)) + 1):
        names += [f"p{n}={word[:n]}", f"s{n}={word[-n:]}"]
    flags = {
        "digit": any(c.isdigit() for c in word),
        "hyphen": "-" in word,
        "capital": word[:1].isupper(),
        "capital inside": any(c.isupper() for c in word[1:]),
        "no letter": not any(c.isalpha() for c in word),
    }
    return names + [name for name, is_there in flags.items() if is_there]


def neighbour_features(word: str) -> list[str]:
    """Features of a neighbour; the empty word is a position outside the sentence."""
    if not word:
        return ["outside"]
    return [f"l={word.lower()}", f"short={shorten(shape(word))}", f"s3={word[-3:]}"]


def shape(word: str) -> str:
    """Capitals as X, other letters as x, digits as d, all else as it is."""
    return "".join("X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in word)


def shorten(full: str) -> str:
    return _RUNS.sub(r"\1", full)
