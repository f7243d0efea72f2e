"""undertow tag train: train a tagger on labelled text."""

from __future__ import annotations

import time
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show
from undertow.cli.tag_options import columns_of, labelled_options, read_labelled
from undertow.progress import Progress

# kind -> parameter -> option; an option of the other kind is an error, not ignored
OPTIONS = {
    "crf": {
        "window": "--window",
        "l1": "--l1",
        "l2": "--l2",
        "n_iter": "--iterations",
        "algorithm": "--algorithm",
        "random_state": "--seed",
    },
    "local": {"n_hidden": "--hidden", "n_iter": "--iterations", "random_state": "--seed"},
}


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Output directory.")
@click.option(
    "--kind",
    type=click.Choice(["crf", "local"]),
    default="crf",
    show_default=True,
    help="crf: a CRF on spelling and model features; local: a small neural network on model vectors.",
)
@click.option(
    "--model", "models", multiple=True, type=click.Path(), help="Model to take features from; may be repeated."
)
@click.option(
    "--view", "views", multiple=True, help="View of each --model, in the same order.  [default: depends on the model]"
)
@click.option("--window", type=click.IntRange(0, 10), help="Context words on each side (crf).  [default: 2]")
@click.option("--l1", type=click.FloatRange(0), help="L1 penalty (crf).  [default: 0]")
@click.option("--l2", type=click.FloatRange(0), help="L2 penalty (crf).  [default: 1]")
@click.option(
    "--algorithm",
    type=click.Choice(["lbfgs", "minibatch"]),
    help="Training algorithm (crf); use 5 to 10 iterations with minibatch.  [default: lbfgs]",
)
@click.option("--hidden", "n_hidden", type=click.IntRange(1), help="Number of hidden units (local).  [default: 25]")
@click.option(
    "--iterations", "n_iter", type=click.IntRange(1), help="Maximum number of iterations.  [default: crf 100, local 30]"
)
@click.option("--seed", "random_state", type=click.IntRange(0), help="Seed of the random generator.")
@labelled_options
@overwrite_option
@json_option
def command(
    inputs: tuple[str, ...],
    out: str,
    kind: str,
    models: tuple[str, ...],
    views: tuple[str, ...],
    overwrite: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Train a tagger on INPUTS: CoNLL, CoNLL-U or TSV files with one word and its tag per row.

    With --model the tagger also uses the vectors or states that the model assigns to each token, and saves a copy of
    the model.
    """
    from undertow.results.tagging import CRFTagger, LocalTagger
    from undertow.storage import check_target

    began = time.perf_counter()
    params = chosen(kind, given)
    check_target(out, overwrite)
    features = [representation(m, views[i] if i < len(views) else None) for i, m in enumerate(models)]
    if len(views) > len(models):
        raise click.UsageError("There are more --view than --model options: give at most one view per model.")
    if kind == "local" and not features:
        raise click.UsageError("A local tagger needs the vectors of a model: give one with --model.")
    tagger: Any = (CRFTagger if kind == "crf" else LocalTagger)(features or None, **params)
    words, tags = read_labelled(inputs, given)
    with progress_bar() as progress:
        progress(Progress("features", 0, None, "token"))
        tagger.set_params(callbacks=[lambda e: progress(_progress(e))]).fit(words, tags)
    tagger.columns_ = columns_of(given)
    tagger.save(out, overwrite=overwrite)
    facts = {
        "tagger": out,
        "sentences": len(words),
        "tokens": sum(map(len, words)),
        "tags": len(tagger.labels_),
        "spans": None if tagger.scheme_ is None else tagger.scheme_.upper(),
        "features": [f.name for f in tagger.features_],
        "iterations": len(tagger.history_),
        "seconds": round(time.perf_counter() - began, 1),
    }
    show(facts, as_json)


def chosen(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of this kind that were given as options."""
    for other, options in OPTIONS.items():
        for parameter, option in options.items():
            if other != kind and parameter not in OPTIONS[kind] and given[parameter] is not None:
                raise click.UsageError(f"{option} can only be used with --kind {other}.")
    return {parameter: given[parameter] for parameter in OPTIONS[kind] if given[parameter] is not None}


def representation(path: str, view: str | None) -> Any:
    from undertow.results.tagging.representation import as_representation
    from undertow.storage import load_model

    return as_representation(load_model(path), view)


def _progress(event: Any) -> Progress:
    return Progress("fit", event.iteration, event.n_iter, "iteration", f"objective {event.objective:.4f}")
