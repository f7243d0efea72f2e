"""What every model shares: parameters by name, the door for text, training events, and how state is saved.

The habits are scikit-learn's, and its `clone`, `Pipeline` and `GridSearchCV` work, but scikit-learn itself is
an extra and is never imported here. To write a model, subclass `Estimator`:

- the constructor takes keyword-only parameters after the first and only stores them; `constraints` says what each of
  them may be;
- `fit` calls `self._check_params()`, opens its input with `as_corpus`, works on local variables and sets the
  fitted attributes (names ending in `_`, `history_` and usually `vocabulary_` among them) at the end, so that
  a failed fit leaves the model as it was;
- the other methods begin with `self._check_fitted()` and read sentences with `encode_sentences`;
- `kind`, `_tensor_spec`, `_tensors`, `_check_values` and `_restore` say how it is saved (see `undertow.storage`).
"""

from __future__ import annotations

import abc
import copy
import inspect
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeGuard

import numpy as np
import numpy.typing as npt

from undertow.errors import InputError, NotFittedError, UnknownWordError, missing_extra, short
from undertow.models.constraints import Constraint, Whole
from undertow.text.corpus import Corpus
from undertow.text.tokenizer import check_rule, checked_sentences
from undertow.text.vocabulary import Vocabulary

Sentences = Corpus | Iterable[Sequence[str]]
MOST_OF_AN_EXAMPLE = 50  # states, or components
LEAST_TOKENS_A_COMPONENT = 100  # docs/choosing.md advises a thousand and more


class CostWarning(UserWarning):
    """What was asked for takes far more memory or time than is usual; the message estimates them."""


class LittleTextWarning(UserWarning):
    """There is too little text for (a part of) what was asked for; the message says for what, and what helps."""


class TensorSpec(NamedTuple):
    """What a saved tensor must look like, known before any of its bytes are read."""

    dtype: str  # NumPy's name, such as "float32"
    shape: tuple[int, ...]


class SavedState(NamedTuple):
    """What of a fitted model is not a tensor: its parameters, its scalars, and the number of its words."""

    params: dict[str, Any]
    fitted: dict[str, Any]  # JSON values from _fitted_scalars
    n_words: int | None  # None for a model without vocabulary
    bits: int | None = None  # of a number of its tables, if they are codes


