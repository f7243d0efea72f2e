"""A moving map as plain arrays for pages and pictures: the model provides it, `undertow.view` draws it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from undertow.kernels.types import F32, F64
from undertow.models.dynamic.queries import distance
from undertow.models.dynamic.state import FittedMap


class MapPair(NamedTuple):
    """A pair of entities: its distance over time beside its observed share of counts."""

    i: int  # index into `MapData.names`, of the first kind
    j: int  # of the second kind
    mean: F64  # (T,) expected distance
    low: F64  # (T,) lower edge of the 90 % band
    high: F64  # (T,) upper edge
    probability: F64  # (T,) share of j's counts at the time that are with i; 0 where there are none


class MapData(NamedTuple):
    """A moving map of T times, n entities of two kinds and d coordinates, rotated so that entities move least."""

    times: list[str]  # T labels, in order
    names: list[str]  # n names, text that may hold anything; unique within a kind, not between kinds
    kinds: list[str]  # n labels, each one of kind_names
    kind_names: list[str]  # the two kinds, rows first, such as ["authors", "words"]
    positions: F64  # (T, n, d) smoothed means
    covariances: F32  # (T, n, d, d) smoothed covariances of the single entities
    weights: F64  # (T, n) share of its kind's counts at the time; 0: absent then
    pairs: list[MapPair] = []  # noqa: RUF012  # a NamedTuple's default is never written to
    offsets: F64 | None = (
        None  # (T, n) o: i and j meet e^{o_i + o_j − d²} times as often as by chance; None: by the sums
    )
    calibrated: bool = True  # whether covariances and bands hold what they say: the model fitted the frequencies


def make_map_data(fitted: FittedMap, n_pairs: int) -> MapData:
    """The smoothed map, and the pairs whose share of counts changed most."""
    path, entities = fitted.smoothed, fitted.entities
    n = len(entities.names)
    blocks = np.stack([fitted.entity_covariances(t) for t in range(len(path.covs))])
    return MapData(
        [str(t) for t in fitted.events.times],
        list(entities.names),
        [entities.kind(i) for i in range(n)],
        list(entities.kinds),
        path.means.copy(),
        blocks.astype(np.float32),
        fitted.shares,
        [_map_pair(fitted, i, j) for i, j in changing_pairs(fitted, n_pairs)],
        fitted.offsets(False),
        fitted.free_frequencies,
    )


def changing_pairs(fitted: FittedMap, n_pairs: int) -> list[tuple[int, int]]:
    """Frequent pairs whose share of the column's counts changed most over the steps; each name at most once.

    Ties are broken by the change of distance, then by frequency.
    """
    x, tables, n_rows = fitted.smoothed.means, fitted.events.tables, fitted.entities.n_rows
    columns = np.array([t.sum(axis=0) for t in tables])
    total = sp.csr_array(sum(tables)).tocoo()
    frequent = np.argsort(-total.data, kind="stable")[: 50 * max(n_pairs, 0)]
    ranked = []
    for k in frequent.tolist():
        i, j = int(total.row[k]), int(total.col[k])
        p = np.array([t[i, j] for t in tables]) / np.maximum(columns[:, j], 1e-300)
        distances = np.sqrt(((x[:, i] - x[:, j + n_rows]) ** 2).sum(axis=1))
        change = round(float(p.std()), 9)  # equal shares differ by rounding
        ranked.append((-change, -float(distances.std()), -float(total.data[k]), i, j))
    out: list[tuple[int, int]] = []
    for *_, i, j in sorted(ranked):
        if len(out) < n_pairs and all(i != a and j != b for a, b in out):
            out.append((i, j))
    return out


def empirical_shares(fitted: FittedMap, row: Any, column: Any) -> F64:
    """(T,) share of a column's counts at each step that are with a row; 0 where it has none."""
    i = fitted.entities.find(row, "row")
    j = fitted.entities.find(column, "column") - fitted.entities.n_rows
    return np.array([float(t[i, j]) / max(float(t[:, [j]].sum()), 1e-300) for t in fitted.events.tables])


def _map_pair(fitted: FittedMap, i: int, j: int) -> MapPair:
    names, n_rows = fitted.entities.names, fitted.entities.n_rows
    row, column = names[i], names[j + n_rows]
    line = distance(fitted, ("row", row), ("column", column))
    return MapPair(i, j + n_rows, *line, empirical_shares(fitted, row, column))
