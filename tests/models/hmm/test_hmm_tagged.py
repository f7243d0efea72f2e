"""Tags as evidence in EM: the E-step against all paths, what tags teach, saving, and tags that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracles.hmm_paths import enumerate_paths
from sentences import is_one_sentence
from undertow import HMM, Corpus, Evidence, load
from undertow.errors import InputError
from undertow.models.hmm.tagged import TaggedShard

TEXT = [["the", "cat", "runs"], ["a", "dog", "sleeps"], ["the", "dog", "runs"], ["a", "cat", "sleeps"]] * 5
TAGS = [["D", "N", "V"], ["D", "N", "V"], None, [None, "N", None]] * 5
FORMS: dict[str, dict[str, Any]] = {"dense": {}, "low rank": {"rank": 2}, "band": {"rank": 2, "band": 2}}
forms = pytest.mark.parametrize("form", FORMS)


def made(form: str = "dense", **more: Any) -> HMM:
    given: dict[str, Any] = {"n_states": 5, "n_iter": 3, "n_chunks": 1, "smoothing": 0.1, "random_state": 0}
    return HMM(**(given | FORMS[form] | more)).fit(TEXT, TAGS)


@forms
@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_the_e_step_looks_at_the_states_of_the_tag_alone(form: str, weight: float) -> None:
    model = made(form)
    params, tags = model.params_, model.tag_states_
    assert tags is not None
    ids = model.vocabulary_.encode(["the", "cat", "runs", "a", "dog"])
    known = np.array([-1, 1, -1, -1, -1], dtype=np.int32)  # one sentence with a tag, one without any
    shard = TaggedShard(ids, np.array([0, 3, 5]), known, tags.first, weight)
    found = shard.statistics(params)
    T, E = model.transition_.dense().astype(float), model.emission_.dense().astype(float)
    initial, emission, pairs, total = np.zeros(5), np.zeros((len(model.vocabulary_), 5)), np.zeros((5, 5)), 0.0
    for some, w in (((0, 1, 2), 1.0), ((3, 4), weight)):
        obs = np.array([E[:, ids[t]] for t in some])
        for i, t in enumerate(some):
            if known[t] >= 0:
                obs[i] *= tags.of_state() == known[t]
        truth = enumerate_paths(model.initial_.astype(float), T, obs)
        total += truth.log_likelihood
        initial += w * truth.gamma[0]
        pairs += w * truth.pairs.sum(axis=0)
        for i, t in enumerate(some):
            emission[ids[t]] += w * truth.gamma[i]
    np.testing.assert_allclose(found.log_likelihood, total, rtol=1e-5)
    np.testing.assert_allclose(found.initial, initial, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.emission, emission, rtol=1e-4, atol=1e-6)
    if form == "dense":
        np.testing.assert_allclose(found.transition.pairs, pairs, rtol=1e-4, atol=1e-6)
    else:
        np.testing.assert_allclose(found.transition.zf.sum() + getattr(found.transition, "band", np.zeros(1)).sum(),
                                   pairs.sum(), rtol=1e-4)  # fmt: skip


@forms
def test_tags_own_states_and_are_predicted(form: str) -> None:
    model = made(form)
    tags = model.tag_states_
    assert tags is not None and tags.names == ["D", "N", "V"] and tags.first[-1] == 5
    for method in ("posterior", "viterbi") if form == "dense" else ("posterior",):
        assert model.predict([["the", "cat", "sleeps"], ["a", "dog"]], method) == [["D", "N", "V"], ["D", "N"]]
    of_state = tags.of_state()
    sums = np.array([model.posterior([["the", "dog"]])[0][:, of_state == k].sum(axis=1) for k in range(3)]).T
    np.testing.assert_allclose(tags.sums(model.posterior([["the", "dog"]])[0]), sums, rtol=1e-6)


def test_states_follow_the_tokens_of_the_tags() -> None:
    text = [["x", "y", "y", "y", "y", "y"]] * 4
    model = HMM(6, n_iter=1, random_state=0).fit(text, [["A", *["B"] * 5]] * 4)
    assert model.tag_states_ is not None and np.diff(model.tag_states_.first).tolist() == [1, 5]


def test_labels_decide_what_unlabelled_text_alone_could_not() -> None:
    """Of two names for the same classes EM alone cannot know which is which."""
    swapped = [None if t is None else [{"D": "V", "V": "D"}.get(x, x) for x in t] for t in TAGS]
    model = HMM(5, n_iter=3, smoothing=0.1, random_state=0).fit(TEXT, swapped)
    assert model.predict([["the", "cat", "sleeps"]]) == [["V", "N", "D"]]


def test_tags_are_evidence_in_questions() -> None:
    model = made()
    noun = model.fill(["the", None], states={1: "N"})[0].words[0].word
    assert noun in ("cat", "dog")
    row = model.posterior([Evidence(["the", None], {1: {"N", "V"}})])[0][1]
    assert model.tag_states_ is not None and model.tag_states_.sums(row[None])[0, 0] == 0
    with pytest.raises(InputError, match="D, N, V"):
        model.fill([None], states={0: "X"})


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = made()
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.predict(TEXT) == model.predict(TEXT)
    assert again.tag_states_.names == model.tag_states_.names  # type: ignore[union-attr]


def test_a_label_for_each_sentence_is_ignored_as_before() -> None:
    plain = HMM(3, n_iter=2, random_state=0).fit(TEXT)
    labelled = HMM(3, n_iter=2, random_state=0).fit(TEXT, ["news"] * len(TEXT))
    assert labelled.tag_states_ is None
    np.testing.assert_array_equal(labelled.emission_.dense(), plain.emission_.dense())
    with pytest.raises(InputError, match="without tags"):
        plain.predict(TEXT)


def test_empty_sentences_and_a_corpus() -> None:
    with_empty = HMM(5, n_iter=2, random_state=0).fit([[], *TEXT], [[], *TAGS])
    corpus = HMM(5, n_iter=2, random_state=0).fit(Corpus.from_sentences(TEXT), TAGS)
    np.testing.assert_array_equal(with_empty.emission_.dense(), corpus.emission_.dense())


BAD: list[tuple[dict[str, Any], Any, dict[str, Any], str]] = [
    ({}, TAGS[:3], {}, "20 sentences"),
    ({}, [["D"], *TAGS[1:]], {}, "sentence 0"),
    ({}, [["D", "N", 3], *TAGS[1:]], {}, "the tag 3"),
    ({}, [[None] * 3] * 20, {}, "No token has a tag"),
    ({"n_states": 2}, TAGS, {}, "more states"),
    ({"n_blocks": 2}, TAGS, {}, "no blocks"),
    ({"init": "spectral"}, TAGS, {}, "leave out init"),
    ({}, TAGS, {"unlabelled_weight": 2}, "from 0 to 1"),
]


@pytest.mark.parametrize(("params", "y", "more", "part"), BAD, ids=[b[3] for b in BAD])
def test_tags_that_do_not_fit_are_refused(params: dict[str, Any], y: Any, more: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError) as e:
        HMM(**({"n_states": 5, "n_iter": 1} | params)).fit(TEXT, y, **more)
    assert part in str(e.value) and is_one_sentence(str(e.value))


def test_going_on_keeps_the_tags() -> None:
    model = made(warm_start=True)
    names = model.tag_states_.names  # type: ignore[union-attr]
    model.fit(TEXT)
    assert model.tag_states_ is not None and model.tag_states_.names == names
    model.fit(TEXT, TAGS)
    assert model.predict([["a", "cat"]]) == [["D", "N"]]
    with pytest.raises(InputError, match="one of the model's"):
        model.fit(TEXT, [["D", "N", "X"], *TAGS[1:]])
