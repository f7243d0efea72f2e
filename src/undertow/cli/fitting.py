"""What the verbs that fit a model share: options from the model's own defaults, a bar while it is fitted, saving."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
from undertow.cli.reading_options import build_arguments, reading_options
from undertow.errors import InputError
from undertow.progress import Progress, ProgressFn

F = TypeVar("F", bound=Callable[..., Any])
WORK = re.compile(r"[a-z-]+-[0-9a-f]{24}")  # names of checkpoints and of the mark in the staging directory of a model
Options = dict[str, tuple[str, Any, str]]  # option -> parameter of the model, type, help


def model_options(model: Any, options: Options) -> Callable[[F], F]:
    """One option a parameter, with the model's default."""
    defaults = model.param_defaults()

    def add(f: F) -> F:
        for option, (parameter, type_, text) in reversed(options.items()):
            default = defaults[parameter]
            shown = default is not None and type_ is not bool
            f = click.option(
                option, parameter, type=type_, default=default, show_default=shown, help=text, is_flag=type_ is bool
            )(f)
        return f

    return add


def text_options(f: F) -> F:
    """How text is read, who works, and what becomes of the result."""
    for add in (json_option, overwrite_option, dask_options, jobs_option, reading_options):
        f = add(f)
    return f


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

    Settings and the target are checked before anything is read. While the command runs, checkpoints of the fit lie in
    the target's `.partial` directory, so that the same command goes on after a kill; they are removed with it at the
    end. `given["mark"]` is a file there that says that the corpus and the counts beside the model are of the same text.
    """
    from undertow.atomic import resumable_staging
    from undertow.storage import check_target

    began = time.perf_counter()
    out, overwrite = given["out"], given["overwrite"]
    model._check_params()
    check_target(out, overwrite)
    facts: dict[str, Any] = {"model": out}
    with (
        progress_bar() as progress,
        requested_engine(given) as engine,
        resumable_staging(Path(out), WORK, "fitting") as staging,
    ):
        given["mark"] = staging / f"inputs-{inputs_key(given)}"
        data = read(progress, engine, facts)
        progress(Progress("fit", 0, planned, unit))
        model.set_params(
            callbacks=[lambda event: progress(Progress("fit", event.iteration, event.n_iter, unit, line(event)))]
        )
        model.fit(data, engine=engine, checkpoint=staging)
        model.save(out, overwrite=overwrite)
    facts |= report(data)
    show(facts | {"seconds": round(time.perf_counter() - began, 1)}, given["as_json"])


def inputs_key(given: dict[str, Any]) -> str:
    """Hash of the input files, by name, size and time of change, and of how they are read."""
    places = [str(p) for p in given.get("inputs", ()) or [given["events"]]]
    facts = [(p, s.st_size, s.st_mtime_ns) for p in places if Path(p).exists() for s in [os.stat(p)]]
    reading = build_arguments(given) if "inputs" in given else {}
    if reading.get("vocabulary") is not None:
        reading["vocabulary"] = reading["vocabulary"].fingerprint()
    standard_input = os.urandom(8) if "-" in places else b""  # cannot be read again, so nothing is known to be of it
    return hashlib.sha256(repr((places, facts, reading, standard_input)).encode()).hexdigest()[:24]


def size_of(text: Any) -> dict[str, int]:
    return {"tokens": text.n_tokens, "words": len(text.vocabulary)}


def open_or_read(given: dict[str, Any], suffix: str, progress: ProgressFn, facts: dict[str, Any]) -> Any:
    """The corpus given, or one built from the text and written beside the model, whose name ends in `suffix`."""
    inputs, out = given["inputs"], Path(given["out"])
    kind = one_kind(inputs)
    if kind == "counts":
        raise InputError("This model is fitted to text, not to pair counts: give the corpus or its files.")
    beside = sibling(out, suffix, ".corpus")
    if kind == "text":
        facts["corpus"] = str(beside)
    return open_or_build_again(inputs, beside, kind, given, progress)


def open_or_build_again(inputs: Any, beside: Path, kind: str, given: dict[str, Any], progress: ProgressFn) -> Any:
    """Like `open_or_build`, but what an interrupted run of the same command has built is taken over."""
    if kind == "text" and given["mark"].exists() and beside.exists():
        return open_or_build((str(beside),), beside, "corpus", given, progress)
    corpus = open_or_build(inputs, beside, kind, given, progress)
    given["mark"].touch()
    return corpus
