"""Products of a few rows with long rows, kept in registers: the inner loops of chains with few states and long axes.

    mix    out[r, v] = Σ_i W[r, i] X[i, v]              (or += that, or F[r, v] times that)
    dots   out[r, q] += Σ_{a, v} X[a, r, v] Y[a, q, v]

v counts vectors of 64 bytes along the long axis; the other sizes are arbitrary. A BLAS is slow at such shapes, and a
compiler neither keeps the accumulators in registers nor uses vectors of full width on CPUs where that once cost clock
speed: so the inner tiles are written as LLVM vectors here. The arithmetic of a tile depends on its own rows alone, in
one order.

Measured (one thread, V = 8,000): plain Numba loops unrolled by hand take 1.7 to 2.7 times the processor time (2.0 in
the exact E-step at M = 3, K = 10), loops that are not unrolled 6 to 14 times.

The functions are for other compiled functions: arrays are flat, with offsets and strides in elements.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils as _cgutils
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array as _make_array

cgutils: Any = _cgutils  # numba's own helpers are not typed
make_array: Any = _make_array
VECTOR_BYTES = 64
WIDE = bool(llvm.get_host_cpu_features().get("avx512f", False))  # 32 registers of 64 bytes; else 16 of 32
N_ROWS = 6 if WIDE else 4
N_VECTORS = 4 if WIDE else 1  # of a tile of `mix`
N_COLUMNS = 5 if WIDE else 1  # of a tile of `dots`


X86 = llvm.get_process_triple().startswith(("x86", "i386", "i686"))
FLUSH = 0x8040  # bits of the control word: flush subnormal results to 0, and treat subnormal operands as 0


def _set_control_word(typing: Any, word: Any) -> Any:
    """Set the control word of the vector unit and return the old one; except on x86 do nothing and return −1."""

    def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        if not X86:
            return ir.Constant(i32, -1)
        place = cgutils.alloca_once(builder, i32)
        pointer = builder.bitcast(place, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type])
        store, load = (
            cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
            for name in ("stmxcsr", "ldmxcsr")
        )
        builder.call(store, [pointer])
        before = builder.load(place)
        wanted = builder.select(builder.icmp_signed("<", args[0], ir.Constant(i32, 0)),
                                builder.or_(before, ir.Constant(i32, FLUSH)), args[0])  # fmt: skip
        builder.store(wanted, place)
        builder.call(load, [pointer])
        return before

    return types.int32(types.int32), code


set_control_word: Any = intrinsic(_set_control_word)


@njit(cache=True, nogil=True)
def flush_tiny() -> Any:
    """Flush subnormal numbers to 0 in this thread from here on, as arithmetic on them is very slow.

    Pass the result to `set_control_word` to restore the mode.
    """
    return set_control_word(np.int32(-1))


def _vector(array_type: Any) -> tuple[ir.Type, int, ir.Type]:
    """Element type, elements in a vector, and vector type for arrays of float32 or float64."""
    if array_type.dtype not in (types.float32, types.float64) or array_type.layout != "C":
        raise TypeError("row products need contiguous arrays of float32 or float64")
    single = array_type.dtype == types.float32
    scalar = ir.FloatType() if single else ir.DoubleType()
    n = VECTOR_BYTES // (4 if single else 8)
    return scalar, n, ir.VectorType(scalar, n)


class _Memory:
    """Loads and stores of vectors by flat element offsets."""

    def __init__(self, context: Any, builder: Any, array_type: Any, value: Any) -> None:
        self.builder = builder
        self.scalar, self.n, self.vector = _vector(array_type)
        self.data = make_array(array_type)(context, builder, value).data

    def _place(self, offset: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.data, [offset]), self.vector.as_pointer())

    def load(self, offset: Any) -> Any:
        return self.builder.load(self._place(offset), align=self.scalar_bytes)

    def store(self, value: Any, offset: Any) -> None:
        self.builder.store(value, self._place(offset), align=self.scalar_bytes)

    @property
    def scalar_bytes(self) -> int:
        return VECTOR_BYTES // self.n

    def spread(self, offset: Any) -> Any:
        """One element in every lane."""
        one = self.builder.load(self.builder.gep(self.data, [offset]))
        empty = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(empty, one, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.n), [0] * self.n)
        return self.builder.shuffle_vector(first, empty, zeros)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    kind = f"llvm.fmuladd.v{a.type.count}{'f32' if isinstance(a.type.element, ir.FloatType) else 'f64'}"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(a.type, [a.type] * 3), kind)
    return builder.call(function, [a, b, c])


def _at(builder: Any, base: Any, step: Any, times: int) -> Any:
    return builder.add(base, builder.mul(step, ir.Constant(step.type, times)))


def _products(builder: Any, w: _Memory, w0: Any, w_row: Any, w_in: Any, x: _Memory, x0: Any, x_in: Any, x_vec: Any,
              n_in: Any, n_rows: int, n_vectors: int) -> list[list[Any]]:  # fmt: skip
    """Stack slots of n_rows × n_vectors sums Σ_i W[r, i] X[i, v]; the optimizer turns them into registers."""
    zero = ir.Constant(x.vector, [0.0] * x.n)
    sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(n_vectors)] for _ in range(n_rows)]
    with cgutils.for_range(builder, n_in) as loop:
        x_at = builder.add(x0, builder.mul(loop.index, x_in))
        w_at = builder.add(w0, builder.mul(loop.index, w_in))
        xs = [x.load(_at(builder, x_at, x_vec, v)) for v in range(n_vectors)]
        for r in range(n_rows):
            weight = w.spread(_at(builder, w_at, w_row, r))
            for v in range(n_vectors):
                builder.store(_multiply_add(builder, weight, xs[v], builder.load(sums[r][v])), sums[r][v])
    return sums


def _mix_tile(n_rows: int, n_vectors: int, add: bool) -> Any:
    """A compiled tile of `mix`: n_rows × n_vectors accumulators over all i."""

    @intrinsic
    def tile(typing: Any, W: Any, w0: Any, w_row: Any, w_in: Any, X: Any, x0: Any, x_in: Any, x_vec: Any,
             out: Any, o0: Any, o_row: Any, o_vec: Any, n_in: Any) -> Any:  # fmt: skip
        size = types.intp
        signature = types.void(W, size, size, size, X, size, size, size, out, size, size, size, size)

        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            w, x, o = (_Memory(context, builder, sig.args[k], args[k]) for k in (0, 4, 8))
            w0, w_row, w_in, x0, x_in, x_vec, o0, o_row, o_vec, n_in = (
                args[k] for k in (1, 2, 3, 5, 6, 7, 9, 10, 11, 12)
            )
            sums = _products(builder, w, w0, w_row, w_in, x, x0, x_in, x_vec, n_in, n_rows, n_vectors)
            for r in range(n_rows):
                for v in range(n_vectors):
                    place = _at(builder, _at(builder, o0, o_row, r), o_vec, v)
                    value = builder.load(sums[r][v])
                    o.store(builder.fadd(value, o.load(place)) if add else value, place)
            return context.get_dummy_value()

        return signature, code

    return tile


def _times_tile(n_rows: int, n_vectors: int) -> Any:
    """A compiled tile of `mix_times`: the one of `mix`, multiplied by F at the same position."""

    @intrinsic
    def tile(typing: Any, W: Any, w0: Any, w_row: Any, X: Any, x0: Any, x_in: Any, F: Any, f0: Any, f_row: Any,
             out: Any, o0: Any, o_row: Any, n_in: Any) -> Any:  # fmt: skip
        size = types.intp
        signature = types.void(W, size, size, X, size, size, F, size, size, out, size, size, size)

        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            w, x, f, o = (_Memory(context, builder, sig.args[k], args[k]) for k in (0, 3, 6, 9))
            w0, w_row, x0, x_in, f0, f_row, o0, o_row, n_in = (args[k] for k in (1, 2, 4, 5, 7, 8, 10, 11, 12))
            one, n = ir.Constant(n_in.type, 1), ir.Constant(n_in.type, x.n)
            sums = _products(builder, w, w0, w_row, one, x, x0, x_in, n, n_in, n_rows, n_vectors)
            for r in range(n_rows):
                for v in range(n_vectors):
                    factor = f.load(_at(builder, _at(builder, f0, f_row, r), n, v))
                    o.store(
                        builder.fmul(builder.load(sums[r][v]), factor), _at(builder, _at(builder, o0, o_row, r), n, v)
                    )
            return context.get_dummy_value()

        return signature, code

    return tile


def _dot_tile(n_rows: int, n_columns: int) -> Any:
    """A compiled tile of `dots`: n_rows × n_columns accumulators over the long axis, their lanes added at the end."""

    @intrinsic
    def tile(typing: Any, X: Any, x0: Any, x_row: Any, Y: Any, y0: Any, y_row: Any, out: Any, o0: Any, o_row: Any,
             n_outer: Any, outer: Any, n_vectors: Any) -> Any:  # fmt: skip
        size = types.intp
        signature = types.void(X, size, size, Y, size, size, out, size, size, size, size, size)

        def code(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            x, y = (_Memory(context, builder, sig.args[k], args[k]) for k in (0, 3))
            out = make_array(sig.args[6])(context, builder, args[6]).data
            x0, x_row, y0, y_row, o0, o_row, n_outer, outer, n_vectors = (
                args[k] for k in (1, 2, 4, 5, 7, 8, 9, 10, 11)
            )
            zero = ir.Constant(x.vector, [0.0] * x.n)
            sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(n_columns)] for _ in range(n_rows)]
            with cgutils.for_range(builder, n_outer) as slow, cgutils.for_range(builder, n_vectors) as loop:
                step = builder.mul(loop.index, ir.Constant(n_vectors.type, x.n))
                step = builder.add(step, builder.mul(slow.index, outer))
                xs = [x.load(builder.add(step, _at(builder, x0, x_row, r))) for r in range(n_rows)]
                for q in range(n_columns):
                    other = y.load(builder.add(step, _at(builder, y0, y_row, q)))
                    for r in range(n_rows):
                        builder.store(_multiply_add(builder, xs[r], other, builder.load(sums[r][q])), sums[r][q])
            for r in range(n_rows):
                for q in range(n_columns):
                    place = builder.gep(out, [builder.add(_at(builder, o0, o_row, r), ir.Constant(o0.type, q))])
                    builder.store(builder.fadd(builder.load(place), _add_lanes(builder, sums[r][q])), place)
            return context.get_dummy_value()

        return signature, code

    return tile


def _add_lanes(builder: Any, place: Any) -> Any:
    """The sum of a vector's lanes: halves added, then quarters, …"""
    vector = builder.load(place)
    n = vector.type.count
    while n > 1:
        n //= 2
        halves = [
            builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), n), list(range(a, a + n))))
            for a in (0, n)
        ]
        vector = builder.fadd(*halves)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


