"""Gaps, sets, weights and known states against Bayes' rule over all texts and paths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sentences import is_one_sentence
from tiny_hmms import all_texts, dense, forms, made, one_hot, seen
from undertow import HMM, Corpus, Evidence
from undertow.constraints import Contains
from undertow.errors import InputError
from undertow.kernels.chain import leave_one_out
from undertow.questions.evidence import observe

WEIGHTS = {"a": 0.2, "b": 0.7, "d": 1.5}


def known(model: HMM, text: list[Any]) -> dict[int, Any]:
    """(V,) weights of the words at the positions that are not gaps."""
    out = {}
    for t, token in enumerate(text):
        if isinstance(token, str):
            out[t] = one_hot(model, token)
        elif isinstance(token, dict):
            out[t] = sum(w * one_hot(model, word) for word, w in token.items())
        elif token is not None:
            out[t] = sum(one_hot(model, word) for word in token)
    return out


TEXTS: list[list[Any]] = [
    ["a", None, "d"],
    [None, "c", None],
    [None, None, None],
    ["a", {"b", "c"}, None],
    [{"a", "b", "c"}, WEIGHTS, "d"],
    [WEIGHTS, None, {"a", "d"}],
    [None],
    ["zzz", None, "b"],
]


def named(text: list[Any]) -> str:
    """The same name in every process: sets have no order."""
    return " ".join(str(t) if t is None or isinstance(t, str) else "".join(sorted(t)) for t in text)


@forms
@pytest.mark.parametrize("text", TEXTS, ids=named)
def test_fill_is_bayes_rule_over_all_texts(form: str, text: list[Any]) -> None:
    model = made(form)
    truth = all_texts(model, len(text)).given(known(model, text))
    gaps = model.fill(text, n=10)
    assert [g.position for g in gaps] == [t for t, token in enumerate(text) if not isinstance(token, str)]
    for gap in gaps:
        p = truth.word(gap.position, len(model.vocabulary_)) * seen(model)
        ours = {model.vocabulary_.id(w.word): w.probability for w in gap.words}
        assert sorted(ours.values(), reverse=True) == list(ours.values())
        assert set(ours) == set(np.flatnonzero(p > 0).tolist())
        np.testing.assert_allclose([ours[i] for i in ours], [p[i] for i in ours], rtol=1e-4)
    np.testing.assert_allclose(model.log_evidence(text), np.log(truth.total()), rtol=1e-5, atol=1e-6)


@forms
@pytest.mark.parametrize("states", [{0: 1}, {1: {0, 3}}, {0: {0, 1, 2, 3}, 2: 2}], ids=["one", "set", "two"])
def test_known_states(form: str, states: dict[int, Any]) -> None:
    model = made(form)
    Z, V = model.params_.n_states, len(model.vocabulary_)
    masks = {t: np.isin(np.arange(Z), list(s) if isinstance(s, set) else [s]).astype(float) for t, s in states.items()}
    text = [None, {"a", "b", "c"}, None]
    truth = all_texts(model, 3).given(known(model, text), masks)
    for gap in model.fill(text, states=states):
        p = truth.word(gap.position, V) * seen(model)
        for word, probability in gap.words:
            np.testing.assert_allclose(probability, p[model.vocabulary_.id(word)], rtol=1e-4)
    np.testing.assert_allclose(model.log_evidence(text, states=states), np.log(truth.total()), rtol=1e-5)
    for t, row in enumerate(model.posterior([Evidence(text, states)])[0]):
        np.testing.assert_allclose(row, truth.state(t, Z), rtol=1e-4, atol=1e-7)


@forms
@pytest.mark.parametrize("text", TEXTS[:6], ids=named)
def test_all_inference_takes_evidence(form: str, text: list[Any]) -> None:
    """Filter, smoother, log-probabilities and best path of a partly known text, beside a text that is known."""
    model = made(form)
    texts = all_texts(model, 3)
    Z, weights = model.params_.n_states, known(model, text)
    both = model.posterior([Evidence(text), ["a", "b"]])
    for t, row in enumerate(both[0]):
        np.testing.assert_allclose(row, texts.given(weights).state(t, Z), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(both[1], model.posterior([["a", "b"]])[0], rtol=1e-5)
    ahead = [texts.given({p: w for p, w in weights.items() if p < t}).total() for t in range(4)]
    np.testing.assert_allclose(
        model.log_probabilities([Evidence(text)])[0], np.diff(np.log(ahead)), rtol=1e-4, atol=1e-6
    )
    by_posterior = model.decode([Evidence(text)], "posterior")[0]
    assert by_posterior.tolist() == [int(texts.given(weights).state(t, Z).argmax()) for t in range(3)]
    if "low rank" not in form:  # there the best path is one of states and features
        path_weight = texts.given(weights).weight.sum(axis=0)
        np.testing.assert_array_equal(model.decode([Evidence(text)])[0], texts.paths[int(path_weight.argmax())])


@forms
def test_messages_are_the_probability_of_what_follows(form: str) -> None:
    model = made(form)
    observed = observe(model._chain(), [Evidence(["a", {"b", "c"}, None, "d"]), Evidence(["b"])])
    found, (_, T, E) = observed.params.messages(observed.ids, observed.bounds), dense(model)
    low, w = observed.params.first_live(observed.ids), model.vocabulary_.id
    e = [E[:, w("a")], E[:, w("b")] + E[:, w("c")], np.ones(len(T)), E[:, w("d")], E[:, w("b")]]
    truth = [e[0] * (T @ (e[1] * (T @ (T @ e[3])))), e[1] * (T @ (T @ e[3])), T @ e[3], e[3], e[4]]
    for t, row in enumerate(truth):
        ours = found.values[found.at[t] : found.at[t + 1]] * np.exp(found.log_scale[t])
        np.testing.assert_allclose(ours, row[low[t] : low[t] + len(ours)], rtol=1e-4, atol=1e-9)
        assert row.sum() == pytest.approx(ours.sum(), rel=1e-4)  # nothing outside the live states


@forms
@pytest.mark.parametrize("carry", [False, True])
def test_masked_probabilities_are_those_of_all_texts(form: str, carry: bool) -> None:
    model = made(form, carry=carry)
    sentences = [["a", "b", "zzz"], ["c"], ["d", "a"]] if not carry else [["a"], ["b", "c"]]
    flat = [w for s in sentences for w in s]
    truth = []
    for run in [flat] if carry else sentences:
        texts = all_texts(model, len(run))
        for t, word in enumerate(run):
            rest = {p: one_hot(model, w) for p, w in enumerate(run) if p != t}
            truth.append(texts.given(rest).word(t, len(model.vocabulary_))[model.vocabulary_.id(word)])
    ours = np.concatenate(model.masked_log_probabilities(sentences))
    np.testing.assert_allclose(ours, np.log(truth), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.masked_perplexity(sentences), np.exp(-np.log(truth).mean()), rtol=1e-4)


@forms
def test_masked_probabilities_of_many_tokens(form: str, monkeypatch: Any) -> None:
    """Blocks with many tokens, slabs, chunks of steps: the same as one sentence after the other."""
    model = made(form, smoothing=1.0)
    rng = np.random.default_rng(0)
    sentences = [[str(w) for w in rng.choice(["a", "b", "c", "d", "zzz"], size=n)] for n in rng.integers(1, 12, 60)]
    alone = np.concatenate([model.masked_log_probabilities([s])[0] for s in sentences])
    for slab, states in ((1 << 28, 768), (100, 2)):
        monkeypatch.setattr(leave_one_out, "FEW_TOKENS", 0)
        monkeypatch.setattr(leave_one_out, "SLAB_BYTES", slab)
        monkeypatch.setattr(leave_one_out, "STATES_AT_A_TIME", states)
        np.testing.assert_allclose(np.concatenate(model.masked_log_probabilities(sentences)), alone, rtol=1e-4)


def test_masked_chunks_of_steps_change_nothing() -> None:
    chain = made("dense").params_.chain
    ids, bounds = np.array([1, 2, 3, 4, 1, 2, 2, 4]), np.array([0, 5, 8])
    whole = leave_one_out.log_both_sides_plain(ids, bounds, chain)
    cut = leave_one_out.log_both_sides_plain(ids, bounds, chain, leave_one_out.Tiles(chunk_bytes=1))
    np.testing.assert_allclose(cut, whole, rtol=1e-6)


@forms
@pytest.mark.parametrize("text", [["a", None, "d", None], [None, {"b", "c"}, None], [WEIGHTS, None, None]], ids=named)
def test_the_best_joint_fill_is_the_best_of_all_texts(form: str, text: list[Any]) -> None:
    model = made(form)
    weights = known(model, text)
    weights |= {t: seen(model) for t, token in enumerate(text) if token is None}
    truth = all_texts(model, len(text)).given(weights)
    best, p = truth.best_text()
    found = model.best_fill(text)
    assert found.proven and tuple(model.vocabulary_.encode(found.tokens).tolist()) == best
    np.testing.assert_allclose(found.log_probability, np.log(p), rtol=1e-4, atol=1e-5)
    # without time to search it still gives a text, and says what it is worth
    hasty = model.best_fill(text, max_expansions=1)
    row = (truth.texts == model.vocabulary_.encode(hasty.tokens)).all(axis=1)
    np.testing.assert_allclose(hasty.log_probability, np.log(truth.of_texts()[row][0]), rtol=1e-4, atol=1e-5)
    assert not hasty.proven


def test_the_search_examines_the_words_after_the_first_ones(monkeypatch: Any) -> None:
    monkeypatch.setattr("undertow.questions.best_fill.CHILDREN", 1)
    for form in ("blocks", "dense"):
        model = made(form)
        truth = all_texts(model, 3).given(dict.fromkeys(range(3), seen(model)))
        found = model.best_fill([None, None, None])
        assert found.proven and tuple(model.vocabulary_.encode(found.tokens).tolist()) == truth.best_text()[0]


@pytest.mark.parametrize("form", ["blocks", "dense"])
def test_the_best_path_fill_is_the_best_pair_of_text_and_path(form: str) -> None:
    model = made(form)
    truth = all_texts(model, 3).given({0: one_hot(model, "a"), 1: seen(model), 2: seen(model)})
    found = model.best_fill(["a", None, None], method="path")
    assert tuple(model.vocabulary_.encode(found.tokens).tolist()) == truth.best_pair()[0]


@forms
def test_joint_samples_have_the_distribution_of_all_texts(form: str) -> None:
    model, n = made(form), 4000
    text = [None, {"a", "b", "c"}, None]
    weights = {0: seen(model), 1: known(model, text)[1], 2: seen(model)}
    truth = all_texts(model, 3).given(weights).of_texts()
    drawn = model.sample_fill(text, n, random_state=0)
    ids = np.array([model.vocabulary_.encode(s) for s in drawn]).astype(np.int64)
    V = len(model.vocabulary_)
    share = np.bincount(ids @ np.array([V * V, V, 1]), minlength=V**3) / n
    assert share[truth == 0].sum() == 0
    possible = truth > 0
    # each share is within five standard deviations
    assert (np.abs(share - truth)[possible] < 5 * np.sqrt(truth * (1 - truth) / n)[possible] + 1e-9).all()
    assert drawn == model.sample_fill(text, n, random_state=0) != model.sample_fill(text, n, random_state=1)


def test_a_question_mark_is_a_gap_and_can_be_written() -> None:
    text = [["who", "knows", "?"], ["who", "asks", "?"]] * 4
    model = HMM(3, n_iter=20, smoothing=0.01, random_state=0).fit(text)
    assert model.fill(["who", "?", "?"]) == model.fill(["who", None, None])
    [gap] = model.fill(["who", "?", {"?"}])
    assert gap.position == 1 and {w.word for w in gap.words[:2]} == {"knows", "asks"}
    assert model.sample_fill(["who", "?", {"?"}], 1, random_state=0)[0][2] == "?"


@pytest.fixture(scope="module")
def with_unknown() -> HMM:
    """A model of a text in which a third of the words are unknown, and sentences end with a boundary word."""
    text = [["a", "<unk>", "b", "</s>"], ["<unk>", "a", "</s>"], ["b", "<unk>", "a", "c", "</s>"]] * 6
    return HMM(3, n_iter=3, random_state=0).fit(Corpus.from_sentences(text, boundary="</s>"))


def test_markers_are_no_words(with_unknown: HMM) -> None:
    model, words = with_unknown, with_unknown.vocabulary_
    unknown, boundary = words.unknown_id, words.boundary_id
    p = all_texts(model, 2).given({0: one_hot(model, "a")}).word(1, len(words))
    [gap] = model.fill(["a", None])
    assert {w.word for w in gap.words} == {"a", "b", "c"}
    np.testing.assert_allclose(gap.markers, p[unknown] + p[boundary], rtol=1e-5)
    np.testing.assert_allclose(sum(w.probability for w in gap.words) + gap.markers, 1, rtol=1e-5)
    [gap] = model.fill(["a", None], markers=True)
    assert {w.word for w in gap.words} == set(words.words) and gap.markers == 0
    best = words.words[int(p.argmax())]
    assert best in ("<unk>", "</s>") and gap.words[0].word == best == model.next_words(["a"], 1, markers=True)[0].word
    assert {w.word for w in model.next_words(["a"])} == {"a", "b", "c"}
    np.testing.assert_allclose(
        [w.probability for w in model.next_words(["a"], 9, markers=True)], sorted(p)[::-1], rtol=1e-4
    )
    [named] = model.fill(["a", {"<unk>", "c"}])  # what is named is meant
    assert {w.word for w in named.words} == {"<unk>", "c"} and named.markers == 0


def test_markers_are_not_written(with_unknown: HMM) -> None:
    model, words = with_unknown, with_unknown.vocabulary_
    readable = np.array([w in "abc" for w in words.words], dtype=float)
    for markers, weights in ((False, readable), (True, np.ones(len(words)))):
        truth = all_texts(model, 3).given({0: one_hot(model, "a"), 1: weights, 2: weights})
        found = model.best_fill(["a", None, None], markers=markers)
        assert tuple(words.encode(found.tokens).tolist()) == truth.best_text()[0]
        np.testing.assert_allclose(found.log_probability, np.log(truth.best_text()[1]), rtol=1e-4)
        drawn = {w for s in model.sample_fill(["a", None, None], 200, markers=markers, random_state=0) for w in s}
        assert drawn == (set(words.words) if markers else {"a", "b", "c"})
    written = {w for s in model.generate(length=4, n=100, random_state=0) for w in s}
    assert written == {"a", "b", "c"}
    assert any("<unk>" in s for s in model.generate(length=4, n=50, markers=True, random_state=0))
    assert all("<unk>" in s for s in model.generate(length=4, n=5, constraint=Contains("<unk>"), random_state=0))


def test_a_text_of_unknown_words_alone() -> None:
    model = HMM(2, n_iter=2, random_state=0).fit(Corpus.from_sentences([["x", "y"]] * 5, min_count=9))
    for ask in (model.best_fill, model.sample_fill):
        with pytest.raises(InputError, match="markers=True") as e:
            ask([None, None])
        assert is_one_sentence(str(e.value))
    assert model.fill([None])[0].words == [] and model.best_fill([None], markers=True).tokens == ["<unk>"]


def test_a_known_text_has_no_gaps() -> None:
    model = made("dense")
    assert model.fill(["a", "b"]) == []
    assert model.best_fill(["a", "b"]).tokens == ["a", "b"] == model.sample_fill(["a", "b"], 1)[0]
    np.testing.assert_allclose(model.log_evidence(["a", "b"]), model.log_probabilities([["a", "b"]])[0].sum())


BAD: list[tuple[Any, dict[str, Any], str]] = [
    ([], {}, "empty"),
    ("a b", {}, "list of tokens"),
    (["a", 5], {}, "Position 1"),
    (["a", {"nowhere"}], {}, "'nowhere', which is not in the vocabulary"),
    (["a", set()], {}, "allows no word"),
    (["a", {"b": -1.0}], {}, "at least 0"),
    (["a", {"b": math.nan}], {}, "finite"),
    (["a", {"b": 0.0}], {}, "allows no word"),
    (["a", None], {"states": {2: 0}}, "0 to 1"),
    (["a", None], {"states": {-1: 0}}, "0 to 1"),
    (["a", None], {"states": {0: 99}}, "0 to 3"),
    (["a", None], {"states": {0: []}}, "allows no state"),
    (["a", None], {"n": 0}, "n=0"),
    (Evidence(["a"], {0: 1}), {"states": {0: 1}}, "leave out states"),
]


@pytest.mark.parametrize(("text", "more", "part"), BAD, ids=[b[2] for b in BAD])
def test_bad_evidence_is_refused_in_one_sentence(text: Any, more: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError) as e:
        made("dense").fill(text, **more)
    assert part in str(e.value) and is_one_sentence(str(e.value))


def test_contradictory_evidence_is_refused() -> None:
    model = made("blocks")
    first = int(model.params_.first_live(np.array([model.vocabulary_.id("a")]))[0])
    other = (first + 3) % model.params_.n_states
    for ask in (model.fill, model.best_fill, model.sample_fill):
        with pytest.raises(InputError, match="position 0") as e:
            ask(["a", None], states={0: other})
        assert is_one_sentence(str(e.value))
    assert model.log_evidence(["a", None], states={0: other}) == -np.inf
    with pytest.warns(UserWarning, match="Sentence 1"):
        assert model.masked_perplexity([["a"], Evidence(["a", "b"], {0: other})]) == np.inf
    assert np.isneginf(model.masked_log_probabilities([Evidence(["a", "b"], {0: other})])[0]).all()


def test_other_bad_questions() -> None:
    model = made("dense")
    for ask in (
        lambda: model.best_fill([None], method="best"),
        lambda: model.best_fill([None], max_expansions=0),
        lambda: model.sample_fill([None], 0),
        lambda: model.masked_perplexity([]),
    ):
        with pytest.raises(InputError) as e:
            ask()
        assert is_one_sentence(str(e.value))
