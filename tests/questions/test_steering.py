"""The weights that steer a language model, against every text of a tiny vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.texts import all_texts, weighed_texts
from undertow import HMM
from undertow.constraints import Contains, Length, Phrase, Without
from undertow.errors import InputError
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.chain.steering import (
    LANES,
    TOGETHER,
    Ahead,
    Asked,
    Scratch,
    features_after,
    features_of,
    reweigh,
    tiles_of,
    worth,
)
from undertow.kernels.strips import WIDTH, lengthened, shortened
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


@pytest.mark.parametrize("n_words", [9, 9 * WIDTH])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rounded", [True, False])
def test_the_worth_of_words_is_its_definition(n_words: int, seed: int, rounded: bool) -> None:
    """Blocks of unequal sizes, words that all states emit (alike and not), words that no live state emits, strips.

    It is exact for emissions that have a code, and good to the digits of the codes otherwise.
    """
    rng = np.random.default_rng(seed)
    sizes, N, Q, C = np.array([2, 1, 6]), TOGETHER + 3, 4, 3
    Z, of = int(sizes.sum()), np.resize(np.array([0, 1, 2, 2, -1, 0, -1, 1, 2], dtype=np.int32), n_words)
    first = np.concatenate([[0], np.cumsum(sizes)])
    lengths = np.where(of >= 0, sizes[of], np.resize([0, 0, 0, 0, 1, 0, Z, 0, 0], n_words))
    blocks = Blocks(of, first, np.concatenate([[0], np.cumsum(lengths)]))
    emission = rng.random(int(lengths.sum())).astype(np.float32)
    if rounded:
        emission = lengthened(shortened(emission))
        emission[blocks.starts[:-1]] = 1  # they are divided by the largest
    emission *= np.repeat(2.0 ** -rng.integers(0, 40, n_words), lengths).astype(np.float32)  # rare words
    for w in (3, 7):
        emission[blocks.starts[w] : blocks.starts[w + 1]] = 0
    dense = blocks.dense_emission(emission).astype(float)
    classes = rng.permutation(np.resize([0, 0, 0, 0, 1, 1, 2, 2, 0], n_words))
    predicted = rng.dirichlet(np.ones(Z), N).astype(np.float32)
    row_of, rows, log_scale = np.array([2, 0, 1, -1]), rng.random((3, Z)), np.log(rng.random(3))
    step, states = rng.integers(0, Q, (Q, C)), rng.integers(0, Q, N)
    step[states[0]] = 3  # from where nothing is accepted
    beta = np.stack([rows[s] * np.exp(log_scale[s]) if s >= 0 else np.zeros(Z) for s in row_of])
    truth = np.empty((N, n_words))
    for i, w in np.ndindex(N, n_words):
        p = predicted[i] * (dense[:, w] if predicted[i] @ dense[:, w] > 0 else 1.0)
        truth[i, w] = p @ beta[step[states[i], classes[w]]] / p.sum()
    ahead = Ahead.of(row_of, rows, log_scale)
    asked, scratch = Asked(classes, np.flatnonzero(classes), step), Scratch()
    chain = blocks, emission, tiles_of(blocks, emission)
    for texts in (np.arange(N), np.array([3, 1])):
        found, values, nothing = worth(chain, asked, ahead, predicted, states, texts, scratch)
        values = values[:, chain[2].slots]
        assert (found == texts).all()
        assert (nothing == (truth[texts].max(axis=1) == 0)).all()
        largest = truth[texts].max(axis=1, keepdims=True)
        ratio = values.max(axis=1, keepdims=True) / np.where(largest > 0, largest, 1)
        np.testing.assert_allclose(values, truth[texts] * ratio, rtol=1e-5 if rounded else 2.0**-12)


def test_texts_to_which_the_next_word_does_not_matter_are_left_out() -> None:
    blocks, emission = Blocks.of(np.zeros(3, dtype=np.int32), np.array([2])), np.full(6, 1 / 3, dtype=np.float32)
    rows = np.array([[1, 1], [1, 0.5]], dtype=np.float32)
    asked = Asked(np.array([0, 0, 1]), np.array([2]), np.array([[0, 0], [1, 1], [0, 2], [2, 2]]))
    states, predicted = np.array([3, 0, 1, 2]), np.full((4, 2), 0.5, dtype=np.float32)
    chain = blocks, emission, tiles_of(blocks, emission)
    for scale, bound in (
        (0.0, [2]),
        (-1.0, [2, 3]),
    ):  # the flat look-ahead after state 2 is as large as after 0, or not
        ahead = Ahead.of(np.array([0, 1, 2]), np.concatenate([rows, rows[:1]]), np.array([0.0, 0.0, scale]))
        found, _, _ = worth(chain, asked, ahead, predicted, states, np.arange(4), Scratch())
        assert found.tolist() == bound


def test_a_transition_through_features_is_the_product_of_its_factors() -> None:
    """More states than a strip has, an odd number of features, texts left as they are."""
    rng = np.random.default_rng(0)
    sizes = np.array([50, 60, 40])
    Z, F = int(sizes.sum()), 7
    assert Z > 2 * WIDTH and Z % WIDTH
    blocks = Blocks.of(np.array([0, 1, 2, 2, 1], dtype=np.int32), sizes)
    emission = rng.random(int(blocks.starts[-1])).astype(np.float32)
    R, ET = rng.dirichlet(np.ones(F), Z).astype(np.float32), lengthened(shortened(rng.random((Z, F))))
    ET[3, 2] = 1
    ET *= np.float32(0.125)  # numbers that have a code when they are divided by the largest
    predicted, words, texts = (
        rng.dirichlet(np.ones(Z), 4).astype(np.float32),
        np.array([0, 4, 2, 1]),
        np.array([3, 1, 0]),
    )
    out = np.full_like(predicted, -1)
    features_after(blocks, emission, features_of(R, ET), words, predicted, texts, out)
    filtered = predicted * blocks.dense_emission(emission)[:, words].T
    expected = filtered / filtered.sum(axis=1, keepdims=True) @ R @ ET.T
    np.testing.assert_allclose(out[texts], expected[texts], rtol=1e-5)
    assert (out[2] == -1).all()


@pytest.mark.parametrize("n_tokens", [1, LANES - 1, 2 * LANES, 1000])
def test_scores_are_multiplied_by_the_worth_and_normalized(n_tokens: int) -> None:
    """Tokens in any order, some of them the same word, some impossible; rows without weights; huge scores."""
    rng = np.random.default_rng(n_tokens)
    scores = rng.normal(scale=20, size=(5, n_tokens)).astype(np.float32)
    scores[0] += 1e4
    scores[1, 1:] = -np.inf
    values, slots = rng.random((2, 40)).astype(np.float32) ** 9, rng.integers(0, 40, n_tokens)
    values[0, np.setdiff1d(np.arange(40), slots[:1])[::2]] = 0
    texts = np.array([3, 0])
    expected = scores.astype(float)
    with np.errstate(divide="ignore"):
        expected[texts] += np.log(values.astype(float))[:, slots]
    expected -= expected.max(axis=1, keepdims=True)
    expected -= np.log(np.exp(expected).sum(axis=1, keepdims=True))
    out = np.empty_like(scores)
    assert reweigh(scores, texts, values, slots, out) == -1
    np.testing.assert_array_equal(np.isfinite(out), np.isfinite(expected))
    np.testing.assert_allclose(np.exp(out), np.exp(expected), rtol=2e-3, atol=1e-7)  # float32 scores of 10,000
    np.testing.assert_allclose(np.exp(out[1:]), np.exp(expected[1:]), rtol=1e-4, atol=1e-7)
    scores[4] = -np.inf
    assert reweigh(scores, texts, values, slots, out) == 4


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_those_of_the_enumeration(models, name: str) -> None:
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
            if steering.possible[rest][after(steering, model, [], written).states[0]]:
                np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), rtol=2e-4, atol=1e-7)


def test_hypotheses_do_not_depend_on_each_other(models) -> None:
    model = models["blocks, low rank"]
    steering = Steering(model.params_, model.vocabulary_, BOTH, 4)
    texts = all_texts(["the", "dog", "sat"], 2)[:6]
    hypotheses = steering.start([model.vocabulary_.encode(["the"])] * len(texts))
    for t in range(2):
        hypotheses = steering.advance(hypotheses, [model.vocabulary_.id(text[t]) for text in texts])
    able = [i for i, state in enumerate(hypotheses.states) if steering.possible[2][state]]
    assert 0 < len(able) < len(texts)
    together = steering.log_weights(hypotheses.take(able))
    for row, i in zip(together, able, strict=True):
        [alone] = steering.log_weights(after(steering, model, ["the"], texts[i]))
        np.testing.assert_allclose(np.exp(row), np.exp(alone), rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_one_step_is_the_word_and_then_the_scores(models, name: str) -> None:
    """Of texts that have their word, that get it, and that do not; also when all have it."""
    model, rng = models[name], np.random.default_rng(0)
    encode, V = model.vocabulary_.encode, len(model.vocabulary_)
    steering = Steering(model.params_, model.vocabulary_, Contains("dog"), 5)
    tokens = rng.integers(0, V, 12)  # a language model may have other tokens than words
    slots, scores = steering.tiles.slots[tokens], rng.normal(size=(4, len(tokens))).astype(np.float32)
    before = steering.advance(steering.start([encode(["the"])] * 4), encode(["dog", "cat", "ran", "dog"]))
    for words in (["the", "dog", "sat", "cat"], ["the", "dog", "dog", "cat"]):
        now = steering.advance(before, encode(words))
        expected, found = np.empty_like(scores), np.empty_like(scores)
        steering.reweigh(now, scores, slots, expected)
        after_step, dead = steering.step(before, encode(words).astype(np.int64), scores, slots, found)
        assert dead == -1 and after_step.n_written == 2
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(after_step.states, now.states)
        np.testing.assert_allclose(after_step.predicted, now.predicted, rtol=1e-5)


def test_one_step_to_where_the_chain_holds_every_way_impossible() -> None:
    """There the automaton alone decides, and a language model that forbids its words is named by its row."""
    model = HMM(4, n_blocks=2, rank=2, n_iter=4, random_state=0).fit(TEXT)
    B, dog = model.params_.blocks, model.vocabulary_.id("dog")
    emission = model.params_.emission.copy()
    emission[B.starts[dog] : B.starts[dog + 1]] = 0
    steering = Steering(model.params_._replace(emission=emission), model.vocabulary_, Phrase("dog dog"), 3)
    before = steering.start([model.vocabulary_.encode(["the"])] * 2)
    scores = np.zeros((2, len(model.vocabulary_)), dtype=np.float32)
    out = np.empty_like(scores)
    words = model.vocabulary_.encode(["dog", "cat"]).astype(np.int64)
    _, dead = steering.step(before, words, scores, steering.tiles.slots, out)
    assert dead == -1 and out[1, dog] == 0 and (np.delete(out[1], dog) == -np.inf).all()
    scores[1, dog] = -np.inf
    assert steering.step(before, words, scores, steering.tiles.slots, out)[1] == 1


def test_one_step_where_all_that_is_kept_is_zero(models) -> None:
    model = models["blocks, low rank"]
    steering = Steering(model.params_, model.vocabulary_, Contains("dog"), 4)
    V, before = len(model.vocabulary_), steering.start([model.vocabulary_.encode(["the"])] * 2)
    steering.ahead[2] = Ahead.of(steering.ahead[2].row_of, 0 * steering.ahead[2].rows, np.full(2, -np.inf))
    out, words = np.full((2, V), np.nan, dtype=np.float32), model.vocabulary_.encode(["cat", "ran"]).astype(np.int64)
    _, dead = steering.step(before, words, np.zeros_like(out), steering.tiles.slots, out)
    assert dead == -1
    np.testing.assert_allclose(out, np.full((2, V), -np.log(V)), rtol=1e-5)


def test_rows_that_were_not_kept_are_computed(models, monkeypatch) -> None:
    """What is kept may be of other states of the automaton than those that a text can reach."""
    model = models["dense"]
    steering = Steering(model.params_, model.vocabulary_, BOTH, 4)
    text = after(steering, model, ["the"], ["dog"])
    expected = steering.log_weights(text)
    assert 2 in steering.ahead
    kept = steering.plan.table.kept
    kept[2] = tuple(of[:1] for of in kept[2])
    steering.ahead = steering._kept()
    assert set(steering.ahead) == {0, 1, 2, 3}  # it is made again, as long as it is little
    np.testing.assert_allclose(steering.log_weights(text), expected, rtol=1e-5)
    monkeypatch.setattr("undertow.questions.steering.KEPT_NUMBERS", 0)
    steering.ahead = steering._kept()
    assert 2 not in steering.ahead and 1 in steering.ahead
    np.testing.assert_allclose(np.exp(steering.log_weights(text)), np.exp(expected), rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_where_the_constraint_holds_for_good_nothing_is_computed(models, name: str) -> None:
    """Neither the chain's state nor the worth of words, and the other texts are as they are alone."""
    model = models[name]
    steering = Steering(model.params_, model.vocabulary_, Contains("dog"), 4)
    start = steering.start([model.vocabulary_.encode(["the"])] * 2)
    both = steering.advance(start, model.vocabulary_.encode(["dog", "cat"]))
    np.testing.assert_array_equal(both.predicted[0], start.predicted[0])
    [alone] = steering.log_weights(after(steering, model, ["the"], ["cat"]))
    assert steering.worth(both).texts.tolist() == [1]
    np.testing.assert_allclose(steering.log_weights(both), [np.zeros(len(alone)), alone], rtol=1e-5, atol=1e-6)
    without = Steering(model.params_, model.vocabulary_, Without("dog"), 4)  # accepting, but not for good
    assert not without.settled[0]


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
    start = steering.start([no_dog.vocabulary_.encode(["the"])])
    [found] = steering.log_weights(start)
    expected = start.predicted[0] @ no_dog.transition_.dense() @ no_dog.emission_.dense()[:, cat]
    np.testing.assert_allclose(np.exp(found[dog] - found[cat]), expected, rtol=1e-5)  # after "cat" it holds: weight 1


def test_what_cannot_be(models) -> None:
    model = models["dense"]
    with pytest.raises(InputError, match="No text of 3 tokens"):
        Steering(model.params_, model.vocabulary_, Length(5), 3)
    steering = Steering(model.params_, model.vocabulary_, Without("dog"), 3)
    with pytest.raises(InputError, match="can no longer satisfy"):
        steering.log_weights(after(steering, model, [], ["dog"]))
