"""undertow fit dynamic: from a table of events to a moving map."""

from __future__ import annotations

import time
from typing import Any

import click

from undertow.cli.common import jobs_option, json_option, overwrite_option, progress_bar, show
from undertow.models.dynamic_embedding import DynamicEmbedding  # not late: --help shows its defaults
from undertow.progress import Progress

# option -> parameter of DynamicEmbedding, type, help
OPTIONS: dict[str, tuple[str, Any, str]] = {
    "--dim": ("dim", click.IntRange(1), "Coordinates: 2 to look at, 5 to 10 to predict."),
    "--purpose": (
        "purpose",
        click.Choice(["auto", "look", "predict"]),
        "What the map is for; auto looks up to --dim 3.",
    ),
    "--iterations": ("n_iter", click.IntRange(1), "Iterations that learn the drift."),
    "--drift": ("drift", float, "Variance of a step; if not given, it is learned."),
    "--tempering": ("tempering", float, "Worth of a count as evidence; if not given, by the purpose."),
    "--burstiness": ("burstiness", float, "Damping of repetitions; if not given, by the purpose."),
    "--covariance": ("covariance", click.Choice(["auto", "full", "blocks"]), "Of all entities, or of each alone."),
    "--observation": ("observation", click.Choice(["fisher", "taylor"]), "How a table of counts is expanded."),
    "--inference": ("inference", click.Choice(["path", "filter"]), "All steps at once, or one after the other."),
    "--seed": ("random_state", click.IntRange(0), "Makes the run repeatable."),
}


def _options(f: Any) -> Any:
    defaults = DynamicEmbedding.param_defaults()
    for option, (parameter, type_, text) in reversed(OPTIONS.items()):
        default = defaults[parameter]
        f = click.option(option, parameter, type=type_, default=default, show_default=default is not None, help=text)(f)
    return f


@click.command()
@click.argument("events", type=click.Path())
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@_options
@jobs_option
@overwrite_option
@json_option
def command(events: str, out: str, jobs: int, overwrite: bool, as_json: bool, **given: Any) -> None:
    """Fit a moving map to EVENTS and save it.

    EVENTS is a CSV, TSV or JSON lines file of (time, row, column, count), such as `undertow events` writes. Ctrl-C
    keeps the last finished iteration and saves it.
    """
    from undertow.storage import check_target
    from undertow.text.events import Events

    began = time.perf_counter()
    model = DynamicEmbedding(n_jobs=jobs, **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})
    model._check_params()
    check_target(out, overwrite)
    read = Events.build(events)
    with progress_bar() as progress:
        progress(Progress("fit", 0, model.n_iter, "iteration"))
        model.set_params(
            callbacks=[
                lambda e: progress(Progress("fit", e.iteration, e.n_iter, "iteration", f"evidence {e.objective:.1f}"))
            ]
        ).fit(read)
    model.save(out, overwrite=overwrite)
    facts = {
        "model": out,
        "steps": len(read.times),
        read.kind_names[0]: len(read.row_names),
        read.kind_names[1]: len(read.column_names),
        "dim": model.dim,
        "covariance": f"{model.covariance_} ({model.covariance_reason_})",
        "drift": {k: float(f"{v:.4g}") for k, v in zip(read.kind_names, model.drift_, strict=True)},
        "tempering": round(model.tempering_, 4),
        "iterations": len(model.history_),
        "objective": round(model.history_[-1], 3),
        "seconds": round(time.perf_counter() - began, 1),
    }
    show(facts, as_json)
