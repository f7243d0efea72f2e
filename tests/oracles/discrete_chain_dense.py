"""A hidden Markov chain as plain float64 matrices: the slow obvious truth behind the block kernels."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np


class DenseAnswers(NamedTuple):
    log_probabilities: Any  # (T,)
    filt: Any  # (T, Z)
    smooth: Any  # (T, Z)
    xi: Any  # (Z, Z) summed over time


def dense_answers(ids: Any, initial: Any, T: Any, E: Any) -> DenseAnswers:
    """Unscaled recursions of one short sequence."""
    n = len(ids)
    alpha = [initial * E[:, ids[0]]]
    for t in range(1, n):
        alpha.append((alpha[-1] @ T) * E[:, ids[t]])
    beta = [np.ones(len(T))]
    for t in range(n - 1, 0, -1):
        beta.insert(0, T @ (E[:, ids[t]] * beta[0]))
    evidence = np.array([a.sum() for a in alpha])
    xi = sum(
        (np.outer(alpha[t], E[:, ids[t + 1]] * beta[t + 1]) * T / evidence[-1] for t in range(n - 1)),
        np.zeros_like(T),
    )
    return DenseAnswers(
        np.diff(np.log(evidence), prepend=0.0),
        np.array([a / a.sum() for a in alpha]),
        np.array([a * b / evidence[-1] for a, b in zip(alpha, beta, strict=True)]),
        xi,
    )


def enumerated(ids: Any, initial: Any, T: Any, E: Any) -> tuple[float, Any]:
    """log p(x) and p(z_t | x) by adding up all paths."""
    Z, n = len(T), len(ids)
    total, smooth = 0.0, np.zeros((n, Z))
    for path in itertools.product(range(Z), repeat=n):
        p = initial[path[0]] * E[path[0], ids[0]]
        for t in range(1, n):
            p *= T[path[t - 1], path[t]] * E[path[t], ids[t]]
        total += p
        smooth[np.arange(n), list(path)] += p
    return float(np.log(total)), smooth / total
