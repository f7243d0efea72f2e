"""undertow fit pmi: from text, a corpus or counts to word vectors by pointwise mutual information."""

from __future__ import annotations

from typing import Any

import click

from undertow.cli.common import Size
from undertow.cli.fit_lds import open_or_count
from undertow.cli.fitting import Options, fit_and_save, model_options, size_of, text_options

OPTIONS: Options = {
    "--components": ("n_components", click.IntRange(1), "Numbers of a vector, for each kind of context."),
    "--contexts": ("contexts", click.Choice(["near", "wide", "both"]), "Which words are contexts of a word."),
    "--lags": ("lags", click.IntRange(1, 255), "Wide contexts are the words up to LAGS tokens away."),
    "--context-words": ("n_contexts", click.IntRange(1), "How many of the most frequent words are contexts."),
    "--iterations": ("n_iter", click.IntRange(1), "Subspace iterations."),
    "--seed": ("random_state", click.IntRange(0), "Seed of the random generator."),
}


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@model_options("PMIVectors", OPTIONS)
@click.option("--memory", type=Size(), default="4G", show_default=True, help="Memory limit while counting.")
@text_options
def command(**given: Any) -> None:
    """Learn word vectors by pointwise mutual information and save them.

    INPUTS is one counts directory; or one corpus directory, which is counted first, into a directory beside the model;
    or text files, from which both are built. Ctrl-C keeps the last finished iteration and saves it; after a kill the
    same command goes on.
    """
    from undertow import PMIVectors

    model = PMIVectors(n_jobs=given["jobs"], **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})
    fit_and_save(
        model,
        given,
        read=lambda progress, engine, facts: open_or_count(max(model.lags, 2), ".pmi", given, engine, progress, facts),
        report=lambda data: (
            size_of(data)
            | {
                "numbers": int(model.vectors_.shape[1]),
                "iterations": len(model.history_),
                "explained": round(model.history_[-1], 4),
            }
        ),
        planned=model.n_iter,
        unit="iteration",
        line=lambda event: f"{event.objective:.1%} explained",
    )
