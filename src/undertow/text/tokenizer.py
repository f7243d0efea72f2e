"""The tokenizer: from text to tokens by fixed rules.

**The `words` rule.** Text is read line by line; a line end always ends a sentence.

1. White space and control characters separate tokens (also U+200B and U+FEFF).
2. *Word*: a run of letters, marks and digits of any script. An apostrophe or underscore inside it belongs to it
   (`O'Brien`, `snake_case`); a full stop or comma only between digits (`3.14`, `1,000`, `E13.5`); a hyphen only
   with `hyphens="keep"`, otherwise it is a token of its own (`spike - timing`).
3. *Number*: a run of rule 2 without a letter becomes the class `NUM` (`numbers="keep"` leaves it).
4. *Contractions* are split as in the Penn Treebank: `do n't`, `it 's`, `we 're`, `I 'm`, `they 'll`, `he 'd`, `I 've`.
5. *Full stops that belong to a word*: two or more single letters with their stops (`U.S.`, `e.g.`), one capital
   letter (`J.`), the words of `ABBREVIATIONS`, and those of `NUMERIC_ABBREVIATIONS` before a number (`No. 5`).
6. Any other character is a token by itself; `..`, `...` and longer become `...`; `--` and longer become `--`.
   The curly apostrophe ’ becomes '.
7. `lower=True` lowers every code point whose lower case is a single code point.
8. *Sentences* (`sentences="split"`): one ends after `.` `!` `?` `…` (and closing quotes or brackets) when white space
   and then a capital, a caseless letter, a digit or an opening quote or bracket follow; after `。！？` at once. A full
   stop of rule 5 ends no sentence. `sentences="lines"` leaves each line whole.

9. *Symbols* (`symbols="whole"`): web addresses (`https://…`, `http://…`, `ftp://…`, `www.…`) without the punctuation
   after them, hashtags and mentions (`#open_data`, `@ada`: letters, digits and underscores, a letter among them, not
   directly after a word), and emoji of several code points (flags, skin tones, joined ones) stay whole.
   `symbols="split"` takes them apart by the other rules.

**The `spaces` rule** is for pretokenized text: tokens are separated by white space, one sentence per line.

**The rules `jieba`, `pythainlp` and `icu`** ask these libraries (`segmenters`), for languages written without spaces.

**Any callable** `line -> tokens`, or `line -> list of token lists`, can be used instead.
"""

from __future__ import annotations

import itertools
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError, short
from undertow.text.segmenters import LIBRARIES, NUMBER, library_of, segment
from undertow.text.vocabulary import check_word

ABBREVIATIONS = tuple(
    """mr mrs ms dr prof st jr sr rev gen capt lt sgt gov sen rep hon messrs mme mlle mt ave blvd inc ltd corp dept univ
    fig figs eqn suppl al etc vs cf approx ca viz jan feb apr aug sept oct nov dec""".split()
)
NUMERIC_ABBREVIATIONS = tuple(
    "no nos p pp vol vols ch art sec sect para eq eqs ref refs ex col jun jul mar sep".split()
)

RULE_VERSION = 2  # increased when the same options give other tokens; 1 had no symbols
RULES = ("words", "spaces", *LIBRARIES)

TokenFn = Callable[[str], Iterable[Any]]


class TokenizedText(NamedTuple):
    """The tokens of a piece of text, numbered by first appearance in it."""

    types: list[bytes]  # distinct tokens
    counts: NDArray[np.int64]  # of each type
    ids: NDArray[np.uint32]  # of each token, into types
    lengths: NDArray[np.int64]  # tokens of each sentence


