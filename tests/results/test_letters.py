from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from oracles.letters import dense_ridge, runs_of
from undertow.results import letters as module
from undertow.results.letters import learn_letters, smoothed
from undertow.text.letters import N_PLACES

WORDS = ["walk", "walks", "walking", "talk", "talking", "cup", "cups", "saucer"]
COUNTS = np.array([40, 9, 1, 30, 2, 100, 1, 5])
VECTORS = np.random.default_rng(0).standard_normal((len(WORDS), 4)).astype(np.float32)


def rows(words: list[str]) -> np.ndarray:
    out = np.zeros((len(words), N_PLACES))
    for i, word in enumerate(words):
        for place, value in runs_of(word, N_PLACES).items():
            out[i, place] = value
    return out


def test_letters_say_what_a_weighted_ridge_regression_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 3)
    new = ["walked", "talks", "saucers", "zzz"]
    X = rows([*WORDS, *new])
    used = np.flatnonzero(X.any(axis=0))  # the others have no slopes
    X = X[:, used]
    slopes, mean = dense_ridge(X[: len(WORDS)], VECTORS.astype(float), COUNTS / (COUNTS + 20.0), 2.0)
    found = learn_letters(WORDS, VECTORS, COUNTS)
    assert found.slopes.shape == (N_PLACES, 4)
    assert_allclose(found.of(new), X[len(WORDS) :] @ slopes + mean, rtol=1e-3, atol=1e-4)
    assert_allclose(found.of(["qqq"])[0], found.mean, atol=1e-6)  # no run of it was seen
    assert found.of([]).shape == (0, 4)


def test_a_rare_word_has_more_of_what_its_letters_say() -> None:
    letters = learn_letters(WORDS, VECTORS, COUNTS)
    said = letters.of(WORDS)
    for i, row in enumerate(smoothed(letters, WORDS, VECTORS, COUNTS)):
        assert_allclose(row, (COUNTS[i] * VECTORS[i] + 5 * said[i]) / (COUNTS[i] + 5), rtol=1e-4, atol=1e-5)
