"""Low-rank grammars: perplexity beside a hidden Markov model with as many parameters, and trees beside simple ones.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/grammar.py              # both parts, three seeds
    OMP_NUM_THREADS=1 .venv/bin/python experiments/grammar.py --part trees --seeds 0
    OMP_NUM_THREADS=1 .venv/bin/python experiments/grammar.py --part starts     # the table of docs/grammar.md
    .venv/bin/python experiments/grammar.py --quick      # small: are the trees better than random and left ones?

*Perplexity*: sentences of WikiText-2 train (cut at full stops) of at most 30 words; the HMM has a dense transition and
predicts an end word, the grammar the end of the sentence, and both logarithms are divided by the number of words
without it. Both stop early on the last tenth of the training text. *Trees*: EWT train without punctuation, sentences of
at most 20 words, no tree is seen; sentence F1 on EWT dev (see bracketing.py). The sharpness of the
start was chosen by the perplexity of the last thousand sentences of EWT train; the share of left phrases (0.3) was a
first guess, kept when sentence F1 on those sentences fell at 0.5. Dev was not looked at.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from typing import Any, NamedTuple

import numpy as np

from bracketing import ceiling, ewt, left_branching, random_tree, right_branching, sentence_f1, spans_of
from data import wikitext
from pages import write_page
from undertow import HMM, Corpus, Grammar

LONGEST = 30  # words of a sentence of WikiText-2
LONGEST_TREE = 20  # words of a training sentence of EWT; of dev: 40
END = "<eos>"


class Size(NamedTuple):
    n_sentences: int  # of WikiText-2
    n_trees: int  # of EWT
    vocabulary: int
    grammar: dict[str, Any]


FULL = Size(6000, 20_000, 5000, {"n_nonterminals": 40, "n_preterminals": 80, "rank": 40, "n_iter": 15})
QUICK = Size(600, 4000, 1000, {"n_nonterminals": 15, "n_preterminals": 30, "rank": 15, "n_iter": 6})


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


def n_parameters(settings: dict[str, Any], V: int) -> int:
    n, m, r = settings["n_nonterminals"], settings["n_preterminals"], settings["rank"]
    return int(n + m + n * r + 2 * r * (n + m) + m * V)


def perplexities(size: Size, seed: int) -> dict[str, Any]:
    """Of the grammar and the HMM with as many parameters on WikiText-2 valid."""
    train, held = (wikitext_sentences(part, size.n_sentences) for part in ("train", "valid"))
    text = Corpus.from_sentences(train, vocab_size=size.vocabulary)
    n_words = sum(map(len, held))
    began = time.process_time()
    grammar = Grammar(**size.grammar, validation=0.1, random_state=seed).fit(text)
    middle = time.process_time()
    V = len(text.vocabulary)
    n_states = round((-V + np.sqrt(V * V + 4 * n_parameters(size.grammar, V))) / 2)  # Z² + Z V = parameters
    ends = Corpus.from_sentences([[*s, END] for s in train], vocab_size=size.vocabulary + 1)
    hmm = HMM(n_states, n_blocks=1, n_iter=size.grammar["n_iter"], validation=0.1, random_state=seed).fit(ends)
    logs = hmm.log_probabilities([[*s, END] for s in held])
    return {
        "grammar": grammar.perplexity(held),
        "hmm": float(np.exp(-sum(x.sum() for x in logs) / n_words)),
        "states": n_states,
        "parameters": n_parameters(size.grammar, V),
        "tokens": text.n_tokens,
        "grammar_seconds": middle - began,
        "hmm_seconds": time.process_time() - middle,
    }


def brackets(size: Size, seed: int) -> dict[str, float]:
    """Sentence F1 of the grammar's trees and of simple ones on EWT dev."""
    train = [b.words for b in ewt("train")[: size.n_trees] if len(b.words) <= LONGEST_TREE]
    dev = [b for b in ewt("dev") if len(b.words) <= 40]
    text = Corpus.from_sentences(train, vocab_size=size.vocabulary)
    began = time.process_time()
    model = Grammar(**size.grammar, random_state=seed).fit(text)
    gold, lengths = [b.spans for b in dev], [len(b.words) for b in dev]
    rng = np.random.default_rng(seed)
    found = {
        "minimum Bayes risk": [spans_of(t) for t in model.parse([b.words for b in dev])],
        "right-branching": [right_branching(n) for n in lengths],
        "left-branching": [left_branching(n) for n in lengths],
        "random": [random_tree(n, rng) for n in lengths],
        "best binary trees": [ceiling(b.spans, len(b.words)) for b in dev],
    }
    out = {name: sentence_f1(gold, spans) for name, spans in found.items()}
    return out | {"seconds": time.process_time() - began, "sentences": float(sum(map(bool, gold)))}


