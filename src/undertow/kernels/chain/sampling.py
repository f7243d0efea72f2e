"""Texts and state paths drawn from a discrete chain.

`sample` goes forward: a state, its word, the next state, each draw O(1) by alias tables once a row has been visited.
`sample_posterior` draws the states behind a given text: filter forward, then sample backward. A low-rank chain draws
the feature and then the state. The caller brings the random generator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.chain.alias import AliasRows, alias_rows, draw_row, draw_weights
from undertow.kernels.chain.band import BandComplement, BandLowRank
from undertow.kernels.chain.batched import ChainParams
from undertow.kernels.chain.inference import check_text, forward
from undertow.kernels.chain.operators import Dense, LowRank

Array = NDArray[Any]
GROUP_BYTES = 1 << 28  # of filtered posteriors that are kept together


class SamplingTables(NamedTuple):
    """Alias tables of a model: worth keeping if it is sampled from more than once.

    A state's row of `ways` ends in the diagonals of the band; what comes before is a state (dense) or a feature, whose
    own row is in `arrivals`. If `reject`, features that lead into the band are drawn again.
    """

    ways: AliasRows
    arrivals: AliasRows
    words: AliasRows
    n_diagonals: int
    reject: bool


def sampling_tables(params: ChainParams) -> SamplingTables:
    """Room for all tables; none is built yet."""
    operator, words = params.transition, alias_rows(params.emission.T)
    nothing = alias_rows(np.zeros((0, len(params.initial)), dtype=params.emission.dtype))
    if isinstance(operator, Dense):
        return SamplingTables(alias_rows(operator.T), nothing, words, 0, False)
    if isinstance(operator, LowRank):
        return SamplingTables(alias_rows(operator.R), alias_rows(operator.E), words, 0, False)
    if isinstance(operator, BandLowRank):
        ways = np.concatenate([operator.R, operator.band.T], axis=1)
        return SamplingTables(alias_rows(ways), alias_rows(operator.E), words, len(operator.band), False)
    if isinstance(operator, BandComplement):
        # R is drawn from until E leads out of the band: its row weighs what the rejected draws make of it
        ways = np.concatenate([operator.R * (operator.scale * operator.outside)[:, None], operator.band.T], axis=1)
        tables = alias_rows(ways.astype(operator.R.dtype))
        return SamplingTables(tables, alias_rows(operator.E), words, len(operator.band), True)
    raise InputError(f"no way to sample from {type(operator).__name__} is known: use Dense(operator.dense()).")


def sample(
    params: ChainParams,
    n_tokens: int,
    rng: np.random.Generator,
    *,
    prefix: Array | None = None,
    stop: int = -1,
    tables: SamplingTables | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(states, words) of at most n_tokens tokens, the last of which is the word `stop` if that was drawn.

    With a prefix (ids, −1 for missing words) the text goes on from it: the state at its end is drawn from the filtered
    posterior. A prefix that the model finds impossible is refused.
    """
    tables = sampling_tables(params) if tables is None else tables
    states, words = np.empty(n_tokens, dtype=np.int32), np.empty(n_tokens, dtype=np.int32)
    state = -1
    if prefix is not None and len(prefix):
        prefix = np.asarray(prefix)
        end = forward(prefix, [0, len(prefix)], params)  # type: ignore[arg-type]
        if len(end.impossible):
            where = int(end.impossible[0])
            raise InputError(f"the prefix is impossible: no state can emit word {int(prefix[where])} at token {where}.")
        state = int(draw_weights(end.last[0], rng.random()))
    n = _ancestral(np.asarray(params.initial), *tables[:4], tables.reject, state, stop, rng, states, words)
    return states[:n], words[:n]


@njit(cache=True, nogil=True)
def _ancestral(
    initial: Any,
    ways: Any,
    arrivals: Any,
    emission: Any,
    n_diagonals: Any,
    reject: Any,
    state: Any,
    stop: Any,
    rng: Any,
    states: Any,
    words: Any,
) -> Any:
    n_routes, half = ways.weights.shape[1] - n_diagonals, n_diagonals // 2
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
                to = draw_row(arrivals, way, rng.random())
                while reject and abs(to - state) <= half:
                    way = draw_row(ways, state, rng.random())
                    while way >= n_routes:  # features in the proportions of R alone
                        way = draw_row(ways, state, rng.random())
                    to = draw_row(arrivals, way, rng.random())
                state = to
        states[t] = state
        words[t] = draw_row(emission, state, rng.random())
        if words[t] == stop:
            return t + 1
    return len(states)


