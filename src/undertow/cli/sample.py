"""undertow sample: text drawn from a model."""

from __future__ import annotations

import json

import click

from undertow.cli.common import json_option


@click.command()
@click.argument("model", type=click.Path())
@click.option("-n", "--tokens", type=click.IntRange(0), default=50, show_default=True, help="How many tokens.")
@click.option("--prefix", default="", help="Tokens to go on from, separated by spaces.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Another seed, another text.")
@json_option
def command(model: str, tokens: int, prefix: str, seed: int, as_json: bool) -> None:
    """Print tokens drawn from MODEL, one line a sentence where the model knows where sentences end."""
    from undertow.cli.model import open_model

    opened = open_model(model, "sample")
    drawn = opened.sample(tokens, random_state=seed, prefix=prefix.split())
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
