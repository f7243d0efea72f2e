"""Spans taken by their probabilities, against all sets of spans; the threshold that held-out sentences choose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.checks import saved_bytes
from oracles.span_paths import best_disjoint, spans_by_paths
from sealing import edit_sealed
from sentences import is_one_sentence
from undertow import CRFTagger, Tagger, load
from undertow.errors import FormatError, InputError
from undertow.results.tagging import convert, span_scores, spans_of, tags_of
from undertow.results.tagging.crf_storage import labels_of
from undertow.results.tagging.scores import ALL_TYPES, SpanScore
from undertow.results.tagging.span_decoding import FEWEST_SPANS, ROUNDS
from undertow.storage import CONFIG

WORDS = [["Ann", "Lee", "left", "Rome"], ["Rome", "fell"], ["Lee", "Ann", "saw", "old", "grey", "Rome"], ["we", "left"]]
TAGS = [
    ["B-per", "I-per", "O", "B-loc"],
    ["B-loc", "O"],
    ["B-per", "B-per", "O", "B-loc", "I-loc", "I-loc"],
    ["O", "O"],
]
NEW = [["Ann", "saw", "Rome"], [], ["Lee", "Ann"], ["unseen"], ["old", "grey", "Ann"]]
THRESHOLDS = (1e-9, 0.05, 0.1, 0.2, 0.3, 0.5)


def labelled(n: int, seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """Capitalized words are names four times in ten, so that the best tags call none of the unseen ones a name."""
    draw = np.random.default_rng(seed)
    words, tags = [], []
    for _ in range(n):
        name = "".join(draw.choice(list("abcdefghij"), 6)).capitalize()
        words.append(["we", "saw", name, "there"])
        tags.append(["O", "O", "B-x" if draw.random() < 0.4 else "O", "O"])
    return words, tags


def counts(gold: Any, predicted: Any) -> SpanScore:
    return span_scores(gold, predicted)[ALL_TYPES]


@pytest.fixture(scope="module")
def finder() -> CRFTagger:
    return CRFTagger(n_iter=30).fit(*labelled(150, 0))


@pytest.fixture
def tagger(finder: CRFTagger) -> CRFTagger:
    """One that finds none, as `fit` leaves it."""
    finder.span_threshold_ = None
    return finder


# --- which spans are taken ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "written"),
    [(None, "iob1"), (None, "iob2"), (None, "bilou"), (None, "bioes"), ("bioes", "iob2"), ("bioes", "iob1")],
)
def test_those_with_the_largest_sum_of_all_sets_are_taken(scheme: str | None, written: str) -> None:
    tagger = CRFTagger(scheme=scheme, n_iter=3).fit(WORDS * 3, convert(TAGS * 3, written))
    assert tagger.scheme_ == written
    rng, n_spans, n_other = np.random.default_rng(0), 0, 0
    for size in (0.2, 0.5, 1.0, 3.0) * 3:
        weights = tagger.weights_
        tagger.weights_ = weights._replace(
            sparse=(size * rng.normal(size=weights.sparse.shape)).astype(np.float32),
            transition=rng.normal(size=weights.transition.shape).astype(np.float32),
        )
        read = labels_of(tagger.states_, tagger.labels_)
        truth: list[Any] = [{}] * len(NEW)
        for s, words in enumerate(NEW):
            if words:
                [(_, scores)] = tagger._scores([words], None)
                truth[s] = spans_by_paths(scores.astype(float), tagger.weights_.transition.astype(float), read)
        tagger.span_threshold_ = None
        most_probable = tagger.predict(NEW)
        for threshold in THRESHOLDS:
            tagger.span_threshold_ = threshold
            found = tagger.predict(NEW)
            for words, tags, p, tags_before in zip(NEW, found, truth, most_probable, strict=True):
                # what is less probable than 1e-6 is never looked at
                gains = {span: q - threshold for span, q in p.items() if q >= 1e-6}
                best, spans = best_disjoint(gains)
                assert tags == tags_of(spans, len(words), written)
                assert sum(gains[span] for span in spans_of(tags)) == pytest.approx(best, abs=1e-9)
                n_spans += len(spans)
                n_other += spans != spans_of(tags_before)
    assert n_spans > 100 and n_other > 50


def test_batches_threads_and_repetition_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tagger = CRFTagger(n_iter=3, scheme="bioes").fit(WORDS * 3, TAGS * 3)
    tagger.span_threshold_ = 0.2
    together = tagger.predict(NEW)
    assert together == tagger.predict(NEW) == [tagger.predict([s])[0] for s in NEW]
    assert tagger.set_params(n_jobs=2).predict(NEW) == together and tagger.predict([]) == []
    chosen = tagger.tune_spans(WORDS, TAGS).span_threshold_
    monkeypatch.setattr("undertow.results.tagging.crf.PREDICT_TOKENS", 4)
    assert tagger.tune_spans(WORDS, TAGS).span_threshold_ == chosen
    tagger.span_threshold_ = 0.2
    assert tagger.predict(NEW) == together


def test_many_batches_choose_the_threshold_of_one(tagger: CRFTagger, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = labelled(200, 1)
    chosen = tagger.tune_spans(X, y).span_threshold_
    assert chosen is not None and 0.2 < chosen < 0.5
    monkeypatch.setattr("undertow.results.tagging.crf.PREDICT_TOKENS", 50)
    assert tagger.tune_spans(X, y).span_threshold_ == chosen


def test_scores_beyond_all_numbers_are_refused() -> None:
    X, y = labelled(30, 0)
    tagger = CRFTagger(n_iter=5).fit(X, y, extra=[[{"size": 1.0}] * 4] * 30)
    tagger.weights_ = tagger.weights_._replace(sparse=100 * tagger.weights_.sparse)
    large = [[{"size": 1e38}] * 4]
    for threshold in (None, 0.3):
        tagger.span_threshold_ = threshold
        for ask in (tagger.predict, tagger.predict_spans, tagger.predict_proba, tagger.predict_nbest):
            with pytest.raises(InputError, match="numbers of the features are too large") as e:
                ask(X[:1], extra=large)
            assert is_one_sentence(str(e.value))


def test_everything_else_that_a_tagger_gives_stays(tagger: CRFTagger) -> None:
    X, y = labelled(20, 2)
    before = tagger.predict_proba(X), tagger.predict_nbest(X, 2), tagger.predict_spans(X)
    tagger.span_threshold_ = 0.2
    after = tagger.predict_proba(X), tagger.predict_nbest(X, 2), tagger.predict_spans(X)
    np.testing.assert_array_equal(after[0], before[0])
    assert after[1:] == before[1:]
    score = counts(y, tagger.predict(X))
    assert tagger.evaluate(X, y).spans[ALL_TYPES] == score and score.predicted > 15  # type: ignore[index]
    assert tagger.score(X, y) == tagger.evaluate(X, y).accuracy


# --- the threshold --------------------------------------------------------------------------------------


@pytest.mark.parametrize("l2", [1.0, 30.0])
def test_it_is_half_of_the_f1_that_it_reaches_from_that_of_the_best_tags_on(
    l2: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a large penalty the best tags are O throughout: their F1 is 0, and 1e-9 takes what 0 takes."""
    tagger, (X, y) = CRFTagger(n_iter=30, l2=l2).fit(*labelled(150, 0)), labelled(200, 1)
    by_round = [counts(y, tagger.predict(X)).f1 / 2]
    assert (by_round[0] == 0) == (l2 > 1) and by_round[0] < 0.1
    while len(by_round) < 2 or by_round[-1] != by_round[-2]:
        tagger.span_threshold_ = by_round[-1] or 1e-9
        by_round.append(counts(y, tagger.predict(X)).f1 / 2)
        with monkeypatch.context() as patch:
            patch.setattr("undertow.results.tagging.span_decoding.ROUNDS", len(by_round) - 1)
            assert tagger.tune_spans(X, y).span_threshold_ == by_round[-1]
    assert 3 < len(by_round) <= ROUNDS
    assert tagger.tune_spans(X, y) is tagger
    assert tagger.span_threshold_ == counts(y, tagger.predict(X)).f1 / 2 == by_round[-1] > 0.25


