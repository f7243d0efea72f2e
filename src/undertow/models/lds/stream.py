"""An LDS fed one word at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from undertow.kernels.gaussian.stream import ChainStream
from undertow.text.vocabulary import Vocabulary

Vectors = npt.NDArray[np.float32]


class TokenStream:
    """`push` gives the filtered vector of a token at once and the smoothed one of the token `delay` tokens before it.

    `flush` ends the sentence and gives the smoothed vectors still due. Coordinates are those of `LDS.transform`; a word
    outside the vocabulary is treated as there.
    """

    def __init__(self, chain: ChainStream, vocabulary: Vocabulary, coordinates: Callable[[Vectors], Vectors]) -> None:
        self._chain = chain
        self._vocabulary = vocabulary
        self._coordinates = coordinates

    def push(self, token: str) -> tuple[Vectors, Vectors | None]:
        token_id = self._vocabulary.id(token)
        filtered, smoothed = self._chain.push(None if token_id == self._vocabulary.unknown_id else token_id)
        first = self._coordinates(filtered[None])[0]
        return first, None if smoothed is None else self._coordinates(smoothed[None])[0]

    def flush(self) -> Vectors:
        return self._coordinates(self._chain.flush())
