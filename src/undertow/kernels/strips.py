"""Products with large tables that are read once for each token: 16 bits a number, 32 columns at a time.

Such a product waits for memory, so its table is kept in half the room: numbers between 0 and 1 as unsigned floats of
5 bits of exponent and 11 of mantissa, good to 1/4,096 of each (and to 2⁻⁴²). A code is a float32 of that exponent
and mantissa, times 2⁹⁶, when it is shifted: vectors of codes are read as they are, and the vectors they are multiplied
by have the factor instead. Columns that need the same rows stand in *strips* of 32, row by row.

LLVM does not keep the sums of such a loop in registers, because it cannot know that arrays do not overlap. So the
innermost product is written in its language here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from undertow.kernels.types import F32, I64

alloca_once: Any = cgutils.alloca_once
WIDTH = 32  # columns of a strip
LANES = 16  # numbers of a register
SCALE = np.float32(2.0**96)  # what codes lack
SHIFT = 12  # bits from a code to a float32


class Strips(NamedTuple):
    """A table (rows, WIDTH · strips): strip s has its rows low[s], low[s] + 1, …; all others of its columns are 0."""

    low: I64  # (n,)
    starts: I64  # (n + 1,) where the codes of a strip begin: (rows, WIDTH)
    codes: NDArray[np.uint16]


def shortened(x: F32) -> NDArray[np.uint16]:
    """Numbers between 0 and 1 as codes, rounded to the nearest; what is not 0 stays so."""
    bits = (np.asarray(x, dtype=np.float32) / SCALE).view(np.uint32)
    codes = (bits + np.uint32(1 << (SHIFT - 1))) >> np.uint32(SHIFT)
    return np.asarray(np.maximum(codes, x > 0), dtype=np.uint16)


def lengthened(codes: NDArray[np.uint16]) -> F32:
    """The numbers of codes."""
    bits = codes.astype(np.uint32) << np.uint32(SHIFT)
    return np.asarray(bits.view(np.float32) * SCALE)


FLOATS, SHORTS, WHOLES = (ir.VectorType(t, LANES) for t in (ir.FloatType(), ir.IntType(16), ir.IntType(32)))
FIRST = ir.Constant(WHOLES, [0] * LANES)  # the first number of a vector, so many times
PARTS = WIDTH // LANES
FUSED = ("contract",)  # a product and a sum may be one instruction


def _numbers(builder: Any, data: Any, begin: Any) -> list[Any]:
    """The vectors of one row of a strip."""
    out = []
    for j in range(PARTS):
        place = builder.gep(data, [builder.add(begin, ir.Constant(begin.type, j * LANES))])
        codes = builder.load(builder.bitcast(place, SHORTS.as_pointer()), align=2)
        shifted = builder.shl(builder.zext(codes, WHOLES), ir.Constant(WHOLES, [SHIFT] * LANES))
        out.append(builder.bitcast(shifted, FLOATS))
    return out


def _repeated(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    nothing = ir.Constant(FLOATS, ir.Undefined)
    one = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, nothing, FIRST)


def _rows_times_strip(m: int) -> Callable[..., None]:
    """out[row + r, to : to + WIDTH] = Σ_x left[row + r, low + x] · table[x] for r < m; table begins at codes[at]."""

    @intrinsic  # type: ignore[misc,unused-ignore]
    def product(_: Any, codes: Any, at: Any, k: Any, left: Any, row: Any, low: Any, out: Any, to: Any) -> Any:
        whole = types.int64
        return types.void(codes, whole, whole, left, whole, whole, out, whole), generate

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        codes, left, out = (context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 3, 6))
        _, at, k, _, row, low, _, to = args
        number = partial(ir.Constant, k.type)
        # even and odd rows of the table have their own sums, which need not wait for each other
        sums = [[[alloca_once(builder, FLOATS) for _ in range(PARTS)] for _ in range(2)] for _ in range(m)]
        for place in chain.from_iterable(chain.from_iterable(sums)):
            builder.store(ir.Constant(FLOATS, None), place)

        def begin(array: Any, r: int, column: Any) -> Any:
            pitch = builder.extract_value(array.shape, 1)
            return builder.add(builder.mul(builder.add(row, number(r)), pitch), column)

        begins = [begin(left, r, low) for r in range(m)]

        def add_row(x: Any, half: int) -> None:
            numbers = _numbers(builder, codes.data, builder.add(at, builder.mul(x, number(WIDTH))))
            for r in range(m):
                factor = builder.load(builder.gep(left.data, [builder.add(begins[r], x)]))
                factors = _repeated(builder, factor)
                for part, place in zip(numbers, sums[r][half], strict=True):
                    term = builder.fmul(part, factors, flags=FUSED)
                    builder.store(builder.fadd(builder.load(place), term, flags=FUSED), place)

        with cgutils.for_range(builder, builder.sdiv(k, number(2)), intp=k.type) as loop:
            x = builder.mul(loop.index, number(2))
            add_row(x, 0)
            add_row(builder.add(x, number(1)), 1)
        with builder.if_then(builder.icmp_signed("!=", builder.srem(k, number(2)), number(0))):
            add_row(builder.sub(k, number(1)), 0)
        for r in range(m):
            for j, (even, odd) in enumerate(zip(*sums[r], strict=True)):
                place = builder.gep(out.data, [builder.add(begin(out, r, to), number(j * LANES))])
                total = builder.fadd(builder.load(even), builder.load(odd))
                builder.store(total, builder.bitcast(place, FLOATS.as_pointer()), align=4)
        return context.get_dummy_value()

    return product


_one, _two, _four = _rows_times_strip(1), _rows_times_strip(2), _rows_times_strip(4)


@njit(cache=True, nogil=True)
def multiply(left: Any, n: int, table: Any, out: Any) -> None:
    """Equivalent to `out[:n] = left[:n] @ table / SCALE`, of contiguous rows (n, rows) and (n, columns)."""
    for s in range(len(table.low)):
        at, low, to = table.starts[s], table.low[s], s * WIDTH
        k = (table.starts[s + 1] - at) // WIDTH
        i = 0
        while i + 4 <= n:
            _four(table.codes, at, k, left, i, low, out, to)
            i += 4
        if i + 2 <= n:
            _two(table.codes, at, k, left, i, low, out, to)
            i += 2
        if i < n:
            _one(table.codes, at, k, left, i, low, out, to)


__all__ = ["SCALE", "WIDTH", "Strips", "lengthened", "multiply", "shortened"]
