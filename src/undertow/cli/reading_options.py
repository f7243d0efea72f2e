"""The options that say how text is read, for every verb that takes text files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from undertow.cli.common import WordCount
from undertow.errors import InputError

if TYPE_CHECKING:
    from undertow.text.tokenizer import Tokenizer

F = TypeVar("F", bound=Callable[..., Any])

VOCABULARY_OPTIONS = (
    click.option(
        "--vocab-size",
        type=WordCount(),
        default="50000",
        show_default=True,
        help="Words to keep, special ones counted; or 'all'.",
    ),
    click.option(
        "--min-count", type=click.IntRange(1), default=1, show_default=True, help="Keep words seen at least this often."
    ),
    click.option(
        "--vocabulary", type=click.Path(), help="Use the vocabulary of this corpus, counts or model directory."
    ),
)
RULE_OPTIONS = (
    click.option(
        "--tokenizer",
        type=click.Choice(["words", "spaces"]),
        default="words",
        show_default=True,
        help="The word rule, or white space for pretokenised text.",
    ),
    click.option("--lower", is_flag=True, help="Lower the case."),
    click.option(
        "--numbers",
        type=click.Choice(["class", "keep"]),
        default="class",
        show_default=True,
        help="Numbers become NUM, or stay.",
    ),
    click.option(
        "--hyphens",
        type=click.Choice(["split", "keep"]),
        default="split",
        show_default=True,
        help="A hyphen splits a word, or stays in it.",
    ),
)
TEXT_OPTIONS = (
    click.option(
        "--format",
        "format_",
        type=click.Choice(["auto", "text", "jsonl", "conll", "conllu", "tsv"]),
        default="auto",
        show_default="auto: by the file name",
        help="What the files are.",
    ),
    click.option(
        "--text-field",
        default="text",
        show_default=True,
        help="Field of JSON lines that holds the text; a.b looks inside.",
    ),
    click.option(
        "--column",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Column of the words in CoNLL and TSV files.",
    ),
    click.option(
        "--on-bad-utf8",
        type=click.Choice(["strict", "replace", "skip"]),
        default="strict",
        show_default=True,
        help="What to do with bytes that are not UTF-8.",
    ),
    click.option(
        "--wrapped",
        is_flag=True,
        help="Lines are hard-wrapped: blank lines end paragraphs, other line ends are spaces.",
    ),
    *RULE_OPTIONS,
    click.option(
        "--sentences",
        type=click.Choice(["split", "lines"]),
        default="split",
        show_default=True,
        help="Split lines into sentences, or take each line as one.",
    ),
)
END_OPTIONS = (
    click.option(
        "--unknown-classes/--no-unknown-classes",
        default=True,
        show_default=True,
        help="Words left out count as the class of their spelling, or all as one.",
    ),
    click.option("--boundary", metavar="WORD", help="Put this word behind every sentence, e.g. <eos>."),
    click.option(
        "--keep-empty", is_flag=True, help="Keep the empty lines of pretokenised text as sentences (needs --boundary)."
    ),
)


def reading_options(f: F) -> F:
    """Everything `build_arguments` asks for."""
    return _all((*VOCABULARY_OPTIONS, *TEXT_OPTIONS, *END_OPTIONS), f)


def text_options(f: F) -> F:
    """How files become sentences, for verbs whose words a model has fixed already."""
    return _all(TEXT_OPTIONS, f)


def rule_options(f: F) -> F:
    """How a sentence becomes tokens, for verbs that take one as an argument."""
    return _all(RULE_OPTIONS, f)


def _all(options: Sequence[Callable[[F], F]], f: F) -> F:
    for option in reversed(options):
        f = option(f)
    return f


def build_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The options above as arguments of `build_corpus`."""
    from pathlib import Path

    from undertow.text.corpus import VOCABULARY
    from undertow.text.vocabulary import Vocabulary

    vocabulary = None
    if given["vocabulary"] is not None:
        if given["min_count"] != 1:
            raise InputError("--vocabulary gives the words: leave out --min-count.")
        path = Path(given["vocabulary"])
        vocabulary = Vocabulary.read(path / VOCABULARY if path.is_dir() else path)
    return {
        "vocab_size": given["vocab_size"] or None,
        "min_count": given["min_count"],
        "vocabulary": vocabulary,
        "boundary": given["boundary"],
        "unknown_classes": given["unknown_classes"],
        "keep_empty": given["keep_empty"],
        **text_arguments(given),
    }


def text_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The options of `text_options` as a tokenizer and how to read."""
    from undertow.text.reading import ReadingOptions

    return {
        "tokenizer": rule(given, sentences=given["sentences"]),
        "reading": ReadingOptions(
            format=given["format_"],
            text_field=given["text_field"],
            column=given["column"],
            on_bad_utf8=given["on_bad_utf8"],
            wrapped=given["wrapped"],
        ),
    }


def rule(given: dict[str, Any], *, sentences: str) -> Tokenizer:
    """The options of `rule_options` as a tokenizer."""
    from undertow.text.tokenizer import Tokenizer

    return Tokenizer(
        rule=given["tokenizer"],
        lower=given["lower"],
        numbers=given["numbers"],
        hyphens=given["hyphens"],
        sentences=sentences,
    )


def as_the_model(given: dict[str, Any], model: Any) -> dict[str, Any]:
    """The options with the model's own rule in place of those that were not given: its text was cut by it."""
    own = getattr(model, "tokenizer_", None) or {}
    context = click.get_current_context()
    names = {
        "tokenizer": "rule",
        "lower": "lower",
        "numbers": "numbers",
        "hyphens": "hyphens",
        "sentences": "sentences",
    }
    followed = {
        option: own[key]
        for option, key in names.items()
        if option in given
        and key in own
        and own["rule"] != "callable"
        and context.get_parameter_source(option) == ParameterSource.DEFAULT
    }
    return {**given, **followed}
