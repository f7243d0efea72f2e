"""The neural HMM on a part of WikiText-2: low rank against dense, learned against frozen features, against EM.

    .venv/bin/pip install -c constraints.txt '.[torch]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_neural.py    # 20 minutes; writes results/hmm_neural.md
    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_neural.py --rows dense low --seeds 1
    .venv/bin/python experiments/hmm_neural.py --quick                    # 30,000 tokens, 32 states: half a minute

The claim: with the same number of states the low-rank form is no worse than the dense one. It is only worth having
where the rank F is at most a quarter of the states Z: a step costs 2ZF instead of Z². All rows have the same states, no
blocks, and the start from clusters. The end of the training excerpt decides when the rate is cut and which
epoch is kept; valid is scored once, at the end. The vocabulary is small and its unknown words are one word: compare
rows, not papers. Fits are kept in --work as they finish. Needs the real data (UNDERTOW_DATA).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from data import first, wikitext
from pages import write_page
from source_key import work_of
from undertow import HMM, Corpus
from undertow.neural.hmm import Options, fit_neural

HERE = Path(__file__).parent
# row -> (share of the states that the rank is, 0 for dense; features; dropout), or EM on tables
ROWS: dict[str, tuple[float, str, float]] = {
    "dense": (0, "learned", 0.0),
    "low": (0.5, "learned", 0.0),
    "low-quarter": (0.25, "learned", 0.0),
    "orthogonal": (0.5, "orthogonal", 0.0),
    "fourier": (0.5, "fourier", 0.0),
    "low-dropout": (0.5, "learned", 0.25),
    "em-dense": (0, "", 0.0),
    "em-low": (0.5, "", 0.0),
    "em-quarter": (0.25, "", 0.0),
    "em-eighth": (0.125, "", 0.0),
    "em-sixteenth": (0.0625, "", 0.0),
}


def fit(row: str, seed: int, states: int, epochs: int, text: Corpus, dev: Corpus) -> HMM:
    share, features, dropout = ROWS[row]
    rank = round(share * states) or None
    hmm = HMM(states, n_blocks=1, rank=rank, init="clusters", n_iter=epochs, random_state=seed, n_jobs=1)
    if not features:
        return hmm.set_params(n_iter=10, n_chunks=4).fit(text, validation=dev)
    options = Options(features=features, dropout=dropout, batch_tokens=4096, learning_rate=3e-3)
    hmm._finish(fit_neural(hmm, text, dev, options=options), text)
    return hmm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--states", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=300_000)
    parser.add_argument("--words", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, default=2, help="of dense, low and EM; the other rows have one")
    parser.add_argument("--rows", nargs="*", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--work", type=Path, default=HERE / "work")
    given = parser.parse_args()
    work = work_of(given.work, __file__) / "fits.json"
    if given.quick:
        given.states, given.tokens, given.words, given.epochs, given.seeds = 32, 30_000, 1000, 3, 1
        given.rows = ["dense", "low"]
    all_lines = first(wikitext("train"), given.tokens)
    cut = len(all_lines) * 9 // 10
    text = Corpus.from_sentences(all_lines[:cut], vocab_size=given.words, boundary="<eos>")
    dev = Corpus.from_sentences(all_lines[cut:], vocabulary=text.vocabulary)
    valid = Corpus.from_sentences(first(wikitext("valid"), given.tokens // 7), vocabulary=text.vocabulary)
    kept: dict[str, Any] = {}
    if not given.quick and work.exists():
        kept = json.loads(work.read_text())
    for row in given.rows:
        for seed in range(given.seeds if row in ("dense", "low") or row.startswith("em") else 1):
            key = f"{row} {seed} {given.states} {given.tokens} {given.words} {given.epochs}"
            if key in kept:
                continue
            wall, cpu = time.perf_counter(), time.process_time()
            hmm = fit(row, seed, given.states, given.epochs, text, dev)
            kept[key] = {
                "row": row,
                "dev": [float(np.exp(-x)) for x in hmm.validation_history_],
                "valid": float(hmm.perplexity(valid)),
                "wall": time.perf_counter() - wall,
                "cpu": time.process_time() - cpu,
            }
            print(key, kept[key], flush=True)
            if not given.quick:
                work.write_text(json.dumps(kept))
    page = table(kept, text, valid, given)
    print(page)
    if given.quick:
        low, dense = (kept[k]["valid"] for k in sorted(kept, reverse=True))
        sys.exit(None if low < 1.05 * dense else f"the low rank has {low:.1f}, dense {dense:.1f}")
    write_page("hmm_neural", page, __file__, vars(given), data=kept)


def table(kept: dict[str, Any], text: Corpus, valid: Corpus, given: argparse.Namespace) -> str:
    out = [
        "# The neural HMM: low rank against dense",
        "",
        f"WikiText-2: {text.n_tokens:,} tokens to learn from, {len(text.vocabulary):,} words, {valid.n_tokens:,} of "
        f"valid; {given.states} states, no blocks, start from clusters, one thread; EM has at most 10 "
        "passes. *dev* is the end of the training excerpt, which chooses the epoch; *valid* is scored once.",
        "",
        "| form | epochs at most | seeds | valid | dev | best epochs | CPU seconds | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, int], list[Any]] = {}
    for key, run in kept.items():
        row, _, *size, limit = key.split()
        if [int(x) for x in size] == [given.states, given.tokens, given.words]:
            groups.setdefault((row, 10 if row.startswith("em") else int(limit)), []).append(run)
    for (row, most), runs in sorted(groups.items(), key=lambda g: (g[0][1], list(ROWS).index(g[0][0]))):
        share, features, dropout = ROWS[row]
        name = f"rank {round(share * given.states)}" if share else "dense"
        name += (f", {features}" if features and share else "") + (", dropout" if dropout else "")
        name = name if features else f"EM on tables, {name}"
        mean = {k: np.mean([r[k] if k != "dev" else min(r[k]) for r in runs]) for k in ("valid", "dev", "cpu", "wall")}
        spread = f" ± {np.std([r['valid'] for r in runs], ddof=1):.1f}" if len(runs) > 1 else ""
        epochs = ", ".join(str(int(np.argmin(r["dev"])) + 1) for r in runs)
        out.append(
            f"| {name} | {most} | {len(runs)} | {mean['valid']:.1f}{spread} | {mean['dev']:.1f} | {epochs} | "
            f"{mean['cpu']:.0f} | {mean['wall']:.0f} |"
        )
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
