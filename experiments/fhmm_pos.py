"""Do layers of states help a tagger out of its domain? (Nepal & Yates: web and news labels, biomedical test.)

    .venv/bin/pip install -c constraints.txt '.[crf]'
    OMP_NUM_THREADS=1 .venv/bin/python experiments/fhmm_pos.py            # writes experiments/results/fhmm_pos.md
    .venv/bin/python experiments/fhmm_pos.py --quick                      # a few minutes: less of everything
    .venv/bin/python experiments/fhmm_pos.py --select                     # for choosing settings

Representations from the first tokens of eLife and the labelled text without its tags; a CRF trained by the averaged
perceptron (python-crfsuite) on EWT train and MASC, tested on GENIA dev and CRAFT dev. OOV: never in the labelled text;
rare: at most twice (OOV counted). With --select the test is the end of MASC, which the training then lacks.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pos_data import Tagged, craft_articles, data_dir, respell

from undertow import HMM, Corpus, FactorialHMM


class Scale(NamedTuple):
    """How much of everything."""

    text: int  # tokens of eLife
    held_out: int  # tokens of eLife behind them, for the likelihood
    words: int  # of the vocabulary
    labelled: int  # tokens of EWT and of MASC, each
    test: int  # tokens of each test set
    passes: int  # of EM
    wide_passes: int  # of EM for five layers
    seeds: int
    wide_seeds: int
    rounds: int  # of the perceptron


FULL = Scale(400_000, 30_000, 15_000, 60_000, 30_000, 6, 2, 3, 1, 5)
QUICK = Scale(100_000, 10_000, 5_000, 30_000, 10_000, 3, 1, 1, 1, 4)


SAME = {"(": "-LRB-", ")": "-RRB-"}  # one tag, two names

# --- text -----------------------------------------------------------------------------------------------


def lines_of(name: str) -> Iterator[str]:
    with lzma.open(data_dir() / "labelled" / name, "rt", encoding="utf-8", newline="\n") as f:
        for line in f:
            yield line.rstrip("\n")


def sentences_of(rows: Iterator[tuple[str, str] | None]) -> list[Tagged]:
    """Runs of (word, tag) between None."""
    out, words, tags = [], [], []
    for row in itertools.chain(rows, [None]):
        if row is not None:
            words.append(row[0])
            tags.append(SAME.get(row[1], row[1]))
        elif words:
            out.append(Tagged(words, tags))
            words, tags = [], []
    return out


def ewt() -> list[Tagged]:
    def rows() -> Iterator[tuple[str, str] | None]:
        for line in lines_of("ud-en-ewt.train.conllu.xz"):
            parts = line.split("\t")
            if len(parts) == 10 and parts[0].isdigit():
                yield parts[1], parts[4]
            elif not line:
                yield None

    return sentences_of(rows())


def masc() -> list[Tagged]:
    """word_TAG with Penn tags; lines that are not so (titles of documents, junk tags) are left out."""
    out = []
    for line in lines_of("masc-pos.txt.xz"):
        pairs = [token.rpartition("_") for token in line.split()]
        good = [
            (w, t)
            for w, _, t in pairs
            if w and t and (t.isupper() or not any(c.isalnum() for c in t) or t in ("PRP$", "WP$"))
        ]
        if good and len(good) == len(pairs):
            out.append(Tagged([w for w, _ in good], [SAME.get(t, t) for _, t in good]))
    return out


def tab_separated(name: str) -> list[Tagged]:
    rows = (tuple(line.split("\t")[:2]) if "\t" in line else None for line in lines_of(name))
    return sentences_of(rows)  # type: ignore[arg-type]


def first_tokens(sentences: list[Any], n: int) -> list[Any]:
    lengths = np.cumsum([len(s.words) if isinstance(s, Tagged) else len(s) for s in sentences])
    return sentences[: int(np.searchsorted(lengths, n)) + 1]


# --- the tagger -----------------------------------------------------------------------------------------


def lexical(words: list[str]) -> list[list[str]]:
    """Word, affixes and shape of each token, words within two places."""
    out = []
    lower = [w.lower() for w in words]
    for i, word in enumerate(words):
        f = ["1", f"w={lower[i]}"]
        f += [f"s{n}={lower[i][-n:]}" for n in (1, 2, 3, 4) if len(word) > n]
        f += [f"p{n}={lower[i][:n]}" for n in (1, 2, 3) if len(word) > n]
        seen = {
            "A": word[0].isupper(),
            "AA": word.isupper(),
            "#": any(c.isdigit() for c in word),
            "-": "-" in word,
            "*": not any(c.isalnum() for c in word),
        }
        f += [name for name, yes in seen.items() if yes]
        f += [f"w{d}={lower[i + d] if 0 <= i + d < len(words) else '|'}" for d in (-2, -1, 1, 2)]
        out.append(f)
    return out


def with_states(features: list[list[str]], states: Any) -> list[list[str]]:
    """States (n, M) of a token and its neighbours."""
    names = [[f"{m}={k}" for m, k in enumerate(row)] for row in states.reshape(len(features), -1).tolist()]
    out = []
    for i, f in enumerate(features):
        here = [f"z{d}:{s}" for d in (-1, 0, 1) if 0 <= i + d < len(features) for s in names[i + d]]
        out.append(f + here)
    return out


def with_posteriors(features: list[list[str]], gamma: Any) -> list[dict[str, float]]:
    """Probabilities (n, M·K) of a token's states, those above 5 %, and of its neighbours'."""
    strong = [{str(j): float(row[j]) for j in np.flatnonzero(row > 0.05).tolist()} for row in gamma]
    out = []
    for i, f in enumerate(features):
        here = dict.fromkeys(f, 1.0)
        for d in (-1, 0, 1):
            if 0 <= i + d < len(features):
                here |= {f"q{d}:{j}": p for j, p in strong[i + d].items()}
        out.append(here)
    return out


def tag(train: Any, tags: list[list[str]], tests: list[Any], rounds: int) -> list[list[list[str]]]:
    """Tags of the test sentences by a CRF trained with the averaged perceptron."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer(algorithm="ap", verbose=False, params={"max_iterations": rounds})
    for x, y in zip(train, tags, strict=True):
        trainer.append(x, y)
    with tempfile.NamedTemporaryFile() as f:
        trainer.train(f.name)
        tagger = pycrfsuite.Tagger()
        tagger.open(f.name)
        return [[tagger.tag(x) for x in part] for part in tests]


