"""Constituents of hand-made dependency trees, and trees with punctuation scored on their words."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def bracketing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("bracketing")


def sentence(bracketing: Any) -> Any:
    """the dog , old , sees a cat ."""
    rows = [
        ("the", 2, "DET", "det"), ("dog", 6, "NOUN", "nsubj"), (",", 4, "PUNCT", "punct"), ("old", 2, "ADJ", "amod"),
        (",", 4, "PUNCT", "punct"), ("sees", 0, "VERB", "root"), ("a", 8, "DET", "det"), ("cat", 6, "NOUN", "obj"),
        (".", 6, "PUNCT", "punct"),
    ]  # fmt: skip
    return bracketing.bracketed([bracketing.Row(w, upos == "PUNCT", head, upos, rel) for w, head, upos, rel in rows])


def test_words_tokens_and_constituents(bracketing: Any) -> None:
    b = sentence(bracketing)
    assert b.words == "the dog old sees a cat".split()
    assert b.tokens == "the dog , old , sees a cat .".split()
    assert [b.tokens[i] for i in b.places] == b.words
    assert b.spans == {(0, 3), (4, 6)}
    assert b.phrases == {(0, 3), (0, 2), (4, 6), (3, 6)}  # without its postmodifier; without its subject


def test_spans_of_tokens_as_spans_of_words(bracketing: Any) -> None:
    b = sentence(bracketing)
    # the dog | the dog , | the dog , old , | , old | sees a cat | a cat . | all but the full stop | all
    spans = [(0, 2), (0, 3), (0, 5), (2, 4), (5, 8), (6, 9), (0, 8), (0, 9)]
    assert bracketing.of_words(spans, b.places) == {(0, 2), (0, 3), (3, 6), (4, 6)}


def test_sentence_f1(bracketing: Any) -> None:
    gold = [frozenset({(0, 2), (2, 4)}), frozenset(), frozenset({(1, 3)})]
    assert bracketing.sentence_f1(gold, [{(0, 2), (0, 3)}, {(0, 2)}, set()]) == pytest.approx(25.0)
