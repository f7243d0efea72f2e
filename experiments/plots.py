"""Plots of the report, by matplotlib: a row of dots a label, and lines. SVG text whose colors are the page's.

The same numbers give the same bytes: ids are hashed with a fixed salt, text stays text, and no date is written.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

Series = dict[str, list[tuple[float, float]]]
WIDTH = 7.2  # inches of 100 points
# what matplotlib writes -> the variable of the page's style sheet, which knows light and dark
COLORS = {
    "#1f6fb2": "var(--0)",
    "#d9622b": "var(--1)",
    "#2f8f5b": "var(--2)",
    "#8a5fb5": "var(--3)",
    "#b58a1f": "var(--4)",
    "#c0407a": "var(--5)",
    "#1c2430": "var(--ink)",
    "#5b6675": "var(--soft)",
    "#d9dee5": "var(--line)",
}
DOTS = list(COLORS)[:6]
INK, SOFT, LINE = list(COLORS)[6:]
SETTINGS: Any = {
    "svg.hashsalt": "undertow",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that the layout is the same everywhere
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": LINE,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "path.simplify": False,
}
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def _svg(figure: Figure, title: str) -> str:
    """A figure element; ids begin with a hash of the plot, so that two plots of a page do not share them."""
    out = io.StringIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(out, metadata=NO_METADATA)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>p{name}-", text)
    for color, variable in COLORS.items():
        text = text.replace(color, variable)
    text = re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"|<svg ', lambda m: f"<svg {m[1] or ''}", text, count=1)
    label = html.escape(title, quote=True)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{text.strip()}</figure>"


def dots(title: str, labels: list[str], series: dict[str, list[float | None]]) -> str:
    """One row a label, one dot a series; the axis covers the values, so it need not begin at nothing."""
    several = len(series) > 1
    with mpl.rc_context(SETTINGS):
        height = 0.6 + 0.24 * len(labels) + 0.3 * several
        figure = Figure(figsize=(WIDTH, height))
        left = min(0.46, 0.03 + 0.0098 * max(map(len, labels)))
        axes = figure.add_axes((left, 0.42 / height, 0.95 - left, 1 - (0.5 + 0.3 * several) / height))
        rows = range(len(labels))
        for row, here in zip(rows, zip(*series.values(), strict=True), strict=True):
            there = [v for v in here if v is not None]
            if len(there) > 1:
                axes.plot([min(there), max(there)], [row, row], color=LINE, linewidth=2, zorder=1)
        for k, (name, values) in enumerate(series.items()):
            points = [(v, row) for row, v in zip(rows, values, strict=True) if v is not None]
            axes.plot(*zip(*points, strict=True), "o", color=DOTS[k % 6], markersize=6, label=name, zorder=2)
            if not several:
                for v, row in points:
                    axes.annotate(f"{v:,.10g}", (v, row), (7, -3), textcoords="offset points", fontsize=8, color=SOFT)
        axes.set_yticks(list(rows), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.margins(x=0.08)
        axes.grid(axis="y", visible=False)
        axes.tick_params(length=0)
        if several:
            figure.legend(loc="upper left", ncols=len(series))
        return _svg(figure, title)


def lines(title: str, series: Series, x_name: str, *, log_x: bool = False, log_y: bool = False) -> str:
    """A line a series through its points."""
    with mpl.rc_context(SETTINGS):
        n_rows = -(-len(series) // 3)
        height = 3.3 + 0.2 * n_rows
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((0.1, 0.5 / height, 0.87, 1 - (0.65 + 0.2 * n_rows) / height))
        for k, (name, points) in enumerate(series.items()):
            axes.plot(*zip(*sorted(points), strict=True), "o-", color=DOTS[k % 6], markersize=4, label=name)
        if log_x:
            axes.set_xscale("log", base=2)
            axes.set_xticks(sorted({x for points in series.values() for x, _ in points}))
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_locator(NullLocator())
        if log_y:
            axes.set_yscale("log")
        axes.set_xlabel(x_name)
        axes.tick_params(length=0)
        figure.legend(loc="upper left", ncols=3)
        return _svg(figure, title)
