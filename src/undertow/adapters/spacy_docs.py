"""Docs of spaCy as sentences; spaCy itself is not imported here."""

from __future__ import annotations

from typing import Any


def parts_of(doc: Any) -> list[Any]:
    """The sentences of a Doc or Span as Spans, or all of it where no component has divided it."""
    whole = getattr(doc, "doc", doc)
    return list(doc.sents) if whole.has_annotation("SENT_START") else [doc]
