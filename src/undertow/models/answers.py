"""Named tuples that several models return."""

from __future__ import annotations

from typing import NamedTuple


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
    words: list[WordProbability]
    markers: float = 0.0


__all__ = ["Gap", "Neighbor", "Transition", "WordProbability"]
