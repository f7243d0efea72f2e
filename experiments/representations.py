"""What the tables compare: rivals and models, all trained on one given text, kept in --work under a key.

Each function takes a Corpus, gives `Learned` (the model and what it took), and does nothing the second time. The key
holds the settings, a hash of the text and one of the source, so that another text or other code never gets what was
learned by this code from this text.

    text = data.joined(Corpus.open("elife.corpus"), more=labelled_words, n_tokens=4_000_000)
    w2v = word2vec(text, 100, work)            # gensim's CBOW
    brown = clusters(text, work)               # 1000 word clusters with their paths
    flat = hmm(text, 80, work)                 # one layer of 80 states
    layers = factorial(text, 5, 10, work)      # five layers of ten states
    dynamic = lds(text, 100, work)             # EM; n_iter=0, n_full=0: its start alone
    beside = pmi(text, 200, work)              # vectors by pointwise mutual information
    around = context(text, 128, work)          # a network that predicts words

`Paths(brown.model)`, `States(flat.model)` and so on make features of them; `Vectors` reads word2vec's as well.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from source_key import TAGGERS, work_of
from undertow import HMM, LDS, ContextVectors, Corpus, FactorialHMM, LagCounts, PMIVectors, load
from undertow.results import WordClusters
from undertow.text.vocabulary import Vocabulary


class Learned(NamedTuple):
    model: Any
    cpu: float  # processor seconds
    wall: float  # seconds by the clock


class WordTable:
    """A vector for each word, wherever it stands: what word2vec gives, in the form that `Vectors` reads.

    View "type" is the vector, "window" puts those of the word before and of the word after beside it. Words outside the
    vocabulary have the vector of their class or of the unknown word.
    """

    kind = "word2vec"

    def __init__(self, vocabulary: Vocabulary, vectors: Any, tokenizer: dict[str, Any] | None = None) -> None:
        self.vocabulary_ = vocabulary
        self.tokenizer_ = tokenizer
        self.vectors_ = vectors

    def transform(self, X: Iterable[Sequence[str]], view: str = "type") -> list[Any]:
        rows = [self.vectors_[self.vocabulary_.encode(list(s))] for s in X]
        return rows if view == "type" else [beside(r) for r in rows]


def beside(vectors: Any) -> Any:
    """Each row with the one before and the one after it."""
    zero = np.zeros_like(vectors[:1])
    return np.hstack([np.vstack([zero, vectors[:-1]]), vectors, np.vstack([vectors[1:], zero])])


# --- text -----------------------------------------------------------------------------------------------


def key_of(corpus: Corpus) -> str:
    """A few digits that say which text this is."""
    digest = hashlib.sha256(np.ascontiguousarray(corpus.ids).data)
    digest.update(np.ascontiguousarray(corpus.offsets).data)
    digest.update("\n".join(corpus.vocabulary.words).encode())
    return digest.hexdigest()[:10]


def kept(work: Path, key: str, fit: Callable[[], Any], script: str = __file__) -> Learned:
    """The model of this key and source, or the one that `fit` (of this script) gives, which is then kept."""
    work = work_of(work, script, without=TAGGERS)
    place, seconds = work / key, work / f"{key}.json"
    if place.exists() and seconds.exists():
        took = json.loads(seconds.read_text())
        return Learned(load(place), took["cpu"], took["wall"])
    began, began_cpu = time.perf_counter(), time.process_time()
    model = fit()
    took = {"cpu": time.process_time() - began_cpu, "wall": time.perf_counter() - began}
    model.save(place, overwrite=True)
    seconds.write_text(json.dumps(took))
    return Learned(model, **took)


# --- what is learned from it ----------------------------------------------------------------------------


def word2vec(
    corpus: Corpus,
    size: int,
    work: Path,
    *,
    classes: bool = True,
    workers: int = 1,
    epochs: int = 5,
    seed: int = 0,
    window: int = 3,
    skip_gram: bool = False,
) -> Learned:
    """Vectors by gensim with ten negative samples, unit length: CBOW with the window of Belanger & Kakade, or others.

    With `classes`, a word outside the vocabulary is the class that our models see; else it is one unknown word. One
    worker makes the run repeatable.
    """
    vocabulary = corpus.vocabulary
    work = work_of(work, __file__, without=TAGGERS)
    chosen = _words({"classes": classes, "workers": workers, "epochs": epochs, "seed": seed})
    chosen += "" if window == 3 and not skip_gram else _words({"window": window, "skip_gram": skip_gram})
    path = work / f"w2v-{size}{chosen}-{key_of(corpus)}.npz"
    if not path.exists():
        from gensim.models import Word2Vec

        spelling = list(vocabulary.words)
        if not classes:
            spelling[: vocabulary.n_special] = [vocabulary.unknown] * vocabulary.n_special
        text = path.with_suffix(".txt")
        with open(text, "w", encoding="utf-8") as f:
            for ids in corpus.sentences():
                f.write(" ".join([spelling[i] for i in ids.tolist()]) + "\n")
        began, began_cpu = time.perf_counter(), time.process_time()
        model = Word2Vec(
            corpus_file=str(text), vector_size=size, window=window, negative=10, epochs=epochs, workers=workers,
            sg=int(skip_gram), min_count=1, seed=seed,
        )  # fmt: skip
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        text.unlink()
        found = np.zeros((len(vocabulary), size), dtype=np.float32)
        for i, word in enumerate(spelling):
            if word in model.wv:
                found[i] = model.wv[word]
        np.savez(path, vectors=found, seconds=seconds, cpu=cpu)
    with np.load(path) as z:
        vectors, seconds, cpu = z["vectors"], float(z["seconds"]), float(z["cpu"])
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return Learned(WordTable(vocabulary, unit, corpus.manifest.get("tokenizer")), cpu, seconds)


def clusters(corpus: Corpus, work: Path, n_clusters: int = 1000, *, seed: int = 0, **settings: Any) -> Learned:
    """Word clusters with paths, as Brown's."""
    key = f"brown-{n_clusters}-{seed}{_words(settings)}-{key_of(corpus)}"
    return kept(work, key, lambda: WordClusters(n_clusters, random_state=seed, n_jobs=1, **settings).fit(corpus))


