"""Choosing parameters by held-out text."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from undertow import HMM, LDS, Corpus, FactorialHMM, Grammar, WordClusters, select
from undertow.errors import InputError
from undertow.models.fitting import InterruptedFitWarning, split_text

RNG = np.random.default_rng(0)
TEXT = [[str(w) for w in RNG.permutation(["a", "b"])] + ["c", "d", "e"] * int(RNG.integers(1, 4)) for _ in range(60)]
CORPUS = Corpus.from_sentences(TEXT)


def hmm(**params) -> HMM:
    return HMM(**({"n_states": 2, "n_iter": 4, "random_state": 0} | params))


def test_each_candidate_is_what_a_fit_by_hand_gives() -> None:
    model = hmm()
    found = select(model, iter(TEXT), {"n_states": [1, 4, 2], "smoothing": [1.0, 0.1]}, validation=0.2)
    part, other = split_text(CORPUS, 0.2, None)
    assert other is not None
    by_hand = [
        ({"n_states": z, "smoothing": s}, hmm(n_states=z, smoothing=s).fit(part).perplexity(other))
        for z in (1, 4, 2)
        for s in (1.0, 0.1)
    ]
    assert [(row.params, row.perplexity) for row in found.table] == by_hand
    assert all(row.seconds > 0 for row in found.table)
    best = min(by_hand, key=lambda row: row[1])
    assert found.best_params == best[0] and found.best_model.perplexity(other) == best[1]
    assert found.best_model.vocabulary_.words == CORPUS.vocabulary.words
    assert found.best_model.vocabulary_.counts.sum() == part.n_tokens
    assert found.curve("n_states") == [(z, min(p for q, p in by_hand if q["n_states"] == z)) for z in (1, 4, 2)]
    assert not model.__sklearn_is_fitted__() and model.n_states == 2


def test_refit_reads_all_of_the_text() -> None:
    found = select(hmm(), CORPUS, {"n_states": [1, 3]}, validation=0.2, refit=True)
    assert found.best_model.history_ == hmm(**found.best_params).fit(CORPUS).history_


def test_other_text_can_be_held_out() -> None:
    other = [["a", "c", "unseen"], ["b", "c", "d"]]
    found = select(hmm(), CORPUS, [{"n_states": 3}], validation=other, refit=True)
    assert found.table[0].perplexity == hmm(n_states=3).fit(CORPUS).perplexity(other)


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (LDS(n_iter=1, random_state=0), {"n_components": [1, 2]}),
        (FactorialHMM(1, n_iter=1, random_state=0), {"n_states": [2, 3]}),
        (Grammar(n_nonterminals=2, n_preterminals=3, n_iter=1, random_state=0), {"n_nonterminals": [2, 3]}),
    ],
    ids=["lds", "fhmm", "grammar"],
)
def test_other_models_with_a_perplexity(model, grid) -> None:
    found = select(model, CORPUS, grid, validation=0.2)
    assert len(found.table) == 2 and all(1 < row.perplexity < 100 for row in found.table)
    assert type(found.best_model) is type(model)


def test_the_table_reads_well(caplog) -> None:
    with caplog.at_level(logging.INFO, logger="undertow"):
        found = select(hmm(), CORPUS, [{"n_states": 1}, {"n_states": 3, "rank": 2}], validation=0.2)
    lines = repr(found).split("\n")
    assert lines[0].split() == ["n_states", "rank", "held-out", "perplexity", "seconds"]
    assert [line.endswith("best") for line in lines[1:]] == [row.params == found.best_params for row in found.table]
    assert f"{found.table[1].perplexity:,.2f}" in lines[2]
    assert [m for m in caplog.messages if m.startswith("candidate 2 of 2: n_states=3, rank=2: held-out perplexity")]


def test_a_probability_of_zero_loses() -> None:
    text = [*TEXT, ["never", "a"]]  # the end has a word that maximum likelihood cannot emit
    with pytest.warns(UserWarning, match="'never' probability zero"):
        found = select(hmm(), text, {"smoothing": [0.0, 1.0]}, validation=0.01)
    assert math.isinf(found.table[0].perplexity) and found.best_params == {"smoothing": 1.0}


def interrupting(after: int):
    """A callback that presses Ctrl-C at its n-th call."""
    calls = []

    def callback(event) -> None:
        calls.append(event)
        if len(calls) == after:
            raise KeyboardInterrupt

    return callback


@pytest.mark.filterwarnings("ignore::undertow.models.fitting.InterruptedFitWarning")
def test_ctrl_c_before_the_first_candidate_is_finished_is_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        select(hmm(callbacks=[interrupting(2)]), CORPUS, {"n_states": [1, 2]}, validation=0.2)


def test_ctrl_c_keeps_the_finished_candidates() -> None:
    with pytest.warns(InterruptedFitWarning, match="after 1 of 3 candidates"):
        found = select(hmm(callbacks=[interrupting(6)]), CORPUS, {"n_states": [1, 2, 3]}, validation=0.2)
    assert [row.params for row in found.table] == [{"n_states": 1}] and found.best_params == {"n_states": 1}
    assert len(found.best_model.history_) == 4 and repr(found).endswith("interrupted: 1 of 3 candidates")


def test_ctrl_c_while_refitting_keeps_the_search() -> None:
    with pytest.warns(InterruptedFitWarning, match="after 2 of 2 candidates"):
        found = select(hmm(callbacks=[interrupting(10)]), CORPUS, {"n_states": [1, 3]}, validation=0.2, refit=True)
    assert len(found.table) == 2 and len(found.best_model.history_) == 4


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "empty"),
        ([{}], "empty"),
        ({"n_states": []}, "empty"),
        ({"n_states": 4}, r"grid\['n_states'\] must be a list"),
        ({"init": "random"}, r"grid\['init'\] must be a list"),
        ("n_states", "grid must map"),
        ({"states": [1, 2]}, "no parameter 'states'"),
        ({"n_states": [2, 0]}, "candidate n_states=0 is invalid"),
    ],
)
def test_a_wrong_grid_is_refused_before_any_fit(grid, message) -> None:
    with pytest.raises(InputError, match=message):
        select(hmm(callbacks=[lambda event: pytest.fail("fitted")]), CORPUS, grid)


def test_wrong_models_and_shares_are_refused() -> None:
    with pytest.raises(InputError, match="WordClusters has none"):
        select(WordClusters(2), CORPUS, {"n_clusters": [2]})
    for wrong, message in ((0.0, "share between 0 and 1"), (1.5, "share between"), (None, "needs held-out text")):
        with pytest.raises(InputError, match=message):
            select(hmm(), CORPUS, {"n_states": [1]}, validation=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'rank' was not tried"):
        select(hmm(), CORPUS, {"n_states": [1]}, validation=0.2).curve("rank")
