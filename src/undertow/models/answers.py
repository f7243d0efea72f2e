"""Named tuples that several models return."""

from __future__ import annotations

from typing import NamedTuple

from undertow.tables import Table


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
    """

    position: int
    words: Table[WordProbability]

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


__all__ = ["Gap", "Neighbor", "Transition", "WordProbability"]
