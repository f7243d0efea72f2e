"""Fitting the LDS: from the encoded corpus to the likelihood of 50 full EM iterations, against gensim's Word2Vec.

    .venv/bin/pip install -c constraints.txt '.[rivals]'
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/lds.py              # eLife, 35 M tokens; about 10 minutes
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/lds.py --all        # all text/ and the UN debates, about 90 M
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/lds.py --monotone   # EM over kappa and h, is it monotone?

One BLAS thread: the sparse products bring their own two, and the small matrices of the reduced EM are slower with more.
Needs the real data (UNDERTOW_DATA, default ../shared/data). --work keeps the corpora between runs.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from bench import Clock, Spent, best_of, kept_corpus, parser, peak_bytes, print_header, print_row, timed, work_option
from undertow import LDS, Corpus, LagCounts
from undertow.kernels.gaussian.moments import text_moments
from undertow.models.lds.em import LikelihoodWarning, e_step, em_iterations, evaluate
from undertow.models.lds.init import identify

LAGS = 7


def gensim_seconds(corpus: Corpus, size: int, work: Path, workers: int = 2) -> Spent:
    from gensim.models import Word2Vec

    text = work / "tokens.txt"
    with open(text, "w", encoding="utf-8") as f:
        for sentence in corpus.token_lists():
            f.write(" ".join(sentence) + "\n")
    clock = Clock()
    settings = {"window": 3, "negative": 10, "epochs": 5, "workers": workers, "sg": 0, "min_count": 1}
    Word2Vec(corpus_file=str(text), vector_size=size, **settings)
    seconds = clock.read()
    text.unlink()
    return seconds


def moments_of(counts: LagCounts, **settings: Any) -> Any:
    matrices = (counts.matrix(k) for k in range(1, LAGS + 1))
    vocabulary = counts.vocabulary
    return text_moments(vocabulary.counts, matrices, n_threads=2, fallback=vocabulary.fallback(), **settings)


def speed(corpus: Corpus, h: int, work: Path, n_iter: int) -> None:
    defaults = LDS.param_defaults()
    smoothing = {"kappa": corpus.n_tokens / len(corpus.vocabulary), "noise": defaults["noise"]}
    clock = Clock()
    counts = LagCounts.from_corpus(corpus, lags=LAGS, n_jobs=2)
    counted = clock.read().wall
    model = LDS(h, n_iter=n_iter, random_state=0, n_jobs=2).fit(counts)
    ours, ours_cpu = clock.read()
    print(f"{corpus.n_tokens:,} tokens, V = {len(corpus.vocabulary):,}, h = {h}, {smoothing}")
    print(f"undertow: counting {counted:.1f} s, with the fit {ours:.1f} s, {ours_cpu:.0f} s of processor time")
    print(f"after the last iteration {model.history_[-1]:.2f}", flush=True)
    moments = moments_of(counts, **smoothing)
    likelihood = evaluate(moments, model.params_)
    params = identify(moments, h, np.random.default_rng(0))
    one = best_of(lambda: e_step(moments, params), 1)
    (fifty, _), steps = timed(lambda: list(em_iterations(moments, params, 50)))
    reached = steps[-1].objective
    print(
        f"likelihood: ours {likelihood:.2f}, 50 full iterations {reached:.2f} in {fifty:.0f} s (one E-step {one:.2f} s)"
    )
    print("reached" if likelihood >= reached else "NOT reached", flush=True)
    rival, rival_cpu = gensim_seconds(corpus, h, work)
    print(f"gensim Word2Vec: {rival:.0f} s, {rival / ours:.1f}× ours; {rival_cpu:.0f} s of processor time", end=", ")
    print(f"{rival_cpu / ours_cpu:.1f}× ours")
    print(f"peak memory of this process {peak_bytes() >> 20} MB")


def monotone(corpus: Corpus) -> None:
    """The largest fall of the likelihood in 20 full iterations, for each smoothing and width."""
    counts = LagCounts.from_corpus(corpus, lags=LAGS, n_jobs=2)
    print_header("noise", "κ", "h", "start", "end", "largest fall")
    for noise in ("dropout", "uniform"):
        for kappa in (10.0, 100.0, 1000.0):
            for h in (50, 200):
                moments = moments_of(counts, kappa=kappa, noise=noise)
                with warnings.catch_warnings():
                    warnings.simplefilter("error", LikelihoodWarning)
                    steps = em_iterations(moments, identify(moments, h, np.random.default_rng(0)), 20)
                    values = [step.objective for step in steps]
                fall = max(0.0, *(a - b for a, b in zip(values[:-1], values[1:], strict=True)))
                print_row(noise, f"{kappa:.0f}", h, f"{values[0]:.2f}", f"{values[-1]:.2f}", f"{fall:.1e}")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--monotone", action="store_true")
    arguments.add_argument("--components", type=int, default=100)
    arguments.add_argument(
        "--iterations", type=int, default=100, help="reduced ones; the default of LDS falls a little short"
    )
    work_option(arguments)
    options = arguments.parse_args()
    corpus = kept_corpus(options.work, "all" if options.all else "elife")
    if options.monotone:
        monotone(corpus)
    else:
        speed(corpus, options.components, options.work, options.iterations)


if __name__ == "__main__":
    main()
