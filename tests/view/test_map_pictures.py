"""Pictures and films: right formats, names as text, clear words where an extra is missing."""

from __future__ import annotations

import builtins
import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from map_samples import sample_map
from sentences import is_one_sentence
from undertow.errors import InputError, MissingExtraError
from undertow.models.dynamic.map_data import MapData
from undertow.view.map_pictures import save_film, save_picture
from waiting import HANGS

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="pictures need the extra viz"
)
needs_imageio = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None or importlib.util.find_spec("imageio_ffmpeg") is None,
    reason="films need the extras viz and video",
)


def hostile_map() -> MapData:
    data = sample_map()
    names = ["<script>alert(1)</script>", "$\\frac{broken$", "👩‍👩‍👧 emoji", "שלום", "a" * 300, "tab\there", "\ud800"]
    return data._replace(names=[*names, *data.names[len(names) :]], kind_names=["$x$", "words"],
                         kinds=["$x$" if k == "authors" else k for k in data.kinds])  # fmt: skip


@needs_matplotlib
def test_a_picture_shows_the_last_time_or_the_one_asked_for(tmp_path: Path) -> None:
    data = sample_map()
    assert save_picture(data, tmp_path / "last.svg") == [tmp_path / "last.svg"]
    last = (tmp_path / "last.svg").read_text()
    assert ">1995</text>" in last and ">A moving map of 8 authors and 12 words</text>" in last
    save_picture(data, tmp_path / "one.svg", time="1992", title="Title")
    one = (tmp_path / "one.svg").read_text()
    assert ">1992</text>" in one and ">Title</text>" in one
    save_picture(data, tmp_path / "one.png", time="1992")
    png = (tmp_path / "one.png").read_bytes()
    assert png.startswith(b"\x89PNG") and png[16:24] == (2560).to_bytes(4) + (1440).to_bytes(4)


@needs_matplotlib
def test_the_same_map_gives_the_same_picture(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "a.png", "b.png"):
        save_picture(sample_map(), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@needs_matplotlib
def test_a_picture_for_every_time(tmp_path: Path) -> None:
    data = sample_map(n_times=3)._replace(times=["1990", "spring/1991", "..hidden"])
    written = save_picture(data, tmp_path / "map {time}.svg")
    assert [path.name for path in written] == ["map 1990.svg", "map spring-1991.svg", "map hidden.svg"]
    assert all(path.exists() for path in written)
    assert save_picture(data, tmp_path / "only {time}.svg", time="1990") == [tmp_path / "only 1990.svg"]
    with pytest.raises(InputError, match="share a file"):
        save_picture(data._replace(times=["a/b", "a b", "c"]), tmp_path / "{time}.png")


@needs_matplotlib
def test_dots_stand_where_the_data_have_them(tmp_path: Path) -> None:
    """Distances between dots in the SVG are in proportion to the model's."""
    data = sample_map(n_rows=4, n_columns=0)._replace(pairs=[])
    save_picture(data, tmp_path / "m.svg", time="1990")
    outlines = re.findall(r'<path d="([^"]+)"[^>]*style="fill: #14607a; fill-opacity', (tmp_path / "m.svg").read_text())
    corners = [np.array(re.findall(r"-?[\d.]+", d), dtype=float).reshape(-1, 2) for d in outlines]
    places = np.array([(c.min(0) + c.max(0)) / 2 for c in corners])
    assert places.shape == (4, 2)
    got = np.linalg.norm(places[:, None] - places[None], axis=-1)[np.triu_indices(4, 1)]
    expected = np.linalg.norm(data.positions[0, :, None] - data.positions[0, None], axis=-1)[np.triu_indices(4, 1)]
    ratio = got / expected
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)


@needs_matplotlib
def test_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    save_picture(hostile_map(), tmp_path / "m.svg", title="<b> $5 & more")
    text = (tmp_path / "m.svg").read_text()
    assert "<script" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "$\\frac{broken$" in text and "&lt;b&gt; $5 &amp; more" in text
    assert "a" * 27 + "…" in text and "a" * 29 not in text
    save_picture(hostile_map(), tmp_path / "m.png")


