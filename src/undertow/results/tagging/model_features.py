"""What the adapters of fitted models share: the model, its name, window and scale, and how it spells tokens.

Tokens are looked up as the model's tokenizer would have written them (`lookup.py`), in pieces or in another casing if
that is asked for. `representation.py` has the adapters.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from undertow.errors import InputError
from undertow.models.base import Estimator
from undertow.results.tagging.lookup import check_casing, head, known_spelling, respelled, word_rule
from undertow.results.tagging.token_features import Features, Sentences, SparseRows
from undertow.text.tokenizer import Tokenizer

MAX_CACHED = 1_000_000


class ModelFeatures(abc.ABC):
    """What the adapters share: the model, its name in features, its window, and its spelling of tokens.

    Parameters
    ----------
    model
        A fitted model.
    name
        Begins the names of its features in a CRF; None for the kind of the model and of the adapter.
    window
        How many neighbors' features to each side a CRF reads too; None for the tagger's own window.
    respell
        None looks tokens up as the tokenizer of the model's text would have written them, if that is known to be
        undertow's; True does so even if it is not known; False never.
    pieces
        What to do with a token that the tokenizer would split, such as `spike-timing`. False makes it an unknown word.
        True shows the model all the pieces, as in its own text, and takes the features of the last one that has a
        letter or digit.
    casing
        Whether a word may be looked up in another casing: "known" if the vocabulary does not have it, "frequent" also
        if another casing is more frequent (see `undertow.results.tagging.lookup`); None looks words up as they are.
    scale
        Factor on all numbers. A CRF has one penalty for all weights, so a small factor makes it trust them less.

    Raises
    ------
    InputError
        If the model lacks the method that is read, or an argument is not allowed.
    """

    ability: str  # the method the model must have
    adapter: str  # the name in files
    dense = False  # whether a CRF reads `vectors` as one matrix
    added_options: ClassVar[Mapping[str, Any]] = {}  # that saved taggers of earlier versions lack, and their values

    def __init__(
        self,
        model: Estimator,
        *,
        name: str | None = None,
        window: int | None = None,
        respell: bool | None = None,
        pieces: bool = False,
        casing: str | None = None,
        scale: float = 1.0,
    ) -> None:
        if not hasattr(model, self.ability):
            raise InputError(
                f"{type(self).__name__} needs a model with the method {self.ability}, "
                f"and {type(model).__name__} has none."
            )
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or not 0 <= window <= 10):
            raise InputError(f"window={window!r} must be a whole number from 0 to 10, or None for the tagger's own.")
        if respell not in (None, True, False):
            raise InputError(f"respell={respell!r} must be True, False, or None for what the model's text says.")
        if pieces not in (True, False):
            raise InputError(f"pieces={pieces!r} must be True or False.")
        check_casing(casing)
        if not (isinstance(scale, int | float) and np.isfinite(scale)):
            raise InputError(f"scale={scale!r} must be a finite number.")
        self.model = model
        self.respell = respell
        self.pieces = pieces
        self.casing = casing
        self.scale = scale
        self.name = name or f"{getattr(model, 'kind', type(model).__name__)}-{self.adapter}"
        self.window = window
        self._spelling: dict[str, list[str]] = {}  # the pieces of a token; mostly one
        self._spelled_for: object = None  # the vocabulary that the spellings are of

    @abc.abstractmethod
    def sparse_rows(self, sentences: Sentences) -> SparseRows:
        """Features of the tokens as arrays.

        Parameters
        ----------
        sentences
            Token lists.

        Returns
        -------
        SparseRows
            Those that are 0 are left out.
        """

    def features(self, sentences: Sentences) -> Features:
        """Features of the tokens.

        Parameters
        ----------
        sentences
            Token lists.

        Returns
        -------
        list of lists of dicts
            For each token its features by name; those that are 0 are left out.
        """
        return self.sparse_rows(sentences).dicts(map(len, sentences))

    def options(self) -> dict[str, Any]:
        """The constructor's arguments beside the model.

        Returns
        -------
        dict
            JSON values.
        """
        return {
            "name": self.name,
            "window": self.window,
            "respell": self.respell,
            "pieces": self.pieces,
            "casing": self.casing,
            "scale": self.scale,
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, name={self.name!r})"

    def spelled(self, sentences: Sentences) -> list[list[str]]:
        """Tokens as the model's own text would have them.

        Parameters
        ----------
        sentences
            Token lists.

        Returns
        -------
        list of lists of str
            With `pieces` there may be more tokens than were given.
        """
        return [[piece for pieces in tokens for piece in pieces] for tokens in self._cut(sentences)]

    def _cut(self, sentences: Sentences) -> list[list[list[str]]]:
        """The pieces of each token."""
        rule = self._rule()
        if rule is None and self.casing is None:
            return [[[token] for token in tokens] for tokens in sentences]
        known = self._spelling
        # the cache must not grow without limit, and the model may have been fitted again
        if len(known) > MAX_CACHED or self._spelled_for is not self.model.vocabulary_:
            known.clear()
            self._spelled_for = self.model.vocabulary_
        for tokens in sentences:
            for token in tokens:
                if token not in known:
                    known[token] = self._spell(token, rule)
        return [[known[token] for token in tokens] for tokens in sentences]

    def _spell(self, token: str, rule: Tokenizer | None) -> list[str]:
        vocabulary = self.model.vocabulary_
        pieces = [token] if rule is None else respelled(token, vocabulary, rule, pieces=self.pieces)
        return pieces if self.casing is None else [known_spelling(p, vocabulary, self.casing) for p in pieces]

    def _ask(self, question: Any, sentences: Sentences) -> list[npt.NDArray[Any]]:
        """The rows of the model's answer for the tokens; for a token that was split, the row of its head."""
        cut = self._cut(sentences)
        answers = question([[piece for pieces in tokens for piece in pieces] for tokens in cut])
        return [_rows_of_heads(np.asarray(a), tokens) for a, tokens in zip(answers, cut, strict=True)]

    def _rule(self) -> Tokenizer | None:
        """The rule by which tokens are spelled; None: as they are."""
        if self.respell is False:
            return None
        own = word_rule(getattr(self.model, "tokenizer_", None))
        return own or (Tokenizer(sentences="lines") if self.respell else None)


def _rows_of_heads(rows: npt.NDArray[Any], tokens: list[list[str]]) -> npt.NDArray[Any]:
    if len(rows) == len(tokens):  # no token was cut
        return rows
    starts = np.cumsum([0, *(len(pieces) for pieces in tokens[:-1])])
    picked: npt.NDArray[Any] = rows[starts + [head(pieces) for pieces in tokens]]
    return picked
