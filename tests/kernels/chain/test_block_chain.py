"""Block kernels against dense matrices with zeros where a state cannot emit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hmm_models import blocks_and_emission, low_rank, pair_sparse
from oracles.discrete_chain_dense import block_masses, dense_answers, enumerated
from undertow.kernels.chain import sparse as block_chain
from undertow.kernels.chain import sparse_low_rank as block_low_rank
from undertow.kernels.chain.block_operators import PairSparse
from undertow.kernels.chain.blocks import Blocks, live_firsts, word_probabilities, word_probability_rows

TEXT = np.array([0, 1, 3, 8, 5, 6, 2, 7, 8, 8, 4, 2, 3])  # word 8 is a missing observation
BOUNDS = np.array([0, 5, 5, 12, 13])
LIKE = {"rtol": 2e-5, "atol": 1e-6}


SEEN = [(0, 0), (0, 1), (1, 2), (2, 0), (1, 0), (2, 1)]
FORMS = ["pairs", "low rank"]


def operator(form: str, rng: Any, blocks: Blocks) -> Any:
    return pair_sparse(rng, blocks, SEEN) if form == "pairs" else low_rank(rng, blocks)


def functions(form: str) -> tuple[Any, Any, Any]:
    if form == "pairs":
        return block_chain.filter_blocks, block_chain.smooth_blocks, block_chain.block_statistics
    return block_low_rank.filter_low_rank, block_low_rank.smooth_low_rank, block_low_rank.low_rank_statistics


def spread(blocks: Blocks, posterior: Any, ids: Any) -> Any:
    """(T, Z) from the distributions over live states."""
    out = np.zeros((len(ids), blocks.n_states))
    for t, b in enumerate(blocks.word_block[ids]):
        live = slice(None) if b < 0 else slice(blocks.first[b], blocks.first[b + 1])
        out[t, live] = posterior.values[posterior.at[t] : posterior.at[t + 1]]
    return out


@pytest.mark.parametrize("form", FORMS)
def test_blocks_are_a_dense_chain_with_zeros(form: str) -> None:
    rng = np.random.default_rng(1)
    blocks, emission, initial = blocks_and_emission(rng)
    T = operator(form, rng, blocks)
    D, E = T.dense().astype(float), blocks.dense_emission(emission).astype(float)
    filter_, smooth, statistics = functions(form)
    arguments = (TEXT, BOUNDS, blocks, T, initial, emission)
    filt, both, stats = filter_(*arguments), smooth(*arguments), statistics(*arguments)
    xi, n_words, n_initial = np.zeros_like(D), np.zeros_like(E), np.zeros(len(D))
    for a, b in zip(BOUNDS[:-1], BOUNDS[1:], strict=True):
        if a == b:
            continue  # an empty sequence
        ids = TEXT[a:b]
        truth = dense_answers(ids, initial.astype(float), D, E)
        np.testing.assert_allclose(filt.log_probabilities[a:b], truth.log_probabilities, **LIKE)
        np.testing.assert_allclose(both.log_probabilities[a:b], truth.log_probabilities, **LIKE)
        np.testing.assert_allclose(spread(blocks, filt, TEXT)[a:b], truth.filt, **LIKE)
        np.testing.assert_allclose(spread(blocks, both, TEXT)[a:b], truth.smooth, **LIKE)
        xi += truth.xi
        n_initial += truth.smooth[0]
        for t, w in enumerate(ids):
            n_words[:, w] += truth.smooth[t]
    np.testing.assert_allclose(stats.log_likelihood, filt.log_probabilities.sum(), rtol=1e-12)
    np.testing.assert_allclose(stats.initial, n_initial, **LIKE)
    counted = blocks.dense_emission(stats.emission)[:, :8]
    np.testing.assert_allclose(counted, n_words[:, :8], **LIKE)
    if form == "pairs":
        found = T._replace(data=stats.pairs, leave=0 * T.leave).dense()
        seen = T._replace(data=np.ones_like(T.data), leave=0 * T.leave).dense()
        np.testing.assert_allclose(found, xi * seen, **LIKE)
    else:
        # n(z, f) = R_zf · Σ_z' ξ_zz' E_fz' / T_zz', and the like for n(f, z')
        ratio = xi / D
        np.testing.assert_allclose(stats.out, T.R * (ratio @ T.ET), **LIKE)
        np.testing.assert_allclose(stats.into, T.ET * (ratio.T @ T.R), **LIKE)
        np.testing.assert_allclose(stats.out.sum(), len(TEXT) - 3, rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_all_paths_enumerated(form: str) -> None:
    rng = np.random.default_rng(2)
    blocks, emission, initial = blocks_and_emission(rng, np.array([0, 1, -1, 1]), np.array([2, 3]))
    T = pair_sparse(rng, blocks, [(0, 1), (1, 1)]) if form == "pairs" else low_rank(rng, blocks)
    ids = np.array([0, 1, 2, 3, 1, 0])
    truth, smooth = enumerated(ids, initial, T.dense(), blocks.dense_emission(emission))
    posterior = functions(form)[1](ids, np.array([0, 6]), blocks, T, initial, emission)
    np.testing.assert_allclose(posterior.log_probabilities.sum(), truth, rtol=1e-5)
    np.testing.assert_allclose(spread(blocks, posterior, ids), smooth, **LIKE)


def test_push_and_pull_are_the_dense_products() -> None:
    rng = np.random.default_rng(3)
    blocks, _, _ = blocks_and_emission(rng)
    x = rng.random((2, blocks.n_states))
    for form in FORMS:
        T = operator(form, rng, blocks)
        np.testing.assert_allclose(T.push(x), x @ T.dense(), rtol=1e-5)
        for some in (x[0], x[:1], x):  # one row, or several: other code in each
            np.testing.assert_allclose(T.pull(some), some @ T.dense().T, rtol=1e-5)
            np.testing.assert_allclose(T.pull(some), some @ T.rows(np.arange(blocks.n_states)).T, rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_parts_of_the_matrix_are_those_of_the_dense_one(form: str) -> None:
    rng = np.random.default_rng(8)
    blocks, emission, initial = blocks_and_emission(rng)
    T = operator(form, rng, blocks)
    D = T.dense().astype(float)
    for b in (-1, 0, 1, 2):
        live = slice(None) if b < 0 else slice(blocks.first[b], blocks.first[b + 1])
        alpha = rng.random(len(D))[live]
        np.testing.assert_allclose(T.push_from(b, alpha), alpha @ D[live], rtol=1e-5)
    found = word_probabilities(blocks, initial, emission)
    np.testing.assert_allclose(found, initial @ blocks.dense_emission(emission), rtol=1e-5)
    z = np.array([7, 0, 3, 3])
    if form == "low rank":
        np.testing.assert_allclose(T.rows(z), D[z], rtol=1e-5)
        return
    np.testing.assert_allclose(T.block_masses(), block_masses(D, blocks.first), rtol=1e-5)
    to = np.array([2, 2, 1, 0])  # the second pair of blocks was not seen
    i, z_next, value = T.into_block(z, to)
    expected = [(n, y) for n, b in enumerate(to) for y in range(blocks.first[b], blocks.first[b + 1])]
    assert list(zip(i.tolist(), z_next.tolist(), strict=True)) == expected
    np.testing.assert_allclose(value, D[z[i], z_next], rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_distributions_over_live_states_are_spread_and_projected(form: str) -> None:
    rng = np.random.default_rng(9)
    blocks, emission, initial = blocks_and_emission(rng)
    posterior = functions(form)[1](TEXT, BOUNDS, blocks, operator(form, rng, blocks), initial, emission)
    low, whole = live_firsts(blocks, TEXT), spread(blocks, posterior, TEXT)
    table = rng.random((blocks.n_states, 3)).astype(np.float32)
    np.testing.assert_array_equal(block_chain.spread_live(posterior, low, blocks.n_states), whole)
    np.testing.assert_allclose(block_chain.project_live(posterior, low, table), whole @ table, rtol=1e-5)
    np.testing.assert_array_equal(block_chain.best_live(posterior, low), whole.argmax(axis=1))


@pytest.mark.parametrize("form", FORMS)
def test_the_two_forms_agree_and_one_block_is_no_block(form: str) -> None:
    """The same matrix through both forms; with G = 1 every state is alive at every step."""
    rng = np.random.default_rng(4)
    blocks, emission, initial = blocks_and_emission(rng, np.zeros(6, dtype=int), np.array([4]))
    T = low_rank(rng, blocks)
    if form == "pairs":
        whole = T.dense().ravel()
        T = PairSparse(
            blocks.first, np.zeros((1, 1), np.int32), np.array([0, 16]), whole, *np.zeros((2, 4), np.float32)
        )
    ids = rng.integers(0, 6, 9)
    truth = dense_answers(ids, initial.astype(float), T.dense().astype(float), emission.reshape(6, 4).T.astype(float))
    posterior = functions(form)[1](ids, np.array([0, 9]), blocks, T, initial, emission)
    np.testing.assert_allclose(posterior.values.reshape(9, 4), truth.smooth, **LIKE)


@pytest.mark.parametrize("form", FORMS)
def test_a_word_of_probability_zero_is_minus_infinity_and_never_nan(form: str) -> None:
    rng = np.random.default_rng(5)
    blocks, emission, initial = blocks_and_emission(rng)
    emission[blocks.starts[3] : blocks.starts[4]] = 0
    T = operator(form, rng, blocks)
    filter_, smooth, _ = functions(form)
    arguments = (TEXT, BOUNDS, blocks, T, initial, emission)
    logs = filter_(*arguments).log_probabilities
    assert np.isneginf(logs[TEXT == 3]).all() and np.isfinite(logs[TEXT != 3]).all()
    values = smooth(*arguments).values
    assert np.isfinite(values).all() and (values >= 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_a_long_text_stays_finite_and_near_float64(form: str) -> None:
    rng = np.random.default_rng(6)
    blocks, emission, initial = blocks_and_emission(rng)
    T = operator(form, rng, blocks)
    n = 100_000 if form == "pairs" else 3_000  # lanes are for many sequences; one long one is slow
    ids = rng.integers(0, 8, n)
    D, E = T.dense().astype(float), blocks.dense_emission(emission).astype(float)
    a, truth = initial.astype(float), 0.0
    for t, w in enumerate(ids.tolist()):
        a = (a if t == 0 else a @ D) * E[:, w]
        total = a.sum()
        truth += np.log(total)
        a /= total
    stats = functions(form)[2](ids, np.array([0, n]), blocks, T, initial, emission)
    np.testing.assert_allclose(stats.log_likelihood, truth, rtol=1e-6)
    assert all(np.isfinite(x).all() for x in stats)


def test_statistics_add() -> None:
    rng = np.random.default_rng(7)
    blocks, emission, initial = blocks_and_emission(rng)
    for form in FORMS:
        T, statistics = operator(form, rng, blocks), functions(form)[2]
        whole = statistics(TEXT, BOUNDS, blocks, T, initial, emission)
        parts = [
            statistics(TEXT[a:b], np.array([0, b - a]), blocks, T, initial, emission)
            for a, b in [(0, 5), (5, 12), (12, 13)]
        ]
        for x, y in zip(whole, parts[0] + parts[1] + parts[2], strict=True):
            np.testing.assert_allclose(x, y, **LIKE)


def test_word_probabilities_of_several_distributions() -> None:
    rng = np.random.default_rng(0)
    blocks, emission, _ = blocks_and_emission(rng)
    states = rng.dirichlet(np.ones(blocks.n_states), size=3)
    np.testing.assert_allclose(
        word_probability_rows(blocks, states, emission), states @ blocks.dense_emission(emission), rtol=1e-5
    )
