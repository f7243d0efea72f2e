"""`undertow view` and the map formats of `undertow export`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from cli_runner import failed, run
from map_samples import sample_map
from undertow.cli import model as model_room
from undertow.models.dynamic.map_data import MapData


class Mapped:
    """A model that has a map and nothing else."""

    kind = "mapped"

    def map_data(self) -> MapData:
        return sample_map()


@pytest.fixture(autouse=True)
def one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_model(path: str) -> Any:
        return Mapped()

    monkeypatch.setattr("undertow.storage.load_model", load_model)
    assert model_room.open_model("m", "map_data").kind == "mapped"


def test_view_writes_a_page(tmp_path: Path) -> None:
    done = run("view", "m", "-o", tmp_path / "map.html", "--title", "My map", "--json")
    facts = json.loads(done.stdout)
    page = (tmp_path / "map.html").read_text()
    assert "<title>My map</title>" in page
    assert facts == {"page": str(tmp_path / "map.html"), "bytes": len(page.encode()), "entities": 20, "times": 6}
    assert "exists already" in failed(run("view", "m", "-o", tmp_path / "map.html"))
    done = run("view", "m", "-o", tmp_path / "map.html", "--overwrite")
    assert done.returncode == 0 and "A moving map" in (tmp_path / "map.html").read_text() and "entities" in done.stdout


def test_export_writes_a_table(tmp_path: Path) -> None:
    facts = json.loads(run("export", "m", "-o", tmp_path / "m.csv", "--json").stdout)
    assert facts == {"map": str(tmp_path / "m.csv"), "format": "csv", "rows": 120}
    done = run("export", "m", "-o", "-", "--format", "csv")
    assert done.returncode == 0 and done.stdout == (tmp_path / "m.csv").read_text()
    assert done.stdout.startswith("time,kind,name,x1,x2,cov_1_1,cov_1_2,cov_2_2,weight\n1990,authors,author 0,")


def test_export_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra viz")
    done = run("export", "m", "-o", tmp_path / "m.svg", "--time", "1991", "--title", "T", "--json")
    assert json.loads(done.stdout)["pictures"] == 1 and ">1991</text>" in (tmp_path / "m.svg").read_text()
    done = run("export", "m", "-o", tmp_path / "{time}.svg", "--json")
    assert json.loads(done.stdout)["pictures"] == 6 and (tmp_path / "1990.svg").exists()
    assert "no time '1066'" in failed(run("export", "m", "-o", tmp_path / "n.png", "--time", "1066"))
    assert "exists already" in failed(run("export", "m", "-o", tmp_path / "m.svg"))


def test_export_films(tmp_path: Path) -> None:
    if not all(importlib.util.find_spec(name) for name in ("matplotlib", "imageio_ffmpeg")):
        pytest.skip(reason="films need the extras viz and video")
    done = run("export", "m", "-o", tmp_path / "m.gif", "--fps", "1", "--json")
    assert json.loads(done.stdout)["pictures"] == 7
    assert (tmp_path / "m.gif").read_bytes().startswith(b"GIF8")


def test_what_a_model_cannot_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "'mapped', which has no word vectors" in failed(run("export", "m", "-o", tmp_path / "v.txt"))
    monkeypatch.delattr(Mapped, "map_data")
    for name in ("m.csv", "m.png"):
        assert "'mapped', which has no map data" in failed(run("export", "m", "-o", tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_bad_usage_is_2(tmp_path: Path) -> None:
    for arguments in [
        ("view", "m"),
        ("view", "-o", tmp_path / "m.html"),
        ("export", "m", "-o", "-", "--format", "png"),
        ("export", "m", "-o", "-", "--format", "csv", "--json"),
        ("export", "m", "-o", tmp_path / "m.csv", "--time", "1990"),
        ("export", "m", "-o", tmp_path / "m.csv", "--title", "T"),
        ("export", "m", "-o", tmp_path / "m.png", "--fps", "3"),
        ("export", "m", "-o", tmp_path / "m.gif", "--fps", "0"),
        ("export", "m", "-o", tmp_path / "m.gif", "--time", "1990"),
        ("export", "m", "-o", tmp_path / "m.jpg"),
    ]:
        failed(run(*arguments), 2)
    assert list(tmp_path.iterdir()) == []
