"""undertow decode: decode the hidden states of tokens."""

from __future__ import annotations

import json
from typing import Any

import click

from undertow.cli.common import json_option, progress_bar
from undertow.cli.reading_options import text_options, with_model_tokenizer


@click.command()
@click.argument("model", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@click.option(
    "--method",
    type=click.Choice(["posterior", "viterbi"]),
    default="viterbi",
    show_default=True,
    help="The most probable state of each token, or the most probable path of states.",
)
@text_options
@json_option
def command(model: str, inputs: tuple[str, ...], method: str, as_json: bool, **given: Any) -> None:
    """Decode the hidden states of the tokens of INPUTS (text files, glob patterns, - for standard input).

    Prints one line per token, word TAB state, and a blank line after each sentence; with --json one object per
    sentence.
    """
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model

    opened = open_model(model, "decode")
    given = with_model_tokenizer(given, opened)
    with progress_bar() as progress:
        for batch in sentence_batches(inputs, progress, given):
            for tokens, states in zip(batch, opened.decode(batch, method), strict=True):
                if as_json:
                    click.echo(json.dumps({"tokens": tokens, "states": states.tolist()}, ensure_ascii=False))
                else:
                    # one state per layer if the model has layers
                    shown = [" ".join(map(str, row)) for row in states.reshape(len(tokens), -1).tolist()]
                    lines = [f"{token}\t{state}\n" for token, state in zip(tokens, shown, strict=True)]
                    click.echo("".join(lines))
