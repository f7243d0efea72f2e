"""A chain whose probabilities are softmaxes of inner products, as plain dense NumPy: the truth for the tied HMM."""

from __future__ import annotations

import numpy as np


def dense_tables(weights, state_block, word_block, spelling):
    """(Z,), (Z, Z), (Z, V) in float64; words in the order of their blocks."""
    leave, block, block_bias, arrive, arrive_bias, emit, word, affix, word_bias, initial = (
        np.asarray(x, dtype=np.float64) for x in weights
    )
    scale = np.sqrt(leave.shape[1])
    next_block = softmax(scale * leave @ block.T + block_bias)
    T = np.zeros((len(leave), len(leave)))
    for b in range(len(block)):
        into = state_block == b
        T[:, into] = next_block[:, [b]] * softmax(scale * leave @ arrive[into].T + arrive_bias[into])
    logits = scale * emit @ (word + spelling @ affix).T + word_bias
    logits[state_block[:, None] != word_block[None, :]] = -np.inf
    return softmax(initial[None])[0], T, softmax(logits)


def softmax(x):
    p = np.exp(x - x.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def log_likelihood(weights, state_block, word_block, spelling, ids, bounds):
    """log p(text) by the forward recursion over all states, one sequence after the other."""
    initial, T, e = dense_tables(weights, state_block, word_block, spelling)
    total = 0.0
    for low, high in zip(bounds[:-1], bounds[1:], strict=True):
        prior = initial
        for t in range(low, high):
            state = prior * e[:, ids[t]]
            total += np.log(state.sum())
            prior = state / state.sum() @ T
    return total
