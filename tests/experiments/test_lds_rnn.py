"""The ablation without whitening in lds_rnn.py, against dense matrices counted from the text."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow import LDS, Corpus, LagCounts

FOLDER = Path(__file__).parents[2] / "experiments"
R = 3  # blocks of the Hankel matrix


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("lds_rnn")


@pytest.fixture
def text() -> Corpus:
    """Sentences of twelve words, each of which follows one of two."""
    rng = np.random.default_rng(0)
    sentences = []
    for _ in range(60):
        at = int(rng.integers(12))
        sentence = []
        for _ in range(int(rng.integers(4, 15))):
            sentence.append(f"w{at}")
            at = (at * at + int(rng.integers(1, 3)) ** 2) % 12
        sentences.append(sentence)
    return Corpus.from_sentences(sentences)


def moments_of(text: Corpus) -> Any:
    model = LDS(4, lags=2 * R - 1, ssid_lags=R, kappa=0, noise="uniform", n_jobs=1)
    return model._moments(LagCounts.from_corpus(text, lags=model.lags, n_jobs=1))


def covariance(text: Corpus, k: int) -> Any:
    """Σ (e_{t+k} − μ)(e_t − μ)' over the pairs of one sentence, divided by all tokens."""
    V = len(text.vocabulary)
    mu = np.bincount(text.ids, minlength=V) / len(text.ids)
    total = np.zeros((V, V))
    for sentence in text.sentences():
        w = np.eye(V)[sentence] - mu
        for t in range(len(sentence) - k):
            total += np.outer(w[t + k], w[t])
    return total / len(text.ids)


def test_plain_moments_are_the_covariances_of_one_hot_words(script: Any, text: Corpus) -> None:
    plain = script.PlainMoments(moments_of(text))
    eye = np.eye(plain.n_rows)
    for k in range(1, 2 * R):
        np.testing.assert_allclose(plain.forward(k, eye), covariance(text, k), atol=1e-7)
        np.testing.assert_allclose(plain.backward(k, eye), covariance(text, k).T, atol=1e-7)
    there = eye - 1 / len(eye)  # columns that sum to 0 stay as they are
    np.testing.assert_allclose(plain.project(there), there, atol=1e-12)


def test_the_start_without_whitening_is_that_of_a_dense_svd(script: Any, text: Corpus) -> None:
    h, moments = 4, moments_of(text)
    found = script.identify_plain(moments, h, np.random.default_rng(0), ssid_lags=R)
    blocks = [[covariance(text, R + i - j) for j in range(R)] for i in range(R)]
    left, values, _ = np.linalg.svd(np.block(blocks))
    Gamma = (left[:, :h] * np.sqrt(values[:h])).reshape(R, -1, h)
    seen = moments.u > 0
    C = Gamma[0][seen] / moments.u[seen, None]
    np.testing.assert_allclose(found.C[seen] @ np.linalg.pinv(found.C[seen]), C @ np.linalg.pinv(C), atol=1e-3)
    assert np.abs(found.C.T @ moments.u).max() < 1e-6
    # the transition is that of either end of the SVD: here of Γ, whose shift leaves less
    A = np.linalg.lstsq(Gamma[:-1].reshape(-1, h), Gamma[1:].reshape(-1, h), rcond=None)[0]
    moduli = np.sort(np.abs(np.linalg.eigvals(A)))
    stable = moduli * min(1, 0.999 / moduli[-1])  # as the library shrinks it
    np.testing.assert_allclose(np.sort(np.abs(np.linalg.eigvals(found.A))), stable, atol=1e-3)
    assert np.linalg.eigvalsh(found.Q).min() > 0
