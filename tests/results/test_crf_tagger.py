"""What is the CRF tagger's own: CRFsuite's objective, weights of tags, starts, n best, extra columns, old files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.checks import tensor_bytes
from oracles.crf_paths import log_sum, path_scores, posterior_by_paths
from sealing import edit_sealed
from sentences import is_one_sentence
from tagged_samples import sentences
from undertow import CRFTagger, load
from undertow.errors import FormatError, InputError
from undertow.kernels.chain import crf as kernel
from undertow.models.fitting import Checkpoint
from undertow.results.tagging import convert
from undertow.results.tagging.crf_features import FeatureReader
from undertow.results.tagging.crf_training import adagrad


class Numbers:
    """Two numbers a word, as a matrix."""

    name, window, dense = "numbers", 0, True

    def vectors(self, X: Any) -> list[Any]:
        draw = [[np.random.default_rng(len(w) + ord(w[0])).standard_normal(2) for w in s] for s in X]
        return [np.array(rows, dtype=np.float32).reshape(len(rows), 2) for rows in draw]

    def features(self, X: Any) -> Any:
        return [[{"0": float(a), "1": float(b)} for a, b in rows] for rows in self.vectors(X)]


def noisy(n: int, seed: int = 0) -> tuple[list[list[str]], list[list[str]]]:
    """Sentences in which one tag in ten is another's."""
    X, y = sentences(n, seed)
    draw = random.Random(seed)
    return X, [[draw.choice("ADNV") if draw.random() < 0.1 else tag for tag in s] for s in y]


