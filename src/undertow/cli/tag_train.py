"""undertow tag train: train a tagger on labelled text, and on unlabelled text if there is any."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show
from undertow.cli.fitting import (
    Unfinished,
    check_place,
    hashed_inputs,
    interrupts_noticed,
    options_given,
    save_fit,
)
from undertow.cli.tag_eval import table
from undertow.cli.tag_options import columns_of, labelled_options, model_options, read_labelled, representations
from undertow.progress import Progress

# kind -> parameter -> option; an option of another kind is an error, not ignored
OPTIONS = {
    "tagger": {
        "window": "--window",
        "l2": "--l2",
        "n_hidden": "--hidden",
        "n_iter": "--iterations",
        "random_state": "--seed",
        "validation": "--validation",
        "n_jobs": "--jobs",
        "text": "--text",
        "held_out": "--held-out",
        "work": "--work",
    },
    "crf": {
        "window": "--window",
        "l1": "--l1",
        "l2": "--l2",
        "n_iter": "--iterations",
        "algorithm": "--algorithm",
        "n_hidden": "--hidden",
        "scheme": "--scheme",
        "random_state": "--seed",
        "n_jobs": "--jobs",
    },
    "local": {"n_hidden": "--hidden", "n_iter": "--iterations", "random_state": "--seed"},
}
NOT_PARAMETERS = ("text", "held_out", "work")  # of fit


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Output directory.")
@click.option(
    "--text",
    multiple=True,
    help="Unlabelled text to learn the default representation from: text files, a glob pattern, or a corpus directory; "
    "may be repeated.",
)
@click.option(
    "--kind",
    type=click.Choice(list(OPTIONS)),
    default="tagger",
    show_default=True,
    help="tagger: a CRF on spelling and on --text or --model, evaluated on sentences that are held out; crf: the CRF "
    "alone, with all its options; local: a small neural network on the vectors of --model.",
)
@model_options
@click.option("--window", type=click.IntRange(0, 10), help="Context words on each side (tagger, crf).  [default: 2]")
@click.option("--l1", type=click.FloatRange(0), help="L1 penalty (crf).  [default: 0]")
@click.option("--l2", type=click.FloatRange(0), help="L2 penalty (tagger, crf).  [default: 1]")
@click.option(
    "--algorithm",
    type=click.Choice(["lbfgs", "minibatch"]),
    help="Training algorithm (crf); use 5 to 10 iterations with minibatch.  [default: lbfgs]",
)
@click.option(
    "--scheme",
    type=click.Choice(["bioes"]),
    help="Learn spans with tags of their own for last and only tokens, where the tags are IOB2 (crf; a tagger always "
    "does).  [default: the tags as they are]",
)
@click.option(
    "--hidden",
    "n_hidden",
    type=click.IntRange(0),
    help="Hidden units of the network that reads the vectors of models; 0 for a linear tagger, which trains faster "
    "(tagger, crf).  [default: tagger 128, crf 0, local 25]",
)
@click.option(
    "--iterations",
    "n_iter",
    type=click.IntRange(1),
    help="Maximum number of iterations.  [default: tagger, crf 100; local 30]",
)
@click.option("--seed", "random_state", type=click.IntRange(0), help="Seed of the random generator.")
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, max_open=True),
    help="Share of the labelled sentences that is held out to measure the accuracy; 0 for none (tagger).  "
    "[default: 0.1]",
)
@click.option(
    "--held-out", multiple=True, help="Labelled files to measure the accuracy on instead (tagger); may be repeated."
)
@click.option(
    "--work",
    type=click.Path(),
    help="Directory that keeps the corpus and the models for other taggers of the same text (tagger).  [default: "
    "OUT.partial, removed at the end]",
)
@click.option("-j", "--jobs", "n_jobs", type=int, help="Number of threads (tagger, crf).  [default: all cores]")
@labelled_options
@overwrite_option
@json_option
def command(
    inputs: tuple[str, ...],
    out: str,
    kind: str,
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Train a tagger on INPUTS: CoNLL, CoNLL-U or TSV files with one word and its tag per row.

    With --text, models are first fitted to the text, which may take minutes, and the tagger uses what they know about
    each word; with --model it uses models that are fitted already. The tagger saves a copy of them. If the command is
    killed, run it again to continue.
    """
    from undertow.recipe import Target, check_target
    from undertow.results.tagging import CRFTagger, LocalTagger, Tagger
    from undertow.storage import MODEL

    began = time.perf_counter()
    params = chosen(kind, given)
    place = Path(os.path.abspath(out))
    check_place(place, overwrite)
    if given["text"] and given["models"]:
        raise click.UsageError("--text fits new models and --model brings fitted ones: give one of them.")
    made = training_recipe(inputs, given)
    state = check_target(place, MODEL, made, overwrite=overwrite)
    if state is Target.REUSE:
        show({"tagger": out, "reused": True}, as_json)
        return
    features = representations(given)
    if kind == "local" and not features:
        raise click.UsageError("A local tagger needs the vectors of a model: give one with --model.")
    words, tags = read_labelled(inputs, given)
    with contextlib.suppress(Unfinished), progress_bar() as progress, workplace(out, given["work"]) as work:
        with interrupts_noticed() as interrupted:
            if kind == "tagger":
                tagger: Any = Tagger("default" if given["text"] else features or None, **params)
                other = read_labelled(given["held_out"], given) if given["held_out"] else None
                text = list(given["text"]) or None
                tagger.fit(words, tags, text=text, validation=other, checkpoint=work, progress=progress)
            else:
                progress(Progress("features", 0, None, "token"))
                tagger = (CRFTagger if kind == "crf" else LocalTagger)(features or None, **params)
                tagger.set_params(callbacks=[lambda e: progress(_progress(e))])
                tagger.fit(words, tags, **({"checkpoint": work} if kind == "crf" else {}))
        tagger.columns_ = columns_of(inputs, given)
        save_fit(tagger, place, made, interrupted, overwrite=overwrite or state is Target.CONTINUE)
    names = [f.name for f in tagger.features_]
    facts = {
        "tagger": out,
        "sentences": len(words),
        "tokens": sum(map(len, words)),
        "tags": len(tagger.labels_),
        "spans": None if tagger.scheme_ is None else tagger.scheme_.upper(),
        "features": names if names or as_json else "spelling alone",
        "iterations": len(tagger.history_),
        "seconds": round(time.perf_counter() - began, 1),
    }
    scores = getattr(tagger, "held_out_", None)
    if as_json and scores is not None:
        facts["held_out"] = scores.as_dict()
    show(facts, as_json)
    if scores is not None and not as_json:
        click.echo("\n".join(["", "On sentences that were held out:", *table(scores)]))


