"""undertow embed: embed the tokens of a text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show
from undertow.cli.reading_options import text_arguments, text_options, with_model_tokenizer
from undertow.errors import InputError

SUFFIXES = {".npz": "npz", ".parquet": "parquet", ".jsonl": "jsonl", ".txt": "text", ".tsv": "text"}


@click.command()
@click.argument("model", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(), default="-", help="Output file.  [default: standard output]")
@click.option(
    "--view",
    type=click.Choice(
        ["type", "filter", "smooth", "features", "posterior", "viterbi", "near", "wide", "context", "word"]
    ),
    help="lds: type = the word without context, filter = given the words before it, smooth = given the whole sentence, "
    "features = type and smooth concatenated. hmm, fhmm: posterior = state probabilities; fhmm: viterbi = states of "
    "the best path. pmi: near, wide. context: context = what is expected at the token, word = the word itself.  "
    "[default: depends on the model]",
)
@click.option(
    "--output-format",
    type=click.Choice(["npz", "parquet", "jsonl", "text"]),
    help="Output format.  [default: by the file suffix; jsonl on standard output]",
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
    """Embed the tokens of INPUTS (text files, glob patterns, - for standard input) with MODEL.

    The text is tokenized like the training text of the model unless the options say otherwise. Memory use does not
    depend on the length of the text.
    """
    format_ = output_format or format_of(out)
    if out == "-" and format_ not in ("jsonl", "text"):
        raise click.UsageError(
            f"{format_} cannot be written to standard output: give a file with -o, or choose jsonl or text."
        )
    if out == "-" and as_json:
        raise click.UsageError(
            "The vectors and the --json report cannot both go to standard output: give a file with -o."
        )
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
    given = with_model_tokenizer(given, opened)
    if view is not None and "view" not in signature(opened.transform).parameters:
        raise InputError(f"{model} is a model of the kind {opened.kind!r}, which has only one view: omit --view.")
    chosen = {} if view is None else {"view": view}
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar())
        writer: Any = None
        for sentences in sentence_batches(inputs, progress, given):
            vectors = opened.transform(sentences, **chosen)
            if writer is None:  # only when there is something to write: bad input leaves no file behind
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
        raise click.UsageError(f"{out} has no suffix of a known format ({known}): add --output-format.")
    return SUFFIXES[suffix]


def open_output(stack: ExitStack, out: str, format_: str, dimension: int, overwrite: bool) -> Any:
    """A writer to standard output, or to a file that takes its name when the stack exits without an error."""
    from undertow.adapters.token_vectors import LinesWriter, open_writer
    from undertow.atomic import finished_file

    if out == "-":
        return LinesWriter(sys.stdout.buffer, format_, dimension)
    ready = stack.enter_context(finished_file(Path(out), overwrite=overwrite))
    return stack.enter_context(open_writer(ready, format_, dimension))


def sentence_batches(inputs: tuple[str, ...], progress: Any, given: dict[str, Any]) -> Iterator[list[list[str]]]:
    """Batches of sentences of the input; an error if there are none."""
    from undertow.text.sentences import batches, read_sentences

    batch = None
    for batch in batches(read_sentences(inputs, progress=progress, **text_arguments(given))):
        yield batch
    if batch is None:
        raise InputError(f"{', '.join(inputs)}: no words found; check the files and --format.")
