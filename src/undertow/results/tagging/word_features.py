"""Spelling features of a word, of its neighbors and of the two together, as lexicalized taggers use them.

Of the word itself: the word, its lower case, its shape (`Xxxx`, `dd-d`) in full and with runs cut to one, its first and
last 1 to 4 letters, and whether it has a digit, a hyphen, a capital at the start or inside, or no letter. Of the words
within the window: the lower case, the short shape and the last three letters. A position outside the sentence has a
feature of its own.

Joined: the lower cases of two words within one place of the token, and the short shapes of two or three. A gene or a
disease is often told by neither word alone.

Where the tags mark spans, more of the word's letters: its first and last 5 and 6, the runs of 3 and 4 in it, what
stands between hyphens and slashes, its form with all digits equal, its length, and whether it is all capitals, a Roman
number or the name of a Greek letter. Parts of speech are not read so: a tagger of web text then errs more in biology.
"""

from __future__ import annotations

import re
from typing import NamedTuple

AFFIXES, LONG_AFFIXES = (1, 2, 3, 4), (5, 6)  # letters
RUN_LENGTHS = (3, 4)  # of letters inside a word
LONGEST = 40  # letters of a word whose runs are read: more are web addresses
LENGTHS = 10  # longer words are of one length
OUTSIDE = ""  # the word at a position outside the sentence
_RUNS = re.compile(r"(.)\1+")
_DIGITS = re.compile(r"\d")
_DIVIDERS = re.compile(r"[-/]")
_ROMAN = re.compile(r"[IVX]+")
_GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi "
    "psi omega".split()
)


class Template(NamedTuple):
    """A joined feature: what is read of the words at these places, the token's own being 0."""

    name: str
    places: tuple[int, ...]
    of_shape: bool  # of the short shape, else of the lower case


TEMPLATES = (
    Template("-1,0:l=", (-1, 0), False),
    Template("0,1:l=", (0, 1), False),
    Template("-1,1:l=", (-1, 1), False),
    Template("-1,0:short=", (-1, 0), True),
    Template("0,1:short=", (0, 1), True),
    Template("-1,0,1:short=", (-1, 0, 1), True),
)


def own_features(word: str) -> list[str]:
    full = shape(word)
    names = [f"w={word}", f"l={word.lower()}", f"shape={full}", f"short={shorten(full)}", *_affixes(word, AFFIXES)]
    flags = {
        "digit": any(c.isdigit() for c in word),
        "hyphen": "-" in word,
        "capital": word[:1].isupper(),
        "capital inside": any(c.isupper() for c in word[1:]),
        "no letter": not any(c.isalpha() for c in word),
    }
    return names + [name for name, is_there in flags.items() if is_there]


def letter_features(word: str) -> list[str]:
    """What is also read of a word where the tags mark spans."""
    low = word.lower()
    bounded = f"^{low[:LONGEST]}$"
    runs = [bounded[i : i + n] for n in RUN_LENGTHS for i in range(len(bounded) - n + 1)]
    names = [f"length={min(len(word), LENGTHS)}", *_affixes(word, LONG_AFFIXES)]
    names += [f"run={run}" for run in dict.fromkeys(runs)]
    if _DIGITS.search(low):
        names.append(f"digits={_DIGITS.sub('0', low)}")
    pieces = [piece for piece in _DIVIDERS.split(low) if piece]
    if len(pieces) > 1:
        names += [f"first={pieces[0]}", f"last={pieces[-1]}", *(f"piece={piece}" for piece in dict.fromkeys(pieces))]
    flags = {
        "capitals": word.isupper(),
        "roman": _ROMAN.fullmatch(word) is not None,
        "greek": not _GREEK.isdisjoint(pieces),
    }
    return names + [name for name, is_there in flags.items() if is_there]


def _affixes(word: str, lengths: tuple[int, ...]) -> list[str]:
    """First and last letters; a word of three letters has no prefix of four: the whole word is a feature already."""
    return [name for n in lengths if n <= len(word) for name in (f"p{n}={word[:n]}", f"s{n}={word[-n:]}")]


def neighbor_features(word: str) -> list[str]:
    """Features of a neighbor; the empty word is a position outside the sentence."""
    if not word:
        return ["outside"]
    return [f"l={word.lower()}", f"short={shorten(shape(word))}", f"s3={word[-3:]}"]


def shape(word: str) -> str:
    """Capitals as X, other letters as x, digits as d, all else as it is."""
    return "".join("X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in word)


def shorten(full: str) -> str:
    return _RUNS.sub(r"\1", full)
