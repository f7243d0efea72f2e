"""Affixes of words: what words of similar spelling have in common, so that rare words learn from others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

LONGEST_PREFIX, LONGEST_SUFFIX = 3, 4
LEAST_LOWERED = 4  # letters of a word whose lower-case form counts
FEWEST_WORDS = 5  # that share an affix; rarer ones are left out


def affixes_of(word: str) -> set[str]:
    """Prefixes, suffixes, the lower-case form, and what kinds of characters it has."""
    n = len(word)
    found = {f"prefix {word[:k]}" for k in range(1, min(LONGEST_PREFIX, n - 1) + 1)}
    found |= {f"suffix {word[-k:]}" for k in range(1, min(LONGEST_SUFFIX, n - 1) + 1)}
    if n >= LEAST_LOWERED:
        found.add(f"lower {word.lower()}")
    kinds = (any(map(str.isdigit, word)), word[:1].isupper(), word.isupper(), "-" in word)
    found.add(f"kinds {kinds}")
    return found


def affixes(words: Sequence[str]) -> csr_array:
    """How much each affix counts for each word.

    Parameters
    ----------
    words
        One for each row.

    Returns
    -------
    csr_array (n_words, n_affixes), float32
        The affixes of a word count alike, with squares that sum to one. At least one column.
    """
    found = [affixes_of(word) for word in words]
    n_words = Counter(affix for own in found for affix in own)
    column = {affix: i for i, affix in enumerate(sorted(a for a, n in n_words.items() if n >= FEWEST_WORDS))}
    rows = [sorted(column[affix] for affix in own if affix in column) for own in found]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    indices = np.array([i for row in rows for i in row], dtype=np.int32)
    weights = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return csr_array((weights, indices, bounds), shape=(len(words), max(len(column), 1)))
