from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from hmm_models import OPERATORS, random_params
from oracles.hmm_paths import all_paths
from undertow.kernels.chain.inference import forward
from undertow.kernels.chain.sampling import chain_tables, sample

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
    rng, tables = np.random.default_rng(0), chain_tables(params)
    drawn = [sample(params.initial, 3, rng, tables) for _ in range(N)]
    T = params.transition.dense().astype(float)
    paths = all_paths(Z, 3)
    exact = params.initial[paths[:, 0]] * T[paths[:, 0], paths[:, 1]] * T[paths[:, 1], paths[:, 2]]
    assert fits([s @ [Z * Z, Z, 1] for s, _ in drawn], exact)
    pairs = [forward(p, [0, 2], params).log_prob.sum() for p in all_paths(V, 2)]
    assert fits([w[:2] @ [V, 1] for _, w in drawn], np.exp(pairs))


def test_a_text_ends_with_its_stop_word_and_is_the_callers_luck():
    params = random_params("low rank", Z, F, V, 3, np.float32)
    tables = chain_tables(params)
    states, words = sample(params.initial, 500, np.random.default_rng(3), tables, stop=2)
    assert words[-1] == 2 and 2 not in words[:-1] and len(states) == len(words)
    again = sample(params.initial, 500, np.random.default_rng(3), tables, stop=2)
    assert_array_equal(again[1], words)
    assert len(sample(params.initial, 0, np.random.default_rng(3), tables)[0]) == 0
