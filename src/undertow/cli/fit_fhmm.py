"""undertow fit fhmm: from text or a corpus to a factorial hidden Markov model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import click

from undertow.cli.common import (
    dask_engine,
    dask_options,
    jobs_option,
    json_option,
    overwrite_option,
    progress_bar,
    show,
)
from undertow.cli.fit_hmm import open_or_read
from undertow.cli.reading_options import reading_options
from undertow.models.factorial_hmm import FactorialHMM  # not late: --help shows its defaults
from undertow.progress import Progress

F = TypeVar("F", bound=Callable[..., Any])

# option -> parameter of FactorialHMM, type, help
OPTIONS: dict[str, tuple[str, Any, str]] = {
    "--layers": ("n_layers", click.IntRange(1), "Number of hidden chains."),
    "--states": ("n_states", click.IntRange(1), "States of each chain."),
    "--inference": ("inference", click.Choice(["auto", "exact", "variational"]), "auto: exact to 10,000 joint states."),
    "--bound": ("bound", click.Choice(["tilted", "jensen", "mean_field"]), "What variational inference climbs."),
    "--iterations": ("n_iter", click.IntRange(1), "Passes over the text."),
    "--batch-size": ("batch_size", click.IntRange(1), "Tokens between two updates of the parameters."),
    "--sweeps": ("max_sweeps", click.IntRange(1), "Most variational sweeps over a sentence."),
    "--smoothing": ("smoothing", click.FloatRange(0), "Pseudo-counts a word."),
    "--init": ("init", click.Choice(["clusters", "random"]), "Where EM begins."),
    "--seed": ("random_state", click.IntRange(0), "Makes the run repeatable."),
}


def fhmm_options(f: F) -> F:
    defaults = FactorialHMM.param_defaults()
    for option, (parameter, type_, text) in reversed(OPTIONS.items()):
        default = defaults[parameter]
        f = click.option(option, parameter, type=type_, default=default, show_default=default is not None, help=text)(f)
    return f


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@fhmm_options
@reading_options
@jobs_option
@dask_options
@overwrite_option
@json_option
def command(
    inputs: tuple[str, ...],
    out: str,
    jobs: int,
    dask: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Fit a factorial hidden Markov model by EM and save it.

    INPUTS is one corpus directory, or text files, from which a corpus is built beside the model. Ctrl-C during the fit
    keeps the last finished pass and saves it.
    """
    from undertow.storage import check_target

    began = time.perf_counter()
    model = FactorialHMM(n_jobs=jobs, **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})
    model._check_params()  # before the reading, not after it
    check_target(out, overwrite)
    facts: dict[str, Any] = {"model": out}
    with progress_bar() as progress:
        corpus = open_or_read(inputs, out.removesuffix(".fhmm"), jobs, overwrite, progress, given, facts)
        progress(Progress("fit", 0, model.n_iter, "pass"))
        model.set_params(callbacks=[lambda event: progress(_progress(event))])
        with dask_engine(dask, jobs, tls_ca, tls_cert, tls_key) as engine:
            model.fit(corpus, engine=engine)
    model.save(out, overwrite=overwrite)
    facts |= {
        "tokens": corpus.n_tokens,
        "words": len(corpus.vocabulary),
        "layers": model.params_.n_layers,
        "states": model.params_.n_states,
        "inference": "exact" if model._inference().exact else f"variational ({model.bound})",
        "passes": len(model.history_),
        "planned_passes": model.n_iter,
        "objective": round(model.history_[-1], 6),
        "seconds": round(time.perf_counter() - began, 1),
    }
    show(facts, as_json)


def _progress(event: Any) -> Progress:
    return Progress("fit", event.iteration, event.n_iter, "pass", f"{event.objective:.4f} a token")
