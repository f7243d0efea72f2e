"""Word clusters in a binary tree, as Brown clusters: words with similar neighbors share a bit string.

Two steps. The exchange algorithm (`kernels.words.exchange`) assigns every word to one of G classes so that a class
bigram model makes the text most probable; then the classes are merged two by two, always the pair that loses least
mutual information (`kernels.words.brown`). Brown's own algorithm merges from the words up and never moves a word again;
this one moves words until no move helps, which reaches a higher mutual information and is faster.

The text file has the usual format: a line for each word, `bit string TAB word TAB count`.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.atomic import finished_file
from undertow.engine import Engine
from undertow.errors import InputError
from undertow.kernels.types import I64
from undertow.kernels.words.brown import bit_paths, merge_classes
from undertow.kernels.words.exchange import Pass, class_counts, exchange_passes
from undertow.models.base import (
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    encode_sentences,
)
from undertow.models.constraints import (
    CALLBACKS,
    N_JOBS,
    RANDOM_STATE,
    Choice,
    Constraint,
    Number,
    Whole,
    check_random_state,
)
from undertow.models.fitting import Callback, CheckpointSource, Iteration, open_checkpoint, run_iterations
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts
from undertow.text.vocabulary import UNKNOWN, Vocabulary, check_word

Text = Corpus | LagCounts | Iterable[Sequence[str]]


class WordClusters(Estimator):
    """Clusters of words with bit-string paths, as Brown clusters.

    Parameters
    ----------
    n_clusters
        Number of clusters.
    n_iter
        Passes over the words at most.
    min_moved
        Fitting ends when a pass moves fewer than this share of the words.
    init
        "frequency" deals the words out by rank, "random" shuffles them first.
    random_state
        Seed or generator for `init="random"`.
    n_jobs
        Number of threads that count the word pairs; None for 1, −1 for all cores.
    callbacks
        Functions of a `TrainingEvent`, called after each pass.

    Attributes
    ----------
    clusters_ : int32 array
        The cluster of each word of the vocabulary, −1 for a word that the text does not have. The boundary, where the
        vocabulary has one, is a cluster by itself.
    paths_ : list of str
        The bit string of each cluster.
    history_ : list of float
        Mean log-probability of a token under the class bigram model, after each pass.
    vocabulary_ : Vocabulary
        The words.
    tokenizer_ : dict or None
        The rule by which the text was split into tokens, if known.

    Examples
    --------
    >>> from undertow import WordClusters
    >>> text = [["the", "cat", "sleeps"], ["the", "dog", "sleeps"], ["a", "cat", "runs"], ["a", "dog", "runs"]]
    >>> clusters = WordClusters(3).fit(text)
    >>> clusters.path("cat") == clusters.path("dog")
    True
    >>> sorted(clusters.words(clusters.path("cat")))
    ['cat', 'dog']
    """

    kind = "clusters"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_clusters": Whole(1),
        "n_iter": Whole(1),
        "min_moved": Number(0, 1),
        "init": Choice("frequency", "random"),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "callbacks": CALLBACKS,
    }

    clusters_: npt.NDArray[np.int32]
    paths_: list[str]

    def __init__(
        self,
        n_clusters: int = 1000,
        *,
        n_iter: int = 20,
        min_moved: float = 0.001,
        init: str = "frequency",
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_iter = n_iter
        self.min_moved = min_moved
        self.init = init
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callbacks = callbacks

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(self, X: Text, y: Any = None, *, engine: Engine | None = None, checkpoint: CheckpointSource = None) -> Self:
        """Cluster the words of a text.

        Parameters
        ----------
        X
            A corpus, token lists, or pair counts, whose first lag is used.
        y
            Ignored.
        engine
            Where to count pairs.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.

        Returns
        -------
        WordClusters
            The fitted object itself.

        Raises
        ------
        InputError
            If the text has fewer words than clusters are asked for.
        """
        self._check_params()
        rng = check_random_state(self.random_state)
        if not isinstance(X, LagCounts):
            X = LagCounts.from_corpus(as_corpus(X), lags=1, n_jobs=self.n_jobs, engine=engine)
        vocabulary, pairs = X.vocabulary, X.matrix(1)
        seen = np.flatnonzero(vocabulary.counts)
        if self.n_clusters > len(seen):
            raise InputError(
                f"WordClusters: n_clusters={self.n_clusters} is more than the {len(seen)} different words of the text."
            )
        pairs, unigram = pairs[seen][:, seen], vocabulary.counts[seen]
        start = rng.permutation(len(seen)) % self.n_clusters if self.init == "random" else None
        fixed = np.flatnonzero(seen == vocabulary.boundary_id) if vocabulary.boundary_id is not None else None
        if fixed is not None and len(fixed) == self.n_clusters < len(seen):
            raise InputError("WordClusters: the boundary takes the only cluster; ask for more than one.")
        if start is not None and fixed is not None and len(fixed):
            start = 1 + rng.permutation(len(seen)) % (self.n_clusters - 1)
            start[fixed] = 0
        data = (vocabulary.fingerprint(), unigram, pairs.indptr, pairs.indices, pairs.data)
        with open_checkpoint(checkpoint, self, data, rng) as at:
            n_passes = self.n_iter
            if at.state is not None:
                # the counts of the classes follow from the classes, so that they are all the state there is
                n_done, moves, start = at.state
                enough = max(1.0, self.min_moved * (len(seen) - (0 if fixed is None else len(fixed))))
                n_passes = self.n_iter - n_done if moves >= enough else 0
            passes = exchange_passes(
                pairs, unigram, self.n_clusters, start=start, fixed=fixed, n_passes=n_passes, min_moved=self.min_moved
            )
            iterations = _pass_iterations(passes, unigram, self.n_iter - n_passes)
            result = run_iterations(
                iterations, n_iter=self.n_iter, unit="pass", callbacks=self.callbacks, checkpoint=at
            )
            classes = result.params
            merges, _ = merge_classes(class_counts(pairs, classes, self.n_clusters))
        sizes = np.bincount(classes, weights=unigram, minlength=self.n_clusters)
        clusters = np.full(len(vocabulary), -1, dtype=np.int32)
        clusters[seen] = classes
        self._finish(vocabulary, clusters, bit_paths(merges, sizes), result.history, X.tokenizer)
        return self

    def _finish(
        self,
        vocabulary: Vocabulary,
        clusters: npt.NDArray[np.int32],
        paths: list[str],
        history: list[float],
        tokenizer: dict[str, Any] | None = None,
    ) -> None:
        self.vocabulary_ = vocabulary
        self.clusters_ = clusters
        self.paths_ = paths
        self.history_ = history
        self.tokenizer_ = tokenizer
        self._prepare()

    def _prepare(self) -> None:
        order = np.argsort(-self.vocabulary_.counts, kind="stable")
        self._order = order[self.clusters_[order] >= 0]  # words that have a cluster, by falling count

    # --- queries ----------------------------------------------------------------------------------------

    def path(self, word: str) -> str:
        """The bit string of a word's cluster.

        Parameters
        ----------
        word
            A word; one outside the vocabulary has the path of the unknown word.

        Returns
        -------
        str
            Zeros and ones, from the root of the tree.

        Raises
        ------
        InputError
            If the text that was clustered had no such word.
        """
        self._check_fitted()
        cluster = int(self.clusters_[self.vocabulary_.id(word)])
        if cluster < 0:
            raise InputError(f"The word {word!r} is not in the text that was clustered, so it has no path.")
        return self.paths_[cluster]

    @property
    def paths(self) -> dict[str, str]:
        """The bit string of every word that has one, the most frequent first."""
        self._check_fitted()
        words = self.vocabulary_.words
        return {words[i]: self.paths_[self.clusters_[i]] for i in self._order.tolist()}

    def words(self, cluster: int | str, n: int | None = None) -> list[str]:
        """The most frequent words of a cluster, or of all clusters below a node of the tree.

        Parameters
        ----------
        cluster
            The number of a cluster, or the beginning of a bit string.
        n
            Number of words at most; None for all.

        Returns
        -------
        list of str
            Most frequent first.

        Raises
        ------
        InputError
            If there is no such cluster or path.
        """
        self._check_fitted()
        if isinstance(cluster, str):
            chosen = np.array([p.startswith(cluster) for p in self.paths_])
        else:
            chosen = np.arange(len(self.paths_)) == cluster
        if not chosen.any():
            what = f"path that begins with {cluster!r}" if isinstance(cluster, str) else f"cluster {cluster}"
            raise InputError(f"There is no {what} among the {len(self.paths_)} clusters.")
        found = self._order[chosen[self.clusters_[self._order]]]
        return [self.vocabulary_.words[i] for i in found[:n].tolist()]

    def transform(self, X: Corpus | Iterable[Sequence[str]]) -> list[npt.NDArray[np.int32]]:
        """The cluster of each token.

        Parameters
        ----------
        X
            Sentences. A word outside the vocabulary is in the cluster of the unknown word (or of its class, if the
            vocabulary has classes), and in none, −1, if the text that was clustered had no unknown words.

        Returns
        -------
        list of int32 arrays (n_tokens,)
            One for each sentence.
        """
        self._check_fitted()
        return [self.clusters_[ids] for ids in encode_sentences(self.vocabulary_, X)]

    # --- files ------------------------------------------------------------------------------------------

    def save_paths(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write lines `bit string TAB word TAB count`: clusters by path, their words by falling count.

        Parameters
        ----------
        path
            The file.
        overwrite
            Replace the file if it exists.
        """
        lines = self.path_lines()
        with finished_file(Path(path), overwrite=overwrite) as ready, open(ready, "wb") as f:
            f.writelines(lines)

    def path_lines(self) -> list[bytes]:
        """The lines that `save_paths` writes.

        Returns
        -------
        list of bytes
            UTF-8, each with its line feed.
        """
        self._check_fitted()
        words, counts = self.vocabulary_.words, self.vocabulary_.counts
        order = sorted(self._order.tolist(), key=lambda i: self.paths_[self.clusters_[i]])  # stable within a cluster
        return [f"{self.paths_[self.clusters_[i]]}\t{words[i]}\t{counts[i]}\n".encode() for i in order]

    @classmethod
    def load_paths(cls, path: str | os.PathLike[str]) -> WordClusters:
        """Read clusters from a file of paths, of this or another program.

        Parameters
        ----------
        path
            A file of `bit string TAB word TAB count` lines.

        Returns
        -------
        WordClusters
            They answer questions, but cannot be saved as a model.

        Raises
        ------
        InputError
            If the file cannot be read or a line is not of this form.
        """
        rows = _read_rows(Path(path))
        names = sorted({bits for bits, _, _ in rows})
        rows.sort(key=lambda row: (row[1] != UNKNOWN, -row[2]))
        if not rows or rows[0][1] != UNKNOWN:
            rows.insert(0, ("", UNKNOWN, 0))
        number = {bits: c for c, bits in enumerate(names)}
        vocabulary = Vocabulary([word for _, word, _ in rows], [count for _, _, count in rows])
        clusters = np.array([number.get(bits, -1) for bits, _, _ in rows], dtype=np.int32)
        model = cls(len(names))
        model._finish(vocabulary, clusters, names, [])
        return model

    def save(self, path: str | os.PathLike[str], overwrite: bool = False, *, bits: int | None = None) -> None:
        """Write the clusters to a directory, all or nothing; `undertow.load` reads it back.

        Parameters
        ----------
        path
            The directory.
        overwrite
            Replace a model that is there.
        bits
            Not of clusters: leave it out.

        Raises
        ------
        InputError
            If the clusters come from a file of paths.
        """
        self._check_fitted()
        if not self.history_:
            raise InputError("These clusters come from a file of paths and have no history: write them by save_paths.")
        super().save(path, overwrite=overwrite, bits=bits)

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        assert state.n_words is not None
        return {"clusters": TensorSpec("int32", (state.n_words,))}

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {"clusters": self.clusters_}

    def _fitted_scalars(self) -> dict[str, Any]:
        return {"paths": self.paths_, "tokenizer": self.tokenizer_}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        paths, clusters = state.fitted["paths"], tensors["clusters"]
        strings = isinstance(paths, list) and all(isinstance(p, str) and re.fullmatch("[01]+", p) for p in paths)
        if not strings or not -1 <= clusters.min() <= clusters.max() < len(paths):
            raise InputError("the clusters and their paths do not belong together.")
        ordered = sorted(paths)  # right after a path come the paths that continue it, if there are any
        if any(after.startswith(before) for before, after in itertools.pairwise(ordered)):
            raise InputError("the path of a cluster continues that of another: they are not leaves of one tree.")

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        if ((tensors["clusters"] >= 0) != (self.vocabulary_.counts > 0)).any():
            raise InputError("the words with a cluster are not those of the text.")
        self.clusters_, self.paths_ = tensors["clusters"], state.fitted["paths"]
        self.tokenizer_ = state.fitted["tokenizer"]
        self._prepare()


