"""How the settings of the tagger were chosen: scheme, spelling and penalty of the CRF, and settings of word2vec.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_choices.py                                  # all forms
    OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_choices.py --forms "iob2" "bioes joined letters cut=2"
    .venv/bin/python experiments/tagging_choices.py --quick                                            # seconds

A form of the CRF is written as words: `iob2` or `bioes`; `joined`: two neighbouring words or shapes as one feature;
`letters`: affixes of 5 and 6, runs of letters and the other features of `word_features.letter_features`; `cut=2`: no
joined or letter feature that the labelled text has fewer than two times; `l2=2`: the weight of the penalty.

No test of tagging_default.py is looked at, the odd sentences of the dev splits. Scored are

- WNUT-17 train in three thirds, each tagged by a tagger of the other two, which reads the models of another seed;
- the even sentences of WNUT-17 dev, with three seeds;
- of BC2GM and NCBI the 40,000 tokens of train after the 60,000 that tagging_default.py learns from, with three seeds.

F1 is given as the CRF tags and with O shifted, each half of the test by the shift that is best on the other half.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from data import Tagged, first_tokens, tab_separated
from scoring import Rows, Tags, bootstrap, f1, shown_p, span_counts, spread
from tagging_default import N_ITER, ROWS, Models, text_of
from undertow.results.tagging import CRFTagger, crf_features
from undertow.results.tagging.label_shift import OUTSIDE, SHIFTS, tagged_with_shifts
from undertow.results.tagging.scores import ALL_TYPES, span_scores

FORMS = ("iob2", "bioes", "iob2 joined letters", "bioes joined", "bioes letters", "bioes joined letters")
LEARNED, SCORED = 60_000, 40_000  # tokens of BC2GM and NCBI
RICH = ("run=", "p5=", "p6=", "s5=", "s6=", "digits=", "first=", "last=", "piece=", "-1,0:", "0,1:", "-1,1:", "-1,0,1:")


class Run(NamedTuple):
    """Labelled sentences to learn from and to score on, and the seed of the models that are read."""

    column: str
    part: int
    train: list[Tagged]
    test: list[Tagged]
    seed: int


def runs(seeds: list[int]) -> Iterator[Run]:
    wnut = tab_separated("wnut17-ner.train")
    thirds = [wnut[k * len(wnut) // 3 : (k + 1) * len(wnut) // 3] for k in range(3)]
    for k, seed in zip(range(3), seeds * 3, strict=False):
        rest = [s for i, third in enumerate(thirds) if i != k for s in third]
        yield Run("WNUT-17 train", k, rest, thirds[k], seed)
    for seed in seeds:
        yield Run("WNUT-17 dev, even", seed, wnut, tab_separated("wnut17-ner.dev")[::2], seed)
    for name, file in (("BC2GM", "bc2gm-ner"), ("NCBI", "ncbi-ner")):
        whole = tab_separated(f"{file}.train")
        train = first_tokens(whole, LEARNED)
        test = first_tokens(whole[len(train) :], SCORED)
        for seed in seeds:
            yield Run(name, seed, train, test, seed)


# --- forms of the CRF -----------------------------------------------------------------------------------


@contextlib.contextmanager
def form_of(words: str) -> Iterator[dict[str, Any]]:
    """Settings of the CRF; within the context it reads the spelling of this form."""
    told = words.split()
    numbers = {name: float(value) for name, _, value in (w.partition("=") for w in told) if value}
    read = crf_features.FeatureReader.read

    def cut(self: Any, sentences: Any, extra: Any, grow: bool) -> Any:
        tokens = read(self, sentences, extra, grow)
        return without_rare(tokens, self.attributes, numbers["cut"]) if grow else tokens

    with contextlib.ExitStack() as stack:
        if "joined" not in told:
            stack.enter_context(mock.patch.object(crf_features, "TEMPLATES", ()))
        if "letters" not in told:
            stack.enter_context(mock.patch.object(crf_features, "letter_features", lambda word: []))
        if "cut" in numbers:
            stack.enter_context(mock.patch.object(crf_features.FeatureReader, "read", cut))
        yield {"scheme": "bioes" if "bioes" in told else None, "l2": numbers.get("l2", 1.0)}


def without_rare(tokens: Any, attributes: dict[str, int], fewest: float) -> Any:
    """The tokens without joined and letter features that they have fewer than so many times."""
    rich = np.array([name.startswith(RICH) for name in attributes])
    counts = np.bincount(tokens.attribute, minlength=len(rich))
    stays = ~(rich & (counts < fewest))[tokens.attribute]
    row = np.concatenate(([0], np.cumsum(stays)))[tokens.row].astype(np.int64)
    value = tokens.value[stays] if len(tokens.value) else tokens.value
    return tokens._replace(row=row, attribute=tokens.attribute[stays], value=value)


class Remembered:
    """A representation that reads each batch of sentences once, for all forms."""

    def __init__(self, read: Any) -> None:
        self.read, self.name, self.window = read, read.name, read.window
        self.dense = getattr(read, "dense", False)
        self.kept: dict[str, Any] = {}

    def _once(self, make: Callable[[Any], Any], sentences: Any) -> Any:
        key = "\n".join(" ".join(s) for s in sentences)
        if key not in self.kept:
            self.kept[key] = make(sentences)
        return self.kept[key]

    def features(self, sentences: Any) -> Any:
        return self.read.features(sentences)

    def vectors(self, sentences: Any) -> Any:
        return self._once(self.read.vectors, sentences)

    def sparse_rows(self, sentences: Any) -> Any:
        return self._once(self.read.sparse_rows, sentences)


def tag(run: Run, features: list[Any], form: str, n_iter: int = N_ITER) -> Tags:
    """The tags of the test, and once more with O shifted."""
    words, gold = [s.words for s in run.test], [s.tags for s in run.test]
    with form_of(form) as settings:
        crf = CRFTagger(features, n_iter=n_iter, **settings)
        crf.fit([s.words for s in run.train], [s.tags for s in run.train])
        found = tagged_with_shifts(crf, words, OUTSIDE, SHIFTS)
    moved: Tags = [[]] * len(words)
    for own, other in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        score = {s: span_scores(gold[other], tags[other])[ALL_TYPES].f1 or 0.0 for s, tags in found.items()}
        moved[own] = found[max(score, key=lambda s: (score[s], -abs(s)))][own]
    return found[0.0] + moved


# --- scores ---------------------------------------------------------------------------------------------


class Scored(NamedTuple):
    """Span counts by sentence of all runs of a column, as tagged and with O shifted."""

    plain: list[Any]
    shifted: list[Any]


def line(form: str, found: dict[str, Scored], base: dict[str, Scored] | None) -> str:
    """A row of the table: means over seeds (thirds of WNUT-17 together), p against the base with O shifted."""
    cells = []
    for column, own in found.items():
        told = []
        for kind in ("plain", "shifted"):
            parts = getattr(own, kind)
            values = [f1(np.concatenate(parts).sum(0))] if column == "WNUT-17 train" else [f1(p.sum(0)) for p in parts]
            told.append(spread(100 * np.array(values), 1))
        p = ""
        if base is not None:
            ours, theirs = (np.concatenate(of[column].shifted) for of in (found, base))
            p = f" (p {shown_p(bootstrap(ours, theirs, n=2000))})"
        cells += [told[0], told[1] + p]
    return f"| {form} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="spelling alone; exit code 1: letters do not help")
    parser.add_argument("--forms", nargs="+", default=list(FORMS), help="the others are compared with the first")
    parser.add_argument("--columns", nargs="+", default=["WNUT-17 train", "WNUT-17 dev, even", "BC2GM", "NCBI"])
    parser.add_argument("--row", default="default", choices=list(ROWS), help="what the CRF reads beside the spelling")
    parser.add_argument("--n-iter", type=int, default=N_ITER, help="of L-BFGS")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the models")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    return quick() if options.quick else full(options)


def full(options: Any) -> int:
    rows = Rows(options.work, __file__)
    text = cache(lambda: text_of(8.0))
    scored: dict[str, dict[str, Scored]] = {form: {} for form in options.forms}
    for run in runs(options.seeds):
        if run.column not in options.columns:
            continue
        features: list[Any] = []
        for form in options.forms:
            key = f"{options.row}-{options.n_iter}-{run.column}-{run.part}-{run.seed}-{form}"
            if not rows.has(key) and not features and options.row != "spelling":
                features = [Remembered(f) for f in ROWS[options.row](Models(text, options.work, run.seed))]
            row = rows(key, lambda run=run, features=features, form=form: tag(run, features, form, options.n_iter))  # type: ignore[misc]
            counts = [span_counts(run.test, tags) for tags in (row.tags[: len(run.test)], row.tags[len(run.test) :])]
            column = scored[form].setdefault(run.column, Scored([], []))
            column.plain.append(counts[0])
            column.shifted.append(counts[1])
            told = [100 * f1(c.sum(0)) for c in counts]
            print(f"{key}: {told[0]:.2f}, shifted {told[1]:.2f} ({row.cpu:.0f} s)", flush=True)
    titles = [f"{c} {kind}" for c in scored[options.forms[0]] for kind in ("F1", "O shifted")]
    print(f"| | {' | '.join(titles)} |\n|---|{'---|' * len(titles)}")
    base = scored[options.forms[0]]
    for form, found in scored.items():
        print(line(form, found, None if found is base else base))
    return 0


def quick() -> int:
    """Genes from few labels by spelling alone: letters and joined words must help."""
    whole = tab_separated("bc2gm-ner.train")
    run = Run("BC2GM", 0, first_tokens(whole, 15_000), first_tokens(whole[::-1], 10_000), 0)
    score = {}
    for form in ("bioes", "bioes joined letters"):
        tags = tag(run, [], form, n_iter=30)[: len(run.test)]
        score[form] = 100 * float(f1(span_counts(run.test, tags).sum(0)))
        print(f"{form}: F1 {score[form]:.2f}", flush=True)
    return 0 if score["bioes joined letters"] > score["bioes"] else 1


if __name__ == "__main__":
    sys.exit(main())
