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
from undertow.results.tagging.scores import ALL_TYPES, Report, span_scores
from undertow.results.tagging.spans import spans_of

FEWEST_SPANS = 60  # held-out spans that can choose a shift; 30 in each half
SHIFTS = tuple(-0.25 * i for i in range(-4, 13))  # from 1 to −3
OUTSIDE = "O"  # the tag of tokens outside all spans
EVERYWHERE = "bias"  # the attribute that every token has


def best_shift(
    tagger: CRFTagger, X: TaggerInput, y: TagLists, *, label: str = OUTSIDE, shifts: Sequence[float] = SHIFTS
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
    _column(tagger, label)
    if tagger.scheme_ is None:
        raise InputError("The tags of this tagger mark no spans, so there is no F1 to choose a shift by.")
    words = checked_words(X)
    gold = checked_tags(y, [len(s) for s in words])
    return _best(gold, tagged_with_shifts(tagger, words, label, shifts))


def tagged_with_shifts(
    tagger: CRFTagger, X: TaggerInput, label: str, shifts: Sequence[float]
) -> dict[float, list[list[str]]]:
    """Sentences tagged with each of several shifts of a tag's score; their features are read once.

    Parameters
    ----------
    tagger
        A fitted tagger without extra columns; it stays as it is.
    X
        Sentences.
    label
        The tag.
    shifts
        Numbers.

    Returns
    -------
    dict
        Shift → a list of tags for each sentence.
    """
    column = _column(tagger, label)
    found: dict[float, list[list[str]]] = {shift: [] for shift in shifts}
    for bounds, scores in tagger._scores(X, None):
        before = scores[:, column].copy()
        for shift, predicted in found.items():
            scores[:, column] = before + shift
            best = kernel.best_labels(scores, bounds, tagger.weights_.transition)
            predicted += [tagger._named(states) for states in np.split(best, bounds[1:-1])]
    return found


def _best(gold: list[list[str]], found: dict[float, list[list[str]]]) -> float:
    """The shift with the best F1, of equally good ones the smallest."""
    f1 = {shift: span_scores(gold, predicted)[ALL_TYPES].f1 or 0.0 for shift, predicted in found.items()}
    return max(f1, key=lambda shift: (f1[shift], -abs(shift)))


def measure_shift(tagger: CRFTagger, words: list[list[str]], tags: list[list[str]]) -> tuple[Report, float]:
    """The scores of a tagger with the best shift of O, and that shift.

    Parameters
    ----------
    tagger
        A fitted tagger; it stays as it is.
    words, tags
        Labelled sentences that it was not trained on.

    Returns
    -------
    report : Report
        For its scores each half of the sentences is tagged with the shift that is best on the other half, so that they
        are not those on which the shift was chosen.
    shift : float
        The best one on all sentences; 0 if the tags mark no spans, or these are too few to choose by.
    """
    n_spans = 0 if tagger.scheme_ is None or OUTSIDE not in tagger.labels_ else sum(len(spans_of(t)) for t in tags)
    if n_spans < FEWEST_SPANS:
        return tagger.evaluate(words, tags), 0.0
    found = tagged_with_shifts(tagger, words, OUTSIDE, SHIFTS)
    halves = [slice(k, None, 2) for k in (0, 1)]
    predicted: list[list[str]] = [[]] * len(words)
    for own, other in (halves, halves[::-1]):
        chosen = _best(tags[other], {shift: tagged[other] for shift, tagged in found.items()})
        predicted[own] = found[chosen][own]
    return tagger._report(words, tags, predicted), _best(tags, found)


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
    if label not in tagger.states_:
        raise InputError(f"The tagger knows no tag {label!r}: give one of {', '.join(tagger.states_)}.")
    return tagger.states_.index(label)
