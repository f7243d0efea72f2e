"""A low-rank probabilistic context-free grammar as arrays, and its form in the space of the features.

Symbols are numbered 0..n−1 (nonterminals) and n..n+m−1 (preterminals). A derivation draws a start symbol; a nonterminal
draws one of r features, and the feature draws its left and its right child independently; a preterminal draws a word.
Written out, p(A → B C) = Σ_f u_Af v_fB w_fC.

Inference never touches the symbols of a span. With V̂ = v_N u and Ŵ = w_N u (r, r), where v_N are the columns of the
nonterminals, the vector G of a span (the probability of its words given the feature of its root) is enough: L = V̂ G is
the probability of the words as the left child of each feature, R = Ŵ G as the right child. Words enter by L and R too,
one row a word. So a sentence of N words costs O(N³ r + N² r²), whatever the number of symbols.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain.smoothing import check_rows
from undertow.kernels.types import F64, I64

NEWTON_STEPS = 100  # of the termination probabilities; a critical grammar needs about 50, others fewer than 10


class GrammarParams(NamedTuple):
    """The distributions of a grammar with n nonterminals, m preterminals, r features and V words."""

    start: NDArray[Any]  # (n + m,) symbol of the whole sentence; a preterminal gives a sentence of one word
    rules: NDArray[Any]  # (n, r) u: feature of a nonterminal's rule
    left: NDArray[Any]  # (r, n + m) v: left child of a feature
    right: NDArray[Any]  # (r, n + m) w: right child of a feature
    emission: NDArray[Any]  # (V, m) p(word | preterminal), columns sum to one

    @property
    def n_nonterminals(self) -> int:
        return len(self.rules)

    @property
    def rank(self) -> int:
        return int(self.rules.shape[1])

    @property
    def n_preterminals(self) -> int:
        return int(self.emission.shape[1])

    @property
    def n_words(self) -> int:
        return len(self.emission)


def check_params(p: GrammarParams) -> None:
    """Raise InputError unless all that should be distributions are."""
    check_rows(p.start[None, :], "start distribution")
    check_rows(p.rules, "rules")
    check_rows(p.left, "left children")
    check_rows(p.right, "right children")
    check_rows(p.emission, "emission", axis=0)


class RankSpace(NamedTuple):
    """The grammar as the charts use it: features instead of symbols, and the words of one text as their leaves."""

    to_left: NDArray[Any]  # (r, r) V̂' : G @ to_left is L
    to_right: NDArray[Any]  # (r, r) Ŵ'
    top: NDArray[Any]  # (r,) start_N u: probability of the feature of a sentence's root
    word_left: NDArray[Any]  # (words, r) L of a single word
    word_right: NDArray[Any]  # (words, r) R
    word_top: NDArray[Any]  # (words,) probability of the word as a whole sentence


def rank_space(p: GrammarParams, words: NDArray[Any], *, gap: bool = False, dtype: Any = np.float32) -> RankSpace:
    """The charts' form of a grammar for these words; with `gap` a last row stands for a token that may be any word."""
    n = p.n_nonterminals
    start, rules, left, right = (np.asarray(x, dtype=dtype) for x in (p.start, p.rules, p.left, p.right))
    emission = np.asarray(p.emission[words], dtype=dtype)
    if gap:
        emission = np.concatenate([emission, np.ones((1, p.n_preterminals), dtype=dtype)])
    return RankSpace(
        np.ascontiguousarray((left[:, :n] @ rules).T),
        np.ascontiguousarray((right[:, :n] @ rules).T),
        start[:n] @ rules,
        emission @ left[:, n:].T,
        emission @ right[:, n:].T,
        emission @ start[n:],
    )


class Termination(NamedTuple):
    """The probability that a derivation terminates: all are one in a consistent grammar."""

    left: F64  # (r,) of the left child of each feature
    right: F64  # (r,)
    total: float  # of a sentence


def termination(p: GrammarParams) -> Termination:
    """The least solution of g = (V̂ g + a) ∘ (Ŵ g + b), by Newton's method from zero, which converges from below."""
    space = rank_space(p, np.empty(0, dtype=np.int64), gap=True, dtype=np.float64)
    V, W, a, b = space.to_left.T, space.to_right.T, space.word_left[0], space.word_right[0]
    g, one = np.zeros(len(a)), np.eye(len(a))
    for _ in range(NEWTON_STEPS):
        left, right = V @ g + a, W @ g + b
        rest = left * right - g
        if rest.max(initial=0.0) <= 1e-15:
            break
        try:
            step = np.linalg.solve(one - right[:, None] * V - left[:, None] * W, rest)
        except np.linalg.LinAlgError:  # exactly critical
            step = rest
        g = np.clip(g + np.where(step >= 0, step, 0.0), 0.0, 1.0)
    left, right = np.minimum(V @ g + a, 1.0), np.minimum(W @ g + b, 1.0)
    return Termination(left, right, min(float(space.top @ g + space.word_top[0]), 1.0))


def batches_by_length(lengths: NDArray[Any], rank: int, most_floats: int) -> list[I64]:
    """Sentences of equal length in batches whose chart has at most `most_floats` numbers a table, the longest first.

    Sentences of one batch are in their order; empty ones are in none. The batches depend on the lengths and the rank
    alone, so that sums over them are always taken in the same order.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    edges = np.flatnonzero(np.diff(lengths[order], prepend=-1, append=-1))
    batches = []
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        n = int(lengths[order[begin]])
        if n == 0:
            continue
        size = max(1, most_floats // (rank * n * (n + 1) // 2))
        batches += [order[at : min(at + size, end)] for at in range(begin, end, size)]
    return batches


__all__ = [
    "GrammarParams",
    "RankSpace",
    "Termination",
    "batches_by_length",
    "check_params",
    "rank_space",
    "termination",
]
