"""The probabilities of spans by their definition: all tag paths of a sentence, each read as a reader of tags does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tests.oracles.crf_paths import log_sum, path_scores

from undertow.results.tagging.spans import Span, spans_of


def spans_by_paths(scores: Any, transition: Any, tags: Sequence[str]) -> dict[Span, float]:
    """The summed probability of the paths in which each span is read."""
    found = path_scores(scores, transition)
    log_z = log_sum([value for value, _ in found])
    out: dict[Span, float] = defaultdict(float)
    for value, path in found:
        for span in spans_of([tags[k] for k in path]):
            out[span] += float(np.exp(value - log_z))
    return dict(out)


def best_disjoint(gains: dict[Span, float]) -> tuple[float, list[Span]]:
    """The set of spans that do not overlap with the largest sum of gains, by looking at all such sets."""
    return max(
        ((sum(gains[s] for s in some), some) for some in disjoint_sets(sorted(gains))), key=lambda found: found[0]
    )


def disjoint_sets(spans: list[Span], first: int = 0) -> Iterator[list[Span]]:
    """All sets of spans from a token on that do not overlap, in the order of their tokens; the empty one is first."""
    yield []
    for span in spans:
        if span.start >= first:
            for rest in disjoint_sets(spans, span.end):
                yield [span, *rest]
