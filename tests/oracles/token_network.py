"""The network of a CRF, token by token and unit by unit, and its gradient by differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undertow.kernels.chain.token_network import Dropped, TokenNetwork


def scores_by_tokens(net: TokenNetwork, X: Any, bounds: Any, dropped: Dropped | None = None) -> Any:
    """(N, K) scores, by the definition."""
    k, K = len(net.input_bias), net.output.shape[1]
    n = len(X)
    x, first, second = (np.ones((n, w)) if dropped is None else dropped[i] for i, w in enumerate((X.shape[1], k, k)))

    def layer(t: int) -> list[float]:
        return [
            first[t, u]
            * math.tanh(net.input_bias[u] + sum(X[t, i] * x[t, i] * net.input[i, u] for i in range(X.shape[1])))
            for u in range(k)
        ]

    out = np.zeros((n, K))
    for low, high in zip(bounds, bounds[1:], strict=False):
        for t in range(low, high):
            three = [layer(s) if low <= s < high else [0.0] * k for s in (t - 1, t, t + 1)]
            read = [v for one in three for v in one]
            above = [
                second[t, u] * math.tanh(net.around_bias[u] + sum(read[i] * net.around[i, u] for i in range(3 * k)))
                for u in range(k)
            ]
            out[t] = np.array([*three[1], *above]) @ net.output
    return out


def gradient_by_differences(net: TokenNetwork, X: Any, bounds: Any, excess: Any, dropped: Dropped | None) -> Any:
    """The gradient of Σ excess · scores by every weight."""
    out = []
    for name, weights in net._asdict().items():
        slope = np.zeros(weights.shape)
        for at in np.ndindex(weights.shape):
            values = []
            for step in (-1e-5, 1e-5):
                moved = weights.copy()
                moved[at] += step
                moved_net = net._replace(**{name: moved})
                values.append(float((excess * scores_by_tokens(moved_net, X, bounds, dropped)).sum()))
            slope[at] = (values[1] - values[0]) / 2e-5
        out.append(slope)
    return TokenNetwork(*out)
