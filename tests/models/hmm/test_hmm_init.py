from __future__ import annotations

import lzma
from importlib import resources

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hmm_models import m_step
from sentences import is_one_sentence
from undertow import Corpus, LagCounts, Tokenizer
from undertow.errors import InputError
from undertow.kernels.chain.inference import ChainParams, check_params, e_step
from undertow.kernels.chain.operators import Dense, LowRank
from undertow.kernels.words.exchange import class_counts
from undertow.models.hmm import initial_counts as counts_module
from undertow.models.hmm.initial_counts import INITS, InitialCounts, initial_counts, states_per_block, word_vectors

rng_of = np.random.default_rng


@pytest.fixture(scope="module")
def books() -> Corpus:
    """The first 1,500 sentences of the bundled books, the 1,000 most frequent words."""
    path = resources.files("undertow") / "data" / "books.txt.xz"
    text = lzma.decompress(path.read_bytes()).decode()
    cut, sentences = Tokenizer(), []
    for line in text.split("\n"):
        sentences += cut(line)
        if len(sentences) >= 1500:
            break
    return Corpus.from_sentences(sentences[:1500], vocab_size=1000, boundary="<eos>")


@pytest.fixture(scope="module")
def counts(books: Corpus) -> LagCounts:
    return LagCounts.from_corpus(books, lags=1, across=True)


def state_of(start: InitialCounts) -> np.ndarray:
    """The state of each emission number."""
    word = np.repeat(np.arange(len(start.word_block)), np.diff(start.starts))
    return start.first[start.word_block[word]] + np.arange(len(word)) - start.starts[word]


@pytest.mark.parametrize("init", INITS)
@pytest.mark.parametrize(("n_blocks", "rank"), [(1, None), (1, 5), (6, None), (6, 5)])
def test_starts_have_the_shapes_and_the_mass_of_the_text(
    counts: LagCounts, init: str, n_blocks: int, rank: int | None
) -> None:
    start = initial_counts(counts, 20, n_blocks=n_blocks, rank=rank, init=init, rng=rng_of(0))
    V, unigram = len(counts.vocabulary), counts.vocabulary.counts
    assert start.n_states == 20 and len(start.first) == n_blocks + 1 and (np.diff(start.first) > 0).all()
    assert start.word_block.shape == (V,) and set(start.word_block) <= set(range(n_blocks))
    assert_array_equal(np.diff(start.starts), np.diff(start.first)[start.word_block])
    assert (start.emission >= 0).all() and (start.state_tokens() > 0).all()
    # the noise has mean one, so that each state keeps about its share; all together nearly exactly
    assert_allclose(start.emission.sum(), unigram.sum(), rtol=0.2)
    assert_allclose(start.state_tokens(), np.bincount(state_of(start), weights=start.emission), rtol=1e-12)
    assert_allclose(start.initial().sum(), 1, rtol=1e-12)
    assert_array_equal(start.block_pairs, class_counts(counts.matrix(1), start.word_block, n_blocks))
    before, after = np.nonzero(start.block_pairs)
    flat, dense = start.pair_counts(before, after, rng_of(1)), start.dense_pairs(rng_of(1))
    assert dense.shape == (20, 20) and (flat > 0).all() and (dense >= 0).all()
    sizes = np.diff(start.first)
    edges = np.concatenate(([0], np.cumsum(sizes[before] * sizes[after])))
    for p, (i, j) in enumerate(zip(before, after, strict=True)):  # without noise both are the same
        spread = start.softness * start.block_pairs[i, j] / (sizes[i] * sizes[j])
        some = flat[edges[p] : edges[p + 1]].reshape(sizes[i], sizes[j])
        own = (1 - start.softness) * start.pairs.toarray()[
            start.first[i] : start.first[i + 1], start.first[j] : start.first[j + 1]
        ]
        assert (some >= own - 1e-9).all()
        assert (some - own).sum() < 30 * max(spread, 1e-9) * some.size
    if rank is None:
        assert start.R is None and start.E is None
    else:
        assert start.R is not None and start.E is not None
        assert start.R.shape == (20, 5) and start.E.shape == (5, 20)
        assert_allclose(start.R.sum(axis=1), 1, rtol=1e-9)
        assert_allclose(start.E.sum(axis=1), 1, rtol=1e-9)
        out, into = start.factor_counts()
        assert_allclose(out.sum(axis=1), start.state_tokens(), rtol=1e-9)
        assert_allclose(into.sum(axis=1), out.sum(axis=0), rtol=1e-9)


def test_the_boundary_is_a_block_with_one_state(counts: LagCounts) -> None:
    for init in INITS:
        start = initial_counts(counts, 20, n_blocks=6, init=init, rng=rng_of(0))
        b = start.word_block[counts.vocabulary.boundary_id]
        assert (start.word_block == b).sum() == 1 and np.diff(start.first)[b] == 1