def _pass_iterations(passes: Iterator[Pass], unigram: I64, n_done: int) -> Iterator[Iteration[npt.NDArray[np.int32]]]:
    """The passes of the exchange algorithm after its start; the objective is the mean log-probability of a token."""
    n_tokens = float(unigram.sum())
    constant = float((unigram * np.log(unigram)).sum())  # the term that the objective of the passes leaves out
    next(passes)
    for number, now in enumerate(passes, n_done + 1):
        value, state = (now.objective + constant) / n_tokens, partial(tuple, (number, now.moves, now.classes))
        yield Iteration(value, now.classes, remark=f"{now.moves} words moved", state=state)


def _read_rows(path: Path) -> list[tuple[str, str, int]]:
    """The bit string, word and count of each line, checked."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror}.") from e
    except UnicodeDecodeError as e:
        raise InputError(f"{path} is not a text file in UTF-8.") from e
    rows = []
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        parts = line.removesuffix("\r").split("\t")
        if len(parts) != 3 or not re.fullmatch("[01]+", parts[0]) or not re.fullmatch("[0-9]{1,18}", parts[2]):
            raise InputError(f"{path}, line {number}: {line[:60]!r} is not a bit string, a word and a count.")
        check_word(parts[1], f"{path}, line {number}")
        rows.append((parts[0], parts[1], int(parts[2])))
    if not rows:
        raise InputError(f"{path} has no line with a bit string, a word and a count.")
    return rows


__all__ = ["WordClusters"]