def training_recipe(inputs: tuple[str, ...], given: dict[str, Any]) -> Any:
    """What a tagger depends on: labelled files, text, models, and the options."""
    from undertow.recipe import recipe
    from undertow.text.reading import expand_inputs

    files = [*expand_inputs(inputs), *given["held_out"], *given["models"]]
    text = [t for t in given["text"] if Path(t).is_dir()] or (expand_inputs(given["text"]) if given["text"] else [])
    skipped = ("work", "n_jobs", "held_out", "models", "text")
    return recipe(hashed_inputs([*files, *text]), options_given(given, skipped))


@contextmanager
def workplace(out: str, work: str | None) -> Iterator[Path]:
    """The directory of finished parts: the one given, or one beside the output that is removed at the end."""
    from undertow.atomic import resumable_staging
    from undertow.results.tagging.parts import WORK

    if work is not None:
        yield Path(work)
        return
    with resumable_staging(Path(out), WORK, "training a tagger") as staging:
        yield staging


def chosen(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of this kind that were given as options."""
    for options in OPTIONS.values():
        for parameter, option in options.items():
            if parameter not in OPTIONS[kind] and given[parameter] not in (None, ()):
                kinds = " or ".join(k for k, o in OPTIONS.items() if parameter in o)
                raise click.UsageError(f"{option} can only be used with --kind {kinds}.")
    params = {p: given[p] for p in OPTIONS[kind] if p not in NOT_PARAMETERS and given[p] is not None}
    if "n_jobs" in OPTIONS[kind]:
        params.setdefault("n_jobs", -1)
    if params.get("validation") == 0:
        params["validation"] = None
    return params


def _progress(event: Any) -> Progress:
    return Progress("fit", event.iteration, event.n_iter, "iteration", f"objective {event.objective:.4f}")
