"""Adam for weights that are a named tuple of arrays, of any float type."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np

Weights = TypeVar("Weights", bound=tuple[Any, ...])  # a named tuple of arrays


class AdamState(NamedTuple):
    """Running means of the gradient and of its square, in the form of the weights, and the number of steps taken."""

    mean: Any
    square: Any
    step: int


def adam_start(net: Any) -> AdamState:
    """Before the first step; the weights are a named tuple of arrays."""
    return AdamState(net._make(map(np.zeros_like, net)), net._make(map(np.zeros_like, net)), 0)


def adam_step(
    net: Weights, gradient: Weights, state: AdamState, rate: float, *, beta1: float = 0.9, beta2: float = 0.999
) -> tuple[Weights, AdamState]:
    """One step of Adam (Kingma and Ba 2015, Algorithm 1, with the two corrections folded into the rate)."""
    make: Any = net._make  # type: ignore[attr-defined]
    step = state.step + 1
    mean = make(beta1 * m + (1 - beta1) * g for m, g in zip(state.mean, gradient, strict=True))
    square = make(beta2 * v + (1 - beta2) * g * g for v, g in zip(state.square, gradient, strict=True))
    rate = rate * float(np.sqrt(1 - beta2**step)) / (1 - beta1**step)
    moved = make(w - rate * m / (np.sqrt(v) + 1e-8) for w, m, v in zip(net, mean, square, strict=True))
    return moved, AdamState(mean, square, step)