_set_large, _set_long, _set_high, _set_one = (
    _mix_tile(r, v, False) for r, v in ((N_ROWS, N_VECTORS), (1, N_VECTORS), (N_ROWS, 1), (1, 1))
)
_times_large, _times_long, _times_high, _times_one = (
    _times_tile(r, v) for r, v in ((N_ROWS, N_VECTORS), (1, N_VECTORS), (N_ROWS, 1), (1, 1))
)
_add_large, _add_long, _add_high, _add_one = (
    _mix_tile(r, v, True) for r, v in ((N_ROWS, N_VECTORS), (1, N_VECTORS), (N_ROWS, 1), (1, 1))
)
_dots_large, _dots_long, _dots_high, _dots_one = (
    _dot_tile(r, q) for r, q in ((4, N_COLUMNS), (1, N_COLUMNS), (4, 1), (1, 1))
)


@njit(cache=True, nogil=True)
def mix(
    W: Any,
    w0: Any,
    w_row: Any,
    w_in: Any,
    X: Any,
    x0: Any,
    x_in: Any,
    x_vec: Any,
    out: Any,
    o0: Any,
    o_row: Any,
    o_vec: Any,
    n_out: Any,
    n_in: Any,
    n_vec: Any,
) -> None:
    """Equivalent to `out[r, v] = Σ_i W[r, i] X[i, v]` for n_vec vectors."""
    v = 0
    while v + N_VECTORS <= n_vec:
        x, o = x0 + v * x_vec, o0 + v * o_vec
        r = 0
        while r + N_ROWS <= n_out:
            _set_large(W, w0 + r * w_row, w_row, w_in, X, x, x_in, x_vec, out, o + r * o_row, o_row, o_vec, n_in)
            r += N_ROWS
        while r < n_out:
            _set_long(W, w0 + r * w_row, w_row, w_in, X, x, x_in, x_vec, out, o + r * o_row, o_row, o_vec, n_in)
            r += 1
        v += N_VECTORS
    while v < n_vec:
        x, o = x0 + v * x_vec, o0 + v * o_vec
        r = 0
        while r + N_ROWS <= n_out:
            _set_high(W, w0 + r * w_row, w_row, w_in, X, x, x_in, x_vec, out, o + r * o_row, o_row, o_vec, n_in)
            r += N_ROWS
        while r < n_out:
            _set_one(W, w0 + r * w_row, w_row, w_in, X, x, x_in, x_vec, out, o + r * o_row, o_row, o_vec, n_in)
            r += 1
        v += 1


