"""Pictures and animations of a dynamic embedding: PNG and SVG through matplotlib (`viz`).

GIF and MP4 through imageio (`video`).
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.atomic import check_file_target, finished_file
from undertow.errors import InputError, missing_extra
from undertow.models.dynamic.map_data import MapData
from undertow.view.map_frame import DPI, SIZE, FrameDrawer
from undertow.view.map_geometry import check_map

Writer = Callable[[NDArray[np.uint8]], object]

PICTURES = ("png", "svg")
FPS = {"gif": 6, "mp4": 12}
FILMS = tuple(FPS)


def save_picture(
    map_data: MapData,
    path: str | os.PathLike[str],
    *,
    time: str | None = None,
    format: str | None = None,
    title: str | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Draw the map at a time (the last by default) as PNG or SVG; returns the files written.

    If the path contains `{time}`, every time gets its own file, unless a time is given.
    """
    check_map(map_data)
    target = Path(path)
    chosen = _format(target, format, PICTURES)
    every = "{time}" in target.name and time is None
    frames = list(range(len(map_data.times))) if every else [_frame(map_data, time)]
    targets = [target.with_name(target.name.replace("{time}", _slug(map_data.times[f]))) for f in frames]
    if len(set(targets)) != len(targets):
        raise InputError(f"Two times of the map would share a file under {target}: their labels are too much alike.")
    for each in targets:
        check_file_target(each, overwrite=overwrite)
    with _quiet():
        drawer = FrameDrawer(map_data, title)
        for frame, each in zip(frames, targets, strict=True):
            with finished_file(each, overwrite=overwrite) as ready:
                drawer.draw(float(frame))
                drawer.save(ready, chosen)
    return targets


def save_film(
    map_data: MapData,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    title: str | None = None,
    fps: int | None = None,
    seconds: float = 0.75,
    overwrite: bool = False,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> int:
    """Animate the map from its first time to its last, `seconds` from one to the next; returns the number of frames.

    `fps` frames per second; by default 12, and 6 in a GIF, which compresses little between frames and so grows fast.
    """
    check_map(map_data)
    target = Path(path)
    chosen = _format(target, format, FILMS)
    fps = FPS[chosen] if fps is None else fps
    if not 1 <= fps <= 60:
        raise InputError(f"fps={fps} must be from 1 to 60 frames per second.")
    if not 0 < seconds <= 60:
        raise InputError(f"seconds={seconds} from one time to the next must be more than 0 and at most 60.")
    writer = _gif_writer if chosen == "gif" else _mp4_writer
    _check_extra(chosen)
    check_file_target(target, overwrite=overwrite)
    n_times = len(map_data.times)
    moments = np.linspace(0.0, n_times - 1.0, max(round((n_times - 1) * seconds * fps), n_times - 1) + 1)
    moments = np.append(moments, np.repeat(moments[-1], fps))  # a second to look at the end
    with _quiet(), finished_file(target, overwrite=overwrite) as ready:
        drawer = FrameDrawer(map_data, title)
        with writer(ready, fps) as write:
            picture = None
            for number, moment in enumerate(moments.tolist()):
                if picture is None or moment != moments[number - 1]:
                    drawer.draw(moment)
                    picture = drawer.pixels()
                write(picture)
                progress(number + 1, len(moments))
    return len(moments)


def _format(target: Path, format_: str | None, known: tuple[str, ...]) -> str:
    chosen = format_ or target.suffix.lower().removeprefix(".")
    if chosen not in known:
        raise InputError(f"{target} has no suffix of a known format: let it end in .{' or .'.join(known)}.")
    return chosen


def _frame(data: MapData, time: str | None) -> int:
    if time is None:
        return len(data.times) - 1
    if time not in data.times:
        raise InputError(f"The map has no time {time!r}: its times go from {data.times[0]} to {data.times[-1]}.")
    return data.times.index(time)


def _slug(label: str) -> str:
    """A time's label as part of a file's name."""
    return re.sub(r"[^\w.-]+", "-", label)[:80].lstrip(".") or "-"


def _check_extra(format_: str) -> None:
    try:
        import imageio  # noqa: F401

        if format_ == "mp4":
            import imageio_ffmpeg  # noqa: F401
    except ImportError as e:
        raise missing_extra(f"{format_.upper()} films need imageio", "video,viz") from e


@contextmanager
def _gif_writer(path: Path, fps: int) -> Iterator[Writer]:
    import imageio.v2

    opened: Any = imageio.v2.get_writer(str(path), format="GIF", mode="I", duration=1000 / fps, loop=0)
    with opened as writer:
        yield writer.append_data


@contextmanager
def _mp4_writer(path: Path, fps: int) -> Iterator[Writer]:
    """H.264 that every browser plays, by the ffmpeg that imageio brings, called so that no pipe stays open."""
    import imageio_ffmpeg

    width, height = (round(side * DPI) for side in SIZE)
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
        "-s", f"{width}x{height}", "-r", str(fps), "-i", "-", "-an", "-c:v", "libx264", "-crf", "20",
        "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(path),
    ]  # fmt: skip
    with (
        tempfile.TemporaryFile() as words,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=words) as ffmpeg,
    ):
        assert ffmpeg.stdin is not None
        pipe = ffmpeg.stdin
        try:
            try:
                yield lambda picture: pipe.write(picture.tobytes())
            finally:
                with suppress(BrokenPipeError):
                    pipe.close()
        except BrokenPipeError:
            pass  # ffmpeg has ended: its output says why
        except BaseException:
            ffmpeg.kill()
            raise
        if ffmpeg.wait():
            words.seek(0)
            said = " ".join(words.read().decode(errors="replace").split())[:300] or f"exit code {ffmpeg.returncode}"
            raise InputError(f"{path.name} could not be written: ffmpeg says {said.rstrip('.')}.")


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore matplotlib's warning about characters that its font lacks; it draws a box for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from font", category=UserWarning)
        yield
