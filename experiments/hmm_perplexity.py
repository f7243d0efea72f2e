"""Perplexity of HMMs of tables on WikiText-2 valid: states, rank, start, mixtures; Kneser–Ney and the LDS beside.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_perplexity.py       # all rows, about 2 hours; writes the table
    OMP_NUM_THREADS=1 .venv/bin/python experiments/hmm_perplexity.py --rows default kn5 lds
    .venv/bin/python experiments/hmm_perplexity.py --quick         # a twentieth of the text: is half of each better?

One `<eos>` a line, empty lines too: 33,278 types, 217,646 tokens of valid. Settings were chosen on the last tenth of
the training text (--select scores there, on words that the rest has, and never looks at valid). What a row has measured
is kept in --work and taken over by the next run; the table is written from all that is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from data import wikitext
from kneser_ney import KneserNey
from pages import words_from, write_page
from source_key import work_of
from undertow import HMM, LDS, Corpus

HERE = Path(__file__).parent


def hmm(**settings: Any) -> dict[str, Any]:
    return {"kind": "hmm", "settings": {"parameterization": "table", **settings}}


# blocks of the other models of the mixture: other numbers of blocks cut the words in other ways
MEMBERS = (96, 112, 128, 144, 160, 176, 208, 224, 240, 256)

ROWS: dict[str, dict[str, Any]] = {
    "kn2": {"kind": "kn", "n": 2},
    "kn3": {"kind": "kn", "n": 3},
    "kn5": {"kind": "kn", "n": 5},
    "lds": {"kind": "lds", "settings": {"n_components": 200, "random_state": 0}},
    "default": hmm(random_state=0),
    **{f"states-{2**e}": hmm(n_states=2**e, random_state=0) for e in range(9, 16)},
    "clusters": hmm(init="clusters", random_state=0),
    "spectral": hmm(init="spectral", random_state=0),
    "spectral-2048": hmm(n_states=2048, init="spectral", random_state=0),  # with least squares: up to 4,096 states
    "carried": hmm(carry=True, random_state=0),
    # without blocks, so that rank, band and a full matrix can be compared; low ranks need many passes from noise
    "dense-256": hmm(n_states=256, n_blocks=1, init="clusters", n_iter=6, random_state=0),
    **{
        f"rank-{r}-band-{b}": hmm(n_states=256, n_blocks=1, rank=r, band=b, init="clusters", n_iter=6, random_state=0)
        for r, b in ((16, 0), (64, 0), (16, 8))
    },
    "low-rank-32768-256": hmm(n_states=2**15, n_blocks=128, rank=256, init="clusters", n_iter=3, random_state=0),
    **{f"member-{g}": hmm(n_states=32 * g, n_blocks=g, random_state=g) for g in MEMBERS},
}
MIXED = ["default", "carried", "states-4096", "states-8192", *(f"member-{g}" for g in MEMBERS)]
MIXTURES = {
    "mixture of HMMs": MIXED,
    "HMM and Kneser–Ney": ["default", "kn5"],
    "mixture of HMMs and Kneser–Ney": [*MIXED, "kn5"],
}


NOTES = "## Notes"


class Text:
    """What rows are fitted to and scored on."""

    def __init__(self, quick: bool, select: bool) -> None:
        train = wikitext("train")
        if quick:
            train = train[: len(train) // 20]
        cut = round(0.9 * len(train))
        held = train[cut:] if select or quick else wikitext("valid")
        self.train = Corpus.from_sentences(train[:cut] if select or quick else train)
        self.held = Corpus.from_sentences(held, vocabulary=self.train.vocabulary)
        words = (w for line in held for w in line)
        self.counted = np.array([w in self.train.vocabulary for w in words])


def smaller(settings: dict[str, Any]) -> dict[str, Any]:
    """For --quick."""
    out = dict(settings, n_iter=3, n_states=min(settings.get("n_states", 256), 256), n_blocks=16)
    if settings.get("n_blocks") == 1:
        out["n_blocks"] = 1
    if "rank" in settings:
        out["rank"] = 16
    return out


def run(row: dict[str, Any], text: Text, quick: bool) -> Any:
    """log p of each token of the held text."""
    if row["kind"] == "kn":
        ngrams = KneserNey(row["n"]).fit(text.train.ids, len(text.train.vocabulary))
        return np.log(ngrams.probabilities(text.held.ids))
    settings = row["settings"]
    if row["kind"] == "lds":
        lds = LDS(**(dict(settings, n_components=20, n_iter=3) if quick else settings), n_jobs=-1).fit(text.train)
        return np.concatenate(lds.log_probabilities(text.held))
    model = HMM(**(smaller(settings) if quick else settings), n_jobs=-1, verbose=True).fit(text.train)
    return np.concatenate(model.log_probabilities(text.held))


def table(done: dict[str, dict[str, Any]], logs: dict[str, Any], counted: Any, where: str) -> str:
    out = [
        "# Perplexity of HMMs of tables on WikiText-2",
        "",
        f"By `experiments/hmm_perplexity.py`, {where}: the rows that were run. *wall* and *CPU* are seconds of fitting",
        "and scoring, on two cores that other work shared: the CPU time is the fairer number.",
        "",
        "| row | model | perplexity | wall | CPU |",
        "|---|---|---|---|---|",
    ]
    for name, row in done.items():
        out.append(f"| {name} | {row['model']} | {row['perplexity']:.1f} | {row['wall']:.0f} | {row['cpu']:.0f} |")
    for name, parts in MIXTURES.items():
        there = [p for p in parts if p in logs]
        hmms = [np.exp(logs[p]) for p in there if p != "kn5"]
        if len(there) < 2 or ("kn5" in parts and "kn5" not in there):
            continue
        # equal weights, half to the n-gram: nothing was chosen by looking
        p = np.mean(hmms, axis=0)
        p = 0.5 * p + 0.5 * np.exp(logs["kn5"]) if "kn5" in there else p
        value = float(np.exp(-np.log(p)[counted].mean()))
        wall, cpu = (sum(done[x][k] for x in there) for k in ("wall", "cpu"))
        what = f"{'half ' if 'kn5' in there else ''}equal weights: {', '.join(x for x in there if x != 'kn5')}"
        what += "; half kn5" if "kn5" in there else ""
        out.append(f"| {name} | {what} | **{value:.1f}** | {wall:.0f} | {cpu:.0f} |")
    return "\n".join(out) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", choices=list(ROWS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--select", action="store_true", help="fit on nine tenths of train, score on the rest")
    parser.add_argument("--work", type=Path, default=HERE / "work")
    given = parser.parse_args()
    work = work_of(given.work, __file__) / ("quick" if given.quick else "select" if given.select else "valid")
    work.mkdir(parents=True, exist_ok=True)
    text = Text(given.quick, given.select)
    rows = given.rows or (["kn5", "default"] if given.quick else list(ROWS))
    for name in rows:
        if (work / f"{name}.json").exists() and not given.quick:
            continue
        began, cpu = time.perf_counter(), time.process_time()
        log_p = run(ROWS[name], text, given.quick)
        settings = ", ".join(f"{k}={v}" for k, v in ROWS[name].get("settings", {}).items() if k != "random_state")
        kind = {"kn": f"Kneser–Ney {ROWS[name].get('n')}-gram", "lds": "LDS", "hmm": "HMM"}[ROWS[name]["kind"]]
        facts = {
            "model": kind if ROWS[name]["kind"] == "kn" else f"{kind}({settings})",
            "perplexity": float(np.exp(-log_p[text.counted].mean())),
            "wall": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
        }
        np.save(work / f"{name}.npy", log_p)
        (work / f"{name}.json").write_text(json.dumps(facts))
        print(name, facts, flush=True)
    done = {n: json.loads((work / f"{n}.json").read_text()) for n in ROWS if (work / f"{n}.json").exists()}
    logs = {n: np.load(work / f"{n}.npy") for n in done}
    where = "a twentieth of the text" if given.quick else "train → its end" if given.select else "train → valid"
    page = table(done, logs, text.counted, where)
    print(page)
    if given.quick:
        both = np.logaddexp(logs["kn5"], logs["default"]) - np.log(2)
        best = max(log_p[text.counted].mean() for log_p in logs.values())
        sys.exit(None if both[text.counted].mean() > best else "The HMM adds nothing to the 5-gram.")
    if not given.select:
        notes = words_from("hmm_perplexity", NOTES)
        write_page("hmm_perplexity", f"{page}\n{notes}" if notes else page, __file__, ROWS, data=done)


if __name__ == "__main__":
    main()
