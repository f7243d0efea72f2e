"""Charts of low-rank grammars against enumeration of all derivations, the dense twin, and chains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.grammar_trees import (
    GAP,
    all_trees,
    dense_inside,
    derivations,
    prefix_probability,
    right_linear,
    truth,
)
from oracles.hmm_paths import enumerate_paths
from tiny_grammars import chart_of, grammar
from undertow.errors import InputError
from undertow.kernels.chart.grammar import (
    GrammarParams,
    batches_by_length,
    check_params,
    rank_space,
    termination,
)
from undertow.kernels.chart.inside import inside, rows_of_spans
from undertow.kernels.chart.outside import expected_counts, outside, span_posteriors, statistics
from undertow.kernels.chart.prefix import prefix_log_probabilities, prefix_space
from undertow.kernels.chart.sampling import sample_sentence, sampling_tables
from undertow.kernels.chart.trees import best_derivation, best_tree, draw_derivation, max_space, posterior_table

F64_RTOL = 1e-11
F32_RTOL = 2e-5  # of sums of float32 products


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans())
def test_inside_is_the_sum_over_all_derivations(seed: int, length: int, zeros: bool) -> None:
    p = grammar(seed, zeros=zeros)
    words = np.random.default_rng(seed + 1).integers(-1, 3, length).tolist()
    expected = sum(x for x, _ in derivations(p, words))
    _, chart, _ = chart_of(p, words)
    np.testing.assert_allclose(math.exp(chart.log_likelihood[0]), expected, rtol=F64_RTOL, atol=0)


@pytest.mark.parametrize("length", [2, 7, 12])
def test_inside_is_that_of_the_dense_twin(length: int) -> None:
    p = grammar(3, n=4, m=5, r=3, V=6)
    sentences = np.random.default_rng(0).integers(0, 6, (5, length)).tolist()
    _, chart, _ = chart_of(p, *sentences)
    expected = [math.log(dense_inside(p, s)) for s in sentences]
    np.testing.assert_allclose(chart.log_likelihood, expected, rtol=F64_RTOL)


def test_a_right_linear_grammar_is_a_hidden_markov_model() -> None:
    rng = np.random.default_rng(5)
    Z, V, stop = 3, 4, 0.25
    initial, transition = rng.dirichlet(np.ones(Z)), rng.dirichlet(np.ones(Z), Z)
    emission = rng.dirichlet(np.ones(V), Z).T
    p = GrammarParams(*right_linear(initial, transition, emission, stop))
    for length in (1, 2, 6):
        words = rng.integers(0, V, length)
        chain = enumerate_paths(initial, transition, emission[words])
        space, chart, rows = chart_of(p, words.tolist())
        expected = chain.log_likelihood + (length - 1) * math.log(1 - stop) + math.log(stop)
        np.testing.assert_allclose(chart.log_likelihood[0], expected, rtol=F64_RTOL)
        prefixes = prefix_log_probabilities(rows, chart, space, prefix_space(space, termination(p)))
        np.testing.assert_allclose(prefixes[0, -1], expected - math.log(stop), rtol=1e-9)
        best, log_prob = best_derivation(p, max_space(p), words)
        np.testing.assert_array_equal(best.tags - Z, chain.best_path)
        np.testing.assert_allclose(log_prob, chain.best_log_prob + expected - chain.log_likelihood, rtol=F64_RTOL)
        if length > 1:
            posterior = expected_counts(statistics(words, np.array([0, length]), p), p)
            np.testing.assert_allclose(posterior.emission.sum(axis=0), chain.gamma.sum(axis=0), rtol=F32_RTOL)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.booleans())
def test_expected_counts_are_those_of_all_derivations(seed: int, zeros: bool) -> None:
    p = grammar(seed, zeros=zeros)
    rng = np.random.default_rng(seed)
    sentences = [rng.integers(0, 3, k).tolist() for k in (1, 4, 0, 2, 4, 3)]
    found = [truth(p, s) for s in sentences if s and sum(x for x, _ in derivations(p, s)) > 0]
    kept = [s for s in sentences if s and sum(x for x, _ in derivations(p, s)) > 0]
    if not kept:
        return
    ids, bounds = np.concatenate(kept), np.concatenate(([0], np.cumsum([len(s) for s in kept])))
    counts = expected_counts(statistics(ids, bounds, p), p)
    np.testing.assert_allclose(counts.log_likelihood, sum(math.log(t.probability) for t in found), rtol=1e-5)
    assert (counts.n_tokens, counts.n_sentences) == (len(ids), len(kept))
    for name in GrammarParams._fields:
        expected = sum(t.counts[name] for t in found)
        np.testing.assert_allclose(getattr(counts, name), expected, rtol=F32_RTOL, atol=1e-6, err_msg=name)


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.booleans())
def test_with_given_trees_only_the_symbols_are_hidden(seed: int, zeros: bool) -> None:
    p = grammar(seed, zeros=zeros)
    rng = np.random.default_rng(seed)
    found, sentences, spans = [], [], []
    for length in (1, 3, 2, 4, 3):
        words, trees = rng.integers(0, 3, length).tolist(), all_trees(0, length)
        tree = {s for s in trees[int(rng.integers(len(trees)))] if s[1] - s[0] > 1}
        expected = truth(p, words, tree)
        if expected.probability > 0:
            found.append(expected)
            sentences.append(words)
            spans += sorted(tree)
    if not found:
        return
    ids, bounds = np.concatenate(sentences), np.concatenate(([0], np.cumsum([len(s) for s in sentences])))
    given_trees = np.array(spans, dtype=np.int64).reshape(-1, 2)
    counts = expected_counts(statistics(ids, bounds, p, given_trees), p)
    np.testing.assert_allclose(counts.log_likelihood, sum(math.log(t.probability) for t in found), rtol=1e-5)
    for name in GrammarParams._fields:
        total = sum(t.counts[name] for t in found)
        np.testing.assert_allclose(getattr(counts, name), total, rtol=F32_RTOL, atol=1e-6, err_msg=name)


def test_only_allowed_spans_are_constituents() -> None:
    p = grammar(12)
    words, spans = [0, 2, 1, 0], {(0, 4), (1, 4), (2, 4), (0, 2)}  # two trees
    expected = truth(p, words, spans)
    assert len(expected.trees) == 2
    space = rank_space(p, np.arange(3), dtype=np.float64)
    allowed = rows_of_spans(4, np.array([sorted(spans)]))
    assert allowed.sum() == 4 + len(spans)
    chart = inside(np.array([words]), space, allowed=allowed)
    np.testing.assert_allclose(math.exp(chart.log_likelihood[0]), expected.probability, rtol=F64_RTOL)
    table = posterior_table(chart, span_posteriors(chart, outside(chart, space)), 0)
    for i in range(4):
        for j in range(i + 1, 5):
            np.testing.assert_allclose(table[i, j], expected.spans.get((i, j), 0.0), rtol=F64_RTOL, atol=1e-14)


def test_expected_counts_are_derivatives_of_the_log_likelihood() -> None:
    p = grammar(1, n=4, m=5, r=3, V=6)
    rng = np.random.default_rng(2)
    bounds = np.array([0, 9, 10, 22, 22, 40])
    ids = rng.integers(0, 6, 40)
    counts = expected_counts(statistics(ids, bounds, p), p)

    def log_likelihood(q: GrammarParams) -> float:
        space = rank_space(q, np.arange(6), dtype=np.float64)
        pairs = zip(bounds[:-1], bounds[1:], strict=True)
        return sum(float(inside(ids[a:b][None], space).log_likelihood[0]) for a, b in pairs if b > a)

    for name, table in p._asdict().items():
        for place in {tuple(0 for _ in table.shape), tuple(k - 1 for k in table.shape)}:
            step = np.zeros(table.shape)
            step[place] = 1e-5 * table[place]
            up, down = (log_likelihood(p._replace(**{name: table + sign * step})) for sign in (1, -1))
            np.testing.assert_allclose((up - down) / 2e-5, getattr(counts, name)[place], rtol=1e-4, err_msg=name)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(2, 4), st.booleans())
def test_span_posteriors_are_those_of_all_derivations(seed: int, length: int, zeros: bool) -> None:
    p = grammar(seed, zeros=zeros)
    words = np.random.default_rng(seed + 1).integers(-1, 3, length).tolist()
    if not sum(x for x, _ in derivations(p, words)) > 0:
        return
    expected = truth(p, words)
    space, chart, _ = chart_of(p, words)
    table = posterior_table(chart, span_posteriors(chart, outside(chart, space)), 0)
    for i in range(length):
        for j in range(i + 1, length + 1):
            np.testing.assert_allclose(table[i, j], expected.spans.get((i, j), 0.0), rtol=F64_RTOL, atol=1e-14)
    found = best_tree(table)
    value = {tree: sum(expected.spans.get(s, 0.0) for s in tree) for tree in all_trees(0, length)}
    own = tuple((int(i), int(j)) for i, _, j in found) + tuple((i, i + 1) for i in range(length))
    np.testing.assert_allclose(sum(expected.spans.get(s, 0.0) for s in own), max(value.values()), rtol=1e-10)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans())
def test_the_best_derivation_is_the_best_of_all(seed: int, length: int, zeros: bool) -> None:
    p = grammar(seed, zeros=zeros)
    words = np.random.default_rng(seed + 1).integers(0, 3, length)
    found = derivations(p, words.tolist())
    top = max(x for x, _ in found)
    best, log_prob = best_derivation(p, max_space(p), words)
    if top == 0:
        assert log_prob == -np.inf
        return
    np.testing.assert_allclose(log_prob, math.log(top), rtol=F64_RTOL)

    def described(root: Any) -> Any:
        inner = [x for x in root.walk() if x.left is not None]
        tags = [x.symbol for x in root.walk() if x.left is None]
        return [[x.begin, x.left.end, x.end] for x in inner], [x.symbol for x in inner], tags

    own = (best.spans.tolist(), best.symbols.tolist(), best.tags.tolist())
    np.testing.assert_allclose(max(x for x, root in found if described(root) == own), top, rtol=F64_RTOL)


def test_trees_are_drawn_from_the_posterior() -> None:
    p = grammar(11)
    words = [0, 2, 1, 0]
    expected = truth(p, words)
    space, chart, _ = chart_of(p, words)
    rng = np.random.default_rng(0)
    drawn: dict[Any, int] = {}
    symbols = np.zeros(p.n_nonterminals)
    tags = np.zeros((4, p.n_preterminals))
    n_draws = 4000
    for _ in range(n_draws):
        d = draw_derivation(p, space, chart, np.array(words), rng.random(20))
        tree = tuple(sorted([(int(i), int(j)) for i, _, j in d.spans] + [(i, i + 1) for i in range(4)]))
        drawn[tree] = drawn.get(tree, 0) + 1
        np.add.at(symbols, d.symbols, 1)
        tags[np.arange(4), d.tags - p.n_nonterminals] += 1
    assert set(drawn) <= set(expected.trees)
    for tree, probability in expected.trees.items():  # five standard deviations of a share
        spread = 5 * math.sqrt(probability * (1 - probability) / n_draws)
        np.testing.assert_allclose(drawn.get(tree, 0) / n_draws, probability, rtol=0, atol=spread)
    np.testing.assert_allclose(symbols / n_draws, expected.counts["rules"].sum(axis=1), rtol=0, atol=0.07)
    np.testing.assert_allclose(tags / n_draws, expected.tags, rtol=0, atol=0.04)


def test_prefix_probabilities_are_sums_over_all_continuations() -> None:
    p = grammar(4, n=2, m=3, r=2, V=4, deep=0.15)
    words = [2, 0, 3]
    space, chart, rows = chart_of(p, words, [1, 1, 2])
    logs = prefix_log_probabilities(rows, chart, space, prefix_space(space, termination(p)))
    for b, sentence in enumerate([words, [1, 1, 2]]):
        for k in range(4):
            if k:
                expected = prefix_probability(p, sentence[:k], 16)
            np.testing.assert_allclose(math.exp(logs[b, k]), expected if k else 1.0, rtol=2e-5)
    with_gap, chart, rows = chart_of(p, [GAP, GAP])
    logs = prefix_log_probabilities(rows, chart, with_gap, prefix_space(with_gap, termination(p)))
    np.testing.assert_allclose(math.exp(logs[0, 1]), 1.0, rtol=1e-12)
    np.testing.assert_allclose(math.exp(logs[0, 2]), 1 - p.start[2:].sum(), rtol=1e-9)  # all but sentences of one word


def test_a_grammar_that_may_not_end() -> None:
    """A → A A with probability q, else a word: ends with probability min(1, (1 − q)/q)."""
    for q in (0.2, 0.5, 0.8):
        # the single nonterminal always splits, and each child is a nonterminal with probability q
        child = np.array([[q, 1 - q]])
        p = GrammarParams(np.array([q, 1 - q]), np.ones((1, 1)), child, child, np.ones((1, 1)))
        ends = termination(p)
        np.testing.assert_allclose(ends.total, min(1.0, (1 - q) / q), rtol=1e-6)
        space, chart, rows = chart_of(p, [0])
        logs = prefix_log_probabilities(rows, chart, space, prefix_space(space, ends))
        np.testing.assert_allclose(np.exp(logs[0]), ends.total, rtol=1e-6)  # every sentence begins with the only word


def test_long_sentences_do_not_underflow() -> None:
    p = grammar(8, n=6, m=6, r=4, V=5)
    tiny = p._replace(emission=np.concatenate([p.emission * 1e-7, [[1 - 1e-7] * 6]]))
    words = np.random.default_rng(0).integers(0, 5, 150)
    logs = []
    for q, dtype in ((p, np.float64), (tiny, np.float64), (tiny, np.float32)):
        space, chart, _ = chart_of(q, words.tolist(), dtype=dtype)
        logs.append(float(chart.log_likelihood[0]))
        posteriors = span_posteriors(chart, outside(chart, space))
        np.testing.assert_allclose(posteriors[-1], 1.0, rtol=1e-4)
        np.testing.assert_allclose(posteriors.sum(), 2 * 150 - 1, rtol=1e-4)
    np.testing.assert_allclose(logs[1], logs[0] + 150 * math.log(1e-7), rtol=1e-10)
    np.testing.assert_allclose(logs[2], logs[1], rtol=1e-6)
    counts = expected_counts(statistics(words, np.array([0, 150]), tiny), tiny)
    np.testing.assert_allclose(counts.emission.sum(), 150, rtol=1e-4)


def test_an_impossible_sentence_has_probability_zero_and_no_counts() -> None:
    p = grammar(0, zeros=False)
    p = p._replace(emission=np.vstack([p.emission, np.zeros((1, 2))]))
    for words in ([3], [0, 3, 1]):
        counts = expected_counts(statistics(np.array(words), np.array([0, len(words)]), p), p)
        assert counts.log_likelihood == -np.inf
        assert all(np.isfinite(x).all() and not x.any() for x in counts[3:])


def test_batches_have_equal_lengths_and_bounded_tables() -> None:
    lengths = np.array([3, 0, 5, 3, 3, 1, 5, 0, 3])
    batches = batches_by_length(lengths, rank=2, most_floats=30)
    assert [b.tolist() for b in batches] == [[2], [6], [0, 3], [4, 8], [5]]
    assert batches_by_length(np.zeros(2, dtype=np.int64), 2, 30) == []


def test_sentences_drawn_have_the_probabilities_of_the_grammar() -> None:
    p = grammar(4, n=2, m=3, r=2, V=3)
    rng = np.random.default_rng(1)
    tables = sampling_tables(p, np.ones(3, dtype=bool))
    drawn: dict[Any, int] = {}
    n_draws = 6000
    for _ in range(n_draws):
        sentence = sample_sentence(tables, rng.random, 50)
        key = None if sentence is None else tuple(sentence)
        drawn[key] = drawn.get(key, 0) + 1
    for sentence in [(0,), (1,), (2,), (0, 0), (1, 0), (2, 1), (1, 1, 1)]:
        probability = dense_inside(p, list(sentence))
        spread = 5 * math.sqrt(probability / n_draws)
        np.testing.assert_allclose(drawn.get(sentence, 0) / n_draws, probability, rtol=0, atol=spread)
    assert max(len(s) for s in drawn if s) <= 50
    only = sampling_tables(p, np.array([False, True, False]))
    assert set(sample_sentence(only, rng.random, 1000) or [1]) == {1}
    assert {len(sample_sentence(tables, rng.random, 1) or [0]) for _ in range(20)} == {1}


@pytest.mark.parametrize("name", GrammarParams._fields)
def test_what_is_no_distribution_is_refused(name: str) -> None:
    p = grammar(0)
    check_params(p)
    for change in (lambda x: 2 * x, lambda x: -x, lambda x: x * np.nan):
        with pytest.raises(InputError):
            check_params(p._replace(**{name: change(getattr(p, name))}))
