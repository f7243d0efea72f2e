"""Punctuation stays out of the first trees, and is attached to them by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toy_language import toy
from undertow import Corpus, Grammar
from undertow.kernels.chart.trees import best_tree
from undertow.models.grammar import agreement
from undertow.models.grammar.punctuation import MARK, OPENING_MARK, WORD, attached, fragments, kind_of, kinds_of


def nested(tree: Any, words: list[str]) -> Any:
    """Constituents in preorder as nested tuples; fails unless they are a binary tree in that order."""
    rows = iter(tree.tolist())

    def go(i: int, j: int) -> Any:
        if j - i == 1:
            return words[i]
        begin, split, end = next(rows)
        assert (begin, end) == (i, j) and i < split < j
        return go(i, split), go(split, j)

    found = go(0, len(words))
    assert next(rows, None) is None
    return found


def bare(tree: Any) -> Any:
    """The tree that is left when all punctuation is dropped; None for nothing."""
    if isinstance(tree, str):
        return None if kind_of(tree) != WORD else tree
    parts = [part for part in map(bare, tree) if part is not None]
    return tuple(parts) if len(parts) == 2 else parts[0] if parts else None


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("river", WORD), ("'s", WORD), ("U.S.", WORD), ("%", WORD), ("&", WORD), ("$", WORD), ("3,5", WORD),
        ("-", MARK), (".", MARK), ("...", MARK), (",", MARK), ("''", MARK), ("”", MARK), ("-RRB-", MARK),
        ("(", OPENING_MARK), ("“", OPENING_MARK), ("«", OPENING_MARK), ("``", OPENING_MARK), ("-lrb-", OPENING_MARK),
        ("<unk>", WORD), ("@-@", MARK), ("-rrb-", MARK),
    ],
)  # fmt: skip
def test_what_is_punctuation(word: str, kind: int) -> None:
    assert kind_of(word) == kind


def test_where_punctuation_is_attached() -> None:
    right, left = (np.array(x) for x in ([(0, 1, 3), (1, 2, 3)], [(0, 2, 3), (0, 1, 2)]))
    for tree, text, expected in (
        (right, "a b c .", (("a", ("b", "c")), ".")),
        (right, "a , b c . ”", (((("a", ","), ("b", "c")), "."), "”")),
        (left, "a , b ( c )", (((("a", ","), "b"), ("(", "c")), ")")),
        (left, "“ a b , - ( c .", (("“", ((((("a", "b"), ","), "-"), ("(", "c")))), ".")),
        (left, "“ - a b c", ("“", ("-", (("a", "b"), "c")))),
    ):
        words = text.split()
        assert nested(attached(tree, kinds_of(words)), words) == expected


def test_sentences_of_one_word_or_none() -> None:
    nothing = np.empty((0, 3), dtype=np.int64)
    for text, expected in (("( a .", (("(", "a"), ".")), (". . .", (".", (".", "."))), ("a", "a"), (".", ".")):
        words = text.split()
        assert nested(attached(nothing, kinds_of(words)), words) == expected


@given(st.lists(st.sampled_from(["a", "b", ",", "("]), min_size=1, max_size=12), st.integers(0, 10**6))
def test_without_punctuation_the_tree_is_that_of_the_words(tokens: list[str], seed: int) -> None:
    kinds = kinds_of(tokens)
    words = [w for w in tokens if kind_of(w) == WORD]
    tree = best_tree(np.random.default_rng(seed).random((len(words), len(words) + 1)))
    whole = nested(attached(tree, kinds), tokens)
    assert bare(whole) == (nested(tree, words) if words else None)


def test_parts_between_punctuation() -> None:
    for text, expected in (
        ("a b , c ( d .", [(0, 2), (2, 3), (3, 4)]),
        (", a b", [(0, 2)]),
        ("a , - b", [(0, 1), (1, 2)]),
        ("a b", [(0, 2)]),
        (". .", []),
    ):
        assert fragments(kinds_of(text.split())) == expected


def test_the_branching_tree_heeds_punctuation() -> None:
    parts = [(0, 2), (2, 4), (4, 7)]
    for lean, rival, spans in (
        ("right", (0, 4), {(0, 7), (0, 2), (2, 7), (2, 4), (4, 7), (5, 7)}),
        ("left", (2, 7), {(0, 7), (0, 2), (0, 4), (2, 4), (4, 7), (4, 6)}),
    ):
        table = np.zeros((7, 8))
        table[rival] = 0.9
        agreement.add_vote(table, 1.0, lean, parts)
        assert {(int(i), int(j)) for i, _, j in best_tree(table)} == spans


def test_the_sample_counts_words_without_punctuation(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Corpus.from_sentences([["a", ".", "."], ["a", ",", "b"], ["a"] * 20 + ["."], ["a"] * 21, [","] * 3])
    found = agreement.sample(text, kinds_of(text.vocabulary.words))
    assert [len(s) for s in found] == [3, 21]


@pytest.mark.parametrize("seed", [0, 1])
def test_full_stops_do_not_hide_the_phrases(seed: int) -> None:
    model = Grammar(6, n_preterminals=8, rank=6, lean="none", random_state=seed).fit([[*s, "."] for s in toy(200)])
    [tree] = model.trees([["the", "dog", "sees", "a", "cat", "."]])
    assert {(0, 2), (3, 5), (0, 5)} <= {(c.begin, c.end) for c in tree.constituents}


def test_short_fits_see_no_punctuation(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def fit(m_step: Any, ids: Any, lengths: Any, start: Any) -> Any:
        seen.append((ids, lengths))
        return [np.zeros((n, n + 1)) for n in lengths]

    monkeypatch.setattr(agreement, "short_fit", fit)
    plain = toy(30)
    how: dict[str, Any] = {"n_preterminals": 4, "rank": 3, "n_iter": 1, "n_restarts": 1, "random_state": 0}
    Grammar(3, **how).fit(plain)
    Grammar(3, **how).fit([[s[0], ",", *s[1:], "."] for s in plain])
    (ids, lengths), (others, other_lengths) = seen
    np.testing.assert_array_equal(lengths, other_lengths)
    names = [np.unique(x, return_inverse=True)[1] for x in (ids, others)]
    assert len(set(zip(*(x.tolist() for x in names), strict=True))) == len(np.unique(ids))  # the same up to numbering
