"""Results: word clusters, mixtures of models, taggers, word pairs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undertow.results.word_clusters import WordClusters

# imported on first use, as the names of the package are
_WHERE = {"WordClusters": "undertow.results.word_clusters"}

__all__ = ["WordClusters"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'undertow.results' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
