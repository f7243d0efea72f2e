"""undertow fit lds: from text, a corpus or counts to a linear dynamical system."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from undertow.cli.common import (
    Size,
    dask_engine,
    dask_options,
    jobs_option,
    json_option,
    overwrite_option,
    progress_bar,
    show,
)
from undertow.cli.count import one_kind, open_or_build
from undertow.cli.reading_options import reading_options
from undertow.errors import InputError
from undertow.models.lds import LDS  # not late: --help shows its defaults, and they are written there alone
from undertow.progress import Progress, ProgressFn

F = TypeVar("F", bound=Callable[..., Any])

# option -> parameter of LDS, type, help
OPTIONS: dict[str, tuple[str, Any, str]] = {
    "--components": ("n_components", click.IntRange(1), "Width of the hidden state."),
    "--iterations": ("n_iter", click.IntRange(0), "EM iterations within the reduced basis."),
    "--full-iterations": ("n_full", click.IntRange(0), "EM iterations over the whole vocabulary, after these."),
    "--lags": ("lags", click.IntRange(1, 255), "Learn from pairs 1..LAGS apart."),
    "--ssid-lags": ("ssid_lags", click.IntRange(1), "Lags of the start, at most (LAGS + 1) / 2."),
    "--kappa": ("kappa", float, "Smoothing, in pseudo-counts a word; if not given, the mean count of a word."),
    "--noise": ("noise", click.Choice(["dropout", "uniform"]), "What the pseudo-counts stand for."),
    "--init": ("init", click.Choice(["ssid", "random"]), "Start from subspace identification, or at random."),
    "--seed": ("random_state", click.IntRange(0), "Makes the run repeatable."),
}


def lds_options(f: F) -> F:
    defaults = LDS.param_defaults()
    for option, (parameter, type_, text) in reversed(OPTIONS.items()):
        default = defaults[parameter]
        f = click.option(option, parameter, type=type_, default=default, show_default=default is not None, help=text)(f)
    return f


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@lds_options
@click.option("--memory", type=Size(), default="4G", show_default=True, help="Stay within this much while counting.")
@reading_options
@jobs_option
@dask_options
@overwrite_option
@json_option
def command(
    inputs: tuple[str, ...],
    out: str,
    memory: int,
    jobs: int,
    dask: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Fit a linear dynamical system and save it.

    INPUTS is one counts directory; or one corpus directory, which is counted first, into a directory beside the model;
    or text files, from which both are built. Ctrl-C during the fit keeps the last finished iteration and saves it.
    """
    from undertow.storage import check_target

    began = time.perf_counter()
    model = LDS(n_jobs=jobs, **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})
    model._check_params()  # before the counting, not after it
    check_target(out, overwrite)
    facts: dict[str, Any] = {"model": out}
    with progress_bar() as progress:
        with dask_engine(dask, jobs, tls_ca, tls_cert, tls_key) as engine:
            counts = open_or_count(inputs, out, model.lags, memory, jobs, engine, overwrite, progress, given, facts)
        planned = model.n_iter + model.n_full
        progress(Progress("fit", 0, planned, "iteration"))
        model.set_params(callbacks=[lambda event: progress(_progress(event))]).fit(counts)
    model.save(out, overwrite=overwrite)
    facts |= {
        "tokens": counts.n_tokens,
        "words": len(counts.vocabulary),
        "components": model.n_components,
        "iterations": len(model.history_) if planned else 0,
        "planned_iterations": planned,
        "objective": round(model.history_[-1], 6),
        "seconds": round(time.perf_counter() - began, 1),
    }
    show(facts, as_json)


def _progress(event: Any) -> Progress:
    return Progress("fit", event.iteration, event.n_iter, "iteration", f"objective {event.objective:.4f}")


def open_or_count(
    inputs: tuple[str, ...],
    out: str,
    lags: int,
    memory: int,
    jobs: int,
    engine: Any,
    overwrite: bool,
    progress: ProgressFn,
    given: dict[str, Any],
    facts: dict[str, Any],
) -> Any:
    """The counts to fit: those given, or those of the corpus or text, written beside the model and named in facts."""
    from undertow.text.lag_counts import LagCounts

    kind = one_kind(inputs)
    if kind == "counts":
        if len(inputs) > 1:
            raise InputError("Several counts are fitted as their sum: add them first, with undertow count.")
        return LagCounts.open(inputs[0])
    target = Path(out)
    beside = target.with_name(target.name.removesuffix(".lds") + ".counts")
    if beside.exists() and not overwrite:
        raise InputError(f"{beside} exists already: fit these counts, give the model another name, or add --overwrite.")
    corpus = open_or_build(inputs, str(beside), kind, jobs, overwrite, progress, given)
    facts |= {"corpus": str(corpus.path), "counts": str(beside)}
    return LagCounts.from_corpus(
        corpus,
        lags=lags,
        n_jobs=jobs,
        engine=engine,
        out=beside,
        memory=memory,
        overwrite=overwrite,
        progress=progress,
    )
