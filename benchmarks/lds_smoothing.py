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
from pathlib import Path
from typing import TYPE_CHECKING

from bench import best_of, gemm_rate, parser

if TYPE_CHECKING:
    from undertow import Corpus

THREADS = 2


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--blas-threads", type=int, choices=(1, 2), default=1)
    options.add_argument("--components", type=int, default=200)
    options.add_argument("--tokens", type=int, default=800_000, help="at most this many")
    options.add_argument("--missing", type=float, default=0.0, help="share of tokens that count as missing")
    options.add_argument("--one-sequence", action="store_true", help="take the whole text as one sentence")
    options.add_argument("--exact", action="store_true", help="exact time-varying gains (counted as 4h² a token)")
    options.add_argument("--repeats", type=int, default=5)
    return options.parse_args()


def real_text(directory: Path) -> Corpus:
    from undertow import Corpus

    given = os.environ.get("UNDERTOW_DATA")
    files = sorted(f for f in Path(given).rglob("elife*") if f.is_file()) if given else []
    if not files:
        import undertow

        files = [Path(undertow.__file__).parent / "data" / "books.txt.xz"]
    return Corpus.build([str(f) for f in files], directory / "corpus", vocab_size=50_000)


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
    seconds, gemm, shape = np.inf, 0.0, (16384, h, h)
    for _ in range(options.repeats):
        gemm = max(gemm, gemm_rate(shape, n_threads, 4))
        seconds = min(seconds, best_of(work, 1))
    gemm = max(gemm, gemm_rate(shape, n_threads, 4))
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