def test_extra_columns_are_read_for_it() -> None:
    X, y = labelled(60, 0)
    hints = [["-", "-", tag[0], "-"] for _, _, tag, _ in y]
    tagger = CRFTagger(l2=0.1).fit(X, y, extra=hints)
    assert tagger.tune_spans(X, y, extra=hints).span_threshold_ == 0.5, "the hints say all"
    assert tagger.predict(X, extra=hints) == y
    with pytest.raises(InputError, match="give extra="):
        tagger.tune_spans(X, y)


def test_a_fit_leaves_none_and_so_do_sentences_of_which_no_span_is_found(tagger: CRFTagger) -> None:
    X, y = labelled(30, 1)
    tagger.tune_spans(X, y)
    assert tagger.span_threshold_ is not None
    other = [["B-unknown" if tag != "O" else tag for tag in s] for s in y]
    assert tagger.tune_spans(X, other).span_threshold_ is None
    again = CRFTagger(n_iter=3).fit(X, y).tune_spans(X, y)
    assert again.span_threshold_ is not None and again.fit(X, y).span_threshold_ is None


# --- a Tagger -------------------------------------------------------------------------------------------


def test_a_tagger_takes_it_from_held_out_sentences() -> None:
    X, y = labelled(300, 0)
    found = Tagger(None, n_iter=30, validation=0.5).fit(X, y)
    train, held_out = (X[::2], y[::2]), (X[1::2], y[1::2])  # `split` holds the odd ones out
    plain = CRFTagger(n_iter=30, scheme="bioes").fit(*train).tune_spans(*held_out)
    assert found.span_threshold_ == found.crf_.span_threshold_ == plain.span_threshold_ is not None
    every = CRFTagger(n_iter=30, scheme="bioes").fit(X, y)
    test = labelled(200, 2)
    assert found.predict_spans(test[0][:5]) == every.predict_spans(test[0][:5]), "trained on all in the end"
    every.span_threshold_ = found.span_threshold_
    assert found.predict(test[0]) == every.predict(test[0])
    assert found.evaluate(*test).f1 > 0.4 and counts(test[1], found.predict(test[0])).predicted > 100  # type: ignore[operator]
    assert Tagger(None, n_iter=5, validation=None).fit(X, y).span_threshold_ is None


