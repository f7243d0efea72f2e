"""Every text of a tiny vocabulary with every path of states, weighed one by one: Bayes' rule by the definition."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_CELLS = 4_000_000


class AllTexts:
    """weight[i, j] = p(text i, path j) for all V^n texts and all Z^n paths of n tokens, times given evidence."""

    def __init__(self, initial: Any, transition: Any, emission: Any, n: int) -> None:
        Z, V = np.shape(emission)
        assert V**n * Z**n <= MOST_CELLS, "too many texts to write down"
        self.texts = np.indices((V,) * n).reshape(n, -1).T
        self.paths = np.indices((Z,) * n).reshape(n, -1).T
        steps = np.prod([transition[self.paths[:, t - 1], self.paths[:, t]] for t in range(1, n)], axis=0)
        emitted = [emission[self.paths[:, t]][:, self.texts[:, t]].T for t in range(n)]
        self.weight = np.prod(emitted, axis=0) * (initial[self.paths[:, 0]] * steps)

    def given(self, words: dict[int, Any], states: dict[int, Any] | None = None) -> AllTexts:
        """With weights (V,) for the words of some positions and (Z,) for their states."""
        out = object.__new__(AllTexts)
        out.texts, out.paths, out.weight = self.texts, self.paths, self.weight.copy()
        for t, w in words.items():
            out.weight *= np.asarray(w)[self.texts[:, t]][:, None]
        for t, s in (states or {}).items():
            out.weight *= np.asarray(s)[self.paths[:, t]][None, :]
        return out

    def total(self) -> float:
        return float(self.weight.sum())

    def word(self, t: int, n_words: int) -> Any:
        """(V,) p(word at t | evidence)."""
        p = np.bincount(self.texts[:, t], weights=self.weight.sum(axis=1), minlength=n_words)
        return p / p.sum()

    def state(self, t: int, n_states: int) -> Any:
        """(Z,) p(state at t | evidence)."""
        p = np.bincount(self.paths[:, t], weights=self.weight.sum(axis=0), minlength=n_states)
        return p / p.sum()

    def of_texts(self) -> Any:
        """(V^n,) p(text | evidence)."""
        return self.weight.sum(axis=1) / self.weight.sum()

    def best_text(self) -> tuple[tuple[int, ...], float]:
        p = self.of_texts()
        return tuple(self.texts[int(p.argmax())].tolist()), float(p.max())

    def best_pair(self) -> tuple[tuple[int, ...], float]:
        """The text of the most probable pair of a text and a path, and the probability of the pair."""
        i, _ = np.unravel_index(int(self.weight.argmax()), self.weight.shape)
        return tuple(self.texts[i].tolist()), float(self.weight.max() / self.weight.sum())


def one_of(chains: list[tuple[Any, Any, Any]], weights: list[float]) -> tuple[Any, Any, Any]:
    """Several chains as one that draws the chain first and then stays with it."""
    initial = np.concatenate([w * pi for w, (pi, _, _) in zip(weights, chains, strict=True)])
    transition = np.zeros((len(initial), len(initial)))
    at = 0
    for pi, T, _ in chains:
        transition[at : at + len(pi), at : at + len(pi)] = T
        at += len(pi)
    return initial, transition, np.concatenate([E for *_, E in chains])
