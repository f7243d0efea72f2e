"""A corpus: flat token ids and sentence offsets, memory-mapped, with its vocabulary.

On disk it is a directory: `tokens.bin` (uint32, little-endian), `offsets.bin` (int64; sentence s is tokens
offsets[s] to offsets[s + 1]), `vocabulary.txt`, and `manifest.json`, written last, with sizes and hashes.
How a directory comes to be is in `corpus_build`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from undertow.errors import FormatError, InputError
from undertow.files import check_files, read_json, reread_if_replaced
from undertow.text.tokenizer import TokenisedText, number_sentences
from undertow.text.vocabulary import UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from undertow.text.corpus_build import BuildReport

FORMAT = "undertow corpus"
VERSION = 1
TOKENS, OFFSETS, VOCABULARY, MANIFEST = "tokens.bin", "offsets.bin", "vocabulary.txt", "manifest.json"


class Corpus:
    """Sentences as arrays of word ids. `build` writes one to disk, `open` maps it, `from_sentences` holds it."""

    def __init__(
        self,
        ids: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        vocabulary: Vocabulary,
        *,
        path: Path | None = None,
        manifest: dict[str, Any] | None = None,
    ):
        self.ids = ids
        self.offsets = offsets
        self.vocabulary = vocabulary
        self.path = path
        self.manifest = manifest or {}

    @property
    def n_tokens(self) -> int:
        return len(self.ids)

    @property
    def n_sentences(self) -> int:
        return len(self.offsets) - 1

    def __len__(self) -> int:
        return self.n_sentences

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"Corpus({self.n_tokens} tokens, {self.n_sentences} sentences, {len(self.vocabulary)} words{where})"

    def sentences(self) -> Iterator[NDArray[np.uint32]]:
        """The sentences as arrays of ids, in order; views of the map, not copies."""
        ids, offsets = self.ids, self.offsets
        step = 1 << 16  # offsets are read in runs, so that a huge corpus does not become a Python list
        for first in range(0, self.n_sentences, step):
            edges = offsets[first : first + step + 1].tolist()
            for a, b in itertools.pairwise(edges):
                yield ids[a:b]

    def token_lists(self) -> Iterator[list[str]]:
        """The sentences as lists of words; what is not in the vocabulary shows as the unknown word."""
        for ids in self.sentences():
            yield self.vocabulary.decode(ids)

    def shards(self, n_tokens: int) -> list[tuple[int, int]]:
        """Cut into runs of whole sentences (first, last + 1) of about `n_tokens` tokens each, the last one shorter."""
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
        """Encode token lists in memory; empty sentences are dropped. `vocabulary` encodes with a given one."""
        text = number_sentences(sentences)
        if not len(text.ids):
            raise InputError("There is no token in these sentences: a corpus needs at least one.")
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
        return cls(ids, offsets, vocabulary.with_counts(np.bincount(ids, minlength=len(vocabulary))))

    @classmethod
    def build(cls, inputs: Any, path: str | Path, **options: Any) -> Corpus:
        """Read text files into a corpus directory and open it; see `corpus_build.build_corpus` for the options."""
        corpus, _ = cls.build_with_report(inputs, path, **options)
        return corpus

    @classmethod
    def build_with_report(cls, inputs: Any, path: str | Path, **options: Any) -> tuple[Corpus, BuildReport]:
        """Like `build`, and also what the reading met on its way (cut lines, invalid bytes, parts taken over)."""
        from undertow.text.corpus_build import build_corpus

        report = build_corpus(inputs, Path(path), **options)
        return cls.open(path, verify=False), report

    @classmethod
    @reread_if_replaced(MANIFEST)
    def open(cls, path: str | Path, *, verify: bool = True) -> Corpus:
        """Map a corpus directory. `verify=False` skips the hashes (about two seconds for each gigabyte)."""
        path = Path(path)
        manifest = read_manifest(path, FORMAT, VERSION, ("n_tokens", "n_sentences", "n_words"))
        check_files(path, manifest["files"], hashes=verify)
        n_tokens, n_sentences = manifest["n_tokens"], manifest["n_sentences"]
        sizes = {TOKENS: 4 * n_tokens, OFFSETS: 8 * (n_sentences + 1)}
        for name, size in sizes.items():
            if manifest["files"].get(name, {}).get("bytes") != size:
                raise FormatError(f"{path / MANIFEST}: {name} should have {size} bytes; build the corpus again.")
        vocabulary = Vocabulary.read(path / VOCABULARY)
        ids = np.memmap(path / TOKENS, dtype="<u4", mode="r", shape=(n_tokens,))
        offsets = np.memmap(path / OFFSETS, dtype="<i8", mode="r", shape=(n_sentences + 1,))
        if len(vocabulary) != manifest["n_words"] or offsets[0] != 0 or offsets[-1] != n_tokens:
            raise FormatError(f"{path}: the manifest and the files disagree; build the corpus again.")
        return cls(ids, offsets, vocabulary, path=path, manifest=manifest)


def read_manifest(path: Path, format_name: str, version: int, numbers: tuple[str, ...]) -> dict[str, Any]:
    """The manifest of a corpus or counts directory, with its kind, version and `numbers` checked."""
    what = format_name.removeprefix("undertow ")
    if not path.exists():
        raise FormatError(f"{path} does not exist: give a directory of undertow {what}.")
    if not path.is_dir():
        raise FormatError(f"{path} is a file: give a directory of undertow {what}.")
    if not (path / MANIFEST).exists():
        raise FormatError(
            f"{path} has no {MANIFEST}: it holds no undertow {what}, or its writing was never finished; write it again."
        )
    manifest = read_json(path / MANIFEST)
    if manifest.get("format") != format_name:
        raise FormatError(f"{path} is {manifest.get('format', 'of no known format')!r}, not {format_name!r}.")
    found = manifest.get("version")
    if found != version:
        raise FormatError(f"{path} has format version {found}, this undertow reads version {version}: write it again.")
    for key in numbers:
        if type(manifest.get(key)) is not int or manifest[key] < 0:
            raise FormatError(f"{path / MANIFEST}: {key} is not a number; write the directory again.")
    if not isinstance(manifest.get("files"), dict):
        raise FormatError(f"{path / MANIFEST} lists no files: write the directory again.")
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


def encode_part(text: TokenisedText, vocabulary: Vocabulary) -> NDArray[np.uint32]:
    """Local numbers to vocabulary ids, with the boundary behind every sentence if there is one."""
    mapping = vocabulary.encode(t.decode("utf-8") for t in text.types)
    ids = mapping[text.ids] if len(mapping) else np.empty(0, dtype=np.uint32)
    if vocabulary.boundary_id is None:
        return ids
    return np.insert(ids, np.cumsum(text.lengths), np.uint32(vocabulary.boundary_id))
