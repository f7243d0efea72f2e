from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oracles import dynamic_dense as dense
from sentences import is_one_sentence
from undertow import DynamicEmbedding, Events, load
from undertow.errors import InputError, NotFittedError
from undertow.models.dynamic import fit as dynamic_fit
from undertow.models.dynamic import link_model as dynamic_link_model
from undertow.models.dynamic import links as dynamic_links
from undertow.models.dynamic.link_model import CANDIDATE_DRIFTS, DEFAULT_LINK_WEIGHTS, cloglog_regression
from undertow.models.dynamic.links import predict_belief
from undertow.models.dynamic.map_data import changing_pairs
from undertow.models.dynamic.queries import distance_band
from undertow.models.fitting import InterruptedFitWarning

NAMES = (["A1", "A2", "B"], ["X1", "X2", "Y"])


def switch(T: int = 140, seed: int = 0) -> list[tuple[int, str, str, int]]:
    """The paper's synthetic data: A meets X and B meets Y until 20; uniform at 70; A meets Y and B meets X from 120."""
    rng = np.random.default_rng(seed)
    out = []
    for t in range(T):
        turned = float(np.clip((t / T * 140 - 20) / 100, 0, 1))
        for a in NAMES[0]:
            for w in NAMES[1]:
                together = (a[0] == "A") == (w[0] == "X")
                strength = (1 - turned) if together else turned
                count = rng.poisson(1 + 18 * strength) * (rng.random() > 0.15)
                if count:
                    out.append((t, a, w, int(count)))
    return out


@pytest.fixture(scope="module")
def switched() -> DynamicEmbedding:
    return DynamicEmbedding(2, n_iter=5, random_state=0).fit(switch())


def crossing(own: Any, other: Any) -> int:
    """The first step from which the other partner is nearer more often than not."""
    nearer = np.convolve(own > other, np.ones(9) / 9, mode="same")
    return int(np.flatnonzero(nearer > 0.5)[0])


def test_the_switch_is_recovered(switched: DynamicEmbedding) -> None:
    for a, own, other in (("A1", "X1", "Y"), ("A2", "X2", "Y"), ("B", "Y", "X1")):
        near, far = switched.distance(a, own).mean, switched.distance(a, other).mean
        assert near[10] < far[10] and near[130] > far[130]
        assert 50 < crossing(near, far) < 90
        affinity = switched.affinity(a, own).mean - switched.affinity(a, other).mean
        assert affinity[10] > 0 > affinity[130]


def test_a_static_map_does_not_separate_the_switch() -> None:
    pooled = [(0, a, w, c) for _, a, w, c in switch()]
    model = DynamicEmbedding(2, random_state=0).fit(pooled)
    moving = DynamicEmbedding(2, n_iter=2, random_state=0).fit(switch(30))
    still, began = (m.affinity("A1", "X1").mean[0] - m.affinity("A1", "Y").mean[0] for m in (model, moving))
    assert abs(still) < 0.25 and began > 0.5


def test_bands_hold_the_mean_and_widen_without_data(switched: DynamicEmbedding) -> None:
    line = switched.distance("A1", "X1")
    assert (line.low < line.mean).all() and (line.mean < line.high).all()
    assert len(line.mean) == 140 and switched.times_ == list(range(140))
    gone = [e for e in switch(40) if e[0] < 20 or e[1] != "B"]
    model = DynamicEmbedding(2, n_iter=2, random_state=0).fit(gone)
    widths = [np.trace(model.position("B", t, filtered=True)[1]) for t in (20, 25, 30, 39)]
    assert (np.diff(widths) > 0).all()


def small_events() -> list[tuple[Any, str, str, float]]:
    rng = np.random.default_rng(1)
    return [
        (t, f"r{i}", f"c{j}", float(rng.poisson(3 if (i + j) % 2 else 1)) + 0.5)
        for t in (1990, 1991, 1994)
        for i in range(4)
        for j in range(5)
        if rng.random() < 0.8
    ]


