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


def stationary(T: Any, initial: Any) -> Any:
    """(Z,) where the chain is after very many steps, half of which it stays where it is."""
    return initial @ np.linalg.matrix_power((T + np.eye(len(T))) / 2, 2**14)


def telling_steps(T: Any, share: Any, n: int) -> list[tuple[float, float, int, int]]:
    """(what it tells, T[z, z'], z, z') of the n steps with the largest p(z)T(z, z') log T(z, z')/p(z')."""
    steps = []
    for z, z_next in np.ndindex(T.shape):
        p = T[z, z_next]
        told = share[z] * p * np.log(p / share[z_next]) if p > 0 and share[z_next] > 0 else 0.0
        steps.append((float(told), float(p), z, z_next))
    return sorted(steps, key=lambda s: (-s[0], s[2], s[3]))[:n]


def block_masses(T: Any, first: Any) -> Any:
    """(Z, G) probability of each block after each state."""
    return np.array([[T[z, a:b].sum() for a, b in itertools.pairwise(first)] for z in range(len(T))])


def text_probabilities(initial: Any, T: Any, E: Any, n: int) -> Any:
    """(V,)*n probabilities of all texts of n words, one word index after the other."""
    V = E.shape[1]
    out = np.empty((V,) * n)
    for text in itertools.product(range(V), repeat=n):
        alpha = initial * E[:, text[0]]
        for w in text[1:]:
            alpha = (alpha @ T) * E[:, w]
        out[text] = alpha.sum()
    return out
