"""Part-of-speech tags with and without what models know of the words (Belanger & Kakade, Table 2), on CRAFT and EWT.

    .venv/bin/pip install -c constraints.txt '.[crf,rivals]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_pos.py            # writes experiments/results/tagging_pos.md
    .venv/bin/python experiments/tagging_pos.py --select                     # what the constants were chosen by
    .venv/bin/python experiments/tagging_pos.py --quick                      # 10 s: do the claims point the right way?

The claims: token vectors of an LDS after EM tag better by themselves than those of its start and than word2vec's; and a
lexicalised tagger (a CRF on spelling) errs less, above all on words it has not seen, when it reads them too. Rivals on
the same text: word2vec, Brown-style clusters, an HMM of 80 states.

CRAFT: the first 40,000 tokens of train to learn from, dev to test; representations from biomedical text. EWT: the first
20,000 tokens of train to learn from, dev to test; representations from general text (see data.py). --problems also
knows the whole train files ("CRAFT, Penn": its first 20 articles), slow in CRFsuite. --select learns from 20,000
tokens of CRAFT train and tests on 20,000 others, of articles 21 to 24.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data import N_ARTICLES, Tagged, biomedical, craft_articles, ewt, first_tokens, general, sample, universal
from pages import notes_of, write_page
from representations import Models, Sizes
from scoring import Row, Rows, Tags, groups, mcnemar, processor_seconds, right, seeds_of, shown_p, spread
from undertow.results.tagging import CRFTagger, LocalTagger, Paths, Posteriors, States, Vectors

N_ITER = 60  # of L-BFGS
BIOMEDICAL_TOKENS = 10_000_000
GENERAL_SHARE = 0.25
QUICK_TOKENS = 400_000


class Problem(NamedTuple):
    """A labelled text to learn from and one to test on."""

    name: str
    train: list[Tagged]
    test: list[Tagged]
    models: Models

    @property
    def size(self) -> tuple[int, int]:
        return sum(len(s.words) for s in self.train), sum(len(s.words) for s in self.test)


# --- what the taggers read ------------------------------------------------------------------------------

# Chosen by --select on CRAFT, for all problems: LDS vectors of words ("type"), vectors (of length 1) times 3, and
# no window for any of the features
VECTORS: dict[str, Any] = {"scale": 3.0, "window": 0}
LDS_VIEW = "type"

LEXICALISED: dict[str, Any] = {
    "Lex": lambda m: [],
    "Lex + word2vec": lambda m: [Vectors(m("w2v"), "type", **VECTORS)],
    "Lex + Brown": lambda m: [Paths(m("brown"), window=0)],
    "Lex + HMM-80": lambda m: [Posteriors(m("hmm"), window=0)],
    "Lex + LDS": lambda m: [Vectors(m("lds-100"), LDS_VIEW, **VECTORS)],
    "Lex + LDS + Brown": lambda m: [Vectors(m("lds-100"), LDS_VIEW, **VECTORS), Paths(m("brown"), window=0)],
}

LOCAL: dict[str, Any] = {
    "word2vec": lambda m: [Vectors(m("w2v"), "type")],
    "word2vec ±1": lambda m: [Vectors(m("w2v"), "window")],
    "SSID smooth": lambda m: [Vectors(m("ssid-100"), "smooth")],
    "EM smooth": lambda m: [Vectors(m("lds-100"), "smooth")],
    "EM type ⊕ smooth": lambda m: [Vectors(m("lds-100"), "features")],
}


def to_select() -> dict[str, Any]:
    """Each kind of features in the forms that were tried."""

    def vectors(model: str, view: str, scale: float) -> Any:
        return lambda m: [Vectors(m(model), view, scale=scale)]

    tried: dict[str, Any] = {"Lex": lambda m: []}
    tried |= {f"word2vec, times {s:g}": vectors("w2v", "type", s) for s in (1.0, 3.0, 10.0)}
    tried |= {f"LDS type, times {s:g}": vectors("lds-100", "type", s) for s in (1.0, 3.0, 10.0)}
    tried |= {f"LDS smooth, times {s:g}": vectors("lds-100", "smooth", s) for s in (1.0, 3.0, 10.0)}
    tried["LDS type and smooth, times 3"] = vectors("lds-100", "features", 3.0)
    for window in (0, 2):
        tried[f"Brown, window {window}"] = lambda m, w=window: [Paths(m("brown"), window=w)]
        tried[f"HMM-80 posteriors, window {window}"] = lambda m, w=window: [Posteriors(m("hmm"), window=w)]
    tried["HMM-80 states, window 0"] = lambda m: [States(m("hmm"), window=0)]
    for name, model in (("LDS type", "lds-100"), ("LDS smooth", "lds-100"), ("word2vec", "w2v")):
        view = "smooth" if "smooth" in name else "type"
        tried[f"{name}, times 3, and Brown, window 0"] = lambda m, k=model, v=view: [
            Vectors(m(k), v, scale=3.0),
            Paths(m("brown"), window=0),
        ]
    return tried


def crf(problem: Problem, features: list[Any], seed: int = 0) -> Tags:
    """L-BFGS has no seed: only the features differ."""
    tagger = CRFTagger(features, l2=1.0, n_iter=N_ITER)
    tagger.fit([s.words for s in problem.train], [s.tags for s in problem.train])
    return tagger.predict([s.words for s in problem.test])


def local(problem: Problem, features: list[Any], seed: int) -> Tags:
    tagger = LocalTagger(features, random_state=seed)
    tagger.fit([s.words for s in problem.train], [s.tags for s in problem.train])
    return tagger.predict([s.words for s in problem.test])


def tag(
    make: Callable[[Problem, list[Any], int], Tags],
    problem: Problem,
    features: Callable[[Models], list[Any]],
    models: Models,
    seed: int = 0,
) -> Tags:
    """Tags of the test by a tagger that is made when it is asked for: a row that is kept learns nothing."""
    return make(problem, features(models), seed)


# --- the problems ---------------------------------------------------------------------------------------


def problems(work: Path, wanted: list[str], sizes: Sizes) -> Iterator[Problem]:
    """CRAFT and EWT with Penn and universal tags; those of CRAFT are mapped, those of EWT are its own."""
    if any(name.startswith("CRAFT") for name in wanted):
        models = Models(biomedical(work, BIOMEDICAL_TOKENS), work, sizes)
        labelled = [s for a in craft_articles("train")[:N_ARTICLES] for s in a]
        test = [s for a in craft_articles("dev") for s in a]
        kinds: dict[str, Callable[[list[Tagged]], list[Tagged]]] = {"Penn": list, "universal": universal}
        for part, train in (("CRAFT 40k", first_tokens(labelled, 40_000)), ("CRAFT", labelled)):
            for tags, change in kinds.items():
                if f"{part}, {tags}" in wanted:
                    yield Problem(f"{part}, {tags}", change(train), change(test), models)
    if any(name.startswith("EWT") for name in wanted):
        models = Models(general(work, GENERAL_SHARE), work, sizes)
        for part in ("EWT 20k", "EWT"):
            for tags, column in (("Penn", "xpos"), ("universal", "upos")):
                if f"{part}, {tags}" in wanted:
                    train = ewt("train", column)
                    train = first_tokens(train, 20_000) if part == "EWT 20k" else train
                    yield Problem(f"{part}, {tags}", train, ewt("dev", column), models)


PROBLEMS = ["CRAFT 40k, Penn", "CRAFT 40k, universal", "EWT 20k, Penn", "EWT 20k, universal"]
LARGE = ["CRAFT, Penn", "CRAFT, universal", "EWT, Penn", "EWT, universal"]  # all labels: hours of CRFsuite

PAPER = {  # on the Wall Street Journal, 1 G tokens of news, h = 200
    "Penn": {"word2vec": 92.58, "SSID smooth": 83.00, "EM smooth": 94.30, "Lex": 97.28, "Lex + LDS": 97.32,
             "Lex + word2vec": 97.35},
    "universal": {"word2vec": 95.00, "SSID smooth": 89.26, "EM smooth": 96.44, "Lex": 97.97, "Lex + LDS": 98.05,
                  "Lex + word2vec": 98.02},
}  # fmt: skip


def selection(work: Path, sizes: Sizes) -> Iterator[Problem]:
    """Parts of the train files alone."""
    articles = craft_articles("train")
    models = Models(biomedical(work, BIOMEDICAL_TOKENS), work, sizes)
    train, test = ([s for a in part for s in a] for part in (articles[:5], articles[20:24]))
    yield Problem("CRAFT, Penn", first_tokens(train, 20_000), first_tokens(test, 20_000), models)


# --- reports --------------------------------------------------------------------------------------------


def table(problem: Problem, rows: dict[str, list[Row]]) -> list[str]:
    """Markdown of the taggers on one problem."""
    paper = PAPER[problem.name.split(", ")[1]]
    masks = groups(problem.train, problem.test)
    hits = {name: np.stack([right(problem.test, row.tags) for row in seeds]) for name, seeds in rows.items()}
    n_train, n_test = problem.size
    lines = [
        f"## {problem.name} tags",
        "",
        f"{n_train:,} tokens to learn from, {n_test:,} to test: {masks['OOV'].mean():.1%} OOV, "
        f"{masks['rare'].mean():.1%} rare (at most twice in the labelled text, the OOV among them).",
        "",
        "| tagger | seeds | accuracy: all | OOV | rare | OOV error against Lex | McNemar against Lex: all | OOV "
        "| paper (all) | processor seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, seeds in rows.items():
        found = [spread(100 * hits[name][:, mask].mean(axis=1)) for mask in masks.values()]
        against = ["", "", ""]
        if name in LEXICALISED and name != "Lex" and "Lex" in rows:
            base = hits["Lex"][0]
            cut = 1 - (1 - hits[name][:, masks["OOV"]].mean()) / (1 - base[masks["OOV"]].mean())
            against = [f"{-100 * cut:+.1f} %"]
            against += [shown_p(mcnemar(hits[name][0][m], base[m])) for m in (masks["all"], masks["OOV"])]
        listed = f"{paper[name]:.2f}" if name in paper else ""
        cpu = np.mean([row.cpu for row in seeds])
        lines.append(f"| {name} | {len(seeds)} | {' | '.join([*found, *against])} | {listed} | {cpu:.0f} |")
    return [*lines, "", *duels(hits, masks), ""]


def share_right(hits: dict[str, Any], mask: Any, name: str) -> float:
    return float(hits[name][:, mask].mean())


def duels(hits: dict[str, Any], masks: dict[str, Any]) -> list[str]:
    """Ours against the best rival, over all tokens and over the unseen: means over seeds, McNemar by the first."""
    out = []
    ours = {"EM smooth": LOCAL, "EM type ⊕ smooth": LOCAL, "Lex + LDS": LEXICALISED, "Lex + LDS + Brown": LEXICALISED}
    for name, kind in ours.items():
        rivals = [r for r in hits if r in kind and "LDS" not in r and not r.startswith(("EM", "SSID"))]
        if name not in hits or not rivals:
            continue
        for group in ("all", "OOV"):
            mask = masks[group]
            best = max(rivals, key=partial(share_right, hits, mask))
            points = 100 * (hits[name][:, mask].mean() - hits[best][:, mask].mean())
            p = mcnemar(hits[name][0][mask], hits[best][0][mask])
            out.append(f"- {name} against the best rival, {group} ({best}): {points:+.2f} points, p = {shown_p(p)}.")
    return out


def took(models: Models) -> list[str]:
    return [
        f"| {name} | {models.text.n_tokens:,} | {x.cpu:.0f} | {x.wall:.0f} |" for name, x in sorted(models.took.items())
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="less of everything, on parts of train; exit code 1: a claim fails"
    )
    parser.add_argument("--select", action="store_true", help="score the forms of the features on parts of train")
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=[*PROBLEMS, *LARGE], help="of the page")
    parser.add_argument("--only", nargs="+", help="with --select: forms that begin so")
    parser.add_argument("--seeds", type=int, default=3, help="of the rows with LDS vectors")
    parser.add_argument("--rival-seeds", type=int, default=3, help="of the others")
    parser.add_argument("--report", action="store_true", help="train nothing: write what is kept in --work")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.quick:
        return quick()
    if options.select:
        select(options.work, options.only)
        return 0
    full(options)
    return 0


def full(options: Any) -> None:
    rows = Rows(options.work, __file__)
    sections: list[str] = []
    learned: dict[str, list[str]] = {}
    for problem in problems(options.work, options.problems, Sizes()):
        done: dict[str, list[Row]] = {name: [] for name in (*LOCAL, *LEXICALISED)}
        for seed in range(max(options.seeds, options.rival_seeds)):
            for make, kinds in ((local, LOCAL), (crf, LEXICALISED)):
                for name, features in kinds.items():
                    key = f"{problem.name}-{name}-{seed}"
                    if seed not in seeds_of(name, options.seeds, options.rival_seeds):
                        continue
                    if options.report and not rows.has(key):
                        continue
                    models = problem.models.of_seed(seed)
                    row = rows(key, partial(tag, make, problem, features, models, seed))
                    done[name].append(row)
                    print(f"{key}: {100 * right(problem.test, row.tags).mean():.2f}", flush=True)
        done = {name: found for name, found in done.items() if found}
        if not done:
            continue
        problem.models.look_up()
        sections += table(problem, done)
        learned[problem.name.split()[0].rstrip(",")] = took(problem.models)
    print("\n".join(sections))
    write(sections, learned, options)


def write(sections: list[str], learned: dict[str, list[str]], options: argparse.Namespace) -> None:
    head = [
        "# Part-of-speech tags with and without what models know of the words",
        "",
        "`OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_pos.py`; Belanger & Kakade, Table 2 (their numbers: "
        "Wall Street Journal, representations of 1 G tokens of news, h = 200; ours have h = 100). Mean ± standard "
        "deviation over seeds (of the model, and of the local tagger); McNemar's test by the first seed.",
        "",
    ]
    tail = ["## Seconds to learn the representations", ""]
    for name, lines in learned.items():
        tail += [f"{name}:", "", "| | tokens | processor seconds | by the clock |", "|---|---|---|---|", *lines, ""]
    text = "\n".join([*head, *sections, *tail]) + notes_of("tagging_pos")
    write_page("tagging_pos", text, __file__, vars(options))


def select(work: Path, only: list[str] | None) -> None:
    rows = Rows(work, __file__, "select")
    for problem in selection(work, Sizes()):
        print(f"{problem.name}: {problem.size[0]:,} tokens to learn from, {problem.size[1]:,} to test, both of train")
        masks = groups(problem.train, problem.test)
        for name, features in to_select().items():
            if only and not any(name.startswith(o) for o in only):
                continue
            models = problem.models
            row = rows(f"{problem.name}-{name}", partial(tag, crf, problem, features, models))
            hits = right(problem.test, row.tags)
            found = " | ".join(f"{100 * hits[mask].mean():.2f}" for mask in masks.values())
            print(f"| {name} | {found} | {row.cpu:.0f} |", flush=True)


def quick() -> int:
    """Few labels and little text, all of it from train files; nothing is kept."""
    with tempfile.TemporaryDirectory() as work:
        return _quick(Path(work))


def _quick(work: Path) -> int:
    began = time.perf_counter(), processor_seconds()
    sizes = Sizes(clusters=100, n_iter=20, basis=3.0)
    articles = craft_articles("train")
    train, test = ([s for a in part for s in a] for part in (articles[:1], articles[20:21]))
    models = Models(sample(QUICK_TOKENS, [s.words for s in train]), work, sizes)
    problem = Problem("CRAFT, Penn", first_tokens(train, 5_000), first_tokens(test, 5_000), models)
    masks = groups(problem.train, problem.test)
    taggers: dict[str, tuple[Callable[[Problem, list[Any], int], Tags], list[Any]]] = {
        "SSID": (local, [Vectors(models("ssid-30"), "smooth")]),
        "EM": (local, [Vectors(models("lds-30"), "smooth")]),
        "Lex": (crf, []),
        "Lex + Brown": (crf, [Paths(models("brown"), window=0)]),
        "Lex + LDS": (crf, [Vectors(models("lds-30"), LDS_VIEW, **VECTORS)]),
    }
    found = {}
    for name, (make, features) in taggers.items():
        hits = right(problem.test, make(problem, features, 0))
        found[name] = [float(hits[mask].mean()) for mask in masks.values()]
        print(
            f"{name}: " + ", ".join(f"{g} {100 * x:.2f}" for g, x in zip(masks, found[name], strict=True)), flush=True
        )
    print(f"{time.perf_counter() - began[0]:.0f} s by the clock, {processor_seconds() - began[1]:.0f} of the processor")
    good = found["EM"][0] > found["SSID"][0] and found["Lex + LDS"][1] > found["Lex"][1]
    print("EM is above its start, and LDS features help with unseen words." if good else "A claim fails at this size.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
