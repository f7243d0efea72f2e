from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from oracles.gaussian_chain import Steady, dense_kalman, joint_gaussian, loop_smoother, random_model, steady_state
from undertow.errors import InputError
from undertow.kernels.gaussian import recursions as batch
from undertow.kernels.gaussian.gains import cover, gain_at_missing
from undertow.kernels.gaussian.recursions import Tiles
from undertow.kernels.gaussian.smoother import (
    exact_gains,
    filter_only,
    posterior_covariances,
    smooth,
    smooth_exact,
    whiten_and_normalize,
)
from undertow.kernels.gaussian.stream import ChainStream
from undertow.models.lds import params as lds_params
from undertow.models.lds.params import LDSParams

V, h = 9, 4
TOKEN = st.tuples(st.integers(0, V - 1), st.booleans())  # (word, missing)
SENTENCES = st.lists(
    st.lists(TOKEN, max_size=9) | st.lists(st.tuples(TOKEN.map(lambda x: x[0]), st.just(False)), max_size=9), max_size=6
)
SEEDS = st.integers(0, 3)


@cache
def model_of(seed, radius=0.9):
    model = random_model(h, V, seed, radius)
    return model, steady_state(model)


@cache
def gains_of(seed, tol=1e-9):
    model, _ = model_of(seed)
    return exact_gains(model.A, model.Q, model.N, model.M, model.Pi, tol, 64)


def flat(sentences):
    ids = np.array([w for s in sentences for w, _ in s], dtype=np.uint32)
    missing = np.array([x for s in sentences for _, x in s], dtype=bool)
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in sentences]))).astype(np.int64)
    return ids, offsets, missing


def close(actual, expected, rtol, among=None):
    """Equal within rtol of the largest entry, of `among` if given: a mean near zero has no digits of its own."""
    assert actual.shape == np.shape(expected)
    largest = np.abs(expected if among is None else among).max(initial=0.0)
    assert_allclose(actual, expected, rtol=rtol, atol=rtol * largest)


