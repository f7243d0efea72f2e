"""The options for reading text, shared by all commands that take text files."""

from __future__ import annotations

import warnings
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
        help="Vocabulary size, special words included; or 'all'.",
    ),
    click.option(
        "--min-count",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Minimum count of a word in the vocabulary.",
    ),
    click.option(
        "--vocabulary", type=click.Path(), help="Use the vocabulary of this corpus, counts or model directory."
    ),
)
RULE_OPTIONS = (
    click.option(
        "--tokenizer",
        type=click.Choice(["words", "spaces", "jieba", "pythainlp", "icu"]),
        default="words",
        show_default=True,
        help="words: the built-in rules; spaces: split at white space, for pretokenized text; jieba, pythainlp, icu: "
        "these libraries, for languages without spaces.",
    ),
    click.option("--lower", is_flag=True, help="Lowercase the text."),
    click.option(
        "--numbers",
        type=click.Choice(["class", "keep"]),
        default="class",
        show_default=True,
        help="class: replace numbers by NUM; keep: leave them.",
    ),
    click.option(
        "--hyphens",
        type=click.Choice(["split", "keep"]),
        default="split",
        show_default=True,
        help="split: split words at hyphens; keep: leave them.",
    ),
    click.option(
        "--symbols",
        type=click.Choice(["whole", "split"]),
        default="whole",
        show_default=True,
        help="whole: keep web addresses, hashtags, mentions and emoji; split: take them apart.",
    ),
)
COLUMN_OPTION = click.option(
    "--column",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Column of the words in CoNLL and TSV files.",
)
BAD_UTF8_OPTION = click.option(
    "--on-bad-utf8",
    type=click.Choice(["strict", "replace", "skip"]),
    default="strict",
    show_default=True,
    help="What to do with bytes that are not UTF-8.",
)
TEXT_OPTIONS = (
    click.option(
        "--format",
        "format_",
        type=click.Choice(["auto", "text", "jsonl", "conll", "conllu", "tsv"]),
        default="auto",
        show_default="auto: by the file suffix",
        help="Format of the input files.",
    ),
    click.option(
        "--text-field",
        default="text",
        show_default=True,
        help="Field of JSON lines that holds the text; a.b is field b of object a.",
    ),
    COLUMN_OPTION,
    BAD_UTF8_OPTION,
    click.option(
        "--wrapped",
        is_flag=True,
        help="Join hard-wrapped lines: only blank lines end a paragraph.",
    ),
    *RULE_OPTIONS,
    click.option(
        "--sentences",
        type=click.Choice(["split", "lines"]),
        default="split",
        show_default=True,
        help="split: split lines into sentences; lines: one sentence per line.",
    ),
)
END_OPTIONS = (
    click.option(
        "--unknown-classes/--no-unknown-classes",
        default=True,
        show_default=True,
        help="Map words outside the vocabulary to classes by their spelling, or all to one unknown word.",
    ),
    click.option("--boundary", metavar="WORD", help="Append this word to every sentence, e.g. <eos>."),
    click.option(
        "--keep-empty", is_flag=True, help="Keep empty lines of pretokenized text as sentences (needs --boundary)."
    ),
)


def reading_options(f: F) -> F:
    """All options that `build_arguments` uses."""
    return _all((*VOCABULARY_OPTIONS, *TEXT_OPTIONS, *END_OPTIONS), f)


def reading_parameters() -> list[click.Parameter]:
    """The parameters that `reading_options` adds."""

    @reading_options
    def nothing() -> None: ...

    return list(click.command()(nothing).params)


def text_options(f: F) -> F:
    """Options for reading sentences from files, for commands that use the vocabulary of a model."""
    return _all(TEXT_OPTIONS, f)


def rule_options(f: F) -> F:
    """Options of the tokenizer, for commands that take a sentence as an argument."""
    return _all(RULE_OPTIONS, f)


def _all(options: Sequence[Callable[[F], F]], f: F) -> F:
    for option in reversed(options):
        f = option(f)
    return f


def build_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `build_corpus` from the options."""
    from pathlib import Path

    from undertow.text.corpus import VOCABULARY
    from undertow.text.vocabulary import Vocabulary

    vocabulary = None
    if given["vocabulary"] is not None:
        if given["min_count"] != 1:
            raise InputError("--min-count cannot be used with --vocabulary, which fixes the words: omit it.")
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
    """A tokenizer and reading options from the options of `text_options`."""
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
    """A tokenizer from the options of `rule_options`."""
    from undertow.text.tokenizer import Tokenizer

    return Tokenizer(
        rule=given["tokenizer"],
        lower=given["lower"],
        numbers=given["numbers"],
        hyphens=given["hyphens"],
        sentences=sentences,
        symbols=given["symbols"],
    )


def with_model_tokenizer(given: dict[str, Any], model: Any) -> dict[str, Any]:
    """The options, where those not given on the command line are those of the model's training text."""
    from undertow.text.segmenters import LIBRARIES
    from undertow.text.tokenizer import TokenizerWarning, tokenizer_from, tokenizer_options

    described = getattr(model, "tokenizer_", None) or {}
    own = tokenizer_options(described)
    context = click.get_current_context()
    names = {
        "tokenizer": "rule",
        "lower": "lower",
        "numbers": "numbers",
        "hyphens": "hyphens",
        "sentences": "sentences",
        "symbols": "symbols",
    }
    inherited = {
        option: own[key]
        for option, key in names.items()
        if option in given
        and key in own
        and own["rule"] != "callable"
        and context.get_parameter_source(option) == ParameterSource.DEFAULT
    }
    if "tokenizer" in inherited and own["rule"] in LIBRARIES:
        tokenizer_from(described)  # whether the library is there, in the same version
    if own.get("rule") == "callable" and context.get_parameter_source("tokenizer") == ParameterSource.DEFAULT:
        warnings.warn(
            f"The model's text was split by the function {own['name']}, which is not saved with it, and this text by "
            "the rule words: split it by that function and give it with --tokenizer spaces.",
            TokenizerWarning,
            stacklevel=2,
        )
    return {**given, **inherited}
