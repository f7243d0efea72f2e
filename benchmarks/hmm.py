"""The E-step of hidden Markov models without blocks: against hmmlearn, against plain matrix products, against states.

    .venv/bin/pip install -c constraints.txt '.[rivals]'
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/hmm.py [dense] [low-rank] [against-dense] [linear]

Two threads work side by side, each with a single-threaded BLAS, except where a line says one. The text is the beginning
of WikiText-2 (UNDERTOW_DATA, default ../shared/data), its lines as sentences; words beyond the most frequent ones are
unknown. Parameters are drawn at random: their values do not matter to the speed.

Counted are the multiply-adds of the least algorithm with that operator, two operations each: a token of a dense chain
costs 3 Z² of them (push, pull, expected counts), one of a low-rank chain 6 Z F (two products each for the same three);
nothing for emissions, scaling, or what is computed twice. The GEMM rate is that of (2048, 2048)·(2048, 2048) in float32
in as many threads, measured before and after each run; the run with the median ratio is printed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench import Share, best_of, parser, print_header, print_row, share_of_gemm, timed
from data import first, lines_of
from undertow import Corpus
from undertow.kernels.chain.inference import ChainParams, e_step
from undertow.kernels.chain.operators import Dense, LowRank

THREADS = 2
GEMM = (2048, 2048, 2048)


def excerpt(n_tokens: int, vocab_size: int, longest: int | None = None) -> tuple[Any, Any, int]:
    """ids, offsets and vocabulary size of the first lines; `longest` cuts lines into equal short sentences."""
    lines = first(map(str.split, lines_of("text/wikitext2.train.txt.xz")), n_tokens)
    corpus = Corpus.from_sentences([line for line in lines if line], vocab_size=vocab_size)
    ids = np.concatenate(list(corpus.sentences())).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in corpus.sentences()])))
    if longest is not None:
        ids = ids[: n_tokens // longest * longest]
        offsets = np.arange(0, len(ids) + 1, longest)
    return ids, offsets, len(corpus.vocabulary)


def random_rows(rng: np.random.Generator, n: int, m: int) -> Any:
    table = rng.random((n, m), dtype=np.float32)
    for start in range(0, n, 1024):
        table[start : start + 1024] /= table[start : start + 1024].sum(axis=1, keepdims=True)
    return table


def random_params(n_states: int, rank: int | None, n_words: int) -> ChainParams:
    rng = np.random.default_rng(0)
    operator: Any
    if rank is None:
        operator = Dense(random_rows(rng, n_states, n_states))
    else:
        operator = LowRank(random_rows(rng, n_states, rank), random_rows(rng, rank, n_states))
    emission = np.ascontiguousarray(random_rows(rng, n_states, n_words).T)
    return ChainParams(np.full(n_states, 1 / n_states, dtype=np.float32), operator, emission)


def share(work: Callable[[], Any], operations: float) -> Share:
    return share_of_gemm(work, operations, GEMM, THREADS, repeats=3, products=6)


def warm_up() -> None:
    """Compile and load everything before anything is timed."""
    for rank in (None, 2):
        e_step(np.array([0, 1, 2, -1]), np.array([0, 3, 4]), random_params(4, rank, 5))


def dense() -> None:
    """512 states against hmmlearn (one iteration; its M-step is a small part of it), on the same tokens."""
    import logging

    from hmmlearn.hmm import CategoricalHMM

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)  # it warns that there is little text
    n_states = 512
    ids, offsets, n_words = excerpt(64_000, 10_000)
    params = random_params(n_states, None, n_words)
    print(f"dense, {n_states} states, {len(ids):,} tokens of {n_words:,} types")
    lengths = np.diff(offsets)
    rows, columns = params.transition.dense().astype(np.float64), params.emission.T.astype(np.float64)

    def their_rate(implementation: str, start: int, stop: int) -> float:
        rival = CategoricalHMM(n_states, n_iter=1, init_params="", n_features=n_words, implementation=implementation)
        rival.startprob_ = np.full(n_states, 1 / n_states)
        rival.transmat_ = rows / rows.sum(axis=1, keepdims=True)
        rival.emissionprob_ = columns / columns.sum(axis=1, keepdims=True)
        tokens = ids[offsets[start] : offsets[stop], None]
        return len(tokens) / best_of(lambda: rival.fit(tokens, lengths[start:stop]), 1)

    # a part of the text for the rival, all of it for us, the next part: on a machine that others use only neighbours
    # can be compared. The rival's rate does not depend on the length of the text.
    edges = np.searchsorted(offsets, [0, 8_000, 16_000, 24_000])
    for implementation, n_parts in (("scaling", 3), ("log", 1)):  # log, its default, is slower still
        rounds = []
        for start, stop in zip(edges[:n_parts], edges[1 : n_parts + 1], strict=True):
            theirs = their_rate(implementation, start, stop)
            rounds.append((len(ids) / best_of(lambda: e_step(ids, offsets, params, n_threads=THREADS), 5), theirs))
        rate, theirs = sorted(rounds, key=lambda r: r[0] / r[1])[n_parts // 2]
        print_row("undertow, 2 threads", f"{rate:,.0f} tokens/s", f"{6 * n_states**2 * rate / 1e9:.0f} GF/s")
        print_row(f"hmmlearn, {implementation}", f"{theirs:,.0f} tokens/s", f"undertow is {rate / theirs:.0f}×")
    ids, offsets, n_words = excerpt(200_000, 10_000)
    params = random_params(n_states, None, n_words)
    work = len(ids) * 6.0 * n_states**2
    flops, gemm, part = share(lambda: e_step(ids, offsets, params, n_threads=THREADS), work)
    speed = f"{len(ids) * flops * 1e9 / work:,.0f} tokens/s"
    print_row(f"undertow, {len(ids):,} tokens", speed, f"{flops:.0f} GF/s", f"{part:.0%} of GEMM {gemm:.0f}")


def low_rank() -> None:
    """Z = 16,384, F = 256 against large matrix products in the same run."""
    Z, F = 16_384, 256
    ids, _, n_words = excerpt(16_384, 2_000)
    lanes = np.arange(513) * len(ids) // 512
    params = random_params(Z, F, n_words)
    work = len(ids) * 12.0 * Z * F
    flops, gemm, part = share(lambda: e_step(ids, lanes, params, n_threads=THREADS), work)
    rate = len(ids) * flops * 1e9 / work
    print(f"low rank, {Z:,} states, rank {F}, {len(ids):,} tokens of {n_words:,} types as a stream of 512 lanes")
    print_row(f"{rate:,.0f} tokens/s", f"{flops:.0f} GF/s", f"GEMM {gemm:.0f} GF/s", f"{part:.0%}")


def against_dense() -> None:
    """The same Z with a dense operator: 512 tokens in 64 lanes, one thread, both on the same tokens."""
    Z, F = 16_384, 256
    ids, offsets, n_words = excerpt(512, 500, longest=8)
    narrow, wide = random_params(Z, F, n_words), random_params(Z, None, n_words)
    low = len(ids) / best_of(lambda: e_step(ids, offsets, narrow), 3)
    full = len(ids) / best_of(lambda: e_step(ids, offsets, wide), 1)
    print(f"{Z:,} states, {len(ids)} tokens, 1 thread: rank {F} {low:,.0f} tokens/s, dense {full:,.0f} tokens/s")
    print_row(f"rank {F} against dense", f"{low / full:.0f}×")


def linear() -> None:
    """Rank 256, from 2^11 to 2^15 states: time a token and state should not change, above all the processors'."""
    ids, _, n_words = excerpt(8_192, 1_000)
    lanes = np.arange(513) * len(ids) // 512
    print(f"rank 256, {len(ids):,} tokens of {n_words:,} types as a stream of 512 lanes, 2 threads")
    print_header("states", "tokens/s", "ns of the clock a token and state", "ns of the processors")
    for power in range(11, 16):
        params = random_params(1 << power, 256, n_words)
        spent = timed(partial(e_step, ids, lanes, params, n_threads=THREADS))[0]
        cells = len(ids) * (1 << power) / 1e9
        speed = f"{len(ids) / spent.wall:,.0f}"
        print_row(f"2^{power}", speed, f"{spent.wall / cells:.1f}", f"{spent.cpu / cells:.1f}")


PARTS = {"dense": dense, "low-rank": low_rank, "against-dense": against_dense, "linear": linear}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all of them if none is named")
    options = arguments.parse_args()
    warm_up()
    for name in options.parts or PARTS:
        print(f"\n{name} (load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)")
        PARTS[name]()


if __name__ == "__main__":
    main()
