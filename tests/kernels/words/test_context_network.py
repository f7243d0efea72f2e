"""The network that predicts words: against its definition token by token, and its gradient by differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from oracles.context_network import log_probability, query_of, sampled_loss
from undertow.kernels.words.context_network import (
    ContextNetwork,
    WordTables,
    gradient,
    log_probabilities,
    padded,
    queries,
    segment_windows,
    step_rows,
)

V, D, K, WIDTH = 7, 3, 4, 2
SENTENCES = [[0, 3, 5, 1], [2], [], [6, 6, 4]]
IDS = np.array([w for s in SENTENCES for w in s])
BOUNDS = np.cumsum([0, *map(len, SENTENCES)])


def drawn_weights(seed: int) -> tuple[ContextNetwork, WordTables]:
    rng = np.random.default_rng(seed)
    shapes = [(2 * WIDTH * D, K), (K,), (K, K), (K,), (2 * K, D)]
    net = ContextNetwork(*(rng.normal(0, 0.5, s) for s in shapes))
    return net, WordTables(*(rng.normal(0, 0.7, s) for s in ((V + 1, D), (V, D), (V,))))


def every_token() -> list[tuple[list[int], int]]:
    return [(s, t) for s in SENTENCES for t in range(len(s))]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_queries_and_probabilities_are_the_definition(seed: int) -> None:
    net, tables = drawn_weights(seed)
    found = queries(net, tables.inputs, padded(IDS, BOUNDS, WIDTH, V)).query
    assert_allclose(found, [query_of(net, tables, s, t) for s, t in every_token()], rtol=1e-10, atol=1e-12)
    logs = log_probabilities(tables, found)
    assert_allclose(np.exp(logs).sum(axis=1), 1, rtol=1e-12)
    expected = [log_probability(net, tables, s, t) for s, t in every_token()]
    assert_allclose(logs[np.arange(len(IDS)), IDS], expected, rtol=1e-10)


def loss_of(net: ContextNetwork, tables: WordTables, drawn: list[int], log_rate: Any) -> float:
    return sum(sampled_loss(net, tables, s, t, drawn, log_rate) for s, t in every_token())


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_loss(seed: int) -> None:
    net, tables = drawn_weights(seed)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, V, 5)
    log_rate = rng.normal(0, 0.3, V)
    windows = padded(IDS, BOUNDS, WIDTH, V)
    found = gradient(net, tables, windows, drawn, log_rate)
    assert found.loss == pytest.approx(loss_of(net, tables, drawn.tolist(), log_rate), rel=1e-10)

    def slope(part: str, name: str) -> Any:
        weights = getattr(net if part == "net" else tables, name)
        out = np.zeros(weights.shape)
        for at in np.ndindex(weights.shape):
            values = []
            for step in (-1e-5, 1e-5):
                moved = weights.copy()
                moved[at] += step
                given_net = net._replace(**{name: moved}) if part == "net" else net
                given_tables = tables._replace(**{name: moved}) if part == "tables" else tables
                values.append(loss_of(given_net, given_tables, drawn.tolist(), log_rate))
            out[at] = (values[1] - values[0]) / 2e-5
        return out

    for name, own in found.network._asdict().items():
        assert_allclose(own, slope("net", name), rtol=1e-6, atol=1e-7, err_msg=name)
    of_words = np.zeros((V + 1, D))
    np.add.at(of_words, windows.ids, found.inputs)
    assert_allclose(of_words, slope("tables", "inputs"), rtol=1e-6, atol=1e-7)
    for name, at_targets, at_drawn in (
        ("outputs", found.targets, found.drawn),
        ("bias", found.target_bias, found.drawn_bias),
    ):
        total = np.zeros(getattr(tables, name).shape)
        np.add.at(total, IDS, at_targets)
        np.add.at(total, drawn, at_drawn)
        assert_allclose(total, slope("tables", name), rtol=1e-6, atol=1e-7, err_msg=name)


def test_segments_see_the_words_around_them() -> None:
    net, tables = drawn_weights(5)
    text = padded(IDS, BOUNDS, WIDTH, V)
    whole = queries(net, tables.inputs, text).query
    begin, length = np.array([6, 1, 4]), np.array([2, 2, 1])  # parts of the last and first sentence, the second one
    own = segment_windows(text, begin, length, WIDTH)
    tokens = [6, 7, 1, 2, 4]
    assert_array_equal(own.ids[own.position], IDS[tokens])
    assert_allclose(queries(net, tables.inputs, own).query, whole[tokens], rtol=1e-12)


def test_steps_of_rows_are_adagrad() -> None:
    rng = np.random.default_rng(0)
    table, squares = rng.normal(size=(4, 3)), np.zeros(4)
    expected, sums = table.copy(), np.zeros(4)
    for _ in range(3):
        ids, rows = rng.integers(0, 3, 6), rng.normal(size=(6, 3))
        step_rows(table, squares, ids, rows, 0.1)
        for word in set(ids.tolist()):
            total = rows[ids == word].sum(axis=0)
            sums[word] += (total**2).mean()
            expected[word] -= 0.1 * total / np.sqrt(sums[word])
    assert_allclose(table, expected, rtol=1e-12)
    assert_allclose(squares, sums, rtol=1e-12)
    step_rows(table, np.zeros(4), np.array([1]), np.zeros((1, 3)), 0.1)  # no gradient, no step
    assert_allclose(table, expected, rtol=1e-12)
