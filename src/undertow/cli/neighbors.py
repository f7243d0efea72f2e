"""undertow neighbors: nearest neighbors of a word, or of a token in its sentence."""

from __future__ import annotations

import json
from typing import Any

import click

from undertow.cli.common import json_option
from undertow.cli.reading_options import rule, rule_options, with_model_tokenizer
from undertow.errors import InputError


@click.command()
@click.argument("model", type=click.Path())
@click.argument("word", required=False)
@click.option("--sentence", metavar="TEXT", help="List the neighbors of a token of this sentence, in its context.")
@click.option("--word", "token", metavar="WORD", help="The token of the sentence.")
@click.option("--position", type=int, help="The number of the token, from 1; needed if the word occurs more than once.")
@click.option("-n", "--number", type=click.IntRange(1), default=10, show_default=True, help="Number of neighbors.")
@rule_options
@json_option
def command(
    model: str,
    word: str | None,
    sentence: str | None,
    token: str | None,
    position: int | None,
    number: int,
    as_json: bool,
    **given: Any,
) -> None:
    """List the nearest neighbors of WORD in MODEL with their cosine similarities.

    With --sentence "They sat on the bank of the river" --word bank, the neighbors of this occurrence of bank.
    """
    if (word is None) == (sentence is None):
        raise click.UsageError("Give a word, or a sentence with --sentence and its token with --word.")
    if (sentence is None) != (token is None and position is None):
        raise click.UsageError("--sentence needs --word or --position, and they need --sentence.")
    from undertow.cli.model import open_model

    opened = open_model(model, "neighbors")
    given = with_model_tokenizer(given, opened)
    if sentence is None:
        found = opened.neighbors(word, number)
    else:
        tokens = tokens_of(sentence, given)
        found = opened.neighbors(tokens, number, position=find(tokens, token, position, given))
    if as_json:
        click.echo(json.dumps({"neighbors": [n._asdict() for n in found]}, ensure_ascii=False))
        return
    width = max((len(n.word) for n in found), default=0)
    for n in found:
        click.echo(f"{n.word:<{width}}  {n.cosine:.3f}")


def tokens_of(text: str, given: dict[str, Any]) -> list[str]:
    """The tokens of one sentence, whatever full stops and line ends it holds."""
    one_line = " ".join(text.split())
    return [token for sentence in rule(given, sentences="lines")(one_line) for token in sentence]


def find(tokens: list[str], word: str | None, position: int | None, given: dict[str, Any]) -> int:
    """The index of the requested token."""
    if position is not None:
        if not 1 <= position <= len(tokens):
            raise InputError(f"--position {position} is outside the sentence, which has {len(tokens)} tokens.")
        if word is not None and tokens[position - 1] not in (word, *tokens_of(word, given)):
            raise InputError(f"Token {position} of the sentence is {tokens[position - 1]!r}, not {word!r}.")
        return position - 1
    assert word is not None
    # the word as it was typed, or as the rule writes it (--lower, NUM)
    for spelling in (word, *tokens_of(word, given)):
        places = [i for i, t in enumerate(tokens) if t == spelling]
        if len(places) > 1:
            where = ", ".join(str(i + 1) for i in places)
            raise InputError(f"The word {word!r} is token {where} of the sentence: choose one with --position.")
        if places:
            return places[0]
    raise InputError(f"The word {word!r} is not in the sentence, whose tokens are {' '.join(tokens)!r}.")
