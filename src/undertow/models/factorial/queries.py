"""What a fitted factorial HMM answers beside posteriors, as functions of its arrays: text, and the words of a state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.factorial.words import Emission, FactorialParams, Floats


def state_shares(theta: Floats, counts: NDArray[np.int64]) -> Floats:
    """(V, K) how a word's tokens fall on one layer's states, judged by the layer's own scores θ (V, K) of words alone.

    A state is as frequent as makes all shares agree with it: EM of a mixture with fixed components, a few steps of it.
    """
    scores = np.exp(theta - theta.max(axis=0))
    likelihood = scores / scores.sum(axis=0)  # of the words given the state, as if the other layers said nothing
    weight = np.full(theta.shape[1], 1.0 / theta.shape[1])
    share: Floats = np.empty_like(likelihood)
    for _ in range(20):
        share = likelihood * weight
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
        total = counts @ share
        weight = total / total.sum()
    return share


def filtered_joint(
    ids: NDArray[Any], missing: NDArray[np.bool_], params: FactorialParams, e: Emission, log_norm: Floats
) -> Floats:
    """(K^M,) distribution of the last token's joint state given the words up to it."""
    M, K = params.initial.shape
    joint = np.ones(())
    for m in range(M):
        joint = np.multiply.outer(joint, params.initial[m])
    for t, word in enumerate(ids.tolist()):
        if t:
            for m in range(M):
                joint = np.moveaxis(np.tensordot(joint, params.transition[m], axes=(m, 0)), -1, m)
        if not missing[t]:
            score = -log_norm.reshape((K,) * M)
            for m in range(M):
                score = score + np.log(e.factors[word, m]).reshape((K,) + (1,) * (M - 1 - m))
            joint = joint * np.exp(score - score.max())
        joint = joint / joint.sum()
    return joint.reshape(-1)


def draw_words(
    params: FactorialParams, n: int, states: list[int] | None, boundary: int | None, rng: np.random.Generator
) -> list[int]:
    """n words; `states` are those of the token before, None at the start of a sentence, as after the boundary word."""
    K = params.n_states
    out: list[int] = []
    for _ in range(n):
        rows = params.initial if states is None else [params.transition[m, s] for m, s in enumerate(states)]
        states = [int(rng.choice(K, p=row)) for row in rows]
        scores = params.theta[:, np.arange(params.n_layers), states].sum(axis=1)
        weights = np.exp(scores - scores.max())
        out.append(int(rng.choice(len(weights), p=weights / weights.sum())))
        if out[-1] == boundary:
            states = None
    return out
