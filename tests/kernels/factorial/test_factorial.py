"""Inference in the factorial HMM against all paths of the product chain."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from oracles.factorial_product import (
    enumerate_paths,
    enumerate_token_logs,
    flat_hmm,
    forward_log_likelihood,
    joint_states,
)
from undertow.kernels.chain.small import forward_backward_logs, viterbi_logs
from undertow.kernels.factorial.exact import exact_posterior
from undertow.kernels.factorial.mean_field import expect_log_norm, joint_visits
from undertow.kernels.factorial.variational import BOUNDS, WordTable, expected_by_bound, variational_posterior
from undertow.kernels.factorial.viterbi import codes_to_states, joint_viterbi, states_to_codes
from undertow.kernels.factorial.words import (
    LOG_RANGE,
    FactorialParams,
    bounded,
    emission,
    expected_words,
    log_normalizer,
)

SIZES = [((3,), 5), ((2, 2), 4), ((2, 2, 2), 6), ((3, 3), 4), ((3, 2), 4), ((1, 3), 4), ((2, 1, 3), 6)]  # layers, V
IDS = [f"{'x'.join(map(str, sizes))} {V}" for sizes, V in SIZES]
SENTENCES = [[1], [0, 2, 3], [], [2, None, 1], [None]]


def model(sizes, V, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    M, K = len(sizes), max(sizes)
    theta = scale * rng.standard_normal((V, M, K))
    initial, transition = np.zeros((M, K)), np.zeros((M, K, K))
    for m, k in enumerate(sizes):
        theta[:, m, k:] = -np.inf
        initial[m, :k], transition[m, :k, :k] = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k)
    return FactorialParams(initial, transition, bounded(theta))


def flat(sentences):
    tokens = [w for s in sentences for w in s]
    ids = np.array([0 if w is None else w for w in tokens], dtype=np.uint32)
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in sentences]))).astype(np.int64)
    return ids, offsets, np.array([w is None for w in tokens])


def some_text(V, seed=0, lengths=(1, 7, 0, 12, 1, 20), missing=0.1):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    ids = rng.integers(0, V, offsets[-1]).astype(np.uint32)
    return ids, offsets, rng.random(offsets[-1]) < missing


def exact(params, text, **options):
    e = emission(params.theta)
    return exact_posterior(*text, params, e, log_normalizer(e), **options)


def chains(params, text, **options):
    return variational_posterior(*text, params, emission(params.theta), **options)


# --- the word model -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "V"), SIZES, ids=IDS)
def test_normaliser_and_expected_words(sizes, V):
    params, M = model(sizes, V), len(sizes)
    assert params.sizes == sizes and params.n_joint == np.prod(sizes)
    e = emission(params.theta)
    log_norm = log_normalizer(e, block_numbers=7)  # several blocks of words
    B = flat_hmm(*params)[2]
    states = np.array(joint_states(sizes))
    assert len(log_norm) == len(states)
    for s, state in enumerate(states):
        p = np.exp(e.log_base) * np.prod([e.factors[:, m, state[m]] for m in range(M)], axis=0)
        assert_allclose(p / np.exp(log_norm[s]), B[s], rtol=1e-12)
    visits = np.random.default_rng(1).random(len(states))
    for m in range(M):
        wanted = np.stack([(visits[:, None] * B)[states[:, m] == k].sum(axis=0) for k in range(sizes[m])], axis=1)
        assert_allclose(expected_words(e, visits, log_norm, m, block_numbers=7), wanted, rtol=1e-12)


def test_bounded_keeps_what_fits_and_only_that():
    params = model((3, 3), 6)
    shifted = params.theta + np.random.default_rng(0).standard_normal((1, 2, 3))
    assert_allclose(bounded(shifted), params.theta, atol=1e-12)  # a shift of a state's scores is no difference
    wild = params.theta.copy()
    wild[0, 0, 0] = -1e4
    assert_allclose(emission(bounded(wild)).factors.min(), np.exp(-LOG_RANGE / 2), rtol=1e-9)


def test_bounded_leaves_out_what_a_smaller_layer_lacks():
    params = model((3, 2), 6)
    alone = params.theta[:, 1:, :2]
    shifted = params.theta + np.random.default_rng(0).standard_normal((1, 2, 3))
    again = bounded(shifted)
    assert (again[:, 1, 2] == -np.inf).all() and (emission(again).factors[:, 1, 2] == 0).all()
    assert_allclose(again[:, 1, :2], alone[:, 0], atol=1e-12)
    assert_allclose(again[:, 1, :2].mean(axis=0), 0, atol=1e-12)


# --- exact inference ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sizes", "V"), SIZES, ids=IDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("memory", [1 << 27, 1], ids=["whole", "in segments"])
def test_exact_posterior_against_all_paths(sizes, V, dtype, memory):
    params = model(sizes, V)
    text = flat(SENTENCES)
    found = exact(params, text, dtype=dtype, memory=memory)
    tol = 2e-5 if dtype == np.float32 else 1e-11
    totals = {"visits": 0.0, "first": 0.0, "pairs": 0.0}
    for i, words in enumerate(SENTENCES):
        if not words:
            assert found.log_likelihood[i] == 0
            continue
        truth = enumerate_paths(words, *params)
        assert_allclose(found.log_likelihood[i], truth["log_likelihood"], rtol=tol, atol=tol)
        here = slice(text[1][i], text[1][i + 1])
        assert_allclose(found.gamma[here], truth["gamma"], rtol=0, atol=tol)
        assert_allclose(found.token_logs[here], enumerate_token_logs(words, *params), rtol=tol, atol=tol)
        totals = {name: total + truth[name] for name, total in totals.items()}
    for name, total in totals.items():
        assert_allclose(getattr(found, name), total, rtol=0, atol=10 * tol, err_msg=name)


@pytest.mark.parametrize("sizes", [(3, 3), (4, 2), (2, 5, 3)])
@pytest.mark.parametrize("memory", [1 << 27, 1], ids=["whole", "in segments"])
def test_long_sentences_and_many_of_them(sizes, memory):
    params = model(sizes, 8)
    ids, offsets, missing = some_text(8, lengths=[3, 40, 1, 0, 25, *range(1, 20)])  # more than there are lanes
    found = exact(params, (ids, offsets, missing), memory=memory)
    for i, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        words = [None if m else int(w) for w, m in zip(ids[a:b], missing[a:b], strict=True)]
        assert_allclose(found.log_likelihood[i], forward_log_likelihood(words, *params), rtol=1e-5, atol=1e-5)
        assert_allclose(found.token_logs[a:b].sum(), found.log_likelihood[i], rtol=1e-9, atol=1e-9)
    assert_allclose(found.gamma.sum(axis=2), 1, rtol=1e-4)
    assert_allclose(found.visits.sum(), (~missing).sum(), rtol=1e-5)
    assert_allclose(found.first.sum(axis=1), (np.diff(offsets) > 0).sum(), rtol=1e-5)
    steps = np.maximum(np.diff(offsets) - 1, 0).sum()
    assert_allclose(found.pairs.sum(axis=(1, 2)), steps, rtol=1e-5)
    only = exact(params, (ids, offsets, missing), backward=False)
    assert_array_equal(only.log_likelihood, found.log_likelihood)


def test_what_float32_cannot_hold_is_done_in_float64():
    """A chain that must go one way and words that say the other: the probabilities of steps leave float32's range."""
    theta = np.zeros((3, 2, 2))
    theta[0, :, 0], theta[1, :, 1] = 39.0, 39.0
    sure = np.array([[1.0, 1e-30], [1e-30, 1.0]])
    params = FactorialParams(np.array([[1.0, 1e-30]] * 2), np.array([sure] * 2), bounded(theta))
    text = flat([[0, 1, 0, 1, 1, 0]])
    found = exact(params, text)
    assert_allclose(found.log_likelihood[0], enumerate_paths([0, 1, 0, 1, 1, 0], *params)["log_likelihood"], rtol=1e-6)
    assert np.isfinite(found.gamma).all() and np.isfinite(found.pairs).all()


