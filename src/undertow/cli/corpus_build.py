"""undertow corpus build: build a corpus directory from text files."""

from __future__ import annotations

from typing import Any

import click

from undertow.cli.common import jobs_option, json_option, overwrite_option, progress_bar, show
from undertow.cli.reading_options import build_arguments, reading_options


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=click.Path(), help="Output directory.")
@reading_options
@jobs_option
@overwrite_option
@json_option
def command(inputs: tuple[str, ...], out: str, jobs: int, overwrite: bool, as_json: bool, **given: Any) -> None:
    """Build a corpus directory from text files.

    INPUTS are file names, glob patterns or - for standard input; gz, bz2, xz and zst files are decompressed. If
    interrupted, run the same command again to resume.
    """
    from undertow.text.corpus import Corpus

    with progress_bar() as progress:
        corpus, report = Corpus.build_with_report(
            list(inputs), out, n_jobs=jobs, overwrite=overwrite, progress=progress, **build_arguments(given)
        )
    unknown = corpus.vocabulary.n_unknown / max(corpus.n_tokens, 1)
    facts = {
        "corpus": out,
        "tokens": corpus.n_tokens,
        "sentences": corpus.n_sentences,
        "words": len(corpus.vocabulary),
        "unknown": f"{unknown:.2%}" if not as_json else unknown,
        "files": report.reading.files,
    }
    if report.reused:
        facts["parts_resumed"] = f"{report.reused} of {report.parts}"
    if report.reading.cut_lines:
        facts["lines_cut"] = report.reading.cut_lines
    if report.reading.bad_utf8:
        facts["invalid_utf8"] = report.reading.bad_utf8
    show(facts, as_json)