def test_order_and_duplicates_of_events_change_nothing() -> None:
    events = small_events()
    halves = [(t, r, c, n / 2) for t, r, c, n in events for _ in range(2)]
    one = DynamicEmbedding(random_state=0, n_iter=2).fit(events)
    for other in (events[::-1], halves):
        two = DynamicEmbedding(random_state=0, n_iter=2).fit(other)
        np.testing.assert_allclose(two.filtered_means_, one.filtered_means_, rtol=1e-9, atol=1e-12)


def test_renaming_permutes_the_map() -> None:
    """Distances do not depend on the order in which names sort."""
    events = small_events()
    other = [(t, "z" + str(9 - int(r[1])), "a" + str(9 - int(c[1])), n) for t, r, c, n in events]
    one, two = (DynamicEmbedding(random_state=0, drift=0.05, tol=1e-10).fit(x) for x in (events, other))
    a = [one.distance(f"r{i}", f"c{j}").mean for i in range(4) for j in range(5)]
    b = [two.distance(f"z{9 - i}", f"a{9 - j}").mean for i in range(4) for j in range(5)]
    np.testing.assert_allclose(b, a, rtol=0.02, atol=0.02)


def test_gaps_in_time_diffuse_more() -> None:
    model = DynamicEmbedding(random_state=0, drift=0.1, covariance="blocks").fit(small_events())
    assert model.events_.gaps == [0.0, 1.0, 3.0]
    step = predict_belief(model._fitted, 1.0).cov - predict_belief(model._fitted, 0.0).cov
    np.testing.assert_allclose(step[0], model.drift_[0] * np.eye(2), rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
@pytest.mark.parametrize("covariance", ["full", "blocks"])
def test_any_dimension_in_both_forms(dim: int, covariance: str) -> None:
    model = DynamicEmbedding(dim, covariance=covariance, n_iter=2, random_state=0).fit(small_events())
    mean, cov = model.position("r0", 1991)
    assert mean.shape == (dim,) and cov.shape == (dim, dim) and np.linalg.eigvalsh(cov).min() > 0
    links = model.predict_links()
    assert len(links) == 20 and all(0 <= link.probability <= 1 for link in links)
    assert [k.probability for k in links] == sorted((k.probability for k in links), reverse=True)


def test_full_and_blocks_share_the_path() -> None:
    """With the same drift the means are one and the same; standard deviations of pairs differ little."""
    full, blocks = (
        DynamicEmbedding(covariance=c, drift=0.05, random_state=0, tol=1e-9).fit(small_events())
        for c in ("full", "blocks")
    )
    pairs = [(f"r{i}", f"c{j}") for i in range(4) for j in range(5)]
    np.testing.assert_allclose(blocks._fitted.smoothed.means, full._fitted.smoothed.means, rtol=0, atol=1e-3)
    one, two = (np.array([m.distance(*p).mean for p in pairs]).ravel() for m in (full, blocks))
    assert np.corrcoef(one, two)[0, 1] > 0.9
    assert full.covariance_reason_ == "as asked"


def test_partial_fit_is_the_filter() -> None:
    """Taking in a later step is one step of the filter: nothing before it changes, and its own equals `condition`."""
    events = small_events()
    first = [e for e in events if e[0] < 1994]
    last = [e for e in events if e[0] == 1994]
    model = DynamicEmbedding(random_state=0, drift=0.05, tempering=1.0, covariance="full").fit(first)
    before = model.filtered_means_.copy()
    predicted = predict_belief(model._fitted, 3.0)
    model.partial_fit(last)
    np.testing.assert_array_equal(model.filtered_means_[:2], before)
    assert model.times_ == [1990, 1991, 1994] and len(model.history_) == 2
    assert np.abs(model.filtered_means_[2] - predicted.mean).max() > 1e-3
    # the mode of the step: the score balances the pull of the prediction
    from undertow.kernels.field.cooccurrence import log_likelihood

    table = model._fitted.tables[2]
    assert table is not None
    x = model.filtered_means_[2]
    _, score = log_likelihood(table, x[table.rows], x[table.columns])
    pull = np.linalg.solve(predicted.cov, (x - predicted.mean).ravel()).reshape(x.shape)
    pull[table.present] -= score
    assert np.abs(pull).max() < 0.5


@pytest.mark.parametrize("covariance", ["full", "blocks"])
def test_newcomers_join_by_partial_fit(covariance: str) -> None:
    model = DynamicEmbedding(random_state=0, n_iter=2, covariance=covariance).fit(small_events())
    old = model.position("r2", 1991)[0]
    model.partial_fit([(1995, "a new one", "c1", 5), (1995, "r2", "c1", 4), (1995, "r2", "new word", 2)])
    assert model.names_[:2] == ["a new one", "r0"] and "new word" in model.names_
    assert np.isfinite(model.position("a new one", 1995)[0]).all()
    assert model.distance("a new one", "c1").mean.shape == (4,)
    assert np.abs(model.position("r2", 1991)[0] - old).max() < 1.0
    with pytest.raises(InputError, match="later steps only"):
        model.partial_fit([(1993, "r1", "c1", 1)])


def test_movers_are_those_that_move() -> None:
    rng = np.random.default_rng(2)
    events = []
    for t in range(12):
        for i in range(6):
            for j in range(12):
                side = (j < 6) == (i < 3)
                if i == 0 and t >= 6:
                    side = not side  # one row changes sides
                events.append((t, f"r{i}", f"c{j}", int(rng.poisson(20 if side else 2)) + 1))
    model = DynamicEmbedding(2, random_state=0, n_iter=4).fit(events)
    movers = model.movers(3)
    assert movers[0].name == "r0" and movers[0].p_value < 1e-3 and "moved beyond noise" in movers.verdict
    assert model.movers(5, first=0, last=3, significance=1e-6) == []
    near = {n.name for n in model.nearest("r1", 0, 6, of="column")}
    assert near <= {f"c{j}" for j in range(6)}


@pytest.mark.parametrize("covariance", ["full", "blocks"])
def test_near_is_by_squared_distance_and_variance_among_those_seen_then(covariance: str) -> None:
    events = [e for e in small_events() if e[:2] != (1994, "r1")]
    model = DynamicEmbedding(random_state=0, n_iter=2, covariance=covariance).fit(events)
    data = model.map_data()
    t = data.times.index("1994")
    near = ((data.positions[t] - data.positions[t, 0]) ** 2).sum(axis=1) + np.trace(
        data.covariances[t], axis1=1, axis2=2
    )
    seen = [j for j in np.argsort(near) if j != 0 and data.weights[t, j] > 0]
    found = [n.name for n in model.nearest(data.names[0], 1994, 100)]
    assert found == [data.names[j] for j in seen] and "r1" not in found


def test_pairs_to_begin_with_are_not_chosen_by_the_alphabet() -> None:
    """Where shares change alike, the pair whose distance changed most comes first, whatever it is called."""
    events = [(t, r, c, 10) for t in range(2) for r in ("a", "b", "z") for c in ("k", "m", "y")]
    model = DynamicEmbedding(random_state=0, n_iter=1).fit(events)
    means = np.zeros((2, 6, 2))
    means[1, 2] = 1.0  # z goes away from everything
    fitted = model._fitted
    vars(fitted)["smoothed"] = fitted.smoothed._replace(means=means)  # where cached_property keeps it
    assert changing_pairs(fitted, 1)[0][0] == 2


def test_names_in_both_kinds_are_told_apart() -> None:
    events = [(t, r, c, 2 + t) for t in (1, 2) for r in ("bell", "Bell") for c in ("bell", "tower")]
    model = DynamicEmbedding(random_state=0, n_iter=1).fit(events)
    with pytest.raises(InputError, match="both") as e:
        model.position("bell", 1)
    assert is_one_sentence(str(e.value))
    row, column = model.position(("row", "bell"), 1)[0], model.position("bell", 1, kind="column")[0]
    assert row.shape == column.shape
    assert model.distance(("row", "bell"), ("column", "bell")).mean.shape == (2,)
    assert model.position("Bell", 1)[0].shape == (2,)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", 'a"b', "tab\there", "ü ✓ 漢", "line\nend", "=1+1"]
    events = [(t, n, c, 1 + k) for t in (1, 2) for k, n in enumerate(names) for c in ("x", "y")]
    model = DynamicEmbedding(random_state=0, n_iter=1).fit(events)
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").names_ == sorted(names) + ["x", "y"]


def test_saved_models_go_on(tmp_path: Path) -> None:
    model = DynamicEmbedding(random_state=0, n_iter=2).fit(small_events())
    model.save(tmp_path / "m")
    loaded: Any = load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.distance("r0", "c1").high, model.distance("r0", "c1").high)
    assert loaded.predict_links(3) == model.predict_links(3)
    more = [(1996, "r0", "c0", 3), (1996, "r1", "c2", 3)]
    np.testing.assert_array_equal(loaded.partial_fit(more).filtered_means_, model.partial_fit(more).filtered_means_)


