"""Names of things with and without what models know of the words (Belanger & Kakade, Table 3), on BC2GM and WNUT-17.

    .venv/bin/pip install -c constraints.txt '.[crf,rivals]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_ner.py            # writes experiments/results/tagging_ner.md
    .venv/bin/python experiments/tagging_ner.py --select                     # other forms of features: parts of train
    .venv/bin/python experiments/tagging_ner.py --quick                      # 12 s: does the claim point the right way?

The claim: a lexicalised tagger (a CRF on spelling) finds more names when it reads the token vectors of an LDS too.
Rivals on the same text: Brown-style clusters, word2vec, an HMM of 80 states. F1 of whole spans as conlleval counts;
significance by a paired bootstrap over the test's sentences.

BC2GM (gene names): the first 100,000 tokens of train to learn from, dev to test; representations from biomedical text.
WNUT-17 (six types of names in user text): train to learn from, dev to test; representations from general text (see
data.py). --select learns from the beginning of each train file and tests on its end; the constants of the table are
those that tagging_pos.py --select gave.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data import biomedical, first_tokens, general, sample, tab_separated
from pages import notes_of, write_page
from representations import Models, Sizes
from scoring import Row, Rows, Tags, bootstrap, f1, processor_seconds, seeds_of, shown_p, span_counts, spread
from tagging_pos import BIOMEDICAL_TOKENS, GENERAL_SHARE, LDS_VIEW, LEXICALISED, QUICK_TOKENS, VECTORS, Problem, took
from undertow.results.tagging import CRFTagger, Paths, Posteriors, Vectors

N_ITER = 60  # of L-BFGS
L2 = 1.0
N_GENES = 100_000  # tokens of BC2GM train

# As chosen for tags (tagging_pos.py --select): nothing was chosen by names
TAGGERS = LEXICALISED
PROBLEMS = ["BC2GM", "WNUT-17"]
OURS = ("Lex + LDS", "Lex + LDS + Brown")
PAPER = {  # CoNLL 2003, dev and test
    "Lex": (93.90, 89.34), "Lex + Brown": (93.79, 89.76), "Lex + word2vec": (94.14, 90.00), "Lex + LDS": (94.21, 89.9),
}  # fmt: skip


def to_select() -> dict[str, Any]:
    """Each kind of features in the forms to try."""

    def vectors(model: str, view: str, scale: float) -> Any:
        return lambda m: [Vectors(m(model), view, scale=scale)]

    tried: dict[str, Any] = {"Lex": lambda m: []}
    for scale in (1.0, 3.0, 10.0):
        tried[f"word2vec, times {scale:g}"] = vectors("w2v", "type", scale)
        tried |= {f"LDS {v}, times {scale:g}": vectors("lds-100", v, scale) for v in ("type", "smooth")}
    tried |= {f"LDS type h={h}, times 3": vectors(f"lds-{h}", "type", 3.0) for h in (50, 200)}
    for window in (0, 2):
        tried[f"Brown, window {window}"] = lambda m, w=window: [Paths(m("brown"), window=w)]
        tried[f"HMM-80 posteriors, window {window}"] = lambda m, w=window: [Posteriors(m("hmm"), window=w)]
    return tried


def crf(problem: Problem, features: list[Any]) -> Tags:
    tagger = CRFTagger(features, l2=L2, n_iter=N_ITER)
    tagger.fit([s.words for s in problem.train], [s.tags for s in problem.train])
    return tagger.predict([s.words for s in problem.test])


def tag(problem: Problem, features: Callable[[Models], list[Any]], models: Models) -> Tags:
    """Tags of the test by a CRF that is made when it is asked for: a row that is kept learns nothing."""
    return crf(problem, features(models))


def problems(work: Path, sizes: Sizes, wanted: list[str]) -> Iterator[Problem]:
    if "BC2GM" in wanted:
        genes = first_tokens(tab_separated("bc2gm-ner.train"), N_GENES)
        models = Models(biomedical(work, BIOMEDICAL_TOKENS), work, sizes)
        yield Problem("BC2GM", genes, tab_separated("bc2gm-ner.dev"), models)
    if "WNUT-17" in wanted:
        models = Models(general(work, GENERAL_SHARE), work, sizes)
        yield Problem("WNUT-17", tab_separated("wnut17-ner.train"), tab_separated("wnut17-ner.dev"), models)


def selection(work: Path, sizes: Sizes) -> Iterator[Problem]:
    """The beginnings and the ends of the train files."""
    for problem, n_train, n_test in zip(
        problems(work, sizes, PROBLEMS), (60_000, 50_000), (40_000, 12_000), strict=True
    ):
        test = first_tokens(problem.train[::-1], n_test)
        yield problem._replace(train=first_tokens(problem.train, n_train), test=test)


# --- reports --------------------------------------------------------------------------------------------


def table(problem: Problem, rows: dict[str, list[Row]]) -> list[str]:
    """F1 is that of each seed; the bootstrap weighs sentences by the spans of all seeds together."""
    by_seed = {name: np.stack([span_counts(problem.test, r.tags) for r in seeds]) for name, seeds in rows.items()}
    counts = {name: c.sum(axis=0) for name, c in by_seed.items()}
    score = {name: 100 * f1(c.sum(axis=1)) for name, c in by_seed.items()}
    n_train, n_test = problem.size
    lines = [
        f"## {problem.name}",
        "",
        f"{n_train:,} tokens to learn from; {n_test:,} to test, with {by_seed['Lex'][0, :, 2].sum():,} spans in "
        f"{len(problem.test):,} sentences.",
        "",
        "| tagger | seeds | precision | recall | F1 | against Lex | p | paper (dev, test) | processor seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, seeds in rows.items():
        good, found, there = by_seed[name].sum(axis=1).T
        gain = ["", ""]
        if name != "Lex":
            gain = [f"{score[name].mean() - score['Lex'].mean():+.2f}", shown_p(bootstrap(counts[name], counts["Lex"]))]
        listed = "{:.2f}, {:.2f}".format(*PAPER[name]) if name in PAPER else ""
        shown = [spread(100 * good / np.maximum(found, 1)), spread(100 * good / there), spread(score[name])]
        cpu = np.mean([row.cpu for row in seeds])
        lines.append(f"| {name} | {len(seeds)} | {' | '.join([*shown, *gain])} | {listed} | {cpu:.0f} |")
    lines.append("")
    rivals = [name for name in rows if name not in OURS and name != "Lex"]
    best = max(rivals or ["Lex"], key=lambda r: score[r].mean())
    for name in OURS:
        if name in rows:
            points = score[name].mean() - score[best].mean()
            p = shown_p(bootstrap(counts[name], counts[best]))
            lines.append(f"- {name} against the best rival ({best}): {points:+.2f} points, p = {p}.")
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything; exit code 1: the claim fails")
    parser.add_argument("--select", action="store_true", help="score the forms of the features on parts of train")
    parser.add_argument("--only", nargs="+", help="with --select: forms that begin so")
    parser.add_argument("--seeds", type=int, default=3, help="of the rows with LDS vectors")
    parser.add_argument("--rival-seeds", type=int, default=3, help="of the others")
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=PROBLEMS, help="of the page")
    parser.add_argument("--report", action="store_true", help="train nothing: write what is kept in --work")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.quick:
        return quick()
    if options.select:
        select(options.work, options.only)
    else:
        full(options)
    return 0


def full(options: Any) -> None:
    rows = Rows(options.work, __file__)
    lines = [
        "# Names with and without what models know of the words",
        "",
        "`OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_ner.py`; Belanger & Kakade, Table 3 (their numbers: "
        "CoNLL 2003, representations of 1 G tokens of news). F1 of spans, mean ± standard deviation over seeds of the "
        "models; p: paired bootstrap over sentences, of the spans of all seeds together.",
        "",
    ]
    tail = ["## Seconds to learn the representations", ""]
    for problem in problems(options.work, Sizes(), options.problems):
        done: dict[str, list[Row]] = {name: [] for name in TAGGERS}
        for seed in range(max(options.seeds, options.rival_seeds)):
            for name, features in TAGGERS.items():
                key = f"{problem.name}-{name}-{seed}"
                if seed not in seeds_of(name, options.seeds, options.rival_seeds):
                    continue
                if options.report and not rows.has(key):
                    continue
                models = problem.models.of_seed(seed)
                row = rows(key, partial(tag, problem, features, models))
                done[name].append(row)
                print(f"{key}: {100 * f1(span_counts(problem.test, row.tags).sum(0)):.2f}", flush=True)
        done = {name: found for name, found in done.items() if found}
        if "Lex" not in done:
            continue
        problem.models.look_up()
        lines += table(problem, done)
        head = ["| | tokens | processor seconds | by the clock |", "|---|---|---|---|"]
        tail += [f"{problem.name}:", "", *head, *took(problem.models), ""]
    text = "\n".join([*lines, *tail]) + notes_of("tagging_ner")
    write_page("tagging_ner", text, __file__, vars(options))
    print("\n".join(lines))


def select(work: Path, only: list[str] | None) -> None:
    rows = Rows(work, __file__, "select")
    for problem in selection(work, Sizes()):
        print(f"{problem.name}: {problem.size[0]:,} tokens to learn from, {problem.size[1]:,} to test, both of train")
        for name, features in to_select().items():
            if only and not any(name.startswith(o) for o in only):
                continue
            row = rows(f"{problem.name}-{name}", partial(tag, problem, features, problem.models))
            score = 100 * f1(span_counts(problem.test, row.tags).sum(0))
            print(f"| {name} | {score:.2f} | {row.cpu:.0f} |", flush=True)


def quick() -> int:
    """Few labels and little text, all of it from train files; nothing is kept."""
    with tempfile.TemporaryDirectory() as work:
        return _quick(Path(work))


def _quick(work: Path) -> int:
    began = time.perf_counter(), processor_seconds()
    genes = tab_separated("bc2gm-ner.train")
    text = sample(QUICK_TOKENS, [s.words for s in first_tokens(genes, 20_000)])
    models = Models(text, work, Sizes(clusters=100, n_iter=20, basis=3.0))
    problem = Problem("BC2GM", first_tokens(genes, 20_000), first_tokens(genes[::-1], 20_000), models)
    found = {}
    read: dict[str, list[Any]] = {
        "Lex": [],
        "Lex + Brown": [Paths(models("brown"), window=0)],
        "Lex + LDS": [Vectors(models("lds-30"), LDS_VIEW, **VECTORS)],
    }
    for name, features in read.items():
        found[name] = float(f1(span_counts(problem.test, crf(problem, features)).sum(0)))
        print(f"{name}: F1 {100 * found[name]:.2f}", flush=True)
    print(f"{time.perf_counter() - began[0]:.0f} s by the clock, {processor_seconds() - began[1]:.0f} of the processor")
    good = found["Lex + LDS"] > found["Lex"]
    print("LDS features help." if good else "The claim fails at this size.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
