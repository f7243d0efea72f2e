"""What a moving map shows on a page or in a picture: positions, and pairs whose meetings changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from undertow.models.dynamic.map_data import MapData, MapPair
from undertow.models.dynamic.questions import AskedMap

Array = npt.NDArray[np.float64]


class ShownMap(AskedMap):
    """The map as plain arrays for those who draw it."""

    def map_data(self, n_pairs: int = 12) -> MapData:
        """The smoothed map, and pairs whose meetings changed most, for pages and pictures."""
        self._check_fitted()
        path, form, names = self._smoothed(), self._settings().form, self._names
        n = len(names.all)
        blocks = np.stack([form.blocks(c, n) for c in path.covs])
        return MapData(
            [str(t) for t in self.times_],
            list(names.all),
            [names.kind(i) for i in range(n)],
            list(names.kinds),
            path.means.copy(),
            blocks.astype(np.float32),
            self._weights(),
            [self._map_pair(i, j) for i, j in self._telling_pairs(n_pairs)],
        )

    def _telling_pairs(self, n_pairs: int) -> list[tuple[int, int]]:
        """Frequent pairs whose share of the column's counts changed most over the steps; each name once.

        Equal ones by how much their distance changed, then by how often they met.
        """
        x = self._smoothed().means
        columns = np.array([t.sum(axis=0) for t in self.events_.tables])
        total = sp.csr_array(sum(self.events_.tables)).tocoo()
        often = np.argsort(-total.data, kind="stable")[: 50 * max(n_pairs, 0)]
        ranked = []
        for k in often.tolist():
            i, j = int(total.row[k]), int(total.col[k])
            p = np.array([t[i, j] for t in self.events_.tables]) / np.maximum(columns[:, j], 1e-300)
            moved = np.sqrt(((x[:, i] - x[:, j + self._names.n_rows]) ** 2).sum(axis=1))
            change = round(float(p.std()), 9)  # equal shares differ by rounding
            ranked.append((-change, -float(moved.std()), -float(total.data[k]), i, j))
        out: list[tuple[int, int]] = []
        for *_, i, j in sorted(ranked):
            if len(out) < n_pairs and all(i != a and j != b for a, b in out):
                out.append((i, j))
        return out

    def empirical(self, row: Any, column: Any) -> Array:
        """(T,) share of a column's counts at each step that are with a row; 0 where it has none."""
        self._check_fitted()
        i, j = self._names.find(row, "row"), self._names.find(column, "column") - self._names.n_rows
        return np.array([float(t[i, j]) / max(float(t[:, [j]].sum()), 1e-300) for t in self.events_.tables])

    def _map_pair(self, i: int, j: int) -> MapPair:
        row, column = ("row", self._names.all[i]), ("column", self._names.all[j + self._names.n_rows])
        return MapPair(i, j + self._names.n_rows, *self.distance(row, column), self.empirical(row[1], column[1]))
