"""A recurrent language model from a random start and from an LDS (the paper's Table 4 and Figure 1).

    .venv/bin/pip install -c constraints.txt '.[torch]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/lds_rnn.py                 # about an hour of one core
    OMP_NUM_THREADS=1 .venv/bin/python experiments/lds_rnn.py --part large    # 1 M tokens alone; writes no page
    OMP_NUM_THREADS=1 .venv/bin/python experiments/lds_rnn.py --quick         # seconds

The claim: from the LDS the network needs at most 70 % of the epochs and ends no worse. Epochs are counted as the paper
counts them, each start's up to its own best dev perplexity; the epochs to the random start's best stand beside them.
Mikolov's schedule for all. --quick exits with 1 unless the LDS start reaches the random start's best in 70 % of its
epochs: five epochs are too few for the paper's count. The rate of each unit and start is the best of a grid after a few
epochs on a part of the training text, with an LDS of that part alone. Then every seed is trained on all of it; the
first half of the text from WikiText-2 valid (dev) decides when the rate is halved and when training ends, for all
starts alike, and the second half (test) is only scored, once, at the end. Two more starts for the first seed: "random,
half the rate", and "random + frequencies", whose output layer begins at the words' frequencies, which the LDS also
knows. Two ablations of the paper: "LDS, start alone" is subspace identification without EM (§7.4), and "LDS, not
whitened" decomposes the covariances of plain one-hot words, after which EM is the same (§4.3: EM does not depend on
coordinates, the SVD does). One seed of random and LDS is trained on ten times the text with 10,000 words.
Runs are kept in --work as they finish: an interrupted experiment goes on where it was.
Writes experiments/results/lds_rnn.json (with the perplexity after each epoch) and .md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from data import first, wikitext
from pages import write_page
from source_key import work_of
from undertow import LDS, Corpus, LagCounts
from undertow.engine.blas import one_blas_thread
from undertow.kernels.gaussian.linalg import clip_explained, project_psd
from undertow.kernels.gaussian.moments import Moments
from undertow.models.lds.em import EPSILON_D
from undertow.models.lds.init import identify
from undertow.models.lds.params import LDSParams
from undertow.neural import RNNLM
from undertow.neural.training import Epoch, perplexity, train

UNITS = ("sigmoid", "tanh")
LDS_STARTS = ("LDS", "LDS, start alone", "LDS, not whitened")
STARTS = ("random", "random, half the rate", "random + frequencies", *LDS_STARTS)
AGAINST = [("LDS", other) for other in STARTS if other != "LDS"] + [(ours, "random") for ours in LDS_STARTS[1:]]
LANES = 10  # text is read in so many parts, side by side
ENOUGH = 0.7  # the share of the epochs that the claim allows


class Scale(NamedTuple):
    """How much of everything."""

    tokens: int  # of the training text
    words: int
    units: int
    dev: int  # tokens to decide by; as many again to test
    select: int  # tokens of the training text to choose the rates with, and a tenth more to judge them
    select_epochs: int
    epochs: int  # at most
    rates: dict[str, tuple[float, ...]]  # of each unit and start: wide enough that the best is no end of the grid
    seeds: dict[str, int]  # of each unit
    starts: tuple[str, ...]  # of every seed
    once: tuple[str, ...]  # of the first seed


FULL = Scale(
    tokens=100_000,
    words=3_000,
    units=100,
    dev=30_000,
    select=30_000,
    select_epochs=4,
    epochs=40,
    rates={
        "sigmoid, random": (4.0, 8.0, 16.0, 32.0),
        "sigmoid, LDS": (1.0, 2.0, 4.0, 8.0),
        "sigmoid, LDS, start alone": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        "sigmoid, LDS, not whitened": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        "tanh, random": (0.125, 0.25, 0.5, 1.0),
        "tanh, LDS": (0.125, 0.25, 0.5),
        "tanh, LDS, start alone": (0.125, 0.25, 0.5, 1.0),
        "tanh, LDS, not whitened": (0.125, 0.25, 0.5, 1.0),
    },
    seeds={"sigmoid": 3, "tanh": 3},
    starts=("random", *LDS_STARTS),
    once=STARTS[1:3],
)
LARGE = FULL._replace(
    tokens=1_000_000,
    words=10_000,
    units=100,
    select=60_000,
    rates={"sigmoid, random": (4.0, 8.0, 16.0, 32.0), "sigmoid, LDS": (1.0, 2.0, 4.0, 8.0)},
    seeds={"sigmoid": 1},
    starts=("random", "LDS"),
    once=(),
)
QUICK = Scale(
    tokens=25_000,
    words=1_000,
    units=30,
    dev=5_000,
    select=0,
    select_epochs=0,
    epochs=5,
    rates={f"{unit}, {start}": (rate,) for unit, rate in (("sigmoid", 2.0), ("tanh", 1.0)) for start in STARTS},
    seeds={"sigmoid": 1, "tanh": 1},
    starts=("random", *LDS_STARTS),
    once=(),
)


class Text(NamedTuple):
    """What a network is trained on, and the LDS of the same text for each start that has one."""

    lines: list[list[str]]
    corpus: Corpus
    ids: Any
    dev: Any
    test: Any
    lds: dict[str, LDS]
    lds_seconds: float  # of the processor, for "LDS"


# --- text -----------------------------------------------------------------------------------------------


def make_text(lines: list[list[str]], dev: list[list[str]], test: list[list[str]], scale: Scale, n_iter: int) -> Text:
    corpus = Corpus.from_sentences(lines, vocab_size=scale.words)

    def flat(part: list[list[str]]) -> Any:
        return corpus.vocabulary.encode([word for line in part for word in line])

    lds = {}
    for start in ("LDS", *(start for start in scale.starts if start in LDS_STARTS[1:])):
        began = time.process_time()
        lds[start] = fit_lds(start, corpus, scale.units, n_iter)
        if start == "LDS":
            seconds = time.process_time() - began
    return Text(lines, corpus, flat(lines), flat(dev), flat(test), lds, seconds)


# --- the LDS --------------------------------------------------------------------------------------------


class PlainMoments:
    """The moments of e_{x_t} − μ, not divided by √μ: the `LagOperator` of a text that was not whitened."""

    def __init__(self, moments: Moments) -> None:
        self.white = moments
        self.mu, self.n_lags, self.n_rows = moments.mu, moments.n_lags, moments.n_rows
        self.dimension, self.dtype = moments.dimension, moments.dtype
        self.column = moments.u[:, None].astype(moments.dtype)

    def forward(self, k: int, X: Any) -> Any:
        return self.column * self.white.forward(k, self.column * X)

    def backward(self, k: int, X: Any) -> Any:
        return self.column * self.white.backward(k, self.column * X)

    def project(self, X: Any) -> Any:
        """The columns as C must be here: they sum to 0, as words less their mean do."""
        return X - np.outer(self.mu, X.sum(axis=0))


def identify_plain(moments: Moments, n_components: int, rng: np.random.Generator, ssid_lags: int = 4) -> LDSParams:
    """Subspace identification of plain one-hot words, told in whitened coordinates, which EM and the filter have.

    The state and A, C and Π that move and explain it are found without whitening; only that the noise must be positive
    is as it is in the library, since it does not depend on coordinates.
    """
    found = identify(PlainMoments(moments), n_components, rng, ssid_lags=ssid_lags)
    u = moments.u[:, None]
    C = moments.project(np.divide(found.C, u, out=np.zeros_like(found.C), where=u > 0))
    M = clip_explained(found.M, C.T @ C, EPSILON_D)
    Q = project_psd(M - found.A @ M @ found.A.T, floor=1e-6)
    return LDSParams(found.A, C, Q, M, moments.mu)


def fit_lds(start: str, corpus: Corpus, n_components: int, n_iter: int) -> LDS:
    """The LDS that a network starts from; "not whitened, start alone" is read off the table of them only."""
    alone = start.endswith("start alone")
    steps = {"n_iter": 0, "n_full": 0} if alone else {"n_iter": n_iter, "n_full": 1}
    model = LDS(n_components, **steps, random_state=0, n_jobs=1)  # type: ignore[arg-type]
    if "not whitened" not in start:
        return model.fit(corpus)
    counts = LagCounts.from_corpus(corpus, lags=model.lags, n_jobs=1)
    with one_blas_thread():
        moments = model._moments(counts)
        params, history = model._run_em(moments, identify_plain(moments, n_components, np.random.default_rng(0)))
        model._set_fitted(moments, params, history, counts)
    return model


# --- runs -----------------------------------------------------------------------------------------------


def make(start: str, unit: str, seed: int, text: Text) -> RNNLM:
    torch.manual_seed(seed)
    if start not in LDS_STARTS:
        lds = text.lds["LDS"]
        model = RNNLM(len(text.corpus.vocabulary), lds.params_.n_components, unit)
        if start == "random + frequencies":
            with torch.no_grad():
                model.output.bias.copy_(torch.as_tensor(np.log(lds.recurrence().frequency)))
        return model
    model = RNNLM.from_lds(text.lds[start], unit, text=text.lines[:2000])
    with torch.no_grad():  # seeds differ in a little noise: the start itself has none
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 1e-3 * p.abs().mean())
    return model


def run(start: str, unit: str, seed: int, rate: float, text: Text, epochs: int) -> dict[str, Any]:
    """One training: what it was, dev perplexity before it and after each epoch, and test perplexity at the best."""
    began, wall = time.process_time(), time.perf_counter()
    model = make(start, unit, seed, text)

    def say(e: Epoch) -> None:
        if len(text.ids) >= LARGE.tokens:
            print(f"{start}: epoch {e.number}, rate {e.rate:g}, dev {e.valid_perplexity:.2f}", flush=True)

    history = train(
        model, text.ids, text.dev, rate=rate, max_epochs=epochs, n_lanes=LANES, valid_lanes=LANES, callback=say
    )
    return {
        "start": start,
        "unit": unit,
        "seed": seed,
        "rate": rate,
        "dev": [round(min(e.valid_perplexity, 1e9), 3) for e in history],
        "rates": [e.rate for e in history[1:]],
        "test": round(perplexity(model, text.test, n_lanes=LANES), 3),
        "cpu_seconds": round(time.process_time() - began, 1),
        "wall_seconds": round(time.perf_counter() - wall, 1),
    }


class Kept:
    """Finished runs, in a file that the next call goes on from."""

    def __init__(self, path: Path | None, report: bool = False):
        self.path, self.report = path, report
        self.runs: dict[str, dict[str, Any]] = {}
        self.read()

    def read(self) -> None:
        """Whatever is there by now: another process may be at work on the other unit."""
        if self.path and self.path.exists():
            self.runs |= json.loads(self.path.read_text())

    def get(
        self, phase: str, start: str, unit: str, seed: int, rate: float, text: Text, epochs: int
    ) -> dict[str, Any] | None:
        """The run; None if it was not done and this is only a report."""
        key = f"{phase}, {unit}, {start}, rate {rate:g}, seed {seed}"
        self.read()
        if key not in self.runs and self.report:
            return None
        if key not in self.runs:
            done = run(start, unit, seed, rate, text, epochs)
            self.read()
            self.runs[key] = done
            if self.path:
                new = self.path.with_suffix(f".{unit}.new")
                new.write_text(json.dumps(self.runs))
                new.replace(self.path)
        r = self.runs[key]
        print(
            f"{key}: dev {r['dev'][0]:.1f} → {min(r['dev']):.2f} after {best_epoch(r)} epochs, test {r['test']:.2f}; "
            f"{r['cpu_seconds']:.0f} s of processor",
            flush=True,
        )
        return r


def best_epoch(r: dict[str, Any]) -> int:
    return int(np.argmin(r["dev"]))


def epochs_to(r: dict[str, Any], goal: float) -> int | None:
    return next((i for i, p in enumerate(r["dev"]) if p <= goal), None)


def rival_of(r: dict[str, Any], runs: list[dict[str, Any]], start: str = "random") -> dict[str, Any]:
    return next(o for o in runs if (o["start"], o["unit"], o["seed"]) == (start, r["unit"], r["seed"]))


# --- the page -------------------------------------------------------------------------------------------


def tables(runs: list[dict[str, Any]], figure: str = "## Figure 1") -> list[str]:
    """Every run against the random start of the same unit and seed, and Figure 1 as numbers."""
    lines = [
        "| unit | seed | start | rate | dev before training | best dev | test | epochs to its best | epochs to the "
        "random best | processor seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in runs:
        reach = epochs_to(r, min(rival_of(r, runs)["dev"]))
        lines.append(
            f"| {r['unit']} | {r['seed']} | {r['start']} | {r['rate']:g} | {r['dev'][0]:.1f} | {min(r['dev']):.2f} | "
            f"{r['test']:.2f} | {best_epoch(r)} | {'never' if reach is None else reach} | {r['cpu_seconds']:.0f} |"
        )
    lines += ["", f"{figure}: dev perplexity after each epoch, mean of the seeds", ""]
    longest = max(len(r["dev"]) for r in runs)
    lines += [f"| unit, start | {' | '.join(map(str, range(longest)))} |", f"|---|{'---|' * longest}"]
    for unit in UNITS:
        for start in STARTS:
            here = [r["dev"] for r in runs if (r["unit"], r["start"]) == (unit, start)]
            cells = []
            for i in range(longest):
                there = [d[i] for d in here if i < len(d)]
                cells.append(f"{np.mean(there):.1f}{'' if len(there) == len(here) else '*'}" if there else "")
            if here:
                lines.append(f"| {unit}, {start} | {' | '.join(cells)} |")
    lines += ["", "\\* of the seeds that were still in training."]
    return lines


class Compared(NamedTuple):
    """Two starts of one unit, by seed."""

    said: str
    kept: int  # runs in which the first is at its own best in 70 % of the other's epochs, and no worse
    runs: int
    reached: bool  # in all runs the other's best within 70 % of its epochs, and no worse in the end


def compare(unit: str, ours: str, theirs: str, runs: list[dict[str, Any]]) -> Compared | None:
    there = {(r["start"], r["seed"]): r for r in runs if r["unit"] == unit}
    pairs = [
        (r, there[theirs, seed]) for (start, seed), r in there.items() if start == ours and (theirs, seed) in there
    ]
    if not pairs:
        return None
    # a start that training never betters is at its best after no epoch
    shares = [best_epoch(a) / max(best_epoch(b), 1) for a, b in pairs]
    reach = [(epochs_to(a, min(b["dev"])), best_epoch(b)) for a, b in pairs]
    better = [min(b["dev"]) - min(a["dev"]) for a, b in pairs]
    tested = [b["test"] - a["test"] for a, b in pairs]
    kept = sum(share <= ENOUGH and gain >= 0 for share, gain in zip(shares, better, strict=True))
    said = (
        f"- {unit}, {ours} against {theirs}: its own best after {', '.join(f'{s:.0%}' for s in shares)} of the "
        f"other's epochs (at most {ENOUGH:.0%} and no worse in {kept} of {len(pairs)}); the other's best "
        f"reached after {', '.join('never' if n is None else f'{n} of {of}' for n, of in reach)}; best dev "
        f"lower by {', '.join(f'{b:.2f}' for b in better)}, test by {', '.join(f'{b:.2f}' for b in tested)}."
    )
    reached = all(n is not None and n <= ENOUGH * of for n, of in reach) and min(better) >= 0
    return Compared(said, kept, len(pairs), reached)


def verdicts(runs: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """The claim in sentences, and whether the LDS start reaches the random start's best early in every run."""
    found = {(unit, a, b): compare(unit, a, b, runs) for unit in UNITS for a, b in AGAINST}
    claims = [c for (_, a, b), c in found.items() if c and (a, b) == ("LDS", "random")]
    kept, judged = sum(c.kept for c in claims), sum(c.runs for c in claims)
    reached = all(c.reached for c in claims)
    holds = "holds" if kept == judged else "does not hold"
    head = (
        f"**By the paper's count the claim {holds}: in {kept} of {judged} runs the LDS start reaches its own best "
        f"after at most {ENOUGH:.0%} of the random start's epochs and is no worse.** "
        + (
            "In all of them it reaches the random start's best within that share of the epochs; that is another claim."
            if reached
            else "Nor does it reach the random start's best so early in all of them."
        )
    )
    return [head, "", *(c.said for c in found.values() if c)], reached


