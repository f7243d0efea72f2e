"""Results as data, their pages, and the page with all evidence: up to date, escaped, quiet in a real browser."""

from __future__ import annotations

import importlib
import re
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


def test_pages_are_what_the_data_say(scripts: Any) -> None:
    pages = scripts("pages")
    names = {p.stem for p in (FOLDER / "results").glob("*.md") if not p.stem.endswith(".notes")} - {"verdicts"}
    assert names == {p.stem for p in (FOLDER / "results").glob("*.json")}
    for name in names:
        text = (FOLDER / "results" / f"{name}.md").read_text(encoding="utf-8")
        assert pages.read_page(name).markdown == text, f"run experiments/pages.py {name}"


def test_a_page_comes_back_from_its_data(scripts: Any, tmp_path: Path) -> None:
    pages = scripts("pages")
    text = "# A\n\nWords.\n\n| a | b |\n|---|---|\n| **1,200.5** ± 2 |  |\n| −3 | u |\n\nMore.\n"
    page = pages.Page({"seeds": 3}, "0123456789", {"runs": [1.5]}, pages.blocks_of(text))
    assert page.title == "A" and page.markdown == text
    assert page.tables == [pages.Table(["a", "b"], [["**1,200.5** ± 2", ""], ["−3", "u"]])]
    pages.write_files("one", page, tmp_path)
    assert pages.read_page("one", tmp_path) == page and (tmp_path / "one.md").read_text(encoding="utf-8") == text
    assert pages.words_from("one", "More", tmp_path) == "More.\n" and pages.words_from("two", "More", tmp_path) == ""
    assert [pages.number(cell) for cell in ("**1,200.5** ± 2", "−3", "2.5e-3", "", "u", "–")] == [
        1200.5, -3, 0.0025, None, None, None,
    ]  # fmt: skip


def test_an_experiment_leaves_no_path_of_this_machine(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = scripts("pages")
    kept = []
    monkeypatch.setattr(pages, "write_files", lambda name, page: kept.append(page))
    pages.write_page("one", "# A\n", str(FOLDER / "pages.py"), {"work": tmp_path, "seeds": 3})
    assert kept[0].settings == {"seeds": 3} and len(kept[0].source) == 10


def test_markdown_is_rendered_and_escaped(scripts: Any) -> None:
    report, pages = scripts("report"), scripts("pages")
    text = "# A <b>\n\nOne `a<b` *two*\n**three** \\*.\n\n- [z](q.md)\n\n| a | b |\n|---|---|\n| 1 | u |\n"
    drawn = []
    plot = lambda table: drawn.append(table) or "<svg></svg>"  # noqa: E731
    page = report.render(text, [pages.Table(["a", "b"], [["1", "u"]])], deeper=1, anchor="here", plots=[plot])
    assert '<h2 id="here">A &lt;b&gt;</h2>' in page
    assert "<p>One <code>a&lt;b</code> <em>two</em>\n<strong>three</strong> *.</p>" in page
    assert "<li>z</li>" in page and "href" not in page
    assert '<td class="n">1</td>' in page and "<td>u</td>" in page
    assert len(drawn) == 1 and page.endswith("</table>\n</div>\n<svg></svg>\n")


def test_verdicts_are_marked_and_their_figures_folded(scripts: Any) -> None:
    report, pages = scripts("report"), scripts("pages")
    header = ["claim", "the paper", "here", "verdict"]
    shown = report.claims(pages.Table(header, [["An LDS <b>", "1", "2", "**in part**: on little text"]]))
    assert '<span class="mark in-part">in part</span>' in shown and "<b>" not in shown
    assert shown.index("<summary>") < shown.index("</summary>") < shown.index("on little text")
    assert '<abbr title="linear dynamical system' in shown
    with pytest.raises(ValueError, match="must begin with"):
        report.claims(pages.Table(header, [["c", "1", "2", "nearly"]]))


def test_codes_are_explained_where_they_stand(scripts: Any) -> None:
    glossary = scripts("glossary")
    assert glossary.codes_in("EWT, POST-3-10; EWT and LDS-like XLDS, HMM-80.") == ["EWT", "POST-3-10", "HMM-80"]
    assert "layers" in glossary.meaning("POST-3-10") and "flat" in glossary.meaning("POST-HMM-30")
    page = scripts("report").folded("fhmm_pos", FOLDER / "results")
    assert page.startswith('<details class="page">') and "<b>POST-3-10</b>: posteriors of a factorial" in page


def test_plots_have_their_points_and_the_same_bytes_again(scripts: Any) -> None:
    plots = scripts("plots")
    labels = ["<one>", "two"]
    svg = plots.dots("t", labels, {"a": [1.0, 3.0], "b": [2.0, None]})
    assert svg == plots.dots("t", labels, {"a": [1.0, 3.0], "b": [2.0, None]})
    assert "&lt;one&gt;" in svg and "<one>" not in svg and "var(--0)" in svg and "#1f6fb2" not in svg
    uses = [float(x) for x in re.findall(r'<use [^>]*x="([\d.]+)"[^>]*fill: var\(--[01]\)', svg)]
    one, three, two, *_ = uses  # those of the legend follow
    assert abs((two - one) - (three - two)) < 0.01  # 1, 2, 3 to scale
    other = plots.lines("t", {"a": [(512, 4.0), (1024, 2.0), (2048, 1.0)]}, "states", log_x=True)
    assert "1024" in other and "http" not in other.replace("http://www.w3.org", "") and "<?xml" not in other
    ids = [set(re.findall(r'id="([^"]+)"', plot)) for plot in (svg, other)]
    assert not ids[0] & ids[1]  # both can stand on one page


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
        assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
        browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
