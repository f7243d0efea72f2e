"""Where EM of a grammar begins: a chain, trees that short fits agree on, the best of some starts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from oracles.grammar_trees import dense_inside
from oracles.hmm_paths import enumerate_paths
from toy_language import toy
from undertow import Corpus, Grammar
from undertow.engine import open_engine
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense
from undertow.kernels.chart.grammar import check_params
from undertow.kernels.chart.outside import expected_counts, statistics, tree_starts
from undertow.kernels.chart.trees import best_tree
from undertow.models.fitting import Checkpoint
from undertow.models.grammar import agreement, chain_start, em, restarts
from undertow.models.grammar.init import Sizes, random_start
from undertow.models.grammar.punctuation import kinds_of

SIZES = Sizes(4, 5, 3)


def m_step_of(text: Corpus) -> em.MStep:
    return em.MStep.of(text.vocabulary.counts, 1.0)


# --- chain ----------------------------------------------------------------------------------------------


def random_chain(seed: int, Z: int = 3, V: int = 4) -> ChainParams:
    """Z states and one that ends a sentence."""
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(Z + 1), Z + 1)
    emission = np.zeros((V + 1, Z + 1))
    emission[:V, :Z], emission[V, Z] = rng.dirichlet(np.ones(V), Z).T, 1
    return ChainParams(np.append(rng.dirichlet(np.ones(Z)), 0), Dense(T), emission)


def test_sentences_are_as_probable_in_the_grammar_as_in_the_chain() -> None:
    chain = random_chain(0)
    p = chain_start.right_linear(chain)
    check_params(p)
    for words in ([2], [0, 1], [3, 3, 0], [1, 0, 2, 2, 3]):
        path = enumerate_paths(chain.initial, chain.transition.dense(), chain.emission[[*words, 4]])
        np.testing.assert_allclose(math.log(dense_inside(p, words)), path.log_likelihood, rtol=1e-11)


def test_a_chain_inside_a_general_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    small = chain_start.right_linear(random_chain(1, Z=3, V=8))
    text = Corpus.from_sentences(toy(20))
    general = random_start(Sizes(5, 6, 4), np.array([4, 5]), m_step_of(text), np.random.default_rng(0)).params
    general = general._replace(emission=general.emission[:8] / general.emission[:8].sum(axis=0))
    p = chain_start.mixed(general, small)
    check_params(p)
    np.testing.assert_allclose(p.rules[3:], general.rules[3:], rtol=1e-6)
    monkeypatch.setattr(chain_start, "GENERAL", 1e-9)
    nearly = chain_start.mixed(general, small)
    for words in ([7], [0, 1, 5], [3, 3, 0, 6]):
        np.testing.assert_allclose(dense_inside(nearly, words), dense_inside(small, words), rtol=1e-5)


def test_em_of_the_chain_makes_the_text_more_probable(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Corpus.from_sentences(toy(200))
    logs = []
    for passes in (1, 2, 4):
        monkeypatch.setattr(chain_start, "PASSES", passes)
        params = chain_start.chain_start(text, Sizes(5, 5, 5), m_step_of(text), np.random.default_rng(0), 1).params
        check_params(params)
        logs.append(em.mean_log_likelihood(params, [s for c in em.split_chunks(text, 1) for s in c]))
    assert logs[0] < logs[1] < logs[2]


def test_a_grammar_from_a_chain_is_soon_better_than_one_from_random_rules() -> None:
    how: dict[str, Any] = {"n_preterminals": 6, "rank": 6, "n_iter": 2, "random_state": 0}
    scores = [Grammar(6, init=init, **how).fit(toy(200)).score(toy(50, seed=1)) for init in ("chain", "clusters")]
    assert scores[0] > scores[1] + 0.2


def test_pairs_of_classes_are_counted_within_sentences() -> None:
    text = Corpus.from_sentences([["a", "b", "a"], [], ["c"], ["b", "c"]])
    order = [text.vocabulary.id(w) for w in "abc"]
    classes = np.zeros(len(text.vocabulary), dtype=np.int64)
    classes[order] = [0, 1, 1]
    # a → b → a → end; c → end; b → c → end
    np.testing.assert_array_equal(chain_start.class_pairs(text, classes, 2), [[0, 1, 1], [1, 1, 2]])


def test_words_of_a_class_and_all_others() -> None:
    text = Corpus.from_sentences([["a", "b", "a", "c"]])
    words = text.vocabulary
    classes = np.zeros(len(words), dtype=np.int64)
    classes[words.id("c")] = 1
    e = chain_start.class_emission(classes, 2, m_step_of(text))
    seen = [words.id(w) for w in "abc"]
    left, other = 1 - m_step_of(text).unseen, chain_start.OTHER_WORDS
    own = np.array([[2 / 3, 0], [1 / 3, 0], [0, 1]])
    np.testing.assert_allclose(
        e[seen], left * ((1 - other) * own + other * np.array([[0.5], [0.25], [0.25]])), rtol=1e-6
    )
    np.testing.assert_allclose(e.sum(axis=0), 1.0, rtol=1e-6)


def test_transitions_of_the_chain_are_smoothed_with_those_of_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Corpus.from_sentences(toy(100))
    classes = np.arange(len(text.vocabulary)) % 3
    pairs = chain_start.class_pairs(text, classes, 3)

    def rows(strength: float) -> Any:
        monkeypatch.setattr(chain_start, "CHAIN_STRENGTH", strength)
        chain = chain_start.class_chain(text, 3, classes, m_step_of(text), np.random.default_rng(0), 1)
        return chain.transition.dense()[:3].astype(np.float64)

    by_em = rows(1e12)
    np.testing.assert_allclose(rows(0.0), pairs / pairs.sum(axis=1, keepdims=True), rtol=1e-5)
    expected = (pairs + 50 * by_em) / (pairs.sum(axis=1, keepdims=True) + 50)
    np.testing.assert_allclose(rows(50.0), expected, rtol=1e-4)


def test_em_stays_near_its_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Corpus.from_sentences(toy(60))
    anchor, other = (
        random_start(SIZES, np.array([5]), m_step_of(text), np.random.default_rng(i)).params for i in (0, 1)
    )
    [shard] = em.split_chunks(text, 1)[0]
    counts = expected_counts(statistics(shard.ids, shard.bounds, other), other)
    free, near = m_step_of(text)(counts), m_step_of(text)._replace(anchor=anchor)(counts)
    check_params(near)
    for name, weight in (("start", 0.8), ("rules", 0.8), ("left", 0.8), ("right", 0.8), ("emission", 0.5)):
        expected = weight * getattr(anchor, name) + (1 - weight) * getattr(free, name)
        np.testing.assert_allclose(getattr(near, name), expected, rtol=1e-5, atol=1e-8, err_msg=name)
    plain = em.MStep.of(text.vocabulary.counts, 0.0)  # without smoothing EM is free
    for a, b in zip(plain(counts), plain._replace(anchor=anchor)(counts), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_fit_from_a_chain_keeps_its_anchor_in_a_checkpoint(tmp_path: Any) -> None:
    class Stop(Exception):
        pass

    def stop(event: Any) -> None:
        if event.iteration == 2:
            raise Stop

    settings: dict[str, Any] = {"n_preterminals": 4, "rank": 4, "init": "chain", "n_iter": 4, "random_state": 0}
    keep = Checkpoint(tmp_path, every_seconds=0)
    with pytest.raises(Stop):
        Grammar(4, **settings, callbacks=[stop]).fit(toy(), checkpoint=keep)
    resumed, whole = Grammar(4, **settings).fit(toy(), checkpoint=keep), Grammar(4, **settings).fit(toy())
    assert resumed.history_ == whole.history_
    assert all(a.tobytes() == b.tobytes() for a, b in zip(resumed.params_, whole.params_, strict=True))


# --- agreement ------------------------------------------------------------------------------------------


def test_the_sample_is_from_all_over_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Corpus.from_sentences([["a"] * (1 + i % 30) for i in range(300)])
    words = kinds_of(text.vocabulary.words)
    assert {len(s) for s in agreement.sample(text, words)} == set(range(2, 21))
    monkeypatch.setattr(agreement, "SAMPLE_TOKENS", 500)
    some = agreement.sample(text, words)
    assert 400 < sum(map(len, some)) < 600
    other = Corpus.from_sentences([["a"], ["b"] * 30])
    assert agreement.sample(other, kinds_of(other.vocabulary.words)) == []


def test_parts_of_the_sample_have_their_own_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "CHUNK_TOKENS", 7)
    lengths = np.array([3, 4, 2, 9, 2, 1, 5])
    ids = np.arange(lengths.sum())
    sentence = np.repeat(np.arange(len(lengths)), lengths - 1)
    parts = agreement.cut(ids, lengths, np.stack([sentence, sentence], axis=1))
    assert len(parts) > 2
    np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), ids)
    number = 0
    for part in parts:
        starts = tree_starts(np.diff(part.bounds))
        assert part.spans is not None and len(part.spans) == starts[-1]
        for begin, end in zip(starts[:-1], starts[1:], strict=True):
            assert (part.spans[begin:end] == number).all()
            number += 1
    assert number == len(lengths)


def test_words_that_the_sample_lacks_keep_their_preterminals() -> None:
    text = Corpus.from_sentences(toy(60))
    m_step = m_step_of(text)._replace(smoothing=0.0)
    rng = np.random.default_rng(0)
    start, fit = (random_start(SIZES, np.array([5]), m_step, rng)._replace(symbol_counts=np.ones(9)) for _ in "ab")
    known = np.arange(1, 4)
    emission = agreement.with_all_words(fit, start, m_step, known).emission
    np.testing.assert_allclose(emission.sum(axis=0), 1.0, rtol=1e-5)
    for word in range(1, len(text.vocabulary)):
        own = (fit if word in known else start).params.emission[word]
        share = emission[word] * _column_totals(emission, m_step, fit, start, known)
        np.testing.assert_allclose(share / share.sum(), own / own.sum(), rtol=1e-4)


def _column_totals(emission: Any, m_step: em.MStep, fit: em.Fitted, start: em.Fitted, known: Any) -> Any:
    """Expected tokens of each preterminal, by the definition."""
    totals = np.zeros(emission.shape[1])
    for word, count in enumerate(m_step.word_counts):
        own = (fit if word in known else start).params.emission[word].astype(float)
        totals += count * own / own.sum() if own.sum() else 0
    return totals


def test_the_branching_tree_has_a_vote() -> None:
    for lean, spans in (("right", {(0, 4), (1, 4), (2, 4)}), ("left", {(0, 4), (0, 3), (0, 2)})):
        table = np.zeros((4, 5))
        table[1, 3] = 0.4
        agreement.add_vote(table, 0.5, lean, [(0, 4)])
        assert {(int(i), int(j)) for i, _, j in best_tree(table)} == spans
        table[1, 3] = 0.6  # in the place of (2, 4) or (0, 2)
        assert (1, 3) in {(int(i), int(j)) for i, _, j in best_tree(table)}
    table = np.zeros((4, 5))
    agreement.add_vote(table, 0.5, "none", [(0, 4)])
    assert not table.any()


@pytest.mark.parametrize(("lean", "side"), [("right", 1), ("left", -1), ("none", 0)])
def test_first_trees_lean_to_one_side(lean: str, side: int) -> None:
    text = Corpus.from_sentences(toy(20))
    p = random_start(SIZES, np.full(20, 10), m_step_of(text), np.random.default_rng(0), lean=lean).params
    difference = float(p.right[:, :4].sum() - p.left[:, :4].sum())
    assert np.sign(round(difference, 5)) == side


def test_a_good_start_is_kept_through_the_first_pass() -> None:
    """With delay_first the first pass is one step of plain EM, whatever the chunks."""
    text = Corpus.from_sentences(toy(60))
    start = random_start(SIZES, np.full(60, 6), m_step_of(text), np.random.default_rng(0))
    found = [
        next(em.em_iterations(start, m_step_of(text), em.split_chunks(text, n), 1, delay_first=True)).params.params
        for n in (1, 5)
    ]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("seed", [0, 1])
def test_short_fits_agree_on_noun_phrases(seed: int) -> None:
    model = Grammar(6, n_preterminals=8, rank=6, lean="none", random_state=seed).fit(toy(200))
    [tree] = model.trees([["the", "dog", "sees", "a", "cat"]])
    spans = {(c.begin, c.end) for c in tree.constituents}
    assert (0, 2) in spans and (3, 5) in spans


def test_short_fits_give_the_same_bits_on_any_engine() -> None:
    how: dict[str, Any] = {"n_preterminals": 5, "rank": 3, "n_iter": 1, "n_restarts": 3, "random_state": 0}
    alone = Grammar(4, **how).fit(toy(40))
    with open_engine("threads", 2) as engine:
        shared = Grammar(4, **how).fit(toy(40), engine=engine)
    for a, b in zip(alone.params_, shared.params_, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_text_without_short_sentences_starts_from_clusters() -> None:
    long = [["the", "dog", "sees", "a", "cat"] * 5 for _ in range(10)]
    how: dict[str, Any] = {"n_preterminals": 5, "rank": 3, "n_iter": 1, "n_chunks": 1, "random_state": 0}
    model, other = (Grammar(4, init=init, **how).fit(long) for init in ("agreement", "clusters"))
    np.testing.assert_array_equal(model.params_.rules, other.params_.rules)


# --- restarts -------------------------------------------------------------------------------------------


def test_the_best_of_some_starts_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Corpus.from_sentences(toy(200))
    m_step = m_step_of(text)
    good = Grammar(4, n_preterminals=5, rank=3, n_iter=30, init="clusters", random_state=0).fit(text)._fitted_to()
    starts = [random_start(SIZES, np.array([5, 6]), m_step, np.random.default_rng(i)) for i in range(3)]
    starts.insert(1, good)
    draws = iter(starts)
    monkeypatch.setattr(restarts, "one_start", lambda *_: next(draws))
    found = restarts.best_start(text, SIZES, "random", 4, m_step, np.random.default_rng(0), 1, None)
    assert found is good


@pytest.mark.parametrize("init", ["random", "clusters", "chain"])
def test_restarts_of_every_kind(init: str) -> None:
    model = Grammar(3, n_preterminals=4, rank=2, init=init, n_restarts=2, n_iter=2, random_state=0).fit(toy(30))
    assert np.isfinite(model.history_).all()
    assert Grammar(3, n_preterminals=4, rank=2, init=init, n_restarts=2, n_iter=1).fit([["a", "b"]]).n_sentences_ == 1
