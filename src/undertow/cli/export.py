"""undertow export: a model's word vectors in the formats of other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from undertow.cli.common import json_option, overwrite_option, show

SUFFIXES = {".txt": "word2vec-text", ".bin": "word2vec-binary"}


@click.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(), help="File to write, or - for standard output.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(SUFFIXES.values())),
    help="What to write.  [default: by the name, .txt or .bin]",
)
@overwrite_option
@json_option
def command(model: str, out: str, format_: str | None, overwrite: bool, as_json: bool) -> None:
    """Write the vectors of all words of MODEL, the most frequent first."""
    chosen = format_ or SUFFIXES.get(Path(out).suffix.lower())
    if chosen is None:
        raise click.UsageError(f"{out} does not show a format by its name ({', '.join(SUFFIXES)}): add --format.")
    if out == "-" and as_json:
        raise click.UsageError("Standard output takes the vectors or the --json report, not both: give a file with -o.")
    from undertow.adapters.word2vec import word2vec_rows, write_word2vec
    from undertow.cli.model import open_model
    from undertow.files import check_file_target

    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    opened = open_model(model, "word_vectors")
    words, vectors = opened.vocabulary_.words, opened.word_vectors()
    binary = chosen == "word2vec-binary"
    if out == "-":
        sys.stdout.buffer.writelines(word2vec_rows(words, vectors, binary))
        return
    write_word2vec(out, words, vectors, binary, overwrite=overwrite)
    show({"vectors": out, "format": chosen, "words": len(words), "dimensions": vectors.shape[1]}, as_json)
