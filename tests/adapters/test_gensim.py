"""Habits of gensim, against gensim itself: the same answers, and files both ways."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cli_runner import run
from contract.cases import EVENTS, SENTENCES
from sentences import is_one_sentence
from undertow import HMM, LDS, DynamicEmbedding
from undertow.adapters.word2vec import read_word2vec, write_word2vec
from undertow.errors import InputError, UnknownWordError


@pytest.fixture(scope="module")
def lds() -> LDS:
    return LDS(4, n_iter=3, n_full=1, lags=3, ssid_lags=2, kappa=1.0, min_count=0, random_state=0, n_jobs=1).fit(
        SENTENCES
    )


def test_words_and_vectors(lds: LDS) -> None:
    assert "river" in lds and "dragon" not in lds and 3 not in lds and "river" in HMM(2, n_iter=1).fit(SENTENCES)
    assert_array_equal(lds["river"], lds.word_vectors()[lds.vocabulary_.id("river")])
    assert_allclose(lds.similarity("river", "river"), 1, rtol=1e-6)
    [nearest] = lds.neighbors("river", 1)
    assert lds.most_similar("river", topn=1) == [nearest]
    assert_allclose(lds.similarity("river", nearest.word), nearest.cosine, rtol=1e-5)


def test_answers_are_those_of_gensim(lds: LDS, tmp_path: Path) -> None:
    KeyedVectors = pytest.importorskip("gensim.models", reason="gensim is not installed").KeyedVectors
    vocabulary = lds.vocabulary_
    words = vocabulary.words[vocabulary.n_special :]
    write_word2vec(tmp_path / "v.bin", words, lds.word_vectors()[vocabulary.n_special :], binary=True)
    theirs = KeyedVectors.load_word2vec_format(str(tmp_path / "v.bin"), binary=True)
    for positive, negative in (["river"], []), (["river", "money"], ["bank"]), ([], ["sea", "old"]):
        mine = lds.most_similar(positive, negative, topn=6)
        other = theirs.most_similar(positive=positive, negative=negative, topn=6)
        assert [n.word for n in mine] == [word for word, _ in other]
        assert_allclose([n.cosine for n in mine], [cosine for _, cosine in other], rtol=1e-4, atol=1e-6)
    assert_allclose(lds.similarity("river", "bank"), theirs.similarity("river", "bank"), rtol=1e-4)
    assert_allclose(lds["river"], theirs["river"], rtol=1e-6)


@pytest.mark.parametrize("binary", [False, True])
def test_files_of_gensim_are_read(lds: LDS, tmp_path: Path, binary: bool) -> None:
    KeyedVectors = pytest.importorskip("gensim.models", reason="gensim is not installed").KeyedVectors
    theirs = KeyedVectors(vector_size=4)
    vectors = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    theirs.add_vectors(["river", "bank", "käse"], vectors)
    name = tmp_path / ("v.bin" if binary else "v.vec")
    theirs.save_word2vec_format(str(name), binary=binary)
    mine = read_word2vec(name)
    assert mine.words == ["river", "bank", "käse"]
    assert_allclose(mine.vectors, vectors, rtol=1e-6)


@pytest.mark.parametrize("suffix", ["vec", "txt", "bin"])
def test_exports_have_no_word_without_a_vector(tmp_path: Path, suffix: str) -> None:
    """The unknown word of a text without unknown words has zeros, whose cosine with anything is no number."""
    lds = LDS(4, n_iter=3, lags=3, ssid_lags=2, kappa=0.0, noise="uniform", random_state=0, n_jobs=1).fit(SENTENCES)
    lds.save(tmp_path / "m.lds")
    assert not lds["<unk>"].any()
    done = run("export", tmp_path / "m.lds", "-o", tmp_path / f"v.{suffix}", "--json")
    assert done.returncode == 0, done.stderr
    read = read_word2vec(tmp_path / f"v.{suffix}")
    assert read.words == list(lds.vocabulary_.words[1:])
    assert_array_equal(read.vectors, lds.word_vectors()[1:])


def test_what_is_refused(lds: LDS) -> None:
    for use in (
        lambda: lds["dragon"],
        lambda: lds[0],
        lambda: lds.similarity("river", "dragon"),
        lambda: lds.most_similar(["river"], ["dragon"]),
        lambda: lds.neighbors("dragon"),
    ):
        with pytest.raises(UnknownWordError) as e:
            use()
        assert isinstance(e.value, KeyError) and is_one_sentence(str(e.value))
    for cased in ("River", "RIVER"):
        with pytest.raises(UnknownWordError, match=f"'{cased}' is not in the vocabulary: it has 'river'"):
            lds.neighbors(cased)
    for bad in (lds.most_similar, lambda: lds.most_similar("river", topn=1.5)):
        with pytest.raises(InputError):
            bad()
    with pytest.raises(InputError, match="no vocabulary"):
        _ = "river" in DynamicEmbedding(n_iter=1, random_state=0).fit(EVENTS)


def test_a_copy_still_works(lds: LDS) -> None:
    """`__getitem__` must not make a model look like a sequence to copy, or to scikit-learn."""
    assert_array_equal(copy.deepcopy(lds)["river"], lds["river"])
    with pytest.raises(UnknownWordError):
        list(lds)  # type: ignore[call-overload]
