"""Diagnostics of a fitted HMM against the dense formulas."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from hmm_models import low_rank, pair_sparse, random_operator
from oracles import diagnosis_dense as oracle
from tiny_hmms import dense, forms, made
from undertow import HMM
from undertow.errors import InputError
from undertow.kernels.chain.blocks import Blocks
from undertow.models.hmm import diagnose as module
from undertow.models.hmm.diagnose import transition_rank


@forms
def test_every_form_agrees_with_the_dense_formulas(form: str) -> None:
    model = made(form)
    _, T, E = dense(model)
    found, shares = model.diagnose(), oracle.stationary(T)
    np.testing.assert_allclose(found.state_shares, shares, rtol=1e-3, atol=1e-5)  # the power method ends at 1e-5
    assert found.transition.entropy == pytest.approx(oracle.mean_row_entropy(T, shares), rel=1e-4)
    assert found.emission.entropy == pytest.approx(oracle.mean_row_entropy(E, shares), rel=1e-4)
    assert found.transition.perplexity == pytest.approx(math.exp(found.transition.entropy), rel=1e-12)
    assert found.transition.standard_error == found.emission.standard_error == 0
    assert found.effective_rank.value == pytest.approx(oracle.effective_rank(T), rel=1e-5)
    assert found.effective_rank.method == "exact"
    assert found.effective_states == pytest.approx(math.exp(oracle.entropy(shares)), rel=1e-4)


def test_the_blocks_cover_the_text() -> None:
    model = made("blocks")
    found, _, E = model.diagnose(), *dense(model)[1:]
    counts, first = model.vocabulary_.counts, 0
    for b in found.blocks:
        states = slice(first, first + b.states)
        seen = np.flatnonzero((E[states] > 0).any(axis=0) & (counts > 0))
        assert b.words == len(seen) and b.token_share == pytest.approx(counts[seen].sum() / counts.sum(), rel=1e-12)
        own = found.state_shares[states] / found.state_shares[states].sum()
        assert b.effective_states == pytest.approx(math.exp(oracle.entropy(own)), rel=1e-5)
        first += b.states
    assert first == 6 and sum(b.token_share for b in found.blocks) == pytest.approx(1, rel=1e-12)
    assert made("dense").diagnose().blocks == []


def test_states_below_a_part_of_an_even_share_are_unused() -> None:
    model = made("dense")
    shares = np.sort(model.diagnose().state_shares.astype(float))
    between = 4 * (shares[0] + shares[1]) / 2
    found = model.diagnose(unused=between)
    assert found.unused_states == 1 and found.unused_below == pytest.approx(between / 4, rel=1e-12)
    assert model.diagnose(unused=0).unused_states == 0
    for wrong in (-0.1, math.nan, math.inf, "1", True):
        with pytest.raises(InputError, match=r"unused=.* at least 0"):
            model.diagnose(unused=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["pairs", "dense", "band"])
def test_an_estimated_rank_is_near_the_exact_one(kind: str, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    if kind == "pairs":
        blocks = Blocks.of(np.arange(10), np.full(10, 30))
        T = pair_sparse(rng, blocks, [(b, (b + d) % 10) for b in range(10) for d in (0, 3)])
    else:
        T = random_operator(kind, 300, 20, rng, np.float32, half_width=4)
    exact = transition_rank(T, rng)
    monkeypatch.setattr(module, "EXACT_STATES", 100)
    found = transition_rank(T, rng)
    assert found.method == "estimated" and found.error > 0
    assert abs(found.value - exact.value) < 4 * found.error
    assert found.error < 0.1 * exact.value


def test_a_low_rank_is_exact_at_any_size(monkeypatch) -> None:
    monkeypatch.setattr(module, "EXACT_STATES", 2)
    T = low_rank(np.random.default_rng(0), Blocks.of(np.arange(3), np.array([4, 3, 5])))
    found = transition_rank(T, np.random.default_rng(0))
    assert found == (pytest.approx(oracle.effective_rank(T.dense()), rel=1e-5), "exact", 0.0)


def test_a_space_that_lanczos_exhausts_is_no_error(monkeypatch) -> None:
    monkeypatch.setattr(module, "EXACT_STATES", 2)
    T = random_operator("dense", 60, 0, np.random.default_rng(0), np.float32)
    T = type(T)(np.repeat(T.T[:3], 20, axis=0))  # three different rows
    found = transition_rank(T, np.random.default_rng(0))
    assert found.value == pytest.approx(oracle.effective_rank(T.T), rel=0.5) and math.isfinite(found.error)


def test_a_sample_of_rows_has_the_mean_of_all(monkeypatch) -> None:
    model = made("blocks")
    exact = model.diagnose().transition
    monkeypatch.setattr(module, "MOST_ENTRIES", 6 * 4)  # four rows
    one = model.diagnose().transition
    assert one.standard_error > 0 and abs(one.entropy - exact.entropy) < 6 * one.standard_error
    shares = np.asarray(model.diagnose().state_shares, dtype=float)
    rng = np.random.default_rng(0)
    draws = [module._transition_spread(model.params_.transition, shares / shares.sum(), rng) for _ in range(300)]
    errors = [d.standard_error for d in draws]
    assert np.mean([d.entropy for d in draws]) == pytest.approx(exact.entropy, abs=4 * np.mean(errors) / math.sqrt(300))


def test_it_reads_well_and_fits_json() -> None:
    found = made("blocks").diagnose()
    shown = repr(found)
    assert "Diagnosis of 6 states" in shown and f"{found.effective_rank.value:,.1f} of 6" in shown
    assert len(shown.split("\n")) == 1 + len(found.facts()) + 1 + 3  # head, facts, and a row for each block
    facts = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert facts["transition"]["entropy"] == found.transition.entropy and len(facts["blocks"]) == 3
    assert "state_shares" not in facts


def test_a_chain_of_one_state_and_a_permutation_are_the_extremes() -> None:
    assert made("dense", n_states=1).diagnose().effective_rank.value == pytest.approx(1, rel=1e-6)
    cycle = HMM(2, n_iter=60, smoothing=0, random_state=0).fit([["a", "b"] * 20])
    found = cycle.diagnose()
    assert found.effective_rank.value == pytest.approx(2, rel=1e-2) and found.transition.perplexity < 1.1
