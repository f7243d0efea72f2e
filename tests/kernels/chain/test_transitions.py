from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hmm_models import OPERATORS, blocks_and_emission, dense_to_band, low_rank, pair_sparse, random_operator
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.kernels.chain.band import BandLowRank, band_to_dense, inside
from undertow.kernels.chain.operators import Dense, LowRank, Transition
from undertow.kernels.chain.smoothing import check_rows, smoothed_columns, smoothed_rows

Z, F = 9, 3


@pytest.mark.parametrize("half_width", [1, 2, 4, 9])
@pytest.mark.parametrize("kind", OPERATORS)
def test_push_and_pull_are_products_with_the_matrix(kind, half_width):
    rng = np.random.default_rng(half_width)
    operator = random_operator(kind, Z, F, rng, half_width=half_width)
    operator.check()
    T = operator.dense()
    assert_allclose(T.sum(axis=1), 1.0, rtol=1e-12)
    assert (T >= 0).all()
    alpha, message = rng.random((5, Z)), rng.random((5, Z))
    assert_allclose(operator.push(alpha), alpha @ T, rtol=1e-10)
    assert_allclose(operator.pull(message), message @ T.T, rtol=1e-10)
    out, route = np.empty_like(alpha), np.empty((5, operator.width))
    assert operator.push(alpha, out, route if operator.width else None) is out
    assert_allclose(out, alpha @ T, rtol=1e-10)


@pytest.mark.parametrize("kind", OPERATORS)
def test_expected_counts_are_those_of_all_pairs(kind):
    """Split by routes they still add up: rows and columns of Σ alpha_i T_ij message_j."""
    rng = np.random.default_rng(0)
    operator = random_operator(kind, Z, F, rng)
    T, alpha, message = operator.dense(), rng.random((6, Z)), rng.random((6, Z))
    pairs = T * (alpha.T @ message)
    stats = operator.empty_stats()
    for some in (slice(0, 2), slice(2, 6)):
        route = (None, None)
        if operator.width and some.start:
            route = np.empty((2, 4, operator.width))
            operator.push(alpha[some], None, route[0])
            operator.pull(message[some], None, route[1])
        operator.accumulate_expected(alpha[some], message[some], stats, *route, row_block=4)
    again = operator.empty_stats()
    operator.accumulate_expected(alpha, message, again, row_block=4)
    for a, b in zip(stats, again, strict=True):
        assert_allclose(a, b, rtol=1e-12)
    assert_allclose((stats + again)[0], 2 * stats[0], rtol=1e-12)
    if kind == "dense":
        assert_allclose(stats.pairs, pairs, rtol=1e-12)
        return
    band = stats.band if kind == "band" else np.zeros((3, Z))
    assert_allclose(stats.zf.sum(axis=1) + band.sum(axis=0), pairs.sum(axis=1), rtol=1e-12)
    assert_allclose(stats.fz.sum(axis=0) + band_to_dense(band).sum(axis=0), pairs.sum(axis=0), rtol=1e-12)
    assert_allclose(stats.zf.sum(axis=0), stats.fz.sum(axis=1), rtol=1e-12)


def test_low_rank_of_full_rank_and_a_full_band_are_dense():
    rng = np.random.default_rng(1)
    T = random_operator("dense", Z, F, rng).T
    message = rng.random((4, Z))
    nothing = np.full((Z, F), 1 / F), np.full((F, Z), 1 / Z)
    for operator in (
        LowRank(T, np.eye(Z)),
        BandLowRank(0 * nothing[0], nothing[1], dense_to_band(T, Z)),
    ):
        operator.check()
        assert_allclose(operator.dense(), T, rtol=1e-12)
        assert_allclose(operator.push(message), message @ T, rtol=1e-12)
        assert_allclose(operator.pull(message), message @ T.T, rtol=1e-12)


