"""Word clusters: the exchange algorithm and Brown's merging, on WikiText-2 and on eLife.

    .venv/bin/python benchmarks/clusters.py                 # WikiText-2, 128 clusters; eLife, 1,000
    .venv/bin/python benchmarks/clusters.py --wikitext      # the first alone

One thread. Needs the real data (UNDERTOW_DATA, default ../shared/data). --work keeps the counts between runs.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from undertow import Corpus, LagCounts
from undertow.kernels.words.brown import merge_classes
from undertow.kernels.words.exchange import class_counts, exchange_clusters
from undertow.text.tokenizer import Tokenizer

DATA = Path(os.environ.get("UNDERTOW_DATA", Path(__file__).parents[2] / "shared" / "data"))


def counts_of(work: Path, name: str) -> LagCounts:
    """Pair counts at lag 1, made once."""
    place = work / f"{name}.lag1.counts"
    if not place.exists():
        corpus = work / f"{name}.corpus"
        if not corpus.exists():
            wikitext = name == "wikitext2"
            Corpus.build(
                [DATA / "text" / ("wikitext2.train.txt.xz" if wikitext else "elife.txt.xz")],
                corpus,
                vocab_size=None if wikitext else 50_000,
                tokenizer=Tokenizer("spaces", sentences="lines") if wikitext else Tokenizer(),
                n_jobs=2,
            )
        LagCounts.from_corpus(Corpus.open(corpus, verify=False), lags=1, n_jobs=2, out=place)
    return LagCounts.open(place, verify=False)


def measure(counts: LagCounts, n_clusters: int) -> None:
    pairs, unigram = counts.matrix(1), counts.vocabulary.counts
    constant, n = float((unigram * np.log(np.maximum(unigram, 1))).sum()), float(unigram.sum())
    exchange_clusters(pairs[:50, :50], unigram[:50], 3)  # compiled before the clock starts
    merge_classes(np.ones((3, 3), dtype=np.int64))
    clock, cpu = time.perf_counter(), time.process_time()
    classes, history = exchange_clusters(pairs, unigram, n_clusters)
    print(
        f"{counts!r}\n  exchange, {n_clusters} clusters: {time.perf_counter() - clock:.1f} s "
        f"({time.process_time() - cpu:.1f} s of processor), {len(history) - 1} passes, class bigram perplexity "
        f"{np.exp(-(history[0] + constant) / n):.1f} -> {np.exp(-(history[-1] + constant) / n):.1f}"
    )
    between = class_counts(pairs, classes, n_clusters)
    clock, cpu = time.perf_counter(), time.process_time()
    merge_classes(between)
    print(
        f"  merging: {time.perf_counter() - clock:.1f} s ({time.process_time() - cpu:.1f} s of processor)", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wikitext", action="store_true", help="leave out eLife")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    args = parser.parse_args()
    args.work.mkdir(exist_ok=True)
    measure(counts_of(args.work, "wikitext2"), 128)
    if not args.wikitext:
        measure(counts_of(args.work, "elife"), 1000)


if __name__ == "__main__":
    main()
