"""undertow fit dynamic: from a table of events to a moving map."""

from __future__ import annotations

from typing import Any

import click

from undertow.cli.common import jobs_option, json_option, kind_options, overwrite_option, time_range
from undertow.cli.fitting import Options, fit_and_save, model_options

OPTIONS: Options = {
    "--dim": ("dim", click.IntRange(1), "Dimensions of the map: 2 to look at, 5 to 10 to predict."),
    "--purpose": (
        "purpose",
        click.Choice(["auto", "look", "predict"]),
        "What the map is for; auto means look for --dim up to 3, else predict.",
    ),
    "--iterations": ("n_iter", click.IntRange(1), "Maximum number of iterations that learn the drift."),
    "--drift": ("drift", float, "Variance of a step; learned by default."),
    "--frequencies": (
        "frequencies",
        click.Choice(["auto", "free", "sums"]),
        "Fitted to each step, or its sums; auto means free for a map to look at.",
    ),
    "--tempering": ("tempering", float, "Weight of a count as evidence; by default chosen by --purpose."),
    "--burstiness": ("burstiness", float, "Damping of repeated counts; by default chosen by --purpose."),
    "--covariance": ("covariance", click.Choice(["auto", "full", "blocks"]), "Joint, or one block per entity."),
    "--seed": ("random_state", click.IntRange(0), "Seed of the random generator."),
}


@click.command()
@click.argument("events", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@model_options("DynamicEmbedding", OPTIONS)
@kind_options
@jobs_option
@overwrite_option
@json_option
def command(**given: Any) -> None:
    """Fit a moving map to EVENTS and save it.

    EVENTS is a CSV, TSV or JSON lines file of (time, row, column, count), such as `undertow events` writes. Ctrl-C
    keeps the last finished iteration and saves it; after a kill the same command goes on.
    """
    from undertow import DynamicEmbedding
    from undertow.text.events import Events, check_kinds

    settings = {parameter: given[parameter] for parameter, _, _ in OPTIONS.values()}
    model = DynamicEmbedding(n_jobs=given["jobs"], **settings)

    def renamed(events: Events) -> Events:
        names = [given["row_name"], given["column_name"]]
        kinds = check_kinds([name or kind for name, kind in zip(names, events.kind_names, strict=True)])
        return Events(events.times, events.gaps, events.row_names, events.column_names, events.tables, kinds)

    def report(events: Events) -> dict[str, Any]:
        return {
            "times": time_range(events.times),
            "steps": len(events.times),
            events.kind_names[0]: len(events.row_names),
            events.kind_names[1]: len(events.column_names),
            "dim": model.dim,
            "covariance": f"{model.covariance_} ({model.covariance_reason_})",
            "drift": {k: float(f"{v:.4g}") for k, v in zip(events.kind_names, model.drift_, strict=True)},
            "tempering": round(model.tempering_, 4),
            "iterations": len(model.history_),
            "objective": round(model.history_[-1], 3),
        }

    fit_and_save(
        model,
        given,
        read=lambda progress, engine, facts: renamed(Events.build(given["events"])),
        report=report,
        planned=model.n_iter,
        unit="iteration",
        line=lambda event: f"evidence {event.objective:.1f}",
    )
