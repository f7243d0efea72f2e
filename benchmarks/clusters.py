"""Word clusters: the exchange algorithm and Brown's merging, on WikiText-2 and on eLife.

    .venv/bin/python benchmarks/clusters.py                 # WikiText-2, 128 clusters; eLife, 1,000
    .venv/bin/python benchmarks/clusters.py --wikitext      # the first alone

One thread. Needs the real data (UNDERTOW_DATA, default ../shared/data). --work keeps the counts between runs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench import kept_corpus, parser, timed, work_option
from undertow import LagCounts
from undertow.kernels.words.brown import merge_classes
from undertow.kernels.words.exchange import class_counts, exchange_clusters


def counts_of(work: Path, name: str) -> LagCounts:
    """Pair counts at lag 1, made once."""
    place = work / f"{name}.lag1.counts"
    if not place.exists():
        LagCounts.from_corpus(kept_corpus(work, name), lags=1, n_jobs=2, out=place)
    return LagCounts.open(place, verify=False)


def measure(counts: LagCounts, n_clusters: int) -> None:
    pairs, unigram = counts.matrix(1), counts.vocabulary.counts
    constant, n = float((unigram * np.log(np.maximum(unigram, 1))).sum()), float(unigram.sum())
    exchange_clusters(pairs[:50, :50], unigram[:50], 3)  # compiled before the clock starts
    merge_classes(np.ones((3, 3), dtype=np.int64))
    spent, (classes, history) = timed(lambda: exchange_clusters(pairs, unigram, n_clusters))
    print(
        f"{counts!r}\n  exchange, {n_clusters} clusters: {spent.wall:.1f} s "
        f"({spent.cpu:.1f} s of processor), {len(history) - 1} passes, class bigram perplexity "
        f"{np.exp(-(history[0] + constant) / n):.1f} -> {np.exp(-(history[-1] + constant) / n):.1f}"
    )
    between = class_counts(pairs, classes, n_clusters)
    spent, _ = timed(lambda: merge_classes(between))
    print(f"  merging: {spent.wall:.1f} s ({spent.cpu:.1f} s of processor)", flush=True)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--wikitext", action="store_true", help="leave out eLife")
    work_option(options)
    args = options.parse_args()
    measure(counts_of(args.work, "wikitext2"), 128)
    if not args.wikitext:
        measure(counts_of(args.work, "elife"), 1000)


if __name__ == "__main__":
    main()
