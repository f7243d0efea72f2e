"""Context-free grammars by the definition: every derivation of a short sentence written down and weighed.

And a dense twin: inside probabilities with the full table of rules p(A → B C), in n³ per split, for longer sentences.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

GAP = -1  # a token that may be any word

MOST_DERIVATIONS = 300_000


class Node(NamedTuple):
    """A symbol over words begin..end−1; leaves have no feature and no children."""

    symbol: int
    begin: int
    end: int
    feature: int | None = None
    left: Any = None
    right: Any = None

    def walk(self) -> Any:
        yield self
        if self.left is not None:
            yield from self.left.walk()
            yield from self.right.walk()


def derivations(p: Any, words: list[int]) -> list[tuple[float, Node]]:
    """All derivations of the words, with their probabilities; those of probability zero included."""
    n, r, m = len(p.rules), p.rules.shape[1], p.emission.shape[1]

    @cache
    def of_span(i: int, j: int) -> list[tuple[float, Node]]:
        if j - i == 1:
            return [(1.0 if words[i] == GAP else float(p.emission[words[i], t]), Node(n + t, i, j)) for t in range(m)]
        out = []
        for k in range(i + 1, j):
            for (x, left), (y, right) in product(of_span(i, k), of_span(k, j)):
                for f in range(r):
                    children = x * y * float(p.left[f, left.symbol]) * float(p.right[f, right.symbol])
                    out += [(children * float(p.rules[a, f]), Node(a, i, j, f, left, right)) for a in range(n)]
        assert len(out) <= MOST_DERIVATIONS, "too many derivations to write down"
        return out

    return [(float(p.start[root.symbol]) * x, root) for x, root in of_span(0, len(words))]


class Truth(NamedTuple):
    """What all derivations of one sentence come to."""

    probability: float
    counts: dict[str, Any]  # expected counts, by the names of the parameters
    spans: dict[tuple[int, int], float]  # posterior probability of each span
    trees: dict[tuple[tuple[int, int], ...], float]  # posterior probability of each tree, by its sorted spans
    tags: Any  # (N, m) posterior of the preterminal of each word
    best: tuple[float, Node]


def truth(p: Any, words: list[int], allowed: set[tuple[int, int]] | None = None) -> Truth:
    """Of all derivations, or of those all of whose constituents are allowed."""
    found = derivations(p, words)
    if allowed is not None:
        found = [
            (x, root)
            for x, root in found
            if all(node.end - node.begin == 1 or (node.begin, node.end) in allowed for node in root.walk())
        ]
    total = sum(x for x, _ in found)
    n = len(p.rules)
    counts = {name: np.zeros(np.shape(table)) for name, table in p._asdict().items()}
    spans: dict[tuple[int, int], float] = defaultdict(float)
    trees: dict[tuple[tuple[int, int], ...], float] = defaultdict(float)
    tags = np.zeros((len(words), p.emission.shape[1]))
    for x, root in found:
        if x == 0:
            continue
        weight = x / total
        counts["start"][root.symbol] += weight
        nodes = list(root.walk())
        trees[tuple(sorted((node.begin, node.end) for node in nodes))] += weight
        for node in nodes:
            spans[node.begin, node.end] += weight
            if node.feature is None:
                tags[node.begin, node.symbol - n] += weight
                if words[node.begin] != GAP:
                    counts["emission"][words[node.begin], node.symbol - n] += weight
            else:
                counts["rules"][node.symbol, node.feature] += weight
                counts["left"][node.feature, node.left.symbol] += weight
                counts["right"][node.feature, node.right.symbol] += weight
    return Truth(total, counts, dict(spans), dict(trees), tags, max(found, key=lambda d: d[0]))


def all_trees(i: int, j: int) -> list[tuple[tuple[int, int], ...]]:
    """The spans of every binary tree over words i..j−1."""
    if j - i == 1:
        return [((i, j),)]
    return [((i, j), *left, *right) for k in range(i + 1, j) for left in all_trees(i, k) for right in all_trees(k, j)]


# --- the dense twin -------------------------------------------------------------------------------------


def dense_rules(p: Any) -> Any:
    """(n, n + m, n + m) p(A → B C)."""
    return np.einsum("af,fb,fc->abc", *(np.asarray(x, dtype=float) for x in (p.rules, p.left, p.right)))


def dense_inside(p: Any, words: list[int]) -> float:
    """The probability of a sentence, by CYK over symbols with the table of all rules."""
    rules, (n, s) = dense_rules(p), (len(p.rules), len(p.start))
    N = len(words)
    table = np.zeros((N, N + 1, s))
    for i, word in enumerate(words):
        table[i, i + 1, n:] = 1.0 if word == GAP else p.emission[word]
    for w in range(2, N + 1):
        for i in range(N - w + 1):
            for k in range(i + 1, i + w):
                table[i, i + w, :n] += np.einsum("abc,b,c->a", rules, table[i, k], table[k, i + w])
    return float(np.asarray(p.start, dtype=float) @ table[0, N])


def prefix_probability(p: Any, words: list[int], most: int) -> float:
    """Of all sentences of at most `most` words that begin with these."""
    return sum(dense_inside(p, [*words, *[GAP] * more]) for more in range(most - len(words) + 1))


def right_linear(initial: Any, transition: Any, emission: Any, stop: float) -> Any:
    """The grammar of a hidden Markov chain that ends after each word with probability `stop`.

    Nonterminal z derives what a chain in state z emits, if that is two words or more: A_z → T_z A_z' or T_z T_z', where
    T_z emits as state z does. Arrays in the order of a grammar's parameters.
    """
    Z = len(initial)
    rules, left, right = (
        np.eye(Z),
        np.hstack([np.zeros((Z, Z)), np.eye(Z)]),
        np.hstack([(1 - stop) * transition, stop * transition]),
    )
    start = np.concatenate([(1 - stop) * initial, stop * initial])
    return start, rules, left, right, emission