@njit(cache=True, nogil=True)
def mix_times(
    W: Any,
    w0: Any,
    w_row: Any,
    X: Any,
    x0: Any,
    x_in: Any,
    F: Any,
    f0: Any,
    f_row: Any,
    out: Any,
    o0: Any,
    o_row: Any,
    n_out: Any,
    n_in: Any,
    n_vec: Any,
) -> None:
    """Equivalent to `out[r, v] = F[r, v] Σ_i W[r, i] X[i, v]`; F may be out, or one row for all (f_row = 0)."""
    vector = VECTOR_BYTES // X.itemsize
    v = 0
    while v + N_VECTORS <= n_vec:
        x, f, o = x0 + v * vector, f0 + v * vector, o0 + v * vector
        r = 0
        while r + N_ROWS <= n_out:
            _times_large(W, w0 + r * w_row, w_row, X, x, x_in, F, f + r * f_row, f_row, out, o + r * o_row, o_row, n_in)
            r += N_ROWS
        while r < n_out:
            _times_long(W, w0 + r * w_row, w_row, X, x, x_in, F, f + r * f_row, f_row, out, o + r * o_row, o_row, n_in)
            r += 1
        v += N_VECTORS
    while v < n_vec:
        x, f, o = x0 + v * vector, f0 + v * vector, o0 + v * vector
        r = 0
        while r + N_ROWS <= n_out:
            _times_high(W, w0 + r * w_row, w_row, X, x, x_in, F, f + r * f_row, f_row, out, o + r * o_row, o_row, n_in)
            r += N_ROWS
        while r < n_out:
            _times_one(W, w0 + r * w_row, w_row, X, x, x_in, F, f + r * f_row, f_row, out, o + r * o_row, o_row, n_in)
            r += 1
        v += 1


