"""Span tags: the schemes, what spans they mean, and F1 against conlleval's definition and seqeval."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import conlleval
from sentences import is_one_sentence
from undertow.errors import InputError
from undertow.results.tagging.scores import ALL_TYPES, accuracy_by_group, span_scores, token_accuracy
from undertow.results.tagging.spans import SCHEMES, Span, convert, scheme_of, spans_of, tags_of
from undertow.text.vocabulary import Vocabulary

TWO = [Span("per", 0, 2), Span("per", 2, 3), Span("creative-work", 4, 7)]
WRITTEN = {
    "iob1": "I-per I-per B-per O I-creative-work I-creative-work I-creative-work O",
    "iob2": "B-per I-per B-per O B-creative-work I-creative-work I-creative-work O",
    "bilou": "B-per L-per U-per O B-creative-work I-creative-work L-creative-work O",
    "bioes": "B-per E-per S-per O B-creative-work I-creative-work E-creative-work O",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_written_and_read(scheme: str) -> None:
    tags = WRITTEN[scheme].split()
    assert tags_of(TWO, 8, scheme) == tags
    assert spans_of(tags) == TWO
    assert scheme_of([["O"], tags, []]) == scheme
    for other in SCHEMES:
        assert convert([tags], other) == [WRITTEN[other].split()]


def test_iob1_says_b_only_within_a_type() -> None:
    spans = [Span("a", 0, 1), Span("b", 1, 3), Span("b", 3, 4)]
    assert tags_of(spans, 4, "iob1") == ["I-a", "I-b", "I-b", "B-b"]


def test_names_by_which_the_schemes_also_go() -> None:
    assert tags_of(TWO, 8, "BIO") == WRITTEN["iob2"].split()
    assert tags_of([Span("", 1, 3)], 4, "IOBES") == ["O", "B", "E", "O"]


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["NN", "IN"], None),
        (["O", "O"], None),
        (["B", "I", "O"], "iob2"),
        (["B-x", "I-y"], "iob1"),  # another type begins with I
        (["O", "I-x"], "iob1"),
        (["B-x", "U-x", "S-x"], None),  # two schemes at once
        (["B-", "O"], None),
        (["O", "NN"], None),
    ],
)
def test_telling_the_scheme(tags: list[str], scheme: str | None) -> None:
    assert scheme_of([tags]) == scheme


def test_what_tags_that_do_not_fit_mean() -> None:
    assert spans_of(["I-x", "I-y", "B-y", "O", "I-y"]) == [
        Span("x", 0, 1),
        Span("y", 1, 2),
        Span("y", 2, 3),
        Span("y", 4, 5),
    ]
    assert spans_of(["E-x", "E-x", "I-x", "S-x", "I-x"]) == [
        Span("x", i, j) for i, j in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    ]
    assert spans_of(["B-x", "I-x", "E-x", "I-x"]) == [Span("x", 0, 3), Span("x", 3, 4)]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 3), st.integers(0, 2)), max_size=6))
def test_spans_survive_every_scheme(pieces: list[tuple[str, int, int]]) -> None:
    spans, at = [], 0
    for type_, length, gap in pieces:
        spans.append(Span(type_, at + gap, at + gap + length))
        at += gap + length
    for scheme in SCHEMES:
        assert spans_of(tags_of(spans, at + 1, scheme)) == spans


any_tags = st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b"])
any_pairs = st.lists(st.lists(st.tuples(any_tags, any_tags), max_size=9), max_size=4)


@given(any_pairs)
def test_f1_is_conllevals(pairs: list[list[tuple[str, str]]]) -> None:
    gold, guessed = [[a for a, _ in s] for s in pairs], [[b for _, b in s] for s in pairs]
    ours, theirs = span_scores(gold, guessed), conlleval.counts(gold, guessed)
    assert {t: [s.correct, s.predicted, s.gold] for t, s in ours.items() if t != ALL_TYPES} == theirs
    total = [sum(row[i] for row in theirs.values()) for i in range(3)]
    assert ours[ALL_TYPES] == tuple(total)
    for score in ours.values():
        assert score.f1 == pytest.approx(conlleval.f1(*score), rel=1e-12, abs=1e-12)


def test_f1_is_seqevals() -> None:
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    draw = random.Random(0)
    for letters in ("BIO", "BIESO"):
        tags = ["O", *(f"{x}-{t}" for x in letters if x != "O" for t in "ab")]
        for _ in range(30):
            gold = [draw.choices(tags, k=n) for n in draw.choices(range(1, 9), k=4)]
            guessed = [[g if draw.random() < 0.7 else draw.choice(tags) for g in s] for s in gold]
            ours = span_scores(gold, guessed)[ALL_TYPES]
            for name, value in (("precision", ours.precision), ("recall", ours.recall), ("f1", ours.f1)):
                theirs = getattr(metrics, f"{name}_score")(gold, guessed, zero_division=0)
                assert value == pytest.approx(theirs, rel=1e-12)


def test_a_worked_example() -> None:
    gold = ["B-PER I-PER O B-LOC O".split(), "B-LOC I-LOC".split()]
    guessed = ["B-PER I-PER O B-PER O".split(), "B-LOC O".split()]
    scores = span_scores(gold, guessed)
    assert scores[ALL_TYPES] == (1, 3, 3) and scores["LOC"] == (0, 1, 2) and scores["PER"] == (1, 2, 1)
    assert scores["PER"].precision == 0.5 and scores["PER"].recall == 1 and scores["LOC"].f1 == 0
    assert token_accuracy(gold, guessed) == (5, 7)


def test_accuracy_by_how_well_a_word_is_known() -> None:
    vocabulary = Vocabulary.from_counts({"the": 5, "bank": 3, "river": 2, "sat": 1})
    words = [["the", "bank", "river"], ["sat", "Bank"]]
    groups = accuracy_by_group(words, [["D", "N", "N"], ["V", "N"]], [["D", "X", "N"], ["V", "X"]], vocabulary)
    assert groups == {"all": (3, 5), "oov": (0, 1), "rare": (2, 3)}
    assert accuracy_by_group([], [], [], vocabulary)["oov"].accuracy is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: spans_of(["B-x", "NN"]),
        lambda: tags_of([Span("x", 0, 2), Span("y", 1, 3)], 5),
        lambda: tags_of([Span("x", 3, 6)], 5),
        lambda: tags_of([Span("x", -2, 1)], 5),
        lambda: tags_of([], 5, "iob3"),
        lambda: token_accuracy([["A"]], [["A", "B"]]),
        lambda: span_scores([["O"]], []),
    ],
)
def test_errors_are_one_sentence(wrong: object) -> None:
    with pytest.raises(InputError) as e:
        wrong()  # type: ignore[operator]
    assert is_one_sentence(str(e.value))
