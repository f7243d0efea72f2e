"""undertow fit lds: from text, a corpus or counts to a linear dynamical system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from undertow.cli.common import Size
from undertow.cli.count import count_into, one_kind, open_or_build, sibling
from undertow.cli.fitting import (
    Options,
    fit_and_save,
    model_options,
    size_of,
    text_options,
)
from undertow.errors import InputError
from undertow.progress import ProgressFn

OPTIONS: Options = {
    "--components": ("n_components", click.IntRange(1), "Dimension of the hidden state."),
    "--iterations": ("n_iter", click.IntRange(0), "EM iterations within the reduced basis."),
    "--full-iterations": ("n_full", click.IntRange(0), "EM iterations over the whole vocabulary, after these."),
    "--lags": ("lags", click.IntRange(1, 255), "Learn from word pairs 1 to LAGS tokens apart."),
    "--ssid-lags": ("ssid_lags", click.IntRange(1), "Lags of subspace identification, 2 to (LAGS + 1) / 2."),
    "--kappa": ("kappa", float, "Smoothing, in pseudo-counts per word; by default the mean count of a word."),
    "--noise": ("noise", click.Choice(["dropout", "uniform"]), "Form of the smoothing."),
    "--init": ("init", click.Choice(["ssid", "random"]), "Start from subspace identification, or at random."),
    "--seed": ("random_state", click.IntRange(0), "Seed of the random generator."),
}


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@model_options("LDS", OPTIONS)
@click.option("--memory", type=Size(), default="4G", show_default=True, help="Memory limit while counting.")
@text_options
def command(**given: Any) -> None:
    """Fit a linear dynamical system and save it.

    INPUTS is one counts directory; or one corpus directory, which is counted first, into a directory beside the model;
    or text files, from which both are built. Ctrl-C during the fit keeps the last finished iteration and saves it;
    after a kill the same command goes on.
    """
    from undertow import LDS

    model = LDS(n_jobs=given["jobs"], **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})
    planned = model.n_iter + model.n_full

    def report(counts: Any) -> dict[str, Any]:
        return size_of(counts) | {
            "components": model.n_components,
            "iterations": len(model.history_) if planned else 0,
            "planned_iterations": planned,
            "objective": round(model.history_[-1], 6),
        }

    fit_and_save(
        model,
        given,
        read=lambda progress, engine, facts: open_or_count(model.lags, ".lds", given, engine, progress, facts),
        report=report,
        planned=planned,
        unit="iteration",
        line=lambda event: f"objective {event.objective:.4f}",
    )


def open_or_count(
    lags: int, suffix: str, given: dict[str, Any], engine: Any, progress: ProgressFn, facts: dict[str, Any]
) -> Any:
    """The counts to fit: those given, or those of the corpus or text, written beside the model and named in facts."""
    from undertow.recipe import name_apart
    from undertow.text.counts_directory import COUNTS, counts_recipe
    from undertow.text.lag_counts import LagCounts

    inputs = given["inputs"]
    kind = one_kind(inputs)
    if kind == "counts":
        if len(inputs) > 1:
            raise InputError("Several counts are fitted as their sum: add them first, with undertow count.")
        return LagCounts.open(inputs[0])
    beside = sibling(Path(given["out"]), suffix, ".counts")
    corpus = open_or_build(inputs, sibling(beside, ".counts", ".corpus"), kind, given, progress)
    beside = name_apart(beside, COUNTS, counts_recipe(corpus, lags, across=False))
    facts |= {"corpus": str(corpus.path), "counts": str(beside)}
    return count_into(beside, corpus, lags, given, engine, progress)