def test_the_objective_is_that_of_crfsuite(tmp_path: Path) -> None:
    """At CRFsuite's weights ours is its loss; both converge to the same, and tag alike."""
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    X, y = noisy(60)
    names: dict[str, int] = {}
    numbers = Numbers()
    tokens = FeatureReader([numbers], 2, True, names).read(X, None, grow=True)
    spelled = list(names)
    losses = []

    class Trainer(pycrfsuite.BaseTrainer):  # type: ignore[misc, name-defined]
        def message(self, message: str) -> None:
            if message.startswith("Loss:"):
                losses.append(float(message.removeprefix("Loss:")))

    trainer = Trainer(algorithm="lbfgs", verbose=False)
    trainer.set_params({"c1": 0.0, "c2": 0.3, "max_iterations": 2000, "epsilon": 1e-7, "delta": 1e-12,
                        "feature.possible_transitions": True, "feature.minfreq": -1e300})  # fmt: skip
    items = []
    for s, (low, high) in enumerate(zip(tokens.bounds, tokens.bounds[1:], strict=False)):
        rows = [
            {spelled[a]: 1.0 for a in tokens.attribute[tokens.row[t] : tokens.row[t + 1]]} for t in range(low, high)
        ]
        for row, dense in zip(rows, numbers.features([X[s]])[0], strict=True):
            row.update({f"numbers:{k}": v for k, v in dense.items()})
        items.append(rows)
        trainer.append(pycrfsuite.ItemSequence(rows), y[s])
    trainer.train(str(tmp_path / "model"))
    theirs = pycrfsuite.Tagger()
    theirs.open(str(tmp_path / "model"))

    labels = sorted({tag for s in y for tag in s})
    gold = np.array([labels.index(tag) for s in y for tag in s], dtype=np.int32)
    pairs = kernel.observed_pairs(tokens, gold, len(names), len(labels))
    problem = kernel.Problem(tokens, gold, np.ones(len(X)), pairs, len(labels))
    flat = np.zeros(problem.n_weights())
    at, found = problem.split(flat), theirs.info()
    for (name, label), weight in found.state_features.items():
        if name.startswith("numbers:"):
            at.dense[int(name[-1]), labels.index(label)] = weight
            continue
        own = range(pairs.start[names[name]], pairs.start[names[name] + 1])
        (pair,) = [p for p in own if pairs.label[p] == labels.index(label)]
        assert pairs.free[pair]
        at.sparse[pair] = weight
    for (a, b), weight in found.transitions.items():
        at.transition[labels.index(a), labels.index(b)] = weight
    loss, gradient = kernel.loss_and_gradient(problem, flat)
    np.testing.assert_allclose(loss + 0.3 * flat @ flat, losses[-1], rtol=1e-6)
    assert np.abs(gradient + 0.6 * flat).max() < 1e-3, "its optimum is ours"

    ours = CRFTagger(numbers, l2=0.3, n_iter=2000, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(-ours.history_[-1], losses[-1], rtol=1e-6)
    assert ours.predict(X) == [theirs.tag(rows) for rows in items]
    theirs.set(items[0])
    expected = [[theirs.marginal(label, i) for label in labels] for i in range(len(items[0]))]
    np.testing.assert_allclose(ours.predict_proba(X[:1])[0], expected, rtol=1e-3, atol=1e-5)


def test_numbers_in_a_matrix_are_numbers_in_dicts() -> None:
    X, y = noisy(40)

    class Slow(Numbers):
        dense = False

    fast, slow = (CRFTagger(f, n_iter=300, tol=1e-10).fit(X, y) for f in (Numbers(), Slow()))
    np.testing.assert_allclose(fast.history_[-1], slow.history_[-1], rtol=1e-5)
    assert len(fast.weights_.dense) == 2 and len(slow.weights_.dense) == 0


def scores_of(tagger: CRFTagger, X: Any) -> tuple[Any, Any]:
    ((_, scores),) = tagger._scores(X, None)
    return scores, tagger.weights_.transition.astype(np.float64)


def test_marginals_and_n_best_are_those_of_all_paths() -> None:
    X, y = noisy(40)
    tagger = CRFTagger(n_iter=20).fit(X, y)
    for s in X[:5]:
        scores, transition = scores_of(tagger, [s])
        np.testing.assert_allclose(
            tagger.predict_proba([s])[0], posterior_by_paths(scores, transition)[1], rtol=1e-5, atol=1e-7
        )
        expected = path_scores(scores, transition)
        log_z = log_sum([value for value, _ in expected])
        (found,) = tagger.predict_nbest([s], 7)
        assert [tags for tags, _ in found] == [[tagger.labels_[k] for k in path] for _, path in expected[:7]]
        np.testing.assert_allclose([p for _, p in found], [v - log_z for v, _ in expected[:7]], rtol=1e-9)
        assert found[0][0] == tagger.predict([s])[0]
    assert tagger.predict_nbest([[], ["the"]], 9)[0] == [([], 0.0)]
    assert len(tagger.predict_nbest([["the"]], 9)[0]) == 4
    assert sum(np.exp(p) for _, p in tagger.predict_nbest([["the", "bank"]], 16)[0]) == pytest.approx(1.0)


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "SHARD_TOKENS", 50)
    monkeypatch.setattr(kernel, "CHUNK_TOKENS", 20)
    X, y = noisy(80)
    one, two = (CRFTagger(Numbers(), n_iter=10, n_jobs=n).fit(X, y) for n in (1, 2))
    assert one.history_ == two.history_
    for a, b in zip(one.weights_, two.weights_, strict=True):
        np.testing.assert_array_equal(a, b)
    for p, q in zip(one.predict_proba(X), two.predict_proba(X), strict=True):
        np.testing.assert_array_equal(p, q)


def test_mini_batches_come_near_the_optimum() -> None:
    X, y = noisy(200)
    best = CRFTagger(n_iter=300, tol=1e-9).fit(X, y)
    near = CRFTagger(algorithm="minibatch", n_iter=10, batch_size=64, random_state=0).fit(X, y)
    assert len(near.history_) == 10
    again = CRFTagger(n_iter=1, warm_start=True).fit(X, y)
    vars(again).update({name: vars(near)[name] for name in ("weights_", "attributes_", "labels_")})
    start = []
    again.set_params(callbacks=[lambda e: start.append(e.objective)]).fit(X, y)
    assert best.history_[-1] > start[0] > 1.05 * best.history_[-1]  # they are negative
    with pytest.raises(InputError, match="lbfgs"):
        CRFTagger(algorithm="minibatch", l1=1.0).fit(X, y)


