"""Spelling features of a word and its neighbours, as lexicalized taggers use them.

Of the word itself: the word, its lower case, its shape (`Xxxx`, `dd-d`) in full and with runs cut to one, its first and
last 1 to 4 letters, and whether it has a digit, a hyphen, a capital at the start or inside, or no letter. Of the words
within the window: the lower case, the short shape and the last three letters. A position outside the sentence has a
feature of its own.
"""

from __future__ import annotations

import re

_RUNS = re.compile(r"(.)\1+")


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
