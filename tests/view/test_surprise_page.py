"""The page of surprise: escaped, strict, readable in both modes, and shown by a real browser."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from browser import find_chromium
from undertow.questions.explain import Surprise
from undertow.view.surprise_page import DARK, DARK_INK, INK, LEVELS, LIGHT, PAPER, level, surprise_page
from waiting import HANGS

HOSTILE = "<img/src=x/onerror=\"document.title='owned'\">"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr", "--v=0"]
SENTENCES = [
    Surprise(["the", HOSTILE, "river's"], np.array([0.5, 12.0, np.inf]), np.array([0.1, 5.0, np.inf])),
    Surprise(["\ud800", "&amp;"], np.array([1.0, 3.0]), np.array([2.0, 4.0])),
]


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_everything_is_escaped_and_nothing_is_fetched() -> None:
    page = surprise_page(SENTENCES, title=f"Title {HOSTILE}")
    assert "<img" not in page and "<script" not in page and "http:" not in page and "url(" not in page
    assert re.search(r"default-src 'none'; style-src 'sha256-[^']+'", page)
    assert "∞ bits" in page and page.encode("utf-8")


def test_every_level_can_be_read_and_told_by_lightness_alone() -> None:
    for i in range(len(LIGHT)):
        assert contrast(LIGHT[i], PAPER if i >= 6 else INK) >= 4.5
        assert contrast(DARK[i], INK if i >= 5 else DARK_INK) >= 4.5
    assert (np.diff([luminance(c) for c in LIGHT]) < 0).all() and (np.diff([luminance(c) for c in DARK]) > 0).all()


def test_levels_follow_the_bits() -> None:
    assert [level(x) for x in (0, 0.99, 1, 13.9, 14, np.inf)] == [0, 0, 1, 6, 7, 7]
    assert len(LIGHT) == len(DARK) == len(LEVELS) + 1
    page = surprise_page(SENTENCES, title="t")
    assert "class='l0 b0'" in page and "class='l6 b3'" in page and "class='l7 b7'" in page


def test_real_chromium_shows_it(tmp_path: Path) -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(reason="no Chromium on this machine; .ci/run installs it")
    (tmp_path / "page.html").write_bytes(surprise_page(SENTENCES, title=f"Title {HOSTILE}").encode())
    done = subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True, check=True, text=True, timeout=HANGS,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr  # a style that the policy refuses is reported there
    assert "<title>Title &lt;img" in done.stdout and "river's" in done.stdout and 'id="both"' in done.stdout
