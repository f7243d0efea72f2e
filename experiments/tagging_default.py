"""Which representation should taggers read by default? Names, base phrases and tags from few labels (issue 14).

    .venv/bin/pip install -c constraints.txt '.[rivals]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_default.py        # writes results/tagging_default.md
    .venv/bin/python experiments/tagging_default.py --quick                  # 15 s: does the claim point the right way?

One text of 8 M tokens for all rows: 3 M of eLife, WikiText-2 train, 1 M each of books, court opinions and UN speeches.
The labelled text is no part of it. The claim: our models, looked up in other casings, beat Brown clusters, word2vec,
and word2vec + Brown + HMM, whose vectors are read by both parts of the CRF or by its network alone. Everything was
chosen on other text, by tagging_representations.py and tagging_choices.py on train files, and before them on the even
sentences of the dev splits (results' notes say what was looked at); this page is of the odd ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import representations
from base_phrases import ewt_phrases
from data import (
    LEFT_OUT,
    Tagged,
    _as_running,
    _speeches,
    craft_articles,
    ewt,
    first,
    first_tokens,
    lines_of,
    masc,
    records,
    tab_separated,
    tokenized,
)
from pages import notes_of, write_page
from scoring import Rows, Tags, bootstrap, f1, groups, mcnemar, processor_seconds, right, shown_p, span_counts, spread
from undertow import Corpus, Tokenizer
from undertow.results.tagging import CRFTagger, Paths, Posteriors, Vectors
from undertow.text.vocabulary import UNKNOWN

N_ITER = 60  # of L-BFGS
L2 = 1.0
N_LABELLED = {"WNUT-17": 100_000, "BC2GM": 60_000, "NCBI": 60_000, "phrases": 40_000, "tags": 40_000}
SURE = 0.05
SCALES = 0.5, 2.0  # of cluster paths and of posteriors, where both are read
N_HIDDEN = 128  # of the network in the CRF, as `Tagger` has it
HELD_OUT = 10  # of so many sentences one is held out to choose the threshold of spans


class Problem(NamedTuple):
    name: str
    train: list[Tagged]
    tests: dict[str, list[Tagged]]

    @property
    def test(self) -> list[Tagged]:
        return [s for part in self.tests.values() for s in part]


# --- the text and the models ----------------------------------------------------------------------------


def text_of(millions: float) -> Corpus:
    """The text; with less than 8 million tokens all parts are shorter."""
    share = millions / 8

    def sentences() -> Iterator[list[str]]:
        opinions = ("\n".join(opinion["text"]) for opinion in records("text/scotus.jsonl.xz"))
        parts: list[tuple[float, Iterable[str]]] = [
            (3.0, lines_of("text/elife.txt.xz")),
            (1.0, lines_of("text/books.txt.xz")),
            (1.0, opinions),
            (1.0, _speeches()),
            (2.1, map(_as_running, lines_of("text/wikitext2.train.txt.xz"))),
        ]
        for size, lines in parts:
            for sentence in first(tokenized(lines), round(size * share * 1e6)):
                yield [UNKNOWN if token == LEFT_OUT else token for token in sentence]

    corpus = Corpus.from_sentences(sentences(), min_count=2, unknown_classes=True)
    return Corpus(corpus.ids, corpus.offsets, corpus.vocabulary, manifest={"tokenizer": Tokenizer().describe()})


class Models:
    """The models of one seed on one text, each learned when it is first asked for."""

    def __init__(
        self,
        text: Any,
        work: Path,
        seed: int,
        n_clusters: int = 1000,
        n_components: int = 200,
        word2vec: str = "cbow-3",
    ) -> None:
        self.text, self.work, self.seed, self.word2vec = text, work, seed, word2vec
        self.took: dict[str, float] = {}
        self.n_clusters, self.n_components = n_clusters, n_components

    @cache  # noqa: B019  # a handful of models that live as long as the run
    def __call__(self, name: str) -> Any:
        text, work, seed = self.text(), self.work, self.seed
        if name == "w2v":
            kind, _, window = self.word2vec.partition("-")
            learned = representations.word2vec(
                text, self.n_components, work, seed=seed, window=int(window), skip_gram=kind == "sg"
            )
        elif name == "brown":
            learned = representations.clusters(text, work, self.n_clusters, n_iter=12)  # nothing in it is random
        elif name == "hmm":
            learned = representations.hmm(text, 80, work, seed=seed, n_iter=4, n_chunks=8, init="clusters")
        elif name == "context":
            learned = representations.context(text, min(128, self.n_components), work, seed=seed)
        elif name == "pmi":
            learned = representations.pmi(text, self.n_components, work, seed=seed)
        else:
            learned = representations.lds(text, self.n_components, work, seed=seed)
        self.took[name] = learned.cpu
        return learned.model


def vectors(m: Models, name: str, casing: str | None, network_only: bool = False) -> Any:
    """Those of the LDS are of the word and of the token in its context, those of word2vec of the word alone."""
    view = {"lds": "features", "w2v": "type"}.get(name)
    return Vectors(m(name), view, network_only=network_only, scale=2.0, window=0, pieces=True, casing=casing)


def beside(m: Models, name: str) -> Any:
    """Vectors that the network of the CRF reads alone."""
    return vectors(m, name, "frequent", network_only=True)


def discrete(m: Models, casing: str | None = "known") -> list[Any]:
    """Paths and posteriors; the rivals too have these scales, which were chosen for ours."""
    return [
        Paths(m("brown"), window=2, pieces=True, casing=casing, scale=SCALES[0]),
        Posteriors(m("hmm"), window=1, pieces=True, casing=casing, scale=SCALES[1]),
    ]


def default(m: Models, *left_out: str) -> list[Any]:
    """As `Tagger` reads its models."""
    return [*discrete(m), *(beside(m, name) for name in ("lds", "pmi", "context") if name not in left_out)]


def layered(m: Models) -> Any:
    """The posteriors of a FactorialHMM of two layers, read as those of the HMM."""
    model = representations.factorial(m.text(), 2, 30, m.work, seed=m.seed, n_iter=3).model
    return Posteriors(model, name="layers", window=1, pieces=True, casing="known")


def rival(m: Models, network_only: bool = False) -> list[Any]:
    """word2vec + Brown + HMM, looked up as spelled."""
    return [*discrete(m, None), vectors(m, "w2v", None, network_only)]


ROWS: dict[str, Any] = {
    "spelling": lambda m: [],
    "default": default,
    "default without LDS": lambda m: default(m, "lds"),
    "default without PMI vectors": lambda m: default(m, "pmi"),
    "default without context vectors": lambda m: default(m, "context"),
    "default with layers": lambda m: [*default(m), layered(m)],
    "default, LDS for both parts": lambda m: [*discrete(m), vectors(m, "lds", "frequent"), *default(m, "lds")[2:]],
    "linear CRF, LDS + Brown + HMM, other casings": lambda m: [*discrete(m), vectors(m, "lds", "frequent")],
    "word2vec + Brown + HMM": rival,
    "word2vec for the network + Brown + HMM": lambda m: rival(m, network_only=True),
    "Brown": lambda m: [Paths(m("brown"), window=2, pieces=True)],
    "word2vec": lambda m: [vectors(m, "w2v", None)],
    "LDS": lambda m: [vectors(m, "lds", None)],
    "LDS + Brown + HMM": lambda m: [*discrete(m, None), vectors(m, "lds", None)],
    "default without vectors": discrete,
}
LINEAR = (
    "linear CRF, LDS + Brown + HMM, other casings",
)  # without a network; all other rows have one if there are vectors to read
NOT_RANDOM = ("spelling", "Brown")
ONE_SEED = (*NOT_RANDOM, "default without vectors")
RIVALS = ["Brown", "word2vec", "word2vec + Brown + HMM", "word2vec for the network + Brown + HMM"]
# rows of problems with spans, decoded as a `Tagger` does, and the rows that read the same
BY_PROBABILITY = {name: f"{name}, spans by probability" for name in ("default", *RIVALS[2:])}
COMPARED = [
    *(("default", rival) for rival in RIVALS),
    *((BY_PROBABILITY["default"], BY_PROBABILITY[rival]) for rival in RIVALS[2:]),
]


# --- the problems ---------------------------------------------------------------------------------------


def odd(sentences: list[Tagged], n_tokens: int = 10**9) -> list[Tagged]:
    """The half of a dev split on which nothing was chosen."""
    return first_tokens(sentences[1::2], n_tokens)


def problems() -> Iterator[Problem]:
    for name, file in (("WNUT-17", "wnut17-ner"), ("BC2GM", "bc2gm-ner"), ("NCBI", "ncbi-ner")):
        train = first_tokens(tab_separated(f"{file}.train"), N_LABELLED[name])
        yield Problem(name, train, {name: odd(tab_separated(f"{file}.dev"))})
    train = first_tokens(ewt_phrases("train"), N_LABELLED["phrases"])
    yield Problem("phrases", train, {"phrases": odd(ewt_phrases("dev"))})
    craft = [s for article in craft_articles("dev") for s in article]
    tests = {
        "EWT": odd(ewt("dev")),
        "CRAFT": odd(craft, 20_000),
        "GENIA": odd(tab_separated("genia-pos.dev"), 20_000),
        "MASC": odd(masc()[::10], 20_000),
    }
    yield Problem("tags", first_tokens(ewt("train"), N_LABELLED["tags"]), tests)


def exchanged() -> Iterator[Problem]:
    """Genes and diseases with more spans than dev has: learned from the second part of train, tested on the first.

    The default was chosen by taggers of the first part; no tagger had been tested on it.
    """
    for name, file in (("BC2GM", "bc2gm-ner"), ("NCBI", "ncbi-ner")):
        whole = tab_separated(f"{file}.train")
        first_part = first_tokens(whole, N_LABELLED[name])
        rest = first_tokens(whole[len(first_part) :], N_LABELLED[name])
        yield Problem(f"{name} exchanged", rest, {name: first_part})


def trained(train: list[Tagged], features: list[Any], n_hidden: int, seed: int) -> CRFTagger:
    crf = CRFTagger(features, l2=L2, n_iter=N_ITER, scheme="bioes", n_hidden=n_hidden, random_state=seed)
    return crf.fit([s.words for s in train], [s.tags for s in train])


def tag(problem: Problem, features: list[Any], n_hidden: int = N_HIDDEN, seed: int = 0) -> Tags:
    return trained(problem.train, features, n_hidden, seed).predict([s.words for s in problem.test])


def threshold_of(problem: Problem, features: list[Any], n_hidden: int = N_HIDDEN, seed: int = 0) -> float | None:
    """The threshold of spans that held-out sentences of train choose for a tagger of the others."""
    held = problem.train[HELD_OUT - 1 :: HELD_OUT]
    rest = [s for i, s in enumerate(problem.train) if i % HELD_OUT != HELD_OUT - 1]
    tagger = trained(rest, features, n_hidden, seed)
    return tagger.tune_spans([s.words for s in held], [s.tags for s in held]).span_threshold_


def tag_by_probability(tagger: CRFTagger, problem: Problem, threshold: float | None) -> Tags:
    """The tags of a tagger that takes the spans of at least this probability."""
    print(f"{problem.name}: spans from a probability of {threshold} on", flush=True)
    tagger.span_threshold_ = threshold
    tags = tagger.predict([s.words for s in problem.test])
    tagger.span_threshold_ = None
    return tags


# --- scores ---------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of the table: a test part, and how it is scored."""

    title: str
    problem: Problem
    part: str
    kind: str  # "f1", "unseen" (spans whose first word was not seen) or "oov" (errors on unseen words)

    def of(self, tags: Tags) -> Any:
        """Right and wrong by unseen token (oov), or counts by sentence."""
        at = 0
        for name, part in self.problem.tests.items():
            if name == self.part:
                own = tags[at : at + len(part)]
                if self.kind == "oov":
                    return right(part, own)[groups(self.problem.train, part)["OOV"]]
                return span_counts(part, own) if self.kind == "f1" else self._unseen(part, own)
            at += len(part)
        raise KeyError(self.part)

    def _unseen(self, gold: list[Tagged], tags: Tags) -> Any:
        seen = {word for s in self.problem.train for word in s.words}
        kept = []
        for s, found in zip(gold, tags, strict=True):
            new = [word not in seen for word in s.words]
            kept.append((Tagged(s.words, _from_new(s.tags, new)), _from_new(found, new)))
        return span_counts([s for s, _ in kept], [t for _, t in kept])

    def value(self, found: Any) -> float:
        return 100 * float(1 - found.mean() if self.kind == "oov" else f1(found.sum(0)))

    def p(self, ours: Any, theirs: Any) -> float:
        return mcnemar(ours, theirs) if self.kind == "oov" else bootstrap(ours, theirs)

    def p_of_seeds(self, ours: list[Tags], theirs: list[Tags]) -> float:
        """By the spans of all seeds together, drawn by sentence; of tags by the first seed."""
        if self.kind == "oov":
            return self.p(self.of(ours[0]), self.of(theirs[0]))
        n = max(len(ours), len(theirs))
        return self.p(*(sum(self.of(tags) for tags in (rows * n)[:n]) for rows in (ours, theirs)))


