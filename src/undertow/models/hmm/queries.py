"""Queries on a fitted hidden Markov model: words, transitions, samples, states and features."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.kernels.chain import sparse as block_chain
from undertow.kernels.chain.block_operators import PairSparse
from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.chain.sampling import sample
from undertow.kernels.chain.sparse import BlockPosterior
from undertow.kernels.types import F32, F64, I64
from undertow.models.hmm.params import BlockParams, Params

STEPS = 60  # of the power method, at most; text forgets within far fewer
SETTLED = 1e-5  # the power method ends when a step moves no more probability than this
PERIODIC_AFTER = 15  # steps without settling: the chain may have a period, and half steps still converge
LUMPED_STEPS = 100  # of the chain of blocks, which are cheap
FIRST_PLACES = 4096  # pairs of a state and a block with the largest bounds, which set the threshold for all others
BATCH_ENTRIES = 1 << 21  # entries of the transition that are computed together: never Z×Z
LEAST_SHARE = 1e-3  # of a state that a word needs to characterize it


class Derived:
    """Tables computed from the parameters when a query first needs them; they are not saved."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self._sampling: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Derived, (self.params,)  # copies and pickles make their own

    @cached_property
    def block_masses(self) -> F32 | None:
        """(Z, G) probability of the next token's block given the state, where the transition has pairs of blocks."""
        T = self.params.transition
        return T.block_masses() if isinstance(T, PairSparse) else None

    @cached_property
    def profile(self) -> F32:
        """(Z, d) a short description of each state by the next token: p(feature | z), or p(next block | z)."""
        T: Any = self.params.transition
        if self.block_masses is not None:
            return self.block_masses
        return np.asarray(T.R if hasattr(T, "R") else T.dense())

    @cached_property
    def state_shares(self) -> F32:
        return state_shares(self.params, self.block_masses)

    def sampling_tables(self, drawable: NDArray[np.bool_]) -> Any:
        """Alias tables for sampling; `drawable` marks the words of the training text, and no others are drawn."""
        if self._sampling is None:
            self._sampling = self.params.sampling_tables(drawable, self.block_masses)
        return self._sampling


def state_shares(params: Params, block_masses: F32 | None = None) -> F32:
    """(Z,) how often each state comes in a long text: the stationary distribution of the transition.

    The power method; with blocks, the chain of blocks is brought to rest before every step on all states (iterative
    aggregation and disaggregation), which needs 5 steps instead of 20.
    """
    p = np.asarray(params.initial, dtype=np.float32)
    for step in range(STEPS):
        if block_masses is not None and isinstance(params, BlockParams):
            p = _with_blocks_at_rest(p, params.blocks, block_masses)
        moved = params.transition.push(p[None, :])[0] - p
        p = p + (moved if step < PERIODIC_AFTER else moved / 2)
        p = np.ascontiguousarray(p / p.sum(), dtype=np.float32)
        if np.abs(moved).sum() < SETTLED:
            break
    return p


def _with_blocks_at_rest(p: F32, blocks: Blocks, block_masses: F32) -> F32:
    """p with the same shares within blocks, the blocks at the stationary distribution of the chain between them."""
    edges, of_state = blocks.first[:-1], blocks.state_block()
    mass = np.add.reduceat(p.astype(np.float64), edges)
    within = p / np.where(mass > 0, mass, 1)[of_state]
    steps = np.add.reduceat(within.astype(np.float32)[:, None] * block_masses, edges, axis=0).astype(np.float64)
    for _ in range(LUMPED_STEPS):
        mass = (mass + mass @ steps) / 2
        mass /= mass.sum()
    return np.asarray(within * mass[of_state], dtype=np.float32)


