"""The probabilities of spans by their definition: all tag paths of a sentence, each read as a reader of tags does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
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


def best_disjoint(gains: dict[Span, float]) -> float:
    """The largest sum of gains of spans that do not overlap, among all sets of spans."""
    spans = list(gains)
    best = 0.0
    for size in range(1, len(spans) + 1):
        for some in combinations(spans, size):
            if _are_disjoint(some):
                best = max(best, sum(gains[s] for s in some))
    return best


def _are_disjoint(spans: Iterable[Span]) -> bool:
    ordered = sorted(spans, key=lambda s: s.start)
    return all(a.end <= b.start for a, b in zip(ordered, ordered[1:], strict=False))
