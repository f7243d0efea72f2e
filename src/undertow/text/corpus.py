"""A corpus: flat token ids and sentence offsets, memory-mapped, with its vocabulary.

On disk it is a directory: `tokens.bin` (uint32, little-endian), `offsets.bin` (int64; sentence s is tokens
offsets[s] to offsets[s + 1]), `vocabulary.txt`, and `manifest.json`, written last, with sizes and hashes.
`corpus_build` writes such a directory.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import FormatError, InputError, short
from undertow.files import DIGEST, Fields, check_fields, check_files, check_seal, read_json, reread_if_replaced
from undertow.text.frames import text_rows
from undertow.text.reading import ReadingOptions
from undertow.text.tokenizer import TokenizedText, as_tokenizer, check_rule, number_sentences
from undertow.text.vocabulary import UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from undertow.text.corpus_build import BuildReport

FORMAT = "undertow corpus"
VERSION = 1
TOKENS, OFFSETS, VOCABULARY, MANIFEST = "tokens.bin", "offsets.bin", "vocabulary.txt", "manifest.json"
SCAN = 1 << 22  # numbers checked at a time: the results fit the processor's cache

# what a manifest says beside its format, version, files and digest
FIELDS: Fields = {
    "n_tokens": int, "n_sentences": int, "n_words": int, "tokenizer": dict, "boundary": (str, type(None)),
    "keep_empty": bool, "reading": dict, "sources": list, "text_bytes": int, "cut_lines": int, "bad_utf8": int,
}  # fmt: skip
READING_FIELDS: Fields = {name: type(value) for name, value in ReadingOptions()._asdict().items()}


class Corpus:
    """A corpus: sentences as arrays of word ids, with a vocabulary.

    Use `Corpus.build` to read text files into a directory, `Corpus.open` to memory-map such a directory, and
    `Corpus.from_sentences` or `Corpus.from_documents` for a corpus in memory.

    Parameters
    ----------
    ids
        The word ids of all tokens, one sentence after the other, uint32.
    offsets
        Sentence s is `ids[offsets[s]:offsets[s + 1]]`; int64, one more than there are sentences.
    vocabulary
        The words of the ids.
    path
        The directory of a corpus on disk.
    manifest
        The content of its `manifest.json`.

    Attributes
    ----------
    vocabulary : Vocabulary
        The words, with their counts in this corpus.
    n_tokens, n_sentences : int
        The size of the corpus; `len(corpus)` is the number of sentences.

    Raises
    ------
    InputError, FormatError
        If the offsets do not fit the ids; if an id is outside the vocabulary, when the ids are first used.

    Examples
    --------
    >>> from undertow import Corpus
    >>> corpus = Corpus.from_sentences([["a", "b", "a"], ["b", "a"]])
    >>> corpus
    Corpus(5 tokens, 2 sentences, 3 words)
    >>> corpus.vocabulary.words
    ('<unk>', 'a', 'b')
    >>> [sentence.tolist() for sentence in corpus.sentences()]
    [[1, 2, 1], [2, 1]]
    """

    def __init__(
        self,
        ids: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        vocabulary: Vocabulary,
        *,
        path: Path | None = None,
        manifest: dict[str, Any] | None = None,
    ):
        self._ids = ids
        self._ids_checked = False
        self.offsets = offsets
        self.vocabulary = vocabulary
        self.path = path
        self.manifest = manifest or {}
        self._check_offsets()

    @property
    def ids(self) -> NDArray[np.uint32]:
        """The word ids of all tokens, one sentence after the other.

        They are checked against the vocabulary once, when they are first used, because compiled loops use them as
        indices; not earlier, as a corpus may be opened for its vocabulary or its size alone.
        """
        if not self._ids_checked:
            n_words = len(self.vocabulary)
            for start in range(0, len(self._ids), SCAN):
                if int(self._ids[start : start + SCAN].max()) >= n_words:
                    raise self._wrong(f"a token between {start} and {start + SCAN} has an id outside the vocabulary")
            self._ids_checked = True
        return self._ids

    def _check_offsets(self) -> None:
        offsets = self.offsets
        if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(self._ids):
            raise self._wrong("the sentence offsets do not reach from the first token to the last")
        for start in range(0, len(offsets) - 1, SCAN):
            part = offsets[start : start + SCAN + 1]
            if (part[1:] < part[:-1]).any():
                raise self._wrong(f"sentence offsets run backwards after sentence {start}")

    def _wrong(self, what: str) -> FormatError | InputError:
        if self.path is None:
            return InputError(f"This is no corpus: {what}; make it with Corpus.from_sentences.")
        return FormatError(f"{self.path}: {what}; build the corpus again.")

    @property
    def n_tokens(self) -> int:
        """The number of tokens."""
        return len(self._ids)

    @property
    def n_sentences(self) -> int:
        """The number of sentences."""
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return self.n_sentences

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"Corpus({self.n_tokens} tokens, {self.n_sentences} sentences, {len(self.vocabulary)} words{where})"

    def sentences(self) -> Iterator[NDArray[np.uint32]]:
        """Iterate over the sentences as arrays of ids.

        Yields
        ------
        array of uint32
            A view of the ids of one sentence, not a copy.
        """
        ids, offsets = self.ids, self.offsets
        step = 1 << 16  # offsets are read in runs, so that a huge corpus does not become a Python list
        for first in range(0, self.n_sentences, step):
            edges = offsets[first : first + step + 1].tolist()
            for a, b in itertools.pairwise(edges):
                yield ids[a:b]

    def token_lists(self) -> Iterator[list[str]]:
        """Iterate over the sentences as lists of words.

        Yields
        ------
        list of str
            Words outside the vocabulary are the unknown word.
        """
        for ids in self.sentences():
            yield self.vocabulary.decode(ids)

    def shards(self, n_tokens: int) -> list[tuple[int, int]]:
        """Divide the sentences into shards of about equal size.

        Parameters
        ----------
        n_tokens
            The number of tokens of a shard; it ends with the sentence that reaches it.

        Returns
        -------
        list of (int, int)
            The first sentence of each shard, and the one after its last.

        Raises
        ------
        InputError
            If `n_tokens` is below 1.
        """
        if n_tokens < 1:
            raise InputError(f"A shard of {n_tokens} tokens is not possible: give at least 1.")
        marks = np.arange(n_tokens, self.n_tokens, n_tokens)
        cuts = np.unique(np.searchsorted(self.offsets, marks))
        edges = [0, *cuts[(cuts > 0) & (cuts < self.n_sentences)].tolist(), self.n_sentences]
        return list(itertools.pairwise(edges))

    @classmethod
    def from_sentences(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        vocab_size: int | None = None,
        min_count: int = 1,
        vocabulary: Vocabulary | None = None,
        boundary: str | None = None,
        unknown_classes: bool = False,
    ) -> Corpus:
        """Make a corpus in memory from token lists; empty sentences are dropped.

        Parameters
        ----------
        sentences
            An iterable of lists of tokens.
        vocab_size
            The number of words to keep, special words included; None keeps all.
        min_count
            Drop words that occur less often.
        vocabulary
            Encode with this vocabulary instead of choosing one.
        boundary
            A word to append to every sentence, such as "<eos>".
        unknown_classes
            Map words outside the vocabulary to classes by their spelling instead of one unknown word.

        Returns
        -------
        Corpus

        Raises
        ------
        InputError
            If there is no token, or an option is invalid.

        Examples
        --------
        >>> from undertow import Corpus
        >>> corpus = Corpus.from_sentences([["a", "rare", "word"], ["a", "word"]], vocab_size=3, boundary="<eos>")
        >>> list(corpus.token_lists())
        [['a', '<unk>', '<unk>', '<eos>'], ['a', '<unk>', '<eos>']]
        """
        text = number_sentences(sentences)
        if not len(text.ids):
            raise InputError("There is no token in these sentences: a corpus needs at least one.")
        return cls._from_tokens(
            text,
            vocab_size=vocab_size,
            min_count=min_count,
            vocabulary=vocabulary,
            boundary=boundary,
            unknown_classes=unknown_classes,
        )

    @classmethod
    def from_documents(
        cls,
        documents: Any,
        text_field: str = "text",
        *,
        tokenizer: Any = None,
        vocab_size: int | None = None,
        min_count: int = 1,
        vocabulary: Vocabulary | None = None,
        boundary: str | None = None,
        unknown_classes: bool = False,
    ) -> Corpus:
        """Make a corpus in memory from texts: rows of a table, or strings.

        Parameters
        ----------
        documents
            A DataFrame of pandas or Polars, an Arrow table, a `datasets.Dataset` of Hugging Face, any iterable of
            dictionaries, or an iterable of strings. Line ends in a text end paragraphs, as in files.
        text_field
            The column or field of the text.
        tokenizer
            A `Tokenizer`, "words", "spaces", or a callable line → tokens.
        vocab_size, min_count, vocabulary, boundary, unknown_classes
            As in `from_sentences`.

        Returns
        -------
        Corpus

        Raises
        ------
        InputError
            If a row has no such field, a text is not a string, or there is no token.

        Examples
        --------
        >>> from undertow import Corpus
        >>> corpus = Corpus.from_documents([{"text": "The river is wide."}, {"text": "It runs to the sea."}])
        >>> next(corpus.token_lists())
        ['The', 'river', 'is', 'wide', '.']
        """
        rule = as_tokenizer(tokenizer)
        text = rule.tokenize("\n".join(text_rows(documents, text_field)).encode("utf-8"))
        if not len(text.ids):
            raise InputError("There is no token in these documents: a corpus needs at least one.")
        return cls._from_tokens(
            text,
            vocab_size=vocab_size,
            min_count=min_count,
            vocabulary=vocabulary,
            boundary=boundary,
            unknown_classes=unknown_classes,
            manifest={"tokenizer": rule.describe()},
        )

    @classmethod
    def _from_tokens(
        cls,
        text: TokenizedText,
        *,
        vocab_size: int | None,
        min_count: int,
        vocabulary: Vocabulary | None,
        boundary: str | None,
        unknown_classes: bool,
        manifest: dict[str, Any] | None = None,
    ) -> Corpus:
        counts = zip((t.decode("utf-8") for t in text.types), text.counts.tolist(), strict=True)
        vocabulary = choose_vocabulary(
            counts,
            len(text.lengths),
            size=vocab_size,
            min_count=min_count,
            given=vocabulary,
            boundary=boundary,
            classes=unknown_classes,
        )
        ids = encode_part(text, vocabulary)
        lengths = text.lengths + (vocabulary.boundary_id is not None)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        known = vocabulary.with_counts(np.bincount(ids, minlength=len(vocabulary)))
        return cls(ids, offsets, known, manifest=manifest)

    @classmethod
    def build(cls, inputs: Any, path: str | Path, **options: Any) -> Corpus:
        """Read text files into a corpus directory and open it.

        If interrupted, call it again with the same arguments to resume.

        Parameters
        ----------
        inputs
            A file name, a glob pattern, "-" for standard input, or a list of these.
        path
            The directory to write.
        **options
            The parameters of `undertow.text.corpus_build.build_corpus`: `vocab_size`, `min_count`, `vocabulary`,
            `tokenizer`, `boundary`, `unknown_classes`, `keep_empty`, `reading`, `n_jobs`, `memory`, `overwrite` and
            `progress`.

        Returns
        -------
        Corpus

        Raises
        ------
        InputError
            If an input cannot be read or an option is invalid; the message names the file and the line or byte.
        BusyError
            If another process is writing the same directory.
        """
        corpus, _ = cls.build_with_report(inputs, path, **options)
        return corpus

    @classmethod
    def build_with_report(cls, inputs: Any, path: str | Path, **options: Any) -> tuple[Corpus, BuildReport]:
        """Like `build`, but also return a report of what was read.

        Parameters
        ----------
        inputs, path, **options
            As in `build`.

        Returns
        -------
        corpus : Corpus
        report : BuildReport
            Numbers of files, lines, cut lines, invalid bytes and resumed parts.
        """
        from undertow.text.corpus_build import build_corpus

        report = build_corpus(inputs, Path(path), **options)
        return cls.open(path, verify=False), report

    @classmethod
    @reread_if_replaced(MANIFEST)
    def open(cls, path: str | Path, *, verify: bool = True) -> Corpus:
        """Memory-map a corpus directory.

        Parameters
        ----------
        path
            A directory that `build` wrote.
        verify
            Compare the hashes of the files with the manifest, about two seconds per gigabyte.

        Returns
        -------
        Corpus

        Raises
        ------
        FormatError
            If the directory is missing, damaged, or of another format version.
        """
        path = Path(path)
        manifest = read_manifest(path, FORMAT, VERSION, FIELDS)
        if set(manifest["files"]) != {TOKENS, OFFSETS, VOCABULARY}:
            raise FormatError(f"{path / MANIFEST} does not list the files of a corpus: build the corpus again.")
        check_fields(path / MANIFEST, manifest["reading"], READING_FIELDS, "reading")
        check_files(path, manifest["files"], hashes=verify)
        n_tokens, n_sentences = manifest["n_tokens"], manifest["n_sentences"]
        sizes = {TOKENS: 4 * n_tokens, OFFSETS: 8 * (n_sentences + 1)}
        for name, size in sizes.items():
            if manifest["files"][name]["bytes"] != size:
                raise FormatError(f"{path / MANIFEST}: {name} should have {size} bytes; build the corpus again.")
        vocabulary = Vocabulary.read(path / VOCABULARY)
        if len(vocabulary) != manifest["n_words"] or vocabulary.boundary != manifest["boundary"]:
            raise FormatError(f"{path}: the manifest and the vocabulary disagree; build the corpus again.")
        ids = np.memmap(path / TOKENS, dtype="<u4", mode="r", shape=(n_tokens,))
        offsets = np.memmap(path / OFFSETS, dtype="<i8", mode="r", shape=(n_sentences + 1,))
        return cls(ids, offsets, vocabulary, path=path, manifest=manifest)


def read_manifest(path: Path, format_name: str, version: int, fields: Fields) -> dict[str, Any]:
    """The manifest of a corpus or counts directory: its kind, version, digest and `fields` are checked."""
    what = format_name.removeprefix("undertow ")
    if not os.path.exists(path):  # unlike Path.exists it takes a name too long for one that is not there
        raise FormatError(f"{path} does not exist: give a directory of undertow {what}.")
    if not path.is_dir():
        raise FormatError(f"{path} is a file: give a directory of undertow {what}.")
    if not (path / MANIFEST).exists():
        raise FormatError(
            f"{path} has no {MANIFEST}: it holds no undertow {what}, or its writing was never finished; write it again."
        )
    manifest = read_json(path / MANIFEST)
    if manifest.get("format") != format_name:
        raise FormatError(f"{path} is {short(manifest.get('format', 'of no known format'))}, not {format_name!r}.")
    # the version before the digest: what a newer undertow wrote may differ in anything else
    found = manifest.get("version")
    if type(found) is int and found > version:
        raise FormatError(
            f"{path} was written by a newer undertow (format version {short(found)}, this one reads {version}): "
            "upgrade undertow."
        )
    if type(found) is not int or found != version:
        raise FormatError(
            f"{path} has format version {short(found)}, this undertow reads version {version}: write it again."
        )
    check_seal(path / MANIFEST, manifest)
    check_fields(path / MANIFEST, manifest, {"format": str, "version": int, "files": dict, DIGEST: str, **fields})
    try:
        check_rule(manifest["tokenizer"])
    except InputError as e:
        raise FormatError(f"{path / MANIFEST}: {e}") from None
    return manifest


def choose_vocabulary(
    counts: Iterable[tuple[str, int]],
    n_sentences: int,
    *,
    size: int | None,
    min_count: int,
    given: Vocabulary | None,
    boundary: str | None,
    classes: bool,
) -> Vocabulary:
    """The given vocabulary, or one from the counts; sentence ends count for the boundary word."""
    if given is not None:
        if size is not None or min_count != 1:
            raise InputError("A given vocabulary cannot be cut again: leave out vocab_size and min_count.")
        if boundary is not None and boundary != given.boundary:
            raise InputError(f"The given vocabulary's boundary is {given.boundary!r}, not {boundary!r}.")
        return given
    if boundary is not None:
        counts = itertools.chain(counts, [(boundary, n_sentences)])
    return Vocabulary.from_counts(
        counts, size=size, min_count=min_count, unknown=UNKNOWN, boundary=boundary, classes=classes
    )


def encode_part(text: TokenizedText, vocabulary: Vocabulary) -> NDArray[np.uint32]:
    """Local numbers to vocabulary ids, with the boundary word after every sentence if there is one."""
    mapping = vocabulary.encode(t.decode("utf-8") for t in text.types)
    ids = mapping[text.ids] if len(mapping) else np.empty(0, dtype=np.uint32)
    if vocabulary.boundary_id is None:
        return ids
    return np.insert(ids, np.cumsum(text.lengths), np.uint32(vocabulary.boundary_id))
