"""EM of the factorial HMM and what the estimator hands out, against slow loops and models it must agree with."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from contract.cases import SENTENCES
from oracles.factorial_gradient import maximize_words, word_gradient, word_objective
from oracles.factorial_product import (
    enumerate_paths,
    enumerate_token_logs,
    flat_hmm,
    forward_log_likelihood,
    joint_states,
)
from sealing import edit_sealed
from sentences import is_one_sentence
from undertow import HMM, Corpus, FactorialHMM, LagCounts, load
from undertow.engine import DaskCluster, Processes, Threads
from undertow.errors import FormatError, InputError
from undertow.kernels.chain.small import forward_backward_logs
from undertow.kernels.factorial.words import FactorialParams, bounded, emission, expected_words, log_normalizer
from undertow.models.base import CostWarning
from undertow.models.factorial.em import EMSettings, cut_batches, m_step, passes, scale_layers, smoothed, word_shares
from undertow.models.factorial.init import subspace_clusters, word_clusters
from undertow.models.factorial.params import FactorialInference, InferenceSettings, count_words
from undertow.results.interpolation import Interpolation
from undertow.results.tagging import CRFTagger, States

BOUNDS = ("tilted", "jensen", "mean_field")


def small_text(V=12, n=60, seed=0):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(rng.integers(1, 9, n)))).astype(np.int64)
    return (rng.integers(0, V, offsets[-1]) ** 2 % V).astype(np.uint32), offsets


def start(M, K, V=12, seed=0):
    rng = np.random.default_rng(seed)
    theta = bounded(rng.standard_normal((V, M, K)))
    return FactorialParams(rng.dirichlet(np.ones(K), M), rng.dirichlet(np.ones(K), (M, K)), theta)


def words_of(n=40, seed=0):
    """Sentences of a small language of two crossed features, so that layers have something to find."""
    rng = np.random.default_rng(seed)
    names = np.array([["the", "a", "this"], ["dogs", "cats", "rain"], ["run", "fall", "sleep"]])
    return [[str(names[t % 3, rng.integers(0, 3)]) for t in range(rng.integers(1, 10))] for _ in range(n)]


# --- EM -------------------------------------------------------------------------------------------------


def test_counts_of_a_shard_against_all_paths():
    params = start(2, 2, V=4)
    sentences = [[1], [0, 2, 3], [2, 2, 1]]
    ids = np.array([w for s in sentences for w in s], dtype=np.uint32)
    found = FactorialInference(params, InferenceSettings(True))((ids, np.array([0, 1, 4, 7])))
    truths = [enumerate_paths(s, *params) for s in sentences]
    for name in ("words", "visits", "first", "pairs", "log_likelihood"):
        assert_allclose(getattr(found, name), sum(t[name] for t in truths), rtol=0, atol=2e-5, err_msg=name)
    assert found.n_tokens == 7


def test_count_words_is_add_at():
    rng = np.random.default_rng(0)
    ids, gamma = rng.integers(0, 9, 50), rng.random((50, 2, 3)).astype(np.float32)
    wanted = np.zeros((11, 2, 3))
    np.add.at(wanted, ids, gamma)
    assert_allclose(count_words(ids, gamma, 11), wanted, rtol=1e-6)
    assert not count_words(ids[:0], gamma[:0], 11).any()


@pytest.mark.parametrize("how", ["exact", *BOUNDS])
def test_em_never_falls_without_smoothing(how):
    params = start(3, 2)
    shard = small_text()
    inference = InferenceSettings(how == "exact", how if how != "exact" else "tilted", max_sweeps=60, tol=1e-7)
    before = -np.inf
    values = []
    for _ in range(6):
        stats = FactorialInference(params, inference)(shard)
        assert stats.log_likelihood >= before - 2e-3  # the sweeps' own tolerance, float32 in the kernels
        before = stats.log_likelihood
        values.append(before)
        params = m_step(stats, params, smoothing=0.0)
    assert values[-1] > values[0] + 5


def test_smoothed_em_never_lowers_the_penalised_likelihood():
    params, shard, smoothing = start(2, 3), small_text(), 2.0
    V, joint = 12, 9
    values = []
    for _ in range(6):
        stats = FactorialInference(params, InferenceSettings(True))(shard)
        prior = (
            smoothing / joint * np.log(flat_hmm(*params)[2]).sum()
        )  # every word `smoothing` times, in all states alike
        values.append(stats.log_likelihood + prior)
        params = m_step(stats, params, smoothing=smoothing, n_passes=1)
    assert np.diff(values).min() > -1e-3 and values[-1] > values[0] + 5
    words, visits = smoothed(np.zeros((V, 2, 3)), np.zeros(joint), smoothing, (3, 3))
    assert_allclose([words[:, 0].sum(), words[:, 1].sum()], visits.sum(), rtol=1e-12)


def test_expected_words_by_finite_differences():
    """Counted minus expected tokens are the gradient of the objective that iterative scaling climbs."""
    rng = np.random.default_rng(0)
    params = start(3, 2, V=6)
    visits = 10 * rng.random(8)
    words = rng.random((6, 3, 2))
    e = emission(params.theta)
    expected = np.stack([expected_words(e, visits, log_normalizer(e), m) for m in range(3)], axis=1)
    slope = words - expected
    assert_allclose(slope, word_gradient(params.theta, words, visits), rtol=1e-10, atol=1e-12)
    for place in itertools.product(range(6), range(3), range(2)):
        step = np.zeros_like(params.theta)
        step[place] = 1e-5
        up, down = (word_objective(params.theta + sign * step, words, visits) for sign in (1, -1))
        assert_allclose(slope[place], (up - down) / 2e-5, rtol=1e-5, atol=1e-6)


def test_scaling_and_gradient_agree_where_they_end():
    stats = FactorialInference(start(2, 2, V=8), InferenceSettings(True))(small_text(8))
    theta = start(2, 2, V=8, seed=1).theta
    once, often = (scale_layers(stats.words, stats.visits, theta, 0.1, n) for n in (1, 400))
    words, visits = smoothed(stats.words, stats.visits, 0.1, (2, 2))
    values = [word_objective(t, words, visits) for t in (theta, once, often)]
    assert values[0] < values[1] <= values[2]
    climbed = maximize_words(words, visits, theta)
    n = visits.sum()
    assert_allclose(word_objective(climbed, words, visits) / n, values[2] / n, rtol=0, atol=2e-3)  # it has a penalty


def test_one_layer_is_em_for_hidden_markov_models():
    params, (ids, offsets) = start(1, 3), small_text()
    other = params
    for _ in range(4):
        stats = FactorialInference(params, InferenceSettings(True))((ids, offsets))
        params = m_step(stats, params, smoothing=0.0, n_passes=1)
        emit = flat_hmm(*other)[2]
        found = forward_backward_logs(np.log(emit.T[ids]), offsets, other.initial[0], other.transition[0])
        assert_allclose(stats.log_likelihood, found.log_likelihood.sum(), rtol=1e-5)
        counts = np.zeros((12, 3))
        np.add.at(counts, ids, found.gamma)
        normalised = np.log(np.maximum(counts / counts.sum(axis=0), 1e-12))
        pi, A = found.first / found.first.sum(), found.pairs / found.pairs.sum(axis=1, keepdims=True)
        other = FactorialParams(pi[None], A[None], normalised[:, None])
    assert_allclose(flat_hmm(*params)[2], flat_hmm(*other)[2], rtol=0, atol=1e-4)
    assert_allclose(params.transition, other.transition, rtol=0, atol=1e-4)


def test_one_layer_is_the_hmm_of_this_package(corpus):
    hmm = HMM(3, n_blocks=1, n_iter=3, n_chunks=1, random_state=0).fit(corpus)
    emit = np.maximum(hmm.emission_.dense(), 1e-30)
    params = FactorialParams(hmm.initial_[None], hmm.transition_.dense()[None], np.log(emit).T[:, None].copy())
    params = FactorialParams(*(np.asarray(p, dtype=np.float64) for p in params))
    inference = FactorialInference(params._replace(theta=bounded(params.theta)), InferenceSettings(True))
    ids, offsets = np.asarray(corpus.ids), np.asarray(corpus.offsets)
    found = inference.exact(ids, offsets)
    assert_allclose(found.log_likelihood.sum() / corpus.n_tokens, hmm.score(corpus), rtol=1e-4)
    assert_allclose(found.gamma[:, 0], np.concatenate(hmm.posterior(corpus)), rtol=0, atol=1e-3)


# --- the estimator --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus():
    return Corpus.from_sentences(words_of(200))


@pytest.fixture(scope="module")
def model(corpus):
    return FactorialHMM(3, n_states=2, n_iter=4, random_state=0).fit(corpus)


@pytest.mark.parametrize("options", [{}, {"inference": "variational"}, {"inference": "variational", "bound": "jensen"},
                                     {"inference": "variational", "bound": "mean_field"}, 
                                     {"init": "random"}, {"init": "lds"}])  # fmt: skip
def test_batch_em_rises(corpus, options):
    fitted = FactorialHMM(2, n_states=3, n_iter=5, smoothing=1e-3, tol=1e-6, random_state=0, **options).fit(corpus)
    assert fitted.history_[-1] > fitted.history_[0] and np.diff(fitted.history_).min() > -1e-4


def test_it_finds_what_chains_explain():
    """Words come in turn by thirds: with chains, a word has one of three others behind it, not one of nine."""
    text = words_of(400)
    model = FactorialHMM(2, n_states=3, n_iter=15, random_state=0).fit(text)
    assert model.score(words_of(100, seed=5)) > -1.35  # log 3 = 1.099; words drawn alike score −log 9 = −2.2


@pytest.mark.parametrize("how", [{}, {"inference": "variational"}, {"inference": "variational", "bound": "mean_field"}])
def test_online_em_learns_from_batches(corpus, how):
    online = FactorialHMM(2, n_states=3, n_iter=4, batch_size=200, random_state=0, **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("undertow.models.factorial.em.SHARD_TOKENS", 100)
        online.fit(corpus)
    once = FactorialHMM(2, n_states=3, n_iter=1, random_state=0, **how).fit(corpus)
    assert online.score(corpus) > once.score(corpus) and online.history_[-1] > online.history_[0]


def test_a_fit_that_has_left_the_numbers_ends_in_a_sentence(corpus):
    broken = start(2, 3, V=len(corpus.vocabulary))
    broken.transition[0, 0] = np.nan
    how = EMSettings(InferenceSettings(True), 2, 300, 0.5, 1)
    with pytest.raises(InputError, match=r"no finite probability .* another random_state"):
        list(passes(corpus, broken, how, np.random.default_rng(0), None))


def test_batches_are_kept_and_replaced(corpus, monkeypatch):
    """After every batch was read, the counts are those of a text whose batches were read one after the other."""
    monkeypatch.setattr("undertow.models.factorial.em.SHARD_TOKENS", 100)
    given = []

    def noted(stats, params, **settings):
        given.append((stats.scaled(1.0), params))  # a copy: the total goes on changing
        return m_step(stats, params, **settings)

    monkeypatch.setattr("undertow.models.factorial.em.m_step", noted)
    start_, how = start(2, 3, V=len(corpus.vocabulary)), EMSettings(InferenceSettings(True), 2, 300, 0.5, 1)
    done = list(passes(corpus, start_, how, np.random.default_rng(0), None))
    shards = corpus.shards(100)
    np.random.default_rng(0).shuffle(shards)
    batches = cut_batches(shards, corpus, 300)
    n = len(batches)
    assert n >= 3 and len(done) == 2 and len(given) == 2 * n
    # the parameters that each batch was read with, in the second pass as far as its second batch
    read_with = [given[n][1], given[n + 1][1], *(params for _, params in given[2:n])]
    wanted = None
    for batch, params in zip(batches, read_with, strict=True):
        for first, stop in batch:
            at = np.asarray(corpus.offsets[first : stop + 1])
            shard = (np.asarray(corpus.ids[at[0] : at[-1]]), at - at[0])
            stats = FactorialInference(params, InferenceSettings(True))(shard)
            wanted = stats if wanted is None else wanted.plus(stats)
    for name in ("words", "visits", "first", "pairs", "n_tokens"):
        assert_allclose(getattr(given[n + 1][0], name), getattr(wanted, name), rtol=1e-5, atol=1e-4, err_msg=name)
    # at the start too every word has its tokens, whichever batch they are in
    assert_allclose(given[0][0].words.sum(axis=2), np.tile(corpus.vocabulary.counts[:, None], 2), rtol=1e-5)
    assert_allclose(given[0][0].visits.sum(), corpus.n_tokens, rtol=1e-5)


def test_long_texts_have_longer_batches(corpus, monkeypatch):
    monkeypatch.setattr("undertow.models.factorial.em.SHARD_TOKENS", 50)
    monkeypatch.setattr("undertow.models.factorial.em.MAX_STATS_BYTES", 2 * 4 * 6 * len(corpus.vocabulary))  # two
    seen = []
    monkeypatch.setattr("undertow.models.factorial.em.m_step", lambda stats, params, **_: seen.append(1) or params)
    FactorialHMM(2, n_states=3, n_iter=1, batch_size=50, init="random", random_state=0).fit(corpus)
    assert len(seen) == 2


def test_words_alone_say_where_their_tokens_are():
    params = start(2, 3, V=7)
    usual = [np.linalg.matrix_power(A, 200)[0] for A in params.transition]
    emit = flat_hmm(*params)[2]  # (joint, V)
    wanted = np.zeros((7, 2, 3))
    for code, s in enumerate(joint_states((3, 3))):
        for m in range(2):
            wanted[:, m, s[m]] += usual[0][s[0]] * usual[1][s[1]] * emit[code]
    wanted /= wanted.sum(axis=2, keepdims=True)
    assert_allclose(word_shares(params), wanted, rtol=1e-6)


def test_it_stops_when_other_text_becomes_less_probable(corpus, tmp_path):
    other = words_of(30, seed=9)
    model = FactorialHMM(2, n_states=3, n_iter=40, smoothing=0.0, random_state=0).fit(words_of(12), validation=other)
    scores = model.validation_history_
    assert 1 < len(scores) < 40 and scores[-1] <= max(scores[:-1]) and len(model.history_) == len(scores)
    assert_allclose(model.score(other), max(scores), rtol=1e-5)  # the best is kept, not the last
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").validation_history_ == scores
    share = FactorialHMM(2, n_states=2, n_iter=2, validation=0.2, random_state=0).fit(corpus)
    held = list(corpus.token_lists())[-round(0.2 * corpus.n_sentences) :]
    assert_allclose(share.score(held), max(share.validation_history_), rtol=1e-5)
    variational = FactorialHMM(2, n_states=2, n_iter=2, validation=0.2, inference="variational", random_state=0)
    variational.fit(corpus)
    assert_allclose(variational.bound_per_token(held), max(variational.validation_history_), rtol=1e-4)


def test_models_saved_with_the_parameter_update_can_be_loaded(model, tmp_path):
    """Earlier versions had `update="closed"` or "lbfgs"; a fitted model does not need it."""
    model.save(tmp_path / "m")
    tagger = CRFTagger([States(model, method="viterbi")], n_iter=2).fit([["the", "dogs"]] * 4, [["D", "N"]] * 4)
    tagger.save(tmp_path / "t")
    for value in ("closed", "lbfgs"):
        edit_sealed(tmp_path / "m" / "config.json", lambda c, v=value: c["params"].update(update=v))
        assert_array_equal(load(tmp_path / "m").params_.theta, model.params_.theta)
    edit_sealed(tmp_path / "t" / "config.json", lambda c: c["fitted"]["models"][0]["params"].update(update="closed"))
    assert load(tmp_path / "t").predict([["the", "dogs"]]) == [["D", "N"]]
    edit_sealed(tmp_path / "m" / "config.json", lambda c: c["params"].update(update="sgd"))
    with pytest.raises(FormatError, match="no parameter 'update'"):
        load(tmp_path / "m")


def test_going_on_is_the_same_as_going_through(corpus, tmp_path):
    whole = FactorialHMM(2, n_states=2, n_iter=4, random_state=0).fit(corpus)
    half = FactorialHMM(2, n_states=2, n_iter=2, random_state=0).fit(corpus)
    half.save(tmp_path / "half")
    resumed = load(tmp_path / "half").partial_fit(corpus)
    assert resumed.history_ == whole.history_
    assert_array_equal(resumed.theta_, whole.theta_)
    half.partial_fit([["the", "zebras", "run"]], new_words=None)
    assert len(half.history_) == 4 and "zebras" not in half.vocabulary_


@pytest.mark.parametrize("options", [{"inference": "exact"}, {"inference": "variational", "max_sweeps": 2}])
def test_every_engine_gives_the_same_bits(corpus, options, monkeypatch):
    monkeypatch.setattr("undertow.models.factorial.em.SHARD_TOKENS", 150)  # several shards
    make = FactorialHMM(2, n_states=3, n_iter=2, batch_size=400, random_state=0, **options)
    wanted = make.fit(corpus).theta_.tobytes()
    with Threads(3) as threads, Processes(2) as processes, DaskCluster(n_workers=2) as cluster:
        for engine in (threads, processes, cluster):
            assert make.fit(corpus, engine=engine).theta_.tobytes() == wanted, type(engine).__name__
    assert make.set_params(n_jobs=2).fit(corpus).theta_.tobytes() == wanted


def test_posteriors_scores_and_paths_against_all_paths(model):
    sentences = [["the", "dogs", "run"], ["zebra"], ["a", "zebra"], []]
    vocabulary, params = model.vocabulary_, model.params_
    posterior, paths = model.posterior(sentences), model.decode(sentences)
    for i, tokens in enumerate(sentences[:3]):
        ids = vocabulary.encode(tokens).tolist()
        truth = enumerate_paths([None if w == 0 else w for w in ids], *params)  # unknown words: from the context
        assert_allclose(posterior[i], truth["gamma"], rtol=0, atol=1e-5)
        assert_array_equal(paths[i], truth["best_path"])
        assert_allclose(model.log_likelihoods([tokens])[0], forward_log_likelihood(ids, *params), rtol=1e-5)
    assert posterior[3].shape == (0, 3, 2) and paths[3].shape == (0, 3) and model.log_likelihoods([[]])[0] == 0
    assert_array_equal(model.joint_codes(sentences)[0], paths[0] @ [4, 2, 1])
    by_token = model.decode(sentences, "posterior")
    assert_array_equal(by_token[0], posterior[0].argmax(axis=2))
    hard = model.transform(sentences, "viterbi")
    assert_array_equal(hard[0].reshape(3, 3, 2).argmax(axis=2), paths[0])
    assert_allclose(hard[0].sum(axis=1), 3, rtol=0)
    for call in (lambda: model.transform(sentences, "type"), lambda: model.decode(sentences, "best")):
        with pytest.raises(InputError) as e:
            call()
        assert is_one_sentence(str(e.value))


def test_bound_beside_the_exact_score(model, corpus):
    assert model.scores_exactly
    gap = model.score(corpus) - model.bound_per_token(corpus)
    assert 0 <= gap < 0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("undertow.models.factorial.model.EXACT_SCORE", 4)
        model._prepare()
        try:
            assert not model.scores_exactly and model.score(corpus) == model.bound_per_token(corpus)
            for call in (lambda: model.log_probabilities(corpus), lambda: Interpolation([model])):
                with pytest.raises(InputError, match="joint states") as e:
                    call()
                assert is_one_sentence(str(e.value))
        finally:
            patch.undo()
            model._prepare()


def test_probability_of_each_token(model, corpus):
    sentences = [["the", "dogs", "zebra"], [], ["run"]]
    logs = model.log_probabilities(sentences)
    params = tuple(np.asarray(p, dtype=np.float64) for p in model.params_)
    for tokens, found in zip(sentences, logs, strict=True):
        ids = [model.vocabulary_.id(w) for w in tokens]  # an unknown word is a word here
        assert found.dtype == np.float64 and found.shape == (len(tokens),)
        assert_allclose(found, enumerate_token_logs(ids, *params), rtol=1e-5)
    whole = np.concatenate(model.log_probabilities(corpus))
    assert_allclose(whole.mean(), model.score(corpus), rtol=1e-9)
    ahead = model.log_probabilities([["the", w] for w in model.vocabulary_.words])
    assert_allclose(sum(np.exp(x[1]) for x in ahead), 1, rtol=1e-5)


def test_variational_queries(corpus):
    model = FactorialHMM(2, n_states=3, n_iter=3, inference="variational", random_state=0).fit(corpus)
    sentences = [["the", "dogs", "run"], ["zebra", "dogs"]]
    for states, gamma in zip(model.decode(sentences), model.posterior(sentences), strict=True):
        assert states.shape == gamma.shape[:2] and states.max() < 3
        assert_allclose(gamma.sum(axis=2), 1, rtol=1e-5)
    assert model.sample(3, random_state=0, prefix=["the"]) == model.sample(3, random_state=0, prefix=["the"])


def test_a_long_query_is_taken_in_pieces(model):
    text = words_of(30, seed=3)
    whole, scores = model.transform(text), model.log_likelihoods(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("undertow.models.factorial.queries.BATCH_TOKENS", 7)
        for a, b in zip(whole, model.transform(text), strict=True):
            assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        assert_allclose(model.log_likelihoods(text), scores, rtol=1e-5)


def test_samples_follow_the_model():
    model = FactorialHMM(2, n_states=3, n_iter=15, smoothing=0.0, random_state=0).fit(words_of(400))
    drawn = model.sample(3000, random_state=1)
    assert drawn == model.sample(3000, random_state=1) and model.sample(0) == []
    kinds = {
        w: i
        for i, group in enumerate((("the", "a", "this"), ("dogs", "cats", "rain"), ("run", "fall", "sleep")))
        for w in group
    }
    turns = np.mean([(kinds[b] - kinds[a]) % 3 == 1 for a, b in itertools.pairwise(drawn)])
    assert turns > 0.8
    after = [model.sample(1, random_state=seed, prefix=["this", "dogs"])[0] for seed in range(60)]
    assert np.mean([kinds[w] == 2 for w in after]) > 0.7
    for bad in (-1, 1.5, True):
        with pytest.raises(InputError):
            model.sample(bad)


def test_sampling_begins_anew_after_a_boundary():
    corpus = Corpus.from_sentences(words_of(50), boundary="<eos>")
    drawn = FactorialHMM(2, n_states=3, n_iter=8, random_state=0).fit(corpus).sample(400, random_state=0)
    firsts = [b for a, b in itertools.pairwise(drawn) if a == "<eos>"]
    assert firsts and np.mean([w in ("the", "a", "this") for w in firsts]) > 0.7


def test_top_words(model):
    found = {layer: [model.top_words(layer, s, 3) for s in range(2)] for layer in range(3)}
    assert all(len(words) == 3 for states in found.values() for words in states)
    for states in found.values():
        for words in states:
            assert [w.lift for w in words] == sorted((w.lift for w in words), reverse=True)
            assert all(w.tokens >= 0 and w.word in model.vocabulary_ for w in words)
    for layer, state in ((3, 0), (-1, 0), (0, 2)):
        with pytest.raises(InputError) as e:
            model.top_words(layer, state)
        assert is_one_sentence(str(e.value))


@pytest.mark.parametrize("inference", ["exact", "variational"])
@pytest.mark.parametrize(
    "text", [[["a"], ["b"], ["a"]], [["same"] * 5, ["same"]], SENTENCES], ids=["one-word", "one word", "some"]
)
@pytest.mark.parametrize(("M", "K"), [(1, 1), (3, 1), (1, 4), (2, 3)])
def test_small_and_strange_text(inference, text, M, K):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FactorialHMM(M, n_states=K, n_iter=2, inference=inference, random_state=0).fit(text)
        for sentences in (text, [["zzz"]], [["zzz", "qqq"], ["zzz"]]):
            assert all(np.isfinite(v).all() and v.shape[1] == M * K for v in model.transform(sentences))
            assert np.isfinite(model.score(sentences)) and np.isfinite(model.bound_per_token(sentences))
            assert [len(s) for s in model.decode(sentences)] == [len(s) for s in sentences]


def test_one_state_is_word_frequency():
    text = SENTENCES
    model = FactorialHMM(2, n_states=1, n_iter=2, smoothing=0.0, random_state=0).fit(text)
    counts = model.vocabulary_.counts[model.vocabulary_.counts > 0]
    p = counts / counts.sum()
    assert_allclose(model.score(text), (p * np.log(p)).sum(), rtol=1e-5)


def test_layers_start_from_different_views():
    """Words that share what comes before them and words that share what comes after are different clusters."""
    rng = np.random.default_rng(0)
    text = []
    for _ in range(600):
        i, j = rng.integers(0, 2, 2)
        text.append([f"before{i}", f"w{i}{j}", f"after{j}"])
    corpus = Corpus.from_sentences(text)
    counts, unigram = LagCounts.from_corpus(corpus, lags=1).matrix(1), corpus.vocabulary.counts
    at = [corpus.vocabulary.id(f"w{i}{j}") for i in (0, 1) for j in (0, 1)]
    left, right = (word_clusters(counts, unigram, 5, view, np.random.default_rng(3))[at] for view in ("left", "right"))
    assert left[0] == left[1] != left[2] == left[3]
    assert right[0] == right[2] != right[1] == right[3]
    model = FactorialHMM(2, n_states=5, n_iter=1, random_state=3).fit(corpus)
    assert (
        len(np.unique(np.concatenate(model.joint_codes(text)))) > 5
    )  # equal layers would use five joint states at most


class SameDraws(np.random.Generator):
    """Every layer's k-means begins with the same draws, so that only its directions tell it from another layer."""

    def random(self, size):
        return np.linspace(0.1, 0.9, size)


