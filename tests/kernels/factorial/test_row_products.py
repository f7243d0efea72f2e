"""Products of few rows with long rows against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numpy.testing import assert_allclose

from undertow.kernels.factorial.row_products import (
    VECTOR_BYTES,
    dots,
    flush_tiny,
    mix,
    mix_add,
    mix_times,
    set_control_word,
)

RTOL = {np.float32: 1e-5, np.float64: 1e-12}


@pytest.mark.parametrize(("n_out", "n_in", "n_long"), [(10, 10, 160), (3, 7, 16), (1, 1, 48), (13, 2, 80)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_numpy(dtype, n_out, n_in, n_long):
    rng = np.random.default_rng(0)
    W, X, Y = (rng.random(shape).astype(dtype) for shape in ((n_out, n_in), (n_in, n_long), (n_out, n_long)))
    vector = VECTOR_BYTES // X.itemsize
    out = np.empty((n_out, n_long), dtype=dtype)
    w, x, o = W.reshape(-1), X.reshape(-1), out.reshape(-1)
    shape = (n_out, n_in, n_long // vector)
    mix(w, 0, n_in, 1, x, 0, n_long, vector, o, 0, n_long, vector, *shape)
    assert_allclose(out, W @ X, rtol=RTOL[dtype])
    mix_add(w, 0, n_in, 1, x, 0, n_long, vector, o, 0, n_long, vector, *shape)
    assert_allclose(out, 2 * (W @ X), rtol=RTOL[dtype])
    mix_times(w, 0, n_in, x, 0, n_long, Y.reshape(-1), 0, n_long, o, 0, n_long, *shape)
    assert_allclose(out, (W @ X) * Y, rtol=RTOL[dtype])
    mix_times(w, 0, n_in, x, 0, n_long, Y.reshape(-1), 0, 0, o, 0, n_long, *shape)
    assert_allclose(out, (W @ X) * Y[0], rtol=RTOL[dtype])
    sums = np.ones((n_in, n_out), dtype=dtype)
    dots(x, 0, n_long, Y.reshape(-1), 0, n_long, sums.reshape(-1), 0, n_out, n_in, n_out, 1, 0, n_long // vector)
    assert_allclose(sums, 1 + X @ Y.T, rtol=RTOL[dtype])


def test_strides_of_vectors_and_outer_steps():
    rng = np.random.default_rng(1)
    X, Y = rng.random((2, 5, 3, 16)).astype(np.float32)  # a, rows, lanes
    W = rng.random((3, 3)).astype(np.float32)
    out = np.empty_like(X)
    mix(W.reshape(-1), 0, 1, 3, X.reshape(-1), 0, 16, 48, out.reshape(-1), 0, 16, 48, 3, 3, 5)  # W transposed
    assert_allclose(out, np.einsum("ij,ail->ajl", W, X), rtol=1e-5)
    sums = np.zeros((3, 3), dtype=np.float32)
    dots(X.reshape(-1), 0, 16, Y.reshape(-1), 0, 16, sums.reshape(-1), 0, 3, 3, 3, 5, 48, 1)
    assert_allclose(sums, np.einsum("ail,ajl->ij", X, Y), rtol=1e-5)


def test_the_control_word_is_put_back():
    @njit
    def half(x):
        before = flush_tiny()
        small = x * np.float32(0.5)
        set_control_word(before)
        return small

    smallest = np.finfo(np.float32).smallest_normal
    half(smallest)
    assert np.full(64, smallest, dtype=np.float32).prod(initial=0.5, where=np.arange(64) < 1) > 0
    assert np.float32(smallest) * np.float32(0.5) > 0
