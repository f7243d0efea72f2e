"""Does a moving map know how sure it is? Bands of distances on simulated maps, link probabilities on later steps.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/dynamic_coverage.py            # about two minutes of one core
    OMP_NUM_THREADS=1 .venv/bin/python experiments/dynamic_coverage.py --quick    # seconds

Rows and words start at N(0, 0.5 I) and walk with the drifts of a case; a step's counts are drawn from
p(i, j) ∝ a_i b_j e^{−|x_i − x_j|²} with frequencies a and b that do not change. Each map is fitted three times: by
`DynamicEmbedding` with one block an entity and with the full covariance, both of which take a step's sums for its
frequencies; and as the map on which `movers` tests movement, whose frequencies are free. Counted are

- the true distances of rows and words, at every step, inside the 90 % band of `distance`;
- log-odds ratios |x_i − y_l|² + |x_k − y_j|² − |x_i − y_j|² − |x_k − y_l|² = 2 (x_i − x_k)·(y_j − y_l), which neither
  frequencies nor the frame can change: the slope of the map's on the true ones, and how many are in their 90 % band;
- false movers: words, where words stand still.

Then link probabilities: who is present at the next meeting, with and without the map of the log-odds of presence
(`links.learn_presence_map`), whose form and prior were chosen on LREC, ACL, EMNLP and on NIPS 1990, and which is judged
on later years of NIPS and on four other conferences of the ACL anthology.

Exit code 1 unless with free frequencies three quarters of the log-odds ratios are in their bands, with at most 10 %
false movers, and the map of presence lowers the loss.
Writes experiments/results/dynamic_coverage.json and .md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from data import data_dir
from dynamic_nips import VENUES, YEARS, only
from pages import write_page
from undertow import DynamicEmbedding, Events
from undertow.models.dynamic import links
from undertow.models.dynamic.queries import distance
from undertow.models.dynamic.state import FittedMap
from undertow.text.event_documents import events_from_documents
from undertow.text.event_files import json_lines
from undertow.text.stop_words import ENGLISH

CHOSEN_ON = {"L": "LREC", "P": "ACL", "D": "EMNLP"}  # on which the map of presence was chosen, with NIPS 1990
LINK_HEAD = [
    "## Are link probabilities right?",
    "",
    "A link's probability is that its row is present, times that it then meets the column. Who is present at the next "
    "meeting, of the 150 authors most frequent so far (1000 words); NIPS 1991 to 1997, titles of the ACL anthology "
    "elsewhere. Sums over the steps of what was foretold, as a multiple of what was there: 1 is right. Links: Σ π v, "
    "the probability of presence times the number of columns met. Log-loss: of presence. *Mapped*: the log-odds of "
    "presence by `links.learn_presence_map`, as `link_probabilities` and `predict_links` have them.",
    "",
]
LINK_NOTES = (
    "Link probabilities are **still too high** where rows were chosen for being frequent, but less so: in sum they "
    "were 1.4 to 2.9 times what was there on the five sets on which nothing was chosen, and are 1.2 to 1.9 times. The "
    "loss falls in all five; on LREC, which it was chosen on, it rises. Learning the map on all rows of the last "
    "training step would point the wrong way (there, presence foretold was 0.5 to 1.3 times that found): whoever is on "
    "the map thanks to that step was present at it. So a step teaches only by the rows that had enough events before "
    "it. The number of columns a present row meets is too high as well on titles (1.1 to 1.35 times); a factor for it, "
    "learned in the same way, changed nothing beyond noise on the sets chosen on and was left out, as were other "
    "priors (1, 5 and 50) and numbers of steps (1, 2, 4 and 6), which are nearly alike. The five sets had been looked "
    "at once before, with another prior and four steps (1.20, 1.34, 1.63, 1.65 and 1.48 with a factor for columns)."
)
FORMS = ("sums, blocks", "sums, full", "free, full")


class Case(NamedTuple):
    name: str
    rows: int
    words: int
    steps: int
    counts: int  # a step
    drift: tuple[float, float]  # variance of a step of rows, of words


CASES = (
    Case("rows drift, words stay", 16, 30, 8, 10_000, (0.02, 0.0)),
    Case("all drift", 16, 30, 8, 10_000, (0.02, 0.01)),
    Case("few counts", 16, 30, 8, 1_000, (0.02, 0.0)),
    Case("four rows", 4, 30, 8, 4_000, (0.02, 0.0)),
)


class Truth(NamedTuple):
    events: list[tuple[int, str, str, int]]
    x: Any  # (T, rows, d)
    y: Any  # (T, words, d)


def draw(case: Case, dim: int, seed: int) -> Truth:
    rng = np.random.default_rng(seed)
    x, y = (np.sqrt(0.5) * rng.standard_normal((n, dim)) for n in (case.rows, case.words))
    a, b = rng.dirichlet(np.full(case.rows, 5.0)), rng.dirichlet(np.full(case.words, 5.0))
    events, xs, ys = [], [], []
    for t in range(case.steps):
        if t:
            x = x + np.sqrt(case.drift[0]) * rng.standard_normal(x.shape)
            y = y + np.sqrt(case.drift[1]) * rng.standard_normal(y.shape)
        p = np.outer(a, b) * np.exp(-((x[:, None] - y) ** 2).sum(axis=2))
        counts = rng.multinomial(case.counts, (p / p.sum()).ravel()).reshape(p.shape)
        events += [(t, f"r{i:03}", f"w{j:03}", int(counts[i, j])) for i, j in zip(*counts.nonzero(), strict=True)]
        xs.append(x)
        ys.append(y)
    return Truth(events, np.array(xs), np.array(ys))


class Score(NamedTuple):
    covered: float  # share of true distances inside the band
    width: float  # mean width of the band
    bias: float  # mean of expected minus true distance
    slope: float  # of the map's log-odds ratios on the true ones: 1 is right
    odds: float  # share of true log-odds ratios inside their 90 % band


def score(model: FittedMap, truth: Truth) -> Score:
    inside, widths, errors = [], [], []
    rows, words = model.events.row_names, model.events.column_names
    for r in rows:
        for w in words[::2]:
            line = distance(model, ("row", r), ("column", w))
            true = np.sqrt(((truth.x[:, int(r[1:])] - truth.y[:, int(w[1:])]) ** 2).sum(axis=1))
            inside.append((line.low <= true) & (true <= line.high))
            widths.append(line.high - line.low)
            errors.append(line.mean - true)
    i, j = [int(r[1:]) for r in rows], [int(w[1:]) for w in words]
    true_odds, odds = (
        centred(((a[:, :, None] - b[:, None]) ** 2).sum(axis=3))
        for a, b in (
            (truth.x[:, i], truth.y[:, j]),
            (model.smoothed.means[:, : len(i)], model.smoothed.means[:, len(i) :]),
        )
    )
    slope = float((odds * true_odds).sum() / (true_odds**2).sum())
    covered, width, bias = (float(np.mean(v)) for v in (inside, widths, errors))
    return Score(covered, width, bias, slope, odds_covered(model, truth.x[:, i], truth.y[:, j]))


def odds_covered(model: FittedMap, x: Any, y: Any) -> float:
    """Share of the true 2 (x_i − x_k)·(y_j − y_l) within 1.645 standard deviations of the map's, to first order."""
    rng, path, n = np.random.default_rng(0), model.smoothed, len(model.entities.names)
    full = model.covariance == "full"
    inside = []
    for t, means in enumerate(path.means):
        d = means.shape[1]
        for _ in range(150):
            i, k = rng.choice(x.shape[1], 2, replace=False)
            j, m = rng.choice(y.shape[1], 2, replace=False)
            at = [i, k, x.shape[1] + j, x.shape[1] + m]
            rows, words = means[at[0]] - means[at[1]], means[at[2]] - means[at[3]]
            slope = 2 * np.array([words, -words, rows, -rows])
            if full:
                cov = path.covs[t].reshape(n, d, n, d)[at][:, :, at]
                variance = np.einsum("ak,akbl,bl->", slope, cov, slope)
            else:
                variance = np.einsum("ak,akl,al->", slope, path.covs[t][at], slope)
            true = 2 * (x[t, i] - x[t, k]) @ (y[t, j] - y[t, m])
            inside.append(abs(2 * rows @ words - true) <= 1.6449 * np.sqrt(variance))
    return float(np.mean(inside))


