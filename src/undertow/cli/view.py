"""undertow view: an HTML page of a model, or of a text as a model reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, kind_options, overwrite_option, progress_bar, show
from undertow.cli.reading_options import text_options, with_model_tokenizer


@click.command()
@click.argument("model", type=click.Path())
@click.argument("inputs", metavar="[TEXT]...", nargs=-1)
@click.option("-o", "--out", required=True, type=click.Path(), help="Output file, such as page.html.")
@click.option("--title", help="Title of the page.  [default: describes its content]")
@kind_options
@text_options
@overwrite_option
@json_option
def command(
    model: str, inputs: tuple[str, ...], out: str, title: str | None, overwrite: bool, as_json: bool, **given: Any
) -> None:
    """Write a page about MODEL as one HTML file that works offline.

    The states of an HMM, FactorialHMM or word clusters, the words of an LDS, the map of a dynamic embedding, the rules
    of a grammar, the scores of a tagger. With TEXT (text files, glob patterns, - for standard input) the page shows how
    an HMM, FactorialHMM or LDS reads it, token by token (of a long text its first 10,000 tokens), or the trees that a
    grammar gives it.
    """
    from undertow.atomic import check_file_target
    from undertow.cli.model import open_model
    from undertow.text.events import check_kinds
    from undertow.view.document import save_page
    from undertow.view.map_page import map_page
    from undertow.view.pages import page

    check_file_target(Path(out), overwrite=overwrite)
    opened = open_model(model)
    facts: dict[str, Any] = {}
    names = [given["row_name"], given["column_name"]]
    if any(names) and not hasattr(opened, "map_data"):
        raise click.UsageError(f"--row-name and --column-name apply to maps only, and {model} is not one.")
    if inputs:
        sentences = first_sentences(inputs, with_model_tokenizer(given, opened))
        html = page(opened, sentences, title=title)
        facts = {"sentences": len(sentences), "tokens": sum(map(len, sentences))}
    elif hasattr(opened, "map_data"):
        data = opened.map_data()
        new = {old: name or old for old, name in zip(data.kind_names, names, strict=True)}
        check_kinds(list(new.values()))
        data = data._replace(kind_names=list(new.values()), kinds=[new[kind] for kind in data.kinds])
        html = map_page(data, title=title)
        facts = {"entities": len(data.names), "times": len(data.times)}
    else:
        html = page(opened, title=title)
    save_page(html, out, overwrite=overwrite)
    show({"page": out, "bytes": Path(out).stat().st_size, **facts}, as_json)


def first_sentences(inputs: tuple[str, ...], given: dict[str, Any]) -> list[list[str]]:
    """The first sentences of a text, one more than a page shows if there are so many."""
    from undertow.cli.embed import sentence_batches
    from undertow.view.reader_data import MOST_TOKENS

    sentences: list[list[str]] = []
    n_tokens = 0
    with progress_bar() as progress:
        for batch in sentence_batches(inputs, progress, given):
            for sentence in batch:
                sentences.append(sentence)
                n_tokens += len(sentence)
                if n_tokens > MOST_TOKENS:
                    return sentences
    return sentences
