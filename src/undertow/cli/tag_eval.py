"""undertow tag eval: evaluate a tagger on labelled text."""

from __future__ import annotations

import json
from typing import Any

import click

from undertow.cli.common import json_option
from undertow.cli.tag_options import labelled_options, read_labelled, with_tagger_columns

GROUPS = {"all": "all tokens", "oov": "unseen words", "rare": "rare words"}


@click.command()
@click.argument("tagger", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@labelled_options
@json_option
def command(tagger: str, inputs: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Evaluate TAGGER on INPUTS: CoNLL, CoNLL-U or TSV files with one word and its tag per row.

    Unseen words do not occur in the training text; rare words occur at most twice, unseen words included. If the tags
    mark spans, precision, recall and F1 of spans are computed as conlleval does. Columns and format default to those of
    the training.
    """
    from undertow.cli.model import open_model

    opened = open_model(tagger, "evaluate")
    given = with_tagger_columns(given, opened, "tags", "column", "format_")
    report = opened.evaluate(*read_labelled(inputs, given))
    if as_json:
        click.echo(json.dumps(report.as_dict(), ensure_ascii=False))
    else:
        click.echo("\n".join(table(report)))


def table(report: Any) -> list[str]:
    """The report in aligned columns."""
    lines = [f"{'':<16}{'tokens':>10}{'right':>10}{'accuracy':>10}"]
    for group, a in report.tokens.items():
        share = "-" if a.accuracy is None else f"{a.accuracy:.2%}"
        lines.append(f"{GROUPS[group]:<16}{a.total:>10,}{a.right:>10,}{share:>10}")
    if report.spans is not None:
        from undertow.results.tagging.scores import ALL_TYPES

        width = max(16, *(len(t) + 2 for t in report.spans))
        lines += ["", f"{'':<{width}}{'spans':>10}{'found':>10}{'right':>10}{'precision':>11}{'recall':>9}{'F1':>9}"]
        for type_, s in report.spans.items():
            name = "all spans" if type_ == ALL_TYPES else type_ or "no type"
            shares = f"{s.precision:>11.2%}{s.recall:>9.2%}{s.f1:>9.2%}"
            lines.append(f"{name:<{width}}{s.gold:>10,}{s.predicted:>10,}{s.correct:>10,}{shares}")
    return lines
