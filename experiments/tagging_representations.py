"""How the default representation of taggers was chosen: what to read of which models, on text that no table tests on.

    OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_representations.py                # all that was tried
    OMP_NUM_THREADS=1 .venv/bin/python experiments/tagging_representations.py --read "paths posteriors lds" "paths lds"
    .venv/bin/python experiments/tagging_representations.py --quick                          # half a minute

A candidate is written as the names of what it reads (`READS` has them all): the first one is the default, and the
others are compared with it. The verdict of tagging_default.py is of dev splits; here train files alone are read:

- WNUT-17: its first two thirds to learn from, the last to score;
- BC2GM and NCBI: 60,000 tokens, and the 60,000 after them;
- base phrases of EWT: 25,000 tokens, and 25,000 of its end;
- Penn tags of EWT: 20,000 tokens, scored on 20,000 each of its end, of CRAFT, of GENIA, and of MASC without the tenth
  that tagging_default.py tests on.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import representations
from base_phrases import ewt_phrases
from by_letters import HMMByLetters, LDSByLetters
from data import craft_articles, ewt, first_tokens, masc, tab_separated
from read_once import ReadOnce
from scoring import Rows, Tags, shown_p
from tagging_default import N_HIDDEN, Models, Problem, beside, columns, text_of
from tied_states import tied_states
from undertow import HMM
from undertow.results.tagging import CRFTagger, Paths, Posteriors, Vectors

N_ITER = 40  # of L-BFGS
FEWER_MILLIONS = 2.0  # settings of word2vec and tied HMMs are compared on less text, as they take long
less_text = cache(lambda: text_of(FEWER_MILLIONS))


# --- what can be read -----------------------------------------------------------------------------------


def paths(m: Models, scale: float = 1.0, window: int = 2, casing: str | None = "known") -> Any:
    return Paths(m("brown"), window=window, pieces=True, casing=casing, scale=scale)


def posteriors(
    m: Models, scale: float = 1.0, model: Any = None, casing: str | None = "known", name: str | None = None
) -> Any:
    return Posteriors(model or m("hmm"), name=name, window=1, pieces=True, casing=casing, scale=scale)


def lds(m: Models, scale: float = 2.0, model: Any = None) -> Any:
    return Vectors(model or m("lds"), "features", scale=scale, window=0, pieces=True, casing="frequent")


def pmi(m: Models, scale: float = 2.0, casing: str | None = "frequent", network_only: bool = True) -> Any:
    return Vectors(m("pmi"), network_only=network_only, scale=scale, window=0, pieces=True, casing=casing)


def without_letters(m: Models) -> Any:
    """Context vectors in which unknown words are one, and rare ones as training left them."""
    learned = representations.context(m.text(), min(128, m.n_components), m.work, seed=m.seed, letters=False)
    return Vectors(learned.model, network_only=True, scale=2.0, window=0, pieces=True, casing="frequent")


def more_states(m: Models, n_states: int) -> Any:
    """Posteriors of a larger HMM."""
    settings: dict[str, Any] = {"n_iter": 4, "n_chunks": 8, "init": "clusters"}
    model = representations.hmm(m.text(), n_states, m.work, seed=m.seed, **settings).model
    return posteriors(m, model=model, name="more-states")


def another(m: Models) -> Any:
    """Posteriors of an HMM of as many states from another seed."""
    settings: dict[str, Any] = {"n_iter": 4, "n_chunks": 8, "init": "clusters"}
    model = representations.hmm(m.text(), 80, m.work, seed=m.seed + 1000, **settings).model
    return posteriors(m, 2.0, model=model, name="again")


def by_blocks(m: Models, n_states: int) -> Any:
    """Posteriors of an HMM of many states with sparse emissions: tables, a block for every 32 states."""
    text = m.text()
    key = f"blocks-{n_states}-{m.seed}-{representations.key_of(text)}"
    model = HMM(n_states, parameterization="table", n_iter=4, n_chunks=8, random_state=m.seed, n_jobs=1)
    fitted = representations.kept(m.work, key, lambda: model.fit(text)).model
    return posteriors(m, model=fitted, name="blocks")


def tied(m: Models, n_states: int, embeddings: bool, casing: str = "frequent") -> Any:
    """Of a tied HMM on less text: its posteriors, or the embeddings of its states weighted by them."""
    found = tied_states(less_text(), n_states, 64, m.work, seed=m.seed)
    if embeddings:
        return Vectors(found, scale=2.0, window=0, pieces=True, casing=casing)
    return posteriors(m, model=found.model, name="tied")


def of_less_text(m: Models, n_states: int) -> Any:
    """Posteriors of an HMM on the text of the tied one."""
    settings: dict[str, Any] = {"n_iter": 4, "n_chunks": 8, "init": "clusters"}
    return posteriors(m, model=representations.hmm(less_text(), n_states, m.work, seed=m.seed, **settings).model)


def layers(m: Models, n_layers: int, n_states: int, text: Any = None) -> Any:
    model = representations.factorial(text or m.text(), n_layers, n_states, m.work, seed=m.seed, n_iter=3).model
    return posteriors(m, model=model, name="layers")


def word2vec(m: Models, window: int, skip_gram: bool, scale: float) -> Any:
    model = representations.word2vec(less_text(), 200, m.work, seed=m.seed, window=window, skip_gram=skip_gram).model
    return Vectors(model, "type", scale=scale, window=0, pieces=True)


def rival(m: Models, network_only: bool) -> Any:
    """The vectors of word2vec as tagging_default.py reads them for the rivals: words as they are spelled."""
    return Vectors(m("w2v"), "type", network_only=network_only, scale=2.0, window=0, pieces=True)


READS: dict[str, Callable[[Models], Any]] = {
    "paths": paths,
    "paths*2": lambda m: paths(m, 2.0),
    "paths/2": lambda m: paths(m, 0.5),
    "paths/4": lambda m: paths(m, 0.25),
    "paths-window=1": lambda m: paths(m, window=1),
    "spelled-paths": lambda m: paths(m, casing=None),
    "spelled-paths/2": lambda m: paths(m, 0.5, casing=None),
    "posteriors": posteriors,
    "posteriors*2": lambda m: posteriors(m, 2.0),
    "posteriors*4": lambda m: posteriors(m, 4.0),
    "posteriors*2-by-letters": lambda m: posteriors(m, 2.0, HMMByLetters(m("hmm"))),
    "posteriors-200": lambda m: more_states(m, 200),
    "posteriors-1024-blocks": lambda m: by_blocks(m, 1024),
    "posteriors-80-less-text": lambda m: of_less_text(m, 80),
    "posteriors-tied-1024": lambda m: tied(m, 1024, embeddings=False),
    "embeddings-tied-1024": lambda m: tied(m, 1024, embeddings=True),
    "embeddings-tied-1024-known": lambda m: tied(m, 1024, embeddings=True, casing="known"),
    "posteriors-again": another,
    "layers-2-30": lambda m: layers(m, 2, 30),
    "layers-2-30-less-text": lambda m: layers(m, 2, 30, less_text()),
    "spelled-posteriors": lambda m: posteriors(m, casing=None),
    "spelled-posteriors*2": lambda m: posteriors(m, 2.0, casing=None),
    "lds": lds,
    "lds-network": lambda m: beside(m, "lds"),
    "pmi": pmi,
    "context": lambda m: beside(m, "context"),
    "context-without-letters": without_letters,
    "pmi/2": lambda m: pmi(m, 1.0),
    "known-pmi": lambda m: pmi(m, casing="known"),
    "linear-pmi": lambda m: pmi(m, network_only=False),
    "word2vec": lambda m: rival(m, network_only=False),
    "word2vec-network": lambda m: rival(m, network_only=True),
    "lds*2": lambda m: lds(m, 4.0),
    "lds-by-letters": lambda m: lds(m, model=LDSByLetters(m("lds"))),
    "lds-by-letters-rare": lambda m: lds(m, model=LDSByLetters(m("lds"), rare=True)),
}
for kind, window, scale in itertools.product(("cbow", "sg"), (3, 5, 10), (1, 2, 4)):
    READS[f"{kind}-{window}*{scale}"] = partial(word2vec, window=window, skip_gram=kind == "sg", scale=float(scale))
CANDIDATES = [
    "paths posteriors lds",
    "spelling",
    "paths*2 posteriors lds",
    "paths/2 posteriors lds",
    "paths/4 posteriors lds",
    "paths posteriors*2 lds",
    "paths/2 posteriors*2 lds",
    "paths/2 posteriors*4 lds",
    "paths/2 posteriors lds*2",
    "paths posteriors lds-by-letters",
    "paths posteriors lds-by-letters-rare",
    "paths/2 posteriors*2-by-letters lds",
    *(f"{kind}-{window}*2" for kind in ("cbow", "sg") for window in (3, 5, 10)),
]


# --- the problems ---------------------------------------------------------------------------------------


def problems() -> Iterator[Problem]:
    wnut = tab_separated("wnut17-ner.train")
    cut = 2 * len(wnut) // 3
    yield Problem("WNUT-17", wnut[:cut], {"WNUT-17": wnut[cut:]})
    for name, file in (("BC2GM", "bc2gm-ner"), ("NCBI", "ncbi-ner")):
        whole = tab_separated(f"{file}.train")
        train = first_tokens(whole, 60_000)
        yield Problem(name, train, {name: first_tokens(whole[len(train) :], 60_000)})
    phrases, labelled = ewt_phrases("train"), ewt("train")
    yield Problem("phrases", first_tokens(phrases, 25_000), {"phrases": first_tokens(phrases[::-1], 25_000)})
    craft = [s for article in craft_articles("train") for s in article]
    genia, other = tab_separated("genia-pos.train"), masc()
    tests = {
        "EWT": first_tokens(labelled[::-1], 20_000),
        "CRAFT": first_tokens(craft[:: len(craft) // 900], 20_000),
        "GENIA": first_tokens(genia[:: len(genia) // 900], 20_000),
        "MASC": first_tokens(other[5::20], 20_000),
    }
    yield Problem("tags", first_tokens(labelled, 20_000), tests)


def shortened(problem: Problem, n_tokens: int | None) -> Problem:
    return problem if n_tokens is None else problem._replace(train=first_tokens(problem.train, n_tokens))


def tag(problem: Problem, features: list[Any], n_iter: int, n_hidden: int) -> Tags:
    crf = CRFTagger(features, n_iter=n_iter, scheme="bioes", n_hidden=n_hidden, random_state=0)
    crf.fit([s.words for s in problem.train], [s.tags for s in problem.train])
    return crf.predict([s.words for s in problem.test])


# --- the table ------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything; exit code 1: the paths do not help")
    parser.add_argument("--read", nargs="+", default=CANDIDATES, help="candidates, compared with the first")
    parser.add_argument("--labelled", type=int, help="the first so many tokens of the train text alone")
    parser.add_argument("--problems", nargs="+", default=["WNUT-17", "BC2GM", "NCBI", "phrases", "tags"])
    parser.add_argument("--n-iter", type=int, default=N_ITER, help="of L-BFGS")
    parser.add_argument("--n-hidden", type=int, default=N_HIDDEN, help="units of the network in the CRF; 0: linear")
    parser.add_argument("--seed", type=int, default=0, help="of the models")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.quick:
        return quick()
    chosen = [shortened(p, options.labelled) for p in problems() if p.name in options.problems]
    models = Models(cache(lambda: text_of(8.0)), options.work, options.seed)
    rows = Rows(options.work, __file__)
    print("\n".join(table(chosen, options.read, models, rows, options.n_iter, options.n_hidden)))
    return 0


def table(
    chosen: list[Problem], candidates: list[str], models: Models, rows: Rows, n_iter: int, n_hidden: int
) -> list[str]:
    """Scores of all candidates, with p against the first."""
    made = cache(lambda name: READS[name](models))
    cells: dict[str, list[str]] = {}
    for problem in chosen:
        read_once = cache(lambda name: ReadOnce(made(name)))  # the vectors of one problem are held at a time
        base: list[Any] = []
        for told in candidates:

            def make(problem: Problem = problem, told: str = told, read_once: Any = read_once) -> Tags:
                return tag(problem, [read_once(name) for name in told.split() if name != "spelling"], n_iter, n_hidden)

            n = sum(len(s.words) for s in problem.train)
            row = rows(f"{problem.name}-{n}-{told.replace('/', '÷')}-{models.seed}-{n_iter}-{n_hidden}", make)
            found = [c.of(row.tags) for c in columns([problem])]
            for c, own, first in zip(columns([problem]), found, base or found, strict=True):
                p = f" (p {shown_p(c.p(own, first))})" if base else ""
                cells.setdefault(told, []).append(f"{c.value(own):.1f}{p}")
                print(f"{c.title}: {told}: {cells[told][-1]} ({row.cpu:.0f} s)", flush=True)
            base = base or found
    titles = [c.title for c in columns(chosen)]
    lines = [f"| | {' | '.join(titles)} |", "|---|" + "---|" * len(titles)]
    return lines + [f"| {told} | {' | '.join(values)} |" for told, values in cells.items()]


def quick() -> int:
    """Few labels and little text: cluster paths must help to find genes."""
    whole = tab_separated("bc2gm-ner.train")
    problem = Problem("BC2GM", first_tokens(whole, 10_000), {"BC2GM": first_tokens(whole[::-1], 10_000)})
    [column] = columns([problem])
    with tempfile.TemporaryDirectory() as place:
        models = Models(cache(lambda: text_of(0.5)), Path(place), 0, n_clusters=100, n_components=20)
        table([problem], ["spelling", "paths"], models, rows := Rows(Path(place), __file__), 30, 0)
        n = sum(len(s.words) for s in problem.train)
        score = {
            told: column.value(column.of(rows(f"BC2GM-{n}-{told}-0-30-0", lambda: []).tags))
            for told in ("spelling", "paths")
        }
    return 0 if score["paths"] > score["spelling"] else 1


if __name__ == "__main__":
    sys.exit(main())
