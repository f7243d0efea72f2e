"""Hidden Markov models of four words, in every form, small enough to write down all texts and paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracles.all_texts import AllTexts
from undertow import HMM

TEXT = [["a", "b", "c"], ["a", "c", "d", "b"], ["d", "a"], ["b", "b", "a", "d"], ["c", "d", "a"], ["d", "c"]] * 2
FORMS: dict[str, dict[str, Any]] = {
    "blocks": {"n_states": 6, "n_blocks": 3},
    "block low rank": {"n_states": 6, "n_blocks": 3, "rank": 2},
    "dense": {"n_states": 4},
    "low rank": {"n_states": 5, "rank": 2},
    "band": {"n_states": 5, "rank": 2, "band": 2},
}
forms = pytest.mark.parametrize("form", FORMS)
_made: dict[tuple[Any, ...], HMM] = {}


def made(form: str, **more: Any) -> HMM:
    key = (form, *sorted(more.items()))
    if key not in _made:
        # little smoothing, so that the states differ
        _made[key] = HMM(**({"n_iter": 4, "smoothing": 0.02, "random_state": 3} | FORMS[form] | more)).fit(TEXT)
    return _made[key]


def all_texts(model: HMM, n: int) -> AllTexts:
    return AllTexts(*dense(model), n)


def dense(model: HMM) -> tuple[Any, Any, Any]:
    return tuple(x.astype(float) for x in (model.initial_, model.transition_.dense(), model.emission_.dense()))


def one_hot(model: HMM, word: str) -> Any:
    return np.eye(len(model.vocabulary_))[model.vocabulary_.id(word)]


def seen(model: HMM) -> Any:
    """(V,) 1 for the words that may fill a gap: those of the training text."""
    return model.vocabulary_.writable().astype(float)