@pytest.mark.parametrize(("n", "chooses"), [(FEWEST_SPANS - 1, False), (FEWEST_SPANS, True)])
def test_few_spans_choose_none(n: int, chooses: bool) -> None:
    X, y = labelled(300, 1)
    held_out = [s for s in zip(X, y, strict=True) if "B-x" in s[1]][:n] + [(["we"], ["O"])]
    other = [words for words, _ in held_out], [tags for _, tags in held_out]
    tagger = Tagger(None, n_iter=10).fit(*labelled(60, 0), validation=other)
    assert (tagger.span_threshold_ is not None) == chooses
    assert chooses or tagger.held_out_ == tagger.crf_.evaluate(*other)


def test_a_tag_that_marks_no_span_counts_wherever_it_stands() -> None:
    """It is one of the held-out sentences or one of the others: either way there are no spans."""
    for at in (5, 6):  # of ten sentences `split` holds the sixth out
        X, y = labelled(800, 0)
        y[at] = ["_", *y[at][1:]]
        tagger = Tagger(None, n_iter=3).fit(X, y)
        assert tagger.scheme_ is None and tagger.span_threshold_ is None
        assert tagger.held_out_ is not None and tagger.held_out_.spans is None
        assert tagger.held_out_.tokens["all"].total == 320 and len(tagger.predict(X[:1])[0]) == 4


def test_each_half_is_scored_with_the_threshold_of_the_other() -> None:
    train, (X, y) = labelled(150, 0), labelled(301, 1)
    tagger = Tagger(None, n_iter=30).fit(*train, validation=(X, y))
    plain = CRFTagger(n_iter=30, scheme="bioes").fit(*train)
    chosen, predicted = [], [[""]] * len(X)
    for half, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        plain.tune_spans(X[other], y[other])
        chosen.append(plain.span_threshold_)
        predicted[half] = plain.predict(X[half])
    assert chosen[0] != chosen[1] and tagger.span_threshold_ not in chosen
    assert tagger.held_out_ == plain._report(X, y, predicted)
    assert tagger.held_out_.f1 > 0.4  # type: ignore[union-attr, operator]


def test_a_half_of_which_nothing_is_found_leaves_the_other_its_best_tags() -> None:
    train, (X, y) = labelled(150, 0), labelled(300, 1)
    y[1::2] = [["O", "O", "B-unknown", "O"]] * 150
    tagger = Tagger(None, n_iter=30).fit(*train, validation=(X, y))
    plain = CRFTagger(n_iter=30, scheme="bioes").fit(*train)
    predicted = plain.predict(X)
    predicted[1::2] = plain.tune_spans(X[::2], y[::2]).predict(X[1::2])
    assert tagger.held_out_ == plain._report(X, y, predicted)
    assert counts(y[1::2], predicted[1::2]).predicted > 100 > counts(y[::2], predicted[::2]).predicted


