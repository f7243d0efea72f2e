from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hmm_models import OPERATORS, bounds, observations, random_params
from oracles.hmm_paths import enumerate_joint_paths, enumerate_paths
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.kernels.chain import decoding as chain_decoding
from undertow.kernels.chain.band import BandLowRank, band_to_dense, dense_to_band
from undertow.kernels.chain.decoding import posterior_decode, viterbi
from undertow.kernels.chain.inference import posterior
from undertow.kernels.chain.operators import Dense, LowRank

Z, F, V = 3, 2, 5


@pytest.fixture(params=[False, True], ids=["whole", "chunks"])
def chunks(request, monkeypatch):
    """Back pointers of two tokens at a time, so that everything is computed twice."""
    if request.param:
        monkeypatch.setattr(chain_decoding, "BACK_BYTES", 4 * (Z + F) * 2)
        monkeypatch.setattr(chain_decoding, "GROUP_BYTES", 8 * Z * 7)


def text(seed, n_sentences=8, longest=7):
    rng = np.random.default_rng(seed)
    offsets = bounds(rng.integers(0, longest, n_sentences))
    return rng.integers(-1, V, offsets[-1]), offsets


@pytest.mark.parametrize("seed", range(4))
def test_dense_viterbi_finds_the_best_of_all_paths(seed, chunks):
    params, (ids, offsets) = random_params("dense", Z, F, V, seed), text(seed)
    decoded = viterbi(ids, offsets, params)
    for i, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        oracle = enumerate_paths(params.initial, params.transition.T, observations(params, ids[a:b]))
        assert_array_equal(decoded.states[a:b], oracle.best_path)
        assert_allclose(decoded.log_prob[i], oracle.best_log_prob, rtol=1e-10, atol=1e-12)
    assert (decoded.features == -1).all()


@pytest.mark.parametrize("seed", range(4))
def test_low_rank_viterbi_finds_the_best_joint_path(seed, chunks):
    params, (ids, offsets) = random_params("low rank", Z, F, V, seed), text(seed, longest=5)
    decoded = viterbi(ids, offsets, params)
    for i, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        if b == a:
            continue
        obs = observations(params, ids[a:b])
        oracle = enumerate_joint_paths(params.initial, params.transition.R, params.transition.E, obs)
        best = int(np.argmax(oracle.weight))
        assert_allclose(decoded.log_prob[i], np.log(oracle.weight[best]), rtol=1e-10)
        assert_array_equal(decoded.states[a:b], oracle.z[best])
        assert_array_equal(decoded.features[a + 1 : b], oracle.f[best])
        assert decoded.features[a] == -1


@pytest.mark.parametrize("seed", range(3))
def test_a_band_is_one_more_way(seed, chunks):
    """The joint path of a band chain: the band written as features of its own, one a pair."""
    params, (ids, offsets) = random_params("band", Z, F, V, seed), text(seed)
    operator = params.transition
    pairs = band_to_dense(operator.band)
    R = np.concatenate([operator.R, *(np.diag(pairs[:, j]) for j in range(Z))], axis=1)
    E = np.concatenate([operator.E, *(np.eye(Z)[[j] * Z] for j in range(Z))], axis=0)
    by_features = viterbi(ids, offsets, params._replace(transition=LowRank(R, E)))
    decoded = viterbi(ids, offsets, params)
    assert_allclose(decoded.log_prob, by_features.log_prob, rtol=1e-10)
    assert_array_equal(decoded.states, by_features.states)
    assert (decoded.features == -1).any() and (decoded.features < F).all()
    full = BandLowRank(0 * operator.R, operator.E, dense_to_band(operator.dense(), Z))
    dense = viterbi(ids, offsets, params._replace(transition=Dense(operator.dense())))
    assert_array_equal(viterbi(ids, offsets, params._replace(transition=full)).states, dense.states)


@pytest.mark.parametrize("kind", OPERATORS)
def test_posterior_decoding_takes_the_largest_posterior(kind, chunks):
    params, (ids, offsets) = random_params(kind, Z, F, V, 5), text(5)
    assert_array_equal(posterior_decode(ids, offsets, params), posterior(ids, offsets, params).argmax(axis=1))


def test_impossible_sentences_threads_and_marks():
    params, (ids, offsets) = random_params("low rank", Z, F, V, 6, np.float32), text(6, 30)
    params.emission[1] = 0
    one, three = (viterbi(ids, offsets, params, n_threads=n) for n in (1, 3))
    for a, b in zip(one, three, strict=True):
        assert_array_equal(a, b)
    bad = np.array([1 in ids[a:b] for a, b in zip(offsets[:-1], offsets[1:], strict=True)])
    assert bad.any() and not bad.all()
    assert_array_equal(np.isinf(one.log_prob), bad)
    of_bad = np.repeat(bad, np.diff(offsets))
    assert_array_equal(one.states == -1, of_bad)
    assert_array_equal(posterior_decode(ids, offsets, params) == -1, of_bad)
    missing = ids < 0
    marked = viterbi(np.where(missing, 3, ids).astype(np.uint32), offsets, params, missing=missing)
    assert_array_equal(marked.states, one.states)
    assert_array_equal(
        posterior_decode(np.where(missing, 3, ids), offsets, params, missing=missing),
        posterior_decode(ids, offsets, params),
    )


def test_the_complement_form_has_no_viterbi():
    params, (ids, offsets) = random_params("complement", Z, F, V, 6), text(6)
    with pytest.raises(InputError) as error:
        viterbi(ids, offsets, params)
    assert is_one_sentence(str(error.value)) and "BandComplement" in str(error.value)