class Row(NamedTuple):
    name: str
    seed: int
    seconds: float  # to learn the representation
    errors: list[tuple[float, float, float]]  # all, OOV, rare for each test set


class Data(NamedTuple):
    train: list[Tagged]
    tests: dict[str, list[Tagged]]
    spelt: list[list[list[str]]]  # train and tests as the vocabulary spells them
    rounds: int


def measure(data: Data, name: str, seed: int, seconds: float, states: Any, soft: bool) -> Row:
    """Train and test one tagger; states is None or, for train and each test, an array a sentence."""
    parts = [data.train, *data.tests.values()]
    features: list[Any] = []
    for p, part in enumerate(parts):
        plain = [lexical(s.words) for s in part]
        if states is not None:
            add = with_posteriors if soft else with_states
            plain = [add(f, z) for f, z in zip(plain, states[p], strict=True)]
        features.append(plain)
    found = tag(features[0], [s.tags for s in data.train], features[1:], data.rounds)
    seen = Counter(w.lower() for s in data.train for w in s.words)
    errors = []
    for part, tags in zip(parts[1:], found, strict=True):
        wrong = np.array([a != b for s, t in zip(part, tags, strict=True) for a, b in zip(s.tags, t, strict=True)])
        times = np.array([seen[w.lower()] for s in part for w in s.words])
        errors.append(tuple(100 * float(wrong[pick].mean()) for pick in (times >= 0, times == 0, times <= 2)))
    return Row(name, seed, seconds, errors)  # type: ignore[arg-type]


# --- representations ------------------------------------------------------------------------------------


def read_text(scale: Scale, train: list[Tagged], work: Path) -> tuple[Corpus, list[list[str]]]:
    """Text for the representations (eLife, then the labelled text without tags), and eLife held out."""
    if not (work / "elife.corpus").exists():
        Corpus.build([data_dir() / "text" / "elife.txt.xz"], work / "elife.corpus", n_jobs=2)
    whole = Corpus.open(work / "elife.corpus", verify=False)
    n = scale.text + scale.held_out
    elife = first_tokens(list(itertools.islice(whole.token_lists(), int(np.searchsorted(whole.offsets, n)) + 1)), n)
    text = first_tokens(elife, scale.text)
    labelled = [respell(s.words, whole.vocabulary) for s in train]
    corpus = Corpus.from_sentences(text + labelled, vocab_size=scale.words, unknown_classes=True)
    return corpus, elife[len(text) :]


def models(scale: Scale) -> Iterator[tuple[str, int, Any, list[tuple[str, bool]]]]:
    """Name, seed, estimator, and the rows that its states make (soft or not)."""
    for seed in range(scale.seeds):
        fhmm = {"random_state": seed, "n_jobs": 2, "batch_size": 25_000, "smoothing": 0.5}
        hmm = {
            "random_state": seed,
            "n_jobs": 2,
            "n_blocks": 1,
            "n_iter": scale.passes,
            "n_chunks": 8,
            "validation": None,
        }
        yield "FHMM-1-10", seed, FactorialHMM(1, n_states=10, n_iter=scale.passes, **fhmm), [("FHMM-1-10", False)]
        yield "HMM-30", seed, HMM(30, **hmm), [("HMM-30", False)]
        if seed < scale.wide_seeds:
            yield "HMM-50", seed, HMM(50, **hmm), []
        yield "HMM-80", seed, HMM(80, **hmm), [("HMM-80", False), ("POST-HMM-80", True)][: 2 - (seed > 0)]
        yield (
            "FHMM-3-10", seed, FactorialHMM(3, n_states=10, n_iter=scale.passes, **fhmm),
            [("FHMM-3-10", False), ("POST-3-10", True)],
        )  # fmt: skip
    for seed in range(scale.wide_seeds):
        wide = FactorialHMM(
            5, n_states=10, n_iter=scale.wide_passes, random_state=seed, n_jobs=2, batch_size=70_000, smoothing=0.5,
            inference="variational", bound="mean_field", max_sweeps=3,
        )  # fmt: skip
        yield "FHMM-5-10", seed, wide, [("FHMM-5-10", False), ("POST-5-10", True)]


