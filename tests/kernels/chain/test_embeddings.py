"""Chains with embeddings: tables against dense softmaxes, gradients against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from oracles.embedded_chain import dense_tables, log_likelihood
from undertow.kernels.chain import embeddings
from undertow.kernels.chain.embeddings import (
    Adam,
    ChainLayout,
    Embeddings,
    ExpectedCounts,
    chain_tables,
    log_likelihood_gradient,
)
from undertow.kernels.chain.sparse import block_statistics

WORDS, STATES = np.array([1, 3, 2]), np.array([2, 3, 4])
STATE_BLOCK, WORD_BLOCK = np.repeat(np.arange(3), STATES), np.repeat(np.arange(3), WORDS)
IDS, BOUNDS = np.array([0, 3, 5, 1, 1, 4, 2, 0, 5, 2], dtype=np.uint32), np.array([0, 4, 4, 10])

DENSE_SPELLING = np.array([[0, 0, 0, 0], [1, 0, 0, 0.5], [0, 0.5, 0, 0], [1, 0.5, 0, 0], [0, 0, 2, 0], [0, 1, 0, 1]])
SPELLING = csr_array(DENSE_SPELLING.astype(np.float32))  # four affixes; a word has up to two


def some_weights(seed: int = 0, width: int = 5) -> Embeddings:
    rng = np.random.default_rng(seed)
    Z, V = STATES.sum(), WORDS.sum()
    shapes = [(Z, width), (3, width), (3,), (Z, width), (Z,), (Z, width), (V, width), (4, width), (V,), (Z,)]
    return Embeddings(*(rng.normal(size=s).astype(np.float32) for s in shapes))


SEEN = np.zeros((3, 3), dtype=bool)  # the pairs of blocks that the text has
SEEN[WORD_BLOCK[IDS[:-1]], WORD_BLOCK[IDS[1:]]] = True


def gradient_of(weights: Embeddings, layout: ChainLayout, n_threads: int = 1):
    tables = chain_tables(weights, layout, n_threads)
    blocks, (initial, transition, emission, *_) = layout.blocks, tables
    stats = block_statistics(IDS, BOUNDS, blocks, transition, initial, emission, np.float32)
    counts = ExpectedCounts(stats.pairs, stats.emission, stats.initial)
    return stats.log_likelihood, log_likelihood_gradient(weights, layout, tables, counts, n_threads)


@pytest.mark.parametrize("rows_at_a_time", [1, 4, 128])
def test_tables_are_softmaxes(monkeypatch, rows_at_a_time) -> None:
    monkeypatch.setattr(embeddings, "ROWS_AT_A_TIME", rows_at_a_time)
    weights, layout = some_weights(), ChainLayout.of(WORDS, STATES, SPELLING)
    initial, T, e = dense_tables(weights, STATE_BLOCK, WORD_BLOCK, DENSE_SPELLING)
    tables = chain_tables(weights, layout)
    assert_allclose(tables.initial, initial, rtol=1e-5)
    assert_allclose(tables.transition.dense(), T, rtol=1e-5)
    assert_allclose(layout.blocks.dense_emission(tables.emission), e, rtol=1e-5, atol=1e-12)
    tables.transition.check()


def test_logits_beyond_the_range_of_exp_are_no_nan() -> None:
    weights = some_weights()
    weights.arrive_bias[3] += 500
    weights.word_bias[4] += 500
    tables = chain_tables(weights, ChainLayout.of(WORDS, STATES, SPELLING))
    assert np.isfinite(tables.transition.data).all() and np.isfinite(tables.emission).all()
    tables.transition.check()


@pytest.mark.parametrize(("seen", "rows_at_a_time"), [(None, 128), (SEEN, 128), (SEEN, 4)])
def test_the_gradient_is_that_of_the_log_likelihood(monkeypatch, seen, rows_at_a_time) -> None:
    """Fisher's identity, against central differences of the forward recursion in float64."""
    monkeypatch.setattr(embeddings, "ROWS_AT_A_TIME", rows_at_a_time)
    assert not SEEN.all()
    weights = some_weights()
    value, gradient = gradient_of(weights, ChainLayout.of(WORDS, STATES, SPELLING, seen))
    assert_allclose(value, log_likelihood(weights, STATE_BLOCK, WORD_BLOCK, DENSE_SPELLING, IDS, BOUNDS), rtol=1e-5)
    step = 1e-4
    for name in Embeddings._fields:
        truth = np.zeros(getattr(weights, name).shape)
        for at in np.ndindex(truth.shape):
            values = []
            for sign in (1, -1):
                moved = [np.array(x, dtype=np.float64) for x in weights]
                moved[Embeddings._fields.index(name)][at] += sign * step
                values.append(log_likelihood(moved, STATE_BLOCK, WORD_BLOCK, DENSE_SPELLING, IDS, BOUNDS))
            truth[at] = (values[0] - values[1]) / (2 * step)
        assert_allclose(getattr(gradient, name), truth, rtol=1e-3, atol=1e-4, err_msg=name)


