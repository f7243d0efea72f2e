"""Small random grammars, and charts of sentences under them."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles.grammar_trees import GAP
from undertow.kernels.chart.grammar import GrammarParams, rank_space
from undertow.kernels.chart.inside import inside


def grammar(
    seed: int, n: int = 2, m: int = 2, r: int = 2, V: int = 3, *, zeros: bool = False, deep: float = 0.3
) -> GrammarParams:
    """A random grammar, with some zeros if told so; `deep` is the share of children that are nonterminals."""
    rng = np.random.default_rng(seed)

    def rows(k: int, s: int) -> Any:
        table = rng.dirichlet(np.full(s, 0.7), k)
        if zeros:
            table *= rng.random(table.shape) < 0.7
            table[table.sum(axis=1) == 0] = 1
            table /= table.sum(axis=1, keepdims=True)
        return table

    def children() -> Any:
        return np.hstack([deep * rows(r, n), (1 - deep) * rows(r, m)])

    start = np.concatenate([0.8 * rows(1, n)[0], 0.2 * rows(1, m)[0]])
    return GrammarParams(start, rows(n, r), children(), children(), np.ascontiguousarray(rows(m, V).T))


def chart_of(p: GrammarParams, *sentences: list[int], dtype: Any = np.float64) -> Any:
    """The space with a row for every word and the gap, and the chart of sentences of equal length."""
    space = rank_space(p, np.arange(p.n_words), gap=True, dtype=dtype)
    words = np.array(sentences)
    words[words == GAP] = p.n_words
    return space, inside(words, space), words
