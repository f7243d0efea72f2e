"""Options for reading labelled text, for tag train and tag eval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from undertow.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


class TagColumn(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.5 on
    """A column by its number, from 1 or from the end as -1, or by its name in CoNLL-U."""

    name = "column"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        try:
            return int(value)
        except ValueError:
            return str(value).lower()


def labelled_options(f: F) -> F:
    for option in (
        click.option(
            "--on-bad-utf8",
            type=click.Choice(["strict", "replace", "skip"]),
            default="strict",
            show_default=True,
            help="What to do with bytes that are not UTF-8.",
        ),
        click.option(
            "--column",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Column of the words in CoNLL and TSV files.",
        ),
        click.option(
            "--format",
            "format_",
            type=click.Choice(["auto", "conll", "conllu", "tsv"]),
            default="auto",
            show_default="auto: by the file suffix",
            help="Format of the input files.",
        ),
        click.option(
            "--tags",
            type=TagColumn(),
            show_default="the last column; upos in CoNLL-U",
            help="Column of the tags: a number, or a name such as upos or xpos in CoNLL-U.",
        ),
    ):
        f = option(f)
    return f


def columns_of(given: dict[str, Any]) -> dict[str, Any]:
    """The columns of words and tags, saved with the tagger."""
    return {"tags": given["tags"], "column": given["column"], "format": given["format_"]}


def with_tagger_columns(given: dict[str, Any], tagger: Any, *options: str) -> dict[str, Any]:
    """The options, where those not given on the command line are those of the training of the tagger."""
    saved = tagger.columns_ or {}
    context = click.get_current_context()
    inherited = {
        option: saved[option.rstrip("_")]
        for option in options
        if saved and context.get_parameter_source(option) == ParameterSource.DEFAULT
    }
    return {**given, **inherited}


def read_labelled(inputs: tuple[str, ...], given: dict[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """Words and tags of all sentences; an error if there are none."""
    from undertow.text.reading import ReadingOptions
    from undertow.text.tagged import read_tagged

    options = ReadingOptions(format=given["format_"], column=given["column"], on_bad_utf8=given["on_bad_utf8"])
    words: list[list[str]] = []
    tags: list[list[str]] = []
    for sentence in read_tagged(inputs, given["tags"], options):
        words.append(sentence.words)
        tags.append(sentence.tags)
    if not words:
        raise InputError(f"{', '.join(inputs)}: no words found; check the files and --format.")
    if all(tag == "_" for sentence in tags for tag in sentence):
        raise InputError(f"The tags of {', '.join(inputs)} are all _ (no tag): choose another column with --tags.")
    return words, tags
