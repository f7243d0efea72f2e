"""Texts drawn from a chain with blocks: the next block or feature, the next state, one of its words.

Blocks, features and words are drawn by alias tables, each built when its state is first visited; the state within a
block is drawn in O(k). The caller brings the random generator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.alias import AliasRows, alias_rows, build_row, draw_alias, draw_row, draw_weights
from undertow.kernels.chain.block_operators import BlockLowRank, Blocks, PairSparse, offsets
from undertow.kernels.types import F32, I64


class WordTables(NamedTuple):
    """Alias tables of the words of each state, one state behind the other; `built` says which are ready."""

    words: I64  # words of the blocks, one block behind the other
    word_starts: I64  # (G + 1,) where those of a block begin
    block: I64  # (Z,) of each state
    starts: I64  # (Z + 1,) where the table of a state begins
    threshold: NDArray[np.float32]
    other: NDArray[np.int32]
    built: NDArray[np.bool_]


class BlockTables(NamedTuple):
    """All that sampling keeps: worth keeping if a model is sampled from more than once.

    `ways` leads from a state to a block (pairs) or to a feature, whose own row is in `arrivals`.
    """

    ways: AliasRows
    arrivals: AliasRows
    words: WordTables


def block_tables(
    blocks: Blocks, T: PairSparse | BlockLowRank, drawable: NDArray[np.bool_], masses: F32 | None = None
) -> BlockTables:
    """Room for all tables; none is built yet. `drawable` (V,) marks the words that may be drawn.

    `masses` are T.block_masses() if they are known already.
    """
    if isinstance(T, PairSparse):
        ways = alias_rows(T.block_masses() if masses is None else masses)
        arrivals = alias_rows(np.zeros((0, T.n_states), dtype=np.float32))
    else:
        ways, arrivals = alias_rows(T.R), alias_rows(np.ascontiguousarray(T.ET.T))
    known = np.flatnonzero((blocks.word_block >= 0) & drawable)
    of_block = blocks.word_block[known]
    sizes, block = np.bincount(of_block, minlength=blocks.n_blocks), blocks.state_block()
    starts = offsets(sizes[block])
    words = WordTables(
        known[np.argsort(of_block, kind="stable")],
        offsets(sizes),
        block,
        starts,
        np.empty(starts[-1], dtype=np.float32),
        np.empty(starts[-1], dtype=np.int32),
        np.zeros(blocks.n_states, dtype=np.bool_),
    )
    return BlockTables(ways, arrivals, words)


def sample_blocks(
    start: NDArray[Any],
    n_tokens: int,
    rng: np.random.Generator,
    blocks: Blocks,
    T: PairSparse | BlockLowRank,
    emission: F32,
    tables: BlockTables,
    *,
    stop: int = -1,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(states, words) of at most n_tokens tokens, the last of which is the word `stop` if that was drawn.

    `start` (Z,) is the distribution of the first state.
    """
    states, words = np.empty(n_tokens, dtype=np.int32), np.empty(n_tokens, dtype=np.int32)
    weights = np.ascontiguousarray(start, dtype=np.float32)
    emit = (blocks, emission, tables.words)
    if isinstance(T, PairSparse):
        n = _sample_pairs(weights, T, tables.ways, *emit, stop, rng, states, words)
    else:
        n = _sample_low_rank(weights, tables.ways, tables.arrivals, *emit, stop, rng, states, words)
    if n < 0:
        raise InputError("the model has states that can emit no word of its training text: fit it again.")
    return states[:n], words[:n]


@njit(cache=True, nogil=True)
def _draw_word(B: Any, emission: Any, tables: Any, state: int, u: float) -> Any:
    """A word of the state, whose table is built if this is its first one; −1 if it has none."""
    begin, end, block = tables.starts[state], tables.starts[state + 1], tables.block[state]
    at = tables.word_starts[block]
    if not tables.built[state]:
        weights = np.empty(end - begin)
        for i in range(end - begin):
            weights[i] = emission[B.starts[tables.words[at + i]] + state - B.first[block]]
        if not weights.sum() > 0:
            return -1
        build_row(weights, tables.threshold[begin:end], tables.other[begin:end])
        tables.built[state] = True
    return tables.words[at + draw_alias(tables.threshold[begin:end], tables.other[begin:end], u)]


@njit(cache=True, nogil=True)
def _sample_pairs(
    start: Any, T: Any, ways: Any, B: Any, emission: Any, tables: Any, stop: Any, rng: Any, states: Any, words: Any
) -> int:
    """The number of tokens drawn, or −1 if a state has no word."""
    state = -1
    for t in range(len(states)):
        if state < 0:
            state = draw_weights(start, rng.random())
        else:
            i, j = tables.block[state], draw_row(ways, state, rng.random())
            k, p = T.first[j + 1] - T.first[j], T.pair[i, j]
            if p < 0:
                within = T.arrive[T.first[j] : T.first[j] + k]
            else:
                e = T.starts[p] + (state - T.first[i]) * k
                within = T.data[e : e + k]
            state = T.first[j] + draw_weights(within, rng.random())
        states[t] = state
        words[t] = _draw_word(B, emission, tables, state, rng.random()) if state >= 0 else -1
        if words[t] < 0:
            return -1
        if words[t] == stop:
            return t + 1
    return len(states)


@njit(cache=True, nogil=True)
def _sample_low_rank(
    start: Any,
    ways: Any,
    arrivals: Any,
    B: Any,
    emission: Any,
    tables: Any,
    stop: Any,
    rng: Any,
    states: Any,
    words: Any,
) -> int:
    """The number of tokens drawn, or −1 if a state has no word."""
    state = -1
    for t in range(len(states)):
        if state < 0:
            state = draw_weights(start, rng.random())
        else:
            state = draw_row(arrivals, draw_row(ways, state, rng.random()), rng.random())
        states[t] = state
        words[t] = _draw_word(B, emission, tables, state, rng.random()) if state >= 0 else -1
        if words[t] < 0:
            return -1
        if words[t] == stop:
            return t + 1
    return len(states)
