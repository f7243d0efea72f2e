"""An offline HTML page about a corpus: its size, word frequencies, and strongest word pairs."""

from __future__ import annotations

from collections.abc import Sequence

from undertow.results.pairs import strongest_pairs
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts
from undertow.view.charts import rank_chart
from undertow.view.document import document, facts_list, page_top, text


def corpus_page(corpus: Corpus, counts: LagCounts, *, title: str, words: Sequence[str] = ()) -> str:
    """An HTML page about a corpus that works offline.

    Parameters
    ----------
    corpus, counts
        The corpus and its pair counts.
    title
        The title of the page.
    words
        Words to show a table of their strongest pairs for.

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
    lags = range(1, min(counts.lags, 3) + 1)
    body = [
        page_top(title, "Words and word pairs of this text."),
        facts_list(facts),
        "<h2>Frequent words</h2><p class=words>",
        *(f"<span>{text(w)} <small>{c:,}</small></span> " for w, c in frequent),
        "</p><h2>Word frequencies</h2>",
        "<p>Count of each word against its rank, both on a logarithmic scale.</p>",
        f"<div class=chart>{rank_chart(vocabulary.counts[n_special:].tolist())}</div>",
        "<h2>The most informative pairs</h2><p>By their share of the mutual information at that distance.</p>",
        "<div class=columns>",
        *(_pair_table(counts, k, None) for k in lags),
        "</div>",
    ]
    for word in words:
        if word in vocabulary:
            body += [f"<h2>Pairs of “{text(word)}”</h2><div class=columns>"]
            body += [*(_pair_table(counts, k, word) for k in lags), "</div>"]
    return document(title, "".join(body), scripts=["dom.js", "theme.js"])


def _pair_table(counts: LagCounts, k: int, word: str | None) -> str:
    pairs = strongest_pairs(counts, k, 12, word=word, min_count=5 if word is None else 3)
    gap = " … " if k > 1 else " "
    rows = (f"<tr><td>{text(p.first)}{gap}{text(p.second)}</td><td>{p.times:,}</td></tr>" for p in pairs)
    heading = f"<tr><th>{k} token{'s' * (k > 1)} apart</th><th>times</th></tr>"
    return f"<table>{heading}{''.join(rows)}</table>"