class Estimator(abc.ABC):
    """Base of all models; see the module's docstring for what a subclass supplies."""

    kind: ClassVar[str]
    """The name of the model in its directory and on the command line, such as "lds"."""

    format_version: ClassVar[int] = 1
    """Raised when the tensors or scalars that are saved change their meaning."""

    unsaved_params: ClassVar[frozenset[str]] = frozenset({"callbacks"})
    """Parameters that belong to a program, or that `_restore` sets: they are not written to the configuration."""

    retired_params: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Parameters of earlier versions with the values they had: read in saved models, and dropped."""

    added_params: ClassVar[Mapping[str, Any]] = {}
    """Parameters that earlier versions did not have, with the value that their saved models get."""

    table_bits: ClassVar[tuple[int, ...]] = ()
    """What `save` can be given as `bits`; `_coded_tensors` and `_tensor_spec` know each of them."""

    constraints: ClassVar[Mapping[str, Constraint]]
    """What each parameter of the constructor may be."""

    history_: list[float]
    """The objective after each iteration. A model is fitted if and only if it has this."""

    vocabulary_: Vocabulary
    """The words the model knows, in the order of its rows; absent from models that have none."""

    # --- parameters -------------------------------------------------------------------------------------

    @classmethod
    def param_defaults(cls) -> dict[str, Any]:
        """The constructor's parameters and their defaults.

        Returns
        -------
        dict
            In the order of the constructor; `inspect.Parameter.empty` for a parameter without a default.
        """
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return {p.name: p.default for p in parameters}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as the constructor stored them.

        Parameters
        ----------
        deep
            Changes nothing, as no parameter is a model; scikit-learn passes it.

        Returns
        -------
        dict
            Value by name.
        """
        return {name: getattr(self, name) for name in self.param_defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; like the constructor this only stores the values, and `fit` checks them.

        Parameters
        ----------
        **params
            New values.

        Returns
        -------
        Estimator
            The model itself.

        Raises
        ------
        InputError
            If there is no parameter of that name.
        """
        known = self.param_defaults()
        for name in params:
            if name not in known:
                raise InputError(
                    f"{type(self).__name__} has no parameter {short(name)}: choose among {', '.join(known)}."
                )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        # repr, not ==, decides: arrays and NaN compare badly
        changed = [
            f"{name}={value!r}"
            for (name, default), value in zip(self.param_defaults().items(), self.get_params().values(), strict=True)
            if repr(value) != repr(default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _check_params(self) -> None:
        """Apply the `constraints`; a model with conditions between several parameters extends this."""
        who, params = type(self).__name__, self.get_params()
        for name, value in params.items():
            if isinstance(value, float | np.floating) and not math.isfinite(value):
                raise InputError(f"{who}: {name}={value} is not a finite number; give a finite one.")
        for name, constraint in self.constraints.items():
            constraint.check(who, name, params[name])

    # --- fitted or not ----------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return "history_" in vars(self)

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise self._not_fitted()

    def _not_fitted(self) -> NotFittedError:
        return NotFittedError(f"This {type(self).__name__} is not fitted yet: call fit first, or load a model.")

    if not TYPE_CHECKING:  # a __getattr__ that mypy sees would make every misspelt attribute legal

        def __getattr__(self, name: str) -> Any:
            if name.endswith("_") and not name.startswith("_") and "history_" not in vars(self):
                raise self._not_fitted()
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # --- words ------------------------------------------------------------------------------------------

    def __contains__(self, word: object) -> bool:
        """Whether a word is in the vocabulary."""
        self._check_fitted()
        if "vocabulary_" not in vars(self):
            raise InputError(f"{type(self).__name__} has no vocabulary.")
        return word in self.vocabulary_

    def _word_id(self, word: object) -> int:
        """The id of a word of the vocabulary."""
        if not isinstance(word, str) or word not in self:
            # the casings alone: a search for similar spellings would slow down whoever asks for many words in turn
            cased = [word.lower(), word.capitalize(), word.upper()] if isinstance(word, str) else []
            cure = next((f"it has {short(w)}" for w in cased if w in self), "ask for one that is")
            raise UnknownWordError(f"The word {short(word)} is not in the vocabulary: {cure}.")
        return self.vocabulary_.id(word)

    # --- scikit-learn -----------------------------------------------------------------------------------

    def __sklearn_clone__(self) -> Self:
        # clone would copy callbacks too, and a watcher's copy watches for nobody: share them instead
        params = self.get_params()
        return type(self)(**{k: v if k == "callbacks" else copy.deepcopy(v) for k, v in params.items()})

    def __sklearn_tags__(self) -> Any:
        # scikit-learn >= 1.7 asks this of every step of a pipeline; nobody else calls it
        try:
            from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags
        except ImportError as e:
            raise missing_extra("The tags of scikit-learn need scikit-learn 1.6 or later", "sklearn") from e

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags() if hasattr(self, "transform") else None,
            input_tags=InputTags(two_d_array=False, string=True),
        )

    # --- saving -----------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], overwrite: bool = False, *, bits: int | None = None) -> None:
        """Write the model to a directory, completely or not at all; `undertow.load` reads it back.

        Parameters
        ----------
        path
            The directory.
        overwrite
            Whether an existing model there may be replaced; a directory that undertow did not write never is.
        bits
            None writes all numbers as they are. 8, of an `HMM` alone, writes its tables with one byte a number; a
            loaded model has ordinary tables of the rounded numbers.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InputError
            If something else is there, or the model has no tables of so many bits.
        """
        from undertow.storage import save_model

        save_model(self, path, overwrite=overwrite, bits=bits)

    @classmethod
    @abc.abstractmethod
    def _tensor_spec(cls, state: SavedState) -> dict[str, TensorSpec]:
        """Name, dtype and shape of every tensor of a model with this state: a loader trusts nothing else."""

    @classmethod
    def _current_params(cls, params: dict[str, Any]) -> dict[str, Any]:
        """Saved parameters as this version has them: without `retired_params`, and with `added_params`."""
        retired = cls.retired_params
        kept = {name: value for name, value in params.items() if name not in retired or value not in retired[name]}
        return {**cls.added_params, **kept}

    @classmethod
    def _upgrade(cls, state: SavedState) -> SavedState:
        """The state that an earlier version saved, as this version writes it."""
        return state._replace(params=cls._current_params(state.params))

    @abc.abstractmethod
    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        """The fitted arrays by the names of `_tensor_spec`."""

    def _coded_tensors(self, bits: int) -> dict[str, npt.NDArray[Any]]:
        """The same with tables as codes; only for the numbers of `table_bits`."""
        raise InputError(f"{type(self).__name__} has no tables of bits={bits}: leave it out.")

    def _fitted_scalars(self) -> dict[str, Any]:
        """Fitted values beside the tensors, as JSON knows them: finite numbers, strings, lists, objects.

        `history_` and `vocabulary_` are kept by the storage itself.
        """
        return {}

    @classmethod
    def _check_values(cls, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        """Raise InputError, or anything else, for finite tensors of the right shapes that no fit gives.

        Called before a model is written and before one is restored: probabilities that do not sum to one, indices out
        of range, covariances that are none. What `_fitted_scalars` gives after `_restore` is compared with the file, so
        unknown or missing values there need no check; the rule of the text's tokenizer is checked here for all.
        """
        check_rule(state.fitted.get("tokenizer"))

    @abc.abstractmethod
    def _restore(self, tensors: Mapping[str, npt.NDArray[Any]], state: SavedState) -> None:
        """Set the fitted attributes from tensors that match `_tensor_spec` and passed `_check_values`.

        `vocabulary_` is there already.
        """


def as_corpus(X: Any) -> Corpus:
    """The door of every `fit` on text: a Corpus as it is, or any iterable of token lists, read once."""
    corpus = X if isinstance(X, Corpus) else Corpus.from_sentences(X)
    if corpus.n_tokens == 0:
        raise InputError("The corpus has no tokens: a model needs some text to learn from.")
    return corpus


def warn_of_little_text(n_states: int, what: str, parameter: str, n_tokens: int, stacklevel: int) -> None:
    """Warn if a model has more states than its text has tokens: it can only learn the text by heart.

    A few states on a few tokens are an example, and nobody takes them for a model.
    """
    if n_states > max(n_tokens, MOST_OF_AN_EXAMPLE):
        warnings.warn(
            f"{n_states:,} {what} for {n_tokens:,} tokens: the model learns the text by heart and knows no other; give "
            f"more text, or a smaller {parameter}, such as {max(2, round(n_tokens**0.5))}.",
            LittleTextWarning,
            stacklevel=stacklevel + 1,
        )


def warn_of_many_components(n_components: int, n_tokens: int, stacklevel: int) -> None:
    """Warn if a text has too few tokens to tell so many components from noise; a few components are an example."""
    if n_components > MOST_OF_AN_EXAMPLE and n_tokens < LEAST_TOKENS_A_COMPONENT * n_components:
        warnings.warn(
            f"{n_components:,} components for {n_tokens:,} tokens: most will be noise; give more text, or a smaller "
            f"n_components (--components), such as {max(2, n_tokens // 1000)}.",
            LittleTextWarning,
            stacklevel=stacklevel + 1,
        )


def check_engine(who: str, engine: object) -> None:
    """Refuse an engine where nothing of a fit can run elsewhere, rather than ignore it."""
    if engine is not None:
        raise InputError(f"{who} is fitted on this machine alone: leave out engine; n_jobs sets its threads.")


def extend_corpus(vocabulary: Vocabulary, X: Any, new_words: int | None) -> Corpus:
    """Text as a corpus over the words of `vocabulary` and, after them, its own new words, by falling count.

    Parameters
    ----------
    vocabulary
        Words whose ids stay what they are.
    X
        A corpus or token lists.
    new_words
        Least count in X of a word that joins; None lets none join. The others are read as unknown words.
    """
    if new_words is not None:
        Whole(1).check("partial_fit", "new_words", new_words)
    corpus = as_corpus(X if isinstance(X, Corpus) else Corpus.from_sentences(X, boundary=vocabulary.boundary))
    own = corpus.vocabulary
    join = [
        word
        for word, count in zip(own.words[own.n_special :], own.counts[own.n_special :].tolist(), strict=True)
        if new_words is not None and count >= new_words and word not in vocabulary
    ]
    if not join and own == vocabulary:
        return corpus
    words, counts = [*vocabulary.words, *join], [*vocabulary.counts.tolist(), *[0] * len(join)]
    extended = Vocabulary(words, counts, boundary=vocabulary.boundary is not None, n_classes=vocabulary.n_classes)
    ids = np.concatenate(encode_sentences(extended, corpus))
    here = extended.with_counts(np.bincount(ids, minlength=len(extended)))
    return Corpus(ids, np.asarray(corpus.offsets), here, manifest=corpus.manifest)


def partly_known(X: Any) -> TypeGuard[Sequence[Any]]:
    """Whether some text is Evidence. Plain lists are not searched: None among their words is a mistake, not a gap."""
    return isinstance(X, list | tuple) and any(hasattr(text, "states") for text in X)


def encode_sentences(vocabulary: Vocabulary, X: Any) -> list[npt.NDArray[np.uint32]]:
    """Each sentence as ids of `vocabulary`; tokens are looked up, the ids of a Corpus translated."""
    if not isinstance(X, Corpus):
        return [vocabulary.encode(tokens) for tokens in checked_sentences(X)]
    if X.vocabulary == vocabulary:
        return list(X.sentences())
    # words meet by their spelling, the special words by their role
    table = vocabulary.encode(X.vocabulary.words)
    table[X.vocabulary.unknown_id] = vocabulary.unknown_id
    if X.vocabulary.boundary_id is not None and vocabulary.boundary_id is not None:
        table[X.vocabulary.boundary_id] = vocabulary.boundary_id
    return [table[ids] for ids in X.sentences()]
