"""A small honest model that only the tests use: the contract's first citizen, before any shipped model.

Deleted interpolation (Jelinek and Mercer, 1980): each token is drawn from one of three predictors, uniform,
unigram or bigram, chosen with probabilities `weights`. The sentences are dealt into two halves; EM finds the
weights that predict each half best from the counts of the other, so the bigram is trusted as far as it
deserves.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.errors import InputError
from undertow.kernels.chain.smoothing import check_rows
from undertow.models.base import (
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    encode_sentences,
)
from undertow.models.constraints import (
    CALLBACKS,
    RANDOM_STATE,
    Constraint,
    Number,
    Whole,
    check_callbacks,
    check_random_state,
)
from undertow.models.fitting import Callback, InterruptedFitWarning, TrainingEvent
from undertow.storage import register

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.uint32]


def bigram_counts(sentences: list[Ids], n_words: int) -> Floats:
    """counts[i, j]: how often word j follows word i; row n_words is the start of a sentence."""
    counts = np.zeros((n_words + 1, n_words))
    for ids in sentences:
        np.add.at(counts, (np.concatenate(([n_words], ids[:-1])), ids), 1.0)
    return counts


def predictors(counts: Floats, smoothing: float) -> tuple[Floats, Floats]:
    """Unigram (V,) and bigram (V + 1, V) probabilities with `smoothing` added to every count."""
    unigram, bigram = counts.sum(axis=0) + smoothing, counts + smoothing
    return unigram / unigram.sum(), bigram / bigram.sum(axis=1, keepdims=True)


def token_log_probs(ids: Ids, unigram: Floats, bigram: Floats) -> Floats:
    """(n_tokens, 3): the log-probability of each token under each predictor."""
    previous = np.concatenate(([len(unigram)], ids[:-1])).astype(np.int64)
    uniform = np.full(len(ids), -math.log(len(unigram)))
    return np.stack([uniform, np.log(unigram[ids]), np.log(bigram[previous[: len(ids)], ids])], axis=1)


@register
class DeletedInterpolation(Estimator):
    """Unigram and bigram probabilities, mixed by EM on held-out halves."""

    kind: ClassVar[str] = "test-deleted-interpolation"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_iter": Whole(1),
        "smoothing": Number(1e-9, 1e9),
        "random_state": RANDOM_STATE,
        "callbacks": CALLBACKS,
    }

    def __init__(
        self,
        n_iter: int = 10,
        *,
        smoothing: float = 0.1,
        random_state: int | np.random.Generator | None = None,
        callbacks: list[Callback] | None = None,
    ):
        self.n_iter = n_iter
        self.smoothing = smoothing
        self.random_state = random_state
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None) -> Self:
        self._check_params()
        callbacks, rng = check_callbacks(self.callbacks), check_random_state(self.random_state)
        corpus = as_corpus(X)
        begin = time.monotonic()
        sentences, n_words = list(corpus.sentences()), len(corpus.vocabulary)
        held_out = np.exp(self._held_out_log_probs(sentences, n_words, rng))
        weights, history = rng.dirichlet(np.ones(3)), list[float]()
        try:
            for iteration in range(1, self.n_iter + 1):
                joint = held_out * weights
                new = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
                objective = float(np.log(held_out @ new).mean())
                weights, history = new, [*history, objective]
                event = TrainingEvent(iteration, self.n_iter, objective, time.monotonic() - begin)
                for callback in callbacks:
                    callback(event)
        except KeyboardInterrupt:
            if not history:
                raise
            warnings.warn(
                f"Interrupted after {len(history)} of {self.n_iter} iterations; the last one is kept.",
                InterruptedFitWarning,
                stacklevel=2,
            )
        counts = bigram_counts(sentences, n_words)
        self.unigram_, self.bigram_ = predictors(counts, self.smoothing)
        self.weights_ = weights
        self.n_tokens_ = corpus.n_tokens
        self.vocabulary_ = corpus.vocabulary
        self.history_ = history
        return self

    def _held_out_log_probs(self, sentences: list[Ids], n_words: int, rng: np.random.Generator) -> Floats:
        order = rng.permutation(len(sentences))
        halves = [[sentences[i] for i in order[k::2]] for k in range(2)]
        out = []
        for here, there in [(0, 1), (1, 0)]:
            tables = predictors(bigram_counts(halves[there], n_words), self.smoothing)
            out += [token_log_probs(ids, *tables) for ids in halves[here]]
        return np.concatenate(out)

    def transform(self, X: Any) -> list[npt.NDArray[np.float32]]:
        """For each token its log-probability under the uniform, unigram and bigram predictor."""
        self._check_fitted()
        return [
            token_log_probs(ids, self.unigram_, self.bigram_).astype(np.float32)
            for ids in encode_sentences(self.vocabulary_, X)
        ]

    def log_probabilities(self, X: Any) -> list[Floats]:
        """log p(token | the token before it), one array a sentence."""
        self._check_fitted()
        sentences = encode_sentences(self.vocabulary_, X)
        logs = [token_log_probs(ids, self.unigram_, self.bigram_) for ids in sentences]
        return [np.log(np.exp(log) @ self.weights_) for log in logs]

    def score(self, X: Any, y: Any = None) -> float:
        logs = self.log_probabilities(X)
        n_tokens = sum(map(len, logs))
        if n_tokens == 0:
            raise InputError("A score needs at least one token: these sentences have none.")
        return float(sum(log.sum() for log in logs)) / n_tokens

    def perplexity(self, X: Any) -> float:
        return math.exp(-self.score(X))

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        n = state.n_words
        assert n is not None
        return {
            "weights": TensorSpec("float64", (3,)),
            "unigram": TensorSpec("float64", (n,)),
            "bigram": TensorSpec("float64", (n + 1, n)),
        }

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {"weights": self.weights_, "unigram": self.unigram_, "bigram": self.bigram_}

    def _fitted_scalars(self) -> dict[str, Any]:
        return {"n_tokens": self.n_tokens_}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        check_rows(tensors["weights"][None, :], "weights of the predictors")

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self.weights_, self.unigram_, self.bigram_ = tensors["weights"], tensors["unigram"], tensors["bigram"]
        self.n_tokens_ = int(state.fitted["n_tokens"])
