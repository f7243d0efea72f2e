"""Tables of probabilities with one byte a number, one row after the other."""

from __future__ import annotations

from typing import Any

import numpy as np


def row_of_each(runs: Any) -> np.ndarray:
    """The row of each number of a flat table."""
    return np.array(
        [
            row + runs.step * i
            for row, start, end in zip(runs.row, runs.starts[:-1], runs.starts[1:], strict=True)
            for i in range(end - start)
        ],
        dtype=np.int64,
    )


def plain_encode(table: np.ndarray, runs: Any) -> tuple[np.ndarray, np.ndarray]:
    """The codes in the shape of the table, and the scales by which each row keeps its sum, float64."""
    flat, row = table.reshape(-1).astype(np.float64), row_of_each(runs)
    codes, scale = np.zeros(len(flat), dtype=np.uint8), np.zeros(runs.n_rows)
    for z in range(runs.n_rows):
        own = flat[row == z]
        if own.max(initial=0.0) > 0:
            with np.errstate(divide="ignore"):
                place = np.rint(255 + 8 * np.log2(own / own.max()))
            codes[row == z] = np.where(own > 0, np.maximum(place, 1), 0)
            scale[z] = own.sum() / plain_decode(codes[row == z], np.ones(1), np.zeros(len(own), dtype=int)).sum()
    return codes.reshape(table.shape), scale


def plain_decode(codes: np.ndarray, scale: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Flat numbers, float64."""
    flat = codes.reshape(-1).astype(np.float64)
    return np.where(flat > 0, 2.0 ** ((flat - 255) / 8), 0.0) * scale[row]