def lds_table(text: Text, dev: list[list[str]], scale: Scale, n_iter: int) -> list[str]:
    """What the starts are worth before any network: likelihoods, and perplexities as language models."""
    names = {
        "LDS, start alone": "subspace identification alone",
        "LDS": "and EM",
        "LDS, not whitened, start alone": "the same without whitening, alone",
        "LDS, not whitened": "and EM",
    }
    lines = ["| the LDS itself | log-likelihood, nats a token | dev perplexity |", "|---|---|---|"]
    for start, told in names.items():
        lds = text.lds.get(start) or fit_lds(start, text.corpus, scale.units, n_iter)
        lines.append(f"| {told} | {lds.history_[-1]:.2f} | {lds.perplexity(dev):.1f} |")
    return lines


class Measured(NamedTuple):
    """All that was trained at one scale."""

    scale: Scale
    text: Text
    dev: list[list[str]]
    chosen: dict[str, float]  # rates
    runs: list[dict[str, Any]]


def said_of(m: Measured, n_iter: int) -> str:
    return (
        f"WikiText-2: the first {len(m.text.ids):,} tokens of train, V = {len(m.text.corpus.vocabulary):,} (all other "
        f"words are `<unk>`, so these perplexities compare with each other only), {m.scale.units} units. Dev is the "
        f"first {len(m.text.dev):,} tokens of valid, test the {len(m.text.test):,} behind them. The LDS of the same "
        f"training text ({n_iter} reduced EM iterations and one full) took {m.text.lds_seconds:.0f} s of processor, "
        f"the runs below {sum(r['cpu_seconds'] for r in m.runs):.0f} s."
    )


