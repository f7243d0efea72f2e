"""What the commands that fit a model share: options with the model's defaults, a progress bar, saving."""

from __future__ import annotations

import ast
import contextlib
import math
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

import undertow
from undertow.cli.common import (
    dask_options,
    jobs_option,
    json_option,
    overwrite_option,
    progress_bar,
    requested_engine,
    show,
)
from undertow.cli.count import one_kind, open_or_build, sibling
from undertow.cli.reading_options import build_arguments, reading_options, reading_parameters
from undertow.cli.signals import unsaved_work
from undertow.errors import InputError
from undertow.progress import Progress, ProgressFn

F = TypeVar("F", bound=Callable[..., Any])
WORK = re.compile(r"[a-z-]+-[0-9a-f]{24}")  # names of checkpoints in the staging directory of a model
Options = dict[str, tuple[str, Any, str]]  # option -> parameter of the model, type, help


def model_options(model: str, options: Options) -> Callable[[F], F]:
    """One option per parameter, with the default of the model, a class that the package names."""
    defaults = written_defaults(model)

    def add(f: F) -> F:
        for option, (parameter, type_, text) in reversed(options.items()):
            default = defaults[parameter]
            shown = default is not None and type_ is not bool
            f = click.option(
                option, parameter, type=type_, default=default, show_default=shown, help=text, is_flag=type_ is bool
            )(f)
        return f

    return add


