"""Questions to factorial HMMs, linear dynamical systems and mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from contract.cases import SENTENCES
from oracles.all_texts import AllTexts, one_of
from oracles.factorial_product import flat_hmm
from oracles.lds_fills import all_fills, state_given
from sentences import is_one_sentence
from tiny_hmms import TEXT, all_texts, dense, made, one_hot
from undertow import HMM, LDS, Evidence, FactorialHMM, Interpolation
from undertow.errors import InputError
from undertow.models.lds import queries
from undertow.questions.best_fill import search
from undertow.questions.linear import LinearFills

GAPS: list[Any] = [None, {"a", "b", "c"}, None]


def check_shares(ids: Any, truth: Any, n_words: int) -> None:
    """Each share of drawn texts (n, T) is within five standard deviations of its probability."""
    n, T = ids.shape
    share = np.bincount(ids.astype(np.int64) @ n_words ** np.arange(T)[::-1], minlength=n_words**T) / n
    assert share[truth == 0].sum() == 0
    assert (np.abs(share - truth) < 5 * np.sqrt(truth * (1 - truth) / n) + 1e-9).all()


def check_changes(found: Any, truth: AllTexts, old: dict[int, Any], new: dict[int, Any], Z: int, V: int) -> None:
    """`what_if` against two posteriors of all texts; `old` and `new` are weights (V,) of the known words."""
    for change in found:
        t = change.position
        q, p = (truth.given(words).state(t, Z) for words in (old, new))
        bits = [
            -np.log2(truth.given({i: w for i, w in words.items() if i != t}).word(t, V) @ old[t])
            for words in (old, new)
        ]
        both = (p > 0) & (q > 0)
        np.testing.assert_allclose(change.total_variation, np.abs(p - q).sum() / 2, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(change.divergence, p[both] @ np.log2(p[both] / q[both]), rtol=1e-2, atol=1e-5)
        np.testing.assert_allclose(change.surprise, bits[1] - bits[0], rtol=1e-2, atol=1e-4)


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


def test_joint_fills_of_a_factorial_hmm_are_those_of_all_texts(factorial: FactorialHMM) -> None:
    p, words = factorial.params_, factorial.vocabulary_
    readable = words.writable().astype(float)
    middle = np.isin(np.arange(len(words)), [words.id(w) for w in "abc"]).astype(float)
    layer = np.array([1.0, 1.0, 0.0, 0.0])  # joint states with state 0 in layer 0
    every = AllTexts(*flat_hmm(p.initial, p.transition, p.theta), 3)
    truth = every.given({0: readable, 1: middle, 2: readable}, {2: layer})
    best, probability = truth.best_text()
    found = factorial.best_fill(GAPS, states={2: {0: 0}})
    assert found.proven and tuple(words.encode(found.tokens).tolist()) == best
    np.testing.assert_allclose(found.log_probability, np.log(probability), rtol=1e-4)
    drawn = factorial.sample_fill(GAPS, 4000, states={2: {0: {0}}}, random_state=0)
    check_shares(np.array([words.encode(s) for s in drawn]), truth.of_texts(), len(words))
    np.testing.assert_allclose(
        factorial.log_evidence(GAPS, states={2: {0: 0}}),
        np.log(every.given({1: middle}, {2: layer}).total()),
        rtol=1e-5,
    )
    old, new = ({t: np.eye(len(words))[words.id(w)] for t, w in enumerate(text)} for text in ("abd", "acd"))
    check_changes(factorial.what_if(list("abd"), 1, "c"), every, old, new, 4, len(words))


def test_all_inference_of_a_factorial_hmm_takes_evidence(factorial: FactorialHMM) -> None:
    p, words = factorial.params_, factorial.vocabulary_
    every = AllTexts(*flat_hmm(p.initial, p.transition, p.theta), 3)
    middle = np.isin(np.arange(len(words)), [words.id(w) for w in "abc"]).astype(float)
    known, states = {0: np.eye(len(words))[words.id("a")], 1: middle}, {2: np.array([0.0, 1.0, 0.0, 1.0])}
    text = Evidence(["a", {"a", "b", "c"}, None], states={2: {1: 1}})
    truth = every.given(known, states)
    [gamma], [path] = factorial.posterior([text]), factorial.decode([text])
    for t in range(3):
        joint = truth.state(t, 4).reshape(2, 2)
        np.testing.assert_allclose(gamma[t], [joint.sum(axis=1), joint.sum(axis=0)], rtol=1e-4, atol=1e-6)
    best = truth.paths[int(truth.weight.sum(axis=0).argmax())]
    assert path.tolist() == [[z // 2, z % 2] for z in best]
    np.testing.assert_allclose(factorial.log_likelihoods([text, ["a"]])[0], np.log(truth.total()), rtol=1e-5)
    np.testing.assert_allclose(factorial.score([text]), np.log(truth.total()) / 3, rtol=1e-5)
    rest = [
        every.given({i: w for i, w in known.items() if i != t}, {i: s for i, s in states.items() if i != t}).total()
        for t in range(3)
    ]
    np.testing.assert_allclose(
        factorial.masked_log_probabilities([text])[0], np.log(truth.total() / np.array(rest)), rtol=1e-4
    )
    unknown = Evidence(["a", "zzz", "d"])  # for states a missing word, as in texts that are known
    np.testing.assert_allclose(
        factorial.posterior([unknown])[0], factorial.posterior([["a", "zzz", "d"]])[0], atol=1e-5
    )


@pytest.mark.parametrize(
    ("states", "part"),
    [({0: 1}, "which layers"), ({0: {2: 0}}, "0 to 1"), ({0: {0: 7}}, "0 to 1"), ({0: {0: []}}, "no state of layer")],
)
def test_bad_states_of_a_factorial_hmm(factorial: FactorialHMM, states: dict[int, Any], part: str) -> None:
    with pytest.raises(InputError, match=part) as e:
        factorial.fill(["a", None], states=states)
    assert is_one_sentence(str(e.value))


def test_too_many_joint_states_are_refused(factorial: FactorialHMM, monkeypatch: Any) -> None:
    monkeypatch.setattr("undertow.questions.factorial.MOST_STATES", 3)
    monkeypatch.setattr(factorial, "_product", None)
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


def test_joint_fills_of_an_lds_are_products_of_conditionals(lds: LDS) -> None:
    words = lds.vocabulary_
    allowed = np.isin(np.arange(len(words)), [words.id(w) for w in ("the", "old", "river", "sea", "runs")])
    lm = queries.language_model(lds.params_.C, lds.params_.mu, words.counts, lds.dropped_, words.fallback())
    text = ["zzz", "?", "river", "?", "?", "sea"]
    known = [None, None, words.id("river"), None, None, words.id("sea")]
    truth = all_fills(
        known,
        [1, 3, 4],
        allowed,
        *(lds.params_, lds._tables.rows.astype(float), lds._tables.stationary),
        lambda mean: queries.word_distribution(lm, mean.astype(np.float32)),
    )
    np.testing.assert_allclose(sum(truth.values()), 1, rtol=1e-9)
    fills = LinearFills(lds, Evidence([None if t == "?" else t for t in text]), markers=False)
    fills.allowed = allowed
    for fill, p in list(truth.items())[::7]:
        np.testing.assert_allclose(np.exp(fills.log_probability(fill)), p, rtol=1e-3)
    best, value, proven = search(fills, 2000)
    assert proven and tuple(best) == max(truth, key=lambda fill: truth[fill])
    np.testing.assert_allclose(value, np.log(max(truth.values())), rtol=1e-3)
    shown = fills.tokens(best)
    assert [shown[t] for t in (0, 2, 5)] == ["zzz", "river", "sea"]


def test_drawn_fills_of_an_lds_have_the_distribution_of_all_fills(lds: LDS) -> None:
    words, readable = lds.vocabulary_, lds.vocabulary_.writable()
    lm = queries.language_model(lds.params_.C, lds.params_.mu, words.counts, lds.dropped_, words.fallback())
    given = (lds.params_, lds._tables.rows.astype(float), lds._tables.stationary)
    truth = np.zeros((len(words), len(words)))
    for fill, p in all_fills(
        [None, words.id("river"), None],
        [0, 2],
        readable,
        *given,
        lambda m: queries.word_distribution(lm, m.astype("f4")),
    ).items():
        truth[fill] = p
    drawn = lds.sample_fill([None, "river", None], 3000, random_state=0)
    assert drawn == lds.sample_fill([None, "river", None], 3000, random_state=0)
    check_shares(np.array([words.encode([s[0], s[2]]) for s in drawn]), truth.ravel(), len(words))
    found = lds.best_fill([None, "river", None])
    assert tuple(words.encode([found.tokens[0], found.tokens[2]])) == np.unravel_index(truth.argmax(), truth.shape)
    np.testing.assert_allclose(found.log_probability, np.log(truth.max()), rtol=1e-3)


def test_what_if_of_an_lds_compares_two_gaussians(lds: LDS) -> None:
    words, text = lds.vocabulary_, ["the", "old", None, "runs"]
    given = (lds.params_, lds._tables.rows.astype(float), lds._tables.stationary)
    ids = [None if w is None else words.id(w) for w in text]
    (old, P), (new, P_new) = (state_given([ids[0], w, *ids[2:]], *given) for w in (ids[1], words.id("river")))
    np.testing.assert_allclose(P, P_new)
    found = lds.what_if(text, 1, "river")
    assert [(c.position, c.token) for c in found] == [(0, "the"), (2, None), (3, "runs")]
    both = [lds.masked_log_probabilities([Evidence([text[0], w, *text[2:]])])[0] for w in ("old", "river")]
    for change in found:
        t = change.position
        away = np.sqrt((new[t] - old[t]) @ np.linalg.inv(P[t]) @ (new[t] - old[t]))
        x = np.linspace(-12, 12 + away, 200_001)  # along the line between the means, both have variance 1
        p, q = norm.pdf(x, away), norm.pdf(x)
        np.testing.assert_allclose(change.total_variation, np.trapezoid(np.abs(p - q), x) / 2, rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(change.divergence, np.trapezoid(p * np.log2(p / q), x), rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(change.surprise, (both[0][t] - both[1][t]) / np.log(2), rtol=1e-4, atol=1e-6)


def test_gaps_of_evidence_say_nothing_to_an_lds(lds: LDS) -> None:
    text, unknown = Evidence(["the", None, "river"]), ["the", "zzz", "river"]
    np.testing.assert_allclose(lds.transform([text], "smooth")[0], lds.transform([unknown], "smooth")[0], rtol=1e-5)
    for ask in (lds.log_probabilities, lds.masked_log_probabilities):
        known, logs = ask([unknown])[0], ask([text])[0]
        assert logs[1] == 0 and known[1] < 0
        np.testing.assert_allclose(logs[[0, 2]], known[[0, 2]], rtol=1e-5)
    np.testing.assert_allclose(lds.score([text]), lds.log_probabilities([text])[0].sum() / 3)


def test_masking_many_sentences_of_an_lds_is_masking_each(lds: LDS) -> None:
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
        lambda: lds.log_probabilities([Evidence(["the", {"old", "sea"}])]),
        lambda: lds.transform([Evidence(["the"], {0: 1})]),
        lambda: lds.sample_fill(["the", None], 0),
        lambda: lds.best_fill(["the", None], max_expansions=0),
        lambda: lds.best_fill([{"the", "old"}, None]),
        lambda: lds.what_if(["the", None], 1, "old"),
        lambda: lds.what_if(["the", "old"], 1, "nowhere"),
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


def test_a_mixture_answers_as_the_chain_that_draws_a_model_first() -> None:
    models, weights = [made("dense"), made("blocks"), made("low rank")], [0.3, 0.7, 0.0]
    mixture, words = Interpolation(models, weights), models[0].vocabulary_
    V, Z = len(words), sum(m.params_.n_states for m in models[:2])
    every = AllTexts(*one_of([dense(m) for m in models[:2]], weights[:2]), 3)
    readable = words.writable().astype(float)
    middle = np.isin(np.arange(V), [words.id(w) for w in "abc"]).astype(float)
    truth = every.given({0: readable, 1: middle, 2: readable})
    best, probability = truth.best_text()
    found = mixture.best_fill(GAPS)
    assert found.proven and tuple(words.encode(found.tokens).tolist()) == best
    np.testing.assert_allclose(found.log_probability, np.log(probability), rtol=1e-4)
    drawn = mixture.sample_fill(GAPS, 4000, random_state=0)
    check_shares(np.array([words.encode(s) for s in drawn]), truth.of_texts(), V)
    assert drawn[:20] != sorted(drawn[:20])  # texts of the models are mixed, not one model's after the other's
    known = {0: one_hot(models[0], "a"), 2: one_hot(models[0], "d")}
    np.testing.assert_allclose(mixture.log_evidence(["a", None, "d"]), np.log(every.given(known).total()), rtol=1e-5)
    share = every.given(known).state(0, Z)[: models[0].params_.n_states].sum()
    np.testing.assert_allclose(mixture.responsibilities(["a", None, "d"]), [share, 1 - share, 0], rtol=1e-4)
    p = every.given(known).word(1, V)
    for comparison in mixture.compare(["a", "b", "d"], 1, ["b", "c"]):
        np.testing.assert_allclose(comparison.probability, p[words.id(comparison.word)], rtol=1e-4)
    old, new = ({t: one_hot(models[0], w) for t, w in enumerate(text)} for text in ("abd", "acd"))
    check_changes(mixture.what_if(list("abd"), 1, "c"), every, old, new, Z, V)
    [s] = mixture.surprise([list("abd")])
    ahead = [every.given({i: w for i, w in old.items() if i < t}).total() for t in range(4)]
    np.testing.assert_allclose(s.left_to_right, -np.diff(np.log2(ahead)), rtol=1e-4)
    np.testing.assert_allclose(s.both_sides, -mixture.masked_log_probabilities([list("abd")])[0] / np.log(2), rtol=1e-6)


def test_a_draw_is_by_the_model_that_probably_wrote_the_rest() -> None:
    """By its weight alone each model would write half of the texts; what is known is 19 times as likely by one."""
    models = [HMM(3, n_iter=1, random_state=0).fit([["a", "c", "d", "x"]] * 2) for _ in range(2)]
    words = models[0].vocabulary_
    a, c, d, x = (words.id(w) for w in "acdx")
    for model, share, last in zip(models, (0.95, 0.05), (x, d), strict=True):
        emission = np.zeros((3, len(words)))
        emission[[0, 2], [a, last]] = 1
        emission[1, [c, d]] = share, 1 - share
        chain = model.params_.chain
        step = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 1]], dtype=np.float32)
        tables = (np.array([1, 0, 0], "f4"), type(chain.transition)(step), np.ascontiguousarray(emission.T, dtype="f4"))
        model.params_ = model.params_._replace(chain=type(chain)(*tables))
    drawn = Interpolation(models).sample_fill(["a", "c", None], 2000, random_state=0)
    assert abs(np.mean([text[2] == "x" for text in drawn]) - 0.95) < 0.03


def test_a_mixture_whose_models_hold_some_texts_impossible() -> None:
    models = [HMM(3, n_iter=1, random_state=0).fit([["a", "c", "d", "x"]] * 2) for _ in range(2)]
    words = models[0].vocabulary_
    for model, after in zip(models, ("c", "d"), strict=True):  # a chain that can only write "a" and then its own word
        emission = np.zeros((3, len(words)))
        emission[[0, 1, 2], [words.id("a"), words.id(after), words.id("x")]] = 1
        step = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 1.0]])
        chain = model.params_.chain
        tables = (
            np.array([1, 0, 0], "f4"),
            type(chain.transition)(step.astype("f4")),
            np.ascontiguousarray(emission.T, "f4"),
        )
        model.params_ = type(model.params_)(type(chain)(*tables))
    mixture = Interpolation(models, [0.25, 0.75])
    np.testing.assert_allclose(mixture.responsibilities(["a", None, "x"]), [0.25, 0.75])
    assert mixture.best_fill(["a", None, "x"]).tokens == ["a", "d", "x"]
    np.testing.assert_allclose(mixture.best_fill(["a", None, "x"]).log_probability, np.log(0.75), rtol=1e-6)
    np.testing.assert_allclose(mixture.responsibilities(["a", "c"]), [1, 0])
    # p(c | a, x) = 0.25, although the second model holds the whole text impossible
    np.testing.assert_allclose(mixture.masked_log_probabilities([["a", "c", "x"]])[0][1], np.log(0.25), rtol=1e-6)
    [s] = mixture.surprise([["a", "c", "x"]])
    np.testing.assert_allclose(s.left_to_right, [0, 2, 0], atol=1e-6)
    changes = mixture.what_if(["a", "c", "x"], 1, "d")
    assert [c.total_variation for c in changes] == [1, 1]  # another model writes
    for ask in (mixture.responsibilities, mixture.fill, mixture.sample_fill, mixture.best_fill):
        with pytest.raises(InputError, match="each of the models") as e:
            ask(["x", None])
        assert is_one_sentence(str(e.value))


def test_a_mixture_with_an_lds_says_that_it_cannot(lds: LDS) -> None:
    hmm = HMM(2, n_iter=1, random_state=0).fit(SENTENCES)
    mixture = Interpolation([hmm, lds])
    for ask in (lambda: mixture.fill(["the", None]), lambda: mixture.masked_perplexity(SENTENCES)):
        with pytest.raises(InputError, match="LDS") as e:
            ask()
        assert is_one_sentence(str(e.value))
