"""The recursions of a linear Gaussian chain over ragged batches: packing by time step, cutting long sequences.

Sentences are sorted by falling length and packed by time step, so that at step t the first n_t rows are alive and a
step is one GEMM over them.

A sequence too long for this (a whole document has one row) is cut into pieces that start from zero and run side by
side; the recursion is linear, so what the end of one piece would have added to the next is added afterwards, and
dies out. This is exact to rounding and, unlike windows with a burn-in, does not guess how long the memory is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from undertow.kernels.lanes import Buffers, longest_first, ordered_map, with_buffers
from undertow.kernels.lanes import pack as pack_lanes
from undertow.kernels.types import F32, I64

NEGLIGIBLE = 2.0**-30  # of the largest entry: 64 times below what float32 can hold
LONGEST_MEMORY = 1 << 20  # steps; a recursion that remembers longer is not cut


class Steps(NamedTuple):
    """The matrices of the recursion, one a kind of step, transposed for rows of states.

    forward (kinds, h, h) holds H'; backward (kinds, 2h, h) holds P' above J'; gain (kinds, h, h) holds what the table's
    rows are multiplied by, None if the table is ready. memory is the number of steps after which nothing of a state is
    left where all tokens are observed: it sets how long the pieces are, but what passes from piece to piece is followed
    until it has died out, and a run of missing tokens may remember for longer.
    """

    forward: F32
    backward: F32 | None
    gain: F32 | None
    memory: int


class Tiles(NamedTuple):
    """How sentences are cut. Results are the same to rounding whatever it says."""

    chunk_tokens: int = 1 << 14  # measured at h = 200: fewer make thin GEMMs, more leave the cache
    shortest_piece: int = 64
    row_cost: int = 16  # a step costs about as much as this many rows of its GEMM, however few they are


DEFAULT_TILES = Tiles()


class Packed(NamedTuple):
    """Pieces of sentences sorted by falling length: row r of slab t is token t of piece r.

    Slab t of the filtered means is at rows at[t + 1] + r of the buffer, of the smoothed ones at rows at[t] + r: the
    smoothed mean of token t stands beside the filtered one of token t − 1, where the next product reads both as one.
    """

    n_alive: list[int]
    at: list[int]
    order: I64  # buffer row − at[1] → token
    s_rows: I64  # buffer row − at[1] → buffer row of the smoothed mean of the same token
    length: I64
    previous: I64 | None  # for each piece the one before it in its sentence or −1; None: nothing was cut
    following: I64 | None


def memory_of(F: NDArray[Any]) -> int:
    """The least power of two k with ‖F^k‖ negligible in float32, or LONGEST_MEMORY."""
    power, k = np.asarray(F, dtype=np.float64), 1
    while k < LONGEST_MEMORY and not np.abs(power).sum(axis=1).max(initial=0.0) <= NEGLIGIBLE:
        power, k = np.clip(power @ power, -1e100, 1e100), 2 * k
    return k


def run_sentences(
    begin: I64,
    length: I64,
    ids: NDArray[Any],
    missing: NDArray[np.bool_] | None,
    table: NDArray[Any],
    steps: Steps,
    kinds: NDArray[Any] | None,
    filtered: F32,
    smoothed: F32 | None,
    n_threads: int,
    tiles: Tiles,
) -> None:
    """Write the rows of the given sentences into filtered and smoothed, a chunk of like lengths at a time."""
    by_length = longest_first(length)
    if len(by_length) == 0:
        return
    begin, length = begin[by_length], length[by_length]
    table = np.ascontiguousarray(table, dtype=np.float32)
    edges = chunk_edges(length, tiles.chunk_tokens)
    n_columns = filtered.shape[1] * (1 if smoothed is None else 2)

    def one_chunk(c: int, buffers: Buffers) -> None:
        some = slice(edges[c], edges[c + 1])
        packed = pack(begin[some], length[some], steps.memory, tiles)
        Z = buffers.take("means", packed.at[-1], n_columns, np.float32)
        _chunk_means(Z, packed, ids, missing, table, steps, kinds, filtered, smoothed)

    for _ in ordered_map(with_buffers(one_chunk), range(len(edges) - 1), n_threads):
        pass


def chunk_edges(length: I64, chunk_tokens: int) -> list[int]:
    """Edges of runs of sentences with at most chunk_tokens tokens, or one sentence."""
    ends = np.cumsum(length)
    edges = [0]
    while edges[-1] < len(length):
        done = int(ends[edges[-1] - 1]) if edges[-1] else 0
        edges.append(max(int(np.searchsorted(ends, done + chunk_tokens, side="right")), edges[-1] + 1))
    return edges


def pack(begin: I64, length: I64, memory: int, tiles: Tiles = DEFAULT_TILES) -> Packed:
    """Lay out sentences (falling lengths, none empty) by time step, and cut those that are too long for it."""
    # n pieces of B tokens cost (B + memory) steps of row_cost + n rows each: least at B = √(tokens·memory / row_cost)
    best = max(tiles.shortest_piece, int(np.sqrt(length.sum() * memory / tiles.row_cost)))
    previous = following = None
    if length[0] > best and memory < LONGEST_MEMORY:
        n_pieces = -(-length // best)
        sentence = np.repeat(np.arange(len(length)), n_pieces)
        j = np.arange(len(sentence)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
        inner, n, whole = begin[sentence], n_pieces[sentence], length[sentence]
        begin, length = inner + whole * j // n, whole * (j + 1) // n - whole * j // n
        by_length = longest_first(length)
        begin, length = begin[by_length], length[by_length]
        rank = np.empty_like(by_length)
        rank[by_length] = np.arange(len(by_length))
        previous = np.where(j > 0, np.roll(rank, 1), -1)[by_length]
        following = np.where(j < n - 1, np.roll(rank, -1), -1)[by_length]
    lanes = pack_lanes(begin, length)
    at = np.concatenate(([0], lanes.n_alive[0] + lanes.at))  # a slab more: filtered and smoothed means are staggered
    s_rows = np.arange(len(lanes.token)) + np.repeat(at[:-2] - lanes.at[:-1], lanes.n_alive)
    return Packed(lanes.n_alive.tolist(), at.tolist(), lanes.token, s_rows, length, previous, following)


@njit(cache=True, nogil=True)
def _add_rows(out: Any, table: Any, rows: Any) -> None:
    """Equivalent to `out[rows >= 0] += table[rows[rows >= 0]]`."""
    for i in range(len(rows)):
        if rows[i] >= 0:
            to, source = out[i], table[rows[i]]
            for c in range(len(to)):
                to[c] += source[c]


@njit(cache=True, nogil=True)
def _copy_rows(source: Any, rows: Any, out: Any, to: Any) -> None:
    """Equivalent to `out[to] = source[rows]`."""
    for i in range(len(rows)):
        a, b = out[to[i]], source[rows[i]]
        for c in range(len(a)):
            a[c] = b[c]


def _chunk_means(
    Z: F32,
    packed: Packed,
    ids: NDArray[Any],
    missing: NDArray[np.bool_] | None,
    table: F32,
    steps: Steps,
    kinds: NDArray[Any] | None,
    filtered: F32,
    smoothed: F32 | None,
) -> None:
    """Both passes over one chunk, written to the rows of its tokens."""
    h = filtered.shape[1]
    order = packed.order
    rows = ids[order].astype(np.int64)
    if missing is not None:
        rows[missing[order]] = -1
    kind = None if kinds is None else kinds[order].astype(np.int64)
    if steps.gain is not None:
        table, rows = _gained(table, rows, kind, steps.gain), np.where(rows >= 0, np.arange(len(rows)), -1)
    _forward(Z[:, :h], packed, table, rows, kind, steps.forward)
    _copy_rows(Z[:, :h], np.arange(packed.at[1], packed.at[-1]), filtered, order)
    if smoothed is not None and steps.backward is not None:
        _backward(Z, packed, kind, steps.backward)
        _copy_rows(Z[:, h:], packed.s_rows, smoothed, order)


def _gained(table: F32, rows: I64, kind: I64 | None, gain: F32) -> F32:
    """The inputs K_kind·table[row] in packed order; rows of missing tokens are left unset."""
    out = np.empty((len(rows), table.shape[1]), dtype=np.float32)
    code = np.zeros(len(rows), dtype=np.int64) if kind is None else kind
    seen = np.flatnonzero(rows >= 0)
    seen = seen[np.argsort(code[seen], kind="stable")]
    edges = np.flatnonzero(np.diff(code[seen], prepend=-1, append=-1))
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        some = seen[start:stop]
        out[some] = table[rows[some]] @ gain[code[some[0]]]
    return out


def _multiply(x: F32, kind: I64 | None, matrices: F32, out: F32) -> None:
    """Equivalent to `out[i] = x[i] @ matrices[kind[i]]` for all rows i."""
    if kind is None:
        np.matmul(x, matrices[0], out=out)
        return
    first = kind[0]
    others = np.flatnonzero(kind != first)
    if 2 * len(others) < len(kind):  # most rows go through one GEMM without being gathered
        np.matmul(x, matrices[first], out=out)
    else:
        others = np.arange(len(kind))
    for k in np.unique(kind[others]):
        some = others[kind[others] == k]
        out[some] = x[some] @ matrices[k]


def _forward(Z: F32, packed: Packed, table: F32, rows: I64, kind: I64 | None, matrices: F32) -> None:
    """m_t = H m_{t−1} + input, slab by slab, then what each piece inherits from the one before it."""
    n_alive, at, start = packed.n_alive, packed.at, packed.at[1]
    for t, n in enumerate(n_alive):
        here, tokens = slice(at[t + 1], at[t + 1] + n), slice(at[t + 1] - start, at[t + 1] - start + n)
        if t == 0:
            Z[here] = 0
        else:
            _multiply(Z[at[t] : at[t] + n], None if kind is None else kind[tokens], matrices, Z[here])
        _add_rows(Z[here], table, rows[tokens])
    if packed.previous is not None:
        _inherit_forward(Z, packed, packed.previous, kind, matrices)


def _inherit_forward(Z: F32, packed: Packed, previous: I64, kind: I64 | None, matrices: F32) -> None:
    """Send the end of each piece through the next one, and on, until nothing is left of it."""
    at, start = np.array(packed.at), packed.at[1]
    r = np.flatnonzero(previous >= 0)
    last = at[packed.length[previous[r]]] + previous[r]
    delta = Z[last]
    small = NEGLIGIBLE * float(np.abs(Z[start : at[-1]]).max())
    heir = np.full(len(previous), -1)
    heir[r] = np.arange(len(r))
    while np.abs(delta).max(initial=0.0) > small:
        for t in range(packed.length[r[0]]):
            n = int(np.searchsorted(-packed.length[r], -t, side="left"))
            rows = at[t + 1] + r[:n]
            _multiply(delta[:n].copy(), None if kind is None else kind[rows - start], matrices, delta[:n])
            Z[rows] += delta[:n]
            if t % 8 == 7 and np.abs(delta).max() <= small:
                return
        passed = heir[previous[r]]  # the row of delta that has run through the piece before this one
        delta = np.where((passed >= 0)[:, None], delta[passed], np.float32(0))


def _backward(Z: F32, packed: Packed, kind: I64 | None, matrices: F32) -> None:
    """s_t = J s_{t+1} + P m_t, slab by slab from the last: one product of [m_t | s_{t+1}] with [P' above J']."""
    n_alive, at, start, h = packed.n_alive, packed.at, packed.at[1], Z.shape[1] // 2
    for t in range(len(n_alive) - 1, -1, -1):
        n, going = n_alive[t], (n_alive[t + 1] if t + 1 < len(n_alive) else 0)
        here, out = Z[at[t + 1] : at[t + 1] + n], Z[at[t] : at[t] + n, h:]
        code = None if kind is None else kind[at[t + 1] - start : at[t + 1] - start + n]
        if going:
            _multiply(here[:going], None if code is None else code[:going], matrices, out[:going])
        if going < n:
            out[going:] = here[going:, :h]
            if packed.following is not None:  # a piece that goes on starts from s = 0 behind its end
                some = going + np.flatnonzero(packed.following[going:n] >= 0)
                if len(some):
                    ended = np.zeros((len(some), h), dtype=np.float32)
                    _multiply(here[some, :h], None if code is None else code[some], matrices[:, :h], ended)
                    out[some] = ended
    if packed.following is not None:
        _inherit_backward(Z[:, h:], packed, packed.following, kind, matrices[:, h:])


def _inherit_backward(S: F32, packed: Packed, following: I64, kind: I64 | None, matrices: F32) -> None:
    """Send the beginning of each piece back through the one before it, and on, until nothing is left of it."""
    at, start = np.array(packed.at), packed.at[1]
    r = np.flatnonzero(following >= 0)
    delta = S[following[r]]  # the smoothed mean of the first token of piece r stands at row at[0] + r
    small = NEGLIGIBLE * float(np.abs(S[packed.s_rows]).max())
    heir = np.full(len(following), -1)
    heir[r] = np.arange(len(r))
    while np.abs(delta).max(initial=0.0) > small:
        for t in range(int(packed.length[r[0]]) - 1, -1, -1):
            n = int(np.searchsorted(-packed.length[r], -t, side="left"))
            code = None if kind is None else kind[at[t + 1] - start + r[:n]]
            _multiply(delta[:n].copy(), code, matrices, delta[:n])
            S[at[t] + r[:n]] += delta[:n]
            if t % 8 == 0 and np.abs(delta).max() <= small:
                return
        passed = heir[following[r]]
        delta = np.where((passed >= 0)[:, None], delta[passed], np.float32(0))