def test_likelihood_prefers_what_was_there() -> None:
    model = DynamicEmbedding(random_state=0, n_iter=4).fit(switch(40))
    own = [(39, "A1", "Y", 3), (39, "B", "X1", 3)]
    other = [(39, "A1", "X1", 3), (39, "B", "Y", 3)]
    assert model.log_likelihood(own) > model.log_likelihood(other)
    own, other = ([(40, *e[1:]) for e in events] for events in (own, other))
    assert model.log_likelihood(own) > model.log_likelihood(other)
    with pytest.raises(InputError, match="one step"):
        model.log_likelihood(switch(3))
    with pytest.raises(InputError, match="names it has"):
        model.log_likelihood([(40, "nobody", "nothing", 1)])


def test_links_prefer_pairs_that_meet() -> None:
    model = DynamicEmbedding(2, random_state=0).fit(switch(40))
    chance = {(link.row, link.column): link.probability for link in model.predict_links()}
    assert chance["A1", "Y"] > chance["A1", "X1"] and chance["B", "X1"] > chance["B", "Y"]
    total = sum(chance.values())
    recent = np.mean([t.nnz for t in model.events_.tables[-3:]])
    np.testing.assert_allclose(total, recent, rtol=0.1)
    assert len(model.predict_links(2)) == 2 and model.predict_links(0) == []
    assert model.predict_links(new=True) == [] or all(
        (link.row, link.column) not in {(e[1], e[2]) for e in switch(40)} for link in model.predict_links(new=True)
    )


