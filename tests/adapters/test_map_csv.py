"""The table of a map gives back its numbers and its names."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from map_samples import sample_map
from undertow.adapters.map_csv import map_csv_rows, write_map_csv
from undertow.errors import InputError


@pytest.mark.parametrize("d", [1, 2, 3])
def test_everything_comes_back(d: int, tmp_path: Path) -> None:
    data = sample_map(d=d)
    data = data._replace(names=['quo"ted, with\nbreak', "=1+1", "<b>", *data.names[3:]])
    assert write_map_csv(data, tmp_path / "m.csv") == 6 * 20
    with open(tmp_path / "m.csv", newline="", encoding="utf-8") as f:
        header, *rows = csv.reader(f)
    upper = [(a, b) for a in range(d) for b in range(a, d)]
    axes = [f"x{a + 1}" for a in range(d)]
    assert header == ["time", "kind", "name", *axes, *(f"cov_{a + 1}_{b + 1}" for a, b in upper), "weight"]
    assert [row[0] for row in rows] == [t for t in data.times for _ in data.names]
    assert [row[1] for row in rows] == data.kinds * 6 and [row[2] for row in rows] == data.names * 6
    numbers = np.array([row[3:] for row in rows], dtype=np.float64).reshape(6, 20, -1)
    assert (numbers[..., :d] == data.positions).all() and (numbers[..., -1] == data.weights).all()
    for k, (a, b) in enumerate(upper):
        assert_allclose(numbers[..., d + k], data.covariances[..., a, b], rtol=1e-7)


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        write_map_csv(sample_map(), tmp_path / "m.csv")
    assert (tmp_path / "m.csv").read_text() == "mine"
    write_map_csv(sample_map(), tmp_path / "m.csv", overwrite=True)


def test_a_damaged_name_is_written_too() -> None:
    data = sample_map(n_times=1)
    text = b"".join(map_csv_rows(data._replace(names=["\ud800", *data.names[1:]]))).decode()
    assert next(r for r in csv.DictReader(io.StringIO(text)))["name"] == "?"
