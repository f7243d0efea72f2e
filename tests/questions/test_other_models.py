"""Questions to factorial HMMs, linear dynamical systems and mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contract.cases import SENTENCES
from oracles.all_texts import AllTexts
from oracles.factorial_product import flat_hmm
from sentences import is_one_sentence
from tiny_hmms import TEXT, all_texts, made, one_hot
from undertow import HMM, LDS, FactorialHMM, Interpolation
from undertow.errors import InputError
from undertow.models.lds import queries


@pytest.fixture(scope="module")
def factorial() -> FactorialHMM:
    return FactorialHMM(2, n_states=2, n_iter=3, random_state=0).fit(TEXT)


def test_a_factorial_hmm_answers_as_its_product_chain(factorial: FactorialHMM) -> None:
    p, V = factorial.params_, len(factorial.vocabulary_)
    texts = AllTexts(*flat_hmm(p.initial, p.transition, p.theta), 3)
    one = np.eye(V)[[factorial.vocabulary_.id(w) for w in "abd"]]
    [gap] = factorial.fill(["a", "?", "d"])
    truth = texts.given({0: one[0], 2: one[2]}).word(1, V)
    for word, probability in gap.words:
        np.testing.assert_allclose(probability, truth[factorial.vocabulary_.id(word)], rtol=1e-4)
    rest = [texts.given({i: one[i] for i in range(3) if i != t}).word(t, V) for t in range(3)]
    alone = [rest[t][factorial.vocabulary_.id(w)] for t, w in enumerate("abd")]
    np.testing.assert_allclose(factorial.masked_log_probabilities([list("abd")])[0], np.log(alone), rtol=1e-4)
    np.testing.assert_allclose(factorial.masked_perplexity([list("abd")]), np.exp(-np.log(alone).mean()), rtol=1e-4)
    np.testing.assert_allclose(factorial.surprise([list("abd")])[0].both_sides, -np.log2(alone), rtol=1e-4)
    found = factorial.compare(["a", None, "d"], 1, ["b", "c"])
    np.testing.assert_allclose(found[1].probability, truth[factorial.vocabulary_.id("c")], rtol=1e-4)
    left = [factorial.log_probabilities([list("abd")])[0].sum()]
    np.testing.assert_allclose(left, np.log(texts.given({i: one[i] for i in range(3)}).total()), rtol=1e-5)


def test_too_many_joint_states_are_refused(factorial: FactorialHMM, monkeypatch: Any) -> None:
    monkeypatch.setattr("undertow.questions.factorial.MOST_STATES", 3)
    with pytest.raises(InputError, match="fewer layers") as e:
        factorial.fill(["a", None])
    assert is_one_sentence(str(e.value))


@pytest.fixture(scope="module")
def lds() -> LDS:
    return LDS(n_components=3, n_iter=3, random_state=0).fit(SENTENCES)


def test_an_lds_reads_its_word_model_at_the_state_given_both_sides(lds: LDS) -> None:
    words = lds.vocabulary_
    text = ["the", "old", "river", "runs"]
    ids = words.encode(text)
    lm = queries.language_model(lds.params_.C, lds.params_.mu, words.counts, lds.dropped_, words.fallback())
    for t in range(4):
        gap = [*text[:t], None, *text[t + 1 :]]
        missing = np.arange(4) == t
        s = queries.token_states(lds.params_, lds._tables, ids, np.array([0, 4]), missing, exact=True)[t]
        p = np.maximum(lds.params_.mu + np.sqrt(lds.params_.mu) * (lds.params_.C @ s), queries.FLOOR * lds.params_.mu)
        p /= p.sum()
        stands_in = np.isin(np.arange(len(words)), words.fallback())
        truth = np.where(stands_in, 0, p) + p[words.fallback()] * lm.share
        truth = (1 - queries.ESCAPE) * truth + queries.ESCAPE / len(words)
        np.testing.assert_allclose(lds.masked_log_probabilities([text])[0][t], np.log(truth[ids[t]]), rtol=1e-4)
        for word, probability in lds.fill(gap)[0].words:
            np.testing.assert_allclose(probability, truth[words.id(word)] / truth.sum(), rtol=1e-4)
        [found] = lds.compare(text, t, [text[t]])
        np.testing.assert_allclose(found.probability, truth[ids[t]] / truth.sum(), rtol=1e-4)


def test_masking_many_sentences_of_an_lds_is_masking_each(lds: LDS, monkeypatch: Any) -> None:
    monkeypatch.setattr("undertow.questions.linear.MASKED_TOKENS", 7)
    alone = np.concatenate([lds.masked_log_probabilities([s])[0] for s in SENTENCES[:6]])
    np.testing.assert_allclose(np.concatenate(lds.masked_log_probabilities(SENTENCES[:6])), alone, rtol=1e-5)
    np.testing.assert_allclose(lds.masked_perplexity(SENTENCES[:6]), np.exp(-alone.mean()), rtol=1e-5)
    assert lds.surprise(SENTENCES[:1])[0].tokens == list(SENTENCES[0])


def test_what_an_lds_cannot_take(lds: LDS) -> None:
    for ask in (
        lambda: lds.fill([{"the", "old"}]),
        lambda: lds.fill([]),
        lambda: lds.fill([None], 0),
        lambda: lds.compare(["the"], 0, ["nowhere"]),
        lambda: lds.compare(["the"], 1, ["the"]),
    ):
        with pytest.raises(InputError) as e:
            ask()
        assert is_one_sentence(str(e.value))


def test_a_mixture_weighs_its_models_by_the_evidence() -> None:
    models = [made("dense"), made("blocks")]
    V, weights = len(models[0].vocabulary_), [0.3, 0.7]
    mixture = Interpolation(models, weights)
    both = [all_texts(m, 3) for m in models]
    known = {0: one_hot(models[0], "a"), 2: one_hot(models[0], "d")}
    joint = sum(w * t.given(known).total() * t.given(known).word(1, V) for w, t in zip(weights, both, strict=True))
    truth = joint / joint.sum()
    [gap] = mixture.fill(["a", "?", "d"])
    for word, probability in gap.words:
        np.testing.assert_allclose(probability, truth[models[0].vocabulary_.id(word)], rtol=1e-4)
    found = mixture.masked_log_probabilities([["a", "b", "d"], ["c"]])
    np.testing.assert_allclose(found[0][1], np.log(truth[models[0].vocabulary_.id("b")]), rtol=1e-4)
    assert len(found[1]) == 1 and mixture.masked_perplexity([["a", "b", "d"]]) > 1


def test_a_mixture_with_an_lds_says_that_it_cannot(lds: LDS) -> None:
    hmm = HMM(2, n_iter=1, random_state=0).fit(SENTENCES)
    mixture = Interpolation([hmm, lds])
    for ask in (lambda: mixture.fill(["the", None]), lambda: mixture.masked_perplexity(SENTENCES)):
        with pytest.raises(InputError, match="LDS") as e:
            ask()
        assert is_one_sentence(str(e.value))
