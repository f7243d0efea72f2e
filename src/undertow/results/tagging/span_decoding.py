"""The spans that a CRF finds by their exact probabilities, whatever the tags around them.

The best tag sequence is the one that is most often right as a whole, but F1 counts spans. A span that is taken is right
with its probability p, so of all sets of spans that do not overlap the one with the largest Σ(p − θ) is taken. F1 is
best with a θ of half of itself: 2 · correct / (predicted + gold) rises by a span whose p is above half of it, and falls
by any other. That F1 is measured on sentences that the CRF was not trained on; it is one number, so a few can tell it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError, short
from undertow.kernels.chain.span_probabilities import SpanProbabilities, best_spans, span_probabilities
from undertow.kernels.types import F64, I64
from undertow.models.constraints import Share
from undertow.results.tagging.scores import SpanScore
from undertow.results.tagging.spans import Span, spans_of, split_tag, tags_of

LEAST = 1e-6  # spans of a smaller probability are never looked at
FEWEST_SPANS = 60  # held-out spans that can choose a threshold; 30 in each half
ROUNDS = 10  # of threshold and F1, at most


class Reading(NamedTuple):
    """How tags make spans, as `spans_of` reads them.

    Attributes
    ----------
    goes_on
        (K, K) whether the column's tag goes on the span of the row's.
    kinds
        (K,) the number of the type of each tag; −1 outside spans.
    types
        The types by number.
    """

    goes_on: NDArray[np.bool_]
    kinds: I64
    types: list[str]


def reading_of(tags: Sequence[str]) -> Reading:
    """How these tags make spans.

    Parameters
    ----------
    tags
        A tag for each state of a chain.

    Returns
    -------
    Reading
        For the other functions of this file.

    Raises
    ------
    InputError
        If a tag marks no span.
    """
    read = [split_tag(tag) for tag in tags]
    for tag, (letter, _) in zip(tags, read, strict=True):
        if not letter:
            raise InputError(f"The tag {tag!r} marks no span, so these tags have no spans.")
    types = sorted({type_ for letter, type_ in read if letter != "O"})
    kinds = np.array([types.index(type_) if letter != "O" else -1 for letter, type_ in read], dtype=np.int64)
    may_go_on = np.array([letter in ("B", "I") for letter, _ in read])
    goes_on_any = np.array([letter in ("I", "E") for letter, _ in read])
    return Reading(may_go_on[:, None] & goes_on_any & (kinds[:, None] == kinds), kinds, types)


def spans_of_scores(
    scores: F64, bounds: I64, transition: F64, reading: Reading, least: float
) -> Iterator[list[tuple[Span, float]]]:
    """The probable spans of each sentence with their probabilities, in the order of their tokens.

    Parameters
    ----------
    scores
        (N, K) of the states at all tokens.
    bounds
        (n + 1,) of sentences.
    transition
        (K, K) scores of a state after another one.
    reading
        How the tags of the states make spans.
    least
        Spans of a smaller probability are left out.

    Yields
    ------
    list of (Span, float)
        For each sentence. Spans may overlap: each has the summed probability of all taggings that have it.
    """
    found = span_probabilities(scores, bounds, transition, reading.goes_on, reading.kinds, least)
    return _by_sentence(found, bounds, reading.types)


def chosen_spans(scores: F64, bounds: I64, transition: F64, reading: Reading, threshold: float) -> Iterator[list[Span]]:
    """The spans of each sentence with the largest Σ(p − θ) of all sets that do not overlap.

    Parameters
    ----------
    scores, bounds, transition, reading
        As in `spans_of_scores`.
    threshold
        θ.

    Yields
    ------
    list of Span
        For each sentence, in the order of its tokens.
    """
    least = max(threshold, LEAST)
    found = span_probabilities(scores, bounds, transition, reading.goes_on, reading.kinds, least)
    return _chosen(found, bounds, reading.types, threshold)


def _by_sentence(found: SpanProbabilities, bounds: I64, types: list[str]) -> Iterator[list[tuple[Span, float]]]:
    # in the order of their ends, so those of a sentence lie together
    first = np.searchsorted(found.end, bounds, side="right")
    for s, low in enumerate(bounds[:-1].tolist()):
        own = slice(first[s], first[s + 1])
        rows = zip(*(column[own].tolist() for column in found), strict=True)
        spans = ((Span(types[kind], start - low, end - low), p) for start, end, kind, p in rows)
        yield sorted(spans, key=lambda found: (found[0].start, found[0].end, found[0].type))


def _chosen(found: SpanProbabilities, bounds: I64, types: list[str], threshold: float) -> Iterator[list[Span]]:
    taken = best_spans(found.start, found.end, found.probability - threshold, bounds)
    rest = SpanProbabilities(*(column[taken] for column in found))
    for spans in _by_sentence(rest, bounds, types):
        yield [span for span, _ in sorted(spans, key=lambda s: s[0].start)]


def check_threshold(threshold: Any, scheme: str | None) -> None:
    """Refuse a threshold that no sentences choose.

    Parameters
    ----------
    threshold
        That of a tagger.
    scheme
        How its tags mark spans.

    Raises
    ------
    InputError
        If it is neither None nor a number above 0 and below 1, or the tags mark no spans.
    """
    Share().check("CRFTagger", "span_threshold_", threshold)
    if threshold is not None and scheme is None:
        raise InputError(f"CRFTagger: span_threshold_={short(threshold)} needs tags that mark spans: set it to None.")


# --- the threshold --------------------------------------------------------------------------------------


class HeldOut(NamedTuple):
    """Labelled sentences with all that choosing a threshold needs.

    Attributes
    ----------
    gold
        The spans of each sentence.
    best
        Its most probable tags as a whole.
    found
        The spans of at least `LEAST` that it may have, of all sentences.
    bounds
        (n + 1,) of sentences.
    types
        The types of spans by number.
    """

    gold: list[set[Span]]
    best: list[list[str]]
    found: SpanProbabilities
    bounds: I64
    types: list[str]

    def spans(self, threshold: float) -> list[list[Span]]:
        """Those chosen with a threshold."""
        return list(_chosen(self.found, self.bounds, self.types, threshold))


def held_out(
    gold: list[list[str]], batches: Iterable[tuple[I64, F64, list[list[str]]]], transition: F64, reading: Reading
) -> HeldOut:
    """What choosing a threshold needs of labelled sentences, whose features are read once.

    Parameters
    ----------
    gold
        The tags of all sentences.
    batches
        Bounds, scores and most probable tags of some sentences at a time, in order.
    transition
        (K, K) scores of a state after another one.
    reading
        How the tags of the states make spans.

    Returns
    -------
    HeldOut
        For `threshold_of` and `tags_by_halves`.

    Raises
    ------
    InputError
        If a tag of `gold` marks no span, or there are no spans.
    """
    spans = [set(spans_of(tags)) for tags in gold]
    if not any(spans):
        raise InputError("The held-out sentences have no spans to choose a threshold by: give sentences with some.")
    best: list[list[str]] = []
    parts: list[SpanProbabilities] = []
    lengths = [0]
    for bounds, scores, tags in batches:
        part = span_probabilities(scores, bounds, transition, reading.goes_on, reading.kinds, LEAST)
        before = sum(lengths)
        parts.append(part._replace(start=part.start + before, end=part.end + before))
        lengths += np.diff(bounds).tolist()
        best += tags
    found = SpanProbabilities(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return HeldOut(spans, best, found, np.cumsum(lengths), reading.types)


def threshold_of(sentences: HeldOut, own: slice = slice(None)) -> float | None:
    """Half of the F1 that is reached with this threshold.

    From half of the F1 of the most probable tags on: the spans chosen with it have an F1, half of that is the next
    threshold, until it stays or after `ROUNDS` rounds.

    Parameters
    ----------
    sentences
        Labelled sentences that the tagger was not trained on.
    own
        Those that count.

    Returns
    -------
    float or None
        At most 0.5; None if no chosen span is right.
    """
    gold = sentences.gold[own]
    threshold = _f1(gold, [spans_of(tags) for tags in sentences.best[own]]) / 2
    for _ in range(ROUNDS):
        before, threshold = threshold, _f1(gold, sentences.spans(threshold)[own]) / 2
        if threshold == before:
            break
    return threshold or None


def tags_by_halves(sentences: HeldOut, scheme: str) -> list[list[str]]:
    """Tags of each half of the sentences, decoded with the threshold that the other half chose.

    Parameters
    ----------
    sentences
        Labelled sentences that the tagger was not trained on.
    scheme
        In which the tags are written.

    Returns
    -------
    list of lists of str
        A tag for each token.
    """
    predicted: list[list[str]] = [[]] * len(sentences.gold)
    halves = [slice(k, None, 2) for k in (0, 1)]
    for own, other in (halves, halves[::-1]):
        threshold = threshold_of(sentences, other)
        if threshold is None:
            predicted[own] = sentences.best[own]
        else:
            lengths = np.diff(sentences.bounds).tolist()
            every = zip(sentences.spans(threshold), lengths, strict=True)
            predicted[own] = [tags_of(spans, n, scheme) for spans, n in every][own]
    return predicted


def _f1(gold: Sequence[set[Span]], predicted: Sequence[Sequence[Span]]) -> float:
    right = sum(len(truth & set(spans)) for truth, spans in zip(gold, predicted, strict=True))
    return SpanScore(right, sum(map(len, predicted)), sum(map(len, gold))).f1