def centred(squares: Any) -> Any:
    """(T, rows, words) squared distances less the means of rows and columns: their log-odds ratios."""
    rows, columns = squares.mean(axis=2, keepdims=True), squares.mean(axis=1, keepdims=True)
    return squares - rows - columns + squares.mean(axis=(1, 2), keepdims=True)


def run(case: Case, dim: int, seed: int) -> tuple[dict[str, Score], int, int]:
    """Scores of each form; false movers and all movers."""
    truth = draw(case, dim, seed)
    blocks = DynamicEmbedding(dim, random_state=0, covariance="blocks").fit(truth.events)
    full = DynamicEmbedding(dim, random_state=0, covariance="full").fit(truth.events)
    models = (blocks._fitted, full._fitted, full._movement_map())
    movers = full.movers(10_000)
    false = sum(m.kind == full.events_.kind_names[1] for m in movers) if case.drift[1] == 0 else 0
    return {form: score(model, truth) for form, model in zip(FORMS, models, strict=True)}, false, len(movers)


# --- link probabilities ---------------------------------------------------------------------------------


class Forecast(NamedTuple):
    """Of one later step: who was foretold to be present, without and with the map, and who was; sums of links."""

    plain: Any  # (rows,) π
    mapped: Any
    present: Any
    links: tuple[float, float, float]  # Σ π v without and with the map, and the links that were there


