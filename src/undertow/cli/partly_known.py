"""Texts with gaps on the command line."""

from __future__ import annotations

from typing import Any

import click

from undertow.cli.common import F
from undertow.errors import InputError


def text_argument(f: F) -> F:
    return click.argument("text")(f)


def read_text(text: str, opened: Any, given: dict[str, Any]) -> list[Any]:
    """The tokens of a text in which ? is a gap and \\? a question mark; the model's boundary word is put at its end."""
    from undertow.cli.neighbors import tokens_of
    from undertow.cli.reading_options import with_model_tokenizer

    given = with_model_tokenizer(given, opened)
    tokens: list[Any] = []
    for piece in text.split():
        if piece in ("?", "\\?"):
            tokens.append(None if piece == "?" else frozenset("?"))
        else:
            tokens += tokens_of(piece, given)
    if not tokens:
        raise InputError('The text is empty: give words and gaps, such as "the ? of the river".')
    boundary = opened.vocabulary_.boundary
    return tokens if boundary is None else [*tokens, boundary]


def shown(token: Any) -> str:
    """A token of a text as it is printed."""
    return "?" if token is None else token if isinstance(token, str) else "|".join(sorted(token))
