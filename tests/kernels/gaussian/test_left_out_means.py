"""The state at a token without the token, against the dense Kalman smoother of the sentence with one more gap."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.gaussian_chain import dense_kalman, random_model
from undertow.kernels.gaussian.gains import exact_gains
from undertow.kernels.gaussian.leave_one_out import left_out_means

V, h = 9, 4
TOKEN = st.tuples(st.integers(0, V - 1), st.booleans())  # (word, missing)


@cache
def model_and_gains(seed):
    model = random_model(h, V, seed, 0.9)
    return model, exact_gains(model.A, model.Q, model.N, model.M, model.Pi, 1e-9, 64)


def by_copies(ids, offsets, missing, model):
    """(T, h): each sentence is smoothed again for each of its tokens, which is then missing."""
    out = np.zeros((len(ids), h))
    for a, b in zip(offsets[:-1], offsets[1:], strict=True):
        for t in range(a, b):
            gone = missing[a:b].copy()
            gone[t - a] = True
            out[t] = dense_kalman(ids[a:b], gone, model)[1][t - a]
    return out


def check(ids, offsets, missing, seed, **how):
    model, gains = model_and_gains(seed)
    found = left_out_means(ids, offsets, missing, model.statistics, gains, **how)
    truth = by_copies(ids, offsets, missing, model)
    assert found.dtype == np.float32
    # in single precision the difference may lose three digits or four where a word says much about the state
    np.testing.assert_allclose(found, truth, rtol=1e-3, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(TOKEN, max_size=9), max_size=5), st.integers(0, 3))
def test_each_token_left_out_is_the_sentence_with_one_more_missing(sentences, seed) -> None:
    ids = np.array([w for s in sentences for w, _ in s], dtype=np.uint32)
    missing = np.array([x for s in sentences for _, x in s], dtype=bool)
    check(ids, np.concatenate(([0], np.cumsum([len(s) for s in sentences]))).astype(np.int64), missing, seed)


@pytest.mark.parametrize("floats", [1 << 27, 0])  # 0: places and gains are forgotten after every sentence
def test_long_sentences_share_the_steady_place_and_little_memory_is_enough(floats) -> None:
    rng = np.random.default_rng(0)
    lengths = [150, 3, 90, 0, 41, 1]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    missing = rng.random(offsets[-1]) < 0.02
    missing[:150] = False
    check(rng.integers(0, V, offsets[-1]).astype(np.uint32), offsets, missing, 1, graph_floats=floats)