def later_steps(quick: bool) -> Iterator[tuple[str, Events, list[int]]]:
    """Sets of events, and the steps of each that are foretold from those before."""
    nips = events_from_documents([d for _, d in json_lines(str(data_dir() / "time" / "nips-1987-1997.jsonl.xz"))])
    yield "NIPS", nips, [1990] if quick else list(YEARS)
    if not quick:
        papers = [d for _, d in json_lines(str(data_dir() / "time" / "acl-1979-2021.jsonl.xz")) if d["authors"]]
        for letter, name in {**VENUES, **CHOSEN_ON}.items():
            chosen = [d for d in papers if d["id"].startswith(letter)]
            events = events_from_documents(chosen, columns="title", stop_words=ENGLISH)
            first, every = {"LREC": (3, 1), "ACL": (4, 2), "EMNLP": (3, 1)}.get(name, (4, 3))
            yield name, events, [int(year) for year in events.times[first::every]]


def forecast(events: Events, year: int, n_rows: int = 150, n_columns: int = 1000) -> Forecast:
    """The activity that `link_probabilities` reads: positions do not say who is present."""
    train = events.until(max(int(t) for t in events.times if int(t) < year)).select(n_rows=n_rows, n_columns=n_columns)
    met = only(events, train.row_names, train.column_names).at(year).toarray() > 0
    gap = links.median_gap(train.gaps)
    mapped = links.forecast_activity(train.tables, train.gaps, gap)
    with mock.patch.object(links, "learn_presence_map", lambda rows, gaps: np.array([0.0, 1.0])):
        plain = links.forecast_activity(train.tables, train.gaps, gap)
    sums = [float(f.presence @ f.degree) for f in (plain, mapped)]
    return Forecast(plain.presence, mapped.presence, met.any(axis=1), (sums[0], sums[1], float(met.sum())))


def log_loss(p: Any, happened: Any) -> float:
    return float(-np.where(happened, np.log(np.maximum(p, 1e-9)), np.log1p(-p)).mean())


