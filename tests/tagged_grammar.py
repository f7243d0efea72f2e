"""Sentences of a small grammar whose words do not show by their spelling what they are: only text tells."""

from __future__ import annotations

import random

Sentences = list[list[str]]

_LETTERS = random.Random(7)
_WORDS = sorted({"".join(_LETTERS.choices("abcdefgh", k=6)) for _ in range(400)})
NOUNS, VERBS, ADJECTIVES, ADVERBS = _WORDS[0::4], _WORDS[1::4], _WORDS[2::4], _WORDS[3::4]
FIXED = {"the": "D", "of": "P", ".": "."}
TAGS = {
    **FIXED,
    **dict.fromkeys(NOUNS, "N"),
    **dict.fromkeys(VERBS, "V"),
    **dict.fromkeys(ADJECTIVES, "A"),
    **dict.fromkeys(ADVERBS, "R"),
}


def sentences(n: int, seed: int, share: float = 1.0) -> tuple[Sentences, Sentences]:
    """Words and tags; of each kind of word only the first `share` is used."""
    draw = random.Random(seed)

    def one(words: list[str]) -> str:
        return draw.choice(words[: max(1, int(share * len(words)))])

    def thing() -> list[str]:
        the = ["the"] * (draw.random() < 0.4)
        return [*the, *(one(ADJECTIVES) for _ in range(draw.randint(0, 2))), one(NOUNS)]

    X = []
    for _ in range(n):
        more = ["of", *thing()] * (draw.random() < 0.2)
        before, after = ([one(ADVERBS)] * (draw.random() < 0.4) for _ in range(2))
        X.append([*thing(), *more, *before, one(VERBS), *after, *thing(), "."])
    return X, [[TAGS[word] for word in s] for s in X]
