from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

from undertow.kernels.chain.alias import CELL, alias_rows, build_row, draw_cell, draw_row, draw_weights


def build_alias(weights):
    cells = np.zeros(len(weights), dtype=CELL)
    build_row(weights, cells)
    return cells


def implied(cells):
    """The distribution that a table stands for: each cell keeps its threshold and gives the rest away."""
    p = cells["threshold"].astype(float)
    np.add.at(p, cells["other"] - 1, 1 - cells["threshold"])
    return p / len(cells)


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_a_table_stands_for_its_distribution(n):
    rng = np.random.default_rng(n)
    weights = rng.gamma(0.3, size=n)
    weights[rng.random(n) < 0.3] = 0
    weights[n // 2] = 1
    assert_allclose(implied(build_alias(weights)), weights / weights.sum(), rtol=1e-4, atol=1e-7)


def test_draws_have_the_right_frequencies():
    rng = np.random.default_rng(0)
    weights = np.array([5.0, 0.0, 1.0, 0.5, 3.5])
    table = build_alias(weights)
    rows = alias_rows(weights[None])
    for draw in (
        lambda u: draw_cell(table, 0, len(weights), u),
        lambda u: draw_row(rows, 0, u),
        lambda u: draw_weights(weights, u),
    ):
        counts = np.bincount([draw(u) for u in rng.random(20_000)], minlength=5)
        assert counts[1] == 0
        assert chisquare(counts[weights > 0], 2_000 * weights[weights > 0]).pvalue > 0.001


def test_rows_are_built_when_they_are_drawn_from():
    weights = np.eye(3, dtype=np.float32)
    tables = alias_rows(weights)
    assert [draw_row(tables, 2, u) for u in (0.0, 0.4, 0.999)] == [2, 2, 2]
    assert_array_equal((tables.cells["other"] > 0).reshape(3, 3).all(axis=1), [False, False, True])
    assert not tables.cells["other"][:6].any()


def test_weights_that_are_all_zero_give_no_draw():
    assert draw_weights(np.zeros(3), 0.5) == -1
    assert draw_weights(np.array([0.0, 1.0, 0.0]), 1 - 1e-16) == 1
    tiny = build_alias(np.full(4, 1e-300))
    assert_allclose(implied(tiny), 0.25, rtol=1e-6)
