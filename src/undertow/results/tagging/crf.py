"""A linear-chain CRF over the spelling of words and the features of models, fitted by CRFsuite."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine
from undertow.errors import FormatError, InputError, missing_extra
from undertow.kernels.types import F32
from undertow.models.base import SavedState, TensorSpec
from undertow.models.constraints import CALLBACKS, Checked, Choice, Constraint, Flag, Number, Whole, check_callbacks
from undertow.models.fitting import Callback, TrainingEvent
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
from undertow.results.tagging.crf_file import check_model_bytes
from undertow.results.tagging.representation import Features, FeatureSources, Representation
from undertow.results.tagging.word_features import WordFeatures

ALGORITHMS = {"lbfgs": "lbfgs", "perceptron": "ap"}  # our names and CRFsuite's


class CRFTagger(BaseTagger):
    """A linear-chain conditional random field over spelling features and the features of models.

    Needs python-crfsuite (the extra `crf`). Training holds every feature of every token in memory, 16 bytes each:
    vectors of 400 numbers make that 6 kB per token. Ctrl-C ends the fit and leaves the tagger as it was.

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
    lexical
        False leaves the spelling out.
    algorithm
        "lbfgs" maximizes the penalized likelihood. "perceptron" (averaged) needs 5 to 10 iterations, but has no
        penalties, does worse with vectors, and its probabilities mean little.
    callbacks
        Functions of a `TrainingEvent`, called after each iteration.

    Attributes
    ----------
    labels_ : list of str
        The tags, sorted.
    history_ : list of float
        Minus CRFsuite's objective after each iteration: the penalized log-likelihood, or minus the perceptron's shares
        of wrong tags, summed over the sentences.
    vocabulary_ : Vocabulary
        The words of the labelled text with their counts.
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
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "features": Checked(check_features),
        "window": Whole(0, 10),
        "l1": Number(0, 1e9),
        "l2": Number(0, 1e9),
        "n_iter": Whole(1, 100_000),
        "lexical": Flag(),
        "algorithm": Choice(*ALGORITHMS),
        "callbacks": CALLBACKS,
    }

    def __init__(
        self,
        features: FeatureSources = None,
        *,
        window: int = 2,
        l1: float = 0.0,
        l2: float = 1.0,
        n_iter: int = 100,
        lexical: bool = True,
        algorithm: str = "lbfgs",
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.features = features
        self.window = window
        self.l1 = l1
        self.l2 = l2
        self.n_iter = n_iter
        self.lexical = lexical
        self.algorithm = algorithm
        self.callbacks = callbacks

    def fit(self, X: TaggerInput, y: TagLists, *, engine: Engine | None = None) -> Self:
        """Train on labelled sentences; Ctrl-C leaves the tagger as it was.

        Parameters
        ----------
        X
            Token lists.
        y
            Tag lists.
        engine
            Refused: CRFsuite trains on this machine, in one thread.

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
        if engine is not None:
            raise InputError("CRFTagger: CRFsuite trains on this machine, in one thread: leave out engine.")
        callbacks = check_callbacks(self.callbacks)
        features = check_features(self.features)
        if not (self.lexical or features):
            raise InputError("CRFTagger: lexical=False leaves nothing to read: give features.")
        crfsuite = _crfsuite()
        words = checked_words(X)
        tags = checked_tags(y, [len(s) for s in words])
        check_trainable(tags)
        trainer = _trainer(crfsuite, ALGORITHMS[self.algorithm], self.n_iter, callbacks)
        # CRFsuite leaves out a feature whose values add up to less than minfreq, which is 0 unless told otherwise: of a
        # vector's numbers it would drop half the weights, and which ones would depend on the signs of the axes
        trainer.set_params(
            {"max_iterations": self.n_iter, "feature.possible_transitions": True, "feature.minfreq": -1e300}
        )
        if self.algorithm == "lbfgs":
            trainer.set_params({"c1": self.l1, "c2": self.l2})
        for items, sentence_tags in zip(self._items(words, features), tags, strict=True):
            if sentence_tags:
                trainer.append(crfsuite.ItemSequence(items), sentence_tags)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "model"
            trainer.train(str(path))
            blob = path.read_bytes()
        self._open_blob(blob)
        self._set_common(words, tags, features)
        # if zero weights are optimal, no iteration is reported: then the history is their likelihood
        at_zero = -float(np.log(len(self.labels_)) * sum(map(len, tags)))
        self.history_ = trainer.objectives or [at_zero]
        return self

    def predict(self, X: TaggerInput) -> list[list[str]]:
        """Tag sentences.

        Parameters
        ----------
        X
            Sentences, as in `fit`.

        Returns
        -------
        list of lists of str
            The most probable tags of each sentence as a whole.
        """
        return [tags for tags, _ in self._tagged(X, marginals=False)]

    def predict_proba(self, X: TaggerInput) -> list[F32]:
        """Marginal probabilities of the tags.

        Parameters
        ----------
        X
            Sentences, as in `fit`.

        Returns
        -------
        list of float32 arrays (n_tokens, n_labels)
            One for each sentence; columns are those of `labels_`.
        """
        return [p for _, p in self._tagged(X, marginals=True)]

    def _tagged(self, X: TaggerInput, marginals: bool) -> Iterator[tuple[list[str], F32]]:
        self._check_fitted()
        words = checked_words(X)
        nothing = np.zeros((0, len(self.labels_)), dtype=np.float32)
        for tokens, items in zip(words, self._items(words, self.features_), strict=True):
            tags = self._tagger.tag(items) if tokens else []
            p = nothing
            if marginals and tokens:
                rows = [[self._tagger.marginal(label, i) for label in self.labels_] for i in range(len(tokens))]
                p = np.array(rows, dtype=np.float32)
            yield tags, p

    # --- features ---------------------------------------------------------------------------------------

    def _items(self, sentences: list[list[str]], features: list[Representation]) -> Iterator[list[Any]]:
        """CRFsuite's items of every sentence: per token a list of names, or a dict of name → value."""
        spell = WordFeatures(self.window)
        for batch in token_batches(sentences):
            more = [(f.name, _window_of(f, self.window), checked_features(f, batch)) for f in features]
            for i, tokens in enumerate(batch):
                names = spell(tokens) if self.lexical else [["bias"] for _ in tokens]
                if not features:
                    yield names
                    continue
                items = [dict.fromkeys(row, 1.0) for row in names]
                for name, window, values in more:
                    add_window(items, name, window, values[i])
                yield items

    # --- saving -----------------------------------------------------------------------------------------

    def _open_blob(self, blob: bytes) -> None:
        tagger = _crfsuite().Tagger()
        tagger.open_inmemory(blob)
        self._tagger = tagger
        self._blob = blob  # CRFsuite reads from these bytes as long as the tagger lives

    def _fitted_scalars(self) -> dict[str, Any]:
        return {**super()._fitted_scalars(), "model_bytes": len(self._blob)}

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        return {"crfsuite": TensorSpec("uint8", (state.fitted["model_bytes"],))} | cls._packed_spec(state)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {"crfsuite": np.frombuffer(self._blob, dtype=np.uint8), **self._packed_tensors()}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        check_model_bytes(tensors["crfsuite"].tobytes(), len(state.fitted["labels"]))

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self._restore_common(tensors, state)
        self._open_blob(tensors["crfsuite"].tobytes())
        if sorted(self._tagger.labels()) != self.labels_:
            raise FormatError("CRFsuite's model has other labels than the tagger.")
        self._tagger.tag([["bias"]])
        for label in self.labels_:  # raises if the name of a label does not lead to its number
            self._tagger.marginal(label, 0)


def _crfsuite() -> Any:
    try:
        import pycrfsuite
    except ImportError as e:
        raise missing_extra("A CRFTagger needs python-crfsuite", "crf") from e
    return pycrfsuite


def _trainer(crfsuite: Any, algorithm: str, n_iter: int, callbacks: Sequence[Callback]) -> Any:
    """A trainer that stores the objective of every iteration and calls the callbacks."""
    began = time.perf_counter()

    class Trainer(crfsuite.BaseTrainer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(algorithm=algorithm, verbose=False)
            self.objectives: list[float] = []

        def message(self, message: str) -> None:
            # CRFsuite's own parser of these lines fails on a negative loss
            if message.startswith("Loss:"):
                self.objectives.append(-float(message.removeprefix("Loss:")))
                event = TrainingEvent(len(self.objectives), n_iter, self.objectives[-1], time.perf_counter() - began)
                for callback in callbacks:
                    callback(event)

    return Trainer()


def _window_of(f: Representation, default: int) -> int:
    own: int | None = getattr(f, "window", None)
    return default if own is None else own


def checked_features(f: Representation, sentences: list[list[str]]) -> Features:
    """A representation's features, refused if there is not one dict for every token."""
    out = f.features(sentences)
    if [len(rows) for rows in out] != [len(tokens) for tokens in sentences]:
        raise InputError(f"The features {f.name!r} do not come one for every token: correct its features method.")
    return out


def add_window(items: list[dict[str, float]], name: str, window: int, values: list[dict[str, float]]) -> None:
    """Give each token the values of its neighbours, under names that say whose and how far away."""
    for offset in range(-window, window + 1):
        prefix = f"{name}[{offset}]:"
        for i, item in enumerate(items):
            if 0 <= i + offset < len(items):
                for key, value in values[i + offset].items():
                    item[prefix + key] = value
