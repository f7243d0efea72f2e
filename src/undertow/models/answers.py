"""Named tuples that several models return, and how words with probabilities become some of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from undertow.kernels.types import F64
from undertow.tables import Table
from undertow.text.vocabulary import Vocabulary


class Transition(NamedTuple):
    """A strong transition of the hidden state, described by words.

    Attributes
    ----------
    strength
        LDS: correlation of the words before with the words after, at most 1. HMM: probability of the transition.
    before, after
        Words that the state stands for before and after the transition, the most typical first.
    """

    strength: float
    before: list[str]
    after: list[str]


class Neighbor(NamedTuple):
    """A word and the cosine of its vector with that of the word asked about."""

    word: str
    cosine: float


class WordProbability(NamedTuple):
    """A word and its probability."""

    word: str
    probability: float


class GapWord(NamedTuple):
    """One word of a `Gap`, as a row of its table."""

    position: int
    word: str
    probability: float


class Gap(NamedTuple):
    """The most probable words of one position, given all that is known on both sides of it.

    Attributes
    ----------
    position
        Where it is in the text, from 0.
    words
        Words with their probabilities, the most probable first.
    markers
        Probability that what stands there is none of the words a person could read: an unknown word, or the boundary
        of a sentence. 0 where these markers are listed among the words.
    """

    position: int
    words: Table[WordProbability]
    markers: float = 0.0

    def spread(self, row: int) -> list[GapWord]:
        """A row for each word.

        Parameters
        ----------
        row
            The number of the gap.

        Returns
        -------
        list of GapWord
        """
        return [GapWord(self.position, *word) for word in self.words]

    @staticmethod
    def spread_type() -> type[GapWord]:
        """The class of those rows."""
        return GapWord


def gap_of(vocabulary: Vocabulary, position: int, p: F64, n: int, markers: bool) -> Gap:
    """A gap whose words have probabilities p (V,): the n most probable ones, and what the markers have if left out."""
    listed = top_words(vocabulary, p, n, markers)
    return Gap(position, listed, 0.0 if markers else float(p[: vocabulary.n_special].sum()))


def top_words(vocabulary: Vocabulary, p: F64, n: int, markers: bool = False) -> Table[WordProbability]:
    """The n most probable words among those that a model may write."""
    p = np.where(vocabulary.writable(markers), p, -1.0)
    order = np.argsort(-p, kind="stable")[:n]
    found = (WordProbability(vocabulary.words[i], float(p[i])) for i in order.tolist() if p[i] > 0)
    return Table(WordProbability, found)


__all__ = ["Gap", "Neighbor", "Transition", "WordProbability"]
