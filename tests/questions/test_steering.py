"""The weights that steer a language model, against every text of a tiny vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.texts import all_texts, weighed_texts
from undertow import HMM
from undertow.constraints import Contains, Length, Phrase, Without
from undertow.errors import InputError
from undertow.questions import steering as steering_module
from undertow.questions.steering import Steering

TEXT = [["the", "cat", "sat"], ["the", "dog", "ran", "on"], ["the", "cat", "ran"], ["on", "the", "dog"]] * 20
MODELS = {
    "dense": {"n_blocks": 1},
    "low rank": {"n_blocks": 1, "rank": 2},
    "pairs of blocks": {"n_blocks": 2},
    "blocks, low rank": {"n_blocks": 2, "rank": 2},
}
BOTH = Contains("dog", "on") & Without("sat")
CONSTRAINTS = [Contains("dog"), Without("cat"), BOTH, Phrase("the dog") | Contains("on")]


@pytest.fixture(scope="module")
def models() -> dict[str, HMM]:
    return {name: HMM(4, n_iter=4, random_state=0, **kw).fit(TEXT) for name, kw in MODELS.items()}


def after(steering: Steering, model: HMM, prompt, written):
    encode = model.vocabulary_.encode
    hypotheses = steering.start([encode(prompt)])
    for word in encode(written):
        hypotheses = steering.advance(hypotheses, [int(word)])
    return hypotheses


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("most_named", [64, 0])
def test_weights_are_those_of_the_enumeration(models, name: str, most_named: int, monkeypatch) -> None:
    monkeypatch.setattr(steering_module, "MOST_NAMED", most_named)
    model = models[name]
    words = model.vocabulary_.words
    for constraint in CONSTRAINTS:
        steering = Steering(model.params_, model.vocabulary_, constraint, 3)
        for written in ([], ["the"], ["dog", "ran"]):
            rest = 3 - len(written)
            weights = weighed_texts(model.log_probabilities, words, [rest], ["on", *written])
            expected = np.zeros(len(words))
            for i, word in enumerate(words):
                mine = {t: w for t, w in weights.items() if t[0] == word}
                good = sum(w for t, w in mine.items() if constraint.holds([*written, *t]))
                expected[i] = good / sum(mine.values())
            [found] = np.exp(steering.log_weights(after(steering, model, ["on"], written)))
            if steering.possible[rest][after(steering, model, [], written)[0].state]:
                np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), rtol=2e-4, atol=1e-7)


def test_hypotheses_do_not_depend_on_each_other(models) -> None:
    model = models["blocks, low rank"]
    steering = Steering(model.params_, model.vocabulary_, BOTH, 4)
    texts = all_texts(["the", "dog", "sat"], 2)[:6]
    hypotheses = steering.start([model.vocabulary_.encode(["the"])] * len(texts))
    for t in range(2):
        hypotheses = steering.advance(hypotheses, [model.vocabulary_.id(text[t]) for text in texts])
    able = [i for i, h in enumerate(hypotheses) if steering.possible[2][h.state]]
    assert 0 < len(able) < len(texts)
    together = steering.log_weights([hypotheses[i] for i in able])
    for row, i in zip(together, able, strict=True):
        [alone] = steering.log_weights(after(steering, model, ["the"], texts[i]))
        np.testing.assert_allclose(np.exp(row), np.exp(alone), rtol=1e-5)


def test_a_word_that_ends_the_text(models) -> None:
    """With "on" as the end, what stands before it must hold; a text that has ended is free."""
    model = models["dense"]
    on, dog = model.vocabulary_.id("on"), model.vocabulary_.id("dog")
    steering = Steering(model.params_, model.vocabulary_, Contains("dog"), 4, on)
    [first] = steering.log_weights(steering.start([model.vocabulary_.encode(["the"])]))
    assert first[on] == -np.inf and np.isfinite(first[dog])
    [found] = steering.log_weights(after(steering, model, ["the"], ["dog"]))
    assert (found == 0).all()
    [found] = steering.log_weights(after(steering, model, ["the"], ["dog", "on"]))
    assert (found == 0).all()


@pytest.fixture
def no_dog():
    """A model no state of which emits "dog"."""
    model = HMM(3, n_iter=3, random_state=0).fit(TEXT)
    chain = model.params_.chain
    emission = chain.emission.copy()
    emission[model.vocabulary_.id("dog")] = 0
    emission /= emission.sum(axis=0)
    model.params_ = model.params_._replace(chain=chain._replace(emission=emission))
    return model


def test_where_the_chain_holds_every_way_impossible_the_automaton_decides(no_dog: HMM) -> None:
    dog = no_dog.vocabulary_.id("dog")
    steering = Steering(no_dog.params_, no_dog.vocabulary_, Phrase("dog dog"), 2)
    [found] = steering.log_weights(steering.start([no_dog.vocabulary_.encode(["the"])]))
    assert found[dog] == 0 and (np.delete(found, dog) == -np.inf).all()


def test_a_word_that_the_chain_holds_impossible_says_nothing_about_its_state(no_dog: HMM) -> None:
    cat, dog = no_dog.vocabulary_.encode(["cat", "dog"])
    steering = Steering(no_dog.params_, no_dog.vocabulary_, Contains("cat"), 2)
    [start] = steering.start([no_dog.vocabulary_.encode(["the"])])
    [found] = steering.log_weights([start])
    expected = start.predicted @ no_dog.transition_.dense() @ no_dog.emission_.dense()[:, cat]
    np.testing.assert_allclose(np.exp(found[dog] - found[cat]), expected, rtol=1e-5)  # after "cat" it holds: weight 1


def test_what_cannot_be(models) -> None:
    model = models["dense"]
    with pytest.raises(InputError, match="No text of 3 tokens"):
        Steering(model.params_, model.vocabulary_, Length(5), 3)
    steering = Steering(model.params_, model.vocabulary_, Without("dog"), 3)
    with pytest.raises(InputError, match="can no longer satisfy"):
        steering.log_weights(after(steering, model, [], ["dog"]))