def test_backward_messages_beyond_float32_are_done_in_float64():
    """What follows may be sure of states that what came before all but rules out: β alone leaves float32's range."""
    M, K, V = 2, 3, 6
    rng = np.random.default_rng(0)
    for _ in range(20):
        transition = np.full((M, K, K), 1e-8)
        transition[np.arange(M)[:, None], np.arange(K), rng.integers(K, size=(M, K))] = 1.0
        transition /= transition.sum(axis=-1, keepdims=True)
        theta = bounded(rng.choice([-30.0, 0.0, 10.0], size=(V, M, K)))
        params = FactorialParams(np.array([[1.0, 1e-8, 1e-8]] * M) / (1 + 2e-8), transition, theta)
        text = rng.integers(0, V, 200), np.array([0, 50, 120, 200]), np.zeros(200, dtype=bool)
        found, truth = exact(params, text), exact(params, text, dtype=np.float64)
        for name in ("gamma", "visits", "first", "pairs"):
            assert_allclose(getattr(found, name), getattr(truth, name), rtol=0, atol=1e-3, err_msg=name)


def test_one_layer_is_a_hidden_markov_model():
    params = model((4,), 9)
    ids, offsets, missing = some_text(9)
    scores = np.log(flat_hmm(*params)[2].T[ids])
    scores[missing] = 0
    truth = forward_backward_logs(scores, offsets, params.initial[0], params.transition[0])
    found = exact(params, (ids, offsets, missing), dtype=np.float64)
    for bound in ("tilted", "mean_field"):  # both are exact for one layer
        by_bound = chains(params, (ids, offsets, missing), bound=bound, max_sweeps=1)
        assert_allclose(by_bound.bound, truth.log_likelihood, rtol=1e-5, atol=1e-5)
        assert_allclose(by_bound.gamma[0], truth.gamma, rtol=0, atol=1e-5)
    assert_allclose(found.log_likelihood, truth.log_likelihood, rtol=1e-11, atol=1e-11)
    assert_allclose(found.gamma[:, 0], truth.gamma, rtol=0, atol=1e-11)
    assert_allclose(found.pairs[0], truth.pairs, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("sizes", "place"), [((1, 3), 0), ((3, 1), 1), ((2, 1, 3), 1)])
