"""undertow fit grammar: from text or a corpus to a context-free grammar."""

from __future__ import annotations

import math
from typing import Any

import click

from undertow.cli.fitting import (
    Options,
    fit_and_save,
    model_options,
    open_or_read,
    perplexity_facts,
    size_of,
    text_options,
)

OPTIONS: Options = {
    "--nonterminals": ("n_nonterminals", click.IntRange(1), "Number of nonterminals (symbols of phrases)."),
    "--preterminals": ("n_preterminals", click.IntRange(1), "Number of preterminals (symbols of words)."),
    "--rank": ("rank", click.IntRange(1), "Number of features between a symbol and its children."),
    "--init": ("init", click.Choice(["auto", "agreement", "chain", "clusters", "random"]), "Initialization of EM."),
    "--restarts": ("n_restarts", click.IntRange(1), "Number of random starts; by default 5 for agreement, else 1."),
    "--lean": ("lean", click.Choice(["right", "left", "none"]), "The side to which the first trees branch."),
    "--iterations": ("n_iter", click.IntRange(1), "Passes over the text."),
    "--chunks": ("n_chunks", click.IntRange(1), "Parts of the text; parameters are updated after each."),
    "--smoothing": ("smoothing", float, "Multiplies all pseudo-counts; 0 is maximum likelihood."),
    "--max-length": ("max_length", click.IntRange(1), "Longer sentences are left out."),
    "--validation": ("validation", float, "Share of the text, from its end, held out for early stopping."),
    "--seed": ("random_state", click.IntRange(0), "Seed of the random generator."),
}


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@model_options("Grammar", OPTIONS)
@text_options
def command(**given: Any) -> None:
    """Fit a probabilistic context-free grammar by EM and save it.

    INPUTS is one corpus directory, or text files, from which a corpus is built beside the model. Ctrl-C during the fit
    keeps the last finished pass and saves it; after a kill the same command goes on.
    """
    from undertow import Grammar

    model = Grammar(n_jobs=given["jobs"], **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})

    def report(corpus: Any) -> dict[str, Any]:
        return size_of(corpus) | {"sentences": model.n_sentences_} | perplexity_facts(model)

    fit_and_save(
        model,
        given,
        read=lambda progress, engine, facts: open_or_read(given, ".grammar", progress, facts),
        report=report,
        planned=model.n_iter,
        unit="pass",
        line=lambda event: f"perplexity {math.exp(-event.objective):.2f}",
    )
