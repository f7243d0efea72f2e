"""undertow fit context: from text or a corpus to vectors of tokens by a network that predicts words."""

from __future__ import annotations

from typing import Any

import click

from undertow.cli.fitting import Options, fit_and_save, model_options, open_or_read, size_of, text_options

OPTIONS: Options = {
    "--components": ("n_components", click.IntRange(1), "Numbers of the vector of a context, and of that of a word."),
    "--window": ("window", click.IntRange(1, 100), "Words to each side that the network reads."),
    "--hidden": ("n_hidden", click.IntRange(1), "Units of each of its two hidden layers."),
    "--iterations": ("n_iter", click.IntRange(1), "Passes over the text."),
    "--drawn": ("n_drawn", click.IntRange(1), "Other words that each word is told from in training."),
    "--letters/--no-letters": ("letters", bool, "Read rare and unknown words by their letters.  [default: letters]"),
    "--seed": ("random_state", click.IntRange(0), "Seed of the random generator."),
}


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@model_options("ContextVectors", OPTIONS)
@text_options
def command(**given: Any) -> None:
    """Train a network that predicts each word from the words around it, and save it.

    INPUTS is one corpus directory, or text files, from which a corpus is built beside the model. Ctrl-C keeps what is
    finished and saves it; after a kill the same command goes on. A million tokens take about half a minute of processor
    time a pass.
    """
    from undertow import ContextVectors

    chosen = {parameter: given[parameter] for parameter, _, _ in OPTIONS.values()}
    model = ContextVectors(n_jobs=given["jobs"], **chosen)
    fit_and_save(
        model,
        given,
        read=lambda progress, engine, facts: open_or_read(given, ".context", progress, facts),
        report=lambda corpus: size_of(corpus) | {"passes": model.n_iter, "objective": round(model.history_[-1], 4)},
        planned=model.n_iter,
        unit="part",
        line=lambda event: f"objective {event.objective:.4f}",
    )
