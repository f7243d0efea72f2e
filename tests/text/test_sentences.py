"""Text files as batches of sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from undertow.errors import InputError
from undertow.progress import Progress
from undertow.text.reading import ReadingOptions
from undertow.text.sentences import batches, read_sentences
from undertow.text.tokenizer import Tokenizer, checked_sentences


def test_sentences_of_several_files_with_progress(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One cat sat. Two cats sat.\n")
    (tmp_path / "b.conll").write_text("Three\nCATS\n\nFour\n")
    seen: list[Progress] = []
    found = list(
        read_sentences([tmp_path / "a.txt", tmp_path / "b.conll"], Tokenizer(lower=True), progress=seen.append)
    )
    assert found == [["one", "cat", "sat", "."], ["two", "cats", "sat", "."], ["three", "cats"], ["four"]]
    assert [(p.done, p.total) for p in seen] == [(27, 44), (44, 44)]


def test_text_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\n" * 10 + b"\xff\n")
    stream = read_sentences([tmp_path / "a.txt"], reading=ReadingOptions(chunk_bytes=5, on_bad_utf8="skip"))
    assert next(stream) == ["fine"] and len(list(stream)) == 9


def test_batches_are_cut_by_tokens() -> None:
    sentences = [["a"] * n for n in (2, 2, 5, 1, 3)]
    assert [[len(s) for s in b] for b in batches(sentences, 4)] == [[2, 2], [5], [1, 3]]
    assert list(batches([], 4)) == []
    assert [len(b) for b in batches(sentences)] == [5]


def test_ids_instead_of_words_are_refused_with_the_cure() -> None:
    with pytest.raises(InputError, match=r"vocabulary\.decode"):
        list(checked_sentences([np.arange(3, dtype=np.uint32)]))
