"""Steering a token by one compiled call that is given addresses in place of arrays.

Beside a language model of which a token costs half a millisecond the call finds nothing in the caches, and what it puts
there the model's own data have to make room for: each array that is handed to it, and each line of Python, costs more
than it seems. So `begin` and `follow` take one table of the addresses of all arrays. Whoever makes the table
(`addresses`, which checks the types) keeps the arrays; ids that are no tokens are not looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from undertow.kernels.chain.blocks import Blocks
from undertow.kernels.chain.steering import (
    Ahead,
    Asked,
    Features,
    Room,
    Tiles,
    features_after,
    fill_worth,
    reweigh,
    step,
)
from undertow.kernels.strips import Strips
from undertow.kernels.types import F32, I32, I64


def _inttoptr(_: Any, address: Any) -> Any:
    """A number as an address in memory."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


_pointer: Any = intrinsic(_inttoptr)

# where each array stands in the table of addresses: those of the model, then those of the texts
(
    AT_WORD_BLOCK,
    AT_FIRST,
    AT_STARTS,
    AT_EMISSION,
    AT_WORD_SLOTS,
    AT_LOW,
    AT_STRIP_STARTS,
    AT_CODES,
    AT_R,
    AT_FEATURE_LOW,
    AT_FEATURE_STARTS,
    AT_FEATURE_CODES,
    AT_CLASSES,
    AT_NAMED,
    AT_STEP,
    AT_SETTLED,
    AT_INITIAL,
    AT_N_SLOTS,
    AT_LARGEST,
    AT_WORDS,
    AT_SLOTS,
    AT_WORTH,
    AT_FACTOR,
    AT_BOUND,
    AT_NOTHING,
    AT_LEFT,
    AT_SUMS,
    AT_READ,
    AT_PREDICTED,
    AT_PREDICTED_NEXT,
    AT_STATES,
    AT_STATES_NEXT,
) = range(32)
MODEL_TYPES = "i4 i8 i8 f4 i4 i8 i8 u2 f4 i8 i8 u2 i8 i8 i8 b1 f4 i8 f4".split()
TEXT_TYPES = "i8 i4 f4 f4 i8 b1 f4 f4 i8 f4 f4 i8 i8".split()
AHEAD_TYPES = "i8 f4 f8 b1".split()


class Texts(NamedTuple):
    """Texts being written: what is known of them before the last token and after it, in turn."""

    read: I64  # (n, columns) their tokens
    predicted: tuple[F32, F32]  # (n, Z) each
    states: tuple[I64, I64]  # (n,) each, of the automaton


def addresses(arrays: Sequence[NDArray[Any]], of_types: Sequence[str]) -> I64:
    """(n, 3) where contiguous arrays begin, and their sizes; whoever keeps the addresses must keep the arrays."""
    wrong = [x.dtype for x, of_type in zip(arrays, of_types, strict=True) if x.dtype != of_type]
    assert not wrong and all(x.flags.c_contiguous for x in arrays), wrong
    return np.array([(x.ctypes.data, *x.shape, *[1] * (2 - x.ndim)) for x in arrays], dtype=np.int64)


def model_arrays(
    chain: tuple[Blocks, F32, Tiles], T: Features, asked: Asked, settled: NDArray[np.bool_], initial: F32
) -> list[NDArray[Any]]:
    """The first arrays that `begin` and `follow` read, in their order."""
    B, emission, tiles = chain
    sizes = np.array([tiles.n_slots]), np.array([T.largest], dtype=np.float32)
    return [*B, emission, tiles.slots, *tiles.strips, T.R, *T.strips, *asked, settled, initial, *sizes]


def text_arrays(words: I64, slots: I32, room: Room, texts: Texts) -> list[NDArray[Any]]:
    """The other arrays; words and slots (tokens,) are those of each token."""
    return [words, slots, *room, texts.read, *texts.predicted, *texts.states]