def long_story(n_steps: int = 6, gap_at: int = 3) -> list[tuple[int, str, str, int]]:
    """Rows that like some columns more than others, some of them away for years, and a year that nobody saw."""
    rng = np.random.default_rng(4)
    taste = rng.gamma(0.4, size=(6, 9))
    years = [1990 + t + (t >= gap_at) for t in range(n_steps)]
    return [
        (year, f"r{i}", f"c{j}", int(rng.poisson(1.5 * taste[i, j])) + (i == j))
        for year in years for i in range(6) if i == 0 or rng.random() < 0.7 for j in range(9)
    ]  # fmt: skip


@pytest.mark.parametrize(("covariance", "years"), [("full", 1), ("blocks", 1), ("blocks", 4)])
def test_links_are_those_of_a_loop_over_all_pairs(covariance: str, years: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with four years a step, and with two steps without events."""
    times = [1990 + years * t for t in range(8)]  # the fourth and the last have no events
    story = [(1990 + years * (t - 1990), r, c, n) for t, r, c, n in long_story()]
    model = DynamicEmbedding(4, random_state=0, covariance=covariance).fit(story, times=times)
    tables, gaps, weights = [t.toarray() for t in model.events_.tables], model.events_.gaps, model.link_weights_
    expected = dense.link_probabilities(tables, gaps, years, *predict_belief(model._fitted, years), weights)
    np.testing.assert_allclose(model.link_probabilities(), expected, rtol=1e-5)
    monkeypatch.setattr(dynamic_links, "PAIRS_PER_BLOCK", 20)  # two rows at a time
    np.testing.assert_allclose(model.link_probabilities(), expected, rtol=1e-5)
    late = times[-1] + 3 * years
    rates, there = dense.link_rates(tables, gaps, 3 * years, *predict_belief(model._fitted, 3 * years), weights)
    shares = there[:, None] * rates / (there[:, None] * rates).sum()
    expected = (3 * np.log(shares[0, 2]) + np.log(shares[5, 8])) / 4
    found = model.log_likelihood([(late, "r0", "c2", 3), (late, "r5", "c8", 1)])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_link_weights_are_the_mode_of_their_posterior() -> None:
    rng = np.random.default_rng(0)
    X, offset = rng.standard_normal((4000, 3)), 0.3 * rng.standard_normal(4000)
    true = np.array([-1.5, 0.7, -0.4, 1.2])
    meets = rng.random(4000) < -np.expm1(-np.exp(offset + true[0] + X @ true[1:]))
    prior = np.array([1.0, 0.0, 0.5])
    found, value = cloglog_regression(X, meets, offset, prior, 25.0)
    first = np.log(meets.sum() / np.exp(offset + X @ prior).sum())

    def posterior(w: Any) -> tuple[float, float]:
        rate = np.exp(offset + w[0] + X @ w[1:])
        likelihood = float(np.where(meets, np.log(-np.expm1(-rate)), -rate).sum())
        return likelihood, likelihood - 0.5 * (w[0] - first) ** 2 - 12.5 * float(((w[1:] - prior) ** 2).sum())

    np.testing.assert_allclose(value, posterior(found)[0], rtol=1e-12)
    slope = dense.gradient(lambda w: posterior(w)[1], found)
    np.testing.assert_allclose(slope, 0, atol=0.02)  # of a curvature of hundreds
    free, _ = cloglog_regression(X, meets, offset, prior, 1e-9)
    np.testing.assert_allclose(free, true, atol=0.15)
    np.testing.assert_allclose(cloglog_regression(X, meets, offset, prior, 1e9)[0][1:], prior, atol=1e-4)
    for never in (np.zeros(4000, dtype=bool), np.ones(4000, dtype=bool)):
        assert np.isfinite(cloglog_regression(X, never, offset, prior, 25.0)[0]).all()


@pytest.mark.parametrize("dim", [2, 4])  # to look, to predict
def test_nearness_counts_for_as_much_as_the_last_step_says(dim: int) -> None:
    """With the last step's columns dealt out anew, places before it say nothing of it."""
    story = [(t, f"r{i}", f"c{(j + i) % 12}", 3) for t in range(6) for i in range(12) for j in (t % 3, t % 3 + 1, 3)]
    turned = [(t, r, c if t < 5 else f"c{(7 * int(c[1:]) + 5) % 12}", n) for t, r, c, n in story]
    told, not_told = (DynamicEmbedding(dim, random_state=0, drift=0.01).fit(x).link_weights_ for x in (story, turned))
    assert told.shape == (2, 4) and told[0, 2] > not_told[0, 2] and told[0, 3] == 0
    few = DynamicEmbedding(dim, random_state=0).fit([e for e in story if e[0] < 2])
    np.testing.assert_array_equal(few.link_weights_, DEFAULT_LINK_WEIGHTS)


@pytest.mark.parametrize("when", ["first", "links"])
def test_a_map_that_is_interrupted_uses_the_default_link_weights(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    if when == "links":
        monkeypatch.setattr(dynamic_fit, "fit_link_model", stop)
    model = DynamicEmbedding(random_state=0, n_iter=3, callbacks=[stop] if when == "first" else None)
    with pytest.warns(InterruptedFitWarning, match="kept"):
        model.fit(long_story())
    np.testing.assert_array_equal(model.link_weights_, DEFAULT_LINK_WEIGHTS)
    assert np.isfinite(model.link_probabilities()).all() and len(model.history_) >= 1


def test_a_part_of_a_large_map_is_enough_to_learn_links_from(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    taste = 6 * rng.dirichlet(np.full(4, 0.3), 40) @ rng.dirichlet(np.full(90, 0.2), 4)
    story = [(t, f"r{i}", f"c{j}", n) for t in range(5) for (i, j), n in np.ndenumerate(rng.poisson(5 * taste)) if n]
    whole = DynamicEmbedding(random_state=0, n_iter=2).fit(story)
    monkeypatch.setattr(dynamic_link_model, "MAX_PAIRS", 900)
    part = DynamicEmbedding(random_state=0, n_iter=2).fit(story)
    np.testing.assert_array_equal(part.filtered_means_, whole.filtered_means_)
    assert (part.link_weights_ != whole.link_weights_).any()
    np.testing.assert_allclose(part.link_weights_, whole.link_weights_, atol=0.6)
    ranks = [np.argsort(np.argsort(m.link_probabilities(), axis=None)) for m in (part, whole)]
    assert np.corrcoef(*ranks)[0, 1] > 0.97
    rows, columns = dynamic_link_model.most_frequent(whole.events_.tables)
    assert len(rows) * len(columns) <= 950
    total = whole.events_.tables[0] * 0 + sum(whole.events_.tables)
    assert total.sum(axis=1)[rows].min() >= np.delete(total.sum(axis=1), rows).max()


def test_a_row_that_is_away_is_expected_less() -> None:
    story = [(t, f"r{i}", f"c{j}", 2) for t in range(6) for i in range(4) for j in range(5) if i != 1 or t < 3]
    model = DynamicEmbedding(random_state=0, n_iter=2).fit(story)
    away, here = model.link_probabilities()[1].sum(), model.link_probabilities()[0].sum()
    assert away < 0.6 * here
    later = model.partial_fit([(6, r, f"c{j}", 2) for r in ("r0", "r1") for j in range(5)]).link_probabilities()
    assert later[1].sum() > away


def test_a_map_to_predict_keeps_its_width() -> None:
    model = DynamicEmbedding(4, random_state=0, n_iter=2).fit(small_events())
    assert model.tempering_ == 0.1 and model.start_variance_ == 0.5 and model.burstiness_ == 10
    assert DynamicEmbedding(4, random_state=0, n_iter=1, tempering=0.3).fit(small_events()).tempering_ == 0.3


def test_the_drift_of_a_map_to_predict_is_one_that_was_tried() -> None:
    few = small_events()
    two = [e for e in few if e[0] < 1994]
    np.testing.assert_allclose(DynamicEmbedding(4, random_state=0).fit(two).drift_, [0.01, 0.001], rtol=1e-12)
    # a step without events in between, and one after the last: neither is the held-out step
    more = few + [(t + 10, *rest) for t, *rest in few]
    times = [1990, 1991, 1994, 1997, 2000, 2001, 2004, 2005]
    model = DynamicEmbedding(4, random_state=0).fit(more, times=times)
    assert model.drift_[0] in CANDIDATE_DRIFTS and len(model.history_) == 1
    np.testing.assert_allclose(model.drift_[1], 0.1 * model.drift_[0], rtol=1e-12)


def test_moving_rows_are_predicted_with_more_drift_than_still_ones() -> None:
    """Rows that walk through a ring of columns, against rows that stay where they are."""
    found = []
    for speed in (0, 1):
        rng = np.random.default_rng(0)
        events = [
            (t, f"r{i}", f"c{(3 * i + speed * t + k) % 24}", 6)
            for t in range(10) for i in range(8) for k in range(4) if rng.random() < 0.9
        ]  # fmt: skip
        found.append(DynamicEmbedding(4, random_state=0, tempering=0.5).fit(events).drift_[0])
    assert found[1] > found[0]


# --- bad and odd input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [
        [(2000, "a", "x", 1)],  # one step, one pair
        [(2000, "a", "x", 3), (2000, "a", "y", 1)],  # a single row
        [(t, "only", c, 1 + t) for t in range(3) for c in "xyz"],
        [(t, r, "only", 1 + t) for t in range(3) for r in "abc"],
        [(1, "a", "x", 1), (1, "b", "y", 0), (2, "a", "x", 2)],  # b and y have no events
        [(3, "a", "x", 1), (1, "a", "y", 2), (2, "b", "x", 1)],  # out of order
        [(1, "a", "x", 0.25), (2, "a", "y", 1.75)],  # fractions
        [(1, "a", "x", 1e9), (2, "b", "y", 1e-6), (2, "a", "x", 1)],  # extremes
    ],
)
@pytest.mark.parametrize("covariance", ["full", "blocks"])
def test_odd_tables_give_finite_maps(events: Any, covariance: str) -> None:
    model = DynamicEmbedding(random_state=0, n_iter=3, covariance=covariance).fit(events)
    path = model._fitted.smoothed
    assert np.isfinite(path.means).all() and np.isfinite(path.covs).all()
    assert np.isfinite(model.link_probabilities()).all()
    data = model.map_data()
    assert np.isfinite(data.positions).all() and np.isfinite(data.covariances).all()
    assert data.positions.shape == (len(data.times), len(data.names), 2)
    model.movers()


def test_an_entity_seen_once_is_less_certain() -> None:
    events = [
        (t, r, c, 30 if k == j else 2) for t in range(4) for k, r in enumerate("abc") for j, c in enumerate("xyz")
    ]
    events.append((1, "rare", "x", 1))
    model = DynamicEmbedding(random_state=0, n_iter=2).fit(events)
    for t in range(4):
        assert np.trace(model.position("rare", t)[1]) > 1.4 * np.trace(model.position("a", t)[1])


def test_steps_without_events_can_be_named() -> None:
    events = [(t, r, c, 1) for t in ("spring", "winter") for r in "ab" for c in "xy"]
    model = DynamicEmbedding(random_state=0, n_iter=1).fit(events, times=["spring", "summer", "winter"])
    assert model.times_ == ["spring", "summer", "winter"]
    assert np.isfinite(model.affinity("a", "x").mean).all()
    assert (model.map_data().weights[1] == 0).all()


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"dim": 0}, "dim"),
        ({"dim": 2.5}, "dim"),
        ({"n_iter": 0}, "n_iter"),
        ({"drift": -1.0}, "drift"),
        ({"drift": (1, 2, 3)}, "drift"),
        ({"drift": "fast"}, "drift"),
        ({"tempering": 0}, "tempering"),
        ({"burstiness": -1}, "burstiness"),
        ({"covariance": "diagonal"}, "covariance"),
        ({"purpose": "show"}, "purpose"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_parameters_are_named(params: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match) as e:
        DynamicEmbedding(**params).fit(small_events())
    assert is_one_sentence(str(e.value))


def test_bad_questions_are_answered_in_a_sentence() -> None:
    with pytest.raises(NotFittedError):
        DynamicEmbedding().position("a", 1)
    with pytest.raises(NotFittedError):
        _ = DynamicEmbedding().times_
    model = DynamicEmbedding(random_state=0, n_iter=1).fit(small_events())
    for ask in (
        lambda: model.position("nobody", 1990),
        lambda: model.position("r0", 1992),
        lambda: model.position(7, 1990),
        lambda: model.position("r0", 1990, kind="colour"),
        lambda: model.distance("r0", "r9"),
    ):
        with pytest.raises(InputError) as e:
            ask()
        assert is_one_sentence(str(e.value))


def test_large_sets_are_kept_in_blocks_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 650, size=(1500, 2))
    events = [(int(t % 2), f"r{i}", f"c{j}", 1) for t, (i, j) in enumerate(pairs)]
    model = DynamicEmbedding(n_iter=1, verbose=True, random_state=0).fit(events)
    assert model.covariance_ == "blocks" and "more than 1200 coordinates" in model.covariance_reason_
    assert "covariance: blocks" in caplog.text
    assert DynamicEmbedding(n_iter=1, random_state=0).fit(small_events()).covariance_ == "full"


