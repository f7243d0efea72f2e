"""Sentences of a small grammar with noun phrases."""

from __future__ import annotations

import numpy as np


def toy(n: int = 120, seed: int = 0) -> list[list[str]]:
    """Sentences of a grammar: NP V NP, NP → D N | D A N, an adverb at times in front."""
    rng = np.random.default_rng(seed)

    def phrase() -> list[str]:
        middle = [str(rng.choice(["old", "big"]))] if rng.random() < 0.4 else []
        return [str(rng.choice(["the", "a"])), *middle, str(rng.choice(["dog", "cat", "river"]))]

    return [
        (["today"] if rng.random() < 0.2 else []) + phrase() + [str(rng.choice(["sees", "likes"]))] + phrase()
        for _ in range(n)
    ]