@pytest.mark.parametrize("how", ["exact", *BOUNDS])
def test_a_layer_of_one_state_says_nothing(how, sizes, place):
    """It gives each word a weight, in all joint states alike: without it, another layer can have that weight."""
    params, text = model(sizes, 9), some_text(9)
    others = [m for m in range(len(sizes)) if m != place]
    theta = params.theta[:, others].copy()
    theta[:, 0] += params.theta[:, place, :1]
    without = FactorialParams(params.initial[others], params.transition[others], theta)
    assert without.sizes == tuple(sizes[m] for m in others)
    if how == "exact":
        a, b = exact(params, text), exact(without, text)
        assert_allclose(a.log_likelihood, b.log_likelihood, rtol=1e-5)
        assert_allclose(a.visits, b.visits, rtol=0, atol=1e-4)
        assert_allclose(a.gamma[:, others], b.gamma, rtol=0, atol=1e-5)
        assert_allclose(a.pairs[others], b.pairs, rtol=0, atol=1e-4)
        assert_allclose(a.gamma[:, place, 0], 1, rtol=1e-5)
    else:
        a, b = (chains(p, text, bound=how, max_sweeps=300, tol=0.0) for p in (params, without))
        assert_allclose(a.bound, b.bound, rtol=0, atol=1e-4)
        assert_allclose(a.gamma[others], b.gamma, rtol=0, atol=5e-3)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 1, 2)])
@pytest.mark.parametrize("how", ["exact", *BOUNDS])
def test_permuted_layers_permute_the_results(how, sizes):
    params = model(sizes, 7)
    order = [2, 0, 1]
    other = FactorialParams(params.initial[order], params.transition[order], params.theta[:, order])
    assert other.sizes == tuple(sizes[m] for m in order)
    text = some_text(7)
    if how == "exact":
        a, b = exact(params, text), exact(other, text)
        assert_allclose(b.log_likelihood, a.log_likelihood, rtol=1e-5, atol=1e-5)
        assert_allclose(b.gamma, a.gamma[:, order], rtol=0, atol=1e-5)
        assert_allclose(b.pairs, a.pairs[order], rtol=0, atol=1e-4)
    else:  # layers take their turns in another order; where they meet in the end is the same
        a, b = (chains(p, text, bound=how, max_sweeps=300, tol=0.0) for p in (params, other))
        assert_allclose(b.bound, a.bound, rtol=0, atol=1e-4)
        assert_allclose(b.gamma, a.gamma[order], rtol=0, atol=5e-3)


