"""A chain whose probabilities are softmaxes of inner products, as plain dense NumPy: the truth for the tied HMM."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence

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


def left_out_shares(ids: Sequence[int], n_words: int, n_special: int, n_parts: int) -> list[float]:
    """Share of each word's tokens that new text lacks, token by token: each part of a text is left out in turn."""
    edges = [int(i * len(ids) / n_parts) for i in range(n_parts + 1)]
    parts = [Counter(w for w in ids[a:b] if w >= n_special) for a, b in itertools.pairwise(edges)]
    whole = sum(parts, Counter())
    least = min(whole.values())
    found: dict[int, int] = defaultdict(int)
    expected: dict[int, float] = defaultdict(float)
    for left_out in parts:
        for word, total in whole.items():
            others = total - left_out[word]
            if others >= least:
                j = sum(word in part for part in parts if part is not left_out)
                found[j] += left_out[word]
                expected[j] += others / (n_parts - 1)
    out = [0.0] * n_words
    for word in whole:
        j = min(sum(word in part for part in parts), n_parts - 1)
        out[word] = min(max(0.0, 1 - (found[j] + 1) / (expected[j] + 1)), 0.9)
    return out
