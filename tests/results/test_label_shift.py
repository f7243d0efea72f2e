"""A tag's score is moved so that F1 on held-out sentences is best."""

from __future__ import annotations

import numpy as np
import pytest

from undertow import CRFTagger, Tagger, load
from undertow.errors import InputError
from undertow.results.tagging import span_scores
from undertow.results.tagging.label_shift import best_shift, measure_shift, shift_label
from undertow.results.tagging.scores import ALL_TYPES


def labelled(n: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Capitalized words are names four times in ten, so that a CRF calls none of the unseen ones a name."""
    draw = np.random.default_rng(seed)
    words, tags = [], []
    for _ in range(n):
        name = "".join(draw.choice(list("abcdefghij"), 6)).capitalize()
        words.append(["we", "saw", name, "there"])
        tags.append(["O", "O", "B-x" if draw.random() < 0.4 else "O", "O"])
    return words, tags


def f1(tagger: CRFTagger, X: list[list[str]], y: list[list[str]]) -> float:
    return span_scores(y, tagger.predict(X))[ALL_TYPES].f1 or 0.0


def test_the_best_shift_has_the_best_f1_of_a_tagger_that_is_moved_by_it() -> None:
    held_out = labelled(150, 1)
    by_shift = {}
    for shift in (0.5, 0.0, -0.5, -1.0, -3.0):
        tagger = CRFTagger(n_iter=30).fit(*labelled(150, 0))
        if shift == 0.5:
            chosen = best_shift(tagger, *held_out, shifts=(0.5, 0.0, -0.5, -1.0, -3.0))
        shift_label(tagger, "O", shift)
        by_shift[shift] = f1(tagger, *held_out)
    assert by_shift[chosen] == max(by_shift.values()) > by_shift[0.0] + 0.1
    assert chosen < 0


def test_a_shift_moves_the_log_odds_of_a_single_token_by_as_much(tmp_path) -> None:  # type: ignore[no-untyped-def]
    tagger = CRFTagger(n_iter=30).fit(*labelled(50, 0))
    before = tagger.predict_proba([["Abc"]])[0][0].astype(float)
    shift_label(tagger, "O", -0.75)
    after = tagger.predict_proba([["Abc"]])[0][0].astype(float)
    o, b = tagger.labels_.index("O"), tagger.labels_.index("B-x")
    moved = np.log(after[o] / after[b]) - np.log(before[o] / before[b])
    np.testing.assert_allclose(moved, -0.75, rtol=1e-4)
    tagger.save(tmp_path / "tagger")
    np.testing.assert_array_equal(load(tmp_path / "tagger").predict_proba([["Abc"]])[0][0], after.astype(np.float32))


def test_what_cannot_be_shifted() -> None:
    plain = CRFTagger(n_iter=5).fit([["the", "cat"]], [["D", "N"]])
    with pytest.raises(InputError, match="mark no spans"):
        best_shift(plain, [["the"]], [["D"]], label="D")
    with pytest.raises(InputError, match="knows no tag 'O'"):
        shift_label(plain, "O", 1.0)
    with pytest.raises(InputError, match="finite"):
        shift_label(plain, "D", float("nan"))


def test_scores_are_of_shifts_that_the_other_half_chose() -> None:
    tagger = CRFTagger(n_iter=30).fit(*labelled(150, 0))
    words, tags = labelled(300, 1)
    report, shift = measure_shift(tagger, words, tags)
    assert shift == best_shift(tagger, words, tags) < 0
    right = found = there = 0
    for half, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        moved = CRFTagger(n_iter=30).fit(*labelled(150, 0))
        shift_label(moved, "O", best_shift(tagger, words[other], tags[other]))
        score = span_scores(tags[half], moved.predict(words[half]))[ALL_TYPES]
        right, found, there = right + score.correct, found + score.predicted, there + score.gold
    assert report.spans is not None
    every = report.spans[ALL_TYPES]
    assert (every.correct, every.predicted, every.gold) == (right, found, there)
    plain = tagger.evaluate(words, tags).spans
    assert plain is not None and every.f1 > plain[ALL_TYPES].f1 + 0.1  # and the tagger itself did not move


def test_a_tagger_moves_the_tag_outside_where_enough_spans_are_held_out() -> None:
    words, tags = labelled(300, 0)
    moved = Tagger(None, n_iter=30, validation=0.5).fit(words, tags)
    plain = CRFTagger(n_iter=30).fit(words, tags)
    shift_label(plain, "O", moved.outside_shift_)
    test = labelled(200, 2)[0]
    assert moved.outside_shift_ < 0 and moved.predict(test) == plain.predict(test)
    assert Tagger(None, n_iter=30, validation=0.1).fit(words, tags).outside_shift_ == 0  # too few spans
