"""What the benchmarks share: options, clocks, peak memory, the speed of plain matrix products, tables, real data.

On a machine that others use, wall time swings: prefer processor seconds, or the ratio to a rival or to matrix products
(`share_of_gemm`) measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "experiments"))  # data.py serves both folders

if TYPE_CHECKING:
    from undertow import Corpus

# NumPy and undertow are imported late: lds_smoothing.py says how many threads BLAS has before NumPy is loaded.


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Options of a script whose help is its docstring."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def work_option(options: argparse.ArgumentParser) -> None:
    options.add_argument("--work", type=Path, default=HERE / "work", help="keeps corpora and counts between runs")


# --- time and memory ------------------------------------------------------------------------------------


class Spent(NamedTuple):
    """Seconds by the clock, and of the processor in all threads of this process."""

    wall: float
    cpu: float


class Clock:
    """Runs from its making; `read` any number of times."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Spent:
        return Spent(time.perf_counter() - self._wall, time.process_time() - self._cpu)


def timed(work: Callable[[], Any]) -> tuple[Spent, Any]:
    """What one call took, and its result."""
    clock = Clock()
    result = work()
    return clock.read(), result


def best_of(work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fastest of some calls; `time.thread_time` as clock counts this thread's processor time."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def side_by_side(work: Callable[[int], Any], n_threads: int) -> list[Any]:
    """work(0), work(1), … in as many threads at once."""
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(work, range(n_threads)))


def peak_bytes() -> int:
    """The most memory that this process ever had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_apart(arguments: Sequence[str | Path]) -> tuple[float, int, Any]:
    """Seconds, peak resident bytes and the JSON answer of a command in a process of its own."""
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True, text=True)\n"
        "sys.stderr.write(done.stderr)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        "print(done.stdout)\n"
        "sys.exit(done.returncode)"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    spent, done = timed(lambda: subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True))
    peak, answer = done.stdout.split("\n", 1)
    return spent.wall, int(peak) * 1024, json.loads(answer)


# --- the speed of plain matrix products -----------------------------------------------------------------


def gemm_rate(shape: tuple[int, int, int], n_threads: int, repeats: int, clock: str = "wall") -> float:
    """GF/s of (m, k)·(k, n) products in float32, in each of n_threads Python threads at once.

    With the clock "cpu" it is the rate of one thread by its processor time.
    """
    import numpy as np

    m, k, n = shape
    rng = np.random.default_rng(0)
    arrays = [[rng.random(s, dtype=np.float32) for s in ((m, k), (k, n), (m, n))] for _ in range(n_threads)]

    def multiply(thread: int) -> None:
        a, b, out = arrays[thread]
        for _ in range(repeats):
            np.matmul(a, b, out=out)

    multiply(0)
    if clock == "cpu":
        seconds = best_of(lambda: multiply(0), 3, time.thread_time)
        n_threads = 1
    else:
        seconds = best_of(lambda: side_by_side(multiply, n_threads), 1)
    return n_threads * repeats * 2 * m * k * n / seconds / 1e9


class Share(NamedTuple):
    rate: float  # GF/s of the work
    gemm: float  # GF/s of matrix products
    ratio: float


def share_of_gemm(
    work: Callable[[], Any], operations: float, shape: tuple[int, int, int], n_threads: int, repeats: int, products: int
) -> Share:
    """The run with the median ratio to matrix products, which are measured before and after each run.

    On a machine that others use both rates swing together, so runs are compared with their neighbours alone.
    """
    results, before = [], gemm_rate(shape, n_threads, products)
    for _ in range(repeats):
        rate = operations / best_of(work, 1) / 1e9
        after = gemm_rate(shape, n_threads, products)
        gemm = (before + after) / 2
        results.append(Share(rate, gemm, rate / gemm))
        before = after
    return sorted(results, key=lambda r: r.ratio)[repeats // 2]


# --- tables ---------------------------------------------------------------------------------------------


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_header(*names: str) -> None:
    """The head of a Markdown table; its rows follow by `print_row`."""
    print()
    print_row(*names)
    print("|" + "---|" * len(names), flush=True)


# --- real data ------------------------------------------------------------------------------------------


def kept_corpus(work: Path, name: str) -> Corpus:
    """An encoded corpus, built once: `elife`, `wikitext2` (lines are sentences) or `all`: text/ and the UN debates."""
    from data import data_dir
    from undertow import Corpus, Tokenizer

    place = work / f"{name}.corpus"
    if not place.exists():
        work.mkdir(parents=True, exist_ok=True)
        text, time_ = data_dir() / "text", data_dir() / "time"
        wikitext = text / "wikitext2.train.txt.xz"
        inputs = {
            "elife": [text / "elife.txt.xz"],
            "wikitext2": [wikitext],
            "all": [
                text / "elife.txt.xz",
                text / "books.txt.xz",
                text / "scotus.jsonl.xz",
                wikitext,
                time_ / "ungdc-1946-2014.jsonl.xz",
            ],
        }[name]
        lines = name == "wikitext2"
        rule = Tokenizer("spaces", sentences="lines") if lines else Tokenizer()
        size = None if lines else 50_000
        Corpus.build(inputs, place, vocab_size=size, tokenizer=rule, n_jobs=2)
    return Corpus.open(place, verify=False)
