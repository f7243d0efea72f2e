"""Text files as batches of sentences, for models that read text once: bounded memory, whatever the size of the text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from undertow import progress as progress_
from undertow.progress import Progress, ProgressFn
from undertow.text.reading import ReadingOptions, expand_inputs, read_chunks
from undertow.text.tokenizer import CallableTokenizer, Tokenizer

BATCH_TOKENS = 1 << 15  # 32,768 vectors of 400 numbers are 52 MB


def read_sentences(
    inputs: Sequence[str | Path],
    tokenizer: Tokenizer | CallableTokenizer | None = None,
    reading: ReadingOptions | None = None,
    progress: ProgressFn = progress_.ignore,
) -> Iterator[list[str]]:
    """Iterate over the sentences of text files as lists of tokens.

    Parameters
    ----------
    inputs
        File names, glob patterns, or "-" for standard input.
    tokenizer
        The tokenizer; by default `Tokenizer()`.
    reading
        The format of the files and other options of reading.
    progress
        Called with a `Progress` while reading.

    Yields
    ------
    list of str

    Raises
    ------
    InputError
        If a file cannot be read; the message names the file and the line or byte.
    """
    names = expand_inputs(inputs)
    rule = tokenizer or Tokenizer()
    total = None if "-" in names else sum(os.path.getsize(name) for name in names)
    before, read, source = 0, 0, None  # bytes of the files that are done; of the one at hand; its name
    for chunk in read_chunks(names, reading or ReadingOptions()):
        text = rule.tokenize(chunk.data, tokenized=chunk.tokenized)
        types = [word.decode("utf-8") for word in text.types]
        ends = np.cumsum(text.lengths).tolist()
        for end, n in zip(ends, text.lengths.tolist(), strict=True):
            yield [types[i] for i in text.ids[end - n : end].tolist()]
        before, source = before + (read if chunk.source != source else 0), chunk.source
        read = chunk.bytes_read
        progress(Progress("read", before + read, total, "B"))


def batches(sentences: Iterable[list[str]], n_tokens: int | None = None) -> Iterator[list[list[str]]]:
    """Group sentences into lists of about `n_tokens` tokens; the groups depend only on the sentences."""
    limit = BATCH_TOKENS if n_tokens is None else n_tokens
    held: list[list[str]] = []
    n_held = 0
    for sentence in sentences:
        held.append(sentence)
        n_held += len(sentence)
        if n_held >= limit:
            yield held
            held, n_held = [], 0
    if held:
        yield held
