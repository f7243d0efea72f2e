from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from undertow.kernels.gaussian.spmm import row_chunks, spmm


def zipf_rows(n_rows, n_columns, rng, dtype):
    """A matrix whose first rows hold most of the non-zeros, and some of whose rows are empty."""
    lengths = np.minimum(n_columns, 3 * n_columns // (1 + np.arange(n_rows)))
    lengths[5] = 0
    indices = np.concatenate([np.sort(rng.choice(n_columns, n, replace=False)) for n in lengths])
    data = rng.standard_normal(len(indices)).astype(dtype)
    return csr_array((data, indices.astype(np.int32), np.concatenate(([0], np.cumsum(lengths)))), (n_rows, n_columns))


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 3, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_scipy(dtype, width, n_threads):
    rng = np.random.default_rng(0)
    S = zipf_rows(400, 300, rng, np.float32)
    X = rng.standard_normal((300, width)).astype(dtype)
    out = spmm(S.indptr, S.indices, S.data, X, n_threads)
    assert out.dtype == dtype
    np.testing.assert_allclose(
        out, S @ X, rtol=1e-5 if dtype == np.float32 else 1e-12, atol=1e-4 if dtype == np.float32 else 1e-12
    )


def test_threads_change_no_bit_and_out_is_filled():
    rng = np.random.default_rng(1)
    S = zipf_rows(500, 500, rng, np.float32)
    X = rng.standard_normal((500, 40)).astype(np.float32)
    alone = spmm(S.indptr, S.indices, S.data, X, 1)
    out = np.full_like(alone, np.nan)
    assert spmm(S.indptr, S.indices, S.data, X, 3, out=out) is out
    assert np.array_equal(alone, out)


def test_may_be_called_from_several_threads_at_once():
    rng = np.random.default_rng(2)
    S = random_array((600, 600), density=0.1, rng=rng, format="csr", dtype=np.float64)
    X = rng.standard_normal((600, 30))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: spmm(S.indptr, S.indices, S.data, X, 2), range(8)))
    for out in results:
        np.testing.assert_allclose(out, S @ X, rtol=1e-10, atol=1e-12)


def test_chunks_hold_equal_numbers_of_nonzeros():
    rng = np.random.default_rng(3)
    S = zipf_rows(2000, 1000, rng, np.float32)
    edges = row_chunks(S.indptr, 8)
    assert edges[0] == 0 and edges[-1] == 2000 and np.all(np.diff(edges) > 0)
    cost = S.indptr[edges] + edges
    longest_row = np.diff(S.indptr).max() + 1
    assert np.diff(cost).max() <= cost[-1] / 8 + longest_row


@pytest.mark.parametrize("out", [np.empty((2, 2)), np.empty((3, 2), dtype=np.float32), np.empty((3, 2), order="F")])
def test_a_wrong_out_is_refused(out):
    S = csr_array(np.eye(3))
    with pytest.raises(ValueError, match="C-contiguous"):
        spmm(S.indptr, S.indices, S.data, np.ones((3, 2)), 1, out=out)
