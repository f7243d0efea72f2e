"""undertow: latent-state models of text, the hidden state under the words."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from undertow.adapters.document_encoder import DocumentEncoder
    from undertow.models.dynamic.model import DynamicEmbedding
    from undertow.models.factorial.model import FactorialHMM
    from undertow.models.grammar.model import Grammar
    from undertow.models.hmm.model import HMM
    from undertow.models.lds.model import LDS
    from undertow.questions.evidence import Evidence
    from undertow.results.context_vectors import ContextVectors
    from undertow.results.interpolation import Interpolation
    from undertow.results.pmi_vectors import PMIVectors
    from undertow.results.selection import select
    from undertow.results.tagging import CRFTagger, LocalTagger, Tagger
    from undertow.results.word_clusters import WordClusters
    from undertow.storage import load_model as load
    from undertow.text.corpus import Corpus
    from undertow.text.events import Events
    from undertow.text.lag_counts import LagCounts
    from undertow.text.tokenizer import Tokenizer
    from undertow.text.vocabulary import Vocabulary

# Loaded on first use: `undertow --help` must not wait for SciPy and Numba.
_WHERE = {
    "HMM": ("undertow.models.hmm.model", "HMM"),
    "DynamicEmbedding": ("undertow.models.dynamic.model", "DynamicEmbedding"),
    "Events": ("undertow.text.events", "Events"),
    "Grammar": ("undertow.models.grammar.model", "Grammar"),
    "LDS": ("undertow.models.lds.model", "LDS"),
    "FactorialHMM": ("undertow.models.factorial.model", "FactorialHMM"),
    "DocumentEncoder": ("undertow.adapters.document_encoder", "DocumentEncoder"),
    "Corpus": ("undertow.text.corpus", "Corpus"),
    "LagCounts": ("undertow.text.lag_counts", "LagCounts"),
    "Tokenizer": ("undertow.text.tokenizer", "Tokenizer"),
    "Vocabulary": ("undertow.text.vocabulary", "Vocabulary"),
    "Interpolation": ("undertow.results.interpolation", "Interpolation"),
    "WordClusters": ("undertow.results.word_clusters", "WordClusters"),
    "ContextVectors": ("undertow.results.context_vectors", "ContextVectors"),
    "PMIVectors": ("undertow.results.pmi_vectors", "PMIVectors"),
    "CRFTagger": ("undertow.results.tagging", "CRFTagger"),
    "LocalTagger": ("undertow.results.tagging", "LocalTagger"),
    "Tagger": ("undertow.results.tagging", "Tagger"),
    "Evidence": ("undertow.questions.evidence", "Evidence"),
    "load": ("undertow.storage", "load_model"),
    "select": ("undertow.results.selection", "select"),
}

__all__ = [
    "HMM",
    "LDS",
    "CRFTagger",
    "ContextVectors",
    "Corpus",
    "DocumentEncoder",
    "DynamicEmbedding",
    "Events",
    "Evidence",
    "FactorialHMM",
    "Grammar",
    "Interpolation",
    "LagCounts",
    "LocalTagger",
    "PMIVectors",
    "Tagger",
    "Tokenizer",
    "Vocabulary",
    "WordClusters",
    "__version__",
    "load",
    "select",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'undertow' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
