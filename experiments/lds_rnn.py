"""A recurrent language model from a random start and from an LDS (the paper's Figure 1 and Table 4).

    .venv/bin/pip install -c constraints.txt '.[torch]'
    .venv/bin/python experiments/lds_rnn.py            # WikiText-2, 10,000 words, 100 units; about 3 hours on two cores
    .venv/bin/python experiments/lds_rnn.py --quick    # 200,000 tokens, 3,000 words, 50 units: minutes

The claim: from the LDS the network needs at most 70 % of the epochs and ends no worse. Mikolov's schedule for both; the
rate of each start is the best of a grid on the last tenth of the training text, for the first seed; then every seed is
trained with it on all the training text and scored on valid, which decides nothing but when its own training stops, for
both starts alike. Runs are kept in --work as they finish: an interrupted experiment goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pos_data import data_dir

from undertow import LDS, Corpus
from undertow.neural import RNNLM
from undertow.neural.training import Epoch, train

RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
STARTS = ("random", "LDS")


def read_tokens(name: str) -> list[list[str]]:
    """The lines of a WikiText-2 file, each with its end as a word."""
    with lzma.open(data_dir() / "text" / f"wikitext2.{name}.txt.xz", "rt", encoding="utf-8", newline="\n") as f:
        return [[*line.split(), "<eos>"] for line in f]


def first(lines: list[list[str]], n_tokens: int | None) -> list[list[str]]:
    if n_tokens is None:
        return lines
    ends = np.cumsum([len(line) for line in lines])
    return lines[: int(np.searchsorted(ends, n_tokens)) + 1]


def flat(corpus: Corpus, lines: list[list[str]]) -> Any:
    return corpus.vocabulary.encode([word for line in lines for word in line])


def make(start: str, nonlinearity: str, seed: int, h: int, corpus: Corpus, lds: LDS, lines: list[list[str]]) -> RNNLM:
    torch.manual_seed(seed)
    if start == "random":
        return RNNLM(len(corpus.vocabulary), h, nonlinearity)
    model = RNNLM.from_lds(lds, nonlinearity, text=lines[:2000])
    with torch.no_grad():  # seeds differ in a little noise: the start itself has none
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 1e-3 * p.abs().mean())
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--components", type=int)
    parser.add_argument("--words", type=int)
    parser.add_argument("--tokens", type=int, help="of the training text; all by default")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--nonlinearity", nargs="+", default=["sigmoid", "tanh"])
    parser.add_argument("--lds-iterations", type=int, default=10, help="few: on a small corpus EM overfits")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    h = options.components or (50 if options.quick else 100)
    n_words = options.words or (3000 if options.quick else 10_000)
    n_tokens = options.tokens or (200_000 if options.quick else None)
    n_seeds = options.seeds or (1 if options.quick else 3)
    rates = RATES[1:4] if options.quick else RATES
    options.work.mkdir(parents=True, exist_ok=True)
    lines, valid_lines = first(read_tokens("train"), n_tokens), first(read_tokens("valid"), n_tokens and n_tokens // 10)
    corpus = Corpus.from_sentences(lines, vocab_size=n_words)
    began = time.perf_counter()
    lds = LDS(h, n_iter=options.lds_iterations, n_full=1, random_state=0, n_jobs=2).fit(corpus)
    lds_seconds = time.perf_counter() - began
    ids, valid = flat(corpus, lines), flat(corpus, valid_lines)
    cut = len(ids) * 9 // 10
    kept = options.work / f"rnn-{h}-{n_words}-{len(ids)}-{options.lds_iterations}.json"
    done: dict[str, list[list[float]]] = json.loads(kept.read_text()) if kept.exists() else {}

    def run(start: str, nonlinearity: str, rate: float, seed: int, selecting: bool) -> list[Epoch]:
        key = f"{start} {nonlinearity} {rate} {seed} {'select' if selecting else 'score'}"
        if key not in done:
            model = make(start, nonlinearity, seed, h, corpus, lds, lines)
            parts = (ids[:cut], ids[cut:]) if selecting else (ids, valid)
            history = train(model, *parts, rate=rate, max_epochs=6 if selecting else 40)
            done[key] = [list(e._replace(train_perplexity=min(e.train_perplexity, 1e9))) for e in history[1:]]
            done[key].insert(0, [0, rate, 0.0, history[0].valid_perplexity, 0.0])
            kept.write_text(json.dumps(done))
        history = [Epoch(int(e[0]), *e[1:]) for e in done[key]]
        best = min(history, key=lambda e: e.valid_perplexity)
        print(
            f"{key}: start {history[0].valid_perplexity:.1f}, best {best.valid_perplexity:.1f} at {best.number}",
            flush=True,
        )
        return history

    table = [
        "# A recurrent language model from a random start and from an LDS (Table 4, Figure 1)",
        "",
        f"WikiText-2, {len(ids):,} training tokens, V = {len(corpus.vocabulary):,} (other words are `<unk>`, so these "
        f"perplexities compare with each other only), {h} units; the LDS took {lds_seconds:.0f} s.",
        "",
        "| unit | start | rate | before training | best on valid | epochs to it | epochs to the random best |",
        "|---|---|---|---|---|---|---|",
    ]
    for nonlinearity in options.nonlinearity:
        target: list[float] = []
        for start in STARTS:
            chosen = min(
                rates,
                key=lambda rate: min(e.valid_perplexity for e in run(start, nonlinearity, rate, 0, True)),
            )
            histories = [run(start, nonlinearity, chosen, seed, False) for seed in range(n_seeds)]
            best = [min(hist, key=lambda e: e.valid_perplexity) for hist in histories]
            if start == "random":
                target = [b.valid_perplexity for b in best]
            reach = [
                next((e.number for e in hist if e.valid_perplexity <= goal), None)
                for hist, goal in zip(histories, target, strict=True)
            ]
            table.append(
                f"| {nonlinearity} | {start} | {chosen} | {histories[0][0].valid_perplexity:.1f} | "
                f"{', '.join(f'{b.valid_perplexity:.1f}' for b in best)} | {', '.join(str(b.number) for b in best)} | "
                f"{', '.join('never' if r is None else str(r) for r in reach)} |"
            )
            print(table[-1], flush=True)
    table += ["", "The paper (PTB, 300 units): random 130.6 valid in 17 epochs, LDS 128.1 in 12.", ""]
    print("\n".join(table))
    if not options.quick:
        (Path(__file__).parent / "results" / "lds_rnn.md").write_text("\n".join(table), encoding="utf-8")


if __name__ == "__main__":
    main()
