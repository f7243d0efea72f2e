"""The documents run: every Python block of the tutorials, and the README's example on small files."""

from __future__ import annotations

import gzip
import lzma
import re
import warnings
from pathlib import Path

import pytest

import undertow
from undertow import load
from undertow.results.tagging import LittleTextWarning

REPO = Path(__file__).parents[1]
RUN_PAGES = ("tagging", "constraints", "questions", "grammar", "adapters", "tables", "large-text")
TUTORIALS = [*sorted((REPO / "docs" / "tutorials").glob("*.md")), *(REPO / "docs" / f"{name}.md" for name in RUN_PAGES)]


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorials_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "import spacy" in path.read_text():
        pytest.importorskip("spacy", reason="spaCy is not installed")
        pytest.importorskip("undertow.adapters.spacy_pipe")  # where the installation does not know the entry point yet
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(path)
    assert blocks
    namespace: dict[str, object] = {"__name__": path.stem}
    for block in blocks:
        exec(compile(block, str(path), "exec"), namespace)


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On some of the bundled books, with small models so that it is quick; all else as printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "news").mkdir()
    books = Path(undertow.__file__).parent / "data" / "books.txt.xz"
    with lzma.open(books, "rt", encoding="utf-8") as lines, gzip.open("news/a.txt.gz", "wt", encoding="utf-8") as f:
        f.writelines(line for i, line in enumerate(lines) if i < 100 or " river" in line)
    (block,) = python_blocks(REPO / "README.md")
    assert "n_components=100" in block and "HMM(random_state=0)" in block
    small = block.replace("n_components=100", "n_components=10").replace("HMM(", "HMM(30, n_iter=2, ")
    labelled = {"words": [["the", "river", "runs"], ["a", "bank", "falls"]] * 10, "tags": [["D", "N", "V"]] * 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LittleTextWarning)
        exec(compile(small, "README.md", "exec"), labelled)
    assert load("pos.tagger").predict([["the", "bank", "runs"]]) == [["D", "N", "V"]]
    neighbors, *_, gaps, probability, texts = re.split(r"\n(?=position|0\.|\d\.|\[)", capsys.readouterr().out)
    assert neighbors.startswith("word") and len(neighbors.splitlines()) == 6
    assert gaps.startswith("position") and all(line.split()[0] == "4" for line in gaps.splitlines()[1:])
    assert 0 < float(probability) < 1 and texts.count("'river'") >= 3


@pytest.mark.parametrize("path", [*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")], ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readme_names_exactly_two_make_commands() -> None:
    assert set(re.findall(r"\bmake \w+", (REPO / "README.md").read_text())) == {"make demo", "make test"}
