"""Counting word pairs: against SciPy's COO→CSR way in the same run, and within a memory limit.

    .venv/bin/python benchmarks/counting.py            # eLife: 30 M tokens × 7 lags, V = 50 k; about 3 minutes
    .venv/bin/python benchmarks/counting.py --tokens 3000000

Needs the real data (UNDERTOW_DATA, default ../shared/data). Prints a Markdown table; figures are in README.md here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array

from bench import best_of, parser, print_header, print_row, run_apart, timed
from data import data_dir
from undertow import Corpus, LagCounts
from undertow.text.counting import warm_up

LAGS = 7


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


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--tokens", type=int, default=30_000_000)
    tokens = options.parse_args().tokens
    undertow = [sys.executable, "-m", "undertow"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as tmp:
        elife = data_dir() / "text" / "elife.txt.xz"
        spent, whole = timed(lambda: Corpus.build([elife], Path(tmp) / "e.corpus", n_jobs=2))
        rate = whole.n_tokens / spent.wall / 1e6
        print(f"build: elife.txt.xz → corpus, 2 processes: {spent.wall:.1f} s, {rate:.2f} M tokens/s")
        n_sentences = int(np.searchsorted(whole.offsets, tokens, side="right")) - 1
        offsets = np.asarray(whole.offsets[: n_sentences + 1])
        ids = np.array(whole.ids[: offsets[-1]])
        vocabulary = whole.vocabulary.with_counts(np.bincount(ids, minlength=len(whole.vocabulary)))
        corpus = Corpus(ids, offsets, vocabulary)
        warm_up()
        (rival, _), matrices = timed(lambda: scipy_way(corpus))
        sort = best_of(lambda: sort_way(corpus), 1)
        one = best_of(lambda: LagCounts.from_corpus(corpus, lags=LAGS), 2)
        (two, _), counts = timed(lambda: LagCounts.from_corpus(corpus, lags=LAGS, n_jobs=2))
        two = min(two, best_of(lambda: LagCounts.from_corpus(corpus, lags=LAGS, n_jobs=2), 1))
        for k in range(1, LAGS + 1):
            assert (counts.matrix(k) != matrices[k - 1]).nnz == 0, f"lag {k} differs from SciPy's"
        print(f"\n{corpus.n_tokens:,} tokens × {LAGS} lags, V = {len(vocabulary):,}, equal to SciPy's matrices")
        print_header("way", "seconds", "M pairs/s", "against SciPy")
        pairs = sum(counts.n_pairs(k) for k in range(1, LAGS + 1))
        for name, s in (
            ("SciPy COO→CSR", rival),
            ("NumPy sort of int64 keys", sort),
            ("undertow, 1 thread", one),
            ("undertow, 2 threads", two),
        ):
            print_row(name, f"{s:.2f}", f"{pairs / s / 1e6:.0f}", f"{rival / s:.1f}×")
        print_header("`undertow count --memory`", "peak", "of the limit", "seconds")
        for limit in ("300M", "400M", "600M", "1G", "2G", "4G"):
            out = Path(tmp) / f"{limit}.counts"
            command = [*undertow, "count", Path(tmp) / "e.corpus", "-o", out, "--memory", limit, "--json"]
            seconds, peak, _ = run_apart(command)
            allowed = {"M": 1 << 20, "G": 1 << 30}[limit[-1]] * int(limit[:-1])
            print_row(limit, f"{peak >> 20} MB", f"{peak / allowed:.0%}", f"{seconds:.1f}")
        seconds = best_of(lambda: subprocess.run([*undertow, "--help"], capture_output=True, check=True), 5)
        print(f"\n`undertow --help`: {seconds:.2f} s")


if __name__ == "__main__":
    main()
