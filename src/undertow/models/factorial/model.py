"""The factorial hidden Markov model of text: every token has M states at once, one from each of M chains.

The chains move independently and choose each word together (`FactorialParams`). Inference is exact while the joint
states are few, else variational. The class only forwards: EM is in `em`, its start in `init`, inference with given
parameters in `params`, queries in `queries`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.constraints.kinds import Constraint as TextConstraint
from undertow.engine import Engine, count_workers, open_engine
from undertow.errors import InputError, short
from undertow.kernels.factorial.variational import BOUNDS
from undertow.kernels.factorial.viterbi import states_to_codes
from undertow.kernels.factorial.words import FactorialParams, Sizes, check_params, existing
from undertow.kernels.types import F32, F64, I64
from undertow.models.answers import Gap
from undertow.models.base import (
    CostWarning,
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    encode_sentences,
    extend_corpus,
    partly_known,
)
from undertow.models.constraints import (
    CALLBACKS,
    N_JOBS,
    RANDOM_STATE,
    Choice,
    Constraint,
    Number,
    Share,
    Verbosity,
    Whole,
    Wholes,
    check_random_state,
)
from undertow.models.factorial.em import EMSettings, PassState, held_out, passes
from undertow.models.factorial.init import INITS, cluster_start, random_start, with_new_words
from undertow.models.factorial.params import FactorialInference, InferenceSettings
from undertow.models.factorial.queries import (
    WordWeight,
    batches,
    best_paths,
    draw_states,
    draw_words,
    posterior,
    words_of_state,
)
from undertow.models.fitting import (
    Callback,
    CheckpointSource,
    FitResult,
    Iteration,
    OpenCheckpoint,
    open_checkpoint,
    run_iterations,
    split_text,
)
from undertow.progress import ProgressFn, ignore
from undertow.tables import Table
from undertow.text.corpus import Corpus
from undertow.text.tokenizer import checked_sentences

if TYPE_CHECKING:
    from undertow.questions.best_fill import JointFill
    from undertow.questions.evidence import Evidence, Observed, TextChain
    from undertow.questions.explain import Change, Comparison, Surprise

VIEWS = ("features", "posterior", "viterbi")
EXACT_FIT = 10_000  # joint states up to which `inference="auto"` is exact: there it costs less than variational sweeps
EXACT_SCORE = 100_000  # joint states up to which text is scored exactly, however the model was fitted
Text = Corpus | Iterable[Sequence[str]]
MOST_JOINT = 4_000_000  # joint states of which a table can be held
# Exact inference, measured at 8, 10 and 11 layers of 3 states and 6 of 6: memory of a worker per joint state, and
# processor time per token, joint state, layer and state of a layer
BYTES_A_JOINT_STATE = 1_700
NS_A_STEP = 0.7
WORTH_A_WARNING = (1 << 29, 0.05)  # bytes, hours


class FactorialHMM(Estimator):
    """A factorial hidden Markov model: M chains of states, fitted by EM.

    Parameters
    ----------
    n_layers
        Number of chains, M.
    n_states
        Number of states of each chain, K; or a list with a number for each, such as [60, 15].
    bound
        The lower bound that variational inference maximizes: "tilted", "jensen" (the paper's), or "mean_field", the
        tightest and cheapest, which needs a table of as many numbers as there are joint states.
    inference
        "exact" over the joint states (K^M; with [60, 15] 900), "variational", or "auto": exact up to 10,000 of them.
    n_iter
        Passes over the text.
    batch_size
        Tokens between two M-steps; the counts of each batch are kept until it is read again.
    max_sweeps, tol
        Variational inference ends after so many sweeps, or when the bound of a sentence rises by less than `tol` per
        token.
    smoothing
        Pseudo-counts of each word.
    m_passes
        Passes of each M-step over the layers.
    init
        How EM starts: "clusters" (another clustering of the words for each layer), "lds" (each layer clusters the words
        in its own subspace of a linear dynamical system) or "random".
    validation
        Share of the text, taken from its end, that is held out for early stopping; None for no early stopping.
    random_state
        Seed or generator.
    n_jobs
        Number of threads; None for 1, −1 for all cores.
    verbose
        Log each pass to the logger "undertow".
    callbacks
        Functions of a `TrainingEvent`, called after each pass.

    Attributes
    ----------
    params_ : FactorialParams
        Initial and transition probabilities of the chains, and the word weights θ.
    history_ : list of float
        Mean log-likelihood of a token after each pass, or the bound on it.
    validation_history_ : list of float
        The same for the held-out text; empty if there is none.
    vocabulary_ : Vocabulary
        The words.
    tokenizer_ : dict or None
        The rule by which the text was split into tokens, if known.

    Examples
    --------
    >>> from undertow import FactorialHMM
    >>> model = FactorialHMM(2, n_states=2, n_iter=2, random_state=0).fit([["a", "b", "a"], ["b", "a", "b"]])
    >>> model.transform([["a", "b"]])[0].shape
    (2, 4)
    >>> model.decode([["a", "b"]])[0].shape
    (2, 2)
    """

    kind = "fhmm"
    retired_params: ClassVar[Mapping[str, tuple[Any, ...]]] = {"update": ("closed", "lbfgs")}  # of the M-step
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_layers": Whole(1, 64),
        "n_states": Wholes(1, 1_000_000),
        "bound": Choice(*BOUNDS),
        "inference": Choice("auto", "exact", "variational"),
        "n_iter": Whole(1),
        "batch_size": Whole(1),
        "max_sweeps": Whole(1),
        "tol": Number(0, 1e9),
        "smoothing": Number(0, 1e9),
        "m_passes": Whole(1),
        "init": Choice(*INITS),
        "validation": Share(),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "verbose": Verbosity(),
        "callbacks": CALLBACKS,
    }
    params_: FactorialParams

    def __init__(
        self,
        n_layers: int = 2,
        *,
        n_states: int | Sequence[int] = 30,
        bound: str = "tilted",
        inference: str = "auto",
        n_iter: int = 10,
        batch_size: int = 50_000,
        max_sweeps: int = 10,
        tol: float = 1e-3,
        smoothing: float = 0.5,
        m_passes: int = 2,
        init: str = "clusters",
        validation: float | None = None,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_layers = n_layers
        self.n_states = n_states
        self.bound = bound
        self.inference = inference
        self.n_iter = n_iter
        self.batch_size = batch_size
        self.max_sweeps = max_sweeps
        self.tol = tol
        self.smoothing = smoothing
        self.m_passes = m_passes
        self.init = init
        self.validation = validation
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _check_params(self) -> None:
        super()._check_params()
        sizes = layer_sizes(self.n_layers, self.n_states)
        if len(sizes) != self.n_layers:
            raise InputError(
                f"FactorialHMM: n_states={short(self.n_states)} has not one number for each of n_layers="
                f"{self.n_layers}: give as many, or a single one for all layers."
            )
        how = self._inference_settings()
        if how.tabulates and prod(sizes) > MOST_JOINT:
            what = "inference='exact'" if how.exact else "bound='mean_field'"
            raise InputError(
                f"FactorialHMM: {what} needs a table of {_product(sizes)} joint states, more than "
                f"{MOST_JOINT:,}: take fewer layers or states, or inference='variational' with bound='tilted'."
            )

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(
        self,
        X: Text,
        y: Any = None,
        *,
        validation: Text | None = None,
        engine: Engine | None = None,
        checkpoint: CheckpointSource = None,
    ) -> Self:
        """Fit by EM; Ctrl-C after the first pass keeps what is finished.

        Parameters
        ----------
        X
            A corpus or token lists.
        y
            Ignored.
        validation
            Other text for early stopping: fitting ends with the pass after which it becomes less probable, and the best
            pass is kept.
        engine
            Where the E-steps run, with the same bits.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.

        Returns
        -------
        FactorialHMM
            The model itself.

        Raises
        ------
        InputError
            If a parameter is invalid or the text has no token.
        """
        self._check_params()
        corpus = as_corpus(X)
        self._warn_of_cost(corpus.n_tokens, engine)
        text, other = split_text(corpus, self.validation, validation)
        rng = check_random_state(self.random_state)
        with open_checkpoint(checkpoint, self, (text, other), rng) as saved:
            start = self._start(text, rng, engine) if saved.state is None else saved.state.params
            result = self._em(text, other, start, rng, engine, saved)
        self._finish(result.params, result.history, result.validation_history, corpus)
        return self

    def _warn_of_cost(self, n_tokens: int, engine: Engine | None) -> None:
        """Warn of the memory and time that exact inference over very many joint states will take."""
        sizes, how = layer_sizes(self.n_layers, self.n_states), self._inference_settings()
        n_joint = prod(sizes)
        if not how.exact or n_joint <= EXACT_FIT:
            return
        n_workers = count_workers(self.n_jobs) if engine is None else engine.n_workers
        n_bytes = n_workers * n_joint * BYTES_A_JOINT_STATE
        hours = NS_A_STEP * 1e-9 * sum(sizes) * n_joint * n_tokens * self.n_iter / n_workers / 3600
        if n_bytes > WORTH_A_WARNING[0] or hours > WORTH_A_WARNING[1]:
            warnings.warn(
                f"Exact inference over {_product(sizes)} = {n_joint:,} joint states needs about "
                f"{n_bytes / 2**30:.1f} GB and {hours:.2g} hours for {self.n_iter} passes over {n_tokens:,} tokens: "
                "take inference='variational', or fewer layers or states.",
                CostWarning,
                stacklevel=3,
            )

    def partial_fit(
        self,
        X: Text,
        y: Any = None,
        *,
        validation: Text | None = None,
        new_words: int | None = 1,
        engine: Engine | None = None,
    ) -> Self:
        """`n_iter` more passes, over this text, from the current parameters; a model not fitted yet is fitted.

        With the text of the fit it goes on as if it had not stopped. With other text the model follows that text: of
        the earlier one only the parameters it left are known, so that words this text lacks fall to their smoothing.
        Give both texts where both should count.

        Parameters
        ----------
        X
            A corpus or token lists.
        y
            Ignored.
        validation
            Other text for early stopping, as in `fit`.
        new_words
            Words outside the vocabulary join it if X has them at least so often; None leaves them unknown.
        engine
            Where the E-steps run.

        Returns
        -------
        FactorialHMM
            The model itself; `history_` and `validation_history_` are continued.

        Raises
        ------
        InputError
            If `n_layers` or `n_states` are no longer those of the fit.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, validation=validation, engine=engine)
        self._check_params()
        sizes = self.params_.sizes
        if sizes != layer_sizes(self.n_layers, self.n_states):
            states = " and ".join(map(str, sizes)) if len(set(sizes)) > 1 else sizes[0]
            raise InputError(
                f"This model was fitted with {len(sizes)} layers of {states} states: set n_layers and n_states back, "
                "or call fit."
            )
        corpus = extend_corpus(self.vocabulary_, X, new_words)
        text, other = split_text(corpus, self.validation, validation)
        start = with_new_words(self.params_, self.vocabulary_.counts, text.vocabulary.counts)
        result = self._em(text, other, start, check_random_state(self.random_state), engine)
        history, scores = self.history_ + result.history, self.validation_history_ + result.validation_history
        self._finish(result.params, history, scores, corpus)
        return self

    def _start(self, text: Corpus, rng: np.random.Generator, engine: Engine | None) -> FactorialParams:
        sizes = layer_sizes(self.n_layers, self.n_states)
        if self.init == "random":
            return random_start(text, sizes, rng)
        n_threads = count_workers(self.n_jobs)
        with nullcontext(engine) if engine is not None else open_engine("threads", n_threads) as place:
            return cluster_start(text, sizes, rng, self._em_settings(), self.init, place, n_threads)

    def _em(
        self,
        text: Corpus,
        other: Corpus | None,
        start: FactorialParams,
        rng: np.random.Generator,
        engine: Engine | None,
        checkpoint: OpenCheckpoint | None = None,
    ) -> FitResult[FactorialParams]:
        how = self._em_settings()
        resume_from = None if checkpoint is None else checkpoint.state
        with nullcontext(engine) if engine is not None else open_engine("threads", self.n_jobs) as place:
            return run_iterations(
                self._iterations(text, other, start, how, rng, place, resume_from),
                n_iter=how.n_iter,
                unit="pass",
                callbacks=self.callbacks,
                verbose=self.verbose,
                checkpoint=checkpoint,
                stacklevel=4,
            )

    @staticmethod
    def _iterations(
        text: Corpus,
        other: Corpus | None,
        start: FactorialParams,
        how: EMSettings,
        rng: np.random.Generator,
        engine: Engine,
        resume_from: PassState | None,
    ) -> Iterator[Iteration[FactorialParams]]:
        """Passes of EM, each with the likelihood of the held-out text after it."""
        for done in passes(text, start, how, rng, engine, resume_from):
            score = None if other is None else held_out(done.params, other, how.inference, engine)
            yield Iteration(done.log_likelihood, done.params, score, state=done.state)

    def _em_settings(self) -> EMSettings:
        return EMSettings(
            self._inference_settings(),
            int(self.n_iter),
            int(self.batch_size),
            float(self.smoothing),
            int(self.m_passes),
        )

    def _finish(self, params: FactorialParams, history: list[float], scores: list[float], corpus: Corpus) -> None:
        """Set the fitted attributes, all at once."""
        self.params_ = params
        self.vocabulary_ = corpus.vocabulary
        self.tokenizer_ = corpus.manifest.get("tokenizer")
        self.validation_history_ = scores
        self.history_ = history
        self._prepare()

    def _inference_settings(self) -> InferenceSettings:
        few = prod(layer_sizes(self.n_layers, self.n_states)) <= EXACT_FIT
        exact = self.inference == "exact" or (self.inference == "auto" and few)
        return InferenceSettings(bool(exact), self.bound, int(self.max_sweeps), float(self.tol))

    def _prepare(self) -> None:
        p = self.params_
        self._product: tuple[FactorialParams, TextChain] | None = None
        how = InferenceSettings(p.n_joint <= EXACT_SCORE, self.bound, int(self.max_sweeps), float(self.tol))
        self._scorer = FactorialInference(p, how)
        self._states_inference = FactorialInference(p, self._inference_settings(), self._scorer.log_norm)

    # --- queries ----------------------------------------------------------------------------------------

    @property
    def scores_exactly(self) -> bool:
        """Whether `score` is the log-likelihood itself; otherwise it is the bound on it."""
        self._check_fitted()
        return self._scorer.settings.exact

    @property
    def theta_(self) -> F64:
        """(V, M, K) weights of the words in each state of each layer; −inf for states that a smaller layer lacks."""
        return self.params_.theta

    def transform(self, X: Text, view: str = "features") -> list[F32]:
        """Vectors of the tokens: which states they are in.

        A word outside the vocabulary is a missing observation and gets its states from the context; where the
        vocabulary has classes of unknown words it is observed as its class.

        Parameters
        ----------
        X
            Sentences.
        view
            "posterior" is the probabilities of all layers' states side by side, "viterbi" the states of the best path
            as 0 and 1. "features" is what a tagger should read: the posterior.

        Returns
        -------
        list of float32 arrays (n_tokens, number of states of all layers)
            One for each sentence.

        Raises
        ------
        InputError
            If there is no such view.
        """
        self._check_fitted()
        if view not in VIEWS:
            raise InputError(f"view={view!r} must be one of {', '.join(VIEWS)}.")
        exists = existing(self.params_.sizes)
        if view == "viterbi":
            return [np.eye(exists.shape[1], dtype=np.float32)[s][:, exists] for s in self.decode(X, "viterbi")]
        return [gamma[:, exists] for gamma in self.posterior(X)]

    def posterior(self, X: Text) -> list[F32]:
        """Probabilities of the layers' states, given the sentence.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        list of float32 arrays (n_tokens, M, K)
            One for each sentence. K is the number of states of the largest layer; the states that a smaller one lacks
            have probability 0.
        """
        self._check_fitted()
        if partly_known(X):
            from undertow.questions.factorial import layer_posteriors

            return layer_posteriors(self.params_, self._observed(X, unknown_is_gap=True))
        out: list[F32] = []
        for ids, offsets in self._batches(X):
            gamma = posterior(self._states_inference, ids, offsets, ids == self.vocabulary_.unknown_id)
            out.extend(gamma[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
        return out

    def decode(self, X: Text, method: str = "viterbi") -> list[I64]:
        """A state in each layer for each token.

        Unknown words are missing observations.

        Parameters
        ----------
        X
            Sentences.
        method
            "viterbi" is, with exact inference, the most probable joint path, and with variational inference the most
            probable path of each layer's own chain. "posterior" takes each token's most probable state in each layer.

        Returns
        -------
        list of int64 arrays (n_tokens, M)
            One for each sentence.

        Raises
        ------
        InputError
            If there is no such method.
        """
        self._check_fitted()
        if method not in ("viterbi", "posterior"):
            raise InputError(f"method={method!r} must be 'viterbi' or 'posterior'.")
        if method == "posterior":
            return [v.argmax(axis=2).astype(np.int64) for v in self.posterior(X)]
        if partly_known(X):
            from undertow.questions.factorial import layer_paths

            return layer_paths(self.params_, self._observed(X, unknown_is_gap=True))
        out: list[I64] = []
        for ids, offsets in self._batches(X):
            states = best_paths(self._states_inference, ids, offsets, ids == self.vocabulary_.unknown_id)
            out.extend(states[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
        return out

    def joint_codes(self, X: Text) -> list[I64]:
        """The decoded states of all layers as one number, the last layer's running fastest.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        list of int64 arrays (n_tokens,)
            One for each sentence.
        """
        return [states_to_codes(s, self.params_.sizes) for s in self.decode(X, "viterbi")]

    def log_probabilities(self, X: Text) -> list[F64]:
        """log p(token | tokens before it in its sentence).

        Parameters
        ----------
        X
            Sentences; all unknown words count as one word.

        Returns
        -------
        list of arrays (n_tokens,)
            One for each sentence.

        Raises
        ------
        InputError
            If there are more than 100,000 joint states: a bound is all that is known then.
        """
        self._check_fitted()
        if partly_known(X):
            observed = self._observed(X, unknown_is_gap=False)
            logs = observed.params.filtered(observed.ids, observed.bounds).log_probabilities
            return np.split(logs, observed.bounds[1:-1])
        if not self._scorer.settings.exact:
            raise InputError(
                f"FactorialHMM: the probability of each token needs a sum over {self.params_.n_joint:,} joint states, "
                f"more than {EXACT_SCORE:,}: take bounds(X), or a model with fewer layers or states."
            )
        out: list[F64] = []
        for ids, offsets in self._batches(X):
            logs = self._scorer.exact(ids, offsets, backward=False).token_logs
            out.extend(logs[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
        return out

    def fill(
        self, text: Any, n: int = 10, *, states: Mapping[int, Any] | None = None, markers: bool = False
    ) -> Table[Gap]:
        """The words of the gaps of a text, each given everything on both sides of it.

        Parameters
        ----------
        text
            Tokens; None or "?" is a gap. A set allows some words, a mapping weighs them (see `Evidence`).
        n
            How many words for each gap.
        states
            Known states by position: {layer: state or set of states}.
        markers
            Whether the unknown word, the boundary word and classes of unknown words are listed too.

        Returns
        -------
        Table of Gap
            `position`, `words` with their probabilities, most probable first, and the probability of `markers` that are
            not listed.

        Raises
        ------
        InputError
            If the text is empty, or there are more than 4,096 joint states.
        """
        from undertow.questions.fill import fill

        return fill(self._chain(markers), self._evidence(text, states), n)

    def sample_fill(
        self,
        text: Any,
        n: int = 5,
        *,
        states: Mapping[int, Any] | None = None,
        markers: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> list[list[str]]:
        """Draw the words of all gaps together, given everything that is known, exactly.

        Parameters
        ----------
        text
            As in `fill`.
        n
            How many texts.
        states
            Known states by position: {layer: state or set of states}.
        markers
            Whether the unknown word, the boundary word and classes of unknown words may be drawn.
        random_state
            Seed or generator; None draws anew each time.

        Returns
        -------
        list of list of str
            The text with its gaps filled by words seen in training, n times.
        """
        from undertow.questions.fill import sample_fill

        return sample_fill(self._chain(markers), self._evidence(text, states), n, check_random_state(random_state))

    def best_fill(
        self,
        text: Any,
        *,
        states: Mapping[int, Any] | None = None,
        markers: bool = False,
        method: str = "words",
        max_expansions: int = 2000,
    ) -> JointFill:
        """The most probable words of all gaps together.

        Parameters
        ----------
        text
            As in `fill`.
        states
            Known states by position: {layer: state or set of states}.
        markers
            Whether the unknown word, the boundary word and classes of unknown words may fill gaps.
        method, max_expansions
            As in `HMM.best_fill`.

        Returns
        -------
        JointFill
            `tokens`, the filled text; `log_probability` of the fill given the evidence; `proven`.
        """
        from undertow.questions.best_fill import best_fill

        return best_fill(self._chain(markers), self._evidence(text, states), method, max_expansions)

    def log_evidence(self, text: Any, *, states: Mapping[int, Any] | None = None) -> float:
        """Log-probability of a partly known text: all ways to fill it together.

        Parameters
        ----------
        text
            As in `fill`; the weights of a mapping multiply the probabilities of its words.
        states
            Known states by position: {layer: state or set of states}.

        Returns
        -------
        float
            −inf if the evidence is impossible.
        """
        from undertow.questions.fill import log_evidence

        return log_evidence(self._chain(), self._evidence(text, states))

    def masked_log_probabilities(self, X: Text) -> list[F64]:
        """log p(token | all other tokens of its sentence).

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        list of arrays (n_tokens,)
            One for each sentence.
        """
        if partly_known(X):
            observed = self._observed(X, unknown_is_gap=False)
            return np.split(observed.params.log_both_sides(observed.ids, observed.bounds), observed.bounds[1:-1])
        params, out = self._chain().params, []
        for ids, offsets in self._batches(X):
            logs = params.log_both_sides(ids, offsets)
            out += [logs[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
        return out

    def masked_perplexity(self, X: Text) -> float:
        """Perplexity of the tokens, each given all other tokens of its sentence.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        float
            The inverse of the geometric mean of their probabilities.

        Raises
        ------
        InputError
            If there is no token.
        """
        from undertow.questions.explain import masked_score

        return float(np.exp(-masked_score(self.masked_log_probabilities(X))))

    def compare(
        self, text: Any, position: int, words: Sequence[str], *, states: Mapping[int, Any] | None = None
    ) -> Table[Comparison]:
        """How well some words fit a position, given both sides.

        Parameters
        ----------
        text
            Tokens, possibly with gaps (None); what stands at the position itself is not looked at.
        position
            Where, from 0.
        words
            Words of the vocabulary.
        states
            Known states by position: {layer: state or set of states}.

        Returns
        -------
        Table of Comparison
            `word`, `probability`, `share` among the words given, and `log_odds` against the others, in their order.
        """
        from undertow.questions.explain import compare

        return compare(self._chain(), self._evidence(text, states, gap_sign=None), position, words)

    def surprise(self, X: Text) -> Table[Surprise]:
        """How surprising each token is, given the tokens before it and given all others, in bits.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        Table of Surprise
            `tokens`, `left_to_right` and `both_sides`, one a sentence.
        """
        from undertow.questions.explain import surprises

        return surprises(self, X if isinstance(X, Corpus) else list(X))

    def what_if(self, text: Any, position: int, word: str, *, states: Mapping[int, Any] | None = None) -> Table[Change]:
        """What would change at every other position if this one had another word.

        Parameters
        ----------
        text
            Tokens, possibly with gaps (None).
        position
            Which position is changed, from 0.
        word
            Its new word.
        states
            Known states by position: {layer: state or set of states}.

        Returns
        -------
        Table of Change
            `position`, `token`, `total_variation` and `divergence` of the distributions of its joint state, and by how
            many bits the token becomes more surprising given both sides.
        """
        from undertow.questions.explain import what_if

        return what_if(self._chain(), self._evidence(text, states, gap_sign=None), position, word)

    def _chain(self, markers: bool = False) -> TextChain:
        """The product of the layers as one chain, for questions; made once for the parameters."""
        from undertow.questions.factorial import product_chain

        self._check_fitted()
        if self._product is None or self._product[0] is not self.params_:
            self._product = self.params_, product_chain(self.params_, self.vocabulary_)
        return self._product[1]._replace(markers=markers)

    def _evidence(self, text: Any, states: Mapping[int, Any] | None, gap_sign: str | None = "?") -> Evidence:
        """A question's text, with known states of layers as joint states."""
        from undertow.questions.evidence import as_evidence
        from undertow.questions.factorial import joint_evidence

        self._check_fitted()
        return joint_evidence(self.params_, as_evidence(text, states, gap_sign))

    def _observed(self, X: Any, *, unknown_is_gap: bool) -> Observed:
        from undertow.questions.factorial import observe_texts

        return observe_texts(self._chain(), self.params_, X, unknown_is_gap)

    def log_likelihoods(self, X: Text) -> F64:
        """Log-probability of each sentence, exact up to 100,000 joint states, beyond that the variational bound.

        Parameters
        ----------
        X
            Sentences; all unknown words count as one word.

        Returns
        -------
        array (n_sentences,)
            Natural logarithms.
        """
        self._check_fitted()
        if partly_known(X):
            return np.array([part.sum() for part in self.log_probabilities(X)])
        if not self._scorer.settings.exact:
            return self.bounds(X)
        parts = [self._scorer.exact(ids, at, backward=False).log_likelihood for ids, at in self._batches(X)]
        return np.concatenate(parts) if parts else np.empty(0)

    def bounds(self, X: Text) -> F64:
        """Variational lower bound on each sentence's log-probability, by the `bound` of the model.

        Parameters
        ----------
        X
            Sentences; all unknown words count as one word.

        Returns
        -------
        array (n_sentences,)
            Natural logarithms.
        """
        self._check_fitted()
        inference = self._states_inference
        if inference.settings.exact:
            inference = FactorialInference(self.params_, inference.settings._replace(exact=False), inference.log_norm)
        parts = [inference.chains(ids, offsets).bound for ids, offsets in self._batches(X)]
        return np.concatenate(parts) if parts else np.empty(0)

    def score(self, X: Text, y: Any = None) -> float:
        """Mean log-probability of a token, or the bound on it: see `scores_exactly`.

        Parameters
        ----------
        X
            Sentences.
        y
            Ignored.

        Returns
        -------
        float
            In nats.

        Raises
        ------
        InputError
            If there is no token.
        """
        return self._mean(X, self.log_likelihoods)

    def bound_per_token(self, X: Text) -> float:
        """Mean of the variational lower bound over the tokens, whatever inference the model uses.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        float
            In nats.

        Raises
        ------
        InputError
            If there is no token.
        """
        return self._mean(X, self.bounds)

    def _mean(self, X: Text, values: Callable[[Text], F64]) -> float:
        self._check_fitted()
        sentences: Any = X
        if partly_known(X):
            from undertow.questions.evidence import as_evidence

            n_tokens = int(sum(len(as_evidence(text).tokens) for text in X))
        else:
            sentences = X if isinstance(X, Corpus) else list(checked_sentences(X))
            n_tokens = sentences.n_tokens if isinstance(sentences, Corpus) else sum(map(len, sentences))
        if n_tokens == 0:
            raise InputError("There is no token to score: give at least one.")
        return float(np.sum(values(sentences)) / n_tokens)

    def perplexity(self, X: Text) -> float:
        """exp(−score): at most this, where `score` is a bound.

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        float
            At least 1.

        Raises
        ------
        InputError
            If there is no token.
        """
        return float(np.exp(-self.score(X)))

    def _batches(self, X: Text) -> Iterator[tuple[npt.NDArray[Any], I64]]:
        return batches(encode_sentences(self.vocabulary_, X))

    def top_words(self, layer: int, state: int, n: int = 10, *, min_count: int = 5) -> Table[WordWeight]:
        """The words most typical of a state of a layer, by how much more often they come there than elsewhere.

        Parameters
        ----------
        layer, state
            Which one, both counted from 0.
        n
            Number of words at most.
        min_count
            Rarer words are left out.

        Returns
        -------
        Table of WordWeight
            Highest lift first.

        Raises
        ------
        InputError
            If there is no such layer or state.
        """
        self._check_fitted()
        sizes = self.params_.sizes
        for name, value, size in (("layer", layer, len(sizes)), ("state", state, sizes[layer % len(sizes)])):
            if not 0 <= value < size:
                raise InputError(f"There is no {name} {value}: give 0 to {size - 1}.")
        return words_of_state(self.params_.layer(layer)[2], state, self.vocabulary_, n, min_count)

    def sample(
        self, n_tokens: int = 50, *, random_state: int | np.random.Generator | None = None, prefix: Sequence[str] = ()
    ) -> list[str]:
        """Draw tokens from the model.

        Parameters
        ----------
        n_tokens
            How many.
        random_state
            Seed or generator; None draws anew each time.
        prefix
            Tokens to continue from.

        Returns
        -------
        list of str
            The tokens after `prefix`; after the boundary word a sentence begins anew.
        """
        self._check_fitted()
        if isinstance(n_tokens, bool) or not isinstance(n_tokens, int | np.integer) or n_tokens < 0:
            raise InputError(f"n_tokens={n_tokens!r} must be a whole number, at least 0.")
        rng = check_random_state(random_state)
        [before] = encode_sentences(self.vocabulary_, [prefix])
        states = None
        if len(before) and before[-1] != self.vocabulary_.boundary_id:
            missing = before == self.vocabulary_.unknown_id
            states = draw_states(self._scorer, self._states_inference, before, missing, rng)
        drawn = draw_words(self.params_, int(n_tokens), states, self.vocabulary_.boundary_id, rng)
        return [self.vocabulary_.words[i] for i in drawn]

    # --- under constraints ------------------------------------------------------------------------------

    def probability(
        self,
        constraint: TextConstraint,
        *,
        prefix: Sequence[str] = (),
        suffix: Sequence[str] = (),
        length: int | tuple[int, int] = 12,
        progress: ProgressFn = ignore,
    ) -> float:
        """Exact probability that a continuation satisfies a constraint, by the chain of the joint states.

        Parameters
        ----------
        constraint
            One of `undertow.constraints`, or several combined by `&`, `|` and `~`.
        prefix, suffix
            Tokens before and after the continuation.
        length
            Number of words, or a pair (least, largest), as in `HMM.probability`.
        progress
            As in `HMM.probability`.

        Returns
        -------
        float
            p(constraint | prefix, suffix, length).

        Raises
        ------
        InputError
            If there are more than 4,096 joint states, or as in `HMM.probability`.
        """
        self._check_fitted()
        from undertow.questions.continuations import probability

        params: Any = self._chain().params
        return probability(params, self.vocabulary_, constraint, prefix, suffix, length, progress)

    def generate(
        self,
        *,
        prefix: Sequence[str] = (),
        suffix: Sequence[str] = (),
        length: int | tuple[int, int] = 12,
        constraint: TextConstraint | None = None,
        n: int = 1,
        temperature: float = 1.0,
        method: str = "sample",
        markers: bool = False,
        random_state: int | np.random.Generator | None = None,
        progress: ProgressFn = ignore,
    ) -> list[list[str]]:
        """Continuations that satisfy a constraint, drawn exactly from the model given that they do.

        Parameters
        ----------
        prefix, suffix
            Tokens before and after the continuation.
        length
            Number of words, or a pair (least, largest), as in `HMM.probability`.
        constraint
            One of `undertow.constraints`, about the continuation; None for none.
        n
            How many texts.
        temperature, method, markers
            As in `HMM.generate`.
        random_state
            Seed or generator; None draws anew each time.
        progress
            As in `HMM.generate`.

        Returns
        -------
        list of lists of str
            The continuations, without prefix and suffix.

        Raises
        ------
        InputError
            If there are more than 4,096 joint states, or as in `HMM.generate`.
        """
        self._check_fitted()
        from undertow.questions.continuations import generate

        params: Any = self._chain().params
        rng = check_random_state(random_state)
        around = (prefix, suffix, length)
        shown: dict[str, Any] = {"markers": markers, "progress": progress}
        return generate(params, self.vocabulary_, rng, *around, constraint, n, temperature, method, **shown)

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        M, K, V = state.fitted["n_layers"], state.fitted["n_states"], state.n_words
        assert V is not None
        shapes: dict[str, tuple[int, ...]] = {"initial": (M, K), "theta": (V, M, K), "transition": (M, K, K)}
        if isinstance(K, list):  # `packed` layers
            shapes = {"initial": (sum(K),), "theta": (V, sum(K)), "transition": (sum(k * k for k in K),)}
        return {name: TensorSpec("float64", shape) for name, shape in shapes.items()}

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return packed(self.params_)

    def _fitted_scalars(self) -> dict[str, Any]:
        sizes = self.params_.sizes
        return {
            "n_layers": len(sizes),
            "n_states": sizes[0] if len(set(sizes)) == 1 else list(sizes),  # equal ones as ever
            "tokenizer": self.tokenizer_,
            "validation_history": self.validation_history_,
        }

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        fitted, given = (layer_sizes(of["n_layers"], of["n_states"]) for of in (state.fitted, state.params))
        if fitted != given or state.fitted["n_layers"] != state.params["n_layers"]:
            raise InputError(f"it was fitted with layers of {short(list(fitted))} states, not {short(list(given))}.")
        check_params(unpacked(tensors, fitted))

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self.params_ = unpacked(tensors, layer_sizes(state.fitted["n_layers"], state.fitted["n_states"]))
        self.tokenizer_ = state.fitted["tokenizer"]
        self.validation_history_ = [float(x) for x in state.fitted["validation_history"]]
        self._prepare()


def layer_sizes(n_layers: int, n_states: int | Sequence[int]) -> Sizes:
    """States of each layer from the model's parameters."""
    if isinstance(n_states, list | tuple):
        return tuple(int(k) for k in n_states)
    one: Any = n_states
    return (int(one),) * int(n_layers)


def _product(sizes: Sizes) -> str:
    """The number of joint states as it comes about."""
    return f"{sizes[0]}^{len(sizes)}" if len(set(sizes)) == 1 else " × ".join(map(str, sizes))


def packed(params: FactorialParams) -> dict[str, npt.NDArray[Any]]:
    """The arrays as they are saved: layers of different sizes one behind the other."""
    if len(set(params.sizes)) == 1:
        return params._asdict()
    exists = existing(params.sizes)
    return {
        "initial": params.initial[exists],
        "transition": params.transition[exists[:, :, None] & exists[:, None, :]],
        "theta": params.theta[:, exists],
    }


def unpacked(tensors: Mapping[str, npt.NDArray[Any]], sizes: Sizes) -> FactorialParams:
    """Parameters from `packed` arrays."""
    if len(set(sizes)) == 1:
        return FactorialParams(**{name: tensors[name] for name in FactorialParams._fields})
    exists = existing(sizes)
    initial, transition = np.zeros(exists.shape), np.zeros((*exists.shape, exists.shape[1]))
    theta = np.full((len(tensors["theta"]), *exists.shape), -np.inf)
    initial[exists] = tensors["initial"]
    transition[exists[:, :, None] & exists[:, None, :]] = tensors["transition"]
    theta[:, exists] = tensors["theta"]
    return FactorialParams(initial, transition, theta)


__all__ = ["FactorialHMM", "WordWeight"]
