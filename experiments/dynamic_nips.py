"""The moving map on NIPS 1987–1997: next year's links, the two forms, the switch, and the paper's Figure 5.

    .venv/bin/pip install -c constraints.txt '.[sklearn]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/dynamic_nips.py          # writes experiments/results/dynamic_nips.md

Links: fitted to the years up to t with the authors and words most frequent by then, judged on all pairs of these at
t + 1. What could be chosen (burstiness of "predict", the constants of the rivals) was chosen on 1991–1993.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import spearmanr

from undertow import DynamicEmbedding, Events
from undertow.models.dynamic_filter import Settings
from undertow.models.dynamic_links import expected_squares, forecast_shares
from undertow.models.dynamic_start import correspondence, damp, make_table, static_map
from undertow.text.event_documents import events_from_documents

HERE = Path(__file__).parent
DATA = Path(os.environ.get("UNDERTOW_DATA", HERE.parents[1] / "shared" / "data"))
YEARS = range(1991, 1998)
PAIRS = (("Jordan_M", "variational"), ("Smola_A", "kernel"), ("Waibel_A", "speech"))
SMOOTHING = 1000.0  # pseudo-counts of the popularity beside cumulative counts
PMI = 10.0  # pseudo-counts of the ratios that the SVD sees


def only(events: Events, rows: list[str], columns: list[str]) -> Events:
    r, c = ({n: k for k, n in enumerate(x)} for x in (events.row_names, events.column_names))
    i, j = [r[n] for n in rows], [c[n] for n in columns]
    tables = [sp.csr_array(t[i][:, j]) for t in events.tables]
    return Events(events.times, events.gaps, rows, columns, tables, events.kind_names)


# --- links ----------------------------------------------------------------------------------------------


def rivals(train: Events, dims: list[int]) -> dict[str, Any]:
    """Scores (rows, columns) by name; each that can take the popularity forecasts that the moving map uses."""
    n_rows = len(train.row_names)
    raw = sum(t.toarray() for t in train.tables)
    counts = [damp(t, 10.0) for t in train.tables]
    p, q = (forecast_shares(np.array([c.sum(axis=axis) for c in counts]), train.gaps) for axis in (1, 0))
    popular = np.log(p)[:, None] + np.log(q)
    rate = raw.sum(axis=1, keepdims=True)
    out = {
        "last year": train.tables[-1].toarray(),
        "cumulative": raw,
        "popularity": popular,
        "cumulative + smoothed popularity": np.log((raw + SMOOTHING * q) / (rate + SMOOTHING)) + np.log(p)[:, None],
    }
    damped = sum(c.toarray() for c in counts)
    rate, own = damped.sum(axis=1, keepdims=True), damped.sum(axis=0) / damped.sum()
    u, s, vt = np.linalg.svd(np.log((damped + PMI * own) / (rate + PMI) / own), full_matrices=False)
    pooled = make_table(sp.csr_array(damped), n_rows)
    assert pooled is not None
    for d in dims:
        out[f"SVD-{d} + popularity"] = (u[:, :d] * s[:d]) @ vt[:d] + popular
        rng = np.random.default_rng(0)
        start = correspondence(pooled, n_rows + len(train.column_names), d, rng)
        start = static_map(pooled, start, Settings("blocks"))[0].mean
        still, _ = static_map(pooled, start, Settings("blocks", beta=0.3))
        away = expected_squares(still, "blocks", n_rows)
        shares = np.log(damped.sum(axis=1) + 0.5)[:, None] + np.log(damped.sum(axis=0) + 0.5)
        out[f"static d={d}"] = shares - away
        out[f"static d={d}, forecast popularity"] = popular - away
    return out


def judge(scores: dict[str, Any], met: Any, meets: Any) -> dict[str, list[float]]:
    """AUC and average precision on all pairs, on pairs never seen, and the same for authors who publish that year."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    everyone, present = np.ones(len(meets), dtype=bool), meets.any(axis=1)
    out: dict[str, list[float]] = {}
    for name, score in scores.items():
        out[name] = []
        for rows in (everyone, present):
            for among in (np.ones_like(met), ~met):
                m = among[rows]
                y, s = meets[rows][m], score[rows][m]
                out[name] += [roc_auc_score(y, s), average_precision_score(y, s)]
    return out


