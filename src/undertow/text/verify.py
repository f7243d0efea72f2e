"""Checks of corpora and counts beyond sizes and hashes: whether all values are valid and consistent."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from undertow.errors import FormatError
from undertow.text.corpus import Corpus
from undertow.text.counts_directory import read_counts_manifest
from undertow.text.lag_counts import LagCounts

STEP = 1 << 24  # entries looked at in one go


def verify_corpus(path: str | Path) -> Corpus:
    """Open with hashes, offsets and ids checked, then check the counts of the words."""
    corpus = Corpus.open(path)
    n_words = len(corpus.vocabulary)
    counts = np.zeros(n_words, dtype=np.int64)
    for start in range(0, corpus.n_tokens, STEP):
        counts += np.bincount(corpus.ids[start : start + STEP], minlength=n_words)
    if not np.array_equal(counts, corpus.vocabulary.counts):
        raise FormatError(f"{path}: the counts in the vocabulary are not those of the tokens; build again.")
    return corpus


def verify_counts(path: str | Path) -> LagCounts:
    """Open with hashes, bounds, columns and counts checked, then compare their sums."""
    counts = LagCounts.open(path)
    pairs = read_counts_manifest(Path(path))["pairs"]
    for k in range(1, counts.lags + 1):
        rows = counts.matrix(k).sum(axis=1)
        if (rows > counts.vocabulary.counts).any():
            raise FormatError(f"{path}: lag {k} pairs a word more often than it occurs; count again.")
        if int(rows.sum()) != pairs[k - 1]:
            raise FormatError(f"{path}: lag {k} does not have the pairs that the manifest says; count again.")
    return counts
