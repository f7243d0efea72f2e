"""undertow movers: what moved on a map, beyond noise."""

from __future__ import annotations

import json
from typing import Any

import click

from undertow.cli.common import json_option, printable, say
from undertow.errors import InputError


@click.command()
@click.argument("model", type=click.Path())
@click.option("-n", "--number", type=click.IntRange(1), default=20, show_default=True, help="Number of entities.")
@click.option("--first", metavar="TIME", help="Movement from this time on.  [default: the first]")
@click.option("--last", metavar="TIME", help="Movement until this time.  [default: the last]")
@click.option(
    "--significance",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Share of the listed entities that is expected by chance (false discovery rate).",
)
@json_option
def command(model: str, number: int, first: str | None, last: str | None, significance: float, as_json: bool) -> None:
    """List what moved most on the map MODEL between two times, of what moved beyond noise.

    Movement is tested on a second map with free frequencies, which is fitted first, so this takes as long as a fit.
    """
    from undertow.cli.model import open_model

    opened = open_model(model, "movers")
    steps = {"first": _time(opened, first, "--first"), "last": _time(opened, last, "--last")}
    if not as_json:
        say("fitting the map on which movement is tested …")
    found = opened.movers(number, significance=significance, **steps)
    if as_json:
        listed = [mover._asdict() for mover in found]
        click.echo(json.dumps({"verdict": found.verdict, "movers": listed}, ensure_ascii=False))
        return
    rows = [(printable(m.name), m.kind, f"{m.distance:.2f}", _p(m.p_value)) for m in found]
    if rows:
        table = [("name", "kind", "distance", "p"), *rows]
        widths = [max(len(row[k]) for row in table) for k in range(3)]
        for name, kind, distance, p in table:
            click.echo(f"{name:<{widths[0]}}  {kind:<{widths[1]}}  {distance:>{widths[2]}}  {p}")
    click.echo(found.verdict)


def _time(opened: Any, given: str | None, option: str) -> Any:
    """The step of the map that is written like this."""
    if given is None:
        return None
    times = {str(time): time for time in opened.times_}
    if given not in times:
        written = list(times)
        raise InputError(f"{option} {given}: the map has no such time; it has {written[0]} to {written[-1]}.")
    return times[given]


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 1e-4 else "< 0.0001"