@pytest.mark.parametrize(("sizes", "V"), SIZES, ids=IDS)
def test_joint_viterbi_against_all_paths(sizes, V):
    params = model(sizes, V, scale=1.5)
    ids, offsets, missing = flat(SENTENCES)
    e = emission(params.theta)
    codes, log_prob = joint_viterbi(ids, offsets, missing, params, e, log_normalizer(e))
    states = codes_to_states(codes, sizes)
    assert_array_equal(states_to_codes(states, sizes), codes)
    for i, words in enumerate(SENTENCES):
        if words:
            truth = enumerate_paths(words, *params)
            assert_allclose(log_prob[i], truth["best_log_probability"], rtol=1e-10)
            assert_array_equal(states[offsets[i] : offsets[i + 1]], truth["best_path"])


# layers wide enough for loops on vectors, and not
@pytest.mark.parametrize("sizes", [(17, 17), (4, 4, 4), (3, 3), (17, 3), (3, 17), (2, 18, 5)])
def test_joint_viterbi_is_that_of_the_product_chain(sizes):
    params = model(sizes, 5, scale=1.5)
    ids, offsets, missing = flat(SENTENCES)
    e = emission(params.theta)
    log_norm = log_normalizer(e)
    codes, log_prob = joint_viterbi(ids, offsets, missing, params, e, log_norm)
    parts = codes_to_states(np.arange(params.n_joint), sizes)
    assert parts.tolist() == [list(s) for s in joint_states(sizes)]
    layers = np.arange(len(sizes))
    obs = np.stack([np.log(e.factors[w][layers, parts]).sum(axis=1) - log_norm + e.log_base[w] for w in ids])
    obs[missing] = 0.0
    initials, transitions, _ = zip(*map(params.layer, layers), strict=True)
    initial, transition = functools.reduce(np.kron, initials), functools.reduce(np.kron, transitions)
    path, total = viterbi_logs(obs, offsets, initial, transition)
    assert_array_equal(codes, path)
    assert_allclose(log_prob, total, rtol=1e-10)


# --- variational inference ------------------------------------------------------------------------------


def bound_by_definition(params, found, text, bound):
    """Σ E log p(s) + E θ_y − (bound on E log Z) + entropy, each term written out; one sentence."""
    ids, _, missing = text
    M = params.n_layers
    total = 0.0
    theta = np.where(params.theta > -np.inf, params.theta, 0.0)  # of what is missing gamma is 0
    for m in range(M):
        initial, transition, _ = params.layer(m)
        scores = found.scores[m, :, : len(initial)]
        again = forward_backward_logs(scores, np.array([0, len(ids)]), initial, transition)
        total += again.log_likelihood[0] - (again.gamma * scores).sum()  # E log p(s^m) + entropy of the chain
        total += sum((found.gamma[m, t] * theta[w, m]).sum() for t, w in enumerate(ids) if not missing[t])
    assert (found.gamma.transpose(1, 0, 2)[:, params.theta[0] == -np.inf] == 0).all()
    log_Z = [logsumexp(sum(params.theta[:, m, s[m]] for m in range(M))) for s in joint_states(params.sizes)]
    for t in np.flatnonzero(~missing):
        gamma = found.gamma[:, t]
        a = np.zeros_like(gamma)
        if bound == "tilted":
            a = found.scores[:, t] - theta[ids[t]]
        if bound == "mean_field":
            joint = [np.prod([gamma[m, s[m]] for m in range(M)]) for s in joint_states(params.sizes)]
            total -= np.dot(joint, log_Z)
        else:
            inside = np.log(np.prod([np.exp(params.theta[:, m] + a[m]) @ gamma[m] for m in range(M)], axis=0).sum())
            total -= -(gamma * a).sum() + inside
    return total


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(
    ("seed", "sizes"), [(0, (2, 2, 2)), (1, (2, 2, 2)), (2, (2, 2, 2)), (3, (3, 2)), (4, (2, 4, 1))]
)
def test_the_bound_is_what_it_is_defined_to_be(bound, seed, sizes):
    params = model(sizes, 6, seed)
    text = some_text(6, seed, lengths=[9], missing=0.2)
    found = chains(params, text, bound=bound, max_sweeps=2, tol=0.0)
    assert_allclose(found.bound[0], bound_by_definition(params, found, text, bound), rtol=1e-5)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize(
    ("seed", "sizes"), list(enumerate([(2, 2), (3, 3, 3), (4, 4), (2, 2, 2), (3, 3), (5, 2), (2, 4, 3), (1, 4)]))
)
def test_the_bound_rises_to_at_most_the_truth(bound, seed, sizes):
    params = model(sizes, 12, seed, scale=2.0)
    text = some_text(12, seed)
    truth = exact(params, text, dtype=np.float64).log_likelihood
    before = np.full(len(truth), -np.inf)
    for sweeps in range(1, 9):
        now = chains(params, text, bound=bound, max_sweeps=sweeps, tol=-1.0).bound
        assert (now >= before - 1e-5).all()
        before = now
    assert (before <= truth + 1e-5).all()


