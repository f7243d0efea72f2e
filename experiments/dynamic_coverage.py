"""Does a moving map know how sure it is? Bands on simulated maps, and link probabilities on later steps.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/dynamic_coverage.py            # about five minutes of one core
    OMP_NUM_THREADS=1 .venv/bin/python experiments/dynamic_coverage.py --quick    # seconds

Rows and words start at N(0, 0.5 I) and walk with the drifts of a shape; a step's counts are drawn from
p(i, j) ∝ a_i b_j e^{−|x_i − x_j|²} with frequencies a and b that do not change. Each map is fitted with the sums for
frequencies, as in the paper, and with free frequencies, in both forms of the covariance. Counted are the true distances
and affinities, at every step, inside the 90 % bands of `distance` and `affinity`; and, on a map without the last step,
the true distances of that step inside the bands of the filter's prediction.

Then link probabilities: who is present at the next meeting, and how many links there are, beside what was foretold.

Exit code 1 unless bands of free maps hold 80 to 97 % on average over the shapes, at most a tenth of the movers are
words that stand still, and the map of presence lowers the loss.
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
from undertow.models.dynamic.queries import Timeline, affinity, distance, distance_band
from undertow.models.dynamic.state import FittedMap
from undertow.text.event_documents import events_from_documents
from undertow.text.event_files import json_lines
from undertow.text.stop_words import ENGLISH

CHOSEN_ON = {"L": "LREC", "P": "ACL", "D": "EMNLP"}  # on which the map of presence was chosen, with NIPS 1990
HEAD = [
    "# Do the bands of a moving map hold what they say?",
    "",
    "**They do on thirteen of fourteen simulated shapes (79 to 95 % of the distances in bands of 90 "
    "%), and do not where counts are few for the dimensions: two thirds with 2,000 counts a step, "
    "large drift and five dimensions.** With the sums for frequencies, the default until now, they "
    "hold a tenth to a half.",
    "",
    "`OMP_NUM_THREADS=1 .venv/bin/python experiments/dynamic_coverage.py`",
    "",
    "Maps drawn from the model, three seeds a row; bands of 90 % should hold 90 % of the true values."
    " “Sums”: the sums of a step are its frequencies, as in the paper and, until now, by default. "
    "“Free”: frequencies are fitted with the positions, the default for maps to look at. All "
    "distances of a map share its frame, so that single maps differ much (on the first shape, twelve "
    "rows by twenty words and twelve seeds: 65 to 100 %, on average 86 %). Error: expected less true "
    "distance. A step ahead: the map is fitted without the last step.",
]
NOTES = [
    "**Why the bands were too narrow.** It was bias, not variance: with sums, on the first shape, "
    "distances are 0.3 too large on average, with errors of 0.4 about that, and the bands know of "
    "0.06, for rare rows and frequent ones, at the first step and the last alike. Three causes:",
    "",
    "1. A step's sums are not its frequencies: who stands among many others is met more often than "
    "its frequency says. A map that takes the one for the other puts everybody where all are met "
    "alike.",
    "2. With free frequencies counts see only x_i·y_j, so that a linear map of the rows is undone by "
    "its inverse transpose on the words. The prior decides, and the mode of the posterior decides "
    "wrongly, because it ignores the volume of the orbit: with rows that drift and words that stay it"
    " shrinks the rows by a third. With the true variances given, on five maps of the first shape in "
    "1, 2, 3 and 5 dimensions, bands at the mode hold 56 to 67 % of the distances, and at the scale "
    "of largest mass 90 to 98 %. (Where variances are learned, as by default, they make up for part "
    "of this: a test of bands alone does not notice the mode.)",
    "3. The prior mean of the first step was a static map of the same counts, and its variance came "
    "from there too. Now it is 0, and the variance is learned with the drift.",
    "",
    "A block of the covariance is given all other entities, and so given the frame: alone it holds 33"
    " to 75 % of the distances on the shapes seen. With the covariance of the frame added it is as "
    "good as the full form.",
    "",
    "Counts that come in bursts bias the map: it follows them at face value, distances grow by 0.6, "
    "and the bands hold them only because the dispersion of the counts widens them. Learning at the "
    "weight of a count that the dispersion suggests removes the bias, and holds 72 to 92 % on the "
    "three maps of the first bursty shape; maps would follow their counts less, and it was not taken "
    "up.",
]
LINK_HEAD = [
    "## Are link probabilities right?",
    "",
    "A link's probability is that its row is present, times that it then meets the column. Who is "
    "present at the next meeting, of the 150 authors most frequent so far (1000 words); NIPS 1991 to "
    "1997, titles of the ACL anthology elsewhere. Sums over the steps of what was foretold, as a "
    "multiple of what was there: 1 is right. Plain: Σ π v, the probability of presence times the "
    "number of columns met; mapped: with the log-odds of presence by `links.learn_presence_map`; "
    "regressed: Σ π v e^{−κ/n}, n the steps at which a row was present, which is what all "
    "`link_probabilities` sum to. Log-loss: of presence.",
    "",
]
LINK_NOTES = (
    "The sum of all link probabilities is within 0.8 and 1.25 times what was there **on six of the "
    "eight sets**, and too high on NAACL (three steps) and IJCNLP (one step); before, it was on "
    "three. Authors are on the map because they were frequent, and whoever was so at few meetings "
    "will be so less. κ = 0.83, the one constant, was fitted on LREC, ACL, EMNLP and NIPS up to 1990 "
    "(leaving each of these four out in turn: 1.18, 0.98, 0.80 and 0.69 times). One factor for all "
    "pairs changes no ranking, so that results on AUC stand. Tried first, with constants from the "
    "same four sets: three weights of presence (with 1/n) and a factor of each row's columns; "
    "foretold over there on the five judged sets 1.12 to 1.88, with a worse loss of presence on four "
    "of them and a worse AUC on NIPS and EACL, and left out. So the five judged sets have now been "
    "looked at four times. Learning a factor for the columns from the rows and columns that were sure"
    " to be on the map before a step does not help: these are the regulars (1.0 where 0.65 to 0.85 "
    "was true)."
)


class Case(NamedTuple):
    name: str
    dim: int
    rows: int
    words: int
    steps: int
    counts: int  # a step
    drift: tuple[float, float]  # variance of a step of rows, of words
    evenness: float = 5.0  # of the frequencies, the parameter of a Dirichlet distribution
    burst: float = 0.0  # variance of a factor of each pair's rate at each step


# on which the method was made, and those kept for one look at the end; both written down before the first fit
SEEN = (
    Case("rows drift, words stay", 2, 16, 30, 8, 10_000, (0.02, 0.0)),
    Case("all drift", 2, 16, 30, 8, 10_000, (0.02, 0.01)),
    Case("few counts", 2, 16, 30, 8, 1_000, (0.02, 0.0)),
    Case("four rows", 2, 4, 30, 8, 4_000, (0.02, 0.0)),
    Case("rows drift, words stay", 5, 16, 30, 8, 10_000, (0.02, 0.0)),
    Case("few counts, all drift", 5, 16, 30, 8, 3_000, (0.02, 0.01)),
    Case("bursty counts", 2, 16, 30, 8, 10_000, (0.02, 0.01), burst=0.5),
)
UNSEEN = (
    Case("large drift", 2, 16, 30, 8, 10_000, (0.1, 0.05)),
    Case("many counts, small drift", 2, 20, 40, 6, 100_000, (0.005, 0.002)),
    Case("many words", 2, 12, 80, 10, 5_000, (0.02, 0.005)),
    Case("more rows than words", 5, 40, 15, 8, 8_000, (0.02, 0.02)),
    Case("large drift, few counts", 5, 16, 30, 12, 2_000, (0.1, 0.05)),
    Case("unequal frequencies", 2, 25, 50, 8, 5_000, (0.02, 0.0), evenness=0.5),
    Case("bursty, few counts", 2, 16, 30, 8, 2_000, (0.02, 0.0), burst=0.5),
)
FORMS = {
    "sums, full": {"frequencies": "sums", "covariance": "full"},
    "free, full": {"frequencies": "free", "covariance": "full"},
    "free, blocks": {"frequencies": "free", "covariance": "blocks"},
}


class Truth(NamedTuple):
    events: list[tuple[int, str, str, int]]
    x: Any  # (T, rows, d)
    y: Any  # (T, words, d)
    p: Any  # (T, rows, words)
    a: Any  # (rows,) frequencies


def draw(case: Case, seed: int) -> Truth:
    rng = np.random.default_rng(seed)
    x, y = (np.sqrt(0.5) * rng.standard_normal((n, case.dim)) for n in (case.rows, case.words))
    a, b = (rng.dirichlet(np.full(n, case.evenness)) for n in (case.rows, case.words))
    events, xs, ys, ps = [], [], [], []
    for t in range(case.steps):
        if t:
            x = x + np.sqrt(case.drift[0]) * rng.standard_normal(x.shape)
            y = y + np.sqrt(case.drift[1]) * rng.standard_normal(y.shape)
        p = np.outer(a, b) * np.exp(-((x[:, None] - y) ** 2).sum(axis=2))
        p /= p.sum()
        drawn = p * rng.gamma(1 / case.burst, case.burst, p.shape) if case.burst else p
        counts = rng.multinomial(case.counts, (drawn / drawn.sum()).ravel()).reshape(p.shape)
        events += [(t, f"r{i:03}", f"w{j:03}", int(counts[i, j])) for i, j in zip(*counts.nonzero(), strict=True)]
        xs.append(x)
        ys.append(y)
        ps.append(p)
    return Truth(events, np.array(xs), np.array(ys), np.array(ps), a)


class Errors(NamedTuple):
    """Of distances or affinities: (pairs, steps) each."""

    inside: Any  # whether the band holds the true value
    error: Any  # expected minus true
    sd: Any  # a standard deviation, by the width of the band
    row: Any  # (pairs,) which row

    @classmethod
    def of(cls, found: list[tuple[Timeline, Any, int]]) -> Errors:
        mean, low, high = (np.array([getattr(line, k) for line, _, _ in found]) for k in ("mean", "low", "high"))
        true = np.array([values for _, values, _ in found])
        width = (high - low) / (2 * 1.6449)
        return cls((low <= true) & (true <= high), mean - true, width, np.array([row for _, _, row in found]))


def pairs_of(model: FittedMap) -> Iterator[tuple[str, str, int, int]]:
    for r in model.events.row_names:
        for w in model.events.column_names[::2]:
            yield r, w, int(r[1:]), int(w[1:])


def distance_errors(model: FittedMap, truth: Truth) -> Errors:
    found = []
    for r, w, i, j in pairs_of(model):
        true = np.sqrt(((truth.x[:, i] - truth.y[:, j]) ** 2).sum(axis=1))
        found.append((distance(model, ("row", r), ("column", w)), true, i))
    return Errors.of(found)


def affinity_errors(model: FittedMap, truth: Truth) -> Errors:
    found = []
    for r, w, i, j in list(pairs_of(model))[::7]:
        true = np.log(truth.p[:, i, j] / (truth.p[:, i].sum(axis=1) * truth.p[:, :, j].sum(axis=1)))
        found.append((affinity(model, ("row", r), ("column", w)), true, i))
    return Errors.of(found)


def next_step_errors(model: FittedMap, truth: Truth) -> Errors:
    """Distances at the step after the last one of the map, from the filter alone."""
    belief = links.predict_belief(model, 1.0)
    frame, n_rows, d = model.frame(True), model.entities.n_rows, belief.mean.shape[1]
    found = []
    names = model.entities
    for r, w, i, j in pairs_of(model):
        a, b = names.find(("row", r)), names.find(("column", w))
        cov = model.form.difference(belief.cov, a, b, d)[None]
        if frame is not None:
            cov = cov + frame.of_difference(a, b)[-1:]
        assert b >= n_rows
        line = distance_band((belief.mean[a] - belief.mean[b])[None], cov)
        found.append((line, np.sqrt(((truth.x[-1:, i] - truth.y[-1:, j]) ** 2).sum(axis=1)), i))
    return Errors.of(found)


class Score(NamedTuple):
    covered: float  # share of true distances inside the band
    bias: float  # mean of expected minus true distance
    error: float  # standard deviation of expected minus true distance
    reported: float  # mean standard deviation by the bands
    affinity: float  # share of true affinities inside the band
    ahead: float  # share of true distances at the next step inside the band


def run(case: Case, seed: int, form: dict[str, str]) -> tuple[Score, Errors, FittedMap]:
    truth = draw(case, seed)
    model = DynamicEmbedding(case.dim, purpose="look", random_state=0, **form).fit(truth.events)._fitted  # type: ignore[arg-type]
    before = [e for e in truth.events if e[0] < case.steps - 1]
    earlier = DynamicEmbedding(case.dim, purpose="look", random_state=0, **form).fit(before)._fitted  # type: ignore[arg-type]
    far, near, ahead = distance_errors(model, truth), affinity_errors(model, truth), next_step_errors(earlier, truth)
    cells = far.inside.mean(), far.error.mean(), far.error.std(), far.sd.mean(), near.inside.mean(), ahead.inside.mean()
    return Score(*map(float, cells)), far, model


def false_movers(case: Case, seed: int) -> tuple[int, int]:
    """Of the movers, how many are words, where words stand still; and how many there are."""
    model = DynamicEmbedding(case.dim, random_state=0).fit(draw(case, seed).events)
    movers = model.movers(10_000)
    return sum(m.kind == model.events_.kind_names[1] for m in movers), len(movers)


def decomposition(parts: dict[str, list[tuple[Errors, Any]]]) -> list[str]:
    """Errors of distances by the frequency of the row and by the step, of the first shape."""
    lines = ["| map | distances | bias | sd of errors | sd by the bands |", "|---|---|---|---|---|"]
    for form, found in parts.items():
        picks: list[tuple[str, Any]] = []
        thirds = [np.searchsorted(np.quantile(a, (1 / 3, 2 / 3)), a[e.row]) for e, a in found]
        for k, name in enumerate(("rarest third of rows", "middle third", "most frequent third")):
            picks.append((name, [t == k for t in thirds]))
        cells = []
        for name, masks in picks:
            error, sd = (
                np.concatenate([getattr(e, f)[m].ravel() for (e, _), m in zip(found, masks, strict=True)])
                for f in ("error", "sd")
            )
            cells.append((name, error, sd))
        for name, t in (("first step", 0), ("last step", -1)):
            error, sd = (np.concatenate([getattr(e, f)[:, t] for e, _ in found]) for f in ("error", "sd"))
            cells.append((name, error, sd))
        for name, error, sd in cells:
            lines.append(f"| {form} | {name} | {error.mean():+.2f} | {error.std():.2f} | {sd.mean():.2f} |")
    return lines


# --- link probabilities ---------------------------------------------------------------------------------


class Forecast(NamedTuple):
    """Of one later step: who was foretold to be present, without and with the map, and who was; sums of links."""

    plain: Any  # (rows,) π
    mapped: Any
    present: Any
    links: tuple[float, float, float, float]  # plain, mapped, regressed, and the links that were there


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
    links_there = (sums[0], sums[1], mapped.expected_links, float(met.sum()))
    return Forecast(plain.presence, mapped.presence, met.any(axis=1), links_there)


def log_loss(p: Any, happened: Any) -> float:
    return float(-np.where(happened, np.log(np.maximum(p, 1e-9)), np.log1p(-p)).mean())


def presence_table(quick: bool) -> tuple[list[str], bool]:
    """A table of the page, and whether the map lowers the mean loss of the sets on which it was not chosen."""
    lines = [
        "| set | steps | rows foretold / there | mapped | links, plain | mapped | regressed | log-loss | mapped |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    gained = []
    for name, events, years in later_steps(quick):
        found = [forecast(events, year) for year in years]
        there = sum(f.present.sum() for f in found)
        rows = [sum(getattr(f, kind).sum() for f in found) / there for kind in ("plain", "mapped")]
        sums = np.array([f.links for f in found]).sum(axis=0)
        loss = np.mean([[log_loss(p, f.present) for p in (f.plain, f.mapped)] for f in found], axis=0)
        cells = [f"{v:.2f}" for v in (*rows, *sums[:3] / sums[3])] + [f"{v:.3f}" for v in loss]
        mark = " (chosen on)" if name in CHOSEN_ON.values() else ""
        lines.append(f"| {name}{mark} | {len(found)} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
        if not mark:
            gained.append(float(loss[0] - loss[1]))
    return lines, float(np.mean(gained)) > 0


def simulations(quick: bool) -> tuple[list[str], bool]:
    """Tables of the page, and whether bands of free maps hold between 80 and 97 % on average over the shapes."""
    seeds = 1 if quick else 3
    groups: dict[str, tuple[Case, ...]] = {"on which the method was made": SEEN, "kept till the end": UNSEEN}
    if quick:
        groups = {"on which the method was made": (SEEN[0]._replace(rows=10, words=20, steps=4),)}
    lines, held, parts = [], [], {}
    for title, cases in groups.items():
        lines += [
            "",
            f"## Shapes {title}",
            "",
            "| shape | dim | map | distances in the band | bias | sd of errors | sd by the bands | affinities in the "
            "band | distances a step ahead |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for case in cases:
            for form, options in FORMS.items():
                results = [run(case, seed, options) for seed in range(seeds)]
                mean = Score(*np.mean([r[0] for r in results], axis=0).tolist())
                lines.append(
                    f"| {case.name} | {case.dim} | {form} | {mean.covered:.2f} | {mean.bias:+.2f} | {mean.error:.2f} | "
                    f"{mean.reported:.2f} | {mean.affinity:.2f} | {mean.ahead:.2f} |"
                )
                print(lines[-1], flush=True)
                if form != "sums, full":
                    held += [mean.covered, mean.affinity]
                if case.name == SEEN[0].name and case.dim == 2:
                    parts[form] = [(r[1], draw(case, seed).a) for seed, r in enumerate(results)]
    lines += ["", "## The first shape by frequency and time", "", *decomposition(parts)]
    return lines, (0.5 if quick else 0.8) <= float(np.mean(held)) <= (1.0 if quick else 0.97)


def movers_line(quick: bool) -> tuple[str, bool]:
    cases = [c for c in SEEN if c.dim == 2 and c.drift[1] == 0]
    found = [false_movers(case, seed) for case in cases[: 1 if quick else None] for seed in range(1 if quick else 3)]
    wrong, listed = (sum(pair[k] for pair in found) for k in (0, 1))
    line = "Movers, on the maps of the first list in two dimensions where words stand still: "
    line += f"{listed} listed, {wrong} of them words."
    return line, wrong <= 0.1 * max(listed, 10)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    tables, right = simulations(options.quick)
    movers, still = movers_line(options.quick)
    rows, gained = presence_table(options.quick)
    lines = [*HEAD, *tables, "", movers, "", *NOTES, "", *LINK_HEAD, *rows, "", LINK_NOTES]
    print("\n".join(lines))
    if not options.quick:
        write_page("dynamic_coverage", "\n".join(lines), __file__, vars(options))
    return 0 if right and still and gained else 1


if __name__ == "__main__":
    sys.exit(main())
