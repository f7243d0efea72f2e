"""undertow transitions: the strongest transitions of a model."""

from __future__ import annotations

import json

import click

from undertow.cli.common import json_option


@click.command()
@click.argument("model", type=click.Path())
@click.option("-n", "--number", type=click.IntRange(1), default=10, show_default=True, help="Number of transitions.")
@click.option("--words", type=click.IntRange(1), default=5, show_default=True, help="Number of words on each side.")
@json_option
def command(model: str, number: int, words: int, as_json: bool) -> None:
    """List the strongest transitions of the hidden state of MODEL with the most typical words before and after."""
    from undertow.cli.model import open_model

    found = open_model(model, "transitions").transitions(number, n_words=words)
    if as_json:
        click.echo(json.dumps({"transitions": [t._asdict() for t in found]}, ensure_ascii=False))
        return
    width = max(len(" ".join(t.before)) for t in found)
    for t in found:
        click.echo(f"{t.strength:.3f}  {' '.join(t.before):<{width}}  →  {' '.join(t.after)}")
