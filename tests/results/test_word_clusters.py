from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cli_runner import failed, run
from contract.cases import SENTENCES
from oracles.word_classes import brown_merges, class_objective, exchange_pass
from sealing import edit_sealed
from sentences import is_one_sentence
from undertow import Corpus, LagCounts, load
from undertow.errors import FormatError, InputError
from undertow.results import WordClusters

CLASSES = ["the a this".split(), "cat dog cow hen".split(), "runs sleeps eats".split(), "today often".split()]


def sentences(seed: int = 0, n: int = 300) -> list[list[str]]:
    """Determiner, noun, verb, adverb, each drawn from its class."""
    rng = np.random.default_rng(seed)
    return [[str(rng.choice(c)) for c in CLASSES] for _ in range(n)]


def test_classes_that_made_the_text_are_found() -> None:
    model = WordClusters(4).fit(sentences())
    assert sorted(sorted(model.words(c)) for c in range(4)) == sorted(sorted(c) for c in CLASSES)
    assert len({model.path(w) for c in CLASSES for w in c}) == 4
    assert model.history_ == sorted(model.history_)


def test_both_steps_are_the_naive_ones() -> None:
    counts = LagCounts.from_corpus(Corpus.from_sentences(SENTENCES), lags=1)
    seen = np.flatnonzero(counts.vocabulary.counts)
    pairs, unigram = counts.matrix(1).toarray()[seen][:, seen], counts.vocabulary.counts[seen]
    plain = [0] * len(seen)
    for rank, w in enumerate(sorted(range(len(seen)), key=lambda i: (-unigram[i], i))):
        plain[w] = rank % 4
    n_passes = 1
    while exchange_pass(pairs, unigram, plain, 4):
        n_passes += 1
    model = WordClusters(4, min_moved=0).fit(counts)
    assert_array_equal(model.clusters_[seen], plain)
    assert len(model.history_) == n_passes
    log_likelihood = class_objective(pairs, unigram, plain, 4) + (unigram * np.log(unigram)).sum()
    assert_allclose(model.history_[-1], log_likelihood / unigram.sum(), rtol=1e-12)
    between = np.zeros((4, 4))
    np.add.at(between, (np.array(plain)[None, :], np.array(plain)[:, None]), pairs)
    first, second, _ = brown_merges(between)[0]
    assert model.paths_[first][:-1] == model.paths_[second][:-1], "the first merge are not sisters"


def test_words_come_by_frequency_and_paths_by_prefix() -> None:
    model = WordClusters(4).fit(sentences())
    counts = dict(zip(model.vocabulary_.words, model.vocabulary_.counts.tolist(), strict=True))
    for c in range(4):
        listed = [counts[w] for w in model.words(c)]
        assert listed == sorted(listed, reverse=True)
        assert model.words(model.paths_[c]) == model.words(c)
        assert model.words(c, 1) == model.words(c)[:1]
    everything = model.words("")
    assert everything == list(model.paths) and len(everything) == 12
    assert set(model.words("0")) | set(model.words("1")) == set(everything)


def test_unseen_words_have_no_cluster_unless_unknown_words_do() -> None:
    model = WordClusters(4).fit(sentences())
    assert model.clusters_[model.vocabulary_.unknown_id] == -1 and "<unk>" not in model.paths
    (ids,) = model.transform([["the", "zebra", "runs"]])
    assert ids.dtype == np.int32 and ids[1] == -1 and ids[0] >= 0 and ids[2] >= 0
    with pytest.raises(InputError, match="zebra"):
        model.path("zebra")
    known = WordClusters(4).fit(Corpus.from_sentences(sentences(), vocab_size=9))
    (ids,) = known.transform([["the", "zebra"]])
    assert ids[1] >= 0 and known.path("zebra") == known.path("<unk>")


@pytest.mark.parametrize("init", ["frequency", "random"])
def test_the_boundary_stays_alone(init: str) -> None:
    corpus = Corpus.from_sentences(sentences(), boundary="<eos>")
    counts = LagCounts.from_corpus(corpus, lags=1, across=True)
    model = WordClusters(5, init=init, random_state=1).fit(counts)
    assert model.words(int(model.clusters_[corpus.vocabulary.boundary_id])) == ["<eos>"]
    with pytest.raises(InputError, match="boundary"):
        WordClusters(1).fit(counts)