def test_tilted_is_tighter_than_jensen_and_mean_field_tighter_still():
    params = model((3, 3, 3), 40)
    text = some_text(40)
    jensen, tilted, mean_field = (
        chains(params, text, bound=b, max_sweeps=30).bound.sum() for b in ("jensen", "tilted", "mean_field")
    )
    assert jensen < tilted < mean_field


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_sentence_does_not_depend_on_its_company(bound):
    params = model((3, 3), 30)
    ids, offsets, missing = some_text(30)
    together = chains(params, (ids, offsets, missing), bound=bound)
    assert len(set(together.n_sweeps.tolist())) > 1  # each stops by itself
    for i, (a, b) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        alone = chains(params, (ids[a:b], np.array([0, b - a]), missing[a:b]), bound=bound)
        assert_allclose(alone.bound[0], together.bound[i], rtol=1e-9, atol=1e-9)
        assert_allclose(alone.gamma, together.gamma[:, a:b], rtol=0, atol=1e-9)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 2, 4)])
@pytest.mark.parametrize("bound", ["tilted", "jensen"])
def test_what_the_bound_expects_is_its_gradient(bound, sizes):
    """Σ_t log Σ_Y Π_m Σ_k w e^θ at fixed weights, by finite differences in θ; in several tiles of words."""
    params = model(sizes, 600, scale=0.7)
    ids, offsets, missing = some_text(600, lengths=[9, 1, 30], missing=0.1)
    found = chains(params, (ids, offsets, missing), bound=bound)
    seen = ~missing
    table = WordTable.of(emission(params.theta))
    expected = expected_by_bound(found, seen, table, 600)
    assert_allclose(expected.sum(axis=(0, 2)), seen.sum(), rtol=1e-4)
    theta = np.where(params.theta > -np.inf, params.theta, 0.0)
    a = np.where(seen[None, :, None], found.scores - theta[ids].transpose(1, 0, 2), 0)
    weights = found.gamma * np.exp(a if bound == "tilted" else 0 * a)

    def log_sums(theta):
        inside = np.prod(np.einsum("mtk,ymk->mty", weights, np.exp(theta)), axis=0)
        return np.log(inside.sum(axis=1))[seen].sum()

    for place in [(int(ids[0]), 0, 1), (17, 2, 0), (599, 1, 1), (550, 1, 0)]:
        step = np.zeros_like(params.theta)
        step[place] = 1e-4
        slope = (log_sums(params.theta + step) - log_sums(params.theta - step)) / 2e-4
        assert_allclose(expected[place], slope, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("sizes", [(3,), (3, 3), (4, 4, 4), (2, 2, 2, 2), (4, 2), (2, 5), (3, 1, 4), (2, 3, 4, 5)])
def test_mean_field_tables(sizes):
    rng = np.random.default_rng(0)
    M, N = len(sizes), 70  # more tokens than lanes
    gamma = np.zeros((N, M, max(sizes)), dtype=np.float32)
    for m, k in enumerate(sizes):
        gamma[:, m, :k] = rng.dirichlet(np.ones(k), N)
    states = np.array(joint_states(sizes))
    table = rng.standard_normal(len(states)).astype(np.float32)
    joint = np.prod([gamma[:, m, states[:, m]] for m in range(M)], axis=0)
    assert_allclose(joint_visits(gamma, sizes), joint.sum(axis=0), rtol=1e-4)
    for layer in range(M):
        out = np.empty((N, sizes[layer]))
        expect_log_norm(gamma, np.array(sizes), table, layer, out)
        others = np.prod([gamma[:, m, states[:, m]] for m in range(M) if m != layer] or [np.ones(joint.shape)], axis=0)
        wanted = np.stack([(others * table)[:, states[:, layer] == k].sum(axis=1) for k in range(sizes[layer])], axis=1)
        assert_allclose(out, wanted, rtol=0, atol=1e-5)
