"""undertow generate: text under exact constraints, or the probability of the constraints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from undertow.cli.common import json_option, markers_option, progress_bar

if TYPE_CHECKING:
    from undertow.constraints import Constraint


class Range(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.5 on
    """A number of words, or a range: 12 or 8:12."""

    name = "n|min:max"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, int]:
        low, colon, high = str(value).partition(":")
        if not (low.isdigit() and (high.isdigit() if colon else True)):
            self.fail(f"{value!r} is not a number of words: write 12, or 8:12 for a range.", param, ctx)
        return (int(low), int(high)) if colon else int(low)


@click.command()
@click.argument("model", type=click.Path())
@click.option("--prefix", default="", help="Tokens before the text, separated by spaces.")
@click.option("--suffix", default="", help="Tokens after the text, separated by spaces.")
@click.option("--length", type=Range(), default="12", show_default=True, help="Number of words, or a range: 8:12.")
@click.option("--contains", multiple=True, metavar="WORDS", help="A word or phrase that must occur; repeatable.")
@click.option("--ordered", is_flag=True, help="The words of --contains occur in the given order.")
@click.option("--without", multiple=True, metavar="WORDS", help="A word or phrase that must not occur; repeatable.")
@click.option("--phrase", multiple=True, metavar="WORDS", help="An exact phrase that must occur; repeatable.")
@click.option("--ends-with", metavar="WORDS", help="The words that the text ends with.")
@click.option(
    "--matches", metavar="PATTERN", help='A regular expression over words: "the ( old | wide )* {river|sea} .*"'
)
@click.option("-n", "n", type=click.IntRange(1), help="Number of texts; 5 by default.")
@click.option("--temperature", type=float, default=1.0, show_default=True, help="Below 1 favors more probable words.")
@click.option("--best", is_flag=True, help="The most probable text instead of samples.")
@click.option("--probability", "only_probability", is_flag=True, help="Print the probability of the constraints only.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random generator.")
@markers_option
@json_option
def command(model: str, as_json: bool, **given: Any) -> None:
    """Generate texts from MODEL that satisfy all constraints, one per line.

    Texts are drawn exactly from the model given that the constraints hold; docs/constraints.md explains them.
    """
    if given["best"] and given["temperature"] != 1:
        raise click.UsageError("--best gives the one most probable text: leave out --temperature.")
    if given["best"] and given["n"] not in (None, 1):
        raise click.UsageError("--best gives the one most probable text: leave out -n.")
    from undertow.cli.model import open_model

    opened = open_model(model, "generate")
    constraint = _constraint(given)
    around = {"prefix": given["prefix"].split(), "suffix": given["suffix"].split(), "length": given["length"]}
    if given["only_probability"]:
        if constraint is None:
            raise click.UsageError("--probability needs a constraint: --contains, --without, --phrase or --matches.")
        with progress_bar() as progress:
            p = opened.probability(constraint, **around, progress=progress)
        click.echo(json.dumps({"probability": p}) if as_json else f"{p:.6g}")
        return
    how = {"method": "best"} if given["best"] else {"n": given["n"] or 5, "random_state": given["seed"]}
    how["markers"] = given["markers"]
    how |= {"constraint": constraint, "temperature": given["temperature"]}
    with progress_bar() as progress:
        texts = opened.generate(**around, **how, progress=progress)
    if as_json:
        click.echo(json.dumps({"texts": texts}, ensure_ascii=False))
        return
    for text in texts:
        click.echo(" ".join(text))


def _constraint(given: dict[str, Any]) -> Constraint | None:
    """All that was asked for, joined by and."""
    from undertow.constraints import Contains, EndsWith, Matches, Phrase, Without

    parts: list[Constraint] = [Phrase(words) for words in given["phrase"]]
    if given["contains"]:
        parts.append(Contains(*given["contains"], ordered=given["ordered"]))
    elif given["ordered"]:
        raise click.UsageError("--ordered needs --contains.")
    if given["without"]:
        parts.append(Without(*given["without"]))
    if given["ends_with"] is not None:
        parts.append(EndsWith(given["ends_with"]))
    if given["matches"] is not None:
        parts.append(Matches(given["matches"]))
    together: Constraint | None = None
    for part in parts:
        together = part if together is None else together & part
    return together
