"""From expected counts to probabilities, level by level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from undertow.kernels.chain.block_smoothing import (
    Smoothing,
    block_bigram,
    pair_layout,
    smooth_emission,
    smooth_low_rank_transition,
    smooth_transitions,
)
from undertow.kernels.chain.blocks import Blocks

SIZES = np.array([2, 3, 1])
BLOCKS = Blocks.of(np.array([0, 0, 1, 1, 2, -1]), SIZES)
TEXT = np.array([0, 1, 0, 0, 2, 1, 1, 0, 2])
BOUNDS = np.array([0, 4, 4, 9])


def test_pairs_do_not_cross_sequences() -> None:
    layout = pair_layout(TEXT, BOUNDS, SIZES)
    found = dict(
        zip(zip(layout.before.tolist(), layout.after.tolist(), strict=True), layout.counts.tolist(), strict=True)
    )
    assert found == {(0, 1): 1, (1, 0): 2, (0, 0): 1, (2, 1): 1, (1, 1): 1, (0, 2): 1}
    more = pair_layout(TEXT, BOUNDS, SIZES, also=np.eye(3, dtype=bool))
    assert more.counts[more.pair[2, 2]] == 0 and more.counts.sum() == layout.counts.sum()


@pytest.mark.parametrize("discount", [0.0, 0.75])
@pytest.mark.parametrize("also", [None, np.eye(3, dtype=bool)], ids=["seen", "more"])
def test_the_block_bigram_sums_to_one(discount: float, also: Any) -> None:
    layout = pair_layout(TEXT, BOUNDS, SIZES, also)
    bigram = block_bigram(layout, discount)
    whole = np.outer(bigram.reserve, bigram.lower)
    whole[layout.before, layout.after] = bigram.seen
    np.testing.assert_allclose(whole.sum(axis=1), 1, rtol=1e-12)


def by_hand(counts: Any, share: Any, s: Smoothing) -> Any:
    """The dense transition, written as the equations are."""
    layout = pair_layout(TEXT, BOUNDS, SIZES)
    bigram = block_bigram(layout)
    P = np.outer(bigram.reserve, bigram.lower)
    P[layout.before, layout.after] = bigram.seen
    first, G = BLOCKS.first, 3
    out = np.zeros((6, 6))
    for b in range(G):
        for c in range(G):
            own, other = slice(first[b], first[b + 1]), slice(first[c], first[c + 1])
            n = counts[own, other]
            mean = (n.sum(axis=0) + s.pair * share[other]) / (n.sum() + s.pair)
            for x in range(SIZES[b]):
                total = counts[first[b] + x].sum()
                to_block = (n[x].sum() + s.block * P[b, c]) / (total + s.block)
                q = (n[x] + s.state * mean) / (n[x].sum() + s.state)
                out[first[b] + x, other] = to_block * (q if layout.pair[b, c] >= 0 else share[other])
    return out


def test_transitions_back_off_as_written() -> None:
    layout = pair_layout(TEXT, BOUNDS, SIZES)
    rng = np.random.default_rng(0)
    flat = 4 * rng.random(layout.starts[-1])
    tokens = 1 + rng.random(6)
    share = tokens / np.add.reduceat(tokens, BLOCKS.first[:-1])[BLOCKS.state_block()]
    T = smooth_transitions(flat, tokens, BLOCKS, layout, block_bigram(layout), Smoothing())
    counts = T._replace(data=flat, leave=0 * T.leave).dense()
    truth = by_hand(counts, share, Smoothing())
    np.testing.assert_allclose(truth.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(T.dense(), truth, rtol=1e-5)
    ratio = smooth_transitions(flat, tokens, BLOCKS, layout, block_bigram(layout, 0.0), Smoothing().times(0))
    np.testing.assert_allclose(ratio.dense(), counts / counts.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-9)


def test_emissions_back_off_to_the_words_of_the_block() -> None:
    words = np.array([4.0, 1.0, 2.0, 2.0, 3.0, 0.0])
    counts = np.random.default_rng(1).random(BLOCKS.starts[-1])
    dense = BLOCKS.dense_emission(smooth_emission(counts, words, BLOCKS, Smoothing(word=7.0), 0.1))
    np.testing.assert_allclose(dense.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(dense[:, 5], 0.1, rtol=1e-6)
    n = BLOCKS.dense_emission(counts)
    z, w = 3, 2
    expected = 0.9 * (n[z, w] + 7.0 * 2 / 4) / (n[z, :5].sum() + 7.0)
    np.testing.assert_allclose(dense[z, w], expected, rtol=1e-6)


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_low_rank_rows_sum_to_one_though_counts_be_missing(factor: float) -> None:
    rng = np.random.default_rng(2)
    out, into = 5 * rng.random((2, 6, 3))
    out[4] = 0
    into[:, 1] = 0
    T = smooth_low_rank_transition(out, into, np.full(6, 1 / 6), BLOCKS, Smoothing().times(factor))
    np.testing.assert_allclose(T.R.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(T.ET.sum(axis=0), 1, rtol=1e-6)
    if factor == 0:
        np.testing.assert_allclose(T.R[0], out[0] / out[0].sum(), rtol=1e-6)
