"""undertow fit hmm: from text or a corpus to a hidden Markov model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
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
from undertow.cli.count import one_kind
from undertow.cli.reading_options import build_arguments, reading_options
from undertow.errors import InputError
from undertow.models.hmm import HMM  # not late: --help shows its defaults, and they are written there alone
from undertow.progress import Progress

F = TypeVar("F", bound=Callable[..., Any])

# option -> parameter of HMM, type, help
OPTIONS: dict[str, tuple[str, Any, str]] = {
    "--states": ("n_states", click.IntRange(1), "Number of hidden states."),
    "--blocks": ("n_blocks", click.IntRange(1), "Blocks of words and states; if not given, chosen by the states."),
    "--rank": ("rank", click.IntRange(1), "Rank of the transition; if not given, full."),
    "--band": ("band", click.IntRange(0), "Half-width of a band beside the low rank, without blocks."),
    "--init": ("init", click.Choice(["clusters", "spectral", "random"]), "Where EM begins."),
    "--parameterization": ("parameterization", click.Choice(["table", "neural"]), "Tables by EM, or PyTorch."),
    "--iterations": ("n_iter", click.IntRange(1), "Passes over the text."),
    "--chunks": ("n_chunks", click.IntRange(1), "Parts of the text after which parameters are renewed."),
    "--smoothing": ("smoothing", float, "Multiplies all pseudo-counts; 0 is maximum likelihood."),
    "--validation": ("validation", float, "Share of the text, its end, held out to stop early."),
    "--seed": ("random_state", click.IntRange(0), "Makes the run repeatable."),
}


def hmm_options(f: F) -> F:
    defaults = HMM.param_defaults()
    for option, (parameter, type_, text) in reversed(OPTIONS.items()):
        default = defaults[parameter]
        f = click.option(option, parameter, type=type_, default=default, show_default=default is not None, help=text)(f)
    return f


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Model directory to write.")
@hmm_options
@click.option("--carry", is_flag=True, help="Carry the state from sentence to sentence.")
@reading_options
@jobs_option
@dask_options
@overwrite_option
@json_option
def command(
    inputs: tuple[str, ...],
    out: str,
    carry: bool,
    jobs: int,
    dask: str | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Fit a hidden Markov model by EM and save it.

    INPUTS is one corpus directory, or text files, from which a corpus is built beside the model. Ctrl-C during the fit
    keeps the last finished pass and saves it.
    """
    from undertow.storage import check_target

    began = time.perf_counter()
    model = HMM(n_jobs=jobs, carry=carry, **{parameter: given[parameter] for parameter, _, _ in OPTIONS.values()})
    model._check_params()  # before the reading, not after it
    check_target(out, overwrite)
    facts: dict[str, Any] = {"model": out}
    with progress_bar() as progress:
        corpus = open_or_read(inputs, out, jobs, overwrite, progress, given, facts)
        progress(Progress("fit", 0, model.n_iter, "pass"))
        model.set_params(callbacks=[lambda event: progress(_progress(event))])
        with dask_engine(dask, jobs, tls_ca, tls_cert, tls_key) as engine:
            model.fit(corpus, engine=engine)
    model.save(out, overwrite=overwrite)
    facts |= {
        "tokens": corpus.n_tokens,
        "words": len(corpus.vocabulary),
        "states": model.params_.n_states,
        "passes": len(model.history_),
        "planned_passes": model.n_iter,
        "objective": round(model.history_[-1], 6),
        "perplexity_in_training": round(math.exp(-model.history_[-1]), 2),
    }
    if model.validation_history_:
        facts["perplexity_held_out"] = round(math.exp(-max(model.validation_history_)), 2)
    show(facts | {"seconds": round(time.perf_counter() - began, 1)}, as_json)


def _progress(event: Any) -> Progress:
    return Progress("fit", event.iteration, event.n_iter, "pass", f"perplexity {math.exp(-event.objective):.2f}")


def open_or_read(
    inputs: tuple[str, ...],
    out: str,
    jobs: int,
    overwrite: bool,
    progress: Any,
    given: dict[str, Any],
    facts: dict[str, Any],
) -> Any:
    """The corpus given, or one built from the text and written beside the model."""
    from undertow.files import exists_error
    from undertow.text.corpus import Corpus

    kind = one_kind(inputs)
    if kind == "counts":
        raise InputError("A hidden Markov model is fitted to text, not to pair counts: give the corpus or its files.")
    if kind != "text":
        return Corpus.open(inputs[0])
    target = Path(out)
    beside = target.with_name(target.name.removesuffix(".hmm") + ".corpus")
    if beside.exists() and not overwrite:
        raise exists_error(beside)
    facts["corpus"] = str(beside)
    return Corpus.build(
        list(inputs), beside, n_jobs=jobs, overwrite=overwrite, progress=progress, **build_arguments(given)
    )
