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
@click.option(
    "--spans",
    type=click.FloatRange(1e-6, 1),
    help="Write the spans of at least this probability instead of the tags, a line each.",
)
@text_options
@overwrite_option
@json_option
def command(
    tagger: str,
    inputs: tuple[str, ...],
    out: str,
    probabilities: bool,
    spans: float | None,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Tag INPUTS (text files, glob patterns, - for standard input).

    Writes one line per token, word TAB tag, and a blank line after each sentence. With --spans, a line has the number
    of the sentence, from 1; the span's first token, from 0, and the token after its last; its type, its probability
    and its words. Running text is tokenized like the training text of the tagger's model, but keeps case and numbers;
    CoNLL and TSV files keep their tokens.
    """
    if out == "-" and as_json:
        raise click.UsageError("The tags and the --json report cannot both go to standard output: give a file with -o.")
    if probabilities and spans is not None:
        raise click.UsageError("--spans writes probabilities of its own: leave --probabilities out.")
    from undertow.atomic import check_file_target, finished_file
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model

    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    opened = open_model(tagger, "evaluate")
    # not the format: labelled text is in columns, but text to tag usually is not
    given = with_tagger_columns(with_model_tokenizer(given, _with_rule(opened)), opened, "column")
    warn_of_multiword_tokens(inputs, given, opened)
    facts: dict[str, Any] = {"tags" if spans is None else "spans": out, "sentences": 0, "tokens": 0}
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bar())
        stream: Any = sys.stdout.buffer if out == "-" else None
        for sentences in sentence_batches(inputs, progress, given):
            if spans is None:
                tags = opened.predict(sentences)
                columns = [sentences, tags, *([chances(opened, sentences, tags)] if probabilities else [])]
                lines = list(map(rows, *columns))
            else:
                lines = span_lines(opened, sentences, spans, facts["sentences"] + 1)
            if stream is None:  # only when there is something to write: bad input leaves no file behind
                ready = stack.enter_context(finished_file(Path(out), overwrite=overwrite))
                stream = stack.enter_context(open(ready, "wb"))
            stream.write("".join(lines).encode())
            facts["sentences"] += len(sentences)
            facts["tokens"] += sum(map(len, sentences))
    if out != "-":
        show(facts, as_json)


def rows(*columns: list[str]) -> str:
    """The lines of a sentence."""
    return "".join("\t".join(cells) + "\n" for cells in zip(*columns, strict=True)) + "\n"


def chances(tagger: Any, sentences: list[list[str]], tags: list[list[str]]) -> list[list[str]]:
    """The marginal probability of each tag, as text.

    Spans that are taken by their own probabilities may get a tag that was never learned, whose probability is 0.
    """
    number = {label: i for i, label in enumerate(tagger.labels_)}
    return [
        [f"{row[number[tag]] if tag in number else 0.0:.4f}" for row, tag in zip(p, found, strict=True)]
        for p, found in zip(tagger.predict_proba(sentences), tags, strict=True)
    ]


def span_lines(tagger: Any, sentences: list[list[str]], least: float, first: int) -> list[str]:
    """The probable spans of sentences whose numbers begin with `first`."""
    from undertow.errors import InputError

    if not hasattr(tagger, "predict_spans"):
        raise InputError("--spans needs a CRF, and a local tagger tags each token by itself: use --probabilities.")
    return [
        f"{number}\t{span.start}\t{span.end}\t{span.type}\t{p:.4g}\t{' '.join(words[span.start : span.end])}\n"
        for number, (words, found) in enumerate(
            zip(sentences, tagger.predict_spans(sentences, least), strict=True), first
        )
        for span, p in found
    ]


class _WithRule:
    def __init__(self, rule: dict[str, Any]) -> None:
        self.tokenizer_ = rule


def _with_rule(tagger: Any) -> _WithRule:
    """An object with the tokenizer of the tagger; without one the default that keeps numbers is used."""
    from undertow.text.tokenizer import Tokenizer

    return _WithRule(tagger.tokenizer_ or Tokenizer(numbers="keep").describe())