def links(events: Events, n_rows: int, n_columns: int, dims: list[int], say: Callable[[str], None]) -> dict[str, Any]:
    results: dict[str, list[list[float]]] = {}
    for year in YEARS:
        train = events.until(year - 1).select(n_rows=n_rows, n_columns=n_columns)
        truth = only(events, train.row_names, train.column_names).at(year).toarray() > 0
        met = sum(t.toarray() for t in train.tables) > 0
        scores = rivals(train, dims)
        for d in dims:
            began = time.perf_counter()
            model = DynamicEmbedding(d, purpose="predict", covariance="blocks", random_state=0, n_jobs=-1).fit(train)
            scores[f"moving d={d}"] = model.link_probabilities()
            say(f"{year} d={d}: {time.perf_counter() - began:.1f} s, β {model.tempering_:.2f}, drift {model.drift_}")
        for name, values in judge(scores, met, truth).items():
            results.setdefault(name, []).append(values)
    return {name: np.array(values) for name, values in results.items()}


# --- maps -----------------------------------------------------------------------------------------------


def rank_correlations(model: DynamicEmbedding, least: float) -> list[float]:
    """Spearman's of distance and empirical probability over time, of pairs with enough counts in four years or more."""
    events = model.events_
    columns = np.array([t.sum(axis=0) for t in events.tables])
    total = sp.csr_array(sum(events.tables)).tocoo()
    out = []
    for i, j in zip(total.row[total.data >= least], total.col[total.data >= least], strict=True):
        p = np.array([t[i, j] for t in events.tables]) / np.maximum(columns[:, j], 1e-9)
        if (p > 0).sum() >= 4:
            line = model.distance(("row", events.row_names[i]), ("column", events.column_names[j])).mean
            out.append(float(spearmanr(line, p)[0]))
    return out


def figure_5(events: Events) -> list[str]:
    chosen = events.select(n_rows=60, n_columns=600)
    rows = sorted({*chosen.row_names, *(a for a, _ in PAIRS)})
    columns = sorted({*chosen.column_names, *(w for _, w in PAIRS)})
    subset = only(events, rows, columns)
    began = time.perf_counter()
    model = DynamicEmbedding(2, random_state=0, covariance="blocks", n_jobs=-1).fit(subset)
    seconds = time.perf_counter() - began
    lines = ["| pair | rank correlation, distance | affinity |", "|---|---|---|"]
    for author, word in PAIRS:
        p = model.empirical(author, word)
        far, near = (spearmanr(f(author, word).mean, p)[0] for f in (model.distance, model.affinity))
        lines.append(f"| {author} – {word} | {far:.2f} | {near:.2f} |")
    found = rank_correlations(model, 40)
    lines += [
        "",
        f"Over all {len(found)} pairs with 40 counts or more in four years or more: median {np.median(found):.2f}, ",
    ]
    lines[-1] += f"negative for {100 * np.mean(np.array(found) < 0):.0f} %. {len(rows)} authors, {len(columns)} words, "
    lines[-1] += f"dim 2, fitted in {seconds:.0f} s."
    return lines


def forms(events: Events) -> str:
    subset = events.select(n_rows=40, n_columns=160)
    full, blocks = (
        DynamicEmbedding(2, random_state=0, covariance=c, n_jobs=-1).fit(subset) for c in ("full", "blocks")
    )
    rng = np.random.default_rng(0)
    lines, widths = [], []
    for _ in range(400):
        pair = ("row", subset.row_names[rng.integers(40)]), ("column", subset.column_names[rng.integers(160)])
        one, two = full.distance(*pair), blocks.distance(*pair)
        lines.append((one.mean, two.mean))
        widths.append((two.high - two.low) / (one.high - one.low))
    a, b = (np.concatenate([x[k] for x in lines]) for k in (0, 1))
    return (
        f"Full and block form, 40 authors × 160 words, identical starts: correlation of distances "
        f"{np.corrcoef(a, b)[0, 1]:.3f} "
        f"over 400 pairs and 11 years; bands of the block form are {100 * np.median(widths):.0f} % as wide (median)."
    )