# --- parts ----------------------------------------------------------------------------------------------


def test_distance_bands_are_those_of_samples() -> None:
    rng = np.random.default_rng(0)
    mean = np.array([[0.0, 0.0], [0.5, 0.2], [3.0, -1.0]])
    root = np.array([[0.4, 0.1], [0.0, 0.3]])
    cov = np.repeat((root @ root.T)[None], 3, axis=0)
    line = distance_band(mean, cov)
    for t in range(3):
        drawn = np.sqrt(((mean[t] + rng.standard_normal((200_000, 2)) @ root.T) ** 2).sum(axis=1))
        low, high = np.quantile(drawn, [0.05, 0.95])
        np.testing.assert_allclose(
            [line.low[t], line.mean[t], line.high[t]], [low, drawn.mean(), high], rtol=0.05, atol=0.03
        )


def test_events_can_be_fitted_directly(tmp_path: Path) -> None:
    events = Events.build(small_events(), kind_names=("authors", "words"))
    model = DynamicEmbedding(n_iter=1, random_state=0).fit(events)
    assert model.map_data().kind_names == ["authors", "words"]
    assert model.nearest("r0", 1990, 2, of="words")[0].kind == "words"
    pair = model.map_data().pairs[0]
    assert (
        pair.mean.shape == pair.probability.shape == (3,) and 0 <= pair.probability.min() <= pair.probability.max() <= 1
    )


