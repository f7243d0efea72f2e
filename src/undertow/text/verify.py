"""Deep checks of corpora and counts, beyond sizes and hashes: do the numbers mean what they should?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from undertow.errors import FormatError
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

STEP = 1 << 24  # entries looked at in one go


def verify_corpus(path: str | Path) -> Corpus:
    """Open with hashes, then check offsets, ids, and the counts of the words."""
    corpus = Corpus.open(path)
    n_words = len(corpus.vocabulary)
    counts = np.zeros(n_words, dtype=np.int64)
    for start in range(0, corpus.n_tokens, STEP):
        ids = corpus.ids[start : start + STEP]
        if int(ids.max()) >= n_words:
            raise FormatError(f"{path}: a token near position {start} has an id outside the vocabulary; build again.")
        counts += np.bincount(ids, minlength=n_words)
    for start in range(0, corpus.n_sentences, STEP):
        if (np.diff(corpus.offsets[start : start + STEP + 1]) < 0).any():
            raise FormatError(f"{path}: sentence offsets run backwards near sentence {start}; build again.")
    if not np.array_equal(counts, corpus.vocabulary.counts):
        raise FormatError(f"{path}: the counts in the vocabulary are not those of the tokens; build again.")
    return corpus


def verify_counts(path: str | Path) -> LagCounts:
    """Open with hashes, then check columns, their order, and that no count is zero."""
    counts = LagCounts.open(path)
    n_words = len(counts.vocabulary)
    for k in range(1, counts.lags + 1):
        matrix = counts.matrix(k)
        inside = np.ones(matrix.nnz, dtype=bool)
        starts = matrix.indptr[:-1][np.diff(matrix.indptr) > 0]
        inside[starts] = False  # the first entry of a row has no column before it to exceed
        ascending = np.diff(matrix.indices, prepend=0)[inside] > 0
        if (
            (np.diff(matrix.indptr) < 0).any()
            or not ascending.all()
            or (matrix.nnz and matrix.indices.max() >= n_words)
        ):
            raise FormatError(f"{path}: the rows of lag {k} are out of order; count again.")
        if matrix.nnz and matrix.data.min() < 1:
            raise FormatError(f"{path}: lag {k} holds a count below one; count again.")
        if (matrix.sum(axis=1) > counts.vocabulary.counts).any():
            raise FormatError(f"{path}: lag {k} pairs a word more often than it occurs; count again.")
    return counts
