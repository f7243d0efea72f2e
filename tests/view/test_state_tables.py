"""What the pages tell of states equals what the model itself answers, and what enumeration gives."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from page_samples import LINES, fitted
from undertow import FactorialHMM
from undertow.models.answers import WordProbability
from undertow.models.hmm import queries
from undertow.view import state_tables
from undertow.view.reader_data import read_text
from undertow.view.state_tables import State, StateTable, cluster_states, fhmm_states, hmm_states, payload, stationary
from undertow.view.states_page import _explorer, states_page

HMMS = ("hmm-blocks", "hmm-dense", "hmm-low-rank")


@pytest.mark.parametrize("kind", HMMS)
def test_the_states_of_an_hmm(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "BATCH_ENTRIES", 16)  # two or three states at a time
    model = fitted(kind)
    table = hmm_states(model)
    T, share = model.transition_.dense().astype(float), queries.Derived(model.params_).state_shares.astype(float)
    Z = len(share)
    number = [int(s.name) for s in table.states]
    assert sorted(number) == list(range(Z)) == list(range(table.n_states))
    assert (np.diff([s.share for s in table.states]) <= 0).all()
    assert_allclose([s.share for s in table.states], share[number], rtol=1e-6)
    for z, state in zip(number, table.states, strict=True):
        assert [w for w in model.top_words(z, 50) if w.probability >= 1e-3][:10] == state.words
        for steps, p in ((state.after, T[z]), (state.before, share * T[:, z] / share[z])):
            want = np.sort(p[p > 0])[::-1][: state_tables.NEIGHBORS]
            assert_allclose([q for _, q in steps], want, rtol=1e-5)
            assert_allclose([p[number[i]] for i, _ in steps], want, rtol=1e-5)


@pytest.mark.parametrize("kind", HMMS)
def test_the_states_of_a_word(kind: str) -> None:
    model = fitted(kind)
    table = hmm_states(model)
    emission, share = model.emission_.dense(), queries.Derived(model.params_).state_shares
    number = [int(s.name) for s in table.states]
    assert set(table.word_states) == set(model.vocabulary_.words[model.vocabulary_.n_special :])
    for word, states in table.word_states.items():
        joint = share * emission[:, model.vocabulary_.id(word)]
        p = joint / joint.sum()
        want = np.sort(p[p > 0])[::-1][: state_tables.WORD_STATES]
        assert_allclose([q for _, q in states][: len(want)], want, rtol=1e-4, atol=1e-6)
        assert_allclose([p[number[i]] for i, _ in states], [q for _, q in states], rtol=1e-4, atol=1e-6)


def test_the_steps_are_those_of_the_model() -> None:
    model = fitted("hmm-blocks")
    table = hmm_states(model)
    for (p, i, j), t in zip(table.steps, model.transitions(state_tables.STEPS), strict=True):
        assert_allclose(p, t.strength, rtol=1e-6)
        names = [[w.word for w in model.top_words(int(table.states[k].name), 5)] for k in (i, j)]
        assert names == [t.before, t.after]


def test_few_states_are_described_of_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_tables, "DESCRIBED", 3)
    table = hmm_states(fitted("hmm-blocks"))
    assert (table.n_states, len(table.states)) == (8, 3)
    places = [i for s in table.states for i, _ in s.before + s.after]
    places += [i for states in table.word_states.values() for i, _ in states] + [
        k for _, *ends in table.steps for k in ends
    ]
    assert set(places) <= {0, 1, 2}


def test_the_states_of_a_factorial_hmm() -> None:
    model = fitted("fhmm")
    table, p = fhmm_states(model), model.params_
    assert len(table.states) == 6 and table.groups == ["Layer 1", "Layer 2"] and table.group == [0, 0, 0, 1, 1, 1]
    for layer in range(2):
        states = table.states[3 * layer : 3 * layer + 3]
        assert_allclose(sum(s.share for s in states), 1, rtol=1e-9)
        for state in states:
            m, z = (int(x) for x in state.name.split("."))
            assert m == layer + 1
            weights = {w.word: w.tokens for w in model.top_words(layer, z, 100)}
            tokens = state.share * model.vocabulary_.counts.sum()
            assert [w.word for w in state.words] == [w for w in weights if weights[w] / tokens >= 1e-3][:10]
            assert_allclose(
                [w.probability for w in state.words], [weights[w.word] / tokens for w in state.words], rtol=1e-9
            )
            after = {table.states[i].name: q for i, q in state.after}
            assert_allclose([after[f"{m}.{k}"] for k in range(3)], p.transition[layer, z], rtol=1e-9)
    assert all(len(states) <= 4 for states in table.word_states.values())


def test_layers_of_different_sizes() -> None:
    text = [s.split() for s in LINES] * 8
    model = FactorialHMM(2, n_states=(4, 2), n_iter=3, random_state=0).fit(text)
    table = fhmm_states(model)
    assert table.n_states == 6 and table.group == [0, 0, 0, 0, 1, 1]
    for layer, (begin, k) in enumerate([(0, 4), (4, 2)]):
        states = table.states[begin : begin + k]
        assert sorted(s.name for s in states) == [f"{layer + 1}.{z}" for z in range(k)]
        assert_allclose(sum(s.share for s in states), 1, rtol=1e-9)
        for state in states:
            assert_allclose(sum(p for _, p in state.after), 1, rtol=1e-9)
            assert {table.states[i].name for i, _ in state.after} <= {s.name for s in states}
    page = states_page(model)
    assert "The 4 + 2 states of a factorial HMM" in page and "4, 2" in page
    reading = read_text(model, text[:3])
    assert all(z < (4, 2)[m] for m, layer in enumerate(reading.states) for token in layer for z, _ in token)


def test_clusters_are_states_without_steps() -> None:
    model = fitted("clusters")
    table = cluster_states(model)
    assert_allclose(sum(s.share for s in table.states), 1, rtol=1e-9)
    for state in table.states:
        assert [w.word for w in state.words] == model.words(state.name, 10) and not state.before + state.after
    for word, [(i, p)] in table.word_states.items():
        assert table.states[i].name == model.path(word) and p == 1
    assert payload(table)["steps"] == []


def test_stationary() -> None:
    A = np.array([[0.9, 0.1], [0.3, 0.7]])
    assert_allclose(stationary(A), [0.75, 0.25], rtol=1e-9)
    assert_allclose(stationary(np.array([[0.0, 1.0], [1.0, 0.0]])), [0.5, 0.5], rtol=1e-9)


@pytest.mark.parametrize("word", ["sea", "<unk:-ed>"])
def test_the_page_says_what_classes_of_rare_words_are(word: str) -> None:
    state = State("0", 1.0, [WordProbability(word, 1.0)], [], [])
    shown = _explorer(StateTable(1, [state], {"sea": [(0, 1.0)]}, [], [], [0]), "states", 1)
    assert ("&lt;unk:-ed&gt; stand for rare words" in shown) == word.startswith("<unk:")
