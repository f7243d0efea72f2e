"""Trees of low-rank grammars without labels, beside simple trees: three languages, with and without punctuation.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/grammar_trees.py
    OMP_NUM_THREADS=1 .venv/bin/python experiments/grammar_trees.py --texts bosque --seeds 0    # adds to the page
    .venv/bin/python experiments/grammar_trees.py --quick      # small: are the trees better than random and left ones?

`Grammar()` learns from the words of a treebank's train part, no tree is seen, and parses its dev part: English web text
(UD EWT), Portuguese newspapers (UD Bosque) and French newspapers, parliament, medicine and Wikipedia (UD Sequoia).
One grammar learns from text of another kind instead: the sentences of at most 30 words of WikiText-2. Sentences have
at most 40 words, and the 10,000 most frequent words are known. Sentence F1 is against constituents made from the
dependencies (bracketing.py). Punctuation is never counted: it is left out of both texts, or it is in both and dropped
from the trees.
How the start treats punctuation was chosen on Bosque train and EWT train; nothing was chosen on a dev part.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bracketing import (
    Bracketed,
    ceiling,
    left_branching,
    of_words,
    random_tree,
    right_branching,
    sentence_f1,
    spans_of,
    treebank,
)
from grammar import keeper, spread, wikitext_sentences
from pages import write_page
from source_key import work_of
from undertow import Corpus, Grammar
from undertow.models.grammar.punctuation import WORD, kind_of

LONGEST = 40  # words of a sentence, of either part
VOCABULARY = 10_000
BINS = ((2, 10), (11, 20), (21, 40))  # words of a sentence
KINDS = ("subtrees", "phrases")
OURS, RIGHT, BEST = "`Grammar()`", "right-branching", "best binary trees"


class Source(NamedTuple):
    """Where the sentences come from."""

    name: str  # as the page shows it
    treebank: str
    learned_from_wikitext: bool = False


TEXTS = {
    "ewt": Source("English web text", "ud-en-ewt"),
    "wikitext": Source("English web text, learned from WikiText-2", "ud-en-ewt", True),
    "bosque": Source("Portuguese newspapers", "ud-pt-bosque"),
    "sequoia": Source("French, mixed", "ud-fr-sequoia"),
}
QUICK: dict[str, Any] = {"n_nonterminals": 15, "n_preterminals": 30, "rank": 15, "n_restarts": 3}


def learned_from(source: Source, punctuation: bool, most: int | None) -> list[list[str]]:
    """Sentences to learn from."""
    if source.learned_from_wikitext:
        sentences = [[w.lower() for w in s] for s in wikitext_sentences("train", 10**9)]
        return sentences if punctuation else [[w for w in s if kind_of(w) == WORD] for s in sentences]
    trees = treebank(f"{source.treebank}.train")[:most]
    return [b.tokens if punctuation else b.words for b in trees if len(b.words) <= LONGEST]


def trees_of(model: Grammar, sentences: list[Bracketed], punctuation: bool) -> list[set[tuple[int, int]]]:
    """Constituents of the words, by the grammar."""
    if not punctuation:
        return [spans_of(tree) for tree in model.parse([b.words for b in sentences])]
    trees = model.trees([b.tokens for b in sentences])
    spans = ([(c.begin, c.end) for c in tree.constituents] for tree in trees)
    return [of_words(s, b.places) for s, b in zip(spans, sentences, strict=True)]


def brackets(
    source: Source, punctuation: bool, seed: int, settings: dict[str, Any], most: int | None = None
) -> dict[str, Any]:
    """Sentence F1 of the grammar's trees and of simple ones, by subtrees and by phrases, in all and by length."""
    text = Corpus.from_sentences(learned_from(source, punctuation, most), vocab_size=VOCABULARY)
    dev = [b for b in treebank(f"{source.treebank}.dev")[:most] if len(b.words) <= LONGEST]
    began = time.process_time()
    model = Grammar(**settings, random_state=seed).fit(text)
    fitted = time.process_time()
    ours = trees_of(model, dev, punctuation)
    parsed = time.process_time()
    lengths, rng = [len(b.words) for b in dev], np.random.default_rng(seed)
    found = {
        OURS: ours,
        RIGHT: [right_branching(n) for n in lengths],
        "left-branching": [left_branching(n) for n in lengths],
        "random": [random_tree(n, rng) for n in lengths],
    }
    out: dict[str, Any] = {"tokens": text.n_tokens, "fit seconds": fitted - began, "parse seconds": parsed - fitted}
    for kind, gold in (("subtrees", [b.spans for b in dev]), ("phrases", [b.phrases for b in dev])):
        best = [ceiling(spans, n) for spans, n in zip(gold, lengths, strict=True)]
        out[kind] = {name: sentence_f1(gold, spans) for name, spans in {**found, BEST: best}.items()}
        for low, high in BINS:
            at = [i for i, n in enumerate(lengths) if low <= n <= high]
            out[kind][f"{low} to {high}"] = {
                name: sentence_f1([gold[i] for i in at], [found[name][i] for i in at]) for name in (OURS, RIGHT)
            }
    return out


