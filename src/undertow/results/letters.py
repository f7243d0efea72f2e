"""What the letters of a word say about its vector, for words that a text has rarely or not at all.

It is learned from the words of the text and their vectors: a ridge regression from runs of letters (`text.letters`,
`kernels.words.ridge`). A word that the text has n times has n / (n + SURE) of its own vector, and the rest of what its
letters say; a word that the text does not have has what its letters say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from undertow.kernels.types import F32, F64, I64
from undertow.kernels.words.ridge import ridge
from undertow.text.letters import letter_runs

# chosen on train files, see experiments/results/tagging_default.md
SURE = 5.0  # times that a word is in the text, of which its letters count as many
LEARNED_SURE = 20.0  # the same for how much a word counts in the regression
PENALTY, N_STEPS = 2.0, 25
ROWS = 1 << 14  # words whose runs are held at a time


class LetterVectors(NamedTuple):
    """A regression from runs of letters to vectors.

    Attributes
    ----------
    slopes
        (N_PLACES, d)
    mean
        (d,)
    """

    slopes: F32
    mean: F32

    def of(self, words: Sequence[str]) -> F32:
        """(n, d) what the letters of these words say."""
        out = np.empty((len(words), len(self.mean)), dtype=np.float32)
        for a in range(0, len(words), ROWS):
            out[a : a + ROWS] = letter_runs(words[a : a + ROWS]) @ self.slopes + self.mean
        return out


def learn_letters(words: Sequence[str], vectors: F32, counts: F64 | I64) -> LetterVectors:
    """Learn from the vectors of the words of a text what letters say.

    Parameters
    ----------
    words
        Distinct words.
    vectors
        (n, d) of these words.
    counts
        (n,) how often the text has each of them.
    """
    weights = (counts / (counts + LEARNED_SURE)).astype(np.float32)
    return LetterVectors(*ridge(letter_runs(words), vectors, weights, PENALTY, N_STEPS))


def smoothed(letters: LetterVectors, words: Sequence[str], vectors: F32, counts: F64 | I64) -> F32:
    """(n, d) the vectors of words with what their letters say, the more of it the rarer a word is."""
    share = (counts / (counts + SURE)).astype(np.float32)[:, None]
    out: F32 = share * vectors + (1 - share) * letters.of(words)
    return out
