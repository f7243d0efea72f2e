"""Tags that mark spans: IOB1, IOB2 (BIO), BILOU (BIOES), how to tell them apart, and how to get from one to another.

    IOB2    B- begins every span, I- goes on                                BIO is another name for it
    IOB1    I- throughout; B- only where a span follows one of its own type
    BILOU   B- begins, I- goes on, L- ends, U- is a span of one token
    BIOES   the same with E- for L- and S- for U-

A tag is `O`, or a letter, a hyphen and the type (`B-creative-work`); the letter alone is a span without a type.

Reading never fails: like conlleval's, it takes any row of tags, and a tag that cannot go on a span begins one. For B, I
and O it gives conlleval's chunks; L, U, E and S end or fill spans as their letters say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from undertow.errors import InputError

OUTSIDE = "O"
SCHEMES = ("iob1", "iob2", "bilou", "bioes")
_ALIASES = {"bio": "iob2", "iobes": "bioes", "iob": "iob1"}
_CANONICAL = {"L": "E", "U": "S"}  # the letters of BILOU in those of BIOES


class Span(NamedTuple):
    """A span of tokens of a sentence.

    Attributes
    ----------
    type : str
        Its type; "" for none.
    start : int
        Its first token.
    end : int
        The token after its last.
    """

    type: str
    start: int
    end: int


def split_tag(tag: str) -> tuple[str, str]:
    """The letter (B, I, E, S, O) and the type of a tag; ("", tag) for a tag that marks no span."""
    letter, hyphen, type_ = tag.partition("-")
    if tag == OUTSIDE:
        return "O", ""
    if letter in ("B", "I", "L", "U", "E", "S") and bool(hyphen) == bool(type_):
        return _CANONICAL.get(letter, letter), type_
    return "", tag


def scheme_of(tags: Iterable[Sequence[str]]) -> str | None:
    """The scheme in which sentences of tags are written.

    Parameters
    ----------
    tags
        Tags of sentences.

    Returns
    -------
    str or None
        "iob1", "iob2", "bilou" or "bioes"; None if they mark no spans. With B, I and O alone it is IOB2 as long as
        every span begins with B.
    """
    letters: set[str] = set()
    is_iob1 = False
    for sentence in tags:
        before, before_type = "O", ""
        for tag in sentence:
            letter, type_ = split_tag(tag)
            if not letter:
                return None
            letters.add(tag[:1])
            is_iob1 |= letter == "I" and (before == "O" or type_ != before_type)
            before, before_type = letter, type_
    if letters <= {"O"}:
        return None
    if letters & set("LU"):
        return "bilou" if not letters & set("ES") else None
    if letters & set("ES"):
        return "bioes"
    return "iob1" if is_iob1 else "iob2"


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of a sentence.

    Parameters
    ----------
    tags
        Its tags, of any scheme, well-formed or not.

    Returns
    -------
    list of Span
        In order.

    Raises
    ------
    InputError
        If a tag marks no span.

    Examples
    --------
    >>> from undertow.results.tagging import convert, spans_of
    >>> spans_of(["B-PER", "I-PER", "O"])
    [Span(type='PER', start=0, end=2)]
    >>> convert([["B-PER", "I-PER", "O"]], "bioes")
    [['B-PER', 'E-PER', 'O']]
    """
    out: list[Span] = []
    start = -1  # of the open span; -1: none is open
    open_type = ""
    before = "O"
    for i, tag in enumerate(tags):
        letter, type_ = split_tag(tag)
        if not letter:
            raise InputError(f"The tag {tag!r} marks no span: span tags are O, or B-, I- and so on with a type.")
        goes_on = letter in ("I", "E") and before in ("B", "I") and type_ == open_type
        if start >= 0 and not goes_on:
            out.append(Span(open_type, start, i))
            start = -1
        if letter != "O" and not goes_on:
            start, open_type = i, type_
        before = letter
    if start >= 0:
        out.append(Span(open_type, start, len(tags)))
    return out


def tags_of(spans: Iterable[Span], n_tokens: int, scheme: str = "iob2") -> list[str]:
    """The tags of a sentence with the given spans.

    Parameters
    ----------
    spans
        Disjoint spans.
    n_tokens
        Length of the sentence.
    scheme
        "iob1", "iob2" (or "bio"), "bilou" or "bioes".

    Returns
    -------
    list of str
        A tag for each token.

    Raises
    ------
    InputError
        If spans overlap or lie outside the sentence, or there is no such scheme.
    """
    scheme = check_scheme(scheme)
    tags = [OUTSIDE] * n_tokens
    before = Span("", -1, -1)
    for span in sorted(spans, key=lambda s: s.start):
        if not before.end <= span.start < span.end <= n_tokens or span.start < 0:
            raise InputError(f"{span} overlaps {before} or lies outside the {n_tokens} tokens: give disjoint spans.")
        letters = _letters(span.end - span.start, scheme, touches=before.end == span.start and before.type == span.type)
        tags[span.start : span.end] = [f"{letter}-{span.type}" if span.type else letter for letter in letters]
        before = span
    return tags


def _letters(n: int, scheme: str, touches: bool) -> str:
    if scheme == "iob1":
        return ("B" if touches else "I") + "I" * (n - 1)
    if scheme == "iob2":
        return "B" + "I" * (n - 1)
    last, single = ("L", "U") if scheme == "bilou" else ("E", "S")
    return single if n == 1 else "B" + "I" * (n - 2) + last


def convert(tags: Iterable[Sequence[str]], scheme: str) -> list[list[str]]:
    """Write span tags in another scheme.

    Parameters
    ----------
    tags
        Tags of sentences, of any scheme.
    scheme
        "iob1", "iob2" (or "bio"), "bilou" or "bioes".

    Returns
    -------
    list of lists of str
        The same spans.

    Raises
    ------
    InputError
        If a tag marks no span, or there is no such scheme.
    """
    scheme = check_scheme(scheme)
    return [tags_of(spans_of(sentence), len(sentence), scheme) for sentence in tags]


def check_scheme(scheme: str) -> str:
    name = _ALIASES.get(str(scheme).lower(), str(scheme).lower())
    if name not in SCHEMES:
        raise InputError(f"The scheme {scheme!r} is unknown: choose one of {', '.join(SCHEMES)}.")
    return name
