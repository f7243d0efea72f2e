"""An offline HTML page that draws trees of sentences, with the probability of each constituent. It runs no script."""

from __future__ import annotations

import os
from collections.abc import Sequence

from undertow.models.grammar.trees import Constituent, Tree
from undertow.view.document import document, save_page, text

LETTER, GAP, STEP, BASE = 8.2, 20.0, 44.0, 30.0  # widths of a letter and between words, height of a level, of the words
TALL, LEAST_STEP = 600.0, 20.0  # levels of deep trees are lower, so that words and root fit on a screen
TREE_STYLE = """
.tree { overflow-x: auto; border-bottom: 1px solid var(--line); padding: .6rem 0 1rem; }
.tree svg { width: auto; max-width: none; } .tree .word { fill: var(--ink); font-size: 15px; }
.tree .branch { fill: none; stroke: var(--deep); stroke-width: 1.8; } .tree .symbol { fill: var(--deep); }
"""


def tree_page(trees: Sequence[Tree], *, title: str = "Trees") -> str:
    """A page with one drawing a sentence; branches are the fainter the less probable their constituent is.

    Parameters
    ----------
    trees
        What `Grammar.trees` returns; empty sentences are left out.
    title
        The title of the page.

    Returns
    -------
    str
        HTML.
    """
    body = [
        f"<h1>{text(title)}</h1>",
        "<p class=faint>Above each constituent its symbol and the probability that its words belong together.</p>",
        *(f"<div class=tree>{drawing(tree)}</div>" for tree in trees if tree.words),
    ]
    return document(title, "\n".join(body), more_style=TREE_STYLE)


def save_trees(
    trees: Sequence[Tree], path: str | os.PathLike[str], *, title: str = "Trees", overwrite: bool = False
) -> None:
    """Write `tree_page` to a file, completely or not at all.

    Parameters
    ----------
    trees, title
        As for `tree_page`.
    path
        The file.
    overwrite
        Whether an existing file may be replaced.
    """
    save_page(tree_page(trees, title=title), path, overwrite=overwrite)


def drawing(tree: Tree) -> str:
    """One tree as SVG."""
    places: dict[tuple[int, int], tuple[float, int]] = {}  # span → x, levels above the words
    x = GAP / 2
    for i, word in enumerate(tree.words):
        width = LETTER * max(len(word), 4)
        places[i, i + 1] = (x + width / 2, 0)
        x += width + GAP
    for c in reversed(tree.constituents):  # parts come after the whole
        (left, low), (right, high) = places[c.begin, c.split], places[c.split, c.end]
        places[c.begin, c.end] = ((left + right) / 2, max(low, high) + 1)
    depth = max(level for _, level in places.values())
    step = max(LEAST_STEP, min(STEP, TALL / max(depth, 1)))
    height = BASE + step * depth + 24
    branches = "".join(_branch(c, places, height, step) for c in tree.constituents)
    words = "".join(
        f"<text class=word x={places[i, i + 1][0]:.1f} y={height - 10:.1f} text-anchor=middle>{text(word)}</text>"
        for i, word in enumerate(tree.words)
    )
    label = text(" ".join(tree.words))
    return f'<svg width={x:.0f} height={height:.0f} role=img aria-label="{label}">{branches}{words}</svg>'


def _branch(c: Constituent, places: dict[tuple[int, int], tuple[float, int]], height: float, step: float) -> str:
    def y_of(level: int) -> float:
        return height - BASE - step * level

    (x, level), (left, low), (right, high) = (
        places[span] for span in ((c.begin, c.end), (c.begin, c.split), (c.split, c.end))
    )
    top = y_of(level)
    # a child that is a phrase ends below its label
    ends = [y_of(low) - (16 if low else 0), y_of(high) - (16 if high else 0)]
    points = f"{left:.1f},{ends[0]:.1f} {left:.1f},{top:.1f} {right:.1f},{top:.1f} {right:.1f},{ends[1]:.1f}"
    faint = 0.25 + 0.75 * c.probability
    return (
        f"<polyline class=branch points='{points}' stroke-opacity={faint:.2f} />"
        f"<text class=symbol x={x:.1f} y={top - 5:.1f} text-anchor=middle>N{c.symbol} {c.probability:.0%}</text>"
    )


__all__ = ["save_trees", "tree_page"]
