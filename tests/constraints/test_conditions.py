"""Constraints against plain Python on every text of four words, and their patterns against `re` over letters."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.texts import all_texts
from undertow.constraints import (
    Constraint,
    Contains,
    Count,
    EndsWith,
    Length,
    Matches,
    OneOf,
    Phrase,
    StartsWith,
    Without,
)
from undertow.constraints import automaton as automata
from undertow.errors import InputError

WORDS = "abcd"
TEXTS = [text for n in range(6) for text in all_texts(WORDS, n)]


def joined(text):
    return "".join(text)


KINDS = {
    "one word": (Contains("a"), lambda t: "a" in t),
    "two words": (Contains("a", "b"), lambda t: "a" in t and "b" in t),
    "a list": (Contains(["a", "b"]), lambda t: "a" in t and "b" in t),
    "twice the same": (Contains("a", "a"), lambda t: "a" in t),
    "in order": (Contains("a", "b", ordered=True), lambda t: re.search("a.*b", t)),
    "in order, twice the same": (Contains("a", "a", ordered=True), lambda t: t.count("a") > 1),
    "a phrase among words": (Contains("a b", "c"), lambda t: "ab" in t and "c" in t),
    "without": (Without("a"), lambda t: "a" not in t),
    "without several": (Without("a", "b c", "d d"), lambda t: not re.search("a|bc|dd", t)),
    "phrase": (Phrase("a a b"), lambda t: "aab" in t),
    "phrase of parts": (Phrase("a", ["b", "a"]), lambda t: "aba" in t),
    "begin": (StartsWith("a b"), lambda t: t.startswith("ab")),
    "end": (EndsWith("a b a"), lambda t: t.endswith("aba")),
    "length": (Length(2, 3), lambda t: 2 <= len(t) <= 3),
    "least length": (Length(3), lambda t: len(t) >= 3),
    "count": (Count(["a", "b"], 2, 3), lambda t: 2 <= t.count("a") + t.count("b") <= 3),
    "at most": (Count("a", 0, 1), lambda t: t.count("a") <= 1),
    "position": (OneOf({"a", "b"}, 1), lambda t: t[1:2] in ("a", "b")),
    "position from the end": (OneOf("a", -2), lambda t: t[-2:-1] == "a"),
    "pattern": (Matches("a ( b | c )* {a|d} ."), lambda t: re.fullmatch("a(b|c)*[ad].", t)),
    "both": (Contains("a") & Without("b"), lambda t: "a" in t and "b" not in t),
    "either": (Phrase("a b") | Contains("c"), lambda t: "ab" in t or "c" in t),
    "not": (~Contains("a", "b"), lambda t: not ("a" in t and "b" in t)),
    "all together": (
        (Contains("a") & ~Phrase("b c")) | (Count("d", 2) & Length(0, 4)),
        lambda t: ("a" in t and "bc" not in t) or (t.count("d") >= 2 and len(t) <= 4),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_constraint_holds_for_the_texts_it_describes(name: str) -> None:
    constraint, expected = KINDS[name]
    alphabet, automaton = constraint.compiled()
    wrong = [t for t in TEXTS if automaton.accepts(alphabet.encode(t)) != bool(expected(joined(t)))]
    assert wrong == []
    assert 0 < sum(bool(expected(joined(t))) for t in TEXTS) < len(TEXTS)


# --- patterns -------------------------------------------------------------------------------------------

atoms = st.sampled_from(["a", "b", ".", "{a|b}", "{^a|c}", "{d}"])
times = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "{0,2}"])


def sequences(inner):
    part = st.tuples(inner, times).map("".join)
    return st.lists(part, min_size=1, max_size=3).map(" ".join)


patterns = st.recursive(
    sequences(atoms),
    lambda inner: sequences(st.lists(inner, min_size=1, max_size=2).map(lambda parts: f"( {' | '.join(parts)} )")),
    max_leaves=5,
)


def as_letters(pattern: str) -> str:
    letters = re.sub(r"\{(\^?)([a-d](?:\|[a-d])*)\}", lambda m: f"[{m[1]}{m[2].replace('|', '')}]", pattern)
    return letters.replace(" ", "")


@given(patterns)
def test_patterns_are_those_of_re(pattern: str) -> None:
    expected = re.compile(as_letters(pattern))
    alphabet, automaton = Matches(pattern).compiled()
    for text in TEXTS[: 1 + 4 + 16 + 64 + 256]:
        assert automaton.accepts(alphabet.encode(text)) == bool(expected.fullmatch(joined(text))), (pattern, text)


def test_signs_as_words() -> None:
    assert Matches(r"the \. \* U.S. ...").holds(["the", ".", "*", "U.S.", "..."])
    assert not Matches(r"\.").holds(["a"])
    assert Matches("a {1|2}").holds(["a", "2"]) and Matches("a{1}").holds(["a"])
    assert Matches("").holds([]) and not Matches("").holds(["a"])


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        ("a ( b", "not closed"),
        ("a ) b", "not opened"),
        ("* b", "nothing before"),
        ("a {", "without words"),
        ("a {b c}", "separated by"),
        ("a{3,2}", "less than the first"),
        ("a\\", "backslash"),
        ("(" * 200, "brackets within brackets"),
    ],
)
def test_a_wrong_pattern_is_refused_with_the_place(pattern: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        Matches(pattern)


# --- automata -------------------------------------------------------------------------------------------


def test_words_that_no_constraint_tells_apart_share_a_symbol() -> None:
    alphabet, automaton = (Without(*"bcdefgh") & Contains("a")).compiled()
    assert alphabet.n_symbols == 3 and automaton.step.shape == (3, 3)


@pytest.mark.parametrize("name", KINDS)
def test_automata_are_the_smallest(name: str) -> None:
    """No two states accept the same continuations, by enumeration of those up to six symbols."""
    _, automaton = KINDS[name][0].compiled()
    states = np.arange(len(automaton.step))[None, :]
    futures = [automaton.accepting[states]]
    for _ in range(6):
        states = automaton.step.T[:, states].reshape(-1, len(automaton.step))
        states = np.unique(states, axis=0)
        futures.append(automaton.accepting[states])
    columns = np.concatenate([f.reshape(-1, len(automaton.step)) for f in futures])
    assert len(np.unique(columns, axis=1).T) == len(automaton.step)


def test_the_shortest_text_and_the_lengths() -> None:
    _, automaton = (Contains("a b", "c") & Length(0, 5)).compiled()
    assert automaton.distances()[0] == 3
    assert automaton.lengths(7).tolist() == [False] * 3 + [True] * 3 + [False] * 2
    assert np.isinf((Contains("a") & Without("a")).compiled()[1].distances()[0])


def test_too_large_an_automaton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = [chr(ord("a") + i) for i in range(13)]
    with pytest.raises(InputError, match="4,096 states"):
        Contains(*letters).compiled()
    assert len(Contains(*letters, ordered=True).compiled()[1].step) == 14
    monkeypatch.setattr(automata, "MAX_PIECES", 1000)
    with pytest.raises(InputError, match="repeats its parts too often"):
        Matches("(a{100}){100}").compiled()


@pytest.mark.parametrize(
    "wrong",
    [
        Contains,
        lambda: Contains(" "),
        lambda: Contains(1),  # type: ignore[arg-type]
        lambda: Count("a b"),
        lambda: Count("a", 3, 2),
        lambda: Length(-1),
        lambda: OneOf("a", 1.5),  # type: ignore[arg-type]
        lambda: Matches(["a"]),  # type: ignore[arg-type]
        lambda: bool(Contains("a")),
    ],
)
def test_bad_input(wrong) -> None:
    with pytest.raises(InputError):
        wrong()


def test_constraints_compare_by_what_they_say() -> None:
    assert Contains("a") & Without("b") == Contains("a") & Without("b") != Contains("a")
    assert len({Contains("a"), Contains("a")}) == 1 and isinstance(Contains("a"), Constraint)
    with pytest.raises(TypeError):
        Contains("a") & "b"  # type: ignore[operator]
