"""A probabilistic context-free grammar of low rank: a language model whose hidden state is a tree.

The generative story is in `kernels.chart.grammar`. The class only forwards: EM is in `em`, its start in `init`, queries
in `queries`, the trees that `parse` returns in `trees`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from undertow.constraints.kinds import Constraint as TextConstraint
from undertow.engine import Engine, count_workers, open_engine
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.kernels.chart.grammar import GrammarParams, check_params
from undertow.kernels.chart.sampling import sample_sentence, sampling_tables
from undertow.kernels.types import F64
from undertow.models.answers import Gap, WordProbability, gap_of
from undertow.models.base import (
    CostWarning,
    Estimator,
    SavedState,
    TensorSpec,
    as_corpus,
    encode_sentences,
    extend_corpus,
    warn_of_little_text,
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
    check_random_state,
)
from undertow.models.fitting import (
    Callback,
    CheckpointSource,
    FitResult,
    OpenCheckpoint,
    open_checkpoint,
    part_of,
    run_iterations,
    shown_log,
    split_text,
)
from undertow.models.grammar import em, queries
from undertow.models.grammar.agreement import agreement_start
from undertow.models.grammar.init import INITS, LEANS, Sizes
from undertow.models.grammar.restarts import best_start
from undertow.models.grammar.trees import Tree
from undertow.tables import Table
from undertow.text.corpus import Corpus
from undertow.text.tokenizer import checked_sentences
from undertow.text.vocabulary import Vocabulary

VIEWS = ("features", "posterior", "parent")
MAX_FEATURES = 512  # with more preterminals, the view "features" is that of the parent
METHODS = ("mbr", "viterbi")
MOST_DRAWS = 1000  # sentences that `sample` draws before it gives up on a short one
Text = Corpus | Iterable[Sequence[str]]


class Rule(NamedTuple):
    """A rule A → B C, described by words.

    Attributes
    ----------
    probability
        p(B, C | A).
    parent, left, right
        Typical words of the phrases or words that each symbol derives.
    symbols
        The numbers of A, B and C: nonterminals from 0, preterminals after them.
    """

    probability: float
    parent: list[str]
    left: list[str]
    right: list[str]
    symbols: tuple[int, int, int]


class Grammar(Estimator):
    """A probabilistic context-free grammar whose binary rules have low rank, fitted by EM to plain sentences.

    Parameters
    ----------
    n_nonterminals
        Number of symbols of phrases, n.
    n_preterminals
        Number of symbols of words, m.
    rank
        Number of features r between a nonterminal and its two children. Time grows with its square, and hardly with the
        numbers of symbols.
    init
        How EM starts. "agreement": from trees on which several short fits to a sample agree, for the best trees.
        "chain": from a hidden Markov model of min(n, m, r) states, for the best perplexity; take n = m = r. "clusters":
        from random rules, each preterminal emitting mainly the words of one class of a class bigram model. "random":
        from random rules and words. "auto" is "agreement".
    n_restarts
        Number of random starts: for "agreement" the number of short fits; for the others, the start is taken that has
        the highest likelihood after two passes over a sample. None for 5 with "agreement" and 1 with the others.
    lean
        Where the first trees branch: "right" (English, French and other languages whose phrases begin with their
        heads), "left" (Japanese, Turkish) or "none". A chain branches to the right whatever this is.
    n_iter
        Passes over the text; at most, if text is held out.
    n_chunks
        The parameters are updated after each of so many parts of the text; 1 is plain EM.
    smoothing
        Multiplies all pseudo-counts; 0 is maximum likelihood.
    max_length
        Longer sentences are left out of the fit, with a warning that counts them: a chart grows with the square of the
        length.
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
    params_ : GrammarParams
        The distributions of start symbols, rules, children and words.
    symbol_counts_ : array (n + m,)
        How often each symbol was used in the training text, in expectation.
    n_sentences_ : int
        Sentences the model has learned from.
    history_ : list of float
        Mean log-likelihood of a token after each pass, the ends of the sentences included.
    validation_history_ : list of float
        The same for the held-out text; empty if there is none.
    vocabulary_ : Vocabulary
        The words.
    tokenizer_ : dict or None
        The rule by which the text was split into tokens, if known.

    Examples
    --------
    >>> from undertow import Grammar
    >>> text = [["the", "dog", "sees", "the", "cat"], ["a", "cat", "sees", "a", "dog"]] * 20
    >>> model = Grammar(4, n_preterminals=4, rank=4, n_iter=5, random_state=0).fit(text)
    >>> model.parse([["the", "cat"]])
    [('the', 'cat')]
    >>> len(model.fill(["the", None, "sees", "a", "dog"])[0].words)
    5
    """

    kind = "grammar"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "n_nonterminals": Whole(1, 100_000),
        "n_preterminals": Whole(1, 100_000),
        "rank": Whole(1, 10_000),
        "init": Choice("auto", *INITS),
        "n_restarts": Whole(1, 1000) | None,
        "lean": Choice(*LEANS),
        "n_iter": Whole(1),
        "n_chunks": Whole(1),
        "smoothing": Number(0, 1e9),
        "max_length": Whole(1, queries.LONGEST),
        "validation": Share(),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "verbose": Verbosity(),
        "callbacks": CALLBACKS,
    }
    params_: GrammarParams
    symbol_counts_: F64
    n_sentences_: int

    def __init__(
        self,
        n_nonterminals: int = 60,
        *,
        n_preterminals: int = 120,
        rank: int = 60,
        init: str = "auto",
        n_restarts: int | None = None,
        lean: str = "right",
        n_iter: int = 6,
        n_chunks: int = 8,
        smoothing: float = 1.0,
        max_length: int = 40,
        validation: float | None = None,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.n_nonterminals = n_nonterminals
        self.n_preterminals = n_preterminals
        self.rank = rank
        self.init = init
        self.n_restarts = n_restarts
        self.lean = lean
        self.n_iter = n_iter
        self.n_chunks = n_chunks
        self.smoothing = smoothing
        self.max_length = max_length
        self.validation = validation
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    # --- fitting ----------------------------------------------------------------------------------------

    @one_blas_thread()
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
        Grammar
            The model itself.

        Raises
        ------
        InputError
            If a parameter is invalid, the text has no token, or no sentence is short enough.
        """
        self._check_params()
        rng = check_random_state(self.random_state)
        corpus = as_corpus(X)
        text, other = split_text(corpus, self.validation, validation)
        symbols = self.n_nonterminals + self.n_preterminals
        warn_of_little_text(symbols, "symbols", "n_preterminals", text.n_tokens, stacklevel=3)
        text, other = self._short(text), None if other is None else self._short(other)
        m_step = em.MStep.of(text.vocabulary.counts, float(self.smoothing))
        with open_checkpoint(checkpoint, self, (text, other), rng) as saved:
            start = None
            if saved.state is None:
                with self._workers(engine) as workers, shown_log(self.verbose):
                    start = self._start(text, m_step, rng, workers)
                if self.init == "chain":
                    m_step = m_step._replace(anchor=start.params)
            result = self._run_em(start or saved.state.fit, m_step, text, other, engine, checkpoint=saved)
        self._finish(result, corpus.vocabulary, corpus.manifest.get("tokenizer"))
        return self

    @one_blas_thread()
    def partial_fit(
        self,
        X: Text,
        y: Any = None,
        *,
        validation: Text | None = None,
        new_words: int | None = 1,
        engine: Engine | None = None,
    ) -> Self:
        """Continue EM with more text; a model that is not fitted yet is fitted, a loaded one goes on like any other.

        The text read before is not kept: the parameters times the numbers of uses of each symbol stand for it, so that
        it and the new text weigh as their sizes. `n_iter` passes read the new text.

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
        Grammar
            The model itself; `history_` and `validation_history_` are continued.

        Raises
        ------
        InputError
            If the numbers of symbols or the rank are no longer those of the fit.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, validation=validation, engine=engine)
        self._check_params()
        p = self.params_
        if (p.n_nonterminals, p.n_preterminals, p.rank) != (self.n_nonterminals, self.n_preterminals, self.rank):
            raise InputError(
                f"This model was fitted with {p.n_nonterminals} nonterminals, {p.n_preterminals} preterminals and rank "
                f"{p.rank}: set them back, or call fit."
            )
        corpus = extend_corpus(self.vocabulary_, X, new_words)
        text, other = split_text(corpus, self.validation, validation)
        text, other = self._short(text), None if other is None else self._short(other)
        words = corpus.vocabulary
        n_new = len(words) - len(self.vocabulary_)
        counts = np.concatenate([self.vocabulary_.counts, np.zeros(n_new, dtype=np.int64)])
        earlier = self._fitted_to().with_words(counts)
        m_step = em.MStep.of(counts + text.vocabulary.counts, float(self.smoothing))
        start = em.Fitted.of(earlier, m_step(earlier))
        result = self._run_em(start, m_step, text, other, engine, earlier)
        result = result._replace(
            history=self.history_ + result.history,
            validation_history=self.validation_history_ + result.validation_history,
        )
        self._finish(result, words.with_counts(counts + words.counts), self.tokenizer_)
        return self

    def _fitted_to(self) -> em.Fitted:
        return em.Fitted(self.params_, self.symbol_counts_, self.n_sentences_)

    def _short(self, text: Corpus) -> Corpus:
        """The sentences of at most `max_length` tokens, with a warning if there are others."""
        lengths = np.diff(np.asarray(text.offsets, dtype=np.int64))
        n_long = int((lengths > self.max_length).sum())
        if not n_long:
            return text
        if not ((lengths > 0) & (lengths <= self.max_length)).any():
            raise InputError(
                f"Every sentence is longer than max_length={self.max_length} tokens: split them, or raise it."
            )
        warnings.warn(
            f"{n_long:,} of {len(lengths):,} sentences have more than max_length={self.max_length} tokens: left out.",
            stacklevel=4,  # _short, fit, the wrapper of one_blas_thread, the caller
        )
        return part_of(text, [s for s in text.sentences() if len(s) <= self.max_length])

    def _workers(self, engine: Engine | None) -> Any:
        return nullcontext(engine) if engine is not None else open_engine("threads", self.n_jobs)

    def _start(self, text: Corpus, m_step: em.MStep, rng: np.random.Generator, workers: Engine) -> em.Fitted:
        """Parameters to begin EM with."""
        m_step = m_step._replace(smoothing=max(m_step.smoothing, 1.0))  # EM cannot leave a probability of zero
        sizes = Sizes(int(self.n_nonterminals), int(self.n_preterminals), int(self.rank))
        init, n_threads = self.init, count_workers(self.n_jobs)
        if init in ("auto", "agreement"):
            return agreement_start(text, sizes, int(self.n_restarts or 5), m_step, rng, n_threads, workers, self.lean)
        return best_start(text, sizes, init, int(self.n_restarts or 1), m_step, rng, n_threads, workers, self.lean)

    def _run_em(
        self,
        start: em.Fitted,
        m_step: em.MStep,
        text: Corpus,
        other: Corpus | None,
        engine: Engine | None,
        earlier: Any = None,
        checkpoint: OpenCheckpoint | None = None,
    ) -> FitResult[em.Fitted]:
        held_out = [] if other is None else [shard for chunk in em.split_chunks(other, 1) for shard in chunk]
        with self._workers(engine) as workers:
            iterations = em.em_iterations(
                start,
                m_step,
                em.split_chunks(text, min(int(self.n_chunks), text.n_sentences)),
                int(self.n_iter),
                workers,
                validation=held_out,
                delay_first=self.smoothing == 0 or (earlier is None and self.init in ("auto", "agreement", "chain")),
                earlier=earlier,
                resume_from=None if checkpoint is None else checkpoint.state,
            )
            return run_iterations(
                iterations,
                n_iter=int(self.n_iter),
                unit="pass",
                callbacks=self.callbacks,
                verbose=self.verbose,
                checkpoint=checkpoint,
                stacklevel=5,
            )

    def _finish(self, result: FitResult[em.Fitted], vocabulary: Vocabulary, tokenizer: Any) -> None:
        """Set the fitted attributes, all at once."""
        self.params_, self.symbol_counts_, self.n_sentences_ = result.params
        self.vocabulary_ = vocabulary
        self.tokenizer_ = tokenizer
        self.validation_history_ = result.validation_history
        self.history_ = result.history

    # --- as a language model ----------------------------------------------------------------------------

    @one_blas_thread()
    def log_likelihoods(self, X: Text) -> npt.NDArray[np.float64]:
        """Log-probability of each sentence: of its words, and that it ends there.

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        array (n_sentences,)
            −inf for an impossible sentence; 0 for an empty one, which is not counted.

        Raises
        ------
        InputError
            If a sentence has more than 256 tokens.
        """
        return queries.log_likelihoods(self.params_, self._encoded(X))

    @one_blas_thread()
    def log_probabilities(self, X: Text) -> list[npt.NDArray[np.float64]]:
        """Log-probability of each token given the tokens before it, by prefix probabilities.

        What is left of 1 after all words is the probability that the sentence ends there. The sum over a sentence, plus
        the log-probability of its end, is its `log_likelihoods` (over the probability that a derivation ends at all,
        which is 1 unless smoothing is strong).

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        list of arrays (n_tokens,)
            One a sentence; −inf from a word of probability zero on.
        """
        return [logs[:-1] for logs in queries.word_log_probabilities(self.params_, self._encoded(X))]

    def score(self, X: Text, y: Any = None) -> float:
        """Log-probability of the sentences, their ends included, over the number of tokens.

        Parameters
        ----------
        X
            A Corpus or token lists.
        y
            Ignored; scikit-learn passes it.

        Returns
        -------
        float
            −inf, with a warning that names the sentence, if one has probability zero.

        Raises
        ------
        InputError
            If there is no token, or a sentence has more than 256.
        """
        sentences = self._encoded(X)
        n_tokens = sum(map(len, sentences))
        if n_tokens == 0:
            raise InputError("There is no token to score: give at least one.")
        with one_blas_thread():
            logs = queries.log_likelihoods(self.params_, sentences)
        if np.isneginf(logs).any():
            number = int(np.flatnonzero(np.isneginf(logs))[0]) + 1
            warnings.warn(f"The model gives sentence {number} probability zero.", stacklevel=2)
            return -np.inf
        return float(logs.sum() / n_tokens)

    def perplexity(self, X: Text) -> float:
        """Perplexity: exp(−score).

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        float
            Per token; the end of each sentence is predicted too, but not counted as a token.
        """
        return float(np.exp(-self.score(X)))

    @one_blas_thread()
    def probability(self, constraint: TextConstraint) -> float:
        """Exact probability that a sentence satisfies a constraint, whatever its length.

        `Phrase("the river")` asks for an infix: a sentence that has these words one after the other somewhere.

        Parameters
        ----------
        constraint
            One of `undertow.constraints`, or several combined by `&`, `|` and `~`.

        Returns
        -------
        float
            The sum of p(sentence) over all sentences that satisfy it.

        Raises
        ------
        InputError
            If the constraint names a word that the model does not know, its automaton has more than 64 states, or the
            sentences of the grammar have no finite mean length.
        """
        self._check_fitted()
        from undertow.questions.sentences import probability

        return probability(self.params_, self.vocabulary_, constraint)

    @one_blas_thread()
    def sample(self, n_tokens: int = 50, *, random_state: int | np.random.Generator | None = None) -> list[str]:
        """Draw a sentence.

        Parameters
        ----------
        n_tokens
            Most tokens it may have; longer sentences are drawn again.
        random_state
            Seed or generator; None draws differently each time.

        Returns
        -------
        list of str
            Its tokens, among the words seen in training; empty for `n_tokens=0`.

        Raises
        ------
        InputError
            If a thousand sentences drawn are all longer.
        """
        self._check_fitted()
        if isinstance(n_tokens, bool) or not isinstance(n_tokens, int | np.integer) or n_tokens < 0:
            raise InputError(f"n_tokens={n_tokens!r} must be a whole number, at least 0.")
        rng = check_random_state(random_state)
        if n_tokens == 0:
            return []
        tables = sampling_tables(self.params_, self.vocabulary_.counts > 0)
        for _ in range(MOST_DRAWS):
            drawn = sample_sentence(tables, rng.random, int(n_tokens))
            if drawn is not None:
                return [self.vocabulary_.words[i] for i in drawn]
        raise InputError(f"Of {MOST_DRAWS:,} sentences drawn, all have more than {n_tokens} tokens: raise n_tokens.")

    # --- trees ------------------------------------------------------------------------------------------

    def parse(self, X: Text, method: str = "mbr") -> list[Any]:
        """The tree of each sentence as nested tuples of its words.

        Parameters
        ----------
        X
            A Corpus or token lists.
        method
            "mbr" is the tree with the most correct constituents in expectation (minimum Bayes risk). "viterbi" is the
            tree of the single most probable derivation of symbols and features.

        Returns
        -------
        list of tuples
            ("the", ("old", "river")) for a sentence of three words; a single word in a tuple of its own.

        Raises
        ------
        InputError
            If there is no such method, or a sentence has more than 256 tokens.
        """
        return [tree.brackets() for tree in self.trees(X, method)]

    @one_blas_thread()
    def trees(self, X: Text, method: str = "mbr") -> list[Tree]:
        """The tree of each sentence, with the symbol and the posterior probability of each constituent.

        Parameters
        ----------
        X
            A Corpus or token lists.
        method
            As for `parse`. With "mbr" the symbols are the most probable ones of each span by itself.

        Returns
        -------
        list of Tree
            With `words`, `constituents` and `tags`; `penn()` and `to_dict()` are forms for other programs.

        Raises
        ------
        InputError
            If there is no such method, or a sentence has more than 256 tokens.
        """
        if method not in METHODS:
            raise InputError(f"method={method!r} must be one of {', '.join(METHODS)}.")
        words = X.token_lists() if isinstance(X, Corpus) else checked_sentences(X)
        tokens = [list(map(str, sentence)) for sentence in words]
        return queries.parse(self.params_, self._encoded(tokens), tokens, method)

    @one_blas_thread()
    def span_probabilities(self, X: Text) -> list[npt.NDArray[np.float64]]:
        """The posterior probability of every span of each sentence: that its words are one constituent.

        Parameters
        ----------
        X
            A Corpus or token lists.

        Returns
        -------
        list of arrays (n_tokens, n_tokens + 1)
            [i, j] is that of words i to j − 1: one for single words and for the whole sentence, zero where j ≤ i.
        """
        return queries.span_tables(self.params_, self._encoded(X))

    @one_blas_thread()
    def sample_trees(
        self, sentence: Sequence[str], n: int = 5, *, random_state: int | np.random.Generator | None = None
    ) -> list[Tree]:
        """Draw trees of a sentence from their posterior distribution.

        Parameters
        ----------
        sentence
            Its tokens.
        n
            How many trees.
        random_state
            Seed or generator; None draws differently each time.

        Returns
        -------
        list of Tree
            Independent draws of tree and symbols.

        Raises
        ------
        InputError
            If the sentence has probability zero.
        """
        Whole(0).check("sample_trees", "n", n)
        [ids] = self._encoded([sentence])
        if len(ids) and np.isneginf(queries.log_likelihoods(self.params_, [ids])[0]):
            raise InputError("The sentence has probability zero, so it has no tree to draw.")
        tokens = list(map(str, sentence))
        return queries.draw_trees(self.params_, ids, tokens, int(n), check_random_state(random_state))

    # --- tokens and rules -------------------------------------------------------------------------------

    @one_blas_thread()
    def transform(self, X: Text, view: str = "features") -> list[npt.NDArray[np.float32]]:
        """Features of each token given the whole sentence.

        Parameters
        ----------
        X
            A Corpus or token lists.
        view
            "posterior" is the distribution over the m preterminals. "parent" is the distribution over the features of
            the rule above the token, as a left and as a right child (2 r numbers; zeros in a sentence of one word).
            "features" is "posterior" up to 512 preterminals, else "parent".

        Returns
        -------
        list of arrays (n_tokens, d), float32
            One a sentence.
        """
        self._check_fitted()
        if view not in VIEWS:
            raise InputError(f"view={view!r} must be one of {', '.join(VIEWS)}.")
        if view == "features":
            view = "posterior" if self.params_.n_preterminals <= MAX_FEATURES else "parent"
        return queries.features(self.params_, self._encoded(X), view)

    @one_blas_thread()
    def fill(self, text: Sequence[str | None], n: int = 10, *, markers: bool = False) -> Table[Gap]:
        """The words of the gaps of a sentence, each given everything on both sides of it, exactly.

        Parameters
        ----------
        text
            Tokens; None is a gap.
        n
            How many words for each gap.
        markers
            Whether the unknown word, the boundary word and classes of unknown words are listed too.

        Returns
        -------
        Table of Gap
            `position`, `words` with their probabilities, most probable first, among the words seen in training, and the
            probability of `markers` that are not listed.

        Raises
        ------
        InputError
            If the text is empty or its words have probability zero.
        """
        self._check_fitted()
        Whole(0).check("fill", "n", n)
        if isinstance(text, str | bytes) or not isinstance(text, Sequence) or not len(text):
            raise InputError("The text must be a list of at least one token or gap: write ['the', None, 'of'].")
        for i, token in enumerate(text):
            if isinstance(token, Set | Mapping):
                raise InputError(
                    f"Position {i} is {short(token)}: a Grammar takes words and gaps (None) only; ask an HMM instead."
                )
        [ids] = self._encoded([["" if token is None else token for token in text]])
        gaps = [i for i, token in enumerate(text) if token is None]
        ids = ids.astype(np.int64)
        ids[gaps] = queries.GAP
        found = zip(gaps, queries.gap_distributions(self.params_, ids), strict=True)
        return Table(Gap, (gap_of(self.vocabulary_, position, p, n, markers) for position, p in found))

    def top_words(self, symbol: int, n: int = 10, *, relevance: float = 0.6) -> Table[WordProbability]:
        """The words that characterize a symbol.

        Parameters
        ----------
        symbol
            Its number: nonterminals from 0, preterminals after them.
        n
            How many words.
        relevance
            1 ranks by p(word | symbol); less favors words that are more frequent below the symbol than elsewhere.

        Returns
        -------
        Table of WordProbability
            With p(word | symbol), most relevant first; for a nonterminal, of the words of its phrases.

        Raises
        ------
        InputError
            If there is no such symbol.
        """
        self._check_fitted()
        size = len(self.params_.start)
        if isinstance(symbol, bool) or not isinstance(symbol, int | np.integer) or not 0 <= symbol < size:
            raise InputError(f"symbol={symbol!r} must be one of 0 to {size - 1}.")
        return self._relevant(queries.symbol_words(self.params_, int(symbol)), n, relevance)

    def _relevant(self, p: F64, n: int, relevance: float) -> Table[WordProbability]:
        counts = self.vocabulary_.counts
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.log(p) - (1 - relevance) * np.log(counts / counts.sum())
        score = np.where((p > 0) & (counts > 0), score, -np.inf)
        order = [i for i in np.argsort(-score, kind="stable")[:n].tolist() if np.isfinite(score[i])]
        return self._words(order, p)

    def _words(self, order: Iterable[int], p: F64) -> Table[WordProbability]:
        words = self.vocabulary_.words
        return Table(WordProbability, (WordProbability(words[i], float(p[i])) for i in order))

    @one_blas_thread()
    def top_rules(self, n: int = 10, *, n_words: int = 5) -> Table[Rule]:
        """The most used rules A → B C, described by words.

        Parameters
        ----------
        n
            How many rules.
        n_words
            How many words describe each symbol.

        Returns
        -------
        Table of Rule
            Most used in the training text first.
        """
        self._check_fitted()
        Whole(1).check("top_rules", "n", n)
        found = queries.typical_rules(self.params_, self.symbol_counts_, int(n))
        words = {
            symbol: [w.word for w in self.top_words(symbol, n_words)]
            for symbol in {s for _, _, *abc in found for s in abc}
        }
        return Table(Rule, (Rule(p, words[a], words[b], words[c], (a, b, c)) for _, p, a, b, c in found))

    def _encoded(self, X: Any) -> list[npt.NDArray[np.uint32]]:
        """Sentences as ids, none longer than a query takes."""
        self._check_fitted()
        sentences = encode_sentences(self.vocabulary_, X)
        cost = queries.cost(queries.check_lengths(sentences), self.params_.rank)
        if cost.n_bytes > queries.WORTH_A_WARNING[0] or cost.seconds > queries.WORTH_A_WARNING[1]:
            longest = max(map(len, sentences))
            warnings.warn(
                f"A sentence of {longest} tokens needs about {cost.n_bytes / 2**30:.1f} GB and {cost.seconds:.0f} s "
                f"at rank {self.params_.rank}: split it, or take a grammar of lower rank.",
                CostWarning,
                stacklevel=3,
            )
        return sentences

    # --- saving -----------------------------------------------------------------------------------------

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        n, m, r = (state.params[name] for name in ("n_nonterminals", "n_preterminals", "rank"))
        assert state.n_words is not None
        return {
            "start": TensorSpec("float32", (n + m,)),
            "rules": TensorSpec("float32", (n, r)),
            "left": TensorSpec("float32", (r, n + m)),
            "right": TensorSpec("float32", (r, n + m)),
            "emission": TensorSpec("float32", (state.n_words, m)),
            "symbol_counts": TensorSpec("float64", (n + m,)),
        }

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return self.params_._asdict() | {"symbol_counts": self.symbol_counts_}

    def _fitted_scalars(self) -> dict[str, Any]:
        return {
            "n_sentences": self.n_sentences_,
            "tokenizer": self.tokenizer_,
            "validation_history": self.validation_history_,
        }

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        check_params(GrammarParams(*(tensors[name] for name in GrammarParams._fields)))
        counts, n_sentences = tensors["symbol_counts"], state.fitted["n_sentences"]
        if type(n_sentences) is not int or n_sentences < 1 or not (counts >= 0).all() or not counts.sum() > 0:
            raise InputError("the numbers of sentences or of uses of its symbols are not positive.")

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        # numba compiles once more for arrays that cannot be written
        self.params_ = GrammarParams(*(np.array(tensors[name]) for name in GrammarParams._fields))
        self.symbol_counts_ = np.array(tensors["symbol_counts"])
        self.n_sentences_ = state.fitted["n_sentences"]
        self.tokenizer_ = state.fitted["tokenizer"]
        self.validation_history_ = [float(x) for x in state.fitted["validation_history"]]


__all__ = ["Grammar", "Rule"]
