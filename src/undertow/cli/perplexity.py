"""undertow perplexity: the perplexity of a text under a model."""

from __future__ import annotations

import math
from typing import Any

import click

from undertow.cli.common import json_option, progress_bar, show
from undertow.cli.reading_options import text_options, with_model_tokenizer


@click.command()
@click.argument("model", type=click.Path())
@click.argument("inputs", nargs=-1, required=True)
@text_options
@json_option
def command(model: str, inputs: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Compute the perplexity per token of INPUTS (text files, glob patterns, - for standard input) under MODEL.

    Words outside the vocabulary are mapped to the unknown word, so only compare models with the same vocabulary. If the
    corpus of the model was built with --boundary, the boundary words are predicted too.
    """
    from undertow.cli.embed import sentence_batches
    from undertow.cli.model import open_model

    opened = open_model(model, "perplexity")
    given = with_model_tokenizer(given, opened)
    vocabulary = opened.vocabulary_
    end = [] if vocabulary.boundary is None else [vocabulary.boundary]
    n_sentences = n_tokens = n_unknown = 0
    total = 0.0
    with progress_bar() as progress:
        for batch in sentence_batches(inputs, progress, given):
            sentences = [tokens + end for tokens in batch]
            n_here = sum(map(len, sentences))
            total += opened.score(sentences) * n_here
            n_tokens += n_here
            n_sentences += len(sentences)
            n_unknown += sum(t not in vocabulary or t == vocabulary.unknown for tokens in batch for t in tokens)
    unknown, perplexity = n_unknown / n_tokens, math.exp(-total / n_tokens)
    facts = {
        "sentences": n_sentences,
        "tokens": n_tokens,
        "unknown": unknown if as_json else f"{unknown:.2%}",
        "perplexity": perplexity if as_json else f"{perplexity:,.2f}",
    }
    show(facts, as_json)
