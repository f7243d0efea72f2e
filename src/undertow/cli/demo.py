"""undertow demo: fit an LDS and a dynamic embedding to the bundled data and write HTML pages."""

from __future__ import annotations

import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import jobs_option, json_option, progress_bar, show
from undertow.progress import Progress

WORD = "bank"
MAP_TITLE = "What countries spoke of in the UN General Debate, 1946–2014, in steps of three years"
MOVERS = 6
SENTENCES = (
    "They sat down on the bank of the river and looked at the water",
    "The bank refused to lend the company more money",
)


@click.command()
@click.option("-o", "--out", type=click.Path(), default="demo-output", show_default=True, help="Output directory.")
@jobs_option
@json_option
def command(out: str, jobs: int, as_json: bool) -> None:
    """Fit an LDS to the bundled corpus and a dynamic embedding to the UN debates, and write HTML pages."""
    from undertow.files import write_bytes
    from undertow.models.dynamic.model import DynamicEmbedding
    from undertow.models.lds.model import LDS
    from undertow.results.pairs import strongest_pairs
    from undertow.text.corpus import Corpus
    from undertow.text.lag_counts import LagCounts
    from undertow.view.corpus_page import corpus_page
    from undertow.view.lds_sections import contexts_section, transitions_section
    from undertow.view.map_page import save_html

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
        model = LDS(
            50,
            min_count=50,
            random_state=0,
            n_jobs=jobs,
            callbacks=[lambda e: progress(Progress("fit", e.iteration, e.n_iter, "iteration"))],
        ).fit(counts)
        moving = DynamicEmbedding(
            random_state=0,
            n_jobs=jobs,
            callbacks=[lambda e: progress(Progress("map", e.iteration, e.n_iter, "iteration"))],
        ).fit(data / "un_debates.csv.xz")
    moving.save(target / "demo.dynamic", overwrite=True)
    save_html(moving.map_data(), target / "map.html", title=MAP_TITLE, overwrite=True)
    model.save(target / "demo.lds", overwrite=True)
    sentences = [s.split() for s in SENTENCES]
    page = target / "index.html"
    title = "The bundled corpus: old books and court opinions"
    to_the_map = f'<p><a href="map.html">{MAP_TITLE}</a>: a moving map.</p>'
    sections = [to_the_map, contexts_section(model, WORD, sentences), transitions_section(model)]
    html = corpus_page(corpus, counts, title=title, words=[WORD], sections=sections)
    write_bytes(page, html.encode("utf-8"))
    movers = moving.movers(MOVERS, first=1979, last=1997)  # in 1946 too few countries spoke for an estimate
    facts: dict[str, Any] = {
        "tokens": corpus.n_tokens,
        "sentences": corpus.n_sentences,
        "words": len(corpus.vocabulary),
        "different_pairs": [counts.nnz(k) for k in range(1, counts.lags + 1)],
        "most_frequent": list(corpus.vocabulary.words[corpus.vocabulary.n_special :][:12]),
        "strongest_pairs": [f"{p.first} {p.second}" for p in strongest_pairs(counts, 1, 8)],
        "transitions": [f"{', '.join(t.before)} → {', '.join(t.after)}" for t in model.transitions(5, n_words=3)],
        f"like_{WORD}": [x.word for x in model.neighbors(WORD, 8)],
        **{
            f"like_{WORD}_in_“{' '.join(s)}”": [x.word for x in model.neighbors(s, 8, position=s.index(WORD))]
            for s in sentences
        },
        "moved_most_in_the_UN_debates": [m.name for m in movers],
        "movement_in_the_UN_debates": movers.verdict,
        "model": str(target / "demo.lds"),
        "map_model": str(target / "demo.dynamic"),
        "seconds": round(time.perf_counter() - start, 1),
        "page": str(page),
        "map": str(target / "map.html"),
    }
    if as_json:
        show(facts, True)
        return
    report(facts)
    click.echo(f"\nOpen {page} and {target / 'map.html'} in a browser.")


def report(facts: dict[str, Any]) -> None:
    """Print the facts as text: one line per number, lists below a heading."""
    show({k: v for k, v in facts.items() if not isinstance(v, list)}, False)
    for heading, items in facts.items():
        if isinstance(items, list) and isinstance(items[0], str):
            gap = "\n  " if heading == "transitions" else ", "
            click.echo(f"\n{heading.replace('_', ' ')}:\n  {gap.join(items)}")
