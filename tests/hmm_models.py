"""Small random chains for the tests of everything that has to do with hidden Markov models."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.kernels.chain.band import BandLowRank
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks, offsets
from undertow.kernels.chain.inference import ChainParams
from undertow.kernels.chain.operators import Dense, LowRank
from undertow.kernels.chain.smoothing import smoothed_columns, smoothed_rows

WORD_BLOCK = np.array([0, 0, 1, 1, 1, 2, 2, 0, -1])
SIZES = np.array([2, 5, 1])
OPERATORS = ("dense", "low rank", "band")


def dense_to_band(matrix: Any, half_width: int) -> Any:
    """The entries with |i − j| < half_width of a (Z, Z) matrix, by diagonals."""
    Z = len(matrix)
    out = np.zeros((2 * half_width - 1, Z), dtype=matrix.dtype)
    for d in range(len(out)):
        i = np.arange(max(0, half_width - 1 - d), min(Z, Z + half_width - 1 - d))
        out[d, i] = matrix[i, i + d - half_width + 1]
    return out


def random_operator(kind, Z, F, rng, dtype=np.float64, half_width=2):
    rows = lambda n, m: rng.dirichlet(np.full(m, 0.7), size=n)  # noqa: E731
    if kind == "dense":
        return Dense(rows(Z, Z).astype(dtype))
    if kind == "low rank":
        return LowRank(rows(Z, F).astype(dtype), rows(F, Z).astype(dtype))
    both = rng.random(Z)[:, None]
    band = dense_to_band(rng.random((Z, Z)), half_width)
    band *= (1 - both[:, 0]) / band.sum(axis=0)
    return BandLowRank((both * rows(Z, F)).astype(dtype), rows(F, Z).astype(dtype), band.astype(dtype))


def random_params(kind, Z, F, V, seed, dtype=np.float64, half_width=2):
    rng = np.random.default_rng(seed)
    emission = np.ascontiguousarray(rng.dirichlet(np.full(V, 0.5), size=Z).T)
    initial = rng.dirichlet(np.ones(Z))
    operator = random_operator(kind, Z, F, rng, dtype, half_width)
    return ChainParams(initial.astype(dtype), operator, emission.astype(dtype))


def m_step(
    stats: Any,
    params: ChainParams,
    initial_strength: float = 0.0,
    transition_strength: float = 0.0,
    emission_strength: float = 0.0,
    emission_mean: Any = None,
) -> ChainParams:
    """Most likely parameters given expected counts, each row with so many pseudo-counts at its prior mean."""
    dtype = params.emission.dtype
    return ChainParams(
        smoothed_rows(stats.initial[None, :], initial_strength, dtype=dtype)[0],
        params.transition.m_step(stats.transition, transition_strength),
        smoothed_columns(stats.emission, emission_strength, emission_mean, dtype=dtype),
    )


def bounds(lengths):
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def observations(params, ids):
    """(T, Z) likelihoods; a missing token (−1) is a row of ones."""
    rows = np.ones((len(ids), params.emission.shape[1]))
    seen = np.asarray(ids) >= 0
    rows[seen] = params.emission[np.asarray(ids)[seen]]
    return rows


def blocks_and_emission(rng: Any, word_block: Any = WORD_BLOCK, sizes: Any = SIZES) -> tuple[Blocks, Any, Any]:
    blocks = Blocks.of(word_block, sizes)
    emission = rng.random(blocks.starts[-1]).astype(np.float32)
    initial = rng.random(blocks.n_states).astype(np.float32)
    return blocks, emission / 4, initial / initial.sum()


def pair_sparse(rng: Any, blocks: Blocks, seen: list[tuple[int, int]]) -> PairSparse:
    G, Z = blocks.n_blocks, blocks.n_states
    pair = np.full((G, G), -1, dtype=np.int32)
    for p, (b, b_next) in enumerate(seen):
        pair[b, b_next] = p
    starts = offsets([blocks.sizes[b] * blocks.sizes[c] for b, c in seen])
    parts = [rng.random(n).astype(np.float32) for n in (int(starts[-1]), Z, Z)]
    raw = PairSparse(blocks.first, pair, starts, *parts)
    rows = raw.dense().sum(axis=1)
    data = raw.data.copy()
    for p, (b, c) in enumerate(seen):
        data[starts[p] : starts[p + 1]] /= np.repeat(rows[blocks.first[b] : blocks.first[b + 1]], blocks.sizes[c])
    return raw._replace(data=data, leave=raw.leave / rows)


def low_rank(rng: Any, blocks: Blocks, F: int = 3) -> BlockLowRank:
    R, ET = rng.random((2, blocks.n_states, F)).astype(np.float32)
    return BlockLowRank(blocks.first, R / R.sum(axis=1, keepdims=True), ET / ET.sum(axis=0))
