from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from oracles.word_classes import brown_merges, mutual_information
from undertow.kernels.words.brown import bit_paths, merge_classes


def random_pairs(seed: int, G: int = 9) -> np.ndarray:
    """Counts whose losses are all different, some of them zero."""
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(0.3, 200, size=(G, G)))


@pytest.mark.parametrize("seed", range(8))
def test_every_merge_is_the_cheapest(seed: int) -> None:
    pairs = random_pairs(seed)
    expected = brown_merges(pairs)
    merges, losses = merge_classes(pairs)
    assert_array_equal(merges, [m[:2] for m in expected])
    assert_allclose(losses / pairs.sum(), [m[2] for m in expected], rtol=1e-9, atol=1e-12)
    assert_allclose(losses.sum() / pairs.sum(), mutual_information(pairs), rtol=1e-10)


def test_large_counts_are_computed_where_the_table_ends() -> None:
    pairs = random_pairs(1)
    whole = merge_classes(pairs)
    short = merge_classes(pairs, table_size=5)
    assert_array_equal(whole[0], short[0])
    assert_allclose(whole[1], short[1], rtol=1e-9)
    scaled = merge_classes(pairs * 10**6, table_size=5)
    assert_array_equal(whole[0], scaled[0])
    assert_allclose(whole[1] * 1e6, scaled[1], rtol=1e-8)


def test_classes_without_pairs_cost_nothing() -> None:
    pairs = random_pairs(2, G=5)
    pairs[3] = 0
    pairs[:, 3] = 0
    merges, losses = merge_classes(pairs)
    assert 3 in merges[0] and losses[0] == 0
    assert len(np.unique(merges[:, 1])) == 4
    nothing, free = merge_classes(np.zeros((4, 4), dtype=np.int64))
    assert_array_equal(nothing, [[0, 1], [0, 2], [0, 3]])
    assert_array_equal(free, np.zeros(3))


def test_one_class_needs_no_merge() -> None:
    merges, losses = merge_classes(np.array([[7]]))
    assert merges.shape == (0, 2) and losses.shape == (0,)
    assert bit_paths(merges, np.array([7])) == ["0"]


def test_paths_are_the_turns_from_the_root() -> None:
    merges = np.array([[1, 3], [0, 2], [0, 1]], dtype=np.int32)
    assert bit_paths(merges, np.array([5, 1, 9, 2])) == ["01", "11", "00", "10"]
    assert bit_paths(merges, np.array([1, 1, 1, 9])) == ["10", "01", "11", "00"]


def test_no_path_begins_another() -> None:
    pairs = random_pairs(6, G=40)
    paths = bit_paths(merge_classes(pairs)[0], pairs.sum(axis=0))
    assert len(set(paths)) == 40
    assert sum(2.0 ** -len(p) for p in paths) == 1.0  # Kraft: the tree is full
    ordered = sorted(paths)
    assert not any(b.startswith(a) for a, b in zip(ordered, ordered[1:], strict=False))
