"""Base phrases of hand-made trees."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def base_phrases(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("base_phrases")


@pytest.mark.parametrize(
    ("rows", "expected"),  # form/UPOS/head/relation, heads counted from 1
    [
        (
            "the/DET/4/det very/ADV/3/advmod old/ADJ/4/amod bank/NOUN/6/nsubj will/AUX/6/aux fall/VERB/0/root "
            "./PUNCT/6/punct",
            "B-NP I-NP I-NP I-NP B-VP I-VP O",
        ),
        (
            "Ann/PROPN/3/nmod:poss 's/PART/1/case cat/NOUN/6/nsubj is/AUX/6/cop not/PART/6/advmod happy/ADJ/0/root",
            "B-NP I-NP I-NP B-VP I-VP B-ADJP",
        ),
        (
            "he/PRON/2/nsubj gave/VERB/0/root up/ADP/2/compound:prt to/PART/5/mark go/VERB/2/xcomp to/ADP/7/case "
            "Rome/PROPN/5/obl",
            "B-NP B-VP B-PRT B-VP I-VP B-PP B-NP",
        ),
        (
            "if/SCONJ/5/mark it/PRON/5/nsubj has/AUX/5/aux now/ADV/5/advmod rained/VERB/0/root and/CCONJ/5/cc",
            "B-SBAR B-NP B-VP I-VP I-VP O",
        ),
        # `off` stands between the article and its noun: what is cut off is named by its own word
        ("the/DET/3/det off/ADP/3/case road/NOUN/0/root", "B-NP B-PP B-NP"),
    ],
)
def test_phrases(base_phrases: Any, rows: str, expected: str) -> None:
    cells = [row.split("/") for row in rows.split()]
    nodes = [base_phrases.Node(form, upos, int(head) - 1, relation) for form, upos, head, relation in cells]
    assert base_phrases.phrases(nodes) == expected.split()
