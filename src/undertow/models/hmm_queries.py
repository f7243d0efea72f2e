"""What people ask of a hidden Markov model besides its likelihood: words, steps, samples, paths, features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.block_chain import BlockLowRank, Floats, Ints
from undertow.kernels.block_decoding import viterbi_blocks, viterbi_low_rank
from undertow.kernels.discrete_chain import viterbi_logs
from undertow.kernels.transitions import LowRank
from undertow.models.hmm_params import BlockParams, Params, PlainParams

ROWS = 256  # of a transition at a time: never Z×Z
STEPS = 60  # of the power method; text forgets within far fewer


def state_shares(params: Params) -> Floats:
    """(Z,) how often each state comes in a long text: the stationary distribution of the transition."""
    p: NDArray[Any] = np.asarray(params.initial, dtype=np.float32)[None, :]
    for _ in range(STEPS):
        p = (p + params.transition.push(p)) / 2  # halves: a chain may have a period
        p = np.ascontiguousarray(p / p.sum(), dtype=np.float32)
    return np.asarray(p[0])


def transition_rows(params: Params) -> Iterator[tuple[int, Floats]]:
    """The rows of the transition, some at a time, and the first one's number."""
    Z = params.n_states
    for start in range(0, Z, ROWS):
        n = min(ROWS, Z - start)
        one_hot = np.zeros((n, Z), dtype=np.float32)
        one_hot[np.arange(n), start + np.arange(n)] = 1
        yield start, params.transition.push(one_hot)


def typical_transitions(params: Params, n: int) -> list[tuple[float, int, int]]:
    """The n steps z → z' that tell most: p(z)T(z, z') log T(z, z')/p(z'), with T(z, z') in front."""
    share = state_shares(params).astype(np.float64)
    best: list[tuple[float, float, int, int]] = []
    for start, rows in transition_rows(params):
        with np.errstate(divide="ignore", invalid="ignore"):
            told = share[start : start + len(rows), None] * rows * np.log(rows / share)
        told = np.where(np.isfinite(told), told, 0.0)
        flat = told.ravel()
        top = np.argpartition(-flat, min(n, len(flat) - 1))[:n] if n < len(flat) else np.arange(len(flat))
        for i in top.tolist():
            z, z_next = divmod(i, params.n_states)
            best.append((float(flat[i]), float(rows[z, z_next]), start + z, z_next))
        best = sorted(best, key=lambda x: (-x[0], x[2], x[3]))[:n]
    return [(p, z, z_next) for _, p, z, z_next in best]


def relevant_words(
    params: Params, state: int, n: int, frequencies: NDArray[Any], relevance: float
) -> list[tuple[int, float]]:
    """(word, p(word | state)) by λ log p(w|z) + (1 − λ) log p(w|z)/p(w) (Sievert and Shirley)."""
    words, p = params.emission_of(state)
    kept = (p > 0) & (frequencies[words] > 0)
    words, p = words[kept], p[kept].astype(np.float64)
    score = np.log(p) - (1 - relevance) * np.log(frequencies[words] / frequencies.sum())
    order = np.argsort(-score, kind="stable")[:n]
    return [(int(words[i]), float(p[i])) for i in order]


def state_after(params: Params, ids: NDArray[Any]) -> Floats:
    """(Z,) distribution of the state of the next token, given the tokens so far."""
    if not len(ids):
        return np.asarray(params.initial, dtype=np.float32)
    posterior = params.filtered(ids, np.array([0, len(ids)]))
    now = np.zeros(params.n_states, dtype=np.float32)
    now[params.live(int(ids[-1]))] = posterior.values[posterior.at[-2] : posterior.at[-1]]
    return np.asarray(params.transition.push(now[None, :])[0])


def draw(p: NDArray[Any], u: float) -> int:
    """An index with probabilities p, by inverting the distribution function at u."""
    cumulative = np.cumsum(p, dtype=np.float64)
    return int(min(np.searchsorted(cumulative, u * cumulative[-1], side="right"), len(p) - 1))


