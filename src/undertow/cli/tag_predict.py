"""undertow tag predict: a text with its tags."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show
from undertow.cli.reading_options import as_the_model, text_options
from undertow.cli.tag_options import as_the_tagger


@click.command()
@click.argument("tagger", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(), default="-", help="File to write.  [default: standard output]")
@text_options
@overwrite_option
@json_option
def command(tagger: str, inputs: tuple[str, ...], out: str, overwrite: bool, as_json: bool, **given: Any) -> None:
    """Tag INPUTS (text files, globs, - for standard input): a row a token, word and tag with a tab between them.

    A blank line ends a sentence. Text is cut by the rule of the text of the tagger's model, with words and numbers left
    as they are written; files of columns keep their tokens.
    """
    if out == "-" and as_json:
        raise click.UsageError("Standard output takes the tags or the --json report, not both: give a file with -o.")
    from undertow.atomic import check_file_target, finished_file
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model

    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    opened = open_model(tagger, "evaluate")
    # not the format: labels stood in columns, and what is to be tagged is mostly running text
    given = as_the_tagger(as_the_model(given, _with_rule(opened)), opened, "column")
    facts: dict[str, Any] = {"tags": out, "sentences": 0, "tokens": 0}
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar())
        stream: Any = sys.stdout.buffer if out == "-" else None
        for sentences in sentence_batches(inputs, progress, given):
            tags = opened.predict(sentences)
            if stream is None:  # not before there is something to write: a wrong input leaves nothing behind
                ready = stack.enter_context(finished_file(Path(out), overwrite=overwrite))
                stream = stack.enter_context(open(ready, "wb"))
            stream.write("".join(map(rows, sentences, tags)).encode())
            facts["sentences"] += len(sentences)
            facts["tokens"] += sum(map(len, sentences))
    if out != "-":
        show(facts, as_json)


def rows(words: list[str], tags: list[str]) -> str:
    return "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"


class _WithRule:
    def __init__(self, rule: dict[str, Any]) -> None:
        self.tokenizer_ = rule


def _with_rule(tagger: Any) -> _WithRule:
    """What `as_the_model` asks for the rule; a tagger without one reads words as they are written all the same."""
    from undertow.text.tokenizer import Tokenizer

    return _WithRule(tagger.tokenizer_ or Tokenizer(numbers="keep").describe())
