"""The page in a real browser: it loads, says what it should, runs nothing of others, fetches nothing."""

from __future__ import annotations

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from undertow import Corpus, LagCounts
from undertow.view.corpus_page import corpus_page
from waiting import HANGS

HOSTILE = "<img/src=x/onerror=\"document.title='owned'\">"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--v=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def page() -> str:
    sentences = [["the", "cat", "sat"], ["the", "dog", HOSTILE], ["&amp;", "the", "cat", "ran"]] * 10
    corpus = Corpus.from_sentences(sentences)
    counts = LagCounts.from_corpus(corpus, lags=2)
    return corpus_page(corpus, counts, title=f"Title {HOSTILE}", words=["cat", HOSTILE, "absent"])


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_it_loads_nothing_and_has_no_handlers(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert not tags.seen & {"img", "link", "iframe", "object"}
    assert not any(a.startswith("on") or a in ("src", "href") for a in tags.attributes)
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")  # the name of a namespace, never fetched
    assert "url(" not in page and "@import" not in page


def test_real_chromium_shows_it(page: str, tmp_path: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip(reason="no Chromium on this machine; .ci/run installs it")
    (tmp_path / "page.html").write_text(page)
    done = subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True, check=True, text=True, timeout=HANGS,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr  # errors and warnings of the page
    dom = done.stdout
    assert "<title>Title &lt;img" in dom and "owned" in dom and "<img" not in dom
    assert "<polyline" in dom and "the cat" in dom
    assert dom.count("<table>") == 2 + 2 * 2  # two lags of the whole, and of the two words that are there