def sample_posterior(
    ids: Array,
    offsets: Array,
    params: ChainParams,
    rng: np.random.Generator,
    *,
    n_samples: int = 1,
    missing: NDArray[np.bool_] | None = None,
) -> NDArray[np.int32]:
    """State paths (n_samples, N) from p(z | sentence); −1 in sentences that no path explains."""
    ids, offsets = check_text(ids, offsets, params, missing)
    out = np.full((n_samples, len(ids)), -1, dtype=np.int32)
    Z = len(params.initial)
    most = max(1, GROUP_BYTES // (Z * params.emission.itemsize))
    start = 0
    while start < len(offsets) - 1:
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + most, side="right")) - 1)
        here = slice(int(offsets[start]), int(offsets[stop]))
        bounds = offsets[start : stop + 1] - offsets[start]
        marks = None if missing is None else missing[here]
        filtered = forward(ids[here], bounds, params, missing=marks, filtered=True).filtered
        assert filtered is not None
        if isinstance(params.transition, Dense | LowRank | BandLowRank):
            _sample_back(filtered, bounds, *_back_tables(params.transition, filtered), rng, out[:, here])
        else:
            _sample_back_by_columns(filtered, bounds, params.transition, rng, out[:, here])
        start = stop
    return out


def _back_tables(operator: Any, filtered: Array) -> tuple[Array, Array, Array, Array]:
    """R' (or T'), E, what passed the waist (N, F), and the band; without rows where the operator has none of it."""
    nothing = np.zeros((0, operator.n_states), dtype=filtered.dtype)
    if isinstance(operator, Dense):
        return np.ascontiguousarray(operator.T.T), nothing, nothing, nothing
    low_rank = operator.low_rank if isinstance(operator, BandLowRank) else operator
    band = operator.band if isinstance(operator, BandLowRank) else nothing
    return low_rank.RT, low_rank.E, filtered @ low_rank.R, band


@njit(cache=True, nogil=True)
def _sample_back(
    filtered: Any, offsets: Any, before: Any, arrivals: Any, waist: Any, band: Any, rng: Any, out: Any
) -> None:
    """z_T from the filtered posterior; then, given z_{t+1}, the way it was entered by, and the state that took it."""
    Z, F, half = filtered.shape[1], len(arrivals), len(band) // 2
    ways, weights = np.empty(F + len(band)), np.empty(Z)
    for k in range(len(out)):
        path = out[k]
        for s in range(len(offsets) - 1):
            for t in range(offsets[s + 1] - 1, offsets[s] - 1, -1):
                alpha = filtered[t]
                if t == offsets[s + 1] - 1:
                    path[t] = draw_weights(alpha, rng.random())
                    if path[t] < 0:
                        break
                    continue
                to = path[t + 1]
                column = to
                if F > 0:
                    for f in range(F):
                        ways[f] = waist[t, f] * arrivals[f, to]
                    for d in range(len(band)):
                        i = to - (d - half)
                        ways[F + d] = alpha[i] * band[d, i] if 0 <= i < Z else 0.0
                    column = draw_weights(ways, rng.random())
                if column >= F > 0:
                    path[t] = to - (column - F - half)
                else:
                    for z in range(Z):
                        weights[z] = alpha[z] * before[column, z]
                    path[t] = draw_weights(weights, rng.random())


def _sample_back_by_columns(
    filtered: Array, offsets: Array, operator: Any, rng: np.random.Generator, out: Array
) -> None:
    """For any operator: z_t is drawn from alpha_t ∘ column z_{t+1} of T, which `pull` gives."""
    for path in out:
        for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            for t in range(b - 1, a - 1, -1):
                weights = filtered[t]
                if t < b - 1:
                    unit = np.zeros((1, operator.n_states), dtype=filtered.dtype)
                    unit[0, path[t + 1]] = 1
                    weights = weights * operator.pull(unit)[0]
                path[t] = draw_weights(weights, rng.random())
                if path[t] < 0:
                    break
