from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from oracles.hmm_paths import enumerate_paths
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.kernels.chain.inference import forward_backward_logs, viterbi_logs


def random_chain(rng, K, zeros=0.0):
    """Initial and transition probabilities, some of them zero (never a whole row)."""
    initial, transition = rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(K), size=K)
    transition[(rng.random((K, K)) < zeros) & ~np.eye(K, dtype=bool)] = 0
    return initial, transition / transition.sum(axis=1, keepdims=True)


def bounds(lengths):
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def total_by_enumeration(log_obs, offsets, initial, transition):
    shifted = [log_obs[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    return [enumerate_paths(initial, transition, np.exp(s)) for s in shifted]


@settings(max_examples=60, derandomize=True)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    K=st.integers(1, 5),
    seed=st.integers(0, 1000),
    zeros=st.sampled_from([0.0, 0.5]),
    shift=st.sampled_from([0.0, -2000.0, 5000.0]),
)
def test_equals_the_sum_over_all_paths(lengths, K, seed, zeros, shift):
    rng = np.random.default_rng(seed)
    initial, transition = random_chain(rng, K, zeros)
    offsets = bounds(lengths)
    log_obs = rng.normal(size=(offsets[-1], K)) * 3
    log_obs[rng.random(log_obs.shape) < zeros / 3] = -np.inf
    oracle = total_by_enumeration(log_obs, offsets, initial, transition)
    result = forward_backward_logs(log_obs + shift, offsets, initial, transition)
    expected = np.array([o.log_likelihood for o in oracle]) + shift * np.diff(offsets)
    assert_allclose(result.log_likelihood, expected, rtol=1e-12, atol=1e-9)
    possible = [o for o in oracle if o.log_likelihood > -np.inf]
    assert_allclose(result.gamma, np.concatenate([o.gamma for o in oracle]), rtol=1e-9, atol=1e-12)
    starts = sum((o.gamma[0] for o in possible if len(o.gamma)), np.zeros(K))
    assert_allclose(result.first, starts, rtol=1e-9, atol=1e-12)
    pairs = sum((o.pairs.sum(axis=0) for o in possible), np.zeros((K, K)))
    assert_allclose(result.pairs, pairs, rtol=1e-9, atol=1e-12)
    paths, log_prob = viterbi_logs(log_obs + shift, offsets, initial, transition)
    assert_allclose(
        log_prob, np.array([o.best_log_prob for o in oracle]) + shift * np.diff(offsets), rtol=1e-12, atol=1e-9
    )
    for o, a, b in zip(oracle, offsets[:-1], offsets[1:], strict=True):
        assert_array_equal(paths[a:b], o.best_path if o.best_log_prob > -np.inf else np.full(b - a, -1))


def test_an_impossible_token_spoils_its_sentence_only():
    transition = np.array([[0.0, 1.0], [1.0, 0.0]])
    log_obs = np.log(np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 1.0], [1.0, 1.0]]))
    log_obs[1, 1] = -np.inf  # from state 0 only state 1 can follow
    result = forward_backward_logs(log_obs, [0, 2, 4], [1.0, 0.0], transition)
    assert_allclose(result.log_likelihood, [-np.inf, np.log(0.5)], rtol=1e-12)
    assert_array_equal(result.gamma[:2], 0)
    assert_allclose(result.pairs, [[0, 1], [0, 0]], rtol=1e-12)
    assert_allclose(result.first, [1, 0], rtol=1e-12)
    paths, log_prob = viterbi_logs(log_obs, [0, 2, 4], [1.0, 0.0], transition)
    assert_array_equal(paths, [-1, -1, 0, 1])
    assert_allclose(log_prob, [-np.inf, np.log(0.5)], rtol=1e-12)


def test_messages_that_all_but_vanish_are_kept_in_logs():
    """Forward and backward disagree by 1400 nats: each message is fine, their products have lost their digits."""
    log_obs = np.array([[0.0, 0.0], [0.0, -690.0], [-700.0, 0.0]])
    result = forward_backward_logs(log_obs, [0, 3], [0.5, 0.5], 1e-18 * np.eye(2))
    # path 111 weighs e^-690, path 000 e^-700
    assert_allclose(result.log_likelihood, np.log(0.5) - 690 + 2 * np.log(1e-18), rtol=1e-5)
    assert_allclose(result.gamma[:, 1], 1.0, rtol=1e-3)
    assert_allclose(result.pairs, [[0, 0], [0, 2]], rtol=1e-3, atol=1e-3)


def test_the_number_of_threads_changes_no_bit():
    rng = np.random.default_rng(0)
    initial, transition = random_chain(rng, 7)
    offsets = bounds(rng.integers(0, 20, 60))
    log_obs = rng.normal(size=(offsets[-1], 7))
    one, two = (forward_backward_logs(log_obs, offsets, initial, transition, n, chunk_tokens=50) for n in (1, 3))
    for a, b in zip(one, two, strict=True):
        assert_array_equal(a, b)
    assert_allclose(one.pairs.sum(), offsets[-1] - np.count_nonzero(np.diff(offsets)), rtol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"log_obs": np.zeros((3, 3))},
        {"offsets": [0, 2]},
        {"offsets": [0, 4, 2, 3]},
        {"initial": [0.5, np.nan]},
        {"transition": -np.eye(2)},
        {"log_obs": np.array([[0.0, 0.0], [0.0, np.nan], [0.0, 0.0]])},
        {"log_obs": np.array([[0.0, 0.0], [0.0, np.inf], [0.0, 0.0]])},
    ],
    ids=["states", "end", "falling", "nan", "negative", "nan score", "infinite score"],
)
def test_bad_input_is_named(change):
    good = {"log_obs": np.zeros((3, 2)), "offsets": [0, 3], "initial": [0.5, 0.5], "transition": np.eye(2)}
    for function in (forward_backward_logs, viterbi_logs):
        with pytest.raises(InputError) as error:
            function(**{**good, **change})
        assert is_one_sentence(str(error.value))
        if "score" in str(error.value) and "shapes" not in str(error.value):
            assert "token 1" in str(error.value)
