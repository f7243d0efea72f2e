"""`partial_fit` means the same in every model: it goes on, also after loading, and new words join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.cases import CASES, OTHER_SENTENCES, Case
from contract.checks import saved_bytes
from undertow import load
from undertow.errors import InputError
from undertow.models.lds.model import LDS

MODELS = [case for case in CASES if hasattr(type(case.make()), "partial_fit")]
OF_TEXT = [case for case in MODELS if case.fits_sentences]
WORDS = [f"w{i}" for i in range(12)]


def more(case: Case) -> list[Any]:
    return case.other_data if case.fits_sentences else [(2005, "Ann", "rain", 3), (2005, "Xu", "sea", 2)]


def keywords(model: Any) -> dict[str, Any]:
    """What a loaded model needs beside the text."""
    return {"counts": model._counts} if isinstance(model, LDS) else {}


def markov_text(seed: int, shift: int, n: int = 60, length: int = 8) -> list[list[str]]:
    """Sentences in which a word is mostly followed by the one `shift` places on."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        ids = [int(rng.integers(len(WORDS)))]
        for _ in range(length - 1):
            ids.append((ids[-1] + shift) % len(WORDS) if rng.random() < 0.8 else int(rng.integers(len(WORDS))))
        out.append([WORDS[i] for i in ids])
    return out


def test_every_model_has_partial_fit() -> None:
    assert {type(case.make()).__name__ for case in MODELS} == {
        "LDS",
        "HMM",
        "FactorialHMM",
        "DynamicEmbedding",
        "Grammar",
    }


@pytest.mark.parametrize("case", MODELS, ids=lambda c: c.name)
def test_it_continues(case: Case) -> None:
    model = case.fitted()
    history = list(model.history_)
    assert model.partial_fit(more(case)) is model
    assert model.history_[: len(history)] == history and len(model.history_) > len(history)
    assert np.isfinite(model.history_).all()


@pytest.mark.parametrize("case", MODELS, ids=lambda c: c.name)
def test_an_unfitted_model_is_fitted(case: Case) -> None:
    model = case.make()
    model.partial_fit(case.data)
    assert saved_bytes(model) == saved_bytes(case.fitted())


@pytest.mark.parametrize("case", MODELS, ids=lambda c: c.name)
def test_a_loaded_model_continues_with_the_same_bits(case: Case, tmp_path: Path) -> None:
    model = case.fitted()
    model.save(tmp_path / "m")
    loaded: Any = load(tmp_path / "m")
    loaded.partial_fit(more(case), **keywords(model))
    model.partial_fit(more(case))
    assert saved_bytes(loaded) == saved_bytes(model)
    model.save(tmp_path / "again")
    load(tmp_path / "again")  # what it was extended to is valid


@pytest.mark.parametrize("case", OF_TEXT, ids=lambda c: c.name)
def test_new_words_join(case: Case) -> None:
    model = case.fitted()
    old = model.vocabulary_
    new = {word for s in OTHER_SENTENCES for word in s} - set(old.words)
    assert new
    model.partial_fit(OTHER_SENTENCES)
    assert new <= set(model.vocabulary_.words)
    assert model.vocabulary_.words[: len(old)] == old.words, "ids of known words changed"
    for text in (case.data, OTHER_SENTENCES, [["zzz", "rain"]]):
        assert np.isfinite(model.perplexity(text))
        assert all(np.isfinite(v).all() for v in model.transform(text))


@pytest.mark.parametrize("case", OF_TEXT, ids=lambda c: c.name)
def test_new_words_can_stay_unknown_or_need_a_count(case: Case) -> None:
    model = case.fitted()
    assert model.partial_fit(OTHER_SENTENCES, new_words=None).vocabulary_ == case.fitted().vocabulary_
    model = case.fitted().partial_fit(OTHER_SENTENCES, new_words=2)
    assert {"rain", "town", "again"} <= set(model.vocabulary_.words)
    assert not {"fell", "slept"} & set(model.vocabulary_.words)
    with pytest.raises(InputError, match="new_words"):
        case.fitted().partial_fit(OTHER_SENTENCES, new_words=0)


@pytest.mark.parametrize("case", OF_TEXT, ids=lambda c: c.name)
def test_it_learns_the_new_text(case: Case) -> None:
    model = case.make(n_iter=6)
    if isinstance(model, LDS):
        model.set_params(n_components=8)
    model.fit(markov_text(0, 1))
    held_out = markov_text(2, 5)
    before = model.score(held_out)
    assert model.partial_fit(markov_text(1, 5)).score(held_out) > before