@njit(cache=True, nogil=True)
def mix_add(
    W: Any,
    w0: Any,
    w_row: Any,
    w_in: Any,
    X: Any,
    x0: Any,
    x_in: Any,
    x_vec: Any,
    out: Any,
    o0: Any,
    o_row: Any,
    o_vec: Any,
    n_out: Any,
    n_in: Any,
    n_vec: Any,
) -> None:
    """Equivalent to `out[r, v] += Σ_i W[r, i] X[i, v]` for n_vec vectors."""
    v = 0
    while v + N_VECTORS <= n_vec:
        x, o = x0 + v * x_vec, o0 + v * o_vec
        r = 0
        while r + N_ROWS <= n_out:
            _add_large(W, w0 + r * w_row, w_row, w_in, X, x, x_in, x_vec, out, o + r * o_row, o_row, o_vec, n_in)
            r += N_ROWS
        while r < n_out:
            _add_long(W, w0 + r * w_row, w_row, w_in, X, x, x_in, x_vec, out, o + r * o_row, o_row, o_vec, n_in)
            r += 1
        v += N_VECTORS
    while v < n_vec:
        x, o = x0 + v * x_vec, o0 + v * o_vec
        r = 0
        while r + N_ROWS <= n_out:
            _add_high(W, w0 + r * w_row, w_row, w_in, X, x, x_in, x_vec, out, o + r * o_row, o_row, o_vec, n_in)
            r += N_ROWS
        while r < n_out:
            _add_one(W, w0 + r * w_row, w_row, w_in, X, x, x_in, x_vec, out, o + r * o_row, o_row, o_vec, n_in)
            r += 1
        v += 1


@njit(cache=True, nogil=True)
def dots(
    X: Any,
    x0: Any,
    x_row: Any,
    Y: Any,
    y0: Any,
    y_row: Any,
    out: Any,
    o0: Any,
    o_row: Any,
    n_rows: Any,
    n_columns: Any,
    n_outer: Any,
    outer: Any,
    n_vec: Any,
) -> None:
    """Equivalent to `out[r, q] += Σ_{a, v} X[a, r, v] · Y[a, q, v]`, a counting n_outer steps of `outer` elements."""
    q = 0
    while q + N_COLUMNS <= n_columns:
        y, o = y0 + q * y_row, o0 + q
        r = 0
        while r + 4 <= n_rows:
            _dots_large(X, x0 + r * x_row, x_row, Y, y, y_row, out, o + r * o_row, o_row, n_outer, outer, n_vec)
            r += 4
        while r < n_rows:
            _dots_long(X, x0 + r * x_row, x_row, Y, y, y_row, out, o + r * o_row, o_row, n_outer, outer, n_vec)
            r += 1
        q += N_COLUMNS
    while q < n_columns:
        y, o = y0 + q * y_row, o0 + q
        r = 0
        while r + 4 <= n_rows:
            _dots_high(X, x0 + r * x_row, x_row, Y, y, y_row, out, o + r * o_row, o_row, n_outer, outer, n_vec)
            r += 4
        while r < n_rows:
            _dots_one(X, x0 + r * x_row, x_row, Y, y, y_row, out, o + r * o_row, o_row, n_outer, outer, n_vec)
            r += 1
        q += 1
