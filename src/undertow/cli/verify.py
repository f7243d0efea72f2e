"""undertow verify: check the files and values of directories."""

from __future__ import annotations

from pathlib import Path

import click

from undertow.cli.common import json_option, show
from undertow.errors import UndertowError


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@json_option
def command(paths: tuple[str, ...], as_json: bool) -> None:
    """Check corpus, counts and model directories: file sizes, hashes, and whether all values are valid."""
    results = {}
    for path in paths:
        try:
            results[path] = f"whole ({check(Path(path))})"
        except UndertowError as e:
            results[path] = str(e)
    bad = [p for p, r in results.items() if not r.startswith("whole (")]
    if as_json:
        show({"whole": not bad, "results": results}, True)
    else:
        for path, result in results.items():
            click.echo(f"{path}: {result}" if path not in bad else f"{path}: NOT whole: {result}", err=path in bad)
    if bad:
        raise click.exceptions.Exit(1)


def check(path: Path) -> str:
    """The kind of a valid directory; raises an error otherwise."""
    from undertow.storage import CONFIG, load_model

    if (path / CONFIG).exists():
        return f"{load_model(path).kind} model"
    from undertow.cli.inspect import describe
    from undertow.text.verify import verify_corpus, verify_counts

    kind = str(describe(path)["kind"])
    if kind == "counts":
        verify_counts(path)
    else:
        verify_corpus(path)
    return kind