def states_of(model: Any, spelt: list[list[list[str]]], soft: bool) -> list[Any]:
    if soft:
        return [model.transform(part, "posterior") for part in spelt]
    return [model.decode(part, "viterbi") for part in spelt]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument(
        "--select", action="store_true", help="test on a part of MASC that is taken out of the training"
    )
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    options = parser.parse_args()
    scale = QUICK if options.quick else FULL
    options.work.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    web, genres = first_tokens(ewt(), scale.labelled), masc()
    tests = {
        "GENIA dev": tab_separated("genia-pos.dev.tsv.xz"),
        "CRAFT dev": [s for a in craft_articles("dev") for s in a],
    }
    if options.select:
        tests = {"end of MASC": genres[-len(genres) // 4 :]}
        genres = genres[: -len(genres) // 4]
    tests = {name: first_tokens(part, scale.test) for name, part in tests.items()}
    train = web + first_tokens(genres, scale.labelled)
    corpus, held_out = read_text(scale, train, options.work)
    vocabulary = corpus.vocabulary
    spelt = [[respell(s.words, vocabulary) for s in part] for part in (train, *tests.values())]
    data = Data(train, tests, spelt, scale.rounds)
    likelihood: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(measure, data, "lexical", 0, 0.0, None, False)]
        for name, seed, model, rows in models(scale):
            start = time.perf_counter()
            model.fit(corpus)
            took = time.perf_counter() - start
            likelihood.setdefault(name, []).append(model.score(held_out))
            seconds.setdefault(name, []).append(took)
            print(f"{name}, seed {seed}: {took:.0f} s, held out {likelihood[name][-1]:.4f} a token", flush=True)
            for row, soft in rows:
                jobs.append(pool.submit(measure, data, row, seed, took, states_of(model, spelt, soft), soft))
        done = []
        for job in jobs:
            done.append(job.result())
            print(done[-1], flush=True)
    report(options, scale, data, corpus, done, likelihood, seconds, time.perf_counter() - began)


def report(
    options: Any, scale: Scale, data: Data, corpus: Corpus, done: list[Row], likelihood: Any, seconds: Any, total: float
) -> None:
    n_train = sum(len(s.words) for s in data.train)
    lines = [
        "# Tagging out of the domain with layers of states",
        "",
        f"Representations from {corpus.n_tokens:,} tokens (the first {scale.text:,} of eLife, and the labelled text), "
        f"V = {len(corpus.vocabulary):,} with classes of unknown words. Labelled: {n_train:,} tokens of EWT train and "
        f"MASC, as many of each; averaged perceptron, {scale.rounds} rounds. Error in %, mean over seeds (± the standard "
        "deviation).",
        "",
        "| features | seeds | "
        + " | ".join(f"{name}: all | OOV | rare" for name in data.tests)
        + " | seconds to learn |",
        "|---|---|" + "---|---|---|" * len(data.tests) + "---|",
    ]
    for name in dict.fromkeys(row.name for row in done):
        rows = [row for row in done if row.name == name]
        values = np.array([row.errors for row in rows])
        means, deviations = values.mean(axis=0).ravel(), values.std(axis=0, ddof=min(1, len(rows) - 1)).ravel()
        cells = [f"{m:.2f}" + (f" ± {s:.2f}" if len(rows) > 1 else "") for m, s in zip(means, deviations, strict=True)]
        learn = np.mean([row.seconds for row in rows])
        lines.append(f"| {name} | {len(rows)} | " + " | ".join(cells) + f" | {learn:.0f} |")
    lines += ["", "| model | log-likelihood a token, held-out eLife | emission parameters a word | seconds to learn |",
              "|---|---|---|---|"]  # fmt: skip
    wide = {"FHMM-1-10": 10, "HMM-30": 30, "HMM-50": 50, "HMM-80": 80, "FHMM-3-10": 30, "FHMM-5-10": 50}
    for name, values in likelihood.items():
        spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
        lines.append(f"| {name} | {np.mean(values):.3f}{spread} | {wide[name]} | {np.mean(seconds[name]):.0f} |")
    lines += [
        "",
        "The paper (news labels, biomedical test; all / OOV / rare): lexical 10.5 / 32.2 / 28.0, FHMM-1-10 10.4 / 31.7 "
        "/ 27.8, FHMM-3-10 10.2 / 30.6 / 26.6, FHMM-5-10 9.7 / 29.7 / 25.2, POST-5-10 9.7 / 28.4 / 24.8, HMM-80 "
        "10.1 / 30.7 / 26.4.",
        "",
        f"Whole run {total / 60:.0f} minutes on {os.cpu_count()} cores.",
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if not (options.quick or options.select):
        (Path(__file__).parent / "results" / "fhmm_pos.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
