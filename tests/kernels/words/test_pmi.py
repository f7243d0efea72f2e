from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from undertow.kernels.words.pmi import Subspace, positive_pmi, principal_scores, subspace_iterations


def counts(seed: int, shape: tuple[int, int] = (30, 17)) -> csr_array:
    rng = np.random.default_rng(seed)
    return csr_array(rng.poisson(0.7, shape) * rng.integers(1, 9, shape))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.5, 0.75, 1.0]))
def test_the_table_is_the_formula(seed: int, power: float) -> None:
    n = counts(seed).toarray().astype(float)
    of_context = n.sum(axis=0)
    share = np.where(of_context > 0, of_context**power, 0)
    share /= share.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.log(n / n.sum() / (n.sum(axis=1, keepdims=True) / n.sum() * share))
    expected = np.where(n > 0, np.maximum(expected, 0), 0)
    found = positive_pmi(counts(seed), power)
    assert_allclose(found.toarray(), expected, rtol=1e-5, atol=1e-6)
    assert (found.data > 0).all() and found.has_sorted_indices


def test_no_counts_give_an_empty_table() -> None:
    assert positive_pmi(csr_array((4, 3), dtype=np.int64), 0.75).nnz == 0


@pytest.mark.parametrize("n_threads", [1, 2])
def test_iterations_find_the_leading_singular_vectors(n_threads: int) -> None:
    table = positive_pmi(counts(1, (60, 40)), 0.75)
    start = np.random.default_rng(0).standard_normal((40, 12)).astype(np.float32)
    *_, found = subspace_iterations(table, start, 60, n_threads)
    U, s, _ = np.linalg.svd(table.toarray())
    scores = principal_scores(found, 5)
    assert_allclose(np.linalg.norm(scores, axis=0), s[:5], rtol=1e-3)
    assert_allclose(np.abs((U[:, :5] * scores).sum(axis=0)), s[:5], rtol=1e-3)
    assert_array_equal(scores[np.abs(scores).argmax(axis=0), np.arange(5)] > 0, True)


def test_what_is_explained_never_falls_and_threads_change_no_bit() -> None:
    table = positive_pmi(counts(2, (80, 50)), 0.75)
    start = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    one, two = (list(subspace_iterations(table, start, 6, n)) for n in (1, 2))
    explained = [found.explained() for found in one]
    total = float((table.data**2).sum())
    assert explained == sorted(explained) and explained[-1] < total
    for a, b in zip(one, two, strict=True):
        assert_array_equal(a.basis, b.basis)
        assert_array_equal(a.loadings, b.loadings)


def test_of_a_table_of_low_rank_the_other_scores_are_zero() -> None:
    rows = np.random.default_rng(0).random((9, 2)).astype(np.float32)
    table = csr_array(rows @ rows[:6].T)
    *_, found = subspace_iterations(table, np.eye(6, dtype=np.float32), 3)
    scores = principal_scores(found, 5)
    assert scores.shape == (9, 5)
    assert_allclose(scores @ scores.T, table.toarray() @ table.toarray().T, rtol=1e-3, atol=1e-4)
    assert principal_scores(Subspace(np.zeros((4, 0), np.float32), np.zeros((3, 0), np.float32)), 2).shape == (4, 2)
