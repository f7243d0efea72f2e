"""What lds_stronger.py tries: forms of the LDS on one text, and what taggers and perplexity say of each.

Nothing here changes the library: weights that fall with the distance are in the pair counts that `fit` is given, and
the ends of sentences are two words of the text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from read_once import ReadOnce
from representations import Learned, kept, key_of
from scoring import Rows, Tags
from source_key import work_of
from tagging_default import Problem
from tagging_representations import tag
from undertow import LDS, Corpus, LagCounts
from undertow.results.tagging import Vectors
from undertow.text.vocabulary import Vocabulary

VIEWS = ("features", "smooth", "type")
BEGIN, END = "<begin>", "<end>"
HELD_OUT = 40  # of so many sentences one is held out for the perplexity


class Candidate(NamedTuple):
    """An LDS; what is not given is as the default has it."""

    n_components: int = 200
    kappa: float = 1.0  # times the default, the tokens a word has on average
    lags: int = 7
    decay: float = 1.0  # the weight of pairs k tokens apart is its k-th power
    ends: bool = False  # whether the beginnings and ends of sentences are words


# --- the text -------------------------------------------------------------------------------------------


def split(text: Corpus) -> tuple[Corpus, Corpus]:
    """What is learned from, and every fortieth sentence; the words are those of the whole."""
    lengths = np.diff(text.offsets)
    held = np.arange(len(lengths)) % HELD_OUT == HELD_OUT - 1

    def part(chosen: Any) -> Corpus:
        ids = text.ids[np.repeat(chosen, lengths)]
        offsets = np.concatenate([[0], np.cumsum(lengths[chosen])]).astype(np.int64)
        counts = np.bincount(ids, minlength=len(text.vocabulary))
        return Corpus(ids, offsets, text.vocabulary.with_counts(counts), manifest=text.manifest)

    return part(~held), part(held)


def with_ends(text: Corpus) -> Corpus:
    """The text with a word before and a word after each sentence."""
    old, n = text.vocabulary, text.n_sentences
    words = Vocabulary([*old.words, BEGIN, END], [*old.counts.tolist(), n, n], boundary=False, n_classes=old.n_classes)
    begin, end = np.uint32(len(old)), np.uint32(len(old) + 1)
    ids = np.insert(text.ids, text.offsets[1:], end)
    starts = text.offsets + np.arange(n + 1)
    ids = np.insert(ids, starts[:-1], begin)
    return Corpus(ids, text.offsets + 2 * np.arange(n + 1), words, manifest=text.manifest)


class Decayed(LagCounts):
    """Pair counts of which those k tokens apart count decay**k.

    Their moments are Ψ_k decay^k, again those of a process: the product of two covariances, of the text's and of one
    that forgets, is a covariance.
    """

    def __init__(self, counts: LagCounts, decay: float) -> None:
        super().__init__(
            counts.vocabulary, counts._blocks, counts._edges, across=counts.across, tokenizer=counts.tokenizer
        )
        self.decay = decay

    def matrix(self, k: int) -> csr_array:
        found = super().matrix(k)
        return csr_array((found.data * self.decay**k, found.indices, found.indptr), shape=found.shape)


# --- the models -----------------------------------------------------------------------------------------


class BetweenEnds:
    """An LDS of a text with words for the ends of sentences, which reads all sentences so."""

    kind = "lds"

    def __init__(self, model: LDS) -> None:
        self.model, self.vocabulary_, self.tokenizer_ = model, model.vocabulary_, model.tokenizer_

    def transform(self, X: Any, view: str = "features") -> list[Any]:
        return [rows[1:-1] for rows in self.model.transform([[BEGIN, *s, END] for s in X], view)]


class SideBySide:
    """The vectors of several LDSs of one text, together as long as those of one."""

    kind = "lds"

    def __init__(self, models: list[LDS]) -> None:
        self.models, self.vocabulary_, self.tokenizer_ = models, models[0].vocabulary_, models[0].tokenizer_

    def transform(self, X: Any, view: str = "features") -> list[Any]:
        both = [model.transform(X, view) for model in self.models]
        return [np.hstack(rows) / np.sqrt(len(rows)) for rows in zip(*both, strict=True)]


class Variants:
    """The LDSs of one text, each learned when it is first asked for and kept in `work`."""

    def __init__(self, text: Corpus, work: Path) -> None:
        self.work = work
        self.text, self.held_out = split(text)

    def counts(self, c: Candidate) -> LagCounts:
        """The pairs that a candidate is learned from, kept on disk."""
        text = with_ends(self.text) if c.ends else self.text
        path = work_of(self.work, __file__) / f"counts-{c.lags}-{c.ends}-{key_of(self.text)}"
        if not path.exists():
            LagCounts.from_corpus(text, lags=c.lags, n_jobs=1, out=path)
        counts = LagCounts.open(path, verify=False)
        return counts if c.decay == 1 else Decayed(counts, c.decay)

    def learned(self, c: Candidate, seed: int) -> Learned:
        """The LDS and the seconds of its fit, those of counting left out."""
        counts = self.counts(c)

        def fit() -> LDS:
            kappa = c.kappa * counts.n_tokens / len(counts.vocabulary)
            model = LDS(c.n_components, lags=c.lags, kappa=kappa, random_state=seed, n_jobs=1)
            return model.fit(counts)

        name = "-".join(f"{field}={value}" for field, value in c._asdict().items())
        return kept(self.work, f"{name}-{seed}-{key_of(self.text)}", fit, __file__)

    def perplexity(self, c: Candidate, seed: int) -> float:
        """Of the words of the held-out sentences; those for their ends are given."""
        model = self.learned(c, seed).model
        if not c.ends:
            return float(model.perplexity(self.held_out))
        parts = [p[1:-1] for p in model.log_probabilities(with_ends(self.held_out))]
        return float(np.exp(-np.concatenate(parts).mean()))

    def read(self, candidates: tuple[Candidate, ...], seed: int) -> Any:
        """What taggers read: one of them, or several side by side."""
        models = [self.learned(c, seed).model for c in candidates]
        if len(models) > 1:
            return SideBySide(models)
        return BetweenEnds(models[0]) if candidates[0].ends else models[0]


def tagged(
    rows: Rows,
    problem: Problem,
    variants: Variants,
    candidates: tuple[Candidate, ...],
    view: str,
    seed: int,
    n_iter: int,
) -> Tags:
    """The tags of a linear CRF that reads spelling and one view; no candidates: spelling alone."""
    name = "+".join("-".join(map(str, c)) for c in candidates) or "spelling"

    def make() -> Tags:
        if not candidates:
            return tag(problem, [], n_iter, 0)
        read = Vectors(variants.read(candidates, seed), view, scale=2.0, window=0, pieces=True, casing="frequent")
        return tag(problem, [ReadOnce(read)], n_iter, 0)

    return rows(f"{problem.name}-{name}-{view}-{seed}-{n_iter}", make).tags
