"""What a page or picture of a moving map needs, as plain arrays: the model gives it, the view room draws it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class MapPair(NamedTuple):
    """A pair worth looking at: its distance over time beside what was counted."""

    i: int  # index into `MapData.names`, of the first kind
    j: int  # of the second kind
    mean: NDArray[np.float64]  # (T,) expected distance
    low: NDArray[np.float64]  # (T,) lower edge of the 90 % band
    high: NDArray[np.float64]  # (T,) upper edge
    probability: NDArray[np.float64]  # (T,) share of j's counts at the time that are with i; 0 where there are none


class MapData(NamedTuple):
    """A moving map: T times, n entities of two kinds, d coordinates, in frames in which all together move least."""

    times: list[str]  # T labels, in order
    names: list[str]  # n names, text that may hold anything; unique within a kind, not between kinds
    kinds: list[str]  # n labels, each one of kind_names
    kind_names: list[str]  # the two kinds, rows first, such as ["authors", "words"]
    positions: NDArray[np.float64]  # (T, n, d) smoothed means
    covariances: NDArray[np.float32]  # (T, n, d, d) smoothed covariances of the single entities
    weights: NDArray[np.float64]  # (T, n) share of its kind's counts at the time; 0: absent then
    pairs: list[MapPair] = []  # noqa: RUF012  # a NamedTuple's default is never written to
