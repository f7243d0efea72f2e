"""undertow demo: the pipeline on the bundled corpus, ending in a page."""

from __future__ import annotations

import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import jobs_option, json_option, progress_bar, show

WORD = "bank"


@click.command()
@click.option(
    "-o", "--out", type=click.Path(), default="demo-output", show_default=True, help="Directory to write into."
)
@jobs_option
@json_option
def command(out: str, jobs: int, as_json: bool) -> None:
    """Build the bundled corpus, count it, say what it holds, and write a page to open."""
    from undertow.files import write_bytes
    from undertow.results.pairs import strongest_pairs
    from undertow.text.corpus import Corpus
    from undertow.text.lag_counts import LagCounts
    from undertow.view.corpus_page import corpus_page

    start = time.perf_counter()
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    with as_file(files("undertow") / "data") as data, progress_bar() as progress:
        texts = [data / "books.txt.xz", data / "opinions.txt.xz"]
        corpus = Corpus.build(
            texts, target / "demo.corpus", vocab_size=10_000, n_jobs=jobs, overwrite=True, progress=progress
        )
        counts = LagCounts.from_corpus(
            corpus, lags=7, n_jobs=jobs, out=target / "demo.counts", overwrite=True, progress=progress
        )
    page = target / "index.html"
    title = "The bundled corpus: old books and court opinions"
    write_bytes(page, corpus_page(corpus, counts, title=title, words=[WORD]).encode("utf-8"))
    company = strongest_pairs(counts, 1, 8, word=WORD, min_count=3)
    facts: dict[str, Any] = {
        "tokens": corpus.n_tokens,
        "sentences": corpus.n_sentences,
        "words": len(corpus.vocabulary),
        "different_pairs": [counts.nnz(k) for k in range(1, counts.lags + 1)],
        "most_frequent": list(corpus.vocabulary.words[corpus.vocabulary.n_special :][:12]),
        "strongest_pairs": [f"{p.first} {p.second}" for p in strongest_pairs(counts, 1, 8)],
        f"company_of_{WORD}": [f"{p.first} {p.second}" for p in company],
        "seconds": round(time.perf_counter() - start, 1),
        "page": str(page),
    }
    show(facts, as_json)
    if not as_json:
        click.echo(f"\nOpen {page} in a browser.")
