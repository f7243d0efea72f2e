"""The page with the evidence: up to date, well formed, quiet in a real browser; its Markdown is escaped."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from browser import find_chromium, open_browser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of experiments/."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module


def test_the_page_is_what_the_results_say() -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "report.py", "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + " Run experiments/report.py."


def test_every_result_is_on_the_page(scripts: Any) -> None:
    chapters = scripts("report").CHAPTERS
    listed = {name for names in chapters.values() for name in names} | {"verdicts"}
    there = {p.stem for p in (FOLDER / "results").glob("*.md")}
    assert {name for name in there if not name.endswith(".notes")} <= listed  # notes are parts of pages
    page = (ROOT / "docs" / "evidence.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http://www.w3.org", ""), "the page must need no network"


def test_markdown_is_read_and_escaped(scripts: Any) -> None:
    page = scripts("markdown_page")
    text = "# A <b>\n\nOne `a<b` *two*\n**three** \\*.\n\n- x\n  y\n- [z](q.md)\n\n"
    heading, paragraph, items, table = page.parse(text + "| a | b |\n|---|---|\n| **1,200.5** ± 2 | u |\n")
    assert page.render(heading) == "<h2>A &lt;b&gt;</h2>"
    assert page.render(paragraph) == "<p>One <code>a&lt;b</code> <em>two</em> <strong>three</strong> &#42;.</p>"
    assert items.items == ["x y", "[z](q.md)"] and page.render(items) == "<ul><li>x y</li><li>z</li></ul>"
    assert table.header == ["a", "b"] and page.number(table.rows[0][0]) == 1200.5 and page.number("u") is None
    assert 'class="n"' in page.render(table)


def test_plots_are_drawn_to_scale(scripts: Any) -> None:
    plots = scripts("plots")
    assert plots.ticks(0, 10) == [0, 2, 4, 6, 8, 10] and plots.ticks(0.92, 0.98)[0] >= 0.92
    svg = plots.dots("t", ["<one>", "two"], {"a": [1.0, 3.0], "b": [2.0, None]})
    assert "&lt;one&gt;" in svg and svg.count("<circle") == 3 + 2  # three values, two in the legend
    x = [float(part.split('"')[0]) for part in svg.split('cx="')[3:]]
    assert x[0] < x[1] < x[2] and abs((x[1] - x[0]) - (x[2] - x[1])) < 0.2  # 1, 2, 3
    drawn = plots.lines("t", {"a": [(512, 4.0), (1024, 2.0), (2048, 1.0)]}, "states", log_x=True)
    xs, ys = zip(*(map(float, p.split(",")) for p in drawn.split('points="')[1].split('"')[0].split()), strict=True)
    assert abs((xs[1] - xs[0]) - (xs[2] - xs[1])) < 0.2 and ys[0] < ys[1] < ys[2]


def test_a_browser_shows_it_without_complaint(tmp_path: Path) -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with open_browser(chromium, tmp_path / "profile") as browser:
        browser.open(ROOT / "docs" / "evidence.html")
        browser.wait("document.readyState === 'complete'")
        assert browser.complaints() == []
        assert browser.evaluate("document.querySelectorAll('table').length") >= 5
        assert browser.evaluate("document.querySelectorAll('svg').length") >= 3
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