def _from_new(tags: list[str], new: list[bool]) -> list[str]:
    """The tags of spans that begin at a new word, O elsewhere."""
    out, keep = [], False
    for tag_, is_new in zip(tags, new, strict=True):
        if not tag_.startswith("I-"):
            keep = is_new
        out.append(tag_ if keep else "O")
    return out


def columns(all_problems: list[Problem]) -> list[Column]:
    out = []
    for problem in all_problems:
        for part in problem.tests:
            if problem.name == "tags":
                out.append(Column(f"EWT→{part}, OOV error", problem, part, "oov"))
            else:
                out.append(Column(f"{part} F1", problem, part, "f1"))
        if problem.name == "phrases":
            out.append(Column("phrases F1, unseen first word", problem, "phrases", "unseen"))
    return out


def table(found: dict[str, dict[str, list[Tags]]], all_problems: list[Problem]) -> tuple[list[str], Any]:
    """Means over seeds; p-values of the default against each rival decoded alike."""
    chosen = columns(all_problems)
    lines = [f"| | {' | '.join(c.title for c in chosen)} |", "|---|" + "---|" * len(chosen)]
    data: dict[str, dict[str, list[float]]] = {}
    for name in [*ROWS, *BY_PROBABILITY.values()]:
        cells = []
        for c in chosen:
            values = [c.value(c.of(tags)) for tags in found.get(name, {}).get(c.problem.name, [])]
            data.setdefault(name, {})[c.title] = values
            cells.append(spread(values, 1) if values else "")
        if any(cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "The default against its rivals, p by column (bootstrap over sentences, spans of all seeds together; "
        "McNemar for tags, first seed):",
        "",
    ]
    lines += [f"| | {' | '.join(c.title for c in chosen)} |", "|---|" + "---|" * len(chosen)]
    for default_, rival in COMPARED:
        cells = []
        for c in chosen:
            pair = [found.get(name, {}).get(c.problem.name, []) for name in (default_, rival)]
            cells.append(shown_p(c.p_of_seeds(*pair)) if all(pair) else "")
        lines.append(f"| {rival} | {' | '.join(cells)} |")
    return lines, data


