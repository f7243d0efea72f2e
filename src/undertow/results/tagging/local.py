"""A tagger that reads one token's vector at a time: it shows how much information the vectors hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from undertow.engine import Engine
from undertow.engine.blas import one_blas_thread
from undertow.errors import InputError, short
from undertow.kernels.adam import adam_start
from undertow.kernels.types import F32, I64
from undertow.models.base import SavedState, TensorSpec
from undertow.models.constraints import (
    CALLBACKS,
    RANDOM_STATE,
    Checked,
    Constraint,
    Number,
    Whole,
    check_random_state,
)
from undertow.models.fitting import Callback, CheckpointSource, Iteration, open_checkpoint, run_iterations
from undertow.results.tagging import network
from undertow.results.tagging.base import (
    BaseTagger,
    TaggerInput,
    TagLists,
    as_matrix,
    check_features,
    check_trainable,
    checked_tags,
    checked_words,
    token_batches,
)
from undertow.results.tagging.network import Network
from undertow.results.tagging.sources import FeatureSources
from undertow.results.tagging.token_features import Representation

LARGEST_WEIGHT = 1e9  # products of two still lie far within float32


class LocalTagger(BaseTagger):
    """A network with one hidden layer on each token's vector, trained by Adam with early stopping.

    Ctrl-C keeps the best finished pass.

    Parameters
    ----------
    features
        A fitted model or representation that gives vectors, or a list whose vectors are put side by side; X then holds
        token lists. None: X holds the vectors themselves, an array (n_tokens, d) for each sentence, as `transform`
        gives them, so that the tagger can be the last step of a Pipeline.
    n_hidden
        Number of rectified units.
    n_iter
        Passes over the text at most.
    patience
        Training stops when the likelihood of the held-out sentences has not risen for so many passes; the best pass is
        kept.
    held_out
        Share of the sentences that is held out.
    batch_size
        Tokens in a gradient step.
    learning_rate
        Of Adam.
    alpha
        Weight of the penalty on squared weights.
    random_state
        Seed or generator.
    callbacks
        Functions of a `TrainingEvent`, called after each pass.

    Attributes
    ----------
    labels_ : list of str
        The tags, sorted.
    network_ : Network
        The weights.
    scale_ : float
        Factor on the vectors before the network.
    history_ : list of float
        Mean log-likelihood of a held-out token after each pass.
    vocabulary_ : Vocabulary
        The words of the labelled text with their counts; absent if X held vectors.
    scheme_, features_, tokenizer_, columns_
        How the tags mark spans, what is read, and how files and running text are read.

    Examples
    --------
    >>> import numpy as np
    >>> from undertow import LocalTagger
    >>> X, y = [np.eye(2, dtype=np.float32)] * 20, [["A", "B"]] * 20
    >>> LocalTagger(learning_rate=0.1, random_state=0).fit(X, y).predict(X[:1])
    [['A', 'B']]
    """

    kind = "local-tagger"
    constraints: ClassVar[Mapping[str, Constraint]] = {
        "features": Checked(lambda value: check_features(value, vectors=True)),
        "n_hidden": Whole(1),
        "n_iter": Whole(1),
        "patience": Whole(1),
        "held_out": Number(0, 0.9),
        "batch_size": Whole(1),
        "learning_rate": Number(0, 1.0),
        "alpha": Number(0, 1.0),
        "random_state": RANDOM_STATE,
        "callbacks": CALLBACKS,
    }

    def __init__(
        self,
        features: FeatureSources = None,
        *,
        n_hidden: int = 25,
        n_iter: int = 30,
        patience: int = 3,
        held_out: float = 0.1,
        batch_size: int = 128,
        learning_rate: float = 2e-3,
        alpha: float = 1e-6,
        random_state: int | np.random.Generator | None = None,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.features = features
        self.n_hidden = n_hidden
        self.n_iter = n_iter
        self.patience = patience
        self.held_out = held_out
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.random_state = random_state
        self.callbacks = callbacks

    def fit(
        self, X: TaggerInput, y: TagLists, *, engine: Engine | None = None, checkpoint: CheckpointSource = None
    ) -> Self:
        """Train on labelled sentences; Ctrl-C after the first pass keeps the best one.

        Parameters
        ----------
        X
            Token lists, or without features an array (n_tokens, d) a sentence.
        y
            Tag lists.
        engine
            Refused: the network is trained on this machine, in one thread.
        checkpoint
            A directory for the state of an unfinished fit, from which the same call goes on.

        Returns
        -------
        LocalTagger
            The tagger itself.

        Raises
        ------
        InputError
            If a parameter is invalid, the tags do not fit the tokens, or training diverges.
        """
        self._check_params()
        if engine is not None:
            raise InputError("LocalTagger: the network is trained on this machine, in one thread: leave out engine.")
        rng = check_random_state(self.random_state)
        features = dense(check_features(self.features, vectors=True))
        words, vectors = self._open(X, features)
        tags = checked_tags(y, [len(v) for v in vectors])
        check_trainable(tags)
        width = {v.shape[1] for v in vectors}
        if len(width) > 1:
            raise InputError(f"The vectors have {', '.join(map(str, sorted(width)))} dimensions: give them one width.")
        if not width or width == {0}:
            raise InputError("The vectors have no dimension: give arrays with a column at least.")
        labels = sorted({tag for s in tags for tag in s})
        index = {label: i for i, label in enumerate(labels)}
        scale = 1 / max(float(np.std(np.concatenate(vectors), dtype=np.float64)), 1e-9)
        sides = [
            (np.concatenate([vectors[i] for i in part]) * np.float32(scale), _ids([tags[i] for i in part], index))
            for part in self._parts(rng, tags)
        ]
        # the sentences that are held out were drawn already, so the generator goes on from the state of a pass
        with one_blas_thread(), open_checkpoint(checkpoint, self._without_features(), (*sides[0], *sides[-1])) as saved:
            result = run_iterations(
                self._train(rng, *sides[0], *sides[-1], len(labels), saved.state),
                n_iter=self.n_iter,
                unit="pass",
                callbacks=self.callbacks,
                patience=self.patience,
                checkpoint=saved,
            )
        vars(self).pop("vocabulary_", None)
        self._set_common(words, tags, features)
        self.network_ = result.params
        self.scale_ = scale
        self.history_ = result.history
        return self

    def _without_features(self) -> LocalTagger:
        """A tagger with the same parameters but the models it reads, which the vectors stand for."""
        return LocalTagger(**{**self.get_params(), "features": None})

    def _open(self, X: Any, features: list[Representation]) -> tuple[list[list[str]] | None, list[F32]]:
        """The words, if X has words, and the vectors of every sentence."""
        if features:
            words = checked_words(X)
            return words, self._vectors(words, features)
        if isinstance(X, str | bytes | Mapping) or not hasattr(X, "__iter__"):
            raise InputError(
                "X must be a list of arrays with a row for each token; for token lists give a model as features."
            )
        items = list(X)
        if any(isinstance(s, str) or (isinstance(s, Sequence) and s and isinstance(s[0], str)) for s in items):
            raise InputError(
                "X holds words, and a LocalTagger without features wants vectors: give a model as features."
            )
        return None, [as_matrix(a, i) for i, a in enumerate(items)]

    @staticmethod
    def _vectors(words: list[list[str]], features: list[Representation]) -> list[F32]:
        out: list[F32] = []
        for batch in token_batches(words, 1 << 15):
            sides = [f.vectors(batch) for f in features]  # type: ignore[attr-defined]
            out += [as_matrix(np.concatenate(row, axis=1), i) for i, row in enumerate(zip(*sides, strict=True))]
        return out

    def _parts(self, rng: np.random.Generator, tags: list[list[str]]) -> list[list[int]]:
        """Sentences to learn from and held-out ones; only the former if there are too few to split."""
        filled = [i for i, s in enumerate(tags) if s]
        order = [filled[i] for i in rng.permutation(len(filled)).tolist()]
        n_held = max(1, round(self.held_out * len(order))) if self.held_out > 0 else 0
        if n_held == 0 or n_held >= len(order):
            return [sorted(order)]
        return [sorted(order[n_held:]), sorted(order[:n_held])]

    def _train(
        self,
        rng: np.random.Generator,
        X: F32,
        y: I64,
        X_held: F32,
        y_held: I64,
        n_labels: int,
        resume_from: tuple[int, Network, Any, Any] | None,
    ) -> Iterator[Iteration[Network]]:
        """Passes of Adam over the labelled tokens, each with the likelihood of the held-out ones."""
        net = network.start(rng, X.shape[1], self.n_hidden, n_labels)
        state = adam_start(net)
        step = {"batch_size": self.batch_size, "rate": self.learning_rate, "alpha": self.alpha}
        n_done = 0
        if resume_from is not None:
            n_done, net, state, rng.bit_generator.state = resume_from
        for iteration in range(n_done + 1, self.n_iter + 1):
            net, state = network.epoch(net, state, X, y, rng.permutation(len(X)), **step)  # type: ignore[arg-type]
            value = network.mean_log_likelihood(net, X_held, y_held)
            if not np.isfinite(value):
                raise InputError(
                    f"LocalTagger: training diverged in pass {iteration}: lower learning_rate={self.learning_rate}."
                )
            after = partial(tuple, (iteration, net, state, rng.bit_generator.state))
            yield Iteration(value, net, held_out=value, state=after)

    def predict(self, X: TaggerInput) -> list[list[str]]:
        """Tag sentences.

        Parameters
        ----------
        X
            Sentences, as in `fit`.

        Returns
        -------
        list of lists of str
            The most probable tag of each token.
        """
        return [[self.labels_[i] for i in p.argmax(axis=1).tolist()] for p in self._log_probabilities(X)]

    def predict_proba(self, X: TaggerInput) -> list[F32]:
        """Probabilities of the tags.

        Parameters
        ----------
        X
            Sentences, as in `fit`.

        Returns
        -------
        list of float32 arrays (n_tokens, n_labels)
            One for each sentence; columns are those of `labels_`.
        """
        return [np.exp(p) for p in self._log_probabilities(X)]

    def _log_probabilities(self, X: TaggerInput) -> list[F32]:
        self._check_fitted()
        out = []
        for i, vectors in enumerate(self._open(X, self.features_)[1]):
            if vectors.shape[1] != len(self.network_.W1):
                raise InputError(
                    f"Sentence {i} has vectors of {vectors.shape[1]} numbers, and the tagger learned from "
                    f"{len(self.network_.W1)}: give the same features."
                )
            out.append(network.log_probabilities(self.network_, vectors * np.float32(self.scale_)))
        return out

    # --- saving -----------------------------------------------------------------------------------------

    def _fitted_scalars(self) -> dict[str, Any]:
        return {**super()._fitted_scalars(), "shape": list(self.network_.W1.shape), "scale": self.scale_}

    @classmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        d, k = state.fitted["shape"]
        n = len(state.fitted["labels"])
        shapes = {"W1": (d, k), "b1": (k,), "W2": (k, n), "b2": (n,)}
        return {name: TensorSpec("float32", shape) for name, shape in shapes.items()} | cls._packed_spec(state)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        return {**self.network_._asdict(), **self._packed_tensors()}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        super()._check_values(tensors, state)
        if not 0 < state.fitted["scale"] <= 1e9:
            raise InputError(f"the scale {short(state.fitted['scale'])} of the vectors is not positive.")
        if not all(np.abs(tensors[name]).max(initial=0.0) <= LARGEST_WEIGHT for name in Network._fields):
            raise InputError("a weight of the network is larger than any that training leaves.")

    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        self._restore_common(tensors, state)
        self.network_ = Network(**{name: tensors[name] for name in Network._fields})
        self.scale_ = float(state.fitted["scale"])


def dense(features: list[Representation]) -> list[Representation]:
    for f in features:
        if not hasattr(f, "vectors"):
            raise InputError(
                f"The features {f.name!r} are not vectors, which a LocalTagger needs: "
                "wrap the model in Vectors, or use a CRFTagger."
            )
    return features


def _ids(tags: list[list[str]], index: Mapping[str, int]) -> I64:
    return np.array([index[tag] for s in tags for tag in s], dtype=np.int64)
