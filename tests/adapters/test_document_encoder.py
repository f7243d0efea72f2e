"""DocumentEncoder in the hands of scikit-learn itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from contract.cases import SENTENCES
from sentences import is_one_sentence
from undertow import HMM, LDS, Corpus, DocumentEncoder, FactorialHMM, WordClusters
from undertow.errors import InputError, NotFittedError

RIVER = ["the river runs to the sea", "a wide river", "the old bridge over the river", "the sea is wide and old"]
MONEY = ["money in the bank", "she went to save her money", "the bank is safe", "save money in the bank"]
TEXTS, TOPICS = RIVER + MONEY, ["river"] * 4 + ["money"] * 4


@pytest.fixture(scope="module")
def lds() -> LDS:
    return LDS(3, n_iter=3, n_full=1, lags=3, ssid_lags=2, kappa=1.0, random_state=0).fit(SENTENCES)


@pytest.fixture(scope="module")
def hmm() -> HMM:
    return HMM(4, n_iter=4, random_state=0).fit(SENTENCES)


@pytest.fixture(scope="module")
def fhmm() -> FactorialHMM:
    return FactorialHMM(n_layers=2, n_states=3, n_iter=3, random_state=0).fit(SENTENCES)


def plain(model: Any, text: str, pooling: str, texts: list[str]) -> np.ndarray:
    """The slow twin: one document at a time, token by token."""
    tokens = text.split()
    if not tokens:
        return np.zeros(model.transform([["the"]])[0].shape[1])
    rows = model.transform([tokens])[0].astype(np.float64)
    if pooling == "mean":
        return sum(rows) / len(rows)
    if pooling == "max":
        return np.array([max(column) for column in rows.T])
    if pooling == "last":
        return rows[-1]
    known = [[t if t in model.vocabulary_ else "<unk>" for t in other.split()] for other in texts]
    weights = []
    for token in tokens:
        shown = token if token in model.vocabulary_ else "<unk>"
        weights.append(np.log((1 + len(texts)) / (1 + sum(shown in other for other in known))) + 1)
    return sum(w * row for w, row in zip(weights, rows, strict=True)) / sum(weights)


@pytest.mark.parametrize("pooling", ["mean", "max", "tfidf", "last"])
@pytest.mark.parametrize("name", ["lds", "hmm", "fhmm"])
def test_rows_are_the_pooled_vectors_of_the_tokens(
    name: str, pooling: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("undertow.adapters.document_encoder.BATCH_TOKENS", 7)  # several batches
    model = request.getfixturevalue(name)
    texts = ["the river", "the wide dragon", "", "bank", *TEXTS]
    rows = DocumentEncoder(model, pooling=pooling).fit_transform(texts)
    assert rows.dtype == np.float32
    assert_allclose(rows, [plain(model, text, pooling, texts) for text in texts], rtol=1e-5, atol=1e-6)


def test_tfidf_is_that_of_scikit_learn(lds: LDS) -> None:
    """Weighted means of word vectors are a product with the matrix of TfidfVectorizer, rows summing to one."""
    vectorizer = TfidfVectorizer(norm="l1", analyzer=str.split, vocabulary=list(lds.vocabulary_.words))
    expected = vectorizer.fit_transform(TEXTS) @ lds.word_vectors()
    assert_allclose(
        DocumentEncoder(lds, pooling="tfidf", view="type").fit_transform(TEXTS), expected, rtol=1e-5, atol=1e-6
    )


def test_histograms_of_states(hmm: HMM, fhmm: FactorialHMM) -> None:
    texts = ["", *TEXTS]
    encoder = DocumentEncoder(hmm, pooling="states")
    table = encoder.fit_transform(texts)
    assert table.format == "csr" and table.dtype == np.float32
    for row, text in zip(table.toarray(), texts, strict=True):
        states = hmm.decode([text.split()], "posterior")[0]
        assert_array_equal(row, [list(states).count(z) for z in range(4)])
    assert encoder.get_feature_names_out().tolist() == [f"state{z}" for z in range(4)]

    encoder = DocumentEncoder(fhmm, pooling="states")
    table = encoder.fit_transform(texts)
    for row, text in zip(table.toarray(), texts, strict=True):
        states = fhmm.decode([text.split()], "posterior")[0]
        assert_array_equal(row, [list(states[:, m]).count(z) for m in range(2) for z in range(3)])
    assert encoder.get_feature_names_out().tolist()[2:4] == ["layer0_state2", "layer1_state0"]


def test_histograms_of_layers_of_different_sizes() -> None:
    model = FactorialHMM(2, n_states=[4, 2], n_iter=3, random_state=0).fit(SENTENCES)
    encoder = DocumentEncoder(model, pooling="states")
    for row, text in zip(encoder.fit_transform(TEXTS).toarray(), TEXTS, strict=True):
        states = model.decode([text.split()], "posterior")[0]
        assert_array_equal(row, [list(states[:, m]).count(z) for m, z in enumerate_states(4, 2)])
    assert encoder.get_feature_names_out().tolist() == [f"layer{m}_state{z}" for m, z in enumerate_states(4, 2)]


def enumerate_states(*sizes: int) -> list[tuple[int, int]]:
    return [(m, z) for m, k in enumerate(sizes) for z in range(k)]


def test_strings_are_split_as_the_models_text_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The river is 300 miles long. It's old.\n" * 30)
    corpus = Corpus.build([tmp_path / "a.txt"], tmp_path / "c", vocab_size=None)
    assert "NUM" in corpus.vocabulary
    model = HMM(2, n_iter=2, random_state=0).fit(corpus)
    encoder = DocumentEncoder(model).fit(["the river"])
    expected = [["The", "river", "is", "NUM", "miles", "."], ["It", "'s", "long", "."]]
    assert_allclose(
        encoder.transform(["The river is 1,234 miles. It's long."])[0],
        np.concatenate(model.transform(expected)).mean(axis=0),
        rtol=1e-5,
    )
    # and tokens of another tokenizer are looked up as that text has them
    assert_allclose(
        encoder.transform([["1,234", "river-miles"]]), encoder.transform([["NUM", "river", "-", "miles"]]), rtol=1e-6
    )


def test_a_function_splits_strings(hmm: HMM) -> None:
    by_tokens = DocumentEncoder(hmm).fit_transform([["the", "bank"], ["sea"]])
    assert_allclose(
        DocumentEncoder(hmm, tokenizer=lambda s: s.split("/")).fit_transform(["the/bank", "sea"]), by_tokens
    )
    split = HMM(2, n_iter=1, random_state=0).fit(SENTENCES)
    split.tokenizer_ = {"rule": "callable", "name": "mine.split"}
    with pytest.raises(InputError, match=r"mine\.split"):
        DocumentEncoder(split).fit(TEXTS)
    DocumentEncoder(split).fit([["the", "bank"]])


def test_a_pipeline_is_searched(hmm: HMM, lds: LDS) -> None:
    pipeline = Pipeline([("encode", DocumentEncoder(lds)), ("classify", LogisticRegression())])
    models = [FrozenEstimator(lds), FrozenEstimator(hmm)]
    grid = {"encode__model": models, "encode__pooling": ["mean", "max"], "classify__C": [1.0, 10.0]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(TEXTS, TOPICS)
    assert len(search.cv_results_["params"]) == 8 and not np.isnan(search.cv_results_["mean_test_score"]).any()
    # what models this small predict depends on the last bits of the machine's products: compare with a fit by hand
    by_hand = clone(pipeline).set_params(**search.best_params_).fit(TEXTS, TOPICS)
    assert search.predict(TEXTS).tolist() == by_hand.predict(TEXTS).tolist()
    assert search.score(TEXTS, TOPICS) > 0.5
    assert search.best_estimator_["encode"].model_ in (lds, hmm)
    one = GridSearchCV(pipeline, {"classify__C": [1.0, 10.0]}, cv=2).fit(TEXTS, TOPICS)
    assert one.best_estimator_["encode"].model_ is lds
    sparse = make_pipeline(DocumentEncoder(hmm, pooling="states"), LogisticRegression())
    assert cross_val_score(sparse, np.array(TEXTS), TOPICS, cv=2).shape == (2,)


def test_a_model_that_is_not_fitted_is_fitted_to_the_documents() -> None:
    encoder = DocumentEncoder(HMM(2, n_iter=1, random_state=0))
    search = GridSearchCV(make_pipeline(encoder, LogisticRegression()), {"documentencoder__model__n_states": [2, 3]})
    search.set_params(cv=2).fit(TEXTS, TOPICS)
    assert [p["documentencoder__model__n_states"] for p in search.cv_results_["params"]] == [2, 3]
    best = search.best_estimator_[0]
    assert best.n_features_out_ == best.model_.n_states and "bridge" in best.model_.vocabulary_
    assert not encoder.model.__sklearn_is_fitted__()  # the given one stays as it was


def test_a_fitted_model_is_shared_and_not_changed(hmm: HMM, tmp_path: Path) -> None:
    encoder = DocumentEncoder(hmm, pooling="max").fit(TEXTS).set_output(transform="pandas")
    copied = clone(encoder)
    assert copied.model is hmm and copied.pooling == "max" and not hasattr(copied, "model_")
    assert list(copied.fit_transform(TEXTS).columns) == ["hmm0", "hmm1", "hmm2", "hmm3"]
    with pytest.raises(InputError, match="model__n_states") as e:
        copied.set_params(model__n_states=7)
    assert is_one_sentence(str(e.value)) and hmm.n_states == 4
    hmm.save(tmp_path / "m.hmm")
    assert_array_equal(DocumentEncoder(str(tmp_path / "m.hmm"), "max").fit_transform(TEXTS), encoder.transform(TEXTS))


def test_tables_of_pandas_and_polars(hmm: HMM) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    encoder = DocumentEncoder(hmm)
    plain = encoder.fit_transform(TEXTS)
    for table in (pandas.DataFrame({"text": TEXTS}, index=range(5, 13)), polars.DataFrame({"text": TEXTS})):
        assert_array_equal(encoder.fit_transform(table["text"]), plain)
        with pytest.raises(InputError, match="column"):
            encoder.fit(table)
    frame = clone(encoder).set_output(transform="pandas").fit_transform(pandas.Series(TEXTS, index=range(5, 13)))
    assert_array_equal(frame.to_numpy(), plain)
    assert frame.dtypes.tolist() == [np.dtype("float32")] * 4
    frame = clone(encoder).set_output(transform="polars").fit_transform(TEXTS)
    assert frame.columns == ["hmm0", "hmm1", "hmm2", "hmm3"]
    assert_array_equal(frame.to_numpy(), plain)


def test_documents_may_come_from_an_iterator(hmm: HMM) -> None:
    assert_array_equal(
        DocumentEncoder(hmm, "tfidf").fit_transform(iter(TEXTS)), DocumentEncoder(hmm, "tfidf").fit_transform(TEXTS)
    )


@pytest.mark.parametrize(
    ("change", "X", "says"),
    [
        ({"pooling": "sum"}, TEXTS, "pooling"),
        ({"pooling": "states", "view": "posterior"}, TEXTS, "view"),
        ({"pooling": "states", "model": LDS(2)}, TEXTS, "no states"),
        ({"model": WordClusters(2)}, TEXTS, "no vectors"),
        ({"model": 3}, TEXTS, "model=3"),
        ({}, "the river", "list of documents"),
        ({}, 3, "list of documents"),
        ({}, [], "no document"),
        ({}, ["the river", None], "Document 1"),
        ({}, [b"the"], "Document 0"),
        ({}, [["the", 3]], "token 3"),
    ],
)
def test_what_is_refused(hmm: HMM, change: dict[str, Any], X: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as e:
        DocumentEncoder(**{"model": hmm, **change}).fit(X)
    assert is_one_sentence(str(e.value))


def test_before_fit(hmm: HMM) -> None:
    for use in (lambda e: e.transform(TEXTS), lambda e: e.get_feature_names_out()):
        with pytest.raises(NotFittedError) as e:
            use(DocumentEncoder(hmm))
        assert is_one_sentence(str(e.value))


class NumbersAsDocuments(DocumentEncoder):
    """scikit-learn's checks feed tables of numbers, and leave out transformers of text.

    So each row becomes a document here, after scikit-learn's own validation of tables; all else is DocumentEncoder.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        return tags

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(self._documents(X, reset=True), y)

    def transform(self, X: Any) -> Any:
        check_is_fitted(self)
        return super().transform(self._documents(X, reset=False))

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        return self.fit(X, y).transform(X)

    def _documents(self, X: Any, reset: bool) -> list[list[str]]:
        rows = validate_data(self, X, reset=reset)
        return [[f"{column}={round(value, 1)}" for column, value in enumerate(row)] for row in rows]


@parametrize_with_checks(
    [NumbersAsDocuments(HMM(3, n_iter=1, random_state=0), pooling) for pooling in ("mean", "states")],
    expected_failed_checks=lambda _: {
        "check_fit2d_1feature": "documents of one token: a hidden Markov model refuses them, in its own words"
    },
    xfail_strict=True,
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