def verdict(found: dict[str, dict[str, list[Tags]]], all_problems: list[Problem]) -> str:
    """In how many columns the mean of the default is better than each rival's; which of these are beyond chance."""
    told = []
    for default_, rival in COMPARED:
        better, sure, other = 0, 0, []
        for c in columns(all_problems):
            ours, theirs = (
                [c.of(tags) for tags in found.get(name, {}).get(c.problem.name, [])] for name in (default_, rival)
            )
            if not ours or not theirs:
                continue
            gain = float(np.mean([c.value(x) for x in ours]) - np.mean([c.value(x) for x in theirs]))
            gain = -gain if c.kind == "oov" else gain
            pair = [found[name][c.problem.name] for name in (default_, rival)]
            beyond_chance = c.p_of_seeds(*pair) < SURE
            better += gain > 0
            sure += gain > 0 and beyond_chance
            if gain <= 0:
                other.append(f"{c.title} ({gain:.1f}{', beyond chance' if beyond_chance else ''})")
        behind = f"; behind on {', '.join(other)}" if other else ""
        if better + len(other) or rival in RIVALS:
            told.append(f"of {rival} in {better} of {better + len(other)} columns ({sure} with p < {SURE}{behind})")
    return f"**The default is ahead {', '.join(told[:-1])} and {told[-1]}.**"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything; exit code 1: the claim fails")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the models")
    parser.add_argument("--word2vec", default="cbow-3", help="cbow or sg (skip-gram), and the window")
    parser.add_argument("--rows", nargs="+", default=[*ROWS], help="which rows, by name")
    parser.add_argument("--problems", nargs="+", help="only these, as WNUT-17 or tags; print, write no page")
    parser.add_argument("--exchanged", action="store_true", help="names of train files instead; print, write no page")
    parser.add_argument("--report", action="store_true", help="train nothing: write what is kept in --work")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.quick:
        return quick()
    full(options)
    return 0


