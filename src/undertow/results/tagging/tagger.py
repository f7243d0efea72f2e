"""The tagger for most purposes: give labelled sentences and, if available, unlabelled text; the rest has defaults."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow import progress as progress_
from undertow.engine import Engine
from undertow.errors import InputError, short
from undertow.kernels.types import F32
from undertow.models.base import Estimator, LittleTextWarning, SavedState, TensorSpec, check_engine
from undertow.models.checkpoint import fit_key
from undertow.models.constraints import (
    CALLBACKS,
    N_JOBS,
    RANDOM_STATE,
    Checked,
    Constraint,
    Number,
    Share,
    Verbosity,
    Whole,
    check_callbacks,
)
from undertow.models.fitting import LOGGER, Callback, CheckpointSource, interrupts_raise, shown_log
from undertow.progress import ProgressFn
from undertow.results.tagging import packed_models
from undertow.results.tagging.base import (
    BaseTagger,
    TaggerInput,
    TagLists,
    check_features,
    check_trainable,
    checked_columns,
    checked_tags,
    checked_words,
    warn_of_odd_labels,
)
from undertow.results.tagging.crf import CRFTagger
from undertow.results.tagging.crf_network import passes_of
from undertow.results.tagging.default import LAGS, default_parts
from undertow.results.tagging.model_features import ModelFeatures
from undertow.results.tagging.parts import Kept, Watch, kept_parts
from undertow.results.tagging.scores import Report
from undertow.results.tagging.sources import FeatureSources
from undertow.results.tagging.span_decoding import FEWEST_SPANS, tags_by_halves, threshold_of
from undertow.results.tagging.spans import Span, scheme_of, spans_of
from undertow.results.tagging.token_features import Representation
from undertow.results.tagging.unlabelled import TextSource, open_text
from undertow.text.corpus import Corpus
from undertow.text.lag_counts import LagCounts

FEWEST = 20  # labelled sentences of which some can be held out
CRF = "crf."  # prefix of the tensors of the CRF inside
Labelled = tuple[list[list[str]], list[list[str]]]


class Tagger(BaseTagger):
    """A tagger that needs labelled sentences and, if there is any, unlabelled text.

    `fit` learns the default representation from the text (`undertow.results.tagging.default` says which models) and
    trains a `CRFTagger` that reads it beside the spelling. Before, it measures the accuracy on labelled sentences that
    are held out. Ctrl-C during the last training keeps its last finished iteration; earlier it leaves the tagger as it
    was.

    Parameters
    ----------
    representation
        "default": learn models from the text given to `fit`. Fitted models or representations to read instead, as the
        features of a `CRFTagger`. None: spelling alone.
    window
        How many words to each side the CRF reads.
    l2
        Weight of its penalty on squared weights.
    n_iter
        Its iterations at most.
    n_hidden
        Units of the network in the CRF that alone reads the vectors of the models; 0 for a linear CRF, which reads
        them itself and is trained faster. Without models there is no network.
    validation
        Share of the labelled sentences that is held out to measure the accuracy, evenly spread over the text; the
        tagger itself is then trained on all of them. None measures nothing, and trains once.
    random_state
        Seed or generator.
    n_jobs
        Number of threads; None for 1, −1 for all cores. It does not change the result.
    verbose
        Log each iteration to the logger "undertow", and show that log on standard error. It is not saved.
    callbacks
        Functions of a `TrainingEvent`, called after each iteration of each part; the event names the part.

    Attributes
    ----------
    held_out_ : Report or None
        The scores on the sentences that were held out, of a tagger trained on the others; None if there were none.
        Where a `span_threshold_` was chosen, each half is tagged with the one that the other half chose.
    span_threshold_ : float or None
        That of `crf_`, as held-out sentences chose it by the F1 of spans: a span is worth taking if its probability is
        at least half of the F1. None if the tags mark no spans, or the held-out sentences have fewer than 60.
    crf_ : CRFTagger
        The trained CRF.
    labels_ : list of str
        The tags, sorted.
    history_ : list of float
        That of the CRF.
    vocabulary_ : Vocabulary
        The words of the labelled text with their counts.
    scheme_, features_, tokenizer_, columns_
        How the tags mark spans, what is read, and how files and running text are read.

    Examples
    --------
    >>> from undertow import Tagger
    >>> words, tags = [["the", "cat"], ["a", "dog"]] * 10, [["DET", "NOUN"], ["DET", "NOUN"]] * 10
    >>> tagger = Tagger(random_state=0).fit(words, tags)
    >>> tagger.predict([["the", "dog"]])
    [['DET', 'NOUN']]
    >>> tagger.held_out_.tokens["all"].accuracy
    1.0
    """

    kind = "tagger"
    added_params: ClassVar[Mapping[str, Any]] = {"n_hidden": 0}
    unsaved_params: ClassVar[frozenset[str]] = frozenset({"callbacks", "verbose", "representation"})
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "representation": Checked(lambda value: _given(value)),  # noqa: PLW0108  # defined below
        "window": Whole(0, 10),
        "l2": Number(0, 1e9),
        "n_iter": Whole(1, 100_000),
        "n_hidden": Whole(0, 10_000),
        "validation": Share(),
        "random_state": RANDOM_STATE,
        "n_jobs": N_JOBS,
        "verbose": Verbosity(),
        "callbacks": CALLBACKS,
    }

    held_out_: Report | None
    crf_: CRFTagger

    def __init__(
        self,
        representation: str | FeatureSources = "default",
        *,
        window: int = 2,
        l2: float = 1.0,
        n_iter: int = 100,
        n_hidden: int = 128,
        validation: float | None = 0.1,
        random_state: int | np.random.Generator | None = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.representation = representation
        self.window = window
        self.l2 = l2
        self.n_iter = n_iter
        self.n_hidden = n_hidden
        self.validation = validation
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callbacks = callbacks

    # --- fitting ----------------------------------------------------------------------------------------

    def fit(
        self,
        X: TaggerInput,
        y: TagLists,
        *,
        text: TextSource = None,
        validation: tuple[TaggerInput, TagLists] | None = None,
        engine: Engine | None = None,
        checkpoint: CheckpointSource = None,
        progress: ProgressFn = progress_.ignore,
    ) -> Self:
        """Learn a representation from text, and to tag from labelled sentences.

        Parameters
        ----------
        X
            The labelled sentences: token lists.
        y
            A list of tags for each sentence.
        text
            Unlabelled text: a Corpus or its directory, token lists, file names or glob patterns, or None to read
            spelling alone.
        validation
            Other labelled sentences and their tags, on which the accuracy is measured instead of on a share of X; the
            CRF is then trained once.
        engine
            Refused: everything is fitted on this machine.
        checkpoint
            A directory in which each finished part stays (the corpus, each model, the scores), with the state of the
            unfinished one, so that the same call goes on after a kill. Later calls take from it what depends on the
            same text and settings; remove it when it is not needed any more.
        progress
            Called with a `Progress` while text is read and after each iteration.

        Returns
        -------
        Tagger
            The tagger itself.

        Raises
        ------
        InputError
            If a parameter is invalid, the tags do not fit the tokens, or the text cannot be read.
        """
        self._check_params()
        check_engine("A Tagger", engine)
        labelled = _labelled(X, y)
        check_trainable(labelled[1])
        warn_of_odd_labels(*labelled, stacklevel=2)
        other = None if validation is None else _labelled(*_pair(validation))
        if text is not None and not isinstance(self.representation, str):
            raise InputError(
                "Tagger: text is only used to learn the default representation: leave out text, or representation."
            )
        watch = Watch(check_callbacks(self.callbacks), progress)
        with shown_log(self.verbose), kept_parts(checkpoint) as kept:
            seed = _fixed(self.random_state)
            corpus = open_text(text, kept.place, self.n_jobs, progress)
            features = self._features(corpus, seed, kept, watch, labelled)
            held_out, threshold = (
                self._held_out(features, labelled, seed, kept, watch) if other is None else (None, None)
            )
            watch.finish("validation", reused=True)  # if it was not measured now
            LOGGER.info("training the CRF on %d sentences", len(labelled[0]))
            crf = self._crf(features, seed, watch, "crf").fit(*labelled, checkpoint=kept.checkpoint)
            if other is not None:
                held_out, threshold = _measured(crf, *other)
        crf.span_threshold_ = threshold
        self._finish(crf.set_params(callbacks=None), held_out, None)
        return self

    def _features(
        self, corpus: Corpus | None, seed: Any, kept: Kept, watch: Watch, labelled: Labelled
    ) -> list[Representation]:
        """What the CRF reads beside the spelling."""
        n_tokens = sum(map(len, labelled[0]))
        crf_seconds = 7e-8 * self.n_iter * n_tokens * len({t for s in labelled[1] for t in s})
        crf_seconds += 2e-7 * passes_of(scheme_of(labelled[1]) is not None) * self.n_hidden * n_tokens
        watch.plan({"validation": crf_seconds, "crf": crf_seconds})
        if corpus is None:
            return _given(self.representation)
        parts, left_out = default_parts(corpus, seed, self.n_jobs)
        if left_out:
            what = " and ".join([", ".join(left_out[:-1]), left_out[-1]] if len(left_out) > 1 else left_out)
            warnings.warn(
                f"The text has {corpus.n_tokens:,} tokens of {np.count_nonzero(corpus.vocabulary.counts):,} different "
                f"words, too few for {what}: the tagger does without.",
                LittleTextWarning,
                stacklevel=3,
            )
        watch.plan({part.model.kind: part.seconds for part in parts})
        counts: list[LagCounts] = []

        def counted() -> LagCounts:
            if not counts:
                counts.append(LagCounts.from_corpus(corpus, lags=LAGS, n_jobs=self.n_jobs, progress=watch.progress))
            return counts[0]

        return [
            part.read(kept.fit(part.model, corpus, counted if part.on_counts else lambda: corpus, watch))
            for part in parts
        ]

    def _held_out(
        self, features: list[Representation], labelled: Labelled, seed: Any, kept: Kept, watch: Watch
    ) -> tuple[Report | None, float | None]:
        """The scores on a share of the sentences of a CRF that was trained on the others, and its span threshold."""
        if self.validation is None:
            return None, None
        n = len(labelled[0])
        if n < FEWEST:
            warnings.warn(
                f"Of {n} labelled sentences none are held out, so the accuracy is not measured: give {FEWEST} or more, "
                "or others as validation.",
                LittleTextWarning,
                stacklevel=3,
            )
            return None, None
        train, test = split(labelled, self.validation)

        def measured() -> dict[str, Any]:
            LOGGER.info("training the CRF on %d sentences, to be evaluated on %d others", len(train[0]), len(test[0]))
            with interrupts_raise():
                crf = self._crf(features, seed, watch, "validation").fit(*train, checkpoint=kept.checkpoint)
            if scheme_of(labelled[1]) is None:
                crf.scheme_ = None  # a tag of the others marks none: the tagger of all will know no spans
            watch.finish("validation")
            report, threshold = _measured(crf, *test)
            return {"report": report.as_dict(), "span_threshold": threshold}

        read = [] if kept.checkpoint is None else [_key(f) for f in features]
        key = fit_key(self._crf([], seed), [read, *train, *test])
        found = kept.report("held-out-spans", key, measured)
        return Report.from_dict(found["report"]), found["span_threshold"]

    def _crf(
        self, features: list[Representation], seed: Any, watch: Watch | None = None, part: str = "crf"
    ) -> CRFTagger:
        crf = CRFTagger(
            features or None,
            window=self.window,
            l2=self.l2,
            n_iter=self.n_iter,
            n_hidden=self.n_hidden,
            scheme="bioes",
            n_jobs=self.n_jobs,
            random_state=seed,
        )
        return crf if watch is None else crf.set_params(callbacks=watch.of(crf, part))

    def _finish(self, crf: CRFTagger, held_out: Report | None, columns: dict[str, Any] | None) -> None:
        """Set the fitted attributes, all at once."""
        self.crf_ = crf
        self.held_out_ = held_out
        self.columns_ = columns
        self.labels_, self.scheme_, self.features_ = crf.labels_, crf.scheme_, crf.features_
        self.tokenizer_, self.vocabulary_ = crf.tokenizer_, crf.vocabulary_
        self.history_ = crf.history_

    @property
    def span_threshold_(self) -> float | None:
        """That of `crf_`; there it can also be set."""
        return self.crf_.span_threshold_

    # --- queries ----------------------------------------------------------------------------------------

    def predict(self, X: TaggerInput) -> list[list[str]]:
        """Tag sentences.

        Parameters
        ----------
        X
            Token lists.

        Returns
        -------
        list of lists of str
            The most probable tags of each sentence as a whole; with a `span_threshold_` those of its spans.
        """
        self._check_fitted()
        return self.crf_.predict(X)

    def predict_proba(self, X: TaggerInput) -> list[F32]:
        """Marginal probabilities of the tags.

        Parameters
        ----------
        X
            Token lists.

        Returns
        -------
        list of float32 arrays (n_tokens, n_labels)
            One for each sentence; columns are those of `labels_`.
        """
        self._check_fitted()
        return self.crf_.predict_proba(X)

    def predict_nbest(self, X: TaggerInput, n: int = 5) -> list[list[tuple[list[str], float]]]:
        """The most probable tag sequences of each sentence.

        Parameters
        ----------
        X
            Token lists.
        n
            How many; a short sentence may have fewer.

        Returns
        -------
        list of lists of (tags, log_probability)
            For each sentence, the most probable first.
        """
        self._check_fitted()
        return self.crf_.predict_nbest(X, n)

    def predict_spans(self, X: TaggerInput, least: float = 0.01) -> list[list[tuple[Span, float]]]:
        """The spans that each sentence may have, and how probable each is.

        A span's probability is that of all taggings of the sentence that have it with just these tokens. Spans may
        overlap.

        Parameters
        ----------
        X
            Token lists.
        least
            Spans of a smaller probability are left out.

        Returns
        -------
        list of lists of (Span, probability)
            For each sentence, in the order of the tokens.

        Raises
        ------
        InputError
            If the tags mark no spans, or `least` is not a number from 1e-6 to 1.
        """
        self._check_fitted()
        return self.crf_.predict_spans(X, least)

    # --- saving -----------------------------------------------------------------------------------------

    def _fitted_scalars(self) -> dict[str, Any]:
        given = self.representation
        return {
            "representation": "default" if isinstance(given, str) else "none" if given is None else "given",
            "held_out": None if self.held_out_ is None else self.held_out_.as_dict(),
            "columns": self.columns_,
            "crf": packed_models.pack(self.crf_, CRF)[0],
        }

    @classmethod
    def _upgrade(cls, state: SavedState) -> SavedState:
        # not that of a tagger with models of its own: here they are the CRF's
        crf = packed_models.upgrade(state.fitted["crf"])
        fitted = {**state.fitted, "crf": crf}
        if "span_threshold" not in state.fitted["crf"]["fitted"]:
            fitted.pop("outside_shift", None)  # what earlier versions added to the score of O is in their weights
        return state._replace(params=cls._current_params(state.params), fitted=fitted)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return packed_models.pack(self.crf_, CRF)[1]

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        return packed_models.packed_spec(state.fitted["crf"], CRF)

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        fitted = state.fitted
        if fitted["crf"]["kind"] != CRFTagger.kind:
            raise InputError(f"it holds a model of the kind {short(fitted['crf']['kind'])} and not a CRF.")
        if fitted["representation"] not in ("default", "none", "given"):
            raise InputError(f"the representation {short(fitted['representation'])} is unknown.")
        if fitted["held_out"] is not None:
            _check_report(Report.from_dict(fitted["held_out"]))

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        crf: Any = packed_models.unpack(state.fitted["crf"], tensors, CRF)
        if crf.vocabulary_ != self.vocabulary_:
            raise InputError("the words are not those of its CRF.")
        scores, columns = state.fitted["held_out"], checked_columns(state.fitted["columns"])
        report = None if scores is None else Report.from_dict(scores)
        self._finish(crf, report, columns)
        kinds: dict[str, Any] = {"default": "default", "none": None, "given": crf.features_}
        self.representation = kinds[state.fitted["representation"]]


def split(labelled: Labelled, share: float) -> tuple[Labelled, Labelled]:
    """Sentences to train on, and a share of them, evenly spread, to test on: at least one of each."""
    words, tags = labelled
    n = len(words)
    n_test = min(max(round(share * n), 1), n - 1)
    chosen = {int((i + 0.5) * n / n_test) for i in range(n_test)}
    sides = [i not in chosen for i in range(n)]
    train, test = (
        (
            [w for w, side in zip(words, sides, strict=True) if side is wanted],
            [t for t, side in zip(tags, sides, strict=True) if side is wanted],
        )
        for wanted in (True, False)
    )
    return train, test


def _measured(crf: CRFTagger, words: list[list[str]], tags: list[list[str]]) -> tuple[Report, float | None]:
    """The scores on sentences that a CRF was not trained on, and the threshold that they choose for its spans.

    Each half is decoded with the threshold that the other half chose, so that the scores are not those that chose it.
    """
    if crf.scheme_ is None or sum(len(spans_of(t)) for t in tags) < FEWEST_SPANS:
        return crf.evaluate(words, tags), None
    held_out = crf._held_out(words, tags)
    return crf._report(words, tags, tags_by_halves(held_out, crf.scheme_)), threshold_of(held_out)


def _given(representation: Any) -> list[Representation]:
    """The representations that are there before any text is read."""
    return [] if isinstance(representation, str) and representation == "default" else check_features(representation)


def _labelled(X: Any, y: Any) -> Labelled:
    words = checked_words(X)
    return words, checked_tags(y, [len(s) for s in words])


def _pair(validation: Any) -> tuple[Any, Any]:
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise InputError(f"validation={short(validation)} must be a pair: sentences and their tags.")
    return validation[0], validation[1]


def _fixed(random_state: Any) -> Any:
    """A seed for all parts: None and numbers as they are, so that the same call finds the same parts."""
    return int(random_state.integers(2**31)) if isinstance(random_state, np.random.Generator) else random_state


def _key(representation: Representation) -> Any:
    """What a representation gives, for a hash: how it reads its model, and the model as it would be saved."""
    if not isinstance(representation, ModelFeatures) or not isinstance(representation.model, Estimator):
        return os.urandom(8).hex()  # another time it may give something else
    record, tensors = packed_models.pack(representation.model, "")
    return [representation.adapter, representation.options(), json.dumps(record), tensors]


def _check_report(report: Report) -> None:
    """Refuse scores that are no counts."""
    pairs = [*report.tokens.values(), *((s.correct, min(s.predicted, s.gold)) for s in (report.spans or {}).values())]
    if not all(type(n) is int for pair in pairs for n in pair) or not all(0 <= a <= b for a, b in pairs):
        raise InputError("the scores on held-out sentences are no counts of tokens or spans.")
