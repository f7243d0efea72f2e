"""The CRF's loss, gradient, marginals, best and n best paths against all paths enumerated."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from oracles.crf_paths import (
    gradient_by_differences,
    loss_by_paths,
    path_scores,
    posterior_by_paths,
    scores_by_definition,
)
from undertow.errors import InputError
from undertow.kernels.chain import crf
from undertow.kernels.chain.nbest import n_best_paths
from undertow.kernels.lbfgs import descend, start_descent


def random_problem(
    seed: int, lengths: tuple[int, ...] = (3, 0, 1, 4), K: int = 3, A: int = 6, d: int = 2, values: bool = True
) -> crf.Problem:
    rng = np.random.default_rng(seed)
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    counts = rng.integers(0, 4, size=bounds[-1])
    row = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    attribute = rng.integers(0, A, size=row[-1]).astype(np.int32)
    value = rng.normal(size=row[-1] if values else 0).astype(np.float32)
    dense = rng.normal(size=(bounds[-1], d)).astype(np.float32)
    tokens = crf.Tokens(bounds, row, attribute, value, dense)
    gold = rng.integers(0, K, size=bounds[-1]).astype(np.int32)
    pairs = crf.observed_pairs(tokens, gold, A, K)
    return crf.Problem(tokens, gold, rng.uniform(0.5, 2.0, size=len(lengths)), pairs, K)


def random_weights(problem: crf.Problem, seed: int = 1, scale: float = 1.0) -> Any:
    flat = scale * np.random.default_rng(seed).normal(size=problem.n_weights())
    flat[: len(problem.pairs.free)] *= problem.pairs.free
    return flat


@pytest.mark.parametrize("seed", range(4))
def test_loss_and_gradient_are_those_of_all_paths(seed: int) -> None:
    problem = random_problem(seed, d=seed % 3, values=seed != 2)
    flat = random_weights(problem)
    loss, gradient = crf.loss_and_gradient(problem, flat)
    np.testing.assert_allclose(loss, loss_by_paths(problem, flat), rtol=1e-6)
    expected = gradient_by_differences(problem, flat)
    expected[: len(problem.pairs.free)] *= problem.pairs.free
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("seed", range(4))
def test_listed_pairs_give_the_same_loss_and_gradient(seed: int) -> None:
    lengths = (3, 0, 1, 4) if seed < 2 else (20, 0, 15, 5)
    problem = random_problem(seed, lengths, K=9, A=12, d=seed % 3, values=seed != 2)
    flat, listed = random_weights(problem), crf.with_listed_pairs(problem)
    loss, gradient = crf.loss_and_gradient(problem, flat)
    same_loss, same_gradient = crf.loss_and_gradient(listed, flat)
    np.testing.assert_allclose(same_loss, loss, rtol=1e-6)
    np.testing.assert_allclose(same_gradient, gradient, rtol=1e-4, atol=1e-5)
    if seed < 2:  # sentences whose paths can be listed
        np.testing.assert_allclose(same_loss, loss_by_paths(problem, flat), rtol=1e-6)
    else:
        full = np.diff(problem.pairs.start) == 9
        assert full.any() and not full.all()
        assert set(listed.tokens.attribute.tolist()) == set(np.flatnonzero(full).tolist())
        assert listed.listed is not None and listed.listed.row[-1] == len(listed.listed.pair) > 0


def test_listed_pairs_are_those_of_the_tokens_in_every_chunk_and_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(2, (20, 0, 15, 5, 9, 12), K=9, A=40)
    flat, listed = random_weights(problem), crf.with_listed_pairs(problem)
    assert listed.listed is not None and min(len(listed.listed.pair), len(listed.tokens.attribute)) > 20
    loss, gradient = crf.loss_and_gradient(problem, flat)
    monkeypatch.setattr(crf, "CHUNK_TOKENS", 10)
    monkeypatch.setattr(crf, "SHARD_TOKENS", 20)
    found = crf.loss_and_gradient(listed, flat)
    np.testing.assert_allclose(found[0], loss, rtol=1e-6)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-4, atol=1e-5)
    threads = crf.loss_and_gradient(listed, flat, 2)
    assert threads[0] == found[0]
    np.testing.assert_array_equal(threads[1], found[1])


def test_pairs_are_those_that_occur() -> None:
    problem = random_problem(5, (9, 9, 9, 9), K=70, A=5)
    tokens, pairs = problem.tokens, problem.pairs
    seen = {(int(tokens.attribute[i]), int(problem.gold[t])) for t in range(36) for i in range(*tokens.row[t : t + 2])}
    listed = [(a, int(pairs.label[p]), bool(pairs.free[p])) for a in range(5) for p in range(*pairs.start[a : a + 2])]
    assert {(a, k) for a, k, free in listed if free} == seen and len(listed) == len({x[:2] for x in listed})
    assert listed == sorted(listed)
    # attributes with many of the labels have weights for all of them
    few = random_problem(5, (9, 9, 9, 9), K=3, A=5)
    assert (np.diff(few.pairs.start) == 3).all() and not few.pairs.free.all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 30.0, 400.0])
def test_marginals_whatever_the_range(dtype: Any, scale: float) -> None:
    """Ranges for float32, for float64 and for logs."""
    rng = np.random.default_rng(0)
    bounds = np.array([0, 4, 4, 5, 8])
    scores = (scale * rng.normal(size=(8, 3))).astype(dtype)
    transition = (0.3 * scale * rng.normal(size=(3, 3))).astype(dtype)
    weight = np.array([1.0, 1.0, 0.5, 2.0])
    found = crf.chain_posterior(scores, bounds, transition, weight)
    expected_pairs = np.zeros((3, 3))
    rtol = 1e-5 if dtype == np.float32 else 1e-9
    for s, (low, high) in enumerate(zip(bounds, bounds[1:], strict=False)):
        if high > low:
            log_z, gamma, pairs = posterior_by_paths(scores[low:high].astype(float), transition.astype(float))
            np.testing.assert_allclose(found.log_z[s], log_z, rtol=rtol)
            np.testing.assert_allclose(
                found.gamma[low:high], gamma, rtol=20 * rtol, atol=1e-7 if rtol > 1e-6 else 1e-12
            )
            expected_pairs += weight[s] * pairs
    assert found.log_z[1] == 0
    np.testing.assert_allclose(found.pairs, expected_pairs, rtol=20 * rtol, atol=1e-6 if rtol > 1e-6 else 1e-12)


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        crf.chain_posterior(np.full((2, 3), np.nan), np.array([0, 2]), np.zeros((3, 3)))


@pytest.mark.parametrize("seed", range(3))
def test_best_and_n_best_paths(seed: int) -> None:
    problem = random_problem(seed)
    flat = random_weights(problem)
    scores, transition = scores_by_definition(problem, flat), problem.split(flat).transition
    if seed == 2:  # many equal paths
        scores, transition = np.round(scores), np.round(transition)
    bounds = problem.tokens.bounds
    best = crf.best_labels(scores, bounds, transition)
    for low, high in zip(bounds, bounds[1:], strict=False):
        expected = path_scores(scores[low:high], transition)
        assert tuple(best[low:high]) == expected[0][1]
        for n in (1, 4, 100):
            paths, totals = n_best_paths(scores[low:high], transition, n)
            assert len(paths) == min(n, 3 ** (high - low))
            np.testing.assert_allclose(totals, [v for v, _ in expected[: len(totals)]], rtol=1e-12, atol=1e-12)
            assert len(set(map(tuple, paths.tolist()))) == len(paths)
            by_path = {path: value for value, path in expected}
            np.testing.assert_allclose([by_path[tuple(p)] for p in paths.tolist()], totals, rtol=1e-12, atol=1e-12)
        if seed != 2:
            assert list(map(tuple, paths.tolist())) == [path for _, path in expected]


def test_shards_chunks_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(3, tuple(np.random.default_rng(0).integers(0, 12, size=60).tolist()), K=5, A=20, d=3)
    flat = random_weights(problem)
    whole = crf.loss_and_gradient(problem, flat)
    monkeypatch.setattr(crf, "SHARD_TOKENS", 40)
    monkeypatch.setattr(crf, "CHUNK_TOKENS", 10)
    cut, threaded = (crf.loss_and_gradient(problem, flat, n) for n in (1, 2))
    np.testing.assert_allclose(cut[0], whole[0], rtol=1e-6)
    np.testing.assert_allclose(cut[1], whole[1], rtol=1e-5, atol=1e-5)
    assert cut[0] == threaded[0]
    np.testing.assert_array_equal(cut[1], threaded[1])


def test_some_sentences() -> None:
    """Each sentence once adds up to all; in any order."""
    problem = random_problem(4)
    flat = random_weights(problem)
    both = crf.take(problem, np.array([3, 0, 1]))
    parts = [crf.take(problem, np.array([s])) for s in (3, 0)]
    losses = [crf.loss_and_gradient(p, flat) for p in parts]
    loss, gradient = crf.loss_and_gradient(both, flat)
    np.testing.assert_allclose(loss, sum(x for x, _ in losses), rtol=1e-6)
    np.testing.assert_allclose(gradient, sum(g for _, g in losses), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loss, loss_by_paths(both, flat), rtol=1e-6)


# --- the optimizer --------------------------------------------------------------------------------------


def bowl(x: Any) -> tuple[float, Any]:
    """Convex, badly scaled, with its minimum at (1, −2, 0)."""
    scale, centre = np.array([1.0, 100.0, 0.01]), np.array([1.0, -2.0, 0.0])
    away = x - centre
    return float(scale @ (away**2 + away**4)), scale * (2 * away + 4 * away**3)


def test_descent_finds_the_minimum_and_never_rises() -> None:
    values = list(islice(descend(bowl, start_descent(bowl, np.array([5.0, 5.0, 5.0])), tol=1e-8), 200))
    np.testing.assert_allclose(values[-1].x, [1.0, -2.0, 0.0], atol=1e-6)
    falls = [s.value for s in values]
    assert all(b <= a for a, b in zip(falls, falls[1:], strict=False)) and len(falls) < 60


def far(x: Any) -> tuple[float, Any]:
    """A wide valley, whose bottom is a thousand steps of length 1 away."""
    away = x - 1000.0
    return float(np.sum(np.sqrt(1 + away**2))), away / np.sqrt(1 + away**2)


def test_steps_satisfy_the_wolfe_conditions() -> None:
    start = start_descent(far, np.zeros(2))
    steps = [start, *islice(descend(far, start, tol=1e-6), 100)]
    for a, b in zip(steps, steps[1:], strict=False):
        slope = a.gradient @ (b.x - a.x)
        assert b.value <= a.value + 1e-4 * slope and b.gradient @ (b.x - a.x) >= 0.9 * slope
    np.testing.assert_allclose(steps[-1].x, 1000.0, rtol=1e-6)
    assert len(steps) < 30


def test_descent_with_a_penalty_on_absolute_weights() -> None:
    """At the minimum the smooth slope is at most l1 where a weight is 0, and −l1 · sign elsewhere."""
    l1 = 7.0
    *_, last = islice(descend(bowl, start_descent(bowl, np.array([5.0, 5.0, 5.0]), l1), l1, tol=1e-8), 200)
    _, slope = bowl(last.x)
    assert last.x[0] == 0 and last.x[2] == 0 and last.x[1] < -1.9
    assert abs(slope[0]) <= l1 and abs(slope[2]) <= l1
    np.testing.assert_allclose(slope[1], l1, rtol=1e-5)
