"""One byte a number: as the plain form says, within its bounds, and the same when coded again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.plain_byte_codes import plain_decode, plain_encode, row_of_each
from undertow.kernels import byte_codes
from undertow.kernels.byte_codes import Runs


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray, Runs]:
    """Tables with zeros, empty rows and numbers of very different size, by rows, by columns and in pieces."""
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    table = np.exp(rng.normal(0, draw(st.sampled_from([0.0, 1.0, 12.0])), (n, m)))
    table[rng.random((n, m)) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = 0
    form = draw(st.sampled_from(["rows", "columns", "pieces"]))
    if form == "pieces":
        starts = np.concatenate(([0], np.sort(rng.integers(0, n * m + 1, 4)), [n * m])).astype(np.int64)
        return table.astype(np.float32).ravel(), Runs(starts, rng.integers(0, 3, 5), 0, 3)
    return table.astype(np.float32), (byte_codes.rows if form == "rows" else byte_codes.columns)(n, m)


@settings(deadline=None, max_examples=150)
@given(tables())
def test_codes_are_those_of_the_plain_form(case: tuple[np.ndarray, Runs]) -> None:
    table, runs = case
    codes, scale = byte_codes.encode(table, runs)
    plain_codes, plain_scale = plain_encode(table, runs)
    assert codes.dtype == np.uint8 and codes.shape == table.shape and scale.dtype == np.float32
    # a number in the middle between two codes may get either
    assert (np.abs(codes.astype(int) - plain_codes) <= 1).all() and (codes != plain_codes).mean() < 0.02
    row = row_of_each(runs)
    if (codes == plain_codes).all():
        np.testing.assert_allclose(scale, plain_scale, rtol=1e-6)
    decoded = byte_codes.decode(codes, scale, runs)
    np.testing.assert_allclose(decoded.ravel(), plain_decode(codes, scale, row), rtol=1e-6)
    most = byte_codes.largest_codes(codes, runs)
    assert most.tolist() == [int(codes.ravel()[row == z].max(initial=0)) for z in range(runs.n_rows)]
    assert set(most.tolist()) <= {0, 255}


@settings(deadline=None, max_examples=150)
@given(tables())
def test_rows_keep_their_sums_zeros_and_nearly_their_numbers(case: tuple[np.ndarray, Runs]) -> None:
    table, runs = case
    codes, scale = byte_codes.encode(table, runs)
    decoded = byte_codes.decode(codes, scale, runs)
    row, flat, back = row_of_each(runs), table.ravel().astype(float), decoded.ravel().astype(float)
    assert ((decoded == 0) == (table == 0)).all()
    for z in range(runs.n_rows):
        own, new = flat[row == z], back[row == z]
        assert new.sum() == pytest.approx(own.sum(), rel=1e-6)
        seen = own > own.max(initial=0.0) * 2.0**-31
        # the numbers relative to each other are off by half a step, and so is the scale
        ratio = new[seen] / own[seen]
        assert (np.abs(np.log2(ratio)) <= 1 / 8 + 1e-5).all()
        assert (np.ptp(np.log2(ratio)) if len(ratio) else 0) <= 1 / 8 + 1e-5


@settings(deadline=None, max_examples=150)
@given(tables())
def test_coded_again_nothing_changes(case: tuple[np.ndarray, Runs]) -> None:
    table, runs = case
    codes, scale = byte_codes.encode(table, runs)
    again = byte_codes.encode(byte_codes.decode(codes, scale, runs), runs)
    np.testing.assert_array_equal(again[0], codes)
    np.testing.assert_array_equal(again[1], scale)
