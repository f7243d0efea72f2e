"""A factorial HMM whose layers differ in size, against all paths, and against models that it must agree with."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from contract.cases import OTHER_SENTENCES, SENTENCES
from oracles.factorial_gradient import word_gradient, word_objective
from oracles.factorial_product import enumerate_paths, enumerate_token_logs, flat_hmm, forward_log_likelihood
from sealing import edit_sealed
from sentences import is_one_sentence
from undertow import Corpus, Evidence, FactorialHMM, LagCounts, load
from undertow.constraints import Contains
from undertow.errors import FormatError, InputError
from undertow.kernels.factorial.words import FactorialParams, bounded, emission, expected_words, log_normalizer
from undertow.models.base import CostWarning
from undertow.models.factorial.em import m_step, smoothed, word_shares
from undertow.models.factorial.init import subspace_clusters, with_new_words
from undertow.models.factorial.params import FactorialInference, InferenceSettings
from undertow.models.factorial.queries import filtered_joint
from undertow.results.tagging import CRFTagger, Posteriors, States
from undertow.results.tagging.sources import as_representation

BOUNDS = ("tilted", "jensen", "mean_field")
SIZES = [(3, 2), (1, 3), (2, 1, 4)]


def start(sizes: tuple[int, ...], V: int = 12, seed: int = 0) -> FactorialParams:
    rng = np.random.default_rng(seed)
    M, K = len(sizes), max(sizes)
    theta = rng.standard_normal((V, M, K))
    initial, transition = np.zeros((M, K)), np.zeros((M, K, K))
    for m, k in enumerate(sizes):
        theta[:, m, k:] = -np.inf
        initial[m, :k], transition[m, :k, :k] = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k)
    return FactorialParams(initial, transition, bounded(theta))


def text_of(V: int = 12, n: int = 60) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    offsets = np.concatenate(([0], np.cumsum(rng.integers(1, 9, n)))).astype(np.int64)
    return (rng.integers(0, V, offsets[-1]) ** 2 % V).astype(np.uint32), offsets


@pytest.fixture(scope="module")
def model() -> FactorialHMM:
    return FactorialHMM(2, n_states=(3, 2), n_iter=4, random_state=0).fit(SENTENCES * 4)


# --- EM -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES)
def test_counts_of_a_shard_against_all_paths(sizes: tuple[int, ...]) -> None:
    params, sentences = start(sizes, V=4), [[1], [0, 2, 3], [2, 2, 1]]
    ids = np.array([w for s in sentences for w in s], dtype=np.uint32)
    found = FactorialInference(params, InferenceSettings(True))((ids, np.array([0, 1, 4, 7])))
    truths = [enumerate_paths(list(s), *params) for s in sentences]
    for name in ("words", "visits", "first", "pairs", "log_likelihood"):
        assert_allclose(getattr(found, name), sum(t[name] for t in truths), rtol=0, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("how", ["exact", *BOUNDS])
@pytest.mark.parametrize("sizes", SIZES)
def test_em_never_falls_without_smoothing(sizes: tuple[int, ...], how: str) -> None:
    params, shard, values = start(sizes), text_of(), []
    inference = InferenceSettings(how == "exact", "tilted" if how == "exact" else how, max_sweeps=60, tol=1e-7)
    for _ in range(6):
        stats = FactorialInference(params, inference)(shard)
        values.append(stats.log_likelihood)
        params = m_step(stats, params, smoothing=0.0)
        assert params.sizes == sizes
        for m, k in enumerate(sizes):
            assert_allclose(params.initial[m].sum(), 1, rtol=1e-9)
            assert_allclose(params.transition[m, :k].sum(axis=1), 1, rtol=1e-9)
            assert (params.initial[m, k:] == 0).all() and (params.transition[m, :, k:] == 0).all()
            assert (params.transition[m, k:] == 0).all() and (params.theta[:, m, k:] == -np.inf).all()
    assert np.diff(values).min() > -2e-3 and values[-1] > values[0] + 5


def test_smoothed_em_never_lowers_the_penalised_likelihood() -> None:
    params, shard, smoothing, values = start((3, 2)), text_of(), 2.0, []
    for _ in range(6):
        stats = FactorialInference(params, InferenceSettings(True))(shard)
        values.append(stats.log_likelihood + smoothing / 6 * np.log(flat_hmm(*params)[2]).sum())
        params = m_step(stats, params, smoothing=smoothing, n_passes=1)
    assert np.diff(values).min() > -1e-3 and values[-1] > values[0] + 5
    words, visits = smoothed(np.zeros((12, 2, 3)), np.zeros(6), smoothing, (3, 2))
    assert_allclose([words[:, 0].sum(), words[:, 1, :2].sum(), visits.sum()], 12 * smoothing, rtol=1e-12)


def test_expected_words_by_finite_differences() -> None:
    rng, sizes = np.random.default_rng(0), (2, 1, 3)
    params, visits = start(sizes, V=6), 10 * rng.random(6)
    words = rng.random((6, 3, 3)) * (params.theta > -np.inf)
    e = emission(params.theta)
    slope = word_gradient(params.theta, words, visits)
    for m, k in enumerate(sizes):
        expected = expected_words(e, visits, log_normalizer(e), m)
        assert_allclose(words[:, m, :k] - expected, slope[:, m, :k], rtol=1e-10, atol=1e-12)
    for place in [(0, 0, 1), (3, 1, 0), (5, 2, 2)]:
        step = np.zeros_like(params.theta)
        step[place] = 1e-5
        up, down = (word_objective(params.theta + sign * step, words, visits) for sign in (1, -1))
        assert_allclose(slope[place], (up - down) / 2e-5, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("most", [1_000_000, 1], ids=["jointly", "layer by layer"])
def test_words_alone_say_where_their_tokens_are(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.models.factorial.em.MAX_JOINT", most)
    params = start((3, 2), V=7)
    shares = word_shares(params)
    assert_allclose(shares.sum(axis=2), 1, rtol=1e-9)
    assert (shares[:, 1, 2] == 0).all()
    if most > 1:
        usual = [np.linalg.matrix_power(params.layer(m)[1], 200)[0] for m in range(2)]
        joint = np.multiply.outer(*usual).reshape(-1, 1) * flat_hmm(*params)[2]
        joint = (joint / joint.sum(axis=0)).reshape(3, 2, 7)
        assert_allclose(shares[:, 0], joint.sum(axis=1).T, rtol=1e-6)
        assert_allclose(shares[:, 1, :2], joint.sum(axis=0).T, rtol=1e-6)


# --- fits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, {"init": "lds"}, {"init": "random"}, {"batch_size": 60}])
@pytest.mark.parametrize("inference", [{}, *({"inference": "variational", "bound": b} for b in BOUNDS)])
def test_every_start_and_inference_learns(
    how: dict[str, Any], inference: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("undertow.models.factorial.em.SHARD_TOKENS", 50)
    text = Corpus.from_sentences(SENTENCES * 6)
    fitted = FactorialHMM(3, n_states=[2, 4, 1], n_iter=4, random_state=0, tol=1e-6, **how, **inference).fit(text)
    assert fitted.params_.sizes == (2, 4, 1) and fitted.history_[-1] > fitted.history_[0]
    again = fitted.params_
    assert np.isfinite(fitted.score(text)) and np.isfinite(fitted.bound_per_token(text))
    fitted.partial_fit(OTHER_SENTENCES * 3)
    assert fitted.params_.sizes == (2, 4, 1) and len(fitted.theta_) > len(again.theta)
    assert all(np.isfinite(v).all() and v.shape[1] == 7 for v in fitted.transform(OTHER_SENTENCES))


@pytest.mark.parametrize("init", ["clusters", "lds", "random"])
def test_more_joint_states_than_tables_hold(init: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.models.factorial.init.MAX_JOINT", 5)
    monkeypatch.setattr("undertow.models.factorial.init.MAX_EXACT", 2)
    monkeypatch.setattr("undertow.models.factorial.em.MAX_JOINT", 5)
    text = SENTENCES * 4
    fitted = FactorialHMM(3, n_states=(3, 2, 4), n_iter=2, inference="variational", init=init, random_state=0).fit(text)
    assert np.isfinite(fitted.score(text)) and fitted.history_[-1] > fitted.history_[0]


@pytest.mark.parametrize("init", ["clusters", "lds", "random"])
@pytest.mark.parametrize("options", [{}, {"inference": "variational"}])
def test_a_list_of_equal_sizes_is_one_number(init: str, options: dict[str, Any]) -> None:
    """Also (K,), which is the HMM."""
    for M, K in ((2, 3), (1, 4)):
        one, several = (
            FactorialHMM(M, n_states=n_states, n_iter=2, init=init, random_state=0, **options).fit(SENTENCES)
            for n_states in (K, (K,) * M)
        )
        assert one.history_ == several.history_
        for a, b in zip(one.params_, several.params_, strict=True):
            assert a.tobytes() == b.tobytes()
        for a, b in zip(one.transform(SENTENCES), several.transform(SENTENCES), strict=True):
            assert a.tobytes() == b.tobytes()


def test_a_layer_of_one_state_changes_no_answer(model: FactorialHMM) -> None:
    """The same parameters with a third layer that says nothing."""
    wide = FactorialHMM(3, n_states=(3, 1, 2), n_iter=1, random_state=0).fit(SENTENCES * 4)
    p, theta = model.params_, np.full((len(model.theta_), 3, 3), -np.inf)
    theta[:, [0, 2]], theta[:, 1, 0] = p.theta, 0.0
    initial, transition = np.zeros((3, 3)), np.zeros((3, 3, 3))
    initial[[0, 2]], initial[1, 0], transition[[0, 2]], transition[1, 0, 0] = p.initial, 1, p.transition, 1
    wide.params_ = FactorialParams(initial, transition, theta)
    wide._prepare()
    assert wide.vocabulary_ == model.vocabulary_
    assert_allclose(wide.log_likelihoods(SENTENCES), model.log_likelihoods(SENTENCES), rtol=1e-5)
    for a, b in zip(wide.decode(SENTENCES), model.decode(SENTENCES), strict=True):
        assert_array_equal(a[:, [0, 2]], b)
        assert (a[:, 1] == 0).all()
    for a, b in zip(wide.joint_codes(SENTENCES), model.joint_codes(SENTENCES), strict=True):
        assert_array_equal(a, b)
    for a, b in zip(wide.transform(SENTENCES), model.transform(SENTENCES), strict=True):
        assert_allclose(a[:, [0, 1, 2, 4, 5]], b, rtol=0, atol=1e-5)
        assert_allclose(a[:, 3], 1, rtol=1e-5)
    [a], [b] = (m.fill(["the", None, "sat"], 5) for m in (wide, model))
    assert [w.word for w in a.words] == [w.word for w in b.words]
    assert_allclose([w.probability for w in a.words], [w.probability for w in b.words], rtol=1e-4)


def test_layers_start_from_their_own_number_of_clusters() -> None:
    counts = LagCounts.from_corpus(Corpus.from_sentences(SENTENCES * 4), lags=1)
    V = len(counts.vocabulary)
    for sizes in ((4, 2, 1), (V + 3, 3)):
        found = list(subspace_clusters(counts, sizes, np.random.default_rng(0)))
        assert [c.max() < k and c.min() >= 0 for c, k in zip(found, sizes, strict=True)] == [True] * len(sizes)
        assert len(set(found[1].tolist())) == sizes[1]


def test_new_words_start_as_the_average_word() -> None:
    old = start((3, 2), V=6)
    counts = np.array([1, 5, 3, 2, 8, 1])
    new = with_new_words(old, counts, np.concatenate([counts, [4]]))
    assert new.sizes == (3, 2) and (new.theta[:, 1, 2] == -np.inf).all()
    mu, average = counts / 20, float((counts / 20 * np.log(counts / 20)).sum())
    for a, b in itertools.product(range(3), range(2)):
        before, after = (p.theta[:, 0, a] + p.theta[:, 1, b] for p in (old, new))
        log_p = before - logsumexp(before)
        expected = mu @ log_p + np.log(4 / 24) - average
        assert_allclose(after[6] - after[5] + log_p[5], expected, rtol=1e-6, atol=1e-8)


# --- answers --------------------------------------------------------------------------------------------


def test_posteriors_scores_and_paths_against_all_paths(model: FactorialHMM) -> None:
    sentences = [["the", "bank", "sat"], ["zebra"], ["the", "zebra"], []]
    vocabulary, params = model.vocabulary_, model.params_
    posterior, paths = model.posterior(sentences), model.decode(sentences)
    features, hard = model.transform(sentences), model.transform(sentences, "viterbi")
    logs, codes = model.log_probabilities(sentences), model.joint_codes(sentences)
    for i, tokens in enumerate(sentences[:3]):
        ids = vocabulary.encode(tokens).tolist()
        truth = enumerate_paths([None if w == 0 else w for w in ids], *params)
        assert_allclose(posterior[i], truth["gamma"], rtol=0, atol=1e-5)
        assert_allclose(features[i], truth["gamma"].reshape(len(tokens), 6)[:, :5], rtol=0, atol=1e-5)
        assert_array_equal(paths[i], truth["best_path"])
        assert_array_equal(codes[i], paths[i] @ [2, 1])
        assert_array_equal([np.flatnonzero(row).tolist() for row in hard[i]], paths[i] + [0, 3])
        assert_allclose(model.log_likelihoods([tokens])[0], forward_log_likelihood(ids, *params), rtol=1e-5)
        assert_allclose(logs[i], enumerate_token_logs(ids, *params), rtol=1e-5)
    assert posterior[3].shape == (0, 2, 3) and features[3].shape == hard[3].shape == (0, 5)
    assert model.bound_per_token(sentences) <= model.score(sentences) + 1e-6
    assert_array_equal(model.decode(sentences, "posterior")[0], posterior[0].argmax(axis=2))


def test_variational_answers() -> None:
    model = FactorialHMM(2, n_states=(2, 4), n_iter=3, inference="variational", random_state=0).fit(SENTENCES * 4)
    for states, gamma in zip(model.decode(SENTENCES), model.posterior(SENTENCES), strict=True):
        assert (states < [2, 4]).all()
        assert_allclose(gamma.sum(axis=2), 1, rtol=1e-5)
        assert (gamma[:, 0, 2:] == 0).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("undertow.models.factorial.model.EXACT_SCORE", 4)  # states of the prefix from the bound
        model._prepare()
        assert model.sample(20, random_state=0, prefix=["the"]) == model.sample(20, random_state=0, prefix=["the"])


def test_samples_follow_the_model(model: FactorialHMM) -> None:
    first = [model.sample(1, random_state=i, prefix=["the", "bank"])[0] for i in range(2000)]
    ahead = {w: np.exp(model.log_probabilities([["the", "bank", w]])[0][2]) for w in model.vocabulary_.words}
    for word, p in ahead.items():
        if word != model.vocabulary_.unknown:
            assert abs(first.count(word) / 2000 - p) < 4 * np.sqrt(p * (1 - p) / 2000) + 1e-3, word


def test_the_filtered_joint_state(model: FactorialHMM) -> None:
    params = model.params_
    pi, A, B = flat_hmm(*params)
    ids = model.vocabulary_.encode(["the", "bank", "sat"])
    alpha = pi * B[:, ids[0]]
    for w in ids[1:]:
        alpha = (alpha @ A) * B[:, w]
    e = emission(params.theta)
    found = filtered_joint(ids, np.zeros(3, dtype=bool), params, e, log_normalizer(e))
    assert_allclose(found, alpha / alpha.sum(), rtol=1e-9)


def test_questions_are_those_of_the_product_chain(model: FactorialHMM) -> None:
    params, words = model.params_, model.vocabulary_
    pi, A, B = flat_hmm(*params)
    a, c = (words.id(w) for w in ("the", "sat"))
    keep = np.array([1.0, 0, 1, 0, 1, 0])  # joint states with state 0 in layer 1
    for states, mask in (({}, np.ones(6)), ({1: {1: 0}}, keep), ({1: {0: {2}}}, np.array([0.0, 0, 0, 0, 1, 1]))):
        between = (((pi * B[:, a]) @ A) * mask) * (A @ B[:, c])
        truth = between @ B
        truth[: words.n_special] = 0  # markers are not listed
        [gap] = model.fill(["the", None, "sat"], 4, states=states)
        share = truth / (between @ B).sum()
        for word, p in gap.words:
            assert_allclose(p, share[words.id(word)], rtol=1e-3)
        [gamma] = model.posterior([Evidence(["the", None, "sat"], states=states)])
        joint = (between / between.sum()).reshape(3, 2)
        assert_allclose(gamma[1, 0], joint.sum(axis=1), rtol=1e-4, atol=1e-5)
        assert_allclose(gamma[1, 1], [*joint.sum(axis=0), 0], rtol=1e-4, atol=1e-5)
        [path] = model.decode([Evidence(["the", None, "sat"], states=states)])
        assert path[1] @ [2, 1] in np.flatnonzero(mask)
    found = model.probability(Contains("bank"), prefix=["the"], suffix=["sat"], length=1)
    ahead = ((pi * B[:, a]) @ A) * (A @ B[:, c])
    assert_allclose(found, ahead @ B[:, words.id("bank")] / (ahead @ B).sum(), rtol=1e-4)
    assert "bank" in model.generate(constraint=Contains("bank"), length=3, random_state=0)[0]
    for states, part in (
        ({1: {1: 2}}, "0 to 1"),
        ({1: {0: 3}}, "0 to 2"),
        ({1: {2: 0}}, "layer 2: give one of 0 to 1"),
    ):
        with pytest.raises(InputError, match=part) as e:
            model.fill(["the", None], states=states)
        assert is_one_sentence(str(e.value))


def test_words_of_states(model: FactorialHMM) -> None:
    for layer, k in enumerate((3, 2)):
        tokens = sum(w.tokens for state in range(k) for w in model.top_words(layer, state, 1000, min_count=1))
        seen = model.vocabulary_.counts[model.vocabulary_.n_special :].sum()
        assert_allclose(tokens, seen, rtol=1e-9)
    for layer, state, part in (
        (1, 2, "state 2: give 0 to 1"),
        (2, 0, "layer 2"),
        (-1, 0, "layer -1"),
        (0, 3, "0 to 2"),
    ):
        with pytest.raises(InputError, match=part) as e:
            model.top_words(layer, state)
        assert is_one_sentence(str(e.value))


def test_features_of_taggers(model: FactorialHMM, tmp_path: Any) -> None:
    for source in (model, States(model)):
        tags = [[w[0] for w in s] for s in SENTENCES]
        tagger = CRFTagger([source], n_iter=3).fit(SENTENCES, tags)
        tagger.save(tmp_path / "t", overwrite=True)
        assert load(tmp_path / "t").predict(OTHER_SENTENCES) == tagger.predict(OTHER_SENTENCES)
    read = as_representation(model)
    assert isinstance(read, Posteriors)
    rows, gamma = read.vectors([SENTENCES[0]])[0], model.posterior([SENTENCES[0]])[0]
    assert_array_equal(rows, gamma.reshape(len(gamma), 6))
    # features carry the place of a state, and one that a layer lacks is in none
    assert all(name != "5" for token in read.features(SENTENCES)[0] for name in token)


# --- saving, and what is refused --------------------------------------------------------------------------


def test_saved_and_loaded(model: FactorialHMM, tmp_path: Any) -> None:
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.n_states == [3, 2] and again.params_.sizes == (3, 2)
    for a, b in zip(again.params_, model.params_, strict=True):
        assert a.tobytes() == b.tobytes()
    for a, b in zip(again.transform(SENTENCES), model.transform(SENTENCES), strict=True):
        assert a.tobytes() == b.tobytes()
    again.save(tmp_path / "again")
    for name in ("config.json", "model.safetensors", "vocabulary.json"):
        if (tmp_path / "m" / name).exists():
            assert (tmp_path / "m" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    for sizes in ([2, 3], [3, 2, 1], [True, 2], [3.0, 2], 3, [5], []):
        edit_sealed(tmp_path / "again" / "config.json", lambda c, s=sizes: c["fitted"].update(n_states=s))
        with pytest.raises(FormatError) as e:
            load(tmp_path / "again")
        assert is_one_sentence(str(e.value)), sizes


def test_equal_sizes_are_saved_as_ever(tmp_path: Any) -> None:
    for n_states in (3, [3, 3]):
        FactorialHMM(2, n_states=n_states, n_iter=1, random_state=0).fit(SENTENCES).save(tmp_path / "m", overwrite=True)
        again = load(tmp_path / "m")
        assert again.n_states == n_states and again._fitted_scalars()["n_states"] == 3
        assert again._tensors()["theta"].shape == again.theta_.shape


def test_clones_and_sizes_changed_after_the_fit(model: FactorialHMM, tmp_path: Any) -> None:
    copy = model.__sklearn_clone__()
    assert copy.n_states == (3, 2) and copy.fit(SENTENCES * 4).theta_.tobytes() == model.theta_.tobytes()
    copy.set_params(n_states=(2, 3))
    for call in (lambda: copy.partial_fit(SENTENCES), lambda: copy.save(tmp_path / "m")):
        with pytest.raises(InputError) as e:
            call()
        assert is_one_sentence(str(e.value)) and "3" in str(e.value)


def test_what_it_refuses() -> None:
    for options in (
        {"n_layers": 3, "n_states": (3, 2)},
        {"n_layers": 1, "n_states": (3, 2)},
        {"n_states": (3, 0)},
        {"n_states": ()},
        {"n_states": [3, True]},
        {"n_states": "60,15"},
        {"n_states": np.array([3, 2])},
        {"n_layers": 3, "n_states": (1000, 1000, 5), "inference": "exact"},
        {"n_layers": 3, "n_states": (1000, 1000, 5), "inference": "variational", "bound": "mean_field"},
    ):
        with pytest.raises(InputError) as e:
            FactorialHMM(**options).fit(SENTENCES)  # type: ignore[arg-type]
        assert is_one_sentence(str(e.value)), options
    with warnings.catch_warnings():
        warnings.simplefilter("error", CostWarning)  # raised before the work
        with pytest.raises(CostWarning, match="1000 × 600 = 600,000 joint states"):
            FactorialHMM(2, n_states=(1000, 600), inference="exact").fit([["a", "b"]])
