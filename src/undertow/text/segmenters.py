"""Languages written without spaces: words by jieba, PyThaiNLP or ICU, which are optional.

A `Tokenizer` with one of these rules splits a line into sentences (after 。！？ and ! ? …; ICU by its own rules), asks
the library for the words of each, and drops white space. Numbers and lower case follow its options.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import missing_extra

# rule -> module, distribution, and what it is for
LIBRARIES = {
    "jieba": ("jieba", "jieba", "Chinese"),
    "pythainlp": ("pythainlp", "pythainlp", "Thai"),
    "icu": ("icu", "PyICU", "Chinese, Japanese, Thai, Lao, Khmer and Burmese"),
}
SENTENCE = re.compile(r"[^。！？!?…]*(?:[。！？!?…]+[”’」』）]*|$)")
NUMBER = re.compile(r"[\d.,]*\d[\d.,]*")
# Han, kana, Thai, Lao, Burmese, Khmer: no spaces between words. A run of more is a clause, not a word
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]{7,}")


class UnsplitTextWarning(UserWarning):
    """Text of a language without spaces was split at spaces and punctuation: its clauses are taken for words."""


def segment(rule: str, line: str, *, split_sentences: bool) -> Iterator[list[str]]:
    """The sentences of a line as lists of words, by the library of this rule."""
    words = _words(rule)
    for sentence in _sentences(rule, line) if split_sentences else [line]:
        found = [word.strip() for word in words(sentence)]
        yield [word for word in found if word]


def library_of(rule: str) -> str | None:
    """Name and version of the library of a rule, for a description; None for the built-in rules.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    if rule not in LIBRARIES:
        return None
    from importlib.metadata import version

    module, distribution, _ = LIBRARIES[rule]
    _load(rule, module)
    return f"{distribution} {version(distribution)}"


class Clauses:
    """Words that hold whole clauses of a language without spaces, counted while a text is tokenized."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self.example = ""

    def add(self, types: Sequence[bytes], counts: NDArray[np.int64]) -> None:
        """Look at the words of a piece of text."""
        for i, word in enumerate(types):
            if len(word) >= 21 and not word.isascii() and UNSPACED.search(text := word.decode("utf-8")):
                self.n_bytes += len(word) * int(counts[i])
                self.example = self.example or text

    def warn(self, total: int, stacklevel: int) -> None:
        """Warn if they are much of the text, which has `total` bytes."""
        if self.n_bytes <= 0.1 * total:
            return
        shown = self.example if len(self.example) <= 12 else f"{self.example[:12]}…"
        warnings.warn(
            f"{self.n_bytes / total:.0%} of the text has no spaces between words, and clauses such as {shown} were "
            "taken for words: choose tokenizer='jieba', 'pythainlp' or 'icu', or a function (--tokenizer).",
            UnsplitTextWarning,
            stacklevel=stacklevel + 1,
        )


def _load(rule: str, module: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old syntax and old imports inside the libraries
            return importlib.import_module(module)
    except ImportError:
        raise missing_extra(
            f"The tokenizer {rule} needs {LIBRARIES[rule][1]}, for {LIBRARIES[rule][2]}", rule
        ) from None


@cache
def _words(rule: str) -> Callable[[str], Iterable[str]]:
    """The function of a library from text to words, white space included."""
    library = _load(rule, LIBRARIES[rule][0])
    if rule == "jieba":
        import logging

        library.setLogLevel(logging.WARNING)  # it says on standard error that it reads its dictionary
        return library.cut  # type: ignore[no-any-return]
    if rule == "pythainlp":
        word_tokenize = importlib.import_module("pythainlp.tokenize").word_tokenize
        return lambda text: word_tokenize(text, engine="newmm", keep_whitespace=False)
    breaks = library.BreakIterator.createWordInstance(library.Locale.getRoot())
    return lambda text: _pieces(library, breaks, text)


def _sentences(rule: str, line: str) -> Iterable[str]:
    if rule != "icu":
        return (found.group() for found in SENTENCE.finditer(line) if found.group())
    library = _load(rule, "icu")
    return _pieces(library, library.BreakIterator.createSentenceInstance(library.Locale.getRoot()), line)


def _pieces(library: Any, breaks: Any, text: str) -> Iterator[str]:
    """What stands between the boundaries that ICU finds, which counts UTF-16 units."""
    units = library.UnicodeString(text)
    breaks.setText(units)
    start = 0
    for stop in breaks:
        yield str(units[start:stop])
        start = stop
