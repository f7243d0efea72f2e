"""The hidden Markov model: EM, smoothing, going on, queries against dense truth, bad input."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import time
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from contract.cases import SENTENCES
from oracles.discrete_chain_dense import block_masses, dense_answers, stationary, telling_steps
from sealing import reseal
from sentences import is_one_sentence
from undertow import HMM, Corpus, load
from undertow.engine import DaskCluster, Processes, Threads
from undertow.errors import FormatError, InputError
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks
from undertow.models.fitting import InterruptedFitWarning, TrainingEvent
from undertow.models.hmm import queries as hmm_queries
from undertow.models.hmm.params import BlockParams

BLOCKS: dict[str, Any] = {"n_states": 8, "n_blocks": 4}
LOW_RANK: dict[str, Any] = {"n_states": 8, "n_blocks": 4, "rank": 3}
DENSE: dict[str, Any] = {"n_states": 4}
PLAIN_LOW_RANK: dict[str, Any] = {"n_states": 5, "rank": 2}
BAND: dict[str, Any] = {"n_states": 5, "rank": 2, "band": 2}
FORMS = [BLOCKS, LOW_RANK, DENSE, PLAIN_LOW_RANK, BAND]
NAMES = ["blocks", "block low rank", "dense", "low rank", "band"]
forms = pytest.mark.parametrize("form", FORMS, ids=NAMES)


def made(form: dict[str, Any], **more: Any) -> HMM:
    return HMM(**({"n_iter": 3, "n_chunks": 1, "random_state": 0} | form | more)).fit(SENTENCES)


@forms
def test_em_never_lowers_the_likelihood(form: dict[str, Any]) -> None:
    history = made(form, n_iter=12, smoothing=0.0).history_
    assert len(history) == 12 and history[-1] > history[0] + 0.1
    assert (np.diff(history) >= -1e-6).all()


@forms
def test_everything_is_a_distribution(form: dict[str, Any]) -> None:
    for smoothing in (0.0, 1.0, 30.0):
        model = made(form, smoothing=smoothing, n_chunks=2)
        for rows in (model.initial_[None, :], model.transition_.dense(), model.emission_.dense()):
            np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)
            assert rows.min() >= 0


@forms
def test_queries_are_those_of_the_dense_chain(form: dict[str, Any]) -> None:
    """One sentence with a word nobody knows, which is a missing observation of its own probability."""
    model = made(form)
    tokens = ["the", "zzz", "river", "runs"]
    ids = [model.vocabulary_.id(t) for t in tokens]
    T, E = model.transition_.dense().astype(float), model.emission_.dense().astype(float)
    truth = dense_answers(ids, model.initial_.astype(float), T, E)
    assert np.ptp(E[:, ids[1]]) == 0 and E[0, ids[1]] > 0
    np.testing.assert_allclose(model.log_probabilities([tokens])[0], truth.log_probabilities, rtol=1e-5)
    np.testing.assert_allclose(model.posterior([tokens])[0], truth.smooth, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.score([tokens]), truth.log_probabilities.mean(), rtol=1e-5)
    np.testing.assert_array_equal(model.decode([tokens], "posterior")[0], truth.smooth.argmax(axis=1))
    ahead = (truth.filt[2] @ T) @ E
    np.testing.assert_allclose(model.next_distribution(tokens[:3]), ahead, rtol=1e-4, atol=1e-7)
    assert model.next_words(tokens[:3], 1)[0].word == model.vocabulary_.words[int(ahead[1:].argmax()) + 1]


@pytest.mark.parametrize("form", [BLOCKS, DENSE], ids=["blocks", "dense"])
def test_viterbi_is_the_best_of_all_paths(form: dict[str, Any]) -> None:
    model = made(form | {"n_states": 4, "n_blocks": form.get("n_blocks", 1) // 2 or 1})
    tokens = ["the", "zzz", "old", "river", "runs"]
    ids = [model.vocabulary_.id(t) for t in tokens]
    with np.errstate(divide="ignore"):
        initial, T, E = (
            np.log(x.astype(float)) for x in (model.initial_, model.transition_.dense(), model.emission_.dense())
        )

    def score(path: Any) -> float:
        steps = sum(T[a, b] for a, b in itertools.pairwise(path))
        return float(initial[path[0]] + steps + sum(E[z, w] for z, w in zip(path, ids, strict=True)))

    best = max(score(path) for path in itertools.product(range(4), repeat=5))
    np.testing.assert_allclose(score(model.decode([tokens], "viterbi")[0].tolist()), best, rtol=1e-6)


@pytest.mark.parametrize("form", [LOW_RANK, PLAIN_LOW_RANK], ids=["block low rank", "low rank"])
def test_viterbi_of_a_low_rank_is_the_best_joint_path(form: dict[str, Any]) -> None:
    model = made(form | {"n_states": 4, "n_blocks": form.get("n_blocks", 1) // 2 or 1, "rank": 2})
    tokens = ["the", "old", "river", "runs"]
    ids = [model.vocabulary_.id(t) for t in tokens]
    operator = model.transition_
    R, E = operator.R.astype(float), (operator.ET.T if form is LOW_RANK else operator.E).astype(float)
    emission = model.emission_.dense().astype(float)

    def score(path: Any) -> float:
        """The best choice of features along a path of states."""
        p = model.initial_[path[0]] * np.prod([emission[z, w] for z, w in zip(path, ids, strict=True)])
        return float(p * np.prod([(R[a] * E[:, b]).max() for a, b in itertools.pairwise(path)]))

    best = max(score(path) for path in itertools.product(range(4), repeat=4))
    np.testing.assert_allclose(score(model.decode([tokens], "viterbi")[0].tolist()), best, rtol=1e-5)


@pytest.mark.parametrize("form", [BLOCKS, LOW_RANK, DENSE], ids=["blocks", "block low rank", "dense"])
def test_any_number_of_workers_gives_the_same_bits(form: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("undertow.models.hmm.em.SHARD_TOKENS", 12)
    one = made(form, n_chunks=2)
    with Processes(2) as processes:
        other = HMM(**one.get_params()).fit(SENTENCES, engine=processes)
    third = HMM(**one.get_params()).set_params(n_jobs=2).fit(SENTENCES)
    with Threads(3) as threads:
        fourth = HMM(**one.get_params()).fit(SENTENCES, engine=threads)
    for model in (other, third, fourth):
        assert model.history_ == one.history_
        assert model.emission_.dense().tobytes() == one.emission_.dense().tobytes()
        assert model.transition_.dense().tobytes() == one.transition_.dense().tobytes()


def test_a_cluster_gives_the_same_bits_and_keeps_the_held_out_history(monkeypatch: Any) -> None:
    monkeypatch.setattr("undertow.models.hmm.em.SHARD_TOKENS", 12)
    with DaskCluster(n_workers=2) as cluster:
        for form in (BLOCKS, LOW_RANK, DENSE):
            settings = {**made(form, n_chunks=2).get_params(), "validation": 0.3}
            one, other = HMM(**settings).fit(SENTENCES), HMM(**settings).fit(SENTENCES, engine=cluster)
            assert other.history_ == one.history_ and other.validation_history_ == one.validation_history_ != []
            assert other.emission_.dense().tobytes() == one.emission_.dense().tobytes()
            assert other.transition_.dense().tobytes() == one.transition_.dense().tobytes()


@forms
def test_fitting_in_two_goes_is_fitting_in_one(form: dict[str, Any], tmp_path: Any) -> None:
    whole = made(form, n_iter=4)
    half = made(form, n_iter=2, warm_start=True)
    half.save(tmp_path / "half")
    rest: Any = load(tmp_path / "half")
    rest.fit(SENTENCES)
    np.testing.assert_allclose(rest.history_, whole.history_, rtol=1e-6)
    np.testing.assert_allclose(rest.transition_.dense(), whole.transition_.dense(), rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError) as e:
        rest.fit([["the", "glacier", "runs"]])
    assert is_one_sentence(str(e.value)) and "<unk>" in str(e.value)


def test_going_on_with_other_text_of_the_same_words() -> None:
    model = made(BLOCKS, warm_start=True)
    other = [["sea", "river", "the", "money"], ["old", "old", "bank", "the"]]  # pairs of blocks not met before
    before = model.score(other)
    model.set_params(n_iter=6).fit(other)
    assert model.score(other) > before + 0.3
    np.testing.assert_allclose(model.transition_.dense().sum(axis=1), 1, rtol=1e-5)


def test_incremental_em_goes_where_em_goes_and_faster() -> None:
    draw = np.random.default_rng(0)
    text = [[f"w{(i * 7 + int(draw.integers(3))) % 12}" for i in range(9)] for _ in range(60)]
    batch = HMM(6, n_blocks=3, n_iter=4, n_chunks=1, random_state=0).fit(text)
    chunks = HMM(6, n_blocks=3, n_iter=4, n_chunks=6, random_state=0).fit(text)
    assert chunks.score(text) > batch.score(text) - 0.02


def test_held_out_text_stops_the_fit_and_the_best_pass_is_kept() -> None:
    text = SENTENCES * 3
    model = HMM(**BLOCKS, n_iter=40, n_chunks=1, smoothing=0.01, random_state=0)
    model.fit(text, validation=[["the", "old", "sea", "is", "wide"], ["she", "sat", "by", "the", "bank"]])
    scores = model.validation_history_
    assert len(scores) == len(model.history_) < 40
    assert scores[-1] <= max(scores[:-1]) and max(scores[:-1]) == scores[-2]
    share = HMM(**BLOCKS, n_iter=2, validation=0.2, random_state=0).fit(text)
    assert len(share.validation_history_) >= 1
    held = text[len(text) - round(0.2 * len(text)) :]
    np.testing.assert_allclose(share.score(held), max(share.validation_history_), rtol=1e-6)


def test_carrying_the_state_over_makes_one_sequence_of_all() -> None:
    model = made(BLOCKS, carry=True)
    joined = [[w for s in SENTENCES for w in s]]
    np.testing.assert_allclose(model.score(SENTENCES), model.score(joined), rtol=1e-9)
    assert [len(v) for v in model.transform(SENTENCES)] == [len(s) for s in SENTENCES]


def test_a_wide_model_gives_features_of_bounded_width() -> None:
    wide = made({"n_states": 520, "n_blocks": 5}, n_iter=1)
    vectors = wide.transform(SENTENCES[:2])
    assert [v.shape for v in vectors] == [(7, 5), (7, 5)]
    np.testing.assert_allclose(vectors[0].sum(axis=1), 1, rtol=1e-5)
    assert wide.transform(SENTENCES[:1], "posterior")[0].shape == (7, 520)
    features = made({"n_states": 520, "n_blocks": 5, "rank": 3}, n_iter=1).transform(SENTENCES[:1])[0]
    assert features.shape == (7, 3)


def test_blocks_are_chosen_by_size() -> None:
    assert made({"n_states": 3}).params_.n_states == 3
    corpus = [[f"w{i % 97}" for i in range(j, j + 20)] for j in range(60)]
    assert HMM(600, n_iter=1, random_state=0).fit(corpus).params_.blocks.n_blocks == 600 // 32


def test_as_many_blocks_as_words_and_the_default_on_a_small_text() -> None:
    """The unknown word, which the text lacks, must not be left alone with a block of states."""
    n_words = len({w for s in SENTENCES for w in s})
    for model in (made({"n_states": 40, "n_blocks": n_words}), HMM(n_iter=1, random_state=0).fit(SENTENCES)):
        np.testing.assert_allclose(model.emission_.dense().sum(axis=1), 1, rtol=1e-5)
        assert math.isfinite(model.score([["the", "zzz"]]))


def test_samples_come_as_often_as_the_model_says() -> None:
    model = made(BLOCKS, n_iter=6)
    drawn = model.sample(6000, random_state=1)
    assert drawn == model.sample(6000, random_state=1) != model.sample(6000, random_state=2)
    assert model.sample(6000) != model.sample(6000), "without a seed each sample is another"
    share = np.linalg.matrix_power(model.transition_.dense().astype(float), 200)[0]
    p = share @ model.emission_.dense()
    p[0] = 0  # the unknown word is never drawn
    p /= p.sum()
    seen = np.array([drawn.count(w) for w in model.vocabulary_.words]) / 6000
    np.testing.assert_allclose(seen, p, atol=0.03)
    after = model.next_distribution(["she", "went"])
    after[0] = 0
    first = [model.sample(1, random_state=i, prefix=["she", "went"])[0] for i in range(300)]
    best = model.vocabulary_.words[int(after.argmax())]
    np.testing.assert_allclose(first.count(best) / 300, after.max() / after.sum(), atol=0.1)


def test_words_and_steps_of_states() -> None:
    model = made(BLOCKS, n_iter=6)
    E = model.emission_.dense()
    plain = model.top_words(2, 3, relevance=1.0)
    E[:, 0] = 0
    assert plain[0].probability == pytest.approx(E[2].max(), rel=1e-6)
    steps = model.transitions(4, n_words=2)
    assert len(steps) == 4 and all(0 <= s.strength <= 1 and s.before and s.after for s in steps)


def test_rare_words_describe_no_state() -> None:
    """A word with less than a thousandth of a state comes last among its words, and does not describe its steps."""
    model = HMM(2, n_iter=1, n_chunks=1, random_state=0).fit([["often", "also"] * 20 + ["rare"]])
    shares = {"often": (0.7, 0.002), "also": (0.2992, 0.998), "rare": (0.0008, 0.0)}
    emission = np.zeros((len(model.vocabulary_), 2), dtype=np.float32)
    for word, share in shares.items():
        emission[model.vocabulary_.id(word)] = share
    model.params_ = model.params_._replace(chain=model.params_.chain._replace(emission=emission))
    assert [w.word for w in model.top_words(0, 5)] == ["often", "also", "rare"]
    described = {tuple(words) for step in model.transitions(4, n_words=5) for words in (step.before, step.after)}
    assert described == {("often", "also"), ("also", "often")}


def test_a_boundary_ends_sentences() -> None:
    corpus = Corpus.from_sentences(SENTENCES, boundary="<eos>")
    model = HMM(**BLOCKS, n_iter=2, random_state=0).fit(corpus)
    assert "<eos>" in model.sample(60, random_state=0)
    assert math.isfinite(model.perplexity(corpus))


def test_uniform_parameters_have_the_perplexity_of_the_vocabulary() -> None:
    model = HMM(2, n_iter=1, n_chunks=1, smoothing=0.0, random_state=0)
    words = [f"w{i}" for i in range(8)]
    model.fit([words, words[::-1]])
    chain = model.params_.chain
    V = len(model.vocabulary_)
    model.params_ = model.params_._replace(chain=chain._replace(emission=np.full((V, 2), 1 / V, dtype=np.float32)))
    np.testing.assert_allclose(model.perplexity([words]), V, rtol=1e-6)


@pytest.mark.parametrize("form", [BLOCKS, DENSE], ids=["blocks", "dense"])
def test_a_word_of_probability_zero_is_named(form: dict[str, Any]) -> None:
    model = made(form, smoothing=0.0)
    with pytest.warns(UserWarning, match="'<unk>' probability zero"):
        assert model.score([["the", "zzz"]]) == -math.inf
    with pytest.warns(UserWarning, match="zero"):
        assert model.perplexity([["zzz"]]) == math.inf
    assert not np.isnan(model.log_probabilities([["the", "zzz", "river"]])[0]).any()


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_blocks": 40, "n_states": 50},
        {"n_blocks": 9},
        {"rank": 9},
        {"rank": 0},
        {"band": 2},
        {"band": 2, "rank": 2, "n_blocks": 2},
        {"n_states": 0},
        {"n_states": 2.5},
        {"smoothing": -1.0},
        {"smoothing": "much"},
        {"validation": 1.0},
        {"carry": 1},
        {"init": "guess"},
        {"parameterization": "guess"},
        {"n_jobs": 0},
    ],
    ids=str,
)
def test_bad_parameters(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError) as e:
        HMM(**({"n_states": 8, "random_state": 0} | wrong)).fit(SENTENCES)
    assert is_one_sentence(str(e.value))


def test_bad_questions() -> None:
    model = made(BLOCKS)
    for ask in (
        lambda: model.decode(SENTENCES, "guess"),
        lambda: model.transform(SENTENCES, "guess"),
        lambda: model.top_words(8),
        lambda: model.sample(-1),
        lambda: HMM(n_states=4, random_state=0).fit([["alone"]]),
        lambda: HMM(n_states=4, validation=0.5, random_state=0).fit([["one", "two"]]),
    ):
        with pytest.raises(InputError) as e:
            ask()
        assert is_one_sentence(str(e.value))


@pytest.mark.parametrize("tensor", ["initial", "emission", "leave", "arrive", "data", "before", "block_states"])
def test_a_model_whose_rows_do_not_sum_to_one_is_refused(tensor: str, tmp_path: Any) -> None:
    model = made(BLOCKS)
    model.save(tmp_path / "model")
    wrong = {name: x.copy() for name, x in model._tensors().items()}
    wrong[tensor] = wrong[tensor] * 2 if tensor != "before" else wrong[tensor][::-1].copy()
    model._tensors = lambda: wrong  # type: ignore[method-assign]
    with pytest.raises(InputError, match="cannot be saved"):
        model.save(tmp_path / "other")
    safetensors.numpy.save_file(wrong, tmp_path / "model" / "model.safetensors")
    reseal(tmp_path / "model" / "config.json")
    with pytest.raises(FormatError) as e:
        load(tmp_path / "model")
    assert is_one_sentence(str(e.value))


def test_ctrl_c_keeps_the_last_pass_and_the_warning_names_the_caller() -> None:
    def stop(event: TrainingEvent) -> None:
        if event.iteration == 2:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning, match="after 2 passes") as caught:
        model = HMM(**BLOCKS, n_iter=3, random_state=0, callbacks=[stop]).fit(SENTENCES)
    assert caught[0].filename == __file__ and len(model.history_) == 2
    same = HMM(**BLOCKS, n_iter=2, random_state=0).fit(SENTENCES)
    np.testing.assert_array_equal(model.params_.initial, same.params_.initial)


def test_callbacks_see_every_pass_and_progress_is_logged(caplog: Any) -> None:
    events: list[TrainingEvent] = []
    model = made(BLOCKS, verbose=True, callbacks=[events.append])
    assert [e.objective for e in events] == model.history_ and events[-1].n_iter == 3
    assert [r.name for r in caplog.records] == ["undertow"] * 3
    assert caplog.text.count("perplexity") == 3
    assert json.dumps(model._fitted_scalars())


AUTO = [
    (BLOCKS, "random"),
    (LOW_RANK, "clusters"),
    (DENSE, "clusters"),
    (PLAIN_LOW_RANK, "clusters"),
    (BAND, "clusters"),
    ({"n_states": 520}, "random"),  # blocks by default
]


@pytest.mark.parametrize(("form", "init"), AUTO, ids=[*NAMES, "blocks by default"])
def test_the_default_start_is_the_one_for_the_form(form: dict[str, Any], init: str) -> None:
    default, asked = made(form, n_iter=1), made(form, n_iter=1, init=init)
    assert default.init == "auto"
    for name, tensor in default._tensors().items():
        assert tensor.tobytes() == asked._tensors()[name].tobytes(), name


# --- questions on models with many states ---------------------------------------------------------------


def large(n_blocks: int, k: int, *, rank: int | None = None) -> HMM:
    """A model of n_blocks · k states with random parameters, each of whose blocks has one word."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(n_blocks)]
    model = HMM(2, n_blocks=2, rank=None if rank is None else 2, n_iter=1, random_state=0).fit([words, words[::-1]])
    block = np.full(len(model.vocabulary_), -1)
    block[model.vocabulary_.encode(words)] = np.arange(n_blocks)
    blocks = Blocks.of(block, np.full(n_blocks, k))
    Z = n_blocks * k
    transition: Any
    if rank is None:
        data = rng.random(Z * Z, dtype=np.float32)
        pair = np.arange(n_blocks**2, dtype=np.int32).reshape(n_blocks, n_blocks)
        starts, none = np.arange(n_blocks**2 + 1) * k * k, np.zeros(Z, dtype=np.float32)
        matrices = data.reshape(n_blocks, n_blocks, k, k)
        matrices /= matrices.sum(axis=(1, 3), keepdims=True)
        transition = PairSparse(blocks.first, pair, starts, data, none, none)
    else:
        R, ET = rng.random((2, Z, rank)).astype(np.float32)
        transition = BlockLowRank(blocks.first, R / R.sum(axis=1, keepdims=True), ET / ET.sum(axis=0))
    initial, emission = np.full(Z, 1 / Z, dtype=np.float32), np.ones(blocks.starts[-1], dtype=np.float32)
    model.params_ = BlockParams(blocks, initial, transition, emission)
    return model


