"""The unlabelled text of a `Tagger`, in whatever form it is given: one corpus, with the labelled words at its end."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undertow.errors import InputError, short
from undertow.progress import ProgressFn
from undertow.results.tagging.representation import respelled, word_rule
from undertow.text.corpus import MANIFEST, Corpus
from undertow.text.reading import expand_inputs

VOCABULARY_SIZE = 50_000  # of text that is read here; a Corpus brings its own

Files = str | os.PathLike[str]
TextSource = Corpus | Files | Iterable[Files] | Iterable[Sequence[str]] | None


def open_text(
    text: TextSource, words: list[list[str]], work: Path, n_jobs: int | None, progress: ProgressFn
) -> Corpus | None:
    """The text as a corpus, with the labelled words at its end.

    Parameters
    ----------
    text
        A corpus or its directory; file names or glob patterns, as `Corpus.build` reads them; token lists; or None.
    words
        The labelled sentences, spelled for the corpus as its tokenizer would have.
    work
        A directory for the corpus of text files; one that is there for the same files is taken over.
    n_jobs
        Processes that read large files.
    progress
        Told how much was read.

    Returns
    -------
    Corpus or None
        None if there is no text.

    Raises
    ------
    InputError
        If the text is none of these, or a file cannot be read.
    """
    if text is None:
        return None
    if isinstance(text, Corpus):
        return with_sentences(text, words)
    if isinstance(text, str | os.PathLike):
        text = [text]
    if not isinstance(text, Iterable):
        raise InputError(
            f"text={short(text)} is no text: give a Corpus, token lists, file names or glob patterns, or None."
        )
    items: list[Any] = list(text)
    if items and all(isinstance(item, str | os.PathLike) for item in items):
        return with_sentences(_opened(items, work, n_jobs, progress), words)
    if any(isinstance(item, str | os.PathLike) for item in items):
        raise InputError("text has both file names and token lists: give one kind.")
    if not any(map(len, items)):
        raise InputError("text has no token: give some, or leave it out.")
    return Corpus.from_sentences(itertools.chain(items, words), vocab_size=VOCABULARY_SIZE, unknown_classes=True)


def _opened(names: list[Files], work: Path, n_jobs: int | None, progress: ProgressFn) -> Corpus:
    """The corpus of this directory, or one of these files."""
    if any(os.path.isdir(name) for name in names):
        if len(names) > 1:
            raise InputError("text has a directory beside other names: give one corpus, or files alone.")
        if not (Path(names[0]) / MANIFEST).exists():
            raise InputError(f"{os.fspath(names[0])} is a directory and no corpus: give a pattern of the files in it.")
        return Corpus.open(Path(names[0]))
    sources = expand_inputs([Path(name) if name != "-" else "-" for name in names])
    place = work / f"corpus-{_files_key(sources)}"
    if place.exists():
        return Corpus.open(place)
    n_processes = 1 if n_jobs is None else n_jobs
    return Corpus.build(sources, place, vocab_size=VOCABULARY_SIZE, n_jobs=n_processes, progress=progress)


def _files_key(names: list[str]) -> str:
    """Hash of the files, by name, size and time of change, and of what is made of them."""
    facts = [(os.path.abspath(n), s.st_size, s.st_mtime_ns) for n in names if n != "-" for s in [os.stat(n)]]
    standard_input = os.urandom(8) if "-" in names else b""  # cannot be read again, so nothing is known to be of it
    return hashlib.sha256(repr((facts, standard_input, VOCABULARY_SIZE)).encode()).hexdigest()[:24]


def with_sentences(corpus: Corpus, sentences: Iterable[Sequence[str]]) -> Corpus:
    """A corpus with more sentences at its end, in its own vocabulary; its counts are those of the whole.

    Tokens are spelled as the corpus's tokenizer would have, if that is undertow's; one that it would split is split.
    The ids are held in memory, 4 bytes a token.
    """
    vocabulary = corpus.vocabulary
    described = corpus.manifest.get("tokenizer")
    rule = word_rule(described)
    spelled: dict[str, list[str]] = {}
    parts = [np.asarray(corpus.ids)]
    lengths = [np.diff(corpus.offsets)]
    end = [] if vocabulary.boundary is None else [vocabulary.boundary]
    for tokens in sentences:
        if not tokens:
            continue
        for token in tokens:
            if token not in spelled:
                known = [token] if rule is None else respelled(token, vocabulary, rule, pieces=True)
                spelled[token] = known
        parts.append(vocabulary.encode([*(piece for token in tokens for piece in spelled[token]), *end]))
        lengths.append(np.array([len(parts[-1])]))
    ids = np.concatenate(parts).astype(np.uint32, copy=False)
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    counts = np.bincount(ids, minlength=len(vocabulary))
    manifest = {} if described is None else {"tokenizer": described}
    return Corpus(ids, offsets, vocabulary.with_counts(counts), manifest=manifest)
