"""Our CRF against CRFsuite in one run, with spelling alone and with vectors beside it, and the local tagger.

Both CRFs have the same features, penalty and number of L-BFGS iterations. Seconds are the processor's; the first
iteration is left out, as it waits for the features. Accuracy is on sentences that neither learned from.

OMP_NUM_THREADS=1 .venv/bin/python benchmarks/tagging.py
"""

from __future__ import annotations

import itertools
import tempfile
import time
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from bench import parser, print_header, print_row, timed
from data import data_dir
from undertow import LDS, Corpus
from undertow.results.tagging import CRFTagger, LocalTagger, Vectors
from undertow.results.tagging.crf_features import FeatureReader
from undertow.text.sentences import read_sentences
from undertow.text.tagged import read_tagged

Lists = list[list[str]]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--sentences", type=int, default=1000, help="of CRAFT, to learn from")
    arguments.add_argument("--test-sentences", type=int, default=500, help="those that follow")
    arguments.add_argument("--iterations", type=int, default=30)
    arguments.add_argument("--widths", type=int, nargs="*", default=[0, 50, 100, 200])
    options = arguments.parse_args()
    labelled = data_dir() / "labelled" / "craft-pos.train.tsv.xz"
    n = options.sentences
    rows = list(itertools.islice(read_tagged([labelled]), n + options.test_sentences))
    X, y = [s.words for s in rows], [s.tags for s in rows]
    with as_file(files("undertow") / "data" / "books.txt.xz") as books:
        corpus = Corpus.from_sentences(list(read_sentences([books])), vocab_size=10_000)
    print(
        f"{sum(map(len, X[:n])):,} tokens, {len({t for s in y[:n] for t in s})} tags, {options.iterations} iterations"
    )
    CRFTagger(n_iter=2).fit(X[:20], y[:20])  # compiles
    print_header("numbers", "tagger", "seconds an iteration", "CRFsuite's over it", "loss", "accuracy")
    for width in options.widths:
        features = None
        if width:
            model = LDS(width, n_iter=0, n_full=0, random_state=0, n_jobs=1).fit(corpus)
            features = Vectors(model, "smooth")
        theirs = crfsuite(features, X[:n], y[:n], X[n:], y[n:], options.iterations)
        ours = undertow(features, X[:n], y[:n], X[n:], y[n:], options.iterations)
        for name, (seconds, loss, accuracy) in {"CRFsuite": theirs, "CRFTagger": ours}.items():
            print_row(
                width, name, f"{seconds:.3f}", f"{theirs[0] / seconds:.1f}", f"{loss:.1f}", f"{100 * accuracy:.2f}"
            )
        if features is not None:
            tagger = LocalTagger(features, n_iter=5, random_state=0)
            spent, _ = timed(partial(tagger.fit, X[:n], y[:n]))
            seconds = spent.cpu / len(tagger.history_)
            print_row(width, "LocalTagger", f"{seconds:.3f}", "", "", f"{100 * tagger.score(X[n:], y[n:]):.2f}")


def undertow(
    features: Any, X: Lists, y: Lists, X_test: Lists, y_test: Lists, n_iter: int
) -> tuple[float, float, float]:
    at: list[float] = []
    tagger = CRFTagger(features, n_iter=n_iter, tol=0.0, n_jobs=1, callbacks=[lambda _: at.append(time.process_time())])
    tagger.fit(X, y)
    return (at[-1] - at[0]) / (len(at) - 1), -tagger.history_[-1], tagger.score(X_test, y_test)


def crfsuite(
    features: Any, X: Lists, y: Lists, X_test: Lists, y_test: Lists, n_iter: int
) -> tuple[float, float, float]:
    import pycrfsuite

    at: list[tuple[float, float]] = []

    class Trainer(pycrfsuite.BaseTrainer):  # type: ignore[misc]
        def message(self, message: str) -> None:
            if message.startswith("Loss:"):
                at.append((time.process_time(), float(message.removeprefix("Loss:"))))

    trainer = Trainer(algorithm="lbfgs", verbose=False)
    trainer.set_params(
        {"c1": 0.0, "c2": 1.0, "max_iterations": n_iter, "delta": 0.0, "epsilon": 1e-9,
         "feature.possible_transitions": True, "feature.minfreq": -1e300}
    )  # fmt: skip
    for items, tags in zip(all_items(features, X), y, strict=True):
        if tags:
            trainer.append(pycrfsuite.ItemSequence(items), tags)
    with tempfile.TemporaryDirectory() as place:
        trainer.train(str(Path(place) / "model"))
        tagger = pycrfsuite.Tagger()
        tagger.open(str(Path(place) / "model"))
        right = [
            np.array(tagger.tag(items)) == tags
            for items, tags in zip(all_items(features, X_test), y_test, strict=True)
            if tags
        ]
    return (at[-1][0] - at[0][0]) / (len(at) - 1), at[-1][1], float(np.concatenate(right).mean())


def all_items(features: Any, X: Lists) -> list[list[dict[str, float]]]:
    """What our CRF reads, as CRFsuite wants it: a dict for every token."""
    names: dict[str, int] = {}
    tokens = FeatureReader([features] if features else [], 2, True, names).read(X, None, grow=True)
    spelled = list(names)
    numbers = [f"v{i}" for i in range(tokens.dense.shape[1])]
    items = [
        {spelled[a]: 1.0 for a in tokens.attribute[low:high].tolist()} | dict(zip(numbers, row.tolist(), strict=True))
        for low, high, row in zip(tokens.row, tokens.row[1:], tokens.dense, strict=False)
    ]
    return [items[low:high] for low, high in zip(tokens.bounds, tokens.bounds[1:], strict=False)]


if __name__ == "__main__":
    main()
