"""Several language models as one."""

from __future__ import annotations

import itertools
import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from contract.cases import OTHER_SENTENCES, SENTENCES
from contract.reference import DeletedInterpolation
from sentences import is_one_sentence
from undertow import HMM, Corpus, FactorialHMM
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
    nested = Interpolation([Interpolation(models[:2], [1, 2]), models[2]], [3, 1]).log_probabilities(text)
    np.testing.assert_allclose(np.concatenate(nested), np.concatenate(mixed), rtol=1e-12)
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


def test_an_hmm_a_factorial_hmm_and_bigrams_on_real_text() -> None:
    """The mixture is a distribution, and predicts held-out text better than each of its parts."""
    file = Path(undertow.__file__).parent / "data" / "books.txt.xz"
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        text = [line.split()[:40] for line in itertools.islice(lines, 700)]
    corpus = Corpus.from_sentences(text[:500], vocab_size=250)
    parts: list[Any] = [
        HMM(24, n_iter=6, random_state=0).fit(corpus),
        FactorialHMM(2, n_states=5, n_iter=6, random_state=0).fit(corpus),
        DeletedInterpolation(random_state=0).fit(corpus),
    ]
    mixed = Interpolation(parts).fit(text[500:600])
    assert mixed.weights.min() > 0.01
    assert mixed.perplexity(text[600:]) < min(part.perplexity(text[600:]) for part in parts)
    prefix = text[600][:5]
    ahead = mixed.log_probabilities([[*prefix, word] for word in corpus.vocabulary.words])
    assert sum(math.exp(logs[-1]) for logs in ahead) == pytest.approx(1, rel=1e-5)


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
