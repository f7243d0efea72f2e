"""Texts of a language model as a corpus over its own tokens, for `HMM.distill`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from undertow.errors import InputError, short
from undertow.text.corpus import Corpus
from undertow.text.vocabulary import UNKNOWN, Vocabulary

Source = Callable[[], Iterable[Any]] | Iterable[Any]


def sampled_corpus(source: Source, n_tokens: int | None, vocab_size: int | None) -> Corpus:
    """Texts from a sampler until there are n_tokens, or from an iterable until it ends or there are so many.

    Tokens are strings, or whole numbers that become strings: 17 is the word "17".
    """
    for name, value in (("n_tokens", n_tokens), ("vocab_size", vocab_size)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1):
            raise InputError(f"HMM.distill: {name}={short(value)} must be a whole number, at least 1, or None.")
    if callable(source) and n_tokens is None:
        raise InputError("HMM.distill: a sampler never ends by itself: say with n_tokens how much to draw.")
    texts = _limited(_drawn(source) if callable(source) else source, n_tokens)
    if vocab_size is None:
        return Corpus.from_sentences(texts)
    words = [UNKNOWN, *map(str, range(int(vocab_size)))]
    return Corpus.from_sentences(texts, vocabulary=Vocabulary(words, [0] * len(words)))


def _drawn(sampler: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    while True:
        n = 0
        for text in sampler():
            n += 1
            yield text
        if n == 0:
            raise InputError("HMM.distill: the sampler returned no text: let each call return a batch of texts.")


def _limited(texts: Iterable[Any], n_tokens: int | None) -> Iterator[list[str]]:
    n = n_empty = 0
    for text in texts:
        tokens = _tokens(text)
        n += len(tokens)
        n_empty = 0 if tokens else n_empty + 1
        if n_empty > 10_000:
            raise InputError("HMM.distill: the sampler returns nothing but empty texts: let it write some tokens.")
        yield tokens
        if n_tokens is not None and n >= n_tokens:
            return


def _tokens(text: Any) -> list[str]:
    """A text as strings; arrays and tensors of ids have `tolist`."""
    if isinstance(text, str | bytes) or not (isinstance(text, Iterable) or hasattr(text, "tolist")):
        raise InputError(f"HMM.distill: a text is {short(text)}: give lists of tokens or of ids.")
    listed = text.tolist() if hasattr(text, "tolist") else list(text)
    for token in listed if isinstance(listed, list) else [listed]:
        if isinstance(token, bool) or not isinstance(token, str | int | np.integer):
            raise InputError(f"HMM.distill: a token is {short(token)}: give strings or whole numbers.")
    return [str(token) for token in listed]
