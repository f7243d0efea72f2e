"""One EM pass of hidden Markov models with blocks over WikiText-2's training text.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/hmm_blocks.py [pairs] [low-rank] [--tokens N]

Exchange clusters for blocks, a random start, eight chunks, two threads: the pass is what `HMM.fit` does, with M-steps.
*bytes* are those of the parameters, *peak* is the largest memory the process ever had, start included.
"""

from __future__ import annotations

import argparse
import lzma
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from undertow import HMM, Corpus

ROWS: dict[str, list[tuple[int, int, int | None]]] = {
    "pairs": [(2**11, 128, None), (2**12, 128, None), (2**13, 128, None)],
    "low-rank": [(2**13, 128, 256), (2**14, 128, 256), (2**15, 128, 256)],
}


def corpus(n_tokens: int) -> Corpus:
    data = Path(os.environ.get("UNDERTOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
    lines: list[list[str]] = []
    n = 0
    with lzma.open(data / "text" / "wikitext2.train.txt.xz", "rt", encoding="utf-8") as f:
        for line in f:
            lines.append([*line.split(), "<eos>"])
            n += len(lines[-1])
            if n >= n_tokens:
                break
    return Corpus.from_sentences(lines)


def one_pass(text: Corpus, n_states: int, n_blocks: int, rank: int | None) -> None:
    cpu: list[float] = []
    events: list[Any] = []

    def watch(event: Any) -> None:
        events.append(event)
        cpu.append(time.process_time())

    model = HMM(n_states, n_blocks=n_blocks, rank=rank, init="random", n_iter=2, random_state=0, n_jobs=2)
    model.set_params(callbacks=[watch]).fit(text)  # the first pass compiles and warms up; the second is timed
    wall, spent = events[1].seconds - events[0].seconds, cpu[1] - cpu[0]
    size = sum(t.nbytes for t in model._tensors().values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"| {n_states:,} | {n_blocks} | {rank or 'pairs'} | {wall:.0f} s | {spent:.0f} s | "
        f"{text.n_tokens / wall:,.0f} | {size / 1e6:,.0f} MB | {peak / 1e9:.1f} GB |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help=f"among {', '.join(ROWS)}")
    parser.add_argument("--tokens", type=int, default=10**9)
    given = parser.parse_args()
    text = corpus(given.tokens)
    print(f"{text.n_tokens:,} tokens, {len(text.vocabulary):,} words; {np.__version__=}")
    print("| states | blocks | rank | wall | processor | tokens/s | bytes | peak |\n|---|---|---|---|---|---|---|---|")
    for kind in given.rows or ROWS:
        for row in ROWS[kind]:
            one_pass(text, *row)


if __name__ == "__main__":
    main()
