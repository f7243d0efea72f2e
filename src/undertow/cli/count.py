"""undertow count: from a corpus (or text files, or other counts) to pair counts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import (
    Size,
    dask_options,
    jobs_option,
    json_option,
    overwrite_option,
    progress_bar,
    requested_engine,
    show,
)
from undertow.cli.reading_options import build_arguments, reading_options
from undertow.errors import InputError


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Output directory.")
@click.option(
    "--lags",
    type=click.IntRange(1, 255),
    default=7,
    show_default=True,
    help="Largest distance between two words of a pair.",
)
@click.option(
    "--across", is_flag=True, help="Also count pairs across sentence boundaries.  [default: within sentences]"
)
@click.option("--memory", type=Size(), default="4G", show_default=True, help="Memory limit.")
@reading_options
@jobs_option
@dask_options
@overwrite_option
@json_option
def command(**given: Any) -> None:
    """Count word pairs at lags 1 to L and write them to a directory.

    INPUTS is one corpus directory; or text files, from which a corpus is first built next to the output; or several
    counts directories with the same vocabulary, which are summed. If interrupted, run the same command again to resume.
    """
    from undertow.text.counts_directory import read_counts_manifest
    from undertow.text.lag_counts import LagCounts

    inputs, out, overwrite = given["inputs"], Path(given["out"]), given["overwrite"]
    kind = one_kind(inputs)
    check_place(out, given)
    facts: dict[str, Any] = {"counts": given["out"]}
    with progress_bar() as progress, requested_engine(given) as engine:
        if kind == "counts":
            parts = [LagCounts.open(i) for i in inputs]
            counts = LagCounts.merge(parts, out, overwrite=overwrite, progress=progress)
        else:
            corpus = open_or_build(inputs, sibling(out, ".counts", ".corpus"), kind, given, progress)
            facts["corpus"] = str(corpus.path)
            counts = count_into(
                out, corpus, given["lags"], given, engine, progress, across=given["across"], overwrite=overwrite
            )
    manifest = read_counts_manifest(out)  # its sums, so that the counts need not be read again
    facts |= {
        "tokens": counts.n_tokens,
        "words": len(counts.vocabulary),
        "lags": counts.lags,
        "across_sentences": counts.across,
        "pairs": manifest["pairs"],
        "different_pairs": manifest["nnz"],
    }
    show(facts, given["as_json"])


def check_place(out: Path, given: dict[str, Any]) -> None:
    """Refuse a place that cannot be written before any text is read; what stands there is compared later."""
    from undertow.atomic import check_directory_target
    from undertow.recipe import read_recipe
    from undertow.text.counts_directory import COUNTS

    if not out.is_dir() or out.is_symlink() or given["overwrite"] or read_recipe(out) is None:
        check_directory_target(out, COUNTS, overwrite=given["overwrite"])


def count_into(
    out: Path,
    corpus: Any,
    lags: int,
    given: dict[str, Any],
    engine: Any,
    progress: Any,
    *,
    across: bool = False,
    overwrite: bool = False,
) -> Any:
    from undertow.text.lag_counts import LagCounts

    return LagCounts.from_corpus(
        corpus,
        lags=lags,
        across=across,
        n_jobs=given["jobs"],
        engine=engine,
        out=out,
        memory=given["memory"],
        overwrite=overwrite,
        progress=progress,
    )


def one_kind(inputs: tuple[str, ...]) -> str:
    """The kind of all inputs: corpus, counts or text; an error if they differ."""
    kinds = {kind_of(i) for i in inputs}
    if len(kinds) > 1 or (kinds == {"corpus"} and len(inputs) > 1):
        raise InputError(
            "INPUTS must be one corpus directory, or text files, or counts directories to sum: do not mix them, and "
            "give no second corpus."
        )
    return kinds.pop()


def kind_of(path: str) -> str:
    """The kind of an input (corpus, counts or text) by its manifest."""
    from undertow.files import read_json
    from undertow.text.corpus import MANIFEST

    directory = Path(path)
    if path == "-" or not directory.is_dir():
        return "text"
    if not (directory / MANIFEST).exists():
        raise InputError(
            f"{path} is a directory without {MANIFEST}: give a corpus or counts directory, or the text files in it."
        )
    return str(read_json(directory / MANIFEST).get("format", "")).removeprefix("undertow ") or "unknown"


def open_or_build(inputs: tuple[str, ...], beside: Path, kind: str, given: dict[str, Any], progress: Any) -> Any:
    """Open the given corpus, or build one from text files in the directory `beside`.

    A corpus of the same text that is there already is reused; if it is another, the new one is named apart.
    """
    from undertow.recipe import name_apart
    from undertow.text.corpus import Corpus
    from undertow.text.corpus_build import CORPUS, corpus_recipe

    if kind != "text":
        return Corpus.open(inputs[0])
    options = build_arguments(given)
    if os.path.lexists(beside):
        beside = name_apart(beside, CORPUS, corpus_recipe(inputs, **options))
    return Corpus.build(
        list(inputs), beside, progress=progress, memory=given.get("memory"), n_jobs=given["jobs"], **options
    )


def sibling(path: Path, suffix: str, other: str) -> Path:
    """a/b.lds -> a/b.counts, and a/b -> a/b.counts."""
    return path.with_name(path.name.removesuffix(suffix) + other)
