"""The linear dynamical system of text: token vectors in context from one pass over the text.

A hidden state moves linearly and emits whitened words (`lds_params`). It is fitted to pair counts: subspace
identification (`ssid`), then EM from lagged moments (`asos`), within a reduced basis first and over the whole
vocabulary to finish. After the counting, neither costs anything in tokens.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.gaussian.linalg import symmetrize
from undertow.kernels.gaussian.moments import Moments, WordDropout, reduce_moments, text_moments
from undertow.models.base import (
    MOST,
    as_corpus,
    check_choice,
    check_flag,
    check_number,
    check_random_state,
    check_whole,
)
from undertow.models.fitting import InterruptedFitWarning, TrainingEvent, check_callbacks
from undertow.models.lds.answers import LDSAnswers, Neighbor, Recurrence, Transition
from undertow.models.lds.em import (
    Iteration,
    LikelihoodWarning,
    e_step,
    fit_asos,
    from_basis,
    into_basis,
    reduced_basis,
)
from undertow.models.lds.init import check_lags, identify, random_start
from undertow.models.lds.params import LDSParams, steady_state
from undertow.models.lds.stream import TokenStream
from undertow.text.corpus import Corpus
from undertow.text.counting import MAX_LAGS
from undertow.text.lag_counts import LagCounts
from undertow.text.vocabulary import Vocabulary


class LDS(LDSAnswers):
    """A Gaussian linear dynamical system fitted to pair counts.

    n_components: width h of the state. n_iter: EM iterations within the reduced basis; n_full: over the whole
    vocabulary after them. lags: horizon of the moments. ssid_lags: of the start by ssid, from 2 to (lags + 1) / 2.
    kappa: smoothing, in pseudo-counts a word (None: as many as a word has tokens on average); noise: "dropout" (rare
    words turn into their class or the unknown word) or "uniform". init: "ssid" or "random". basis: columns of the
    reduced basis as a multiple of n_components. min_count: words seen less often are left out of transitions and
    neighbours.
    """

    kind = "lds"

    def __init__(
        self,
        n_components: int = 200,
        *,
        n_iter: int = 50,
        n_full: int = 2,
        lags: int = 7,
        ssid_lags: int = 4,
        kappa: float | None = None,
        noise: str = "dropout",
        init: str = "ssid",
        update_Q: bool = True,
        basis: float = 5.0,
        min_count: int = 20,
        random_state: Any = None,
        n_jobs: int | None = None,
        callbacks: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_iter = n_iter
        self.n_full = n_full
        self.lags = lags
        self.ssid_lags = ssid_lags
        self.kappa = kappa
        self.noise = noise
        self.init = init
        self.update_Q = update_Q
        self.basis = basis
        self.min_count = min_count
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.callbacks = callbacks

    def _check_params(self) -> None:
        super()._check_params()
        for name, (low, high) in {
            "n_components": (1, MOST), "n_iter": (0, MOST), "n_full": (0, MOST), "lags": (1, MAX_LAGS),
            "ssid_lags": (1, MAX_LAGS), "min_count": (0, MOST),
        }.items():  # fmt: skip
            check_whole("LDS", name, getattr(self, name), low, high)
        check_choice("LDS", "init", self.init, ("ssid", "random"))
        check_choice("LDS", "noise", self.noise, ("dropout", "uniform"))
        check_flag("LDS", "update_Q", self.update_Q)
        check_number("LDS", "basis", self.basis, 1, 1000)
        if self.kappa is not None:
            check_number("LDS", "kappa", self.kappa, 0, 1e12)
        if self.init == "ssid":
            check_lags(self.ssid_lags)
            if 2 * self.ssid_lags - 1 > self.lags:
                raise InputError(
                    f"LDS: ssid_lags={self.ssid_lags} needs lags={2 * self.ssid_lags - 1} or more, not {self.lags}."
                )
        count_workers(self.n_jobs)

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(
        self, X: Corpus | LagCounts | Iterable[Sequence[str]], y: Any = None, *, engine: Engine | None = None
    ) -> Self:
        """Fit to a Corpus, an iterable of token lists, or LagCounts; `engine` takes the counting to a cluster."""
        self._check_params()
        counts = self._count(X, engine)
        rng = check_random_state(self.random_state)
        with one_blas_thread():
            moments = self._moments(counts)
            params = (
                identify(moments, self.n_components, rng, ssid_lags=self.ssid_lags)
                if self.init == "ssid"
                else random_start(moments, self.n_components, rng)
            )
            self._finish(*self._em(moments, params), counts)
        self._counts = counts
        return self

    def partial_fit(
        self, X: Corpus | LagCounts | Iterable[Sequence[str]], y: Any = None, *, engine: Engine | None = None
    ) -> Self:
        """Add the counts of more text over the same words, and go on with EM from the parameters at hand."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X, engine=engine)
        self._check_params()
        if "_counts" not in vars(self):
            raise InputError(
                "A loaded LDS does not hold the counts of its text: add the counts yourself and fit again."
            )
        if not isinstance(X, Corpus | LagCounts):
            X = Corpus.from_sentences(X, vocabulary=self.vocabulary_)
        counts = self._counts + self._count(X, engine)
        with one_blas_thread():
            moments = self._moments(counts)
            old = self.params_
            # C in words is √μ_i C_i, whatever the whitening; the old one is the start under the new frequencies
            scale = np.sqrt(np.divide(old.mu, moments.mu, out=np.zeros_like(old.mu), where=moments.mu > 0))
            start = old._replace(C=moments.project(scale[:, None] * old.C), mu=moments.mu)
            self._finish(*self._em(moments, start), counts)
        self._counts = counts
        return self

    def _count(self, X: Any, engine: Engine | None) -> LagCounts:
        if not isinstance(X, LagCounts):
            return LagCounts.from_corpus(as_corpus(X), lags=self.lags, n_jobs=self.n_jobs, engine=engine)
        if X.lags < self.lags:
            raise InputError(
                f"LDS: lags={self.lags} need counts of as many lags, and these have {X.lags}: count again."
            )
        return X

    def _moments(self, counts: LagCounts) -> Moments:
        return text_moments(
            counts.vocabulary.counts,
            (counts.matrix(k) for k in range(1, self.lags + 1)),
            kappa=self._kappa(counts.vocabulary),
            noise=self.noise,  # type: ignore[arg-type]  # checked there, with a sentence
            fallback=counts.vocabulary.fallback(),
            n_threads=count_workers(self.n_jobs),
        )

    def _kappa(self, vocabulary: Vocabulary) -> float:
        return float(vocabulary.counts.sum()) / len(vocabulary) if self.kappa is None else self.kappa

    def _em(self, moments: Moments, params: LDSParams) -> tuple[LDSParams, list[float], npt.NDArray[np.float64]]:
        """Reduced iterations, then full ones; the parameters, the likelihoods, and E[ss'] for whitening."""
        callbacks = check_callbacks(self.callbacks)
        began = time.perf_counter()
        n_iter = self.n_iter + self.n_full
        history: list[float] = []
        latest = params

        def watch(iteration: Iteration, now: LDSParams) -> None:
            nonlocal latest
            latest = now
            if iteration.number == 0 and n_iter > 0:
                return  # the start is no iteration, unless there is nothing else
            history.append(iteration.log_likelihood)
            event = TrainingEvent(len(history), max(n_iter, 1), history[-1], time.perf_counter() - began)
            for callback in callbacks:
                callback(event)

        basis = None
        try:
            if self.n_iter:
                extra = round((self.basis - 1) * self.n_components)
                basis = reduced_basis(moments, params, extra)
                small = into_basis(params, basis)
                reduced = reduce_moments(moments, basis)
                params = from_basis(
                    fit_asos(reduced, small, self.n_iter, update_Q=self.update_Q, callback=watch)[0], basis
                )
                basis = None
                latest = params
            if self.n_full or not history:
                params, _ = fit_asos(moments, params, self.n_full, update_Q=self.update_Q, callback=watch)
        except KeyboardInterrupt:
            if not history:
                raise
            params = latest if basis is None else from_basis(latest, basis)
            warnings.warn(
                f"Interrupted after {len(history)} iterations; the last finished one is kept.",
                InterruptedFitWarning,
                stacklevel=3,
            )
        params = params._replace(C=moments.project(params.C))
        stats = e_step(moments, params)
        return params, history, symmetrize(stats.E_xxT - steady_state(params).V_s)

    def _finish(
        self, params: LDSParams, history: list[float], state_moment: npt.NDArray[np.float64], counts: LagCounts
    ) -> None:
        """Set the fitted attributes, all at once."""
        vocabulary = counts.vocabulary
        self.tokenizer_ = counts.tokenizer
        self.params_ = params
        self.state_moment_ = state_moment
        self.vocabulary_ = vocabulary
        self.dropped_ = np.zeros(len(vocabulary))
        if self.noise == "dropout":
            self.dropped_ = WordDropout.of(vocabulary.counts, self._kappa(vocabulary), vocabulary.fallback()).share
        self.history_ = history
        self._prepare()


__all__ = ["LDS", "LikelihoodWarning", "Neighbor", "Recurrence", "TokenStream", "Transition"]
