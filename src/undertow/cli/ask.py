"""undertow ask: which word fits, and what another word would change."""

from __future__ import annotations

import json
from typing import Any

import click

from undertow.cli.common import json_option
from undertow.cli.partly_known import text_argument
from undertow.cli.reading_options import rule_options
from undertow.errors import InputError


@click.command()
@click.argument("model", type=click.Path())
@text_argument
@click.option("--words", metavar="WORD,WORD,…", help="Compare these words at the gap, or at --position.")
@click.option("--what-if", "what_if", metavar="WORD", help="Show what changes elsewhere if this word is at --position.")
@click.option("--position", type=int, help="The number of a token of the text, from 1.  [default: the only gap]")
@rule_options
@json_option
def command(
    model: str,
    text: str,
    words: str | None,
    what_if: str | None,
    position: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Ask MODEL about TEXT, such as "the ? of the river" --words bank,mouth; ? is a gap and \\? a question mark.

    With --words: each word's probability given both sides, its share among these words, and the log-odds against the
    others. With --what-if: for every other token, how far the distribution of its hidden state moves (0 to 1), and by
    how many bits it becomes more surprising.
    """
    if (words is None) == (what_if is None):
        raise click.UsageError("Give words to compare with --words, or another word with --what-if.")
    from undertow.cli.model import open_model
    from undertow.cli.partly_known import read_text, shown

    opened = open_model(model, "compare" if words is not None else "what_if")
    tokens = read_text(text, opened, given)
    place = _place(tokens, position)
    if words is not None:
        found = opened.compare(tokens, place, [w for w in words.split(",") if w])
        if as_json:
            click.echo(json.dumps({"position": place + 1, "words": [f._asdict() for f in found]}, ensure_ascii=False))
            return
        width = max(len("word"), *(len(f.word) for f in found))
        click.echo(f"{'word':<{width}}  probability    share  log-odds")
        for f in found:
            click.echo(f"{f.word:<{width}}  {f.probability:11.4g}  {f.share:7.2%}  {f.log_odds:+8.3f}")
        return
    changes = opened.what_if(tokens, place, what_if)
    if as_json:
        rows = [
            {**c._asdict(), "position": c.position + 1, "token": shown(c.token), "divergence": _finite(c.divergence)}
            for c in changes
        ]
        click.echo(json.dumps({"position": place + 1, "word": what_if, "changes": rows}, ensure_ascii=False))
        return
    width = max(len("token"), *(len(shown(c.token)) for c in changes))
    click.echo(f"position  {'token':<{width}}  state moves  more bits")
    for c in changes:
        moves, bits = f"{c.total_variation:11.4f}", f"{c.surprise:+9.3f}"
        click.echo(f"{c.position + 1:>8}  {shown(c.token):<{width}}  {moves}  {bits}")


def _place(tokens: list[Any], position: int | None) -> int:
    """The index of the token that is asked about."""
    if position is not None:
        if not 1 <= position <= len(tokens):
            raise InputError(f"--position {position} is outside the text, which has {len(tokens)} tokens.")
        return position - 1
    gaps = [i for i, token in enumerate(tokens) if token is None]
    if len(gaps) != 1:
        raise InputError(f"The text has {len(gaps)} gaps: say with --position which token is asked about, from 1.")
    return gaps[0]


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