def switch() -> str:
    """The paper's Figure 3."""
    rng = np.random.default_rng(0)
    events = []
    for t in range(140):
        turned = float(np.clip((t - 20) / 100, 0, 1))
        for a in ("A1", "A2", "B"):
            for w in ("X1", "X2", "Y"):
                strength = 1 - turned if (a[0] == "A") == (w[0] == "X") else turned
                events.append((t, a, w, int(rng.poisson(1 + 18 * strength) * (rng.random() > 0.15))))
    model = DynamicEmbedding(2, random_state=0).fit(events)
    near, far = model.distance("A1", "X1").mean, model.distance("A1", "Y").mean
    cross = int(np.flatnonzero(near > far)[0])
    still = DynamicEmbedding(2, random_state=0).fit([(0, *e[1:]) for e in events])
    return (
        f"A–X and A–Y cross at step {cross} (the data at 70); distances {near[10]:.2f}/{far[10]:.2f} at step 10, "
        f"{near[130]:.2f}/{far[130]:.2f} at step 130; a static map of all counts has "
        f"{still.distance('A1', 'X1').mean[0]:.2f}/{still.distance('A1', 'Y').mean[0]:.2f}."
    )


def report(results: dict[str, Any], sizes: tuple[int, int], parts: dict[str, Any], seconds: float) -> str:
    head = ["all: AUC", "AP", "new: AUC", "AP", "present: AUC", "AP", "present, new: AUC", "AP"]
    lines = [
        "# The moving map on NIPS 1987–1997",
        "",
        "`OMP_NUM_THREADS=1 .venv/bin/python experiments/dynamic_nips.py`",
        "",
        "## Next year's links",
        f"Fitted to the years before, judged on 1991 to 1997; means over the seven years. {sizes[0]} authors × "
        f"{sizes[1]} words,",
        "those most frequent before the year. *all*: all pairs; *new*: pairs never seen before; *present*: pairs of",
        "authors who publish that year, so that who will publish is given and only the words are to be told.",
        "",
        "| | " + " | ".join(head) + " |",
        "|---|" + "---|" * len(head),
    ]
    for name, values in results.items():
        lines.append(f"| {name} | " + " | ".join(f"{v:.3f}" for v in values.mean(axis=0)) + " |")
    lines += [
        "",
        'Moving: `DynamicEmbedding(d, purpose="predict")`, `link_probabilities()`. Static: the same likelihood of the',
        "pooled, equally damped counts (β = 0.3), with its own pooled popularity, and with the forecast of the moving",
        "map. SVD: of the smoothed log ratios of the same counts, with the forecast. Where two rows share the",
        "forecast, only the positions differ.",
        "",
        "## Figure 5: distance falls where the empirical probability rises",
        *parts["figure 5"],
        "",
        "## Full and block form",
        parts["forms"],
        "",
        "## Figure 3: the switch",
        parts["switch"],
        "",
        f"All of it took {seconds / 60:.0f} minutes on a shared machine with two cores.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--dims", type=int, nargs="+", default=[2, 5, 10])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "dynamic_nips.md")
    args = parser.parse_args()
    began = time.perf_counter()
    events = events_from_documents(DATA / "time" / "nips-1987-1997.jsonl.xz")
    parts: dict[str, Any] = {"figure 5": figure_5(events), "forms": forms(events), "switch": switch()}
    print(*parts["figure 5"], parts["forms"], parts["switch"], sep="\n", flush=True)
    results = links(events, args.rows, args.columns, args.dims, lambda line: print(line, flush=True))
    text = report(results, (args.rows, args.columns), parts, time.perf_counter() - began)
    args.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