@njit(cache=True, nogil=True, inline="always")
def _chain(a: Any) -> Any:
    blocks = Blocks(
        carray(_pointer(a[AT_WORD_BLOCK, 0]), a[AT_WORD_BLOCK, 1], np.int32),
        carray(_pointer(a[AT_FIRST, 0]), a[AT_FIRST, 1], np.int64),
        carray(_pointer(a[AT_STARTS, 0]), a[AT_STARTS, 1], np.int64),
    )
    strips = Strips(
        carray(_pointer(a[AT_LOW, 0]), a[AT_LOW, 1], np.int64),
        carray(_pointer(a[AT_STRIP_STARTS, 0]), a[AT_STRIP_STARTS, 1], np.int64),
        carray(_pointer(a[AT_CODES, 0]), a[AT_CODES, 1], np.uint16),
    )
    tiles = Tiles(
        carray(_pointer(a[AT_WORD_SLOTS, 0]), a[AT_WORD_SLOTS, 1], np.int32),
        carray(_pointer(a[AT_N_SLOTS, 0]), a[AT_N_SLOTS, 1], np.int64)[0],
        strips,
    )
    return blocks, carray(_pointer(a[AT_EMISSION, 0]), a[AT_EMISSION, 1], np.float32), tiles


@njit(cache=True, nogil=True, inline="always")
def _features(a: Any) -> Any:
    strips = Strips(
        carray(_pointer(a[AT_FEATURE_LOW, 0]), a[AT_FEATURE_LOW, 1], np.int64),
        carray(_pointer(a[AT_FEATURE_STARTS, 0]), a[AT_FEATURE_STARTS, 1], np.int64),
        carray(_pointer(a[AT_FEATURE_CODES, 0]), a[AT_FEATURE_CODES, 1], np.uint16),
    )
    R = carray(_pointer(a[AT_R, 0]), (a[AT_R, 1], a[AT_R, 2]), np.float32)
    return Features(R, strips, carray(_pointer(a[AT_LARGEST, 0]), a[AT_LARGEST, 1], np.float32)[0])


@njit(cache=True, nogil=True, inline="always")
def _asked(a: Any) -> Any:
    return Asked(
        carray(_pointer(a[AT_CLASSES, 0]), a[AT_CLASSES, 1], np.int64),
        carray(_pointer(a[AT_NAMED, 0]), a[AT_NAMED, 1], np.int64),
        carray(_pointer(a[AT_STEP, 0]), (a[AT_STEP, 1], a[AT_STEP, 2]), np.int64),
    )


@njit(cache=True, nogil=True, inline="always")
def _room(a: Any) -> Any:
    return Room(
        carray(_pointer(a[AT_WORTH, 0]), (a[AT_WORTH, 1], a[AT_WORTH, 2]), np.float32),
        carray(_pointer(a[AT_FACTOR, 0]), (a[AT_FACTOR, 1], a[AT_FACTOR, 2]), np.float32),
        carray(_pointer(a[AT_BOUND, 0]), a[AT_BOUND, 1], np.int64),
        carray(_pointer(a[AT_NOTHING, 0]), a[AT_NOTHING, 1], np.bool_),
        carray(_pointer(a[AT_LEFT, 0]), (a[AT_LEFT, 1], a[AT_LEFT, 2]), np.float32),
        carray(_pointer(a[AT_SUMS, 0]), (a[AT_SUMS, 1], a[AT_SUMS, 2]), np.float32),
    )


@njit(cache=True, nogil=True, inline="always")
def _ahead(b: Any) -> Any:
    return Ahead(
        carray(_pointer(b[0, 0]), b[0, 1], np.int64),
        carray(_pointer(b[1, 0]), (b[1, 1], b[1, 2]), np.float32),
        carray(_pointer(b[2, 0]), b[2, 1], np.float64),
        carray(_pointer(b[3, 0]), b[3, 1], np.bool_),
    )