def by_sentence(oracle, ids, offsets, missing):
    parts = [oracle(ids[a:b], missing[a:b])[:2] for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    return [np.concatenate([np.zeros((0, h)), *(p[i] for p in parts)]) for i in (0, 1)]


def random_text(rng, lengths, share_missing):
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return rng.integers(0, V, offsets[-1]).astype(np.uint32), offsets, rng.random(offsets[-1]) < share_missing


SMALL_CHUNKS = Tiles(chunk_tokens=7)
# cut everything into pieces of at most three tokens, so that a state has to pass through many of them
TINY_PIECES = Tiles(chunk_tokens=7, shortest_piece=3, row_cost=10**9)


def check_steady(sentences, seed, tiles=SMALL_CHUNKS):
    _, steady = model_of(seed)
    ids, offsets, missing = flat(sentences)
    filtered, smoothed = by_sentence(lambda s, x: loop_smoother(s, x, steady), ids, offsets, missing)
    ids[missing] = 4_000_000_000  # what stands at a missing token is not looked at
    A, H, J, J_missing, table = steady
    m, s = smooth(ids, offsets, missing, table, A, H, J, J_missing, tiles=tiles)
    assert m.dtype == s.dtype == np.float32
    close(m, filtered, rtol=2e-6)
    close(s, smoothed, rtol=2e-6)
    whole = tiles._replace(chunk_tokens=10**6)
    close(filter_only(ids, offsets, missing, table, A, H, tiles=whole), filtered, rtol=2e-6)


@settings(max_examples=60)
@given(SENTENCES, SEEDS)
def test_steady_smoother_equals_the_loop(sentences, seed) -> None:
    check_steady(sentences, seed)


@settings(max_examples=60)
@given(st.lists(st.lists(TOKEN, max_size=25), max_size=5), SEEDS)
def test_steady_smoother_in_pieces_equals_the_loop(sentences, seed) -> None:
    check_steady(sentences, seed, TINY_PIECES)


def check_exact(sentences, seed, truth, tiles=SMALL_CHUNKS):
    model, _ = model_of(seed)
    ids, offsets, missing = flat(sentences)
    filtered, smoothed = by_sentence(lambda s, x: truth(s, x, model), ids, offsets, missing)
    ids[missing] = 4_000_000_000
    m, s = smooth_exact(ids, offsets, missing, model.statistics, gains_of(seed), tiles=tiles)
    assert m.dtype == s.dtype == np.float32
    close(m, filtered, rtol=5e-6)
    close(s, smoothed, rtol=5e-6)


@settings(max_examples=50)
@given(SENTENCES, SEEDS)
def test_exact_smoother_equals_the_joint_gaussian(sentences, seed) -> None:
    check_exact(sentences, seed, joint_gaussian)


@settings(max_examples=30)
@given(st.lists(st.lists(TOKEN, max_size=25), max_size=4), SEEDS)
def test_exact_smoother_in_pieces_equals_the_dense_kalman_smoother(sentences, seed) -> None:
    check_exact(sentences, seed, dense_kalman, TINY_PIECES)


@settings(max_examples=40)
@given(st.lists(TOKEN, max_size=7), SEEDS)
def test_covariances_and_oracles_agree(sentence, seed) -> None:
    model, _ = model_of(seed)
    ids, _, missing = flat([sentence])
    joint, kalman = joint_gaussian(ids, missing, model), dense_kalman(ids, missing, model)
    for a, b in zip(joint, kalman, strict=True):
        close(a, b, rtol=1e-9)
    ours = posterior_covariances(missing, model.A, model.Q, model.N, model.M, model.Pi)
    close(ours[0], joint[2], rtol=1e-9)
    close(ours[1], joint[3], rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_exact_gains_become_the_steady_ones(seed) -> None:
    model, steady = model_of(seed)
    gains = gains_of(seed)
    K, J = gains.gain[gains.edge[gains.steady, 0]], gains.backward[gains.edge[gains.steady, 0]]
    close(model.statistics @ K.T, steady.table, rtol=1e-5)
    close(J, steady.J, rtol=1e-5)
    assert gains.gap <= gains.tol
    path = [0]
    while path[-1] != gains.steady:
        path.append(int(gains.target[gains.edge[path[-1], 0]]))
    off = [np.linalg.norm(gains.gain[gains.edge[n, 0]] - K) for n in path]
    assert off[0] > 1e-2 * np.linalg.norm(K)  # the first step is far from steady, or nothing was tested
    assert off[-2] < 1e-6 * off[0]
    rng = np.random.default_rng(seed)
    ids, offsets, missing = random_text(rng, [200], 0.0)
    exact = smooth_exact(ids, offsets, None, model.statistics, gains)
    same = smooth(ids, offsets, missing, steady.table, steady.A, steady.H, steady.J, steady.J_missing)
    for a, b in zip(exact, same, strict=True):
        assert np.abs(a[0] - b[0]).max() > 1e-3
        close(a[60:], b[60:], rtol=5e-6)


@pytest.mark.parametrize("radius", [0.6, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_an_isolated_missing_token_and_what_is_before_it_are_exact(seed, radius) -> None:
    """Behind it the filter goes on with the steady gains for a while, which is the approximation."""
    model, steady = model_of(seed, radius)
    A, H, J, J_missing, table = steady
    ids, offsets, missing = random_text(np.random.default_rng(seed), [300] * 5, 0.0)
    at = offsets[:-1] + 150
    missing[at] = True
    m, s = smooth(ids, offsets, missing, table, A, H, J, J_missing)
    filtered, smoothed = by_sentence(lambda i, x: dense_kalman(i, x, model), ids, offsets, missing)
    until = np.concatenate([np.arange(t - 30, t + 1) for t in at])
    close(m[until], filtered[until], rtol=1e-5)
    close(s[until], smoothed[until], rtol=1e-5)
    with_one_gain = smooth(ids, offsets, missing, table, A, H, J, J)[1]
    assert np.abs(with_one_gain[at] - smoothed[at]).max() > 0.1 * np.abs(smoothed[at]).max()
    stream = ChainStream(*steady, delay=300)
    for i, is_missing in zip(ids[:300].tolist(), missing[:300], strict=True):
        stream.push(None if is_missing else i)
    close(stream.flush()[150], smoothed[150], rtol=1e-5)


@pytest.mark.parametrize("radius", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("seed", range(4))
def test_the_gain_at_missing_tokens_is_that_of_the_oracle_and_stable(seed, radius) -> None:
    model, steady = model_of(seed, radius)
    ours = lds_params.steady_state(LDSParams(model.A, model.C, model.Q, model.M, model.mu))
    close(gain_at_missing(model.A, model.Q, ours.Sigma1, ours.V_s), steady.J_missing, rtol=1e-8)
    assert np.abs(np.linalg.eigvals(steady.J_missing)).max() < 1


def test_a_table_that_is_too_short_says_how_far_it_is_from_steady() -> None:
    model, _ = model_of(0, 0.99)
    gains = exact_gains(model.A, model.Q, model.N, model.M, model.Pi, 1e-12, 3)
    assert gains.steady == 3
    assert gains.gap > 1e-12


def test_missing_patterns_share_their_gains() -> None:
    model, _ = model_of(1)
    gains = exact_gains(model.A, model.Q, model.N, model.M, model.Pi, 1e-6, 64)
    missing = np.zeros(2000, dtype=bool)
    missing[300::300] = True
    one = np.array([0]), np.array([400])
    grown, _, _ = cover(gains, missing, *one, 10**6)
    more, edges, done = cover(gains, missing, np.array([0]), np.array([2000]), 10**6)
    assert (done, len(edges)) == (1, 2000)
    assert gains.n_edges < grown.n_edges == more.n_edges < 3 * gains.n_edges
    nothing, edges, _ = cover(gains, np.ones(50, dtype=bool), np.array([0]), np.array([50]), 10**6)
    assert nothing.n_edges == gains.n_edges + 1  # Π is stationary: a text of missing tokens stays at the first node


def test_a_full_graph_takes_no_more_sentences_but_always_one() -> None:
    gains = gains_of(1)
    missing = np.arange(60) % 6 == 5  # the last token of each sentence: one new edge a length, and they share it
    missing[8] = True
    begin, length = np.arange(0, 60, 6), np.full(10, 6)
    assert cover(gains, missing, begin, length, 10**6)[2] == 10
    assert cover(gains, missing, begin, length, 0)[2] == 1
    _, edges, done = cover(gains, missing, begin, length, gains.n_edges + 2)
    assert (done, len(edges)) == (2, 12)


def test_a_small_graph_is_filled_again_for_the_next_sentences() -> None:
    rng = np.random.default_rng(3)
    model, _ = model_of(1)
    ids, offsets, missing = random_text(rng, rng.integers(0, 30, 40), 0.3)
    whole = smooth_exact(ids, offsets, missing, model.statistics, gains_of(1))
    parts = smooth_exact(ids, offsets, missing, model.statistics, gains_of(1), graph_floats=0)
    for a, b in zip(whole, parts, strict=True):
        close(a, b, rtol=2e-6)


@pytest.mark.parametrize("exact", [False, True])
def test_chunks_threads_and_the_order_of_sentences_do_not_matter(exact) -> None:
    rng = np.random.default_rng(0)
    model, steady = model_of(2)
    ids, offsets, missing = random_text(rng, rng.geometric(0.1, 120) - 1, 0.1)

    def both(ids, offsets, missing, **how):
        if exact:
            return smooth_exact(ids, offsets, missing, model.statistics, gains_of(2), **how)
        return smooth(ids, offsets, missing, steady.table, steady.A, steady.H, steady.J, steady.J_missing, **how)

    expected = both(ids, offsets, missing)
    for how in ({"tiles": Tiles(1)}, {"tiles": Tiles(50)}, {"tiles": Tiles(50), "n_threads": 2}):
        for a, b in zip(both(ids, offsets, missing, **how), expected, strict=True):
            close(a, b, rtol=2e-6)
    shuffled = rng.permutation(len(offsets) - 1)
    tokens = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in shuffled])
    lengths = np.diff(offsets)[shuffled]
    other = both(ids[tokens], np.concatenate(([0], np.cumsum(lengths))), missing[tokens])
    for a, b in zip(other, expected, strict=True):
        close(a, b[tokens], rtol=2e-6)


def test_a_chunk_has_no_more_tokens_than_asked_for_or_one_sentence() -> None:
    length = np.array([90, 20, 7, 6, 4, 4, 3, 1])
    edges = batch.chunk_edges(length, 20)
    assert [length[a:b].tolist() for a, b in itertools.pairwise(edges)] == [[90], [20], [7, 6, 4], [4, 3, 1]]


@pytest.mark.parametrize("radius", [0.9, 0.999])
def test_a_long_sequence_is_cut_and_still_right(radius) -> None:
    rng = np.random.default_rng(1)
    model, steady = model_of(1, radius)
    ids, offsets, missing = random_text(rng, [20_000, 3, 700, 0, 5000], 0.03)
    missing[4000:9000] = True  # longer than a piece: a state has to live through it
    length = np.array([20_000, 5000, 700, 3])
    A, H, J, J_missing, table = steady
    packed = batch.pack(np.array([0, 20_703, 20_003, 20_000]), length, max(batch.memory_of(H), batch.memory_of(J)))
    assert packed.previous is not None and packed.n_alive[0] > 20
    m, s = smooth(ids, offsets, missing, table, A, H, J, J_missing)
    filtered, smoothed = by_sentence(lambda i, x: loop_smoother(i, x, steady), ids, offsets, missing)
    close(m, filtered, rtol=5e-6)
    close(s, smoothed, rtol=5e-6)
    gains = exact_gains(model.A, model.Q, model.N, model.M, model.Pi, 1e-9, 64)
    missing[500:] = False  # the oracle is dense
    m, s = smooth_exact(ids[:5000], np.array([0, 5000]), missing[:5000], model.statistics, gains)
    truth = dense_kalman(ids[:5000], missing[:5000], model)
    close(m, truth[0], rtol=1e-5)
    close(s, truth[1], rtol=1e-5)


def test_a_defective_recursion_is_no_trouble() -> None:
    rng = np.random.default_rng(5)
    H = 0.8 * np.eye(h) + np.diag(np.ones(h - 1), 1)  # one Jordan block: there are no eigenvectors to diagonalise with
    steady = Steady(0.9 * np.eye(h), H, H.T, 0.5 * np.eye(h), rng.standard_normal((V, h)))
    ids, offsets, missing = random_text(rng, [3000, 20, 1], 0.05)
    m, s = smooth(ids, offsets, missing, steady.table, steady.A, steady.H, steady.J, steady.J_missing)
    filtered, smoothed = by_sentence(lambda i, x: loop_smoother(i, x, steady), ids, offsets, missing)
    close(m, filtered, rtol=2e-5)
    close(s, smoothed, rtol=2e-5)


def test_a_recursion_that_never_forgets_is_not_cut() -> None:
    eye = np.eye(2)
    ids = np.zeros(500, dtype=np.uint32)
    m, s = smooth(ids, np.array([0, 500]), None, np.ones((1, 2)), eye, eye, 0 * eye, 0 * eye)
    assert_array_equal(m[:, 0], np.arange(1, 501))
    assert_array_equal(s, m)
    assert batch.memory_of(eye) == batch.LONGEST_MEMORY
    long = np.array([200_000])
    assert batch.pack(np.array([0]), long, batch.LONGEST_MEMORY).previous is None
    assert batch.pack(np.array([0]), long, 64).previous is not None


@settings(max_examples=40)
@given(st.lists(TOKEN, max_size=12), st.integers(0, 14), SEEDS)
def test_stream_equals_the_smoother_of_what_was_seen(sentence, delay, seed) -> None:
    _, steady = model_of(seed)
    ids, _, missing = flat([sentence])
    stream = ChainStream(steady.A, steady.H, steady.J, steady.J_missing, steady.table, delay=delay)
    for _ in range(2):  # flush starts a new sentence
        expected_m, to_the_end = loop_smoother(ids, missing, steady)
        for t, (word, is_missing) in enumerate(sentence):
            m, s = stream.push(None if is_missing else word)
            close(m, expected_m[t], rtol=1e-5)
            if t < delay:
                assert s is None
            else:
                seen = loop_smoother(ids[: t + 1], missing[: t + 1], steady)[1]
                close(s, seen[t - delay], rtol=1e-5, among=seen)
        rest = stream.flush()
        close(rest, to_the_end[max(0, len(ids) - delay) :], rtol=1e-5)


def test_the_stream_takes_no_unknown_id_and_no_negative_delay() -> None:
    steady = model_of(0)[1]
    with pytest.raises(InputError, match="delay"):
        ChainStream(*steady, delay=-1)
    stream = ChainStream(*steady, delay=0)
    for word in (V, -1):
        with pytest.raises(InputError, match="push None"):
            stream.push(word)


def test_whitened_rows_are_units_and_zero_stays_zero() -> None:
    rng = np.random.default_rng(0)
    x, W = rng.standard_normal((6, h)), rng.standard_normal((h, h))
    x[2] = 0
    expected = x @ W.T
    close(whiten_and_normalize(x, W, unit=False), expected, rtol=1e-6)
    size = np.linalg.norm(expected, axis=1, keepdims=True)
    size[2] = 1
    close(whiten_and_normalize(x, W), expected / size, rtol=1e-6)
    for scale in (1e-42, 1e-30, 1e30):  # squares of these are no float32
        close(whiten_and_normalize(np.full((1, 4), scale, dtype=np.float32), None), np.full((1, 4), 0.5), rtol=1e-6)
    assert whiten_and_normalize(np.zeros((0, h)), W).shape == (0, h)
    before = x.astype(np.float32)
    whiten_and_normalize(before, None)
    assert_array_equal(before, x.astype(np.float32))


@pytest.mark.parametrize(
    ("ids", "offsets", "missing", "match"),
    [
        ([0, V], [0, 2], None, "outside"),
        ([0, 1], [0, 1], None, "offsets"),
        ([0, 1], [0, 2, 1, 2], None, "offsets"),
        ([0, 1], [], None, "offsets"),
        ([0, 1], [0, 2], [True], "missing"),
        ([0, 1], [0, 2], [1, 0], "missing"),
    ],
)
def test_bad_input_is_refused(ids, offsets, missing, match) -> None:
    steady = model_of(0)[1]
    ids, offsets = np.array(ids, dtype=np.uint32), np.array(offsets, dtype=np.int64)
    missing = None if missing is None else np.array(missing)
    with pytest.raises(InputError, match=match):
        smooth(ids, offsets, missing, steady.table, steady.A, steady.H, steady.J, steady.J_missing)
    with pytest.raises(InputError, match=match):
        smooth_exact(ids, offsets, missing, model_of(0)[0].statistics, gains_of(0))
