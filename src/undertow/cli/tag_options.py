"""Options for reading labelled text, for tag train and tag eval, and for reading models, for tag train."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from undertow.cli.reading_options import BAD_UTF8_OPTION, COLUMN_OPTION
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
        BAD_UTF8_OPTION,
        COLUMN_OPTION,
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


def model_options(f: F) -> F:
    """Options for the fitted models that a tagger takes features from; `representations` uses them."""
    for option in (
        click.option(
            "--pieces", is_flag=True, help="Let each --model read the parts of words that its tokenizer splits."
        ),
        click.option(
            "--casing",
            "casings",
            multiple=True,
            type=click.Choice(["spelled", "known", "frequent"]),
            help="How words are looked up in a --model: as they are spelled; known: in another casing if the model "
            "does not have them; frequent: also in a more frequent casing. One for all, or one per --model.  "
            "[default: spelled]",
        ),
        click.option(
            "--model-window",
            "windows",
            multiple=True,
            type=click.IntRange(0, 10),
            help="Neighbors on each side whose model features are read: one number for all, or one per --model.  "
            "[default: 0 for vectors, otherwise --window]",
        ),
        click.option(
            "--scale",
            "scales",
            multiple=True,
            type=float,
            help="Factor on what is read of a --model: one number for all, or one per --model.  [default: 1]",
        ),
        click.option(
            "--view",
            "views",
            multiple=True,
            help="View of each --model, in the same order: states, viterbi, posterior, path, or a view of its vectors "
            "such as type or smooth.  [default: path or posterior if the model has it, otherwise its vectors]",
        ),
        click.option(
            "--model",
            "models",
            multiple=True,
            type=click.Path(),
            help="Fitted model to take features from; may be repeated.",
        ),
    ):
        f = option(f)
    return f


def representations(given: dict[str, Any]) -> list[Any]:
    """What is read of each model, by the options of `model_options`."""
    models, views = given["models"], given["views"]
    if len(views) > len(models):
        raise click.UsageError("There are more --view than --model options: give at most one view per model.")
    scales, windows = _per_model(given, "scales", "--scale"), _per_model(given, "windows", "--model-window")
    casings = [None if c == "spelled" else c for c in _per_model(given, "casings", "--casing")]
    if given["pieces"] and not models:
        raise click.UsageError("--pieces needs a model: give one with --model.")
    if not models:
        return []
    from undertow.results.tagging.sources import as_representation
    from undertow.storage import load_model

    loaded = {path: load_model(path) for path in models}  # a model that is read in two ways is loaded once
    found = [
        as_representation(
            loaded[path],
            views[i] if i < len(views) else None,
            scale=scales[i],
            window=windows[i],
            pieces=given["pieces"],
            casing=casings[i],
        )
        for i, path in enumerate(models)
    ]
    names = [f.name for f in found]
    for i, f in enumerate(found):  # two models of one kind need names of their own
        if names.count(names[i]) > 1:
            f.name = f"{names[i]}-{i + 1}"
    return found


def _per_model(given: dict[str, Any], name: str, option: str) -> list[Any]:
    """One value for each model, from one for all of them, one each, or none."""
    values, n = given[name], len(given["models"])
    if len(values) not in (0, 1, n) or (values and not n):
        raise click.UsageError(
            f"{option} is given {len(values)} times for {n} models: give it once, or once per --model."
        )
    return list(values) if len(values) == n else [values[0] if values else None] * n


def columns_of(inputs: tuple[str, ...], given: dict[str, Any]) -> dict[str, Any]:
    """The columns of words and tags, saved with the tagger, and whether its words are parts of multiword tokens."""
    from undertow.text.reading import ReadingOptions
    from undertow.text.tagged import multiword_example

    example = multiword_example(inputs, ReadingOptions(format=given["format_"]))
    columns = {"tags": given["tags"], "column": given["column"], "format": given["format_"]}
    return columns if example is None else {**columns, "multiword": example}


def warn_of_multiword_tokens(inputs: tuple[str, ...], given: dict[str, Any], tagger: Any) -> None:
    """Warn if running text is given to a tagger whose training text had multiword tokens split into words."""
    from undertow.text.reading import expand_inputs, format_of
    from undertow.text.tagged import COLUMN_FORMATS

    example = (tagger.columns_ or {}).get("multiword")
    if example is None:
        return
    for name in expand_inputs(inputs):
        format_ = given["format_"] if given["format_"] != "auto" else "text" if name == "-" else format_of(name)
        if format_ not in COLUMN_FORMATS and given["tokenizer"] != "spaces":
            warnings.warn(
                f"The tagger was trained on parts of multiword tokens ({example}), and {name} is running text, where "
                "they are in one piece: split it as the training text first, and give CoNLL-U or one word per row.",
                MultiwordWarning,
                stacklevel=2,
            )
            return


class MultiwordWarning(UserWarning):
    """Running text has words in one piece that the training text of a tagger had split."""


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
