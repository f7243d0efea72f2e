"""A small network over the dense numbers of tokens, whose scores a CRF adds to its own (a conditional neural field).

    H = tanh(X A + a),   G = tanh([H of the token before, H, H of the token after] B + b),   scores = [H, G] C

X (N, d), A (d, k), B (3k, k), C (2k, K) for K labels. Beyond the ends of its sentence a token has no neighbors: their H
is 0. In training some entries of X, H and G are dropped: multiplied by 0, and the others by a number above 1, so that
the mean is the same. What is dropped is drawn by the caller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.types import F32, I64

Array = NDArray[Any]


class TokenNetwork(NamedTuple):
    """The weights of the network.

    Attributes
    ----------
    input, input_bias
        (d, k) and (k,): from the numbers of a token to its first layer, A and a.
    around, around_bias
        (3k, k) and (k,): from the first layers of three tokens to the second one, B and b.
    output
        (2k, K): from both layers to the scores of the labels, C.
    """

    input: F32
    input_bias: F32
    around: F32
    around_bias: F32
    output: F32


class Dropped(NamedTuple):
    """Factors of the entries of X (N, d), H and G (N, k): 0 for those that are dropped."""

    numbers: F32
    first: F32
    second: F32


class Layers(NamedTuple):
    """What the gradient needs of a forward pass: inputs and layers, as they were read."""

    numbers: Array  # (N, d) after dropping
    first: Array  # (N, k) H before dropping
    three: Array  # (N, 3k) of the token before, the token itself and the token after; after dropping
    second: Array  # (N, k) G before dropping


def network_scores(net: TokenNetwork, X: Array, bounds: I64, dropped: Dropped | None = None) -> tuple[Array, Layers]:
    """Scores (N, K) of all tokens, and the layers they come from."""
    read = X if dropped is None else X * dropped.numbers
    first = np.tanh(read @ net.input + net.input_bias)
    kept = first if dropped is None else first * dropped.first
    three = np.concatenate([shifted(kept, bounds, -1), kept, shifted(kept, bounds, 1)], axis=1)
    second = np.tanh(three @ net.around + net.around_bias)
    above = second if dropped is None else second * dropped.second
    k = first.shape[1]
    return kept @ net.output[:k] + above @ net.output[k:], Layers(read, first, three, second)


def network_gradient(
    net: TokenNetwork, layers: Layers, excess: Array, bounds: I64, dropped: Dropped | None = None
) -> TokenNetwork:
    """The gradient of a loss by all weights, given that by the scores (N, K)."""
    k = layers.first.shape[1]
    kept = layers.three[:, k : 2 * k]
    above = layers.second if dropped is None else layers.second * dropped.second
    to_second = excess @ net.output[k:].T
    if dropped is not None:
        to_second *= dropped.second
    to_second *= 1 - layers.second**2
    to_three = to_second @ net.around.T
    to_first = excess @ net.output[:k].T + to_three[:, k : 2 * k]
    to_first += shifted(to_three[:, :k], bounds, 1) + shifted(to_three[:, 2 * k :], bounds, -1)
    if dropped is not None:
        to_first *= dropped.first
    to_first *= 1 - layers.first**2
    return TokenNetwork(
        layers.numbers.T @ to_first,
        to_first.sum(axis=0),
        layers.three.T @ to_second,
        to_second.sum(axis=0),
        np.concatenate([kept.T @ excess, above.T @ excess]),
    )


def shifted(matrix: Array, bounds: I64, offset: int) -> Array:
    """Row t is row t + offset of the same sentence, or 0."""
    if offset == 0:
        return matrix
    out = np.zeros_like(matrix)
    _shift(matrix, bounds, offset, out)
    return out


@njit(cache=True, nogil=True)
def _shift(matrix: Any, bounds: Any, offset: int, out: Any) -> None:
    for s in range(len(bounds) - 1):
        low, high = bounds[s], bounds[s + 1]
        for t in range(max(low, low - offset), min(high, high - offset)):
            out[t] = matrix[t + offset]
