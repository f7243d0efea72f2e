"""undertow sample: sample text from a model."""

from __future__ import annotations

import json
from inspect import signature

import click

from undertow.cli.common import json_option


@click.command()
@click.argument("model", type=click.Path())
@click.option("-n", "--tokens", type=click.IntRange(0), default=50, show_default=True, help="Number of tokens.")
@click.option("--prefix", default="", help="Tokens to continue from, separated by spaces.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random generator.")
@json_option
def command(model: str, tokens: int, prefix: str, seed: int, as_json: bool) -> None:
    """Sample tokens from MODEL; one line per sentence if the model has a boundary word.

    From a grammar, a sentence of at most so many tokens.
    """
    from undertow.cli.model import open_model

    opened = open_model(model, "sample")
    options = {"prefix": prefix.split()} if prefix.split() else {}
    if options and "prefix" not in signature(opened.sample).parameters:
        raise click.UsageError(f"A model of the kind {opened.kind!r} cannot continue a text: leave out --prefix.")
    drawn = opened.sample(tokens, random_state=seed, **options)
    if as_json:
        click.echo(json.dumps({"tokens": drawn}, ensure_ascii=False))
        return
    line: list[str] = []
    for token in drawn:
        if token == opened.vocabulary_.boundary:
            click.echo(" ".join(line))
            line = []
        else:
            line.append(token)
    if line:
        click.echo(" ".join(line))
