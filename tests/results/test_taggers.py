"""The two taggers: what they learn, read and refuse; with scikit-learn; on real text where it is at hand."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracles.naive_crf_features import naive_word_features
from sentences import is_one_sentence
from tagged_samples import NOUNS, sentences
from undertow import LDS, Corpus, load
from undertow.errors import InputError, NotFittedError, UndertowError
from undertow.results.tagging import CRFTagger, LocalTagger, Vectors, packed_models
from undertow.results.tagging.crf_features import FeatureReader
from undertow.results.tagging.word_features import shape
from undertow.text.tagged import read_tagged
from waiting import HANGS


@pytest.fixture(scope="module")
def model() -> LDS:
    """Fitted to more text than is labelled: it also knows `lake` and `town`."""
    X, _ = sentences(300, seed=1, nouns=(*NOUNS, "lake", "town"))
    return LDS(6, n_iter=5, n_full=1, lags=3, ssid_lags=2, kappa=1.0, random_state=0).fit(X)


KINDS = [
    pytest.param(lambda f=None: CRFTagger(f), id="crf"),
    pytest.param(lambda f=None: LocalTagger(f, random_state=0, n_iter=60, learning_rate=0.02), id="local"),
]


def test_a_corpus_is_tagged_and_evaluated_as_its_token_lists() -> None:
    X, y = sentences(20)
    corpus = Corpus.from_sentences(X)
    tagger = CRFTagger(n_iter=5).fit(corpus, y)
    assert tagger.predict(corpus) == tagger.predict(X)
    assert tagger.evaluate(corpus, y) == tagger.evaluate(X, y) and tagger.score(corpus, y) == tagger.score(X, y)


class Numbers:
    """Two numbers a word, times a sign."""

    name, window = "numbers", 0

    def __init__(self, sign: float) -> None:
        self.sign = sign

    def features(self, X: Any) -> list[list[dict[str, float]]]:
        draw = [[np.random.default_rng(len(w)).standard_normal(2) for w in s] for s in X]
        return [[{"0": self.sign * a, "1": self.sign * b} for a, b in row] for row in draw]


def test_the_signs_of_numbers_do_not_matter_to_a_crf() -> None:
    X, y = sentences(40)
    plus, minus = (CRFTagger(Numbers(sign), lexical=False).fit(X, y) for sign in (1.0, -1.0))
    assert plus.attributes_ == minus.attributes_ and {"numbers[0]:0", "numbers[0]:1"} <= set(plus.attributes_)
    for name in ("numbers[0]:0", "numbers[0]:1"):
        row = plus.attributes_[name]
        assert plus.weights_.start[row + 1] - plus.weights_.start[row] == len(plus.labels_)
    for a, b in zip(plus.predict_proba(X), minus.predict_proba(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_tags_of_another_set_are_refused() -> None:
    tagger = CRFTagger(n_iter=5).fit([["a", "b"]] * 3, [["X", "Y"]] * 3)
    assert tagger.columns_ is None  # nothing was read from a file
    assert tagger.score([["a", "b"]], [["X", "Z"]]) == 0.5  # one of them is known
    with pytest.raises(InputError, match=r"Only 0 of 2 tokens.*\(u, v\).*\(X, Y\)") as e:
        tagger.evaluate([["a", "b"]], [["u", "v"]])
    assert is_one_sentence(str(e.value))
    with pytest.raises(InputError, match=r"Only 1 of 30 tokens.*\(X, a-very-long-name-of…, t0, t1, t10, …\)"):
        tagger.evaluate([["a"] * 30], [["X", "a-very-long-name-of-a-tag", *(f"t{i}" for i in range(28))]])


@pytest.mark.parametrize("make", KINDS)
def test_a_tagger_learns_and_says_how_right_it_is(model: LDS, make: Any, tmp_path: Path) -> None:
    X, y = sentences(60)
    X_test, y_test = sentences(40, seed=2, nouns=("river", "lake", "town"))
    tagger = make(model).fit(X, y)
    assert tagger.predict(X) == y and tagger.score(X, y) == 1.0
    assert tagger.labels_ == ["A", "D", "N", "V"] and tagger.scheme_ is None
    report = tagger.evaluate(X_test, y_test)
    n_new = sum(word in ("lake", "town") for s in X_test for word in s)
    assert report.tokens["oov"].total == n_new and report.tokens["all"].total == sum(map(len, X_test))
    assert report.tokens["oov"].right > 0.9 * n_new, "the model's features know the unseen nouns"
    assert report.spans is None and tagger.score(X_test, y_test) == report.tokens["all"].accuracy
    assert tagger.predict([[], ["the"]])[0] == []
    for p, s in zip(tagger.predict_proba([[], *X_test]), [[], *X_test], strict=True):
        assert p.shape == (len(s), 4) and p.dtype == np.float32
        np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)
    tagger.save(tmp_path / "tagger")
    loaded = load(tmp_path / "tagger")
    assert type(loaded) is type(tagger) and loaded.predict(X_test) == tagger.predict(X_test)
    assert loaded.evaluate(X_test, y_test) == report
    np.testing.assert_array_equal(loaded.predict_proba(X_test)[0], tagger.predict_proba(X_test)[0])


def test_a_saved_tagger_needs_nothing_but_its_directory(model: LDS, tmp_path: Path) -> None:
    X, y = sentences(30)
    both = CRFTagger([Vectors(model, "type"), Vectors(model, "smooth", name="context", window=1, scale=3.0)]).fit(X, y)
    both.save(tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "elsewhere")
    loaded: Any = load(tmp_path / "elsewhere")
    assert [f.options() for f in loaded.features_] == [f.options() for f in both.features_]
    assert loaded.features_[0].model is loaded.features_[1].model
    assert len(json.loads((tmp_path / "elsewhere" / "config.json").read_text())["fitted"]["models"]) == 1, "kept once"
    assert sorted(p.name for p in (tmp_path / "elsewhere").iterdir()) == [
        "README.md", "config.json", "model.safetensors", "vocabulary.txt",
    ]  # fmt: skip
    code = f"import undertow; print(undertow.load({str(tmp_path / 'elsewhere')!r}).predict([['the', 'lake', 'runs']]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANGS)
    assert done.stdout.strip() == str(loaded.predict([["the", "lake", "runs"]]))


def test_a_crf_without_a_model_reads_spelling() -> None:
    X, y = sentences(40)
    tagger = CRFTagger().fit(X, y)
    assert tagger.predict([["the", "moon", "sleeps"]]) == [["D", "N", "V"]] and tagger.features_ == []
    assert not any(name.startswith("run=") for name in tagger.attributes_), "more letters are read for spans alone"
    flat = CRFTagger(window=0).fit(X, y)
    assert flat.score(X, y) == 1.0


def test_tags_that_mark_spans(tmp_path: Path) -> None:
    X = [["Ann", "Lee", "left", "Rome"], ["Rome", "fell"], ["Ann", "saw", "Bob"]] * 8
    y = [["B-per", "I-per", "O", "B-loc"], ["B-loc", "O"], ["B-per", "O", "B-per"]] * 8
    tagger = CRFTagger().fit(X, y)
    assert tagger.scheme_ == "iob2" and "run=^an" in tagger.attributes_
    report = tagger.evaluate(X[:3], [["B-per", "I-per", "O", "B-per"], *y[1:3]])
    assert report.spans is not None
    assert report.spans["per"] == (3, 3, 4) and report.spans["loc"] == (1, 2, 1)
    assert report.as_dict()["spans"]["all"]["f1"] == pytest.approx(4 / 5)
    assert tagger.evaluate([["x"]], [["O"]]).spans is not None
    tagger.save(tmp_path / "t")
    assert load(tmp_path / "t").scheme_ == "iob2"
    with pytest.raises(InputError, match="IOB2"):
        tagger.evaluate([["x", "y"]], [["O", "NN"]])


def test_one_tag_for_everything_needs_no_iteration(tmp_path: Path) -> None:
    tagger = CRFTagger().fit([["a", "b"]], [["X", "X"]])
    assert tagger.history_ == [0.0] and tagger.predict([["c"]]) == [["X"]]
    tagger.save(tmp_path / "t")


def names_of(reader: FeatureReader, X: Any, extra: Any = None) -> tuple[Any, list[dict[str, float]]]:
    """The arrays, and the sparse features of each token by name."""
    tokens = reader.read(X, extra, grow=True)
    names = list(reader.attributes)
    rows = [range(a, b) for a, b in zip(tokens.row, tokens.row[1:], strict=False)]
    values = tokens.value if len(tokens.value) else np.ones(len(tokens.attribute), dtype=np.float32)
    return tokens, [{names[tokens.attribute[i]]: float(values[i]) for i in row} for row in rows]


def test_what_a_crf_reads(model: LDS) -> None:
    """Against a twin that looks at one token at a time."""
    X = [["The", "p53-like", "3.5", "GFP", "x"], ["TNF-alpha"], [], ["naïve", "IV"]]
    vectors = Vectors(model, "type", name="v", window=1)
    for window, letters in ((0, True), (2, True), (2, False)):
        tokens, items = names_of(FeatureReader([vectors], window, True, {}, letters), X)
        assert len(tokens.attribute) == sum(map(len, items)), "no name twice"
        expected = [naive_word_features(s, i, window, letters) for s in X for i in range(len(s))]
        assert [set(item) for item in items] == expected
    rows = np.concatenate(vectors.vectors(X))
    sentence, d = np.repeat(np.arange(4), [len(s) for s in X]), rows.shape[1]
    assert tokens.dense.shape == (8, 3 * d)
    for t in range(8):
        for offset in (-1, 0, 1):
            is_there = 0 <= t + offset < 8 and sentence[t] == sentence[t + offset]
            found = tokens.dense[t, (offset + 1) * d : (offset + 2) * d]
            np.testing.assert_array_equal(found, rows[t + offset] if is_there else np.zeros(d))
    _, bare = names_of(FeatureReader([vectors], 2, False, {}), X)
    assert bare == [{"bias": 1.0}] * 8


def test_shapes() -> None:
    assert [shape(w) for w in ("McDonald", "p53-like", "3.5", "ÉCOLE")] == ["XxXxxxxx", "xdd-xxxx", "d.d", "XXXXX"]


class OfWord:
    """Named values of words, as dicts."""

    name, window = "s", 1

    def features(self, X: Any) -> Any:
        return [[{word: float(len(word))} for word in s] for s in X]


def test_features_of_neighbours_stay_within_the_sentence() -> None:
    _, items = names_of(FeatureReader([OfWord()], 2, False, {}), [["a", "bb"], ["c"]])
    assert items == [
        {"bias": 1.0, "s[0]:a": 1.0, "s[1]:bb": 2.0},
        {"bias": 1.0, "s[-1]:a": 1.0, "s[0]:bb": 2.0},
        {"bias": 1.0, "s[0]:c": 1.0},
    ]


def test_a_local_tagger_reads_vectors_too(model: LDS, tmp_path: Path) -> None:
    X, y = sentences(60)
    vectors = model.transform(X)
    plain = LocalTagger(random_state=0, n_iter=5).fit(vectors, y)
    with_model = LocalTagger(model, random_state=0, n_iter=5).fit(X, y)
    assert plain.predict(vectors) == with_model.predict(X)
    assert set(plain.evaluate(vectors, y).tokens) == {"all"}, "without words nobody knows which are unseen"
    plain.save(tmp_path / "t")
    assert load(tmp_path / "t").predict(vectors) == plain.predict(vectors)


def test_the_scale_of_vectors_does_not_matter(model: LDS) -> None:
    X, y = sentences(30)
    vectors = model.transform(X)
    large = [1024 * v for v in vectors]  # a power of two: the rounding is the same
    plain, scaled = (LocalTagger(random_state=0, n_iter=3).fit(V, y) for V in (vectors, large))
    np.testing.assert_allclose(scaled.network_.W1, plain.network_.W1, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scaled.predict_proba(large)[0], plain.predict_proba(vectors)[0], rtol=1e-4)


def test_penalties_pull_the_weights_to_zero() -> None:
    X, y = sentences(30)
    sure, strict, sparse = (CRFTagger(**p).fit(X, y) for p in ({"l2": 0.01}, {"l2": 100.0}, {"l1": 5.0, "l2": 0.01}))
    assert sure.predict_proba(X)[0].max() > 0.99 and strict.predict_proba(X)[0].max() < 0.9
    assert len(sparse.weights_.label) < len(sure.weights_.label) / 2, "l1 leaves most weights out"


def test_a_packed_model_is_checked_as_closely_as_one_of_its_own(model: LDS) -> None:
    record, tensors = packed_models.pack(model, "m.")
    again = packed_models.unpack(record, tensors, "m.")
    assert again.vocabulary_ == model.vocabulary_ and again.history_ == model.history_
    assert {n: (t.dtype, t.shape) for n, t in packed_models.packed_spec(record, "m.").items()} == {
        n: (t.dtype.name, t.shape) for n, t in tensors.items()
    }
    for change in ({"n_words": record["n_words"] + 1}, {"kind": "no-such-kind"}, {"format_version": 99}, {"more": 1}):
        with pytest.raises(UndertowError) as e:
            packed_models.unpack({**record, **change}, tensors, "m.")
        assert is_one_sentence(str(e.value))


def test_training_stops_when_the_held_out_sentences_say_so() -> None:
    rng = np.random.default_rng(0)
    X = list(rng.normal(size=(40, 5, 8)).astype(np.float32))
    y = [[str(rng.integers(3)) for _ in range(5)] for _ in X]  # noise: nothing to learn
    tagger = LocalTagger(random_state=0, n_iter=50, patience=2, learning_rate=0.02).fit(X, y)
    best = int(np.argmax(tagger.history_))
    assert len(tagger.history_) == best + 3 < 50
    shorter = LocalTagger(random_state=0, n_iter=best + 1, learning_rate=0.02).fit(X, y)
    np.testing.assert_array_equal(shorter.network_.W1, tagger.network_.W1)


def test_in_a_pipeline_and_a_grid(model: LDS) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline

    X, y = sentences(60)
    lds = LDS(6, n_iter=2, n_full=0, lags=3, ssid_lags=2, kappa=1.0, random_state=0)
    tagger = LocalTagger(random_state=0, n_iter=20, learning_rate=0.02)
    pipeline = Pipeline([("lds", lds), ("tag", tagger)]).fit(X, y)
    assert pipeline.score(X, y) > 0.95 and pipeline.predict(X[:1]) == [y[0]]
    search = GridSearchCV(LocalTagger(model, random_state=0, learning_rate=0.02), {"n_hidden": [2, 10]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    copied = clone(search.best_estimator_)
    assert copied.features is model and not copied.__sklearn_is_fitted__()


class Custom:
    name = "custom"

    def features(self, sentences: Any) -> Any:
        return [[{"long": float(len(word) > 3)} for word in s] for s in sentences]


def test_features_of_ones_own(tmp_path: Path) -> None:
    X, y = sentences(20)
    tagger = CRFTagger(Custom(), lexical=False).fit(X, y)
    assert tagger.score(X, y) > 0.6
    with pytest.raises(InputError, match="'custom' cannot be saved") as e:
        tagger.save(tmp_path / "t")
    assert is_one_sentence(str(e.value)) and not (tmp_path / "t").exists()


class Short(Custom):
    def features(self, sentences: Any) -> Any:
        return [s[1:] for s in super().features(sentences)]


ONE = [["a", "b"]]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda m: CRFTagger().fit(ONE, [["X"]]),
        lambda m: CRFTagger().fit(ONE, None),
        lambda m: CRFTagger().fit(ONE, [["X", "Y"], ["Z"]]),
        lambda m: CRFTagger().fit(ONE, [["X", 3]]),
        lambda m: CRFTagger().fit(ONE, [["X", "a b"]]),
        lambda m: CRFTagger().fit([["a", "b\0"]], [["X", "Y"]]),
        lambda m: CRFTagger().fit([[]], [[]]),
        lambda m: CRFTagger().fit(ONE, [["X", "Y"]]).predict([["\ud800"]]),
        lambda m: CRFTagger().fit(ONE, [["X", "Y"]]).score([], []),
        lambda m: CRFTagger(Short()).fit(ONE, [["X", "Y"]]),
        lambda m: CRFTagger(window=-1).fit(ONE, [["X", "Y"]]),
        lambda m: CRFTagger(l2=-1.0).fit(ONE, [["X", "Y"]]),
        lambda m: CRFTagger(algorithm="newton").fit(ONE, [["X", "Y"]]),
        lambda m: CRFTagger(lexical=False).fit(ONE, [["X", "Y"]]),
        lambda m: CRFTagger(LDS()).fit(ONE, [["X", "Y"]]),
        lambda m: CRFTagger().predict(ONE),
        lambda m: LocalTagger().fit(ONE, [["X", "Y"]]),
        lambda m: LocalTagger().fit("text", [["X", "Y"]]),
        lambda m: LocalTagger().fit([np.full((2, 3), np.nan)], [["X", "Y"]]),
        lambda m: LocalTagger().fit([np.ones((2, 3)), np.ones((2, 4))], [["X", "Y"], ["X", "Y"]]),
        lambda m: LocalTagger().fit([np.ones((2, 0))], [["X", "Y"]]),
        lambda m: LocalTagger(n_hidden=0).fit([np.ones((2, 3))], [["X", "Y"]]),
        lambda m: LocalTagger(held_out=1.5).fit([np.ones((2, 3))], [["X", "Y"]]),
        lambda m: LocalTagger(Custom()).fit(ONE, [["X", "Y"]]),
        lambda m: LocalTagger(n_iter=1).fit([np.ones((2, 3))], [["X", "Y"]]).predict([np.ones((2, 4))]),
        lambda m: LocalTagger(m, n_iter=1).fit(ONE, [["X", "Y"]]).predict("text"),
    ],
)
def test_errors_are_one_sentence(model: LDS, wrong: Any) -> None:
    with pytest.raises(UndertowError) as e:
        wrong(model)
    assert is_one_sentence(str(e.value))


def test_before_fit() -> None:
    for tagger in (CRFTagger(), LocalTagger()):
        for use in (tagger.predict, lambda X, t=tagger: t.score(X, X), lambda X, t=tagger: t.labels_):
            with pytest.raises(NotFittedError):
                use(ONE)


def test_real_names(data_dir: Path) -> None:
    """Gene names: a little of the training text gives a tagger that is far better than nothing."""
    path = data_dir / "labelled" / "bc2gm-ner.train.tsv.xz"
    if not path.exists():
        pytest.skip(reason=f"{path} is not here")
    sentences_ = [s for _, s in zip(range(800), read_tagged([path]), strict=False)]
    X, y = [s.words for s in sentences_], [s.tags for s in sentences_]
    tagger = CRFTagger(n_iter=40).fit(X[:600], y[:600])
    report = tagger.evaluate(X[600:], y[600:])
    assert tagger.scheme_ == "iob2" and report.spans is not None
    assert report.spans["GENE"].f1 > 0.4, report.spans
