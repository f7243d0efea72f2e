"""Logarithm and exponential in float32, against those of float64."""

from __future__ import annotations

import numpy as np
from numba import njit

from undertow.kernels.fast_logs import exp32, log32


@njit
def each(x, out_log, out_exp):
    for i in range(len(x)):
        out_log[i], out_exp[i] = log32(x[i]), exp32(-x[i])


def found(x):
    x = np.asarray(x, dtype=np.float32)
    logs, exps = np.empty_like(x), np.empty_like(x)
    each(x, logs, exps)
    return x.astype(float), logs, exps


def test_they_are_those_of_float64_to_the_last_digits() -> None:
    rng = np.random.default_rng(0)
    x, logs, exps = found(
        np.concatenate([rng.random(5000), rng.random(5000) * 86, 10.0 ** rng.uniform(-37, 1.9, 5000)])
    )
    np.testing.assert_allclose(logs, np.log(x), rtol=4e-7, atol=1e-7)
    np.testing.assert_allclose(exps, np.exp(-x), rtol=4e-7)


def test_zero_the_smallest_numbers_and_one() -> None:
    x, logs, exps = found([0.0, 1e-45, 1e-40, 1.1754944e-38, 1.0, 80.0, np.inf])
    assert logs[0] == -np.inf and exps[0] == 1
    np.testing.assert_allclose(logs[1:-1], np.log(x[1:-1]), rtol=4e-7, atol=1e-7)
    np.testing.assert_allclose(exps[1:-1], np.exp(-x[1:-1]), rtol=4e-7)
    assert 0 <= exps[-1] < 1e-37
