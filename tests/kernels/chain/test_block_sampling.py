"""Texts drawn from chains with blocks against the probabilities of all texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from hmm_models import blocks_and_emission, low_rank, pair_sparse
from oracles.discrete_chain_dense import text_probabilities
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.kernels.chain.sampling import block_tables, sample

WORD_BLOCK, SIZES = np.array([0, 1, -1, 1, 0]), np.array([2, 3])
N = 20_000
FORMS = ["pairs", "low rank"]


def chain(form: str, seed: int) -> Any:
    """Blocks, transition, initial and emission, in which a state's words of its block sum to one."""
    rng = np.random.default_rng(seed)
    blocks, emission, initial = blocks_and_emission(rng, WORD_BLOCK, SIZES)
    T = pair_sparse(rng, blocks, [(0, 1), (1, 1)]) if form == "pairs" else low_rank(rng, blocks)
    for b in range(2):
        words = np.flatnonzero(b == WORD_BLOCK)
        at = blocks.starts[words][:, None] + np.arange(SIZES[b])
        emission[at] /= emission[at].sum(axis=0)
    emission[blocks.starts[2]] = 0
    return blocks, T, initial, emission


@pytest.mark.parametrize("form", FORMS)
def test_texts_come_with_their_probabilities(form: str) -> None:
    blocks, T, initial, emission = chain(form, 1)
    tables, rng = block_tables(blocks, T, emission, np.ones(5, dtype=bool)), np.random.default_rng(0)
    texts = np.array([sample(initial, 3, rng, tables)[1] for _ in range(N)])
    expected = N * text_probabilities(initial, T.dense(), blocks.dense_emission(emission), 3).ravel()
    counts = np.bincount(texts @ [25, 5, 1], minlength=125)
    assert counts[expected == 0].sum() == 0
    often = expected >= 8
    assert abs(counts[~often].sum() - expected[~often].sum()) < 30
    counts, expected = counts[often], expected[often]
    assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 0.001


@pytest.mark.parametrize("form", FORMS)
def test_states_words_and_the_end(form: str) -> None:
    blocks, T, initial, emission = chain(form, 2)
    tables, rng = block_tables(blocks, T, emission, np.array([True, True, True, True, False])), np.random.default_rng(0)
    states, words = sample(initial, 5000, rng, tables)
    np.testing.assert_array_equal(blocks.state_block()[states], WORD_BLOCK[words])
    assert set(words.tolist()) == {0, 1, 3}  # neither the missing word nor the one that may not be drawn
    stopped = sample(initial, 5000, rng, tables, stop=3)[1]
    assert stopped[-1] == 3 and 3 not in stopped[:-1] and len(stopped) < 5000
    none = block_tables(blocks, T, emission, np.array([True, False, True, False, True]))
    with pytest.raises(InputError) as e:
        sample(initial, 50, rng, none)
    assert is_one_sentence(str(e.value))
