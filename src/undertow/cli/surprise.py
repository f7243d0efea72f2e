"""undertow surprise: how surprising each token of a text is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show
from undertow.cli.reading_options import text_options, with_model_tokenizer


@click.command()
@click.argument("model", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(), help="Write the page of `undertow view` to this file instead.")
@click.option("--title", help="Title of the page.  [default: describes its content]")
@click.option("--tsv", is_flag=True, help="Print a table with a header: sentence, token, word and bits by TAB.")
@text_options
@overwrite_option
@json_option
def command(
    model: str,
    inputs: tuple[str, ...],
    out: str | None,
    title: str | None,
    tsv: bool,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Compute how surprising the tokens of INPUTS (text files, glob patterns, - for standard input) are under MODEL.

    Prints for each token −log2 of its probability given the tokens before it, and given both sides; a blank line ends a
    sentence. With --json one object per sentence, null for an infinite number. If the corpus of the model has a
    boundary word, sentences end with it. With -o an HTML page colors the tokens by either number; of a long text it
    shows the first 10,000 tokens.
    """
    if (out is not None) + tsv + as_json > 1:
        raise click.UsageError("Choose one of -o, --tsv and --json.")
    from undertow.atomic import check_file_target
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model

    if out is not None:
        check_file_target(Path(out), overwrite=overwrite)
    opened = open_model(model, "surprise")
    given = with_model_tokenizer(given, opened)
    boundary = opened.vocabulary_.boundary
    end = [] if boundary is None else [boundary]
    if out is not None:
        from undertow.cli.view import first_sentences
        from undertow.view.document import save_page
        from undertow.view.pages import page

        sentences = [tokens + end for tokens in first_sentences(inputs, given)]
        save_page(page(opened, sentences, title=title), out, overwrite=overwrite)
        n_tokens = sum(map(len, sentences))
        facts = {"page": out, "bytes": Path(out).stat().st_size, "sentences": len(sentences), "tokens": n_tokens}
        show(facts, as_json=False)
        return
    n = 0
    if tsv:
        click.echo("sentence\ttoken\tword\tleft_to_right\tboth_sides")
    with progress_bar() as progress:
        for batch in sentence_batches(inputs, progress, given):
            for sentence in opened.surprise([tokens + end for tokens in batch]):
                n += 1
                if as_json:
                    click.echo(json.dumps(_record(sentence), ensure_ascii=False))
                else:
                    click.echo(_lines(sentence, n if tsv else None), nl=not tsv)


def _record(sentence: Any) -> dict[str, Any]:
    sides = {"left_to_right": sentence.left_to_right, "both_sides": sentence.both_sides}
    finite = {k: [x if math.isfinite(x) else None for x in v.tolist()] for k, v in sides.items()}
    return {"tokens": sentence.tokens, **finite}


def _lines(sentence: Any, number: int | None) -> str:
    rows = zip(sentence.tokens, sentence.left_to_right.tolist(), sentence.both_sides.tolist(), strict=True)
    if number is not None:
        return "".join(f"{number}\t{i}\t{w}\t{a:.4f}\t{b:.4f}\n" for i, (w, a, b) in enumerate(rows, 1))
    width = max(map(len, sentence.tokens), default=0)
    return "".join(f"{w:<{width}}  {a:6.2f}  {b:6.2f}\n" for w, a, b in rows)
