"""undertow embed: a vector for every token of a text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show
from undertow.cli.reading_options import as_the_model, text_arguments, text_options
from undertow.errors import InputError

SUFFIXES = {".npz": "npz", ".parquet": "parquet", ".jsonl": "jsonl", ".txt": "text", ".tsv": "text"}


@click.command()
@click.argument("model", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(), default="-", help="File to write.  [default: standard output]")
@click.option(
    "--view",
    type=click.Choice(["type", "filter", "smooth", "features", "posterior", "viterbi"]),
    help="lds: the word alone, with what came before it, in the whole sentence, or first and third side by side. "
    "hmm, fhmm: probabilities of states, or (fhmm) the states of the best path.  [default: the model's own]",
)
@click.option(
    "--output-format",
    type=click.Choice(["npz", "parquet", "jsonl", "text"]),
    help="What to write.  [default: by the name; jsonl to standard output]",
)
@text_options
@overwrite_option
@json_option
def command(
    model: str,
    inputs: tuple[str, ...],
    out: str,
    view: str | None,
    output_format: str | None,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Write the vectors that MODEL gives the tokens of INPUTS (text files, globs, - for standard input).

    The text is cut by the rule of the model's own text, unless the options say otherwise. Memory does not grow with the
    text.
    """
    format_ = output_format or format_of(out)
    if out == "-" and format_ not in ("jsonl", "text"):
        raise click.UsageError(f"{format_} does not go to standard output: give a file with -o, or jsonl or text.")
    if out == "-" and as_json:
        raise click.UsageError("Standard output takes the vectors or the --json report, not both: give a file with -o.")
    from undertow.atomic import check_file_target
    from undertow.cli.model import open_model

    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    facts: dict[str, Any] = {
        "vectors": out,
        "format": format_,
        "sentences": 0,
        "tokens": 0,
        "dimensions": 0,
    }
    opened = open_model(model, "transform")
    given = as_the_model(given, opened)
    if view is not None and "view" not in signature(opened.transform).parameters:
        raise InputError(f"{model} is a model of the kind {opened.kind!r}, which has one view: leave out --view.")
    chosen = {} if view is None else {"view": view}
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar())
        writer: Any = None
        for sentences in sentence_batches(inputs, progress, given):
            vectors = opened.transform(sentences, **chosen)
            if writer is None:  # not before there is something to write: a wrong input leaves nothing behind
                facts["dimensions"] = vectors[0].shape[1]
                writer = open_output(stack, out, format_, vectors[0].shape[1], overwrite)
            writer.write(sentences, vectors)
            facts["sentences"] += len(sentences)
            facts["tokens"] += sum(map(len, sentences))
    if out != "-":
        show(facts, as_json)


def format_of(out: str) -> str:
    if out == "-":
        return "jsonl"
    suffix = Path(out).suffix.lower()
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise click.UsageError(f"{out} does not show a format by its name ({known}): add --output-format.")
    return SUFFIXES[suffix]


def open_output(stack: ExitStack, out: str, format_: str, dimension: int, overwrite: bool) -> Any:
    """A writer to standard output, or to a file that gets its name when the stack ends well."""
    from undertow.adapters.token_vectors import LinesWriter, open_writer
    from undertow.atomic import finished_file

    if out == "-":
        return LinesWriter(sys.stdout.buffer, format_, dimension)
    ready = stack.enter_context(finished_file(Path(out), overwrite=overwrite))
    return stack.enter_context(open_writer(ready, format_, dimension))


def sentence_batches(inputs: tuple[str, ...], progress: Any, given: dict[str, Any]) -> Iterator[list[list[str]]]:
    """The text in batches of sentences; at least one, or an error."""
    from undertow.text.sentences import batches, read_sentences

    batch = None
    for batch in batches(read_sentences(inputs, progress=progress, **text_arguments(given))):
        yield batch
    if batch is None:
        raise InputError(f"There is no word in {', '.join(inputs)}: check the files and their format.")