def pmi(corpus: Corpus, n_components: int, work: Path, *, seed: int = 0, **settings: Any) -> Learned:
    """Vectors of words by pointwise mutual information."""
    key = f"pmi-{n_components}-{seed}{_words(settings)}-{key_of(corpus)}"
    return kept(work, key, lambda: PMIVectors(n_components, random_state=seed, n_jobs=1, **settings).fit(corpus))


def context(
    corpus: Corpus, n_components: int, work: Path, *, seed: int = 0, n_jobs: int = 2, **settings: Any
) -> Learned:
    """Vectors of tokens by a network that predicts words."""
    key = f"context-{n_components}-{seed}{_words(settings)}-{key_of(corpus)}"
    model = ContextVectors(n_components, random_state=seed, n_jobs=n_jobs, **settings)
    return kept(work, key, lambda: model.fit(corpus))


def hmm(corpus: Corpus, n_states: int, work: Path, *, seed: int = 0, n_jobs: int = 1, **settings: Any) -> Learned:
    """A plain HMM: one layer, every state emits every word."""
    chosen = {"n_iter": 8, "n_chunks": 8, **settings}
    key = f"hmm-{n_states}-{seed}{_words(chosen)}-{key_of(corpus)}"
    begun = {"init": "random", **chosen}  # as the published rows were, when that was the default
    return kept(work, key, lambda: HMM(n_states, n_blocks=1, random_state=seed, n_jobs=n_jobs, **begun).fit(corpus))


def factorial(
    corpus: Corpus, n_layers: int, n_states: int, work: Path, *, seed: int = 0, n_jobs: int = 1, **settings: Any
) -> Learned:
    """A factorial HMM of `n_layers` chains with `n_states` states each."""
    key = f"fhmm-{n_layers}-{n_states}-{seed}{_words(settings)}-{key_of(corpus)}"

    def fit() -> Any:
        return FactorialHMM(n_layers, n_states=n_states, random_state=seed, n_jobs=n_jobs, **settings).fit(corpus)

    return kept(work, key, fit)


def lds(
    corpus: Corpus,
    n_components: int,
    work: Path,
    *,
    counts: LagCounts | Callable[[], LagCounts] | None = None,
    seed: int = 0,
    n_jobs: int = 1,
    **settings: Any,
) -> Learned:
    """A linear dynamical system; its seconds include the counting unless `counts` are given or known already."""
    key = f"lds-{n_components}-{seed}{_words(settings)}-{key_of(corpus)}"
    model = LDS(n_components, random_state=seed, n_jobs=n_jobs, **settings)

    def fit() -> Any:
        return model.fit(corpus if counts is None else counts() if callable(counts) else counts)

    return kept(work, key, fit)


def _words(settings: dict[str, Any]) -> str:
    """Settings as a part of a file's name."""
    return "".join(f"-{name}={value}" for name, value in sorted(settings.items()))


class Sizes(NamedTuple):
    """How large the representations of a table are."""

    vectors: int = 100  # of word2vec
    clusters: int = 1000
    states: int = 80
    passes: int = 4  # of the HMM's EM, each in eight parts
    epochs: int = 5  # of word2vec
    n_iter: int = 50  # of the LDS
    basis: float = 5.0


class Models:
    """All of them on one text and with one seed, each learned when it is first asked for."""

    def __init__(self, text: Corpus, work: Path, sizes: Sizes | None = None, seed: int = 0) -> None:
        self.text, self.work, self.sizes, self.seed = text, work, sizes or Sizes(), seed
        self._count = cache(lambda: LagCounts.from_corpus(text, lags=7, n_jobs=1))
        self._seeds: dict[int, Models] = {seed: self}
        self.took: dict[str, Learned] = {}

    def of_seed(self, seed: int) -> Models:
        """The same on the same text, from another seed."""
        if seed not in self._seeds:
            other = Models(self.text, self.work, self.sizes, seed)
            other._count, other._seeds = self._count, self._seeds
            self._seeds[seed] = other
        return self._seeds[seed]

    def __call__(self, name: str) -> Any:
        """The model called `w2v`, `brown`, `hmm`, `lds-100` or `ssid-100`."""
        if name not in self.took:
            self.took[name] = self._learn(name)
        return self.took[name].model

    def look_up(self) -> None:
        """Have all that the tables use, with the seconds they took."""
        for name in ("w2v", "brown", "hmm", "lds-100", "ssid-100"):
            self(name)

    def _learn(self, name: str) -> Learned:
        kind, _, width = name.partition("-")
        s, seed = self.sizes, self.seed
        if kind in ("lds", "ssid"):
            chosen: dict[str, Any] = {} if s.n_iter == 50 else {"n_iter": s.n_iter, "basis": s.basis}
            chosen = chosen if kind == "lds" else {"n_iter": 0, "n_full": 0}
            return lds(self.text, int(width), self.work, counts=self._count, seed=seed, **chosen)
        if kind == "w2v":
            return word2vec(self.text, s.vectors, self.work, epochs=s.epochs, seed=seed)
        if kind == "brown":
            return clusters(self.text, self.work, s.clusters, n_iter=12, seed=seed)
        return hmm(self.text, s.states, self.work, n_iter=s.passes, seed=seed)
