"""The chain times the automaton, for every kind of transition, against dense products and enumerated paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hmm_models
from oracles.hmm_paths import all_paths, enumerate_joint_paths
from oracles.texts import product_acceptance
from undertow.errors import InputError
from undertow.kernels.chain import automaton
from undertow.kernels.chain.automaton import (
    Product,
    best_text,
    log_acceptance,
    look,
    look_ahead,
    next_token,
)
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.chain.operators import Dense

KINDS = ("dense", "low rank", "band", "pairs", "block low rank")
STEP = np.array([[0, 1, 3], [1, 1, 2], [2, 2, 2], [3, 3, 3]])  # class 1, then class 2: state 2; class 2 first: dead
ACCEPTING = np.array([False, False, True, False])
CLASSES = np.array([0, 1, 0, 2, 0, 0, 2, -1, 1])  # words 0 … 8, as in hmm_models.WORD_BLOCK


def random_product(kind: str, seed: int = 0, *, any_length: bool = False, end: bool = True):
    """A chain of 8 states, its dense transition and emission (V, Z), and its product with the automaton above."""
    rng = np.random.default_rng(seed)
    if kind in ("pairs", "block low rank"):
        blocks = Blocks.of(hmm_models.WORD_BLOCK, hmm_models.SIZES)
        T = (
            hmm_models.pair_sparse(rng, blocks, [(0, 1), (1, 2), (2, 2), (1, 0)])
            if kind == "pairs"
            else hmm_models.low_rank(rng, blocks)
        )
        emission = (rng.random(blocks.starts[-1]) / 9).astype(np.float32)
        dense = blocks.dense_emission(emission).T
    else:
        params = hmm_models.random_params(kind, 8, 3, 9, seed)
        T, dense = params.transition, params.emission
    emitted = np.stack([dense[c == CLASSES].sum(axis=0) for c in range(3)])
    start, last = rng.dirichlet(np.ones(8)), rng.random(8) / 2 if end else np.ones(8)
    last[0] = 1.0
    product = Product(T, emitted, STEP, ACCEPTING, last.astype(emitted.dtype), any_length)
    return product, start.astype(emitted.dtype), np.asarray(T.dense(), dtype=np.float64), dense.astype(np.float64)


def tolerance(product) -> float:
    return 3e-5 if product.emitted.dtype == np.float32 else 1e-10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("any_length", [False, True])
def test_acceptance_is_that_of_the_dense_product(kind: str, n: int, any_length: bool) -> None:
    product, start, T, _ = random_product(kind, any_length=any_length)
    expected = sum(
        product_acceptance(start, T, product.emitted, STEP, ACCEPTING, product.end, m)
        for m in (range(1, n + 1) if any_length else [n])
    )
    found = np.exp(log_acceptance(look_ahead(product, n), start))
    np.testing.assert_allclose(found, expected, rtol=tolerance(product))
    assert (found > 0) == (n > 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("any_length", [False, True])
def test_look_ahead_from_every_state(kind: str, any_length: bool) -> None:
    """β_r(q, z) is what the dense product gives from a chain that is in z after its token."""
    product, _, T, _ = random_product(kind, seed=1, any_length=any_length)
    n = 4
    table = look_ahead(product, n)
    for r in range(n):
        beta, log_scale = look(table, r, np.arange(3))
        for q, z in itertools.product(range(3), range(8)):
            if table.rows[r, q] < 0 and not (r == 0 and ACCEPTING[q]):
                continue  # not needed, or zero
            order = np.array([q, *[s for s in range(4) if s != q]])
            rank = np.argsort(order)  # the automaton that starts in q
            lengths = range(1, r + 1) if any_length else [r]
            expected = sum(
                product_acceptance(T[z], T, product.emitted, rank[STEP[order]], ACCEPTING[order], product.end, m)
                for m in lengths
                if m
            )
            if r == 0 or any_length:
                expected += ACCEPTING[q] * product.end[z]
            found = beta[q, z] * np.exp(log_scale[q])
            np.testing.assert_allclose(found, expected, rtol=tolerance(product))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_the_next_token(kind: str) -> None:
    product, start, T, _ = random_product(kind, seed=2)
    table = look_ahead(product, 4)
    states = np.arange(4)
    token = next_token(table, 3, 0, start, (*look(table, 3, states), states))
    weights = token.weights(product.emitted) * np.exp(token.log_scale)
    np.testing.assert_allclose(np.log(weights.sum()), log_acceptance(table, start), rtol=tolerance(product))
    for c, z in itertools.product(range(3), range(8)):
        alone = np.zeros((3, 8))
        alone[c, z] = product.emitted[c, z]
        after = Product(Dense(T), product.emitted.astype(float), STEP, ACCEPTING, product.end)
        order = np.array([STEP[0, c], *[s for s in range(4) if s != STEP[0, c]]])
        rank = np.argsort(order)
        expected = (
            start[z]
            * alone[c, z]
            * product_acceptance(T[z], T, after.emitted, rank[STEP[order]], ACCEPTING[order], after.end, 3)
        )
        np.testing.assert_allclose(weights[c, z], expected, rtol=tolerance(product), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("any_length", [False, True])
def test_the_best_text_by_enumeration(kind: str, any_length: bool) -> None:
    product, start, T, dense = random_product(kind, seed=3, any_length=any_length)
    n = 3
    largest = np.stack([dense[c == CLASSES].max(axis=0) for c in range(3)])
    best = (-np.inf, (), ())
    for m in range(1, n + 1) if any_length else [n]:
        for classes in itertools.product(range(3), repeat=m):
            q = 0
            for c in classes:
                q = STEP[q, c]
            if not ACCEPTING[q]:
                continue
            obs = largest[list(classes)]
            if hasattr(product.transition, "band") or not hasattr(product.transition, "R"):
                paths = all_paths(8, m)
                weight = start[paths[:, 0]] * obs[0][paths[:, 0]]
                for t in range(1, m):
                    weight = weight * T[paths[:, t - 1], paths[:, t]] * obs[t][paths[:, t]]
            else:
                paths, _, weight = enumerate_joint_paths(start, product.transition.R, product.transition.ET.T, obs)
            weight = weight * product.end[paths[:, -1]]
            at = int(np.argmax(weight))
            if np.log(weight[at]) > best[0]:
                best = (np.log(weight[at]), classes, tuple(paths[at]))
    found = best_text(product, largest.astype(product.emitted.dtype), start, n)
    np.testing.assert_allclose(found.log_prob, best[0], rtol=1e-5)
    assert (tuple(found.classes), tuple(found.states)) == best[1:]


def test_what_is_never_accepted() -> None:
    product, start, _, _ = random_product("dense")
    never = product._replace(accepting=np.zeros(4, dtype=bool))
    assert log_acceptance(look_ahead(never, 3), start) == -np.inf
    assert best_text(never, product.emitted, start, 3).classes == []


def test_many_rare_words_do_not_underflow() -> None:
    """Twelve words in order, each of probability 1e-9: 1e-108 in float32."""
    k = 12
    step = np.array([[q, min(q + 1, k)] for q in range(k + 1)])
    emitted = np.array([[1.0] * 4, [1e-9] * 4], dtype=np.float32)
    T = Dense(np.full((4, 4), 0.25, dtype=np.float32))
    product = Product(T, emitted, step, np.arange(k + 1) == k, np.ones(4, dtype=np.float32))
    found = log_acceptance(look_ahead(product, k), np.full(4, 0.25, dtype=np.float32))
    np.testing.assert_allclose(found, k * np.log(1e-9), rtol=1e-5)


# --- long texts -----------------------------------------------------------------------------------------

EVEN = (np.array([[1, 0], [0, 1]]), np.array([True, False]))  # class 0 an even number of times
FREE = (np.array([[0, 0]]), np.array([True]))  # one state: any text of these words
IN_TURN = (np.array([[1, 1], [0, 0]]), np.array([True, False]))  # an even number of words: states are possible in turn
ONCE = (np.array([[0, 1], [1, 1]]), np.array([False, True]))  # class 1 occurs


def long_product(kind: str, reads, stay: float = 0.0, rare: float = 1.0):
    """The chain of `random_product` with two classes of words; `stay` is added to the diagonal of a dense one."""
    product, start, T, _ = random_product(kind, seed=3)
    if stay:
        T = (1 - stay) * T + stay * np.eye(8)
        product = product._replace(transition=Dense(T))
    emitted = np.stack([product.emitted[0] + product.emitted[1] * (1 - rare), product.emitted[1] * rare])
    return product._replace(emitted=emitted, step=reads[0], accepting=reads[1]), start, T


def assert_same_look_ahead(product, T, n: int, far: list[int], rtol: float) -> None:
    """Weights of the next word far from the end are those of powers of the dense product."""
    table = look_ahead(product, n)
    Q = len(product.step)
    for r in far:
        states = np.flatnonzero(table.rows[r] >= 0)
        beta, log_scale = look(table, r, states)
        found = beta * np.exp(log_scale - log_scale.max())[:, None]
        expected = np.empty((len(states), 8))
        for i, q in enumerate(states.tolist()):
            order = np.array([q, *[s for s in range(Q) if s != q]])
            step = np.argsort(order)[product.step[order]]
            for z in range(8):
                emitted = product.emitted.astype(float)
                expected[i, z] = product_acceptance(T[z], T, emitted, step, product.accepting[order], product.end, r)
        np.testing.assert_allclose(found / found.max(), expected / expected.max(), rtol=rtol)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reads", [FREE, EVEN, IN_TURN, ONCE], ids=["free", "even", "in turn", "once"])
def test_look_ahead_far_from_the_end(kind: str, reads) -> None:
    product, start, T = long_product(kind, reads)
    assert_same_look_ahead(product, T, 200, [15, 16, 17, 40, 65, 128, 198, 199], 30 * tolerance(product))
    expected = product_acceptance(start, T, product.emitted.astype(float), *reads, product.end, 200)
    found = log_acceptance(look_ahead(product, 200), start)
    np.testing.assert_allclose(found, np.log(expected), rtol=tolerance(product))


@pytest.mark.parametrize("stay", [0.0, 0.99, 0.99999])
@pytest.mark.parametrize("rare", [1.0, 1e-5, 1e-9])
@pytest.mark.parametrize("reads", [FREE, ONCE], ids=["free", "once"])
def test_look_ahead_that_changes_slowly_is_not_taken_for_settled(stay: float, rare: float, reads) -> None:
    product, _, T = long_product("dense", reads, stay, rare)
    assert_same_look_ahead(product, T, 300, [60, 100, 299], 1e-8)


@pytest.mark.parametrize("p", [1e-2, 1e-5, 1e-8])
def test_a_rare_word_in_a_long_text(p: float) -> None:
    """All states are alike, so that rows differ in their scales only: 1 − (1 − p)^n."""
    emitted = np.array([[1 - p] * 4, [p] * 4], dtype=np.float32)
    T = Dense(np.full((4, 4), 0.25, dtype=np.float32))
    product = Product(T, emitted, *ONCE, np.ones(4, dtype=np.float32))
    for n in (20, 40, 3000):
        found = np.exp(log_acceptance(look_ahead(product, n), np.full(4, 0.25, dtype=np.float32)))
        np.testing.assert_allclose(found, -np.expm1(n * np.log1p(-p)), rtol=3e-4)


def test_far_from_the_end_the_look_ahead_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a text of 5,000 words needs as many products as one of a hundred; one that does not fit is refused."""
    product, _, _ = long_product("pairs", FREE)
    calls = []
    pull = type(product.transition).pull
    monkeypatch.setattr(type(product.transition), "pull", lambda T, m: calls.append(len(m)) or pull(T, m))
    table = look_ahead(product, 5000)
    assert len(calls) <= 64 and len(table.values) == 5000
    monkeypatch.setattr(automaton, "MAX_NUMBERS", 8 * 1100)
    assert look_ahead(product, 5000).values[4999] is not None  # it would not fit, and need not
    slow, _, _ = long_product("dense", FREE, 0.99999)
    with pytest.raises(InputError, match="does not fit into 2 GB"):
        look_ahead(slow, 5000)


def test_how_far_it_is_told() -> None:
    told: list[int] = []
    product, start, _ = long_product("dense", ONCE)
    look_ahead(product, 12, told.append)
    assert told == list(range(13))
    best_text(product, product.emitted, start, 12, told.append)
    assert told[13:] == list(range(12))
