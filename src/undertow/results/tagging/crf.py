"""A linear-chain CRF over the spelling of words and the features of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine, count_workers
from undertow.engine.blas import one_blas_thread
from undertow.errors import FormatError, InputError
from undertow.kernels.chain import crf as kernel
from undertow.kernels.types import F32, F64, I64
from undertow.models.base import SavedState, TensorSpec, check_engine
from undertow.models.constraints import CALLBACKS, N_JOBS, Checked, Choice, Constraint, Flag, Number, Whole
from undertow.models.fitting import Callback, CheckpointSource, open_checkpoint, run_iterations
from undertow.results.tagging import crf_training as training
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
from undertow.results.tagging.crf_features import FeatureReader
from undertow.results.tagging.crf_training import CRFWeights
from undertow.results.tagging.representation import FeatureSources

ALGORITHMS = ("lbfgs",)
LARGEST_WEIGHT = 1e9
PREDICT_TOKENS = 1 << 15  # scores of so many tokens are held at a time


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
        "lbfgs" maximizes the penalized likelihood.
    n_jobs
        Threads; −1 for as many as there are processors. Their number changes no bit.
    callbacks
        Functions of a `TrainingEvent`, called after each iteration.

    Attributes
    ----------
    labels_ : list of str
        The tags, sorted.
    weights_ : CRFWeights
        The weights that are not 0.
    attributes_ : dict
        Names of the sparse features and their rows in `weights_`.
    history_ : list of float
        The penalized log-likelihood after each iteration.
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
    format_version = 2  # 1 held a model of CRFsuite
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "features": Checked(check_features),
        "window": Whole(0, 10),
        "l1": Number(0, 1e9),
        "l2": Number(0, 1e9),
        "n_iter": Whole(1, 100_000),
        "tol": Number(0, 1),
        "lexical": Flag(),
        "algorithm": Choice(*ALGORITHMS),
        "n_jobs": N_JOBS,
        "callbacks": CALLBACKS,
    }

    weights_: CRFWeights
    attributes_: dict[str, int]

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
        n_jobs: int | None = None,
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
        self.n_jobs = n_jobs
        self.callbacks = callbacks

    def fit(
        self, X: TaggerInput, y: TagLists, *, engine: Engine | None = None, checkpoint: CheckpointSource = None
    ) -> Self:
        """Train on labelled sentences; Ctrl-C after the first iteration keeps the last finished one.

        Parameters
        ----------
        X
            Token lists.
        y
            Tag lists.
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
        if not (self.lexical or features):
            raise InputError("CRFTagger: lexical=False leaves nothing to read: give features.")
        words = checked_words(X)
        tags = checked_tags(y, [len(s) for s in words])
        check_trainable(tags)
        labels = sorted({tag for s in tags for tag in s})
        index = {label: i for i, label in enumerate(labels)}
        names: dict[str, int] = {}
        with one_blas_thread():
            tokens = FeatureReader(features, self.window, self.lexical, names).read(words, None, grow=True)
            gold = np.array([index[tag] for s in tags for tag in s], dtype=np.int32)
            pairs = kernel.observed_pairs(tokens, gold, len(names), len(labels))
            problem = kernel.Problem(tokens, gold, np.ones(len(words)), pairs, len(labels))
            penalty = training.Penalty(self.l1, self.l2, None)
            start = np.zeros(problem.n_weights())
            n_threads = count_workers(self.n_jobs)
            with open_checkpoint(checkpoint, self._without_models(), (tokens, gold)) as saved:
                iterations = training.lbfgs(problem, penalty, start, self.n_iter, self.tol, n_threads, saved.state)
                result = run_iterations(iterations, n_iter=self.n_iter, callbacks=self.callbacks, checkpoint=saved)
        self._set_common(words, tags, features)
        self.weights_, self.attributes_ = training.packed(problem, result.params, names)
        self.history_ = result.history
        self._open_reader()
        return self

    def _without_models(self) -> CRFTagger:
        """A tagger with the same parameters but the models it reads, which the arrays stand for."""
        return CRFTagger(**{**self.get_params(), "features": None})

    def _open_reader(self) -> None:
        self._reader = FeatureReader(self.features_, self.window, self.lexical, self.attributes_)

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
        labels, out = self.labels_, []
        for bounds, scores in self._scores(X):
            best = kernel.best_labels(scores, bounds, self.weights_.transition).tolist()
            out += [[labels[k] for k in best[low:high]] for low, high in zip(bounds, bounds[1:], strict=False)]
        return out

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
        out: list[F32] = []
        for bounds, scores in self._scores(X):
            p, _ = kernel.marginals(scores, bounds, self.weights_.transition, count_workers(self.n_jobs))
            out += np.split(p.astype(np.float32), bounds[1:-1])
        return out

    def _scores(self, X: TaggerInput) -> Iterator[tuple[I64, F64]]:
        """Bounds of sentences and scores of their tokens, some sentences at a time."""
        self._check_fitted()
        weights = self.weights_
        for batch in token_batches(checked_words(X), PREDICT_TOKENS):
            with one_blas_thread():
                tokens = self._reader.read(batch, None, grow=False)
                if len(tokens.row) > 1 and tokens.dense.shape[1] != len(weights.dense):
                    raise InputError(
                        f"The vectors have {tokens.dense.shape[1]} numbers, and the tagger learned from "
                        f"{len(weights.dense)}: give the same features."
                    )
                if len(tokens.row) == 1:
                    tokens = tokens._replace(dense=np.zeros((0, len(weights.dense)), dtype=np.float32))
                scores = kernel.all_scores(tokens, weights.start, weights.label, weights, count_workers(self.n_jobs))
                yield tokens.bounds, scores

    # --- saving -----------------------------------------------------------------------------------------

    def _fitted_scalars(self) -> dict[str, Any]:
        sizes = {
            "n_attributes": len(self.attributes_),
            "n_pairs": len(self.weights_.label),
            "n_numbers": len(self.weights_.dense),
            "name_bytes": len(_names_as_bytes(self.attributes_)),
        }
        return {**super()._fitted_scalars(), **sizes}

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        fitted = state.fitted
        K, d, P = len(fitted["labels"]), fitted["n_numbers"], fitted["n_pairs"]
        return {
            "attributes": TensorSpec("uint8", (fitted["name_bytes"],)),
            "start": TensorSpec("int64", (fitted["n_attributes"] + 1,)),
            "label": TensorSpec("int32", (P,)),
            "sparse": TensorSpec("float32", (P,)),
            "dense": TensorSpec("float32", (d, K)),
            "transition": TensorSpec("float32", (K, K)),
        } | cls._packed_spec(state)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        names = np.frombuffer(_names_as_bytes(self.attributes_), dtype=np.uint8)
        return {"attributes": names, **self.weights_._asdict(), **self._packed_tensors()}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        start, label = tensors["start"], tensors["label"]
        if start[0] != 0 or start[-1] != len(label) or np.any(np.diff(start) <= 0):
            raise InputError("the pairs of attributes and tags do not lie one after the other.")
        if np.any(label < 0) or np.any(label >= len(state.fitted["labels"])):
            raise InputError("a pair is of a tag that does not exist.")
        inner = np.ones(len(label), dtype=np.bool_)
        inner[start[:-1]] = False
        if np.any(np.diff(label)[inner[1:]] <= 0):
            raise InputError("the tags of an attribute do not rise.")
        if not all(
            np.abs(tensors[name]).max(initial=0.0) <= LARGEST_WEIGHT for name in ("sparse", "dense", "transition")
        ):
            raise InputError("a weight is larger than any that training leaves.")
        _names_from_bytes(tensors["attributes"].tobytes(), len(start) - 1)

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self._restore_common(tensors, state)
        # copies: Numba compiles once more for arrays that cannot be written
        self.weights_ = CRFWeights(**{name: np.array(tensors[name]) for name in CRFWeights._fields})
        self.attributes_ = _names_from_bytes(tensors["attributes"].tobytes(), state.fitted["n_attributes"])
        self._open_reader()


def _names_as_bytes(names: Mapping[str, int]) -> bytes:
    return "\n".join(names).encode("utf-8")


def _names_from_bytes(data: bytes, n: int) -> dict[str, int]:
    text = data.decode("utf-8")
    names = {name: i for i, name in enumerate(text.split("\n"))} if text else {}
    if len(names) != n or text.count("\n") != max(n - 1, 0):
        raise FormatError(f"its names are not {n} different ones.")
    return names