def test_states_are_shared_out_evenly() -> None:
    assert_array_equal(states_per_block(np.array([0, 1, 2]), 11, 3), [4, 4, 3])
    assert_array_equal(states_per_block(np.array([2, 0, 1]), 11, 3, alone=0), [5, 5, 1])
    assert_array_equal(states_per_block(np.array([0]), 5, 1), [5])


def test_hard_parts_are_counted_exactly(counts: LagCounts) -> None:
    start = initial_counts(counts, 24, n_blocks=6, rng=rng_of(0), softness=0.0)
    word = np.repeat(np.arange(len(start.word_block)), np.diff(start.starts))
    part = np.full(len(start.word_block), -1)
    used = start.emission > 0
    part[word[used]] = state_of(start)[used]
    seen = counts.vocabulary.counts > 0
    assert (part[seen] >= 0).all() and used.sum() == seen.sum()
    part[~seen] = 0
    assert_array_equal(start.pairs.toarray(), class_counts(counts.matrix(1), part, 24))
    assert_allclose(start.emission[used], counts.vocabulary.counts[word[used]], rtol=1e-12)


def test_least_squares_explain_the_counts_with_the_emissions(counts: LagCounts, monkeypatch) -> None:
    start = initial_counts(counts, 20, n_blocks=6, init="spectral", rng=rng_of(0))
    monkeypatch.setattr(counts_module, "MOST_STATES_NNLS", 0)
    plain = initial_counts(counts, 20, n_blocks=6, init="spectral", rng=rng_of(0))
    assert_array_equal(start.emission, plain.emission)
    # what the two kinds of steps predict of the words, over all pairs of words
    emission = np.zeros((20, len(start.word_block)))
    emission[state_of(start), np.repeat(np.arange(len(start.word_block)), np.diff(start.starts))] = start.emission
    emission /= emission.sum(axis=1, keepdims=True)
    target = counts.matrix(1).toarray().T
    errors = [np.square(target - emission.T @ s.pairs.toarray() @ emission).sum() for s in (start, plain)]
    assert errors[0] < 0.95 * errors[1], errors


def test_word_vectors_of_like_words_are_alike(counts: LagCounts) -> None:
    X, id_of = word_vectors(counts, rng_of(0)), counts.vocabulary.id
    assert_allclose(np.linalg.norm(X[counts.vocabulary.counts > 0], axis=1), 1, rtol=1e-4)
    assert X[id_of("he")] @ X[id_of("she")] > 0.5 > X[id_of("he")] @ X[id_of("of")]


def perplexities(corpus: Corpus, start: InitialCounts, n_passes: int, rng: np.random.Generator) -> list[float]:
    """Of the training text under an unblocked chain, before each pass of Baum–Welch."""
    unigram = corpus.vocabulary.counts + 0.1
    mean = unigram / unigram.sum()
    if start.R is None:
        steps = start.dense_pairs(rng) + 0.01
        operator: Dense | LowRank = Dense((steps / steps.sum(axis=1, keepdims=True)).astype(np.float32))
    else:
        operator = LowRank(start.R.astype(np.float32), np.asarray(start.E, dtype=np.float32))
    emission = start.emission.reshape(-1, start.n_states) + 10 * mean[:, None]
    emission = (emission / emission.sum(axis=0)).astype(np.float32)
    params = ChainParams(start.initial().astype(np.float32), operator, emission)
    check_params(params)
    out = []
    ids = np.asarray(corpus.ids, dtype=np.int64)
    for _ in range(n_passes):
        stats = e_step(ids, np.asarray(corpus.offsets), params)
        out.append(float(np.exp(-stats.log_likelihood / stats.n_tokens)))
        params = m_step(
            stats, params, initial_strength=1, transition_strength=0.5, emission_strength=10, emission_mean=mean
        )
    return out


@pytest.mark.parametrize("rank", [None, 8])
def test_a_start_from_the_text_saves_passes(books: Corpus, counts: LagCounts, rank: int | None) -> None:
    """A few passes from clusters, or from the SVD, reach what a random start does not in many."""
    reached = {
        init: perplexities(
            books,
            initial_counts(counts, 24, rank=rank, init=init, rng=rng_of(0)),
            8 if init == "random" else 3,
            rng_of(1),
        )
        for init in INITS
    }
    assert reached["clusters"][2] < reached["random"][7], reached
    assert reached["spectral"][2] < reached["random"][7], reached


def test_what_cannot_be_started_is_refused(counts: LagCounts) -> None:
    V = len(counts.vocabulary)
    alone = LagCounts.from_corpus(Corpus.from_sentences([["a"], ["b"]]), lags=1)
    for bad, of in [
        ({"init": "best"}, counts),
        ({"n_blocks": V + 1, "n_states": V + 1}, counts),
        ({"n_blocks": 0}, counts),
        ({"n_blocks": 9, "n_states": 8}, counts),
        ({"rank": 21}, counts),
        ({"rank": 0}, counts),
        ({}, alone),
    ]:
        arguments = {"n_states": 20, "rng": rng_of(0)} | bad
        with pytest.raises(InputError) as caught:
            initial_counts(of, **arguments)
        assert is_one_sentence(str(caught.value))
