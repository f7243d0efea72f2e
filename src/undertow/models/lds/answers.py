"""What a fitted linear dynamical system gives: token vectors, probabilities, words; and how it is saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.engine import count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.gaussian.gains import gain_at_missing
from undertow.kernels.gaussian.linalg import (
    check_covariance,
    doubling_powers,
    solve_lyapunov,
    sqrt_and_inverse,
    symmetrize,
)
from undertow.kernels.gaussian.smoother import (
    exact_gains,
    filter_only,
    posterior_covariances,
    smooth,
    smooth_exact,
    whiten_and_normalize,
)
from undertow.kernels.gaussian.stream import ChainStream
from undertow.models.base import Estimator, SavedState, TensorSpec, encode_sentences
from undertow.models.lds import queries as lds_queries
from undertow.models.lds.params import LDSParams, check_params, steady_state
from undertow.models.lds.stream import TokenStream
from undertow.text.corpus import Corpus

SMOOTHED_TOLERANCE = 0.05  # the statistics are approximate, so a small moment may come out below zero
VIEWS = ("type", "filter", "smooth", "features")
Vectors = npt.NDArray[np.float32]


class Transition(NamedTuple):
    """Words that lead into others: the strongest steps the hidden state takes."""

    strength: float  # correlation of the words before with the words after, at most 1
    before: list[str]
    after: list[str]


class Neighbor(NamedTuple):
    word: str
    cosine: float


class Recurrence(NamedTuple):
    """m_t = transition·m_{t−1} + inputs[x_t]; to first order log p(x_{t+1} = i) ≈ log frequency_i + outputs_i·m_t."""

    transition: npt.NDArray[np.float64]  # (h, h)
    inputs: npt.NDArray[np.float64]  # (V, h)
    outputs: npt.NDArray[np.float64]  # (V, h)
    frequency: npt.NDArray[np.float64]  # (V,)
    spread: npt.NDArray[np.float64]  # (h,) standard deviation of each coordinate of m_t under the model


class LDSAnswers(Estimator):
    """The half of `LDS` that asks nothing but the parameters; fitting is the other."""

    min_count: int
    n_jobs: int | None
    params_: LDSParams
    state_moment_: npt.NDArray[np.float64]  # (h, h)
    dropped_: npt.NDArray[np.float64]  # (V,) share of a word's tokens that were dropped

    def _prepare(self) -> None:
        """What every query needs and the parameters give."""
        C, mu = self.params_.C, self.params_.mu
        self._steady = steady_state(self.params_)
        self._J_missing = gain_at_missing(self.params_.A, self.params_.Q, self._steady.Sigma1, self._steady.V_s)
        scale = np.divide(1.0, np.sqrt(mu), out=np.zeros_like(mu), where=mu > 0)
        rows = (scale[:, None] * C).astype(np.float32)  # C_i/√μ_i
        # the model knows text in which words were dropped: what a token of word i shows as, on average
        lost = self.dropped_[:, None].astype(np.float32)
        self._rows = (1 - lost) * rows + lost * rows[self.vocabulary_.fallback()]
        self._table = self._rows @ self._steady.K_c.T.astype(np.float32)  # what a word adds to the state
        self._whiten = sqrt_and_inverse(self.state_moment_)[1]
        # at EM's fixed point M C_i/√μ_i is the mean state of word i; it serves taggers better than the row of the table
        self._types = self._coordinates(self._rows @ self.params_.M.T.astype(np.float32))
        self._stationary = symmetrize(solve_lyapunov(doubling_powers(self.params_.A), self.params_.Q))

    # --- token vectors ----------------------------------------------------------------------------------

    def transform(
        self, X: Corpus | Iterable[Sequence[str]], view: str = "features", *, exact: bool = False
    ) -> list[Vectors]:
        """One float32 array (n_tokens, d) a sentence, whitened and on the unit sphere.

        view: "type" is the word alone, "filter" the word and what came before, "smooth" the whole sentence, "features"
        type and smooth side by side. A word outside the vocabulary is a missing observation and gets its vector from
        the context; where the vocabulary has classes of unknown words it is observed as its class. `exact` takes the
        gains of each place in the sentence instead of the steady ones.
        """
        self._check_fitted()
        if view not in VIEWS:
            raise InputError(f"view={view!r} must be one of {', '.join(VIEWS)}.")
        ids, offsets = self._flat(X)
        parts = []
        if view in ("type", "features"):
            parts.append(self._types[ids])
        if view in ("filter", "smooth", "features"):
            parts.append(self._coordinates(self._states(ids, offsets, view == "filter", exact)))
        out = np.concatenate(parts, axis=1)
        return [out[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    def _flat(self, X: Any) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        sentences = encode_sentences(self.vocabulary_, X)
        offsets = np.concatenate(([0], np.cumsum([len(s) for s in sentences]))).astype(np.int64)
        ids = np.concatenate(sentences) if sentences else np.empty(0, dtype=np.uint32)
        return ids, offsets

    def _coordinates(self, vectors: Vectors) -> Vectors:
        return whiten_and_normalize(vectors, self._whiten)

    def _states(self, ids: Any, offsets: Any, filtered: bool, exact: bool) -> Vectors:
        A, s = self.params_.A, self._steady
        missing = ids == self.vocabulary_.unknown_id
        n_threads = count_workers(self.n_jobs)
        with one_blas_thread():
            if exact:
                gains = exact_gains(A, self.params_.Q, s.N, self.params_.M, self._stationary)
                both = smooth_exact(ids, offsets, missing, self._rows, gains, n_threads=n_threads)
                return both[0] if filtered else both[1]
            if filtered:
                return filter_only(ids, offsets, missing, self._table, A, s.H, n_threads=n_threads)
            return smooth(ids, offsets, missing, self._table, A, s.H, s.J, self._J_missing, n_threads=n_threads)[1]

    def posterior_covariance(self, sentence: Sequence[str]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Filtered and smoothed covariances (n_tokens, h, h) of the state; only which words are unknown matters."""
        self._check_fitted()
        ids, _ = self._flat([sentence])
        missing = ids == self.vocabulary_.unknown_id
        p = self.params_
        return posterior_covariances(missing, p.A, p.Q, self._steady.N, p.M, self._stationary)

    def stream(self, delay: int = 5) -> TokenStream:
        """An object that takes tokens one at a time; see `TokenStream`."""
        self._check_fitted()
        s = self._steady
        chain = ChainStream(self.params_.A, s.H, s.J, self._J_missing, self._table, delay=delay)
        return TokenStream(chain, self.vocabulary_, self._coordinates)

    def recurrence(self) -> Recurrence:
        """The filter as a recurrent network without squashing would have it; see `Recurrence`."""
        self._check_fitted()
        counts = self.vocabulary_.counts + 1.0  # a word without counts gets a finite logarithm
        A, spread = self.params_.A, np.sqrt(np.diag(self._stationary - self._steady.Sigma0))
        return Recurrence(self._steady.H, self._table.astype(np.float64), self._rows @ A, counts / counts.sum(), spread)

    # --- as a language model ----------------------------------------------------------------------------

    def log_probabilities(self, X: Corpus | Iterable[Sequence[str]]) -> list[npt.NDArray[np.float64]]:
        """log p(token | tokens before it in its sentence), one array a sentence; unknown words are all one word."""
        self._check_fitted()
        ids, offsets = self._flat(X)
        filtered = self._states(ids, offsets, filtered=True, exact=False)
        lm = self._language_model()
        out = lds_queries.log_probabilities(lm, lds_queries.predicted_states(filtered, offsets, self.params_.A), ids)
        return [out[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    def _language_model(self) -> lds_queries.LinearLM:
        vocabulary = self.vocabulary_
        return lds_queries.language_model(
            self.params_.C, self.params_.mu, vocabulary.counts, self.dropped_, vocabulary.fallback()
        )

    def score(self, X: Corpus | Iterable[Sequence[str]], y: Any = None) -> float:
        """Mean log-probability of a token as a language model; the likelihood in history_ is another density."""
        parts = self.log_probabilities(X)
        n_tokens = sum(len(p) for p in parts)
        if n_tokens == 0:
            raise InputError("There is no token to score: give at least one.")
        return float(np.sum(np.concatenate(parts)) / n_tokens)

    def perplexity(self, X: Corpus | Iterable[Sequence[str]]) -> float:
        return float(np.exp(-self.score(X)))

    # --- words ------------------------------------------------------------------------------------------

    def word_vectors(self) -> Vectors:
        """(V, h) whitened unit vectors of the words, as the `type` view has them."""
        self._check_fitted()
        return self._types

    def neighbors(self, word: str | Sequence[str], n: int = 10, *, position: int | None = None) -> list[Neighbor]:
        """The words most like a word; or, with a sentence and a position in it, most like that token in its context."""
        self._check_fitted()
        if isinstance(word, str):
            if position is not None:
                raise InputError("position goes with a sentence, a list of tokens; a word alone has none.")
            if word not in self.vocabulary_:
                raise InputError(f"The word {word!r} is not in the vocabulary.")
            itself = self.vocabulary_.id(word)
            query = self._types[itself]
        else:
            tokens = list(word)
            if position is None or not -len(tokens) <= position < len(tokens):
                raise InputError(f"Give the position of the token: 0 to {len(tokens) - 1}.")
            itself = self.vocabulary_.id(tokens[position])
            query = self.transform([tokens], "smooth")[0][position]
        allowed = self._frequent()
        allowed[itself] = False
        best, cosines = lds_queries.nearest(self._types, query, n, allowed)
        return [Neighbor(self.vocabulary_.words[i], float(c)) for i, c in zip(best, cosines, strict=True)]

    def transitions(self, n: int = 10, *, n_words: int = 5) -> list[Transition]:
        """The n strongest transitions, each as the words it leads from and to (Table 1 of the paper)."""
        self._check_fitted()
        p, words = self.params_, self.vocabulary_.words
        strengths, *sides = lds_queries.transition_loadings(p.A, p.C, self._stationary, self._steady.N, p.mu, n)
        rare = ~self._frequent()
        out = []
        for d, strength in enumerate(strengths.tolist()):
            poles = []
            for sign in (1, -1):  # a singular pair has no sign: of its two poles take the one that stands out more
                scores = [np.where(rare, -np.inf, sign * side[:, d]) for side in sides]
                ends = [np.argsort(-x, kind="stable")[:n_words] for x in scores]
                poles.append((float(np.prod([x[e].mean() for x, e in zip(scores, ends, strict=True)])), ends))
            _, ends = max(poles, key=lambda pole: pole[0])
            out.append(Transition(strength, *([words[i] for i in end] for end in ends)))
        return out

    def _frequent(self) -> npt.NDArray[np.bool_]:
        """Words seen often enough to speak of, the special ones left out."""
        vocabulary = self.vocabulary_
        allowed = vocabulary.counts >= min(self.min_count, int(vocabulary.counts.max()))
        allowed[: vocabulary.n_special] = False
        return allowed

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        h, V = state.fitted["n_components"], state.n_words
        assert V is not None
        square = TensorSpec("float64", (h, h))
        return {
            "A": square,
            "C": TensorSpec("float64", (V, h)),
            "M": square,
            "Q": square,
            "dropped": TensorSpec("float64", (V,)),
            "mu": TensorSpec("float64", (V,)),
            "state_moment": square,
        }

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {**self.params_._asdict(), "state_moment": self.state_moment_, "dropped": self.dropped_}

    def _fitted_scalars(self) -> dict[str, Any]:
        return {"n_components": self.params_.n_components, "tokenizer": self.tokenizer_}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        check_params(LDSParams(**{name: tensors[name] for name in LDSParams._fields}))
        check_covariance(tensors["state_moment"], "second moment of the smoothed state", SMOOTHED_TOLERANCE)
        if not (tensors["dropped"].min() >= 0 and tensors["dropped"].max() <= 1):
            raise InputError("the shares of dropped tokens do not lie between 0 and 1.")

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self.params_ = LDSParams(**{name: tensors[name] for name in LDSParams._fields})
        self.state_moment_ = tensors["state_moment"]
        self.dropped_ = tensors["dropped"]
        self.tokenizer_ = state.fitted["tokenizer"]
        self._prepare()
