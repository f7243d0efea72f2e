from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from hmm_models import OPERATORS, bounds, observations, random_params
from oracles.hmm_paths import all_paths, enumerate_paths
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.kernels.chain import sampling as chain_sampling
from undertow.kernels.chain.inference import forward
from undertow.kernels.chain.sampling import sample, sample_posterior, sampling_tables

Z, F, V = 3, 2, 4
N = 20_000


def fits(codes, probability):
    """Frequencies of codes against exact probabilities, rare ones taken together; one test in a thousand would fail."""
    expected, counts = len(codes) * np.asarray(probability), np.bincount(codes, minlength=len(probability))
    assert counts[expected == 0].sum() == 0
    often = expected >= 8
    counts, expected = (np.append(x[often], x[~often].sum()) for x in (counts, expected))
    if expected[-1] == 0:
        counts, expected = counts[:-1], expected[:-1]
    return chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 0.001


@pytest.mark.parametrize("kind", OPERATORS)
def test_texts_come_with_their_probabilities(kind):
    """States of three tokens, and words of two, against the sum over all paths."""
    params = random_params(kind, Z, F, V, 0, np.float32)
    rng, tables = np.random.default_rng(0), sampling_tables(params)
    drawn = [sample(params, 3, rng, tables=tables) for _ in range(N)]
    T = params.transition.dense().astype(float)
    paths = all_paths(Z, 3)
    exact = params.initial[paths[:, 0]] * T[paths[:, 0], paths[:, 1]] * T[paths[:, 1], paths[:, 2]]
    assert fits([s @ [Z * Z, Z, 1] for s, _ in drawn], exact)
    pairs = [forward(p, [0, 2], params).log_prob.sum() for p in all_paths(V, 2)]
    assert fits([w[:2] @ [V, 1] for _, w in drawn], np.exp(pairs))


@pytest.mark.parametrize("kind", OPERATORS)
def test_states_behind_a_text_come_with_their_posterior(kind, monkeypatch):
    monkeypatch.setattr(chain_sampling, "GROUP_BYTES", 4 * Z * 5)  # a sentence at a time
    params = random_params(kind, Z, F, V, 1, np.float32)
    ids, offsets = np.array([0, 2, -1, 1, 3, 3]), bounds([4, 0, 2])
    n = N if kind != "complement" else N // 5
    drawn = sample_posterior(ids, offsets, params, np.random.default_rng(1), n_samples=n)
    assert drawn.shape == (n, 6)
    T = params.transition.dense().astype(float)
    for a, b in ((0, 4), (4, 6)):
        oracle = enumerate_paths(params.initial, T, observations(params, ids[a:b]))
        codes = drawn[:, a:b] @ Z ** np.arange(b - a)[::-1]
        assert fits(codes, oracle.weight / oracle.weight.sum())


@pytest.mark.parametrize("kind", ["dense", "low rank"])
def test_a_text_goes_on_from_its_prefix(kind):
    params = random_params(kind, Z, F, V, 2, np.float32)
    rng, tables, prefix = np.random.default_rng(2), sampling_tables(params), np.array([1, -1, 3])
    words = [sample(params, 1, rng, prefix=prefix, tables=tables)[1][0] for _ in range(3000)]
    following = [forward(np.append(prefix, w), [0, 4], params).log_prob[-1] for w in range(V)]
    assert fits(words, np.exp(following))


def test_a_text_ends_with_its_stop_word_and_is_the_callers_luck():
    params = random_params("low rank", Z, F, V, 3, np.float32)
    states, words = sample(params, 500, np.random.default_rng(3), stop=2)
    assert words[-1] == 2 and 2 not in words[:-1] and len(states) == len(words)
    again = sample(params, 500, np.random.default_rng(3), stop=2)
    assert_array_equal(again[1], words)
    assert len(sample(params, 0, np.random.default_rng(3))[0]) == 0


def test_an_impossible_prefix_is_named():
    params = random_params("dense", Z, F, V, 4, np.float32)
    params.emission[2] = 0
    with pytest.raises(InputError, match="word 2 at token 1") as error:
        sample(params, 3, np.random.default_rng(0), prefix=np.array([0, 2]))
    assert is_one_sentence(str(error.value))
    drawn = sample_posterior(np.array([0, 2, 1]), [0, 2, 3], params, np.random.default_rng(0))
    assert_array_equal(drawn[0, :2], -1)
    assert drawn[0, 2] >= 0
