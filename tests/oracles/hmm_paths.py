"""Hidden Markov models by the definition: every state path written down and weighed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

MOST_PATHS = 100_000


class Paths(NamedTuple):
    """All Z^T paths of one sentence; sums are over their joint probabilities with the observations."""

    paths: Any  # (Z^T, T)
    weight: Any  # (Z^T,) joint probability of path and observations
    log_likelihood: float
    gamma: Any  # (T, Z)
    pairs: Any  # (T − 1, Z, Z)
    best_path: Any  # (T,)
    best_log_prob: float


def all_paths(n_states: int, n_steps: int) -> Any:
    assert n_states**n_steps <= MOST_PATHS, "too many paths to write down"
    return np.indices((n_states,) * n_steps).reshape(n_steps, n_states**n_steps).T


def enumerate_paths(initial: Any, transition: Any, obs: Any) -> Paths:
    """obs (T, Z) are the likelihoods p(x_t | z); a missing token is a row of ones."""
    T, Z = np.shape(obs)
    paths = all_paths(Z, T)
    weight = np.array(initial, dtype=float)[paths[:, 0]] * obs[0][paths[:, 0]] if T else np.ones(1)
    for t in range(1, T):
        weight = weight * np.asarray(transition, dtype=float)[paths[:, t - 1], paths[:, t]] * obs[t][paths[:, t]]
    total = weight.sum()
    gamma, pairs = np.zeros((T, Z)), np.zeros((max(T - 1, 0), Z, Z))
    for t in range(T):
        np.add.at(gamma[t], paths[:, t], weight)
        if t:
            np.add.at(pairs[t - 1], (paths[:, t - 1], paths[:, t]), weight)
    with np.errstate(divide="ignore"):
        log_likelihood, best = float(np.log(total)), int(np.argmax(weight))
        best_log_prob = float(np.log(weight[best]))
    if total > 0:
        gamma, pairs = gamma / total, pairs / total
    return Paths(paths, weight, log_likelihood, gamma, pairs, paths[best], best_log_prob)


class JointPaths(NamedTuple):
    """All paths z_1 f_1 z_2 f_2 … z_T of a low-rank chain z → f → z'."""

    z: Any  # (n, T)
    f: Any  # (n, T − 1)
    weight: Any


def enumerate_joint_paths(initial: Any, R: Any, E: Any, obs: Any) -> JointPaths:
    T, Z = np.shape(obs)
    F = np.shape(R)[1]
    assert Z**T * F ** (T - 1) <= MOST_PATHS, "too many paths to write down"
    index = np.indices((Z,) * T + (F,) * (T - 1)).reshape(2 * T - 1, -1).T
    z, f = index[:, :T], index[:, T:]
    weight = initial[z[:, 0]] * obs[0][z[:, 0]]
    for t in range(1, T):
        weight = weight * R[z[:, t - 1], f[:, t - 1]] * E[f[:, t - 1], z[:, t]] * obs[t][z[:, t]]
    return JointPaths(z, f, weight)
