"""The same word means the same in every model: defaults, types and views of the queries that several models have."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest

from contract.cases import SENTENCES
from undertow import HMM, LDS, FactorialHMM
from undertow.results.tagging import States

DISCRETE: list[Any] = [HMM(4, n_iter=2, random_state=0), FactorialHMM(2, n_states=2, n_iter=2, random_state=0)]
TEXT_MODELS = [HMM, LDS, FactorialHMM]


@pytest.mark.parametrize("model", DISCRETE, ids=["hmm", "fhmm"])
def test_decode_gives_the_best_path_as_int64(model: Any) -> None:
    paths = model.fit(SENTENCES).decode(SENTENCES)
    for path, best, single in zip(
        paths, model.decode(SENTENCES, "viterbi"), model.decode(SENTENCES, "posterior"), strict=True
    ):
        np.testing.assert_array_equal(path, best)
        assert path.dtype == best.dtype == single.dtype == np.int64


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_transform_gives_the_features_for_a_tagger(model: Any) -> None:
    assert signature(model.transform).parameters["view"].default == "features"


@pytest.mark.parametrize("model", [HMM, FactorialHMM])
def test_samples_differ_unless_a_seed_is_given(model: Any) -> None:
    assert signature(model.sample).parameters["random_state"].default is None


@pytest.mark.parametrize(("model", "method"), list(zip(DISCRETE, ["posterior", "viterbi"], strict=True)))
def test_states_of_a_tagger_do_not_follow_the_default_of_decode(
    model: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tagger saved with `method=None` was trained on these states."""
    asked: list[str] = []
    decode = type(model).decode

    def noted(self: Any, X: Any, method: str = "default") -> Any:
        asked.append(method)
        return decode(self, X, method)

    monkeypatch.setattr(type(model), "decode", noted)
    States(model.fit(SENTENCES)).features([["a"]])
    assert asked == [method]
