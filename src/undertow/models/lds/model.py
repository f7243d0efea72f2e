"""The linear dynamical system of text: token vectors in context from one pass over the text.

A hidden state moves linearly and emits whitened words (params.py). It is fitted to pair counts: subspace identification
(init.py), then EM from lagged moments (em.py), within a reduced basis first and over the whole vocabulary to finish.
After the counting, the cost of neither depends on the number of tokens.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from undertow.engine import Engine, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.gaussian.linalg import symmetrize
from undertow.kernels.gaussian.moments import Moments, WordDropout, text_moments
from undertow.kernels.gaussian.smoother import posterior_covariances
from undertow.kernels.types import F32, F64, I64
from undertow.models import similar_words
from undertow.models.answers import Gap, Neighbor, Transition
from undertow.models.base import (
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    encode_sentences,
    extend_corpus,
    partly_known,
    warn_of_many_components,
)
from undertow.models.constraints import (
    CALLBACKS,
    N_JOBS,
    RANDOM_STATE,
    Choice,
    Constraint,
    Flag,
    Number,
    Verbosity,
    Whole,
    check_random_state,
)
from undertow.models.fitting import Callback, CheckpointSource, OpenCheckpoint, open_checkpoint, run_iterations
from undertow.models.lds import queries, storage
from undertow.models.lds.em import LikelihoodWarning, StagedState, e_step, staged_iterations
from undertow.models.lds.init import check_lags, extended_start, identify, random_start
from undertow.models.lds.params import LDSParams, steady_state
from undertow.models.lds.queries import VIEWS, LDSTables, Recurrence, TokenStream
from undertow.tables import Table
from undertow.text.corpus import Corpus
from undertow.text.counting import MAX_LAGS
from undertow.text.lag_counts import LagCounts
from undertow.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from undertow.questions.best_fill import JointFill
    from undertow.questions.explain import Change, Comparison, Surprise


class LDS(Estimator):
    """A Gaussian linear dynamical system fitted to pair counts.

    Parameters
    ----------
    n_components
        Width h of the hidden state.
    n_iter
        EM iterations within the reduced basis.
    n_full
        EM iterations over the whole vocabulary, after these.
    lags
        Horizon of the moments: pairs 1 to `lags` tokens apart are counted.
    ssid_lags
        Horizon of subspace identification, from 2 to (lags + 1) / 2.
    kappa
        Smoothing, in pseudo-counts per word; None takes the mean count of a word.
    noise
        What the pseudo-counts stand for: "dropout" (rare words turn into their class or the unknown word) or "uniform".
    init
        "ssid" (subspace identification) or "random".
    update_Q
        Whether EM also updates the covariance of the state's innovation.
    basis
        Columns of the reduced basis as a multiple of `n_components`.
    min_count
        Words seen less often are left out of `transitions` and `neighbors`.
    random_state
        Seed or generator.
    n_jobs
        Threads; None takes all processors.
    callbacks
        Functions called with a `TrainingEvent` after each iteration.
    verbose
        Log each iteration to the logger "undertow", and show that log on standard error. It is not saved.

    Attributes
    ----------
    params_ : LDSParams
        A, C, Q, M and the word probabilities.
    state_moment_ : array (h, h)
        Second moment of the smoothed states; token vectors are whitened by it.
    dropped_ : array (V,)
        Share of each word's tokens that word dropout replaced.
    vocabulary_ : Vocabulary
        The words.
    tokenizer_ : dict or None
        The rule by which the text was split into tokens, if known.
    history_ : list of float
        Log-likelihood per token after each iteration, those of `partial_fit` appended.

    Examples
    --------
    >>> from undertow import LDS
    >>> text = [["the", "cat", "sat", "on", "the", "mat"], ["the", "dog", "sat", "on", "the", "cat"]] * 20
    >>> model = LDS(2, lags=3, ssid_lags=2, n_iter=5, random_state=0).fit(text)
    >>> model.transform([["the", "cat"]], view="smooth")[0].shape
    (2, 2)
    """

    kind = "lds"
    unsaved_params: ClassVar[frozenset[str]] = Estimator.unsaved_params | {"verbose"}
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_components": Whole(1),
        "n_iter": Whole(0),
        "n_full": Whole(0),
        "lags": Whole(1, MAX_LAGS),
        "ssid_lags": Whole(1, MAX_LAGS),
        "kappa": Number(0, 1e12) | None,
        "noise": Choice("dropout", "uniform"),
        "init": Choice("ssid", "random"),
        "update_Q": Flag(),
        "basis": Number(1, 1000),
        "min_count": Whole(0),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "callbacks": CALLBACKS,
        "verbose": Verbosity(),
    }
    params_: LDSParams
    state_moment_: F64  # (h, h)
    dropped_: F64  # (V,)

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
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        callbacks: Sequence[Callback] | None = None,
        verbose: bool = False,
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
        self.verbose = verbose

    def _check_params(self) -> None:
        super()._check_params()
        if self.init == "ssid":
            check_lags(self.ssid_lags)
            if 2 * self.ssid_lags - 1 > self.lags:
                raise InputError(
                    f"LDS: ssid_lags={self.ssid_lags} needs lags={2 * self.ssid_lags - 1} or more, not {self.lags}."
                )

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(
        self,
        X: Corpus | LagCounts | Iterable[Sequence[str]],
        y: Any = None,
        *,
        engine: Engine | None = None,
        checkpoint: CheckpointSource = None,
    ) -> Self:
        """Fit the model; Ctrl-C after the first iteration keeps the best one so far.

        Parameters
        ----------
        X
            A corpus, token lists, or the pair counts of a text.
        y
            Ignored.
        engine
            Where to count pairs, such as a Dask cluster.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.

        Returns
        -------
        LDS
            The model itself.

        Raises
        ------
        InputError
            If a parameter is invalid, or the text has too few words, or no sentence is longer than `lags`.
        """
        self._check_params()
        counts = self._count(X, engine)
        rng = check_random_state(self.random_state)
        with one_blas_thread(), open_checkpoint(checkpoint, self, counts, rng) as saved:
            moments = self._moments(counts)
            at: StagedState | None = saved.state
            if at is not None:
                start = at.em.params
            elif self.init == "ssid":
                start = identify(moments, self.n_components, rng, ssid_lags=self.ssid_lags)
            else:
                start = random_start(moments, self.n_components, rng)
            warn_of_many_components(self.n_components, counts.n_tokens, stacklevel=2)
            params, history = self._run_em(moments, start, saved)
            self._set_fitted(moments, params, history, counts)
        return self

    def partial_fit(
        self,
        X: Corpus | LagCounts | Iterable[Sequence[str]],
        y: Any = None,
        *,
        counts: LagCounts | str | os.PathLike[str] | None = None,
        new_words: int | None = 1,
        engine: Engine | None = None,
    ) -> Self:
        """Add the pair counts of more text and run EM again from the current parameters.

        A model that is not fitted yet is fitted.

        Parameters
        ----------
        X
            A corpus, token lists, or counts over the model's vocabulary or one with more words after it.
        y
            Ignored.
        counts
            The pair counts of the text so far, or their directory. A loaded model needs them: they are many times
            larger than the model and are not saved with it. The command line keeps them beside it.
        new_words
            Words outside the vocabulary join it if X has them at least so often; None leaves them unknown.
        engine
            Where to count pairs.

        Returns
        -------
        LDS
            The model itself; `history_` is continued.

        Raises
        ------
        InputError
            If the counts of the text so far are missing, or are those of another text.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, engine=engine)
        self._check_params()
        earlier = self._earlier_counts(counts)
        if isinstance(X, LagCounts):
            more = X
        else:
            corpus = extend_corpus(self.vocabulary_, X, new_words)
            lags, across = earlier.lags, earlier.across
            more = LagCounts.from_corpus(corpus, lags=lags, across=across, n_jobs=self.n_jobs, engine=engine)
        if len(more.vocabulary) > len(earlier.vocabulary):
            earlier = earlier.with_words(more.vocabulary)
        both = earlier + more
        with one_blas_thread():
            moments = self._moments(both)
            start = extended_start(self.params_, moments, both.vocabulary.fallback())
            params, history = self._run_em(moments, start)
            self._set_fitted(moments, params, self.history_ + history, both)
        return self

    def _earlier_counts(self, counts: LagCounts | str | os.PathLike[str] | None) -> LagCounts:
        """The pair counts of the text so far: those given, or those that the fit left."""
        if counts is None:
            if "_counts" not in vars(self):
                raise InputError(
                    "A loaded LDS does not hold the pair counts of its text, to which partial_fit would add: "
                    "give them as counts=, or add the LagCounts of both texts and fit them."
                )
            return self._counts
        if not isinstance(counts, LagCounts):
            counts = LagCounts.open(Path(counts))
        theirs, mine = counts.vocabulary, self.vocabulary_
        if theirs != mine or not np.array_equal(theirs.counts, mine.counts):
            raise InputError(
                "The counts given are not those of the text that this LDS was fitted to: their words or the counts of "
                "words differ."
            )
        return counts

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
            noise=self.noise,  # type: ignore[arg-type]  # text_moments checks it and says which values there are
            fallback=counts.vocabulary.fallback(),
            n_threads=count_workers(self.n_jobs),
        )

    def _kappa(self, vocabulary: Vocabulary) -> float:
        return float(vocabulary.counts.sum()) / len(vocabulary) if self.kappa is None else self.kappa

    def _run_em(
        self, moments: Moments, start: LDSParams, checkpoint: OpenCheckpoint | None = None
    ) -> tuple[LDSParams, list[float]]:
        """EM in both stages: the parameters and the likelihoods."""
        steps = staged_iterations(
            moments,
            start,
            n_iter=self.n_iter,
            n_full=self.n_full,
            n_extra=round((self.basis - 1) * self.n_components),
            update_Q=self.update_Q,
            resume_from=None if checkpoint is None else checkpoint.state,
        )
        planned = max(self.n_iter + self.n_full, 1)
        result = run_iterations(
            steps,
            n_iter=planned,
            callbacks=self.callbacks,
            verbose=self.verbose,
            checkpoint=checkpoint,
            stacklevel=4,
        )
        params = result.params.lifted()
        return params._replace(C=moments.project(params.C)), result.history

    def _set_fitted(self, moments: Moments, params: LDSParams, history: list[float], counts: LagCounts) -> None:
        """Set the fitted attributes, after all that can fail."""
        vocabulary = counts.vocabulary
        state_moment = symmetrize(e_step(moments, params).E_xxT - steady_state(params).V_s)
        dropped = np.zeros(len(vocabulary))
        if self.noise == "dropout":
            dropped = WordDropout.of(vocabulary.counts, self._kappa(vocabulary), vocabulary.fallback()).share
        tables = LDSTables.of(params, state_moment, dropped, vocabulary.fallback())
        self.params_, self.state_moment_, self.dropped_, self._tables = params, state_moment, dropped, tables
        self.vocabulary_, self.tokenizer_ = vocabulary, counts.tokenizer
        self.history_ = history
        self._counts = counts

    # --- token vectors ----------------------------------------------------------------------------------

    def transform(
        self, X: Corpus | Iterable[Sequence[str]], view: str = "features", *, exact: bool = False
    ) -> list[F32]:
        """Vectors of the tokens, whitened and on the unit sphere.

        A word outside the vocabulary is a missing observation and gets its vector from the context; where the
        vocabulary has classes of unknown words it is observed as its class.

        Parameters
        ----------
        X
            Sentences.
        view
            "type" is the word alone, "filter" the word and what came before, "smooth" the whole sentence, "features"
            type and smooth side by side.
        exact
            Take the gains of each place in the sentence instead of the steady ones.

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
        if view not in VIEWS:
            raise InputError(f"view={view!r} must be one of {', '.join(VIEWS)}.")
        ids, offsets, missing = self._encode(X)
        n_threads = count_workers(self.n_jobs)
        vectors = queries.token_vectors(
            self.params_, self._tables, ids, offsets, missing, view, exact=exact, n_threads=n_threads
        )
        return [vectors[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    def _encode(self, X: Corpus | Iterable[Sequence[str]]) -> tuple[NDArray[np.uint32], I64, NDArray[np.bool_]]:
        """Ids of all tokens, offsets of the sentences, and which tokens are unknown."""
        if partly_known(X):
            from undertow.questions.evidence import as_evidence
            from undertow.questions.linear import encode

            return encode(self, [as_evidence(text) for text in X])[:3]
        sentences = encode_sentences(self.vocabulary_, X)
        offsets = np.concatenate(([0], np.cumsum([len(s) for s in sentences]))).astype(np.int64)
        ids = np.concatenate(sentences) if sentences else np.empty(0, dtype=np.uint32)
        return ids, offsets, ids == self.vocabulary_.unknown_id

    def _gaps(self, X: Any) -> NDArray[np.bool_] | None:
        """Which tokens of partly known texts are gaps, whose log-probability is 0; None if no text is such."""
        if not partly_known(X):
            return None
        from undertow.questions.evidence import as_evidence

        return np.array([token is None for text in X for token in as_evidence(text).tokens], dtype=bool)

    def posterior_covariance(self, sentence: Sequence[str]) -> tuple[F64, F64]:
        """Covariances of the hidden state at each token.

        Parameters
        ----------
        sentence
            Tokens; only which of them are unknown matters.

        Returns
        -------
        filtered : array (n_tokens, h, h)
            Given the tokens up to each.
        smoothed : array (n_tokens, h, h)
            Given the whole sentence.
        """
        self._check_fitted()
        _, _, missing = self._encode([sentence])
        p, tables = self.params_, self._tables
        return posterior_covariances(missing, p.A, p.Q, tables.steady.N, p.M, tables.stationary)

    def stream(self, delay: int = 5) -> TokenStream:
        """Embed tokens one at a time.

        Parameters
        ----------
        delay
            Smoothed vectors come so many tokens later.

        Returns
        -------
        TokenStream
            An object with `push` and `flush`.

        Raises
        ------
        InputError
            If `delay` is negative.
        """
        self._check_fitted()
        return TokenStream(self.params_, self._tables, self.vocabulary_, delay)

    def recurrence(self) -> Recurrence:
        """The filter as a linear recurrent network.

        Returns
        -------
        Recurrence
            Its matrices, and the spread of its states.
        """
        self._check_fitted()
        return queries.recurrence(self.params_, self._tables, self.vocabulary_.counts)

    # --- as a language model ----------------------------------------------------------------------------

    def log_probabilities(self, X: Corpus | Iterable[Sequence[str]]) -> list[F64]:
        """log p(token | tokens before it in its sentence).

        Parameters
        ----------
        X
            Sentences; all unknown words count as one word.

        Returns
        -------
        list of arrays (n_tokens,)
            One for each sentence.
        """
        self._check_fitted()
        ids, offsets, missing = self._encode(X)
        n_threads = count_workers(self.n_jobs)
        states = queries.token_states(
            self.params_, self._tables, ids, offsets, missing, filtered=True, n_threads=n_threads
        )
        out = queries.log_probabilities(self.params_, self.dropped_, self.vocabulary_, ids, offsets, states)
        gaps = self._gaps(X)
        if gaps is not None:
            out[gaps] = 0.0
        return [out[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    def fill(self, text: Any, n: int = 10, *, markers: bool = False) -> Table[Gap]:
        """The words of the gaps of a text, each given everything on both sides of it.

        Parameters
        ----------
        text
            Tokens; None or "?" is a gap. Sets and weights of words have no exact form here.
        n
            How many words for each gap.
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
            If the text is empty, or has anything but words and gaps.
        """
        from undertow.questions.evidence import GAP_SIGN, as_evidence
        from undertow.questions.linear import fill

        self._check_fitted()
        return fill(self, as_evidence(text, gap_sign=GAP_SIGN), n, markers)

    def sample_fill(
        self,
        text: Any,
        n: int = 5,
        *,
        markers: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> list[list[str]]:
        """Draw the words of all gaps, from left to right, each given both sides and the gaps filled before it.

        Parameters
        ----------
        text
            As in `fill`.
        n
            How many texts.
        markers
            Whether the unknown word, the boundary word and classes of unknown words may be drawn.
        random_state
            Seed or generator; None draws anew each time.

        Returns
        -------
        list of list of str
            The text with its gaps filled by words seen in training, n times.
        """
        from undertow.questions.evidence import GAP_SIGN, as_evidence
        from undertow.questions.linear import sample_fill

        self._check_fitted()
        rng = check_random_state(random_state)
        return sample_fill(self, as_evidence(text, gap_sign=GAP_SIGN), n, rng, markers)

    def best_fill(self, text: Any, *, markers: bool = False, max_expansions: int = 2000) -> JointFill:
        """The most probable words of all gaps together, by the distribution that `sample_fill` draws from.

        Parameters
        ----------
        text
            As in `fill`.
        markers
            Whether the unknown word, the boundary word and classes of unknown words may fill gaps.
        max_expansions
            The search ends after so many partial fills, with the best one so far and `proven` False.

        Returns
        -------
        JointFill
            `tokens`, the filled text; `log_probability` of the fill given the evidence; `proven`.
        """
        from undertow.questions.evidence import GAP_SIGN, as_evidence
        from undertow.questions.linear import best_fill

        self._check_fitted()
        return best_fill(self, as_evidence(text, gap_sign=GAP_SIGN), max_expansions, markers)

    def what_if(self, text: Any, position: int, word: str) -> Table[Change]:
        """What would change at every other position if this one had another word.

        Parameters
        ----------
        text
            Tokens, possibly with gaps (None) elsewhere.
        position
            Which position is changed, from 0.
        word
            Its new word.

        Returns
        -------
        Table of Change
            `position`, `token`, `total_variation` and `divergence` of the Gaussian distributions of its hidden state,
            and by how many bits the token becomes more surprising given both sides.

        Raises
        ------
        InputError
            If the position is a gap or an unknown word, which has no closed form, or the new word is unknown.
        """
        from undertow.questions.evidence import as_evidence
        from undertow.questions.linear import what_if

        self._check_fitted()
        return what_if(self, as_evidence(text), position, word)

    def masked_log_probabilities(self, X: Corpus | Iterable[Sequence[str]]) -> list[F64]:
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
        from undertow.questions.linear import log_both_sides

        self._check_fitted()
        ids, offsets, missing = self._encode(X)
        out = log_both_sides(self, ids, offsets, missing, self._gaps(X))
        return [out[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    def masked_perplexity(self, X: Corpus | Iterable[Sequence[str]]) -> float:
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

    def compare(self, text: Any, position: int, words: Sequence[str]) -> Table[Comparison]:
        """How well some words fit a position, given both sides.

        Parameters
        ----------
        text
            Tokens, possibly with gaps (None); what stands at the position itself is not looked at.
        position
            Where, from 0.
        words
            Words of the vocabulary.

        Returns
        -------
        Table of Comparison
            `word`, `probability`, `share` among the words given, and `log_odds` against the others, in their order.
        """
        from undertow.questions.evidence import as_evidence
        from undertow.questions.linear import compare

        self._check_fitted()
        return compare(self, as_evidence(text), position, words)

    def surprise(self, X: Corpus | Iterable[Sequence[str]]) -> Table[Surprise]:
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

    def score(self, X: Corpus | Iterable[Sequence[str]], y: Any = None) -> float:
        """Mean log-probability of a token as a language model; the likelihood in `history_` is another density.

        Parameters
        ----------
        X
            Sentences.
        y
            Ignored.

        Returns
        -------
        float
            In nats per token.

        Raises
        ------
        InputError
            If there is no token.
        """
        parts = self.log_probabilities(X)
        n_tokens = sum(len(p) for p in parts)
        if n_tokens == 0:
            raise InputError("There is no token to score: give at least one.")
        return float(np.sum(np.concatenate(parts)) / n_tokens)

    def perplexity(self, X: Corpus | Iterable[Sequence[str]]) -> float:
        """exp(−`score`).

        Parameters
        ----------
        X
            Sentences.

        Returns
        -------
        float
            Perplexity per token.
        """
        return float(np.exp(-self.score(X)))

    # --- words ------------------------------------------------------------------------------------------

    def word_vectors(self) -> F32:
        """Vectors of the words, as the "type" view has them.

        Returns
        -------
        array (V, h)
            Whitened unit vectors.
        """
        self._check_fitted()
        return self._tables.word_vectors

    def neighbors(self, word: str | Sequence[str], n: int = 10, *, position: int | None = None) -> Table[Neighbor]:
        """The words most like a word, or most like a token in its sentence.

        Parameters
        ----------
        word
            A word, or the tokens of a sentence.
        n
            How many.
        position
            Which token of the sentence.

        Returns
        -------
        Table of Neighbor
            Words seen at least `min_count` times, nearest first.

        Raises
        ------
        InputError
            If the word is not in the vocabulary, or the position not in the sentence.
        """
        self._check_fitted()
        if isinstance(word, str):
            if position is not None:
                raise InputError("position goes with a sentence, a list of tokens; a word alone has none.")
            itself = self._word_id(word)
            query = self._tables.word_vectors[itself]
        else:
            tokens = list(word)
            if position is None or not -len(tokens) <= position < len(tokens):
                raise InputError(f"Give the position of the token: 0 to {len(tokens) - 1}.")
            itself = self.vocabulary_.id(tokens[position])
            query = self.transform([tokens], "smooth")[0][position]
        return similar_words.neighbors(self._tables.word_vectors, self.vocabulary_, query, [itself], n, self.min_count)

    def __getitem__(self, word: str) -> F32:
        """The vector (h,) of a word, a row of `word_vectors`."""
        self._check_fitted()
        vector: F32 = self._tables.word_vectors[self._word_id(word)]
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
            From −1 to 1.

        Raises
        ------
        UnknownWordError
            If one is not in the vocabulary.
        """
        return float(self[a] @ self[b])

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
        return similar_words.most_similar(self, self._tables.word_vectors, positive, negative, topn, self.min_count)

    def transitions(self, n: int = 10, *, n_words: int = 5) -> Table[Transition]:
        """The strongest transitions of the hidden state, as words (Table 1 of the paper).

        Parameters
        ----------
        n
            How many transitions.
        n_words
            Words on each side of a transition.

        Returns
        -------
        Table of Transition
            Strongest first.
        """
        self._check_fitted()
        return queries.transitions(self.params_, self._tables, self.vocabulary_, n, n_words, self.min_count)

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        assert state.n_words is not None
        return storage.tensor_spec(state.fitted["n_components"], state.n_words)

    def _tensors(self) -> dict[str, NDArray[Any]]:
        return {**self.params_._asdict(), "state_moment": self.state_moment_, "dropped": self.dropped_}

    def _fitted_scalars(self) -> dict[str, Any]:
        return {"n_components": self.params_.n_components, "tokenizer": self.tokenizer_}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        storage.check_tensors(tensors)

    def _restore(self, tensors: Mapping[str, NDArray[Any]], state: SavedState) -> None:
        self.params_ = storage.saved_params(tensors)
        self.state_moment_, self.dropped_ = tensors["state_moment"], tensors["dropped"]
        self.tokenizer_ = state.fitted["tokenizer"]
        fallback = self.vocabulary_.fallback()
        self._tables = LDSTables.of(self.params_, self.state_moment_, self.dropped_, fallback)


__all__ = ["LDS", "LikelihoodWarning", "Neighbor", "Recurrence", "TokenStream", "Transition"]
