"""The unlabelled text of a `Tagger`, in whatever form it is given, as one corpus.

The labelled words are not added to it: a model would know all of them and not the words that come later, and a tagger
learns to trust it too much. With 5,000 labelled tokens and 150,000 of text that cost a point on unseen words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from undertow.errors import InputError, short
from undertow.progress import ProgressFn
from undertow.text.corpus import MANIFEST, Corpus
from undertow.text.corpus_build import corpus_recipe
from undertow.text.reading import expand_inputs

# of text that is read here: words seen once are classes of unknown words; a Corpus brings its own vocabulary
WORDS: dict[str, Any] = {"vocab_size": None, "min_count": 2, "unknown_classes": True}

Files = str | os.PathLike[str]
TextSource = Corpus | Files | Iterable[Files] | Iterable[Sequence[str]] | None


def open_text(text: TextSource, work: Path, n_jobs: int | None, progress: ProgressFn) -> Corpus | None:
    """The text as a corpus.

    Parameters
    ----------
    text
        A corpus or its directory; file names or glob patterns, as `Corpus.build` reads them; token lists; or None.
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
        return text
    if isinstance(text, str | os.PathLike):
        text = [text]
    if not isinstance(text, Iterable):
        raise InputError(
            f"text={short(text)} is not a text: give a Corpus, token lists, file names or glob patterns, or None."
        )
    items: list[Any] = list(text)
    if items and all(isinstance(item, str | os.PathLike) for item in items):
        if any(os.path.isdir(item) for item in items):
            return _corpus_of(items)
        return _corpus_of_files(items, work, n_jobs, progress)
    if any(isinstance(item, str | os.PathLike) for item in items):
        raise InputError("text has both file names and token lists: give one kind.")
    if not any(map(len, items)):
        raise InputError("text has no token: give some, or leave it out.")
    return Corpus.from_sentences(items, **WORDS)


def _corpus_of(names: list[Files]) -> Corpus:
    """The corpus of a directory."""
    if len(names) > 1:
        raise InputError("text has a directory beside other names: give one corpus, or files alone.")
    if not (Path(names[0]) / MANIFEST).exists():
        raise InputError(f"{os.fspath(names[0])} is a directory but not a corpus: give a pattern of the files in it.")
    return Corpus.open(Path(names[0]))


def _corpus_of_files(names: list[Files], work: Path, n_jobs: int | None, progress: ProgressFn) -> Corpus:
    """A corpus of these files, kept in `work`."""
    sources = expand_inputs([os.fspath(name) for name in names])
    place = work / f"corpus-{corpus_recipe(sources, **WORDS).key()}"
    n_processes = 1 if n_jobs is None else n_jobs
    return Corpus.build(sources, place, n_jobs=n_processes, progress=progress, **WORDS)
