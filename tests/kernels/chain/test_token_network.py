"""The network of a CRF against its definition and against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracles.token_network import gradient_by_differences, scores_by_tokens
from undertow.kernels.chain.token_network import (
    Dropped,
    TokenNetwork,
    network_gradient,
    network_scores,
    shifted,
)

BOUNDS = np.array([0, 3, 3, 4, 8])  # one of them empty, one of a single token


def example(seed: int, drop: bool) -> tuple[TokenNetwork, Any, Dropped | None]:
    rng = np.random.default_rng(seed)
    d, k, K, n = 3, 2, 4, int(BOUNDS[-1])
    shapes = ((d, k), (k,), (3 * k, k), (k,), (2 * k, K))
    net = TokenNetwork(*(rng.standard_normal(shape) for shape in shapes))
    masks = Dropped(*(rng.integers(0, 2, (n, w)) * 1.5 for w in (d, k, k))) if drop else None
    return net, rng.standard_normal((n, d)), masks


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_scores_and_gradient_are_those_of_the_definition(seed: int, drop: bool) -> None:
    net, X, dropped = example(seed, drop)
    scores, layers = network_scores(net, X, BOUNDS, dropped)
    np.testing.assert_allclose(scores, scores_by_tokens(net, X, BOUNDS, dropped), rtol=1e-12, atol=1e-12)
    excess = np.random.default_rng(seed + 9).standard_normal(scores.shape)
    found = network_gradient(net, layers, excess, BOUNDS, dropped)
    expected = gradient_by_differences(net, X, BOUNDS, excess, dropped)
    for name in TokenNetwork._fields:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
def test_rows_are_shifted_within_their_sentence(offset: int) -> None:
    matrix = np.arange(16.0).reshape(8, 2) + 1
    found = shifted(matrix, BOUNDS, offset)
    for low, high in zip(BOUNDS, BOUNDS[1:], strict=False):
        for t in range(low, high):
            inside = low <= t + offset < high
            np.testing.assert_array_equal(found[t], matrix[t + offset] if inside else [0, 0])
