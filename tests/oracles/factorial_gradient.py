"""The M-step of a factorial HMM's word weights by a general optimizer: iterative scaling must agree with it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from oracles.factorial_product import joint_states, sizes_in


def word_objective(theta: Any, words: Any, visits: Any) -> float:
    """Σ words·θ − Σ_s visits log Z(s): the part of the expected log-likelihood that depends on θ."""
    M, exists = theta.shape[1], theta > -np.inf
    log_norm = [logsumexp(sum(theta[:, m, s[m]] for m in range(M))) for s in joint_states(sizes_in(theta))]
    return float((words[exists] * theta[exists]).sum() - visits @ np.array(log_norm))


def word_gradient(theta: Any, words: Any, visits: Any) -> Any:
    """Counted minus expected tokens of each word in each state of each layer."""
    M = theta.shape[1]
    out = np.array(words, dtype=np.float64)
    for s, n in zip(joint_states(sizes_in(theta)), visits, strict=True):
        scores = sum(theta[:, m, s[m]] for m in range(M))
        p = np.exp(scores - logsumexp(scores))
        for m in range(M):
            out[:, m, s[m]] -= n * p
    return out


def maximize_words(words: Any, visits: Any, theta: Any, l2: float = 1e-5, max_iter: int = 400) -> Any:
    """θ by L-BFGS on the objective per token with an L2 penalty."""
    n = visits.sum()

    def loss_and_gradient(x: Any) -> tuple[float, Any]:
        at = x.reshape(theta.shape)
        loss = -word_objective(at, words, visits) / n + 0.5 * l2 * float(x @ x)
        return loss, (-word_gradient(at, words, visits) / n).reshape(-1) + l2 * x

    found = minimize(loss_and_gradient, theta.reshape(-1), jac=True, method="L-BFGS-B", options={"maxiter": max_iter})
    return found.x.reshape(theta.shape)
