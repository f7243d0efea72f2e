"""undertow clusters: cluster words and write their bit-string paths."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import jobs_option, json_option, overwrite_option, progress_bar, show
from undertow.cli.count import one_kind, open_or_build
from undertow.cli.reading_options import reading_options
from undertow.cli.signals import unsaved_work
from undertow.errors import InputError
from undertow.progress import Progress


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Output file, or - for standard output.")
@click.option("--clusters", type=click.IntRange(1), default=1000, show_default=True, help="Number of clusters.")
@click.option("--iterations", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of passes.")
@click.option(
    "--seed", type=click.IntRange(0), help="Seed of a random initialization.  [default: initialize by frequency rank]"
)
@reading_options
@jobs_option
@overwrite_option
@json_option
def command(**given: Any) -> None:
    """Cluster words by their neighbors and write one line per word: bit string, word and count, separated by tabs.

    INPUTS is one counts directory, one corpus directory, or text files, from which a corpus is first built next to the
    output. Similar words share a prefix of their bit strings. Ctrl-C stops after the last finished pass and writes its
    clusters.
    """
    out, iterations, seed = given["out"], given["iterations"], given["seed"]
    if out == "-" and given["as_json"]:
        raise click.UsageError(
            "The paths and the --json report cannot both go to standard output: give a file with -o."
        )
    from undertow.atomic import check_file_target
    from undertow.results.word_clusters import WordClusters

    began = time.perf_counter()
    if out != "-":
        check_file_target(Path(out), overwrite=given["overwrite"])
    facts: dict[str, Any] = {"paths": out}
    with progress_bar() as progress, unsaved_work() as finished:
        counts = _counts(given, progress, facts)
        progress(Progress("clusters", 0, iterations, "pass"))
        model = WordClusters(
            given["clusters"],
            n_iter=iterations,
            init="frequency" if seed is None else "random",
            random_state=seed,
            callbacks=[finished, lambda event: progress(_progress(event))],
        ).fit(counts)
    if out == "-":
        sys.stdout.buffer.writelines(model.path_lines())
        return
    model.save_paths(out, overwrite=given["overwrite"])
    facts |= {
        "tokens": counts.n_tokens,
        "words": len(model.paths),
        "clusters": given["clusters"],
        "passes": len(model.history_),
        "objective": round(model.history_[-1], 6),
        "seconds": round(time.perf_counter() - began, 1),
    }
    show(facts, given["as_json"])


def _progress(event: Any) -> Progress:
    return Progress("clusters", event.iteration, event.n_iter, "pass", f"objective {event.objective:.4f}")


def _counts(given: dict[str, Any], progress: Any, facts: dict[str, Any]) -> Any:
    """Open the given counts, or count the given corpus or text."""
    from undertow.text.lag_counts import LagCounts

    inputs, out = given["inputs"], given["out"]
    kind = one_kind(inputs)
    if kind == "counts":
        if len(inputs) > 1:
            raise InputError("Give one counts directory: sum several with undertow count first.")
        return LagCounts.open(inputs[0])
    if kind == "text" and out == "-":
        raise click.UsageError(
            "A corpus is built from text next to the output file: give a file with -o, or a corpus directory as input."
        )
    corpus = open_or_build(inputs, Path(out).with_suffix(".corpus"), kind, given, progress)
    if kind == "text":
        facts["corpus"] = str(corpus.path)
    return LagCounts.from_corpus(corpus, lags=1, n_jobs=given["jobs"], progress=progress)
