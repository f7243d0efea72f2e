"""Vectors of words from what stands beside them: pointwise mutual information, reduced to a few hundred numbers.

Two tables are reduced, each by itself. *Near*: the words one and two places before and after, each place apart, which
tell what kind of word it is. *Wide*: all words within the lags, on either side and in any order, which tell what the
text is about. What the tables hold, and how they are reduced, is in `kernels.words.pmi`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from undertow.engine import Engine, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.kernels.types import F32
from undertow.kernels.words.pmi import Subspace, positive_pmi, principal_scores, subspace_iterations
from undertow.models import similar_words
from undertow.models.answers import Neighbor
from undertow.models.base import (
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    encode_sentences,
    warn_of_many_components,
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
from undertow.tables import Table
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

Text = Corpus | LagCounts | Iterable[Sequence[str]]
CONTEXTS = {"near": ("near",), "wide": ("wide",), "both": ("near", "wide")}
NEAR_LAGS = 2
ROUNDING = 1e-5  # of float32 sums, as a share of the longest vector
MORE = 20  # dimensions that the iterations have beside those asked for, so that the last of these are found too


class PMIVectors(Estimator):
    """A vector for each word, from the pointwise mutual information of words and their contexts.

    They are vectors of words, the same in every sentence; an `LDS` gives vectors of tokens in their context. They are
    learned in seconds, and a `Tagger` reads them beside those of the LDS.

    Parameters
    ----------
    n_components
        Numbers of a vector, for each kind of context.
    contexts
        "near": the words one and two places away, each place apart. "wide": all words within the lags, on either side.
        "both": two vectors side by side.
    lags
        How far "wide" contexts reach.
    n_contexts
        So many of the most frequent words are contexts.
    power
        Counts of contexts are raised to this power before they are divided by; below 1, rare contexts count less.
    n_iter
        Subspace iterations.
    min_count
        Words seen less often are left out of `neighbors`.
    random_state
        Seed or generator, for the start of the iterations.
    n_jobs
        Number of threads; None for 1, −1 for all cores. It does not change the result.
    callbacks
        Functions of a `TrainingEvent`, called after each iteration.

    Attributes
    ----------
    vectors_ : float32 array (V, d)
        The vectors of the words; those of each kind of context have unit length. Words that the text does not have, or
        that stand beside nothing in particular, have zeros.
    history_ : list of float
        The share of the squared mutual information that the vectors explain, after each iteration.
    vocabulary_ : Vocabulary
        The words.
    tokenizer_ : dict or None
        The rule by which the text was split into tokens, if known.

    Examples
    --------
    >>> from undertow import PMIVectors
    >>> text = [["the", "cat", "sleeps"], ["the", "dog", "sleeps"], ["a", "cat", "runs"], ["a", "dog", "runs"]] * 5
    >>> vectors = PMIVectors(2, min_count=1, random_state=0).fit(text)
    >>> vectors.neighbors("cat", 1)[0].word
    'dog'
    >>> vectors.transform([["the", "cat"]])[0].shape
    (2, 4)
    """

    kind = "pmi"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_components": Whole(1, 100_000),
        "contexts": Choice(*CONTEXTS),
        "lags": Whole(1, 1000),
        "n_contexts": Whole(1),
        "power": Number(0, 1),
        "n_iter": Whole(1, 1000),
        "min_count": Whole(0),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "callbacks": CALLBACKS,
    }

    vectors_: F32
    tokenizer_: dict[str, Any] | None

    def __init__(
        self,
        n_components: int = 200,
        *,
        contexts: str = "both",
        lags: int = 7,
        n_contexts: int = 20_000,
        power: float = 0.75,
        n_iter: int = 4,
        min_count: int = 20,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_components = n_components
        self.contexts = contexts
        self.lags = lags
        self.n_contexts = n_contexts
        self.power = power
        self.n_iter = n_iter
        self.min_count = min_count
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callbacks = callbacks

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(self, X: Text, y: Any = None, *, engine: Engine | None = None, checkpoint: CheckpointSource = None) -> Self:
        """Learn the vectors of the words of a text; Ctrl-C keeps the last finished iteration.

        Parameters
        ----------
        X
            A corpus, token lists, or pair counts.
        y
            Ignored.
        engine
            Where to count pairs.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.

        Returns
        -------
        PMIVectors
            The fitted object itself.

        Raises
        ------
        InputError
            If the counts given have too few lags, or no two words stand beside each other.
        """
        self._check_params()
        rng = check_random_state(self.random_state)
        counts = self._count(X, engine)
        warn_of_many_components(self.n_components, counts.n_tokens, stacklevel=2)
        vocabulary = counts.vocabulary
        with one_blas_thread(), open_checkpoint(checkpoint, self, counts, rng) as at:
            tables = [self._table(counts, kind) for kind in CONTEXTS[self.contexts]]
            total = sum(float(np.square(table.data, dtype=np.float64).sum()) for table in tables)
            if total == 0:
                raise InputError(
                    "No two words of the text stand beside each other more often than by chance: give more text, or "
                    "longer sentences."
                )
            n_done, starts = at.state if at.state is not None else (0, self._starts(tables, rng))
            result = run_iterations(
                self._iterations(tables, starts, n_done, total),
                n_iter=self.n_iter,
                callbacks=self.callbacks,
                checkpoint=at,
            )
            vectors = [unit_rows(principal_scores(found, self.n_components)) for found in result.params]
        self.vectors_ = np.ascontiguousarray(np.hstack(vectors))
        self.vocabulary_, self.tokenizer_ = vocabulary, counts.tokenizer
        self.history_ = result.history
        return self

    def _count(self, X: Any, engine: Engine | None) -> LagCounts:
        needed = {"near": NEAR_LAGS, "wide": self.lags, "both": max(NEAR_LAGS, self.lags)}[self.contexts]
        if not isinstance(X, LagCounts):
            return LagCounts.from_corpus(as_corpus(X), lags=needed, n_jobs=self.n_jobs, engine=engine)
        if X.lags < needed:
            raise InputError(
                f'PMIVectors: contexts="{self.contexts}" and lags={self.lags} need counts of {needed} lags, and these '
                f"have {X.lags}: count again, or give fewer lags."
            )
        return X

    def _table(self, counts: LagCounts, kind: str) -> csr_array:
        """Words by contexts."""
        frequent = np.argsort(-counts.vocabulary.counts, kind="stable")[: self.n_contexts]
        if kind == "wide":
            pairs = counts.matrix(1)
            for k in range(2, self.lags + 1):
                pairs = pairs + counts.matrix(k)
            return positive_pmi((pairs + pairs.T).tocsr()[:, frequent], self.power)
        places = [side.tocsr()[:, frequent] for m in map(counts.matrix, range(1, NEAR_LAGS + 1)) for side in (m, m.T)]
        return hstack([positive_pmi(place, self.power) for place in places], format="csr")

    def _starts(self, tables: list[csr_array], rng: np.random.Generator) -> list[F32]:
        width = self.n_components + MORE
        return [rng.standard_normal((t.shape[1], min(width, *t.shape))).astype(np.float32) for t in tables]

    def _iterations(
        self, tables: list[csr_array], starts: list[F32], n_done: int, total: float
    ) -> Iterator[Iteration[list[Subspace]]]:
        n_threads = count_workers(self.n_jobs)
        steps = [
            subspace_iterations(table, start, self.n_iter - n_done, n_threads)
            for table, start in zip(tables, starts, strict=True)
        ]
        for i, found in enumerate(zip(*steps, strict=True), n_done + 1):
            explained = sum(part.explained() for part in found) / total
            loadings = [part.loadings for part in found]
            yield Iteration(explained, list(found), state=partial(tuple, (i, loadings)))

    # --- queries ----------------------------------------------------------------------------------------

    def transform(self, X: Corpus | Iterable[Sequence[str]], view: str = "features") -> list[F32]:
        """The vectors of the tokens.

        Parameters
        ----------
        X
            Sentences. A word outside the vocabulary has the vector of the unknown word, or of its class if the
            vocabulary has classes of unknown words.
        view
            "features" is all there is; "near" and "wide" are the vectors of these contexts alone.

        Returns
        -------
        list of float32 arrays (n_tokens, d)
            One for each sentence.

        Raises
        ------
        InputError
            If there is no such view.
        """
        self._check_fitted()
        kinds = CONTEXTS[self.contexts]
        if view not in ("features", *kinds):
            raise InputError(f"view={short(view)} must be one of {', '.join(('features', *kinds))}.")
        vectors = self.vectors_
        if view != "features":
            vectors = np.split(vectors, len(kinds), axis=1)[kinds.index(view)]
        return [vectors[ids] for ids in encode_sentences(self.vocabulary_, X)]

    def word_vectors(self) -> F32:
        """Vectors of the words.

        Returns
        -------
        float32 array (V, d)
            In the order of the vocabulary.
        """
        self._check_fitted()
        return self.vectors_

    def __getitem__(self, word: str) -> F32:
        """The vector (d,) of a word."""
        self._check_fitted()
        vector: F32 = self.vectors_[self._word_id(word)]
        return vector

    def similarity(self, a: str, b: str) -> float:
        """The cosine of the vectors of two words.

        Parameters
        ----------
        a, b
            Words of the vocabulary.

        Returns
        -------
        float
            From −1 to 1; 0 for a word whose vector is zero.

        Raises
        ------
        UnknownWordError
            If one is not in the vocabulary.
        """
        one, other = unit_rows(np.stack([self[a], self[b]]))
        return float(one @ other)

    def most_similar(
        self, positive: str | Sequence[str] = (), negative: str | Sequence[str] = (), topn: int = 10
    ) -> Table[Neighbor]:
        """The words nearest to the sum of the vectors of some words minus those of others, as gensim has it.

        Parameters
        ----------
        positive, negative
            A word or several; they are left out of the answer.
        topn
            How many.

        Returns
        -------
        Table of Neighbor
            Words seen at least `min_count` times, nearest first.

        Raises
        ------
        UnknownWordError
            If one is not in the vocabulary.
        InputError
            If no word is given, or `topn` is not a whole number.
        """
        self._check_fitted()
        return similar_words.most_similar(self, unit_rows(self.vectors_), positive, negative, topn, self.min_count)

    def neighbors(self, word: str, n: int = 10, *, position: int | None = None) -> Table[Neighbor]:
        """The words most like a word.

        Parameters
        ----------
        word
            A word of the vocabulary.
        n
            How many.
        position
            Not of vectors of words: leave it out.

        Returns
        -------
        Table of Neighbor
            Words seen at least `min_count` times, nearest first.

        Raises
        ------
        InputError
            If the word is not in the vocabulary, or n is not a whole number.
        """
        self._check_fitted()
        if not isinstance(word, str) or position is not None:
            raise InputError(
                "PMIVectors are vectors of words, not of tokens in a sentence: give a word, or use an LDS."
            )
        Whole(0).check("neighbors", "n", n)
        itself = self._word_id(word)
        unit = unit_rows(self.vectors_)
        return similar_words.neighbors(unit, self.vocabulary_, unit[itself], [itself], int(n), self.min_count)

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        assert state.n_words is not None
        width = len(CONTEXTS[state.params["contexts"]]) * state.params["n_components"]
        return {"vectors": TensorSpec("float32", (state.n_words, width))}

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {"vectors": self.vectors_}

    def _fitted_scalars(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer_}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        parts = np.split(tensors["vectors"], len(CONTEXTS[state.params["contexts"]]), axis=1)
        for part in parts:
            length = np.linalg.norm(part.astype(np.float64), axis=1)
            if not np.all((length < 1e-6) | (np.abs(length - 1) < 1e-3)):
                raise InputError("the vectors of a kind of context are neither zero nor of unit length.")

    def _restore(self, tensors: Mapping[str, NDArray[Any]], state: SavedState) -> None:
        self.vectors_ = tensors["vectors"]
        self.tokenizer_ = state.fitted["tokenizer"]


def unit_rows(vectors: F32) -> F32:
    """Rows of unit length; what is rounding beside the longest row becomes zeros."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    out: F32 = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > ROUNDING * length.max(initial=0))
    return out


__all__ = ["PMIVectors"]
