"""The one call: what a `Tagger` learns from text, measures, keeps and refuses."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.checks import tensor_bytes
from sentences import is_one_sentence
from tagged_grammar import TAGS, sentences
from undertow import HMM, Corpus, CRFTagger, Tagger, load
from undertow.engine import Serial
from undertow.errors import InputError
from undertow.models.checkpoint import CheckpointWarning
from undertow.models.fitting import TrainingEvent
from undertow.progress import Progress
from undertow.results.tagging import LittleTextWarning, Vectors
from undertow.results.tagging.base import LabelsWarning
from undertow.results.tagging.default import default_parts
from undertow.results.tagging.parts import WORK, Watch, duration
from undertow.results.tagging.tagger import split

WORDS, LABELS = sentences(60, seed=1, share=0.2)
TEST, GOLD = sentences(60, seed=2)
TEXT = sentences(9600, seed=3)[0]
PARTS = ["lds", "pmi", "context", "clusters", "hmm", "validation", "crf"]


def parts_of(events: list[TrainingEvent]) -> list[str | None]:
    return [part for part, _ in itertools.groupby(event.part for event in events)]


@pytest.fixture(scope="module")
def events() -> list[TrainingEvent]:
    return []


@pytest.fixture(scope="module")
def tagger(events: list[TrainingEvent]) -> Tagger:
    return Tagger(random_state=0, n_iter=30, callbacks=[events.append]).fit(WORDS, LABELS, text=TEXT)


def test_text_tells_what_unseen_words_are(tagger: Tagger) -> None:
    assert [f.name for f in tagger.features_] == [
        "lds-vectors",
        "pmi-vectors",
        "context-vectors",
        "clusters-paths",
        "hmm-posteriors",
    ]
    spelling = Tagger(n_iter=30).fit(WORDS, LABELS)
    assert spelling.features_ == []
    with_text, without = tagger.evaluate(TEST, GOLD), spelling.evaluate(TEST, GOLD)
    assert with_text.tokens["oov"].total > 200
    assert with_text.tokens["oov"].error < 0.1 and without.tokens["oov"].error > 0.2  # type: ignore[operator]
    assert tagger.score(TEST, GOLD) == with_text.tokens["all"].accuracy
    p = tagger.predict_proba(TEST[:1])[0]
    assert p.shape == (len(TEST[0]), len(tagger.labels_))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)
    assert tagger.predict_nbest(TEST[:3], 2) == tagger.crf_.predict_nbest(TEST[:3], 2)


def test_callbacks_hear_of_every_part(tagger: Tagger, events: list[TrainingEvent]) -> None:
    assert parts_of(events) == PARTS
    assert [e.objective for e in events if e.part == "crf"] == tagger.history_
    for part in PARTS:
        assert next(e.iteration for e in events if e.part == part) == 1


def test_saved_and_loaded_it_tags_the_same(tagger: Tagger, tmp_path: Path) -> None:
    tagger.save(tmp_path / "t")
    again: Any = load(tmp_path / "t")
    assert type(again) is Tagger and again.representation == "default" and again.held_out_ == tagger.held_out_
    assert again.predict(TEST) == tagger.predict(TEST) and again.evaluate(TEST, GOLD) == tagger.evaluate(TEST, GOLD)
    np.testing.assert_array_equal(again.predict_proba(TEST[:1])[0], tagger.predict_proba(TEST[:1])[0])
    again.save(tmp_path / "again")
    assert tensor_bytes(again) == tensor_bytes(tagger)


def test_the_number_of_threads_does_not_matter(tagger: Tagger) -> None:
    two = Tagger(random_state=0, n_iter=30, n_jobs=2).fit(WORDS, LABELS, text=TEXT)
    assert tensor_bytes(two) == tensor_bytes(tagger) and two.held_out_ == tagger.held_out_


def test_a_generator_as_random_state() -> None:
    a, b = (
        Tagger(random_state=np.random.default_rng(3), n_iter=3, validation=None).fit(WORDS, LABELS, text=TEXT)
        for _ in range(2)
    )
    assert tensor_bytes(a) == tensor_bytes(b)


# --- held-out scores ------------------------------------------------------------------------------------


def test_the_scores_are_of_sentences_that_the_measured_tagger_has_not_seen() -> None:
    tagger = Tagger(n_iter=20, validation=0.25).fit(WORDS, LABELS)
    (train, train_tags), (test, test_tags) = split((WORDS, LABELS), 0.25)
    assert len(test) == 15 and sorted(train + test) == sorted(WORDS)
    plain = CRFTagger(n_iter=20).fit(train, train_tags)
    assert tagger.held_out_ == plain.evaluate(test, test_tags)
    assert tagger.predict(TEST) == CRFTagger(n_iter=20).fit(WORDS, LABELS).predict(TEST), "trained on all in the end"


def test_other_sentences_to_measure_on() -> None:
    events: list[TrainingEvent] = []
    tagger = Tagger(n_iter=10, callbacks=[events.append]).fit(WORDS, LABELS, validation=(TEST, GOLD))
    assert parts_of(events) == ["crf"], "trained once"
    assert tagger.held_out_ == tagger.evaluate(TEST, GOLD)


def test_few_sentences_are_not_held_out() -> None:
    with pytest.warns(LittleTextWarning, match="Of 5 labelled sentences none are held out") as told:
        tagger = Tagger(n_iter=5).fit(WORDS[:5], LABELS[:5])
    assert tagger.held_out_ is None and is_one_sentence(str(told[0].message))
    assert Tagger(n_iter=5, validation=None).fit(WORDS[:5], LABELS[:5]).held_out_ is None


@pytest.mark.parametrize(("n", "share"), [(20, 0.1), (7, 0.5), (2, 0.9), (2, 0.01), (101, 0.1), (50, 0.99)])
def test_held_out_sentences_are_spread_over_the_text(n: int, share: float) -> None:
    words = [[f"w{i}"] for i in range(n)]
    (train, train_tags), (test, test_tags) = split((words, words), share)
    assert train == train_tags and test == test_tags and train and test
    assert sorted(train + test) == sorted(words) and len(test) == min(max(round(share * n), 1), n - 1)
    gaps = np.diff([int(s[0][1:]) for s in test])
    assert len(test) < 3 or (gaps.max() - gaps.min() <= 1 and gaps.min() >= n // len(test))


# --- forms of text --------------------------------------------------------------------------------------


def test_all_forms_of_text(tmp_path: Path) -> None:
    """A corpus and its directory, names and a pattern give the same tagger; so do lists and a generator."""
    X = sentences(700, seed=4)[0]
    for name, part in (("a.txt", X[:400]), ("b.txt", X[400:])):
        (tmp_path / name).write_text("".join(" ".join(s) + "\n" for s in part))
    names = [tmp_path / "a.txt", str(tmp_path / "b.txt")]
    corpus = Corpus.build(names, tmp_path / "c", vocab_size=None, min_count=2)
    found = []
    for text in (corpus, str(tmp_path / "c"), [tmp_path / "c"], names, str(tmp_path / "?.txt"), X, (s for s in X)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LittleTextWarning)
            found.append(Tagger(random_state=0, n_iter=3, validation=None).fit(WORDS, LABELS, text=text))  # type: ignore[arg-type]
    of_files, of_lists = found[:5], found[5:]
    for same in (of_files, of_lists):
        assert len({tensor_bytes(t) for t in same}) == 1
    assert [f.name for f in of_files[0].features_] == [f.name for f in of_lists[0].features_] != []
    assert of_files[0].tokenizer_ is not None and of_lists[0].tokenizer_ is None


@pytest.mark.parametrize(
    ("n", "parts"),
    [(2, []), (80, []), (300, ["clusters-paths", "hmm-posteriors"]), (1000, ["clusters-paths", "hmm-posteriors"])],
)
def test_little_text_leaves_parts_out(n: int, parts: list[str]) -> None:
    text = sentences(n, seed=5)[0]
    labelled = (WORDS[:1], LABELS[:1]) if n == 2 else (WORDS, LABELS)
    with pytest.warns(LittleTextWarning, match="too few for LDS vectors") as told:
        tagger = Tagger(random_state=0, n_iter=5, validation=None).fit(*labelled, text=text)
    assert [f.name for f in tagger.features_] == parts
    assert len(told) == 1 and is_one_sentence(str(told[0].message))
    if not parts:
        assert tagger.predict(TEST) == Tagger(None, n_iter=5, validation=None).fit(*labelled).predict(TEST)


# --- models of one's own --------------------------------------------------------------------------------


def test_the_network_alone_reads_vectors() -> None:
    text = Corpus.from_sentences([[f"w{i % 997}" for i in range(k, k + 20)] for k in range(1_500)])
    parts, left_out = default_parts(text, 0, 1)
    read = [part.read(part.model) for part in parts]  # type: ignore[arg-type]
    assert left_out == [] and [r.name for r in read if isinstance(r, Vectors)] == [
        "lds-vectors", "pmi-vectors", "context-vectors",
    ]  # fmt: skip
    assert all(r.network_only for r in read if isinstance(r, Vectors))
    assert sum(not isinstance(r, Vectors) for r in read) == 2  # paths and posteriors


def test_given_models_take_the_place_of_the_default(tmp_path: Path) -> None:
    hmm = HMM(6, n_iter=2, random_state=0).fit(TEXT[:300])
    tagger = Tagger([Vectors(hmm, name="v"), hmm], n_iter=5).fit(WORDS, LABELS)
    assert [f.name for f in tagger.features_] == ["v", "hmm-posteriors"]
    tagger.save(tmp_path / "t")
    again: Any = load(tmp_path / "t")
    assert [f.options() for f in again.representation] == [f.options() for f in tagger.features_]
    assert again.predict(TEST) == tagger.predict(TEST)
    Tagger(None, n_iter=3).fit(WORDS, LABELS).save(tmp_path / "none")
    assert load(tmp_path / "none").representation is None


# --- finished parts -------------------------------------------------------------------------------------


def fit_again(place: Path, text: Any = TEXT, **params: Any) -> tuple[Tagger, list[str | None]]:
    events: list[TrainingEvent] = []
    tagger = Tagger(random_state=0, n_iter=10, callbacks=[events.append], **params)
    tagger.fit(WORDS, LABELS, text=text, checkpoint=place)
    return tagger, parts_of(events)


def test_finished_parts_are_not_fitted_again(tmp_path: Path) -> None:
    place = tmp_path / "work"
    first, fitted = fit_again(place)
    assert fitted == PARTS and all(WORK.fullmatch(name) for name in os.listdir(place))
    second, fitted = fit_again(place)
    assert fitted == ["crf"] and tensor_bytes(second) == tensor_bytes(first) and second.held_out_ == first.held_out_
    assert fit_again(place, l2=2.0)[1] == ["validation", "crf"]
    damaged = next(place.glob("part-clusters-*")) / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with pytest.warns(CheckpointWarning, match="It is made again"):
        third, fitted = fit_again(place)
    assert fitted == ["clusters", "crf"] and tensor_bytes(third) == tensor_bytes(first)


def test_other_labels_take_the_models_over(tmp_path: Path) -> None:
    fit_again(tmp_path / "work")
    events: list[TrainingEvent] = []
    tagger = Tagger(random_state=0, n_iter=10, callbacks=[events.append])
    tagger.fit(TEST, GOLD, text=TEXT, checkpoint=tmp_path / "work")
    assert parts_of(events) == ["validation", "crf"]


def test_other_text_takes_nothing_over(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("".join(" ".join(s) + "\n" for s in TEXT))
    fit_again(tmp_path / "work", path)
    assert (
        fit_again(tmp_path / "work", str(path))[1] == ["crf"] and len(list((tmp_path / "work").glob("corpus-*"))) == 1
    )
    path.write_text("".join(" ".join(s) + "\n" for s in TEXT[::-1]))
    os.utime(path, (1, 1))
    assert fit_again(tmp_path / "work", path)[1] == PARTS


def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    """A model that Ctrl-C ended early is no part: the call ends, and the next goes on behind the finished ones."""

    def interrupt(event: TrainingEvent) -> None:
        if event.part == "hmm" and event.iteration == 2:
            raise KeyboardInterrupt

    tagger = Tagger(random_state=0, n_iter=10, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as outside of tests, where a warning is not an error
        tagger.fit(WORDS, LABELS, text=TEXT, checkpoint=tmp_path / "work")
    assert not tagger.__sklearn_is_fitted__() and not list((tmp_path / "work").glob("part-hmm-*"))
    went_on, fitted = fit_again(tmp_path / "work")
    assert fitted == ["hmm", "validation", "crf"]
    assert tensor_bytes(went_on) == tensor_bytes(fit_again(tmp_path / "elsewhere")[0])


# --- progress -------------------------------------------------------------------------------------------


def test_the_time_left_is_that_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    seen: list[Progress] = []
    watch = Watch([], seen.append)
    watch.plan({"hmm": 10.0, "b": 30.0, "c": 5.0})
    assert watch.seconds_left("hmm", 0.0) is None, "nothing is known yet"
    (tell,) = watch.of(HMM(3, n_iter=5))
    now = 104.0  # 4 s for a fifth of it: it takes twice as long as was thought
    tell(TrainingEvent(1, 5, -1.5, 4.0))
    assert seen == [
        Progress("hmm", 0, 5, "pass"),
        Progress("hmm", 1, 5, "pass", "objective -1.5000, about 86 s left in all"),
    ]
    watch.finish("c", reused=True)  # nothing to do for it
    now = 120.0
    watch.finish("hmm")
    assert watch.seconds_left("b", 0.0) == pytest.approx(60.0)
    assert [duration(s) for s in (3.2, 119, 300, 7200)] == ["3 s", "119 s", "5 min", "2.0 h"]


def test_reading_and_counting_are_reported(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("".join(" ".join(s) + "\n" for s in TEXT))
    seen: list[Progress] = []
    Tagger(n_iter=2, random_state=0).fit(WORDS, LABELS, text=tmp_path / "t.txt", progress=seen.append)
    stages = [stage for stage, _ in itertools.groupby(p.stage for p in seen)]
    assert stages == ["read", "encode", "count", *PARTS]
    assert "left in all" in seen[-1].text


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda p: Tagger("x").fit(WORDS, LABELS), "neither a fitted model"),
        (lambda p: Tagger(None).fit(WORDS, LABELS, text=TEXT), "leave out text, or representation"),
        (lambda p: Tagger().fit(WORDS, LABELS, text=3), "is not a text"),
        (lambda p: Tagger().fit(WORDS, LABELS, text=[[]]), "no token"),
        (lambda p: Tagger().fit(WORDS, LABELS, text=[["a"], "b.txt"]), "one kind"),
        (lambda p: Tagger().fit(WORDS, LABELS, text=p / "none.txt"), "none.txt"),
        (lambda p: Tagger().fit(WORDS, LABELS, text=str(p / "*.gz")), "no file matches"),
        (lambda p: Tagger().fit(WORDS, LABELS, text=p), "not a corpus"),
        (lambda p: Tagger().fit(WORDS, LABELS, text=[p, p]), "one corpus"),
        (lambda p: Tagger().fit(WORDS, LABELS, text=[["a", 3]]), "token"),
        (lambda p: Tagger().fit(WORDS, LABELS, validation=(TEST,)), "must be a pair"),
        (lambda p: Tagger().fit(WORDS, LABELS, validation=(TEST, LABELS[:3])), "lists of tags"),
        (lambda p: Tagger(validation=1.5).fit(WORDS, LABELS), "share between 0 and 1"),
        (lambda p: Tagger().fit(WORDS, LABELS[:-1]), "60 sentences and 59"),
        (lambda p: Tagger().fit(WORDS, LABELS, engine=Serial()), "leave out engine"),
        (lambda p: Tagger().fit(WORDS, LABELS, checkpoint=3), "must be a directory"),
        (lambda p: Tagger().fit([], []), "no token to learn from"),
        (lambda p: Tagger().predict(TEST), "not fitted"),
    ],
)
def test_what_is_wrong_is_said(call: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises((InputError, AttributeError), match=expected) as e:
        call(tmp_path)
    assert is_one_sentence(str(e.value))


def test_the_grammar_gives_each_word_one_tag() -> None:
    assert all(TAGS[w] == t for s, g in zip(TEST, GOLD, strict=True) for w, t in zip(s, g, strict=True))


@pytest.mark.parametrize(
    ("words", "tags", "expected"),
    [
        (LABELS, WORDS, "more different tags \\(.*\\) than different words .*--column, --tags"),
        (WORDS, [["O"] * len(s) for s in WORDS], "All tokens have the tag 'O', so there is nothing to learn"),
        ([list(itertools.chain(*WORDS))], [list(itertools.chain(*LABELS))], "have .* tokens on average: divide them"),
    ],
)
def test_mistakes_in_labelled_files_are_warned_of(words: list[list[str]], tags: list[list[str]], expected: str) -> None:
    with pytest.warns(LabelsWarning, match=expected) as told:
        Tagger(n_iter=1, validation=None).fit(words, tags)
    assert is_one_sentence(str(told[0].message)) and told[0].filename == __file__