def test_threads_change_no_bit(monkeypatch) -> None:
    monkeypatch.setattr(embeddings, "ROWS_AT_A_TIME", 2)
    weights, layout = some_weights(), ChainLayout.of(WORDS, STATES, SPELLING)
    one, two = (gradient_of(weights, layout, n)[1] for n in (1, 3))
    for a, b in zip(one, two, strict=True):
        assert_array_equal(a, b)
    tables, again = (chain_tables(weights, layout, n) for n in (1, 3))
    assert_array_equal(again.transition.data, tables.transition.data)
    assert_array_equal(again.emission, tables.emission)


def test_some_of_the_states_are_a_chain_of_the_same_form() -> None:
    weights, kept = some_weights(), np.array([1, 2, 4, 7, 8])
    part = weights.of_states(kept)
    tables = chain_tables(part, ChainLayout.of(WORDS, np.array([1, 2, 2]), SPELLING))
    _, T, _ = dense_tables(part, STATE_BLOCK[kept], WORD_BLOCK, DENSE_SPELLING)
    assert_allclose(tables.transition.dense(), T, rtol=1e-5)
    _, whole, _ = dense_tables(weights, STATE_BLOCK, WORD_BLOCK, DENSE_SPELLING)
    for b in range(3):  # a block is as probable as before, and so are the states that it has left, in proportion
        into, some = STATE_BLOCK[kept] == b, whole[np.ix_(kept, kept[STATE_BLOCK[kept] == b])]
        mass = whole[kept][:, b == STATE_BLOCK].sum(axis=1, keepdims=True)
        assert_allclose(T[:, into], mass * some / some.sum(axis=1, keepdims=True), rtol=1e-9)


def test_adam_is_adam() -> None:
    """Against the published update, three steps; states that are not kept have no gradient."""
    weights = some_weights()
    expected = [np.array(x, dtype=np.float64) for x in weights]
    m, v = [0 * x for x in expected], [0 * x for x in expected]
    state, rng = Adam.start(weights), np.random.default_rng(1)
    for n in range(1, 4):
        kept = np.array([0, 2, 3, 8]) if n == 2 else np.arange(9)
        gradient = Embeddings(*(rng.normal(size=x.shape).astype(np.float32) for x in weights))
        whole = [0.5 * g for g in gradient]
        for field in ("leave", "arrive", "arrive_bias", "emit", "initial"):
            whole[Embeddings._fields.index(field)][np.setdiff1d(np.arange(9), kept)] = 0
        state = state.ascend(weights, gradient.of_states(kept), kept, scale=0.5, rate=0.01, decay=0.1, n_threads=n)
        for i, g in enumerate(whole):
            m[i], v[i] = 0.9 * m[i] + 0.1 * g, 0.99 * v[i] + 0.01 * g.astype(float) ** 2
            step = m[i] / (1 - 0.9**n) / (np.sqrt(v[i] / (1 - 0.99**n)) + 1e-8)
            expected[i] = expected[i] + 0.01 * (step - (0.1 if g.ndim > 1 else 0) * expected[i])
    for x, y in zip(weights, expected, strict=True):
        assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    for x, y in zip((*state.mean, *state.square), m + v, strict=True):  # a step hardly depends on the scale, these do
        assert_allclose(x, y, rtol=1e-4, atol=1e-7)
