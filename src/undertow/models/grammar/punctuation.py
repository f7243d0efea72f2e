"""Punctuation, which is kept out of the first trees of a grammar.

A full stop at the end of nearly every sentence hides the phrases from EM: short fits from random rules then branch to
the right whatever the words are. So the first trees are found for the words alone, and punctuation is attached to them
by rule.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.types import I64

CATEGORIES = frozenset({"Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sk"})  # of Unicode; Sk has the grave accent
READ_ALOUD = frozenset("%‰&#@/\\§")  # of these, what stands for a word
OPENING = frozenset({"-LRB-", "-LSB-", "-LCB-", "`", "``"})  # as treebanks write it
CLOSING = frozenset({"-RRB-", "-RSB-", "-RCB-"})
WORD, MARK, OPENING_MARK = 0, 1, 2


def kind_of(word: str) -> int:
    """WORD, or MARK for punctuation, or OPENING_MARK if it stands before what it belongs to."""
    if word.upper() in OPENING:
        return OPENING_MARK
    if word.upper() in CLOSING:
        return MARK
    categories = [unicodedata.category(c) for c in word]
    if not CATEGORIES.issuperset(categories) or READ_ALOUD.issuperset(word):
        return WORD
    return OPENING_MARK if categories[0] in ("Ps", "Pi") else MARK


def kinds_of(words: Iterable[str]) -> NDArray[np.int8]:
    """(V,) the kind of each word."""
    return np.array([kind_of(w) for w in words], dtype=np.int8)


def fragments(kinds: NDArray[np.int8]) -> list[tuple[int, int]]:
    """The parts of a sentence between punctuation: begin and end of each among its words alone."""
    before = np.concatenate(([0], np.cumsum(kinds == WORD)))  # words before each token
    edges = sorted({0, int(before[-1]), *before[:-1][kinds != WORD].tolist()})
    return list(zip(edges[:-1], edges[1:], strict=True))


def attached(tree: I64, kinds: NDArray[np.int8]) -> I64:
    """(N − 1, 3) the tree of N tokens of these kinds, in preorder, from that of the words among them.

    Between the two parts of a constituent, marks join the left part, and from the first opening one on the right part;
    at the ends of the sentence they join the whole, one at a time. Without words all branches to the right.
    """
    at = np.flatnonzero(kinds == WORD).tolist() or [len(kinds) - 1]
    splits = {(i, j): k for i, k, j in tree.tolist()}
    out: list[tuple[int, int, int]] = []
    stack = [(0, len(at), 0, len(kinds))]  # words i..j−1 and the tokens begin..end−1 that belong to them
    while stack:
        i, j, begin, end = stack.pop()
        if end > at[j - 1] + 1:
            out.append((begin, end - 1, end))
            stack.append((i, j, begin, end - 1))
        elif begin < at[i]:
            out.append((begin, begin + 1, end))
            stack.append((i, j, begin + 1, end))
        elif j - i > 1:
            k = splits[i, j]
            cut = at[k - 1] + 1
            while cut < at[k] and kinds[cut] == MARK:
                cut += 1
            out.append((begin, cut, end))
            stack += [(k, j, cut, end), (i, k, begin, cut)]
    return np.array(out, dtype=np.int64).reshape(-1, 3)


__all__ = ["MARK", "OPENING_MARK", "WORD", "attached", "fragments", "kind_of", "kinds_of"]
