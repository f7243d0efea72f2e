"""Sentences with their tags from CoNLL, TSV and CoNLL-U files, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from undertow.errors import InputError
from undertow.text.decompress import open_source, shown
from undertow.text.event_files import text_lines
from undertow.text.formats import tagged_column_sentences
from undertow.text.reading import (
    ReadingOptions,
    ReadingReport,
    check_options,
    expand_inputs,
    format_of,
    line_segments,
)
from undertow.text.tokenizer import Tokenizer

COLUMN_FORMATS = ("conll", "conllu", "tsv")
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class TaggedSentence(NamedTuple):
    """Words and tags of equal number, and where in which file they begin."""

    words: list[str]
    tags: list[str]
    source: str
    line: int


def read_tagged(
    inputs: Sequence[str | Path], tags: int | str | None = None, reading: ReadingOptions | None = None
) -> Iterator[TaggedSentence]:
    """Iterate over the sentences of labelled files with one word per row (CoNLL, TSV, CoNLL-U).

    Parameters
    ----------
    inputs
        File names, glob patterns, or "-" for standard input.
    tags
        The column of the tags, counted from 1, or from the end as -1; in CoNLL-U also its name, such as "xpos". None is
        the last column, in CoNLL-U "upos".
    reading
        The format of the files, the column of the words and other options of reading.

    Yields
    ------
    TaggedSentence
        White space within a word is replaced by "_".

    Raises
    ------
    InputError
        If a file or a row cannot be read; the message names the file and the row.
    """
    options = reading or ReadingOptions()
    check_options(options)
    _check_column(tags)
    for name in expand_inputs(inputs):
        format_ = format_of(name) if options.format == "auto" else options.format
        if format_ not in COLUMN_FORMATS:
            raise InputError(
                f"{shown(name)} is not named like a file of columns: tags are read from CoNLL, CoNLL-U or TSV files; "
                "choose the format (--format)."
            )
        column = _tag_column(name, format_, tags)
        with open_source(name) as source:
            segments = line_segments(source, options, ReadingReport(), may_cut=False)
            rows = tagged_column_sentences(segments, name, format_, options.column, column, options.max_line_bytes)
            for record, cells in rows:
                words = record.data[:-1].decode("utf-8").split(" ")
                yield TaggedSentence(words, [cell.decode("utf-8") for cell in cells], name, record.line)


def multiword_example(inputs: Sequence[str | Path], reading: ReadingOptions | None = None) -> str | None:
    """A multiword token of CoNLL-U files that running text has in one piece, such as "du = de le"; None if few are.

    The words rule splits contractions of English as Universal Dependencies does; the words of other multiword tokens
    are never met in text that it splits. Few are less than one in two hundred words.

    Parameters
    ----------
    inputs, reading
        As in `read_tagged`.

    Returns
    -------
    str or None
    """
    options = reading or ReadingOptions()
    rule = Tokenizer(numbers="keep", sentences="lines")
    example, n_split, n_words = None, 0, 0
    known: dict[tuple[str, ...], bool] = {}
    for name in expand_inputs(inputs):
        if name == "-" or (format_of(name) if options.format == "auto" else options.format) != "conllu":
            continue
        surface, last = "", ""
        words: list[str] = []
        for line in text_lines(name):
            number, _, rest = line.partition("\t")
            form = rest.partition("\t")[0]
            if "-" in number and number.replace("-", "").isdigit():
                surface, last, words = form, number.partition("-")[2], []
            elif number.isdigit():
                n_words += 1
                words.append(form)
                if number == last:
                    pieces = (surface, *words)
                    if pieces not in known:
                        known[pieces] = [w for s in rule(surface) for w in s] == words
                    if not known[pieces]:
                        n_split += len(words)
                        example = example or f"{surface} = {' '.join(words)}"
                    last = ""
    return example if n_split > n_words / 200 else None


def _check_column(tags: int | str | None) -> None:
    is_number = isinstance(tags, int) and not isinstance(tags, bool) and tags != 0
    if not (tags is None or is_number or tags in CONLLU_COLUMNS):
        raise InputError(
            f"tags={tags!r} is not a column: give its number, from 1 or from the end as -1, or a name of CoNLL-U "
            "such as upos or xpos."
        )


def _tag_column(name: str, format_: str, tags: int | str | None) -> int:
    if isinstance(tags, int):
        return tags
    if format_ == "conllu":
        return CONLLU_COLUMNS.index(tags or "upos") + 1
    if tags is not None:
        raise InputError(
            f"{shown(name)} is not CoNLL-U, so no column is called {tags}: give its number as tags (--tags)."
        )
    return -1
