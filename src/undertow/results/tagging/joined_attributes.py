"""Attributes of a CRF that always occur together, learned as one.

Most attributes of rare words come in groups: a name that occurs once brings its endings, its shape and its pairs with
the words around it, each of which occurs there alone. By the likelihood and by the squared penalty such attributes are
interchangeable, and as long as all begin at 0 they have the same weights at every step: m weights w of value v act like
one weight √m · w of value √m · v, with the same penalty m · w². So L-BFGS on the joined problem takes the very steps of
the whole one, with fewer entries (a fifth less) and weights (half as many).

That does not hold for a penalty on absolute weights, for weights that begin elsewhere or are pulled elsewhere, for
AdaGrad, or where features are dropped one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from undertow.kernels.chain.crf import Pairs, Problem
from undertow.kernels.types import F64, I64


class Joined(NamedTuple):
    """How to get back from a problem in which attributes that always occur together are one."""

    n_pairs: int  # of the joined problem
    pair: I64  # (P,) the joined pair of each pair of the whole problem
    share: F64  # (P,) 1/√m

    def expanded(self, flat: F64) -> F64:
        """The weights of the whole problem."""
        return np.concatenate([flat[self.pair] * self.share, flat[self.n_pairs :]])


def joined(problem: Problem) -> tuple[Problem, Joined]:
    """The problem with one attribute for each group of those that occur at the same tokens with the same values.

    Groups are told apart by 128 bits of a hash of all that an attribute occurs with.
    """
    tokens, pairs = problem.tokens, problem.pairs
    n = len(pairs.start) - 1
    marks = np.zeros((n, 2), dtype=np.uint64)
    _mark(tokens.row, tokens.attribute, tokens.value, marks)
    _, first, group, size = np.unique(
        marks.view(np.dtype([("a", "u8"), ("b", "u8")])).reshape(-1),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    stays = np.zeros(n, dtype=np.bool_)
    stays[first] = True
    number = np.cumsum(stays) - 1  # of attributes that stay, in the order of the whole problem
    joined_as = number[first[group]].astype(np.int64)
    root = np.sqrt(size[group].astype(np.float64))
    width = np.diff(pairs.start)
    start = np.concatenate(([0], np.cumsum(width[stays]))).astype(np.int64)
    of_pair = np.repeat(np.arange(n), width)
    pair = start[joined_as[of_pair]] + np.arange(len(of_pair)) - pairs.start[of_pair]
    kept_pairs = stays[of_pair]
    few = Pairs(start, pairs.label[kept_pairs], pairs.free[kept_pairs])
    kept = stays[tokens.attribute]
    row = np.zeros_like(tokens.row)
    _count_kept(tokens.row, kept, row)
    attribute = tokens.attribute[kept]
    value = root.astype(np.float32)[attribute]
    if len(tokens.value):
        value *= tokens.value[kept]
    fewer = tokens._replace(row=row, attribute=joined_as.astype(np.int32)[attribute], value=value)
    return problem._replace(tokens=fewer, pairs=few), Joined(len(few.label), pair, 1 / root[of_pair])


@njit(cache=True, nogil=True)
def _count_kept(row: Any, kept: Any, out: Any) -> None:
    """Equivalent to `out[1:] = [kept[:i].sum() for i in row[1:]]`."""
    for t in range(len(row) - 1):
        n = 0
        for i in range(row[t], row[t + 1]):
            n += kept[i]
        out[t + 1] = out[t] + n


@njit(cache=True, nogil=True)
def _mark(row: Any, attribute: Any, value: Any, marks: Any) -> None:
    """Sums, over the entries of each attribute, of hashes of the token and the value."""
    bits = value.view(np.uint32)
    for t in range(len(row) - 1):
        for i in range(row[t], row[t + 1]):
            entry = (np.uint64(t) << np.uint64(32)) | (np.uint64(bits[i]) if len(bits) else np.uint64(0))
            for j in range(2):
                marks[attribute[i], j] += _mixed(entry + np.uint64(j + 1) * np.uint64(0x9E3779B97F4A7C15))


@njit(cache=True, nogil=True)
def _mixed(x: Any) -> Any:
    """SplitMix64 of a number."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
