"""Taggers that read the features of models, and scores of their tags."""

from undertow.models.base import LittleTextWarning
from undertow.results.tagging.crf import CRFTagger
from undertow.results.tagging.local import LocalTagger
from undertow.results.tagging.representation import Paths, Posteriors, States, Vectors
from undertow.results.tagging.scores import Accuracy, Report, SpanScore, span_scores
from undertow.results.tagging.spans import Span, convert, scheme_of, spans_of, tags_of
from undertow.results.tagging.tagger import Tagger
from undertow.results.tagging.token_features import Representation

__all__ = [
    "Accuracy",
    "CRFTagger",
    "LittleTextWarning",
    "LocalTagger",
    "Paths",
    "Posteriors",
    "Report",
    "Representation",
    "Span",
    "SpanScore",
    "States",
    "Tagger",
    "Vectors",
    "convert",
    "scheme_of",
    "span_scores",
    "spans_of",
    "tags_of",
]
