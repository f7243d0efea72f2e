from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array

from oracles.naive_pairs import dense, naive_pairs
from undertow.kernels.words.pair_counts import FIRST, count_rows, positions_by_word, row_room, sum_rows

SENTENCES = st.lists(st.lists(st.integers(0, 200), max_size=12), min_size=1, max_size=8)


def flat(sentences):
    ids = np.array([w for s in sentences for w in s], dtype=np.uint32)
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in sentences]))).astype(np.int64)
    return ids, offsets


def marked(sentences):
    """Flat ids with FIRST where a sentence begins."""
    ids, offsets = flat(sentences)
    ids[offsets[:-1][np.diff(offsets) > 0]] |= FIRST
    return ids


@given(SENTENCES, st.integers(0, 20))
def test_positions_are_where_the_word_stands(sentences, first) -> None:
    ids, _ = flat(sentences)
    bounds, positions = positions_by_word(marked(sentences), first, 201)
    for w in range(201):
        expected = [p for p in range(first, len(ids)) if ids[p] == w]
        assert positions[bounds[w] : bounds[w + 1]].tolist() == expected


@given(SENTENCES, st.integers(1, 4), st.data())
def test_rows_of_a_block_equal_the_definition(sentences, lags, data) -> None:
    tokens = marked(sentences)
    n = 201  # four words of the bitmap, the last one not full
    low = data.draw(st.integers(0, n - 1))
    high = data.draw(st.integers(low + 1, n))
    first_lag = data.draw(st.integers(1, lags))
    bounds, positions = positions_by_word(tokens, 0, n)
    bounds = bounds[low : high + 1]
    indices, counts = np.empty((2, lags + 1 - first_lag, row_room(bounds, n)), dtype=np.uint32)
    indptr = count_rows(tokens, bounds, positions, n, first_lag, lags + 1, indices, counts)
    truth = naive_pairs(sentences, lags)
    for i, k in enumerate(range(first_lag, lags + 1)):
        m = indptr[i, -1]
        rows = csr_array((counts[i, :m], indices[i, :m], indptr[i]), shape=(high - low, n))
        assert_array_equal(rows.toarray(), dense(truth[k - 1], n)[low:high])
        for a, b in zip(indptr[i, :-1], indptr[i, 1:], strict=True):
            assert (np.diff(indices[i, a:b].astype(int)) > 0).all()


def test_many_words_and_many_occurrences() -> None:
    """The second level of the bitmap, and more positions of a word than one batch of contexts holds."""
    n = 64 * 64 * 3 + 5
    rng = np.random.default_rng(0)
    ids = rng.integers(0, n, 5000).astype(np.uint32)
    ids[::3] = n - 1
    tokens = ids.copy()
    tokens[0] |= FIRST
    bounds, positions = positions_by_word(tokens, 0, n)
    indices, counts = np.empty((2, 1, row_room(bounds, n)), dtype=np.uint32)
    indptr = count_rows(tokens, bounds, positions, n, 1, 2, indices, counts)
    truth = csr_array((np.ones(4999, int), (ids[1:].astype(int), ids[:-1].astype(int))), shape=(n, n))
    rows = csr_array((counts[0, : indptr[0, -1]], indices[0, : indptr[0, -1]], indptr[0]), shape=(n, n))
    assert (rows != truth).nnz == 0


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 150), st.integers(0, 2**32 - 1))
def test_sum_rows_adds_matrices(n_parts, n_rows, n, seed) -> None:
    rng = np.random.default_rng(seed)
    parts = [csr_array(rng.integers(0, 3, (n_rows, n)) * rng.integers(1, 2**40, (n_rows, n))) for _ in range(n_parts)]
    shift = np.cumsum([0] + [p.nnz for p in parts])[:-1]
    bounds = np.stack([p.indptr.astype(np.int64) + s for p, s in zip(parts, shift, strict=True)])
    indptr, indices, data = sum_rows(
        bounds[:, :-1].copy(),
        bounds[:, 1:].copy(),
        np.concatenate([p.indices for p in parts]).astype(np.uint32),
        np.concatenate([p.data for p in parts]).astype(np.int64),
        n,
    )
    got = csr_array((data, indices, indptr), shape=(n_rows, n))
    assert_array_equal(got.toarray(), sum(p.toarray() for p in parts))
