"""Does a start from the text save passes of EM? Held-out perplexity after each, on WikiText-2.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_starts.py              # blocks, full transitions: a few minutes
    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_starts.py --rank 64 --tokens 500000

Blocks are clusters of the exchange algorithm in all rows (the spectral start improves its k-means by it); rows differ
in how the states within blocks begin. Needs the real data (UNDERTOW_DATA, default ../shared/data).
"""

from __future__ import annotations

import argparse
import lzma
import os
import time
from pathlib import Path

import numpy as np

from undertow import HMM, Corpus


def lines(split: str, n_tokens: int | None = None) -> list[list[str]]:
    """Lines of WikiText-2 with its <eos>, the first so many tokens of them."""
    data = Path(os.environ.get("UNDERTOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
    out: list[list[str]] = []
    total = 0
    with lzma.open(data / "text" / f"wikitext2.{split}.txt.xz", "rt", encoding="utf-8") as f:
        for line in f:
            out.append([*line.split(), "<eos>"])
            total += len(out[-1])
            if n_tokens is not None and total >= n_tokens:
                break
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=1024)
    parser.add_argument("--blocks", type=int, default=128)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--tokens", type=int, help="only the first so many tokens")
    parser.add_argument("--inits", default="random,clusters,spectral")
    args = parser.parse_args()
    text = Corpus.from_sentences(lines("train", args.tokens), boundary="<eos>")
    other = Corpus.from_sentences(lines("valid"), vocabulary=text.vocabulary)
    print(f"{text.n_tokens} tokens, {len(text.vocabulary)} words, {args.states} states, rank {args.rank}", flush=True)
    for init in args.inits.split(","):
        began = time.perf_counter()
        hmm = HMM(
            args.states,
            n_blocks=args.blocks,
            rank=args.rank,
            init=init,
            n_iter=args.passes,
            n_chunks=1,
            random_state=0,
            n_jobs=2,
        )
        hmm.fit(text, validation=other)
        held = " ".join(f"{np.exp(-x):.1f}" for x in hmm.validation_history_)
        print(f"{init:<9} held out after each pass: {held}   ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