def test_bands_of_matrices():
    rng = np.random.default_rng(3)
    matrix = rng.random((5, 5))
    near = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) < 2
    assert_array_equal(band_to_dense(dense_to_band(matrix, 2)), np.where(near, matrix, 0))
    assert_array_equal(inside(3, 5), dense_to_band(np.ones((5, 5)), 2) > 0)


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("strength", [0.0, 2.0])
def test_the_m_step_of_nothing_is_the_prior_mean(kind, strength):
    operator = random_operator(kind, Z, F, np.random.default_rng(4), np.float32)
    new = operator.m_step(operator.empty_stats(), strength)
    new.check()
    assert np.isfinite(new.dense()).all()
    if kind == "dense":
        assert_allclose(new.T, 1 / Z, rtol=1e-6)
    assert new.dense().dtype == np.float32


def test_smoothed_tables():
    counts = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    mean = np.array([0.2, 0.3, 0.5])
    assert_allclose(smoothed_rows(counts, dtype=np.float64), [[0.75, 0.25, 0], [1 / 3] * 3], rtol=1e-12)
    assert_allclose(smoothed_rows(counts, 0.0, mean, np.float64)[1], mean, rtol=1e-12)
    expected = [[3.4 / 6, 1.6 / 6, 1 / 6], mean]
    assert_allclose(smoothed_rows(counts, 2.0, mean, np.float64), expected, rtol=1e-12)
    assert_allclose(smoothed_columns(counts.T, 2.0, mean, np.float64).T, expected, rtol=1e-12)
    assert_allclose(smoothed_columns(counts.T, dtype=np.float64).T, [[0.75, 0.25, 0], [1 / 3] * 3], rtol=1e-12)


def log_likelihood(operator, counts):
    return (counts * np.log(operator.dense())).sum()


@pytest.mark.parametrize("kind", OPERATORS)
def test_em_on_observed_pairs_ends_where_no_change_helps(kind):
    """A transition fitted to counts of pairs: never worse, and in the end level in every direction."""
    rng = np.random.default_rng(5)
    near = np.exp(-np.abs(np.subtract.outer(np.arange(Z), np.arange(Z))))
    counts = 100 * rng.random((Z, Z)) * near + rng.random((Z, Z))
    i, j = (x.ravel() for x in np.indices((Z, Z)))
    operator, values = random_operator(kind, Z, F, rng), []
    for _ in range(600):
        values.append(log_likelihood(operator, counts))
        stats = operator.empty_stats()
        weight = counts[i, j] / operator.dense()[i, j]
        operator.accumulate_expected(np.eye(Z)[i], weight[:, None] * np.eye(Z)[j], stats)
        operator = operator.m_step(stats)
    assert np.diff(values).min() > -1e-12 * abs(values[0])
    if kind == "dense":
        assert_allclose(operator.T, counts / counts.sum(axis=1, keepdims=True), rtol=1e-12)
        return
    step, best = 1e-5, log_likelihood(operator, counts)
    for _ in range(20):
        R = rng.dirichlet(np.ones(F), Z) * operator.R.sum(axis=1, keepdims=True)
        E = rng.dirichlet(np.ones(Z), F)
        rest = (operator.band,) if kind != "low rank" else ()
        moved = type(operator)(operator.R + step * (R - operator.R), operator.E + step * (E - operator.E), *rest)
        assert (log_likelihood(moved, counts) - best) / step < 1e-3 * abs(best)


def refusal(function, *args):
    with pytest.raises(InputError) as error:
        function(*args)
    assert is_one_sentence(str(error.value))
    return str(error.value)


