"""undertow events: count (time, row, column) events in dated documents."""

from __future__ import annotations

import statistics
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, kind_options, overwrite_option, progress_bar, show, time_range


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option(
    "-o", "--out", required=True, type=click.Path(), help="Output file, CSV or TSV, or - for standard output."
)
@click.option("--time", default="year", show_default=True, help="Field that holds the time: a number, date or label.")
@click.option(
    "--rows", default="authors", show_default=True, help="Field that holds the row names: a name or a list of names."
)
@click.option(
    "--columns",
    default="words",
    show_default=True,
    help="Field that holds the columns: a text, a list of paragraphs or of names, or an object of counts.",
)
@click.option(
    "--years",
    type=click.IntRange(1),
    help="Years of a step: years and dates become the first year of their step.  [default: times as they are]",
)
@click.option("--n-rows", type=click.IntRange(1), help="Keep this many rows, the most frequent.  [default: all]")
@click.option("--n-columns", type=click.IntRange(1), help="Keep this many columns, the most frequent.  [default: all]")
@click.option(
    "--min-count", type=float, default=0, show_default=True, help="Drop rows and columns with a smaller total count."
)
@click.option(
    "--min-times",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Drop rows and columns seen at fewer times.",
)
@click.option("--min-row-count", type=float, help="The same for rows alone.  [default: --min-count]")
@click.option("--min-column-count", type=float, help="The same for columns alone.  [default: --min-count]")
@click.option("--min-row-times", type=click.IntRange(1), help="The same for rows alone.  [default: --min-times]")
@click.option("--min-column-times", type=click.IntRange(1), help="The same for columns alone.  [default: --min-times]")
@kind_options
@click.option("--stop-words", is_flag=True, help="Drop English stop words from the columns.")
@overwrite_option
@json_option
def command(
    inputs: tuple[str, ...],
    out: str,
    time: str,
    rows: str,
    columns: str,
    years: int | None,
    n_rows: int | None,
    n_columns: int | None,
    min_count: float,
    min_times: int,
    min_row_count: float | None,
    min_column_count: float | None,
    min_row_times: int | None,
    min_column_times: int | None,
    row_name: str | None,
    column_name: str | None,
    stop_words: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Count (time, row, column) events in dated documents and write them as a table.

    INPUTS are JSON lines, CSV or TSV files with a field for each of the three (a ; separates the names of a CSV field);
    or text files with a date in their names, such as 1970/ALB_25_1970.txt, whose row is the rest of the name (ALB), or
    with --rows folder the folder; or folders of such files. Every row name of a document is counted with each of its
    columns. Files may be compressed (gz, xz, bz2, zst).
    """
    from undertow.atomic import check_file_target
    from undertow.progress import Progress
    from undertow.text.event_documents import events_from_documents
    from undertow.text.event_files import event_lines, write_events
    from undertow.text.stop_words import ENGLISH

    if out == "-" and as_json:
        raise click.UsageError(
            "The events and the --json report cannot both go to standard output: give a file with -o."
        )
    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    with progress_bar() as progress:
        events = events_from_documents(
            list(inputs),
            time=time,
            rows=rows,
            columns=columns,
            years=years,
            stop_words=ENGLISH if stop_words else (),
            kind_names=(row_name or rows, column_name or columns) if row_name or column_name else None,
            progress=lambda done: progress(Progress("read", done, None, "document")),
        )
    events = events.select(
        n_rows=n_rows,
        n_columns=n_columns,
        min_count=tuple(min_count if x is None else x for x in (min_row_count, min_column_count)),  # type: ignore[arg-type]
        min_times=tuple(min_times if x is None else x for x in (min_row_times, min_column_times)),  # type: ignore[arg-type]
    )
    if out == "-":
        for line in event_lines(events):
            sys.stdout.write(line)
        return
    write_events(events, out, overwrite=overwrite)
    times = [time for time, table in zip(events.times, events.tables, strict=True) if table.nnz]  # as in the file
    facts: dict[str, Any] = {
        "events": out,
        "times": [str(times[0]), str(times[-1])] if as_json else time_range(times),
        "steps": len(times),
        events.kind_names[0]: len(events.row_names),
        events.kind_names[1]: len(events.column_names),
        "different_events": events.n_events,
        "counts": int(events.total) if float(events.total).is_integer() else events.total,
    }
    show(facts, as_json)
    in_step = [len(set(table.nonzero()[0].tolist())) for table in events.tables if table.nnz]
    if len(in_step) > 2 and statistics.median(in_step) < 2:
        warnings.warn(
            f"At least half of the {len(in_step)} steps have one of the {events.kind_names[0]} alone, whose place "
            "nothing tells there: make steps longer (--years).",
            LonelyRowsWarning,
            stacklevel=1,
        )


class LonelyRowsWarning(UserWarning):
    """Most steps have a single row."""
