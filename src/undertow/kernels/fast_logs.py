"""Logarithm and exponential of float32 numbers, written so that LLVM runs a whole register of them at a time.

Numba calls the C library once for each number, which takes most of the time of a loop over all words. These are the
polynomials of Cephes (logf, expf), good to one or two units of the last digit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_f, _i = np.float32, np.int32
_SMALLEST = _f(1.17549435e-38)  # the least number that has all its digits
_TINY, _LOG_TINY = _f(1 << 23), _f(15.942385152878742)  # brings smaller ones among those that have
_SQRT_HALF_BITS, _MANTISSA_BITS, _BIAS = _i(0x3F3504F3), _i(23), _i(127)
_LN2_HIGH, _LN2_LOW, _LOG2_E = _f(0.693359375), _f(-2.12194440e-4), _f(1.44269504088896341)
_LEAST = _f(-87.0)  # of what is raised to a power of e; below it the result is about 1e-38


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def log32(x: Any) -> Any:
    """Equivalent to `np.log(x)` of a float32 x ≥ 0; log 0 is −inf."""
    small = x < _SMALLEST
    normal = _f(x * (_TINY if small else _f(1)))
    bits = normal.view(_i)
    exponent = _i(_i(bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS)
    m = _i(bits - _i(exponent << _MANTISSA_BITS)).view(_f) - _f(1)  # mantissa − 1, between √½ − 1 and √2 − 1
    p = _f(7.0376836292e-2)
    p = p * m + _f(-1.1514610310e-1)
    p = p * m + _f(1.1676998740e-1)
    p = p * m + _f(-1.2420140846e-1)
    p = p * m + _f(1.4249322787e-1)
    p = p * m + _f(-1.6668057665e-1)
    p = p * m + _f(2.0000714765e-1)
    p = p * m + _f(-2.4999993993e-1)
    p = p * m + _f(3.3333331174e-1)
    e = _f(exponent)
    out = m + (p * m * m * m + e * _LN2_LOW - _f(0.5) * m * m) + e * _LN2_HIGH
    out = out - _LOG_TINY if small else out
    return out if x > 0 else _f(-np.inf)


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def exp32(x: Any) -> Any:
    """Equivalent to `np.exp(np.maximum(x, -87))` of a float32 x ≤ 88."""
    x = x if x > _LEAST else _LEAST
    n = np.floor(x * _LOG2_E + _f(0.5))
    r = x - n * _LN2_HIGH - n * _LN2_LOW
    p = _f(1.9875691500e-4)
    p = p * r + _f(1.3981999507e-3)
    p = p * r + _f(8.3334519073e-3)
    p = p * r + _f(4.1665795894e-2)
    p = p * r + _f(1.6666665459e-1)
    p = p * r + _f(5.0000001201e-1)
    return (p * r * r + r + _f(1)) * _i(_i(_i(n) + _BIAS) << _MANTISSA_BITS).view(_f)


__all__ = ["exp32", "log32"]
