"""Building a corpus directory: the text is read and tokenized once, in pieces, by several processes if asked.

1. The reader cuts the input into chunks; where it cuts depends on the text alone.
2. Each chunk is tokenized and numbered by itself and kept as a *part* in `<corpus>.partial`, named by the hash of
   what went into it. After a kill the same command finds the parts it has already made, whatever killed it.
3. The vocabulary is chosen from the sum of the parts' counts, the parts are translated to its ids in order, the
   manifest is written, and the directory is moved to its name.

Nothing in 1–3 depends on the number of processes, so neither do the bytes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undertow import progress as progress_
from undertow.atomic import READY, DirectoryKind, check_directory_target, install_directory, resumable_staging
from undertow.engine import count_workers, map_reduce, open_engine
from undertow.errors import FormatError, InputError
from undertow.files import describe_files, write_array, write_sealed
from undertow.progress import Progress, ProgressFn
from undertow.recipe import Recipe, Target, check_target, hashed_files, recipe, write_recipe
from undertow.text.corpus import (
    FORMAT,
    MANIFEST,
    OFFSETS,
    TOKENS,
    VERSION,
    VOCABULARY,
    Corpus,
    choose_vocabulary,
    encode_part,
)
from undertow.text.counting import WORKER_BYTES, resident_bytes
from undertow.text.reading import Chunk, ReadingOptions, ReadingReport, expand_inputs, read_chunks
from undertow.text.segmenters import Clauses
from undertow.text.tokenizer import CallableTokenizer, TokenFn, TokenizedText, Tokenizer, as_tokenizer
from undertow.text.vocabulary import Vocabulary
from undertow.text.word_counts import PREFIX, WordCounts

SMALL_INPUT = 32 << 20  # starting processes costs more than they save below this many bytes of input
CORPUS = DirectoryKind(
    "a corpus",
    MANIFEST,
    re.compile("|".join(map(re.escape, (TOKENS, OFFSETS, VOCABULARY, MANIFEST)))),
    lambda manifest: manifest.get("format") == FORMAT,
)
PART = re.compile(rf"\.?part-.*|{PREFIX}\d+")
LEAST_FOR_WORDS = 8 << 20
VOCABULARY_BYTES = 400  # of a word kept: ranked, in the list, in the table, and as a line of the file


class BuildReport(NamedTuple):
    """What a build read: counts of files, lines and problems, and of parts."""

    reading: ReadingReport
    parts: int  # pieces the text was cut into
    reused: int  # of these, made by an earlier run that did not finish
    existing: bool = False  # the corpus was there already, made from the same files with the same options


class Job(NamedTuple):
    """One chunk on its way to becoming a part; `chunk` is None where the part is there already."""

    part: str
    chunk: Chunk | None


def build_corpus(
    inputs: str | Path | Sequence[str | Path],
    path: Path,
    *,
    vocab_size: int | None = 50_000,
    min_count: int = 1,
    vocabulary: Vocabulary | None = None,
    tokenizer: Tokenizer | CallableTokenizer | TokenFn | str | None = None,
    boundary: str | None = None,
    unknown_classes: bool = True,
    keep_empty: bool = False,
    reading: ReadingOptions | None = None,
    n_jobs: int = 1,
    memory: int | None = None,
    overwrite: bool = False,
    progress: ProgressFn = progress_.ignore,
) -> BuildReport:
    """Read text files into a corpus directory.

    Parameters
    ----------
    inputs
        A file name, a glob pattern, "-" for standard input, or a list of these.
    path
        The directory to write.
    vocab_size
        The number of words to keep, special words included; None keeps all.
    min_count
        Drop words that occur less often.
    vocabulary
        Encode with the vocabulary of another corpus instead of choosing one.
    tokenizer
        A `Tokenizer`, "words", "spaces", or a callable line → tokens.
    boundary
        A word to append to every sentence, such as "<eos>".
    unknown_classes
        Map words outside the vocabulary to classes by their spelling (`word_classes`) instead of one unknown word.
    keep_empty
        Keep empty lines of pretokenized text as sentences, as language-model data sets count them; needs `boundary`.
    reading
        The format of the files and other options of reading.
    n_jobs
        The number of processes; -1 uses all cores.
    memory
        A limit in bytes for all processes together: fewer work at once, and words are counted in files if they do not
        fit. The vocabulary itself must fit.
    overwrite
        Replace an existing corpus directory. Without it, one that was made from the same files with the same options
        is reused, and any other is an error.
    progress
        Called with a `Progress` while reading.

    Returns
    -------
    BuildReport
        Numbers of files, lines, cut lines, invalid bytes and resumed parts.

    Raises
    ------
    InputError
        If an input cannot be read or an option is invalid; the message names the file and the line or byte.
    BusyError
        If another process is writing the same directory.
    """
    if isinstance(inputs, (str, Path)):
        inputs = [inputs]
    rule = as_tokenizer(tokenizer)
    options = reading or ReadingOptions()
    if vocabulary is not None:
        vocab_size = None
        boundary = boundary or vocabulary.boundary
    if keep_empty and boundary is None:
        raise InputError("keep_empty needs a boundary word: without one an empty line leaves no trace.")
    path = Path(os.path.abspath(path))
    if path.is_symlink() or not path.is_dir():
        check_directory_target(path, CORPUS, overwrite=overwrite)  # before the inputs are hashed
    sources = expand_inputs(inputs)
    made = corpus_recipe(
        sources,
        vocab_size=vocab_size,
        min_count=min_count,
        vocabulary=vocabulary,
        tokenizer=rule,
        boundary=boundary,
        unknown_classes=unknown_classes,
        keep_empty=keep_empty,
        reading=options,
    )
    if check_target(path, CORPUS, made, overwrite=overwrite) is Target.REUSE:
        manifest = Corpus.open(path).manifest  # with its hashes checked
        found = ReadingReport(len(sources), manifest["text_bytes"], 0, manifest["cut_lines"], manifest["bad_utf8"])
        return BuildReport(found, 0, 0, existing=True)
    with resumable_staging(path, PART, "building a corpus") as staging:
        report = ReadingReport()
        total = sum(os.path.getsize(s) for s in sources if s != "-") if "-" not in sources else None
        workers = count_workers(n_jobs)
        if total is not None and total < SMALL_INPUT:
            workers = 1
        if memory is not None:
            workers = max(1, min(workers, (memory - resident_bytes()) // WORKER_BYTES))
        counts: WordCounts | None = None
        parts: list[str] = []
        reused = 0
        clauses = Clauses()

        def jobs() -> Iterator[Job]:
            nonlocal reused
            done_before = 0
            source, read = None, 0
            for number, chunk in enumerate(read_chunks(sources, options, report)):
                if chunk.source != source:
                    done_before, source = done_before + read, chunk.source
                read = chunk.bytes_read
                name = f"part-{number:06d}-{_key(chunk, rule, keep_empty)}.npz"
                there = not isinstance(rule, CallableTokenizer) and _readable(staging / name)
                reused += there
                parts.append(name)
                yield Job(str(staging / name), None if there else chunk)
                progress(Progress("read", done_before + read, total, "B"))

        def fold(n_sentences: int, part: str) -> int:
            nonlocal counts
            text = read_part(Path(part))
            if counts is None:  # by now what reading and cutting take is in memory
                counts = WordCounts(staging, _room_for_words(memory))
            counts.add(text.types, text.counts.tolist())
            if isinstance(rule, Tokenizer) and rule.rule == "words":
                clauses.add(text.types, text.counts)
            return n_sentences + len(text.lengths)

        make = functools.partial(make_part, tokenizer=rule, keep_empty=keep_empty)
        with open_engine(n_jobs=workers) as engine:
            n_sentences = map_reduce(make, jobs(), fold, initial=0, engine=engine)
        if not counts and not (keep_empty and n_sentences):
            raise InputError(f"There is no word in {', '.join(sources)}: check the files and their format.")
        clauses.warn(report.bytes, stacklevel=2)
        chosen = choose_vocabulary(
            _checked(counts.pairs() if counts else iter(()), vocab_size, min_count, memory),
            n_sentences,
            size=vocab_size,
            min_count=min_count,
            given=vocabulary,
            boundary=boundary,
            classes=unknown_classes,
        )
        ready = staging / READY
        ready.mkdir()
        n_tokens = _translate([staging / p for p in parts], ready, chosen, progress)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "n_tokens": n_tokens,
            "n_sentences": n_sentences,
            "n_words": len(chosen),
            "tokenizer": rule.describe(),
            "boundary": chosen.boundary,
            "keep_empty": keep_empty,
            "reading": options._asdict(),
            "sources": [os.path.basename(s) for s in sources],
            "text_bytes": report.bytes,
            "cut_lines": report.cut_lines,
            "bad_utf8": report.bad_utf8,
            "files": describe_files(ready, [TOKENS, OFFSETS, VOCABULARY]),
        }
        write_recipe(ready, made)
        write_sealed(ready / MANIFEST, manifest)
        install_directory(staging, path, CORPUS, overwrite=overwrite)
    return BuildReport(report, len(parts), reused)


def corpus_recipe(
    inputs: Sequence[str | Path],
    *,
    vocab_size: int | None = 50_000,
    min_count: int = 1,
    vocabulary: Vocabulary | None = None,
    tokenizer: Tokenizer | CallableTokenizer | TokenFn | str | None = None,
    boundary: str | None = None,
    unknown_classes: bool = True,
    keep_empty: bool = False,
    reading: ReadingOptions | None = None,
) -> Recipe:
    """What a corpus of these inputs and options depends on; the options are those of `build_corpus`."""
    rule = as_tokenizer(tokenizer).describe()
    options: dict[str, Any] = {
        "vocab_size": None if vocabulary is not None else vocab_size,
        "min_count": min_count,
        "vocabulary": None if vocabulary is None else vocabulary.fingerprint()[:12],
        "boundary": boundary or (None if vocabulary is None else vocabulary.boundary),
        "unknown_classes": unknown_classes,
        "keep_empty": keep_empty,
        **{"tokenizer" if name == "rule" else f"tokenizer {name}": value for name, value in rule.items()},
        **(reading or ReadingOptions())._asdict(),
    }
    # a function is known by its name alone and may do something else today: its corpus is never taken for the same
    files = hashed_files(expand_inputs(inputs))
    return recipe([[name, None] for name, _ in files] if rule["rule"] == "callable" else files, options)


def _room_for_words(memory: int | None) -> int | None:
    """Bytes that words may take while they are counted: half of what is left, as counting pairs may follow."""
    if memory is None:
        return None
    least = resident_bytes() + 2 * LEAST_FOR_WORDS
    if memory < least:
        raise InputError(
            f"Reading text needs at least {-(-least >> 20)} MB here and {memory >> 20} MB were allowed: "
            "allow more memory."
        )
    return (memory - resident_bytes()) // 2


def _checked(
    pairs: Iterator[tuple[str, int]], vocab_size: int | None, min_count: int, memory: int | None
) -> Iterator[tuple[str, int]]:
    """The pairs, refused when more words are to be kept than fit into memory."""
    if memory is None:
        yield from pairs
        return
    most = max(memory - resident_bytes(), 0) // VOCABULARY_BYTES
    kept = 0
    for word, count in pairs:
        kept += count >= min_count
        if min(kept, vocab_size or kept) > most:
            raise InputError(
                f"A vocabulary of more than {most:,} words does not fit into {memory >> 20} MB: allow more memory, or "
                "keep fewer words by the size of the vocabulary or the least count of a word."
            )
        yield word, count


def make_part(job: Job, tokenizer: Tokenizer | CallableTokenizer, keep_empty: bool) -> str:
    """Tokenize a chunk and keep it; runs in a worker."""
    if job.chunk is not None:
        text = tokenizer.tokenize(job.chunk.data, tokenized=job.chunk.tokenized, keep_empty=keep_empty)
        _write_part(Path(job.part), text)
    return job.part


@functools.cache
def _rule_text(rule: Tokenizer | CallableTokenizer, keep_empty: bool) -> bytes:
    return json.dumps([rule.describe(), keep_empty], sort_keys=True).encode()


def _key(chunk: Chunk, rule: Tokenizer | CallableTokenizer, keep_empty: bool) -> str:
    h = hashlib.sha256(_rule_text(rule, keep_empty) + bytes([chunk.tokenized]))
    h.update(chunk.data)
    return h.hexdigest()[:24]


def _write_part(path: Path, text: TokenizedText) -> None:
    tmp = path.with_name(f".{path.name}.{os.getpid()}")
    with open(tmp, "wb") as f:
        np.savez(
            f,
            ids=text.ids,
            lengths=text.lengths,
            counts=text.counts,
            types=np.frombuffer(b"\n".join(text.types), dtype=np.uint8),
        )
        f.flush()
        os.fsync(f.fileno())
    os.replace(tmp, path)


def read_part(path: Path) -> TokenizedText:
    with open(path, "rb") as f, np.load(f, allow_pickle=False) as z:
        raw = z["types"].tobytes()
        return TokenizedText(raw.split(b"\n") if raw else [], z["counts"], z["ids"], z["lengths"])


def _readable(path: Path) -> bool:
    """A part that a power cut damaged is made again (the archive's checksums tell)."""
    if not path.exists():
        return False
    try:
        read_part(path)
    except Exception:
        return False
    return True


def _translate(parts: list[Path], ready: Path, vocabulary: Vocabulary, progress: ProgressFn) -> int:
    """Write ids, offsets and the vocabulary with this text's counts; returns the number of tokens."""
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    n_tokens = 0
    with open(ready / TOKENS, "wb") as tokens, open(ready / OFFSETS, "wb") as offsets:
        write_array(offsets, np.zeros(1, dtype="<i8"))
        for number, part in enumerate(parts):
            text = read_part(part)
            ids = encode_part(text, vocabulary)
            write_array(tokens, ids.astype("<u4", copy=False))
            ends = n_tokens + np.cumsum(text.lengths + (vocabulary.boundary_id is not None))
            write_array(offsets, ends.astype("<i8", copy=False))
            counts += np.bincount(ids, minlength=len(vocabulary))
            n_tokens += len(ids)
            progress(Progress("encode", number + 1, len(parts), "part"))
    if n_tokens != counts.sum():
        raise FormatError(f"{ready.parent} changed while it was read: remove it and build again.")
    vocabulary.with_counts(counts).write(ready / VOCABULARY)
    return n_tokens