def sample_words(
    params: Params,
    n_tokens: int,
    rng: np.random.Generator,
    prefix: NDArray[Any],
    boundary: int | None,
    seen: NDArray[np.bool_],
) -> list[int]:
    """Ancestral sampling: a state, one of its words seen in training, the next state. The boundary begins anew."""
    out: list[int] = []
    states = state_after(params, prefix)
    while len(out) < n_tokens:
        z = draw(states, rng.random())
        words, p = params.emission_of(z)
        word = int(words[draw(p * seen[words], rng.random())])
        out.append(word)
        if word == boundary:
            states = np.asarray(params.initial)
        else:
            one_hot = np.zeros((1, params.n_states), dtype=np.float32)
            one_hot[0, z] = 1
            states = params.transition.push(one_hot)[0]
    return out


def viterbi(params: Params, ids: NDArray[Any], bounds: Ints) -> NDArray[np.int64]:
    """States of the most probable paths; for a low-rank transition those of the joint path with the features."""
    ids = np.asarray(ids, dtype=np.int64)
    if isinstance(params, BlockParams):
        fn: Any = viterbi_low_rank if isinstance(params.transition, BlockLowRank) else viterbi_blocks
        return fn(ids, bounds, params.blocks, params.transition, params.initial, params.emission)  # type: ignore[no-any-return]
    assert isinstance(params, PlainParams)
    chain = params.chain
    if isinstance(chain.transition, LowRank):
        from undertow.kernels.block_chain import Blocks

        Z, V = params.n_states, params.n_words
        blocks = Blocks.of(np.zeros(V, dtype=np.int32), np.array([Z]))
        T = BlockLowRank(blocks.first, chain.transition.R, np.ascontiguousarray(chain.transition.E.T))
        return viterbi_low_rank(ids, bounds, blocks, T, chain.initial, chain.emission.ravel())
    if params.n_states > 4096:
        raise InputError("Viterbi needs the whole transition matrix here, too large: use method='posterior'.")
    with np.errstate(divide="ignore"):
        scores = np.log(chain.emission[ids].astype(np.float64))
    found = viterbi_logs(
        scores, np.asarray(bounds), chain.initial.astype(float), chain.transition.dense().astype(float)
    )
    return np.asarray(found[0], dtype=np.int64)


def posterior_states(params: Params, ids: NDArray[Any], bounds: Ints) -> NDArray[np.int64]:
    """The most probable state of each token by itself: fewest wrong states on average, though not a path."""
    posterior = params.smoothed(ids, bounds)
    return np.array(
        [
            params.live(int(w)).start + int(posterior.values[a:b].argmax())
            for w, a, b in zip(ids, posterior.at[:-1], posterior.at[1:], strict=True)
        ],
        dtype=np.int64,
    )


def profile(params: Params) -> Floats:
    """(Z, d) what a state says of the next token, in few numbers: its features, or the blocks it leads to."""
    T: Any = params.transition
    if hasattr(T, "R"):
        return np.asarray(T.R)
    if not isinstance(params, BlockParams):
        return np.asarray(T.dense())
    out = np.empty((params.n_states, params.blocks.n_blocks), dtype=np.float32)
    for start, rows in transition_rows(params):
        out[start : start + len(rows)] = np.add.reduceat(rows, params.blocks.first[:-1], axis=1)
    return out


def projected(params: Params, ids: NDArray[Any], bounds: Ints, table: Floats | None) -> Floats:
    """(T, d) smoothed distributions times a (Z, d) table, or the distributions themselves."""
    posterior = params.smoothed(ids, bounds)
    out = np.zeros((len(ids), params.n_states if table is None else table.shape[1]), dtype=np.float32)
    for t, w in enumerate(ids.tolist()):
        live, now = params.live(w), posterior.values[posterior.at[t] : posterior.at[t + 1]]
        if table is None:
            out[t, live] = now
        else:
            out[t] = now @ table[live]
    return out