def test_the_held_out_scores_are_kept_with_it(tmp_path: Path) -> None:
    X, y = labelled(300, 0)
    first, second = (Tagger(None, n_iter=10, validation=0.5).fit(X, y, checkpoint=tmp_path / "work") for _ in range(2))
    assert saved_bytes(first) == saved_bytes(second) and first.span_threshold_ is not None
    [kept] = (tmp_path / "work").glob("held-out-spans-*.json")
    kept.write_text(kept.read_text().replace(f'"span_threshold": {first.span_threshold_}', '"span_threshold": 0.125'))
    third = Tagger(None, n_iter=10, validation=0.5).fit(X, y, checkpoint=tmp_path / "work")
    assert third.span_threshold_ == 0.125 and third.held_out_ == first.held_out_


# --- files ----------------------------------------------------------------------------------------------


def test_it_is_saved(tagger: CRFTagger, tmp_path: Path) -> None:
    X, y = labelled(200, 1)
    whole = Tagger(None, n_iter=10).fit(*labelled(60, 0), validation=(X, y))
    for model in (tagger.tune_spans(X, y), whole):
        model.save(tmp_path / model.kind)
        again: Any = load(tmp_path / model.kind)
        assert again.span_threshold_ == model.span_threshold_ is not None
        assert again.predict(X) == model.predict(X) and counts(y, again.predict(X)).predicted > 100
        assert saved_bytes(again) == saved_bytes(model)


def test_taggers_that_were_saved_before_have_none(tagger: CRFTagger, tmp_path: Path) -> None:
    X, y = labelled(200, 1)
    best = tagger.predict(X)
    tagger.tune_spans(X, y).save(tmp_path / "crf")
    edit_sealed(tmp_path / "crf" / CONFIG, lambda c: c["fitted"].pop("span_threshold"))
    old: Any = load(tmp_path / "crf")
    assert old.span_threshold_ is None and old.predict(X) == best

    def as_before(config: dict[str, Any]) -> None:
        """Its weights had the shift of O, and its file said how large that was."""
        config["fitted"]["outside_shift"] = -0.75
        del config["fitted"]["crf"]["fitted"]["span_threshold"]

    whole = Tagger(None, n_iter=10).fit(*labelled(60, 0), validation=(X, y))
    assert whole.span_threshold_ is not None
    whole.save(tmp_path / "whole")
    edit_sealed(tmp_path / "whole" / CONFIG, as_before)
    old = load(tmp_path / "whole")
    assert old.span_threshold_ is None and old.held_out_ == whole.held_out_
    whole.crf_.span_threshold_ = None
    assert old.predict(X) == whole.predict(X) and saved_bytes(old) == saved_bytes(whole)


@pytest.mark.parametrize("wrong", [0.0, 1.0, 1, -0.2, 1.5, "0.3", True, [0.3]], ids=str)
def test_no_other_values_are_loaded_saved_or_used(wrong: Any, tagger: CRFTagger, tmp_path: Path) -> None:
    tagger.save(tmp_path / "t")
    edit_sealed(tmp_path / "t" / CONFIG, lambda c: c["fitted"].update(span_threshold=wrong))
    with pytest.raises(FormatError) as e:
        load(tmp_path / "t")
    assert is_one_sentence(str(e.value))
    tagger.span_threshold_ = wrong
    with pytest.raises(InputError, match="cannot be saved"):
        tagger.save(tmp_path / "wrong")
    with pytest.raises(InputError, match=r"span_threshold_=.* must be a share between 0 and 1") as refused:
        tagger.predict([["we"]])
    assert is_one_sentence(str(refused.value))


def test_what_is_wrong_is_said(tagger: CRFTagger) -> None:
    plain = CRFTagger(n_iter=5).fit([["the", "cat"]], [["D", "N"]])
    for call, expected in (
        (lambda: plain.tune_spans([["the"]], [["D"]]), "mark no spans"),
        (lambda: tagger.tune_spans([["we"]], [["O"]]), "no spans .* give sentences with some"),
        (lambda: tagger.tune_spans([], []), "no spans .* give sentences with some"),
        (lambda: tagger.tune_spans([["we"]], [["N"]]), "'N' marks no span"),
        (lambda: tagger.tune_spans([["we"]], []), "1 sentences and 0 lists of tags"),
        (lambda: CRFTagger().tune_spans([["we"]], [["B-x"]]), "not fitted"),
    ):
        with pytest.raises((InputError, AttributeError), match=expected) as e:
            call()
        assert is_one_sentence(str(e.value))
    plain.span_threshold_ = 0.3
    with pytest.raises(InputError, match="needs tags that mark spans") as e:
        plain.predict([["the"]])
    assert is_one_sentence(str(e.value))
