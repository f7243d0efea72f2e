"""Features of tokens from fitted models, for taggers.

The classes below make a representation (`token_features.py`) from a fitted undertow model; only these are saved with a
tagger:

    Vectors      `transform(sentences, view)`: one number per dimension
    States       `decode(sentences)`: the most likely state, or one per layer
    Posteriors   `posterior(sentences)`: the probabilities of the states, where they are not negligible
    Paths        `path(word)`: prefixes of the bit string of the word's cluster, as people use Brown clusters

What they share, and how they spell tokens, is in `model_features.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from undertow.errors import InputError
from undertow.models.base import Estimator
from undertow.results.tagging.lookup import head
from undertow.results.tagging.model_features import ModelFeatures
from undertow.results.tagging.token_features import Arrays, Sentences, SparseRows

STATE_METHODS = {"hmm": "posterior", "fhmm": "viterbi"}  # of `States` where none is given, by the kind of the model


class Vectors(ModelFeatures):
    """The vectors of a model, from its `transform`.

    A vector of 200 numbers is 200 features of a token, and a window multiplies them. As the vectors of most models know
    their context already, `window` is 0 unless given.

    Parameters
    ----------
    model
        A fitted model with the method `transform`.
    view
        A view of `transform`; None for its default.
    network_only
        In a CRF with a network (`n_hidden`) the network alone reads these vectors, its linear part does not; without
        a network, and elsewhere, it changes nothing.
    name, window, respell, pieces, casing, scale
        As for all representations; see `ModelFeatures`.

    Examples
    --------
    >>> from undertow import HMM
    >>> from undertow.results.tagging import Vectors
    >>> model = HMM(2, n_iter=1, random_state=0).fit([["a", "b", "a"], ["b", "a"]])
    >>> Vectors(model).vectors([["a", "b"]])[0].shape
    (2, 2)
    """

    ability, adapter, dense = "transform", "vectors", True
    added_options: ClassVar[Mapping[str, Any]] = {"network_only": False}

    def __init__(
        self,
        model: Estimator,
        view: str | None = None,
        *,
        network_only: bool = False,
        name: str | None = None,
        window: int | None = 0,
        respell: bool | None = None,
        pieces: bool = False,
        casing: str | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(model, name=name, window=window, respell=respell, pieces=pieces, casing=casing, scale=scale)
        if view is not None and "view" not in signature(model.transform).parameters:  # type: ignore[attr-defined]
            raise InputError(f"{type(model).__name__} has one view of its vectors: leave out view={view!r}.")
        if not isinstance(network_only, bool):
            raise InputError(f"network_only={network_only!r} must be True or False.")
        self.view, self.network_only = view, network_only

    def options(self) -> dict[str, Any]:
        return {**super().options(), "view": self.view, "network_only": self.network_only}

    def vectors(self, sentences: Sentences) -> Arrays:
        """The numbers of the tokens as arrays.

        Parameters
        ----------
        sentences
            Token lists.

        Returns
        -------
        list of float32 arrays (n_tokens, d)
            One for each sentence.
        """
        chosen = {} if self.view is None else {"view": self.view}
        arrays = self._ask(lambda X: self.model.transform(X, **chosen), sentences)  # type: ignore[attr-defined]
        if any(np.ndim(a) != 2 for a in arrays):
            raise InputError(f"{type(self.model).__name__} gives no vectors by transform: use another representation.")
        return [np.asarray(a, dtype=np.float32) * np.float32(self.scale) for a in arrays]

    def sparse_rows(self, sentences: Sentences) -> SparseRows:
        arrays = self.vectors(sentences)
        d = arrays[0].shape[1] if arrays else 0
        n = sum(map(len, arrays))
        values = np.concatenate([a.reshape(-1) for a in arrays]) if arrays else np.zeros(0, dtype=np.float32)
        return SparseRows([str(i) for i in range(d)], d * np.arange(n + 1), np.tile(np.arange(d), n), values)


class States(ModelFeatures):
    """The most likely state of each token, from `decode`; one per layer if the model has several.

    Parameters
    ----------
    model
        A fitted model with the method `decode`.
    method
        How to decode, for models that know several ways. None is "posterior" for an HMM and "viterbi" for a
        FactorialHMM, whatever the default of `decode`: a saved tagger must read the states that it was trained on.
    name, window, respell, pieces, casing, scale
        As for all representations; see `ModelFeatures`.

    Examples
    --------
    >>> from undertow import HMM
    >>> from undertow.results.tagging import States
    >>> model = HMM(2, n_iter=1, random_state=0).fit([["a", "b", "a"], ["b", "a"]])
    >>> [len(token) for token in States(model).features([["a", "b"]])[0]]
    [1, 1]
    """

    ability, adapter = "decode", "states"

    def __init__(
        self,
        model: Estimator,
        *,
        method: str | None = None,
        name: str | None = None,
        window: int | None = None,
        respell: bool | None = None,
        pieces: bool = False,
        casing: str | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(model, name=name, window=window, respell=respell, pieces=pieces, casing=casing, scale=scale)
        if method is not None and "method" not in signature(model.decode).parameters:  # type: ignore[attr-defined]
            raise InputError(f"{type(model).__name__} decodes in one way: leave out method={method!r}.")
        self.method = method

    def options(self) -> dict[str, Any]:
        return {**super().options(), "method": self.method}

    def states(self, sentences: Sentences) -> list[npt.NDArray[Any]]:
        """The states of the tokens as arrays.

        Parameters
        ----------
        sentences
            Token lists.

        Returns
        -------
        list of int arrays (n_tokens,), or (n_tokens, n_layers)
            One for each sentence.
        """
        method = self.method or STATE_METHODS.get(self.model.kind)
        chosen = {} if method is None else {"method": method}
        return self._ask(lambda X: self.model.decode(X, **chosen), sentences)  # type: ignore[attr-defined]

    def sparse_rows(self, sentences: Sentences) -> SparseRows:
        rows = _side_by_side([_flat(c) for c in self.states(sentences)])
        n, n_layers = rows.shape
        # one number for a layer and its state
        found, ids = np.unique(rows.astype(np.int64) * n_layers + np.arange(n_layers), return_inverse=True)
        names = [f"{c % n_layers}={c // n_layers}" if n_layers > 1 else str(c) for c in found.tolist()]
        values = np.full(n * n_layers, self.scale, dtype=np.float32)
        return SparseRows(names, n_layers * np.arange(n + 1), ids.reshape(-1).astype(np.int64), values)


def _flat(a: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One row per token, all other axes side by side; `reshape(n, -1)` would fail for an empty sentence."""
    return a.reshape(len(a), int(np.prod(a.shape[1:])))


