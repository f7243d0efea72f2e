"""Low-rank grammars as language models: perplexity beside hidden Markov models with as many parameters.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/grammar.py              # three seeds
    .venv/bin/python experiments/grammar.py --quick      # small: is the perplexity near that of an HMM?

Sentences of at most 30 words of WikiText-2 (cut at full stops; train and valid) and of CRAFT (train and dev). The
grammar starts from a chain (init="chain"). The HMMs predict an end word, the grammar the end of the sentence, and all
logarithms are divided by the number of words without it. All stop early on the last tenth of the training text.
Parameters are all numbers of all tables, or of all embeddings. The start of the grammar (its passes, how its words and
transitions are smoothed, the share of general rules, how near EM stays to it), smoothing and start of the HMM of tables
(seven values, two starts) and dropout of the tied one were chosen on the last 600 of WikiText-2's 6,000 training
sentences; valid and dev were not looked at. Its trees are measured by grammar_trees.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data import craft_articles, wikitext
from pages import write_page
from source_key import work_of
from undertow import HMM, Corpus, Grammar
from undertow.kernels.chart.grammar import GrammarParams
from undertow.models.fitting import split_text
from undertow.models.grammar.chain_start import class_chain, right_linear
from undertow.models.grammar.em import MStep
from undertow.models.grammar.init import word_classes
from undertow.models.grammar.queries import log_likelihoods

HELD_OUT = 0.1  # share of the training text for early stopping
WIDTH = 64  # of the embeddings of the tied HMM
LONGEST = 30  # words of a sentence of WikiText-2
END = "<eos>"


class Size(NamedTuple):
    n_sentences: int  # of WikiText-2 and of CRAFT
    vocabulary: int
    chain: int  # nonterminals, preterminals and features of the grammar whose perplexity is measured
    n_iter: int  # its passes, and those of the HMMs, at most


FULL = Size(6000, 5000, 76, 15)
QUICK = Size(600, 1000, 20, 6)


def wikitext_sentences(part: str, most: int) -> list[list[str]]:
    """Lines without headings, cut after full stops; only sentences of at most LONGEST words."""
    out: list[list[str]] = []
    for line in wikitext(part):
        words = [w for w in line if w != END]
        if not words or words[0] == "=":
            continue
        sentence: list[str] = []
        for word in words:
            sentence.append(word)
            if word == ".":
                if len(sentence) <= LONGEST:
                    out.append(sentence)
                sentence = []
        if 0 < len(sentence) <= LONGEST:
            out.append(sentence)
        if len(out) >= most:
            break
    return out[:most]


def craft_sentences(part: str, most: int) -> list[list[str]]:
    words = (s.words for article in craft_articles(part) for s in article)
    return [s for s in words if 0 < len(s) <= LONGEST][:most]


TEXTS = {"WikiText-2": (wikitext_sentences, "valid"), "CRAFT": (craft_sentences, "dev")}


class Rival(NamedTuple):
    """A hidden Markov model beside the grammar."""

    name: str
    n_states: int
    settings: dict[str, Any]
    parameters: int


def rivals(n_parameters: int, V: int) -> dict[str, Rival]:
    """HMMs with as many parameters, by what the tables of words need; blocks of words need fewer for more states."""
    Z = round((-V - 2 + np.sqrt((V + 2) ** 2 + 4 * n_parameters)) / 2)  # Z + Z² + Z (V + 1) parameters
    G = 2 * Z // 5
    tied = (n_parameters - (WIDTH + 1) * (V + 1 + G)) // (3 * WIDTH + 2)  # three vectors and two numbers a state
    out = {"dense": Rival(f"HMM, {Z} states, tables", Z, {"n_blocks": 1, "smoothing": 0.25}, Z * (Z + V + 2))}
    if tied >= 2 * G:
        name = f"HMM, {tied} states in {G} blocks of words, tied through embeddings of width {WIDTH}"
        settings = {"n_blocks": G, "parameterization": "neural", "width": WIDTH, "n_iter": 10}
        count = (WIDTH + 1) * (V + 1 + G) + (3 * WIDTH + 2) * tied
        out["tied"] = Rival(name, int(tied), settings, int(count))
    return out


def chain_alone(text: Corpus, k: int, seed: int) -> GrammarParams:
    """The chain from which the grammar starts, as a grammar: an HMM with an end."""
    part, _ = split_text(text, HELD_OUT, None)
    m_step, rng = MStep.of(part.vocabulary.counts, 1.0), np.random.default_rng(seed)
    return right_linear(class_chain(part, k, word_classes(part, k, rng, 1), m_step, rng, 1))


def perplexities(size: Size, text_name: str, seed: int) -> dict[str, Any]:
    """Of the grammar and HMMs on held-out text."""
    read, held_part = TEXTS[text_name]
    train, held = read("train", size.n_sentences), read(held_part, size.n_sentences)
    text = Corpus.from_sentences(train, vocab_size=size.vocabulary)
    n_words = sum(map(len, held))
    k, V = size.chain, len(text.vocabulary)
    how: dict[str, Any] = {"n_iter": size.n_iter, "validation": HELD_OUT, "random_state": seed}
    began = time.process_time()
    grammar = Grammar(k, n_preterminals=k, rank=k, init="chain", **how).fit(text)
    seconds = time.process_time() - began
    n_parameters = sum(x.size for x in grammar.params_)
    p = grammar.params_
    used = grammar.symbol_counts_[:k] @ p.rules  # how often each feature was
    found: dict[str, Any] = {
        "parameters": {"grammar": n_parameters},
        "perplexity": {"grammar": grammar.perplexity(held)},
        "seconds": {"grammar": seconds},
        "names": {"grammar": f"Grammar, {k} nonterminals, preterminals and features"},
        "left phrases": float(used @ p.left[:, :k].sum(axis=1) / used.sum()),
        "tokens": text.n_tokens,
    }
    began = time.process_time()
    chain = chain_alone(text, k, seed)
    found["seconds"]["chain"] = time.process_time() - began
    ids = [np.array([text.vocabulary.id(w) for w in s]) for s in held]
    found["perplexity"]["chain"] = float(np.exp(-log_likelihoods(chain, ids).sum() / n_words))
    found["parameters"]["chain"] = k * (k + V + 2)
    found["names"]["chain"] = f"the chain it starts from by itself: an HMM, {k} states"
    ends = Corpus.from_sentences([[*s, END] for s in train], vocab_size=size.vocabulary + 1)
    for key, rival in rivals(n_parameters, V).items():
        began = time.process_time()
        hmm = HMM(rival.n_states, **how | rival.settings).fit(ends)
        found["seconds"][key] = time.process_time() - began
        logs = hmm.log_probabilities([[*s, END] for s in held])
        found["perplexity"][key] = float(np.exp(-sum(x.sum() for x in logs) / n_words))
        found["parameters"][key] = rival.parameters
        found["names"][key] = rival.name
    return found


def verdict(text_name: str, runs: list[dict[str, Any]]) -> str:
    """Below which of the others the grammar is with every seed, and by how much on average."""
    mean = {key: float(np.mean([run["perplexity"][key] for run in runs])) for key in runs[0]["names"]}
    words = []
    for key, what in (("dense", "an HMM of tables"), ("chain", "the chain it starts from"), ("tied", "a tied HMM")):
        if key not in mean:
            continue
        below = [run["perplexity"]["grammar"] < run["perplexity"][key] for run in runs]
        how = "below" if all(below) else "not below" if not any(below) else "not with every seed below"
        words.append(f"{how} that of {what} ({100 * (mean['grammar'] / mean[key] - 1):+.1f} %)")
    return f"**{text_name}: the grammar's perplexity is {', '.join(words)}.**"


def keeper(work: Path | None) -> Callable[[str, Callable[[], dict[str, Any]]], dict[str, Any]]:
    """A function that gives a result by its name, made only if it is not kept in `work`."""

    def keep(name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        file = None if work is None else work / f"{name}.json"
        if file is not None and file.exists():
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        else:
            found = make()
            if file is not None:
                file.write_text(json.dumps(found), encoding="utf-8")
        print(f"{name}: {found}", flush=True)
        return found

    return keep


def spread(values: list[float], digits: int = 1) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    keep = keeper(None if options.quick else work_of(options.work, __file__))
    size, seeds = (QUICK, options.seeds[:1]) if options.quick else (FULL, options.seeds)
    lines = ["# Low-rank grammars: perplexity", "", f"Seeds {', '.join(map(str, seeds))}.", ""]
    data: dict[str, Any] = {}
    for text_name in TEXTS:
        runs = [keep(f"perplexity-{text_name}-{seed}", partial(perplexities, size, text_name, seed)) for seed in seeds]
        data[f"perplexity {text_name}"] = runs
        phrases = 100 * float(np.mean([run["left phrases"] for run in runs]))
        lines += [
            f"{verdict(text_name, runs)} {runs[0]['tokens']:,} training tokens, sentences of at most {LONGEST} "
            f"words, ends predicted. Of the grammar's left children {phrases:.1f} % are phrases.",
            "",
            "| model | parameters | perplexity | processor seconds |",
            "|---|---|---|---|",
            *(
                f"| {name} | {runs[0]['parameters'][key]:,} | {spread([r['perplexity'][key] for r in runs])} | "
                f"{spread([r['seconds'][key] for r in runs], 0)} |"
                for key, name in runs[0]["names"].items()
            ),
            "",
        ]
        print("\n".join(lines[-8:]), flush=True)
        if options.quick and runs[0]["perplexity"]["grammar"] > 1.1 * runs[0]["perplexity"]["dense"]:
            sys.exit("The grammar's perplexity is far above that of an HMM with as many parameters.")
    if not options.quick:
        write_page("grammar", "\n".join(lines), __file__, {"seeds": seeds}, data=data)


if __name__ == "__main__":
    main()
