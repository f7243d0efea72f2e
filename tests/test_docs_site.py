"""The documentation site builds without a warning, and its reference has every public name and command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from test_docstrings import public_names
from undertow.cli.main import VERBS

pytest.importorskip("sphinx", reason="Sphinx is not installed")
pytest.importorskip("furo")
REPO = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    if os.environ.get("UNDERTOW_SITE"):  # one that was built already, to look at these tests alone
        return Path(os.environ["UNDERTOW_SITE"])
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-d", out / "trees", ".", out]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_built_and_found(site: Path) -> None:
    written = {
        p.relative_to(REPO).with_suffix(".html") for p in (REPO / "docs").rglob("*.md") if "_build" not in p.parts
    }
    assert [page for page in sorted(written) if not (site / page).exists()] == []
    assert 'url=docs/index.html"' in (site / "index.html").read_text(encoding="utf-8")
    index = (site / "docs" / "index.html").read_text(encoding="utf-8")
    assert [page for page in written if page.name != "index.html" and f"{page.stem}.html" not in index] == []


def test_the_reference_is_complete(site: Path) -> None:
    pages = [p.read_text(encoding="utf-8") for p in (site / "docs" / "api").glob("*.html")]
    documented = set(re.findall(r'<dt class="sig[^>]* id="(?:[\w.]+\.)?(\w+)"', "".join(pages)))
    assert sorted({name for name, _ in public_names()} - documented) == []
    commands = (site / "docs" / "cli.html").read_text(encoding="utf-8")
    assert [verb for verb in VERBS if f'id="undertow-{verb}"' not in commands] == []
    assert 'id="undertow-fit-hmm"' in commands and "--states" in commands


def test_pages_need_no_other_host(site: Path) -> None:
    """Fonts and scripts come with the site: it can be read offline."""
    for page in (site / "docs" / "index.html", site / "docs" / "hmm.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', page.read_text(encoding="utf-8"))
        assert loaded and not [url for url in loaded if url.startswith(("http:", "https:", "//"))]
