"""`HMM.partial_fit`: the expected counts that stand for earlier text, against dense linear algebra and enumeration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.cases import OTHER_SENTENCES, SENTENCES
from oracles.hmm_paths import enumerate_paths
from sealing import edit_sealed
from undertow import HMM, load
from undertow.errors import InputError
from undertow.models.hmm.em import split_chunks
from undertow.models.hmm.partial import SeenText, _choose_blocks, continuation, occupancy
from undertow.text.corpus import Corpus

FORMS: dict[str, dict[str, Any]] = {
    "blocks": {"n_states": 8, "n_blocks": 4},
    "block low rank": {"n_states": 8, "n_blocks": 4, "rank": 3},
    "dense": {"n_states": 4},
    "low rank": {"n_states": 5, "rank": 2},
    "band": {"n_states": 5, "rank": 2, "band": 2},
}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))


def made(form: dict[str, Any], **more: Any) -> HMM:
    return HMM(**({"n_iter": 3, "n_chunks": 1, "random_state": 0} | form | more)).fit(SENTENCES)


def dense(model: HMM) -> tuple[Any, Any, Any]:
    return tuple(np.asarray(x, dtype=np.float64) for x in (  # type: ignore[return-value]
        model.initial_, model.transition_.dense(), model.emission_.dense()
    ))  # fmt: skip


def dense_occupancy(model: HMM) -> Any:
    initial, T, _ = dense(model)
    assert model.seen_ is not None
    rho = model.seen_.n_sequences / model.seen_.n_tokens
    return np.linalg.solve(np.eye(len(T)) - (1 - rho) * T.T, rho * initial)


def continued(model: HMM, smoothing: float) -> Any:
    """The continuation with a text of the same words."""
    corpus = Corpus.from_sentences(SENTENCES[:2], vocabulary=model.vocabulary_)
    assert model.seen_ is not None
    counts = corpus.vocabulary.counts
    chunks = split_chunks(corpus, 1, False)
    fallback = model.vocabulary_.fallback()
    return continuation(model.params_, model.seen_, chunks, model.vocabulary_.counts, counts, fallback, smoothing)


@forms
def test_how_much_text_was_seen(form: dict[str, Any], tmp_path: Path) -> None:
    n = sum(map(len, SENTENCES))
    model = made(form)
    assert model.seen_ == SeenText(n, len(SENTENCES))
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert isinstance(loaded, HMM) and loaded.seen_ == model.seen_
    model.partial_fit(OTHER_SENTENCES)
    assert model.seen_ == SeenText(n + sum(map(len, OTHER_SENTENCES)), len(SENTENCES + OTHER_SENTENCES))
    assert model.vocabulary_.counts.sum() == model.seen_.n_tokens
    assert made(form, carry=True).seen_ == SeenText(n, 1)
    assert made(form, validation=0.25).seen_ == SeenText(sum(map(len, SENTENCES[:6])), 6)


@forms
def test_occupancy_solves_its_equation(form: dict[str, Any]) -> None:
    model = made(form)
    assert model.seen_ is not None
    np.testing.assert_allclose(occupancy(model.params_, model.seen_), dense_occupancy(model), rtol=1e-5, atol=1e-7)


@forms
def test_expected_counts_are_those_of_the_dense_chain(form: dict[str, Any]) -> None:
    """Equation (2), and that each state is entered as often as it emits."""
    model = made(form, smoothing=0.0)
    initial, T, B = dense(model)
    N, S = model.seen_  # type: ignore[misc]
    share = dense_occupancy(model)
    stats = continued(model, 0.0).earlier
    seen = model.vocabulary_.counts > 0
    emission = stats.emission
    if "n_blocks" in form:
        emission = model.params_.blocks.dense_emission(emission).T  # type: ignore[union-attr]
    np.testing.assert_allclose(emission[seen], (N * share[:, None] * B).T[seen], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(stats.initial, S * initial, rtol=1e-6)
    steps = (N - S) * share[:, None] * T
    np.testing.assert_allclose(stats.initial + steps.sum(axis=0), emission.sum(axis=0), rtol=1e-4, atol=1e-5)
    if form == FORMS["dense"]:
        np.testing.assert_allclose(stats.transition.pairs, steps, rtol=1e-4, atol=1e-6)
    if form == FORMS["blocks"]:
        np.testing.assert_allclose(stats.pairs.sum(), steps.sum(), rtol=1e-4)
    if form == FORMS["block low rank"]:
        np.testing.assert_allclose(stats.into.sum(axis=1), steps.sum(axis=0), rtol=1e-4, atol=1e-6)


@forms
def test_the_m_step_without_smoothing_gives_the_parameters_back(form: dict[str, Any]) -> None:
    model = made(form, smoothing=0.0)
    start = continued(model, 0.0)
    again = HMM()
    again.history_, again.params_ = [0.0], start.m_step(start.earlier)
    visited = dense_occupancy(model) > 1e-6
    for old, new, rows in zip(dense(model), dense(again), ([True], visited, visited), strict=True):
        np.testing.assert_allclose(np.atleast_2d(new)[rows], np.atleast_2d(old)[rows], rtol=1e-3, atol=1e-5)


def test_a_pass_is_one_step_of_em_over_both_texts() -> None:
    """M(expected counts of the old text + posterior counts of the new one), the latter over all paths."""
    model = made(FORMS["dense"], smoothing=0.0)
    new = [["the", "old", "river"], ["money", "is", "wide", "and"], ["sea"]]
    initial, T, B = dense(model)
    N, S = model.seen_  # type: ignore[misc]
    share = dense_occupancy(model)
    starts, steps, words = S * initial, (N - S) * share[:, None] * T, N * share[:, None] * B
    log_likelihood = 0.0
    for sentence in new:
        ids = model.vocabulary_.encode(sentence)
        found = enumerate_paths(initial, T, B[:, ids].T)
        log_likelihood += found.log_likelihood
        starts += found.gamma[0]
        steps += found.pairs.sum(axis=0)
        np.add.at(words.T, ids, found.gamma)
    model.set_params(n_iter=1).partial_fit(new)
    assert math.isclose(model.history_[-1], log_likelihood / 8, rel_tol=1e-4)
    got = dense(model)
    np.testing.assert_allclose(got[0], starts / starts.sum(), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(got[1], steps / steps.sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(got[2], words / words.sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-6)


@forms
def test_texts_weigh_as_their_tokens(form: dict[str, Any]) -> None:
    """The more text was read before, the less a sentence moves the model (smoothing, applied again, moves it too)."""
    moved = []
    for times in (1, 20):
        model = HMM(**({"n_iter": 3, "n_chunks": 1, "smoothing": 0.01, "random_state": 0} | form)).fit(
            SENTENCES * times
        )
        before = model.score(SENTENCES)
        moved.append(abs(model.partial_fit([["sea", "the", "of", "bank"]] * 3).score(SENTENCES) - before))
    assert moved[1] < moved[0] / 2


def test_a_new_word_joins_the_block_that_its_neighbors_ask_for() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.random((3, 3)) * 50
    block = np.array([0, 0, 1, 2, -1, -1, -1], dtype=np.int32)
    text = [[0, 4, 3], [2, 4], [3, 5, 5], [1, 5, 2, 4], [6]]
    corpus = Corpus.from_sentences([[f"w{i}" for i in s] for s in text])
    ids = [np.array(s, dtype=np.uint32) for s in text]
    shard = split_chunks(corpus, 1, False)[0][0]._replace(
        ids=np.concatenate(ids), bounds=np.concatenate(([0], np.cumsum([len(s) for s in text])))
    )
    fallback = np.array([0, 1, 2, 3, 0, 0, 3])
    joint = pairs / pairs.sum() + 1e-6 / 9

    def score(word: int, b: int) -> float:
        total = math.log(joint[:, b].sum())
        for sentence in text:
            for t, w in enumerate(sentence):
                if w != word:
                    continue
                if t and block[sentence[t - 1]] >= 0:
                    left = block[sentence[t - 1]]
                    total += math.log(joint[left, b] / joint[left].sum())
                if t + 1 < len(sentence) and block[sentence[t + 1]] >= 0:
                    total += math.log(joint[b, block[sentence[t + 1]]] / joint[b].sum())
        return total

    expected = [max(range(3), key=lambda b: score(word, b)) for word in (4, 5)]
    got = _choose_blocks(np.array([4, 5, 6]), [[shard]], block, fallback, pairs)
    assert got.tolist() == [*expected, 2]  # the last has no neighbors and joins the block of its fallback


def test_what_cannot_continue_says_so(tmp_path: Path) -> None:
    model = made(FORMS["dense"])
    model.save(tmp_path / "old")
    edit_sealed(tmp_path / "old" / "config.json", lambda c: c["fitted"].pop("seen"))
    old = load(tmp_path / "old")
    assert isinstance(old, HMM) and old.seen_ is None and np.isfinite(old.score(SENTENCES))
    with pytest.raises(InputError, match="saved without the size"):
        old.partial_fit(SENTENCES)
    with pytest.raises(InputError, match="trained by gradients"):
        model.set_params(parameterization="neural").partial_fit(SENTENCES)
