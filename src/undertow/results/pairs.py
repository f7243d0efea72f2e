"""The word pairs with the most mutual information at a lag."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from undertow.errors import InputError
from undertow.tables import Table
from undertow.text.lag_counts import LagCounts


class Pair(NamedTuple):
    """A pair of words at a lag k: `second` came k tokens after `first`, `times` times.

    `gain` is the pair's share in the mutual information.
    """

    first: str
    second: str
    times: int
    gain: float


def strongest_pairs(
    counts: LagCounts, k: int, n: int = 20, *, min_count: int = 5, word: str | None = None
) -> Table[Pair]:
    """The n pairs at lag k with the largest share c/N · log(c N / (a b)) of the mutual information.

    a and b are how often the two words stand second and first in a pair. With `word`, only pairs that hold it. Special
    words are left out.
    """
    matrix = counts.matrix(k).tocoo()
    total = int(matrix.data.sum())
    if total == 0:
        return Table(Pair)
    n_words = len(counts.vocabulary)
    second = np.bincount(matrix.row, weights=matrix.data, minlength=n_words)
    first = np.bincount(matrix.col, weights=matrix.data, minlength=n_words)
    n_special = counts.vocabulary.n_special
    keep = (matrix.data >= min_count) & (matrix.row >= n_special) & (matrix.col >= n_special)
    if word is not None:
        if word not in counts.vocabulary:
            raise InputError(f"The word {word!r} is not in the vocabulary.")
        chosen = counts.vocabulary.id(word)
        keep &= (matrix.row == chosen) | (matrix.col == chosen)
    row, col, data = matrix.row[keep], matrix.col[keep], matrix.data[keep]
    gain = data / total * np.log(data * (total / (second[row] * first[col])))
    best = np.argsort(-gain, kind="stable")[:n]
    words = counts.vocabulary.words
    return Table(Pair, (Pair(words[col[e]], words[row[e]], int(data[e]), float(gain[e])) for e in best))
