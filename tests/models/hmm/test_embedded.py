"""HMMs tied through embeddings: the steps of training, and that it learns what tables overfit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from contract.cases import SENTENCES
from undertow import HMM, Corpus
from undertow.engine import Serial, Threads
from undertow.kernels.chain.embeddings import Adam, Embeddings, chain_tables
from undertow.models.hmm import embedded
from undertow.models.hmm.embedded import (
    EmbeddedState,
    WordOrder,
    as_params,
    draw_states,
    final_sizes,
    split_states,
    text_batches,
)

BLOCK = np.array([1, 0, -1, 2, 1, 0, 2], dtype=np.int32)  # the third word is not in the text
SIZES = np.array([1, 2, 3])
WORDS = ["walking", "talking", "never", "cooking", "Baking", "booking", "asking"]  # six end alike


def some_state(seed: int = 0, width: int = 4) -> EmbeddedState:
    rng = np.random.default_rng(seed)
    Z, V, A = SIZES.sum(), (BLOCK >= 0).sum(), WordOrder.of(BLOCK, WORDS).spelling.shape[1]
    shapes = [(Z, width), (3, width), (3,), (Z, width), (Z,), (Z, width), (V, width), (A, width), (V,), (Z,)]
    weights = Embeddings(*(rng.normal(size=s).astype(np.float32) for s in shapes))
    return EmbeddedState(0, BLOCK, np.concatenate(([0], np.cumsum(SIZES))), weights, Adam.start(weights))


def test_words_are_ordered_by_blocks() -> None:
    order = WordOrder.of(BLOCK, WORDS)
    assert_array_equal(order.ids, [1, 5, 0, 4, 3, 6])
    assert_array_equal(order.row[order.ids], np.arange(6))
    assert_array_equal(order.per_block, [2, 2, 2])


def test_tables_are_in_the_order_of_the_vocabulary() -> None:
    state = some_state()
    order = WordOrder.of(BLOCK, WORDS)
    params = as_params(state, order, 0.1)
    params.check()
    by_block = chain_tables(state.weights, order.layout(SIZES))
    truth = order.layout(SIZES).blocks.dense_emission(by_block.emission)
    e = params.dense_emission()
    assert_allclose(e[:, order.ids], 0.9 * truth, rtol=1e-6)
    assert_allclose(e[:, 2], 0.1, rtol=1e-6)  # all of the mass for words never seen


def test_copies_of_states_say_the_same(monkeypatch) -> None:
    """Without noise a chain with split states has the same text probabilities."""
    monkeypatch.setattr(embedded, "SPLIT_NOISE", 0.0)
    state, order = some_state(), WordOrder.of(BLOCK, WORDS)
    more = split_states(state, np.array([1, 4, 5]), np.random.default_rng(0))
    assert more.weights.n_states == 10
    ids, bounds = np.array([0, 3, 5, 4, 6, 1, 3], dtype=np.uint32), np.array([0, 3, 7])
    old, new = (as_params(s, order, 0.0).filtered(ids, bounds).log_probabilities for s in (state, more))
    assert_allclose(new, old, rtol=1e-5)
    as_params(more, order, 0.0).check()


def test_noise_parts_the_copies_and_nothing_else() -> None:
    state = some_state()
    more = split_states(state, np.array([1, 4, 3]), np.random.default_rng(0))
    leave = more.weights.leave
    assert not np.array_equal(leave[1], leave[2])  # two copies
    assert_array_equal(leave[0], state.weights.leave[0])  # not split: as it was
    assert_array_equal(leave[-3:], state.weights.leave[-3:])


def test_blocks_have_states_as_the_root_of_their_tokens() -> None:
    final = final_sizes(np.array([1, 4, 5]), np.array([500.0, 900.0, 100.0]), 43)
    assert_array_equal(final, [1, 31, 11])  # a boundary word keeps its single state
    assert_array_equal(final_sizes(np.array([2, 3]), np.array([1e6, 0.01]), 7), [6, 1])  # each has one
    assert_array_equal(final_sizes(np.array([1, 1]), np.array([3.0, 4.0]), 2), [1, 1])


def test_dropped_states_leave_each_block_one() -> None:
    first, rng = np.array([0, 1, 5, 25]), np.random.default_rng(0)
    for _ in range(20):
        kept = draw_states(first, 0.5, rng)
        assert (np.diff(kept) > 0).all()
        assert_array_equal(np.diff(np.searchsorted(kept, first)), [1, 2, 10])
    assert_array_equal(draw_states(first, 0.0, rng), np.arange(25))


@pytest.mark.parametrize("carry", [False, True])
def test_batches_hold_all_of_the_text(carry: bool) -> None:
    corpus = Corpus.from_sentences(SENTENCES)
    n_words = len(corpus.vocabulary)
    order = WordOrder.of((np.arange(n_words) % 3).astype(np.int32), corpus.vocabulary.words)
    batches = text_batches(corpus, 20, carry, order)
    assert len(batches) > 2
    ids = np.concatenate([part.ids for b in batches for part in b.parts])
    assert_array_equal(order.ids[ids], corpus.ids)
    for batch in batches:
        for part in batch.parts:
            block = np.repeat(np.arange(3), order.per_block)[part.ids]
            for low, high in zip(part.bounds[:-1], part.bounds[1:], strict=True):
                assert batch.seen[block[low : high - 1], block[low + 1 : high]].all()


def text_with_classes(n: int, seed: int) -> list[list[str]]:
    """Words of 4 classes that follow each other in turn; which word of a class comes is chance."""
    rng = np.random.default_rng(seed)
    return [[f"{'abcd'[t % 4]}{rng.integers(12)}" for t in range(int(rng.integers(4, 12)))] for _ in range(n)]


def test_it_learns() -> None:
    """Classes of words that come in turn: a model that knows them has a perplexity of 12, one that does not 48."""
    options = {"n_states": 16, "n_blocks": 8, "parameterization": "neural", "width": 8, "batch_tokens": 500}
    model = HMM(**options, n_iter=15, random_state=0).fit(text_with_classes(600, 0))
    assert model.perplexity(text_with_classes(100, 1)) < 15
    assert len(model.history_) == 15 and model.history_[-1] > model.history_[0]


def test_engines_and_threads_change_no_bit() -> None:
    options = {"n_states": 9, "n_blocks": 3, "parameterization": "neural", "width": 4, "batch_tokens": 30, "n_iter": 2}
    with Threads(2) as threads:
        models = [
            HMM(**options, random_state=0, n_jobs=n).fit(SENTENCES, engine=engine)
            for n, engine in ((None, None), (2, None), (None, Serial()), (None, threads))
        ]
    for model in models[1:]:
        assert_array_equal(model.params_.transition.data, models[0].params_.transition.data)
        assert_array_equal(model.params_.emission, models[0].params_.emission)


def test_auto_ties_many_states_of_much_text(monkeypatch) -> None:
    def form(corpus: Corpus, **options) -> bool:
        return HMM(**options)._tied(corpus)

    monkeypatch.setattr("undertow.models.hmm.model.MIN_TOKENS_TO_TIE", 30)
    corpus = Corpus.from_sentences(SENTENCES)
    assert form(corpus)
    assert not form(corpus, n_states=511)
    assert not form(corpus, rank=8)
    assert not form(corpus, init="clusters")
    assert not form(corpus, parameterization="table")
    assert form(corpus, n_states=4, n_blocks=2, parameterization="neural")
    assert not form(Corpus.from_sentences(SENTENCES[:3]))


def test_the_best_pass_is_kept() -> None:
    options = {"n_states": 9, "n_blocks": 3, "parameterization": "neural", "width": 4, "batch_tokens": 30, "n_iter": 6}
    model = HMM(**options, random_state=0).fit(SENTENCES[:6], validation=SENTENCES[6:])
    assert len(model.validation_history_) == 6
    assert_allclose(model.score(SENTENCES[6:]), max(model.validation_history_), rtol=1e-5)
