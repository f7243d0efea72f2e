"""The vocabulary: word ↔ id, fixed once built. Strings end here; everything behind it works on ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from undertow.errors import FormatError, InputError
from undertow.files import write_bytes

UNKNOWN = "<unk>"
MAX_WORDS = 2**31 - 1


class Vocabulary:
    """Words in the order of their ids: the unknown word, the boundary if there is one, then by falling count.

    Ties are broken by code point, so that the same counts give the same ids everywhere. `id` answers with the
    unknown word's id for a word that is not here; `word in vocabulary` tells which case it is.
    """

    __slots__ = ("_boundary", "_counts", "_ids", "_words")

    def __init__(self, words: Sequence[str], counts: Sequence[int] | NDArray[np.int64], *, boundary: bool = False):
        self._words = tuple(words)
        self._counts = np.array(counts, dtype=np.int64)
        self._counts.flags.writeable = False
        self._boundary = boundary
        n_special = 1 + boundary
        if len(self._words) < n_special or len(self._words) != len(self._counts):
            raise InputError(
                f"A vocabulary needs its {n_special} special words and one count for each of its "
                f"{len(self._words)} words, not {len(self._counts)} counts."
            )
        if len(self._words) > MAX_WORDS:
            raise InputError(f"A vocabulary holds at most {MAX_WORDS} words: raise the minimum count.")
        if self._counts.min() < 0:
            raise InputError("A word's count cannot be negative.")
        for position, word in enumerate(self._words):
            check_word(word, f"word {position} of the vocabulary")
        self._ids = {word: i for i, word in enumerate(self._words)}
        if len(self._ids) != len(self._words):
            twice = next(w for i, w in enumerate(self._words) if self._ids[w] != i)
            raise InputError(f"The word {twice!r} stands twice in the vocabulary: give each word once.")

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        *,
        size: int | None = None,
        min_count: int = 1,
        unknown: str = UNKNOWN,
        boundary: str | None = None,
    ) -> Vocabulary:
        """Choose the `size` (special words included) most frequent words seen at least `min_count` times.

        The counts of all other words go to the unknown word. A word of the text that is spelled like a special
        word is that special word: corpora that were cut before (WikiText's `<unk>`, `<eos>`) keep their meaning.
        """
        specials = [unknown] if boundary is None else [unknown, boundary]
        if boundary == unknown:
            raise InputError(f"The boundary and the unknown word are both {unknown!r}: give two names.")
        if size is not None and size <= len(specials):
            raise InputError(f"vocab_size={size} leaves no room for a word beside {' and '.join(specials)}.")
        if min_count < 1:
            raise InputError(f"min_count={min_count} must be at least 1.")
        ranked = sorted(
            ((w, int(c)) for w, c in counts.items() if c >= min_count and w not in specials),
            key=lambda item: (-item[1], item[0]),
        )
        if size is not None:
            ranked = ranked[: size - len(specials)]
        kept = sum(c for _, c in ranked)
        n_boundary = 0 if boundary is None else int(counts.get(boundary, 0))
        n_unknown = sum(int(c) for c in counts.values()) - kept - n_boundary
        return cls(
            specials + [w for w, _ in ranked],
            [n_unknown] + ([] if boundary is None else [n_boundary]) + [c for _, c in ranked],
            boundary=boundary is not None,
        )

    @property
    def words(self) -> tuple[str, ...]:
        return self._words

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each word was seen where the vocabulary was built (read-only)."""
        return self._counts

    @property
    def unknown(self) -> str:
        return self._words[0]

    @property
    def unknown_id(self) -> int:
        return 0

    @property
    def boundary(self) -> str | None:
        return self._words[1] if self._boundary else None

    @property
    def boundary_id(self) -> int | None:
        return 1 if self._boundary else None

    def id(self, word: str) -> int:
        """The word's id; the unknown word's id for a word that is not here."""
        return self._ids.get(word, 0)

    def encode(self, tokens: Iterable[str]) -> NDArray[np.uint32]:
        get = self._ids.get
        return np.array([get(t, 0) for t in tokens], dtype=np.uint32)

    def decode(self, ids: Iterable[int] | NDArray[np.uint32]) -> list[str]:
        return [self._words[int(i)] for i in ids]

    def with_counts(self, counts: Sequence[int] | NDArray[np.int64]) -> Vocabulary:
        """The same words counted in another text."""
        return Vocabulary(self._words, counts, boundary=self._boundary)

    def __len__(self) -> int:
        return len(self._words)

    def __contains__(self, word: object) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        """Two vocabularies are equal when ids mean the same words; the counts do not matter."""
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self._words == other._words and self._boundary == other._boundary

    __hash__ = None  # type: ignore[assignment]  # equality is over a long list: use `fingerprint` as a key

    def __repr__(self) -> str:
        shown = ", ".join(self._words[:6])
        return f"Vocabulary({len(self)} words: {shown}{', …' if len(self) > 6 else ''})"

    def fingerprint(self) -> str:
        """A hash of the words and their order, to compare vocabularies across directories."""
        text = "\n".join(self._words) + f"\n{self._boundary}"
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    def write(self, path: Path) -> None:
        """One line a word, in the order of the ids: word, tab, count; the special words say what they are."""
        roles = ["\tunknown"] + (["\tboundary"] if self._boundary else [])
        roles += [""] * (len(self) - len(roles))
        lines = (f"{w}\t{c}{r}\n" for w, c, r in zip(self._words, self._counts.tolist(), roles, strict=True))
        write_bytes(path, "".join(lines).encode("utf-8"))

    @classmethod
    def read(cls, path: Path) -> Vocabulary:
        """Read what `write` wrote; anything else is refused with its line."""
        try:
            # only "\n" ends a line: a word may hold U+2028 or U+0085, which str.splitlines would cut at
            lines = path.read_bytes().decode("utf-8").split("\n")
        except OSError as e:
            raise FormatError(f"{path} cannot be read ({e.strerror}): write the directory again.") from None
        except UnicodeDecodeError as e:
            raise FormatError(f"{path} is not UTF-8 at byte {e.start}: write the directory again.") from None
        if lines.pop() != "":
            raise FormatError(f"{path} does not end in a line end: the file was cut; write the directory again.")
        words: list[str] = []
        counts: list[int] = []
        boundary = False
        for number, line in enumerate(lines):
            word, _, rest = line.partition("\t")
            count, _, role = rest.partition("\t")
            expected = ("unknown",) if number == 0 else ("", "boundary") if number == 1 else ("",)
            if role not in expected or not (count.isascii() and count.isdigit()) or len(count) > 18:
                raise FormatError(f"{path}, line {number + 1}: not a word with its count; write the directory again.")
            boundary |= role == "boundary"
            words.append(word)
            counts.append(int(count))
        try:
            return cls(words, counts, boundary=boundary)
        except InputError as e:
            raise FormatError(f"{path}: {e}") from None


def check_word(word: object, where: str) -> None:
    """A word is a non-empty string without white space or control characters (they separate words in files)."""
    if not isinstance(word, str):
        raise InputError(f"The {where} is {type(word).__name__}, not a string.")
    if not word or min(word) <= " " or "\x7f" in word:
        shown = ascii(word if len(word) <= 40 else word[:40] + "…")
        raise InputError(
            f"The {where} is {shown}: a word cannot be empty or hold spaces, line ends or control characters; "
            "join its parts with '_' or split it."
        )
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"The {where} is {word!a}: it holds half a surrogate pair and is not text.") from None