def rates_of(m: Measured) -> str:
    return (
        f"of {'; '.join(f'{name} {rates}' for name, rates in m.scale.rates.items())} the best on "
        f"{m.scale.select // 10:,} tokens after at most {m.scale.select_epochs} epochs of the first "
        f"{m.scale.select:,} tokens of train, one seed, LDS of that part alone: "
        f"{'; '.join(f'{k} {v:g}' for k, v in m.chosen.items())}"
    )


def page(small: Measured, large: Measured, n_iter: int) -> str:
    said, _ = verdicts(small.runs)
    more, _ = verdicts(large.runs)
    lines = [
        "# A recurrent language model from a random start and from an LDS (Table 4, Figure 1)",
        "",
        said[0],
        "",
        f"With ten times the text and 10,000 words (one seed, sigmoid): {more[2].removeprefix('- sigmoid, ')}",
        "",
        "The paper (PTB, 10,000 words, 300 sigmoid units): random 130.6 dev / 124.0 test in 17 epochs, LDS 128.1 / "
        "122.8 in 12. From subspace identification alone its network was no better than from a random start, and "
        "whitening was crucial for a start of high quality.",
        "",
        "## 100,000 tokens",
        "",
        said_of(small, n_iter),
        "",
        *said[2:],
        "",
        *tables(small.runs),
        "",
        "## Without EM, and without whitening",
        "",
        "*Start alone*: subspace identification without EM. *Not whitened*: the SVD is of the covariances of plain "
        "one-hot words, in which frequent words count most, and A, C and Π come from it as they do with whitening; "
        "only the noise is kept positive in the same way, and the parameters are then told in whitened coordinates. "
        "EM and the filter do not depend on coordinates, so after that all is the same. The log-likelihood is per "
        "token of the training text after dropout (a density: only differences mean something).",
        "",
        *lds_table(small.text, small.dev, small.scale, n_iter),
        "",
        "## 1,000,000 tokens, 10,000 words",
        "",
        said_of(large, n_iter),
        "",
        *more[2:],
        "",
        *tables(large.runs, "### Figure 1"),
        "",
        "## How the settings were chosen",
        "",
        f"Rates at 100,000 tokens: {rates_of(small)}. At 1,000,000: {rates_of(large)}. "
        f"Batches of {LANES} × 20 tokens, gradients clipped at 5, the rate halved from the first epoch on that gains "
        "less than 0.3 % on dev, until another one gains less. The random start draws inputs and outputs with "
        "deviation 0.1, the recurrence with 1/√h. The temperature of the LDS's output layer is fitted on 20,000 "
        "tokens of train (`RNNLM.from_lds(lds, unit, text=…)`); seeds of the LDS start differ in a noise of a "
        "thousandth of the weights. The grids were widened until the best rate was no end of them. The small text is "
        "there for three seeds of all starts; the large one has as many units as there was time for.",
        "",
    ]
    return "\n".join(lines)


