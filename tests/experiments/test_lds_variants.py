"""The forms of the LDS that lds_stronger.py tries: the held-out part, the ends of sentences, weights by distance."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow import LDS, Corpus, LagCounts

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of experiments/."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


@pytest.fixture
def text() -> Corpus:
    rng = np.random.default_rng(0)
    return Corpus.from_sentences(
        [[f"w{i}" for i in rng.integers(8, size=int(rng.integers(1, 9)))] for _ in range(90)], unknown_classes=True
    )


def words(text: Corpus) -> list[list[str]]:
    return [text.vocabulary.decode(s) for s in text.sentences()]


def test_every_fortieth_sentence_is_held_out(scripts: Any, text: Corpus) -> None:
    rest, held = scripts("lds_variants").split(text)
    whole = words(text)
    assert words(held) == [whole[39], whole[79]]
    assert words(rest) == whole[:39] + whole[40:79] + whole[80:]
    for part in (rest, held):
        assert part.vocabulary == text.vocabulary
        assert part.vocabulary.counts.tolist() == np.bincount(part.ids, minlength=len(text.vocabulary)).tolist()


def test_sentences_stand_between_their_ends(scripts: Any, text: Corpus) -> None:
    variants = scripts("lds_variants")
    bounded = variants.with_ends(text)
    assert words(bounded) == [["<begin>", *s, "<end>"] for s in words(text)]
    assert bounded.vocabulary.counts.tolist() == np.bincount(bounded.ids).tolist()
    assert bounded.vocabulary.n_special == text.vocabulary.n_special
    model = LDS(2, lags=3, ssid_lags=2, n_iter=2, random_state=0, n_jobs=1).fit(bounded)
    found = variants.BetweenEnds(model).transform([["w1", "w2"]], "smooth")[0]
    assert np.array_equal(found, model.transform([["<begin>", "w1", "w2", "<end>"]], "smooth")[0][1:3])


def test_side_by_side_is_as_long_as_one(scripts: Any, text: Corpus) -> None:
    models = [LDS(2, lags=3, ssid_lags=2, n_iter=2, random_state=0, kappa=k, n_jobs=1).fit(text) for k in (1.0, 5.0)]
    found = scripts("lds_variants").SideBySide(models).transform([["w1", "w2"]], "smooth")[0]
    assert found.shape == (2, 4)
    np.testing.assert_allclose((found**2).sum(axis=1), 1, rtol=1e-5)


def test_moments_fall_with_the_distance(scripts: Any, text: Corpus) -> None:
    counts = LagCounts.from_corpus(text, lags=3)
    model = LDS(2, lags=3, ssid_lags=2, kappa=2.0, n_jobs=1)
    plain, decayed = model._moments(counts), model._moments(scripts("lds_variants").Decayed(counts, 0.5))
    eye = np.eye(plain.n_rows)
    for k in (1, 2, 3):
        np.testing.assert_allclose(decayed.forward(k, eye), 0.5**k * plain.forward(k, eye), atol=1e-6)
    np.testing.assert_array_equal(decayed.mu, plain.mu)


def test_p_of_one_seed_is_that_of_the_tables(scripts: Any) -> None:
    stronger, scoring = scripts("lds_stronger"), scripts("scoring")
    column = scripts("tagging_default").Column("", None, "", "oov")
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(200) < 0.8, rng.random(200) < 0.7
    assert stronger.p_of(column, [ours], [theirs]) == scoring.mcnemar(ours, theirs)
    assert stronger.p_of(column, [ours] * 3, [theirs] * 3) == scoring.mcnemar(ours, theirs)


def test_a_candidate_passes_with_two_columns_and_without_harm(scripts: Any) -> None:
    stronger = scripts("lds_stronger")
    good, level, bad = (
        stronger.Cell([1.0], 0.5, 0.01),
        stronger.Cell([1.0], -0.5, 0.4),
        stronger.Cell([1.0], -0.5, 0.01),
    )
    assert stronger.passes({"a": good, "b": good, "c": level})
    assert not stronger.passes({"a": good, "b": level})
    assert not stronger.passes({"a": good, "b": good, "c": bad})
