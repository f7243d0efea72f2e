"""undertow fit hmm: from text or a corpus to a hidden Markov model."""

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
    "--states": ("n_states", click.IntRange(1), "Number of hidden states."),
    "--blocks": ("n_blocks", click.IntRange(1), "Blocks of words and states; by default chosen by --states."),
    "--rank": ("rank", click.IntRange(1), "Rank of the transition; full by default."),
    "--band": ("band", click.IntRange(0), "Half-width of a band added to the low rank, without blocks."),
    "--init": ("init", click.Choice(["auto", "clusters", "spectral", "random"]), "Initialization of EM."),
    "--parameterization": (
        "parameterization",
        click.Choice(["auto", "table", "neural"]),
        "Tables by EM, or tied through embeddings; auto: tied for many states and 100,000 tokens or more.",
    ),
    "--width": ("width", click.IntRange(1), "Width of the embeddings, if tied."),
    "--dropout": ("dropout", click.FloatRange(0, 0.95), "Share of states dropped in each batch, if tied."),
    "--batch-tokens": ("batch_tokens", click.IntRange(1), "Tokens per gradient step, if tied."),
    "--features": ("features", click.Choice(["learned", "orthogonal", "fourier"]), "Feature map of a neural low rank."),
    "--iterations": ("n_iter", click.IntRange(1), "Passes over the text."),
    "--chunks": ("n_chunks", click.IntRange(1), "Parts of the text; parameters are updated after each."),
    "--smoothing": ("smoothing", float, "Multiplies all pseudo-counts; 0 is maximum likelihood."),
    "--validation": ("validation", float, "Share of the text, from its end, held out for early stopping."),
    "--carry": ("carry", bool, "Carry the state from sentence to sentence."),
    "--seed": ("random_state", click.IntRange(0), "Seed of the random generator."),
}


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@model_options("HMM", OPTIONS)
@text_options
def command(**given: Any) -> None:
    """Fit a hidden Markov model and save it.

    INPUTS is one corpus directory, or text files, from which a corpus is built beside the model. Ctrl-C during the fit
    keeps the last finished pass and saves it; after a kill the same command goes on.

    Two million tokens take about ten minutes of processor time with the default 6,144 states. Fewer states, such as
    --states 1024, are a good size for a first look.
    """
    from undertow import HMM

    model = HMM(n_jobs=given["jobs"], **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})

    def report(corpus: Any) -> dict[str, Any]:
        return size_of(corpus) | {"states": model.params_.n_states} | perplexity_facts(model)

    fit_and_save(
        model,
        given,
        read=lambda progress, engine, facts: open_or_read(given, ".hmm", progress, facts),
        report=report,
        planned=model.n_iter,
        unit="pass",
        line=lambda event: f"perplexity {math.exp(-event.objective):.2f}",
    )
