"""A CRF with a network: what it learns, how the mean is made, saving, checkpoints, Ctrl-C, bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contract.checks import tensor_bytes
from oracles.token_network import scores_by_tokens
from sealing import edit_sealed
from sentences import is_one_sentence
from tagged_samples import sentences
from undertow import CRFTagger, PMIVectors, load
from undertow.errors import FormatError, InputError
from undertow.kernels.chain.crf import Tokens
from undertow.kernels.chain.token_network import network_scores
from undertow.models.fitting import Checkpoint, InterruptedFitWarning
from undertow.results.tagging import Vectors, crf_features, crf_network


class Signs:
    """Two numbers of a word such as "+-7", 1 or −1 each, as a matrix or as features that have vectors too."""

    name, window = "signs", 0

    def __init__(self, dense: bool = True) -> None:
        self.dense = dense

    def vectors(self, X: Any) -> list[Any]:
        return [np.array([[1.0 if c == "+" else -1.0 for c in w[:2]] for w in s], dtype=np.float32) for s in X]

    def features(self, X: Any) -> Any:
        return [[{"0": float(a), "1": float(b)} for a, b in rows] for rows in self.vectors(X)]


def signed(n: int, seed: int = 0) -> tuple[list[list[str]], list[list[str]]]:
    """Tags that say whether both signs of a word are the same, which no weighted sum of the two can tell."""
    rng = np.random.default_rng(seed)
    X = [["".join(rng.choice(["+", "-"], 2)) + str(rng.integers(100)) for _ in range(4)] for _ in range(n)]
    return X, [["same" if w[0] == w[1] else "other" for w in s] for s in X]


@pytest.mark.parametrize("dense", [True, False])
def test_a_network_learns_what_a_weighted_sum_cannot(dense: bool) -> None:
    train, test = signed(300), signed(50, 1)
    settings: Any = {"lexical": False, "n_iter": 20, "random_state": 0}
    linear = CRFTagger([Signs(dense)], **settings).fit(*train)
    assert linear.network_ is None and linear.score(*test) < 0.7
    assert CRFTagger([Signs(dense)], n_hidden=64, **settings).fit(*train).score(*test) > 0.95


def test_the_scores_are_those_of_the_weights_and_of_the_network_by_tokens() -> None:
    X, y = signed(30)
    tagger = CRFTagger([Signs()], n_hidden=3, n_iter=5, random_state=0).fit(X, y)
    assert tagger.network_ is not None
    net = type(tagger.network_)(*(x.astype(np.float64) for x in tagger.network_))
    [(bounds, scores)] = tagger._scores(X, None)
    numbers = np.concatenate(Signs().vectors(X))
    tagger.network_ = None
    [(_, linear)] = tagger._scores(X, None)
    np.testing.assert_allclose(scores, linear + scores_by_tokens(net, numbers, bounds), rtol=1e-5, atol=1e-5)


def test_the_result_is_the_mean_of_both_and_reads_numbers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = signed(40)
    X = [[w + "x" for w in s] for s in X]
    settings: Any = {"n_iter": 5, "random_state": 0}
    linear = CRFTagger([Signs()], **settings).fit(X, y)
    mean = CRFTagger([Signs()], n_hidden=3, **settings).fit(X, y)
    monkeypatch.setattr(crf_network, "SHARE", 1.0)
    second = CRFTagger([Signs()], n_hidden=3, **settings).fit(X, y)
    assert linear.history_ == mean.history_[:5] and mean.history_ == second.history_
    found = [np.concatenate([scores for _, scores in t._scores(X, None)]) for t in (linear, mean, second)]
    np.testing.assert_allclose(found[1], 0.2 * found[0] + 0.8 * found[2], rtol=1e-4, atol=1e-4)
    assert not np.allclose(found[0], found[2], atol=0.1)


@pytest.mark.parametrize("more", [None, 3])
def test_center_and_spread_of_the_numbers(monkeypatch: pytest.MonkeyPatch, more: int | None) -> None:
    monkeypatch.setattr(crf_network, "ROWS", 7)
    rng = np.random.default_rng(0)
    dense = rng.normal(2.0, 3.0, (40, 5)).astype(np.float32)
    beside = None if more is None else rng.normal(-1.0, 0.5, (40, more)).astype(np.float32)
    whole = dense if beside is None else np.hstack([dense, beside])
    tokens = Tokens(np.array([0, 40]), np.zeros(41, dtype=np.int64), *[np.zeros(0)] * 2, dense, beside)  # type: ignore[arg-type]
    center, spread = crf_network.center_and_spread(tokens)
    np.testing.assert_allclose(center, whole.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(spread, np.sqrt(whole.var(axis=0).mean()), rtol=1e-5)


def test_the_network_that_is_kept_reads_numbers_that_are_not_centered() -> None:
    rng = np.random.default_rng(0)
    net = crf_network.start_network(rng, 3, 4, 5)
    net = net._replace(input_bias=rng.standard_normal(4).astype(np.float32))
    X, bounds = rng.standard_normal((6, 3)) * 3 + [1, 20, -5], np.array([0, 2, 6])
    center, spread = X.mean(axis=0), X.std()
    kept = crf_network._mean(np.zeros(2), np.ones(2), net, center, spread)
    assert kept.network is not None
    np.testing.assert_allclose(kept.flat, [0.8, 0.8])
    expected = 0.8 * network_scores(net, (X - center) / spread, bounds)[0]
    np.testing.assert_allclose(network_scores(kept.network, X, bounds)[0], expected, rtol=1e-5, atol=1e-6)


def test_training_is_a_descent_on_the_loss_with_what_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dropping, the loss of the second CRF falls below that of the linear one, which fits no network."""
    for name in ("DROPPED_FEATURES", "DROPPED_NUMBERS", "DROPPED_UNITS"):
        monkeypatch.setattr(crf_network, name, 0.0)
    X, y = signed(300)
    tagger = CRFTagger([Signs()], lexical=False, n_hidden=64, n_iter=10, random_state=0).fit(X, y)
    assert len(tagger.history_) <= 10 + crf_network.TAG_PASSES
    assert tagger.history_[-1] > 0.3 * tagger.history_[-1 - crf_network.TAG_PASSES]


