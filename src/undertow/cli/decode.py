"""undertow decode: the hidden state of every token."""

from __future__ import annotations

import json
from typing import Any

import click

from undertow.cli.common import json_option, progress_bar
from undertow.cli.reading_options import as_the_model, text_options


@click.command()
@click.argument("model", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@click.option(
    "--method",
    type=click.Choice(["posterior", "viterbi"]),
    default="posterior",
    show_default=True,
    help="Each token's most probable state, or the most probable path.",
)
@text_options
@json_option
def command(model: str, inputs: tuple[str, ...], method: str, as_json: bool, **given: Any) -> None:
    """Print each token of INPUTS (text files, globs, - for standard input) with its state in MODEL.

    One line a token, word TAB state, and an empty line behind each sentence; with --json one object a sentence.
    """
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model

    opened = open_model(model, "decode")
    given = as_the_model(given, opened)
    with progress_bar() as progress:
        for batch in sentence_batches(inputs, progress, given):
            for tokens, states in zip(batch, opened.decode(batch, method), strict=True):
                if as_json:
                    click.echo(json.dumps({"tokens": tokens, "states": states.tolist()}, ensure_ascii=False))
                else:
                    # a state a layer where a model has layers
                    shown = [" ".join(map(str, row)) for row in states.reshape(len(tokens), -1).tolist()]
                    lines = [f"{token}\t{state}\n" for token, state in zip(tokens, shown, strict=True)]
                    click.echo("".join(lines))
