"""Documents as rows of numbers, for scikit-learn: the vectors or the states of their tokens, pooled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from undertow.adapters.pooling import last_rows, maxima, state_counts, weighted_means
from undertow.adapters.spacy_docs import parts_of
from undertow.errors import InputError, NotFittedError, missing_extra, short
from undertow.kernels.types import F32, F64
from undertow.models.base import Estimator
from undertow.models.factorial.model import FactorialHMM
from undertow.results.tagging.representation import Vectors
from undertow.storage import load_model
from undertow.text.sentences import BATCH_TOKENS
from undertow.text.tokenizer import checked_sentences, is_spacy_text, tokenizer_from
from undertow.text.vocabulary import Vocabulary

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.exceptions import NotFittedError as SklearnNotFittedError
    from sklearn.frozen import FrozenEstimator
except ImportError as e:
    raise missing_extra("DocumentEncoder is a transformer of scikit-learn 1.6 or later", "sklearn") from e

POOLINGS = ("mean", "max", "tfidf", "last", "states")

Document = list[list[str]]  # its sentences


class UnfittedEncoderError(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]  # scikit-learn has no types
    """An encoder was used before `fit`; scikit-learn and undertow both know this error."""


class DocumentEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A transformer of scikit-learn that turns documents into rows of numbers by a model of undertow.

    Parameters
    ----------
    model
        A fitted model or the path of a saved one, used as it is, also by the copies that `clone` and `GridSearchCV`
        make. A model that is not fitted yet is fitted to the documents, a copy in each `fit`. Among the values of a
        grid, write paths or scikit-learn's `FrozenEstimator(model)`: it clones those values, and a clone is not fitted.
    pooling
        "mean" and "max" over the vectors of the tokens; "tfidf", their mean weighted by the inverse document frequency
        of the words; "last", the vector of the last token; "states", how many tokens are in each hidden state, as a
        sparse matrix (models with states only).
    view
        A view of the model's `transform`; None for its default. Not with "states".
    tokenizer
        A function from a string to tokens or to token lists; None tokenizes strings like the model's training text.

    Attributes
    ----------
    model_ : Estimator
        The fitted model.
    idf_ : array (V,)
        Inverse document frequencies of the words; only with "tfidf".
    n_features_out_ : int
        Width of the rows.

    Examples
    --------
    >>> from undertow import HMM, DocumentEncoder
    >>> model = HMM(2, n_iter=5, random_state=0).fit([["a", "b", "a", "b"], ["b", "a"]])
    >>> DocumentEncoder(model, pooling="mean").fit_transform(["a b a", ["b", "b"]]).shape
    (2, 2)
    """

    def __init__(
        self,
        model: Estimator | str | os.PathLike[str],
        pooling: str = "mean",
        *,
        view: str | None = None,
        tokenizer: Callable[[str], Iterable[Any]] | None = None,
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.view = view
        self.tokenizer = tokenizer

    # --- scikit-learn's interface -----------------------------------------------------------------------

    def fit(self, X: Iterable[Any], y: Any = None) -> Self:
        """Load or fit the model if need be, and count the documents of each word for "tfidf".

        Parameters
        ----------
        X
            Documents: strings, token lists, or Docs of spaCy.
        y
            Ignored.

        Returns
        -------
        DocumentEncoder
            The encoder itself.

        Raises
        ------
        InputError
            If a parameter is invalid, the model has no such vectors or states, or X holds no documents.
        """
        if self.pooling not in POOLINGS:
            raise InputError(f"DocumentEncoder: pooling={short(self.pooling)} must be one of {', '.join(POOLINGS)}.")
        if self.view is not None and self.pooling == "states":
            raise InputError(f"DocumentEncoder: view={short(self.view)} is one of vectors: leave it out with states.")
        model = self._given_model()
        self._check_abilities(model)
        documents = list(self._read(X, model))
        if not documents:
            raise InputError("DocumentEncoder: there is no document to fit to: give at least one.")
        if not model.__sklearn_is_fitted__():
            model = model.__sklearn_clone__()
            model.fit([s for document in documents for s in document])
        self.model_, self._reader = model, Vectors(model, self.view, pieces=True)
        if self.pooling == "tfidf":
            self.idf_ = inverse_document_frequencies(model.vocabulary_, map(self._reader.spelled, documents))
        self.n_features_out_ = int(self._encode([[[]]]).shape[1])
        return self

    def transform(self, X: Iterable[Any]) -> F32 | sparse.csr_matrix:
        """Encode documents.

        Parameters
        ----------
        X
            Documents: strings, token lists, or Docs of spaCy. A document without tokens gets zeros.

        Returns
        -------
        array (n_documents, d), float32
            A sparse CSR matrix of token counts with "states".
        """
        if not self.__sklearn_is_fitted__():
            raise UnfittedEncoderError("This DocumentEncoder is not fitted yet: call fit first.")
        blocks = [self._encode(batch) for batch in document_batches(self._read(X, self.model_))]
        if not blocks:
            raise InputError("DocumentEncoder: there is no document to transform: give at least one.")
        if self.pooling == "states":
            return sparse.vstack(blocks, format="csr")
        return np.concatenate(blocks)

    def fit_transform(self, X: Iterable[Any], y: Any = None, **fit_params: Any) -> F32 | sparse.csr_matrix:
        """`fit`, then `transform` of the same documents, which may come from an iterator.

        Parameters
        ----------
        X
            Documents.
        y
            Ignored.
        **fit_params
            Accepted for scikit-learn's sake; `fit` takes none.

        Returns
        -------
        array (n_documents, d), float32
            A sparse CSR matrix of token counts with "states".
        """
        return super().fit_transform(as_list(X), y, **fit_params)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns.

        Parameters
        ----------
        input_features
            Ignored: documents have no columns.

        Returns
        -------
        array (d,) of str
            The kind of the model and a number, such as "lds0"; with "states" "state0", or "layer0_state0".
        """
        if not self.__sklearn_is_fitted__():
            raise UnfittedEncoderError("This DocumentEncoder is not fitted yet: call fit first.")
        if self.pooling != "states":
            return np.array([f"{self.model_.kind}{i}" for i in range(self.n_features_out_)], dtype=object)
        layered, sizes = isinstance(self.model_, FactorialHMM), state_sizes(self.model_)
        prefixes = [f"layer{m}_" if layered else "" for m in range(len(sizes))]
        names = [f"{prefix}state{z}" for prefix, k in zip(prefixes, sizes, strict=True) for z in range(k)]
        return np.array(names, dtype=object)

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; `model__n_components` is one of a model that is not fitted yet.

        Parameters
        ----------
        **params
            New values.

        Returns
        -------
        DocumentEncoder
            The encoder itself.

        Raises
        ------
        InputError
            For a parameter of a fitted model, which would change nothing.
        """
        model = params.get("model", self.model)
        for name in params:
            if name.startswith("model__") and is_fitted(model):
                raise InputError(
                    f"DocumentEncoder: {name} would change nothing, as the model is fitted: give one that is not."
                )
        super().set_params(**params)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return "n_features_out_" in vars(self)

    def __sklearn_clone__(self) -> Self:
        copied: Self = super().__sklearn_clone__()
        if is_fitted(self.model):
            copied.model = self.model  # a fitted model is used as it is, and shared
        return copied

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.input_tags.sparse = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    # --- how it is done ---------------------------------------------------------------------------------

    def _given_model(self) -> Any:
        if isinstance(self.model, str | os.PathLike):
            return load_model(self.model)
        if isinstance(self.model, FrozenEstimator):
            return self.model.estimator
        if not isinstance(self.model, Estimator):
            raise InputError(
                f"DocumentEncoder: model={short(self.model)} must be a model of undertow, or the path of a saved one."
            )
        return self.model

    def _check_abilities(self, model: Estimator) -> None:
        if self.pooling == "states":
            if not (hasattr(model, "decode") and hasattr(model, "posterior")):
                raise InputError(f"DocumentEncoder: {type(model).__name__} has no states: choose another pooling.")
        elif not hasattr(model, "transform") or "view" not in signature(model.transform).parameters:
            raise InputError(f"DocumentEncoder: {type(model).__name__} has no vectors of tokens: take another model.")

    def _read(self, X: Iterable[Any], model: Estimator) -> Iterator[Document]:
        """Each document as at least one token list; strings are split by the tokenizer given, or the model's own."""
        split = self.tokenizer
        for number, document in enumerate(as_list(X)):
            if isinstance(document, str):
                split = split or tokenizer_from(getattr(model, "tokenizer_", None) if is_fitted(model) else None)
                pieces = list(split(document))
                yield list(checked_sentences([pieces] if pieces and isinstance(pieces[0], str) else pieces)) or [[]]
            elif is_spacy_text(document):
                yield list(checked_sentences(parts_of(document))) or [[]]
            elif isinstance(document, bytes | Mapping) or not isinstance(document, Iterable):
                raise InputError(
                    f"Document {number} is {short(document)}, of type {type(document).__name__}: "
                    "a document is a string, a list of tokens or a Doc of spaCy."
                )
            else:
                yield list(checked_sentences([document]))

    def _encode(self, documents: list[Document]) -> Any:
        """One row for each of a few documents, each of at least one sentence."""
        model, vocabulary = self.model_, self.model_.vocabulary_
        sentences = self._reader.spelled([s for document in documents for s in document])
        tokens_before = np.cumsum([0, *map(len, sentences)])
        bounds = tokens_before[np.cumsum([0, *map(len, documents)])]
        if self.pooling == "states":
            states = np.concatenate(model.decode(sentences, method="posterior"))
            return state_counts(states, bounds, state_sizes(model))
        rows = np.concatenate(model.transform(sentences, **({} if self.view is None else {"view": self.view})))
        if self.pooling == "tfidf":
            return weighted_means(rows, bounds, self.idf_[np.concatenate([vocabulary.encode(s) for s in sentences])])
        return {"mean": weighted_means, "max": maxima, "last": last_rows}[self.pooling](rows, bounds)


def is_fitted(model: Any) -> bool:
    return isinstance(model, Estimator) and model.__sklearn_is_fitted__()


def as_list(X: Any) -> Iterable[Any]:
    """Documents that can be read twice; refuses a single string and tables, whose rows no loop over them gives."""
    if isinstance(X, str | bytes | Mapping) or is_spacy_text(X) or not isinstance(X, Iterable):
        raise InputError(f"DocumentEncoder: give a list of documents, not a single {type(X).__name__}.")
    if hasattr(X, "columns"):
        raise InputError("DocumentEncoder: give one column of the table, such as table['text'], not all of it.")
    return X if isinstance(X, list) else list(X)


def document_batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Groups of documents of about as many tokens as models read at once."""
    held: list[Document] = []
    n_held = 0
    for document in documents:
        held.append(document)
        n_held += sum(map(len, document))
        if n_held >= BATCH_TOKENS:
            yield held
            held, n_held = [], 0
    if held:
        yield held


def inverse_document_frequencies(vocabulary: Vocabulary, documents: Iterable[Document]) -> F64:
    """(V,) log((1 + n)/(1 + n_w)) + 1 for n documents, n_w of them with the word, as scikit-learn's Tfidf classes."""
    n, with_word = 0, np.zeros(len(vocabulary))
    for document in documents:
        n += 1
        ids = vocabulary.encode(token for sentence in document for token in sentence)
        with_word[ids] += 1  # once, however often the id is there
    return np.log((1 + n) / (1 + with_word)) + 1


def state_sizes(model: Any) -> tuple[int, ...]:
    """(Z,) for a model with Z states, the states of each layer for one with layers."""
    if isinstance(model, FactorialHMM):
        return model.params_.sizes
    return (int(model.posterior([[]])[0].shape[1]),)


__all__ = ["POOLINGS", "DocumentEncoder"]
