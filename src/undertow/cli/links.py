"""undertow links: predict the links of the next time step."""

from __future__ import annotations

import json

import click

from undertow.cli.common import json_option, printable


@click.command()
@click.argument("model", type=click.Path())
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="Number of links.")
@click.option("--new", is_flag=True, help="Only pairs without an earlier event.")
@json_option
def command(model: str, number: int, new: bool, as_json: bool) -> None:
    """List the most probable links of MODEL at the next time step, with their probabilities."""
    from undertow.cli.model import open_model

    found = open_model(model, "predict_links").predict_links(number, new=new)
    if as_json:
        click.echo(json.dumps({"links": [link._asdict() for link in found]}, ensure_ascii=False))
        return
    rows = [(printable(link.row), printable(link.column), link.probability) for link in found]
    widths = [max((len(r[k]) for r in rows), default=0) for k in (0, 1)]
    for row, column, probability in rows:
        click.echo(f"{row:<{widths[0]}}  {column:<{widths[1]}}  {probability:.3f}")
