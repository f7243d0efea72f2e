"""Spans of a chain: their probabilities and the best sets of them equal those of all paths, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.span_paths import best_disjoint, spans_by_paths

from undertow.kernels.chain.span_probabilities import best_spans, span_probabilities
from undertow.results.tagging.span_decoding import reading_of
from undertow.results.tagging.spans import Span

TAGS = {
    "iob2": ["B-a", "B-b", "I-a", "I-b", "O"],
    "bioes": ["B-a", "E-a", "I-a", "O", "S-a"],
    "no type": ["B", "I", "O"],
    "one span": ["B-a", "I-a"],
}


def found_spans(scores: Any, bounds: Any, transition: Any, tags: list[str], least: float = 1e-12) -> Any:
    goes_on, kinds, types = reading_of(tags)
    found = span_probabilities(scores, bounds, transition, goes_on, kinds, least)
    spans = zip(*(a.tolist() for a in found), strict=True)
    return {Span(types[kind], start, end): p for start, end, kind, p in spans}, found


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(TAGS)), st.integers(1, 4), st.integers(0, 10_000), st.sampled_from([1.0, 10.0, 900.0]))
def test_probabilities_are_those_of_all_paths(name: str, n: int, seed: int, size: float) -> None:
    rng, tags = np.random.default_rng(seed), TAGS[name]
    scores, transition = size * rng.normal(size=(n, len(tags))), size * rng.normal(size=(len(tags), len(tags)))
    found, _ = found_spans(scores, np.array([0, n]), transition, tags)
    truth = spans_by_paths(scores, transition, tags)
    for span in found.keys() | truth.keys():
        assert found.get(span, 0.0) == pytest.approx(truth.get(span, 0.0), rel=1e-9, abs=1e-11)


def test_sentences_are_apart_and_empty_ones_have_none() -> None:
    rng, tags = np.random.default_rng(3), TAGS["iob2"]
    scores, transition = rng.normal(size=(7, 5)), rng.normal(size=(5, 5))
    bounds = np.array([0, 3, 3, 7])
    found, _ = found_spans(scores, bounds, transition, tags)
    apart: dict[Span, float] = {}
    for low, high in ((0, 3), (3, 7)):
        own, _ = found_spans(scores[low:high], np.array([0, high - low]), transition, tags)
        apart |= {Span(s.type, s.start + low, s.end + low): p for s, p in own.items()}
    assert found == pytest.approx(apart, rel=1e-12)
    assert not found_spans(scores[:0], np.array([0, 0]), transition, tags)[0]


def test_less_probable_spans_are_left_out_and_the_others_are_as_they_were() -> None:
    rng, tags = np.random.default_rng(4), TAGS["bioes"]
    scores, transition = rng.normal(size=(30, 5)), rng.normal(size=(5, 5))
    bounds = np.array([0, 12, 30])
    every, _ = found_spans(scores, bounds, transition, tags)
    probable, _ = found_spans(scores, bounds, transition, tags, 0.05)
    assert probable == pytest.approx({s: p for s, p in every.items() if p >= 0.05}, rel=1e-12)
    assert 0 < len(probable) < len(every)


def test_long_sentences_and_large_scores_lose_no_precision() -> None:
    """What all labels of a token have alike says nothing, however much it sums to over a long sentence."""
    rng, tags, n = np.random.default_rng(8), TAGS["iob2"], 4000
    scores, transition = rng.normal(size=(n, 5)), rng.normal(size=(5, 5))
    scores = np.round(scores * 64) / 64  # so that adding a large number is exact
    bounds = np.array([0, n])
    expected, _ = found_spans(scores, bounds, transition, tags, 0.01)
    found, _ = found_spans(scores + 2.0**24, bounds, transition, tags, 0.01)
    assert found == pytest.approx(expected, rel=1e-6) and len(found) > n / 2
    assert sum(p for span, p in expected.items() if span.start <= n // 2 < span.end) < 1


def test_spans_that_gain_nothing_are_left_out_and_of_equal_sums_the_first_is_taken() -> None:
    start, end, bounds = np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([0, 2])
    for gain, expected in (
        ([0.0, -0.5, 0.0], [False, False, False]),
        ([0.25, 0.5, 0.25], [False, True, False]),
        ([0.25, 0.25, 0.0], [True, False, False]),
    ):
        assert best_spans(start, end, np.array(gain), bounds).tolist() == expected


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.6))
def test_the_best_set_is_that_of_all_sets(seed: int, least: float) -> None:
    rng, tags = np.random.default_rng(seed), TAGS["iob2"]
    scores, transition, bounds = rng.normal(size=(6, 5)), rng.normal(size=(5, 5)), np.array([0, 6])
    probable, found = found_spans(scores, bounds, transition, tags, 0.03)
    gain = found.probability - least
    taken = best_spans(found.start, found.end, gain, bounds)
    chosen = [span for span, is_taken in zip(probable, taken.tolist(), strict=True) if is_taken]
    assert all(a.end <= b.start for a, b in zip(chosen, chosen[1:], strict=False))
    most, best = best_disjoint({s: p - least for s, p in probable.items()})
    assert float(gain[taken].sum()) == pytest.approx(most, abs=1e-12) and set(chosen) == set(best)


def test_what_is_taken_of_a_sentence_does_not_depend_on_the_others() -> None:
    rng, tags = np.random.default_rng(5), TAGS["iob2"]
    scores, transition = rng.normal(size=(20, 5)), rng.normal(size=(5, 5))
    bounds = np.array([0, 6, 6, 13, 20])
    _, found = found_spans(scores, bounds, transition, tags, 0.01)
    taken = best_spans(found.start, found.end, found.probability - 0.1, bounds)
    alone = []
    for low, high in zip(bounds, bounds[1:], strict=False):
        own = (found.start >= low) & (found.end <= high)
        gain = found.probability[own] - 0.1
        alone += best_spans(found.start[own], found.end[own], gain, np.array([low, high])).tolist()
    assert taken.tolist() == alone and 2 < sum(alone) < len(alone)
    # beside a sum of 0.75 these gains would be nothing
    gain = np.array([0.75, 1e-17, 2e-17])
    start, end = np.array([0, 1, 1]), np.array([1, 2, 3])
    assert best_spans(start, end, gain, np.array([0, 1, 3])).tolist() == [True, False, True]
