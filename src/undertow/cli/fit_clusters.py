"""undertow fit clusters: from text, a corpus or counts to word clusters as a model."""

from __future__ import annotations

from typing import Any

import click

from undertow.cli.count import one_kind
from undertow.cli.fitting import Options, fit_and_save, model_options, open_or_read, size_of, text_options

OPTIONS: Options = {
    "--clusters": ("n_clusters", click.IntRange(1), "Number of clusters."),
    "--iterations": ("n_iter", click.IntRange(1), "Maximum number of passes over the words."),
    "--init": ("init", click.Choice(["frequency", "random"]), "Initial clusters: by frequency rank, or random."),
    "--seed": ("random_state", click.IntRange(0), "Seed of --init random."),
}


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@model_options("WordClusters", OPTIONS)
@text_options
def command(**given: Any) -> None:
    """Cluster words by their neighbors and save the clusters as a model, for `undertow tag train --model`.

    INPUTS is one counts directory, one corpus directory, or text files, from which a corpus is built beside the model.
    `undertow clusters` writes the same clusters as lines of text. Ctrl-C keeps the last finished pass and saves it;
    after a kill the same command goes on.
    """
    from undertow import WordClusters

    model = WordClusters(n_jobs=given["jobs"], **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})

    def read(progress: Any, engine: Any, facts: dict[str, Any]) -> Any:
        from undertow.text.lag_counts import LagCounts

        if one_kind(given["inputs"]) == "counts":
            return LagCounts.open(given["inputs"][0])
        return open_or_read(given, ".clusters", progress, facts)

    fit_and_save(
        model,
        given,
        read=read,
        report=lambda data: (
            size_of(data)
            | {
                "clusters": model.n_clusters,
                "passes": len(model.history_),
                "objective": round(model.history_[-1], 6),
            }
        ),
        planned=model.n_iter,
        unit="pass",
        line=lambda event: f"objective {event.objective:.4f}",
    )
