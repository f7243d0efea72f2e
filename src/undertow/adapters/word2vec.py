"""The word2vec file formats, which most programs that use word vectors can read.

Both begin with a line `V d`. In the text format, one line per word: the word and d numbers, separated by single spaces.
As binary: the word, a space, d little-endian float32, a line feed (which some programs leave out; the reader does not
ask for it).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.atomic import finished_file
from undertow.errors import FormatError, InputError
from undertow.text.vocabulary import check_word

Floats = NDArray[np.float32]

MAX_WORD_BYTES = 1 << 16  # a longer "word" means that the place in the file is lost


class WordVectors(NamedTuple):
    """Words and their vectors, an array of shape (words, dimensions)."""

    words: list[str]
    vectors: Floats


def write_word2vec(
    path: str | Path, words: Sequence[str], vectors: NDArray[np.floating], binary: bool, *, overwrite: bool = False
) -> None:
    """Write word vectors in a word2vec format.

    Parameters
    ----------
    path
        The file to write; it appears complete or not at all.
    words
        The words.
    vectors
        One row per word.
    binary
        Write the binary format instead of text.
    overwrite
        Replace an existing file.

    Raises
    ------
    InputError
        If words and vectors do not match, a value is not finite, a word occurs twice, or the file exists.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from undertow.adapters.word2vec import read_word2vec, write_word2vec
    >>> with tempfile.TemporaryDirectory() as place:
    ...     write_word2vec(f"{place}/v.txt", ["a", "b"], np.eye(2), binary=False)
    ...     read_word2vec(f"{place}/v.txt").words
    ['a', 'b']
    """
    rows = word2vec_rows(words, vectors, binary)
    with finished_file(Path(path), overwrite=overwrite) as ready, open(ready, "wb") as f:
        f.writelines(rows)


def word2vec_rows(words: Sequence[str], vectors: NDArray[np.floating], binary: bool) -> Iterator[bytes]:
    """Yield the encoded header and rows of a word2vec file; the input is checked before the first."""
    table = np.asarray(vectors)
    if table.ndim != 2 or len(table) != len(words) or table.shape[1] == 0:
        raise InputError(f"{len(words)} words need as many vectors, one a row, not an array of shape {table.shape}.")
    table = table.astype("<f4", order="C", copy=False)
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(bad):
        raise InputError(f"The vector of {words[bad[0]]!r} is not finite: there is nothing to write.")
    for position, word in enumerate(words):
        check_word(word, f"word {position}")
    if len(set(words)) != len(words):
        raise InputError("A word occurs twice among the words: give each once.")
    return _rows(words, table, binary)


def _rows(words: Sequence[str], table: Floats, binary: bool) -> Iterator[bytes]:
    n_words, d = table.shape
    yield f"{n_words} {d}\n".encode()
    numbers = " %.9g" * d + "\n"  # nine digits give back every float32
    for word, row in zip(words, table, strict=True):
        name = word.encode("utf-8")
        yield name + b" " + row.tobytes() + b"\n" if binary else name + (numbers % tuple(row.tolist())).encode()


def read_word2vec(path: str | Path, binary: bool | None = None) -> WordVectors:
    """Read a file of word vectors in a word2vec format.

    Parameters
    ----------
    path
        The file.
    binary
        Whether it is in the binary format; None decides by the suffix `.bin`.

    Returns
    -------
    WordVectors

    Raises
    ------
    FormatError
        If the file is not in this format; the message names the row.
    """
    place = Path(path)
    is_binary = place.suffix == ".bin" if binary is None else binary
    try:
        with open(place, "rb") as f:
            n_words, d = _header(f, place, is_binary)
            words: list[str] = []
            vectors = np.empty((n_words, d), dtype=np.float32)
            rows = _binary_rows(f, place, n_words, d) if is_binary else _text_rows(f, place, n_words, d)
            seen: set[str] = set()
            for number, (raw, row) in enumerate(rows):
                where = f"{place}, {_row(number, is_binary)}"
                word = _word(raw, where)
                if word in seen:
                    raise FormatError(f"{where}: the word {word!r} occurs a second time: each may occur once.")
                if not np.isfinite(row).all():
                    raise FormatError(f"{where}: the vector of {word!r} is not finite.")
                seen.add(word)
                words.append(word)
                vectors[number] = row
            if f.read(2).strip(b"\n"):
                raise FormatError(f"{place} goes on after the {n_words} words that its first line announces.")
    except OSError as e:
        raise InputError(f"{place} cannot be read ({e.strerror}): check its name and permissions.") from None
    return WordVectors(words, vectors)


def _row(number: int, is_binary: bool) -> str:
    return f"word {number + 1}" if is_binary else f"line {number + 2}"


def _header(f: BinaryIO, place: Path, is_binary: bool) -> tuple[int, int]:
    """The two numbers of the first line, refused where the file is too small for them."""
    fields = f.readline(64).rstrip(b"\r\n").split(b" ")
    if len(fields) != 2 or not all(x.isdigit() and len(x) < 12 for x in fields) or not all(map(int, fields)):
        raise FormatError(f"{place}, line 1: not a number of words and of dimensions: is this a word2vec file?")
    n_words, d = map(int, fields)
    begin = f.tell()
    size = f.seek(0, 2) - begin
    f.seek(begin)
    least = n_words * (2 + 4 * d if is_binary else 1 + 2 * d)  # a word of one byte, and numbers of one digit
    if size < least:
        other = "text" if is_binary else "binary"
        raise FormatError(
            f"{place} is too small for {n_words} words of {d} dimensions ({size} bytes after line 1): it was cut, "
            f"or is {other}."
        )
    return n_words, d


def _text_rows(f: BinaryIO, place: Path, n_words: int, d: int) -> Iterator[tuple[bytes, Floats]]:
    longest = MAX_WORD_BYTES + 64 * d
    for number in range(n_words):
        line = f.readline(longest)
        word, *fields = line.rstrip(b" \r\n").split(b" ")  # word2vec itself ends its lines in a space
        try:
            if len(fields) != d:
                raise ValueError
            row = np.array([float(x) for x in fields])
        except ValueError:
            what = "the file ends here" if not line else f"not a word and {d} numbers"
            raise FormatError(f"{place}, {_row(number, False)}: {what}; the file is damaged or not text.") from None
        yield word, _narrowed(row)


def _narrowed(row: NDArray[np.float64]) -> Floats:
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return row.astype(np.float32)


def _binary_rows(f: BinaryIO, place: Path, n_words: int, d: int) -> Iterator[tuple[bytes, Floats]]:
    for number in range(n_words):
        word = bytearray()
        while (c := f.read(1)) not in (b" ", b"") and len(word) <= MAX_WORD_BYTES:
            if word or c != b"\n":  # the line feed after the previous vector
                word += c
        data = f.read(4 * d)
        if c != b" " or len(data) != 4 * d:
            raise FormatError(f"{place}, {_row(number, True)}: the file ends within it, or is not binary word2vec.")
        yield bytes(word), np.frombuffer(data, dtype="<f4")


def _word(raw: bytes, where: str) -> str:
    try:
        word = raw.decode("utf-8")
        check_word(word, "word")
    except ValueError:
        raise FormatError(f"{where}: {ascii(raw[:40])[1:]} is not a word; the file is damaged or not UTF-8.") from None
    return word
