"""How fast tokens get their filtered and smoothed vectors, beside the speed of plain matrix products.

    python benchmarks/lds_smoothing.py [--blas-threads 1|2] [--components 200] [--missing 0.02]

Real sentences of files named elife* under $UNDERTOW_DATA if it is set, else of the bundled books. Counted are the
multiply-adds of the least algorithm with dense matrices, 3h² a token (H m, J s, P m; two operations each), whatever the
code really does; nothing for looking up, packing or unpacking. The matrices are drawn at random
with about the spectral radius of a fitted model; their values matter to the speed only where long sequences are cut.
Two threads work: two chunks side by side, each with a single-threaded BLAS (the default), or one chunk at a time with a
BLAS of two threads. The GEMM rate is that of (16384, h)·(h, h) in float32 with the same threads, measured between the
runs; the best of all runs counts for both.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undertow import Corpus

THREADS = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--blas-threads", type=int, choices=(1, 2), default=1)
    parser.add_argument("--components", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=800_000, help="at most this many")
    parser.add_argument("--missing", type=float, default=0.0, help="share of tokens that count as missing")
    parser.add_argument("--one-sequence", action="store_true", help="take the whole text as one sentence")
    parser.add_argument("--exact", action="store_true", help="exact time-varying gains (counted as 4h² a token)")
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def real_text(directory: Path) -> Corpus:
    from undertow import Corpus

    given = os.environ.get("UNDERTOW_DATA")
    files = sorted(f for f in Path(given).rglob("elife*") if f.is_file()) if given else []
    if not files:
        import undertow

        files = [Path(undertow.__file__).parent / "data" / "books.txt.xz"]
    return Corpus.build([str(f) for f in files], directory / "corpus", vocab_size=50_000)


def gemm_rate(h: int, n_threads: int, repeats: int = 4) -> float:
    """GF/s of products of 16384 rows, in each of n_threads Python threads."""
    import numpy as np

    rng = np.random.default_rng(0)
    work = [
        [rng.standard_normal(s, dtype=np.float32) for s in ((16384, h), (h, h), (16384, h))] for _ in range(n_threads)
    ]

    def multiply(arrays: list[Any]) -> None:
        for _ in range(repeats):
            np.matmul(arrays[0], arrays[1], out=arrays[2])

    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(multiply, work))
        start = time.perf_counter()
        list(pool.map(multiply, work))
    return n_threads * repeats * 2 * 16384 * h * h / (time.perf_counter() - start) / 1e9


def main() -> int:
    options = arguments()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.blas_threads)  # before NumPy is loaded, which reads it once
    import numpy as np

    from undertow.kernels.gaussian.smoother import exact_gains, smooth, smooth_exact

    n_threads = THREADS // options.blas_threads
    with tempfile.TemporaryDirectory() as directory:
        corpus = real_text(Path(directory))
        stop = int(np.searchsorted(corpus.offsets, options.tokens, side="right")) - 1
        offsets = np.array(corpus.offsets[: stop + 1], dtype=np.int64)
        ids = np.array(corpus.ids[: offsets[-1]])
        n_words = len(corpus.vocabulary.words)
    if options.one_sequence:
        offsets = np.array([0, len(ids)])
    h, T = options.components, len(ids)
    rng = np.random.default_rng(0)
    missing = rng.random(T) < options.missing if options.missing else None
    A = rng.standard_normal((h, h)) * 0.87 / np.sqrt(h)
    J = rng.standard_normal((h, h)) * 0.87 / np.sqrt(h)
    table = rng.standard_normal((n_words, h)).astype(np.float32)
    minimum = 4 if options.exact else 3
    if options.exact:
        eye = np.eye(h)
        gains = exact_gains(A, eye, 0.1 * eye, eye, 4 * eye)

    def work() -> None:
        if options.exact:
            smooth_exact(ids, offsets, missing, table, gains, n_threads=n_threads)
        else:
            smooth(ids, offsets, missing, table, A, A, J, J, n_threads=n_threads)

    work()  # compiles
    seconds, gemm = np.inf, 0.0
    for _ in range(options.repeats):
        gemm = max(gemm, gemm_rate(h, n_threads))
        start = time.perf_counter()
        work()
        seconds = min(seconds, time.perf_counter() - start)
    gemm = max(gemm, gemm_rate(h, n_threads))
    rate = minimum * 2 * h * h * T / seconds / 1e9
    length = np.diff(offsets)
    print(
        f"{T} tokens, {n_words} words; sentences: {len(length)}, median {np.median(length):.0f}, longest {length.max()}"
    )
    print(
        f"h = {h}, {n_threads} chunk thread(s) × {options.blas_threads} BLAS thread(s), {options.missing:.0%} missing"
    )
    print(f"{T / seconds:,.0f} tokens/s; {rate:.0f} GF/s of {minimum}h² multiply-adds a token")
    print(f"GEMM {gemm:.0f} GF/s; ratio {rate / gemm:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
