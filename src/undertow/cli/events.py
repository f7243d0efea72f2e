"""undertow events: from dated documents to a table of who met what, when."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from undertow.cli.common import json_option, overwrite_option, progress_bar, show


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option(
    "-o", "--out", required=True, type=click.Path(), help="CSV or TSV file to write, or - for standard output."
)
@click.option("--time", default="year", show_default=True, help="Field with the time: a number, date or label.")
@click.option("--rows", default="authors", show_default=True, help="Field with the rows: a name, or a list of names.")
@click.option("--columns", default="words", show_default=True, help="Field with the columns: a text, names, or counts.")
@click.option("--n-rows", type=click.IntRange(1), help="Keep the most frequent rows.  [default: all]")
@click.option("--n-columns", type=click.IntRange(1), help="Keep the most frequent columns.  [default: all]")
@click.option("--min-count", type=float, default=0, show_default=True, help="Leave out what has fewer counts.")
@click.option("--min-times", type=click.IntRange(1), default=1, show_default=True, help="Or was there at fewer times.")
@click.option("--stop-words", is_flag=True, help="Leave out English words that say little, as columns.")
@overwrite_option
@json_option
def command(
    inputs: tuple[str, ...],
    out: str,
    time: str,
    rows: str,
    columns: str,
    n_rows: int | None,
    n_columns: int | None,
    min_count: float,
    min_times: int,
    stop_words: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Count pairs over time in JSON lines, one document a line, and write them as (time, row, column, count).

    Every row of a document is credited with all its columns. INPUTS may be packed (gz, xz, bz2, zst).
    """
    from undertow.atomic import check_file_target
    from undertow.progress import Progress
    from undertow.text.event_documents import events_from_documents
    from undertow.text.event_files import event_lines, write_events
    from undertow.text.stop_words import ENGLISH

    if out == "-" and as_json:
        raise click.UsageError("Standard output takes the events or the --json report, not both: give a file with -o.")
    if out != "-":
        check_file_target(Path(out), overwrite=overwrite)
    with progress_bar() as progress:
        events = events_from_documents(
            list(inputs),
            time=time,
            rows=rows,
            columns=columns,
            stop_words=ENGLISH if stop_words else (),
            progress=lambda done: progress(Progress("read", done, None, "document")),
        )
    events = events.select(n_rows=n_rows, n_columns=n_columns, min_count=min_count, min_times=min_times)
    if out == "-":
        for line in event_lines(events):
            sys.stdout.write(line)
        return
    write_events(events, out, overwrite=overwrite)
    facts: dict[str, Any] = {
        "events": out,
        "times": [str(events.times[0]), str(events.times[-1])],
        "steps": len(events.times),
        rows: len(events.row_names),
        columns: len(events.column_names),
        "different_events": events.n_events,
        "counts": events.total,
    }
    show(facts, as_json)
