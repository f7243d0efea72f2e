"""Find more spans: the score of a tag is moved so that F1 on held-out sentences is best.

From few labels a CRF finds few of the spans and is right about most of these: the tag of tokens outside spans, O, is
far more probable than all others, and a whole sentence is decoded. Taking a number off the score of O trades precision
for recall. It is one number, so few held-out sentences can choose it, and it is added to the weight that every token
has for the tag, so that a saved tagger needs no more than its weights.

    shift = best_shift(tagger, words, tags)     # sentences that it was not trained on
    shift_label(tagger, "O", shift)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from undertow.errors import InputError
from undertow.kernels.chain import crf as kernel
from undertow.results.tagging.base import TaggerInput, TagLists, checked_tags, checked_words
from undertow.results.tagging.crf import CRFTagger
from undertow.results.tagging.scores import ALL_TYPES, span_scores

SHIFTS = tuple(-0.25 * i for i in range(-4, 13))  # from 1 to −3
EVERYWHERE = "bias"  # the attribute that every token has


def best_shift(
    tagger: CRFTagger, X: TaggerInput, y: TagLists, *, label: str = "O", shifts: Sequence[float] = SHIFTS
) -> float:
    """The shift of a tag's score with the best F1 of spans.

    Parameters
    ----------
    tagger
        A fitted tagger whose tags mark spans, without extra columns.
    X, y
        Labelled sentences that it was not trained on.
    label
        The tag.
    shifts
        Those to choose from; of equally good ones the smallest is taken.

    Returns
    -------
    float
        One of `shifts`.

    Raises
    ------
    InputError
        If the tags mark no spans, or there is no such tag.
    """
    column = _column(tagger, label)
    if tagger.scheme_ is None:
        raise InputError("The tags of this tagger mark no spans, so there is no F1 to choose a shift by.")
    words = checked_words(X)
    gold = checked_tags(y, [len(s) for s in words])
    found: dict[float, list[list[str]]] = {shift: [] for shift in shifts}
    for bounds, scores in tagger._scores(words, None):
        before = scores[:, column].copy()
        for shift, predicted in found.items():
            scores[:, column] = before + shift
            best = kernel.best_labels(scores, bounds, tagger.weights_.transition)
            predicted += [[tagger.labels_[k] for k in states] for states in np.split(best, bounds[1:-1])]
    f1 = {shift: span_scores(gold, predicted)[ALL_TYPES].f1 or 0.0 for shift, predicted in found.items()}
    return max(f1, key=lambda shift: (f1[shift], -abs(shift)))


def shift_label(tagger: CRFTagger, label: str, shift: float) -> None:
    """Add a number to the score that a tagger gives a tag at every token.

    Parameters
    ----------
    tagger
        A fitted tagger; its weights change.
    label
        The tag.
    shift
        The number.

    Raises
    ------
    InputError
        If there is no such tag, or the number is not finite.
    """
    if not np.isfinite(shift):
        raise InputError(f"shift={shift!r} must be a finite number.")
    column, weights = _column(tagger, label), tagger.weights_
    row = tagger.attributes_.get(EVERYWHERE)
    own = slice(0, 0) if row is None else slice(weights.start[row], weights.start[row + 1])
    at = np.flatnonzero(weights.label[own] == column)
    if not len(at):
        raise InputError(f"The tagger has no weight for the tag {label!r} that holds at every token: train it again.")
    sparse = weights.sparse.copy()
    sparse[own.start + at[0]] += np.float32(shift)
    tagger.weights_ = weights._replace(sparse=sparse)


def _column(tagger: CRFTagger, label: str) -> int:
    tagger._check_fitted()
    if label not in tagger.labels_:
        raise InputError(f"The tagger knows no tag {label!r}: give one of {', '.join(tagger.labels_)}.")
    return tagger.labels_.index(label)
