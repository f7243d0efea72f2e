"""One picture of a dynamic embedding with matplotlib: dots, trails of the last times, and names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import missing_extra
from undertow.kernels.types import F64
from undertow.models.dynamic.map_data import MapData
from undertow.view.map_geometry import census, extent, label_order, picture_positions, plane

INK, PAPER, FAINT, GHOST = "#1c2733", "#fbfaf7", "#616c76", "#efece4"
KIND_COLOURS, KIND_MARKS = ("#14607a", "#b0511b"), ("o", "D")
SIZE, DPI = (12.8, 7.2), 100  # 1280 × 720: both multiples of 16, as video encoders require
TRAIL = 4  # times
MOST_LABELS, LABEL_TRIES, LABEL_SIZE = 90, 500, 9


class FrameDrawer:
    """A figure that is redrawn for every frame; labels keep their side from one frame to the next."""

    def __init__(self, data: MapData, title: str | None = None) -> None:
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as e:
            raise missing_extra("Pictures need matplotlib", "viz") from e
        self._data = data
        self._title = f"A moving map of {census(data)}" if title is None else title
        self._figure = Figure(figsize=SIZE, dpi=DPI, facecolor=PAPER)
        self._canvas: Any = FigureCanvasAgg(self._figure)
        self._axes: Any = self._figure.add_axes((0.0, 0.0, 1.0, 0.93))
        self._figure.text(
            0.015, 0.955, _short(self._title, 90), fontsize=15, weight="bold", color=INK, parse_math=False
        )
        self._kind = np.array([data.kind_names.index(k) for k in data.kinds])
        self._legend()
        shown = plane(data)
        self._positions = picture_positions(data, shown)
        self._largest = np.array([max(data.weights[:, self._kind == k].max(initial=0.0), 1e-300) for k in self._kind])
        self._box = extent(self._positions, data.weights, wide=SIZE[0] / (SIZE[1] * 0.93))
        self._sides: dict[int, int] = {}
        self._sizes: dict[str, tuple[float, float]] = {}

    def _legend(self) -> None:
        x = 0.985
        for kind, name in reversed(list(enumerate(self._data.kind_names))):
            colour = KIND_COLOURS[kind % 2]
            text = self._figure.text(
                x, 0.957, _short(name, 24), fontsize=11, color=colour, ha="right", parse_math=False
            )
            width = text.get_window_extent(self._canvas.get_renderer()).width / (SIZE[0] * DPI)
            sign = "●" if kind % 2 == 0 else "◆"
            self._figure.text(x - width - 0.008, 0.957, sign, fontsize=11, color=colour, ha="right")
            x -= width + 0.045

    def draw(self, moment: float) -> None:
        """Draw the map at a time, in units of frames; positions are interpolated linearly between two frames."""
        frame, following = int(moment), min(int(moment) + 1, len(self._data.times) - 1)
        share = moment - frame
        xy = (1 - share) * self._positions[frame] + share * self._positions[following]
        weights = (1 - share) * self._data.weights[frame] + share * self._data.weights[following]
        axes = self._axes
        axes.clear()
        axes.set_axis_off()
        (x0, x1), (y0, y1) = self._box
        axes.set_xlim(x0, x1)
        axes.set_ylim(y0, y1)
        nearest = int(moment + 0.5)
        label = _short(self._data.times[nearest], 12)
        axes.text(
            0.985, 0.03, label, transform=axes.transAxes, fontsize=min(110, 520 / max(len(label), 4)), weight="bold",
            color=GHOST, ha="right", va="bottom", zorder=0, parse_math=False,
        )  # fmt: skip
        area = 6 + 90 * weights / self._largest
        for kind in range(len(self._data.kind_names)):
            colour, mark = KIND_COLOURS[kind % 2], KIND_MARKS[kind % 2]
            self._trails(kind, frame, share, xy, colour)
            seen, unseen = (self._kind == kind) & (weights > 0), (self._kind == kind) & (weights <= 0)
            axes.scatter(*xy[seen].T, s=area[seen], c=colour, marker=mark, alpha=0.75, linewidths=0, zorder=2)
            axes.scatter(
                *xy[unseen].T,
                s=12,
                facecolors="none",
                edgecolors=colour,
                marker=mark,
                alpha=0.3,
                linewidths=0.7,
                zorder=2,
            )
        self._labels(nearest, xy, weights, area)

    def _trails(self, kind: int, frame: int, share: float, xy: F64, colour: str) -> None:
        from matplotlib.collections import LineCollection

        mine = np.flatnonzero(self._kind == kind)
        for age in range(TRAIL + 1):
            start = frame - age
            if start < 0 or (age == 0 and share == 0):
                continue
            after = min(start + 1, len(self._data.times) - 1)  # a segment needs an observation at both ends
            drawn = mine[(self._data.weights[start, mine] > 0) & (self._data.weights[after, mine] > 0)]
            end = xy[drawn] if age == 0 else self._positions[start + 1, drawn]
            lines = np.stack([self._positions[start, drawn], end], axis=1)
            alpha = 0.35 * (1 - age / (TRAIL + 1))
            self._axes.add_collection(LineCollection(list(lines), colors=colour, alpha=alpha, linewidths=0.9, zorder=1))

    def _labels(self, frame: int, xy: F64, weights: F64, area: F64) -> None:
        """Label dots greedily, those with the largest weights first, without overlap."""
        pixels = self._axes.transData.transform(xy)
        width, height = SIZE[0] * DPI, SIZE[1] * DPI * 0.93
        inverse = self._axes.transData.inverted()
        boxes = np.empty((0, 4))
        sides: dict[int, int] = {}
        order = label_order(self._data, self._kind, frame)[:LABEL_TRIES].tolist()
        # first those that had a label before, so that an animation does not flicker
        for i in sorted(order, key=lambda i: i not in self._sides):
            if len(sides) >= MOST_LABELS:
                break
            x, y = pixels[i]
            if weights[i] <= 0 or not (0 <= x <= width and 0 <= y <= height):
                continue
            text = _short(self._data.names[i], 28)
            w, h = self._text_size(text)
            gap = np.sqrt(area[i]) * 0.5 * DPI / 72 + 3
            places = [(x + gap, y - h / 2), (x - gap - w, y - h / 2), (x - w / 2, y + gap), (x - w / 2, y - gap - h)]
            first = self._sides.get(i, 0)
            for k in range(4):
                side = (first + k) % 4
                left, bottom = places[side]
                box = np.array([left - 2, bottom - 1, left + w + 2, bottom + h + 1])
                inside = box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height
                if inside and not _clash(box, boxes):
                    boxes = np.vstack([boxes, box, [x - gap + 3, y - gap + 3, x + gap - 3, y + gap - 3]])
                    sides[i] = side
                    at = inverse.transform((left, bottom))
                    colour = KIND_COLOURS[self._kind[i] % 2]
                    self._axes.text(
                        *at, text, fontsize=LABEL_SIZE, color=colour, va="bottom", zorder=3, parse_math=False,
                        bbox={"facecolor": PAPER, "alpha": 0.6, "linewidth": 0, "pad": 0.5},
                    )  # fmt: skip
                    break
        self._sides = sides

    def _text_size(self, text: str) -> tuple[float, float]:
        if text not in self._sizes:
            from matplotlib.font_manager import FontProperties

            font = FontProperties(size=LABEL_SIZE)
            w, h, _ = self._canvas.get_renderer().get_text_width_height_descent(text, font, False)
            self._sizes[text] = (w, h)
        return self._sizes[text]

    def save(self, path: Path, format_: str) -> None:
        """Write the picture; the same map gives the same bytes."""
        import matplotlib

        with matplotlib.rc_context({"svg.hashsalt": "undertow", "svg.fonttype": "none"}):
            metadata = {"Date": None, "Creator": "undertow"} if format_ == "svg" else {"Software": "undertow"}
            self._figure.savefig(path, format=format_, dpi=DPI if format_ == "svg" else 2 * DPI, metadata=metadata)

    def pixels(self) -> NDArray[np.uint8]:
        """The picture as (height, width, 3) bytes."""
        self._canvas.draw()
        rgb: NDArray[np.uint8] = np.asarray(self._canvas.buffer_rgba())[..., :3].copy()
        return rgb


def _clash(box: F64, boxes: F64) -> bool:
    return bool(
        ((box[0] < boxes[:, 2]) & (boxes[:, 0] < box[2]) & (box[1] < boxes[:, 3]) & (boxes[:, 1] < box[3])).any()
    )


def _short(text: str, most: int) -> str:
    """Text on one line, without what a font or XML cannot hold, shortened by whole characters."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain if len(plain) <= most else plain[: most - 1] + "…"
