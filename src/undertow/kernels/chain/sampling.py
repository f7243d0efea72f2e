"""Texts drawn from a discrete chain: a state, its word, the next state.

Each draw is O(1) by alias tables once a row has been visited. A low-rank chain draws the feature and then the state.
The caller brings the random generator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.alias import AliasRows, alias_rows, draw_row, draw_weights
from undertow.kernels.chain.band import BandLowRank
from undertow.kernels.chain.batched import ChainParams
from undertow.kernels.chain.operators import Dense, LowRank


class SamplingTables(NamedTuple):
    """Alias tables of a model: worth keeping if it is sampled from more than once.

    A state's row of `ways` ends in the diagonals of the band; what comes before is a state (dense) or a feature, whose
    own row is in `arrivals`.
    """

    ways: AliasRows
    arrivals: AliasRows
    words: AliasRows
    n_diagonals: int


def sampling_tables(params: ChainParams) -> SamplingTables:
    """Room for all tables; none is built yet."""
    operator, words = params.transition, alias_rows(params.emission.T)
    nothing = alias_rows(np.zeros((0, len(params.initial)), dtype=params.emission.dtype))
    if isinstance(operator, Dense):
        return SamplingTables(alias_rows(operator.T), nothing, words, 0)
    if isinstance(operator, LowRank):
        return SamplingTables(alias_rows(operator.R), alias_rows(operator.E), words, 0)
    if isinstance(operator, BandLowRank):
        ways = np.concatenate([operator.R, operator.band.T], axis=1)
        return SamplingTables(alias_rows(ways), alias_rows(operator.E), words, len(operator.band))
    raise InputError(f"no way to sample from {type(operator).__name__} is known: use Dense(operator.dense()).")


def sample(
    params: ChainParams,
    n_tokens: int,
    rng: np.random.Generator,
    *,
    stop: int = -1,
    tables: SamplingTables | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(states, words) of at most n_tokens tokens, the last of which is the word `stop` if that was drawn.

    A text goes on from what came before it if `initial` is the distribution of the state after that.
    """
    tables = sampling_tables(params) if tables is None else tables
    states, words = np.empty(n_tokens, dtype=np.int32), np.empty(n_tokens, dtype=np.int32)
    n = _ancestral(np.asarray(params.initial), *tables, stop, rng, states, words)
    return states[:n], words[:n]


@njit(cache=True, nogil=True)
def _ancestral(
    initial: Any,
    ways: Any,
    arrivals: Any,
    emission: Any,
    n_diagonals: Any,
    stop: Any,
    rng: Any,
    states: Any,
    words: Any,
) -> Any:
    n_routes, half = ways.weights.shape[1] - n_diagonals, n_diagonals // 2
    state = -1
    for t in range(len(states)):
        if state < 0:
            state = draw_weights(initial, rng.random())
        else:
            way = draw_row(ways, state, rng.random())
            if way >= n_routes:
                state = state + way - n_routes - half
            elif len(arrivals.weights) == 0:
                state = way
            else:
                state = draw_row(arrivals, way, rng.random())
        states[t] = state
        words[t] = draw_row(emission, state, rng.random())
        if words[t] == stop:
            return t + 1
    return len(states)