def written_defaults(model: str) -> dict[str, Any]:
    """The defaults of a model's constructor as its source has them: importing it would make --help wait for SciPy."""
    module, name = undertow._WHERE[model]
    source = Path(undertow.__file__).parent.joinpath(*module.split(".")[1:]).with_suffix(".py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    [init] = [node.args for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    arguments = [*init.args[len(init.args) - len(init.defaults) :], *init.kwonlyargs]
    values = [*init.defaults, *init.kw_defaults]
    return {a.arg: ast.literal_eval(v) for a, v in zip(arguments, values, strict=True) if v is not None}


def text_options(f: F) -> F:
    """How text is read, where the work runs, and how the result is shown."""
    for add in (json_option, overwrite_option, dask_options, jobs_option, reading_options):
        f = add(f)
    return f


class Unfinished(Exception):
    """Raised through the staging directory of a fit that Ctrl-C ended, so that it stays, with its checkpoint."""


def fit_and_save(
    model: Any,
    given: dict[str, Any],
    *,
    read: Callable[[ProgressFn, Any, dict[str, Any]], Any],
    report: Callable[[Any], dict[str, Any]],
    planned: int,
    unit: str,
    line: Callable[[Any], str],
) -> None:
    """Read, fit under a bar, save and show: `read` gives what to fit and may add to the facts, `report` the others.

    Settings and the target are checked before anything is read: a model of the same recipe is reused, or continued if
    Ctrl-C ended its fit. While the command runs, checkpoints of the fit lie in the target's `.partial` directory, so
    that the same command goes on after a kill; they are removed with it when the fit is finished.
    """
    from undertow.atomic import resumable_staging
    from undertow.models.checkpoint import Checkpoint
    from undertow.recipe import Target, check_target
    from undertow.storage import MODEL

    began = time.perf_counter()
    out, overwrite = Path(os.path.abspath(given["out"])), given["overwrite"]
    model._check_params()
    check_place(out, overwrite)
    made = fit_recipe(given)
    facts: dict[str, Any] = {"model": given["out"]}
    state = check_target(out, MODEL, made, overwrite=overwrite)
    if state is Target.REUSE:
        show(facts | {"reused": True}, given["as_json"])
        return
    with (
        contextlib.suppress(Unfinished),
        progress_bar() as progress,
        requested_engine(given) as engine,
        resumable_staging(out, WORK, "fitting") as staging,
        unsaved_work() as finished,
    ):
        data = read(progress, engine, facts)
        progress(Progress("fit", 0, planned, unit))
        model.set_params(
            callbacks=[
                finished,
                lambda event: progress(Progress("fit", event.iteration, event.n_iter, unit, line(event))),
            ]
        )
        with interrupts_noticed() as interrupted:
            model.fit(data, engine=engine, checkpoint=Checkpoint(staging))
        save_fit(model, out, made, interrupted, overwrite=overwrite or state is Target.CONTINUE)
    facts |= report(data)
    show(facts | {"seconds": round(time.perf_counter() - began, 1)}, given["as_json"])


def save_fit(model: Any, out: Path, made: Any, interrupted: list[str], *, overwrite: bool) -> None:
    """Save a fitted model with its recipe; after Ctrl-C as unfinished, and leave what the next run goes on from."""
    from undertow.storage import save_model

    save_model(model, out, overwrite=overwrite, made=made._replace(finished=not interrupted))
    if interrupted:
        raise Unfinished


def check_place(out: Path, overwrite: bool) -> None:
    """Refuse a place that cannot be written before the inputs are hashed; a model there is compared later."""
    from undertow.atomic import RECIPE
    from undertow.storage import check_target

    if overwrite or not (out / RECIPE).exists():
        check_target(out, overwrite)


@contextlib.contextmanager
def interrupts_noticed() -> Iterator[list[str]]:
    """Yield a list that is no longer empty when Ctrl-C has ended a fit early; the warning is shown as before."""
    from undertow.models.fitting import InterruptedFitWarning

    noticed: list[str] = []
    shown = warnings.showwarning

    def show_and_notice(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, InterruptedFitWarning):
            noticed.append(str(message))
            message = f"{message} Run the same command again to go on."
        shown(message, category, *rest, **more)

    warnings.showwarning = show_and_notice
    try:
        yield noticed
    finally:
        warnings.showwarning = shown


# options that change no bit of the result, and the inputs, which are hashed
UNRECORDED = (
    *("out", "inputs", "events", "overwrite", "as_json", "jobs"),
    *("dask", "tls_ca", "tls_cert", "tls_key", "memory"),
)


def options_given(given: dict[str, Any], skipped: Iterable[str]) -> dict[str, Any]:
    """The options of the command by their names on the command line."""
    left_out = {*UNRECORDED, *skipped}
    parameters = click.get_current_context().command.params
    return {max(p.opts, key=len): given[p.name] for p in parameters if p.name in given and p.name not in left_out}


def fit_recipe(given: dict[str, Any]) -> Any:
    """What a fit depends on: the files or the directory, how text is read, and the options of the model."""
    from undertow.recipe import recipe

    options = options_given(given, {str(p.name) for p in reading_parameters()})
    if "events" in given:
        return recipe(hashed_inputs([given["events"]]), options)
    if one_kind(given["inputs"]) != "text":
        return recipe(hashed_inputs(given["inputs"]), options)
    from undertow.text.corpus_build import corpus_recipe

    text = corpus_recipe(given["inputs"], **build_arguments(given))
    return recipe(text.inputs, {**text.options, **options})


def hashed_inputs(names: Iterable[str]) -> list[list[str | None]]:
    """Files by their hashes, and directories that undertow wrote by the digest in them."""
    from undertow.files import DIGEST, read_json
    from undertow.recipe import hashed_files
    from undertow.storage import CONFIG
    from undertow.text.corpus import MANIFEST

    found: list[list[str | None]] = []
    for name in names:
        about = next((path for part in (MANIFEST, CONFIG) if (path := Path(name) / part).exists()), None)
        found += hashed_files([name]) if about is None else [[Path(name).name, read_json(about).get(DIGEST)]]
    return found


def perplexity_facts(model: Any) -> dict[str, Any]:
    """How many passes of EM there were, and the perplexity after the last."""
    facts = {
        "passes": len(model.history_),
        "planned_passes": model.n_iter,
        "objective": round(model.history_[-1], 6),
        "perplexity_in_training": round(math.exp(-model.history_[-1]), 2),
    }
    if model.validation_history_:
        facts["perplexity_held_out"] = round(math.exp(-max(model.validation_history_)), 2)
    return facts


def size_of(text: Any) -> dict[str, int]:
    return {"tokens": text.n_tokens, "words": len(text.vocabulary)}


def open_or_read(given: dict[str, Any], suffix: str, progress: ProgressFn, facts: dict[str, Any]) -> Any:
    """The corpus given, or one built from the text and written beside the model, whose name ends in `suffix`."""
    inputs, out = given["inputs"], Path(given["out"])
    kind = one_kind(inputs)
    if kind == "counts":
        raise InputError("This model is fitted to text, not to pair counts: give the corpus or its files.")
    beside = sibling(out, suffix, ".corpus")
    corpus = open_or_build(inputs, beside, kind, given, progress)
    if kind == "text":
        facts["corpus"] = str(corpus.path)
    return corpus
