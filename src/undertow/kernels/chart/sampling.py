"""Sentences drawn from a grammar, from the start symbol down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chart.grammar import GrammarParams
from undertow.kernels.types import F64

Uniform = Callable[[], float]  # the next number in [0, 1)


class SamplingTables(NamedTuple):
    """Cumulative distributions along rows; words are cumulated when drawn, as their table may be large."""

    start: F64
    rules: F64
    left: F64
    right: F64
    emission: NDArray[Any]  # (V, m) p(word | preterminal)
    drawable: NDArray[np.bool_]  # (V,) the words that may be drawn; their probabilities are rescaled


def sampling_tables(p: GrammarParams, drawable: NDArray[np.bool_]) -> SamplingTables:
    start, rules, left, right = (np.cumsum(x, axis=-1, dtype=np.float64) for x in p[:4])
    return SamplingTables(start, rules, left, right, p.emission, drawable)


def sample_sentence(tables: SamplingTables, uniform: Uniform, most: int) -> list[int] | None:
    """The words of a sentence, at most `most` of them, or None if the sentence drawn would be longer."""
    n = len(tables.rules)
    words: list[int] = []
    stack = [_draw(tables.start, uniform)]
    while stack:
        if len(words) + len(stack) > most:  # each open symbol gives at least a word
            return None
        symbol = stack.pop()
        if symbol >= n:
            p = np.where(tables.drawable, tables.emission[:, symbol - n], 0)
            words.append(_draw(np.cumsum(p, dtype=np.float64), uniform))
            continue
        feature = _draw(tables.rules[symbol], uniform)
        left = _draw(tables.left[feature], uniform)
        stack += [_draw(tables.right[feature], uniform), left]
    return words


def _draw(cumulated: F64, uniform: Uniform) -> int:
    x = uniform() * cumulated[-1]
    return min(int(np.searchsorted(cumulated, x, side="right")), len(cumulated) - 1)


__all__ = ["SamplingTables", "sample_sentence", "sampling_tables"]
