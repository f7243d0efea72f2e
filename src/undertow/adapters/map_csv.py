"""The map of a dynamic embedding as a table: one row per entity and time.

    time, kind, name    as the map has them
    x1 … xd             the smoothed position
    cov_1_1 … cov_d_d   its covariance, the upper triangle
    weight              share of the counts of its kind at the time; 0: not observed then

Comma-separated, UTF-8, quoted where needed. Numbers have as many digits as give back positions and weights as float64
and covariances as float32.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from undertow.atomic import finished_file
from undertow.models.dynamic.map_data import MapData


def write_map_csv(data: MapData, path: str | Path, *, overwrite: bool = False) -> int:
    """Write the map of a dynamic embedding as a CSV table, one row per entity and time.

    Parameters
    ----------
    data
        The map, from `DynamicEmbedding.map_data`.
    path
        The file to write; it appears complete or not at all.
    overwrite
        Replace an existing file.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    InputError
        If the file exists or cannot be written.
    """
    with finished_file(Path(path), overwrite=overwrite) as ready, open(ready, "wb") as f:
        f.writelines(map_csv_rows(data))
    return len(data.times) * len(data.names)


def map_csv_rows(data: MapData) -> Iterator[bytes]:
    """Yield the encoded header and the rows of each time."""
    d = data.positions.shape[-1]
    upper = [(a, b) for a in range(d) for b in range(a, d)]
    axes = [f"x{a + 1}" for a in range(d)]
    yield _encoded([["time", "kind", "name", *axes, *(f"cov_{a + 1}_{b + 1}" for a, b in upper), "weight"]])
    rows, columns = zip(*upper, strict=True)
    for t, time in enumerate(data.times):
        cov = np.asarray(data.covariances[t], dtype=np.float32)[:, rows, columns]
        numbers = zip(data.positions[t].tolist(), cov.tolist(), data.weights[t].tolist(), strict=True)
        yield _encoded(
            [time, kind, name, *map(repr, x), *(f"{c:.9g}" for c in entries), repr(weight)]
            for kind, name, (x, entries, weight) in zip(data.kinds, data.names, numbers, strict=True)
        )


def _encoded(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")  # a lone surrogate, which only a damaged name has
