"""The vectors of a model as a layer of PyTorch, for networks on top of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from undertow.errors import InputError
from undertow.text.tokenizer import checked_sentences


class PaddedTokens(NamedTuple):
    """Sentences of unequal length as one tensor.

    Attributes
    ----------
    vectors
        (B, T, d), zeros after the end of a sentence.
    mask
        (B, T), True where there is a token.
    """

    vectors: Tensor
    mask: Tensor


class TokenVectors(nn.Module):
    """A layer that turns token lists into padded vectors of their tokens.

    Parameters
    ----------
    model
        A fitted model with vectors of tokens. It is not part of the state_dict.
    view
        A view of the model's `transform`; None for its default.
    trainable
        False: all numbers are the model's. True: the half of the view "features" of an LDS that is the word without
        context is an embedding that starts from the model and is trained; the half in context stays the model's.

    Raises
    ------
    InputError
        If the model has no such vectors, or the view has no words that could be trained.

    Examples
    --------
    >>> from undertow import HMM
    >>> from undertow.neural import TokenVectors
    >>> model = HMM(2, n_iter=1, random_state=0).fit([["a", "b", "a"], ["b", "a"]])
    >>> vectors, mask = TokenVectors(model)([["a", "b"], ["a"]])
    >>> tuple(vectors.shape), mask.tolist()
    ((2, 2, 2), [[True, True], [True, False]])
    """

    _place: Tensor

    def __init__(self, model: Any, view: str | None = None, *, trainable: bool = False) -> None:
        super().__init__()
        if not hasattr(model, "transform"):
            raise InputError(f"TokenVectors: {type(model).__name__} has no vectors of tokens: take another model.")
        if trainable and (not hasattr(model, "word_vectors") or view not in (None, "features")):
            raise InputError("TokenVectors: only the view 'features' of an LDS holds words that can be trained.")
        self.model = model
        self.view = view
        self.words: nn.Embedding | None = None
        if trainable:
            table = torch.from_numpy(model.word_vectors().copy())
            self.words = nn.Embedding(len(table), table.shape[1], _weight=table)
        # where the numbers go; a layer without weights has no other way to know
        self.register_buffer("_place", torch.zeros(0), persistent=False)
        self._options = {} if view is None else {"view": view}
        self.width = int(model.transform([[]], **self._options)[0].shape[1])

    def forward(self, sentences: Iterable[Any]) -> PaddedTokens:
        """The vectors of the tokens of some sentences.

        Parameters
        ----------
        sentences
            Token lists, or Docs of spaCy.

        Returns
        -------
        PaddedTokens
            On the device of the layer.

        Raises
        ------
        InputError
            If there is no sentence.
        """
        tokens = list(checked_sentences(sentences))
        if not tokens:
            raise InputError("TokenVectors: there is no sentence: give at least one.")
        place = self._place.device
        rows = [torch.from_numpy(r.copy()).to(place) for r in self.model.transform(tokens, **self._options)]
        if self.words is not None:
            encode = self.model.vocabulary_.encode
            ids = [torch.from_numpy(encode(words).astype("int64")).to(place) for words in tokens]
            n = self.words.embedding_dim
            rows = [torch.cat([self.words(i), r[:, n:]], dim=1) for i, r in zip(ids, rows, strict=True)]
        lengths = torch.tensor([len(words) for words in tokens], device=place)
        mask = torch.arange(int(lengths.max()), device=place)[None] < lengths[:, None]
        return PaddedTokens(pad_sequence(rows, batch_first=True), mask)


__all__ = ["PaddedTokens", "TokenVectors"]
