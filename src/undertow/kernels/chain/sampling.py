"""Texts drawn from a discrete chain: a state, its word, the next state. One loop for every kind of chain.

What a chain draws from is a NamedTuple of tables, and two compiled functions chosen by its type:

    next_state(tables, state, rng)   the state after this one
    draw_word(tables, state, rng)    a word of the state, −1 if it has none

They are overloads in Numba's sense, so that the loops are compiled together. Draws are O(1) by alias tables, each built
when its row is first visited; only the state within a block of a pair-sparse chain is drawn in O(k). A low-rank chain
draws the feature and then the state. The caller brings the random generator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.alias import CELL, AliasRows, alias_rows, build_row, draw_cell, draw_row, draw_weights
from undertow.kernels.chain.band import BandLowRank
from undertow.kernels.chain.batched import ChainParams
from undertow.kernels.chain.block_operators import BlockLowRank, PairSparse
from undertow.kernels.chain.blocks import Blocks, offsets
from undertow.kernels.chain.operators import Dense, LowRank
from undertow.kernels.overloads import borrowed, implement
from undertow.kernels.types import F32, I64


def next_state(tables: Any, state: Any, rng: Any) -> Any:
    raise TypeError(f"{type(tables).__name__} is not a chain that compiled code knows")


def draw_word(tables: Any, state: Any, rng: Any) -> Any:
    raise TypeError(f"{type(tables).__name__} is not a chain that compiled code knows")


def sample(
    start: NDArray[Any], n_tokens: int, rng: np.random.Generator, tables: Any, *, stop: int = -1
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(states, words) of at most n_tokens tokens, the last of which is the word `stop` if that was drawn.

    `start` (Z,) is the distribution of the first state: after some text, what that text predicts. Tables are worth
    keeping if a model is sampled from more than once.
    """
    states, words = np.empty(n_tokens, dtype=np.int32), np.empty(n_tokens, dtype=np.int32)
    n = _ancestral(np.ascontiguousarray(start, dtype=np.float32), tables, stop, rng, states, words)
    if n < 0:
        raise InputError("the model has states that can emit no word of its training text: fit it again.")
    return states[:n], words[:n]


@njit(cache=True, nogil=True)
def _ancestral(start: Any, tables: Any, stop: Any, rng: Any, states: Any, words: Any) -> Any:
    """The number of tokens drawn, or −1 if a state has no word."""
    tables = borrowed(tables)
    state = draw_weights(start, rng.random()) if len(states) else -1
    for t in range(len(states)):
        if t > 0:
            state = next_state(tables, state, rng)
        states[t] = state
        words[t] = draw_word(tables, state, rng) if state >= 0 else -1
        if words[t] < 0:
            return -1
        if words[t] == stop:
            return t + 1
    return len(states)


# --- chains without blocks ------------------------------------------------------------------------------


class ChainTables(NamedTuple):
    """Alias tables of a chain without blocks.

    A state's row of `ways` ends in the diagonals of the band; what comes before is a state (dense) or a feature, whose
    own row is in `arrivals`.
    """

    ways: AliasRows
    arrivals: AliasRows
    words: AliasRows
    n_diagonals: int


def chain_tables(params: ChainParams) -> ChainTables:
    """Tables of a model; rows are built when first visited."""
    operator, words = params.transition, alias_rows(params.emission.T)
    nothing = alias_rows(np.zeros((0, len(params.initial)), dtype=params.emission.dtype))
    if isinstance(operator, Dense):
        return ChainTables(alias_rows(operator.T), nothing, words, 0)
    if isinstance(operator, LowRank):
        return ChainTables(alias_rows(operator.R), alias_rows(operator.E), words, 0)
    if isinstance(operator, BandLowRank):
        ways = np.concatenate([operator.R, operator.band.T], axis=1)
        return ChainTables(alias_rows(ways), alias_rows(operator.E), words, len(operator.band))
    raise InputError(f"{type(operator).__name__} cannot be sampled from: use Dense(operator.dense()).")


def _chain_step(tables: Any, state: Any, rng: Any) -> Any:
    n_routes, half = tables.ways.n - tables.n_diagonals, tables.n_diagonals // 2
    way = draw_row(tables.ways, state, rng.random())
    if way >= n_routes:
        return state + way - n_routes - half
    if len(tables.arrivals.weights) == 0:
        return way
    return draw_row(tables.arrivals, way, rng.random())


