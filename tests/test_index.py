"""Similarity search against the plain way: all cosines, sorted."""

from __future__ import annotations

from types import SimpleNamespace
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
from undertow.index import (
    CANDIDATES,
    TokenPlace,
    VectorIndex,
    graph_candidates,
    index_tokens,
    nearest_candidates,
    unit_rows,
)


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


def clustered(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(50, 16))[rng.integers(50, size=n)] + rng.normal(size=(n, 16))


def test_an_approximate_index_finds_nearly_all_of_the_nearest() -> None:
    pytest.importorskip("usearch")
    vectors, queries = clustered(5000), clustered(100, seed=1)
    truth, _ = VectorIndex(vectors).search_all(queries, 10)
    rows, cosines = VectorIndex(vectors, approximate=True).search_all(queries, 10)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(truth.tolist(), rows.tolist(), strict=True)]) > 9.5
    assert (np.diff(cosines, axis=1) <= 0).all()
    for query, found, cosine in zip(queries, rows, cosines, strict=True):
        lengths = np.linalg.norm(vectors[found], axis=1) * np.linalg.norm(query)
        assert_allclose(cosine, vectors[found] @ query / lengths, rtol=1e-5)
    again, _ = VectorIndex(vectors, approximate=True).search_all(queries, 10)
    assert_array_equal(again, rows)


def test_a_small_approximate_index_is_exact() -> None:
    pytest.importorskip("usearch")
    vectors = clustered(12)
    exact, approximate = VectorIndex(vectors), VectorIndex(vectors, approximate=True)
    for n in (0, 3, 12, 40):
        for a, b in zip(exact.search_all(vectors, n), approximate.search_all(vectors, n), strict=True):
            assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    model = HMM(2, n_iter=2, random_state=0).fit(SENTENCES)
    place = index_tokens(model, SENTENCES, approximate=True).search(model.transform(SENTENCES)[0][0], 1)[0].label
    assert isinstance(place, TokenPlace)


def test_queries_with_too_few_candidates_are_compared_with_all() -> None:
    vectors, queries = unit_rows(clustered(30)), unit_rows(clustered(2, seed=1))
    candidates = np.full((2, 8), -1)
    candidates[1] = np.arange(8)
    rows, _ = nearest_candidates(vectors, queries, candidates, 3)
    assert rows[0].tolist() == np.argsort(-(vectors @ queries[0]))[:3].tolist()
    assert rows[1].tolist() == np.argsort(-(vectors[:8] @ queries[1]))[:3].tolist()


def test_the_graph_is_asked_for_more_than_are_wanted_and_may_find_fewer() -> None:
    class Graph:
        def search(self, queries: Any, m: int, threads: int) -> Any:
            self.asked = m
            keys = np.tile(np.arange(m, dtype=np.uint64), (len(queries), 1))
            return SimpleNamespace(keys=keys, counts=np.array([m, 2]))

    graph, queries = Graph(), np.zeros((2, 3), dtype=np.float32)
    found = graph_candidates(graph, queries, 5, 1000)
    assert graph.asked == CANDIDATES * 5 > 5
    assert found[0].tolist() == list(range(graph.asked))
    assert found[1].tolist() == [0, 1] + [-1] * (graph.asked - 2)
    graph_candidates(graph, queries, 5, 7)
    assert graph.asked == 7


def test_approximate_means_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr("undertow.index.neighbor_graph", lambda vectors: made.append(len(vectors)))
    vectors = clustered(12)
    VectorIndex(vectors)
    assert made == []
    VectorIndex(vectors, approximate=True)
    model = HMM(2, n_iter=2, random_state=0).fit(SENTENCES)
    index_tokens(model, SENTENCES)
    index_tokens(model, SENTENCES, approximate=True)
    assert made == [12, sum(map(len, SENTENCES))]