@needs_matplotlib
@pytest.mark.parametrize("data", [sample_map(d=1), sample_map(d=4), sample_map(n_times=1, n_rows=1, n_columns=0)])
def test_unusual_maps_are_drawn_too(data: MapData, tmp_path: Path) -> None:
    save_picture(data, tmp_path / "m.png")
    nothing = data._replace(weights=np.zeros_like(data.weights), positions=np.zeros_like(data.positions))
    save_picture(nothing, tmp_path / "n.png")


@needs_imageio
@pytest.mark.parametrize("ending", ["gif", "mp4"])
def test_a_film_goes_from_the_first_time_to_the_last(ending: str, tmp_path: Path) -> None:
    import imageio_ffmpeg

    data = sample_map(n_times=2, n_rows=3, n_columns=3)
    told: list[tuple[int, int]] = []
    n_pictures = save_film(
        data, tmp_path / f"m.{ending}", fps=4, seconds=0.5, progress=lambda done, total: told.append((done, total))
    )
    assert n_pictures == 3 + 4 and told == [(k + 1, 7) for k in range(7)]  # two steps, and a second at the end
    # the ffmpeg that wrote the one reads both
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", str(tmp_path / f"m.{ending}")]
    raw = subprocess.run(
        [*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"], capture_output=True, check=True, timeout=HANGS
    ).stdout
    pictures = np.frombuffer(raw, np.uint8).reshape(-1, 720, 1280, 3).astype(float)
    moved = (np.abs(pictures[0] - pictures[-1]) > 60).any(axis=-1)
    assert moved.sum() > 1000
    if ending == "mp4":
        assert len(pictures) == 7


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    data = sample_map()
    (tmp_path / "there.png").touch()
    for call in (
        lambda: save_picture(data, tmp_path / "m.jpg"),
        lambda: save_picture(data, tmp_path / "m.png", time="1066"),
        lambda: save_picture(data, tmp_path / "there.png"),
        lambda: save_picture(data, tmp_path),
        lambda: save_picture(data._replace(weights=-data.weights), tmp_path / "m.png"),
        lambda: save_film(data, tmp_path / "m.png"),
        lambda: save_film(data, tmp_path / "m.gif", fps=0),
        lambda: save_film(data, tmp_path / "m.gif", seconds=0),
    ):
        with pytest.raises(InputError) as caught:
            call()  # type: ignore[no-untyped-call]
        assert is_one_sentence(str(caught.value))
    assert [path.name for path in tmp_path.iterdir()] == ["there.png"]


@pytest.mark.parametrize(
    ("missing", "ending", "extra"),
    [("matplotlib", "png", "viz"), ("imageio", "gif", "video"), ("imageio_ffmpeg", "mp4", "video")],
)
def test_a_missing_extra_is_named(
    missing: str, ending: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == missing:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    save = save_picture if ending == "png" else save_film
    with pytest.raises(MissingExtraError, match=rf"undertow\[.*{extra}") as caught:
        save(sample_map(), tmp_path / f"m.{ending}")
    assert is_one_sentence(str(caught.value))
    assert list(tmp_path.iterdir()) == []


@needs_imageio
def test_a_film_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import imageio_ffmpeg

    (tmp_path / "broken").write_text("#!/bin/sh\necho it broke >&2\nexit 3\n")
    (tmp_path / "broken").chmod(0o755)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: str(tmp_path / "broken"))
    with pytest.raises(InputError, match="it broke") as caught:
        save_film(sample_map(n_times=2, n_rows=3, n_columns=3), tmp_path / "m.mp4", fps=1)
    assert is_one_sentence(str(caught.value))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.undo()
    with pytest.raises(KeyboardInterrupt):
        save_film(sample_map(n_times=2, n_rows=3, n_columns=3), tmp_path / "m.mp4", fps=1, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]
