"""Plots as SVG text: a row of dots a label, and lines. Colours are the page's, so that they follow its dark mode."""

from __future__ import annotations

import html
import math

Series = dict[str, list[tuple[float, float]]]
WIDTH = 720


def ticks(low: float, high: float, n: int = 6) -> list[float]:
    """Round values within [low, high]."""
    span = max(high - low, 1e-12)
    step = 10 ** math.floor(math.log10(span / n))
    step *= next(f for f in (1, 2, 5, 10) if f * step * n >= span)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _plain(value: float) -> str:
    return f"{value:,.10g}"


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{html.escape(text)}</text>'


def _legend(names: list[str], y: float) -> list[str]:
    out, x = [], 8.0
    for i, name in enumerate(names):
        out.append(f'<circle cx="{x + 5:.1f}" cy="{y - 4:.1f}" r="5" class="c{i % 6}"/>')
        out.append(_text(x + 15, y, name))
        x += 30 + 7.2 * len(name)
    return out


def _frame(title: str, height: float, parts: list[str]) -> str:
    label = html.escape(title, quote=True)
    return (
        f'<figure><figcaption>{html.escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg></figure>'
    )


def dots(title: str, labels: list[str], series: dict[str, list[float | None]]) -> str:
    """One row a label, one dot a series; the axis covers the values, so it need not begin at nothing."""
    values = [v for column in series.values() for v in column if v is not None]
    low, high = min(values), max(values)
    pad = 0.06 * (high - low) or 1.0
    low, high = low - pad, high + pad
    left = min(320.0, 16 + 6.8 * max(map(len, labels)))
    row, top = 22, 34 if len(series) > 1 else 12

    def at(value: float) -> float:
        return left + (WIDTH - left - 50) * (value - low) / (high - low)

    bottom = top + row * len(labels)
    parts = _legend(list(series), 18) if len(series) > 1 else []
    for tick in ticks(low, high):
        parts.append(f'<line x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="{top}" y2="{bottom}" class="grid"/>')
        parts.append(_text(at(tick), bottom + 16, _plain(tick), "middle", "axis"))
    for i, label in enumerate(labels):
        y = top + row * (i + 0.5)
        here = [column[i] for column in series.values()]
        there = [v for v in here if v is not None]
        parts.append(_text(left - 8, y + 4, label, "end"))
        if not there:
            continue
        begin, end = at(min(there)) if len(there) > 1 else left, at(max(there))
        parts.append(f'<line x1="{begin:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}" class="lead"/>')
        for k, v in enumerate(here):
            if v is not None:
                parts.append(
                    f'<circle cx="{at(v):.1f}" cy="{y:.1f}" r="5" class="c{k % 6}">'
                    f"<title>{html.escape(label)}: {_plain(v)}</title></circle>"
                )
        if len(series) == 1:
            parts.append(_text(at(there[0]) + 9, y + 4, _plain(there[0]), "start", "axis"))
    return _frame(title, bottom + 26, parts)


def lines(title: str, series: Series, x_name: str, *, log_x: bool = False, log_y: bool = False) -> str:
    """A line a series through its points."""

    def scaled(value: float, log: bool) -> float:
        return math.log2(value) if log else value

    xs = [scaled(x, log_x) for points in series.values() for x, _ in points]
    ys = [scaled(y, log_y) for points in series.values() for _, y in points]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    pad = 0.06 * (y1 - y0) or 1.0
    y0, y1 = y0 - pad, y1 + pad
    left, right, top, bottom = 64.0, WIDTH - 16.0, 34.0, 300.0

    def at(x: float, y: float) -> tuple[float, float]:
        u = (scaled(x, log_x) - x0) / ((x1 - x0) or 1.0)
        v = (scaled(y, log_y) - y0) / (y1 - y0)
        return left + u * (right - left), bottom - v * (bottom - top)

    parts = _legend(list(series), 18)
    for tick in ticks(2**y0 if log_y else y0, 2**y1 if log_y else y1):
        if log_y and tick <= 0:
            continue
        _, y = at(2**x0 if log_x else x0, tick)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(left - 6, y + 4, _plain(tick), "end", "axis"))
    marks = sorted({x for points in series.values() for x, _ in points}) if log_x else ticks(x0, x1)
    for tick in marks:
        x, _ = at(tick, 2**y0 if log_y else y0)
        parts.append(_text(x, bottom + 18, _plain(tick), "middle", "axis"))
    parts.append(_text((left + right) / 2, bottom + 36, x_name, "middle", "axis"))
    for k, (name, points) in enumerate(series.items()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in sorted(points)))
        parts.append(f'<polyline points="{path}" class="l{k % 6}"/>')
        for p in points:
            x, y = at(*p)
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="c{k % 6}">'
                f"<title>{html.escape(name)}: {_plain(p[0])}, {_plain(p[1])}</title></circle>"
            )
    return _frame(title, bottom + 46, parts)
