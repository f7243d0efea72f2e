"""Counting word pairs: against SciPy's COO→CSR way in the same run, and within a memory limit.

    .venv/bin/python benchmarks/counting.py            # eLife: 30 M tokens × 7 lags, V = 50 k; about 3 minutes
    .venv/bin/python benchmarks/counting.py --tokens 3000000

Needs the real data (UNDERTOW_DATA, default ../shared/data). Prints a Markdown table; figures are in README.md here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from undertow import Corpus, LagCounts
from undertow.text.counting import warm_up

LAGS = 7


def timed(fn: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """The best of some runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = fn()
        best = min(best, time.perf_counter() - start)
    return best, result


def scipy_way(corpus: Corpus) -> list[csr_array]:
    """Each lag as a COO array of ones turned into CSR, with the types that make SciPy fastest."""
    ids = np.asarray(corpus.ids).astype(np.int32)
    sentence = np.repeat(np.arange(corpus.n_sentences, dtype=np.int32), np.diff(corpus.offsets))
    n = len(corpus.vocabulary)
    out = []
    for k in range(1, LAGS + 1):
        same = sentence[k:] == sentence[:-k]
        rows, columns = ids[k:][same], ids[:-k][same]
        matrix = coo_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(n, n)).tocsr()
        matrix.sum_duplicates()
        out.append(matrix)
    return out


def sort_way(corpus: Corpus) -> list[tuple[Any, Any]]:
    """Each lag as sorted int64 keys and their run lengths."""
    ids = np.asarray(corpus.ids).astype(np.int64)
    sentence = np.repeat(np.arange(corpus.n_sentences, dtype=np.int32), np.diff(corpus.offsets))
    n = len(corpus.vocabulary)
    out = []
    for k in range(1, LAGS + 1):
        same = sentence[k:] == sentence[:-k]
        keys = np.sort(ids[k:][same] * n + ids[:-k][same])
        first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        out.append((keys[first], np.diff(np.append(first, len(keys)))))
    return out


def peak_of(arguments: list[str]) -> tuple[float, int, dict[str, Any]]:
    """Seconds, peak resident bytes, and the JSON answer of a command in a process of its own."""
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n"
        "sys.stderr.write(done.stderr)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        "print(done.stdout)\n"
        "sys.exit(done.returncode)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - start
    peak, answer = done.stdout.split("\n", 1)
    return seconds, int(peak) * 1024, json.loads(answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=30_000_000)
    tokens = parser.parse_args().tokens
    data = Path(os.environ.get("UNDERTOW_DATA", Path(__file__).parents[2] / "shared" / "data"))
    undertow = [sys.executable, "-m", "undertow.cli.main"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as tmp:
        seconds, whole = timed(lambda: Corpus.build([data / "text" / "elife.txt.xz"], Path(tmp) / "e.corpus", n_jobs=2))
        rate = whole.n_tokens / seconds / 1e6
        print(f"build: elife.txt.xz → corpus, 2 processes: {seconds:.1f} s, {rate:.2f} M tokens/s")
        n_sentences = int(np.searchsorted(whole.offsets, tokens, side="right")) - 1
        offsets = np.asarray(whole.offsets[: n_sentences + 1])
        ids = np.array(whole.ids[: offsets[-1]])
        vocabulary = whole.vocabulary.with_counts(np.bincount(ids, minlength=len(whole.vocabulary)))
        corpus = Corpus(ids, offsets, vocabulary)
        warm_up()
        rival, matrices = timed(lambda: scipy_way(corpus))
        sort, _ = timed(lambda: sort_way(corpus))
        one, _ = timed(lambda: LagCounts.from_corpus(corpus, lags=LAGS), 2)
        two, counts = timed(lambda: LagCounts.from_corpus(corpus, lags=LAGS, n_jobs=2), 2)
        for k in range(1, LAGS + 1):
            assert (counts.matrix(k) != matrices[k - 1]).nnz == 0, f"lag {k} differs from SciPy's"
        print(f"\n{corpus.n_tokens:,} tokens × {LAGS} lags, V = {len(vocabulary):,}, equal to SciPy's matrices\n")
        print("| way | seconds | M pairs/s | against SciPy |\n|---|---|---|---|")
        pairs = sum(counts.n_pairs(k) for k in range(1, LAGS + 1))
        for name, s in (
            ("SciPy COO→CSR", rival),
            ("NumPy sort of int64 keys", sort),
            ("undertow, 1 thread", one),
            ("undertow, 2 threads", two),
        ):
            print(f"| {name} | {s:.2f} | {pairs / s / 1e6:.0f} | {rival / s:.1f}× |")
        print("\n| `undertow count --memory` | peak | of the limit | seconds |\n|---|---|---|---|")
        for limit in ("300M", "400M", "600M", "1G", "2G", "4G"):
            out = Path(tmp) / f"{limit}.counts"
            seconds, peak, _ = peak_of(
                [*undertow, "count", str(Path(tmp) / "e.corpus"), "-o", str(out), "--memory", limit, "--json"]
            )
            allowed = {"M": 1 << 20, "G": 1 << 30}[limit[-1]] * int(limit[:-1])
            print(f"| {limit} | {peak >> 20} MB | {peak / allowed:.0%} | {seconds:.1f} |")
        seconds = min(timed(lambda: subprocess.run([*undertow, "--help"], capture_output=True, check=True), 5)[0], 9)
        print(f"\n`undertow --help`: {seconds:.2f} s")


if __name__ == "__main__":
    main()
