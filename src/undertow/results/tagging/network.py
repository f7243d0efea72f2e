"""A classifier with one hidden layer: pure functions of arrays, any float type.

    H = max(0, X W1 + b1),  p(label | x) = softmax(H W2 + b2)

X (n, d), W1 (d, k), W2 (k, n_labels). The loss is the mean of −log p over the rows, plus alpha/2 (‖W1‖² + ‖W2‖²).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.kernels.adam import AdamState, adam_step

Array = npt.NDArray[Any]
CHUNK = 1 << 14  # rows at a time, where memory would otherwise grow with the text


class Network(NamedTuple):
    W1: Array
    b1: Array
    W2: Array
    b2: Array


def start(rng: np.random.Generator, d: int, n_hidden: int, n_labels: int) -> Network:
    """Initial weights, uniform as Glorot and Bengio proposed; biases 0."""

    def weights(n_in: int, n_out: int) -> Array:
        bound = np.sqrt(6 / (n_in + n_out))
        return rng.uniform(-bound, bound, (n_in, n_out)).astype(np.float32)

    zeros = [np.zeros(n, dtype=np.float32) for n in (n_hidden, n_labels)]
    return Network(weights(d, n_hidden), zeros[0], weights(n_hidden, n_labels), zeros[1])


def log_probabilities(net: Network, X: Array) -> Array:
    """(n, n_labels) log p(label | x)."""
    H = np.maximum(X @ net.W1 + net.b1, 0)
    return _log_softmax(H @ net.W2 + net.b2)


def _log_softmax(Z: Array) -> Array:
    shifted: Array = Z - Z.max(axis=1, keepdims=True)
    out: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out


def loss_and_gradient(net: Network, X: Array, y: Array, alpha: float) -> tuple[float, Network]:
    n, rows = len(X), np.arange(len(X))
    H = np.maximum(X @ net.W1 + net.b1, 0)
    log_p = _log_softmax(H @ net.W2 + net.b2)
    penalty = alpha / 2 * (float(np.vdot(net.W1, net.W1)) + float(np.vdot(net.W2, net.W2)))
    loss = -float(log_p[rows, y].mean()) + penalty
    dZ = np.exp(log_p)
    dZ[rows, y] -= 1
    dZ /= n
    dH = dZ @ net.W2.T
    dH[H <= 0] = 0
    decay = X.dtype.type(alpha)
    return loss, Network(X.T @ dH + decay * net.W1, dH.sum(axis=0), H.T @ dZ + decay * net.W2, dZ.sum(axis=0))


def epoch(
    net: Network,
    state: AdamState,
    X: Array,
    y: Array,
    order: Array,
    *,
    batch_size: int,
    rate: float,
    alpha: float,
) -> tuple[Network, AdamState]:
    """One pass over the rows in the given order."""
    for at in range(0, len(order), batch_size):
        rows = order[at : at + batch_size]
        _, gradient = loss_and_gradient(net, X[rows], y[rows], alpha)
        net, state = adam_step(net, gradient, state, rate)
    return net, state


def mean_log_likelihood(net: Network, X: Array, y: Array) -> float:
    total = 0.0
    for at in range(0, len(X), CHUNK):
        log_p = log_probabilities(net, X[at : at + CHUNK])
        total += float(log_p[np.arange(len(log_p)), y[at : at + CHUNK]].sum(dtype=np.float64))
    return total / len(X)
