"""The probability that a sentence of a grammar is accepted by a deterministic automaton over classes of words.

G_pq[f] is the probability that what a nonterminal with feature f derives ends, and takes the automaton from state p to
q; L and R likewise for the children of a feature. They are the least solution of

    L = V̂ G + a,   R = Ŵ G + b,   G_pq = Σ_s L_ps ∘ R_sq,

where a and b are the words that lead from p to q. Iterating from zero is a sum over ever deeper trees, so it converges
from below. An infix (a sentence that has these words one after the other somewhere) is one such automaton; so are
prefixes, endings and lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chart.grammar import GrammarParams
from undertow.kernels.types import F64, I64

MOST_STEPS = 20_000
TOLERANCE = 1e-13  # of a probability


def accepted_probability(p: GrammarParams, classes: I64, step: I64, accepting: NDArray[np.bool_]) -> float:
    """The probability of all sentences that the automaton accepts.

    Parameters
    ----------
    p
        The grammar.
    classes
        (V,) the class of each word; words of class −1 are in no sentence.
    step
        (D, S) the state after a word of each class; the first state is the start.
    accepting
        (D,) whether a sentence may end there.
    """
    n, D = p.n_nonterminals, len(step)
    start, u, v, w = (np.asarray(x, dtype=np.float64) for x in (p.start, p.rules, p.left, p.right))
    leaf = _leaves(p.emission, classes, step).reshape(D * D, -1)  # (D², m)
    a, b = leaf @ v[:, n:].T, leaf @ w[:, n:].T
    to_left, to_right, top = (v[:, :n] @ u).T, (w[:, :n] @ u).T, start[:n] @ u
    G, before = np.zeros_like(a), np.inf
    for _ in range(MOST_STEPS):
        L, R = (G @ to_left + a).reshape(D, D, -1), (G @ to_right + b).reshape(D, D, -1)
        new = np.ascontiguousarray(np.matmul(L.transpose(2, 0, 1), R.transpose(2, 0, 1)).transpose(1, 2, 0))
        new = new.reshape(D * D, -1)
        change, G = float((new - G).max()), new
        ratio = change / before if before > 0 else 0.0
        if change <= TOLERANCE * max(1.0 - ratio, TOLERANCE):  # what is still to come is a geometric series
            break
        before = change
    else:
        raise InputError(
            "The sentences of this grammar have no finite mean length, or nearly so, and its sums over trees do not "
            "converge: fit it with more passes, or to more text."
        )
    found = G[:D] @ top + leaf[:D] @ start[n:]  # from the first state
    return float(found[accepting].sum())


def _leaves(emission: NDArray[Any], classes: I64, step: I64) -> F64:
    """(D, D, m) the probability that a preterminal's word leads from one state to another."""
    D, S = step.shape
    per_class = np.zeros((S, emission.shape[1]))
    known = classes >= 0
    np.add.at(per_class, classes[known], np.asarray(emission[known], dtype=np.float64))
    leaf = np.zeros((D, D, emission.shape[1]))
    for s in range(S):
        leaf[np.arange(D), step[:, s]] += per_class[s]
    return leaf


__all__ = ["accepted_probability"]
