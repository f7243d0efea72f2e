"""The LDS estimator: what it hands out against slow loops, and the doors it keeps."""

from __future__ import annotations

import copy
import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import undertow
from sentences import is_one_sentence
from undertow import LDS, Corpus, LagCounts, load
from undertow.engine import DaskCluster
from undertow.errors import InputError
from undertow.kernels.gaussian.gains import gain_at_missing
from undertow.models.fitting import InterruptedFitWarning, TrainingEvent
from undertow.models.lds import em
from undertow.models.lds.queries import ESCAPE, FLOOR, dropped_probabilities, language_model, token_log_probabilities

DATA = Path(undertow.__file__).parent / "data"
TINY = {"n_components": 2, "lags": 3, "ssid_lags": 2, "n_iter": 2, "kappa": 1.0, "random_state": 0}
SMALL = {"n_components": 8, "n_iter": 6, "n_full": 2, "kappa": 5.0, "random_state": 0}


@pytest.fixture(scope="module", params=[False, True], ids=["one unknown word", "classes"])
def corpus(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Corpus:
    """Real text: the books, cut to 2,000 words."""
    path = tmp_path_factory.mktemp("c") / "books"
    return Corpus.build([DATA / "books.txt.xz"], path, vocab_size=2000, unknown_classes=request.param)


@pytest.fixture(scope="module")
def counts(corpus: Corpus) -> LagCounts:
    return LagCounts.from_corpus(corpus, lags=7)


@pytest.fixture(scope="module")
def model(counts: LagCounts) -> LDS:
    return LDS(**SMALL).fit(counts)


@pytest.fixture(scope="module")
def some(corpus: Corpus) -> list[list[str]]:
    return [
        *itertools.islice(corpus.token_lists(), 20),
        ["<unk>"],
        ["the", "<unk>", "of"],
        ["xyzzied"],
        ["the", "plughs", "of"],
        ["a"],
    ]


def loops(model: LDS, sentence: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Filtered and smoothed states by the definition, one token after the other, in float64."""
    s, A = model._tables.steady, model.params_.A
    C, mu = model.params_.C, model.params_.mu
    m, filtered = np.zeros(len(A)), []
    for word in sentence:
        i = model.vocabulary_.id(word)
        if i == 0:
            m = A @ m
            filtered.append(m)
            continue
        lost, c = model.dropped_[i], model.vocabulary_.fallback()[i]
        row = (1 - lost) * C[i] / np.sqrt(mu[i]) + lost * C[c] / np.sqrt(mu[c])
        m = s.H @ m + s.K_c @ row
        filtered.append(m)
    J_missing = gain_at_missing(A, model.params_.Q, s.Sigma1, s.V_s)
    smoothed = [filtered[-1]]
    for word, m in zip(sentence[-2::-1], filtered[-2::-1], strict=True):
        J = J_missing if model.vocabulary_.id(word) == 0 else s.J
        smoothed.insert(0, m + J @ (smoothed[0] - A @ m))
    return np.array(filtered), np.array(smoothed)


def give_back(model: LDS, p: np.ndarray) -> np.ndarray:
    """Before dropout: a stand-in's probability goes to those it stands in for, by their dropped tokens."""
    counts, stand_in = model.vocabulary_.counts, model.vocabulary_.fallback()
    out = np.where(stand_in == np.arange(len(p)), 0, p)
    for c in set(stand_in.tolist()):
        group = np.flatnonzero(stand_in == c)
        gone = counts[group] * np.where(group == c, 1, model.dropped_[group])
        out[group] += p[c] * gone / max(gone.sum(), 1e-300)
    return out


def next_word_probabilities(lm, predicted: np.ndarray) -> np.ndarray:
    """(B, V) distributions of the next word for predicted states (B, h), all of each row at once."""
    p = dropped_probabilities(lm, predicted)
    given_back = p[:, lm.fallback] * lm.share
    p[:, np.unique(lm.fallback)] = 0  # a stand-in's own tokens are in what is given back
    return (1 - ESCAPE) * (p + given_back) + ESCAPE / p.shape[1]


def unit(model: LDS, x: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(model.state_moment_)
    x = x @ (vectors / np.sqrt(values)) @ vectors.T
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-30)


def test_views_equal_the_recursions(model: LDS, some: list[list[str]]) -> None:
    by_view = {view: model.transform(some, view) for view in ("type", "filter", "smooth", "features")}
    for n, sentence in enumerate(some):
        filtered, smoothed = loops(model, sentence)
        assert_allclose(by_view["filter"][n], unit(model, filtered), rtol=0, atol=2e-4)
        assert_allclose(by_view["smooth"][n], unit(model, smoothed), rtol=0, atol=2e-4)
        assert_array_equal(by_view["features"][n], np.hstack([by_view["type"][n], by_view["smooth"][n]]))
        assert by_view["type"][n].dtype == np.float32
    assert_allclose(np.linalg.norm(by_view["smooth"][0], axis=1), 1, rtol=1e-5)


def test_threads_do_not_change_a_bit(model: LDS, corpus: Corpus) -> None:
    two = copy.copy(model).set_params(n_jobs=2)
    sentences = list(corpus.token_lists())  # several chunks
    for view in ("filter", "features"):
        for a, b in zip(model.transform(sentences, view), two.transform(sentences, view), strict=True):
            assert_array_equal(a, b)


def test_the_same_word_differs_by_its_context(model: LDS) -> None:
    a, b = model.transform(["on the river bank".split(), "a bank of money".split()], "smooth")
    assert_array_equal(model.word_vectors()[model.vocabulary_.id("the")], model.transform([["the"]], "type")[0][0])
    assert np.linalg.norm(a[3] - b[1]) > 0.05


def test_an_unknown_word_is_a_missing_observation(model: LDS) -> None:
    """It moves no state: what is before it is filtered as if it had not been read."""
    with_unknown, without = model.transform([["he", "said", "<unk>"], ["he", "said"]], "filter")
    assert_allclose(with_unknown[:2], without, rtol=1e-5, atol=1e-6)
    assert np.linalg.norm(with_unknown[2]) == pytest.approx(1, rel=1e-5)
    (alone,) = model.transform([["<unk>", "<unk>"]], "smooth")
    assert_array_equal(alone, 0)  # nothing is known, and nothing is made up


def test_an_unknown_word_is_observed_as_its_class_where_there_are_classes(model: LDS) -> None:
    ing, ed, unknown = model.transform([["plughing"], ["plughed"], ["<unk>"]], "smooth")
    assert_array_equal(unknown, 0)
    if model.vocabulary_.n_classes:
        assert np.linalg.norm(ing - ed) > 0.1
    else:
        assert_array_equal(ing, ed)


def test_exact_gains_agree_where_the_steady_ones_have_settled(model: LDS, corpus: Corpus) -> None:
    sentence = next(s for s in corpus.token_lists() if len(s) > 60 and "<unk>" not in s[:60])
    steady = model.transform([sentence[:60]], "filter")[0]
    exact = model.transform([sentence[:60]], "filter", exact=True)[0]
    assert_allclose(exact[40:], steady[40:], rtol=0, atol=5e-3)
    assert np.abs(exact[0] - steady[0]).max() > 1e-4


def test_a_masked_token_is_close_to_its_exact_vector(model: LDS, corpus: Corpus) -> None:
    """A missing token keeps its predicted covariance, so its smoother gain is not that of an observed one."""
    known = [w for s in itertools.islice(corpus.token_lists(), 200) for w in s if w != "<unk>"]
    masked = [[*known[a : a + 30], "<unk>", *known[a + 30 : a + 60]] for a in range(0, 1800, 60)]
    steady = np.array([v[30] for v in model.transform(masked, "smooth")])
    exact = np.array([v[30] for v in model.transform(masked, "smooth", exact=True)])
    assert len(steady) == 30
    assert (steady * exact).sum(axis=1).min() > 0.999
    stream = model.stream(delay=61)
    for token in masked[0]:
        stream.push(token)
    assert_allclose(stream.flush()[30], steady[0], rtol=0, atol=1e-4)


def test_posterior_covariances_shrink_with_evidence(model: LDS) -> None:
    filtered, smoothed = model.posterior_covariance(["he", "said", "<unk>", "that"])
    traces_f, traces_s = (np.trace(x, axis1=1, axis2=2) for x in (filtered, smoothed))
    assert (traces_s <= traces_f + 1e-9).all() and traces_f[2] > traces_f[1]


def test_stream_equals_transform(model: LDS, some: list[list[str]]) -> None:
    sentence = some[0]
    stream = model.stream(delay=len(sentence))
    pushed = [stream.push(token) for token in sentence]
    assert all(s is None for _, s in pushed)
    assert_allclose(np.array([f for f, _ in pushed]), model.transform([sentence], "filter")[0], rtol=0, atol=1e-4)
    assert_allclose(stream.flush(), model.transform([sentence], "smooth")[0], rtol=0, atol=1e-4)
    short = model.stream(delay=2)
    assert [short.push(t)[1] is None for t in sentence[:4]] == [True, True, False, False]


def test_probabilities_are_those_of_the_definition(model: LDS, some: list[list[str]]) -> None:
    C, mu, A = model.params_.C, model.params_.mu, model.params_.A
    got = model.log_probabilities(some[:4])
    for sentence, values in zip(some[:4], got, strict=True):
        filtered, _ = loops(model, sentence)
        predicted = np.vstack([np.zeros((1, len(A))), filtered[:-1] @ A.T])
        for t, word in enumerate(sentence):
            p = np.maximum(mu + np.sqrt(mu) * (C @ predicted[t]), FLOOR * mu)
            p = (1 - 1e-6) * give_back(model, p / p.sum()) + 1e-6 / len(p)
            assert values[t] == pytest.approx(np.log(p[model.vocabulary_.id(word)]), rel=1e-3)
    vocabulary = model.vocabulary_
    lm = language_model(C, mu, vocabulary.counts, model.dropped_, vocabulary.fallback())
    rows = next_word_probabilities(lm, np.random.default_rng(0).standard_normal((5, len(A))).astype(np.float32))
    assert_allclose(rows.sum(axis=1), 1, rtol=1e-4)
    assert rows.min() > 0
    ids = np.array([0, 1, 7, 500, 1999])
    states = np.random.default_rng(1).standard_normal((5, len(A))).astype(np.float32)
    picked = np.log(next_word_probabilities(lm, states)[np.arange(5), ids])
    assert_allclose(token_log_probabilities(lm, states, ids), picked, rtol=1e-4)


def test_em_makes_a_better_language_model(counts: LagCounts, model: LDS, corpus: Corpus) -> None:
    sentences = list(itertools.islice(corpus.token_lists(), 300))
    start = LDS(**{**SMALL, "n_iter": 0, "n_full": 0}).fit(counts)
    unigram = np.exp(-np.mean(np.log(np.maximum(counts.vocabulary.counts, 1) / counts.n_tokens)[np.concatenate(
        [counts.vocabulary.encode(s) for s in sentences])]))  # fmt: skip
    assert model.perplexity(sentences) < start.perplexity(sentences) < unigram
    assert len(start.history_) == 1


def test_history_rises_and_ssid_starts_above_random(counts: LagCounts, model: LDS) -> None:
    assert len(model.history_) == 8 and (np.diff(model.history_) > -1e-3).all()
    random = LDS(**{**SMALL, "init": "random"}).fit(counts)
    assert random.history_[-1] < model.history_[0]


def test_every_door_gives_the_same_model(corpus: Corpus, counts: LagCounts, model: LDS, tmp_path: Path) -> None:
    from_corpus = LDS(**SMALL).fit(corpus)
    counts.save(tmp_path / "n")
    from_files = LDS(**SMALL).fit(LagCounts.open(tmp_path / "n"))
    for other in (from_corpus, from_files):
        assert_array_equal(other.params_.C, model.params_.C)
    model.save(tmp_path / "m")
    assert_array_equal(load(tmp_path / "m").params_.C, model.params_.C)


def test_fit_on_a_cluster(corpus: Corpus, model: LDS) -> None:
    with DaskCluster(n_workers=2) as cluster:
        assert_array_equal(LDS(**SMALL).fit(corpus, engine=cluster).params_.C, model.params_.C)


def test_more_lags_in_the_counts_than_asked_for(counts: LagCounts) -> None:
    assert LDS(4, n_iter=1, lags=3, ssid_lags=2, kappa=5.0, random_state=0).fit(counts).transform([["the"]])
    with pytest.raises(InputError, match="count again"):
        LDS(4, lags=9, ssid_lags=2).fit(counts)


def test_partial_fit_adds_counts(corpus: Corpus, tmp_path: Path) -> None:
    sentences = list(itertools.islice(corpus.token_lists(), 4000))
    first = Corpus.from_sentences(sentences[:2000], vocabulary=corpus.vocabulary)
    settings = {**SMALL, "lags": 3, "ssid_lags": 2}
    online = LDS(**settings).partial_fit(first)
    before, first_history = online.params_.C.copy(), online.history_
    online.partial_fit(sentences[2000:])
    whole = LagCounts.from_corpus(Corpus.from_sentences(sentences, vocabulary=corpus.vocabulary), lags=3)
    assert (online._counts.matrix(2) != whole.matrix(2)).nnz == 0
    assert np.abs(online.params_.C - before).max() > 1e-6
    assert online.history_[:8] == first_history and len(online.history_) == 16
    batch = LDS(**settings).fit(whole)
    assert online.history_[-1] > batch.history_[0] - 0.5  # it went on, it did not start again from nothing
    online.save(tmp_path / "m")
    with pytest.raises(InputError, match="loaded LDS"):
        load(tmp_path / "m").partial_fit(sentences)


def test_verbose_logs_every_iteration(counts: LagCounts, caplog: pytest.LogCaptureFixture) -> None:
    lds = LDS(**SMALL, verbose=True).fit(counts)
    lines = [r.getMessage() for r in caplog.records if r.name == "undertow"]
    assert len(lines) == len(lds.history_) == 8 and lines[0].startswith("iteration 1 of 8: objective ")


def test_verbose_is_not_saved_so_that_older_models_load(model: LDS, tmp_path: Path) -> None:
    copy.copy(model).set_params(verbose=True).save(tmp_path / "m")
    assert "verbose" not in json.loads((tmp_path / "m" / "config.json").read_text())["params"]
    assert load(tmp_path / "m").verbose is False


def test_warnings_name_the_line_that_called_fit(counts: LagCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(event: TrainingEvent) -> None:
        if event.iteration == 2:
            raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning, match="after 2 iterations") as caught:
        lds = LDS(**SMALL, callbacks=[interrupt]).fit(counts)
    assert caught[0].filename == __file__ and len(lds.history_) == 2
    good = em.m_step
    monkeypatch.setattr(em, "m_step", lambda *a, **k: (new := good(*a, **k))._replace(A=-new.A))
    with pytest.warns(em.LikelihoodWarning) as caught:
        lds = LDS(**SMALL).fit(counts)
    assert caught[0].filename == __file__ and np.isfinite(lds.history_).all()


def test_transitions(model: LDS) -> None:
    table = model.transitions(5, n_words=4)
    assert len(table) == 5 and all(len(t.before) == len(t.after) == 4 for t in table)
    strengths = [t.strength for t in table]
    assert strengths == sorted(strengths, reverse=True) and 0 < strengths[-1] <= strengths[0] <= 1 + 1e-9


def test_transitions_find_what_follows_what() -> None:
    """Words of two kinds that alternate: the strongest step leads from the one kind to the other."""
    rng = np.random.default_rng(0)
    text = [[f"{'ab'[(t + start) % 2]}{rng.integers(3)}" for t in range(12)] for start in rng.integers(2, size=2000)]
    lds = LDS(1, lags=3, ssid_lags=2, n_iter=5, kappa=1.0, random_state=0).fit(text)
    (step,) = lds.transitions(1, n_words=3)
    assert {w[0] for w in step.before} != {w[0] for w in step.after} and step.strength > 0.6
    assert len({w[0] for w in step.before}) == 1


def test_neighbors(model: LDS) -> None:
    found = model.neighbors("he", 6)
    assert len(found) == 6 and "he" not in [n.word for n in found]
    assert {"she", "they", "I", "we", "who"} & {n.word for n in found}
    assert [n.cosine for n in found] == sorted((n.cosine for n in found), reverse=True)
    vectors = model.word_vectors()
    he, best = model.vocabulary_.id("he"), model.vocabulary_.id(found[0].word)
    assert found[0].cosine == pytest.approx(float(vectors[he] @ vectors[best]), rel=1e-5)
    in_context = model.neighbors("the man said that he was".split(), 3, position=4)
    assert len(in_context) == 3


@pytest.mark.parametrize(
    "attempt",
    [
        lambda m: m.neighbors("xyzzy"),
        lambda m: m.neighbors("he", position=0),
        lambda m: m.neighbors(["he"]),
        lambda m: m.neighbors(["he"], position=3),
        lambda m: m.transform([["he"]], view="nonsense"),
        lambda m: m.score([]),
        lambda m: m.stream(delay=-1),
    ],
)
def test_bad_questions(model: LDS, attempt) -> None:
    with pytest.raises(InputError) as e:
        attempt(model)
    assert is_one_sentence(str(e.value)), str(e.value)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"n_components": 50}, [["a", "b", "a", "c", "b", "a", "c", "a"]] * 5),  # fewer words than components
        ({}, [["a"] * 20] * 5),  # one repeated word
        ({}, [["a", "b"], ["b", "c"]]),  # lags longer than every sentence
        ({"n_components": 0}, [["a", "b"]]),
        ({"n_components": 2.5}, [["a", "b"]]),
        ({"kappa": -1.0}, [["a", "b", "c", "d"] * 5]),
        ({"kappa": float("nan")}, [["a", "b"]]),
        ({"noise": "loud"}, [["a", "b", "c", "d"] * 5]),
        ({"init": "magic"}, [["a", "b"]]),
        ({"ssid_lags": 4, "lags": 3}, [["a", "b"]]),
        ({"ssid_lags": 1}, [["a", "b", "c", "d"] * 5]),
        ({"basis": 0.5}, [["a", "b"]]),
        ({"n_jobs": 0}, [["a", "b"]]),
    ],
)
def test_bad_input_to_fit(params: dict[str, object], text: list[list[str]]) -> None:
    with warnings.catch_warnings(), pytest.raises(InputError) as e:
        warnings.simplefilter("error")
        LDS(
            **{"n_components": 2, "lags": 3, "ssid_lags": 2, "n_iter": 2, "kappa": 1.0, "random_state": 0, **params}
        ).fit(text)
    assert is_one_sentence(str(e.value)), str(e.value)


@pytest.mark.parametrize("kappa", [0.0, 1.0, 1000.0])
@pytest.mark.parametrize("noise", ["uniform", "dropout"])
def test_never_nan(kappa: float, noise: str) -> None:
    rng = np.random.default_rng(0)
    text = [[f"w{x}" for x in rng.integers(0, 9, 12)] for _ in range(60)]
    lds = LDS(3, lags=3, ssid_lags=2, n_iter=5, kappa=kappa, noise=noise, random_state=0).fit(text)
    assert np.isfinite(lds.history_).all() and np.isfinite(np.concatenate(lds.transform(text))).all()
    assert np.isfinite(lds.score([["w1", "never", "w2"]]))