def test_a_step_ofadagrad() -> None:
    """Against the definition, for the weights that are free."""
    rng = np.random.default_rng(0)
    x, gradient, centre = rng.normal(size=(3, 5))
    squares, free = rng.uniform(size=5), np.array([True, True, False, True, False])
    g = gradient + 0.3 * (x - centre)
    after = squares + free * g**2
    expected = x - free * 0.7 * g / np.sqrt(after)
    rounded = x.astype(np.float32)
    adagrad(x, squares, gradient, free, centre, 0.3, 0.7, rounded)
    np.testing.assert_allclose(x, expected, rtol=1e-12)
    np.testing.assert_allclose(squares, after, rtol=1e-12)
    np.testing.assert_array_equal(rounded, x.astype(np.float32))
    assert not gradient.any()


def test_weights_of_tags_count_sentences() -> None:
    """A sentence of weight 2 is one that comes twice."""
    X = [["a", "b"], ["b", "c"], ["c", "a", "a"], ["b"]]
    y = [["P", "P"], ["Q", "Q"], ["P", "P", "P"], ["Q"]]
    weighted = CRFTagger(class_weight={"Q": 2.0}, n_iter=500, tol=1e-12).fit(X, y)
    twice = CRFTagger(n_iter=500, tol=1e-12).fit([*X, X[1], X[3]], [*y, y[1], y[3]])
    np.testing.assert_allclose(weighted.history_[-1], twice.history_[-1], rtol=1e-6)
    np.testing.assert_allclose(weighted.predict_proba(X)[0], twice.predict_proba(X)[0], atol=1e-4)
    plain = CRFTagger(n_iter=500, tol=1e-12).fit(X, y)
    assert np.abs(weighted.predict_proba(X)[0] - plain.predict_proba(X)[0]).max() > 1e-3
    balanced = CRFTagger(class_weight="balanced", n_iter=500, tol=1e-12).fit(X, y)
    named = CRFTagger(class_weight={"P": 8 / 10, "Q": 8 / 6}, n_iter=500, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(balanced.history_[-1], named.history_[-1], rtol=1e-9)


def test_a_warm_start_goes_on(tmp_path: Path) -> None:
    X, y = noisy(60)
    whole = CRFTagger(n_iter=200, tol=1e-9).fit(X, y)
    tagger = CRFTagger(n_iter=5, warm_start=True).fit(X, y)
    first = list(tagger.history_)
    tagger.fit(X, y)
    assert tagger.history_[0] > first[-1]
    tagger.set_params(n_iter=200, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(tagger.history_[-1], whole.history_[-1], rtol=1e-6)
    cold = CRFTagger(n_iter=5).fit(X, y)
    assert cold.fit(X, y).history_ == first, "without warm_start a second fit begins anew"
    tagger.save(tmp_path / "t")
    loaded: Any = load(tmp_path / "t")
    start = loaded.set_params(n_iter=1).fit(X, y).history_[0]
    np.testing.assert_allclose(start, whole.history_[-1], rtol=1e-5)


def test_a_prior_holds_what_new_sentences_do_not_show() -> None:
    X, y = sentences(60)
    old = CRFTagger(n_iter=50).fit(X, y)
    new_X, new_y = [["zap", "river"]], [["Z", "N"]]
    strong = CRFTagger(prior=old, l2=1e6, n_iter=50).fit(new_X, new_y)
    assert strong.labels_ == ["A", "D", "N", "V", "Z"]
    known = [strong.labels_.index(label) for label in old.labels_]
    scores, _ = scores_of(strong, X)
    expected, _ = scores_of(old, X)
    np.testing.assert_allclose(scores[:, known], expected, atol=1e-3)
    soft = CRFTagger(prior=old, l2=0.1, n_iter=50).fit(new_X, new_y)
    assert soft.predict(new_X) == new_y and soft.score(X, y) > 0.95
    alone = CRFTagger(l2=0.1, n_iter=50).fit(new_X, new_y)
    assert alone.score(X, y) < 0.5
    # at the optimum of the penalty around the prior nothing moves
    still = CRFTagger(prior=old, l2=1.0, n_iter=5).fit(new_X, new_y)
    w, row = still.weights_, still.attributes_["w=sleeps"]
    was, old_row = old.weights_, old.attributes_["w=sleeps"]
    np.testing.assert_array_equal(
        w.sparse[w.start[row] : w.start[row + 1]], was.sparse[was.start[old_row] : was.start[old_row + 1]]
    )
    with pytest.raises(InputError, match="numbers a token"):
        CRFTagger(Numbers(), prior=old).fit(X, y)


def test_extra_columns_are_read(tmp_path: Path) -> None:
    X = [["x"] * 6] * 4
    y = [list("PQQPQP"), list("QQPPPQ"), list("PPPQQQ"), list("QPQPQP")]
    columns, dicts = [[("-", t) for t in s] for s in y], [[{"tag": t} for t in s] for s in y]
    numbers = [[{"is P": 3.0 * (t == "P")} for t in s] for s in y]
    for extra in (y, columns, dicts, numbers):
        tagger = CRFTagger(window=0, l2=0.01).fit(X, y, extra=extra)
        assert tagger.predict(X, extra=extra) == y and tagger.score(X, y, extra=extra) == 1.0
        assert tagger.evaluate(X, y, extra=extra).tokens["all"].accuracy == 1.0
    assert CRFTagger(window=0, l2=0.01).fit(X, y).score(X, y) < 0.8
    tagger = CRFTagger(lexical=False).fit(X, y, extra=y)
    tagger.save(tmp_path / "t")
    loaded: Any = load(tmp_path / "t")
    assert loaded.has_extra_ and loaded.predict(X, extra=y) == tagger.predict(X, extra=y)
    for wrong in (
        lambda: tagger.predict(X),
        lambda: tagger.predict(X, extra=y[:2]),
        lambda: tagger.predict(X, extra=[s[1:] for s in y]),
        lambda: tagger.predict(X, extra=[[3] * 6] * 4),
        lambda: tagger.predict(X, extra=[["a b"] * 6] * 4),
        lambda: tagger.predict(X, extra=[[{"n": float("nan")}] * 6] * 4),
        lambda: CRFTagger().fit(X, y).predict(X, extra=y),
    ):
        with pytest.raises(InputError) as e:
            wrong()
        assert is_one_sentence(str(e.value))


@pytest.mark.parametrize("settings", [{}, {"algorithm": "minibatch", "random_state": 3}], ids=["lbfgs", "minibatch"])
def test_a_killed_fit_goes_on_with_the_same_bits(tmp_path: Path, settings: Any) -> None:
    X, y = noisy(60)
    whole = CRFTagger(n_iter=8, **settings).fit(X, y)

    def stop(event: Any) -> None:
        if event.iteration == 4:
            raise RuntimeError("killed")

    place = Checkpoint(tmp_path / "c", every_seconds=0)
    with pytest.raises(RuntimeError, match="killed"):
        CRFTagger(n_iter=8, callbacks=[stop], **settings).fit(X, y, checkpoint=place)
    seen: list[int] = []
    again = CRFTagger(n_iter=8, callbacks=[lambda e: seen.append(e.iteration)], **settings)
    again.fit(X, y, checkpoint=place)
    assert seen == [5, 6, 7, 8] and again.history_ == whole.history_
    assert tensor_bytes(again) == tensor_bytes(whole)


def test_a_tagger_of_crfsuite_must_be_trained_again(tmp_path: Path) -> None:
    X, y = sentences(10)
    CRFTagger(n_iter=2).fit(X, y).save(tmp_path / "t")
    edit_sealed(tmp_path / "t" / "config.json", lambda config: config.update(format_version=1))
    with pytest.raises(FormatError, match=r"format 1, and this undertow reads 2.*fit the model again") as e:
        load(tmp_path / "t")
    assert is_one_sentence(str(e.value))


@pytest.mark.parametrize(
    "wrong",
    [
        {"class_weight": "even"},
        {"class_weight": {"D": -1.0}},
        {"class_weight": {"no such tag": 1.0}},
        {"prior": CRFTagger},
        {"scheme": "bilou"},
        {"batch_size": 0},
        {"n_jobs": 0},
    ],
    ids=str,
)
def test_errors_are_one_sentence(wrong: Any) -> None:
    with pytest.raises(InputError) as e:
        CRFTagger(**wrong).fit(*sentences(5))
    assert is_one_sentence(str(e.value))


def named(n: int, seed: int = 0) -> tuple[list[list[str]], list[list[str]]]:
    """Sentences with names of one to three words, and noise."""
    draw = random.Random(seed)
    X, y = [], []
    for _ in range(n):
        words, tags = ["we", "saw"], ["O", draw.choice(["O", "O", "O", "B-x"])]
        for _ in range(draw.randint(1, 2)):
            k = draw.randint(1, 3)
            words += [draw.choice(["Ann", "Bob", "Lee"]) for _ in range(k)] + [draw.choice(["and", "there"])]
            tags += ["B-x", *["I-x"] * (k - 1), "O"]
        X.append(words)
        y.append(tags)
    return X, y


def test_spans_learned_in_bioes_are_told_in_the_tags_that_were_given(tmp_path: Path) -> None:
    """Its twin learns the tags of BIOES as they are, and its answers are put together by hand."""
    X, y = named(30)
    tagger, twin = (
        CRFTagger(n_iter=20, scheme="bioes").fit(X, y),
        CRFTagger(n_iter=20).fit(X, convert(y, "bioes")),
    )
    assert tagger.labels_ == ["B-x", "I-x", "O"] and tagger.states_ == twin.labels_ == ["B-x", "E-x", "I-x", "O", "S-x"]
    assert tagger.scheme_ == "iob2" and twin.scheme_ == "bioes"
    outer = {"B-x": 0, "S-x": 0, "I-x": 1, "E-x": 1, "O": 2}
    for own, theirs in zip(tagger.predict_proba(X[:5]), twin.predict_proba(X[:5]), strict=True):
        summed = np.zeros_like(own)
        for k, state in enumerate(twin.labels_):
            summed[:, outer[state]] += theirs[:, k]
        np.testing.assert_allclose(own, summed, rtol=1e-5, atol=1e-7)
    told = tagger.predict(X)
    assert told == [[tagger.labels_[outer[tag]] for tag in s] for s in twin.predict(X)]
    plain = CRFTagger(n_iter=20).fit(X, y).predict_proba(X[:1])[0]
    assert np.abs(tagger.predict_proba(X[:1])[0] - plain).max() > 0.01, "the scheme makes a difference"
    tagger.save(tmp_path / "t")
    again = load(tmp_path / "t")
    assert again.predict(X) == told and again.states_ == tagger.states_


def test_the_best_tag_sequences_are_different_and_as_probable_as_their_states_together() -> None:
    X, y = named(30)
    tagger = CRFTagger(n_iter=20, scheme="bioes").fit(X, y)
    sentence = ["saw", "Ann"]
    best = tagger.predict_nbest([sentence], n=10)[0]
    assert len({tuple(tags) for tags, _ in best}) == len(best) == 9, "three tags for each of two words"
    assert [p for _, p in best] == sorted((p for _, p in best), reverse=True)
    few = tagger.predict_nbest([sentence], n=3)[0]
    assert [tags for tags, _ in few] == [tags for tags, _ in best[:3]]
    np.testing.assert_allclose(np.exp([p for _, p in best]).sum(), 1.0, rtol=1e-5)


def test_tags_that_are_not_iob2_are_learned_as_they_are() -> None:
    X, y = noisy(20)
    assert CRFTagger(n_iter=3, scheme="bioes").fit(X, y).states_ == ["A", "D", "N", "V"]
    X, y = named(10)
    for given in ("iob1", "bilou"):
        tagger = CRFTagger(n_iter=3, scheme="bioes").fit(X, convert(y, given))
        assert tagger.scheme_ == given and tagger.states_ == tagger.labels_


def test_a_prior_has_the_same_scheme() -> None:
    X, y = named(10)
    prior = CRFTagger(n_iter=5, scheme="bioes").fit(X, y)
    grown = CRFTagger(n_iter=5, scheme="bioes", prior=prior, l2=10.0).fit([["Eve", "left"]], [["B-y", "O"]])
    assert grown.states_ == ["B-x", "E-x", "I-x", "O", "S-x", "S-y"] and grown.predict(X[:3]) == prior.predict(X[:3])
    with pytest.raises(InputError, match="give both the same scheme") as caught:
        CRFTagger(n_iter=5, prior=prior).fit(X, y)
    assert is_one_sentence(str(caught.value))
