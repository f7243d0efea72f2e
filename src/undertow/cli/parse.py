"""undertow parse: trees of sentences."""

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
    type=click.Choice(["mbr", "viterbi"]),
    default="mbr",
    show_default=True,
    help="The tree with the most correct constituents in expectation, or the most probable derivation.",
)
@text_options
@json_option
def command(model: str, inputs: tuple[str, ...], method: str, as_json: bool, **given: Any) -> None:
    """Parse the sentences of INPUTS (text files, glob patterns, - for standard input) with a grammar.

    Prints one tree per line in the form of the Penn Treebank; with --json one object per sentence, with the
    posterior probability of each constituent.
    """
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model

    opened = open_model(model, "parse")
    given = with_model_tokenizer(given, opened)
    with progress_bar() as progress:
        for batch in sentence_batches(inputs, progress, given):
            for tree in opened.trees(batch, method):
                click.echo(json.dumps(tree.to_dict(), ensure_ascii=False) if as_json else tree.penn())
