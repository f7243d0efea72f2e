"""HMMs tied through embeddings: the steps of training, and that it learns what tables overfit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from contract.cases import SENTENCES
from oracles.embedded_chain import left_out_shares
from undertow import HMM, Corpus
from undertow.engine import Serial, Threads
from undertow.kernels.chain.embeddings import Adam, Embeddings, chain_tables
from undertow.models.hmm import embedded
from undertow.models.hmm.embedded import (
    EmbeddedState,
    UnknownWords,
    WordOrder,
    as_params,
    draw_states,
    final_sizes,
    pairs_in,
    split_states,
    text_batches,
    unknown_shares,
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


def test_rows_have_the_affixes_of_their_words() -> None:
    """Of six words that end alike, one has its own prefix; the others share theirs."""
    words = ["Xking", "walking", "never", "working", "wilking", "wanking", "waking"]
    order = WordOrder.of(BLOCK, words)
    found = {words[i]: order.spelling.toarray()[row] for row, i in enumerate(order.ids.tolist())}
    assert (found["Xking"] > 0).sum() < (found["walking"] > 0).sum()
    assert all(np.array_equal(found["walking"], found[word]) for word in ("working", "wilking", "wanking", "waking"))


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
    for name in ("leave", "arrive", "emit"):
        old, new = getattr(state.weights, name), getattr(more.weights, name)
        assert not np.array_equal(new[1], new[2])  # two copies
        assert_array_equal(new[0], old[0])  # not split: as it was
        assert_array_equal(new[-3:], old[-3:])


def test_copies_have_the_memory_of_their_state() -> None:
    state = some_state()
    mean, square = (Embeddings(*(x + k for x in state.weights)) for k in (1, 2))
    state = state._replace(adam=Adam(5, mean, square))
    adam = split_states(state, np.array([1, 4, 3]), np.random.default_rng(0)).adam
    parent = [0, 1, 1, 2, 2, 3, 4, 5]
    for new, old in ((adam.mean, mean), (adam.square, square)):
        assert_array_equal(new.emit, old.emit[parent])
        assert_array_equal(new.word, old.word)
    assert adam.n_steps == 5


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
    order = WordOrder.of((np.arange(n_words) % 7).astype(np.int32), corpus.vocabulary.words)
    batches = text_batches(corpus, 20, carry, order)
    assert len(batches) > 2
    ids = np.concatenate([part.ids for b in batches for part in b])
    assert_array_equal(order.ids[ids], corpus.ids)
    for batch in batches:
        seen = pairs_in(batch, order)
        for part in batch:
            block = np.repeat(np.arange(7), order.per_block)[part.ids]
            for low, high in zip(part.bounds[:-1], part.bounds[1:], strict=True):
                assert seen[block[low : high - 1], block[low + 1 : high]].all()


# --- unknown words --------------------------------------------------------------------------------------


def growing_text(n: int, seed: int = 0) -> list[list[str]]:
    """Words as frequent as 1 / rank, some of them for a while only: always new ones."""
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, 301)
    common = rng.choice(300, size=(n, 9), p=p / p.sum())
    return [[f"w{w}" for w in row] + [f"t{i // 8}.{rng.integers(3)}"] for i, row in enumerate(common.tolist())]


@pytest.mark.parametrize("min_count", [2, 4])
@pytest.mark.parametrize("classes", [False, True])
def test_shares_of_unknown_words_by_leaving_out_parts(min_count: int, classes: bool) -> None:
    corpus = Corpus.from_sentences(growing_text(600), min_count=min_count, unknown_classes=classes)
    expected = left_out_shares(corpus.ids.tolist(), len(corpus.vocabulary), corpus.vocabulary.n_special, 10)
    found = unknown_shares(corpus)
    assert_allclose(found, expected, rtol=1e-12)
    assert found.max() > 0.5 and (found[: corpus.vocabulary.n_special] == 0).all()
    assert found[corpus.vocabulary.id("w0")] < 0.05


def test_shares_foretell_the_unknown_words_of_new_text() -> None:
    text = growing_text(1200)
    corpus = Corpus.from_sentences(text[:1000], min_count=3)
    new = Corpus.from_sentences(text[1000:], vocabulary=corpus.vocabulary)
    counts = corpus.vocabulary.counts
    foretold = (counts[0] + (unknown_shares(corpus) * counts).sum()) / corpus.n_tokens
    true = np.mean(np.asarray(new.ids) == 0)
    assert counts[0] / corpus.n_tokens < 0.03 and true > 0.1
    assert_allclose(foretold, true, rtol=0.15)


def test_little_text_says_little_of_new_words() -> None:
    one, none = (Corpus.from_sentences([["a"]], min_count=n) for n in (1, 2))
    assert_allclose(unknown_shares(one), [0, 0.5])  # never seen where one was expected
    assert_array_equal(unknown_shares(none), [0])
    often = Corpus.from_sentences([[f"w{i}"] * 50 for i in range(40)])
    assert_allclose(unknown_shares(often)[1:], 0.9)  # each in a part of its own: a tenth still teaches the word


def test_words_are_read_as_their_class_of_unknown_words() -> None:
    sentences = [*growing_text(600), ["GFP", "runs"]]
    corpus = Corpus.from_sentences(sentences, min_count=4, unknown_classes=True)
    words = corpus.vocabulary
    block = np.where(words.counts > 0, np.arange(len(words)) % 3, -1).astype(np.int32)
    order = WordOrder.of(block, words.words)
    unknown = UnknownWords.of(corpus, order, block)
    rng, ids = np.random.default_rng(0), order.row[np.asarray(corpus.ids)]
    read = np.array([unknown.read(ids, rng) for _ in range(40)])
    changed = read != ids
    assert_array_equal(order.ids[read[changed]], words.fallback()[np.tile(corpus.ids, (40, 1))[changed]])
    assert_allclose(changed.mean(), unknown.share[ids].mean(), rtol=0.05)
    none = UnknownWords.of(corpus, order, np.where(np.arange(len(words)) < words.n_special, -1, block).astype(np.int32))
    assert (none.share == 0).all()  # a text without unknown words teaches nothing about them


def test_unknown_words_are_as_probable_as_in_new_text(monkeypatch) -> None:
    text = growing_text(1200)
    corpus = Corpus.from_sentences(text[:1000], min_count=3)
    new = Corpus.from_sentences(text[1000:], vocabulary=corpus.vocabulary)
    options = {"n_states": 16, "n_blocks": 8, "parameterization": "neural", "width": 8, "batch_tokens": 500}

    def fitted() -> tuple[float, float]:
        """The probability of the unknown word where it stands in new text, and the score of that text."""
        model = HMM(**options, n_iter=10, random_state=0).fit(corpus)
        p = np.exp(np.concatenate(model.log_probabilities(new)))
        return float(p[np.asarray(new.ids) == 0].mean()), model.score(new)

    p, score = fitted()
    monkeypatch.setattr(embedded, "unknown_shares", lambda corpus: np.zeros(len(corpus.vocabulary)))
    p_without, score_without = fitted()
    assert p > 2 * p_without and score > score_without + 0.1


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


def test_the_start_has_all_states(monkeypatch) -> None:
    monkeypatch.setattr(embedded, "FIRST_STATES", 6)
    options = {"n_states": 12, "n_blocks": 3, "parameterization": "neural", "width": 4, "batch_tokens": 30, "n_iter": 1}
    assert HMM(**options, random_state=0).fit(SENTENCES).params_.n_states == 12


def test_the_rate_falls_along_a_cosine() -> None:
    rates = [embedded.rate_at(x) for x in (0.0, 0.5, 1.0)]
    assert_allclose(rates, [embedded.RATE, (embedded.RATE + embedded.LAST_RATE) / 2, embedded.LAST_RATE])


def test_a_step_is_that_of_the_whole_batch() -> None:
    """A batch in parts, its gradient for each token; against the same text in one part."""
    order, text = WordOrder.of(BLOCK, WORDS), np.array([0, 3, 5, 4, 1, 2, 5, 0, 3], dtype=np.uint32)
    bounds, kept = np.array([0, 3, 5, 9]), np.arange(6)
    whole = [embedded.Shard(text, bounds)]
    parts = [embedded.Shard(text[:5], bounds[:3]), embedded.Shard(text[5:], bounds[2:] - 5)]
    results = []
    for batch in (whole, parts, parts * 2):
        state, stats = embedded.gradient_step(some_state(), order, batch, kept, 0.01, None, 1)
        results.append((state, stats.n_tokens))
    assert [n for _, n in results] == [9, 9, 18]
    for state, _ in results[1:]:
        for name in Embeddings._fields:
            one, other = (getattr(x.adam.mean, name) for x in (results[0][0], state))
            assert_allclose(other, one, rtol=1e-4, atol=1e-7, err_msg=name)


def test_training_drops_states(monkeypatch) -> None:
    drawn: list[float] = []

    def remember(first, dropout, rng):
        drawn.append(dropout)
        return draw_states(first, dropout, rng)

    monkeypatch.setattr(embedded, "draw_states", remember)
    options = {"n_states": 9, "n_blocks": 3, "parameterization": "neural", "width": 4, "n_iter": 2, "dropout": 0.4}
    HMM(**options, random_state=0).fit(SENTENCES)
    assert len(drawn) > embedded.IMITATION_DRAWS and set(drawn) == {0.4}


def test_counts_of_the_kept_states_are_gathered() -> None:
    """Rows and columns of some states, from the matrices of all pairs of blocks."""
    rng, first = np.random.default_rng(0), np.array([0, 1, 3, 6])
    dense = rng.random((6, 6)).astype(np.float32)
    order = WordOrder.of(BLOCK, WORDS)

    def packed(table, edges, layout):
        out = np.empty(layout.starts[-1], dtype=np.float32)
        for i, j in np.ndindex(3, 3):
            part = table[edges[i] : edges[i + 1], edges[j] : edges[j + 1]]
            out[layout.starts[layout.pair[i, j]] : layout.starts[layout.pair[i, j] + 1]] = part.ravel()
        return out

    kept = np.array([0, 2, 3, 5])
    kept_first = np.searchsorted(kept, first)
    full, some = order.layout(SIZES), order.layout(np.diff(kept_first))
    out = np.empty(some.starts[-1], dtype=np.float32)
    data = packed(dense, first, full)
    embedded._gather_pairs(data, first, full.pair, full.starts, kept, kept_first, some.pair, some.starts, out)
    assert_array_equal(out, packed(dense[np.ix_(kept, kept)], kept_first, some))


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
