"""HMMs whose parameters are tied through embeddings against HMMs of tables: perplexity on WikiText-2 valid.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_tied.py               # all rows; writes the table
    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_tied.py --rows default         # 582 s of processor time
    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_tied.py --select --rows kn5 default    # the share of the 5-gram
    .venv/bin/python experiments/hmm_tied.py --quick        # a twentieth of the text, 512 states: are tied ones better?

One `<eos>` a line: 33,278 types, 217,646 tokens of valid. Settings were chosen on the last tenth of the training text
(--select scores there, on words that the rest has, and never looks at valid); valid is scored once a row. What a row
has measured is kept in --work and taken over by the next run; the table is written from all that is there. Mixed with
the 5-gram, the HMM has the share that was best for `default` in --select, or half without that run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from hmm_perplexity import Text
from kneser_ney import KneserNey
from pages import words_from, write_page
from source_key import work_of
from undertow import HMM

HERE = Path(__file__).parent
NOTES = "## Notes"

ROWS: dict[str, dict[str, Any]] = {
    "kn5": {},
    "tables": {"parameterization": "table"},
    "default": {},
    **{f"states-{2**e}": {"n_states": 2**e} for e in range(10, 16)},
    "no dropout": {"dropout": 0.0},
    "width-64": {"width": 64},
    "width-256": {"width": 256},
    "carried": {"carry": True},
    "long": {"n_states": 12_288, "n_blocks": 128, "width": 256, "carry": True, "n_iter": 14},
}
QUICK = ("tables", "default")


def log_probabilities(row: str, text: Text, quick: bool, seed: int, checkpoint: Path | None) -> Any:
    """log p of each token of the held text; an interrupted fit goes on from its last pass."""
    if row == "kn5":
        ngrams = KneserNey(5).fit(text.train.ids, len(text.train.vocabulary))
        return np.log(ngrams.probabilities(text.held.ids))
    settings: dict[str, Any] = dict(ROWS[row])
    if quick:
        settings = {"parameterization": "neural"} | settings
        settings |= {"n_states": 512, "n_blocks": 32, "width": 64, "batch_tokens": 2048, "n_iter": 8}
    model = HMM(**settings, random_state=seed, n_jobs=-1, verbose=True).fit(text.train, checkpoint=checkpoint)
    return np.concatenate(model.log_probabilities(text.held))


def best_share(hmm: Any, ngrams: Any) -> float:
    """The share of the HMM with which the mixture gives these tokens most probability."""
    found = minimize_scalar(lambda a: -mixed(hmm, ngrams, a).mean(), bounds=(0.01, 0.99), method="bounded")
    return float(np.round(found.x, 2))


def mixed(hmm: Any, ngrams: Any, share: float) -> Any:
    """log p of each token by the mixture."""
    return np.logaddexp(hmm + np.log(share), ngrams + np.log(1 - share))


def table(done: dict[str, dict[str, Any]], logs: dict[str, Any], counted: Any, where: str, share: float) -> str:
    out = [
        "# Tied parameters on WikiText-2",
        "",
        f"By `experiments/hmm_tied.py`, {where}: the rows that were run. *wall* and *CPU* are seconds of fitting and",
        "scoring, on two cores that other work shared: the CPU time is the fairer number. *with 5-gram*: a mixture in",
        f"which the HMM has a share of {share}.",
        "",
        "| row | model | perplexity | with 5-gram | wall | CPU |",
        "|---|---|---|---|---|---|",
    ]
    for name, facts in done.items():
        both = "–"
        if "kn5" in logs and name != "kn5":
            both = f"{np.exp(-mixed(logs[name], logs['kn5'], share)[counted].mean()):.1f}"
        value, wall, cpu = facts["perplexity"], facts["wall"], facts["cpu"]
        out.append(f"| {name} | {facts['model']} | {value:.1f} | {both} | {wall:.0f} | {cpu:.0f} |")
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", choices=list(ROWS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--select", action="store_true", help="fit on nine tenths of train, score on the rest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    given = parser.parse_args()
    work = work_of(given.work, __file__) / ("quick" if given.quick else "select" if given.select else "valid")
    work.mkdir(parents=True, exist_ok=True)
    text = Text(given.quick, given.select)
    for name in given.rows or (QUICK if given.quick else list(ROWS)):
        kept = name if not given.seed else f"{name} (seed {given.seed})"
        if (work / f"{kept}.json").exists() and not given.quick:
            continue
        began, cpu = time.perf_counter(), time.process_time()
        log_p = log_probabilities(
            name, text, given.quick, given.seed, None if given.quick else work / f"{kept}.checkpoint"
        )
        settings = ", ".join(f"{k}={v}" for k, v in ROWS[name].items())
        facts = {
            "model": "Kneser–Ney 5-gram" if name == "kn5" else f"HMM({settings})",
            "perplexity": float(np.exp(-log_p[text.counted].mean())),
            "wall": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
        }
        np.save(work / f"{kept}.npy", log_p)
        (work / f"{kept}.json").write_text(json.dumps(facts))
        print(kept, facts, flush=True)
    found = {path.stem: json.loads(path.read_text()) for path in work.glob("*.json")}
    done = {n: found[n] for row in ROWS for n in sorted(found) if n == row or n.startswith(f"{row} (")}
    logs = {n: np.load(work / f"{n}.npy") for n in done}
    where = "a twentieth of the text" if given.quick else "train → its end" if given.select else "train → valid"
    chosen_on = {n: work.parent / "select" / f"{n}.npy" for n in ("default", "kn5")}
    share = 0.5
    if all(path.exists() for path in chosen_on.values()):
        known = Text(quick=False, select=True).counted
        share = best_share(*(np.load(chosen_on[n])[known] for n in ("default", "kn5")))
    page = table(done, logs, text.counted, where, share)
    print(page)
    if given.quick:
        better = done["default"]["perplexity"] < done["tables"]["perplexity"]
        sys.exit(None if better else "Tied parameters are no better than tables.")
    if not given.select:
        notes = words_from("hmm_tied", NOTES)
        write_page("hmm_tied", f"{page}\n{notes}" if notes else page, __file__, ROWS, data=done)


if __name__ == "__main__":
    main()
