"""Packing by time step as two loops: the slow obvious truth behind `kernels.lanes`."""

from __future__ import annotations

from typing import Any


def packed_by_loop(begin: Any, length: Any) -> list[list[int]]:
    """For each step the tokens of the sequences that are so long, in the order given."""
    return [[b + t for b, n in zip(begin, length, strict=True) if n > t] for t in range(max(length, default=0))]


def longest_first_by_sorting(lengths: Any) -> list[int]:
    return sorted((i for i, n in enumerate(lengths) if n > 0), key=lambda i: -lengths[i])
