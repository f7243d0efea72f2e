"""The unlabelled text of a `Tagger`, in whatever form it is given: one corpus, with the labelled words at its end."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undertow.errors import InputError, short
from undertow.progress import ProgressFn
from undertow.results.tagging.representation import respelled, word_rule
from undertow.text.corpus import MANIFEST, Corpus
from undertow.text.reading import expand_inputs
from undertow.text.vocabulary import Vocabulary

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
        if any(os.path.isdir(item) for item in items):
            return with_sentences(_corpus_of(items), words)
        return with_sentences(_corpus_of_files(items, work, n_jobs, progress), words, VOCABULARY_SIZE)
    if any(isinstance(item, str | os.PathLike) for item in items):
        raise InputError("text has both file names and token lists: give one kind.")
    if not any(map(len, items)):
        raise InputError("text has no token: give some, or leave it out.")
    return Corpus.from_sentences(itertools.chain(items, words), vocab_size=VOCABULARY_SIZE, unknown_classes=True)


def _corpus_of(names: list[Files]) -> Corpus:
    """The corpus of a directory."""
    if len(names) > 1:
        raise InputError("text has a directory beside other names: give one corpus, or files alone.")
    if not (Path(names[0]) / MANIFEST).exists():
        raise InputError(f"{os.fspath(names[0])} is a directory and no corpus: give a pattern of the files in it.")
    return Corpus.open(Path(names[0]))


def _corpus_of_files(names: list[Files], work: Path, n_jobs: int | None, progress: ProgressFn) -> Corpus:
    """A corpus of these files, kept in `work`."""
    sources = expand_inputs([os.fspath(name) for name in names])
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


def with_sentences(corpus: Corpus, sentences: Iterable[Sequence[str]], n_words: int = 0) -> Corpus:
    """A corpus with more sentences at its end; its counts are those of the whole.

    Tokens are spelled as the corpus's tokenizer would have, if that is undertow's; one that it would split is split.
    New words join the vocabulary, by falling count, until it has `n_words`. The ids are held in memory: 4 bytes each.
    """
    described = corpus.manifest.get("tokenizer")
    rule = word_rule(described)
    spelled: dict[str, list[str]] = {}
    more: list[list[str]] = []
    for tokens in sentences:
        for token in tokens:
            if token not in spelled:
                known = [token] if rule is None else respelled(token, corpus.vocabulary, rule, pieces=True)
                spelled[token] = known
        more.append([piece for token in tokens for piece in spelled[token]])
    vocabulary = _extended(corpus.vocabulary, more, n_words)
    end = [] if vocabulary.boundary is None else [vocabulary.boundary]
    encoded = [vocabulary.encode([*tokens, *end]) for tokens in more if tokens]
    ids = np.concatenate([np.asarray(corpus.ids), *encoded]).astype(np.uint32, copy=False)
    lengths = np.concatenate([np.diff(corpus.offsets), np.array([len(e) for e in encoded], dtype=np.int64)])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    counts = np.bincount(ids, minlength=len(vocabulary))
    manifest = {} if described is None else {"tokenizer": described}
    return Corpus(ids, offsets, vocabulary.with_counts(counts), manifest=manifest)


def _extended(vocabulary: Vocabulary, sentences: list[list[str]], n_words: int) -> Vocabulary:
    """The vocabulary with the most frequent new words behind its own, `n_words` in all."""
    new = Counter(word for tokens in sentences for word in tokens if word not in vocabulary)
    ranked = sorted(new, key=lambda word: (-new[word], word))[: max(0, n_words - len(vocabulary))]
    if not ranked:
        return vocabulary
    words, counts = [*vocabulary.words, *ranked], [*vocabulary.counts.tolist(), *[0] * len(ranked)]
    return Vocabulary(words, counts, boundary=vocabulary.boundary is not None, n_classes=vocabulary.n_classes)
