"""The factorial hidden Markov model of text: every token gets M states at once, one from each of M chains.

The chains move independently; together they choose each word (`kernels.factorial.FactorialParams`). While the K^M joint
states are few, inference over them is exact and never looks at the rest of the vocabulary; beyond, it is variational.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Self

import numpy as np

from undertow.engine import Engine, count_workers, open_engine
from undertow.errors import InputError
from undertow.kernels.factorial.variational import BOUNDS
from undertow.kernels.factorial.words import FactorialParams
from undertow.models.base import (
    MOST,
    CostWarning,
    as_corpus,
    check_choice,
    check_number,
    check_random_state,
    check_whole,
)
from undertow.models.factorial.answers import EXACT_FIT, FactorialAnswers, Text, WordWeight
from undertow.models.factorial.init import INITS, cluster_start, random_start
from undertow.models.factorial.learning import Learning, held_out, passes
from undertow.models.fitting import FitResult, Iteration, check_callbacks, check_share, run_iterations, split_text
from undertow.text.corpus import Corpus

MOST_JOINT = 4_000_000  # joint states of which a table can be held
# Exact inference, measured at 8, 10 and 11 layers of 3 states and 6 of 6: scratch of a worker, and processor time of a
# token, a joint state, a layer and a state of it
BYTES_A_JOINT_STATE = 1_700
NS_A_STEP = 0.7
WORTH_A_WARNING = (1 << 29, 0.05)  # bytes, hours


class FactorialHMM(FactorialAnswers):
    """M chains of K states each, fitted by EM.

    n_layers, n_states: M and K. inference: "exact" over the K^M joint states, "variational", or "auto": exact up to
    10,000 of them. bound: what variational inference climbs, "tilted", "jensen" (the paper's) or "mean_field", the
    tightest and cheapest, which needs a table of K^M numbers. n_iter: passes over the text. batch_size: tokens
    between two M-steps; the counts of each batch stand until it is read again.
    max_sweeps, tol: variational sweeps end when a sentence's bound rises by less than tol a token. smoothing:
    pseudo-counts a word. m_passes: of the M-step over the layers; update: "closed", or "lbfgs" for comparison. init:
    "clusters" (another one for each layer), "lds" (each layer by its own directions of a linear dynamical system) or
    "random". validation: share of the text, its end, that is held out to stop early; None for none.
    """

    kind = "fhmm"

    def __init__(
        self,
        n_layers: int = 5,
        *,
        n_states: int = 10,
        bound: str = "tilted",
        inference: str = "auto",
        n_iter: int = 10,
        batch_size: int = 50_000,
        max_sweeps: int = 10,
        tol: float = 1e-3,
        smoothing: float = 0.5,
        m_passes: int = 2,
        update: str = "closed",
        init: str = "clusters",
        validation: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        callbacks: Any = None,
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
        self.update = update
        self.init = init
        self.validation = validation
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    def _check_params(self) -> None:
        super()._check_params()
        for name, (low, high) in {
            "n_layers": (1, 64), "n_states": (1, 1_000_000), "n_iter": (1, MOST), "batch_size": (1, MOST),
            "max_sweeps": (1, MOST), "m_passes": (1, MOST), "verbose": (0, MOST),
        }.items():  # fmt: skip
            check_whole("FactorialHMM", name, getattr(self, name), low, high)
        choices = {
            "bound": BOUNDS,
            "inference": ("auto", "exact", "variational"),
            "update": ("closed", "lbfgs"),
            "init": INITS,
        }
        for name, allowed in choices.items():
            check_choice("FactorialHMM", name, getattr(self, name), allowed)
        check_number("FactorialHMM", "tol", self.tol, 0, 1e9)
        check_number("FactorialHMM", "smoothing", self.smoothing, 0, 1e9)
        check_share(self.validation, "FactorialHMM")
        count_workers(self.n_jobs)
        how = self._inference()
        n_joint = self.n_states**self.n_layers
        if how.tabulates and n_joint > MOST_JOINT:
            what = "inference='exact'" if how.exact else "bound='mean_field'"
            raise InputError(
                f"FactorialHMM: {what} needs a table of {self.n_states}^{self.n_layers} joint states, more than "
                f"{MOST_JOINT:,}: take fewer layers or states, or inference='variational' with bound='tilted'."
            )
        if self.update == "lbfgs" and not how.tabulates:
            raise InputError(
                f"FactorialHMM: update='lbfgs' needs the visits of joint states, which bound={self.bound!r} does not "
                "count: take update='closed', bound='mean_field' or inference='exact'."
            )

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(self, X: Text, y: Any = None, *, validation: Text | None = None, engine: Engine | None = None) -> Self:
        """Fit to a Corpus or an iterable of token lists; `engine` takes the E-steps elsewhere, with the same bits.

        `validation` is other text to stop by: fitting ends with the pass after which it becomes less probable, and
        keeps the best.
        """
        self._check_params()
        corpus = as_corpus(X)
        self._warn_of_cost(corpus.n_tokens, engine)
        text, other = split_text(corpus, self.validation, validation)
        rng = check_random_state(self.random_state)
        check_callbacks(self.callbacks)
        result = self._em(text, other, self._start(text, rng, engine), rng, engine)
        self._finish(result.params, result.history, result.validation_history, corpus)
        return self

    def _warn_of_cost(self, n_tokens: int, engine: Engine | None) -> None:
        """Say before the work what exact inference over very many joint states will take."""
        n_joint, how = self.n_states**self.n_layers, self._inference()
        if not how.exact or n_joint <= EXACT_FIT:
            return
        n_workers = count_workers(self.n_jobs) if engine is None else engine.n_workers
        n_bytes = n_workers * n_joint * BYTES_A_JOINT_STATE
        hours = NS_A_STEP * 1e-9 * self.n_layers * self.n_states * n_joint * n_tokens * self.n_iter / n_workers / 3600
        if n_bytes > WORTH_A_WARNING[0] or hours > WORTH_A_WARNING[1]:
            warnings.warn(
                f"Exact inference over {self.n_states}^{self.n_layers} = {n_joint:,} joint states needs about "
                f"{n_bytes / 2**30:.1f} GB and {hours:.2g} hours for {self.n_iter} passes over {n_tokens:,} tokens: "
                "take inference='variational', or fewer layers or states.",
                CostWarning,
                stacklevel=3,
            )

    def partial_fit(self, X: Text, y: Any = None, *, engine: Engine | None = None) -> Self:
        """`n_iter` more passes, over this text, from the parameters at hand; words that are not known stay unknown."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X, engine=engine)
        self._check_params()
        if self.params_.theta.shape[1:] != (self.n_layers, self.n_states):
            raise InputError(
                f"This model was fitted with {self.params_.n_layers} layers of {self.params_.n_states} states: set "
                "n_layers and n_states back, or call fit."
            )
        corpus = X if isinstance(X, Corpus) else Corpus.from_sentences(X, vocabulary=self.vocabulary_)
        if corpus.vocabulary.words != self.vocabulary_.words:
            raise InputError("The corpus has another vocabulary than the model: build it with the model's vocabulary_.")
        corpus = as_corpus(corpus)
        text, other = split_text(corpus, self.validation, None)
        result = self._em(text, other, self.params_, check_random_state(self.random_state), engine)
        history, scores = self.history_ + result.history, self.validation_history_ + result.validation_history
        self._finish(result.params, history, scores, corpus)
        return self

    def _start(self, text: Corpus, rng: np.random.Generator, engine: Engine | None) -> FactorialParams:
        M, K = int(self.n_layers), int(self.n_states)
        if self.init == "random":
            return random_start(text, M, K, rng)
        n_threads = count_workers(self.n_jobs)
        with nullcontext(engine) if engine is not None else open_engine("threads", n_threads) as place:
            return cluster_start(text, M, K, rng, self._learning(), self.init, place, n_threads)

    def _em(
        self,
        text: Corpus,
        other: Corpus | None,
        start: FactorialParams,
        rng: np.random.Generator,
        engine: Engine | None,
    ) -> FitResult[FactorialParams]:
        how = self._learning()
        with nullcontext(engine) if engine is not None else open_engine("threads", self.n_jobs) as place:
            return run_iterations(
                self._iterations(text, other, start, how, rng, place),
                n_iter=how.n_iter,
                unit="pass",
                callbacks=self.callbacks,
                verbose=self.verbose,
                stacklevel=4,
            )

    @staticmethod
    def _iterations(
        text: Corpus,
        other: Corpus | None,
        start: FactorialParams,
        how: Learning,
        rng: np.random.Generator,
        engine: Engine,
    ) -> Iterator[Iteration[FactorialParams]]:
        """Passes of EM, each with the likelihood of the held-out text under what it learned."""
        for done in passes(text, start, how, rng, engine):
            score = None if other is None else held_out(done.params, other, how.inference, engine)
            yield Iteration(done.log_likelihood, done.params, score)

    def _learning(self) -> Learning:
        return Learning(
            self._inference(), int(self.n_iter), int(self.batch_size), float(self.smoothing), int(self.m_passes),
            self.update,
        )  # fmt: skip

    def _finish(self, params: FactorialParams, history: list[float], scores: list[float], corpus: Corpus) -> None:
        """Set the fitted attributes, all at once."""
        self.params_ = params
        self.vocabulary_ = corpus.vocabulary
        self.tokenizer_ = corpus.manifest.get("tokenizer")
        self.validation_history_ = scores
        self.history_ = history
        self._prepare()


__all__ = ["FactorialHMM", "WordWeight"]