# concentration of the rules, share of words outside a preterminal's class, share of left phrases, start, passes
STARTS = [
    (1.0, 0.2, 0.3, "clusters", 10),
    (1.0, 0.2, 0.3, "random", 10),
    (0.3, 0.05, 0.3, "clusters", 10),
    (0.1, 0.02, 0.3, "clusters", 10),
    (0.1, 0.02, 0.3, "clusters", 20),
    (0.1, 0.02, 0.5, "clusters", 20),
]


def starts(seed: int) -> list[str]:
    """Rows of a table: starts of EM on 6,000 sentences of EWT train, scored on its last 1,000."""
    from undertow.models.grammar import init

    everything = ewt("train")
    held = [b for b in everything[-1000:] if len(b.words) <= LONGEST]
    train = [b.words for b in everything[:-1000] if len(b.words) <= LONGEST_TREE][:6000]
    text, words, gold = Corpus.from_sentences(train, vocab_size=3000), [b.words for b in held], [b.spans for b in held]
    rows = [
        "| rules | other words | left phrases | start | passes | perplexity | sentence F1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for concentration, other, left, how, n_iter in STARTS:
        init.CONCENTRATION, init.OTHER_WORDS, init.LEFT_PHRASES = concentration, other, left
        model = Grammar(30, n_preterminals=60, rank=30, n_iter=n_iter, init=how, random_state=seed).fit(text)
        f1 = sentence_f1(gold, map(spans_of, model.parse(words)))
        cells = [
            str(concentration),
            str(other),
            str(left),
            how,
            str(n_iter),
            f"{model.perplexity(words):.1f}",
            f"{f1:.1f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return rows


def shown(result: dict[str, Any], seed: int) -> dict[str, Any]:
    """The result, after printing it: a run of all seeds takes long."""
    print(f"seed {seed}: {', '.join(f'{k} {v:,.1f}' for k, v in result.items())}", flush=True)
    return result


def spread(values: list[float], digits: int = 1) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=["both", "perplexity", "trees", "starts"], default="both")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*max_length")  # a few sentences of EWT dev are long
    size, seeds = (QUICK, options.seeds[:1]) if options.quick else (FULL, options.seeds)
    shape = "{n_nonterminals} nonterminals, {n_preterminals} preterminals, rank {rank}, {n_iter} passes".format(
        **size.grammar
    )
    if options.part == "starts":
        print("\n".join(starts(seeds[0])))
        return
    lines = ["# Low-rank grammars: perplexity and trees", "", f"{shape}; seeds {', '.join(map(str, seeds))}.", ""]
    data: dict[str, Any] = {}
    if options.part != "trees":
        runs = [shown(perplexities(size, seed), seed) for seed in seeds]
        data["perplexity"] = runs
        below = all(run["grammar"] < run["hmm"] for run in runs)
        lines += [
            f"**The grammar's perplexity is {'below' if below else 'not below'} that of the HMM with as many "
            f"parameters** ({runs[0]['parameters']:,}; {runs[0]['tokens']:,} training tokens of WikiText-2, sentences "
            f"of at most {LONGEST} words, ends predicted).",
            "",
            "| model | perplexity on valid | processor seconds |",
            "|---|---|---|",
            f"| Grammar | {spread([r['grammar'] for r in runs])} | {spread([r['grammar_seconds'] for r in runs], 0)} |",
            f"| HMM, {runs[0]['states']} states | {spread([r['hmm'] for r in runs])} | "
            f"{spread([r['hmm_seconds'] for r in runs], 0)} |",
            "",
        ]
        print("\n".join(lines), flush=True)
    if options.part != "perplexity":
        found = [shown(brackets(size, seed), seed) for seed in seeds]
        data["trees"] = found
        f1 = {name: [run[name] for run in found] for name in found[0] if name not in ("seconds", "sentences")}
        above = min(f1["minimum Bayes risk"]) > f1["right-branching"][0]
        lines += [
            f"**Trees are {'better' if above else 'not better'} than right-branching ones** by sentence F1 on "
            f"{found[0]['sentences']:.0f} sentences of EWT dev, with every seed.",
            "",
            "| trees | sentence F1 |",
            "|---|---|",
            *(f"| {name} | {spread(values)} |" for name, values in f1.items()),
            "",
            f"Fitting and parsing took {spread([run['seconds'] for run in found], 0)} s of processor time.",
            "",
        ]
        print("\n".join(lines), flush=True)
        if options.quick and not np.mean(f1["minimum Bayes risk"]) > max(f1["random"][0], f1["left-branching"][0]):
            sys.exit("The grammar's trees are no better than random or left-branching ones.")
    if not options.quick and options.part == "both":
        write_page("grammar", "\n".join(lines), __file__, vars(options), data=data)


if __name__ == "__main__":
    main()