def test_rows_that_are_no_distributions_are_named():
    assert "1: 1.2" in refusal(Dense(np.array([[0.5, 0.5], [0.7, 0.5]])).check)
    assert "negative" in refusal(check_rows, np.array([[1.5, -0.5]]), "table")
    assert "NaN" in refusal(check_rows, np.array([[1.0, np.nan]]), "table")
    assert "floating" in refusal(check_rows, np.array([[1, 0]]), "table")
    assert "features" in refusal(LowRank(np.full((3, 2), 0.4), np.full((2, 3), 1 / 3)).check)
    band = BandLowRank(np.full((3, 2), 0.5), np.full((2, 3), 1 / 3), np.full((1, 3), 0.5))
    assert "0: 1.5" in refusal(band.check)
    refusal(Dense, np.ones((3, 2)))
    refusal(LowRank, np.ones((3, 2)), np.ones((3, 2)))
    refusal(BandLowRank, np.ones((3, 2)), np.ones((2, 3)), np.ones((2, 3)))
    refusal(BandLowRank, np.ones((3, 2)), np.ones((2, 3)), np.ones((3, 3)))


ALL_OPERATORS = (*OPERATORS, "pairs", "block low rank")


def any_operator(kind, rng):
    if kind in OPERATORS:
        return random_operator(kind, Z, F, rng, np.float32)
    blocks = blocks_and_emission(rng)[0]
    if kind == "pairs":
        return pair_sparse(rng, blocks, [(0, 1), (1, 0), (1, 1), (2, 0)])
    return low_rank(rng, blocks)


@pytest.mark.parametrize("kind", ALL_OPERATORS)
def test_every_operator_keeps_the_protocol_and_agrees_with_its_dense_form(kind):
    rng = np.random.default_rng(3)
    operator = any_operator(kind, rng)
    assert isinstance(operator, Transition)
    operator.check()
    n, T = operator.n_states, operator.dense().astype(float)
    assert T.shape == (n, n)
    assert_allclose(T.sum(axis=1), 1.0, rtol=1e-5)
    alpha, message = rng.random((2, 5, n)).astype(np.float32)
    assert_allclose(operator.push(alpha), alpha @ T, rtol=1e-5)
    assert_allclose(operator.pull(message), message @ T.T, rtol=1e-5)
    states = np.array([n - 1, 0, 3, 3])
    assert_allclose(operator.rows(states), T[states], rtol=1e-5)
    assert operator.live(-1) == slice(0, n)
    if kind in OPERATORS:
        assert operator.live(2) == slice(0, n)
    else:
        assert operator.live(1) == slice(operator.first[1], operator.first[2])
    pairs = T * (alpha.T.astype(float) @ message)
    stats = operator.empty_stats()
    assert all(x.dtype == np.float64 and not x.any() for x in stats)
    for some in (slice(0, 2), slice(2, 5)):
        operator.accumulate_expected(alpha[some], message[some], stats)
    for twice, once in zip(stats + stats, stats, strict=True):
        assert_allclose(twice, 2 * once, rtol=1e-12)
    if kind == "dense":
        assert_allclose(stats.pairs, pairs, rtol=1e-5)
    elif kind == "pairs":
        seen = zip(*np.nonzero(operator.pair >= 0), strict=True)
        expected = [pairs[operator.live(b), operator.live(c)].ravel() for b, c in seen]
        assert_allclose(stats.data, np.concatenate(expected), rtol=1e-5)
    else:
        band = band_to_dense(stats.band) if kind == "band" else np.zeros((n, n))
        assert_allclose(stats.zf.sum(axis=1), (pairs - band).sum(axis=1), rtol=1e-5)
        assert_allclose(stats.fz.sum(axis=0), (pairs - band).sum(axis=0), rtol=1e-5)
        assert_allclose(stats.zf.sum(axis=0), stats.fz.sum(axis=1), rtol=1e-5)  # each feature is left as often


@pytest.mark.parametrize("kind", ["pairs", "block low rank"])
def test_block_operators_whose_rows_do_not_sum_to_one_are_refused(kind):
    operator = any_operator(kind, np.random.default_rng(4))
    wrong = {"leave": 2 * operator.leave} if kind == "pairs" else {"R": 2 * operator.R}
    with pytest.raises(InputError) as e:
        operator._replace(**wrong).check()
    assert is_one_sentence(str(e.value))