def test_layers_start_from_different_directions():
    """Each layer clusters the words in its own subspace: the clusterings of real structure differ from each other."""
    rng = np.random.default_rng(0)
    text = []
    for _ in range(800):
        i, j = rng.integers(0, 2, 2)
        text.append([f"before{i}", f"w{i}{j}", f"after{j}"])
    counts = LagCounts.from_corpus(Corpus.from_sentences(text), lags=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("undertow.models.factorial.init.N_DIRECTIONS", 2)
        one, two = subspace_clusters(counts, (3, 3), SameDraws(np.random.PCG64(0)))
    same = {(a, b) for a, b in zip(one.tolist(), two.tolist(), strict=True)}
    assert len(set(one.tolist())) == len(set(two.tolist())) == 3 and len(same) > 3  # not one the other's renaming


@pytest.mark.parametrize(
    "text", [[["a"], ["b"]], [["same"] * 4], [["a", "b"]] * 3], ids=["no pairs", "one word", "two"]
)
def test_directions_of_strange_text(text):
    model = FactorialHMM(3, n_states=2, n_iter=1, init="lds", random_state=0).fit(text)
    assert np.isfinite(model.score(text))


def test_what_it_refuses():
    text = SENTENCES
    bad = [{"n_layers": 0}, {"n_states": 0}, {"n_states": True}, {"n_iter": 0}, {"bound": "best"},
           {"inference": "fast"}, {"init": "zeros"}, {"tol": -1}, {"smoothing": "much"},
           {"smoothing": -0.1}, {"batch_size": 0}, {"validation": 1.5}, {"validation": True},
           {"n_layers": 9, "inference": "exact"}, {"n_layers": 9, "inference": "variational", "bound": "mean_field"},
           {"n_jobs": 0}]  # fmt: skip
    for params in bad:
        with pytest.raises(InputError) as e:
            FactorialHMM(**params).fit(text)
        assert is_one_sentence(str(e.value)), params
    fitted = FactorialHMM(2, n_states=2, n_iter=1, random_state=0).fit(text)
    with pytest.raises(InputError, match="fitted with 2 layers"):
        fitted.set_params(n_layers=3).partial_fit(text)


def test_exact_inference_over_very_many_joint_states_says_first_what_it_costs() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CostWarning)  # raised before the work: the fit itself would take minutes
        with pytest.raises(CostWarning, match=r"531,441 joint states needs about 0\.\d GB and .* hours.*variational"):
            FactorialHMM(12, n_states=3, inference="exact", n_jobs=1).fit([["a", "b"]] * 10)
        FactorialHMM(3, n_states=3, n_iter=1, inference="exact").fit([["a", "b"]] * 10)
