"""undertow demo: fit an LDS, an HMM and a dynamic embedding to the bundled data and write HTML pages."""

from __future__ import annotations

import math
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple

import click

from undertow.cli.common import jobs_option, json_option, progress_bar, show
from undertow.progress import Progress, ProgressFn

WORD = "bank"
CORPUS_TITLE = "The bundled corpus: old books and court opinions"
MAP_TITLE = "What countries spoke of in the UN General Debate, 1946–2014, in steps of three years"
MOVERS = 6
SENTENCES = (
    "They sat down on the bank of the river and looked at the water",
    "The bank refused to lend the company more money",
)
READER_TEXT = """\
They sat down on the bank of the river and looked at the water.
The bank refused to lend the company more money, and the company brought an action against it.
It is a truth universally acknowledged, that the judgment of the district court is affirmed.
"I never saw such a house," said the old man, and he shut the door of the little room behind him.
The petitioner argues that the umbrella had no right to appeal.
We do not think that the evidence is sufficient, but the jury was of another opinion.
"""


class Demo(NamedTuple):
    """Everything that was fitted."""

    corpus: Any
    counts: Any
    lds: Any
    hmm: Any
    moving: Any


@click.command()
@click.option("-o", "--out", type=click.Path(), default="demo-output", show_default=True, help="Output directory.")
@jobs_option
@json_option
def command(out: str, jobs: int, as_json: bool) -> None:
    """Fit an LDS and an HMM to the bundled corpus and a dynamic embedding to the UN debates, and write HTML pages."""
    start = time.perf_counter()
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    with as_file(files("undertow") / "data") as data, progress_bar() as progress:
        made = fit_all(data, target, jobs, progress)
    pages = write_pages(made, target)
    facts = describe(made) | {
        "models": [str(target / f"demo.{kind}") for kind in ("lds", "hmm", "dynamic")],
        "pages": [str(page) for page in pages],
        "seconds": round(time.perf_counter() - start, 1),
    }
    if as_json:
        show(facts, True)
        return
    report(facts)
    click.echo(f"\nOpen {pages[0]} in a browser.")


def fit_all(data: Path, target: Path, jobs: int, progress: ProgressFn) -> Demo:
    """Build the corpus and its counts, fit and save the three models."""
    from undertow.models.dynamic.model import DynamicEmbedding
    from undertow.models.hmm.model import HMM
    from undertow.models.lds.model import LDS
    from undertow.text.corpus import Corpus
    from undertow.text.lag_counts import LagCounts

    def fitting(stage: str) -> dict[str, Any]:
        watch = [lambda e: progress(Progress(stage, e.iteration, e.n_iter, "iteration"))]
        return {"random_state": 0, "n_jobs": jobs, "callbacks": watch}

    texts = [data / "books.txt.xz", data / "opinions.txt.xz"]
    common: dict[str, Any] = {"n_jobs": jobs, "overwrite": True, "progress": progress}
    corpus = Corpus.build(texts, target / "demo.corpus", vocab_size=10_000, **common)
    counts = LagCounts.from_corpus(corpus, lags=7, out=target / "demo.counts", **common)
    lds = LDS(50, min_count=50, **fitting("LDS")).fit(counts)
    hmm = HMM(512, n_blocks=32, n_iter=5, validation=0.05, **fitting("HMM")).fit(corpus)
    moving = DynamicEmbedding(**fitting("map")).fit(data / "un_debates.csv.xz")
    for model in (lds, hmm, moving):
        model.save(target / f"demo.{model.kind}", overwrite=True)
    return Demo(corpus, counts, lds, hmm, moving)


def write_pages(made: Demo, target: Path) -> list[Path]:
    """Write all pages; the first is the index."""
    from undertow.files import write_bytes
    from undertow.text.tokenizer import Tokenizer
    from undertow.view.corpus_page import corpus_page
    from undertow.view.index_page import index_page
    from undertow.view.pages import page

    write_bytes(target / "reader.txt", READER_TEXT.encode("utf-8"))
    sentences = Tokenizer()(READER_TEXT)
    title, lead = (
        "What undertow found in its bundled data",
        "Three models of text were fitted on this machine, without a network: open the pages, then try your own text. "
        "Every page is one file that works offline.",
    )
    html = {
        "index.html": index_page(title, lead, cards(made, sentences), commands(target)),
        "reader.html": page(made.hmm, sentences),
        "hmm.html": page(made.hmm),
        "lds.html": page(made.lds),
        "map.html": page(made.moving, title=MAP_TITLE),
        "corpus.html": corpus_page(made.corpus, made.counts, title=CORPUS_TITLE, words=[WORD]),
    }
    for name, content in html.items():
        write_bytes(target / name, content.encode("utf-8"))
    return [target / name for name in html]


