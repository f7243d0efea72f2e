"""How probable the spans are that a CRF finds, whatever the tags around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.span_probabilities import span_probabilities
from undertow.kernels.types import F64, I64
from undertow.results.tagging.spans import Span, split_tag


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
        For `spans_of_scores`.

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
    # in the order of their ends, so those of a sentence lie together
    first = np.searchsorted(found.end, bounds, side="right")
    for s, low in enumerate(bounds[:-1].tolist()):
        own = slice(first[s], first[s + 1])
        rows = zip(*(column[own].tolist() for column in found), strict=True)
        yield sorted((Span(reading.types[kind], start - low, end - low), p) for start, end, kind, p in rows)
