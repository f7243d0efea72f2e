"""A linear-chain CRF over the spelling of words and the features of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.kernels.chain import crf as kernel
from undertow.kernels.chain.crf import I32
from undertow.kernels.chain.nbest import n_best_paths
from undertow.kernels.chain.token_network import TokenNetwork, network_scores
from undertow.kernels.types import F32, F64, I64
from undertow.models.base import SavedState, TensorSpec, check_engine
from undertow.models.constraints import (
    CALLBACKS,
    N_JOBS,
    RANDOM_STATE,
    Checked,
    Choice,
    Constraint,
    Flag,
    Number,
    Whole,
    check_random_state,
)
from undertow.models.fitting import Callback, CheckpointSource, Iteration, open_checkpoint, run_iterations
from undertow.results.tagging import crf_storage as storage
from undertow.results.tagging import crf_training as training
from undertow.results.tagging import span_decoding
from undertow.results.tagging.base import (
    BaseTagger,
    TaggerInput,
    TagLists,
    check_features,
    check_trainable,
    checked_tags,
    checked_words,
    token_batches,
)
from undertow.results.tagging.crf_features import Extra, FeatureReader, checked_extra
from undertow.results.tagging.crf_network import Learned, NetworkState, passes_of, with_network
from undertow.results.tagging.crf_storage import labels_of
from undertow.results.tagging.crf_training import CRFWeights
from undertow.results.tagging.scores import Report
from undertow.results.tagging.sources import FeatureSources
from undertow.results.tagging.span_decoding import HeldOut, Reading, check_threshold, reading_of
from undertow.results.tagging.spans import Span, convert, scheme_of, tags_of

ALGORITHMS = ("lbfgs", "minibatch")
PREDICT_TOKENS = 1 << 15  # scores of so many tokens are held at a time


def _check_scheme(value: Any) -> None:
    if value not in (None, "bioes"):
        raise InputError(f'CRFTagger: scheme={short(value)} must be "bioes", or None for the tags as they are.')


def _check_prior(value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, CRFTagger):
        raise InputError(f"CRFTagger: prior={short(value)} must be a fitted CRFTagger, or None.")
    value._check_fitted()


class CRFTagger(BaseTagger):
    """A linear-chain conditional random field over spelling features and the features of models.

    Its objective is CRFsuite's: the log-likelihood minus l1 · Σ|w| + l2 · Σw², with weights for the pairs of feature
    and tag that occur in training, for all numbers of vectors, and for all transitions. Ctrl-C keeps the last finished
    iteration.

    Parameters
    ----------
    features
        Fitted models or representations to read beside the spelling, or None.
    window
        How many words to each side are read, also of the features of models unless a representation has a window of
        its own.
    l1, l2
        Weights of the penalties on absolute and squared weights.
    n_iter
        Iterations at most.
    tol
        Training stops when the objective has changed by less than this share of itself in ten iterations.
    lexical
        False leaves the spelling out.
    algorithm
        "lbfgs" maximizes the penalized likelihood over all sentences. "minibatch" comes near that in 5 to 10 passes
        (AdaGrad) and does not support l1.
    batch_size, learning_rate
        Of "minibatch": tokens in a gradient step, and how far the first one goes.
    class_weight
        Weights of tags: a dict of tag → number (1 for those left out), or "balanced" for the inverse of their
        frequencies. A sentence counts as the mean of the weights of its tags.
    n_hidden
        Units in each of the two hidden layers of a network that scores tokens too; 0 for none. It reads the vectors
        of all features that have any, of states' probabilities up to 512; without such features there is none. After
        the linear CRF, a second one is trained with it in 20 passes, 40 if the tags mark spans, in which features and
        units are dropped at random, and the mean of the two is kept. It needs l1 = 0 and no prior.
    scheme
        "bioes" learns spans with tags of their own for the last and the only token of a span, where the tags given are
        IOB2; all results are in IOB2. None learns the tags as they are, and so does "bioes" for other tags.
    prior
        An earlier CRFTagger on the same features, or None. Training starts from its weights, the penalty l2 pulls
        towards them in the place of 0, and what the new sentences do not show stays as it was.
    warm_start
        Whether a second `fit` starts from the weights of the first.
    n_jobs
        Threads of "lbfgs" and of predictions; −1 for as many as there are processors. It does not change the result.
    random_state
        Seed or generator, for the order of mini-batches, and for what `n_hidden` draws.
    callbacks
        Functions of a `TrainingEvent`, called after each iteration.

    Attributes
    ----------
    labels_ : list of str
        The tags, sorted.
    states_ : list of str
        The labels of the CRF: the tags, or with `scheme` those of BIOES.
    weights_ : CRFWeights
        The weights that are not 0.
    network_ : TokenNetwork or None
        The network, if there is one.
    attributes_ : dict
        Names of the sparse features and their rows in `weights_`.
    history_ : list of float
        The penalized log-likelihood after each iteration, then that of each pass with the network, of what was not
        dropped.
    vocabulary_ : Vocabulary
        The words of the labelled text with their counts.
    has_extra_ : bool
        Whether it reads extra columns.
    span_threshold_ : float or None
        None: `predict` gives the most probable tags of each sentence as a whole. A number θ between 0 and 1: it gives
        the tags of the spans with the largest sum of (probability − θ) of all sets that do not overlap. `fit` leaves
        None; `tune_spans` chooses it.
    scheme_, features_, tokenizer_, columns_
        How the tags mark spans, what is read, and how files and running text are read.

    Examples
    --------
    >>> from undertow import CRFTagger
    >>> tagger = CRFTagger(n_iter=20).fit([["the", "cat"], ["a", "dog"]], [["DET", "NOUN"], ["DET", "NOUN"]])
    >>> tagger.predict([["the", "dog"]])
    [['DET', 'NOUN']]
    """

    kind = "crf-tagger"
    format_version = 2  # 1 held a model of CRFsuite
    added_params: ClassVar[Mapping[str, Any]] = {"n_hidden": 0}
    unsaved_params: ClassVar[frozenset[str]] = frozenset({"callbacks", "features", "prior"})
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "features": Checked(check_features),
        "window": Whole(0, 10),
        "l1": Number(0, 1e9),
        "l2": Number(0, 1e9),
        "n_iter": Whole(1, 100_000),
        "tol": Number(0, 1),
        "lexical": Flag(),
        "algorithm": Choice(*ALGORITHMS),
        "batch_size": Whole(1),
        "learning_rate": Number(0, 1e3),
        "class_weight": Checked(training.check_class_weight),
        "n_hidden": Whole(0, 10_000),
        "scheme": Checked(_check_scheme),
        "prior": Checked(_check_prior),
        "warm_start": Flag(),
        "n_jobs": N_JOBS,
        "random_state": RANDOM_STATE,
        "callbacks": CALLBACKS,
    }

    states_: list[str]
    weights_: CRFWeights
    network_: TokenNetwork | None
    attributes_: dict[str, int]
    has_extra_: bool
    span_threshold_: float | None

    def __init__(
        self,
        features: FeatureSources = None,
        *,
        window: int = 2,
        l1: float = 0.0,
        l2: float = 1.0,
        n_iter: int = 100,
        tol: float = 1e-5,
        lexical: bool = True,
        algorithm: str = "lbfgs",
        batch_size: int = 512,
        learning_rate: float = 0.3,
        class_weight: Mapping[str, float] | str | None = None,
        n_hidden: int = 0,
        scheme: str | None = None,
        prior: CRFTagger | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: int | np.random.Generator | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.features = features
        self.window = window
        self.l1 = l1
        self.l2 = l2
        self.n_iter = n_iter
        self.tol = tol
        self.lexical = lexical
        self.algorithm = algorithm
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.class_weight = class_weight
        self.n_hidden = n_hidden
        self.scheme = scheme
        self.prior = prior
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks

    def fit(
        self,
        X: TaggerInput,
        y: TagLists,
        *,
        extra: Extra = None,
        engine: Engine | None = None,
        checkpoint: CheckpointSource = None,
    ) -> Self:
        """Train on labelled sentences; Ctrl-C after the first iteration keeps the last finished one.

        Parameters
        ----------
        X
            Token lists.
        y
            Tag lists.
        extra
            More to read: for each sentence a list with, for each token, a word (such as the tag of another tagger),
            a list of words, or a dict of name → word or number. `predict` must then be given it too.
        engine
            Refused: a CRF is trained on this machine; `n_jobs` sets its threads.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.

        Returns
        -------
        CRFTagger
            The tagger itself.

        Raises
        ------
        InputError
            If a parameter is invalid or the tags do not fit the tokens.
        """
        self._check_params()
        check_engine("CRFTagger", engine)
        features = check_features(self.features)
        if not (self.lexical or features or extra is not None):
            raise InputError("CRFTagger: lexical=False leaves nothing to read: give features.")
        words = checked_words(X)
        tags = checked_tags(y, [len(s) for s in words])
        check_trainable(tags)
        columns = checked_extra(extra, words)
        if columns is not None and any(f.name == "extra" for f in features):
            raise InputError("CRFTagger: a representation is called 'extra', as the extra columns are: rename it.")
        names: dict[str, int] = {}
        with one_blas_thread():
            is_spans, network = scheme_of(tags) is not None, self.n_hidden > 0
            n_passes = passes_of(is_spans) if network else 0
            reader = FeatureReader(features, self.window, self.lexical, names, is_spans, network)
            tokens = reader.read(words, columns, grow=True)
            labels, states, problem = self._problem(tokens, tags, names)
            start, centre = self._start(problem, names, states)
            penalty = training.Penalty(self.l1, self.l2, centre)
            data = (tokens, problem.gold, problem.weight, start, np.zeros(0) if centre is None else centre)
            with open_checkpoint(checkpoint, self._without_models(), data) as saved:
                result = run_iterations(
                    self._iterations(problem, penalty, start, n_passes, saved.state),
                    n_iter=self.n_iter + n_passes,
                    unit="iteration" if self.algorithm == "lbfgs" else "pass",
                    callbacks=self.callbacks,
                    checkpoint=saved,
                )
        self._set_common(words, tags, features)
        self.labels_, self.states_ = labels, states
        self.weights_, self.attributes_ = training.packed(problem, result.params.flat, names)
        self.network_ = result.params.network
        self.has_extra_ = columns is not None
        self.span_threshold_ = None
        self.history_ = result.history
        self._open_reader()
        return self

    def _problem(
        self, tokens: kernel.Tokens, tags: list[list[str]], names: dict[str, int]
    ) -> tuple[list[str], list[str], kernel.Problem]:
        """The tags, the states and what is learned from; names, tags and states of the prior join them."""
        prior, kept = self.prior, None
        learned = convert(tags, self.scheme) if self.scheme and scheme_of(tags) == "iob2" else tags
        if prior is not None and (prior.states_ == prior.labels_) != (learned is tags):
            raise InputError("CRFTagger: the prior learned its spans in another scheme: give both the same scheme.")
        labels, states = (
            sorted({tag for s in own for tag in s}.union(before))
            for own, before in (
                (tags, [] if prior is None else prior.labels_),
                (learned, [] if prior is None else prior.states_),
            )
        )
        of_token, gold = _numbers(tags, labels), _numbers(learned, states)
        if prior is not None:
            kept = training.kept_pairs(prior.weights_, prior.attributes_, prior.states_, names, states)
        pairs = kernel.observed_pairs(tokens, gold, len(names), len(states), kept)
        weight = training.sentence_weights(self.class_weight, of_token, tokens.bounds, labels)
        return labels, states, kernel.Problem(tokens, gold, weight, pairs, len(states))

    def _start(self, problem: kernel.Problem, names: dict[str, int], states: list[str]) -> tuple[F64, F64 | None]:
        """The first weights, and those to which the penalty pulls (None: 0)."""

        def of(tagger: CRFTagger) -> F64:
            old = (tagger.weights_, tagger.attributes_, tagger.states_)
            return training.aligned(*old, problem, names, states)

        centre = None if self.prior is None else of(self.prior)
        if self.warm_start and self.__sklearn_is_fitted__():
            return of(self), centre
        return np.zeros(problem.n_weights()) if centre is None else centre.copy(), centre

    def _iterations(
        self, problem: kernel.Problem, penalty: training.Penalty, start: F64, n_passes: int, resume_from: Any
    ) -> Iterator[Iteration[Learned]]:
        rng = check_random_state(self.random_state)
        passes = resume_from if isinstance(resume_from, NetworkState) else None
        before = resume_from if passes is None else None
        if self.algorithm == "lbfgs":
            n_threads = count_workers(self.n_jobs)
            linear = training.lbfgs(problem, penalty, start, self.n_iter, self.tol, n_threads, before)
        else:
            linear = training.minibatch(
                problem, penalty, start, self.n_iter, self.batch_size, self.learning_rate, rng, before
            )
        return with_network(linear, problem, penalty, self.n_hidden, rng, n_passes, passes)

    def _check_params(self) -> None:
        super()._check_params()
        if self.algorithm == "minibatch" and self.l1 > 0:
            raise InputError(f'CRFTagger: l1={self.l1} needs algorithm="lbfgs": leave it 0 with "minibatch".')
        if self.n_hidden and self.l1 > 0:
            raise InputError(f"CRFTagger: l1={self.l1} needs n_hidden=0: a network is trained without it.")
        if self.prior is not None and (self.n_hidden or getattr(self.prior, "network_", None) is not None):
            raise InputError("CRFTagger: a prior works for linear CRFs: train it and this tagger with n_hidden=0.")

    def _without_models(self) -> CRFTagger:
        """A tagger with the same parameters but the models it reads, which the arrays stand for."""
        return CRFTagger(**{**self.get_params(), "features": None, "prior": None})

    def _open_reader(self) -> None:
        is_spans, network = self.scheme_ is not None, self.network_ is not None
        self._reader = FeatureReader(self.features_, self.window, self.lexical, self.attributes_, is_spans, network)

    def predict(self, X: TaggerInput, *, extra: Extra = None) -> list[list[str]]:
        """Tag sentences.

        Parameters
        ----------
        X
            Sentences, as in `fit`.
        extra
            Extra columns, if `fit` was given some.

        Returns
        -------
        list of lists of str
            The most probable tags of each sentence as a whole; with a `span_threshold_` those of its spans.

        Raises
        ------
        InputError
            If extra columns are missing or not wanted, or `span_threshold_` was set to what is none.
        """
        self._check_fitted()
        check_threshold(self.span_threshold_, self.scheme_)
        out: list[list[str]] = []
        for bounds, scores in self._scores(X, extra):
            out += self._best_of(bounds, scores) if self.span_threshold_ is None else self._spans_of(bounds, scores)
        return out

    def _best_of(self, bounds: I64, scores: F64) -> list[list[str]]:
        """The most probable tags of each sentence as a whole."""
        best = kernel.best_labels(scores, bounds, self.weights_.transition)
        return [self._named(states) for states in np.split(best, bounds[1:-1])]

    def _spans_of(self, bounds: I64, scores: F64) -> list[list[str]]:
        """The tags of the spans that the threshold chooses."""
        assert self.span_threshold_ is not None and self.scheme_ is not None
        chosen = span_decoding.chosen_spans(scores, bounds, *self._span_chain(), self.span_threshold_)
        return [tags_of(spans, n, self.scheme_) for spans, n in zip(chosen, np.diff(bounds).tolist(), strict=True)]

    def _span_chain(self) -> tuple[F64, Reading]:
        """The scores of transitions, and how the tags of the states make spans."""
        return self.weights_.transition.astype(np.float64), reading_of(labels_of(self.states_, self.labels_))

    def tune_spans(self, X: TaggerInput, y: TagLists, *, extra: Extra = None) -> Self:
        """Choose the `span_threshold_` by F1 on sentences that the tagger was not trained on.

        It becomes half of the F1 that the spans chosen with it have on these sentences: at the best F1, a span is
        worth taking if its probability is at least half of it. The first threshold is half of the F1 of the most
        probable tags; the F1 that each one reaches gives the next, until it stays or ten have been tried. If no chosen
        span is right, it is None.

        Parameters
        ----------
        X
            Sentences, as in `fit`; some sixty spans are enough.
        y
            A list of tags for each sentence.
        extra
            Extra columns, if `fit` was given some.

        Returns
        -------
        CRFTagger
            The tagger itself.

        Raises
        ------
        InputError
            If the tags of the tagger mark no spans, or the sentences have none.

        Examples
        --------
        >>> from undertow import CRFTagger
        >>> words, tags = [["Ann", "left"], ["we", "left"]], [["B-person", "O"], ["O", "O"]]
        >>> CRFTagger(l2=0.01).fit(words, tags).tune_spans([["Ann", "left"]], [["B-person", "O"]]).span_threshold_
        0.5
        """
        self.span_threshold_ = span_decoding.threshold_of(self._held_out(X, y, extra))
        return self

    def _held_out(self, X: TaggerInput, y: TagLists, extra: Extra = None) -> HeldOut:
        """All that choosing a threshold needs of labelled sentences."""
        self._check_fitted()
        if self.scheme_ is None:
            raise InputError(
                "The tags of this tagger mark no spans, so there is no F1 to choose a threshold by: use it as it is."
            )
        words = checked_words(X)
        gold = checked_tags(y, [len(s) for s in words])
        batches = ((bounds, scores, self._best_of(bounds, scores)) for bounds, scores in self._scores(words, extra))
        return span_decoding.held_out(gold, batches, *self._span_chain())

    def predict_proba(self, X: TaggerInput, *, extra: Extra = None) -> list[F32]:
        """Marginal probabilities of the tags.

        Parameters
        ----------
        X
            Sentences, as in `fit`.
        extra
            Extra columns, if `fit` was given some.

        Returns
        -------
        list of float32 arrays (n_tokens, n_labels)
            One for each sentence; columns are those of `labels_`.
        """
        out: list[F32] = []
        for bounds, scores in self._scores(X, extra):
            p, _ = kernel.marginals(scores, bounds, self.weights_.transition, count_workers(self.n_jobs))
            out += np.split((p @ self._label_of_state()).astype(np.float32), bounds[1:-1])
        return out

    def predict_nbest(self, X: TaggerInput, n: int = 5, *, extra: Extra = None) -> list[list[tuple[list[str], float]]]:
        """The most probable tag sequences of each sentence.

        Parameters
        ----------
        X
            Sentences, as in `fit`.
        n
            How many; a short sentence may have fewer.
        extra
            Extra columns, if `fit` was given some.

        Returns
        -------
        list of lists of (tags, log_probability)
            For each sentence, the most probable first.

        Raises
        ------
        InputError
            If n is not a whole number from 1 to 10,000.
        """
        Whole(1, 10_000).check("predict_nbest", "n", n)
        out = []
        steps = self.weights_.transition.astype(np.float64)
        for bounds, scores in self._scores(X, extra):
            _, log_z = kernel.marginals(scores, bounds, steps, count_workers(self.n_jobs))
            for own, z in zip(np.split(scores, bounds[1:-1]), log_z.tolist(), strict=True):
                out.append(self._best_tags(own, steps, n, z))
        return out

    def _best_tags(self, scores: F64, steps: F64, n: int, log_z: float) -> list[tuple[list[str], float]]:
        """The n most probable tag sequences of a sentence; two sequences of states may be one of tags."""
        asked = n
        while True:
            paths, totals = n_best_paths(scores, steps, asked)
            found: dict[tuple[str, ...], float] = {}
            for path, total in zip(paths, totals.tolist(), strict=True):
                tags = tuple(self._named(path))
                found[tags] = float(np.logaddexp(found.get(tags, -np.inf), total - log_z))
            if len(found) >= n or len(paths) < asked:
                best = sorted(found.items(), key=lambda item: -item[1])
                return [(list(tags), log_p) for tags, log_p in best[:n]]
            asked *= 2

    def predict_spans(
        self, X: TaggerInput, least: float = 0.01, *, extra: Extra = None
    ) -> list[list[tuple[Span, float]]]:
        """The spans that each sentence may have, and how probable each is.

        A span's probability is that of all taggings of the sentence that have it with just these tokens. Spans may
        overlap.

        Parameters
        ----------
        X
            Sentences, as in `fit`.
        least
            Spans of a smaller probability are left out.
        extra
            Extra columns, if `fit` was given some.

        Returns
        -------
        list of lists of (Span, probability)
            For each sentence, in the order of the tokens.

        Raises
        ------
        InputError
            If the tags mark no spans, or `least` is not a number from 1e-6 to 1.

        Examples
        --------
        >>> from undertow import CRFTagger
        >>> words, tags = [["Ann", "left"], ["we", "left"]], [["B-person", "O"], ["O", "O"]]
        >>> [(span, p)] = CRFTagger(l2=0.01).fit(words, tags).predict_spans([["Ann", "left"]], least=0.5)[0]
        >>> span, p > 0.9
        (Span(type='person', start=0, end=1), True)
        """
        self._check_fitted()
        if self.scheme_ is None:
            raise InputError(
                "The tags of this tagger mark no spans: predict_proba gives the probabilities of its tags (on the "
                "command line: --probabilities)."
            )
        Number(1e-6, 1).check("predict_spans", "least", least)
        chain = self._span_chain()
        return [
            found
            for bounds, scores in self._scores(X, extra)
            for found in span_decoding.spans_of_scores(scores, bounds, *chain, least)
        ]

    def score(self, X: TaggerInput, y: TagLists, *, extra: Extra = None) -> float:
        """Share of the tokens with the right tag.

        Parameters
        ----------
        X
            Sentences, as in `fit`.
        y
            A list of tags for each sentence.
        extra
            Extra columns, if `fit` was given some.

        Returns
        -------
        float
            From 0 to 1.
        """
        return self._scored(X, y, extra=extra)[0].tokens["all"].accuracy or 0.0

    def evaluate(self, X: TaggerInput, y: TagLists, *, extra: Extra = None) -> Report:
        """Evaluate the tagger on labelled sentences.

        Parameters
        ----------
        X
            Sentences, as in `fit`.
        y
            A list of tags for each sentence.
        extra
            Extra columns, if `fit` was given some.

        Returns
        -------
        Report
            Accuracy on all, unseen and rare words; precision, recall and F1 of spans if the tags mark spans.
        """
        return self._scored(X, y, extra=extra)[0]

    def _named(self, states: I64) -> list[str]:
        names = labels_of(self.states_, self.labels_)
        return [names[k] for k in states.tolist()]

    def _label_of_state(self) -> F64:
        """(states, labels) 1 where a state stands for a tag."""
        out = np.zeros((len(self.states_), len(self.labels_)))
        out[np.arange(len(self.states_)), _numbers([labels_of(self.states_, self.labels_)], self.labels_)] = 1.0
        return out

    def _scores(self, X: TaggerInput, extra: Extra) -> Iterator[tuple[I64, F64]]:
        """Bounds of sentences and scores of their tokens, some sentences at a time."""
        self._check_fitted()
        words = checked_words(X)
        if (extra is not None) != self.has_extra_:
            cure = "give extra=, as in fit" if self.has_extra_ else "leave out extra"
            raise InputError(f"The tagger learned {'with' if self.has_extra_ else 'without'} extra columns: {cure}.")
        columns, first = checked_extra(extra, words), 0
        for batch in token_batches(words, PREDICT_TOKENS):
            more = None if columns is None else columns[first : first + len(batch)]
            first += len(batch)
            with one_blas_thread():
                tokens = self._reader.read(batch, more, grow=False)
                n_numbers = len(self.weights_.dense)
                if len(tokens.row) == 1:  # without tokens the number of columns is unknown
                    tokens = tokens._replace(dense=np.zeros((0, n_numbers), dtype=np.float32))
                if tokens.dense.shape[1] != n_numbers:
                    raise InputError(
                        f"The vectors have {tokens.dense.shape[1]} numbers, and the tagger learned from {n_numbers}: "
                        "give the same features."
                    )
                scores = kernel.all_scores(tokens, self.weights_, count_workers(self.n_jobs))
                if self.network_ is not None and len(scores):
                    scores += self._network_scores(self.network_, tokens)
                if not np.isfinite(scores).all():
                    raise InputError("CRFTagger: a score is not finite: the numbers of the features are too large.")
                yield tokens.bounds, scores

    def _network_scores(self, network: TokenNetwork, tokens: kernel.Tokens) -> F32:
        numbers = tokens.numbers()
        if numbers.shape[1] != len(network.input):
            raise InputError(
                f"The network reads {len(network.input)} numbers a token, and these features have {numbers.shape[1]}: "
                "give the same features."
            )
        return network_scores(network, numbers, tokens.bounds)[0]

    # --- saving -----------------------------------------------------------------------------------------

    def _fitted_scalars(self) -> dict[str, Any]:
        sizes = storage.sizes(self.weights_, self.network_, self.attributes_)
        own = {"extra": self.has_extra_, "states": self.states_, "span_threshold": self.span_threshold_}
        return {**super()._fitted_scalars(), **sizes, **own}

    @classmethod
    def _upgrade(cls, state: SavedState) -> SavedState:
        before = super()._upgrade(state)
        # earlier versions had neither
        return before._replace(fitted={"network": None, "span_threshold": None, **before.fitted})

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        return storage.tensor_spec(state.fitted) | cls._packed_spec(state)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {**storage.tensors(self.weights_, self.network_, self.attributes_), **self._packed_tensors()}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        storage.check_tensors(tensors, state.fitted)
        check_threshold(state.fitted["span_threshold"], state.fitted["scheme"])

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self._restore_common(tensors, state)
        self.weights_, self.network_, self.attributes_ = storage.restored(tensors, state.fitted)
        self.has_extra_ = bool(state.fitted["extra"])
        self.states_ = state.fitted["states"]
        self.span_threshold_ = state.fitted["span_threshold"]
        self._open_reader()


def _numbers(tags: list[list[str]], names: list[str]) -> I32:
    index = {name: i for i, name in enumerate(names)}
    return np.array([index[tag] for s in tags for tag in s], dtype=np.int32)