def measure(scale: Scale, n_iter: int, units: list[str], work: Path | None, report: bool = False) -> Measured:
    """All runs of one scale; those that `work` has are not done again. A report has no others."""
    kept = None
    if work:
        kept = work_of(work, __file__) / f"rnn-{scale.units}-{scale.words}-{scale.tokens}-{n_iter}.json"
    done = Kept(kept, report)
    lines, valid = first(wikitext("train"), scale.tokens), first(wikitext("valid"), 2 * scale.dev)
    chosen = {name: rates[0] for name, rates in scale.rates.items()}
    if scale.select:
        part = first(lines, scale.select)
        behind = first(lines[len(part) :], scale.select // 10)
        small = make_text(part, behind, behind, scale, n_iter)
        for unit in units:
            for start in scale.starts:
                tried = {}
                for rate in scale.rates[f"{unit}, {start}"]:
                    if r := done.get("select", start, unit, 0, rate, small, scale.select_epochs):
                        tried[rate] = min(r["dev"])
                if tried:
                    chosen[f"{unit}, {start}"] = min(tried, key=lambda rate: tried[rate])
                else:
                    del chosen[f"{unit}, {start}"]
            if scale.once and f"{unit}, random" in chosen:
                chosen[f"{unit}, random, half the rate"] = chosen[f"{unit}, random"] / 2
                chosen[f"{unit}, random + frequencies"] = chosen[f"{unit}, random"]
        print(f"rates: {chosen}", flush=True)

    dev = first(valid, scale.dev)
    text = make_text(lines, dev, valid[len(dev) :], scale, n_iter)
    todo = [(seed, unit, start) for start in scale.starts for unit in units for seed in range(scale.seeds[unit])]
    todo.sort(key=lambda run: run[0])  # a seed of everything before the next: an unfinished experiment says something
    todo += [(0, unit, start) for start in scale.once for unit in units]
    runs = []
    for seed, unit, start in todo:
        if (name := f"{unit}, {start}") in chosen:
            r = done.get("score", start, unit, seed, chosen[name], text, scale.epochs)
            runs += [r] if r else []
    runs.sort(key=lambda r: (UNITS.index(r["unit"]), r["seed"], STARTS.index(r["start"])))
    return Measured(scale, text, dev, chosen, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--lds-iterations", type=int, default=10, help="few: on a small corpus EM overfits")
    parser.add_argument("--part", choices=("small", "large"), help="only this; then no page is written")
    parser.add_argument("--units", nargs="+", choices=UNITS, default=UNITS, help="only these; then no page is written")
    parser.add_argument("--report", action="store_true", help="train nothing: write what is kept in --work")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    torch.set_num_threads(1)
    n_iter = options.lds_iterations
    parts = {"quick": QUICK} if options.quick else {"small": FULL, "large": LARGE}
    work = None if options.quick else options.work
    found = {
        part: measure(scale, n_iter, [u for u in options.units if u in scale.seeds], work, options.report)
        for part, scale in parts.items()
        if options.part in (None, part)
    }
    if len(found) == 2 and set(options.units) == set(UNITS):
        settings = {
            part: m.scale._replace(rates={})._asdict() | {"lds_iterations": n_iter, "chosen_rates": m.chosen}
            for part, m in found.items()
        }
        data = {"runs": found["small"].runs, "runs_large": found["large"].runs}
        write_page("lds_rnn", page(found["small"], found["large"], n_iter), __file__, settings, data=data)
    for m in found.values():
        print("\n".join(tables(m.runs)))
        said, reached = verdicts(m.runs)
        print("\n".join(said))
    if options.quick and not reached:
        sys.exit("The LDS start does not reach the random start's best early.")


if __name__ == "__main__":
    main()