def taggings(name: str, problem: Problem, models: Models) -> Iterator[tuple[str, Callable[[], Tags]]]:
    """The rows of one tagger by name, and how each is made: decoded as it is, and its spans by their probabilities."""
    n_hidden = 0 if name in LINEAR else N_HIDDEN
    whole = cache(lambda: trained(problem.train, ROWS[name](models), n_hidden, models.seed))
    yield name, lambda: whole().predict([s.words for s in problem.test])
    if name in BY_PROBABILITY and problem.name != "tags":
        chosen = cache(lambda: threshold_of(problem, ROWS[name](models), n_hidden, models.seed))
        yield BY_PROBABILITY[name], lambda: tag_by_probability(whole(), problem, chosen())


def full(options: Any) -> None:
    rows = Rows(options.work, __file__)
    text = cache(lambda: text_of(8.0))
    all_problems = list(exchanged() if options.exchanged else problems())
    chosen = [p for p in all_problems if options.problems is None or p.name in options.problems]
    found: dict[str, dict[str, list[Tags]]] = {}
    took: dict[str, float] = {}
    for seed in options.seeds:
        models = Models(text, options.work, seed, word2vec=options.word2vec)
        for name, problem in itertools.product(options.rows, chosen):
            if name in ONE_SEED and seed:
                continue
            for shown, tags in taggings(name, problem, models):
                key = f"{problem.name}-{shown}-{seed}" + (f"-{options.word2vec}" if "word2vec" in name else "")
                if options.report and not rows.has(key):
                    continue
                row = rows(key, tags)
                found.setdefault(shown, {}).setdefault(problem.name, []).append(row.tags)
                scores = [f"{c.title} {c.value(c.of(row.tags)):.2f}" for c in columns([problem])]
                print(f"{key}: {', '.join(scores)} ({row.cpu:.0f} s)", flush=True)
        took |= models.took
    lines, data = table(found, all_problems)
    if options.exchanged or options.problems:
        print("\n".join([verdict(found, all_problems), "", *lines]))
        return
    sizes = ", ".join(f"{p.name} {sum(len(s.words) for s in p.train):,}" for p in all_problems)
    head = [
        "# The default representation of taggers",
        "",
        verdict(found, all_problems),
        "",
        "`OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_default.py`. F1 of spans and errors on words that "
        "are not in the labelled text, in per cent; mean ± standard deviation over seeds of the models (one seed where "
        f"there is no ±; spelling and Brown have nothing random). Tokens to learn from: {sizes}. Tests: the odd "
        f"sentences of the dev splits. word2vec: {options.word2vec}.",
        "",
    ]
    write_page(
        "tagging_default", "\n".join([*head, *lines]) + "\n" + notes_of("tagging_default"), __file__, vars(options)
    )
    print("\n".join(lines))
    print(json.dumps({"seconds to learn": took, "rows": len(data)}))


def quick() -> int:
    """Few labels and little text, all of it from train files: other casings must help on unseen words."""
    began = time.perf_counter(), processor_seconds()
    with tempfile.TemporaryDirectory() as place:
        text = cache(lambda: text_of(0.5))
        models = Models(text, Path(place), 0, n_clusters=100, n_components=20)
        labelled = ewt("train")
        problem = Problem("tags", first_tokens(labelled, 10_000), {"EWT": first_tokens(labelled[::-1], 10_000)})
        [column] = columns([problem])
        error = {}
        for name, casing in (("spelling", None), ("as spelled", None), ("other casings", "frequent")):
            features = [] if name == "spelling" else [Paths(models("brown"), window=2, casing=casing)]
            features += [] if name == "spelling" else [vectors(models, "lds", casing)]
            error[name] = column.value(column.of(tag(problem, features)))
            print(f"{name}: OOV error {error[name]:.2f}", flush=True)
    print(f"{time.perf_counter() - began[0]:.0f} s by the clock, {processor_seconds() - began[1]:.0f} of the processor")
    good = error["other casings"] < error["as spelled"] < error["spelling"]
    print("Other casings help." if good else "The claim fails at this size.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
