"""Charts as SVG text: the objective of a fit, eigenvalues in the unit circle, counts by rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from undertow.kernels.types import F64
from undertow.view.document import text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 310, 64, 14, 30, 30


def curve_chart(series: Sequence[tuple[str, Sequence[float]]], *, x_label: str, y_label: str) -> str:
    """Values after each iteration, one curve a series with its name at its end; series without values are left out."""
    series = [(name, values) for name, values in series if len(values)]
    if not series:
        return ""
    most = max(len(values) for _, values in series)
    every = [v for _, values in series for v in values]
    ticks = round_ticks(min(every), max(every))
    low, high = min(ticks[0], *every), max(ticks[-1], *every)
    right = WIDTH - RIGHT - 86  # room for the names

    def x(i: float) -> float:
        return LEFT + (right - LEFT) * ((i - 1) / (most - 1) if most > 1 else 0.5)

    def y(v: float) -> float:
        return TOP + (HEIGHT - BOTTOM - TOP) * (1 - (v - low) / ((high - low) or 1.0))

    parts = [_horizontal(y(v), f"{v:,.6g}", right) for v in ticks]
    for i in sorted({round(t) for t in round_ticks(1, most) if 1 <= t <= most} | {1, most}):
        if i in (1, most) or (x(i) - x(1) > 30 and x(most) - x(i) > 30):
            parts.append(f'<text x="{x(i):.0f}" y="{HEIGHT - 10}" text-anchor="middle">{i}</text>')
    parts.append(f'<text x="{right + 16}" y="{HEIGHT - 10}">{text(x_label)}</text>')
    parts.append(f'<text x="2" y="12">{text(y_label)}</text>')
    names: list[float] = []
    for k, (name, values) in enumerate(series):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values, 1))
        parts.append(f'<polyline class="curve curve{k}" points="{points}" />')
        parts.append(f'<circle class="end end{k}" cx="{x(len(values)):.1f}" cy="{y(values[-1]):.1f}" r="3.5" />')
        at = y(values[-1]) + 4
        at = at if all(abs(at - other) > 14 for other in names) else max(names) + 15
        names.append(at)
        parts.append(f'<text class="series" x="{x(len(values)) + 8:.0f}" y="{at:.0f}">{text(name)}</text>')
    spoken = "; ".join(f"{name}: {values[0]:.4g} at first, {values[-1]:.4g} at last" for name, values in series)
    return _svg(f"{y_label}. {spoken}", parts)


def eigenvalue_chart(eigenvalues: Sequence[complex]) -> str:
    """Eigenvalues in the complex plane, with the unit circle."""
    size, middle, radius = 320, 160, 140

    def dot(value: complex) -> str:
        x, y = middle + radius * value.real, middle - radius * value.imag
        return f'<circle class="eigenvalue" cx="{x:.1f}" cy="{y:.1f}" r="4" />'

    parts = [
        f'<circle class="axis" fill="none" cx="{middle}" cy="{middle}" r="{radius}" />',
        f'<circle class="axis faint-axis" fill="none" cx="{middle}" cy="{middle}" r="{radius / 2}" />',
        f'<line class="axis" x1="10" x2="{size - 10}" y1="{middle}" y2="{middle}" />',
        f'<line class="axis" x1="{middle}" x2="{middle}" y1="10" y2="{size - 10}" />',
        f'<text x="{middle + radius + 3}" y="{middle - 5}">1</text>',
        f'<text x="{middle + 4}" y="{middle - radius - 5}">i</text>',
        *(dot(complex(value)) for value in eigenvalues),
    ]
    largest = max((abs(value) for value in eigenvalues), default=0.0)
    label = f"{len(eigenvalues)} eigenvalues in the complex plane, the largest of modulus {largest:.3f}"
    return _svg(label, parts, size, size)


def bar_chart(values: Sequence[float], *, y_label: str) -> str:
    """Values in their order as bars, from 0 to the largest."""
    top = max(values, default=0.0) or 1.0
    wide = (WIDTH - LEFT - RIGHT) / max(len(values), 1)
    parts = [f'<text x="2" y="12">{text(y_label)}</text>']
    for v in [t for t in round_ticks(0.0, top) if t <= top]:
        parts.append(_horizontal(_bar_y(v, top), f"{v:,.3g}", WIDTH - RIGHT))
    for i, v in enumerate(values):
        y = _bar_y(v, top)
        parts.append(
            f'<rect class="bar" x="{LEFT + i * wide:.1f}" y="{y:.1f}" width="{max(wide - 1.5, 0.6):.1f}" '
            f'height="{max(HEIGHT - BOTTOM - y, 0.5):.1f}" />'
        )
    return _svg(f"{y_label}: {len(values)} values, the largest {top:.3g}", parts)


def _bar_y(value: float, top: float) -> float:
    return TOP + (HEIGHT - BOTTOM - TOP) * (1 - value / top)


def rank_chart(counts: Iterable[int]) -> str:
    """Counts by rank, both on logarithmic scales, at ranks spaced evenly in the logarithm."""
    values = np.sort(np.asarray(list(counts)))[::-1]
    values = values[values > 0]
    if not len(values):
        return ""
    ranks = np.unique(np.geomspace(1, len(values), 120).round().astype(int))
    x_max, y_max = max(math.log10(len(values)), 1e-9), max(math.log10(values[0]), 1e-9)

    def place(rank: float, count: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * math.log10(rank) / x_max
        y = TOP + (HEIGHT - BOTTOM - TOP) * (1 - math.log10(count) / y_max)
        return x, y

    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(r, values[r - 1]) for r in ranks.tolist()))
    parts = []
    for power in range(int(x_max) + 1):
        x, _ = place(10**power, 1)
        parts.append(f'<text x="{x:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{10**power:,}</text>')
    for power in range(int(y_max) + 1):
        parts.append(_horizontal(place(1, 10**power)[1], f"{10**power:,}", WIDTH - RIGHT))
    return _svg("Word counts by rank", [*parts, f'<polyline class="curve curve0" points="{points}" />'])


def round_ticks(low: float, high: float, n: int = 5) -> list[float]:
    """About n round numbers from low to high."""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / n))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= span / n * 0.999)
    first = math.floor(low / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, math.ceil(high / step - 1e-9) + 1)]


def half_life(modulus: F64) -> F64:
    """Steps after which a mode of the given modulus has decayed to a half."""
    with np.errstate(divide="ignore"):
        return np.asarray(math.log(0.5) / np.log(np.clip(modulus, 1e-12, 1 - 1e-12)))


def _horizontal(y: float, label: str, right: float) -> str:
    return (
        f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" />'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _svg(label: str, parts: Iterable[str], width: int = WIDTH, height: int = HEIGHT) -> str:
    inside = "".join(parts)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{text(label)}">{inside}</svg>'
