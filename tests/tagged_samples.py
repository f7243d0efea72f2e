"""Tagged sentences that a tagger can learn."""

from __future__ import annotations

import random

NOUNS, VERBS = ("river", "bank", "sea", "rain", "money"), ("runs", "sleeps", "falls", "lends")


def sentences(n: int, seed: int = 0, nouns: tuple[str, ...] = NOUNS) -> tuple[list[list[str]], list[list[str]]]:
    """ "the old river runs": what a word is shows in its place and in its spelling."""
    draw = random.Random(seed)
    X, y = [], []
    for _ in range(n):
        adjectives = ["old"] * draw.randint(0, 2)
        X.append(["the", *adjectives, draw.choice(nouns), draw.choice(VERBS)])
        y.append(["D", *(["A"] * len(adjectives)), "N", "V"])
    return X, y
