"""The running total of incremental EM against the plain sum of the latest statistics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from undertow.models.incremental import IncrementalStats


class Inner(NamedTuple):
    pairs: NDArray[np.float64]


class Counts(NamedTuple):
    log_likelihood: float
    n_tokens: int
    words: NDArray[np.float64]
    inner: Inner


def counts(rng: np.random.Generator) -> Counts:
    return Counts(
        float(rng.normal()), int(rng.integers(50)), rng.gamma(0.3, size=7), Inner(rng.gamma(0.3, size=(3, 4)))
    )


def assert_is_sum(total: Counts, parts: list[Counts]) -> None:
    assert isinstance(total, Counts) and isinstance(total.inner, Inner)
    assert total.n_tokens == sum(p.n_tokens for p in parts)
    assert_allclose(total.log_likelihood, sum(p.log_likelihood for p in parts), rtol=1e-12, atol=1e-12)
    assert_allclose(total.words, sum(p.words for p in parts), rtol=1e-5)
    assert_allclose(total.inner.pairs, sum(p.inner.pairs for p in parts), rtol=1e-5)
    assert total.words.dtype == total.inner.pairs.dtype == np.float64


def test_the_total_is_the_sum_of_the_latest_statistics() -> None:
    rng, running = np.random.default_rng(0), IncrementalStats[Counts](4)
    latest: dict[int, Counts] = {}
    for step in range(40):
        batch = step % 4 if step < 8 else int(rng.integers(4))
        latest[batch] = counts(rng)
        assert running.complete == (step >= 4)
        assert_is_sum(running.replace(batch, latest[batch]), list(latest.values()))


def test_errors_do_not_build_up() -> None:
    """Huge statistics come and go, and nothing of them stays: what is subtracted is what was added."""
    rng, running = np.random.default_rng(1), IncrementalStats[Counts](2)
    small = counts(rng)
    running.replace(0, small)
    for _ in range(200):
        huge = counts(rng)
        running.replace(1, huge._replace(words=huge.words * 1e6))
    zero = small._replace(words=np.zeros(7))
    assert_allclose(running.replace(1, zero).words, small.words, rtol=1e-6, atol=1e-6)


def test_what_is_given_is_not_changed_and_counts_stay_non_negative() -> None:
    rng, running = np.random.default_rng(2), IncrementalStats[Counts](2)
    given = [counts(rng) for _ in range(6)]
    before = [(c.words.copy(), c.inner.pairs.copy()) for c in given]
    for i, c in enumerate(given):
        assert (running.replace(i % 2, c).words >= 0).all()
    for c, (words, pairs) in zip(given, before, strict=True):
        assert_array_equal(c.words, words)
        assert_array_equal(c.inner.pairs, pairs)


def test_a_single_batch_is_its_own_total() -> None:
    rng, running = np.random.default_rng(3), IncrementalStats[Counts](1)
    assert not running.complete
    for _ in range(2):
        stats = counts(rng)
        assert running.replace(0, stats) is stats and running.complete
