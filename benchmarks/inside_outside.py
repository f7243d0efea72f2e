"""Inside–outside of low-rank grammars: tokens a second against symbols, rank and length; a dense CYK and NLTK beside.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/inside_outside.py            # about 5 minutes
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/inside_outside.py --whole    # one real pass over WikiText-2
    .venv/bin/python benchmarks/inside_outside.py --quick

Random grammars and words: time does not depend on the numbers. `pass over 1M` is the processor time of one EM pass over
a million tokens (E-step and the counts of the symbols), extrapolated from the tokens read. `GEMM` is the share of the
E-step that its matrix products take, measured by doing products of the same shapes alone. The dense twin sums over
n (n + m)² rules for each split, compiled by Numba. NLTK's `ViterbiParser` runs if nltk is installed (extra `rivals`)
on the same rules written out, on one sentence. `--whole` extrapolates nothing: `Grammar.fit` from a random start with
1,000 nonterminals, 2,000 preterminals and rank 256, one pass in eight chunks over the sentences of at most 30 words of
WikiText-2 train (10,000 words known), and the peak memory of the process.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import numpy as np
from numba import njit

from bench import parser, peak_bytes, timed
from grammar import wikitext_sentences
from undertow import Corpus, Grammar
from undertow.kernels.chart.grammar import GrammarParams, batches_by_length, rank_space
from undertow.kernels.chart.inside import inside
from undertow.kernels.chart.outside import BATCH_FLOATS, expected_counts, statistics
from undertow.kernels.chart.trees import best_derivation, max_space

V = 5000


def random_grammar(n: int, m: int, r: int, rng: np.random.Generator) -> GrammarParams:
    def rows(k: int, size: int) -> Any:
        return rng.dirichlet(np.ones(size), k).astype(np.float32)

    return GrammarParams(
        rows(1, n + m)[0], rows(n, r), rows(r, n + m), rows(r, n + m), np.ascontiguousarray(rows(m, V).T)
    )


@njit(cache=True)
def dense_inside(rules: Any, start: Any, emission: Any, words: Any) -> float:
    """The probability of a sentence by CYK over symbols, with the table (n, n + m, n + m) of all rules."""
    n, s = rules.shape[0], rules.shape[1]
    N = len(words)
    table = np.zeros((N, N + 1, s))
    for i in range(N):
        table[i, i + 1, n:] = emission[words[i]]
    for w in range(2, N + 1):
        for i in range(N - w + 1):
            j = i + w
            for k in range(i + 1, j):
                for a in range(n):
                    total = 0.0
                    for b in range(s):
                        if table[i, k, b] > 0.0:
                            part = 0.0
                            for c in range(s):
                                part += rules[a, b, c] * table[k, j, c]
                            total += table[i, k, b] * part
                    table[i, j, a] += total
    return float((start * table[0, N]).sum())


def products(n_sentences: int, length: int, r: int) -> None:
    """The matrix products of an E-step on sentences of one length, on tables of zeros."""
    step = np.zeros((r, r), dtype=np.float32)
    for batch in batches_by_length(np.full(n_sentences, length), r, BATCH_FLOATS):
        rows = [len(batch) * (length - w + 1) for w in range(2, length)]  # of the widths between words and sentences
        table, out = (np.zeros((sum(rows), r), dtype=np.float32) for _ in range(2))
        for k in rows:
            for _ in range(4):  # to L and R, and back
                np.matmul(table[:k], step, out=out[:k])
        for _ in range(2):  # expected counts
            _ = table.T @ out


def row(n: int, m: int, r: int, length: int, n_tokens: int) -> str:
    """Tokens a second of the E-step, and seconds of a pass over a million tokens."""
    rng = np.random.default_rng(0)
    p = random_grammar(n, m, r, rng)
    n_sentences = max(2, n_tokens // length)
    ids, bounds = rng.integers(0, V, n_sentences * length), np.arange(n_sentences + 1) * length
    statistics(ids[:length], bounds[:2], p)  # compiled
    e_step, stats = timed(lambda: statistics(ids, bounds, p))
    counting, _ = timed(lambda: expected_counts(stats, p))
    gemm, _ = timed(lambda: products(n_sentences, length, r))
    speed = len(ids) / e_step.cpu
    a_pass = 1e6 / speed + 8 * counting.cpu  # as with eight chunks
    share = f"{100 * gemm.cpu / e_step.cpu:.0f} %"
    return (
        f"| {n:,} + {m:,} | {r} | {length} | {speed:,.0f} | {share} | {a_pass:,.0f} | {peak_bytes() / 2**20:,.0f} MB |"
    )


def rivals(length: int) -> list[str]:
    rng = np.random.default_rng(1)
    p = random_grammar(20, 20, 20, rng)
    words = rng.integers(0, V, (50, length))
    rules = np.einsum("af,fb,fc->abc", *(x.astype(np.float64) for x in (p.rules, p.left, p.right)))
    start, emission = p.start.astype(np.float64), p.emission.astype(np.float64)
    dense_inside(rules, start, emission, words[0, :2])
    slow, dense = timed(lambda: [np.log(dense_inside(rules, start, emission, s)) for s in words])
    fast, own = timed(lambda: inside(words, rank_space(p, np.arange(V), dtype=np.float64)).log_likelihood)
    np.testing.assert_allclose(own, dense, rtol=1e-5)
    out = [
        f"| inside, dense rules, Numba | {words.size / slow.cpu:,.0f} |",
        f"| inside, low rank (with its tables) | {words.size / fast.cpu:,.0f} |",
    ]
    return out


def best_parses(length: int) -> list[str]:
    """The best parse of one sentence by NLTK and here, 8 + 8 symbols, six words: with more, NLTK takes minutes.

    NLTK's InsideChartParser did not end within ten minutes with 4 + 4 symbols and six tokens.
    """
    rng = np.random.default_rng(0)
    n = m = 8
    p = random_grammar(n, m, 8, rng)
    p = p._replace(emission=np.ascontiguousarray(rng.dirichlet(np.ones(6), m).T))
    words = rng.integers(0, 6, length)
    best_derivation(p, max_space(p), words[:2])  # compiled
    fast, _ = timed(lambda: [best_derivation(p, max_space(p), words) for _ in range(100)])
    here = f"| the best derivation here | {100 * length / fast.cpu:,.0f} |"
    if importlib.util.find_spec("nltk") is None:
        return [here, "| NLTK's ViterbiParser | nltk is not installed |"]
    nltk: Any = importlib.import_module("nltk")  # optional, without types
    made, symbol = nltk.ProbabilisticProduction, [nltk.Nonterminal(f"S{i}") for i in range(n + m)]
    table = np.einsum("af,fb,fc->abc", *(x.astype(np.float64) for x in (p.rules, p.left, p.right)))
    productions = [
        made(symbol[a], (symbol[b], symbol[c]), prob=float(table[a, b, c])) for a, b, c in np.ndindex(table.shape)
    ] + [made(symbol[n + t], (f"w{w}",), prob=float(p.emission[w, t])) for w, t in np.ndindex(p.emission.shape)]
    chart = nltk.ViterbiParser(nltk.PCFG(symbol[0], productions))
    slow, _ = timed(lambda: list(chart.parse([f"w{w}" for w in words])))
    return [here, f"| NLTK's ViterbiParser | {length / slow.cpu:,.1f} |"]


def whole_pass(n: int, m: int, r: int) -> str:
    """One pass of EM over real sentences, M-steps included."""
    text = Corpus.from_sentences(wikitext_sentences("train", 10**9), vocab_size=10_000)
    model = Grammar(n, n_preterminals=m, rank=r, init="random", n_iter=1, random_state=0)
    spent, _ = timed(lambda: model.fit(text))
    return (
        f"{text.n_tokens:,} tokens, {n:,} + {m:,} symbols, rank {r}: {spent.cpu:,.0f} s of processor time with the "
        f"random start, peak {peak_bytes() / 2**20:,.0f} MB"
    )


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--quick", action="store_true")
    given.add_argument("--whole", action="store_true")
    options = given.parse_args()
    if options.whole:
        print(whole_pass(1000, 2000, 256))
        return
    sizes = [
        (60, 120, 60, 10), (60, 120, 60, 20), (60, 120, 60, 30), (60, 120, 120, 20), (60, 120, 256, 20),
        (1000, 2000, 60, 20), (1000, 2000, 256, 20), (1000, 2000, 256, 30),
    ]  # fmt: skip
    if options.quick:
        sizes = [(10, 10, 8, 10), (20, 40, 8, 10)]
    print(
        "| symbols | rank | words | tokens/s, E-step | GEMM | s, pass over 1M | peak so far |\n"
        "|---|---|---|---|---|---|---|",
        flush=True,
    )
    for size in sizes:
        print(row(*size, 400 if options.quick else 20_000), flush=True)
    print("\n| 20 + 20 symbols | tokens/s |\n|---|---|")
    print("\n".join(rivals(8 if options.quick else 20)))
    print("\n| 8 + 8 symbols | tokens/s |\n|---|---|")
    print("\n".join(best_parses(5 if options.quick else 10)))


if __name__ == "__main__":
    main()
