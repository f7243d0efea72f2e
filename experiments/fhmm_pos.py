"""Do layers of states help a tagger out of its domain? (Nepal & Yates, Tables 1 and 2: news labels, biomedical test.)

    .venv/bin/pip install -c constraints.txt '.[crf,rivals]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/fhmm_pos.py            # writes experiments/results/fhmm_pos.md
    .venv/bin/python experiments/fhmm_pos.py --select                     # what settings were chosen by: not the tests
    .venv/bin/python experiments/fhmm_pos.py --quick                      # 25 s: do the claims point the right way?
    .venv/bin/python experiments/fhmm_pos.py --report                     # measure nothing: write what is kept
    OMP_NUM_THREADS=1 .venv/bin/python experiments/fhmm_pos.py --much     # ten times the text: fhmm_much.md
    OMP_NUM_THREADS=1 .venv/bin/python experiments/fhmm_pos.py --sizes    # layers of different sizes; prints

The claims: a CRF that reads hidden states errs less on words it never saw, and several layers of states help more than
one flat HMM. All representations are learned from the same text: the first tokens of eLife, and the labelled text
without its tags. The taggers learn from EWT train and MASC and are tested on GENIA dev and CRAFT dev. OOV: never in the
labelled text; rare: at most twice (OOV counted). HMMs, flat and factorial, start from clusters and are fitted until a
part of eLife becomes less probable; their likelihood is that of another part. What is done is kept in --work.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data import (
    BRACKETS,
    Tagged,
    craft_articles,
    elife,
    ewt,
    first,
    first_tokens,
    lines_of,
    masc,
    respell,
    tab_separated,
    tokenized,
)
from pages import words_from, write_page
from representations import Learned, clusters, kept, key_of, lds, word2vec
from scoring import Row, Rows, groups, mcnemar, processor_seconds, right, shown_p, spread
from source_key import TAGGERS, work_of
from undertow import HMM, Corpus, FactorialHMM
from undertow.results.tagging import CRFTagger, Paths, Posteriors, States, Vectors
from undertow.text.tokenizer import Tokenizer


class Scale(NamedTuple):
    """How much of everything."""

    text: int = 400_000  # tokens of eLife
    apart: int = 30_000  # tokens of eLife behind them to stop by, and as many to report
    words: int = 15_000  # of the vocabulary
    labelled: int = 25_000  # tokens of EWT and of MASC, each
    test: int = 20_000  # tokens of each test set
    passes: int = 8  # of EM, at most
    wide_passes: int = 2  # of EM for five layers
    seeds: int = 3
    rounds: int = 50  # of L-BFGS


MUCH = Scale(4_000_000, 30_000, 30_000, 50_000, 30_000, 8, 2, 1, 120)  # twice the labels, and L-BFGS until it is done
QUICK = Scale(30_000, 6_000, 3_000, 5_000, 4_000, 3, 1, 1, 40)
LONG = 20  # passes at most of the models that are fitted until nothing is gained
SMOOTHING = 2.0  # pseudo-counts a word of the factorial models; chosen on the text they are stopped by
NOTES = "## What it says"
PAPER = {
    "lexical": "10.5 / 32.2 / 28.0",
    "FHMM-1-10": "10.4 / 31.7 / 27.8",
    "FHMM-3-10": "10.2 / 30.6 / 26.6",
    "FHMM-5-10": "9.7 / 29.7 / 25.2",
    "POST-5-10": "9.7 / 28.4 / 24.8",
    "HMM-80": "10.1 / 30.7 / 26.4",
    "Brown-1000": "9.9 / 30.2 / 25.8",
}


class Data(NamedTuple):
    train: list[Tagged]
    tests: dict[str, list[Tagged]]
    text: Corpus
    stop: list[list[str]]  # text to stop EM by
    held_out: list[list[str]]


# --- text -----------------------------------------------------------------------------------------------


def read(scale: Scale, work: Path | None, select: bool = False) -> Data:
    genres = masc()
    if select:  # the end of MASC is the test, and the training lacks it
        cut = 3 * len(genres) // 4
        genres, tests = genres[:cut], {"end of MASC": genres[cut:]}
    else:
        craft = [s for article in craft_articles("dev") for s in article]
        tests = {"GENIA dev": tab_separated("genia-pos.dev"), "CRAFT dev": craft}
    train = first_tokens(ewt(), scale.labelled) + first_tokens(genres, scale.labelled)
    train = [alike(s) for s in train]
    tests = {name: [alike(s) for s in first_tokens(part, scale.test)] for name, part in tests.items()}
    articles = small_elife(scale) if work is None else elife(work)
    ends = np.searchsorted(articles.offsets, np.array([0, scale.apart, 2 * scale.apart]) + scale.text).tolist()
    sentences = list(itertools.islice(articles.token_lists(), ends[2]))
    labelled = [respell(s.words, articles.vocabulary) for s in train]
    text = Corpus.from_sentences(sentences[: ends[0]] + labelled, vocab_size=scale.words, unknown_classes=True)
    text = Corpus(text.ids, text.offsets, text.vocabulary, manifest={"tokenizer": Tokenizer().describe()})
    return Data(train, tests, text, sentences[ends[0] : ends[1]], sentences[ends[1] :])


def small_elife(scale: Scale) -> Corpus:
    """The beginning of eLife, in memory: for --quick, where no corpus is kept."""
    sentences = first(tokenized(lines_of("text/elife.txt.xz")), scale.text + 2 * scale.apart + 1)
    return Corpus.from_sentences(sentences, unknown_classes=True)


def alike(s: Tagged) -> Tagged:
    """Brackets are spelled -LRB- in some files and ( in others; by spelling, one of them would be a word never seen."""
    return Tagged([BRACKETS.get(w, w) if w.startswith("-") else w for w in s.words], s.tags)


# --- models ---------------------------------------------------------------------------------------------


class Models:
    """All that is learned from the text, when it is first asked for: `HMM-30/2` is the third seed."""

    def __init__(self, data: Data, scale: Scale, work: Path) -> None:
        self.data, self.scale, self.work = data, scale, work
        self.took: dict[str, Learned] = {}

    def __call__(self, name: str) -> Any:
        if name not in self.took:
            self.took[name] = self._learn(name)
            print(f"{name}: {self.took[name].cpu:.0f} s of processor time", flush=True)
        return self.took[name].model

    def _learn(self, name: str) -> Learned:
        text, work = self.data.text, self.work
        if name == "Brown":
            return clusters(text, work, min(1000, len(text.vocabulary) // 10), n_iter=12)
        kind, _, seed = name.partition("/")
        if kind == "W2V":
            return word2vec(text, 100, work, seed=int(seed))
        if kind == "LDS":
            return lds(text, 100, work, seed=int(seed))
        model = self.machine(kind, int(seed))
        return kept(work, self.key(name), lambda: model.fit(text, validation=self.data.stop), __file__)

    def key(self, name: str) -> str:
        passes = "-".join(map(str, self.scale[5:7]))
        return f"{name.replace('/', '-').replace(' ', '-')}-{passes}-{SMOOTHING}-{key_of(self.data.text)}"

    def is_kept(self, name: str) -> bool:
        return (work_of(self.work, __file__, without=TAGGERS) / f"{self.key(name)}.json").exists()  # as `kept` has it

    def machine(self, kind: str, seed: int) -> Any:
        """FHMM-M-K (and `FHMM-M-K lds`, `FHMM-M-K long`), FHMM-K_1+K_2 or HMM-Z, not fitted."""
        family, *sizes = kind.partition(" ")[0].split("-")
        passes = LONG if kind.endswith("long") else self.scale.passes
        if family == "HMM":
            return HMM(int(sizes[0]), n_blocks=1, init="clusters", n_iter=passes, random_state=seed, n_jobs=1)
        layers = [int(k) for k in sizes[0].split("+")] if len(sizes) == 1 else [int(sizes[1])] * int(sizes[0])
        M = len(layers)
        init = "lds" if kind.endswith("lds") else "clusters"
        settings: dict[str, Any] = {"n_states": layers, "smoothing": SMOOTHING, "init": init, "random_state": seed}
        if prod(layers) > 10_000:  # a batch costs an M-step, which is dear here
            settings |= {"inference": "variational", "bound": "mean_field", "max_sweeps": 3, "batch_size": 100_000}
            passes = passes if kind.endswith("long") else self.scale.wide_passes
            return FactorialHMM(M, n_iter=passes, n_jobs=1, **settings)
        return FactorialHMM(M, n_iter=passes, n_jobs=1, batch_size=self.scale.text // 16, **settings)


def held_out_scores(models: Models, names: list[str]) -> dict[str, float]:
    """Log-likelihood a token; kept with the models, for with 100,000 joint states it takes minutes."""
    out = {}
    for name in names:
        model = models(name)
        path = work_of(models.work, __file__) / f"held-{models.key(name)}.txt"
        if not path.exists():
            path.write_text(repr(model.score(models.data.held_out)))
        out[name] = float(path.read_text())
    return out


class Pairs:
    """The states of two layers as one, in the form that `States` reads."""

    kind = "pairs"

    def __init__(self, model: FactorialHMM) -> None:
        self.vocabulary_, self.tokenizer_ = model.vocabulary_, model.tokenizer_
        self.decode = model.joint_codes


def pairs_of(model: FactorialHMM) -> Any:
    return Pairs(model)


# --- what the taggers read ------------------------------------------------------------------------------

READ: dict[str, Any] = {"pieces": True}  # tokens that the text's rule cuts are read piece by piece, by all alike
VECTORS: dict[str, Any] = {"scale": 3.0, **READ}  # as in tagging_pos.py

FEATURES: dict[str, Callable[[Models, int], list[Any]]] = {
    "lexical": lambda m, i: [],
    "POST-HMM-80": lambda m, i: [Posteriors(m(f"HMM-80/{i}"), **READ)],
    "POST-HMM-30": lambda m, i: [Posteriors(m(f"HMM-30/{i}"), **READ)],
    "POST-3-10": lambda m, i: [Posteriors(m(f"FHMM-3-10/{i}"), **READ)],
    "Brown-1000": lambda m, i: [Paths(m("Brown"), **READ)],
    "W2V": lambda m, i: [Vectors(m(f"W2V/{i}"), "type", **VECTORS)],
    "LDS": lambda m, i: [Vectors(m(f"LDS/{i}"), "smooth", **VECTORS)],
    "HMM-80": lambda m, i: [States(m("HMM-80/0"), **READ)],
    "HMM-30": lambda m, i: [States(m(f"HMM-30/{i}"), **READ)],
    "FHMM-1-10": lambda m, i: [States(m("FHMM-1-10/0"), **READ)],
    "FHMM-3-10": lambda m, i: [States(m(f"FHMM-3-10/{i}"), **READ)],
    "LDS + POST-HMM-80": lambda m, i: [*FEATURES["LDS"](m, i), *FEATURES["POST-HMM-80"](m, i)],
    "FHMM-5-10": lambda m, i: [States(m("FHMM-5-10/0"), **READ)],
    "POST-5-10": lambda m, i: [Posteriors(m("FHMM-5-10/0"), **READ)],
    "POST-2-30": lambda m, i: [Posteriors(m(f"FHMM-2-30/{i}"), **READ)],
    "POST-HMM-60": lambda m, i: [Posteriors(m(f"HMM-60/{i}"), **READ)],
    "POST-HMM-30 long": lambda m, i: [Posteriors(m(f"HMM-30 long/{i}"), **READ)],
    "POST-3-10 long": lambda m, i: [Posteriors(m(f"FHMM-3-10 long/{i}"), **READ)],
    "POST-5-10 long": lambda m, i: [Posteriors(m(f"FHMM-5-10 long/{i}"), **READ)],
}
MUCH_FEATURES: dict[str, Callable[[Models, int], list[Any]]] = {
    **{
        name: FEATURES[name] for name in ("lexical", "POST-HMM-30", "Brown-1000", "POST-HMM-80", "W2V", "LDS", "HMM-30")
    },
    "LDS type": lambda m, i: [Vectors(m(f"LDS/{i}"), "type", **VECTORS)],
    "LDS type + POST-HMM-30": lambda m, i: [*MUCH_FEATURES["LDS type"](m, i), *FEATURES["POST-HMM-30"](m, i)],
    "LDS type + POST-HMM-80": lambda m, i: [*MUCH_FEATURES["LDS type"](m, i), *FEATURES["POST-HMM-80"](m, i)],
    "Brown-1000 + POST-HMM-30": lambda m, i: [*FEATURES["Brown-1000"](m, 0), *FEATURES["POST-HMM-30"](m, 0)],
    **{name: FEATURES[name] for name in ("POST-HMM-60", "POST-3-10", "POST-2-30")},
}
SIZES_FEATURES: dict[str, Callable[[Models, int], list[Any]]] = {
    **{name: FEATURES[name] for name in ("POST-HMM-30", "POST-HMM-60", "POST-2-30")},
    "POST-60+15": lambda m, i: [Posteriors(m(f"FHMM-60+15/{i}"), **READ)],
    "POST-90+10": lambda m, i: [Posteriors(m(f"FHMM-90+10/{i}"), **READ)],
    "POST-2-30 + pairs": lambda m, i: [*FEATURES["POST-2-30"](m, i), States(pairs_of(m(f"FHMM-2-30/{i}")), **READ)],
    "POST-HMM-75": lambda m, i: [Posteriors(m(f"HMM-75/{i}"), **READ)],
    "POST-HMM-60 + POST-HMM-15": lambda m, i: [
        Posteriors(m(f"HMM-60/{i}"), name="a", **READ),
        Posteriors(m(f"HMM-15/{i}"), name="b", **READ),
    ],
}
SIZES_RIVALS = ("POST-HMM-60", "POST-HMM-30", "POST-HMM-75", "POST-HMM-60 + POST-HMM-15", "POST-2-30")
SIZES_AGAIN = ["POST-60+15", *SIZES_RIVALS[:4]]
SEEDED = ("POST-HMM-30", "POST-3-10", "POST-HMM-60", "POST-2-30")  # do layers beat a flat HMM? Here seeds are needed
LATER_SEEDED = ("POST-HMM-30 long", "POST-3-10 long")
VECTOR_SEEDS = 3  # of the rows that read vectors, on both pages


def has_vectors(name: str) -> bool:
    return "LDS" in name or "W2V" in name


class Harness:
    """One tagger a row and seed, kept as it finishes; all tests are tagged in one go."""

    def __init__(self, data: Data, models: Models, rows: Rows, rounds: int, only_kept: bool = False) -> None:
        self.data, self.models, self.rows, self.rounds, self.only_kept = data, models, rows, rounds, only_kept
        self.tests = [s for part in data.tests.values() for s in part]

    def row(self, name: str, seed: int, build: Callable[[Models, int], list[Any]], **settings: Any) -> Row | None:
        key = f"{name}-{seed}".replace(" ", "")
        known = (self.rows.place / f"{key}.json").exists()
        if self.only_kept and not known:
            return None
        features = None if known else build(self.models, seed) or None  # learned first: its time is its own

        def make() -> list[list[str]]:
            words, tags = [s.words for s in self.data.train], [s.tags for s in self.data.train]
            tagger = CRFTagger(features, **{"n_iter": self.rounds, **settings}).fit(words, tags)
            return tagger.predict([s.words for s in self.tests])

        row = self.rows(key, make)
        if not known:
            shown = " ".join(f"{100 * e:.2f}" for e in self.errors(row).ravel())
            print(f"{key}: {shown} ({row.cpu:.0f} s of processor time)", flush=True)
        return row

    def correct(self, row: Row) -> dict[str, Any]:
        """For each test whether each token has its tag."""
        out, at = {}, 0
        for name, part in self.data.tests.items():
            out[name] = right(part, row.tags[at : at + len(part)])
            at += len(part)
        return out

    def errors(self, row: Row) -> Any:
        """(tests, 3) share of wrong tags: all, OOV, rare."""
        values = []
        for name, ok in self.correct(row).items():
            masks = groups(self.data.train, self.data.tests[name])
            values.append([1 - ok[mask].mean() for mask in masks.values()])
        return np.array(values)

    def oov(self, row: Row) -> Any:
        """Whether each OOV token of all tests has its tag."""
        found = self.correct(row)
        return np.concatenate([ok[groups(self.data.train, self.data.tests[n])["OOV"]] for n, ok in found.items()])


# --- what is done ---------------------------------------------------------------------------------------


def full(options: Any) -> int:
    scale = Scale()
    data = read(scale, options.work)
    models = Models(data, scale, options.work)
    rows_kept = Rows(options.work, __file__, f"{key_of(data.text)}-{scale.test}-{scale.rounds}")
    harness = Harness(data, models, rows_kept, scale.rounds, options.report)
    often = ("FHMM-1-10", "HMM-30", "FHMM-3-10", "HMM-60", "FHMM-2-30")
    names = [f"{n}/{i}" for n in often for i in range(scale.seeds)]
    names += ["FHMM-3-10 lds/0", "HMM-50/0", "HMM-80/0"]
    # what the claim is about first, the dearest last: a run that is stopped has told something
    first = ["lexical", "POST-HMM-80", *SEEDED, "Brown-1000", "W2V", "LDS"]
    plan = [(n, 0) for n in first] + [(n, seed) for seed in range(1, scale.seeds) for n in SEEDED]
    if options.rows:
        return measure(data, harness, FEATURES, options.rows)
    found = {(name, seed): harness.row(name, seed, FEATURES[name]) for name, seed in plan}
    if not options.report:
        held_out_scores(models, names)
    for name, build in FEATURES.items():
        if name not in first:
            seeds = range(scale.seeds if name in LATER_SEEDED else 1)
            found |= {(name, seed): harness.row(name, seed, build) for seed in seeds}
    for name in filter(has_vectors, FEATURES):
        found |= {(name, seed): harness.row(name, seed, FEATURES[name]) for seed in range(VECTOR_SEEDS)}
    done: dict[str, list[Row]] = {}
    for name in FEATURES:
        rows = [row for (other, _), row in found.items() if other == name and row is not None]
        if rows:
            done[name] = rows
    names += [
        "FHMM-5-10/0",
        "FHMM-5-10 long/0",
        *(f"{n} long/{i}" for n in ("HMM-30", "FHMM-3-10") for i in range(scale.seeds)),
    ]
    if options.report:
        names = [n for n in names if models.is_kept(n)]
    write(scale, data, harness, done, held_out_scores(models, names), "fhmm_pos")
    return 0


def measure(
    data: Data, harness: Harness, features: dict[str, Callable[[Models, int], list[Any]]], names: list[str]
) -> int:
    """Only the rows of these names and spelling alone; those with vectors with three seeds. Writes no page."""
    done: dict[str, list[Row]] = {}
    for name in dict.fromkeys(["lexical", *names]):
        seeds = range(VECTOR_SEEDS if has_vectors(name) else 1)
        rows = [harness.row(name, seed, features[name]) for seed in seeds]
        done[name] = [row for row in rows if row is not None]
    print("\n".join(_errors(data, harness, {name: rows for name, rows in done.items() if rows})))
    return 0


def much(options: Any) -> int:
    """What carries over when there is more text; one seed, three of the rows with vectors."""
    data = read(MUCH, options.work)
    models = Models(data, MUCH, options.work)
    rows = Rows(options.work, __file__, f"much-{key_of(data.text)}-{MUCH.test}-{MUCH.rounds}")
    harness = Harness(data, models, rows, MUCH.rounds, options.report)
    if options.rows:
        return measure(data, harness, MUCH_FEATURES, options.rows)
    done: dict[str, list[Row]] = {}
    for name, build in MUCH_FEATURES.items():
        found = [harness.row(name, seed, build) for seed in range(VECTOR_SEEDS if has_vectors(name) else 1)]
        if found := [row for row in found if row is not None]:
            done[name] = found
    write(MUCH, data, harness, done, {}, "fhmm_much")
    return 0


def sizes(options: Any) -> int:
    """Layers of different sizes, and pairs of states beside the posteriors; prints, and writes no page.

    What counts was fixed before anything was measured: the error on unseen words (OOV) of both tests together. A row
    wins if it errs less than POST-HMM-60 and than POST-HMM-30 with every seed, and against each of them beyond chance
    (McNemar, exact, p < 0.05) with at least two of three seeds. The same is told against POST-2-30: do different sizes,
    or pairs, add anything to two equal layers?

    Added when seeds 0 to 2 were known: POST-HMM-75, which has as many emission parameters as POST-60+15, and two flat
    HMMs of 60 and 15 states side by side; and seeds 3 to 5 of the row that won and of the flat ones.
    """
    scale = Scale()
    data = read(scale, options.work)
    models = Models(data, scale, options.work)
    rows = Rows(options.work, __file__, f"{key_of(data.text)}-{scale.test}-{scale.rounds}")
    harness = Harness(data, models, rows, scale.rounds, options.report)
    plain = harness.row("lexical", 0, FEATURES["lexical"])
    assert plain is not None, "nothing is kept yet"
    for names, seeds in ((list(SIZES_FEATURES), range(3)), (SIZES_AGAIN, range(3, 6))):
        done: dict[str, list[Row]] = {name: [] for name in names}
        for seed, name in itertools.product(seeds, names):  # seed by seed: a run that is stopped has told something
            row = harness.row(name, seed, SIZES_FEATURES[name])
            done[name] += [] if row is None else [row]
        done = {name: found for name, found in done.items() if found}
        print("\n".join(_errors(data, harness, {"lexical": [plain], **done})), "\n")
        for ours, theirs in itertools.product(done, SIZES_RIVALS):
            if ours not in SIZES_RIVALS[:4] and theirs in done and ours != theirs:
                print(_seed_by_seed(harness, done, ours, theirs))
    kinds = ("HMM-30", "HMM-60", "HMM-75", "FHMM-2-30", "FHMM-60+15", "FHMM-90+10")
    names = [f"{kind}/{seed}" for kind in kinds for seed in range(scale.seeds)]
    names = [name for name in names if models.is_kept(name)]
    print("\n", "\n".join(_likelihoods(models, held_out_scores(models, names))), sep="")
    return 0


def write(
    scale: Scale, data: Data, harness: Harness, done: dict[str, list[Row]], scores: dict[str, float], name: str
) -> None:
    masks = [groups(data.train, part) for part in data.tests.values()]
    sizes = "; ".join(
        f"{name}: {len(m['all']):,} tokens, {m['OOV'].sum():,} OOV, {m['rare'].sum():,} rare"
        for name, m in zip(data.tests, masks, strict=True)
    )
    lines = [
        "# Tagging out of the domain with layers of states"
        if scores
        else "# Tagging out of the domain with ten times the text",
        "",
        f"Representations from {data.text.n_tokens:,} tokens (the first {scale.text:,} of eLife, and the labelled "
        f"text), V = {len(data.text.vocabulary):,} with classes of unknown words. Labelled: "
        f"{sum(len(s.words) for s in data.train):,} tokens of EWT train and MASC, as many of each. `CRFTagger`, "
        f"window 2, {scale.rounds} iterations of L-BFGS. {sizes}. Error in %, mean over seeds (± standard deviation). "
        "p: does the row err on other OOV tokens of both tests than spelling alone does (McNemar, exact, first seed)? "
        "Seconds are processor time of the tagger.",
        "",
    ]
    lines += [*_errors(data, harness, done), "", *_layers(harness, done)]
    lines += _likelihoods(harness.models, scores) if scores else []
    text = "\n".join(lines)
    print(text)
    write_page(name, f"{text.rstrip()}\n\n{words_from(name, NOTES)}", __file__, scale._asdict())


def _errors(data: Data, harness: Harness, done: dict[str, list[Row]]) -> list[str]:
    lines = [
        "| read beside spelling | seeds | "
        + " | ".join(f"{name}: all | OOV | rare" for name in data.tests)
        + " | OOV, both | of it less | p | seconds | the paper |",
        "|---|---|" + "---|---|---|" * len(data.tests) + "---|---|---|---|---|",
    ]
    plain = harness.oov(done["lexical"][0])
    for name, rows in done.items():
        values = 100 * np.array([harness.errors(row).ravel() for row in rows])
        oov = [harness.oov(row) for row in rows]
        together = 100 * np.array([1 - ok.mean() for ok in oov])
        cells = [spread(v) for v in values.T] + [spread(together)]
        less = 100 * (1 - together.mean() / (100 * (1 - plain.mean())))
        told = ["", ""] if name == "lexical" else [f"{less:.1f} %", shown_p(mcnemar(oov[0], plain))]
        seconds = f"{np.mean([row.cpu for row in rows]):.0f}"
        lines.append(f"| {name} | {len(rows)} | {' | '.join([*cells, *told, seconds])} | {PAPER.get(name, '')} |")
    return lines


def _likelihoods(models: Models, scores: dict[str, float]) -> list[str]:
    scale = models.scale
    lines = [
        f"Held-out likelihood: every model is fitted until the {scale.apart:,} tokens of eLife behind its text become "
        f"less probable ({scale.passes} passes at most; *long*: {LONG}; five layers: {scale.wide_passes}), and scored "
        "on as many behind these.",
        "",
        "| model | seeds | log-likelihood a token | emission parameters a word | passes | processor seconds |",
        "|---|---|---|---|---|---|",
    ]
    for kind in dict.fromkeys(name.split("/")[0] for name in scores):
        names = [n for n in scores if n.split("/")[0] == kind]
        width = np.prod([sum(map(int, x.split("+"))) for x in kind.partition(" ")[0].split("-")[1:]])
        passes = ", ".join(str(len(models(n).history_)) for n in names)
        cpu = np.mean([models.took[n].cpu for n in names])
        values = spread([scores[n] for n in names], 3)
        lines.append(f"| {kind} | {len(names)} | {values} | {width} | {passes} | {cpu:.0f} |")
    return [*lines, ""]


def _layers(harness: Harness, done: dict[str, list[Row]]) -> list[str]:
    """Layers against the flat HMM of as many emission parameters, seed by seed."""
    lines = []
    for ours, theirs in (
        ("FHMM-3-10", "HMM-30"),
        ("POST-3-10", "POST-HMM-30"),
        ("POST-3-10 long", "POST-HMM-30 long"),
        ("POST-2-30", "POST-HMM-60"),
    ):
        if ours in done and theirs in done:
            lines.append(_seed_by_seed(harness, done, ours, theirs))
    return [*lines, ""] if lines else []


def _seed_by_seed(harness: Harness, done: dict[str, list[Row]], ours: str, theirs: str) -> str:
    oov = [(harness.oov(a), harness.oov(b)) for a, b in zip(done[ours], done[theirs], strict=False)]
    told = ", ".join(f"{100 * (b.mean() - a.mean()):+.2f} (p = {shown_p(mcnemar(a, b))})" for a, b in oov)
    return f"{ours} less {theirs}, OOV error of both tests in points, seed by seed: {told}."


def select(options: Any) -> int:
    """Iterations, algorithm and window of the tagger, on the end of MASC."""
    scale = Scale()
    data = read(scale, options.work, True)
    models = Models(data, scale, options.work)
    rows = Rows(options.work, __file__, f"select-{key_of(data.text)}")
    harness = Harness(data, models, rows, scale.rounds)
    plain, soft = FEATURES["lexical"], FEATURES["POST-HMM-30"]
    quick_way = {"algorithm": "minibatch", "n_iter": 5, "random_state": 0}
    tried: dict[str, tuple[Callable[[Models, int], list[Any]], dict[str, Any]]] = {
        "lexical": (plain, {}),
        "lexical, 100 iterations": (plain, {"n_iter": 100}),
        "lexical, mini-batches": (plain, quick_way),
        "POST-HMM-30": (soft, {}),
        "POST-HMM-30, mini-batches": (soft, quick_way),
        "POST-HMM-30, window 1": (lambda m, i: [Posteriors(m("HMM-30/0"), window=1, **READ)], {}),
        "POST-HMM-30, window 0": (lambda m, i: [Posteriors(m("HMM-30/0"), window=0, **READ)], {}),
    }
    for name, (build, settings) in tried.items():
        row = harness.row(name, 0, build, **settings)
        assert row is not None
        print(f"| {name} | {' | '.join(f'{100 * e:.2f}' for e in harness.errors(row).ravel())} | {row.cpu:.0f} |")
    return 0


def quick() -> int:
    """On a little text: states help with words never seen, and three layers know more than one."""
    began = processor_seconds()
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        data = read(QUICK, None)
        models = Models(data, QUICK, work)
        harness = Harness(data, models, Rows(work, __file__), QUICK.rounds)
        rows = {name: harness.row(name, 0, FEATURES[name]) for name in ("lexical", "POST-HMM-30", "POST-3-10")}
        scores = held_out_scores(models, ["FHMM-1-10/0", "FHMM-3-10/0"])
    errors = {name: 100 * (1 - harness.oov(row).mean()) for name, row in rows.items() if row is not None}
    print("OOV error, both tests: " + ", ".join(f"{name} {e:.2f}" for name, e in errors.items()))
    print("Held out: " + ", ".join(f"{name} {v:.3f}" for name, v in scores.items()))
    print(f"{processor_seconds() - began:.0f} s of processor time")
    ok = errors["POST-3-10"] < errors["lexical"] and errors["POST-HMM-30"] < errors["lexical"]
    ok = ok and scores["FHMM-3-10/0"] > scores["FHMM-1-10/0"]
    print("The claims point the right way." if ok else "The claims do NOT point the right way.")
    return 0 if ok else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("quick", "select", "report", "much", "sizes"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    parser.add_argument(
        "--rows", nargs="*", choices=sorted({*FEATURES, *MUCH_FEATURES}), help="only these, and write no page"
    )
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    way = select if options.select else much if options.much else sizes if options.sizes else full
    code = quick() if options.quick else way(options)
    print(f"{time.perf_counter() - began:.0f} s by the clock")
    return code


if __name__ == "__main__":
    sys.exit(main())