@pytest.mark.parametrize(("marks", "passes"), [(("same", "other"), 20), (("B-same", "O"), 40)])
def test_tags_that_mark_spans_have_more_passes(marks: tuple[str, str], passes: int) -> None:
    X, y = signed(20)
    y = [[marks[tag == "other"] for tag in s] for s in y]
    asked: list[int] = []
    settings: Any = {"n_iter": 3, "random_state": 0, "callbacks": [lambda event: asked.append(event.n_iter)]}
    tagger = CRFTagger([Signs()], n_hidden=2, **settings).fit(X, y)
    assert len(tagger.history_) == 3 + passes and set(asked) == {3 + passes}


def test_entries_are_dropped_as_often_as_said_and_their_mean_stays() -> None:
    found = crf_network._factors(np.random.default_rng(0), (400, 500), 0.3)
    assert found.dtype == np.float32 and set(np.unique(found)) == {np.float32(0), np.float32(1 / 0.7)}
    np.testing.assert_allclose((found == 0).mean(), 0.3, atol=0.005)


def test_saved_and_loaded_it_tags_the_same(tmp_path: Path) -> None:
    X, y = signed(30)
    tagger = CRFTagger([Signs()], n_hidden=3, n_iter=4, random_state=0).fit(X, y)
    tagger.features = tagger.features_ = []  # a representation of our own is not saved
    tagger.network_ = tagger.network_._replace(input=np.zeros((0, 3), dtype=np.float32))  # type: ignore[union-attr]
    tagger.weights_ = tagger.weights_._replace(dense=np.zeros((0, 2), dtype=np.float32))
    tagger._open_reader()
    tagger.save(tmp_path / "t")
    again: Any = load(tmp_path / "t")
    for a, b in zip(again.predict_proba(X), tagger.predict_proba(X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_tagger_of_an_earlier_version_has_no_network(tmp_path: Path) -> None:
    X, y = sentences(10)
    CRFTagger(n_iter=2).fit(X, y).save(tmp_path / "t")

    def as_before(config: Any) -> None:
        del config["params"]["n_hidden"]
        del config["fitted"]["network"]

    edit_sealed(tmp_path / "t" / "config.json", as_before)
    assert load(tmp_path / "t").n_hidden == 0  # type: ignore[attr-defined]


def test_vectors_for_the_network_alone_are_not_in_the_linear_part(tmp_path: Path) -> None:
    X, y = sentences(30)
    model = PMIVectors(3, random_state=0).fit(X)
    how: dict[str, Any] = {"n_iter": 3, "random_state": 0}
    tagger = CRFTagger(Vectors(model, network_only=True), n_hidden=4, **how).fit(X, y)
    assert tagger.network_ is not None
    assert len(tagger.weights_.dense) == 0 and len(tagger.network_.input) == 6
    tagger.save(tmp_path / "t")
    again: Any = load(tmp_path / "t")
    assert again.features_[0].network_only
    for a, b in zip(again.predict_proba(X), tagger.predict_proba(X), strict=True):
        np.testing.assert_array_equal(a, b)
    both = CRFTagger(Vectors(model), n_hidden=4, **how).fit(X, y)
    assert len(both.weights_.dense) == 6 and both.network_ is not None and len(both.network_.input) == 6
    linear = CRFTagger(Vectors(model, network_only=True), **how).fit(X, y)
    assert len(linear.weights_.dense) == 6, "without a network they are read as any vectors"
    with pytest.raises(InputError, match="network_only"):
        Vectors(model, network_only="yes")  # type: ignore[arg-type]


def test_vectors_of_an_earlier_version_are_read_by_both_parts(tmp_path: Path) -> None:
    X, y = sentences(10)
    tagger = CRFTagger(Vectors(PMIVectors(3, random_state=0).fit(X)), n_iter=2).fit(X, y)
    tagger.save(tmp_path / "t")
    edit_sealed(tmp_path / "t" / "config.json", lambda c: c["fitted"]["features"][0]["options"].pop("network_only"))
    again: Any = load(tmp_path / "t")
    assert again.features_[0].network_only is False and again.predict(X) == tagger.predict(X)


def test_a_network_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    CRFTagger(n_iter=2).fit(*sentences(10)).save(tmp_path / "t")
    edit_sealed(tmp_path / "t" / "config.json", lambda config: config["fitted"].update(network=[2, 3]))
    with pytest.raises(FormatError) as e:
        load(tmp_path / "t")
    assert is_one_sentence(str(e.value))


@pytest.mark.parametrize("when", [4, 9], ids=["linear", "network"])
def test_a_killed_fit_goes_on_with_the_same_bits(tmp_path: Path, when: int) -> None:
    X, y = signed(30)
    settings: Any = {"n_iter": 6, "n_hidden": 3, "random_state": 1}
    whole = CRFTagger([Signs()], **settings).fit(X, y)

    def stop(event: Any) -> None:
        if event.iteration == when:
            raise RuntimeError("killed")

    place = Checkpoint(tmp_path / "c", every_seconds=0)
    with pytest.raises(RuntimeError, match="killed"):
        CRFTagger([Signs()], callbacks=[stop], **settings).fit(X, y, checkpoint=place)
    seen: list[int] = []
    again = CRFTagger([Signs()], callbacks=[lambda e: seen.append(e.iteration)], **settings)
    again.fit(X, y, checkpoint=place)
    assert seen[0] == when + 1 and again.history_ == whole.history_
    again.features = whole.features = again.features_ = whole.features_ = []
    assert tensor_bytes(again) == tensor_bytes(whole)


@pytest.mark.parametrize(("when", "has_network"), [(3, False), (8, True)])
def test_ctrl_c_keeps_what_is_finished(when: int, has_network: bool) -> None:
    X, y = signed(30)

    def press(event: Any) -> None:
        if event.iteration == when:
            raise KeyboardInterrupt

    tagger = CRFTagger([Signs()], n_iter=6, n_hidden=3, random_state=1, callbacks=[press])
    with pytest.warns(InterruptedFitWarning):
        tagger.fit(X, y)
    assert (tagger.network_ is not None) == has_network and len(tagger.history_) == when
    assert tagger.predict(X)


def test_a_network_does_not_read_the_probabilities_of_thousands_of_states(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = signed(20)
    settings: Any = {"n_iter": 3, "n_hidden": 3, "random_state": 0}
    read = CRFTagger([Signs(dense=False)], **settings).fit(X, y)
    assert read.network_ is not None and len(read.network_.input) == 2
    monkeypatch.setattr(crf_features, "MOST_NUMBERS", 1)
    assert CRFTagger([Signs(dense=False)], **settings).fit([[], *X], [[], *y]).network_ is None
    assert CRFTagger([Signs(dense=True)], **settings).fit(X, y).network_ is not None


def test_without_vectors_there_is_no_network() -> None:
    X, y = sentences(20)
    with_units, without = (CRFTagger(n_iter=5, n_hidden=n, random_state=0).fit(X, y) for n in (4, 0))
    assert with_units.network_ is None and tensor_bytes(with_units) == tensor_bytes(without)


def test_the_seed_decides() -> None:
    X, y = signed(30)
    one, same, other = (
        CRFTagger([Signs()], n_iter=3, n_hidden=3, random_state=seed).fit(X, y).predict_proba(X) for seed in (0, 0, 1)
    )
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_errors_are_one_sentence() -> None:
    X, y = signed(10)
    tagger = CRFTagger([Signs()], n_iter=3, n_hidden=3, random_state=0).fit(X, y)
    for wrong in (
        lambda: CRFTagger([Signs()], n_hidden=3, l1=1.0).fit(X, y),
        lambda: CRFTagger([Signs()], prior=tagger).fit(X, y),
        lambda: CRFTagger([Signs()], n_hidden=3, prior=CRFTagger([Signs()], n_iter=2).fit(X, y)).fit(X, y),
        lambda: CRFTagger([Signs()], n_hidden=-1).fit(X, y),
    ):
        with pytest.raises(InputError) as e:
            wrong()
        assert is_one_sentence(str(e.value))