def presence_table(quick: bool) -> tuple[list[str], bool]:
    """A table of the page, and whether the map lowers the mean loss of the sets on which it was not chosen."""
    lines = [
        "| set | steps | rows foretold / there | mapped | links foretold / there | mapped | log-loss | mapped |",
        "|---|---|---|---|---|---|---|---|",
    ]
    gained = []
    for name, events, years in later_steps(quick):
        found = [forecast(events, year) for year in years]
        there = sum(f.present.sum() for f in found)
        rows = [sum(getattr(f, kind).sum() for f in found) / there for kind in ("plain", "mapped")]
        sums = np.array([f.links for f in found]).sum(axis=0)
        loss = np.mean([[log_loss(p, f.present) for p in (f.plain, f.mapped)] for f in found], axis=0)
        cells = [f"{v:.2f}" for v in (*rows, sums[0] / sums[2], sums[1] / sums[2])] + [f"{v:.3f}" for v in loss]
        mark = " (chosen on)" if name in CHOSEN_ON.values() else ""
        lines.append(f"| {name}{mark} | {len(found)} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        if not mark:
            gained.append(float(loss[0] - loss[1]))
    return lines, float(np.mean(gained)) > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    plan = [(case, 2) for case in CASES] + [(CASES[0], 1), (CASES[0], 3)]
    seeds = 2
    if options.quick:
        plan, seeds = [(CASES[0]._replace(rows=10, words=20, steps=4), 2)], 1
    lines = [
        "# Do the bands of a moving map hold the true distances?",
        "",
        "`OMP_NUM_THREADS=1 .venv/bin/python experiments/dynamic_coverage.py`",
        "",
        f"Maps drawn from the model ({seeds} seeds a row), with frequencies that stay the same; the 90 % band of "
        "`distance` should hold 90 % of the true distances of rows and words. “Sums” are maps as `fit` makes them, "
        "which take a step's sums for its frequencies; “free” is the map on which `movers` tests movement. Slope: of "
        "the map's log-odds ratios on the true ones, 1 is right; odds: how many of those are in their 90 % band, which "
        "neither frequencies nor the frame can change. False movers: words, where words stand still.",
        "",
        "| case | dim | map | in the 90 % band | width | bias | slope | odds in the band | false movers |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    free, wrong, all_ = [], 0, 0
    for case, dim in plan:
        results = [run(case, dim, seed) for seed in range(seeds)]
        false, listed = sum(r[1] for r in results), sum(r[2] for r in results)
        wrong, all_ = wrong + false, all_ + (listed if case.drift[1] == 0 else 0)
        for form in FORMS:
            mean = Score(*np.mean([r[0][form] for r in results], axis=0).tolist())
            movers = f"{false} of {listed}" if form == FORMS[2] and case.drift[1] == 0 else "–"
            lines.append(
                f"| {case.name} | {dim} | {form} | {mean.covered:.2f} | {mean.width:.2f} | {mean.bias:+.2f} | "
                f"{mean.slope:.2f} | {mean.odds:.2f} | {movers} |"
            )
            print(lines[-1], flush=True)
            if form == FORMS[2]:
                free.append(mean.odds)
    lines += [
        "",
        "A step's sums are not its frequencies: who stands among many others is met more often than its frequency "
        "says. A map that takes the one for the other puts everybody where all are met alike; its distances are not "
        "those the counts were drawn from, and bands as narrow as so many counts allow do not hold them. With free "
        "frequencies the distances of a step are known no better than the prior says, because a linear map of the rows "
        "can be undone by its inverse on the words (the rows may shrink while the words spread; in two "
        "maps looked at, the rows, which drift, had shrunk): its bands of distances are wider, and still too narrow. "
        "What the counts do tell, the log-odds ratios, they tell with bands that hold about as much as they say.",
        "",
        *LINK_HEAD,
    ]
    table, helps = presence_table(options.quick)
    lines += [*table, "", LINK_NOTES, ""]
    if not options.quick:
        settings = {"seeds": seeds, "cases": [{**case._asdict(), "dim": dim} for case, dim in plan]}
        write_page("dynamic_coverage", "\n".join(lines), __file__, settings)
    return 0 if helps and np.mean(free) >= 0.75 and wrong <= 0.1 * max(all_, 1) else 1


if __name__ == "__main__":
    sys.exit(main())
