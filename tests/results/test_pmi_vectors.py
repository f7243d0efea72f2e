from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cli_runner import failed, run
from oracles.pmi_dense import positive_pmi, word_vectors
from sentences import is_one_sentence
from undertow import Corpus, CRFTagger, LagCounts, PMIVectors, load
from undertow.errors import InputError
from undertow.models.base import LittleTextWarning
from undertow.results.tagging import Vectors

CLASSES = ["the a this".split(), "cat dog cow hen".split(), "runs sleeps eats".split(), "today often".split()]


def sentences(seed: int = 0, n: int = 300) -> list[list[str]]:
    """Determiner, noun, verb, adverb, each drawn from its class."""
    rng = np.random.default_rng(seed)
    return [[str(rng.choice(c)) for c in CLASSES] for _ in range(n)]


@pytest.mark.parametrize("contexts", ["near", "wide", "both"])
@pytest.mark.parametrize("n_contexts", [100, 8])
def test_vectors_are_those_of_a_dense_decomposition(contexts: str, n_contexts: int) -> None:
    corpus = Corpus.from_sentences(sentences(1, 80))
    texts = [ids.tolist() for ids in corpus.sentences()]
    V = len(corpus.vocabulary)
    frequent = np.argsort(-corpus.vocabulary.counts, kind="stable")[:n_contexts].tolist()
    model = PMIVectors(3, contexts=contexts, lags=3, n_contexts=n_contexts, n_iter=80, random_state=0).fit(corpus)
    near = np.hstack([positive_pmi(texts, V, frequent, (k,), 0.75) for k in (-1, 1, -2, 2)])
    wide = positive_pmi(texts, V, frequent, (-3, -2, -1, 1, 2, 3), 0.75)
    tables = {"near": [near], "wide": [wide], "both": [near, wide]}[contexts]
    expected = np.hstack([word_vectors(table, 3) for table in tables])
    for k in range(expected.shape[1]):  # the sign is that of the largest entry before rows were scaled
        if expected[:, k] @ model.vectors_[:, k] < 0:
            expected[:, k] *= -1
    assert_allclose(model.vectors_, expected, atol=2e-3)
    assert 0 < model.history_[-1] <= 1 + 1e-6


def test_words_that_stand_in_the_same_places_are_neighbors() -> None:
    model = PMIVectors(4, contexts="near", min_count=1, random_state=0).fit(sentences())
    assert {n.word for n in model.neighbors("cat", 3)} == {"dog", "cow", "hen"}
    assert_array_equal(model["cat"], model.word_vectors()[model.vocabulary_.id("cat")])
    assert [len(v) for v in model.transform([["the", "cat"], []])] == [2, 0]
    a, b = model["cat"], model["runs"]
    assert_allclose(model.similarity("cat", "runs"), a @ b / np.linalg.norm(a) / np.linalg.norm(b), rtol=1e-5)
    assert {n.word for n in model.most_similar(["cat", "dog"], topn=2)} == {"cow", "hen"}
    assert "cat" not in {n.word for n in model.most_similar("runs", ["cat"], topn=20)}
    with pytest.raises(InputError, match="at least one word"):
        model.most_similar()


def test_views_are_the_vectors_of_one_kind_of_context() -> None:
    model = PMIVectors(3, random_state=0).fit(sentences())
    X = [["the", "cat"], ["hen"]]
    parts = [model.transform(X, view) for view in ("near", "wide", "features")]
    for near, wide, both in zip(*parts, strict=True):
        assert_array_equal(np.hstack([near, wide]), both)
    with pytest.raises(InputError, match="must be one of features, near, wide"):
        model.transform(X, "type")
    with pytest.raises(InputError, match="must be one of features, near"):
        PMIVectors(3, contexts="near", random_state=0).fit(sentences()).transform(X, "wide")


def test_documents_are_encoded_by_them() -> None:
    pytest.importorskip("sklearn", reason="the extra sklearn is not installed")
    from undertow import DocumentEncoder

    model = PMIVectors(3, random_state=0).fit(sentences())
    encoded = DocumentEncoder(model, view="wide").fit_transform(["the cat runs", "a dog"])
    assert encoded.shape == (2, 3) and np.isfinite(encoded).all()


def test_counts_corpus_and_sentences_give_the_same_and_threads_do_not_matter() -> None:
    text = sentences(2)
    corpus = Corpus.from_sentences(text)
    counts = LagCounts.from_corpus(corpus, lags=9)
    made = [PMIVectors(3, random_state=0, n_jobs=n).fit(X) for n, X in ((1, text), (2, corpus), (None, counts))]
    for model in made[1:]:
        assert_array_equal(model.vectors_, made[0].vectors_)


def test_words_the_text_does_not_have_are_zero() -> None:
    corpus = Corpus.from_sentences(sentences())
    model = PMIVectors(3, random_state=0).fit(corpus)
    unknown = corpus.vocabulary.unknown_id
    assert corpus.vocabulary.counts[unknown] == 0 and not model.vectors_[unknown].any()
    assert not model.transform([["zebra"]])[0].any()


def test_bad_input_is_refused_in_one_sentence() -> None:
    corpus = Corpus.from_sentences(sentences())
    few = LagCounts.from_corpus(corpus, lags=1)
    for model, text, what in (
        (PMIVectors(3), few, "need counts of 7 lags"),
        (PMIVectors(3, contexts="near"), few, "need counts of 2 lags"),
        (PMIVectors(3), [["alone"]], "No two words"),
        (PMIVectors(3, contexts="far"), corpus, "contexts='far'"),
        (PMIVectors(3, power=2.0), corpus, "power=2.0"),
    ):
        with pytest.raises(InputError, match=what) as caught:
            model.fit(text)
        assert is_one_sentence(str(caught.value))
    model = PMIVectors(3, random_state=0).fit(corpus)
    for bad in ("zebra", ["the", "cat"]):
        with pytest.raises(InputError):
            model.neighbors(bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="whole number"):
        model.neighbors("cat", 1.5)  # type: ignore[arg-type]
    with pytest.warns(LittleTextWarning, match="60 components for 1,200 tokens"):
        PMIVectors(60).fit(sentences())


def test_a_tagger_reads_them(tmp_path: Path) -> None:
    model = PMIVectors(4, random_state=0).fit(sentences())
    words = [["the", "cat", "runs"], ["a", "dog", "sleeps"]]
    tags = [["DT", "NN", "VB"], ["DT", "NN", "VB"]]
    tagger = CRFTagger(Vectors(model, scale=2.0)).fit(words, tags)
    assert tagger.predict([["this", "hen", "eats"]]) == [["DT", "NN", "VB"]]
    tagger.save(tmp_path / "t")
    assert load(tmp_path / "t").predict([["this", "hen", "eats"]]) == [["DT", "NN", "VB"]]


def test_the_command_line(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(s) for s in sentences()) + "\n")
    out = tmp_path / "small.pmi"
    found = json.loads(run("fit", "pmi", text, "-o", out, "--components", 4, "--json").stdout)
    assert found["numbers"] == 8 and found["iterations"] == 4 and Path(found["counts"]).name == "small.counts"
    listed = json.loads(run("neighbors", out, "cat", "-n", 3, "--json").stdout)["neighbors"]
    assert {n["word"] for n in listed} == {"dog", "cow", "hen"}
    run("export", out, "-o", tmp_path / "v.txt")
    assert (tmp_path / "v.txt").read_text().splitlines()[0].endswith(" 8")
    assert "vectors of words" in failed(run("neighbors", out, "--sentence", "the cat runs", "--word", "cat"))