def test_a_page_of_the_map(tmp_path: Path) -> None:
    pytest.importorskip("undertow.view.map_page", reason="the page is another room's")
    model = DynamicEmbedding(n_iter=1, random_state=0).fit([*small_events(), (1990, "<script>x</script>", "c0", 2)])
    model.save_html(tmp_path / "map.html")
    page = (tmp_path / "map.html").read_text("utf-8")
    assert "<script>x</script>" not in page and "r0" in page
    with pytest.raises(InputError, match="exists"):
        model.save_html(tmp_path / "map.html")


def test_a_large_full_covariance_is_made_once_after_the_blocks() -> None:
    """The drift is learned in blocks; Ctrl-C before the full form leaves a model in blocks that says so."""
    rng = np.random.default_rng(0)
    events = [(t, f"r{i}", f"c{j}", int(rng.poisson(3)) + 1) for t in (1, 2) for i in range(60) for j in range(100)]
    model = DynamicEmbedding(n_iter=2, random_state=0).fit(events)
    assert model.covariance_ == "full" and model.filtered_covariances_.shape == (2, 320, 320)

    def stop(event: Any) -> None:
        raise KeyboardInterrupt

    with pytest.warns(InterruptedFitWarning):
        cut = DynamicEmbedding(n_iter=2, random_state=0, callbacks=[stop]).fit(events)
    assert cut.covariance_ == "blocks" and "interrupted" in cut.covariance_reason_
    assert cut.filtered_covariances_.shape == (2, 160, 2, 2) and len(cut.history_) == 1
