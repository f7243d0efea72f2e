"""Filtered and smoothed means of a linear Gaussian chain for ragged batches of sentences (lds.md §6).

    m_t = H m_{t−1} + E[w_t]          forwards, m_0 = 0 before the first token; m_t = A m_{t−1} where w_t is missing
    s_t = J s_{t+1} + P m_t           backwards, s_T = m_T at the last token; P = I − JA

A missing token has its own J, too: its filtered covariance is the predicted one, which nothing has narrowed.
`smooth` uses the steady-state gains, `smooth_exact` those that belong to each token's place in its sentence and to the
missing tokens around it. Both are GEMMs over all sentences at one time step (recursions.py). The other known
form, diagonalizing H and J, is not offered: on a model of the bundled books (h = 200) the eigenvectors of J have a
condition number of 9e3, and its float32 smoothed vectors were wrong by 1.5e-3 (median), those of this form by 1.4e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from undertow.errors import InputError
from undertow.kernels.gaussian.gains import Gains, cover, exact_gains, posterior_covariances, steps_of
from undertow.kernels.gaussian.recursions import DEFAULT_TILES, Steps, Tiles, memory_of, run_sentences
from undertow.kernels.types import F32, I64

__all__ = [
    "Gains",
    "exact_gains",
    "filter_only",
    "posterior_covariances",
    "smooth",
    "smooth_exact",
    "whiten_and_normalize",
]

GRAPH_FLOATS = 1 << 27  # of all matrices of the exact gains held at a time: 0.5 GB


def smooth(
    ids: NDArray[Any],
    offsets: NDArray[Any],
    missing: NDArray[np.bool_] | None,
    table: NDArray[Any],
    A: NDArray[Any],
    H: NDArray[Any],
    J: NDArray[Any],
    J_missing: NDArray[Any],
    *,
    n_threads: int = 1,
    tiles: Tiles = DEFAULT_TILES,
) -> tuple[F32, F32]:
    """Filtered and smoothed steady-state means (T, h) of sentences ids[offsets[i]:offsets[i + 1]].

    The table has a row E[w] a word; ids at missing tokens are not looked at. J leads back to an
    observed token and J_missing to a missing one (`gain_at_missing`). More than one thread takes chunks side
    by side and is meant for a single-threaded BLAS (engine.blas); with one, BLAS' own threads may work. Memory
    beyond the result is about 2·h floats for each token of a chunk, and a chunk holds at least one sentence.
    """
    steps = steady_steps(A, H, J, J_missing)
    filtered, smoothed = run(ids, offsets, missing, table, steps, missing, n_threads, tiles)
    assert smoothed is not None
    return filtered, smoothed


def filter_only(
    ids: NDArray[Any],
    offsets: NDArray[Any],
    missing: NDArray[np.bool_] | None,
    table: NDArray[Any],
    A: NDArray[Any],
    H: NDArray[Any],
    *,
    n_threads: int = 1,
    tiles: Tiles = DEFAULT_TILES,
) -> F32:
    """Filtered steady-state means (T, h), as `smooth` gives them, for a third of its work."""
    return run(ids, offsets, missing, table, steady_steps(A, H), missing, n_threads, tiles)[0]


def smooth_exact(
    ids: NDArray[Any],
    offsets: NDArray[Any],
    missing: NDArray[np.bool_] | None,
    table: NDArray[Any],
    gains: Gains,
    *,
    n_threads: int = 1,
    tiles: Tiles = DEFAULT_TILES,
    graph_floats: int = GRAPH_FLOATS,
) -> tuple[F32, F32]:
    """Filtered and smoothed means (T, h) with the gains of each place; the table has the rows C_i/√μ_i.

    Sentences without missing tokens share the tabulated gains. For the others gains are computed along their missing
    patterns, shared wherever the covariances agree, which at h = 200 takes milliseconds for each new one.
    """
    filtered = np.empty((len(ids), len(gains.A)), dtype=np.float32)
    smoothed = np.empty_like(filtered)
    absent = np.zeros(len(ids), dtype=np.bool_) if missing is None else missing
    for batch in covered_sentences(ids, offsets, absent, table, gains, graph_floats):
        here = (batch.begin, batch.length, ids, absent, table, steps_of(batch.gains), batch.kinds)
        run_sentences(*here, filtered, smoothed, n_threads, tiles)
    return filtered, smoothed


class Covered(NamedTuple):
    """Sentences by their begin and length, the gains that cover them, and the edge of each of their tokens."""

    begin: I64
    length: I64
    gains: Gains
    kinds: I64  # (T,), of all tokens; those of other sentences say nothing


def covered_sentences(
    ids: NDArray[Any],
    offsets: NDArray[Any],
    missing: NDArray[np.bool_],
    table: NDArray[Any],
    gains: Gains,
    graph_floats: int = GRAPH_FLOATS,
) -> Iterator[Covered]:
    """All sentences in batches whose gains fit into so many floats, those without missing tokens first."""
    check_tokens(ids, offsets, missing, len(table))
    begin, length = np.asarray(offsets[:-1], np.int64), np.diff(offsets).astype(np.int64)
    n_absent = np.concatenate(([0], np.cumsum(missing)))
    whole = n_absent[begin] == n_absent[begin + length]
    # every matrix is held once as a gain and once or twice as a step
    most_edges = max(gains.n_edges + 1, graph_floats // (8 * len(gains.A) ** 2))
    kinds = np.zeros(len(ids), dtype=np.int64)
    todo = np.argsort(~whole, kind="stable")  # whole sentences first: they need no new gains
    while len(todo):
        grown, edges, done = cover(gains, missing, begin[todo], length[todo], most_edges)
        now, todo = todo[:done], todo[done:]
        kinds[_tokens_of(begin[now], length[now])] = edges
        yield Covered(begin[now], length[now], grown, kinds)


def _tokens_of(begin: I64, length: I64) -> I64:
    """The token numbers of sentences, one after the other."""
    behind = np.cumsum(length)
    tokens: I64 = np.arange(length.sum()) + np.repeat(begin - (behind - length), length)
    return tokens


def whiten_and_normalize(vectors: NDArray[Any], transform: NDArray[Any] | None, unit: bool = True) -> F32:
    """Rows x → transform·x, put on the unit sphere if asked; a zero row stays zero."""
    out = np.array(vectors, dtype=np.float32)
    if transform is not None:
        out = out @ np.asarray(transform, dtype=np.float32).T
    if unit and out.size:
        # the largest entry first, so that no square can vanish or overflow
        out /= _or_one(np.abs(out).max(axis=-1, keepdims=True))
        out /= _or_one(np.linalg.norm(out, axis=-1, keepdims=True))
    return out


def _or_one(sizes: NDArray[Any]) -> NDArray[Any]:
    return np.where(sizes > 0, sizes, np.float32(1))


def steady_steps(
    A: NDArray[Any], H: NDArray[Any], J: NDArray[Any] | None = None, J_missing: NDArray[Any] | None = None
) -> Steps:
    """Two kinds of step, observed (0) and missing (1)."""
    forward = np.stack([H.T, A.T]).astype(np.float32)
    if J is None or J_missing is None:
        return Steps(forward, None, None, memory_of(H))
    eye = np.eye(len(A))
    backward = np.stack([np.concatenate([(eye - G @ A).T, G.T]) for G in (J, J_missing)]).astype(np.float32)
    return Steps(forward, backward, None, max(memory_of(H), memory_of(J)))


def check_tokens(ids: NDArray[Any], offsets: NDArray[Any], missing: NDArray[np.bool_] | None, n_words: int) -> None:
    """Refuse ids without a row in the table and offsets that are not those of the ids."""
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
        raise InputError(f"offsets must rise from 0 to the number of ids, {len(ids)}.")
    if missing is not None and (missing.shape != ids.shape or missing.dtype != np.bool_):
        raise InputError("missing must be a boolean array with one entry for each id.")
    known = ids if missing is None else ids[~missing]
    if len(known) and (known.max() >= n_words or known.min() < 0):
        raise InputError(f"an id is outside 0..{n_words - 1}; mark unknown words as missing.")


def run(
    ids: NDArray[Any],
    offsets: NDArray[Any],
    missing: NDArray[np.bool_] | None,
    table: NDArray[Any],
    steps: Steps,
    kinds: NDArray[Any] | None,
    n_threads: int,
    tiles: Tiles,
) -> tuple[F32, F32 | None]:
    """Run the recursions over all sentences; kinds gives the kind of step of each token (None: all 0)."""
    check_tokens(ids, offsets, missing, len(table))
    if missing is not None and not missing.any():
        missing = kinds = None  # one kind of step needs no look at the kinds
    shape = (len(ids), steps.forward.shape[-1])
    filtered = np.empty(shape, dtype=np.float32)
    smoothed = None if steps.backward is None else np.empty(shape, dtype=np.float32)
    begin, length = np.asarray(offsets[:-1], np.int64), np.diff(offsets).astype(np.int64)
    run_sentences(begin, length, ids, missing, table, steps, kinds, filtered, smoothed, n_threads, tiles)
    return filtered, smoothed
