"""What a model's features cost a CRF: seconds an iteration with spelling alone, and with vectors beside it.

OMP_NUM_THREADS=1 .venv/bin/python benchmarks/tagging.py
"""

from __future__ import annotations

import itertools
from functools import partial
from importlib.resources import as_file, files

from bench import parser, timed
from data import data_dir
from undertow import LDS, Corpus
from undertow.models.fitting import TrainingEvent
from undertow.results.tagging import CRFTagger, LocalTagger, Vectors
from undertow.text.sentences import read_sentences
from undertow.text.tagged import read_tagged


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--sentences", type=int, default=1000, help="of CRAFT, to learn from")
    arguments.add_argument("--iterations", type=int, default=5)
    options = arguments.parse_args()
    labelled = data_dir() / "labelled" / "craft-pos.train.tsv.xz"
    rows = list(itertools.islice(read_tagged([labelled]), options.sentences))
    X, y = [s.words for s in rows], [s.tags for s in rows]
    with as_file(files("undertow") / "data" / "books.txt.xz") as books:
        corpus = Corpus.from_sentences(list(read_sentences([books])), vocab_size=10_000)
    print(f"{sum(map(len, X)):,} tokens, {len({t for s in y for t in s})} tags")
    for width in (0, 50, 100, 200):
        at: list[float] = []

        def watch(event: TrainingEvent, at: list[float] = at) -> None:
            at.append(event.seconds)

        features = None
        if width:
            model = LDS(width, n_iter=0, n_full=0, random_state=0, n_jobs=1).fit(corpus)
            features = Vectors(model, "smooth")
        CRFTagger(features, n_iter=options.iterations, callbacks=[watch]).fit(X, y)
        # not the first: it waits for the features
        print(f"CRF, spelling + {width:>3} numbers: {(at[-1] - at[0]) / (len(at) - 1):.2f} s an iteration", flush=True)
        if features is not None:
            tagger = LocalTagger(features, n_iter=options.iterations, random_state=0)
            spent, _ = timed(partial(tagger.fit, X, y))
            seconds = spent.wall / len(tagger.history_)
            print(f"local tagger, {width:>3} numbers: {seconds:.2f} s a pass, vectors included", flush=True)


if __name__ == "__main__":
    main()
