"""Probabilities of constraints and texts under them, against every text of a tiny vocabulary."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from oracles.hmm_paths import enumerate_paths
from oracles.texts import share, weighed_texts
from undertow import HMM, Corpus, FactorialHMM, Interpolation
from undertow.constraints import (
    Contains,
    Count,
    EndsWith,
    Length,
    Matches,
    OneOf,
    Phrase,
    StartsWith,
    Without,
)
from undertow.errors import InputError, NotFittedError
from undertow.questions import lookahead

TEXT = [["the", "cat", "sat"], ["the", "dog", "ran", "on"], ["the", "cat", "ran"], ["on", "the", "dog"]] * 20
MODELS = {
    "dense": {"n_blocks": 1},
    "low rank": {"n_blocks": 1, "rank": 2},
    "band": {"n_blocks": 1, "rank": 2, "band": 2},
    "pairs of blocks": {"n_blocks": 2},
    "blocks, low rank": {"n_blocks": 2, "rank": 2},
}
CONSTRAINTS = [
    Contains("dog"),
    Contains("dog", "cat"),
    Contains("dog", "cat", ordered=True),
    Without("cat", "the dog"),
    Phrase("the dog"),
    StartsWith("cat"),
    EndsWith("ran on"),
    Length(2, 2),
    Count(["cat", "dog"], 1, 2),
    OneOf(["cat", "on"], position=-1),
    Matches("( the )? {cat|dog} .*"),
    (Contains("dog") & Without("sat")) | ~Contains("the"),
]


@pytest.fixture(scope="module")
def models() -> dict[str, HMM]:
    return {name: HMM(4, n_iter=4, random_state=0, **kw).fit(TEXT) for name, kw in MODELS.items()}


@pytest.fixture(scope="module")
def bounded() -> HMM:
    return HMM(4, n_blocks=2, n_iter=4, random_state=0).fit(Corpus.from_sentences(TEXT, boundary="</s>"))


@pytest.fixture(params=["float64", "as it is"])
def precision(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Small models are computed in float64; here also by the operators of large ones. The tolerance."""
    if request.param == "as it is":
        monkeypatch.setattr(lookahead, "SMALL_STATES", 0)
        return 3e-6
    return 1e-6


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("suffix", [(), ("ran", "on")], ids=["", "suffix"])
def test_probability_is_that_of_the_enumeration(models, name: str, suffix, precision: float) -> None:
    model = models[name]
    weights = weighed_texts(model.log_probabilities, model.vocabulary_.words, [3], ["the"], suffix)
    for constraint in CONSTRAINTS:
        found = model.probability(constraint, prefix=["the"], suffix=suffix, length=3)
        np.testing.assert_allclose(found, share(weights, constraint.holds), rtol=precision, err_msg=repr(constraint))


