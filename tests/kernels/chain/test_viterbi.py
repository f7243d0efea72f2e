from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hmm_models import blocks_and_emission, bounds, low_rank, pair_sparse
from oracles.hmm_paths import enumerate_joint_paths, enumerate_paths
from undertow.kernels.chain.small import viterbi_logs
from undertow.kernels.chain.viterbi import WIDE, max_plus, viterbi_blocks

LENGTHS = [3, 0, 1, 4]


def text(rng, n_words):
    offsets = bounds(LENGTHS)
    return rng.integers(0, n_words, offsets[-1]), offsets


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize("n", [1, 2, 16, 17])
def test_max_plus_is_its_numpy_line(n, dtype):
    """Small whole numbers, so that many rows are equally good: the first is taken."""
    rng = np.random.default_rng(n)
    score, table = rng.integers(-2, 3, n).astype(float), rng.integers(-2, 3, (n, 37)).astype(float)
    score[: n // 3] = table[:, 5] = table[n // 2, 7:] = -np.inf
    table[-1, ::4] = 9.0  # the last row is best
    out, came = np.empty(37), np.empty(37, dtype=dtype)
    max_plus(score, table, out, came)
    total = score[:, None] + table
    assert_array_equal(out, total.max(axis=0))
    assert_array_equal(came, total.argmax(axis=0))


@pytest.mark.parametrize("K", [3, WIDE - 1, WIDE, WIDE + 3])
def test_a_dense_chain_of_few_and_of_many_states(K):
    rng = np.random.default_rng(K)
    offsets = bounds(LENGTHS)
    obs, initial, transition = (
        rng.normal(size=(offsets[-1], K)),
        rng.dirichlet(np.ones(K)),
        rng.dirichlet(np.ones(K), K),
    )
    path, log_prob = viterbi_logs(obs, offsets, initial, transition)
    for i, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        if b > a:
            score, came = np.log(initial) + obs[a], []
            for t in range(a + 1, b):
                total = score[:, None] + np.log(transition)
                came.append(total.argmax(axis=0))
                score = total.max(axis=0) + obs[t]
            best = [int(score.argmax())]
            for origins in reversed(came):
                best.append(int(origins[best[-1]]))
            assert_array_equal(path[a:b], best[::-1])
            assert_allclose(log_prob[i], score.max(), rtol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_a_block_chain_takes_the_best_of_all_paths(seed):
    """Words of block −1, which every state emits, are among them."""
    rng = np.random.default_rng(seed)
    blocks, emission, initial = blocks_and_emission(rng)
    T = pair_sparse(rng, blocks, [(0, 1), (1, 0), (1, 1), (2, 0)])
    ids, offsets = text(rng, len(blocks.word_block))
    ids[1] = len(blocks.word_block) - 1
    obs = blocks.dense_emission(emission).T[ids].astype(float)
    path = viterbi_blocks(ids, offsets, blocks, T, initial, emission)
    for a, b in zip(offsets[:-1], offsets[1:], strict=True):
        oracle = enumerate_paths(initial.astype(float), T.dense().astype(float), obs[a:b])
        assert_array_equal(path[a:b], oracle.best_path)


@pytest.mark.parametrize("seed", range(4))
def test_a_low_rank_chain_takes_the_best_path_of_states_and_features(seed):
    rng = np.random.default_rng(seed)
    blocks, emission, initial = blocks_and_emission(rng, np.array([0, 0, 1, -1]), np.array([1, 2]))
    T = low_rank(rng, blocks, F=2)
    ids, offsets = text(rng, 4)
    ids[1] = 3
    obs = blocks.dense_emission(emission).T[ids].astype(float)
    path = viterbi_blocks(ids, offsets, blocks, T, initial, emission)
    for a, b in zip(offsets[:-1], offsets[1:], strict=True):
        if b > a:
            oracle = enumerate_joint_paths(initial.astype(float), T.R.astype(float), T.ET.T.astype(float), obs[a:b])
            assert_array_equal(path[a:b], oracle.z[np.argmax(oracle.weight)])


@pytest.mark.parametrize("form", ["pairs", "low rank"])
def test_a_sentence_without_a_possible_path_has_no_states(form):
    rng = np.random.default_rng(0)
    blocks, emission, initial = blocks_and_emission(rng)
    T = pair_sparse(rng, blocks, [(0, 1)]) if form == "pairs" else low_rank(rng, blocks)
    emission[blocks.starts[2] : blocks.starts[3]] = 0  # word 2 cannot be emitted
    path = viterbi_blocks([0, 1, 0, 2, 3], np.array([0, 2, 4, 5]), blocks, T, initial, emission)
    assert_array_equal(path < 0, [False, False, True, True, False])
