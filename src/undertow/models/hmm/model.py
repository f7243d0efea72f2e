"""The hidden Markov model of text: a language model with thousands of states, fitted by EM on ordinary cores.

Parameters and inference are in `hmm_params`, EM in `hmm_em`, the start in `hmm_start` and `hmm_init`, questions in
`hmm_queries`; the class only forwards.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine, Serial, Threads, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.models.base import (
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    check_choice,
    check_flag,
    check_number,
    check_random_state,
    check_whole,
    encode_sentences,
)
from undertow.models.fitting import InterruptedFitWarning, TrainingEvent, check_callbacks, check_share, split_text
from undertow.models.hmm import em as hmm_em
from undertow.models.hmm import queries as hmm_queries
from undertow.models.hmm import storage as hmm_storage
from undertow.models.hmm.init import INITS
from undertow.models.hmm.params import Emission, Params
from undertow.models.hmm.start import Start, begin, choose_blocks, resume
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

VIEWS = ("features", "posterior")
WIDEST = 512  # a view of features has at most about so many columns
BATCH_TOKENS = 1 << 16  # queries take a text in runs of about this many tokens
Sentences = Corpus | Iterable[Sequence[str]]


class Step(NamedTuple):
    """A step of the hidden state that tells much: its probability, and words of the states it leads from and to."""

    strength: float
    before: list[str]
    after: list[str]


class WordProbability(NamedTuple):
    word: str
    probability: float


class HMM(Estimator):
    """A hidden Markov model with many states.

    n_states: Z. n_blocks: words and states are cut into so many blocks and a state emits only words of its block; None:
    one for every 32 states, none (1) below 512 states. rank: None for a full transition (with blocks: a matrix for each
    pair of blocks seen), or F for one through F features. band: half-width of a band beside a low rank, without blocks
    only. init: "random" (blocks are clusters all the same), "clusters" or "spectral"; "auto" is "random" for blocks
    with a full transition and "clusters" for all else (a low rank, a band, no blocks, neural or not). parameterization:
    "table" (EM) or "neural" (needs PyTorch). n_iter: passes over the text; n_chunks: parts of it after each of which
    the parameters are renewed (1: plain EM). smoothing: multiplies all pseudo-counts; 0 is maximum likelihood. carry:
    go on from sentence to sentence instead of beginning each anew. validation: share of the text, its end, that is held
    out to stop early; None for none. warm_start: let `fit` go on from the parameters at hand.
    """

    kind = "hmm"

    def __init__(
        self,
        n_states: int = 6144,
        *,
        n_blocks: int | None = None,
        rank: int | None = None,
        band: int = 0,
        init: str = "auto",
        parameterization: str = "table",
        n_iter: int = 12,
        n_chunks: int = 8,
        smoothing: float = 1.0,
        carry: bool = False,
        validation: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_states = n_states
        self.n_blocks = n_blocks
        self.rank = rank
        self.band = band
        self.init = init
        self.parameterization = parameterization
        self.n_iter = n_iter
        self.n_chunks = n_chunks
        self.smoothing = smoothing
        self.carry = carry
        self.validation = validation
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _check_params(self) -> None:
        super()._check_params()
        least = {"n_states": 1, "n_blocks": 1, "rank": 1, "band": 0, "n_iter": 1, "n_chunks": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if value is None and name in ("n_blocks", "rank"):
                continue
            check_whole("HMM", name, value, low)
        if self.n_blocks is not None and self.n_blocks > self.n_states:
            raise InputError(f"HMM: n_blocks={self.n_blocks} need as many states, and n_states={self.n_states}.")
        if self.rank is not None and self.rank > self.n_states:
            raise InputError(f"HMM: rank={self.rank} is above n_states={self.n_states}: a rank at most that is full.")
        if self.band and (self.rank is None or (self.n_blocks or 1) > 1):
            raise InputError("HMM: a band goes with a rank and without blocks: give rank, and n_blocks=1.")
        for name, allowed in (("init", ("auto", *INITS)), ("parameterization", ("table", "neural"))):
            check_choice("HMM", name, getattr(self, name), allowed)
        check_number("HMM", "smoothing", self.smoothing, 0, 1e9)
        check_share(self.validation, "HMM")
        for name in ("carry", "warm_start", "verbose"):
            check_flag("HMM", name, getattr(self, name))
        count_workers(self.n_jobs)

    # --- fitting ----------------------------------------------------------------------------------------

    @one_blas_thread()
    def fit(
        self, X: Sentences, y: Any = None, *, validation: Sentences | None = None, engine: Engine | None = None
    ) -> Self:
        """Fit to a Corpus or an iterable of token lists.

        `validation` is other text to stop by: fitting ends with the pass after which it becomes less probable, and
        keeps the best. `engine` takes the E-steps to processes or a cluster. With `warm_start`, EM goes on from the
        parameters at hand, those of a loaded model too; all words of the text must have been seen by the first fit.
        """
        self._check_params()
        rng = check_random_state(self.random_state)
        check_callbacks(self.callbacks)
        corpus = as_corpus(X)
        going_on = self.warm_start and self.__sklearn_is_fitted__()
        if going_on and corpus.vocabulary != self.vocabulary_:
            corpus = Corpus.from_sentences(corpus.token_lists(), vocabulary=self.vocabulary_)
        text, other = split_text(corpus, self.validation, validation)
        if self.parameterization == "neural":
            params, history, scores = _neural_fit()(self, text, other)
            self._finish(params, history, scores, corpus)
            return self
        chunks = hmm_em.cut(text, min(self.n_chunks, text.n_sentences), self.carry)
        held = [shard for chunk in hmm_em.cut(other, 1, self.carry) for shard in chunk] if other is not None else []
        start = self._start(text, chunks, rng, going_on)
        before = (self.history_, self.validation_history_) if going_on else ([], [])
        with engine or self._engine() as place:
            params, history, scores = self._em(start, chunks, held, place)
        self._finish(params, before[0] + history, before[1] + scores, corpus)
        return self

    def _start(self, text: Corpus, chunks: Any, rng: np.random.Generator, going_on: bool) -> Start:
        words = text.vocabulary.counts
        if going_on:
            return resume(self.params_, chunks, words, self.smoothing, text.vocabulary.words)
        n_blocks = choose_blocks(self.n_blocks, self.n_states, int((words > 0).sum()))
        if self.band and n_blocks > 1:
            n_blocks = 1
        counts = LagCounts.from_corpus(text, lags=1, n_jobs=self.n_jobs)
        n_threads = count_workers(self.n_jobs)
        return begin(
            counts, chunks, self.n_states, n_blocks, self.rank, self.band, self.init, self.smoothing, rng, n_threads
        )

    def _engine(self) -> Engine:
        n = count_workers(self.n_jobs)
        return Threads(n) if n > 1 else Serial()

    def _em(self, start: Start, chunks: Any, held: Any, engine: Engine) -> tuple[Params, list[float], list[float]]:
        callbacks = check_callbacks(self.callbacks)
        began = time.perf_counter()
        history: list[float] = []
        scores: list[float] = []
        best: Params = start.params
        try:
            wait = self.smoothing == 0
            for now in hmm_em.passes(start.params, start.m_step, chunks, self.n_iter, engine, wait=wait):
                score = hmm_em.held_out(now.params, held, engine) if held else None
                worse = score is not None and bool(scores) and score <= max(scores)
                if not worse:
                    best = now.params
                if score is not None:
                    scores.append(score)
                history.append(now.log_likelihood)
                event = TrainingEvent(len(history), self.n_iter, history[-1], time.perf_counter() - began)
                if self.verbose:
                    told = "" if score is None else f", held out {np.exp(-score):.2f}"
                    print(f"pass {event.iteration}: perplexity {np.exp(-history[-1]):.2f}{told}, {event.seconds:.0f} s")
                for callback in callbacks:
                    callback(event)
                if worse:
                    break
        except KeyboardInterrupt:
            if not history:
                raise
            warnings.warn(
                f"Interrupted after {len(history)} passes; the last finished one is kept.",
                InterruptedFitWarning,
                stacklevel=3,
            )
        return best, history, scores

    def _finish(self, params: Params, history: list[float], scores: list[float], corpus: Corpus) -> None:
        """Set the fitted attributes, all at once."""
        self.params_ = params
        self._derived = hmm_queries.Derived(params)
        self.vocabulary_ = corpus.vocabulary
        self.tokenizer_ = corpus.manifest.get("tokenizer")
        self.validation_history_ = scores
        self.history_ = history

    # --- parameters -------------------------------------------------------------------------------------

    @property
    def initial_(self) -> npt.NDArray[np.float32]:
        """(Z,) distribution of the first state of a sentence."""
        self._check_fitted()
        return self.params_.initial

    @property
    def transition_(self) -> Any:
        """The transition as an operator: `push`, `pull`, and `dense()` (Z, Z) for small models."""
        self._check_fitted()
        return self.params_.transition

    @property
    def emission_(self) -> Emission:
        """`dense()` is (Z, V), for small models."""
        self._check_fitted()
        return Emission(self.params_)

    # --- as a language model ----------------------------------------------------------------------------

    @one_blas_thread()
    def log_probabilities(self, X: Sentences) -> list[npt.NDArray[np.float64]]:
        """log p(token | tokens before it), one array a sentence; −inf for a word of probability zero.

        Words outside the vocabulary are all one word, the unknown one. If the training text had none, it is a missing
        observation: it tells nothing of the state, and has the probability of a word never seen (Good–Turing).
        """
        self._check_fitted()
        out = []
        for ids, bounds, edges in self._runs(X):
            logs = self.params_.filtered(ids, bounds).log_probabilities
            out += [logs[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        return out

    def score(self, X: Sentences, y: Any = None) -> float:
        """Mean log-probability of a token."""
        X = _kept(X)
        parts = self.log_probabilities(X)
        n_tokens = sum(len(p) for p in parts)
        if n_tokens == 0:
            raise InputError("There is no token to score: give at least one.")
        logs = np.concatenate(parts)
        if np.isneginf(logs).any():
            ids = np.concatenate(encode_sentences(self.vocabulary_, X))
            word = self.vocabulary_.words[int(ids[np.flatnonzero(np.isneginf(logs))[0]])]
            warnings.warn(f"The model gives the word {word!r} probability zero where it stands.", stacklevel=2)
            return -np.inf
        return float(np.sum(logs) / n_tokens)

    def perplexity(self, X: Sentences) -> float:
        return float(np.exp(-self.score(X)))

    def next_words(self, prefix: Sequence[str], n: int = 10) -> list[WordProbability]:
        """The n most probable words after the tokens of `prefix`, which may be empty; only words seen in training."""
        p = np.where(self.vocabulary_.counts > 0, self._next(prefix), 0.0)
        order = np.argsort(-p, kind="stable")[:n]
        return [WordProbability(self.vocabulary_.words[i], float(p[i])) for i in order.tolist()]

    def next_distribution(self, prefix: Sequence[str]) -> npt.NDArray[np.float64]:
        """(V,) probability of every word after the tokens of `prefix`; sums to one."""
        return self._next(prefix)

    @one_blas_thread()
    def _next(self, prefix: Sequence[str]) -> npt.NDArray[np.float64]:
        self._check_fitted()
        [ids] = encode_sentences(self.vocabulary_, [prefix])
        p = self.params_.word_probabilities(hmm_queries.state_after(self.params_, ids))
        return np.asarray(p / p.sum())

    @one_blas_thread()
    def sample(self, n_tokens: int = 50, *, random_state: Any = 0, prefix: Sequence[str] = ()) -> list[str]:
        """Tokens drawn from the model, going on from `prefix`; after the boundary word a sentence begins anew."""
        self._check_fitted()
        if isinstance(n_tokens, bool) or not isinstance(n_tokens, int | np.integer) or n_tokens < 0:
            raise InputError(f"n_tokens={n_tokens!r} must be a whole number, at least 0.")
        rng = check_random_state(random_state)
        [ids] = encode_sentences(self.vocabulary_, [prefix])
        boundary = None if self.carry else self.vocabulary_.boundary_id
        drawable = self.vocabulary_.counts > 0
        drawn = hmm_queries.sample_words(self._tables(), int(n_tokens), rng, ids, boundary, drawable)
        return [self.vocabulary_.words[i] for i in drawn]

    # --- states -----------------------------------------------------------------------------------------

    @one_blas_thread()
    def transform(self, X: Sentences, view: str = "features") -> list[npt.NDArray[np.float32]]:
        """One float32 array (n_tokens, d) a sentence: where the hidden state is, given the whole sentence.

        view: "posterior" is its distribution, Z wide; "features" is the same up to 512 states, and beyond that what
        the state says of the next token: a distribution over the F features of a low rank, or over the blocks.
        """
        self._check_fitted()
        if view not in VIEWS:
            raise InputError(f"view={view!r} must be one of {', '.join(VIEWS)}.")
        wide = view == "features" and self.params_.n_states > WIDEST
        table = self._tables().profile if wide else None
        out = []
        for ids, bounds, edges in self._runs(X):
            rows = hmm_queries.projected(self.params_, ids, bounds, table)
            out += [rows[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        return out

    def posterior(self, X: Sentences) -> list[npt.NDArray[np.float32]]:
        """(n_tokens, Z) distributions of the state of each token, given its sentence."""
        return self.transform(X, "posterior")

    @one_blas_thread()
    def decode(self, X: Sentences, method: str = "posterior") -> list[npt.NDArray[np.int64]]:
        """A state for each token: the most probable one by itself ("posterior"), or of the best path ("viterbi").

        With a low rank the path is that of states and features together.
        """
        self._check_fitted()
        if method not in ("posterior", "viterbi"):
            raise InputError(f"method={method!r} must be 'posterior' or 'viterbi'.")
        fn = hmm_queries.viterbi if method == "viterbi" else hmm_queries.posterior_states
        out = []
        for ids, bounds, edges in self._runs(X):
            states = fn(self.params_, ids, bounds)
            out += [states[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        return out

    def top_words(self, state: int, n: int = 10, *, relevance: float = 0.6) -> list[WordProbability]:
        """Words of a state; a relevance of 1 ranks by p(word | state), less favours words that stand out there."""
        self._check_fitted()
        if isinstance(state, bool) or not isinstance(state, int | np.integer) or not 0 <= state < self.params_.n_states:
            raise InputError(f"state={state!r} must be one of 0 to {self.params_.n_states - 1}.")
        found = hmm_queries.relevant_words(self.params_, int(state), n, self.vocabulary_.counts, relevance)
        return [WordProbability(self.vocabulary_.words[w], p) for w, p in found]

    @one_blas_thread()
    def transitions(self, n: int = 10, *, n_words: int = 5) -> list[Step]:
        """The n steps between states that tell most of what comes next, in words."""
        self._check_fitted()
        words = {}
        steps = hmm_queries.typical_transitions(self._tables(), n)
        for state in {z for _, *ends in steps for z in ends}:
            words[state] = [w.word for w in self.top_words(state, n_words)]
        return [Step(p, words[z], words[z_next]) for p, z, z_next in steps]

    def _tables(self) -> hmm_queries.Derived:
        """Tables derived from the parameters, made anew where somebody has set others."""
        if self._derived.params is not self.params_:
            self._derived = hmm_queries.Derived(self.params_)
        return self._derived

    def _runs(self, X: Sentences) -> Iterable[tuple[Any, Any, Any]]:
        """(ids, bounds of independent sequences, edges of sentences) in runs of bounded size, unless carried over."""
        run: list[Any] = []
        n = 0
        for ids in encode_sentences(self.vocabulary_, X):
            run.append(ids)
            n += len(ids)
            if n >= BATCH_TOKENS and not self.carry:
                yield self._run(run)
                run, n = [], 0
        if run:
            yield self._run(run)

    def _run(self, run: list[Any]) -> tuple[Any, Any, Any]:
        edges = np.concatenate(([0], np.cumsum([len(s) for s in run]))).astype(np.int64)
        bounds = np.array([0, edges[-1]]) if self.carry else edges
        return np.concatenate(run), bounds, edges

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        assert state.n_words is not None
        return hmm_storage.tensor_spec(state.fitted["sizes"], state.n_words)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return hmm_storage.tensors(self.params_)

    def _fitted_scalars(self) -> dict[str, Any]:
        return {
            "sizes": hmm_storage.sizes(self.params_),
            "tokenizer": self.tokenizer_,
            "validation_history": self.validation_history_,
        }

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        hmm_storage.restored(tensors, state.fitted["sizes"]).check()

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self.params_ = hmm_storage.restored(tensors, state.fitted["sizes"])
        self._derived = hmm_queries.Derived(self.params_)
        self.tokenizer_ = state.fitted["tokenizer"]
        self.validation_history_ = [float(x) for x in state.fitted["validation_history"]]


def _neural_fit() -> Any:
    """The neural room knows models, not the other way round; it is asked when its word is said, and needs PyTorch."""
    try:
        from undertow.neural.hmm import fit_neural
    except ImportError as e:
        raise InputError("parameterization='neural' needs PyTorch: install undertow[torch].") from e
    return fit_neural


def _kept(X: Sentences) -> Sentences:
    """A text that can be read twice."""
    return X if isinstance(X, Corpus | list | tuple | str | bytes) or not isinstance(X, Iterable) else list(X)


__all__ = ["HMM", "Step", "WordProbability"]
