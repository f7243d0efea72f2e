from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from oracles.word_classes import class_objective, exchange_pass, random_text
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.kernels.words.exchange import class_counts, exchange_clusters, objective


def rank_modulo(unigram: np.ndarray, n_clusters: int) -> list[int]:
    order = sorted(range(len(unigram)), key=lambda i: (-unigram[i], i))
    classes = [0] * len(unigram)
    for rank, w in enumerate(order):
        classes[w] = rank % n_clusters
    return classes


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n_clusters", [2, 3, 5])
def test_every_pass_is_the_naive_one(seed: int, n_clusters: int) -> None:
    counts, unigram = random_text(seed)
    plain = rank_modulo(unigram, n_clusters)
    for n in range(1, 4):
        exchange_pass(counts, unigram, plain, n_clusters)
        classes, history = exchange_clusters(csr_array(counts), unigram, n_clusters, n_passes=n, min_moved=0)
        assert_array_equal(classes, plain)
        assert_allclose(history[-1], class_objective(counts, unigram, plain, n_clusters), rtol=1e-12)


@pytest.mark.parametrize("factor", [1, 1000, 10**7])
def test_large_counts_are_computed_where_the_table_ends(factor: int) -> None:
    counts, unigram = random_text(3)
    counts, unigram = counts * factor, unigram * factor
    plain = rank_modulo(unigram, 4)
    exchange_pass(counts, unigram, plain, 4)
    classes, history = exchange_clusters(csr_array(counts), unigram, 4, n_passes=1)
    assert_array_equal(classes, plain)
    assert_allclose(history[-1], class_objective(counts, unigram, plain, 4), rtol=1e-12)


def test_a_short_table_changes_nothing() -> None:
    counts, unigram = random_text(5, V=40, n=3000)
    whole = exchange_clusters(csr_array(counts), unigram, 7)
    short = exchange_clusters(csr_array(counts), unigram, 7, table_size=9)
    assert_array_equal(whole[0], short[0])
    assert_allclose(whole[1], short[1], rtol=1e-12)


def test_the_objective_never_falls_and_nobody_wants_to_move_at_the_end() -> None:
    counts, unigram = random_text(7, V=60, n=5000)
    seen: list[tuple[int, float, int]] = []
    classes, history = exchange_clusters(
        csr_array(counts), unigram, 8, n_passes=100, min_moved=0, on_pass=lambda *event: seen.append(event)
    )
    assert (np.diff(history) >= -1e-9 * abs(history[0])).all()
    assert history[-1] > history[0] + 1
    assert [event[:2] for event in seen] == [(n + 1, F) for n, F in enumerate(history[1:])]
    assert seen[-1][2] == 0
    sizes = np.bincount(classes, weights=unigram, minlength=8)
    assert_allclose(history[-1], objective(class_counts(csr_array(counts), classes, 8), sizes), rtol=1e-12)
    assert exchange_pass(counts, unigram, classes.tolist(), 8) == 0


def test_fixed_words_stay_alone() -> None:
    counts, unigram = random_text(2)
    plain = [1 + c for c in rank_modulo(np.delete(unigram, 4), 3)]
    plain.insert(4, 0)
    exchange_pass(counts, unigram, plain, 4, closed=[0])
    classes, _ = exchange_clusters(csr_array(counts), unigram, 4, fixed=[4], n_passes=1)
    assert_array_equal(classes, plain)
    assert classes[4] == 0 and (classes == 0).sum() == 1
    alone, _ = exchange_clusters(csr_array(counts), unigram, 5, fixed=[7, 1])
    assert alone[7] == 0 and alone[1] == 1
    assert_array_equal(np.bincount(alone)[:2], [1, 1])


def test_no_class_becomes_empty_and_unseen_words_do_no_harm() -> None:
    counts, unigram = random_text(4)
    counts = np.pad(counts, ((0, 3), (0, 3)))
    unigram = np.pad(unigram, (0, 3))
    classes, history = exchange_clusters(csr_array(counts), unigram, 9)
    assert (np.bincount(classes, minlength=9) > 0).all()
    assert np.isfinite(history).all()
    own, _ = exchange_clusters(csr_array(counts), unigram, len(unigram))
    assert len(np.unique(own)) == len(unigram)


def test_a_start_is_taken_and_can_only_get_better() -> None:
    counts, unigram = random_text(8, V=30, n=2000)
    first, history = exchange_clusters(csr_array(counts), unigram, 5, min_moved=0, n_passes=100)
    again, more = exchange_clusters(csr_array(counts), unigram, 5, start=first)
    assert_array_equal(first, again)
    assert_allclose(more, [history[-1]] * 2, rtol=1e-12)
    other = np.random.default_rng(0).permutation(30) % 5
    _, history = exchange_clusters(csr_array(counts), unigram, 5, start=other)
    assert_allclose(history[0], class_objective(counts, unigram, other.tolist(), 5), rtol=1e-12)


def test_classes_that_made_the_text_are_found() -> None:
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(4), 10)
    T = np.array([[0.05, 0.8, 0.1, 0.05], [0.1, 0.05, 0.05, 0.8], [0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.75, 0.05]])
    c, words = 0, []
    for _ in range(20_000):
        c = rng.choice(4, p=T[c])
        words.append(10 * c + rng.integers(10))
    counts = np.zeros((40, 40), dtype=np.int64)
    np.add.at(counts, (words[1:], words[:-1]), 1)
    classes, _ = exchange_clusters(csr_array(counts), np.bincount(words, minlength=40), 4)
    assert len({(a, b) for a, b in zip(true, classes, strict=True)}) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"n_clusters": 0},
        {"n_clusters": 13},
        {"unigram": np.ones(5)},
        {"unigram": -np.ones(12)},
        {"start": np.full(12, 3)},
        {"start": np.zeros(12)},
        {"fixed": [0, 0]},
        {"fixed": [12]},
        {"fixed": [0, 1, 2]},
        {"fixed": [0], "start": np.zeros(12, dtype=int)},
    ],
)
def test_what_cannot_be_clustered_is_refused(change: dict) -> None:
    counts, unigram = random_text(0)
    arguments = {"unigram": unigram, "n_clusters": 3} | change
    with pytest.raises(InputError) as caught:
        exchange_clusters(csr_array(counts), **arguments)
    assert is_one_sentence(str(caught.value))
