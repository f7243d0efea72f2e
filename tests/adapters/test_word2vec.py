"""The word2vec files, byte by byte, and what the reader refuses."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from undertow.adapters.word2vec import read_word2vec, word2vec_rows, write_word2vec
from undertow.errors import FormatError, InputError

WORDS = ["the", "naïve", "银行", "a\u2028b"]
VECTORS = np.array([[0.1, -2.5e-30, 3], [1 / 3, 1e30, -0.0], [1, 2, 3], [4, 5, 6]], dtype=np.float32)
BINARY = b"".join(
    [
        b"4 3\n",
        *(w.encode() + b" " + struct.pack("<3f", *row) + b"\n" for w, row in zip(WORDS, VECTORS, strict=True)),
    ]
)


def test_the_binary_layout(tmp_path: Path) -> None:
    """As documented: `V d`, then word, space, little-endian float32s, line feed."""
    write_word2vec(tmp_path / "v.bin", WORDS, VECTORS, binary=True)
    assert (tmp_path / "v.bin").read_bytes() == BINARY
    assert [p.name for p in tmp_path.iterdir()] == ["v.bin"]


def test_the_text_layout(tmp_path: Path) -> None:
    write_word2vec(tmp_path / "v.txt", ["the", "银行"], np.array([[0.5, -1], [0.1, 2]]), binary=False)
    assert (tmp_path / "v.txt").read_text() == "2 2\nthe 0.5 -1\n银行 0.100000001 2\n"


@pytest.mark.parametrize("binary", [False, True])
def test_what_is_written_is_read(tmp_path: Path, binary: bool) -> None:
    path = tmp_path / ("v.bin" if binary else "v.txt")
    rng = np.random.default_rng(0)
    # the bytes of random floats hold line feeds, spaces and anything else
    vectors = np.concatenate([VECTORS, rng.normal(size=(500, 3)).astype(np.float32)])
    words = WORDS + [f"w{i}" for i in range(500)]
    write_word2vec(path, words, vectors, binary)
    for how in (None, binary):
        read = read_word2vec(path, how)
        assert read.words == words and read.vectors.tobytes() == vectors.tobytes()


def test_files_of_other_programs(tmp_path: Path) -> None:
    """word2vec ends its lines of text in a space, gensim leaves out the line feed behind a binary vector."""
    (tmp_path / "a.txt").write_bytes(b"2 2\r\na 1 2 \r\nb 3 4 \r\n")
    assert read_word2vec(tmp_path / "a.txt").vectors.tolist() == [[1, 2], [3, 4]]
    (tmp_path / "b.bin").write_bytes(b"2 1\na " + struct.pack("<f", 1) + b"b " + struct.pack("<f", 2))
    assert read_word2vec(tmp_path / "b.bin").words == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1"),
        ("two 3\n", "line 1"),
        ("2\n", "line 1"),
        ("0 3\n", "line 1"),
        ("1 -3\n", "line 1"),
        ("99999999999 99999999999\na 1\n", "too small"),
        ("2 2\na 1 2\nb 3\n", "line 3"),
        ("2 2\na 1 2\nb 3 4 5\n", "line 3"),
        ("2 2\na 1 2\nb 3 x\n", "line 3"),
        ("2 2\na 1.000 2.000\n", "line 3: the file ends here"),
        ("2 2\na 1 nan\nb 3 4\n", "line 2: the vector of 'a' is not finite"),
        ("2 2\na 1 1e39\nb 3 4\n", "line 2: the vector of 'a' is not finite"),
        ("2 2\na 1 2\na 3 4\n", "line 3: the word 'a'"),
        ("2 2\na 1 2\n\x01 3 4\n", "line 3"),
        ("1 2\na 1 2\nb 3 4\n", "goes on"),
    ],
)
def test_bad_text(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(FormatError, match=reason) as e:
        read_word2vec(tmp_path / "v.txt")
    assert str(e.value).startswith(str(tmp_path / "v.txt")) and str(e.value)[-1] in ".?" and "\n" not in str(e.value)


ROW = struct.pack("<2f", 1, 2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"2 2\na " + ROW + b"\n", "too small"),
        (b"2 2\na " + ROW + b"\nbbb " + ROW[:5], "word 2: the file ends within it"),
        (b"2 2\na " + ROW + b"\nb" + b"x" * 100, "word 2: the file ends within it"),
        (b"2 2\na " + ROW + b"\nb " + struct.pack("<2f", 1, np.inf) + b"\n", "word 2: the vector of 'b'"),
        (b"2 2\na " + ROW + b"\n\xff " + ROW + b"\n", "word 2: .* is not a word"),
        (b"2 2\na " + ROW + b"\na " + ROW + b"\n", "word 2: the word 'a'"),
        (b"1 2\na " + ROW + b"\nb " + ROW + b"\n", "goes on"),
    ],
)
def test_bad_binary(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "v.bin").write_bytes(data)
    with pytest.raises(FormatError, match=reason):
        read_word2vec(tmp_path / "v.bin")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_word2vec(tmp_path / "nowhere.txt")


@pytest.mark.parametrize(
    ("words", "vectors"),
    [
        (["a"], np.ones((2, 2))),
        (["a", "b"], np.ones(2)),
        (["a", "b"], np.ones((2, 0))),
        (["a", "b c"], np.ones((2, 2))),
        (["a", ""], np.ones((2, 2))),
        (["a", "a"], np.ones((2, 2))),
        (["a", "b"], np.array([[1, 2], [np.nan, 1]])),
    ],
)
def test_what_is_not_written(tmp_path: Path, words: list[str], vectors: np.ndarray) -> None:
    with pytest.raises(InputError):
        write_word2vec(tmp_path / "v.txt", words, vectors, binary=False)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.bin"
    write_word2vec(path, WORDS, VECTORS, binary=True)
    with pytest.raises(InputError, match="exists already"):
        write_word2vec(path, WORDS, VECTORS, binary=True)
    rows = word2vec_rows(WORDS, VECTORS, True)

    def torn(*_: object) -> object:
        yield next(rows)
        raise OSError("the disk is full")

    monkeypatch.setattr("undertow.adapters.word2vec.word2vec_rows", torn)
    with pytest.raises(InputError, match=r"v\.bin cannot be written \(the disk is full\)"):
        write_word2vec(path, WORDS, VECTORS, binary=True, overwrite=True)
    assert path.read_bytes() == BINARY and [p.name for p in tmp_path.iterdir()] == ["v.bin"]
