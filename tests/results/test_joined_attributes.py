"""Attributes that always occur together, joined: the same groups as by comparing them, the same steps of L-BFGS."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from undertow.kernels.chain.crf import Problem, Tokens, observed_pairs
from undertow.results.tagging import crf_training as training
from undertow.results.tagging.crf_training import Penalty, lbfgs, smooth_objective
from undertow.results.tagging.joined_attributes import Joined, joined

L2 = 0.7


def problem_of(entries: list[list[tuple[int, float]]], lengths: list[int], n_attributes: int, seed: int) -> Problem:
    """Tokens with these attributes and values, sentences of these lengths, labels at random."""
    rng = np.random.default_rng(seed)
    row = np.concatenate(([0], np.cumsum([len(e) for e in entries]))).astype(np.int64)
    attribute = np.array([a for e in entries for a, _ in e], dtype=np.int32)
    value = np.array([v for e in entries for _, v in e], dtype=np.float32)
    if (value == 1).all():
        value = value[:0]
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    n, K = len(entries), 4
    tokens = Tokens(bounds, row, attribute, value, rng.normal(size=(n, 2)).astype(np.float32))
    gold = rng.integers(K, size=n).astype(np.int32)
    weight = rng.uniform(0.5, 2.0, len(lengths))
    return Problem(tokens, gold, weight, observed_pairs(tokens, gold, n_attributes, K), K)


def with_groups(seed: int, valued: bool) -> Problem:
    """40 tokens; most attributes occur at few tokens, many in groups, some of a group with another value once."""
    rng = np.random.default_rng(seed)
    entries: list[list[tuple[int, float]]] = [[] for _ in range(40)]
    a = 0
    for _ in range(30):
        where = np.flatnonzero(rng.random(40) < 0.08)
        values = rng.choice([0.5, 1.0, 2.0], len(where)) if valued else np.ones(len(where))
        for member in range(int(rng.integers(1, 4))):
            for i, (t, v) in enumerate(zip(where.tolist(), values.tolist(), strict=True)):
                other = valued and member == 2 and i == 0
                entries[t].append((a, 4.0 if other else v))
            a += 1
    for e in entries:
        rng.shuffle(e)  # type: ignore[arg-type]
    return problem_of(entries, [13, 0, 20, 7], a, seed)


def groups_by_comparison(problem: Problem) -> dict[int, tuple[int, ...]]:
    """The attributes that occur at the same tokens with the same values as each."""
    tokens = problem.tokens
    where: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for t in range(len(tokens.row) - 1):
        for i in range(tokens.row[t], tokens.row[t + 1]):
            where[int(tokens.attribute[i])].append((t, float(tokens.value[i]) if len(tokens.value) else 1.0))
    members: dict[Any, list[int]] = defaultdict(list)
    for a in range(len(problem.pairs.start) - 1):
        members[tuple(sorted(where[a]))].append(a)
    return {a: tuple(own) for own in members.values() for a in own}


def pair_of(problem: Problem) -> Iterator[tuple[int, int, int]]:
    """Each pair with its attribute and label."""
    start, label, _ = problem.pairs
    for a in range(len(start) - 1):
        for p in range(start[a], start[a + 1]):
            yield p, a, int(label[p])


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_groups_are_those_found_by_comparison(seed: int, valued: bool) -> None:
    problem = with_groups(seed, valued)
    (fewer, few), groups = joined(problem), groups_by_comparison(problem)
    assert len(fewer.pairs.start) - 1 == len(set(groups.values())) < len(groups)
    together: dict[tuple[int, int], set[int]] = defaultdict(set)
    for p, a, k in pair_of(problem):
        together[(int(few.pair[p]), k)].add(a)
        assert few.share[p] == pytest.approx(len(groups[a]) ** -0.5)
        assert fewer.pairs.label[few.pair[p]] == k
    assert set(map(frozenset, together.values())) == {frozenset(g) for g in groups.values() if g[0] in _seen(problem)}


def _seen(problem: Problem) -> set[int]:
    return set(problem.tokens.attribute.tolist())


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_objective_is_that_of_the_whole_problem(seed: int, valued: bool) -> None:
    """And so is its gradient: that of a joined weight is √m times that of each of its attributes."""
    problem = with_groups(seed, valued)
    fewer, few = joined(problem)
    flat = np.random.default_rng(seed).normal(size=fewer.n_weights())
    n_few, n_pairs = few.n_pairs, len(problem.pairs.label)
    flat[:n_few] *= fewer.pairs.free
    value, gradient = smooth_objective(fewer, Penalty(0.0, L2, None), 1, flat)
    expected, whole = smooth_objective(problem, Penalty(0.0, L2, None), 1, few.expanded(flat))
    assert value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(gradient[n_few:], whole[n_pairs:], atol=2e-5)
    np.testing.assert_allclose(gradient[few.pair] * few.share, whole[:n_pairs], atol=2e-5)


@pytest.mark.parametrize("valued", [False, True])
def test_the_steps_are_those_of_the_whole_problem(valued: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = with_groups(7, valued)

    def steps() -> list[Any]:
        start = np.zeros(problem.n_weights())
        return list(lbfgs(problem, Penalty(0.0, L2, None), start, n_iter=12, tol=0.0, n_threads=1))

    found = steps()
    monkeypatch.setattr(training, "joined", _not_joined)
    expected = steps()
    assert len(found) == len(expected)
    for now, then in zip(found, expected, strict=True):
        assert now.objective == pytest.approx(then.objective, rel=1e-6)
        np.testing.assert_allclose(now.params, then.params, atol=2e-4)
    assert np.abs(found[-1].params).max() > 0.1


def _not_joined(problem: Problem) -> tuple[Problem, Joined]:
    n = len(problem.pairs.label)
    return problem, Joined(n, np.arange(n), np.ones(n))


def test_a_fit_begun_before_attributes_were_joined_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = with_groups(8, valued=False)

    def steps(n_iter: int, resume_from: Any = None) -> list[Any]:
        start = np.zeros(problem.n_weights())
        return list(lbfgs(problem, Penalty(0.0, L2, None), start, n_iter, 0.0, 1, resume_from))

    with monkeypatch.context() as patched:
        patched.setattr(training, "joined", _not_joined)
        before = steps(4)[-1].state()
        expected = steps(9)[-1]
    np.testing.assert_array_equal(steps(9, before)[-1].params, expected.params)
    half = steps(4)[-1].state()
    np.testing.assert_array_equal(steps(9, half)[-1].params, steps(9)[-1].params)


@pytest.mark.parametrize("settings", [{"l1": 0.5}, {"prior": True}])
def test_nothing_is_joined_where_weights_of_a_group_may_differ(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = with_groups(9, valued=False)

    def refuse(_: Problem) -> tuple[Problem, Joined]:
        raise AssertionError("joined")

    monkeypatch.setattr(training, "joined", refuse)
    start = np.zeros(problem.n_weights())
    centre = np.full(len(start), 0.1) if "prior" in settings else None
    list(lbfgs(problem, Penalty(settings.get("l1", 0.0), L2, centre), start, 3, 0.0, 1))
    start[0] = 0.1  # warm start
    list(lbfgs(problem, Penalty(0.0, L2, None), start, 3, 0.0, 1))
