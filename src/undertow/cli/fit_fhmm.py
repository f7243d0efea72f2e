"""undertow fit fhmm: from text or a corpus to a factorial hidden Markov model."""

from __future__ import annotations

import re
from typing import Any

import click

from undertow.cli.fitting import Options, fit_and_save, model_options, open_or_read, size_of, text_options


class Sizes(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.5 on
    """A whole number, or one for each layer with commas between them."""

    name = "states"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | list[int]:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # the default
        if not re.fullmatch(r"0*[1-9]\d{0,8}(,0*[1-9]\d{0,8})*", value, re.ASCII):
            self.fail(f"{value!r} is not a whole number from 1 on, nor several with commas between them, as 60,15.")
        sizes = [int(k) for k in value.split(",")]
        return sizes if len(sizes) > 1 else sizes[0]


OPTIONS: Options = {
    "--layers": ("n_layers", click.IntRange(1), "Number of hidden chains."),
    "--states": ("n_states", Sizes(), "States of each chain: one number for all, or one for each, as 60,15."),
    "--inference": ("inference", click.Choice(["auto", "exact", "variational"]), "auto: exact to 10,000 joint states."),
    "--bound": ("bound", click.Choice(["tilted", "jensen", "mean_field"]), "Objective of variational inference."),
    "--iterations": ("n_iter", click.IntRange(1), "Passes over the text."),
    "--batch-size": ("batch_size", click.IntRange(1), "Tokens between two updates of the parameters."),
    "--sweeps": ("max_sweeps", click.IntRange(1), "Maximum variational sweeps per sentence."),
    "--smoothing": ("smoothing", click.FloatRange(0), "Pseudo-counts per word."),
    "--init": ("init", click.Choice(["clusters", "lds", "random"]), "Initialization of EM."),
    "--validation": ("validation", float, "Share of the text, from its end, held out for early stopping."),
    "--seed": ("random_state", click.IntRange(0), "Seed of the random generator."),
}


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@model_options("FactorialHMM", OPTIONS)
@text_options
def command(**given: Any) -> None:
    """Fit a factorial hidden Markov model by EM and save it.

    INPUTS is one corpus directory, or text files, from which a corpus is built beside the model. Ctrl-C during the fit
    keeps the last finished pass and saves it; after a kill the same command goes on.
    """
    from undertow import FactorialHMM

    model = FactorialHMM(n_jobs=given["jobs"], **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})

    def report(corpus: Any) -> dict[str, Any]:
        return size_of(corpus) | {
            "layers": model.params_.n_layers,
            "states": model._fitted_scalars()["n_states"],
            "inference": "exact" if model._inference_settings().exact else f"variational ({model.bound})",
            "passes": len(model.history_),
            "planned_passes": model.n_iter,
            "objective": round(model.history_[-1], 6),
            **({"held_out": round(max(model.validation_history_), 6)} if model.validation_history_ else {}),
        }

    fit_and_save(
        model,
        given,
        read=lambda progress, engine, facts: open_or_read(given, ".fhmm", progress, facts),
        report=report,
        planned=model.n_iter,
        unit="pass",
        line=lambda event: f"{event.objective:.4f} a token",
    )
