"""Every fill of the gaps of a text under an LDS, with the state of each gap from one dense joint Gaussian.

A known word is an observation y = N⁻¹ row of the state itself with noise N⁻¹ − M (lds.md §2 written out for N = C'C
that has an inverse), so the states of a text are one Gaussian vector, conditioned at once and not step by step.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


def state_given(words: list[int | None], params: Any, rows: Any, stationary: Any) -> tuple[Any, Any]:
    """Means (T, h) and covariances (T, h, h) of the states, given the words that are not None."""
    A, T, h = params.A, len(words), len(params.A)
    prior = np.zeros((T * h, T * h))
    for a, b in itertools.product(range(T), repeat=2):
        block = np.linalg.matrix_power(A, abs(a - b)) @ stationary
        prior[a * h : (a + 1) * h, b * h : (b + 1) * h] = block if a >= b else block.T
    known = [t for t, w in enumerate(words) if w is not None]
    N = params.C.T @ params.C
    look = np.zeros((len(known) * h, T * h))
    for i, t in enumerate(known):
        look[i * h : (i + 1) * h, t * h : (t + 1) * h] = np.eye(h)
    y = np.concatenate([np.linalg.solve(N, rows[words[t]]) for t in known]) if known else np.empty(0)
    noise = np.kron(np.eye(len(known)), np.linalg.inv(N) - params.M)
    gain = prior @ look.T @ np.linalg.inv(look @ prior @ look.T + noise)
    cov = prior - gain @ look @ prior
    return (gain @ y).reshape(T, h), np.stack([cov[t * h : (t + 1) * h, t * h : (t + 1) * h] for t in range(T)])


def all_fills(
    words: list[int | None], gaps: list[int], allowed: Any, params: Any, rows: Any, stationary: Any, word_model: Any
) -> dict[tuple[int, ...], float]:
    """p(fill) of every way to fill the gaps, the product of what the word model says of each in turn."""
    out = {}
    for fill in itertools.product(np.flatnonzero(allowed).tolist(), repeat=len(gaps)):
        text, p = list(words), 1.0
        for gap, word in zip(gaps, fill, strict=True):
            mean, _ = state_given(text, params, rows, stationary)
            distribution = np.where(allowed, word_model(mean[gap]), 0.0)
            p *= distribution[word] / distribution.sum()
            text[gap] = word
        out[fill] = p
    return out
