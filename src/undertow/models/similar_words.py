"""Which words have vectors like a given one: written once for all models that have a vector for each word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.types import F32, I64
from undertow.models.answers import Neighbor
from undertow.models.base import Estimator
from undertow.models.constraints import Whole
from undertow.tables import Table
from undertow.text.vocabulary import Vocabulary


def nearest(vectors: F32, query: F32, n: int, allowed: NDArray[np.bool_]) -> tuple[I64, F32]:
    """The n allowed rows of unit `vectors` with the largest cosine to a unit query, best first."""
    cosines = np.where(allowed, vectors @ query, -np.inf)
    n = min(n, int(allowed.sum()))
    best = np.argsort(-cosines, kind="stable")[:n]
    return best, cosines[best].astype(np.float32)


def frequent_words(vocabulary: Vocabulary, min_count: int) -> NDArray[np.bool_]:
    """(V,) which words occurred `min_count` times (or as often as the most frequent); special ones are left out."""
    frequent: NDArray[np.bool_] = vocabulary.counts >= min(min_count, int(vocabulary.counts.max()))
    frequent[: vocabulary.n_special] = False
    return frequent


def direction(vectors: F32, positive: list[int], negative: list[int]) -> F32:
    """The unit vector of the sum of some rows minus others; zeros where they cancel out."""
    total = vectors[positive].sum(axis=0) - vectors[negative].sum(axis=0)
    length = np.linalg.norm(total)
    return np.asarray(total / length if length > 0 else total, dtype=np.float32)


def neighbors(
    vectors: F32, vocabulary: Vocabulary, query: F32, left_out: Sequence[int], n: int, min_count: int
) -> Table[Neighbor]:
    """The n frequent words nearest to a unit vector, some words left out."""
    allowed = frequent_words(vocabulary, min_count)
    allowed[list(left_out)] = False
    best, cosines = nearest(vectors, query, n, allowed)
    found = zip(best, cosines, strict=True)
    return Table(Neighbor, (Neighbor(vocabulary.words[i], float(c)) for i, c in found))


def most_similar(
    model: Estimator,
    vectors: F32,
    positive: str | Sequence[str],
    negative: str | Sequence[str],
    topn: int,
    min_count: int,
) -> Table[Neighbor]:
    """The words nearest to the sum of the unit vectors of some words minus those of others, which are left out."""
    Whole(0).check("most_similar", "topn", topn)
    signed = [[x] if isinstance(x, str) else list(x) for x in (positive, negative)]
    plus, minus = ([model._word_id(word) for word in words] for words in signed)
    if not plus and not minus:
        raise InputError("most_similar needs at least one word.")
    query = direction(vectors, plus, minus)
    return neighbors(vectors, model.vocabulary_, query, plus + minus, int(topn), min_count)
