"""undertow view: an HTML page of a dynamic embedding."""

from __future__ import annotations

from pathlib import Path

import click

from undertow.cli.common import json_option, overwrite_option, show


@click.command()
@click.argument("model", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(), help="Output file, such as map.html.")
@click.option("--title", help="Title of the page.  [default: describes its content]")
@overwrite_option
@json_option
def command(model: str, out: str, title: str | None, overwrite: bool, as_json: bool) -> None:
    """Write the map of MODEL (a dynamic embedding) as one HTML file that works offline."""
    from undertow.atomic import check_file_target
    from undertow.cli.model import open_model
    from undertow.view.map_page import save_html

    check_file_target(Path(out), overwrite=overwrite)
    data = open_model(model, "map_data").map_data()
    save_html(data, out, title=title, overwrite=overwrite)
    facts = {"page": out, "bytes": Path(out).stat().st_size, "entities": len(data.names), "times": len(data.times)}
    show(facts, as_json)
