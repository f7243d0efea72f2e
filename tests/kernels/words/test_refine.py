from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from oracles.word_classes import random_text
from undertow.kernels.words.refine import neighbor_features, refine_classes


def xlogx(x: np.ndarray) -> float:
    x = np.asarray(x, dtype=float)
    return float((x[x > 0] * np.log(x[x > 0])).sum())


def plain_objective(features: np.ndarray, unigram: np.ndarray, parts: np.ndarray, n_parts: int, kinds: int) -> float:
    inside = [parts == z for z in range(n_parts)]
    return sum(xlogx(features[i].sum(axis=0)) - kinds * xlogx(np.array([unigram[i].sum()])) for i in inside)


def plain_pass(
    features: np.ndarray, unigram: np.ndarray, parts: np.ndarray, group: np.ndarray, first: np.ndarray
) -> int:
    moves = 0
    for w in np.argsort(-unigram, kind="stable"):
        a = parts[w]
        if (parts == a).sum() == 1:
            continue
        scores = {}
        for z in range(first[group[w]], first[group[w] + 1]):
            parts[w] = z
            scores[z] = plain_objective(features, unigram, parts, int(first[-1]), 2)
        best = max(scores, key=lambda z: (scores[z], -z))
        parts[w] = best if scores[best] > scores[a] + 1e-6 else a
        moves += parts[w] != a
    return moves


def test_features_are_the_classes_before_and_after() -> None:
    counts, _ = random_text(0)
    classes = np.arange(12) % 3
    features = neighbor_features(csr_array(counts), classes, 3).toarray()
    for c in range(3):
        assert_array_equal(features[:, c], counts[:, classes == c].sum(axis=1))
        assert_array_equal(features[:, 3 + c], counts[classes == c].sum(axis=0))


@pytest.mark.parametrize("seed", range(4))
def test_every_pass_is_the_naive_one(seed: int) -> None:
    counts, unigram = random_text(seed, V=14, n=600)
    group = np.arange(14) % 3
    first = np.array([0, 1, 4, 6])
    features = neighbor_features(csr_array(counts), group, 3)
    parts = np.empty(14, dtype=int)
    for g in range(3):
        words = [w for w in np.argsort(-unigram, kind="stable") if group[w] == g]
        for rank, w in enumerate(words):
            parts[w] = first[g] + rank % (first[g + 1] - first[g])
    history = [plain_objective(features.toarray(), unigram, parts, 6, 2)]
    for n in range(1, 4):
        plain_pass(features.toarray(), unigram, parts, group, first)
        history.append(plain_objective(features.toarray(), unigram, parts, 6, 2))
        found, objectives = refine_classes(features, unigram, group, first, n_passes=n, min_moved=0)
        assert_array_equal(found, parts)
        assert_allclose(objectives, history[: len(objectives)], rtol=1e-12)
    assert history[-1] > history[0]


def test_a_class_with_fewer_words_than_parts_leaves_some_empty() -> None:
    counts, unigram = random_text(1)
    group = np.array([0] * 10 + [1] * 2)
    first = np.array([0, 2, 7])
    parts, history = refine_classes(neighbor_features(csr_array(counts), group, 2), unigram, group, first)
    assert set(parts[10:]) == {2, 3} and set(parts[:10]) == {0, 1}
    assert np.isfinite(history).all()