def test_without_a_prefix(models) -> None:
    for model in models.values():
        weights = weighed_texts(model.log_probabilities, model.vocabulary_.words, [2])
        for constraint in CONSTRAINTS:
            found = model.probability(constraint, length=2)
            np.testing.assert_allclose(found, share(weights, constraint.holds), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("suffix", [(), ("ran",)], ids=["", "suffix"])
def test_a_range_of_lengths(models, suffix, precision: float) -> None:
    """Without a boundary word all lengths are alike; what follows them weighs."""
    model = models["blocks, low rank"]
    weights = weighed_texts(model.log_probabilities, model.vocabulary_.words, [1, 2, 3], ["the"], suffix)
    for constraint in CONSTRAINTS:
        found = model.probability(constraint, prefix=["the"], suffix=suffix, length=(1, 3))
        np.testing.assert_allclose(found, share(weights, constraint.holds), rtol=precision, atol=1e-12)


def test_the_boundary_word_ends_a_text(bounded: HMM, precision: float) -> None:
    """Within one sentence there is none; a range of lengths ends in one."""
    words = [w for w in bounded.vocabulary_.words if w != "</s>"]
    fixed = weighed_texts(bounded.log_probabilities, words, [3], ["the"])
    ended = weighed_texts(bounded.log_probabilities, words, [2, 3], ["the"], ["</s>"])
    for constraint in CONSTRAINTS:
        found = bounded.probability(constraint, prefix=["the"], length=3)
        np.testing.assert_allclose(found, share(fixed, constraint.holds), rtol=precision)
        found = bounded.probability(constraint, prefix=["the"], length=(2, 3))
        np.testing.assert_allclose(found, share(ended, constraint.holds), rtol=precision, atol=1e-12)


# --- texts ----------------------------------------------------------------------------------------------


def check_distribution(texts, weights, constraint) -> None:
    """Chi-square of drawn texts against enumerated ones; rare texts are counted together."""
    kept = {text: w for text, w in weights.items() if constraint is None or constraint.holds(text)}
    seen = Counter(map(tuple, texts))
    assert set(seen) <= set(kept)
    total = sum(kept.values())
    expected = {text: w / total * len(texts) for text, w in kept.items()}
    common = [text for text, e in expected.items() if e >= 5]
    observed = [seen[t] for t in common]
    f_exp = [expected[t] for t in common]
    observed.append(len(texts) - sum(observed))
    f_exp.append(max(len(texts) - sum(f_exp), 1e-9))
    if f_exp[-1] < 5:
        observed[-2], f_exp[-2] = observed[-2] + observed[-1], f_exp[-2] + f_exp[-1]
        observed, f_exp = observed[:-1], f_exp[:-1]
    assert len(common) > 5
    assert chisquare(observed, np.array(f_exp) * sum(observed) / sum(f_exp)).pvalue > 1e-3


def seen_words(model: HMM) -> list[str]:
    vocabulary = model.vocabulary_
    return [w for w, c in zip(vocabulary.words, vocabulary.counts, strict=True) if c > 0 and w != vocabulary.boundary]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("constraint", [None, Contains("dog") & Without("sat")], ids=["free", "constrained"])
def test_samples_have_the_exact_distribution(models, name: str, constraint, precision: float) -> None:
    model = models[name]
    weights = weighed_texts(model.log_probabilities, seen_words(model), [3], ["the"], ["ran"])
    given = {"prefix": ["the"], "suffix": ["ran"], "length": 3, "constraint": constraint}
    check_distribution(model.generate(**given, n=2000, random_state=1), weights, constraint)


def test_samples_of_a_range_of_lengths(models, bounded: HMM, precision: float) -> None:
    constraint = Contains("dog") | Contains("sat")
    for model, ending in ((models["pairs of blocks"], []), (bounded, ["</s>"])):
        weights = weighed_texts(model.log_probabilities, seen_words(model), [2, 3], ["the"], ending)
        texts = model.generate(prefix=["the"], length=(2, 3), constraint=constraint, n=2000, random_state=2)
        assert {len(t) for t in texts} == {2, 3}
        check_distribution(texts, weights, constraint)


def test_temperature_is_that_of_each_word_given_those_before(models, precision: float) -> None:
    model, constraint, hot = models["pairs of blocks"], Contains("dog"), 2.0
    weights = weighed_texts(model.log_probabilities, seen_words(model), [2], ["the"])
    weights = {text: w for text, w in weights.items() if constraint.holds(text)}
    first: Counter[str] = Counter()
    for text, w in weights.items():
        first[text[0]] += w
    n_first = sum(w ** (1 / hot) for w in first.values())
    n_second = Counter()
    for text, w in weights.items():
        n_second[text[0]] += (w / first[text[0]]) ** (1 / hot)
    tempered = {
        text: first[text[0]] ** (1 / hot) / n_first * (w / first[text[0]]) ** (1 / hot) / n_second[text[0]]
        for text, w in weights.items()
    }
    texts = model.generate(prefix=["the"], length=2, constraint=constraint, n=2000, temperature=hot, random_state=3)
    check_distribution(texts, tempered, None)


@pytest.mark.parametrize("name", ["dense", "pairs of blocks"])
def test_the_best_text(models, name: str, precision: float) -> None:
    """The largest joint probability of a text and its states, by enumeration of both."""
    model, constraint = models[name], Contains("dog") & Without("ran")
    T, emission = model.transition_.dense(), model.emission_.dense()
    after_the = enumerate_paths(model.initial_, T, emission[:, [model.vocabulary_.id("the")]].T).gamma[-1] @ T
    weights = weighed_texts(model.log_probabilities, seen_words(model), [3], ["the"])
    best = {}
    for text in filter(constraint.holds, weights):
        obs = emission[:, model.vocabulary_.encode(text)].T
        best[text] = enumerate_paths(after_the, T, obs).best_log_prob
    [found] = model.generate(prefix=["the"], length=3, constraint=constraint, method="best")
    np.testing.assert_allclose(best[tuple(found)], max(best.values()), rtol=1e-6)


def test_the_same_seed_gives_the_same_texts(models) -> None:
    given = {"prefix": ["the"], "length": 4, "constraint": Contains("dog"), "n": 5}
    for model in models.values():
        assert model.generate(**given, random_state=0) == model.generate(**given, random_state=0)
        assert model.generate(**given, random_state=0) != model.generate(**given, random_state=1)
    assert models["dense"].generate(n=0) == []


def test_longer_texts_satisfy_what_was_asked(models) -> None:
    constraint = Contains("dog", "sat", "on on") & Without("cat") & EndsWith("dog")
    for model in models.values():
        texts = model.generate(prefix=["the"], length=30, constraint=constraint, n=20, random_state=0)
        assert all(constraint.holds(text) and len(text) == 30 for text in texts)


# --- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"length": 0}, "at least 1"),
        ({"length": (3, 2)}, "at least 1"),
        ({"length": 2.5}, "at least 1"),
        ({"n": -1}, "at least 0"),
        ({"temperature": 0}, "above 0"),
        ({"temperature": float("nan")}, "above 0"),
        ({"method": "greedy"}, "one of sample, best"),
        ({"method": "best", "n": 2}, "one most probable text"),
        ({"prefix": "the dog"}, "list of tokens"),
        ({"constraint": "dog"}, "undertow.constraints"),
        ({"constraint": Contains("dgo")}, "nearest word there is 'dog'"),
        ({"constraint": Without("xylophone")}, "words of its training text"),
        ({"constraint": Contains("dog") & Without("dog")}, "contradict each other"),
        ({"constraint": Contains("dog", "cat", "sat"), "length": 2}, "needs at least 3 words"),
        ({"constraint": Matches("dog (cat cat)*"), "length": 4}, "give another length"),
        ({"constraint": Contains("<unk>")}, "probability zero"),
    ],
)
def test_bad_input(models, given, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        models["dense"].generate(**given)


def test_probability_of_what_cannot_be(models) -> None:
    model = models["dense"]
    assert model.probability(Contains("dog") & Without("dog"), length=3) == 0
    assert model.probability(Contains("dog", "cat"), length=1) == 0
    assert model.probability(Contains("dog") | Without("dog"), length=3) == pytest.approx(1, abs=1e-12)
    with pytest.raises(InputError, match="needs a constraint"):
        model.probability(None, length=3)
    with pytest.raises(InputError, match="at least 1"):
        model.probability(Contains("dog"), length=0)
    with pytest.raises(NotFittedError):
        HMM().probability(Contains("dog"), length=3)


# --- other models ---------------------------------------------------------------------------------------


def test_a_factorial_model_by_its_joint_states() -> None:
    model = FactorialHMM(2, n_states=2, n_iter=3, random_state=0).fit(TEXT)
    weights = weighed_texts(model.log_probabilities, model.vocabulary_.words, [3], ["the"], ["ran"])
    for constraint in CONSTRAINTS:
        found = model.probability(constraint, prefix=["the"], suffix=["ran"], length=3)
        np.testing.assert_allclose(found, share(weights, constraint.holds), rtol=3e-6)
    weights = weighed_texts(model.log_probabilities, seen_words(model), [3], ["the"], ["ran"])
    given = {"prefix": ["the"], "suffix": ["ran"], "length": 3, "constraint": Contains("dog")}
    check_distribution(model.generate(**given, n=2000, random_state=0), weights, Contains("dog"))


def test_models_that_cannot_answer() -> None:
    large = FactorialHMM(7, n_states=4, n_iter=1, random_state=0, inference="variational").fit(TEXT)
    with pytest.raises(InputError, match="16,384 joint states"):
        large.probability(Contains("dog"), length=3)
    mixture = Interpolation([HMM(2, n_iter=1, random_state=0).fit(TEXT)])
    for ask in (mixture.probability, mixture.generate):
        with pytest.raises(InputError, match="ask one of its models"):
            ask(Contains("dog"), length=3)


def test_progress_is_reported(models) -> None:
    model, told = models["dense"], []
    model.generate(length=5, progress=told.append)
    assert [(p.stage, p.done, p.total) for p in told[:6]] == [("looking ahead", r, 5) for r in range(6)]
    assert [(p.stage, p.done, p.total) for p in told[6:]] == [("writing", t, 5) for t in range(5)]
    told.clear()
    model.generate(length=5, method="best", progress=told.append)
    assert [(p.stage, p.done) for p in told[6:]] == [("searching", t) for t in range(5)]
    told.clear()
    model.probability(Contains("dog"), length=5, progress=told.append)
    assert {p.stage for p in told} == {"looking ahead"} and len(told) == 12