def typical_transitions(derived: Derived, n: int) -> list[tuple[float, int, int]]:
    """The n most informative transitions (T(z, z'), z, z'), by p(z) T(z, z') log T(z, z')/p(z').

    T(z, z') is at most the probability of the block of z', so that few pairs of a state and a block must be computed.
    """
    share, masses = derived.state_shares.astype(np.float64), derived.block_masses
    longest = 1e-3 - np.log(share[share > 0].min())  # log T(z, z')/p(z') is no larger
    bound = (share * longest)[:, None] * (1.0 if masses is None else masses)
    width = derived.params.n_states // bound.shape[1] + 1
    batch = max(1, BATCH_ENTRIES // width)
    best: Any = None

    def examine(places: NDArray[Any]) -> None:
        nonlocal best
        for start in range(0, len(places), batch):
            z, block = np.divmod(places[start : start + batch], bound.shape[1])
            found = _information(derived.params, share, z, block)
            both = found if best is None else tuple(np.concatenate(x) for x in zip(best, found, strict=True))
            top = both[0] >= np.partition(both[0], -n)[-n] if n < len(both[0]) else slice(None)
            best = tuple(x[top] for x in both)

    if n < 1:
        return []
    flat, n_first = bound.ravel(), max(n, FIRST_PLACES)
    first = np.argpartition(-flat, n_first)[:n_first] if n_first < len(flat) else np.arange(len(flat))
    examine(first)
    least = best[0].min() if len(best[0]) >= n else -np.inf
    rest = flat >= least
    rest[first] = False
    examine(np.flatnonzero(rest))
    information, strength, z, z_next = best
    order = np.lexsort((z_next, z, -information))[:n]
    return [(float(strength[i]), int(z[i]), int(z_next[i])) for i in order]


def _information(params: Params, share: F64, z: I64, block: I64) -> tuple[NDArray[Any], ...]:
    """(information, T(z, z'), z, z') of the transitions from states z, into the given blocks if T has pairs."""
    T: Any = params.transition
    if isinstance(T, PairSparse):
        i, z_next, strength = T.into_block(z, block)
        z = z[i]
    else:
        rows = T.rows(z)
        strength, z_next = rows.ravel(), np.tile(np.arange(params.n_states), len(z))
        z = np.repeat(z, params.n_states)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = share[z] * strength * np.log(strength / share[z_next])
    return np.where(np.isfinite(information), information, 0.0), strength, z, z_next


def relevant_words(
    params: Params, state: int, n: int, frequencies: NDArray[Any], relevance: float
) -> list[tuple[int, float]]:
    """(word, p(word | state)) by λ log p(w|z) + (1 − λ) log p(w|z)/p(w) (Sievert and Shirley).

    Words with less than a thousandth of the state come behind all others: smoothing gives each word of a block a
    little, and relevance would rank the rarest of them high.
    """
    words, p = params.emission_of(state)
    kept = (p > 0) & (frequencies[words] > 0)
    words, p = words[kept], p[kept].astype(np.float64)
    score = np.log(p) - (1 - relevance) * np.log(frequencies[words] / frequencies.sum())
    order = np.lexsort((-score, p < LEAST_SHARE))[:n]
    return [(int(words[i]), float(p[i])) for i in order]


def states_of_words(derived: Derived, words: NDArray[Any]) -> BlockPosterior:
    """p(state | word) of words without context, over their live states: p(word | state) times the state's share."""
    params, shares = derived.params, derived.state_shares
    if isinstance(params, BlockParams):
        anywhere: Params = params._replace(initial=shares)
    else:
        anywhere = params._replace(chain=params.chain._replace(initial=shares.astype(params.initial.dtype)))
    return anywhere.smoothed(words, np.arange(len(words) + 1))  # each word a text of its own, met anywhere in another


def strongest_neighbors(derived: Derived, states: I64, n: int) -> tuple[I64, F64, I64, F64]:
    """The n most probable states after and before each of the given states, among them.

    Returns
    -------
    after, p_after
        (len(states), n) states z' and T(z, z'), most probable first.
    before, p_before
        (len(states), n) states and p(state before | z) = p(before) T(before, z)/p(z), most probable first.
    """
    share = derived.state_shares.astype(np.float64)
    here, n = share[states], min(n, len(states))
    after, p_after = np.empty((len(states), n), dtype=np.int64), np.empty((len(states), n))
    before, flow = np.zeros((0, len(states)), dtype=np.int64), np.zeros((0, len(states)))
    batch = max(1, BATCH_ENTRIES // derived.params.n_states)
    for start in range(0, len(states), batch):
        z = states[start : start + batch]
        rows = derived.params.transition.rows(z)[:, states].astype(np.float64)
        order = _largest(rows, n, axis=1)
        after[start : start + batch], p_after[start : start + batch] = states[order], np.take_along_axis(rows, order, 1)
        flow = np.concatenate([flow, share[z][:, None] * rows])
        before = np.concatenate([before, np.broadcast_to(z[:, None], rows.shape)])
        order = _largest(flow, n, axis=0)
        flow, before = np.take_along_axis(flow, order, 0), np.take_along_axis(before, order, 0)
    p_before = flow / np.where(here > 0, here, 1)
    return after, p_after, before.T, p_before.T


def _largest(values: F64, n: int, *, axis: int) -> I64:
    """Places of the n largest values along an axis, or of all if there are fewer, largest first."""
    n = min(n, values.shape[axis])
    some = np.argpartition(-values, n - 1, axis=axis).take(np.arange(n), axis)
    order = np.argsort(-np.take_along_axis(values, some, axis), axis=axis, kind="stable")
    return np.take_along_axis(some, order, axis)


def state_after(params: Params, ids: NDArray[Any]) -> F32:
    """(Z,) distribution of the state of the next token, given the tokens so far."""
    if not len(ids):
        return np.asarray(params.initial, dtype=np.float32)
    posterior = params.filtered(ids, np.array([0, len(ids)]))
    return params.predicted(int(ids[-1]), posterior.values[posterior.at[-2] : posterior.at[-1]])


def sample_words(
    derived: Derived,
    n_tokens: int,
    rng: np.random.Generator,
    prefix: NDArray[Any],
    boundary: int | None,
    drawable: NDArray[np.bool_],
) -> list[int]:
    """Ancestral sampling: a state, one of its words seen in training, the next state. The boundary begins anew."""
    params, tables = derived.params, derived.sampling_tables(drawable)
    stop = -1 if boundary is None else boundary
    out: list[int] = []
    start = state_after(params, prefix)
    while len(out) < n_tokens:
        out += sample(start, n_tokens - len(out), rng, tables, stop=stop)[1].tolist()
        start = np.asarray(params.initial)
    return out


def decode(params: Params, ids: NDArray[Any], bounds: I64, method: str) -> I64:
    """(T,) states of the most probable path ("viterbi"), or the most probable state of each token ("posterior")."""
    return params.best_path(ids, bounds) if method == "viterbi" else posterior_states(params, ids, bounds)


def posterior_states(params: Params, ids: NDArray[Any], bounds: I64) -> I64:
    """The most probable state of each token by itself: fewest wrong states on average, though not a path."""
    return block_chain.best_live(params.smoothed(ids, bounds), params.first_live(ids))


def projected(params: Params, ids: NDArray[Any], bounds: I64, table: F32 | None) -> F32:
    """(T, d) smoothed distributions times a (Z, d) table, or the distributions themselves."""
    posterior, low = params.smoothed(ids, bounds), params.first_live(ids)
    if table is None:
        return block_chain.spread_live(posterior, low, params.n_states)
    return block_chain.project_live(posterior, low, table)