@njit(cache=True, nogil=True)
def begin(a: Any, aheads: Any, r: int, n_ids: int, pad: int, ids_at: int, scores_at: int, out_at: int) -> int:
    """Read prompts (n, n_ids), without the `pad` at their beginnings, and reweigh the scores of the first token.

    `a` are the addresses of `model_arrays` and `text_arrays`, aheads[r] those of the look-ahead with r tokens to come.
    The result is that of `step`, or −3 if an id is not that of a token.
    """
    (B, emission, tiles), T, asked, room = _chain(a), _features(a), _asked(a), _room(a)
    words = carray(_pointer(a[AT_WORDS, 0]), a[AT_WORDS, 1], np.int64)
    slots = carray(_pointer(a[AT_SLOTS, 0]), a[AT_SLOTS, 1], np.int32)
    initial = carray(_pointer(a[AT_INITIAL, 0]), a[AT_INITIAL, 1], np.float32)
    read = carray(_pointer(a[AT_READ, 0]), (a[AT_READ, 1], a[AT_READ, 2]), np.int64)
    predicted = carray(_pointer(a[AT_PREDICTED, 0]), (a[AT_PREDICTED, 1], a[AT_PREDICTED, 2]), np.float32)
    after = carray(_pointer(a[AT_PREDICTED_NEXT, 0]), (a[AT_PREDICTED_NEXT, 1], a[AT_PREDICTED_NEXT, 2]), np.float32)
    states = carray(_pointer(a[AT_STATES, 0]), a[AT_STATES, 1], np.int64)
    n = len(read)
    ids = carray(_pointer(ids_at), (n, n_ids), np.int64)
    scores = carray(_pointer(scores_at), (n, len(words)), np.float32)
    out = carray(_pointer(out_at), (n, len(words)), np.float32)
    one, word = np.zeros(1, dtype=np.int64), np.empty(1, dtype=np.int64)
    for i in range(n):
        same = i > 0
        for t in range(n_ids):
            if ids[i, t] < 0 or ids[i, t] >= len(words):
                return -3
            read[i, t] = ids[i, t]
            same = same and ids[i, t] == ids[i - 1, t]
        states[i] = 0
        if same:  # equal prompts are read once
            predicted[i] = predicted[i - 1]
            continue
        predicted[i] = initial
        padded = True
        for t in range(n_ids):
            padded = padded and ids[i, t] == pad
            if not padded:
                word[0] = words[ids[i, t]]
                features_after(B, emission, T, word, predicted[i : i + 1], one, after[i : i + 1])
                predicted[i] = after[i]
    texts = np.arange(n)
    n_bound = fill_worth((B, emission, tiles), asked, _ahead(aheads[r]), predicted, states, texts, room)
    if room.nothing[:n_bound].any():
        return -2
    return reweigh(scores, room.bound[:n_bound], room.worth[:n_bound], slots, out)


@njit(cache=True, nogil=True)
def follow(a: Any, aheads: Any, r: int, n_ids: int, turn: int, ids_at: int, scores_at: int, out_at: int) -> int:
    """`step` of texts (n, n_ids) that are those of the last call with one more token each; −3 if they are not.

    The arguments are those of `begin`; `turn` says which of the two places has what is known of the texts (0 or 1). The
    other has it after the call.
    """
    read = carray(_pointer(a[AT_READ, 0]), (a[AT_READ, 1], a[AT_READ, 2]), np.int64)
    words = carray(_pointer(a[AT_WORDS, 0]), a[AT_WORDS, 1], np.int64)
    n = len(read)
    ids = carray(_pointer(ids_at), (n, n_ids), np.int64)
    now = np.empty(n, dtype=np.int64)
    for i in range(n):
        for t in range(n_ids - 1):
            if ids[i, t] != read[i, t]:
                return -3
        last = ids[i, n_ids - 1]
        if last < 0 or last >= len(words):
            return -3
        now[i] = words[last]
    settled = carray(_pointer(a[AT_SETTLED, 0]), a[AT_SETTLED, 1], np.bool_)
    slots = carray(_pointer(a[AT_SLOTS, 0]), a[AT_SLOTS, 1], np.int32)
    predicted = carray(_pointer(a[AT_PREDICTED + turn, 0]), (a[AT_PREDICTED, 1], a[AT_PREDICTED, 2]), np.float32)
    after = carray(_pointer(a[AT_PREDICTED_NEXT - turn, 0]), (a[AT_PREDICTED, 1], a[AT_PREDICTED, 2]), np.float32)
    states = carray(_pointer(a[AT_STATES + turn, 0]), n, np.int64)
    states_after = carray(_pointer(a[AT_STATES_NEXT - turn, 0]), n, np.int64)
    scores = carray(_pointer(scores_at), (n, len(words)), np.float32)
    out = carray(_pointer(out_at), (n, len(words)), np.float32)
    chain, T, asked, room, ahead = _chain(a), _features(a), _asked(a), _room(a), _ahead(aheads[r])
    dead = step(chain, T, asked, settled, ahead, now, predicted, states, scores, slots, room, after, states_after, out)
    if dead > -2:
        for i in range(n):
            read[i, n_ids - 1] = ids[i, n_ids - 1]
    return dead
