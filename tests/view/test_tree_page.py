"""The page of trees: it says what it should, runs nothing, fetches nothing."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from undertow.errors import InputError
from undertow.models.grammar.trees import Constituent, Tree
from undertow.view.tree_page import save_trees, tree_page

HOSTILE = "<img/src=x/onerror=\"document.title='owned'\">"
TREE = Tree(
    ["the", "old", HOSTILE, "sea"],
    [Constituent(0, 1, 4, 7, 1.0), Constituent(1, 3, 4, 2, 0.5), Constituent(1, 2, 3, 0, 0.25)],
    [0, 1, 2, 3],
)


class Reader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_it_shows_words_symbols_and_probabilities() -> None:
    read = Reader(tree_page([TREE, Tree([], [], []), Tree(["alone"], [], [0])], title=f"Title {HOSTILE}"))
    assert read.tags.count("svg") == 2 and read.tags.count("polyline") == 3
    for text in (*TREE.words, "N7 100%", "N2 50%", "N0 25%", "alone", f"Title {HOSTILE}"):
        assert text in read.texts
    faintness = [float(v) for k, v in read.attributes if k == "stroke-opacity" and v]
    assert faintness == sorted(faintness, reverse=True) and faintness[0] == 1.0


def test_it_runs_and_fetches_nothing() -> None:
    page = tree_page([TREE], title=HOSTILE)
    read = Reader(page)
    assert not {"script", "img", "link", "iframe"} & set(read.tags)
    assert not {k for k, _ in read.attributes} & {"src", "href", "onerror", "onload"}
    assert "default-src 'none'" in page and "http://" not in page and "https://" not in page


def test_branches_stay_inside_the_drawing() -> None:
    read = Reader(tree_page([TREE]))
    size = {k: float(v) for k, v in read.attributes if k in ("width", "height") and v}
    points = [v for k, v in read.attributes if k == "points" and v]
    for x, y in (pair.split(",") for line in points for pair in line.split()):
        assert 0 <= float(x) <= size["width"] and 0 <= float(y) <= size["height"]


def test_a_page_is_not_overwritten_unasked(tmp_path: Path) -> None:
    save_trees([TREE], tmp_path / "trees.html")
    assert (tmp_path / "trees.html").read_text(encoding="utf-8") == tree_page([TREE])
    with pytest.raises(InputError):
        save_trees([TREE], tmp_path / "trees.html")
    save_trees([], tmp_path / "trees.html", overwrite=True)


def test_a_deep_tree_fits_on_a_screen() -> None:
    n = 40
    deep = Tree(["word"] * n, [Constituent(i, i + 1, n, 0, 1.0) for i in range(n - 1)], [0] * n)
    size = {k: float(v) for k, v in Reader(tree_page([deep])).attributes if k in ("width", "height") and v}
    assert size["height"] < 900