def test_the_text_file_comes_back(tmp_path: Path) -> None:
    model = WordClusters(4).fit(sentences())
    model.save_paths(tmp_path / "paths.txt")
    lines = (tmp_path / "paths.txt").read_text().removesuffix("\n").split("\n")
    rows = [line.split("\t") for line in lines]
    assert [r[0] for r in rows] == sorted(r[0] for r in rows)
    assert {word: bits for bits, word, _ in rows} == model.paths
    again = WordClusters.load_paths(tmp_path / "paths.txt")
    assert again.paths == model.paths and len(again.paths_) == 4
    again.save_paths(tmp_path / "again.txt")
    assert (tmp_path / "again.txt").read_bytes() == (tmp_path / "paths.txt").read_bytes()
    assert [[again.paths_[c] for c in s] for s in again.transform(sentences(1, 3))] == [
        [model.paths_[c] for c in s] for s in model.transform(sentences(1, 3))
    ]
    with pytest.raises(InputError) as caught:
        again.save(tmp_path / "model")
    assert is_one_sentence(str(caught.value))
    with pytest.raises(InputError):
        model.save_paths(tmp_path / "paths.txt")
    model.save_paths(tmp_path / "paths.txt", overwrite=True)


def test_the_file_of_another_program_is_read(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes("0\tthe\t9\r\n0\t<unk>\t2\r\n110\tcafé\t4\r\n".encode())
    model = WordClusters.load_paths(tmp_path / "p")
    assert model.paths == {"the": "0", "café": "110", "<unk>": "0"}
    assert model.path("never") == "0"


@pytest.mark.parametrize(
    "text", ["", "0 the 3\n", "0\tthe\n", "2\tthe\t3\n", "0\tthe\tx\n", "0\tthe\t3\n1\tthe\t3\n", "0\t\t3\n", "\xff"]
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        WordClusters.load_paths(tmp_path / "p")
    assert is_one_sentence(str(caught.value))
    with pytest.raises(InputError):
        WordClusters.load_paths(tmp_path / "nothing")


def test_a_spoilt_model_is_refused(tmp_path: Path) -> None:
    WordClusters(4).fit(sentences()).save(tmp_path / "m")
    for bad in (["0", "1"], ["0", "1", "2", "3"], ["0", "0", "1", "11"], ["0", "00", "01", "1"], None, 3):
        edit_sealed(tmp_path / "m" / "config.json", lambda c, bad=bad: c["fitted"].update(paths=bad))
        with pytest.raises(FormatError) as caught:
            load(tmp_path / "m")
        assert is_one_sentence(str(caught.value))


def test_one_cluster_and_as_many_as_words() -> None:
    one = WordClusters(1).fit(sentences())
    assert set(one.paths.values()) == {"0"}
    all_ = WordClusters(12).fit(sentences())
    assert len(set(all_.paths.values())) == 12
    for bad in ({"n_clusters": 13}, {"n_clusters": 0}, {"n_iter": 0}, {"min_moved": -1}, {"init": "spectral"}):
        with pytest.raises(InputError) as caught:
            WordClusters(**bad).fit(sentences())
        assert is_one_sentence(str(caught.value))
    for bad in (4, "2"):
        with pytest.raises(InputError):
            WordClusters(4).fit(sentences()).words(bad)


def test_the_verb(tmp_path: Path) -> None:
    (tmp_path / "news.txt").write_text("".join(" ".join(s) + "\n" for s in sentences()))
    out = tmp_path / "paths.txt"
    command = ["clusters", tmp_path / "news.txt", "-o", out, "--clusters", 4, "--json", "-j", 1]
    done = run(*command)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    facts = json.loads(done.stdout)
    assert facts["clusters"] == 4 and facts["words"] == 12 and facts["tokens"] == 1200
    model = WordClusters.load_paths(out)
    assert len({model.path(w) for w in CLASSES[1]}) == 1
    piped = run("clusters", tmp_path / "paths.corpus", "-o", "-", "--clusters", 4)
    assert piped.returncode == 0 and piped.stdout == out.read_text()
    assert "exists already" in failed(run(*command))
    assert "13" in failed(run("clusters", tmp_path / "paths.corpus", "-o", "-", "--clusters", 13))
    failed(run("clusters", tmp_path / "news.txt", "-o", "-"), code=2)


def test_clusters_know_the_rule_their_text_was_cut_by(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("the cat sleeps 3 times\nthe dog runs 4 times\n" * 5)
    corpus = Corpus.build([tmp_path / "t.txt"], tmp_path / "c")
    model = WordClusters(3).fit(corpus)
    assert model.tokenizer_ is not None and model.tokenizer_["rule"] == "words"
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").tokenizer_ == model.tokenizer_
    assert WordClusters(3).fit(sentences()).tokenizer_ is None
    model.save_paths(tmp_path / "paths.txt")
    assert WordClusters.load_paths(tmp_path / "paths.txt").tokenizer_ is None
