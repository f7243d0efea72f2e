"""Several language models as one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from contract.cases import OTHER_SENTENCES, SENTENCES
from sentences import is_one_sentence
from undertow import HMM
from undertow.errors import InputError, NotFittedError
from undertow.results.interpolation import Interpolation


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [HMM(6, n_blocks=b, n_iter=3, random_state=b).fit(SENTENCES) for b in (1, 2, 3)]


def test_it_is_the_mean_of_probabilities(models: list[Any]) -> None:
    text = [["the", "river", "zzz"], [], ["money"]]
    mixed = Interpolation(models, [1, 2, 1]).log_probabilities(text)
    assert [len(x) for x in mixed] == [3, 0, 1]
    p = [np.exp(np.concatenate(m.log_probabilities(text))) for m in models]
    np.testing.assert_allclose(np.exp(np.concatenate(mixed)), (p[0] + 2 * p[1] + p[2]) / 4, rtol=1e-10)
    alone = Interpolation(models[:1])
    assert alone.score(iter(text)) == pytest.approx(models[0].score(text), rel=1e-12)
    assert alone.perplexity(text) == pytest.approx(math.exp(-alone.score(text)), rel=1e-12)


def test_weights_are_the_most_probable(models: list[Any]) -> None:
    held = [["the", "old", "bank", "is", "wide"], ["she", "ran", "to", "the", "river"]]
    mixed = Interpolation(models).fit(held)
    best = mixed.score(held)
    assert mixed.weights.sum() == pytest.approx(1, rel=1e-12)
    grid = [(a, b, 10 - a - b) for a in range(11) for b in range(11 - a)]
    assert best >= max(Interpolation(models, w).score(held) for w in grid if sum(w) > 0) - 1e-4


def test_mistakes(models: list[Any]) -> None:
    other = HMM(4, n_iter=1, random_state=0).fit(OTHER_SENTENCES)
    for wrong in (
        lambda: Interpolation([]),
        lambda: Interpolation([models[0], other]),
        lambda: Interpolation(models, [1, 1]),
        lambda: Interpolation(models, [1, -1, 1]),
        lambda: Interpolation(["model"]),
        lambda: Interpolation(models).score([]),
        lambda: Interpolation(models).fit([[]]),
    ):
        with pytest.raises(InputError) as e:
            wrong()
        assert is_one_sentence(str(e.value))
    with pytest.raises(NotFittedError):
        Interpolation([HMM()])
