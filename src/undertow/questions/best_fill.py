"""The most probable words of several gaps together, found with proof by a best-first search.

The probability of a filled text sums over state paths, so the maximum over words does not factor along the chain: in
general it is NP-hard. Gaps are filled from left to right. For what is still open the sum and the maximum are exchanged,
max_w Σ_z f(z) p(w | z) ≤ Σ_z f(z) max_w p(w | z), which bounds every completion from above by one backward pass. The
search expands the partial fill with the highest bound, so the first complete one to come up is the best of all.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from undertow.errors import InputError
from undertow.kernels.types import F64, I64
from undertow.questions.evidence import Evidence, Observed, Piece, TextChain, check_possible, observe_pieces
from undertow.questions.evidence import allowed_states as states_of
from undertow.questions.fill import checked_observed, only_fillers

CHILDREN = 32  # of a partial fill that enter the queue at a time
METHODS = ("words", "path")


class JointFill(NamedTuple):
    """The best joint fill of a text.

    Attributes
    ----------
    tokens
        The text with every gap filled.
    log_probability
        Log-probability of these words together, given the evidence.
    proven
        Whether no other fill is more probable; False if the search ended at its limit, or for method="path".
    """

    tokens: list[str]
    log_probability: float
    proven: bool


class PartialFills(Protocol):
    """Fills of the open positions of a text from left to right, and bounds on what they can become."""

    @property
    def where(self) -> list[int]: ...

    def children(self, prefix: tuple[int, ...]) -> F64:
        """(V,) log of a bound on all completions of prefix + (word,); exact for the last open position."""
        ...

    def log_probability(self, words: Sequence[int]) -> float:
        """What `children` says of the last word."""
        ...


def best_fill(chain: TextChain, text: Evidence, method: str, max_expansions: int) -> JointFill:
    """The most probable words of all open positions together."""
    if method not in METHODS:
        raise InputError(f"method={method!r} must be 'words' or 'path'.")
    check_expansions(max_expansions)
    fills = ChainFills(chain, text)
    if method == "path":
        words = fills.path_words()
        value, proven = fills.log_probability(words), False
    else:
        words, value, proven = search(fills, max_expansions)
    return joint_fill(fills, words, value - fills.log_evidence, proven)


def check_expansions(max_expansions: Any) -> None:
    if isinstance(max_expansions, bool) or not isinstance(max_expansions, int | np.integer) or max_expansions < 1:
        raise InputError(f"max_expansions={max_expansions!r} must be a whole number, at least 1.")


def joint_fill(fills: ChainFills, words: Sequence[int], log_probability: float, proven: bool) -> JointFill:
    """The filled text."""
    filled = dict(zip(fills.where, words, strict=True))
    tokens = [
        token if isinstance(token, str) else fills.chain.vocabulary.words[filled.get(t, _known(fills.observed, t))]
        for t, token in enumerate(fills.text.tokens)
    ]
    return JointFill(tokens, min(float(log_probability), 0.0), proven)


def _known(observed: Observed, t: int) -> int:
    words = observed.piece(t).words
    return words if isinstance(words, int) else -1


class ChainFills:
    """The fills of a text under one chain."""

    def __init__(self, chain: TextChain, text: Evidence) -> None:
        self.chain, self.text = chain, text
        self.observed, self.weights = only_fillers(chain, checked_observed(chain, text))
        logs = self.observed.params.filtered(self.observed.ids, self.observed.bounds).log_probabilities
        check_possible(logs, text)
        self.log_evidence = float(logs.sum())
        self.where = sorted(self.weights)
        weights, observed = self.weights, self.observed
        self.largest = {t: chain.params.largest_emission(weights[t]) for t in self.where}
        self.allowed = {t: states_of(chain, observed.piece(t)) for t in self.where}
        self.ahead = self._bounds_ahead()

    def _with(self, likelihoods: dict[int, Any]) -> Observed:
        """The evidence with other likelihoods at some positions."""
        pieces, ids, rows = list(self.observed.pieces), self.observed.ids.copy(), {}
        for t, row in likelihoods.items():
            ids[t] = len(pieces)
            rows[len(pieces)] = row
            pieces.append(Piece(None))
        rows |= {int(i): np.zeros(self.chain.params.n_states) for i in self.observed.ids if int(i) not in set(ids)}
        return observe_pieces(self.chain, pieces, ids, self.observed.bounds, rows)

    def _upper(self) -> Observed:
        return self._with({t: np.where(self.allowed[t], np.maximum(self.largest[t][0], 0), 0) for t in self.where})

    def _bounds_ahead(self) -> dict[int, tuple[float, Any]]:
        """For each open position (log scale, (Z,) bound on what follows it given its state)."""
        upper = self._upper()
        messages, out = upper.params.messages(upper.ids, upper.bounds), {}
        for t in self.where:
            if t + 1 == len(upper.ids):
                out[t] = 0.0, np.ones(self.chain.params.n_states)
            else:
                message = messages.values[messages.at[t + 1] : messages.at[t + 2]]
                pulled = upper.params.pulled(int(upper.ids[t + 1]), message)
                out[t] = float(messages.log_scale[t + 1]), pulled.astype(np.float64)
        return out

    def _row(self, t: int, word: int) -> F64:
        one = np.zeros(self.chain.params.n_words)
        one[word] = self.weights[t][word]
        return np.where(self.allowed[t], self.chain.params.weighted_emission(one), 0.0)

    def children(self, prefix: tuple[int, ...]) -> F64:
        """(V,) log of the bound on all completions of prefix + (word,); exact for the last open position."""
        t = self.where[len(prefix)]
        log_p, pred = 0.0, np.asarray(self.chain.params.initial, dtype=np.float64)
        if t:
            filled = self._with({p: self._row(p, w) for p, w in zip(self.where, prefix, strict=False)})
            ids = filled.ids[:t]
            posterior = filled.params.filtered(ids, np.array([0, t]))
            log_p = float(posterior.log_probabilities.sum())
            last = np.ascontiguousarray(posterior.values[posterior.at[-2] : posterior.at[-1]])
            pred = filled.params.predicted(int(ids[-1]), last).astype(np.float64)
        log_scale, ahead = self.ahead[t]
        p = self.chain.params.word_probabilities(np.where(self.allowed[t], pred * ahead, 0.0)) * self.weights[t]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(p) + log_p + log_scale)

    def path_words(self) -> list[int]:
        """The words of the most probable joint path of states and words."""
        upper = self._upper()
        path = upper.params.best_path(upper.ids, upper.bounds)
        return [int(self.largest[t][1][path[t]]) for t in self.where]

    def log_probability(self, words: Sequence[int]) -> float:
        """Joint log-probability of these words and the evidence."""
        filled = self._with({t: self._row(t, w) for t, w in zip(self.where, words, strict=True)})
        return float(filled.params.filtered(filled.ids, filled.bounds).log_probabilities.sum())


def search(fills: PartialFills, most: int) -> tuple[list[int], float, bool]:
    """(words, their log-probability, whether it is proven best), after at most so many partial fills."""
    if not fills.where:
        return [], fills.log_probability([]), True
    number = itertools.count()  # breaks ties, so that the queue never compares prefixes
    queue: list[tuple[float, int, tuple[int, ...], int]] = [(-np.inf, next(number), (), 0)]
    best: tuple[float, tuple[int, ...]] = (-np.inf, ())
    for _ in range(most):
        bound, _, prefix, skip = heapq.heappop(queue)
        if -bound <= best[0]:
            return list(best[1]), best[0], True
        scores = fills.children(prefix)
        if len(prefix) + 1 == len(fills.where):
            word = int(np.argmax(scores))
            best = max(best, (float(scores[word]), (*prefix, word)))
        else:
            order = _largest(scores, skip, CHILDREN + 1)
            for word in order[:CHILDREN].tolist():
                if scores[word] > best[0]:
                    heapq.heappush(queue, (-float(scores[word]), next(number), (*prefix, word), 0))
            if len(order) > CHILDREN and scores[order[-1]] > best[0]:
                again = (-float(scores[order[-1]]), next(number), prefix, skip + CHILDREN)
                heapq.heappush(queue, again)
        if not queue:
            return list(best[1]), best[0], True
    words = best[1] or _greedy(fills)
    return list(words), fills.log_probability(words), False


def _greedy(fills: PartialFills) -> tuple[int, ...]:
    prefix: tuple[int, ...] = ()
    while len(prefix) < len(fills.where):
        prefix = (*prefix, int(np.argmax(fills.children(prefix))))
    return prefix


def _largest(scores: F64, skip: int, n: int) -> I64:
    """The words with the largest scores, from place `skip` on; −inf is none. Equal scores stay in their order."""
    possible = np.flatnonzero(scores > -np.inf)
    if len(possible) > 4 * (skip + n):
        cut = np.partition(scores[possible], len(possible) - (skip + n))[len(possible) - (skip + n)]
        possible = possible[scores[possible] >= cut]
    return possible[np.argsort(-scores[possible], kind="stable")][skip : skip + n]


__all__ = ["JointFill"]
