"""Part-of-speech tags from token vectors: in domain, few labels (the paper's Table 2, local classifier).

    .venv/bin/pip install -c constraints.txt '.[sklearn,rivals]'
    .venv/bin/python experiments/lds_pos.py                             # writes experiments/results/lds_pos.md
    .venv/bin/python experiments/lds_pos.py --select --components 100   # for choosing settings: never looks at dev
    .venv/bin/python experiments/lds_pos.py --quick                     # 300,000 tokens: is EM ahead of its start?

Representations from eLife; a classifier with 25 hidden units on the vector of each token, trained on the first 20 CRAFT
train articles, scored on CRAFT dev; settings were chosen with --select.
Seed i is that of the LDS and of the classifier; word2vec, which takes minutes, has one seed of its own. What is done is
kept in --work and taken over by the next run.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data import Tagged, craft_articles, elife, elife_counts, respell, sample
from pages import write_page
from representations import Learned, lds, word2vec
from scoring import Rows, mcnemar, spread
from undertow import LDS, Corpus, LagCounts

Features = Callable[[list[list[str]], int], list[Any]]  # of sentences and a seed


def classify(train: Any, tags: Any, test: Any, seed: int) -> Any:
    """Predicted tags by one hidden layer of 25 units; inputs are scaled to unit variance on average."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    scale = 1 / max(float(train.std()), 1e-9)
    network = MLPClassifier((25,), max_iter=12, batch_size=128, learning_rate_init=2e-3, alpha=1e-5, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # twelve passes are the setting, for all rows alike
        network.fit(train * scale, tags)
    return network.predict(test * scale)


def text_to_learn_from(work: Path, quick: bool) -> tuple[Corpus, LagCounts]:
    if quick:
        corpus = sample(300_000, [])
        return corpus, LagCounts.from_corpus(corpus, lags=7)
    return elife(work), elife_counts(work)


def word_vectors(table: Any, view: str, X: list[list[str]], seed: int) -> list[Any]:
    """word2vec has one seed."""
    return list(table.transform(X, view))


def token_vectors(learned: list[Learned], view: str, X: list[list[str]], seed: int) -> list[Any]:
    return list(learned[seed].model.transform(X, view))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--components", type=int, nargs="+", default=[100, 200])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--select", action="store_true", help="score on train articles 21-30 instead of dev")
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    parser.add_argument("--lds", default="{}", help="other LDS settings, as a JSON object")
    options = parser.parse_args()
    if options.quick:
        options.select, options.components, options.seeds = True, [20], 1
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    corpus, counts = text_to_learn_from(work, options.quick)
    vocabulary = corpus.vocabulary

    articles = craft_articles("train")
    n = 2 if options.quick else 20
    train = [s for a in articles[:n] for s in a]
    test = [s for a in (articles[20 : 20 + n // 2] if options.select else craft_articles("dev")) for s in a]
    tags, gold = (np.array([t for s in part for t in s.tags]) for part in (train, test))

    def respelt(part: list[Tagged]) -> list[list[str]]:
        return [respell(s.words, vocabulary) for s in part]

    train_words, test_words = respelt(train), respelt(test)
    kept_rows = Rows(work, __file__, "quick" if options.quick else "select" if options.select else "dev")
    unknown = np.mean([w not in vocabulary for s in test_words for w in s])
    lines = [
        "# Part-of-speech tags from token vectors, in domain, few labels",
        "",
        f"eLife ({corpus.n_tokens:,} tokens, V = {len(vocabulary):,}); CRAFT: {len(tags):,} tokens to train a local "
        f"classifier of 25 hidden units, {len(gold):,} to test ({'articles 21-30' if options.select else 'dev'}), "
        f"{unknown:.1%} of them unknown words; mean ± standard deviation of "
        f"{options.seeds} seeds (of the LDS and of the classifier).",
        "",
        "| vectors | width | accuracy | seconds to learn |",
        "|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)

    for h in options.components:
        right: dict[str, Any] = {}

        def row(name: str, features: Features, seconds: float, right: dict[str, Any] = right) -> None:
            def predict(seed: int) -> list[list[str]]:
                a, b = (np.concatenate(features(words, seed)) for words in (train_words, test_words))
                return [classify(a, tags, b, seed).tolist()]

            width = features(test_words[:1], 0)[0].shape[1]
            kept = [kept_rows(f"{name}-{seed}-{options.lds}", partial(predict, seed)) for seed in range(options.seeds)]
            right[name] = np.stack([np.array(found.tags[0]) == gold for found in kept])
            lines.append(f"| {name} | {width} | {spread(100 * right[name].mean(axis=1))} | {seconds:.0f} |")
            print(lines[-1], flush=True)

        settings = {"n_jobs": 2, **json.loads(options.lds)}
        start_only = {"n_iter": 0, "n_full": 0}
        for name, extra in (
            ("SSID, uniform noise", {**start_only, "noise": "uniform"}),  # as the paper smooths its counts
            ("SSID", start_only),
            ("EM", {}),
        ):
            learned = [
                lds(corpus, h, work, counts=counts, seed=seed, **{**settings, **extra}) for seed in range(options.seeds)
            ]
            seconds = float(np.mean([one.wall for one in learned]))
            for view in ("features",) if options.quick else ("type", "filter", "smooth", "features"):
                row(f"LDS {name} {view}, h={h}", partial(token_vectors, learned, view), seconds)
        rivals = () if options.quick else (("word2vec CBOW", False), ("word2vec CBOW + classes", True))
        for name, classes in rivals:
            table, _, seconds = word2vec(corpus, h, work, classes=classes, workers=2)
            row(f"{name}, h={h}", partial(word_vectors, table, "type"), seconds)
            row(f"{name} ±1, h={h}", partial(word_vectors, table, "window"), seconds)
        ours = right[f"LDS EM features, h={h}"]
        for rival in [name for name in right if name.startswith("word2vec")]:
            theirs = right[rival]
            p = mcnemar(ours[0], theirs[0])  # over the tokens of the first seed
            points = 100 * (ours.mean() - theirs.mean())
            lines.append(
                f"\nLDS EM features, h={h}, against {rival}: {points:+.2f} points, McNemar p = {p:.1e} (first seed)."
            )
            print(lines[-1], flush=True)
        if options.quick:
            start_hits = right[f"LDS SSID, uniform noise features, h={h}"]
            sys.exit(None if ours.mean() > start_hits.mean() else "EM is no better than its start.")
        lines.extend(["", "| vectors | width | accuracy | seconds to learn |", "|---|---|---|---|"])
        if not options.select:
            paper = (
                "The paper (Table 2, Penn tags of the WSJ, h = 200, 1 G tokens): word2vec 92.58, SSID 83.00, EM 94.30."
            )
            used = f"Settings: {LDS(random_state=0, n_jobs=2)!r}, all else by default, changed by {options.lds}."
            text = "\n".join([*lines[:-3], "", paper, "", used, ""])
            write_page("lds_pos", text, __file__, vars(options))


if __name__ == "__main__":
    main()
