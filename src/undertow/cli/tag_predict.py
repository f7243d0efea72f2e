"""undertow tag predict: tag a text."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show
from undertow.cli.reading_options import text_options, with_model_tokenizer
from undertow.cli.tag_options import warn_of_multiword_tokens, with_tagger_columns


@click.command()
@click.argument("tagger", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(), default="-", help="Output file.  [default: standard output]")
@click.option("--probabilities", is_flag=True, help="Add a column with the probability of the tag.")
@text_options
@overwrite_option
@json_option
def command(
    tagger: str,
    inputs: tuple[str, ...],
    out: str,
    probabilities: bool,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Tag INPUTS (text files, glob patterns, - for standard input).

    Writes one line per token, word TAB tag, and a blank line after each sentence. Running text is tokenized like the
    training text of the tagger's model, but keeps case and numbers; CoNLL and TSV files keep their tokens.
    """
    if out == "-" and as_json:
        raise click.UsageError("The tags and the --json report cannot both go to standard output: give a file with -o.")
    from undertow.atomic import check_file_target, finished_file
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model

    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    opened = open_model(tagger, "evaluate")
    # not the format: labelled text is in columns, but text to tag usually is not
    given = with_tagger_columns(with_model_tokenizer(given, _with_rule(opened)), opened, "column")
    warn_of_multiword_tokens(inputs, given, opened)
    facts: dict[str, Any] = {"tags": out, "sentences": 0, "tokens": 0}
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar())
        stream: Any = sys.stdout.buffer if out == "-" else None
        for sentences in sentence_batches(inputs, progress, given):
            tags = opened.predict(sentences)
            if stream is None:  # only when there is something to write: bad input leaves no file behind
                ready = stack.enter_context(finished_file(Path(out), overwrite=overwrite))
                stream = stack.enter_context(open(ready, "wb"))
            columns = [sentences, tags, *([chances(opened, sentences, tags)] if probabilities else [])]
            stream.write("".join(map(rows, *columns)).encode())
            facts["sentences"] += len(sentences)
            facts["tokens"] += sum(map(len, sentences))
    if out != "-":
        show(facts, as_json)


def rows(*columns: list[str]) -> str:
    """The lines of a sentence."""
    return "".join("\t".join(cells) + "\n" for cells in zip(*columns, strict=True)) + "\n"


def chances(tagger: Any, sentences: list[list[str]], tags: list[list[str]]) -> list[list[str]]:
    """The marginal probability of each tag, as text."""
    number = {label: i for i, label in enumerate(tagger.labels_)}
    return [
        [f"{row[number[tag]]:.4f}" for row, tag in zip(p, found, strict=True)]
        for p, found in zip(tagger.predict_proba(sentences), tags, strict=True)
    ]


class _WithRule:
    def __init__(self, rule: dict[str, Any]) -> None:
        self.tokenizer_ = rule


def _with_rule(tagger: Any) -> _WithRule:
    """An object with the tokenizer of the tagger; without one the default that keeps numbers is used."""
    from undertow.text.tokenizer import Tokenizer

    return _WithRule(tagger.tokenizer_ or Tokenizer(numbers="keep").describe())
