"""How fast the factorial HMM infers: exactly, and variationally, beside the speed of plain matrix products.

    OMP_NUM_THREADS=1 python benchmarks/fhmm.py [--words 40000] [--tokens 20000]

Parameters are drawn at random, sentences have 5 to 44 words; neither matters to the speed. Two Python threads work on a
shard each (`2 threads`, by the clock), and one alone (by the processor time of its thread, which other work on the
machine hardly changes). Counted for a variational sweep are the multiply-adds of the least algorithm, 2 M K a token and
word (a product of weights with factors, and one of the products with factors, for every layer), whatever the code does;
it does M² K. The GEMM rate is of 1024 × 1024 matrices in float32, measured between the runs; the best of all counts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import best_of, gemm_rate, parser, peak_bytes, print_header, print_row, side_by_side
from undertow.kernels.factorial.exact import exact_posterior
from undertow.kernels.factorial.variational import WordTable, variational_posterior
from undertow.kernels.factorial.words import FactorialParams, bounded, emission, log_normalizer


def drawn(M: int, K: int, V: int) -> FactorialParams:
    rng = np.random.default_rng(0)
    theta = bounded(0.5 * rng.standard_normal((V, M, K)))
    return FactorialParams(rng.dirichlet(np.ones(K), M), rng.dirichlet(np.ones(K), (M, K)), theta)


def text(V: int, n_tokens: int, seed: int = 0) -> tuple[Any, Any, None]:
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.integers(5, 45, size=n_tokens // 20))
    offsets = np.concatenate(([0], ends[: int(np.searchsorted(ends, n_tokens)) + 1])).astype(np.int64)
    return rng.integers(0, V, size=offsets[-1]).astype(np.uint32), offsets, None


def alone(work: Callable[[int], Any], repeats: int = 3) -> float:
    """Processor seconds of one call in this thread, the best of some."""
    return best_of(lambda: work(0), repeats, time.thread_time)


def together(work: Callable[[int], Any], repeats: int = 3) -> float:
    """Seconds by the clock of two calls in two threads, the best of some."""
    return best_of(lambda: side_by_side(work, 2), repeats)


def gemm() -> tuple[float, float]:
    """GF/s of one thread (processor time) and of two (clock)."""
    size = (1024, 1024, 1024)
    return gemm_rate(size, 1, 4, "cpu"), max(gemm_rate(size, 2, 4) for _ in range(5))


def exact_rate(M: int, K: int, V: int, n_tokens: int) -> tuple[float, float]:
    """Tokens a second of a whole exact E-step: one thread (processor time), two (clock)."""
    params = drawn(M, K, V)
    e = emission(params.theta)
    log_norm = log_normalizer(e)
    shards = [text(V, n_tokens, seed) for seed in range(2)]
    exact_posterior(*text(V, 200), params, e, log_norm)  # compiles

    def work(thread: int) -> None:
        exact_posterior(*shards[thread], params, e, log_norm)

    n = len(shards[0][0])
    return n / alone(work), (n + len(shards[1][0])) / together(work)


def sweep_rate(M: int, K: int, V: int, n_tokens: int, bound: str) -> tuple[float, float]:
    """Tokens a second of one variational sweep with its chains: the time of four sweeps less that of two, halved."""
    params = drawn(M, K, V)
    e = emission(params.theta)
    table = WordTable.of(e) if bound != "mean_field" else None
    log_norm = log_normalizer(e) if bound == "mean_field" else None
    shards = [text(V, n_tokens, seed) for seed in range(2)]

    def work(n: int) -> Callable[[int], None]:
        def sweeps(thread: int) -> None:
            variational_posterior(*shards[thread], params, e, table, log_norm, bound=bound, max_sweeps=n, tol=-1.0)

        return sweeps

    work(1)(0)  # compiles
    one = (alone(work(4)) - alone(work(2))) / 2
    two = (together(work(4)) - together(work(2))) / 2
    n = len(shards[0][0])
    return n / one, (n + len(shards[1][0])) / two


def memory_of(n: int, V: int) -> None:
    """Print how far the peak memory rises above what it was with parameters, tables and compiled code in place."""
    params = drawn(5, 10, V)
    e = emission(params.theta)
    table = WordTable.of(e)
    variational_posterior(*text(V, 20), params, e, table, max_sweeps=1)
    at = peak_bytes()
    shard = text(V, n)
    variational_posterior(*shard, params, e, table, max_sweeps=1)
    grown = peak_bytes() - at
    print_row(f"{len(shard[0]):,}", f"{len(shard[0]) * V * 4 / 1e6:,.0f} MB", f"{grown / 1e6:,.1f} MB")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--words", type=int, default=40_000)
    arguments.add_argument("--tokens", type=int, default=20_000)
    arguments.add_argument("--memory-of", type=int, help="only this: the memory of a sweep over so many tokens")
    options = arguments.parse_args()
    V = options.words
    if options.memory_of:
        memory_of(options.memory_of, V)
        return 0
    before = gemm()
    rates = exact_rate(3, 10, V, options.tokens)
    print(
        f"exact E-step, M=3, K=10: {rates[0]:,.0f} tokens a processor second, {rates[1]:,.0f} tokens/s on two threads"
    )
    few = max(200, options.tokens // 25)
    sweep = sweep_rate(5, 10, V, few, "tilted")
    after = gemm()
    for how, at in (("one thread, processor time", 0), ("two threads, clock", 1)):
        rate, best = sweep[at] * 2 * 2 * 5 * 10 * V / 1e9, max(before[at], after[at])
        print(f"tilted sweep, M=5, K=10, V={V} ({how}): {sweep[at]:,.0f} tokens/s, {rate:.0f} GF/s of 2MKV; "
              f"GEMM {best:.0f} GF/s; ratio {rate / best:.0%}")  # fmt: skip
    print("\nTokens a processor second:")
    print_header("M, K", "joint states", "exact E-step", "tilted sweep", "mean_field sweep")
    for M, K, n in ((3, 10, 8), (4, 10, 1), (4, 14, 0.5), (5, 10, 0.2)):
        exact = exact_rate(M, K, V, max(400, int(n * 1000)))[0]
        others = [sweep_rate(M, K, V, few, bound)[0] for bound in ("tilted", "mean_field")]
        print_row(f"{M}, {K}", f"{K**M:,}", f"{exact:,.0f}", f"{others[0]:,.0f}", f"{others[1]:,.0f}")
    print_header("tokens at once", "tokens × words × 4 bytes", "peak memory above that of the parameters")
    for n in (200, 1000, 4000):
        command = [sys.executable, __file__, "--words", str(V), "--memory-of", str(n)]
        print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