@pytest.mark.parametrize("rank", [None, 16])
def test_questions_to_many_states_take_no_time_that_grows_with_their_cube(rank: int | None) -> None:
    """They took 150 s at 6,144 states. Processor time, and the limit is 20 times what they take."""

    def ask(model: HMM) -> None:
        text = [["w1", "w0", "w1"]]
        assert model.transform(text)[0].shape[0] == 3
        assert len(model.transitions(3)) == 3
        assert len(model.decode(text)[0]) == 3
        assert len(model.sample(200)) == 200
        assert len(model.next_words(["w1"], 2)) == 2

    ask(large(20, 30, rank=rank))  # compiles
    model = large(64, 32, rank=rank)
    began = time.process_time()
    ask(model)
    assert time.process_time() - began < 2.0


@forms
def test_state_shares_and_steps_are_those_of_the_dense_chain(form: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setattr("undertow.models.hmm.queries.FIRST_PLACES", 3)
    monkeypatch.setattr("undertow.models.hmm.queries.BATCH_ENTRIES", 8)
    model = made(form, n_iter=6)
    T = model.transition_.dense().astype(float)
    share = stationary(T, model.initial_.astype(float))
    derived = hmm_queries.Derived(model.params_)
    np.testing.assert_allclose(derived.state_shares, share, rtol=1e-3, atol=1e-5)
    for n in (1, 5, T.size, T.size + 3):
        found, expected = hmm_queries.typical_transitions(derived, n), telling_steps(T, derived.state_shares, n)
        assert [(z, z_next) for _, z, z_next in found] == [(z, z_next) for *_, z, z_next in expected]
        np.testing.assert_allclose([p for p, *_ in found], [p for _, p, *_ in expected], rtol=1e-5)


def test_state_shares_of_a_chain_with_a_period() -> None:
    blocks = Blocks.of(np.array([0, 1]), np.array([1, 2]))
    pair = np.array([[-1, 0], [1, -1]], dtype=np.int32)
    data = np.array([0.25, 0.75, 1, 1], dtype=np.float32)
    T = PairSparse(blocks.first, pair, np.array([0, 2, 4]), data, *np.zeros((2, 3), np.float32))
    params = BlockParams(blocks, np.array([1, 0, 0], np.float32), T, np.ones(3, np.float32))
    expected = [0.5, 0.125, 0.375]
    np.testing.assert_allclose(hmm_queries.state_shares(params, T.block_masses()), expected, rtol=1e-5)
    np.testing.assert_allclose(hmm_queries.state_shares(params), expected, rtol=1e-4)


def test_features_of_a_wide_model_are_its_posterior_times_the_blocks_it_leads_to() -> None:
    wide = made({"n_states": 520, "n_blocks": 5}, n_iter=2)
    T, first = wide.transition_.dense().astype(float), wide.params_.blocks.first
    for sentence in (SENTENCES[0], ["the", "zzz", "river"]):
        expected = wide.posterior([sentence])[0] @ block_masses(T, first)
        np.testing.assert_allclose(wide.transform([sentence])[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", [{"n_states": 520, "n_blocks": 5}, {"n_states": 520, "rank": 3}], ids=str)
def test_derived_tables_are_kept_until_the_parameters_change(form: dict[str, Any], tmp_path: Any) -> None:
    model = made(form, n_iter=1)
    for _ in range(2):
        model.transform(SENTENCES)
        model.sample(30)
        model.transitions(3)
        derived = model._tables()
    assert model._tables() is derived and "profile" in vars(derived) and "state_shares" in vars(derived)
    copied = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert set(vars(copied._tables())) == {"params", "_sampling"} and copied._tables()._sampling is None
    model.save(tmp_path / "asked")
    made(form, n_iter=1).save(tmp_path / "not asked")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "asked" / name).read_bytes() == (tmp_path / "not asked" / name).read_bytes()
    model.fit(SENTENCES[::-1])
    other = made(form, n_iter=1)
    other.fit(SENTENCES[::-1])
    assert model._tables() is not derived
    for a, b in zip(model.transform(SENTENCES), other.transform(SENTENCES), strict=True):
        np.testing.assert_array_equal(a, b)
    assert model.sample(30, random_state=0) == other.sample(30, random_state=0) and model.transitions(
        3
    ) == other.transitions(3)