def cards(made: Demo, sentences: list[list[str]]) -> list[Any]:
    """The pages behind the index, each with a preview."""
    from undertow.view.index_page import PageCard, preview_of_lists, preview_of_reading
    from undertow.view.reader_data import read_text

    river, money = (s.split() for s in SENTENCES)
    near = [
        (name, [x.word for x in made.lds.neighbors(s, 5, position=s.index(WORD))])
        for name, s in (("the bank of the river:", river), ("the bank refused to lend:", money))
    ]
    movers = [m.name for m in made.moving.movers(MOVERS, first=1979, last=1997)]
    vocabulary = made.corpus.vocabulary
    frequent = [w for w in vocabulary.words[vocabulary.n_special :][:200] if len(w) > 4][:10]
    return [
        PageCard(
            "reader.html",
            "The reader",
            "A short text, each token by how much it surprised the HMM, with its states and what was expected.",
            preview_of_reading(read_text(made.hmm, sentences)),
        ),
        PageCard(
            "hmm.html",
            "A hidden Markov model",
            f"{made.hmm.params_.n_states} states with their words, and which follow which.",
            preview_of_lists(readable_states(made.hmm, 4)),
        ),
        PageCard(
            "lds.html",
            "A linear dynamical system",
            f"A vector for every word, and for every token in its context: words most like “{WORD}”.",
            preview_of_lists(near),
        ),
        PageCard(
            "map.html",
            "A moving map",
            "Countries and their words in the UN General Debate, 1946–2014, as they move.",
            preview_of_lists([("moved most from 1979 to 1997:", movers)]),
        ),
        PageCard(
            "corpus.html",
            "The corpus",
            f"{made.corpus.n_tokens:,} tokens of old books and court opinions, counted.",
            preview_of_lists([("frequent words:", frequent)]),
        ),
    ]


def readable_states(hmm: Any, n: int) -> list[tuple[str, list[str]]]:
    """The most frequent states of at least six plain words."""
    from undertow.models.hmm.queries import state_shares

    found: list[tuple[str, list[str]]] = []
    for state in (-state_shares(hmm.params_)).argsort().tolist():
        words = [w for w, p in hmm.top_words(state, 6) if w.isalpha() and w.islower() and p < 0.5]
        if len(words) == 6 and len(found) < n:
            found.append((f"state {state}:", words))
    return found


def commands(target: Path) -> list[tuple[str, str]]:
    """What to type next, with what it does."""
    return [
        (
            "Ask the LDS for the words most like one of your own, in its sentence:",
            f'undertow neighbors {target / "demo.lds"} --sentence "we sat on the {WORD} of the river" --word {WORD}',
        ),
        (
            "Read a text of yours with the HMM, token by token:",
            f"undertow view {target / 'demo.hmm'} your.txt -o your-text.html",
        ),
        (
            "Fit a model to your own text (.txt, .jsonl, CoNLL; .gz, .bz2, .xz, .zst), and look at it:",
            "undertow fit hmm 'texts/*.txt' -o your.hmm --states 512 && undertow view your.hmm -o your-hmm.html",
        ),
    ]


def describe(made: Demo) -> dict[str, Any]:
    """What the models say, for the terminal."""
    from undertow.results.pairs import strongest_pairs

    corpus, counts, lds, hmm, moving = made
    movers = moving.movers(MOVERS, first=1979, last=1997)  # in 1946 too few countries spoke for an estimate
    return {
        "tokens": corpus.n_tokens,
        "sentences": corpus.n_sentences,
        "words": len(corpus.vocabulary),
        "different_pairs": [counts.nnz(k) for k in range(1, counts.lags + 1)],
        "perplexity_of_held_out_text_under_the_HMM": round(math.exp(-max(hmm.validation_history_)), 1),
        "most_frequent": list(corpus.vocabulary.words[corpus.vocabulary.n_special :][:12]),
        "strongest_pairs": [f"{p.first} {p.second}" for p in strongest_pairs(counts, 1, 8)],
        "transitions": [f"{', '.join(t.before)} → {', '.join(t.after)}" for t in hmm.transitions(5, n_words=3)],
        f"like_{WORD}": [x.word for x in lds.neighbors(WORD, 8)],
        **{
            f"like_{WORD}_in_“{' '.join(s)}”": [x.word for x in lds.neighbors(s, 8, position=s.index(WORD))]
            for s in (sentence.split() for sentence in SENTENCES)
        },
        "moved_most_in_the_UN_debates": [m.name for m in movers],
        "movement_in_the_UN_debates": movers.verdict,
    }


def report(facts: dict[str, Any]) -> None:
    """Print the facts as text: one line per number, lists below a heading."""
    show({k: v for k, v in facts.items() if not isinstance(v, list)}, False)
    for heading, items in facts.items():
        if isinstance(items, list) and isinstance(items[0], str):
            gap = "\n  " if heading in ("transitions", "models", "pages") else ", "
            click.echo(f"\n{heading.replace('_', ' ')}:\n  {gap.join(items)}")