@dataclass(frozen=True)
class Tokenizer:
    """The built-in tokenizer; its rules are in the docstring of this module.

    Parameters
    ----------
    rule
        "words", or "spaces" for pretokenized text: tokens between white space, one sentence per line. For languages
        without spaces "jieba" (Chinese), "pythainlp" (Thai) or "icu" (these and others), each an extra of its own.
    lower
        Lowercase the text.
    numbers
        "class" replaces numbers by NUM, "keep" leaves them.
    hyphens
        "split" splits words at hyphens, "keep" leaves them.
    sentences
        "split" splits lines into sentences, "lines" makes each line one sentence.
    symbols
        "whole" keeps web addresses, hashtags, mentions and emoji sequences, "split" takes them apart (words rule).

    Raises
    ------
    InputError
        If an option has another value.

    Examples
    --------
    >>> from undertow.text.tokenizer import Tokenizer
    >>> Tokenizer()("It's 3 km to St. Ives. We don't walk.")
    [['It', "'s", 'NUM', 'km', 'to', 'St.', 'Ives', '.'], ['We', 'do', "n't", 'walk', '.']]
    """

    rule: str = "words"
    lower: bool = False
    numbers: str = "class"
    hyphens: str = "split"
    sentences: str = "split"
    symbols: str = "whole"

    def __post_init__(self) -> None:
        allowed = {
            "rule": RULES,
            "numbers": ("class", "keep"),
            "hyphens": ("split", "keep"),
            "sentences": ("split", "lines"),
            "symbols": ("whole", "split"),
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise InputError(f"Tokenizer {name}={short(getattr(self, name))} must be one of {', '.join(values)}.")
        if not isinstance(self.lower, bool):
            raise InputError(f"Tokenizer lower={short(self.lower)} must be True or False.")

    def describe(self) -> dict[str, Any]:
        """The options and the version of the rules and of the library, as they are saved in a manifest.

        Returns
        -------
        dict
        """
        library = library_of(self.rule)
        return {**asdict(self), "version": RULE_VERSION, **({} if library is None else {"library": library})}

    def tokenize(self, data: bytes, *, tokenized: bool = False, keep_empty: bool = False) -> TokenizedText:
        """Tokenize a piece of text.

        Parameters
        ----------
        data
            The text as valid UTF-8.
        tokenized
            The text is pretokenized: split it at white space, whatever `rule` is.
        keep_empty
            Keep empty lines of pretokenized text as sentences.

        Returns
        -------
        TokenizedText
            The tokens, numbered by their first appearance.
        """
        if self.rule in LIBRARIES and not tokenized:
            return number_sentences(self._segmented(data.decode("utf-8")))
        return _number(*self._spans(data, tokenized, keep_empty))

    def __call__(self, text: str) -> list[list[str]]:
        """Tokenize a text.

        Parameters
        ----------
        text
            Any string.

        Returns
        -------
        list of list of str
            The tokens of each sentence.
        """
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError as e:
            raise InputError(f"The text holds half a surrogate pair at character {e.start}: it is not text.") from None
        if self.rule in LIBRARIES:
            return list(self._segmented(text))
        out, bounds, lengths = self._spans(data, False, False)
        raw = out.tobytes()
        tokens = [raw[a:b].decode("utf-8") for a, b in itertools.pairwise(bounds.tolist())]
        ends = np.cumsum(lengths).tolist()
        return [tokens[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)]

    def _segmented(self, text: str) -> Iterator[list[str]]:
        """The sentences by a library, with the options of this tokenizer."""
        for line in re.split(r"[\r\n]", text):
            for words in segment(self.rule, line, split_sentences=self.sentences == "split"):
                # white space and control characters inside a word would make it no word of a vocabulary
                pieces = [piece for word in words for piece in re.split(r"[\s\x00-\x1f\x7f-\x9f]+", word) if piece]
                if self.numbers == "class":
                    pieces = ["NUM" if NUMBER.fullmatch(piece) else piece for piece in pieces]
                if self.lower:
                    pieces = [piece if piece == "NUM" else piece.lower() for piece in pieces]
                if pieces:
                    yield pieces

    def _spans(self, data: bytes, tokenized: bool, keep_empty: bool) -> tuple[Any, Any, Any]:
        from undertow.text import tokenizer_kernel as kernel

        array = np.frombuffer(data, dtype=np.uint8)
        table, lower_table = kernel.character_tables()
        spans: tuple[Any, Any, Any]
        if tokenized or self.rule == "spaces":
            spans = kernel.spaces_rule(array, lower_table, self.lower, keep_empty)
        else:
            spans = kernel.words_rule(
                array,
                table,
                lower_table,
                kernel.pack_words(ABBREVIATIONS),
                kernel.pack_words(NUMERIC_ABBREVIATIONS),
                self.lower,
                self.numbers == "class",
                self.hyphens == "keep",
                self.sentences == "split",
                self.symbols == "whole",
            )
        return spans


@dataclass(frozen=True)
class CallableTokenizer:
    """A function of the user as a tokenizer: one call per line, and each token is checked."""

    function: TokenFn

    def describe(self) -> dict[str, Any]:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return {"rule": "callable", "name": f"{getattr(self.function, '__module__', '?')}.{name}"}

    def tokenize(self, data: bytes, *, tokenized: bool = False, keep_empty: bool = False) -> TokenizedText:
        if tokenized:
            return Tokenizer(rule="spaces").tokenize(data, keep_empty=keep_empty)
        sentences = [s for line in data.decode("utf-8").split("\n") for s in self._line(line)]
        return number_sentences(sentences)

    def _line(self, line: str) -> list[Any]:
        produced = list(self.function(line))
        return [produced] if produced and isinstance(produced[0], str) else produced


def check_rule(described: Any) -> None:
    """Raise InputError unless this is the description of a tokenizer as `describe` returns it, or None.

    Otherwise a tokenizer with a misspelt option would be read as one without it, and words would be looked up wrongly.
    """
    if described is None:
        return
    if isinstance(described, dict) and described.get("rule") == "callable":
        if set(described) == {"rule", "name"} and isinstance(described["name"], str):
            return
    elif isinstance(described, dict):
        options = tokenizer_options(described)
        version = described.get("version")
        if type(version) is int and version > RULE_VERSION:
            raise InputError(f"The text was tokenized by version {short(version)} of the rules: upgrade undertow.")
        complete = set(options) == set(asdict(Tokenizer()))
        library = described.get("library")
        if type(version) is int and version in (1, RULE_VERSION) and complete:
            made = Tokenizer(**options)
            if (library is None) == (made.rule not in LIBRARIES) and isinstance(library, str | None):
                return
    raise InputError(f"The tokenizer {short(described, 200)} is not one that undertow writes.")


def tokenizer_from(described: Any) -> Tokenizer:
    """The tokenizer that `describe` described; for text of unknown origin (None) the words rule that leaves numbers.

    Raises
    ------
    InputError
        If the text was split by a function, which no description holds.
    MissingExtraError
        If it was split by a library that is not installed.
    """
    check_rule(described)
    if described is None:
        return Tokenizer(numbers="keep")
    if described["rule"] == "callable":
        raise InputError(
            f"The model's text was split by the function {short(described['name'])}, which is not saved with it: "
            "split new text with it, and give token lists."
        )
    found = Tokenizer(**tokenizer_options(described))
    there = library_of(found.rule)
    if there != described.get("library"):
        warnings.warn(
            f"The model's text was split by {described['library']}, and {there} is installed, which may split it "
            f"otherwise: install {described['library']}.",
            TokenizerWarning,
            stacklevel=2,
        )
    return found


def tokenizer_options(described: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a `Tokenizer` in its description; those of version 1 took symbols apart."""
    options = {name: value for name, value in described.items() if name not in ("version", "library")}
    return {**options, "symbols": "split"} if described.get("version") == 1 and "symbols" not in options else options


class TokenizerWarning(UserWarning):
    """Text may be split in another way than the text of the model."""


def number_sentences(sentences: Any) -> TokenizedText:
    """Token lists to numbered tokens, with each new word checked once; empty sentences are dropped."""
    types: dict[str, int] = {}
    ids: list[int] = []
    lengths: list[int] = []
    for number, tokens in enumerate(checked_sentences(sentences)):
        for position, token in enumerate(tokens):
            k = types.get(token)
            if k is None:
                check_word(token, f"token {position} of sentence {number}")
                # a str subclass (NumPy's) is stored as plain text
                k = types.setdefault(str(token), len(types))
            ids.append(k)
        if tokens:
            lengths.append(len(tokens))
    id_array = np.array(ids, dtype=np.uint32)
    return TokenizedText(
        [t.encode("utf-8") for t in types],
        np.bincount(id_array, minlength=len(types)).astype(np.int64),
        id_array,
        np.array(lengths, dtype=np.int64),
    )


def checked_sentences(X: Any) -> Iterator[list[str]]:
    """Sentences as lists of strings, refusing what only looks like them, above all plain strings.

    A Doc or Span of spaCy is a sentence too; its tokens of white space are left out.
    """
    if isinstance(X, str | bytes | Mapping) or not isinstance(X, Iterable) or is_spacy_text(X):
        raise InputError(
            f"Text must be a Corpus or an iterable of token lists, not {type(X).__name__}: "
            'give for example [["the", "river"], ["the", "bank"]].'
        )
    for i, sentence in enumerate(X):
        if is_spacy_text(sentence):
            yield [token.text for token in sentence if not token.is_space]
            continue
        if isinstance(sentence, str | bytes):
            raise InputError(
                f"Sentence {i} is a string, {short(sentence)}, not a list of tokens: "
                "split it first, for example with .split() or undertow's tokenizer."
            )
        if isinstance(sentence, Mapping | Set) or not isinstance(sentence, Iterable):
            raise InputError(
                f"Sentence {i} is of type {type(sentence).__name__}, not a list of tokens: give a list of strings."
            )
        tokens = list(sentence)
        for token in tokens:
            if not isinstance(token, str):
                raise InputError(
                    f"Sentence {i} has the token {short(token)} of type {type(token).__name__}: "
                    "every token must be a string; ids become words by vocabulary.decode(ids)."
                )
        yield tokens


def is_spacy_text(value: Any) -> bool:
    """Whether this is a Doc or Span of spaCy, which is not imported for that: without it there are none."""
    tokens = sys.modules.get("spacy.tokens")
    return tokens is not None and isinstance(value, (tokens.Doc, tokens.Span))


def _number(out: NDArray[np.uint8], bounds: NDArray[np.int64], lengths: NDArray[np.int64]) -> TokenizedText:
    from undertow.text.token_types import intern_tokens

    ids, pool, edges, counts = intern_tokens(out, bounds)
    raw = pool.tobytes()
    types = [raw[a:b] for a, b in itertools.pairwise(edges.tolist())]
    return TokenizedText(types, counts, ids, lengths.copy())


def as_tokenizer(
    tokenizer: Tokenizer | CallableTokenizer | TokenFn | str | None,
) -> Tokenizer | CallableTokenizer:
    """The tokenizer for an argument: None is the words rule, a string names a rule, a function is called per line."""
    if tokenizer is None:
        return Tokenizer()
    if isinstance(tokenizer, (Tokenizer, CallableTokenizer)):
        return tokenizer
    if isinstance(tokenizer, str):
        return Tokenizer(rule=tokenizer)
    if callable(tokenizer):
        return CallableTokenizer(tokenizer)
    raise InputError(f"tokenizer={tokenizer!r} must be a Tokenizer, a function, or one of {', '.join(RULES)}.")