def _chain_word(tables: Any, state: Any, rng: Any) -> Any:
    return draw_row(tables.words, state, rng.random())


implement(ChainTables, {next_state: _chain_step, draw_word: _chain_word})


# --- chains with blocks ---------------------------------------------------------------------------------


class WordTables(NamedTuple):
    """Alias tables of the words of each state, one state after the other."""

    blocks: Blocks
    emission: F32
    words: I64  # words of the blocks, one block after the other
    word_starts: I64  # (G + 1,) where those of a block begin
    block: I64  # (Z,) of each state
    starts: I64  # (Z + 1,) where the table of a state begins
    cells: NDArray[Any]  # CELL


class PairTables(NamedTuple):
    """What a pair-sparse chain is drawn from: `ways` leads from a state to a block."""

    T: PairSparse
    ways: AliasRows
    words: WordTables


class FeatureTables(NamedTuple):
    """What a block chain of low rank is drawn from: `ways` leads from a state to a feature, `arrivals` to a state."""

    ways: AliasRows
    arrivals: AliasRows
    words: WordTables


def block_tables(
    blocks: Blocks,
    T: PairSparse | BlockLowRank,
    emission: F32,
    drawable: NDArray[np.bool_],
    masses: F32 | None = None,
) -> PairTables | FeatureTables:
    """Tables of a model; rows are built when first visited. `drawable` (V,) marks the words that may be drawn.

    `masses` are T.block_masses() if they are known already.
    """
    known = np.flatnonzero((blocks.word_block >= 0) & drawable)
    of_block = blocks.word_block[known]
    sizes, block = np.bincount(of_block, minlength=blocks.n_blocks), blocks.state_block()
    starts = offsets(sizes[block])
    words = WordTables(
        blocks,
        emission,
        known[np.argsort(of_block, kind="stable")],
        offsets(sizes),
        block,
        starts,
        np.zeros(starts[-1], dtype=CELL),
    )
    if isinstance(T, PairSparse):
        return PairTables(T, alias_rows(T.block_masses() if masses is None else masses), words)
    return FeatureTables(alias_rows(T.R), alias_rows(np.ascontiguousarray(T.ET.T)), words)


def _pair_step(tables: Any, state: Any, rng: Any) -> Any:
    T = tables.T
    i, j = tables.words.block[state], draw_row(tables.ways, state, rng.random())
    k, p = T.first[j + 1] - T.first[j], T.pair[i, j]
    if p < 0:
        within = T.arrive[T.first[j] : T.first[j] + k]
    else:
        e = T.starts[p] + (state - T.first[i]) * k
        within = T.data[e : e + k]
    return T.first[j] + draw_weights(within, rng.random())


def _feature_step(tables: Any, state: Any, rng: Any) -> Any:
    return draw_row(tables.arrivals, draw_row(tables.ways, state, rng.random()), rng.random())


def _block_word(tables: Any, state: Any, rng: Any) -> Any:
    words, u = tables.words, rng.random()
    begin, n = words.starts[state], words.starts[state + 1] - words.starts[state]
    if n == 0 or (words.cells[begin].other == 0 and not _build_words(words, state)):
        return np.int64(-1)
    i = draw_cell(words.cells, begin, n, u)
    return words.words[words.word_starts[words.block[state]] + i]


@njit(cache=True, nogil=True)
def _build_words(words: Any, state: Any) -> Any:
    """Build the table of a state; False if it has no word of positive probability."""
    begin, end, block = words.starts[state], words.starts[state + 1], words.block[state]
    at = words.word_starts[block]
    weights = np.empty(end - begin)
    for i in range(end - begin):
        start = words.blocks.starts[words.words[at + i]]
        weights[i] = words.emission[start + state - words.blocks.first[block]]
    if not weights.sum() > 0:
        return False
    build_row(weights, words.cells[begin:end])
    return True


implement(PairTables, {next_state: _pair_step, draw_word: _block_word})
implement(FeatureTables, {next_state: _feature_step, draw_word: _block_word})
