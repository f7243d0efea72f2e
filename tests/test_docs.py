"""The documents run: every Python block of the tutorials, and the README's example on small files."""

from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[1]
RUN_PAGES = ("tagging", "constraints", "questions")
TUTORIALS = [*sorted((REPO / "docs" / "tutorials").glob("*.md")), *(REPO / "docs" / f"{name}.md" for name in RUN_PAGES)]


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorials_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "CRFTagger" in path.read_text():
        pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(path)
    assert blocks
    namespace: dict[str, object] = {"__name__": path.stem}
    for block in blocks:
        exec(compile(block, str(path), "exec"), namespace)


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On the bundled books, with a small state so that it is quick; all else as printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "news").mkdir()
    with lzma.open(REPO / "src" / "undertow" / "data" / "books.txt.xz") as books, gzip.open("news/a.txt.gz", "wb") as f:
        f.write(books.read())
    (block,) = python_blocks(REPO / "README.md")
    assert "n_components=100" in block and "(n_tokens, 200)" in block
    namespace: dict[str, Any] = {}
    exec(compile(block.replace("n_components=100", "n_components=10"), "README.md", "exec"), namespace)
    assert namespace["vectors"][0].shape == (8, 20) and (tmp_path / "news.lds").is_dir()
    assert "Neighbor(word=" in capsys.readouterr().out


@pytest.mark.parametrize("path", [*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")], ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readme_names_exactly_two_make_commands() -> None:
    assert set(re.findall(r"\bmake \w+", (REPO / "README.md").read_text())) == {"make demo", "make test"}