def of_runs(runs: list[dict[str, Any]], *keys: str) -> str:
    """Mean and spread of a figure, or the one value that all seeds share."""
    values = []
    for run in runs:
        value: Any = run
        for key in keys:
            value = value[key]
        values.append(value)
    return f"{values[0]:.1f}" if max(values) == min(values) else spread(values)


def name_of(key: str, punctuation: bool, seed: int) -> str:
    return f"{key}-{'with' if punctuation else 'without'}-{seed}"


def kept(work: Path) -> dict[tuple[str, bool], list[dict[str, Any]]]:
    """All results of this source so far, by text and punctuation, a run for each seed."""
    found = {}
    for key, punctuation in itertools.product(TEXTS, (False, True)):
        files = sorted(work.glob(f"{name_of(key, punctuation, 0)[:-1]}*.json"))
        if files:
            found[key, punctuation] = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return found


def page(results: dict[tuple[str, bool], list[dict[str, Any]]]) -> str:
    above = [min(run[kind][OURS] - run[kind][RIGHT] for run in runs) > 0 for runs in results.values() for kind in KINDS]
    verdict = "above" if all(above) else "not always above"
    lines = [
        "# Trees without labels: three languages, with and without punctuation",
        "",
        f"**`Grammar()` is {verdict} right-branching trees with every seed, on every text and by both references.** "
        "Sentence F1 on the dev parts (at most 40 words a sentence) by subtrees of the dependencies and phrases made "
        "from them ([how](../bracketing.py)); punctuation is not counted. Mean and standard deviation over the seeds; "
        "fitting in processor seconds.",
        "",
        "| text | punctuation | tokens | seeds | subtrees | right-branching | phrases | right-branching | fit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (key, punctuation), runs in results.items():
        f1 = " | ".join(f"{of_runs(runs, kind, OURS)} | {of_runs(runs, kind, RIGHT)}" for kind in KINDS)
        seconds = spread([run["fit seconds"] for run in runs], 0)
        where = f"{TEXTS[key].name} | {'with' if punctuation else 'without'} | {runs[0]['tokens']:,}"
        lines.append(f"| {where} | {len(runs)} | {f1} | {seconds} |")
    lines += [
        "",
        "By the number of words of a sentence, `Grammar()` and right-branching trees, phrases:",
        "",
        "| text | punctuation | " + " | ".join(f"{a} to {b} | right-branching" for a, b in BINS) + " |",
        "|---|---" + "|---|---" * len(BINS) + "|",
    ]
    for (key, punctuation), runs in results.items():
        f1 = " | ".join(
            f"{of_runs(runs, 'phrases', f'{a} to {b}', OURS)} | {of_runs(runs, 'phrases', f'{a} to {b}', RIGHT)}"
            for a, b in BINS
        )
        lines.append(f"| {TEXTS[key].name} | {'with' if punctuation else 'without'} | {f1} |")
    lines += ["", "Simple trees, and the best that binary trees can reach:", ""]
    lines += ["| text | trees | subtrees | phrases |", "|---|---|---|---|"]
    shown = set()
    for (key, _), runs in results.items():
        if TEXTS[key].treebank in shown:
            continue
        shown.add(TEXTS[key].treebank)
        for name in ("left-branching", "random", BEST):
            f1 = " | ".join(of_runs(runs, kind, name) for kind in KINDS)
            lines.append(f"| {TEXTS[key].treebank} dev | {name} | {f1} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--texts", nargs="+", choices=TEXTS, default=list(TEXTS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*longer|.*more than")
    if options.quick:
        found = brackets(TEXTS["ewt"], True, 0, QUICK, 1500)
        print(found)
        if not found["subtrees"][OURS] > max(found["subtrees"][x] for x in ("random", "left-branching")):
            sys.exit("The grammar's trees are no better than random or left-branching ones.")
        return
    work = work_of(options.work, __file__)
    keep = keeper(work)
    for seed, key, punctuation in itertools.product(options.seeds, options.texts, (False, True)):
        keep(name_of(key, punctuation, seed), partial(brackets, TEXTS[key], punctuation, seed, {}))
    results = kept(work)
    text = page(results)
    print(text)
    data = {f"{key}, {'with' if p else 'without'} punctuation": runs for (key, p), runs in results.items()}
    write_page("grammar_trees", text, __file__, {}, data=data)


if __name__ == "__main__":
    main()
