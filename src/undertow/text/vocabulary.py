"""The vocabulary: word ↔ id, fixed once built. All later stages work on ids."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertow.errors import FormatError, InputError, short
from undertow.files import write_bytes
from undertow.text.word_classes import CLASSES, word_class

UNKNOWN = "<unk>"
MAX_WORDS = 2**31 - 1
MAX_TOKENS = 10**18  # of all words together: sums of counts, and of a few such sums, fit 8 bytes
SMALLEST_WITH_CLASSES = 4 * len(CLASSES)  # in a smaller vocabulary the classes would replace most words


class Vocabulary:
    """A fixed list of words with ids and counts.

    The ids are ordered: the unknown word, the boundary word if there is one, the classes of unknown words if there are
    any (see `word_classes`), then the other words by descending count. Ties are broken by code point, so that the same
    counts give the same ids everywhere.

    Parameters
    ----------
    words
        The words in the order of their ids.
    counts
        One count per word.
    boundary
        Whether the second word is the boundary word.
    n_classes
        The number of classes of unknown words, which follow it.

    Attributes
    ----------
    words : tuple of str
    counts : array of int64
        How often each word occurs in the text that the vocabulary was built from.

    Raises
    ------
    InputError
        If a word occurs twice, is empty or contains white space, or a count is invalid.

    Examples
    --------
    >>> from undertow import Vocabulary
    >>> vocabulary = Vocabulary.from_counts({"the": 5, "bank": 2, "river": 1}, size=3)
    >>> vocabulary.words, vocabulary.counts.tolist()
    (('<unk>', 'the', 'bank'), [1, 5, 2])
    >>> vocabulary.id("bank"), vocabulary.id("river"), "river" in vocabulary
    (2, 0, False)
    """

    __slots__ = ("_boundary", "_counts", "_ids", "_n_classes", "_words")

    def __init__(
        self,
        words: Sequence[str],
        counts: Sequence[int] | NDArray[np.int64],
        *,
        boundary: bool = False,
        n_classes: int = 0,
    ):
        self._words = tuple(words)
        self._counts = _whole_counts(counts)
        self._counts.flags.writeable = False
        self._boundary = boundary
        self._n_classes = n_classes
        n_special = self.n_special
        if len(self._words) < n_special or len(self._words) != len(self._counts):
            raise InputError(
                f"A vocabulary needs its {n_special} special words and one count for each of its "
                f"{len(self._words)} words, not {len(self._counts)} counts."
            )
        if len(self._words) > MAX_WORDS:
            raise InputError(f"A vocabulary holds at most {MAX_WORDS} words: raise the minimum count.")
        if self._counts.min() < 0:
            raise InputError("A word's count cannot be negative.")
        if self._counts.sum(dtype=np.float64) > MAX_TOKENS:
            raise InputError(f"The counts of the words sum to more than {MAX_TOKENS:.0e} tokens: no text is that long.")
        for position, word in enumerate(self._words):
            check_word(word, f"word {position} of the vocabulary")
        self._ids = {word: i for i, word in enumerate(self._words)}
        if len(self._ids) != len(self._words):
            twice = next(w for i, w in enumerate(self._words) if self._ids[w] != i)
            raise InputError(f"The word {short(twice)} occurs twice in the vocabulary: give each word once.")

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int] | Iterable[tuple[str, int]],
        *,
        size: int | None = None,
        min_count: int = 1,
        unknown: str = UNKNOWN,
        boundary: str | None = None,
        classes: bool = False,
    ) -> Vocabulary:
        """Choose the most frequent words.

        The counts are read once and never all held in memory. A word that is spelled like a special word is that
        special word, so that pretokenized corpora (with `<unk>` and `<eos>`, as WikiText) keep their meaning.

        Parameters
        ----------
        counts
            A mapping word → count, or pairs of words and counts.
        size
            The number of words to keep, special words included; None keeps all.
        min_count
            Drop words with smaller counts.
        unknown, boundary
            The special words; no boundary word if None.
        classes
            Map dropped words to classes by their spelling instead of the unknown word. Only classes that occur are
            kept, and none in a vocabulary of fewer than 52 words.

        Returns
        -------
        Vocabulary
            The counts of dropped words are added to the unknown word or the classes.

        Raises
        ------
        InputError
            If a count or an option is invalid.
        """
        specials = [unknown] if boundary is None else [unknown, boundary]
        if boundary == unknown:
            raise InputError(f"The boundary and the unknown word are both {short(unknown)}: give two names.")
        if size is not None and (not _is_count(size) or size <= len(specials)):
            beside = " and ".join(short(w) for w in specials)
            raise InputError(f"vocab_size={short(size)} leaves no place for a word besides {beside}: increase it.")
        if not _is_count(min_count) or min_count < 1:
            raise InputError(f"min_count={short(min_count)} must be a whole number, at least 1.")
        classes = classes and (size is None or size >= SMALLEST_WITH_CLASSES)
        n_tokens = n_boundary = 0
        left_out = _LeftOut()

        def candidates() -> Iterator[tuple[int, str]]:
            nonlocal n_tokens, n_boundary
            for word, given in counts.items() if isinstance(counts, Mapping) else counts:
                if not _is_count(given):
                    raise InputError(f"The count of the word {short(word)} is {short(given)}: give a whole number.")
                count = int(given)
                n_tokens += count
                if word in specials:
                    n_boundary += count if word == boundary else 0
                    continue
                if classes:
                    left_out.add(word, count)
                if count >= min_count and not (classes and word in CLASSES):
                    yield -count, word

        best = sorted(candidates()) if size is None else heapq.nsmallest(size - len(specials), candidates())
        ranked = [(word, -count) for count, word in best]
        n_classes = 0
        if classes:
            for word, count in ranked:
                left_out.add(word, -count, n_words=-1)
            # room for the classes is taken from the rarest words, which may add a class
            while size is not None and len(ranked) + len(specials) + left_out.n_classes() > size:
                left_out.add(*ranked.pop())
            by_class = left_out.totals()
            n_classes = len(by_class)
            ranked = by_class + ranked
        n_unknown = n_tokens - sum(c for _, c in ranked) - n_boundary
        first = [unknown] if boundary is None else [unknown, boundary]
        return cls(
            first + [w for w, _ in ranked],
            [n_unknown] + ([] if boundary is None else [n_boundary]) + [c for _, c in ranked],
            boundary=boundary is not None,
            n_classes=n_classes,
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The words in the order of their ids."""
        return self._words

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each word occurs in the text that the vocabulary was built from (read-only)."""
        return self._counts

    @property
    def unknown(self) -> str:
        """The unknown word."""
        return self._words[0]

    @property
    def unknown_id(self) -> int:
        """The id of the unknown word: 0."""
        return 0

    @property
    def boundary(self) -> str | None:
        """The boundary word, or None."""
        return self._words[1] if self._boundary else None

    @property
    def boundary_id(self) -> int | None:
        """The id of the boundary word (1), or None."""
        return 1 if self._boundary else None

    @property
    def n_classes(self) -> int:
        """The number of classes of unknown words; their ids follow the unknown and the boundary word."""
        return self._n_classes

    @property
    def n_special(self) -> int:
        """The number of special words (unknown, boundary, classes); words of the text have ids from here on."""
        return 1 + self._boundary + self._n_classes

    def writable(self, markers: bool = False) -> NDArray[np.bool_]:
        """Which words a model may list or sample: those that its training text had.

        Parameters
        ----------
        markers
            Whether the special words (unknown, boundary, classes), which are not readable words, are among them.

        Returns
        -------
        array of bool
            One for each word.
        """
        out: NDArray[np.bool_] = self._counts > 0
        if not markers:
            out[: self.n_special] = False
        return out

    @property
    def n_unknown(self) -> int:
        """The number of tokens that are outside the vocabulary: of the unknown word and the classes."""
        return int(self._counts.sum() - self._counts[self.n_special :].sum()) - (
            int(self._counts[1]) if self._boundary else 0
        )

    def fallback(self) -> NDArray[np.int64]:
        """For each word, the id that would replace it if it were unknown.

        Returns
        -------
        array of int64
            The id of its class or of the unknown word.
        """
        out = np.zeros(len(self), dtype=np.int64)
        if self._n_classes:
            get = self._ids.get
            out[:] = [get(word_class(w), 0) for w in self._words]
        out[: self.n_special] = np.arange(self.n_special)
        return out

    def id(self, word: str) -> int:
        """The id of a word.

        Parameters
        ----------
        word
            A word.

        Returns
        -------
        int
            If the word is not in the vocabulary, the id of its class or of the unknown word.
        """
        i = self._ids.get(word)
        if i is None:
            i = self._ids.get(word_class(word), 0) if self._n_classes else 0
        return i

    def encode(self, tokens: Iterable[str]) -> NDArray[np.uint32]:
        """The ids of words.

        Parameters
        ----------
        tokens
            Words.

        Returns
        -------
        array of uint32
        """
        if self._n_classes:
            return np.array([self.id(t) for t in tokens], dtype=np.uint32)
        get = self._ids.get
        return np.array([get(t, 0) for t in tokens], dtype=np.uint32)

    def decode(self, ids: Iterable[int] | NDArray[np.uint32]) -> list[str]:
        """The words of ids.

        Parameters
        ----------
        ids
            Ids of this vocabulary.

        Returns
        -------
        list of str
        """
        return [self._words[int(i)] for i in ids]

    def with_counts(self, counts: Sequence[int] | NDArray[np.int64]) -> Vocabulary:
        """The same words with other counts.

        Parameters
        ----------
        counts
            One count per word.

        Returns
        -------
        Vocabulary
        """
        return Vocabulary(self._words, counts, boundary=self._boundary, n_classes=self._n_classes)

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        """Two vocabularies are equal when ids mean the same words; the counts do not matter."""
        if not isinstance(other, Vocabulary):
            return NotImplemented
        mine, theirs = (self._words, self._boundary, self._n_classes), (other._words, other._boundary, other._n_classes)
        return mine == theirs

    __hash__ = None  # type: ignore[assignment]  # equality is over a long list: use `fingerprint` as a key

    def __repr__(self) -> str:
        shown = ", ".join(self._words[:6])
        return f"Vocabulary({len(self)} words: {shown}{', …' if len(self) > 6 else ''})"

    def fingerprint(self) -> str:
        """A hash of the words and their order, to compare vocabularies of different directories.

        Returns
        -------
        str
            A SHA-256 hash in hexadecimal.
        """
        text = "\n".join(self._words) + f"\n{self._boundary} {self._n_classes}"
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    def write(self, path: Path) -> None:
        """Write the vocabulary to a file, one line per word.

        Parameters
        ----------
        path
            The file to write.
        """
        write_bytes(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of a vocabulary file.

        Returns
        -------
        bytes
            One line per word in the order of the ids: word, count and role, separated by tabs.
        """
        roles = ["\tunknown"] + (["\tboundary"] if self._boundary else []) + ["\tclass"] * self._n_classes
        roles += [""] * (len(self) - len(roles))
        lines = (f"{w}\t{c}{r}\n" for w, c, r in zip(self._words, self._counts.tolist(), roles, strict=True))
        return "".join(lines).encode("utf-8")

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """Read a file that `write` wrote.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        Vocabulary

        Raises
        ------
        FormatError
            If it is no such file; the message names the line.
        """
        try:
            data = path.read_bytes()
        except OSError as e:
            raise FormatError(f"{path} cannot be read ({e.strerror}): write the directory again.") from None
        return cls.from_bytes(data, path)

    @classmethod
    def from_bytes(cls, data: bytes, path: Path) -> Vocabulary:
        """Parse the output of `to_bytes`.

        Parameters
        ----------
        data
            The content of a vocabulary file.
        path
            The place that errors name.

        Returns
        -------
        Vocabulary

        Raises
        ------
        FormatError
            If it is no such content; the message names the line.
        """
        try:
            # only "\n" ends a line: a word may hold U+2028 or U+0085, which str.splitlines would cut at
            lines = data.decode("utf-8").split("\n")
        except UnicodeDecodeError as e:
            raise FormatError(f"{path} is not UTF-8 at byte {e.start}: write the directory again.") from None
        if lines.pop() != "":
            raise FormatError(f"{path} does not end in a line end: the file was cut; write the directory again.")
        words: list[str] = []
        counts: list[int] = []
        boundary, n_classes = False, 0
        for number, line in enumerate(lines):
            word, _, rest = line.partition("\t")
            count, _, role = rest.partition("\t")
            expected = {0: ("unknown",), 1: ("", "boundary", "class")}.get(number, ("", "class"))
            if role == "class" and number != 1 + boundary + n_classes:
                expected = ()  # classes follow the other special words without a gap
            if role not in expected or not (count.isascii() and count.isdigit()) or len(count) > 18:
                raise FormatError(f"{path}, line {number + 1}: not a word with its count; write the directory again.")
            boundary |= role == "boundary"
            n_classes += role == "class"
            words.append(word)
            counts.append(int(count))
        try:
            return cls(words, counts, boundary=boundary, n_classes=n_classes)
        except InputError as e:
            raise FormatError(f"{path}: {e}") from None


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _whole_counts(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """The counts as an array of their own; refused are fractions, NaN, and what does not fit 8 bytes."""
    try:
        given = np.asarray(counts)
        whole = np.array(counts, dtype=np.int64)
        if given.ndim == 1 and (given.dtype.kind in "iu" or not len(given) or (given == whole).all()):
            return whole
    except (ValueError, TypeError, OverflowError):
        pass
    raise InputError(f"The counts of the words are {short(counts)}: give a whole number below 2^63 for each word.")


class _LeftOut:
    """The classes of the words that a vocabulary leaves out: how many words and tokens each has."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        self._tokens: dict[str, int] = {}

    def add(self, word: str, count: int, n_words: int = 1) -> None:
        name = word if word in CLASSES else word_class(word)
        self._words[name] = self._words.get(name, 0) + n_words
        self._tokens[name] = self._tokens.get(name, 0) + count

    def n_classes(self) -> int:
        return sum(n > 0 for n in self._words.values())

    def totals(self) -> list[tuple[str, int]]:
        """The classes that occur, by name, with their tokens."""
        return sorted((name, self._tokens[name]) for name, n in self._words.items() if n > 0)


def check_word(word: object, where: str) -> None:
    """A word is a non-empty string without white space or control characters (they separate words in files)."""
    if not isinstance(word, str):
        raise InputError(f"The {where} is {type(word).__name__}, not a string.")
    if not word or min(word) <= " " or "\x7f" in word:
        raise InputError(
            f"The {where} is {short(word)}: a word cannot be empty or hold spaces, line ends or control characters; "
            "join its parts with '_' or split it."
        )
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"The {where} is {short(word)}: it holds half a surrogate pair and is not text.") from None
