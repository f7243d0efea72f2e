"""Parsed sentences: constituents with their probabilities, and the forms other programs read."""

from __future__ import annotations

from typing import Any, NamedTuple

PENN = {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}


class Constituent(NamedTuple):
    """A phrase of a tree.

    Attributes
    ----------
    begin, end
        Its words are begin..end−1.
    split
        Where its left part ends.
    symbol
        Its nonterminal, from 0.
    probability
        Posterior probability that these words are a constituent, whatever the symbol.
    """

    begin: int
    split: int
    end: int
    symbol: int
    probability: float


class Tree(NamedTuple):
    """The binary tree of a sentence.

    Attributes
    ----------
    words
        The tokens.
    constituents
        Phrases of two words or more in preorder: each before its left part, and that before its right part.
    tags
        The preterminal of each word, from 0.
    """

    words: list[str]
    constituents: list[Constituent]
    tags: list[int]

    def brackets(self) -> Any:
        """The tree as nested tuples of words.

        Returns
        -------
        tuple
            ("the", ("old", "river")); a single word in a tuple of its own; () for no word.
        """
        if len(self.words) < 2:
            return tuple(self.words)
        return self._folded(lambda i: self.words[i], lambda _, left, right: (left, right))

    def penn(self) -> str:
        """The tree in one line of the Penn Treebank's form, which NLTK's `Tree.fromstring` reads.

        Returns
        -------
        str
            (N3 (P7 the) (N1 (P2 old) (P5 river))): N for nonterminals, P for preterminals; brackets in words are
            written -LRB- and so on. () for no word.
        """
        if not self.words:
            return "()"
        text = self._folded(
            lambda i: f"(P{self.tags[i]} {penn_word(self.words[i])})",
            lambda c, left, right: f"(N{c.symbol} {left} {right})",
        )
        return str(text)

    def to_dict(self) -> dict[str, Any]:
        """The tree as values that JSON knows.

        Returns
        -------
        dict
            "words", "tags", and "constituents", each with begin, split, end, symbol and probability.
        """
        return {
            "words": self.words,
            "tags": self.tags,
            "constituents": [c._asdict() for c in self.constituents],
        }

    def _folded(self, word: Any, phrase: Any) -> Any:
        """Bottom up: `word(i)` for each word, `phrase(constituent, left, right)` for each constituent."""
        found = {(i, i + 1): word(i) for i in range(len(self.words))}
        for c in reversed(self.constituents):  # parts come after the whole in preorder
            found[c.begin, c.end] = phrase(c, found[c.begin, c.split], found[c.split, c.end])
        return found[0, len(self.words)]


def penn_word(word: str) -> str:
    for bracket, name in PENN.items():
        word = word.replace(bracket, name)
    return "_".join(word.split()) or "_"


__all__ = ["Constituent", "Tree"]
