"""Tables of 16 bits a number against the numbers themselves, and products with them against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from undertow.kernels.strips import SCALE, WIDTH, Strips, lengthened, multiply, shortened


def test_codes_are_good_to_their_digits() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random(2000), 2.0 ** -rng.uniform(0, 30, 2000)]).astype(np.float32)
    np.testing.assert_allclose(lengthened(shortened(x)), x, rtol=2.0**-12)
    assert np.abs(lengthened(shortened(x)) / x - 1).max() > 2.0**-13  # they have no more
    tiny = (2.0 ** -rng.uniform(30, 41, 100)).astype(np.float32)
    np.testing.assert_allclose(lengthened(shortened(tiny)), tiny, rtol=0, atol=2.0**-42)


def test_codes_of_special_numbers() -> None:
    """0 and 1 are themselves, nothing else becomes 0, and each code is the code of its number."""
    x = np.array([0, 1, 1e-30, 0.5], dtype=np.float32)
    np.testing.assert_array_equal(lengthened(shortened(x)), np.array([0, 1, 2.0**-41, 0.5], dtype=np.float32))
    codes = np.arange(int(shortened(np.ones(1, dtype=np.float32))[0]) + 1, dtype=np.uint16)
    np.testing.assert_array_equal(shortened(lengthened(codes)), codes)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 8, 9])
def test_products_are_those_of_the_numbers(n: int) -> None:
    """Strips of other rows each, of even and odd numbers of them; rows of the result that are not asked for stay."""
    rng = np.random.default_rng(n)
    low, sizes = np.array([3, 0, 7, 5]), np.array([4, 11, 1, 5])
    starts = np.concatenate([[0], np.cumsum(sizes * WIDTH)])
    codes = shortened(rng.random(starts[-1]).astype(np.float32) ** 4)
    left, dense = rng.random((n + 1, 11)).astype(np.float32), np.zeros((11, 4 * WIDTH))
    for s in range(4):
        part = lengthened(codes[starts[s] : starts[s + 1]]).reshape(sizes[s], WIDTH)
        dense[low[s] : low[s] + sizes[s], s * WIDTH : (s + 1) * WIDTH] = part
    out = np.full((n + 1, 4 * WIDTH), -1, dtype=np.float32)
    multiply(left * SCALE, n, Strips(low, starts, codes), out)
    np.testing.assert_allclose(out[:n], left[:n] @ dense, rtol=1e-6)
    assert (out[n] == -1).all()
