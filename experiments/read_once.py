"""A representation that reads each batch of sentences once, for all taggers that are trained on them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class ReadOnce:
    """Gives what another representation gives, and remembers it by the words of the sentences."""

    def __init__(self, read: Any) -> None:
        self.read, self.name, self.window = read, read.name, read.window
        self.dense = getattr(read, "dense", False)
        self.network_only = getattr(read, "network_only", False)
        self.kept: dict[str, Any] = {}
        if hasattr(read, "vectors"):  # a CRF with a network reads those of all that have any
            self.vectors = partial(self._once, read.vectors)

    def _once(self, make: Callable[[Any], Any], sentences: Any) -> Any:
        key = make.__name__ + "\n" + "\n".join(" ".join(s) for s in sentences)
        if key not in self.kept:
            self.kept[key] = make(sentences)
        return self.kept[key]

    def features(self, sentences: Any) -> Any:
        return self.read.features(sentences)

    def sparse_rows(self, sentences: Any) -> Any:
        return self._once(self.read.sparse_rows, sentences)
