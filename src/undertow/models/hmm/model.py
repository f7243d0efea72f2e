"""The hidden Markov model of text: a language model with thousands of states, fitted by EM on ordinary cores.

The class only forwards: parameters and inference are in `params`, EM in `em`, its start in `init` and `initial_counts`,
queries in `queries`, diagnostics in `diagnose`, saving in `storage`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.constraints.kinds import Constraint as TextConstraint
from undertow.engine import Engine, Serial, Threads, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError
from undertow.kernels.chain.block_operators import PairSparse
from undertow.models.answers import Gap, Transition, WordProbability, top_words
from undertow.models.base import (
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    check_engine,
    encode_sentences,
    extend_corpus,
    partly_known,
    warn_of_little_text,
)
from undertow.models.constraints import (
    CALLBACKS,
    N_JOBS,
    RANDOM_STATE,
    Choice,
    Constraint,
    Flag,
    Number,
    Share,
    Verbosity,
    Whole,
    check_random_state,
)
from undertow.models.fitting import (
    Callback,
    CheckpointSource,
    FitResult,
    OpenCheckpoint,
    open_checkpoint,
    run_iterations,
    split_text,
)
from undertow.models.hmm import diagnose as hmm_diagnose
from undertow.models.hmm import em as hmm_em
from undertow.models.hmm import embedded
from undertow.models.hmm import queries as hmm_queries
from undertow.models.hmm import storage as hmm_storage
from undertow.models.hmm import tagged as hmm_tagged
from undertow.models.hmm.distill import Source, sampled_corpus
from undertow.models.hmm.init import MIN_STATES_FOR_BLOCKS, EMStart, choose_blocks, initial_params, resume
from undertow.models.hmm.initial_counts import INITS
from undertow.models.hmm.params import Emission, Params
from undertow.models.hmm.partial import HMMStats, SeenText, continuation
from undertow.progress import ProgressFn, ignore
from undertow.tables import Table
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

if TYPE_CHECKING:
    from undertow.questions.best_fill import JointFill
    from undertow.questions.evidence import TextChain
    from undertow.questions.explain import Change, Comparison, Surprise

VIEWS = ("features", "posterior")
MIN_TOKENS_TO_TIE = 100_000  # with less text, parameterization="auto" is tables
MAX_FEATURES = 512  # with more states, the view "features" is a projection of the posterior
BATCH_TOKENS = 1 << 16  # queries process a text in batches of about this many tokens
MASKED_TOKENS = 1 << 18  # and leave out tokens in larger ones, as these share products of blocks
Sentences = Corpus | Iterable[Sequence[str]]


class HMM(Estimator):
    """A hidden Markov model with many states.

    Parameters
    ----------
    n_states
        Number of states, Z.
    n_blocks
        Words and states are divided into so many blocks, and a state emits only words of its block. None: one block
        per 32 states, or no blocks (1) below 512 states.
    rank
        None for a full transition matrix (with blocks: a matrix for each pair of blocks in the text), or the number of
        features F of a low-rank transition.
    band
        Half-width of a band added to a low-rank transition; only without blocks.
    init
        How EM starts: "random" (the blocks are word clusters even then), "clusters" or "spectral". "auto" is "random"
        for blocks with a full transition, else "clusters".
    parameterization
        "table": every probability is a number of its own, fitted by EM. "neural": probabilities are tied through
        embeddings of states and words, fitted by gradients; with a rank or without blocks this needs PyTorch. "auto"
        is "neural" for 512 states or more with blocks and a full transition, if the text has 100,000 tokens or more,
        and otherwise "table".
    width
        Of the embeddings of a neural parameterization.
    dropout
        Share of the states of each block that a neural parameterization drops at random in each batch. None: 0.15
        with blocks and a full transition, otherwise 0.
    batch_tokens
        Tokens of text for each gradient step of a neural parameterization. None: chosen by its form.
    features
        Of a neural parameterization with a rank: "learned", or random and fixed, "orthogonal" or "fourier".
    n_iter
        Passes over the text.
    n_chunks
        The parameters are updated after each of so many parts of the text; 1 is plain EM.
    smoothing
        Multiplies all pseudo-counts; 0 is maximum likelihood.
    carry
        Carry the state over from sentence to sentence instead of starting each from the initial distribution.
    validation
        Share of the text, taken from its end, that is held out for early stopping; None for no early stopping.
    warm_start
        Let `fit` continue from the current parameters.
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
    history_ : list of float
        Mean log-likelihood of a token after each pass.
    validation_history_ : list of float
        The same for the held-out text; empty if there is none.
    vocabulary_ : Vocabulary
        The words.
    tokenizer_ : dict or None
        The rule by which the text was split into tokens, if known.
    params_ : BlockParams or PlainParams
        Initial, transition and emission probabilities; see also `initial_`, `transition_` and `emission_`.
    seen_ : SeenText or None
        Number of tokens and of sequences that it was fitted to; None if not known.
    tag_states_ : Tags or None
        The tags and the states that each of them owns; None if it was fitted without tags.

    Examples
    --------
    >>> from undertow import HMM
    >>> model = HMM(2, n_iter=10, random_state=0).fit([["a", "b", "a", "b"], ["a", "b"]] * 20)
    >>> model.next_words(["a"], 1)[0].word
    'b'
    """

    kind = "hmm"
    table_bits: ClassVar[tuple[int, ...]] = (8,)
    seen_: SeenText | None
    tag_states_: hmm_tagged.Tags | None
    added_params: ClassVar[Mapping[str, Any]] = {
        "width": 128, "dropout": None, "batch_tokens": None, "features": "learned"
    }  # fmt: skip
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_states": Whole(1),
        "n_blocks": Whole(1) | None,
        "rank": Whole(1) | None,
        "band": Whole(0),
        "init": Choice("auto", *INITS),
        "parameterization": Choice("auto", "table", "neural"),
        "width": Whole(1),
        "dropout": Number(0, 0.95) | None,
        "batch_tokens": Whole(1) | None,
        "features": Choice("learned", "orthogonal", "fourier"),
        "n_iter": Whole(1),
        "n_chunks": Whole(1),
        "smoothing": Number(0, 1e9),
        "carry": Flag(),
        "validation": Share(),
        "warm_start": Flag(),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "verbose": Verbosity(),
        "callbacks": CALLBACKS,
    }

    def __init__(
        self,
        n_states: int = 6144,
        *,
        n_blocks: int | None = None,
        rank: int | None = None,
        band: int = 0,
        init: str = "auto",
        parameterization: str = "auto",
        width: int = 128,
        dropout: float | None = None,
        batch_tokens: int | None = None,
        features: str = "learned",
        n_iter: int = 12,
        n_chunks: int = 8,
        smoothing: float = 1.0,
        carry: bool = False,
        validation: float | None = None,
        warm_start: bool = False,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_states = n_states
        self.n_blocks = n_blocks
        self.rank = rank
        self.band = band
        self.init = init
        self.parameterization = parameterization
        self.width = width
        self.dropout = dropout
        self.batch_tokens = batch_tokens
        self.features = features
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
        if self.n_blocks is not None and self.n_blocks > self.n_states:
            raise InputError(
                f"HMM: n_blocks={self.n_blocks} is more than n_states={self.n_states}: each block needs a state."
            )
        if self.rank is not None and self.rank > self.n_states:
            raise InputError(
                f"HMM: rank={self.rank} is more than n_states={self.n_states}: use a smaller one, or None."
            )
        if self.band and (self.rank is None or (self.n_blocks or 1) > 1):
            raise InputError("HMM: a band needs a rank and no blocks: give rank, and n_blocks=1.")

    # --- fitting ----------------------------------------------------------------------------------------

    @one_blas_thread()
    def fit(
        self,
        X: Sentences,
        y: Any = None,
        *,
        validation: Sentences | None = None,
        engine: Engine | None = None,
        checkpoint: CheckpointSource = None,
        unlabelled_weight: float = 0.03,
    ) -> Self:
        """Fit by EM; Ctrl-C after the first pass keeps what is finished.

        With `warm_start`, EM continues from the current parameters, also those of a loaded model; all words of the text
        must have been seen by the first fit.

        Parameters
        ----------
        X
            A corpus or token lists.
        y
            Tags of tokens, as far as they are known: for each sentence None, or a list with a tag or None for each
            token. A tag owns a share of the states, `predict` gives tags, and the model has no blocks. Anything else,
            such as a label for each sentence, is ignored.
        validation
            Other text for early stopping: fitting ends with the pass after which it becomes less probable, and the best
            pass is kept.
        engine
            Where the E-steps run, such as a Dask cluster; not for a neural parameterization.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.
        unlabelled_weight
            With tags, how much a sentence without any counts beside one with some, 0 to 1. Left to itself EM drifts
            from the tags to other classes; and few passes (n_iter=2) are better than many (docs/questions.md).

        Returns
        -------
        HMM
            The model itself.

        Raises
        ------
        InputError
            If a parameter is invalid, no sentence has two tokens, the text has probability zero, or the tags do not
            fit the text or the parameters.
        """
        self._check_params()
        rng = check_random_state(self.random_state)
        y = y if hmm_tagged.has_tags(y) else None
        if y is not None:
            self._check_can_take_tags()
            hmm_tagged.check_weight(unlabelled_weight)
            X, y = hmm_tagged.without_empty(X, y)
        corpus = as_corpus(X)
        resuming = self.warm_start and self.__sklearn_is_fitted__()
        if resuming and corpus.vocabulary != self.vocabulary_:
            corpus = Corpus.from_sentences(corpus.token_lists(), vocabulary=self.vocabulary_)
        text, other = split_text(corpus, self.validation, validation)
        if not resuming:
            warn_of_little_text(self.n_states, "states", "n_states", text.n_tokens, stacklevel=3)
        if not resuming and y is None and self._tied(text):
            self._finish(self._fit_embedded(text, other, rng, engine, checkpoint), corpus)
            self.seen_ = SeenText(text.n_tokens, text.n_sentences)
            return self
        if self.parameterization == "neural":
            check_engine("A neural HMM with a rank or without blocks", engine)
            self._finish(_neural_fit()(self, text, other, checkpoint=checkpoint), corpus)
            self.seen_ = SeenText(text.n_tokens, text.n_sentences)
            return self
        chunks = hmm_em.split_chunks(text, min(self.n_chunks, text.n_sentences), self.carry)
        tags = self.tag_states_ if resuming else None
        known: npt.NDArray[np.int32] | None = None
        if y is not None:
            given = hmm_tagged.read_tags(corpus, y)[: text.n_sentences]
            tags = tags or hmm_tagged.choose_states(given, self.n_states)
            known = hmm_tagged.tag_ids(tags, given, text)
        earlier_fit = (self.params_, self.history_) if resuming else None
        data: Any = (text, other, earlier_fit)
        if known is not None:
            data = (*data, known, float(unlabelled_weight))
        with open_checkpoint(checkpoint, self, data, rng) as saved:
            at: hmm_em.EMState | None = saved.state
            if at is not None:
                start = EMStart(at.params, at.m_step)
            else:
                start = self._start(text, chunks, rng, resuming, known is not None)
                if known is not None and tags is not None and not resuming:
                    start = hmm_tagged.tagged_start(start, text, known, tags, unlabelled_weight, rng)
            read = (
                chunks
                if known is None or tags is None
                else hmm_tagged.with_tags(chunks, known, tags, unlabelled_weight)
            )
            result = self._run_em(start, read, other, engine, checkpoint=saved)
        self._finish(self._continued(result) if resuming else result, corpus, tags)
        self.seen_ = SeenText.of(chunks)
        return self

    def _tied(self, text: Corpus) -> bool:
        """Whether the probabilities are tied through embeddings, in the form of `models.hmm.embedded`."""
        if self.parameterization == "table" or self.rank is not None or self.init not in ("auto", "random"):
            return False
        large = self.n_states >= MIN_STATES_FOR_BLOCKS and text.n_tokens >= MIN_TOKENS_TO_TIE
        if self.parameterization == "auto" and not large:
            return False
        return choose_blocks(self.n_blocks, self.n_states, int((text.vocabulary.counts > 0).sum())) > 1

    def _fit_embedded(
        self,
        text: Corpus,
        other: Corpus | None,
        rng: np.random.Generator,
        engine: Engine | None,
        checkpoint: CheckpointSource,
    ) -> FitResult[Params]:
        options = embedded.options_of(self, text)
        held_out = [] if other is None else [s for c in hmm_em.split_chunks(other, 1, self.carry) for s in c]
        n_threads = count_workers(self.n_jobs)
        with (
            open_checkpoint(checkpoint, self, (text, other), rng) as saved,
            nullcontext(engine) if engine is not None else self._engine() as workers,
        ):
            state: embedded.EmbeddedState | None = saved.state
            if state is None:
                state = embedded.embedded_start(text, options, rng, workers, n_threads)
            iterations = embedded.embedded_epochs(state, text, options, rng, workers, n_threads, held_out)
            return run_iterations(
                iterations,
                n_iter=self.n_iter,
                unit="pass",
                callbacks=self.callbacks,
                verbose=self.verbose,
                patience=None,  # the rate falls to the end; the best pass is kept
                checkpoint=saved,
                stacklevel=5,  # run_iterations, _fit_embedded, fit, the wrapper of one_blas_thread, the caller
            )

    def _check_can_take_tags(self) -> None:
        """Raise InputError if a parameter does not go with tags."""
        if self.parameterization == "neural":
            raise InputError("HMM: tags are learned by EM: set parameterization='table', or leave out y.")
        if (self.n_blocks or 1) > 1:
            raise InputError("HMM: with tags there are no blocks, as a tag owns states: leave out n_blocks.")
        if self.init not in ("auto", "random"):
            raise InputError("HMM: with tags, EM starts from the labelled tokens: leave out init.")
        if self.warm_start and self.__sklearn_is_fitted__() and self.tag_states_ is None:
            raise InputError("HMM: this model was fitted without tags, so it cannot go on with some: fit a new model.")

    @one_blas_thread()
    def partial_fit(
        self,
        X: Sentences,
        y: Any = None,
        *,
        validation: Sentences | None = None,
        new_words: int | None = 1,
        engine: Engine | None = None,
    ) -> Self:
        """Continue by EM with more text; a model that is not fitted yet is fitted, a loaded one goes on like any other.

        The text read before is not kept: its expected counts under the current parameters stand for it, so that it
        and the new text weigh as their numbers of tokens (docs/hmm.md). `n_iter` passes read the new text. Tables that
        were tied through embeddings are continued by EM like any others.

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
        HMM
            The model itself; `history_` and `validation_history_` are continued.

        Raises
        ------
        InputError
            For a neural parameterization with a rank or without blocks, or a model saved before undertow noted how
            much text it had read.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, validation=validation, engine=engine)
        self._check_params()
        if self.parameterization == "neural" and not isinstance(self.params_.transition, PairSparse):
            raise InputError(
                "HMM: partial_fit continues EM over tables, and parameterization='neural' is trained by gradients: "
                "call fit with all of the text, or set parameterization='table' to continue with its tables."
            )
        if self.seen_ is None:
            raise InputError(
                "HMM: this model was saved without the size of the text it was fitted to, by which partial_fit weighs "
                "it: call fit with all of the text."
            )
        corpus = extend_corpus(self.vocabulary_, X, new_words)
        text, other = split_text(corpus, self.validation, validation)
        chunks = hmm_em.split_chunks(text, min(self.n_chunks, text.n_sentences), self.carry)
        V, words = len(corpus.vocabulary), corpus.vocabulary
        old_counts = np.concatenate([self.vocabulary_.counts, np.zeros(V - len(self.vocabulary_), dtype=np.int64)])
        start = continuation(
            self.params_, self.seen_, chunks, old_counts, text.vocabulary.counts, words.fallback(), self.smoothing
        )
        result = self._run_em(EMStart(start.params, start.m_step), chunks, other, engine, start.earlier)
        seen = self.seen_ + SeenText.of(chunks)
        corpus.vocabulary = words.with_counts(old_counts + words.counts)
        corpus.manifest = {**corpus.manifest, "tokenizer": self.tokenizer_}  # the rule stays that of the first text
        self._finish(self._continued(result), corpus, self.tag_states_)
        self.seen_ = seen
        return self

    def distill(
        self,
        source: Source,
        *,
        n_tokens: int | None = 1_000_000,
        vocab_size: int | None = None,
        validation: Sentences | None = None,
        checkpoint: CheckpointSource = None,
    ) -> Self:
        """Fit to texts of another language model, over its own tokens, so that it can be steered.

        Parameters
        ----------
        source
            A function without arguments that returns a batch of texts each time, or texts. A text is a list, array or
            tensor of token ids, or a list of strings; the id 17 is the word "17".
        n_tokens
            How many tokens to draw; None reads an iterable to its end.
        vocab_size
            Number of ids of the language model: those that were never drawn are words too, which every state emits
            alike. None for the tokens that were drawn.
        validation
            Other texts for early stopping, as in `fit`.
        checkpoint
            As in `fit`.

        Returns
        -------
        HMM
            The model itself.

        Raises
        ------
        InputError
            If the sampler returns no text, a token is neither a string nor a whole number, or as in `fit`.

        Examples
        --------
        >>> import numpy as np
        >>> from undertow import HMM
        >>> rng = np.random.default_rng(0)
        >>> def sampler():  # stands for `language_model.generate(do_sample=True, …)`
        ...     return rng.integers(0, 5, size=(8, 20))
        >>> model = HMM(2, n_iter=2, random_state=0).distill(sampler, n_tokens=1000, vocab_size=10)
        >>> len(model.vocabulary_)  # the ids and the unknown word
        11
        """
        corpus = sampled_corpus(source, n_tokens, vocab_size)
        return self.fit(corpus, validation=validation, checkpoint=checkpoint)

    def _run_em(
        self,
        start: EMStart,
        chunks: Sequence[Sequence[Any]],
        other: Corpus | None,
        engine: Engine | None,
        earlier: HMMStats | None = None,
        checkpoint: OpenCheckpoint | None = None,
    ) -> FitResult[Params]:
        held_out = (
            [shard for chunk in hmm_em.split_chunks(other, 1, self.carry) for shard in chunk]
            if other is not None
            else []
        )
        with nullcontext(engine) if engine is not None else self._engine() as workers:
            iterations = hmm_em.em_iterations(
                *start,
                chunks,
                self.n_iter,
                workers,
                validation=held_out,
                # with tags too: those of chunks that are not read yet would have no tokens
                delay_first=self.smoothing == 0 or isinstance(chunks[0][0], hmm_tagged.TaggedShard),
                earlier=earlier,
                resume_from=None if checkpoint is None else checkpoint.state,
            )
            return run_iterations(
                iterations,
                n_iter=self.n_iter,
                unit="pass",
                callbacks=self.callbacks,
                verbose=self.verbose,
                checkpoint=checkpoint,
                stacklevel=5,  # run_iterations, _run_em, fit, the wrapper of one_blas_thread, the caller
            )

    def _continued(self, result: FitResult[Params]) -> FitResult[Params]:
        """The result with the history of the fits before it."""
        return result._replace(
            history=self.history_ + result.history,
            validation_history=self.validation_history_ + result.validation_history,
        )

    def _start(
        self, text: Corpus, chunks: Any, rng: np.random.Generator, resuming: bool, tagged: bool = False
    ) -> EMStart:
        word_counts = text.vocabulary.counts
        if resuming:
            return resume(self.params_, chunks, word_counts, self.smoothing, text.vocabulary.words)
        n_blocks = choose_blocks(self.n_blocks, self.n_states, int((word_counts > 0).sum()))
        if (self.band and n_blocks > 1) or tagged:
            n_blocks = 1
        init = "random" if tagged else self.init
        counts = LagCounts.from_corpus(text, lags=1, n_jobs=self.n_jobs)
        n_threads = count_workers(self.n_jobs)
        return initial_params(
            counts, chunks, self.n_states, n_blocks, self.rank, self.band, init, self.smoothing, rng, n_threads
        )

    def _engine(self) -> Engine:
        n = count_workers(self.n_jobs)
        return Threads(n) if n > 1 else Serial()

    def _finish(self, result: FitResult[Params], corpus: Corpus, tags: hmm_tagged.Tags | None = None) -> None:
        """Set the fitted attributes, all at once."""
        self.params_ = result.params
        self.tag_states_ = tags
        self._derived = hmm_queries.Derived(result.params)
        self.vocabulary_ = corpus.vocabulary
        self.tokenizer_ = corpus.manifest.get("tokenizer")
        self.validation_history_ = result.validation_history
        self.history_ = result.history

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
        """Log-probability of each token given the tokens before it.

        Words outside the vocabulary count as the unknown word. If the training text had no unknown word, such a token
        is a missing observation: it does not change the state, and has the Good–Turing probability of a new word.

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        list of arrays (n_tokens,)
            One a sentence; −inf for a word of probability zero.

        Raises
        ------
        NotFittedError
            Before `fit`.
        """
        self._check_fitted()
        out = []
        for params, ids, bounds, edges in self._runs(X):
            logs = params.filtered(ids, bounds).log_probabilities
            out += [logs[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        return out

    def score(self, X: Sentences, y: Any = None) -> float:
        """Mean log-probability of a token.

        Parameters
        ----------
        X
            A Corpus or token lists.
        y
            Ignored; scikit-learn passes it.

        Returns
        -------
        float
            −inf, with a warning that names the word, if some token has probability zero.

        Raises
        ------
        InputError
            If there is no token.
        """
        X = _reusable(X)
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
        """Perplexity: exp(−score).

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        float
            The inverse of the geometric mean of the probabilities of the tokens.
        """
        return float(np.exp(-self.score(X)))

    def next_words(self, prefix: Sequence[str], n: int = 10, *, markers: bool = False) -> Table[WordProbability]:
        """The most probable next words, among the words seen in training.

        Parameters
        ----------
        prefix
            The tokens before; may be empty.
        n
            How many words.
        markers
            Whether the unknown word, the boundary word and classes of unknown words are listed too.

        Returns
        -------
        Table of WordProbability
            Most probable first.
        """
        return top_words(self.vocabulary_, self._next(prefix), n, markers)

    def next_distribution(self, prefix: Sequence[str]) -> npt.NDArray[np.float64]:
        """Distribution of the next word.

        Parameters
        ----------
        prefix
            The tokens before; may be empty.

        Returns
        -------
        array (V,)
            Probability of every word of the vocabulary; sums to one.
        """
        return self._next(prefix)

    @one_blas_thread()
    def _next(self, prefix: Sequence[str]) -> npt.NDArray[np.float64]:
        self._check_fitted()
        [ids] = encode_sentences(self.vocabulary_, [prefix])
        p = self.params_.word_probabilities(hmm_queries.state_after(self.params_, ids))
        return np.asarray(p / p.sum())

    @one_blas_thread()
    def sample(
        self, n_tokens: int = 50, *, random_state: int | np.random.Generator | None = None, prefix: Sequence[str] = ()
    ) -> list[str]:
        """Draw tokens from the model.

        Parameters
        ----------
        n_tokens
            How many.
        random_state
            Seed or generator; None draws differently each time.
        prefix
            Tokens to continue from.

        Returns
        -------
        list of str
            The drawn tokens, without the prefix. After the boundary word a new sentence begins.
        """
        self._check_fitted()
        if isinstance(n_tokens, bool) or not isinstance(n_tokens, int | np.integer) or n_tokens < 0:
            raise InputError(f"n_tokens={n_tokens!r} must be a whole number, at least 0.")
        rng = check_random_state(random_state)
        [ids] = encode_sentences(self.vocabulary_, [prefix])
        boundary = None if self.carry else self.vocabulary_.boundary_id
        drawable = self.vocabulary_.counts > 0
        drawn = hmm_queries.sample_words(self._tables(), int(n_tokens), rng, ids, boundary, drawable)
        return [self.vocabulary_.words[i] for i in drawn]

    # --- questions --------------------------------------------------------------------------------------

    @one_blas_thread()
    def fill(
        self, text: Any, n: int = 10, *, states: Mapping[int, Any] | None = None, markers: bool = False
    ) -> Table[Gap]:
        """The words of the gaps of a text, each given everything on both sides of it, exactly.

        Parameters
        ----------
        text
            Tokens. None or "?" is a gap; a set allows some words, a mapping weighs them (see `Evidence`). A question
            mark itself is written {"?"}.
        n
            How many words for each gap.
        states
            Known states by position: a state or a set of them.
        markers
            Whether the unknown word, the boundary word and classes of unknown words are listed too.

        Returns
        -------
        Table of Gap
            One for each position that is not one known word: `position`, `words` with their probabilities, most
            probable first, among the words seen in training, and the probability of `markers` that are not listed.

        Raises
        ------
        InputError
            If the text is empty, a set or mapping names a word outside the vocabulary, or the evidence has
            probability zero.
        """
        from undertow.questions.evidence import GAP_SIGN, as_evidence
        from undertow.questions.fill import fill

        return fill(self._chain(markers), as_evidence(text, states, GAP_SIGN), n)

    @one_blas_thread()
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
            Known states by position.
        markers
            Whether the unknown word, the boundary word and classes of unknown words may be drawn.
        random_state
            Seed or generator; None draws differently each time.

        Returns
        -------
        list of list of str
            The text with its gaps filled by words seen in training, n times.
        """
        from undertow.questions.evidence import GAP_SIGN, as_evidence
        from undertow.questions.fill import sample_fill

        chain = self._chain(markers)
        return sample_fill(chain, as_evidence(text, states, GAP_SIGN), n, check_random_state(random_state))

    @one_blas_thread()
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
            Known states by position.
        markers
            Whether the unknown word, the boundary word and classes of unknown words may fill gaps.
        method
            "words" maximizes the probability of the words, summed over the states, by a search that proves its answer
            (docs/questions.md). "path" takes the words of the most probable path of states and words, by Viterbi.
        max_expansions
            The search ends after so many partial fills, with the best one so far and `proven` False.

        Returns
        -------
        JointFill
            `tokens`, the filled text; `log_probability` of the fill given the evidence; `proven`.
        """
        from undertow.questions.best_fill import best_fill
        from undertow.questions.evidence import GAP_SIGN, as_evidence

        return best_fill(self._chain(markers), as_evidence(text, states, GAP_SIGN), method, max_expansions)

    @one_blas_thread()
    def log_evidence(self, text: Any, *, states: Mapping[int, Any] | None = None) -> float:
        """Log-probability of a partly known text: all ways to fill it together.

        Parameters
        ----------
        text
            As in `fill`; the weights of a mapping multiply the probabilities of its words.
        states
            Known states by position.

        Returns
        -------
        float
            −inf if the evidence is impossible.
        """
        from undertow.questions.evidence import GAP_SIGN, as_evidence
        from undertow.questions.fill import log_evidence

        return log_evidence(self._chain(), as_evidence(text, states, GAP_SIGN))

    @one_blas_thread()
    def masked_log_probabilities(self, X: Sentences) -> list[npt.NDArray[np.float64]]:
        """Log-probability of each token given all other tokens of its sentence, exactly.

        With `carry` the whole text is one sequence, and the tokens of other sentences are given too.

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        list of arrays (n_tokens,)
            One a sentence; −inf in a sentence of probability zero.
        """
        self._check_fitted()
        out = []
        for params, ids, bounds, edges in self._runs(X, MASKED_TOKENS):
            logs = params.log_both_sides(ids, bounds)
            out += [logs[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        return out

    def masked_perplexity(self, X: Sentences) -> float:
        """Perplexity of the tokens, each given all other tokens of its sentence.

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        float
            The inverse of the geometric mean of their probabilities; infinite, with a warning, if a sentence has
            probability zero.

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
            Tokens, possibly with gaps; what stands at the position itself is not looked at.
        position
            Where, from 0.
        words
            Words of the vocabulary.
        states
            Known states by position.

        Returns
        -------
        Table of Comparison
            `word`, `probability`, `share` among the words given, and `log_odds` against the others, in their order.
        """
        from undertow.questions.evidence import as_evidence
        from undertow.questions.explain import compare

        return compare(self._chain(), as_evidence(text, states), position, words)

    def surprise(self, X: Sentences) -> Table[Surprise]:
        """How surprising each token is, given the tokens before it and given all others, in bits.

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        Table of Surprise
            `tokens`, `left_to_right` and `both_sides`, one a sentence.
        """
        from undertow.questions.explain import surprises

        return surprises(self, _reusable(X))

    @one_blas_thread()
    def what_if(self, text: Any, position: int, word: str, *, states: Mapping[int, Any] | None = None) -> Table[Change]:
        """What would change at every other position if this one had another word.

        Parameters
        ----------
        text
            Tokens, possibly with gaps.
        position
            Which position is changed, from 0.
        word
            Its new word.
        states
            Known states by position.

        Returns
        -------
        Table of Change
            `position`, `token`, `total_variation` and `divergence` of the distributions of its hidden state, and by how
            many bits the token becomes more surprising given both sides.
        """
        from undertow.questions.evidence import as_evidence
        from undertow.questions.explain import what_if

        return what_if(self._chain(), as_evidence(text, states), position, word)

    # --- under constraints ------------------------------------------------------------------------------

    @one_blas_thread()
    def probability(
        self,
        constraint: TextConstraint,
        *,
        prefix: Sequence[str] = (),
        suffix: Sequence[str] = (),
        length: int | tuple[int, int] = 12,
        progress: ProgressFn = ignore,
    ) -> float:
        """Exact probability that a continuation satisfies a constraint.

        The constraint is about the continuation: the words after the prefix and before the suffix. They are words of
        one sentence, so the boundary word is not among them, and any word of the vocabulary may be.

        Parameters
        ----------
        constraint
            One of `undertow.constraints`, or several combined by `&`, `|` and `~`.
        prefix, suffix
            Tokens before and after the continuation.
        length
            Number of words, or a pair (least, largest). With a pair the sentence ends after the suffix, if the model
            has a boundary word; otherwise all lengths are equally probable beforehand.
        progress
            Called with a `Progress` before each word that is looked ahead over.

        Returns
        -------
        float
            p(constraint | prefix, suffix, length); 0 for a constraint that no such text satisfies.

        Raises
        ------
        InputError
            If the constraint names a word that the model does not know, or its automaton has more than 4,096 states.

        Examples
        --------
        >>> from undertow import HMM
        >>> from undertow.constraints import Contains
        >>> model = HMM(2, n_iter=10, random_state=0).fit([["a", "b", "a", "b"], ["a", "b"]] * 20)
        >>> round(model.probability(Contains("b"), prefix=["a"], length=2), 2)
        0.88
        """
        self._check_fitted()
        from undertow.questions.continuations import probability

        return probability(self.params_, self.vocabulary_, constraint, prefix, suffix, length, progress)

    @one_blas_thread()
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
            Number of words, or a pair (least, largest), as in `probability`.
        constraint
            One of `undertow.constraints`, about the continuation; None for none.
        n
            How many texts.
        temperature
            Other than 1, each word is drawn from its exact conditional distribution raised to 1/temperature, left to
            right, as language models do it; the constraint holds nevertheless.
        method
            "sample", or "best": the one text whose joint probability with its path of states is largest (with a low
            rank of more than 1,024 states, its path of states and features).
        markers
            Whether the unknown word and classes of unknown words may be written.
        random_state
            Seed or generator; None draws differently each time.
        progress
            Called with a `Progress` before each word that is looked ahead over, and before each that is written.

        Returns
        -------
        list of lists of str
            The continuations, without prefix and suffix; words that were never seen in training are not drawn.

        Raises
        ------
        InputError
            If no text satisfies the constraint, with the reason; or as in `probability`.

        Examples
        --------
        >>> from undertow import HMM
        >>> from undertow.constraints import Contains, Without
        >>> text = [["the", "cat", "sat"], ["the", "dog", "ran"]] * 20
        >>> model = HMM(3, n_iter=10, random_state=0).fit(text)
        >>> texts = model.generate(prefix=["the"], length=2, constraint=Contains("dog") & Without("sat"), n=3)
        >>> all("dog" in text and "sat" not in text for text in texts)
        True
        """
        self._check_fitted()
        from undertow.questions.continuations import generate

        rng = check_random_state(random_state)
        around = (prefix, suffix, length)
        shown: dict[str, Any] = {"markers": markers, "progress": progress}
        return generate(self.params_, self.vocabulary_, rng, *around, constraint, n, temperature, method, **shown)

    # --- states -----------------------------------------------------------------------------------------

    @one_blas_thread()
    def transform(self, X: Sentences, view: str = "features") -> list[npt.NDArray[np.float32]]:
        """Features of each token: the distribution of its hidden state given the whole sentence.

        Parameters
        ----------
        X
            A Corpus or token lists.
        view
            "posterior" is the distribution over the Z states. "features" is the same up to 512 states; with more, the
            distribution over the F features of a low-rank transition, or over the blocks, for the next token.

        Returns
        -------
        list of arrays (n_tokens, d), float32
            One a sentence.
        """
        self._check_fitted()
        if view not in VIEWS:
            raise InputError(f"view={view!r} must be one of {', '.join(VIEWS)}.")
        wide = view == "features" and self.params_.n_states > MAX_FEATURES
        table = self._tables().profile if wide else None
        out = []
        for params, ids, bounds, edges in self._runs(X):
            rows = hmm_queries.projected(params, ids, bounds, table)
            out += [rows[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        return out

    def posterior(self, X: Sentences) -> list[npt.NDArray[np.float32]]:
        """Posterior distribution of each token's state.

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        list of arrays (n_tokens, Z), float32
            One a sentence; the same as ``transform(X, "posterior")``.
        """
        return self.transform(X, "posterior")

    @one_blas_thread()
    def decode(self, X: Sentences, method: str = "viterbi") -> list[npt.NDArray[np.int64]]:
        """A state for each token.

        Parameters
        ----------
        X
            Sentences.
        method
            "viterbi" is the most probable path; with a low rank, of states and features together. "posterior" is the
            most probable state of each token by itself: fewer wrong states on average, but not always a possible path.

        Returns
        -------
        list of int64 arrays (n_tokens,)
            One for each sentence.

        Raises
        ------
        InputError
            If there is no such method, or the transition is a full matrix of more than 4,096 states and the method is
            "viterbi".
        """
        self._check_fitted()
        if method not in ("posterior", "viterbi"):
            raise InputError(f"method={method!r} must be 'posterior' or 'viterbi'.")
        out = []
        for params, ids, bounds, edges in self._runs(X):
            states = hmm_queries.decode(params, ids, bounds, method)
            out += [states[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        return out

    def predict(self, X: Sentences, method: str = "posterior") -> list[list[str]]:
        """Tags of the tokens, by a model that was fitted with tags.

        Parameters
        ----------
        X
            A Corpus or token lists.
        method
            "posterior" is the most probable tag of each token: the probabilities of the states that it owns are
            summed. "viterbi" is the tags of the most probable path of states.

        Returns
        -------
        list of list of str
            A tag for each token.

        Raises
        ------
        InputError
            If the model was fitted without tags, or there is no such method.
        """
        self._check_fitted()
        tags = self.tag_states_
        if tags is None:
            raise InputError("This HMM was fitted without tags: call fit with tags as y, or use decode for its states.")
        if method == "viterbi":
            of_state = tags.of_state()
            return [[tags.names[of_state[z]] for z in states] for states in self.decode(X)]
        if method != "posterior":
            raise InputError(f"method={method!r} must be 'posterior' or 'viterbi'.")
        return [[tags.names[i] for i in tags.sums(p).argmax(axis=1)] for p in self.transform(X, "posterior")]

    def top_words(self, state: int, n: int = 10, *, relevance: float = 0.6) -> Table[WordProbability]:
        """The words that characterize a state.

        Parameters
        ----------
        state
            Number of the state, from 0.
        n
            How many words.
        relevance
            1 ranks by p(word | state); less favors words that are more frequent in the state than elsewhere.

        Returns
        -------
        Table of WordProbability
            With p(word | state), most relevant first.

        Raises
        ------
        InputError
            If there is no such state.
        """
        self._check_fitted()
        if isinstance(state, bool) or not isinstance(state, int | np.integer) or not 0 <= state < self.params_.n_states:
            raise InputError(f"state={state!r} must be one of 0 to {self.params_.n_states - 1}.")
        found = hmm_queries.relevant_words(self.params_, int(state), n, self.vocabulary_.counts, relevance)
        return Table(WordProbability, (WordProbability(self.vocabulary_.words[w], p) for w, p in found))

    @one_blas_thread()
    def transitions(self, n: int = 10, *, n_words: int = 5) -> Table[Transition]:
        """The most informative transitions between states, described by words.

        Parameters
        ----------
        n
            How many transitions.
        n_words
            How many words describe each state, at most: words with less than a thousandth of it are left out.

        Returns
        -------
        Table of Transition
            Probability of the transition, words of the state before and of the state after.
        """
        self._check_fitted()
        words = {}
        steps = hmm_queries.typical_transitions(self._tables(), n)
        for state in {z for _, *ends in steps for z in ends}:
            found = self.top_words(state, n_words)
            words[state] = [w.word for i, w in enumerate(found) if i == 0 or w.probability >= hmm_queries.LEAST_SHARE]
        return Table(Transition, (Transition(p, words[z], words[z_next]) for p, z, z_next in steps))

    @one_blas_thread()
    def diagnose(self, *, unused: float = 0.01) -> hmm_diagnose.Diagnosis:
        """Diagnostics of the fit: entropy and effective rank, unused states, coverage of the blocks.

        Parameters
        ----------
        unused
            A state is unused if its share of a long text is below this part of an even share, 1/Z.

        Returns
        -------
        Diagnosis
            Entropy and perplexity of the rows of the transition and of the emissions, the effective rank of the
            transition, the shares of the states, and words, states and tokens of each block. Its `repr` is a table,
            and `to_dict()` is what JSON can hold. With more than 2,048 states the effective rank of a full transition
            is an estimate, and says so.

        Raises
        ------
        InputError
            If `unused` is not a number, or below 0.

        Examples
        --------
        >>> from undertow import HMM
        >>> model = HMM(2, n_iter=10, random_state=0).fit([["a", "b", "a", "b"], ["a", "b"]] * 20)
        >>> found = model.diagnose()
        >>> found.unused_states
        0
        >>> 1 <= found.effective_rank.value <= 2
        True
        """
        self._check_fitted()
        shares = self._tables().state_shares
        return hmm_diagnose.diagnose(self.params_, shares, self.vocabulary_.counts, unused)

    def _tables(self) -> hmm_queries.Derived:
        """Tables derived from the parameters, made again if `params_` was set to others."""
        if self._derived.params is not self.params_:
            self._derived = hmm_queries.Derived(self.params_)
        return self._derived

    def _runs(self, X: Any, batch_tokens: int = BATCH_TOKENS) -> Iterable[tuple[Params, Any, Any, Any]]:
        """Batches of (chain, ids, bounds of independent sequences, bounds of sentences); with `carry` all is one batch.

        The chain is the model's own, or one that observes the evidence of partly known texts.
        """
        if partly_known(X):
            from undertow.questions.evidence import as_evidence, observe

            observed = observe(self._chain(), [as_evidence(text) for text in X])
            edges = observed.bounds
            yield observed.params, observed.ids, edges[[0, -1]] if self.carry else edges, edges
            return
        run: list[Any] = []
        n = 0
        for ids in encode_sentences(self.vocabulary_, X):
            run.append(ids)
            n += len(ids)
            if n >= batch_tokens and not self.carry:
                yield self.params_, *self._run(run)
                run, n = [], 0
        if run:
            yield self.params_, *self._run(run)

    def _run(self, run: list[Any]) -> tuple[Any, Any, Any]:
        edges = np.concatenate(([0], np.cumsum([len(s) for s in run]))).astype(np.int64)
        bounds = np.array([0, edges[-1]]) if self.carry else edges
        return np.concatenate(run), bounds, edges

    def _chain(self, markers: bool = False) -> TextChain:
        """What questions need of the model; `markers`: whether gaps may hold the unknown word and its like."""
        from undertow.questions.evidence import TextChain

        self._check_fitted()
        tags = self.tag_states_
        return TextChain(self.params_, self.vocabulary_, {} if tags is None else tags.by_name(), markers)

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        assert state.n_words is not None
        return hmm_storage.tensor_spec(state.fitted["sizes"], state.n_words, state.bits)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return hmm_storage.tensors(self.params_)

    def _coded_tensors(self, bits: int) -> dict[str, npt.NDArray[Any]]:
        return hmm_storage.coded_tensors(self.params_)

    def _fitted_scalars(self) -> dict[str, Any]:
        return {
            "sizes": hmm_storage.sizes(self.params_),
            "tokenizer": self.tokenizer_,
            "validation_history": self.validation_history_,
            **({} if self.seen_ is None else {"seen": list(self.seen_)}),
            **({} if self.tag_states_ is None else {"tags": hmm_storage.tag_sizes(self.tag_states_)}),
        }

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        hmm_storage.restored(tensors, state.fitted["sizes"]).check()
        seen = state.fitted.get("seen", [1, 1])
        if not (len(seen) == 2 and all(type(n) is int for n in seen) and 1 <= seen[1] <= seen[0]):
            raise InputError("the size of the text it was fitted to is none.")
        hmm_storage.restored_tags(state.fitted.get("tags"), state.fitted["sizes"]["n_states"])

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self.params_ = hmm_storage.restored(tensors, state.fitted["sizes"])
        self._derived = hmm_queries.Derived(self.params_)
        self.tokenizer_ = state.fitted["tokenizer"]
        self.validation_history_ = [float(x) for x in state.fitted["validation_history"]]
        seen = state.fitted.get("seen")  # absent from models that were saved before it was noted
        self.seen_ = None if seen is None else SeenText(*seen)
        self.tag_states_ = hmm_storage.restored_tags(state.fitted.get("tags"), self.params_.n_states)


def _neural_fit() -> Any:
    """Imported lazily: PyTorch is optional, and `undertow.neural` imports models, not the other way round."""
    from undertow.neural.hmm import fit_neural

    return fit_neural


def _reusable(X: Sentences) -> Sentences:
    """The sentences as something that can be read twice."""
    return X if isinstance(X, Corpus | list | tuple | str | bytes) or not isinstance(X, Iterable) else list(X)


__all__ = ["HMM"]
