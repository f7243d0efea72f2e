"""Runs of letters of words: what words of similar spelling have in common."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from scipy.sparse import csr_array

SHORTEST, LONGEST = 2, 5  # letters of a run, the marks of the word's ends among them
N_PLACES = 1 << 15  # runs are told apart by their hash modulo this number: as good as 2^17 of them, see docs/context.md


def letter_runs(words: Sequence[str]) -> csr_array:
    """The runs of two to five letters of each word, in lower case, with marks at both ends.

    Parameters
    ----------
    words
        One for each row.

    Returns
    -------
    csr_array (n_words, N_PLACES), float32
        The runs of a word count alike, with squares that sum to one; where two runs share a place they count as one.
    """
    columns, bounds = array("i"), [0]  # not a list: of a large vocabulary that would be gigabytes
    for word in words:
        whole = f"<{word.lower()}>"
        runs = {whole[i : i + n] for n in range(SHORTEST, LONGEST + 1) for i in range(len(whole) - n + 1)}
        columns.extend(sorted({crc32(run.encode("utf-8", "surrogatepass")) % N_PLACES for run in runs}))
        bounds.append(len(columns))
    lengths = np.diff(bounds)
    values = np.repeat(1 / np.sqrt(np.maximum(lengths, 1)), lengths).astype(np.float32)
    shape = (len(words), N_PLACES)
    return csr_array((values, np.array(columns, dtype=np.int32), np.array(bounds, dtype=np.int32)), shape=shape)


def has_letter(word: str) -> bool:
    """Whether a word has a letter at all: the spelling of numbers and signs says nothing."""
    return any(map(str.isalpha, word))
