"""How a word of labelled text is looked up in the vocabulary of a model: its tokenizer's spelling, and other casings.

Labelled text and the text of a model are often spelled differently. So tokens are first respelled as the model's
tokenizer would have written them: `3.5` as `NUM`, `-LRB-` as `(`, in lower case if it lowers.

The model often knows an unseen word under another spelling: `Great` at the start of a sentence, `GREAT`, `#great` and
`greaaat` are `great`. Two ways to look for it:

    "known"     if the word is not in the vocabulary: in lower case, with one capital, in capitals; then without
                leading # and @; then with its runs of three or more equal letters cut to two, and to one
    "frequent"  as "known"; and a word that begins with a capital is the most frequent of itself, its lower case and
                the same with one capital, so that it is the same word wherever it stands in the sentence
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from undertow.errors import InputError
from undertow.text.casing import most_frequent_casing
from undertow.text.tokenizer import Tokenizer
from undertow.text.vocabulary import Vocabulary

CASINGS = ("known", "frequent")
_MARKS = re.compile(r"^[#@]+")
_PENN = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}", "``": "“", "''": "”"}
_LONG_RUNS = re.compile(r"(.)\1{2,}")


def check_casing(casing: object) -> None:
    """Refuse what is not one of `CASINGS` or None."""
    if casing is not None and casing not in CASINGS:
        raise InputError(f'casing={casing!r} must be "known", "frequent", or None for words as they are spelled.')


def known_spelling(word: str, vocabulary: Vocabulary, casing: str) -> str:
    """The spelling under which the vocabulary knows a word, or the word itself if it knows none."""
    if casing == "frequent" and (found := most_frequent_casing(word, vocabulary)) is not None:
        return found
    return next((form for form in _spellings(word) if form in vocabulary), word)


def _spellings(word: str) -> Iterator[str]:
    yield word
    yield from _cased(word)
    bare = _MARKS.sub("", word)
    for form in (bare, _LONG_RUNS.sub(r"\1\1", bare), _LONG_RUNS.sub(r"\1", bare)):
        if form and form != word:
            yield form
            yield from _cased(form)


def _cased(word: str) -> tuple[str, str, str]:
    return word.lower(), word.capitalize(), word.upper()


def word_rule(described: dict[str, Any] | None) -> Tokenizer | None:
    """The tokenizer that a model or corpus describes if it is undertow's words rule, else None."""
    own = described
    if not own or own.get("rule") != "words":
        return None
    return Tokenizer(lower=own["lower"], numbers=own["numbers"], hyphens=own["hyphens"], sentences="lines")


def respelled(token: str, vocabulary: Vocabulary, rule: Tokenizer, *, pieces: bool) -> list[str]:
    """A token as the rule would have written it: itself if that is known, or its pieces if they are wanted."""
    if token in vocabulary:
        return [token]
    plain = _PENN.get(token, token).replace("’", "'")
    plain = plain.lower() if rule.lower else plain
    if plain in vocabulary:
        return [plain]
    parts = [t for sentence in rule(plain) for t in sentence]
    if len(parts) == 1 or (pieces and any(map(_has_substance, parts))):
        return parts
    return [token]  # an unknown word


def _has_substance(piece: str) -> bool:
    return any(map(str.isalnum, piece))


def head(pieces: list[str]) -> int:
    """Index of the head of a split token: the last piece with a letter or digit, `timing` of `spike-timing-`."""
    for i in range(len(pieces) - 1, 0, -1):
        if _has_substance(pieces[i]):
            return i
    return 0
