from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hmm_models import OPERATORS, bounds, dense_to_band, m_step, observations, random_params
from oracles.hmm_paths import enumerate_paths
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.kernels.chain.band import BandLowRank
from undertow.kernels.chain.batched import Tiles
from undertow.kernels.chain.inference import (
    ChainParams,
    check_params,
    e_step,
    forward,
    forward_backward_logs,
    posterior,
)
from undertow.kernels.chain.operators import Dense, LowRank

Z, F, V = 4, 2, 5


# three lanes, chunks of a few steps and flushes of a few rows: every seam is crossed
TINY = Tiles(n_lanes=3, chunk_bytes=8 * Z * 7, flush_bytes=8 * Z * 4)


def by_enumeration(ids, offsets, params):
    T = params.transition.dense()
    parts = [ids[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    return [enumerate_paths(params.initial, T, observations(params, part)) for part in parts]


def check_against_enumeration(ids, offsets, params, **options):
    oracle = by_enumeration(ids, offsets, params)
    stats = e_step(ids, offsets, params, **options)
    assert_allclose(stats.log_likelihood, sum(o.log_likelihood for o in oracle), rtol=1e-10, atol=1e-12)
    gamma = np.concatenate([np.zeros((0, Z)), *(o.gamma for o in oracle)])
    assert_allclose(posterior(ids, offsets, params, **options), gamma, rtol=1e-9, atol=1e-12)
    assert_allclose(stats.initial, sum(o.gamma[0] for o in oracle if len(o.gamma)), rtol=1e-9)
    emission = np.zeros((V, Z))
    np.add.at(emission, ids[ids >= 0], gamma[ids >= 0])
    assert_allclose(stats.emission, emission, rtol=1e-9, atol=1e-12)
    pairs = sum(o.pairs.sum(axis=0) for o in oracle)
    if isinstance(params.transition, Dense):
        assert_allclose(stats.transition.pairs, pairs, rtol=1e-9, atol=1e-12)
    elif isinstance(params.transition, LowRank):
        assert_allclose(stats.transition.zf.sum(axis=1), pairs.sum(axis=1), rtol=1e-9, atol=1e-12)
        assert_allclose(stats.transition.fz.sum(axis=0), pairs.sum(axis=0), rtol=1e-9, atol=1e-12)
    assert stats.n_tokens == np.count_nonzero(ids >= 0)
    result = forward(ids, offsets, params, filtered=True, **options)
    assert_allclose(result.log_prob.sum(), stats.log_likelihood, rtol=1e-10, atol=1e-12)
    for i, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        for t in range(a, b):
            prefix = enumerate_paths(params.initial, params.transition.dense(), observations(params, ids[a : t + 1]))
            assert_allclose(result.filtered[t], prefix.gamma[-1], rtol=1e-9, atol=1e-12)
            assert_allclose(result.log_prob[a : t + 1].sum(), prefix.log_likelihood, rtol=1e-9, atol=1e-12)
        assert_array_equal(result.last[i], result.filtered[b - 1] if b > a else params.initial)


@pytest.mark.parametrize("kind", OPERATORS)
def test_equals_the_sum_over_all_paths(kind):
    @settings(max_examples=12, derandomize=True)
    @given(
        lengths=st.lists(st.integers(0, 6), min_size=1, max_size=7).filter(any),
        seed=st.integers(0, 1000),
        share_missing=st.sampled_from([0.0, 0.3]),
    )
    def check(lengths, seed, share_missing):
        rng = np.random.default_rng(seed)
        offsets = bounds(lengths)
        ids = rng.integers(0, V, offsets[-1])
        ids[rng.random(len(ids)) < share_missing] = -1
        check_against_enumeration(ids, offsets, random_params(kind, Z, F, V, seed), tiles=TINY)

    check()


def test_the_logs_kernel_and_the_batched_one_agree():
    params = random_params("dense", 30, F, 50, 1)
    rng = np.random.default_rng(1)
    offsets = bounds(rng.integers(0, 40, 300))
    ids = rng.integers(0, 50, offsets[-1])
    stats = e_step(ids, offsets, params)
    other = forward_backward_logs(np.log(params.emission[ids]), offsets, params.initial, params.transition.T)
    assert_allclose(stats.log_likelihood, other.log_likelihood.sum(), rtol=1e-12)
    assert_allclose(stats.transition.pairs, other.pairs, rtol=1e-9)
    assert_allclose(stats.initial, other.first, rtol=1e-9)
    assert_allclose(posterior(ids, offsets, params), other.gamma, rtol=1e-8, atol=1e-14)


def test_full_rank_and_full_band_give_the_statistics_of_dense():
    params = random_params("dense", Z, F, V, 2)
    T = params.transition.T
    rng = np.random.default_rng(2)
    offsets = bounds([9, 4, 0, 7, 1])
    ids = rng.integers(0, V, offsets[-1])
    dense = e_step(ids, offsets, params, tiles=TINY)
    low = e_step(ids, offsets, params._replace(transition=LowRank(T, np.eye(Z))), tiles=TINY)
    assert_allclose(low.transition.zf, dense.transition.pairs, rtol=1e-9)  # z → f is z → z'
    assert_allclose(low.transition.fz, np.diag(dense.transition.pairs.sum(axis=0)), rtol=1e-9, atol=1e-12)
    nothing = np.zeros((Z, F)), np.full((F, Z), 1 / Z)
    band = e_step(ids, offsets, params._replace(transition=BandLowRank(*nothing, dense_to_band(T, Z))), tiles=TINY)
    assert_allclose(band.transition.band, dense_to_band(dense.transition.pairs, Z), rtol=1e-9, atol=1e-12)
    for other in (low, band):
        assert_allclose(other.log_likelihood, dense.log_likelihood, rtol=1e-12)
        assert_allclose(other.emission, dense.emission, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", OPERATORS)
def test_em_never_decreases_the_likelihood(kind, dtype):
    params = random_params(kind, 8, 3, 12, 3, dtype)
    rng = np.random.default_rng(3)
    offsets = bounds(rng.integers(1, 30, 40))
    ids = np.sort(rng.integers(0, 12, (2, offsets[-1])), axis=0)[0]
    ids[::2] = np.roll(ids, 1)[::2] % 7  # something to learn
    values = []
    for _ in range(15):
        check_params(params)
        stats = e_step(ids, offsets, params)
        values.append(stats.log_likelihood)
        params = m_step(stats, params)
    rounding = 1e-12 if dtype == np.float64 else 2e-6
    assert np.diff(values).min() > -rounding * abs(values[0])
    assert values[-1] > values[0] + 0.03 * abs(values[0])


@pytest.mark.parametrize("kind", OPERATORS)
def test_the_number_of_threads_changes_no_bit_and_texts_add(kind):
    params = random_params(kind, Z, F, V, 4, np.float32)
    rng = np.random.default_rng(4)
    offsets = bounds(rng.integers(0, 9, 30))
    ids = rng.integers(-1, V, offsets[-1])
    one, three = (e_step(ids, offsets, params, n_threads=n, tiles=TINY) for n in (1, 3))
    assert one.log_likelihood == three.log_likelihood
    for a, b in zip(
        [one.initial, one.emission, *one.transition], [three.initial, three.emission, *three.transition], strict=True
    ):
        assert_array_equal(a, b)
    assert_array_equal(
        posterior(ids, offsets, params, tiles=TINY), posterior(ids, offsets, params, n_threads=3, tiles=TINY)
    )
    assert_array_equal(
        forward(ids, offsets, params, tiles=TINY).log_prob,
        forward(ids, offsets, params, n_threads=3, tiles=TINY).log_prob,
    )
    cut = int(offsets[11])
    both = e_step(ids[:cut], offsets[:12], params, tiles=TINY) + e_step(
        ids[cut:], offsets[11:] - cut, params, tiles=TINY
    )
    assert both.n_tokens == one.n_tokens
    assert_allclose(both.log_likelihood, one.log_likelihood, rtol=1e-6)
    assert_allclose(both.emission, one.emission, rtol=1e-4, atol=1e-5)
    assert_allclose(both.transition[0], one.transition[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_long_sequence_keeps_its_digits_in_float32(kind):
    exact = random_params(kind, 6, 3, 20, 6)
    cast = {k: v.astype(np.float32) for k, v in vars(exact.transition).items() if k in ("T", "R", "E", "band")}
    single = ChainParams(
        exact.initial.astype(np.float32), type(exact.transition)(**cast), exact.emission.astype(np.float32)
    )
    ids = np.random.default_rng(6).integers(0, 20, 100_000 if kind == "low rank" else 3_000)
    offsets = bounds([len(ids)])
    a, b = e_step(ids, offsets, exact), e_step(ids, offsets, single)
    assert np.isfinite(b.log_likelihood)
    assert_allclose(b.log_likelihood, a.log_likelihood, rtol=1e-6)
    assert_allclose(b.emission, a.emission, rtol=1e-4)
    for x, y in zip(a.transition, b.transition, strict=True):
        assert_allclose(y, x, rtol=1e-4, atol=1e-4 * x.max())


def test_uniform_parameters_have_perplexity_v():
    Z, V = 7, 11
    params = ChainParams(
        np.full(Z, 1 / Z, np.float32), Dense(np.full((Z, Z), 1 / Z, np.float32)), np.full((V, Z), 1 / V, np.float32)
    )
    ids = np.random.default_rng(7).integers(0, V, 500)
    stats = e_step(ids, bounds([200, 300]), params)
    assert_allclose(np.exp(-stats.log_likelihood / stats.n_tokens), V, rtol=1e-6)
    assert_allclose(np.exp(-forward(ids, bounds([200, 300]), params).log_prob.mean()), V, rtol=1e-6)


@pytest.mark.parametrize("kind", OPERATORS)
def test_an_impossible_word_is_minus_infinity_and_named(kind):
    params = random_params(kind, Z, F, V, 8, np.float32)
    params.emission[2] = 0
    ids, offsets = np.array([0, 1, 2, 3, 1, 4, 0, 3, 2, 2, 1, 0, 0]), bounds([5, 3, 0, 5])
    stats, result = e_step(ids, offsets, params, tiles=TINY), forward(ids, offsets, params, filtered=True, tiles=TINY)
    assert stats.log_likelihood == -np.inf
    assert_array_equal(stats.impossible, [2, 8])
    assert_array_equal(result.impossible, [2, 8])
    assert_array_equal(np.flatnonzero(np.isinf(result.log_prob)), [2, 8])
    assert not np.isnan(result.log_prob).any()
    only = e_step(ids[5:8], bounds([3]), params, tiles=TINY)
    assert_allclose(stats.emission, only.emission, rtol=1e-5, atol=1e-7)
    assert_allclose(stats.transition[0], only.transition[0], rtol=1e-4, atol=1e-6)
    gamma = posterior(ids, offsets, params, tiles=TINY)
    assert_allclose(gamma.sum(axis=1), [0] * 5 + [1] * 3 + [0] * 5, rtol=1e-5)
    assert_array_equal(result.last[0], 0)


def test_evidence_that_turns_round_sharply_makes_no_nan():
    """Each word is all but impossible in the other state, and the states hardly change: float32 ends at 1e-38."""
    sure = np.float32(1) - np.float32(1e-25)
    T = np.array([[sure, 1e-25], [1e-25, sure]], dtype=np.float32)
    emission = np.array([[1, 1e-20], [1e-20, 1]], dtype=np.float32)
    params = ChainParams(np.full(2, 0.5, np.float32), Dense(T), emission)
    ids = np.array([0] * 6 + [1] * 9 + [0] * 3)
    stats = e_step(ids, bounds([18]), params)
    assert np.isfinite(stats.log_likelihood)
    for values in (stats.initial, stats.transition.pairs, stats.emission):
        assert np.isfinite(values).all()
    # 1e-20 beats 1e-25 for short visits only: the chain changes to state 1 and back
    assert_allclose(posterior(ids, bounds([18]), params)[:, 1], ids, atol=1e-4)


def test_states_that_were_given_up_send_no_message():
    """State 1 is ruled out by each word in turn; its β would grow by 1e20 a token and overflow after two."""
    T = np.array([[1, 0], [0, 1]], dtype=np.float32)
    emission = np.array([[1, 0.5, 1e-20], [0, 0.5, 1]], dtype=np.float32).T.copy()
    params = ChainParams(np.array([0.5, 0.5], np.float32), Dense(T), emission)
    ids = np.array([0, 1, 2, 2, 2, 2])
    stats = e_step(ids, bounds([6]), params)
    assert_allclose(stats.log_likelihood, np.log(0.25) + 4 * np.log(1e-20), rtol=1e-6)
    assert_allclose(stats.transition.pairs, [[5, 0], [0, 0]], rtol=1e-5)
    assert_allclose(posterior(ids, bounds([6]), params), [[1, 0]] * 6, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"ids": np.array([0, 5, 1])}, "word id 5"),
        ({"ids": np.array([0, -2, 1])}, "word id -2"),
        ({"offsets": [0, 2]}, "offsets"),
        ({"offsets": [0, 3, 2, 3]}, "offsets"),
        ({"params": random_params("dense", Z, F, V, 0)._replace(initial=np.ones(2) / 2)}, "different models"),
    ],
)
def test_bad_input_is_named(change, word):
    good = {"ids": np.array([0, 1, 2]), "offsets": [0, 3], "params": random_params("dense", Z, F, V, 0)}
    for function in (e_step, forward, posterior):
        with pytest.raises(InputError) as error:
            function(**{**good, **change})
        assert is_one_sentence(str(error.value)) and word in str(error.value)


def test_a_model_whose_rows_do_not_sum_to_one_is_refused():
    params = random_params("dense", Z, F, V, 0)
    check_params(params)
    for wrong in (
        params._replace(initial=params.initial * 2),
        params._replace(emission=params.emission / 2),
        params._replace(transition=Dense(params.transition.T * 1.1)),
    ):
        with pytest.raises(InputError, match="sum to one"):
            check_params(wrong)


def test_nothing_to_read():
    params = random_params("low rank", Z, F, V, 0)
    for offsets in ([0], [0, 0, 0]):
        stats = e_step(np.zeros(0, dtype=np.int64), offsets, params)
        assert stats.log_likelihood == 0 and stats.n_tokens == 0 and stats.emission.sum() == 0
        assert forward(np.zeros(0, dtype=np.int64), offsets, params).last.shape == (len(offsets) - 1, Z)


def test_dense_em_is_that_of_hmmlearn():
    hmmlearn = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is not installed")
    params = random_params("dense", 5, F, 8, 9)
    rng = np.random.default_rng(9)
    lengths = rng.integers(1, 30, 20)
    ids = rng.integers(0, 8, lengths.sum())
    rival = hmmlearn.CategoricalHMM(5, n_iter=1, init_params="", params="ste", n_features=8)
    rival.startprob_, rival.transmat_ = params.initial, params.transition.T
    rival.emissionprob_ = np.ascontiguousarray(params.emission.T)
    stats = e_step(ids, bounds(lengths), params)
    assert_allclose(stats.log_likelihood, rival.score(ids[:, None], lengths), rtol=1e-9)
    assert_allclose(posterior(ids, bounds(lengths), params), rival.predict_proba(ids[:, None], lengths), atol=1e-9)
    rival.fit(ids[:, None], lengths)
    new = m_step(stats, params)
    assert_allclose(new.initial, rival.startprob_, rtol=1e-7, atol=1e-10)
    assert_allclose(new.transition.T, rival.transmat_, rtol=1e-7, atol=1e-10)
    assert_allclose(new.emission.T, rival.emissionprob_, rtol=1e-7, atol=1e-10)
