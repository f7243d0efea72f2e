"""Positive pointwise mutual information by loops over the text, and its singular vectors by a dense decomposition."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Place = tuple[int, ...]  # distances of the contexts: (1,) one word after, (-1,) one before, (-2, -1, 1, 2) all of these


def positive_pmi(
    sentences: Sequence[Sequence[int]], n_words: int, contexts: Sequence[int], place: Place, power: float
) -> NDArray[np.float64]:
    """(n_words, contexts) from sentences of word numbers."""
    column = {word: c for c, word in enumerate(contexts)}
    pairs: Counter[tuple[int, int]] = Counter()
    for sentence in sentences:
        for t, word in enumerate(sentence):
            for distance in place:
                if 0 <= t + distance < len(sentence) and sentence[t + distance] in column:
                    pairs[word, column[sentence[t + distance]]] += 1
    total = sum(pairs.values())
    of_word, of_context = Counter[int](), Counter[int]()
    for (word, context), n in pairs.items():
        of_word[word] += n
        of_context[context] += n
    damped = sum(n**power for n in of_context.values())
    out = np.zeros((n_words, len(contexts)))
    for (word, context), n in pairs.items():
        ratio = (n / total) / ((of_word[word] / total) * (of_context[context] ** power / damped))
        out[word, context] = max(0.0, math.log(ratio))
    return out


def word_vectors(table: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Unit rows of U S of the n largest singular values; the largest entry of each column is positive."""
    U, s, _ = np.linalg.svd(table, full_matrices=False)
    scores = (U * s)[:, :n]
    scores = scores * np.sign(scores[np.abs(scores).argmax(axis=0), np.arange(scores.shape[1])])
    length = np.linalg.norm(scores, axis=1, keepdims=True)
    return np.divide(scores, length, out=np.zeros_like(scores), where=length > 1e-9)
