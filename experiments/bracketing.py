"""Constituents of dependency trees, and sentence F1 of binary trees against them.

UD's dependency trees are turned into constituents in two ways. *Subtrees*: the words of each head's subtree (the head
and all below it), if they are adjacent, are a constituent. *Phrases*, nearer to a treebank of constituents: besides,

- a coordinating conjunction is outside the conjunct it leads, and the first conjunct alone is a constituent; a
  preposition or subordinating conjunction is outside the phrase or clause it leads;
- a verb and all that depends on it to the right is a constituent, then with each auxiliary or adverb before it: verb
  phrases without their subject; the same with a copula, after its predicate;
- a noun with all that depends on it to the left is a constituent, without what follows.

Punctuation (UPOS PUNCT) is dropped first, and so are constituents of one word and that of the whole sentence. A head
with several dependents gives flat constituents, so no binary tree reaches F1 = 1; `ceiling` is the best that one can
reach. Heads of multi-word tokens and empty nodes are skipped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from data import lines_of

Span = tuple[int, int]


class Bracketed(NamedTuple):
    words: list[str]
    spans: frozenset[Span]  # of subtrees: begin, end; neither single words nor the whole sentence
    phrases: frozenset[Span]  # of phrases
    tokens: list[str]  # words and punctuation
    places: list[int]  # of the words among the tokens


class Row(NamedTuple):
    word: str
    is_punctuation: bool
    head: int  # 0 for the root, else the number of the row from 1
    upos: str = "X"
    relation: str = "dep"  # without its subtype


def dependency_trees(name: str) -> Iterator[list[Row]]:
    """The sentences of a treebank, `ud-en-ewt.train` for example, in lower case."""
    rows: list[Row] = []
    for line in lines_of(f"labelled/{name}.conllu.xz"):
        if not line:
            if rows:
                yield rows
            rows = []
        elif not line.startswith("#"):
            cells = line.split("\t")
            if cells[0].isdigit():  # not 3-4 (a multi-word token) or 5.1 (an empty node)
                relation = cells[7].split(":")[0]
                word = "_".join(cells[1].lower().split())  # French numbers have spaces
                rows.append(Row(word, cells[3] == "PUNCT", int(cells[6]), cells[3], relation))
    if rows:
        yield rows


def bracketed(rows: Sequence[Row]) -> Bracketed:
    """Words and constituents of a dependency tree without its punctuation."""
    n = len(rows)
    yields: list[set[int]] = [set() for _ in range(n)]
    for i in range(n):
        if rows[i].is_punctuation:
            continue
        at, steps = i, 0
        while at >= 0 and steps <= n:  # up to the root; a broken tree with a loop ends too
            yields[at].add(i)
            at, steps = rows[at].head - 1, steps + 1
    place = {row: i for i, row in enumerate(i for i in range(n) if not rows[i].is_punctuation)}
    words = [rows[i].word for i in place]

    def spans(groups: Iterable[set[int]]) -> frozenset[Span]:
        found = set()
        for group in groups:
            at = sorted(place[i] for i in group)
            if len(at) > 1 and at[-1] - at[0] + 1 == len(at) < len(words):
                found.add((at[0], at[-1] + 1))
        return frozenset(found)

    tokens = [row.word for row in rows]
    return Bracketed(words, spans(yields), spans(phrases(rows, yields)), tokens, list(place))


def phrases(rows: Sequence[Row], yields: Sequence[set[int]]) -> Iterator[set[int]]:
    """Groups of words that are phrases, by the rules above; yields are the words below each."""
    children: list[list[int]] = [[] for _ in rows]
    for i, row in enumerate(rows):
        if row.head and not row.is_punctuation:
            children[row.head - 1].append(i)
    for h, row in enumerate(rows):
        left, right = [d for d in children[h] if d < h], [d for d in children[h] if d > h]
        relations = {d: rows[d].relation for d in children[h]}
        whole = yields[h].difference(*(yields[d] for d in left if relations[d] == "cc"))
        yield whole
        inner = whole.difference(*(yields[d] for d in left if relations[d] in ("case", "mark")))
        yield inner
        conjuncts = [d for d in right if relations[d] == "conj"]
        yield inner.difference(*(yields[d] for d in conjuncts))
        own = {h} & yields[h]
        has_copula = any(relations[d] == "cop" for d in left)
        if row.upos in ("VERB", "AUX") or has_copula:
            group = own.union(*(yields[d] for d in right if d not in conjuncts))
            waiting = has_copula  # words between the copula and the predicate belong to the predicate
            if not waiting:
                yield group
            for d in reversed(left):
                if waiting and relations[d] == "cop":
                    yield group
                    waiting = False
                elif not waiting and relations[d] not in ("aux", "advmod", "cop"):
                    break
                group = group | yields[d]
                if not waiting:
                    yield group
        elif row.upos in ("NOUN", "PROPN", "PRON", "NUM", "SYM"):
            before = [d for d in left if relations[d] not in ("cc", "case", "mark")]
            joined = [d for d in right if relations[d] in ("flat", "compound", "fixed", "goeswith")]
            yield own.union(*(yields[d] for d in before + joined))


def treebank(name: str) -> list[Bracketed]:
    """The sentences of a treebank that have words."""
    return [b for b in map(bracketed, dependency_trees(name)) if b.words]


def of_words(spans: Iterable[Span], places: Sequence[int]) -> set[Span]:
    """Spans of tokens as spans of the words at these places, without those of one word and the whole sentence."""
    begins_ends = ((bisect_left(places, i), bisect_left(places, j)) for i, j in spans)
    return {(i, j) for i, j in begins_ends if 1 < j - i < len(places)}


def spans_of(tree: Any) -> set[Span]:
    """Spans of a tree of nested tuples of words, without those of one word and the whole sentence."""
    found: set[Span] = set()

    def go(node: Any, begin: int) -> int:
        if isinstance(node, str):
            return begin + 1
        end = begin
        for part in node:
            end = go(part, end)
        found.add((begin, end))
        return end

    n = go(tree, 0)
    return {(i, j) for i, j in found if 1 < j - i < n}


def sentence_f1(gold: Iterable[frozenset[Span]], predicted: Iterable[set[Span]]) -> float:
    """Mean F1 over the sentences that have a constituent to find, in per cent."""
    values = []
    for truth, found in zip(gold, predicted, strict=True):
        if truth:
            values.append(2 * len(truth & found) / (len(truth) + len(found)) if found else 0.0)
    return 100 * float(np.mean(values))


def right_branching(n: int) -> set[Span]:
    return {(i, n) for i in range(1, n - 1)}


def left_branching(n: int) -> set[Span]:
    return {(0, j) for j in range(2, n)}


def random_tree(n: int, rng: np.random.Generator) -> set[Span]:
    """Spans of a tree whose split points are drawn evenly, from the top down."""
    found: set[Span] = set()
    stack = [(0, n)]
    while stack:
        i, j = stack.pop()
        if j - i > 1:
            found.add((i, j))
            k = int(rng.integers(i + 1, j))
            stack += [(i, k), (k, j)]
    return {(i, j) for i, j in found if j - i < n}


def ceiling(truth: frozenset[Span], n: int) -> set[Span]:
    """Spans of a binary tree that has all constituents of the truth that do not cross, split to the right elsewhere."""
    found: set[Span] = set()

    def go(i: int, j: int) -> None:
        if j - i < 2:
            return
        found.add((i, j))
        splits = range(i + 1, j)
        free = [k for k in splits if not any(i <= a < k < b <= j and (a, b) != (i, j) for a, b in truth)]
        k = free[0] if free else i + 1
        go(i, k)
        go(k, j)

    go(0, n)
    return {(i, j) for i, j in found if j - i < n}
