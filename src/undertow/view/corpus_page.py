"""An offline HTML page about a corpus: its size, word frequencies, and strongest word pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import chain

import numpy as np

from undertow.results.pairs import strongest_pairs
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --paper: #fbfaf7; --faint: #8a949e; --line: #dcd8cf;
        --deep: #14607a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e3dc; --paper: #12181e; --faint: #7d8790; --line: #2b343d; --deep: #6fc1dc; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
       margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { max-width: 44rem; } .faint { color: var(--faint); }
.facts { display: flex; flex-wrap: wrap; gap: .4rem 2.4rem; margin: 1.2rem 0; padding: 0; list-style: none; }
.facts b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; color: var(--deep); }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 0 2rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .15rem .5rem .15rem 0;
        border-bottom: 1px solid var(--line); } td:last-child, th:last-child { text-align: right;
        font-variant-numeric: tabular-nums; padding-right: 0; }
svg { width: 100%; height: auto; } svg text { fill: var(--faint); font-size: 12px; }
.prose td:last-child, .prose th:last-child { text-align: left; }
.axis { stroke: var(--line); } .curve { fill: none; stroke: var(--deep); stroke-width: 2.5; }
.words span { display: inline-block; margin: 0 .8rem .3rem 0; } .words small { color: var(--faint); }
"""


def corpus_page(
    corpus: Corpus, counts: LagCounts, *, title: str, words: Sequence[str] = (), sections: Sequence[str] = ()
) -> str:
    """An HTML page about a corpus that works offline.

    Parameters
    ----------
    corpus, counts
        The corpus and its pair counts.
    title
        The title of the page.
    words
        Words to show a table of their strongest pairs for.
    sections
        HTML sections of a model (see `lds_sections`), shown first.

    Returns
    -------
    str
    """
    vocabulary = corpus.vocabulary
    n_special = vocabulary.n_special
    unknown = vocabulary.n_unknown / corpus.n_tokens
    facts = [
        (f"{corpus.n_tokens:,}", "tokens"),
        (f"{corpus.n_sentences:,}", "sentences"),
        (f"{len(vocabulary):,}", "words"),
        (f"{unknown:.1%}", "of the tokens unknown"),
        (f"{sum(counts.nnz(k) for k in range(1, counts.lags + 1)):,}", f"different pairs at lags 1–{counts.lags}"),
    ]
    frequent = zip(vocabulary.words[n_special:][:40], vocabulary.counts[n_special:][:40].tolist(), strict=True)
    return "".join(
        chain(
            ["<!doctype html><html lang=en><meta charset=utf-8>"],
            ["<meta name=viewport content='width=device-width,initial-scale=1'>"],
            [f"<title>{escape(title)}</title><style>{STYLE}</style>"],
            [f"<h1>{escape(title)}</h1><p class=faint>What undertow counted in this text."],
            ["<ul class=facts>", *(f"<li><b>{v}</b>{escape(k)}" for v, k in facts), "</ul>"],
            sections,
            ["<h2>Frequent words</h2><p class=words>"],
            (f"<span>{escape(w)} <small>{c:,}</small></span> " for w, c in frequent),
            ["<h2>How the words are spread</h2>"],
            ["<p>Count of each word against its rank, both on a logarithmic scale.</p>"],
            [_zipf(vocabulary.counts[n_special:])],
            ["<h2>The pairs that tell most</h2><p>By their share of the mutual information at that distance.</p>"],
            ["<div class=columns>"],
            (
                _pair_table(counts, k, f"{k} token{'s' * (k > 1)} apart", None)
                for k in range(1, min(counts.lags, 3) + 1)
            ),
            ["</div>"],
            chain.from_iterable(
                [
                    f"<h2>The company of “{escape(word)}”</h2><div class=columns>",
                    *(
                        _pair_table(counts, k, f"{k} token{'s' * (k > 1)} apart", word)
                        for k in range(1, 4)
                        if k <= counts.lags
                    ),
                    "</div>",
                ]
                for word in words
                if word in vocabulary
            ),
            ["</html>\n"],
        )
    )


def _pair_table(counts: LagCounts, k: int, heading: str, word: str | None) -> str:
    pairs = strongest_pairs(counts, k, 12, word=word, min_count=5 if word is None else 3)
    gap = " … " if k > 1 else " "
    rows = (f"<tr><td>{escape(p.first)}{gap}{escape(p.second)}<td>{p.times:,}" for p in pairs)
    return f"<table><tr><th>{escape(heading)}<th>times{''.join(rows)}</table>"


def _zipf(counts: Iterable[int]) -> str:
    """Counts by rank as an SVG curve, at ranks spaced evenly in the logarithm."""
    values = np.sort(np.asarray(list(counts)))[::-1]
    values = values[values > 0]
    if not len(values):
        return ""
    width, height, left, bottom = 760, 300, 60, 30
    ranks = np.unique(np.geomspace(1, len(values), 120).round().astype(int))
    x_max, y_max = max(math.log10(len(values)), 1e-9), max(math.log10(values[0]), 1e-9)

    def place(rank: float, count: float) -> tuple[float, float]:
        x = left + (width - left - 10) * math.log10(rank) / x_max
        y = 10 + (height - bottom - 10) * (1 - math.log10(count) / y_max)
        return x, y

    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(r, values[r - 1]) for r in ranks.tolist()))
    marks = []
    for power in range(int(x_max) + 1):
        x, _ = place(10**power, 1)
        marks.append(f"<text x={x:.0f} y={height - 8} text-anchor=middle>{10**power:,}</text>")
    for power in range(int(y_max) + 1):
        _, y = place(1, 10**power)
        marks.append(f"<line class=axis x1={left} x2={width - 10} y1={y:.0f} y2={y:.0f} />")
        marks.append(f"<text x={left - 8} y={y + 4:.0f} text-anchor=end>{10**power:,}</text>")
    return (
        f"<svg viewBox='0 0 {width} {height}' role=img aria-label='Word counts by rank'>{''.join(marks)}"
        f"<polyline class=curve points='{points}' /></svg>"
    )
