"""undertow parse: trees of sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show
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
@click.option(
    "--html", type=click.Path(), help="Draw the trees on an HTML page that works offline, instead of printing."
)
@text_options
@overwrite_option
@json_option
def command(
    model: str, inputs: tuple[str, ...], method: str, html: str | None, overwrite: bool, as_json: bool, **given: Any
) -> None:
    """Parse the sentences of INPUTS (text files, glob patterns, - for standard input) with a grammar.

    Prints one tree per line in the form of the Penn Treebank; with --json one object per sentence, with the
    posterior probability of each constituent.
    """
    from undertow.atomic import check_file_target
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model
    from undertow.view.tree_page import save_trees

    if html is not None:
        check_file_target(Path(html), overwrite=overwrite)
    opened = open_model(model, "parse")
    given = with_model_tokenizer(given, opened)
    drawn = []
    with progress_bar() as progress:
        for batch in sentence_batches(inputs, progress, given):
            trees = opened.trees(batch, method)
            if html is not None:
                drawn += trees
                continue
            for tree in trees:
                click.echo(json.dumps(tree.to_dict(), ensure_ascii=False) if as_json else tree.penn())
    if html is not None:
        save_trees(drawn, html, title=f"Trees by {Path(model).name}", overwrite=overwrite)
        show({"page": html, "bytes": Path(html).stat().st_size, "trees": len(drawn)}, as_json)
