"""Text held out of a fit to stop it by."""

from __future__ import annotations

from typing import Any

import numpy as np

from undertow.errors import InputError, short
from undertow.models.base import encode_sentences, is_number
from undertow.text.corpus import Corpus


def split_text(corpus: Corpus, share: float | None, validation: Any) -> tuple[Corpus, Corpus | None]:
    """What to learn from and what to stop by: other text, or that share of the corpus, its end; None for neither."""
    if validation is not None:
        return corpus, part_of(corpus, encode_sentences(corpus.vocabulary, validation))
    if share is None:
        return corpus, None
    n = corpus.n_sentences - max(1, round(share * corpus.n_sentences))
    if n < 1:
        raise InputError("The corpus has one sentence, of which none can be held out: leave out validation.")
    sentences = list(corpus.sentences())
    return part_of(corpus, sentences[:n]), part_of(corpus, sentences[n:])


def part_of(corpus: Corpus, sentences: list[Any]) -> Corpus:
    """Some sentences as a corpus over the same words, with counts of their own."""
    ids = np.concatenate(sentences) if sentences else np.empty(0, dtype=np.uint32)
    offsets = np.concatenate(([0], np.cumsum([len(s) for s in sentences]))).astype(np.int64)
    if not len(ids):
        raise InputError("The text to validate on has no tokens: give some, or leave it out.")
    counts = np.bincount(ids, minlength=len(corpus.vocabulary))
    return Corpus(ids, offsets, corpus.vocabulary.with_counts(counts), manifest=corpus.manifest)


def check_share(value: Any, who: str) -> None:
    if value is not None and not (is_number(value) and 0 < value < 1):
        raise InputError(f"{who}: validation={short(value)} must be a share between 0 and 1, or None.")