def _side_by_side(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The rows of all sentences; an empty sentence may not know how many columns there are."""
    filled = [a for a in arrays if len(a)]
    return np.concatenate(filled) if filled else np.zeros((0, 1))


class Posteriors(ModelFeatures):
    """The probability of each state at each token, from `posterior`.

    Parameters
    ----------
    model
        A fitted model with the method `posterior`.
    least
        Smaller probabilities are left out, whatever the scale.
    name, window, respell, pieces, casing, scale
        As for all representations; see `ModelFeatures`.

    Examples
    --------
    >>> from undertow import HMM
    >>> from undertow.results.tagging import Posteriors
    >>> model = HMM(2, n_iter=1, random_state=0).fit([["a", "b", "a"], ["b", "a"]])
    >>> [token] = Posteriors(model).features([["a"]])[0]
    >>> 0.9 < sum(token.values()) < 1.1
    True
    """

    ability, adapter = "posterior", "posteriors"

    def __init__(
        self,
        model: Estimator,
        *,
        least: float = 0.01,
        name: str | None = None,
        window: int | None = None,
        respell: bool | None = None,
        pieces: bool = False,
        casing: str | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(model, name=name, window=window, respell=respell, pieces=pieces, casing=casing, scale=scale)
        if not (isinstance(least, int | float) and 0 <= least < 1):
            raise InputError(f"least={least!r} must be a probability, at least 0 and below 1.")
        self.least = least

    def options(self) -> dict[str, Any]:
        return {**super().options(), "least": self.least}

    def vectors(self, sentences: Sentences) -> Arrays:
        """The numbers of the tokens as arrays.

        Parameters
        ----------
        sentences
            Token lists.

        Returns
        -------
        list of float32 arrays (n_tokens, d)
            One for each sentence.
        """
        return [p * np.float32(self.scale) for p in self._probabilities(sentences)]

    def sparse_rows(self, sentences: Sentences) -> SparseRows:
        p = _side_by_side(self._probabilities(sentences))
        token, state = np.nonzero(p > self.least)
        bounds = np.searchsorted(token, np.arange(len(p) + 1))
        values = (p[token, state] * self.scale).astype(np.float32)
        return SparseRows([str(i) for i in range(p.shape[1])], bounds, state, values)

    def _probabilities(self, sentences: Sentences) -> Arrays:
        arrays = self._ask(self.model.posterior, sentences)  # type: ignore[attr-defined]
        return [_flat(np.asarray(a, dtype=np.float32)) for a in arrays]


class Paths(ModelFeatures):
    """Prefixes of the bit string of each word's cluster, from `path`; a word without a path has none of them.

    Parameters
    ----------
    model
        A model with the method `path`, such as WordClusters.
    prefixes
        Lengths of the prefixes.
    name, window, respell, pieces, casing, scale
        As for all representations; see `ModelFeatures`.

    Examples
    --------
    >>> from undertow import WordClusters
    >>> from undertow.results.tagging import Paths
    >>> clusters = WordClusters(2).fit([["a", "b", "a"], ["b", "a"]])
    >>> Paths(clusters, prefixes=[1]).features([["a"]])
    [[{'1=0': 1.0}]]
    """

    ability, adapter = "path", "paths"

    def __init__(
        self,
        model: Estimator,
        *,
        prefixes: Iterable[int] = (4, 6, 10, 20),
        name: str | None = None,
        window: int | None = None,
        respell: bool | None = None,
        pieces: bool = False,
        casing: str | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__(model, name=name, window=window, respell=respell, pieces=pieces, casing=casing, scale=scale)
        self.prefixes = tuple(prefixes)
        if not self.prefixes or not all(isinstance(n, int) and n > 0 for n in self.prefixes):
            raise InputError(f"prefixes={self.prefixes!r} must be lengths of bit strings, such as (4, 6, 10, 20).")

    def options(self) -> dict[str, Any]:
        return {**super().options(), "prefixes": list(self.prefixes)}

    def sparse_rows(self, sentences: Sentences) -> SparseRows:
        words = [pieces[head(pieces)] for tokens in self._cut(sentences) for pieces in tokens]
        types = {word: i for i, word in enumerate(dict.fromkeys(words))}
        known: dict[str, int] = {}
        rows = [[known.setdefault(name, len(known)) for name in self._prefixes(word)] for word in types]
        ids = [i for word in words for i in rows[types[word]]]
        bounds = np.cumsum([0, *(len(rows[types[word]]) for word in words)])
        values = np.full(len(ids), self.scale, dtype=np.float32)
        return SparseRows(list(known), bounds, np.array(ids, dtype=np.int64), values)

    def _prefixes(self, word: str) -> list[str]:
        try:
            path = self.model.path(word)  # type: ignore[attr-defined]
        except InputError:  # clusters refuse a word that has none
            return []
        return [f"{n}={path[:n]}" for n in self.prefixes] if path else []
