"""Similarity search against the plain way: all cosines, sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from contract.cases import SENTENCES
from sentences import is_one_sentence
from undertow import HMM
from undertow.errors import InputError
from undertow.index import TokenPlace, VectorIndex, index_tokens


def plain(vectors: np.ndarray, query: np.ndarray, n: int) -> list[int]:
    """Whole numbers have exact products; cosines of equal rows are equal."""
    cosines = [float(np.float32(v / np.linalg.norm(v)) @ np.float32(query / np.linalg.norm(query))) for v in vectors]
    return sorted(range(len(vectors)), key=lambda i: (-cosines[i], i))[:n]


@given(st.integers(1, 30), st.integers(0, 40), st.integers(0, 2**32), st.integers(1, 9))
def test_the_best_are_found_whatever_the_blocks(n_rows: int, n: int, seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = np.eye(4)[rng.integers(4, size=n_rows)] * rng.integers(1, 5, size=(n_rows, 1))  # many ties
    queries = rng.integers(1, 9, size=(3, 4)).astype(float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("undertow.index.BLOCK_NUMBERS", 3 * block)
        rows, cosines = VectorIndex(vectors).search_all(queries, n)
    assert rows.shape == cosines.shape == (3, min(n, n_rows))
    for query, found in zip(queries, rows.tolist(), strict=True):
        assert found == plain(vectors, query, n)


def test_cosines() -> None:
    rng = np.random.default_rng(0)
    vectors, queries = rng.normal(size=(300, 7)), rng.normal(size=(100, 7))
    rows, cosines = VectorIndex(vectors).search_all(queries, 5)
    all_cosines = (queries @ vectors.T) / np.outer(np.linalg.norm(queries, axis=1), np.linalg.norm(vectors, axis=1))
    assert_array_equal(rows, np.argsort(-all_cosines, axis=1)[:, :5])
    assert_allclose(cosines, -np.sort(-all_cosines, axis=1)[:, :5], rtol=1e-5)


def test_zeros_are_like_nothing() -> None:
    index = VectorIndex([[0.0, 0.0], [1.0, 1.0], [-1.0, 0.0]], labels=["zero", "one", "minus"])
    assert [tuple(m) for m in index.search([0, 0], 3)] == [("zero", 0.0), ("one", 0.0), ("minus", 0.0)]
    assert [m.label for m in index.search([1.0, 0.0], 3)] == ["one", "zero", "minus"]
    assert len(index) == 3


def test_tokens_in_their_contexts() -> None:
    model = HMM(4, n_iter=4, random_state=0).fit(SENTENCES)
    index = index_tokens(model, SENTENCES)
    assert len(index) == sum(map(len, SENTENCES))
    vectors = model.transform(SENTENCES)
    best = index.search(vectors[2][4], n=1)[0]
    assert best.label == TokenPlace(2, 4, "bank")
    assert_allclose(best.cosine, 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (lambda: VectorIndex([1, 2]), "table"),
        (lambda: VectorIndex([["a"]]), "table"),
        (lambda: VectorIndex([[np.nan]]), "finite"),
        (lambda: VectorIndex([[1.0]], labels=["a", "b"]), "labels"),
        (lambda: VectorIndex([[1.0, 2.0]]).search([1.0]), "1 numbers"),
        (lambda: VectorIndex([[1.0]]).search([1.0], n=-1), "n=-1"),
        (lambda: index_tokens(object(), SENTENCES), "no vectors"),
        (lambda: index_tokens(HMM(2, n_iter=1).fit(SENTENCES), [[]]), "no token"),
    ],
)
def test_what_is_refused(use: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as e:
        use()
    assert is_one_sentence(str(e.value))
